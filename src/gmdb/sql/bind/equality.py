"""What compares rows: groups, DISTINCT and set operations.

Values of JSONB may be equal although they are written otherwise, so that their keys are compared; of those that are
equal, one stands for all.  JSON has no equality.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from gmdb.errors import IllTyped, UnsupportedExpression
from gmdb.sql import operations, tree
from gmdb.sql.bind.coercion import comparison, json_key
from gmdb.sql.dialect import place
from gmdb.sql.tree import Aggregate, Column, Expression, Output, Reference, Relation
from gmdb.sql.types import BOOLEAN, BYTEA, JSON, JSONB


def require_equality(values: Sequence[Expression], what: str, node: exp.Expr) -> None:
    """Refuse values of JSON where they would be compared."""
    if any(one.type == JSON for one in values):
        message = f"{what} compares values, and could not identify an equality operator for type json"
        raise IllTyped(message, *place(node), "Cast it to jsonb")


def compared(value: Expression) -> Expression:
    """What is equal for equal values, and ordered as they are."""
    return json_key(value) if value.type == JSONB else value


def grouped(
    source: Relation,
    keys: Sequence[Output],
    aggregates: Sequence[tuple[Column, Aggregate]],
    sets: tuple[tuple[int, ...], ...] | None,
) -> Relation:
    """A row for each group.  Instead of JSONB its keys are grouped by, and one of the values is taken along."""
    changed: list[Output] = []
    chosen: list[tuple[Column, Aggregate]] = []
    outputs: list[Output] = []
    for column, value in keys:
        if column.type != JSONB:
            changed.append((column, value))
            outputs.append((column, Reference(column.type, column)))
            continue
        key, any_one = Column(column.name, BYTEA), Column(column.name, JSONB)
        changed.append((key, json_key(value)))
        aggregation = operations.aggregation("any_value", [JSONB])
        assert aggregation is not None
        chosen.append((any_one, Aggregate(JSONB, aggregation, (value,))))
        is_null = operations.unary("is_null", BYTEA)  # also of a set of groups that has no such key
        assert is_null is not None
        test = tree.Call(BOOLEAN, is_null, (Reference(BYTEA, key),))
        null = tree.Constant(JSONB, None)
        outputs.append((column, tree.Case(JSONB, ((test, null),), Reference(JSONB, any_one))))
    group = tree.Group(source, tuple(changed), (*aggregates, *chosen), sets)
    if not chosen:
        return group
    others = ((column, Reference(column.type, column)) for column, _ in aggregates)
    return tree.Project(group, (*outputs, *others))


def distinct(relation: Relation, on: Sequence[Expression] | None, node: exp.Expr) -> Relation:
    """Each row once, or the first row of those in which some values are equal."""
    values: Sequence[Expression] = on or [Reference(column.type, column) for column in relation.columns]
    require_equality(values, "DISTINCT", node)
    if on is None and not any(one.type == JSONB for one in values):
        return tree.Distinct(relation)
    return tree.Distinct(relation, tuple(map(compared, values)))


def set_operation(
    kind: str, every: bool, left: Relation, right: Relation, columns: tuple[Column, ...], node: exp.Expr
) -> Relation:
    """UNION, INTERSECT, EXCEPT."""
    if kind == "union" and every:
        return tree.SetOperation(kind, every, left, right, columns)
    name = kind.upper()
    require_equality([Reference(column.type, column) for column in columns], name, node)
    if not any(column.type == JSONB for column in columns):
        return tree.SetOperation(kind, every, left, right, columns)
    if every:
        raise UnsupportedExpression(f"{name} ALL of jsonb is not supported", *place(node), "Group and count the rows")
    if kind == "union":
        return distinct(tree.SetOperation(kind, True, left, right, columns), None, node)
    same = [
        comparison("IS NOT DISTINCT FROM", Reference(a.type, a), Reference(b.type, b), node)
        for a, b in zip(left.columns, right.columns, strict=True)
    ]
    test: Expression = tree.Exists(BOOLEAN, tree.Filter(right, tree.conjunction(same)))  # type: ignore[arg-type]
    if kind == "except":
        negated = operations.unary("not", BOOLEAN)
        assert negated is not None
        test = tree.Call(BOOLEAN, negated, (test,))
    outputs = tuple((new, Reference(old.type, old)) for new, old in zip(columns, left.columns, strict=True))
    return distinct(tree.Project(tree.Filter(left, test), outputs), None, node)
