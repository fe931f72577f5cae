"""Queries: WITH, set operations, VALUES, and where UPDATE and DELETE find their rows.

A query's columns may be *open*: untyped literals stay so until a set operation, INSERT or another caller that asked
for that gives them a type.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

from sqlglot import exp

from gmdb.errors import IllTyped, StatementError, TableExists, UnsupportedExpression
from gmdb.format.columns import ColumnType
from gmdb.process.late_dataclasses import replace
from gmdb.sql import tree
from gmdb.sql.bind import aggregates, arrays, calls  # noqa: F401 - they register what they know
from gmdb.sql.bind.binder import Bound, ChangeSource
from gmdb.sql.bind.coercion import coerce, convert, same_type, settled
from gmdb.sql.bind.equality import set_operation
from gmdb.sql.bind.expressions import bind
from gmdb.sql.bind.from_clause import beside
from gmdb.sql.bind.scope import Named, Scope, View, references
from gmdb.sql.bind.select import Select, filtered, limited, limits, ordered, ordinal, select_list
from gmdb.sql.bind.targets import change_target
from gmdb.sql.dialect import place
from gmdb.sql.syntax import Syntax, folded, reading, table_name
from gmdb.sql.tree import Column, Expression, Shared, SortKey
from gmdb.sql.types import common_type, numeric, pg_name

if TYPE_CHECKING:
    from gmdb.sql.bind.binder import Binder

_WIDENINGS_MAX = 24  # of a recursive query's types; products have at most 20 digits behind the point
_SET_OPERATIONS: dict[type, str] = {exp.Union: "union", exp.Intersect: "intersect", exp.Except: "except"}


def query(binder: Binder, node: exp.Expr, outside: Scope) -> Bound:
    """Any query; its columns may be open."""
    with reading(node) as syntax:
        scope, shared = with_clause(binder, syntax.take("with_"), outside)
        if isinstance(node, exp.Select):
            bound = Select(binder, syntax, scope).bound()
        elif isinstance(node, exp.SetOperation):
            bound = _set_operation(binder, syntax, scope)
        elif isinstance(node, exp.Values):
            if isinstance(node.parent, exp.From | exp.Join | exp.Paren | exp.Merge):
                syntax.ignore("alias")  # FROM has read it
            bound = _tail(binder, syntax, _values(binder, syntax, scope), scope)
        elif isinstance(node, exp.Subquery | exp.Paren):
            bound = _tail(binder, syntax, query(binder, syntax.need("this", "a query"), scope), scope)
        else:
            raise UnsupportedExpression(f"{type(node).__name__.upper()} is not a query", *place(node))
    return replace(bound, relation=tree.With(shared, bound.relation)) if shared else bound


# ---- WITH


def with_clause(binder: Binder, node: exp.Expr | None, outside: Scope) -> tuple[Scope, tuple[Shared, ...]]:
    """WITH: a scope in which its queries have names, and these queries."""
    if node is None:
        return outside, ()
    scope = Scope(outside, outside.views.new_child())
    shared: list[Shared] = []
    with reading(node) as syntax:
        is_recursive = syntax.flag("recursive")
        for one in syntax.list("expressions"):
            with reading(one) as part:
                part.ignore("materialized")  # a hint
                shared += _shared(binder, part, scope, is_recursive, tuple(shared))
    return scope, tuple(shared)


def _shared(
    binder: Binder, syntax: Syntax, scope: Scope, is_recursive: bool, before: tuple[Shared, ...]
) -> list[Shared]:
    """One query of WITH, added to the scope's views; one that only changes rows cannot be read."""
    node = syntax.need("this", "a query")
    with reading(syntax.need("alias", "a name")) as part:
        name, names = folded(part.need("this", "a name")), [folded(one) for one in part.list("columns")]
    if name in scope.views.maps[0]:
        raise TableExists(f"WITH has {name} twice")
    if is_recursive and _mentions(node, name):
        return [_recursive(binder, node, scope, name, names)]
    if isinstance(node, exp.DML) or (binder.parts is not None and binder.parts.are_of(syntax.node)):
        bound = _part(binder, node, name, scope, before)
        if bound is None:
            scope.views[name] = View([], [])
            return []
    else:
        bound = binder.query(node, scope)
    shared = Shared(name, bound.relation, columns=bound.relation.columns)
    scope.views[name] = View([shared], _renamed(bound, names, syntax.node))
    return [shared]


