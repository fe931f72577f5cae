"""Properties of expressions and relations that the planner uses, and how it rebuilds them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gmdb.sql import operations, tree
from gmdb.sql.sharing import with_expressions
from gmdb.sql.tree import Column, Expression, Relation, columns_of, conjunction, conjuncts, is_volatile, rebuilt
from gmdb.sql.types import BOOLEAN


def is_call(expression: Expression, *names: str) -> bool:
    return isinstance(expression, tree.Call) and expression.operation.name in names


def is_movable(expression: Expression) -> bool:
    """Whether it may be evaluated for other rows than those that it was written for: it neither fails nor varies."""
    for one in expression.walk():
        if isinstance(one, tree.Call) and (one.operation.fails or one.operation.volatile):
            return False
        if isinstance(one, tree.Aggregate | tree.WindowCall) or (
            isinstance(one, tree.ScalarQuery) and not is_one_row(one.query)
        ):
            return False
        parts = (part for query in one.relations() for inner in tree.everything(query) for part in inner.expressions())
        if not all(is_movable(part) or isinstance(part, tree.Aggregate | tree.WindowCall) for part in parts):
            return False
    return True


def is_link(expression: Expression) -> bool:
    """Whether it is an equality that joins go by: each side is evaluated for the rows that it is about, and may fail.

    (Other joins may leave out rows before.)
    """
    if not is_call(expression, "=") or is_volatile(expression) or tree.has_queries(expression):
        return False
    left, right = map(columns_of, expression.children())
    return bool(left and right) and not left & right


def is_one_row(query: Relation) -> bool:
    """Whether a query gives one row at most, whatever the tables hold."""
    if isinstance(query, tree.Group):
        return not query.keys and query.sets is None
    if isinstance(query, tree.Limit):
        return isinstance(query.count, tree.Constant) and query.count.value is not None and query.count.value <= 1
    if isinstance(query, tree.Project | tree.Filter | tree.Sort):
        return is_one_row(query.source)
    return isinstance(query, tree.One)


def substituted(expression: Expression, values: Mapping[Column, Expression]) -> Expression:
    """The expression with columns replaced by what they are, in queries within it, too."""
    if isinstance(expression, tree.Reference):
        return values.get(expression.column, expression)

    def change(part: Expression) -> Expression:
        return substituted(part, values)

    return rebuilt(rebuilt(expression, change), lambda query: with_expressions(query, change), Relation)


def filtered(source: Relation, parts: Sequence[Expression]) -> Relation:
    """The rows that meet all conditions; those that take long or can fail come last."""
    different: list[Expression] = []
    for part in parts:
        if part not in different:
            different.append(part)
    different.sort(key=lambda part: (not is_movable(part), tree.has_queries(part)))
    condition = conjunction(different)
    return source if condition is None else tree.Filter(source, condition)


def with_columns_of(new: Relation, old: Relation) -> Relation:
    """A relation whose columns are used by position: with those of the old one, in their order."""
    if new.columns == old.columns and not _is_loose(new):
        return new
    return tree.Project(new, tuple((column, tree.Reference(column.type, column)) for column in old.columns))


def _is_loose(relation: Relation) -> bool:
    """Whether planning may give it other columns beside its own, or another order of them, as it does with joins."""
    if isinstance(relation, tree.Join):
        return True
    if isinstance(relation, tree.Filter | tree.Sort | tree.Limit | tree.Distinct | tree.Number | tree.Window):
        return _is_loose(relation.source)
    return isinstance(relation, tree.With) and _is_loose(relation.body)


def negation_of_null(value: Expression) -> Expression:
    """``value is not null``."""
    is_null, negation = operations.unary("is_null", value.type), operations.unary("not", BOOLEAN)
    assert is_null is not None
    assert negation is not None
    return tree.Call(BOOLEAN, negation, (tree.Call(BOOLEAN, is_null, (value,)),))


def rejects_nulls(condition: Expression, columns: set[Column]) -> bool:
    """Whether a condition is never true of a row in which all of these columns are NULL."""
    if isinstance(condition, tree.Junction):
        tests = (rejects_nulls(part, columns) for part in condition.parts)
        return all(tests) if condition.absorbing else any(tests)
    if is_call(condition, "is_true", "is_false"):
        return _is_null_of(condition.arguments[0], columns)  # type: ignore[attr-defined]
    inner = negated(condition)
    if inner is not None and is_call(inner, "is_null"):
        return _is_null_of(inner.arguments[0], columns)  # type: ignore[attr-defined]
    return _is_null_of(condition, columns)


def _is_null_of(expression: Expression, columns: set[Column]) -> bool:
    """Whether an expression is NULL if all of these columns are."""
    if isinstance(expression, tree.Reference):
        return expression.column in columns
    if isinstance(expression, tree.Constant):
        return expression.value is None
    if isinstance(expression, tree.Call) and expression.operation.strict:
        return any(_is_null_of(argument, columns) for argument in expression.arguments)
    return False


def null_columns(relation: Relation) -> set[Column]:
    """The columns of a relation that may be NULL."""
    if isinstance(relation, tree.Table):
        return {column for column in relation.stored if column.nullable}
    if isinstance(relation, tree.Project):
        inner = null_columns(relation.source)
        return {column for column, value in relation.outputs if may_be_null(value, inner)}
    if isinstance(relation, tree.Join):
        left, right = null_columns(relation.left), null_columns(relation.right)
        if relation.kind in ("right", "full"):
            left = set(relation.left.columns)
        if relation.kind in ("left", "full"):
            right = set(relation.right.columns)
        return left | right
    if isinstance(relation, tree.Group) and relation.sets is None:
        inner = null_columns(relation.source)
        keys = {column for column, value in relation.keys if may_be_null(value, inner)}
        return keys | {column for column, _ in relation.aggregates}
    if isinstance(relation, tree.Group | tree.SetOperation | tree.Reading) or len(list(relation.sources())) != 1:
        return set(relation.columns)
    (source,) = relation.sources()
    inner = null_columns(source)
    return inner | (set(relation.columns) - set(source.columns))


def may_be_null(expression: Expression, columns: set[Column]) -> bool:
    if isinstance(expression, tree.Reference):
        return expression.column in columns
    if isinstance(expression, tree.Constant):
        return expression.value is None
    if isinstance(expression, tree.Call) and expression.operation.strict and expression.operation.name in NOT_NULL:
        return any(may_be_null(argument, columns) for argument in expression.arguments)
    return True


WIDER = {  # conversions that keep the order of values, and give no two values the same
    "SMALLINT": ("INT", "BIGINT", "DECIMAL", "REAL", "DOUBLE"),
    "INT": ("BIGINT", "DECIMAL", "DOUBLE"),
    "BIGINT": ("DECIMAL", "DOUBLE"),
    "REAL": ("DOUBLE",),
    "DECIMAL": ("DECIMAL", "DOUBLE"),
    "DATE": ("TIMESTAMP",),
    "VARCHAR": ("VARCHAR",),
    "CHAR": ("CHAR", "VARCHAR"),
}


def unconverted(expression: Expression) -> Expression:
    """An expression without the conversions around it that keep the order of values."""
    while (inner := unconverted_once(expression)) is not expression:
        expression = inner
    return expression


def unconverted_once(expression: Expression) -> Expression:
    """An expression without the outermost conversion, if that keeps the order of values; else as it is."""
    if not is_call(expression, "cast") or len(expression.arguments) != 1:  # type: ignore[attr-defined]
        return expression  # with a second argument, it is by a time zone
    (inner,) = expression.arguments  # type: ignore[attr-defined]
    source, target = inner.type, expression.type
    is_wider = target.name in WIDER.get(source.name, ()) and (
        target.name not in ("DECIMAL", "VARCHAR", "CHAR")
        or source.name not in ("DECIMAL", "VARCHAR", "CHAR")
        or (target.bytes_max >= source.bytes_max and target.scale >= source.scale)
    )
    return inner if is_wider else expression


COMPARISONS = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}  # and with sides exchanged
NOT_NULL = {*COMPARISONS, "<>", "+", "-", "*", "cast", "neg"}  # of values that are not NULL they never are


def negated(expression: Expression) -> Expression | None:
    """What NOT is applied to."""
    return expression.arguments[0] if isinstance(expression, tree.Call) and expression.operation.name == "not" else None


def factored(condition: Expression) -> list[Expression]:
    """Parts that must all be true, of an OR: what all its branches have in common stands before it."""
    if not (isinstance(condition, tree.Junction) and condition.absorbing):
        return [condition]
    branches = [conjuncts(part) for part in condition.parts]
    common = [part for part in branches[0] if all(part in branch for branch in branches[1:]) and is_movable(part)]
    if not common or not is_movable(condition):
        return [condition]
    rests = [[part for part in branch if part not in common] for branch in branches]
    if not all(rests):
        return common
    parts = tuple(conjunction(rest) for rest in rests)
    return [*common, tree.Junction(BOOLEAN, True, parts)]  # type: ignore[arg-type]


def columns_of_both(part: Expression, lefts: set[Column], rights: set[Column]) -> tuple[bool, bool]:
    """Whether an expression refers to columns of the one side, and of the other."""
    used = columns_of(part)
    return bool(used & lefts), bool(used & rights)
