"""Whether conditions of a query imply that of a partial index: only then has the index all rows that are looked for."""

from __future__ import annotations

from collections.abc import Sequence

from gmdb.sql import tree
from gmdb.sql.bind.of_rows import kept_condition
from gmdb.sql.plan.paths import equal_key, high_end, low_end
from gmdb.sql.plan.terms import COMPARISONS, is_call, negated, rejects_nulls, substituted, unconverted
from gmdb.sql.tree import Column, Expression, conjuncts
from gmdb.sql.types import FLOATS
from gmdb.tables.access.indexes import IndexDefinition


def condition_of(index: IndexDefinition, table: tree.Table) -> Expression | None:
    """The condition of an index, about the columns of a table as a statement has them; None: it has all rows."""
    if index.condition is None:
        return None
    columns, condition = kept_condition(table.definition.name, table.definition.columns, index.condition)
    return substituted(
        condition,
        {own: tree.Reference(column.type, column) for own, column in zip(columns, table.stored, strict=True)},
    )


def implies(parts: Sequence[Expression], condition: Expression) -> bool:
    """Whether a condition is true of every row of which all of these parts are."""
    return all(_all_imply(parts, one) for one in conjuncts(condition))


def _all_imply(parts: Sequence[Expression], condition: Expression) -> bool:
    """``implies``, of a condition that is not an AND."""
    if isinstance(condition, tree.Constant):
        return condition.value is True
    if any(_implies(part, condition) for part in parts):
        return True
    is_or = isinstance(condition, tree.Junction)
    return is_or and any(implies(parts, branch) for branch in condition.parts)  # type: ignore[attr-defined]


def _implies(part: Expression, condition: Expression) -> bool:
    """``implies`` of one part, and a condition that is not an AND."""
    if part == condition or _are_exchanged(part, condition):
        return True
    if isinstance(part, tree.Junction):
        if part.absorbing:
            return all(implies(conjuncts(branch), condition) for branch in part.parts)
        return implies(part.parts, condition)
    inner = negated(condition)
    if inner is not None and is_call(inner, "is_null"):
        asked = unconverted(inner.arguments[0])  # type: ignore[attr-defined]
        return isinstance(asked, tree.Reference) and rejects_nulls(part, {asked.column})
    if is_call(part, "is_true"):
        return _implies(part.arguments[0], condition)  # type: ignore[attr-defined]
    if is_call(condition, "is_true"):
        return _implies(part, condition.arguments[0])  # type: ignore[attr-defined]
    known, wanted = _comparison(part), _comparison(condition)
    return known is not None and wanted is not None and _is_within(*known, *wanted)


def _are_exchanged(part: Expression, condition: Expression) -> bool:
    """Whether two comparisons are one with its sides exchanged."""
    if not isinstance(part, tree.Call) or not isinstance(condition, tree.Call):
        return False
    is_turned = COMPARISONS.get(part.operation.name) == condition.operation.name
    return is_turned and part.arguments == condition.arguments[::-1]


def _comparison(part: Expression) -> tuple[Column, str, tree.Constant] | None:
    """A comparison of a column with a constant."""
    if not is_call(part, *COMPARISONS, "<>"):
        return None
    symbol, (left, right) = part.operation.name, part.arguments  # type: ignore[attr-defined]
    for own, value, sign in ((left, right, symbol), (right, left, COMPARISONS.get(symbol, symbol))):
        column = unconverted(own)
        if isinstance(column, tree.Reference) and isinstance(value, tree.Constant) and value.value is not None:
            return column.column, sign, value
    return None


def _is_within(
    own: Column, symbol: str, value: tree.Constant, other: Column, wanted: str, limit: tree.Constant
) -> bool:
    """Whether values of a column that compare so with one constant compare so with another."""
    if own is not other or own.type.name == "CHAR" or "CHAR" in (value.type.name, limit.type.name):
        return False
    if any(one.type.name in FLOATS and one.type.name != own.type.name for one in (value, limit)):
        return False
    if wanted == "<>":
        return _is_apart(own, symbol, value, limit)
    if wanted == "=":
        key = equal_key(own.type, limit.value)
        return symbol == "=" and key is not None and key == equal_key(own.type, value.value)
    if symbol not in ("=", wanted, wanted[0], f"{wanted[0]}="):
        return False
    end_of, is_low = (low_end, True) if wanted[0] == ">" else (high_end, False)
    mine = end_of(own.type, value.value, symbol in ("<", ">"))
    needed = end_of(own.type, limit.value, wanted in ("<", ">"))
    if mine is None:
        return True  # no row is there
    if needed is None or needed[0] is None or mine[0] is None:
        return False
    if mine[0] == needed[0]:
        return mine[1] or not needed[1]
    return bool(mine[0] > needed[0]) if is_low else bool(mine[0] < needed[0])


def _is_apart(own: Column, symbol: str, value: tree.Constant, limit: tree.Constant) -> bool:
    """Whether values that compare so with one constant are never equal to another."""
    key = equal_key(own.type, limit.value)
    if key is None:
        return True
    if symbol == "=":
        return bool(key != equal_key(own.type, value.value))
    if symbol == "<>":
        return bool(key == equal_key(own.type, value.value))
    end = (low_end if symbol[0] == ">" else high_end)(own.type, value.value, len(symbol) == 1)
    if end is None or end[0] is None:
        return end is None
    if key == end[0]:
        return end[1]
    return bool(key < end[0]) if symbol[0] == ">" else bool(key > end[0])