def _part(binder: Binder, node: exp.Expr, name: str, scope: Scope, before: tuple[Shared, ...]) -> Bound | None:
    """What a part of a statement returns, which is run beside the others; None if it returns nothing."""
    assert node.parent is not None
    if binder.parts is None or not binder.parts.are_of(node.parent):
        hint = "It may stand in the first WITH of a statement"
        raise UnsupportedExpression("rows cannot be changed in a query within a statement", *place(node), hint)
    return binder.parts.take(node, name, scope, before)


def _renamed(bound: Bound, names: Sequence[str], node: exp.Expr) -> list[tuple[str, Column]]:
    columns = bound.relation.columns
    if len(names) > len(columns):
        raise StatementError(f"{len(names)} names for {len(columns)} columns", *place(node))
    return list(zip([*names, *bound.names[len(names) :]], columns, strict=True))


def _mentions(node: exp.Expr, name: str) -> list[exp.Expr]:
    tables = (one for one in node.find_all(exp.Table) if isinstance(one.this, exp.Identifier))
    return [one for one in tables if folded(one.this) == name]


def _recursive(binder: Binder, node: exp.Expr, scope: Scope, name: str, names: Sequence[str]) -> Shared:
    """WITH RECURSIVE: the first part gives the columns that the second one sees.

    Their types are the first part's, wide enough for what the second one gives.
    """
    while isinstance(node, exp.Subquery):
        with reading(node) as part:
            node = part.need("this", "a query")
    if not isinstance(node, exp.Union) or _mentions(node.this, name):
        raise UnsupportedExpression("a recursive query is a UNION of one that is not and one that is", *place(node))
    _require_simple_recursion(node.expression, name)
    with reading(node) as syntax:
        every = not syntax.flag("distinct")
        left, right = syntax.need("this", "a query"), syntax.need("expression", "a query")
    start = binder.query(left, scope)
    wider = [column.type for column in start.relation.columns]
    for _ in range(_WIDENINGS_MAX):
        types = wider
        first = _typed(binder, start, types, node)
        cell: list[Shared] = []
        inner = Scope(scope, scope.views.new_child())
        inner.views[name] = View(cell, _renamed(first, names, node))
        again = binder.query(right, inner, open_types=True)
        _require_even(first, again, node)
        wider = [_wider(type_, value, node) for type_, value in zip(types, again.values, strict=True)]
        if wider == types:
            break
    values = [  # rounded, if there is no end of digits
        one if one.type is None or one.type.name != "DECIMAL" else convert(one, type_, node)
        for one, type_ in zip(again.values, types, strict=True)
    ]
    relation = _typed(binder, replace(again, values=tuple(values)), types, node).relation
    if not every and any(column.type.is_json for column in relation.columns):
        message = "a recursive UNION of json or jsonb must be UNION ALL"
        raise UnsupportedExpression(message, *place(node), "Cast the column to text")
    shared = Shared(name, first.relation, relation, every, first.relation.columns)
    cell.append(shared)
    scope.views[name] = View(cell, _renamed(first, names, node))
    return shared


def _wider(type_: ColumnType, value: Expression, node: exp.Expr) -> ColumnType:
    """The type of a recursive query's column: only its digits and letters may become more with the second part."""
    if value.type is None or value.type == type_:
        return type_
    try:
        common = common_type([type_, value.type])
    except ValueError:
        common = None
    if common is None or common.name != type_.name:
        if common is not None and type_.name in ("CHAR", "VARCHAR"):
            return common
        message = (
            f"is {pg_name(type_)} in the first part of the recursive query and {pg_name(value.type)} in the second"
        )
        raise IllTyped(f"a column {message}", *place(node), "Cast one of them")
    return numeric(common.scale) if common.name == "DECIMAL" else common


