"""Arrays in expressions and in FROM: constructors, subscripts, comparisons with ANY and ALL of an array, UNNEST."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sqlglot import exp

from gmdb.errors import IllTyped, SchemaError, StatementError, UnsupportedExpression
from gmdb.sql import operations, tree
from gmdb.sql.bind.calls import special
from gmdb.sql.bind.coercion import (
    apply,
    assign,
    call,
    coerce,
    constants_of,
    described,
    same_type,
    settled,
    unwrapped,
)
from gmdb.sql.bind.expressions import bind, handles, quantifier
from gmdb.sql.dialect import place
from gmdb.sql.operations import arrays
from gmdb.sql.syntax import Syntax, reading
from gmdb.sql.tree import Call, Coalesce, Column, Constant, Expression, Reference, Relation, ScalarQuery, SortKey
from gmdb.sql.types import BIGINT, BOOLEAN, INT, TEXT, is_array, pg_name

if TYPE_CHECKING:
    from gmdb.sql.bind.binder import Binder
    from gmdb.sql.bind.scope import Scope

_ONE_DIMENSION = "arrays have one dimension"
_NOTES = ("bracket_notation", "value_constructor", "offset", "safe", "returns_list_for_maps")  # of the parser's own
UNNEST, SUBSCRIPTS, ORDINALITY = "unnest", "generate_subscripts", "ordinality"


# ---- constructors


@handles(exp.Array)
def _array(binder: Binder, syntax: Syntax, scope: Scope) -> Expression:
    """array[a, b]."""
    syntax.ignore(*_NOTES)
    items, node = syntax.list("expressions"), syntax.node
    if not items:
        raise IllTyped("an empty array has no type", *place(node), "Write '{}'::INT[], for instance")
    values = [bind(binder, one, scope) for one in items]
    if any(isinstance(one, exp.Array) for one in items) or any(is_array(one.type) for one in values):
        raise UnsupportedExpression(f"{_ONE_DIMENSION}: their elements cannot be arrays", *place(node))
    values, element = same_type(values, "ARRAY", node)
    try:
        operation = arrays.constructor(element, len(values))
    except SchemaError as error:
        raise UnsupportedExpression(str(error), *place(node)) from None
    return Call(operation.gives, operation, tuple(values))


@special("array")
def _array_of_query(binder: Binder, syntax: Syntax, scope: Scope) -> Expression:
    """array(select a from t): its rows in their order; without rows, an empty array."""
    queries, node = syntax.list("expressions"), syntax.node
    if len(queries) != 1 or not isinstance(queries[0].unnest(), exp.Query | exp.Values):
        raise UnsupportedExpression("array(...) takes a query", *place(node), "Write array[...] for values")
    relation = binder.query(queries[0], scope).relation
    if len(relation.columns) != 1:
        raise IllTyped(f"the query must have one column here, not {len(relation.columns)}", *place(node))
    (column,) = relation.columns
    aggregation = operations.aggregation("array_agg", [column.type])
    if aggregation is None:
        raise UnsupportedExpression(f"there are no arrays of {pg_name(column.type)}", *place(node))
    order: tuple[SortKey, ...] = ()
    if _is_sorted(relation):
        number = Column("number", BIGINT, False)
        relation, order = tree.Number(relation, number), (SortKey(Reference(BIGINT, number)),)
    values = Reference(column.type, column)
    aggregate = tree.Aggregate(aggregation.gives, aggregation, (values,), order=order)
    group = tree.Group(relation, (), ((Column("array", aggregation.gives), aggregate),))
    return Coalesce(aggregation.gives, (ScalarQuery(aggregation.gives, group), Constant(aggregation.gives, ())))


def _is_sorted(relation: Relation) -> bool:
    if isinstance(relation, tree.Project | tree.Limit | tree.Filter):
        return _is_sorted(relation.source)
    if isinstance(relation, tree.With):
        return _is_sorted(relation.body)
    return isinstance(relation, tree.Sort | tree.Distinct)


# ---- subscripts


@handles(exp.Bracket)
def _subscript(binder: Binder, syntax: Syntax, scope: Scope) -> Expression:
    """a[2] and a[2:3]."""
    syntax.ignore(*_NOTES)
    node, inner = syntax.node, syntax.need("this", "an array")
    values = bind(binder, inner, scope)
    subscripts = syntax.list("expressions")
    if isinstance(inner, exp.Bracket) or len(subscripts) != 1:
        raise UnsupportedExpression(f"{_ONE_DIMENSION}, and one subscript", *place(node))
    if values.type is None or not values.type.is_array:
        raise IllTyped(f"{described(values)} has no subscripts: it is no array", *place(node))
    (index,) = subscripts
    if not isinstance(index, exp.Slice):
        return call(arrays.subscript(values.type), [values, assign(bind(binder, index, scope), INT, index)], node)
    with reading(index) as part:
        if part.take("step") is not None:
            raise UnsupportedExpression("a slice has two ends", *place(node))
        ends = [part.take("this"), part.take("expression")]
    first, last = (None if one is None else assign(bind(binder, one, scope), INT, one) for one in ends)
    first = Constant(INT, 1) if first is None else first
    last = apply("cardinality", [values], node) if last is None else last
    return call(arrays.part(values.type), [values, first, last], node)


# ---- ANY and ALL of an array


def quantified(
    binder: Binder, symbol: str, every: bool, left: Expression, right: exp.Expr, node: exp.Expr, scope: Scope
) -> Expression:
    """``left = ANY (right)``."""
    values = bind(binder, right, scope)
    operation = arrays.quantified(symbol, every, left.type, values.type, constants_of((left, values)))
    if operation is None:
        what = f"there is no {described(left)} {symbol} {'ALL' if every else 'ANY'} ({described(values)})"
        hint = "ANY and ALL take an array or a query" if values.type is None or not values.type.is_array else ""
        raise IllTyped(what, *place(node), hint or "Cast one of them")
    return Call(
        BOOLEAN, operation, tuple(coerce(a, t, node) for a, t in zip((left, values), operation.takes, strict=True))
    )


def like_each(
    binder: Binder, name: str, text: exp.Expr, side: exp.Expr, negate: bool, node: exp.Expr, scope: Scope
) -> Expression:
    """``text LIKE ANY (patterns)``, which is no comparison of a query's rows."""
    every = quantifier(side) == arrays.ALL
    with reading(side) as part:
        patterns = part.list("expressions")[0] if isinstance(side, exp.Anonymous) else part.need("this", "an array")
    if isinstance(unwrapped(patterns), exp.Query | exp.Values):
        hint = "Write ANY (ARRAY(SELECT ...))"
        raise UnsupportedExpression(f"{name.upper()} is asked of an array, not of a query", *place(node), hint)
    values = [bind(binder, text, scope), bind(binder, patterns, scope)]
    inner = operations.resolve(name, (TEXT, TEXT))
    assert inner is not None
    operation = arrays.of_each(f"{'not ' if negate else ''}{name}", inner, every, negate)
    return call(operation, values, node)


