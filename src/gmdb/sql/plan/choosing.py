"""Choosing the paths to the rows of one table that some conditions leave over.

A condition is looked through for comparisons of a column with something that has no column of the table.  Those that
an index serves become ranges of its keys.  A partial index serves conditions that imply its own.
Not here: joins (joins.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

from gmdb.errors import Error
from gmdb.format.columns import ColumnType
from gmdb.process.late_dataclasses import dataclass, replace
from gmdb.sql import tree
from gmdb.sql.plan.estimates import Estimates, known_value
from gmdb.sql.plan.implication import condition_of, implies
from gmdb.sql.plan.indexed import expressions_of
from gmdb.sql.plan.paths import Bound, Path, Span, is_equal_to_one
from gmdb.sql.plan.terms import COMPARISONS, is_call, is_movable, negated, unconverted_once
from gmdb.sql.tree import Column, Expression, SortKey, columns_of, conjuncts, has_queries, is_volatile
from gmdb.sql.types import BOOLEAN
from gmdb.tables.access.indexes import IndexDefinition

SPANS_MAX = 1000
_EXACT_NUMBERS = ("SMALLINT", "INT", "BIGINT", "DECIMAL")
_EXACT_TIMES = ("DATE", "TIMESTAMP")


@dataclass(frozen=True, slots=True)
class Comparison:
    """``column`` compared with a value that is known before the row is: ``=``, ``<``, ``<=``, ``>`` or ``>=``.

    ``exact``: the keys that are in a range of an index for it are those that it is true of.
    """

    column: Column
    symbol: str
    value: Expression
    exact: bool


@dataclass(frozen=True, slots=True)
class Choice:
    """A path, and those of the conditions that it decides: they are not checked again."""

    path: Path
    decided: frozenset[int]  # identities of conditions


class Chooser:
    """The paths to the rows of one table that meet all of some conditions."""

    def __init__(
        self, table: tree.Table, parts: Sequence[Expression], estimates: Estimates, alone: bool = False
    ) -> None:
        """``alone``: keys must consist of parameters and constants."""
        self._table, self._parts, self._estimates, self._alone = table, parts, estimates, alone
        self._own = set(table.columns)
        self._expressions = expressions_of(table)  # what indexes are on, as if it were columns
        self._keys = (*table.stored, *(column for _, column in self._expressions))
        self._plain: dict[int, list[Comparison]] = {}  # by conditions' identities
        self._choices: dict[int, list[list[Comparison]]] = {}
        self._is_guarded = False  # by a condition without columns, which may prevent that what follows is evaluated
        for part in parts:
            alternatives = self._alternatives(part)
            self._is_guarded = self._is_guarded or not columns_of(part)
            if alternatives is not None and len(alternatives) == 1:
                self._plain[id(part)] = alternatives[0]
            elif alternatives is not None:
                self._choices[id(part)] = alternatives
        self.rows = estimates.rows(table.definition)
        for part in parts:
            self.rows *= estimates.share(part, self._own)
        self.rows = max(self.rows, 0.01)
        self._indexes = [index for index in estimates.indexes(table.definition) if self._has_all(index)]

    def _has_all(self, index: IndexDefinition) -> bool:
        """Whether the index has entries of all rows that meet the conditions."""
        try:
            condition = condition_of(index, self._table)
        except Error:  # it speaks of a column by a name that it had before
            return False
        return condition is None or implies([one for part in self._parts for one in conjuncts(part)], condition)

    # ---- conditions as comparisons

    def _alternatives(self, part: Expression) -> list[list[Comparison]] | None:
        """A condition as comparisons, all of one of the lists being true; None if it is none of that."""
        if isinstance(part, tree.Junction) and part.absorbing:
            lists: list[list[Comparison]] = []
            for branch in part.parts:
                inner = self._alternatives(branch)
                if inner is None:
                    return None
                lists += inner
            return lists if len(lists) <= SPANS_MAX else None
        known: list[Comparison] = []
        decides = True
        for one in conjuncts(part):
            comparisons = self._comparisons(one)
            decides = decides and bool(comparisons)
            known += comparisons
        if not known:
            return None
        return [known if decides else [replace(comparison, exact=False) for comparison in known]]

    def _comparisons(self, part: Expression) -> list[Comparison]:
        if part.type == BOOLEAN and (truth := self._column(part)) is not None:
            return [Comparison(truth, "=", tree.Constant(BOOLEAN, True), True)]
        inner = negated(part)
        if inner is not None and (truth := self._column(inner)) is not None:
            return [Comparison(truth, "=", tree.Constant(BOOLEAN, False), True)]
        if isinstance(part, tree.Junction) or not isinstance(part, tree.Call):
            return []
        if is_call(part, "like") and len(part.arguments) == 2:
            return self._prefix(*part.arguments)
        if part.operation.name not in COMPARISONS or len(part.arguments) != 2:
            return []
        left, right = part.arguments
        for own, value, symbol in (
            (left, right, part.operation.name),
            (right, left, COMPARISONS[part.operation.name]),
        ):
            column = self._column(own)
            if column is not None and self._is_free(value):
                return self._of_column(column, symbol, value)
        return []

    def _column(self, expression: Expression) -> Column | None:
        """The column of the table that an expression is, conversions apart that keep its order."""
        while True:
            for one, column in self._expressions:
                if one is not None and expression == one:
                    return column
            inner = unconverted_once(expression)
            if inner is expression:
                break
            expression = inner
        if isinstance(expression, tree.Reference) and expression.column in self._own:
            return expression.column
        return None

    def _is_free(self, value: Expression) -> bool:
        """Whether a value can be computed before any row is read."""
        columns = columns_of(value)
        if columns & self._own or (self._alone and (columns or has_queries(value))):
            return False
        return is_movable(value) or not (self._is_guarded or is_volatile(value))

    def _of_column(self, column: Column, symbol: str, value: Expression) -> list[Comparison]:
        own, other = column.type, value.type
        if own.name == "VARCHAR" and other.name == "CHAR":
            return []  # blanks at the end do not count then, and an index goes by them
        exact = _is_exact(own, other)
        if symbol == "=" and not is_equal_to_one(own, other):
            return [Comparison(column, ">=", value, False), Comparison(column, "<=", value, False)]
        if symbol != "=":
            exact = exact and own.name != "VARCHAR"
        return [Comparison(column, symbol, value, exact)]

    def _prefix(self, text: Expression, pattern: Expression) -> list[Comparison]:
        """``text like 'abc%'``: texts from ``abc`` to before ``abd``."""
        column = self._column(text)
        if (
            column is None
            or column.type.name != "VARCHAR"
            or not isinstance(pattern, tree.Constant)
            or not pattern.value
        ):
            return []
        prefix = ""
        for letter in pattern.value:
            if letter in "%_\\":
                break
            prefix += letter
        if not prefix or ord(prefix[-1]) >= 0xD7FF:
            return []
        behind = prefix[:-1] + chr(ord(prefix[-1]) + 1)
        ends = [tree.Constant(pattern.type, prefix), tree.Constant(pattern.type, behind)]
        return [Comparison(column, ">=", ends[0], False), Comparison(column, "<", ends[1], False)]

    # ---- paths

    def choices(self) -> Iterator[Choice]:
        """The paths that are not a scan."""
        by_id = self._by_row_id()
        if by_id is not None:
            yield by_id
        for index in self._indexes:
            choice = self.by_index(index, needed=index.condition is None)
            if choice is not None:
                yield choice

    def _by_row_id(self) -> Choice | None:
        for comparisons in (*([one] for one in self._plain.values()), *self._choices.values()):
            values = [c.value for one in comparisons for c in one if c.column is self._table.row_id and c.symbol == "="]
            if len(values) == len(comparisons):
                return Choice(Path(row_ids=tuple(values), estimate=float(len(values))), frozenset())
        return None

    def by_index(self, index: IndexDefinition, needed: bool = True) -> Choice | None:
        """The path by an index; None if its first column is not compared.  Unless ``needed``: all of its keys then."""
        columns = tuple(self._keys[n] for n in index.key)
        plain = [(key, c) for key, comparisons in self._plain.items() for c in comparisons]
        best = self._spans(index, columns, [plain])
        if best is None and needed and not self._choices:
            return None
        for key, alternatives in self._choices.items() if index.using == "btree" or best is None else ():
            sets = [[(key, c) for c in alternative] for alternative in alternatives]
            before = [plain] if best is None else best[2]
            both = [[*one, *other] for one, other in product(before, sets)]
            longer = self._spans(index, columns, both) if len(both) <= SPANS_MAX else None
            if longer is not None and (best is None or _uses_more(longer[0], best[0])):
                best = longer
        if best is None:
            if needed or index.using != "btree":
                return None
            best = [Span()], frozenset(), [[]]
        spans, decided, _ = best
        stored = tuple(self._table.definition.stored[n] for n in index.key)
        return Choice(Path(index, stored, tuple(spans), estimate=self._count(index, spans)), decided)

    def _spans(
        self, index: IndexDefinition, columns: tuple[Column, ...], sets: list[list[tuple[int, Comparison]]]
    ) -> tuple[list[Span], frozenset[int], list[list[tuple[int, Comparison]]]] | None:
        """A span for each set of comparisons, and the conditions that they decide together."""
        spans, used = [], []
        for one in sets:
            span = _span(index, columns, one)
            if span is None or (index.using != "btree" and len(span[0].equal) < len(columns)):
                return None
            spans.append(span[0])
            used.append(span[1])
        conditions = {id(part) for part in self._parts}
        decided = {
            key
            for key in conditions
            if all(
                all(n in own for n, (k, _) in enumerate(one) if k == key) for one, own in zip(sets, used, strict=True)
            )
            and all(any(k == key for k, _ in one) for one in sets)
        }
        return spans, frozenset(decided), sets

    def in_order(self, keys: Sequence[SortKey]) -> Iterator[Choice]:
        """Paths by which rows come sorted."""
        for index in self._indexes:
            if index.using != "btree":
                continue
            choice = self.by_index(index, needed=False)
            if choice is None:
                continue
            if len(choice.path.spans) > 1:
                whole = tuple([Span()])
                choice = Choice(replace(choice.path, spans=whole, estimate=None), frozenset())
            backwards = self._direction(index, choice.path.spans[0], keys)
            if backwards is not None:
                yield replace(choice, path=replace(choice.path, ordered=True, backwards=backwards))

    def _direction(self, index: IndexDefinition, span: Span, keys: Sequence[SortKey]) -> bool | None:
        """Whether rows must be read backwards to come sorted; None if neither way has them sorted."""
        columns = [self._keys[n] for n in index.key]
        at = len(span.equal)
        fixed = set(columns[:at])
        ways = set()
        for key in keys:
            column = self._sorted_by(key.value)
            if column in fixed:
                continue
            if at == len(columns) and index.unique and not any(one.nullable for one in columns):
                break  # no two rows have the same key
            if at == len(columns) or column is not columns[at] or columns[at].type.name == "CHAR":
                return None
            direction = index.direction(at)
            backwards = key.descending != direction.descending
            if columns[at].nullable and key.nulls_first != (direction.nulls_first != backwards):
                return None
            ways.add(backwards)
            fixed.add(columns[at])
            at += 1
        return None if len(ways) > 1 else True in ways

    def _sorted_by(self, value: Expression) -> Column | None:
        """The column, or what stands for an expression that an index is on, by which rows are sorted."""
        if isinstance(value, tree.Reference):
            return value.column
        return next((column for one, column in self._expressions if one is not None and one == value), None)

    def _count(self, index: IndexDefinition, spans: Sequence[Span]) -> float:
        """How many rows a path leads to."""
        definition = self._table.definition
        total = 0.0
        for span in spans:
            equal = index.key[: len(span.equal)]
            rows = self._estimates.of_key(definition, equal) if equal else self._estimates.rows(definition)
            if span.low is not None or span.high is not None:
                low, high = (
                    None if end is None else (known_value(end.value), end.open) for end in (span.low, span.high)
                )
                rows *= self._estimates.range_share(definition, index.key[len(equal)], low, high)
            total += max(rows, 0.01)
        condition = condition_of(index, self._table)
        share = 1.0 if condition is None else self._estimates.share(condition, self._own)
        return min(total, self._estimates.rows(definition)) * share


def _is_exact(own: ColumnType, other: ColumnType) -> bool:
    if own.name in _EXACT_NUMBERS:
        return other.name in _EXACT_NUMBERS
    if own.name in _EXACT_TIMES:
        return other.name in _EXACT_TIMES
    return own.name == other.name and own.name in ("VARCHAR", "BOOLEAN")


def _span(
    index: IndexDefinition, columns: Sequence[Column], comparisons: list[tuple[int, Comparison]]
) -> tuple[Span, set[int]] | None:
    """Keys that some comparisons lead to, and the numbers of those that they decide; None if there is none for it."""
    equal: list[Expression] = []
    decided: set[int] = set()
    low = high = None
    for number, column in enumerate(columns):
        own = [(n, c) for n, (_, c) in enumerate(comparisons) if c.column is column]
        same = next(((n, c) for n, c in own if c.symbol == "="), None)
        if same is not None:
            equal.append(same[1].value)
            decided |= {n for n, c in own if c.exact and c.symbol == "=" and c.value == same[1].value}
            continue
        ends: dict[str, tuple[int, Comparison]] = {}
        for n, c in own:
            ends.setdefault(c.symbol[0], (n, c))
        low, high = (
            Bound(ends[sign][1].value, ends[sign][1].symbol == sign) if sign in ends else None for sign in "><"
        )
        direction = index.direction(number)
        are_nulls_high = direction.descending == direction.nulls_first  # they lie beside the greatest values
        if "<" in ends and ends["<"][1].exact and (low is not None or not column.nullable or are_nulls_high):
            decided.add(ends["<"][0])
        if ">" in ends and ends[">"][1].exact and (high is not None or not column.nullable or not are_nulls_high):
            decided.add(ends[">"][0])
        break
    if not equal and low is None and high is None:
        return None
    return Span(tuple(equal), low, high), decided


def _uses_more(new: Sequence[Span], old: Sequence[Span]) -> bool:
    """Whether each of some ranges goes by more of a key than the one before it."""

    def depth(span: Span) -> tuple[int, int]:
        return len(span.equal), (span.low is not None) + (span.high is not None)

    return min(map(depth, new)) > max(map(depth, old))