def _require_simple_recursion(node: exp.Expr, name: str) -> None:
    """What a step reads of the step before it reads once, by FROM and inner joins, and does not count or sort."""
    mentions = _mentions(node, name)
    if len(mentions) > 1:
        raise UnsupportedExpression(f"{name} is read twice in its own query", *place(mentions[1]))
    below = mentions[0]
    while below is not node:
        above = below.parent
        assert above is not None
        obstacle = _obstacle(above, below)
        if obstacle:
            raise UnsupportedExpression(f"{name} cannot be read {obstacle} in its own query", *place(mentions[0]))
        below = above


def _obstacle(above: exp.Expr, below: exp.Expr) -> str:
    """Where a part stands that recursion must not stand in; empty if that is not so."""
    if isinstance(above, exp.Except | exp.Intersect):
        return f"in {type(above).__name__.upper()}"
    if isinstance(above, exp.Join):
        return "on the outer side of a join" if _side(above) in ("LEFT", "FULL") else ""
    if not isinstance(above, exp.Select):
        return ""
    if not isinstance(below, exp.From | exp.Join):
        return "in a query within an expression"
    joins: list[exp.Expr] = above.args.get("joins") or []
    if isinstance(below, exp.From) and any(_side(join) in ("RIGHT", "FULL") for join in joins):
        return "on the outer side of a join"
    is_grouped = above.args.get("group") is not None or any(map(aggregates.has_aggregate, above.expressions))
    return "under an aggregate" if is_grouped else ""


def _side(join: exp.Expr) -> str:
    return str(join.args.get("side") or "").upper()


# ---- set operations and VALUES


def _set_operation(binder: Binder, syntax: Syntax, scope: Scope) -> Bound:
    """UNION, INTERSECT, EXCEPT; there is no recursion along many of them."""
    chain = [syntax]
    with ExitStack() as opened:
        left = syntax.need("this", "a query")
        while isinstance(left, exp.SetOperation) and left.args.get("with_") is None:
            chain.append(opened.enter_context(reading(left)))
            left = chain[-1].need("this", "a query")
        bound = binder.query(left, scope, open_types=True)
        for one in reversed(chain):
            bound = _tail(binder, one, _combined(binder, one, bound, scope), scope)
    return bound


def _combined(binder: Binder, syntax: Syntax, left: Bound, scope: Scope) -> Bound:
    """A set operation, of columns of the same types."""
    node = syntax.node
    every = not syntax.flag("distinct")
    right = binder.query(syntax.need("expression", "a query"), scope, open_types=True)
    _require_even(left, right, node)
    what = type(node).__name__.upper()
    types = [same_type(pair, what, node)[1] for pair in zip(left.values, right.values, strict=True)]
    first, second = (_typed(binder, one, types, node).relation for one in (left, right))
    outputs = []
    for name, type_, a, b in zip(left.names, types, left.values, right.values, strict=True):
        column = Column(name, type_)
        if a.type == b.type and binder.is_declared(a) and binder.is_declared(b):
            binder.declare([column])
        outputs.append(column)
    relation = set_operation(_SET_OPERATIONS[type(node)], every, first, second, tuple(outputs), node)
    return Bound(relation, left.names, references(relation))


def _require_even(left: Bound, right: Bound, node: exp.Expr) -> None:
    if len(left.names) != len(right.names):
        counts = f"{len(left.names)} and {len(right.names)}"
        what = f"both sides of {type(node).__name__.upper()} must have equally many columns, not {counts}"
        raise IllTyped(what, *place(node))


def _typed(binder: Binder, bound: Bound, types: Sequence[ColumnType], node: exp.Expr) -> Bound:
    """A query with columns of just these types."""
    pairs = zip(bound.values, types, strict=True)
    return binder.with_values(bound, [coerce(value, type_, node) for value, type_ in pairs])