# ---- FROM unnest(...)


@special("unnest", "generate_subscripts")
def _misplaced(_binder: Binder, syntax: Syntax, _scope: Scope) -> Expression:
    name = syntax.node.name.lower()
    raise UnsupportedExpression(
        f"{name} gives rows, which belong into FROM", *place(syntax.node), f"Write FROM {name}(...)"
    )


def unnest(
    binder: Binder,
    node: exp.Expr,
    arguments: Sequence[exp.Expr],
    names: Sequence[str],
    name: str,
    left: Scope,
    more: bool,
) -> tree.Unnest:
    """``unnest(a, b) WITH ORDINALITY AS name (names)``; ``more``: with ordinality."""
    if not arguments:
        raise IllTyped("unnest takes arrays", *place(node))
    values = [settled(bind(binder, one, left)) for one in arguments]
    for value in values:
        if not is_array(value.type):
            raise IllTyped(f"unnest takes arrays, not {described(value)}", *place(node), "Cast it, such as to INT[]")
    count = len(values) + more
    if len(names) > count:
        raise StatementError(f"{len(names)} names for {count} columns", *place(node))
    own = [name if len(values) == 1 else UNNEST] * len(values) + [ORDINALITY] * more
    called = [*names, *own[len(names) :]]
    columns = [Column(each, value.type.element) for each, value in zip(called, values, strict=False)]
    number = Column(called[-1], BIGINT, False) if more else None
    return tree.Unnest(tuple(values), tuple(columns), number)


def subscripts(
    binder: Binder, node: exp.Expr, arguments: Sequence[exp.Expr], left: Scope
) -> tuple[Expression, Expression]:
    """The first and the last number of ``generate_subscripts(array, 1)``."""
    values = [bind(binder, one, left) for one in arguments]
    if len(values) != 2:
        raise IllTyped(f"{SUBSCRIPTS} takes an array and 1, its dimension", *place(node))
    first, last = (apply(f"array_{end}", values, node) for end in ("lower", "upper"))
    return coerce(first, INT, node), coerce(last, INT, node)