def _values(binder: Binder, syntax: Syntax, scope: Scope) -> Bound:
    rows = [values_row(binder, row, scope) for row in syntax.list("expressions")]
    node = syntax.node
    if len({len(row) for row in rows}) != 1:
        raise IllTyped("the rows of VALUES must have equally many values", *place(node))
    columns, typed = [], []
    for position, values in enumerate(zip(*rows, strict=True)):
        same, type_ = same_type(values, "VALUES", node)
        columns.append(Column(f"column{position + 1}", type_))
        typed.append(same)
    relation = tree.Values(tuple(zip(*typed, strict=True)), tuple(columns))
    return Bound(relation, tuple(column.name for column in columns), references(relation))


def values_row(binder: Binder, node: exp.Expr, scope: Scope) -> list[Expression]:
    """The values of one row of VALUES."""
    if not isinstance(node, exp.Tuple | exp.Paren):
        return [bind(binder, node, scope)]
    with reading(node) as part:
        items = part.list("expressions") if isinstance(node, exp.Tuple) else [part.need("this", "a value")]
    return [bind(binder, item, scope) for item in items]


def _tail(binder: Binder, syntax: Syntax, bound: Bound, scope: Scope) -> Bound:
    """ORDER BY, LIMIT and OFFSET over the columns of a finished query."""
    order = syntax.take("order")
    count, offset = limits(binder, syntax, scope)
    if bound.locks and (order is not None or count is not None or offset is not None):
        raise UnsupportedExpression("FOR UPDATE stands at the end of a query", *place(syntax.node))
    keys: list[SortKey] = []
    if order is not None:
        bound = binder.closed(bound)
        keys = _order(binder, order, bound, isinstance(syntax.node, exp.SetOperation))
    relation = limited(ordered(bound.relation, keys), count, offset)
    return bound if relation is bound.relation else replace(bound, relation=relation)


def _order(binder: Binder, node: exp.Expr, bound: Bound, is_set: bool) -> list[SortKey]:
    """ORDER BY of a finished query: its columns by their numbers or names, or expressions of them."""
    scope = Scope()
    scope.visible = [Named(name, value) for name, value in zip(bound.names, bound.values, strict=True)]
    keys = []
    with reading(node) as syntax:
        for item in syntax.list("expressions"):
            with reading(item) as part:
                inner = part.need("this", "a value")
                position = ordinal(inner, len(bound.values))
                if is_set and position is None and not isinstance(inner, exp.Column):
                    message = "ORDER BY of a set operation takes names and numbers of its columns"
                    raise UnsupportedExpression(message, *place(inner), "Use a query in FROM")
                value = bound.values[position] if position is not None else settled(bind(binder, inner, scope))
                keys.append(aggregates.sort_key(part, value))
    return keys


# ---- changes


def change_source(
    binder: Binder,
    target: exp.Expr,
    others: Sequence[exp.Expr],
    where: exp.Expr | None,
    with_: exp.Expr | None,
    around: Scope,
) -> ChangeSource:
    """The rows that UPDATE or DELETE change."""
    outside, shared = with_clause(binder, with_, around)
    scope = Scope(outside, outside.views)
    with reading(target) as syntax:
        syntax.ignore("only")  # no table inherits from another
        syntax.need("this", "a table")
        alias = syntax.take("alias")
        joins = syntax.list("joins")
        syntax.ignore("db")
        name = table_name(target)
    if joins:
        hint = "Join tables in FROM of UPDATE, or USING of DELETE"
        raise UnsupportedExpression("the table that is changed cannot be joined", *place(joins[0]), hint)
    called = ""
    if alias is not None:
        with reading(alias) as part:
            called = folded(part.need("this", "a name"))
    changed = change_target(binder, target, name, called)
    scope.add(changed.item)
    table, relation = changed.table, changed.relation
    nodes: list[exp.Expr] = []
    for one in others:
        if isinstance(one, exp.From):
            with reading(one) as part:
                nodes.append(part.need("this", "a table"))
        else:
            nodes.append(one)
    if nodes:
        relation = beside(binder, relation, nodes, scope)
    if where is not None:
        with reading(where) as part:
            relation = filtered(binder, relation, part.need("this", "a condition"), scope)
    return ChangeSource(relation, table, scope, changed, shared)


__all__ = ["change_source", "query", "select_list", "values_row", "with_clause"]
