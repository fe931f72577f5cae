"""Queries within expressions: as a value, EXISTS, IN and comparisons with ANY and ALL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sqlglot import exp

from gmdb.errors import IllTyped, UnsupportedExpression
from gmdb.sql import tree
from gmdb.sql.bind.coercion import comparison_of_rows
from gmdb.sql.bind.expressions import COMPARISONS, ExistsQuery, InQuery, Quantified, handles, row
from gmdb.sql.bind.scope import references
from gmdb.sql.dialect import GmdbSql, place
from gmdb.sql.syntax import Syntax, reading
from gmdb.sql.tree import Exists, Expression, QueryComparison, Relation, ScalarQuery
from gmdb.sql.types import BOOLEAN

if TYPE_CHECKING:
    from gmdb.sql.bind.binder import Binder
    from gmdb.sql.bind.scope import Scope


@handles(exp.Subquery, exp.Select, exp.Union, exp.Intersect, exp.Except, exp.Values)
def _value(binder: Binder, syntax: Syntax, scope: Scope) -> Expression:
    """A query that stands for a value.  The binder opens the node itself."""
    node = syntax.node
    syntax.ignore(*node.args)
    relation = binder.query(node, scope).relation
    _require_columns(relation, 1, node)
    return ScalarQuery(relation.columns[0].type, relation)


def _require_columns(relation: Relation, count: int, node: exp.Expr) -> None:
    if len(relation.columns) != count:
        wanted = "one column" if count == 1 else f"{count} columns"
        raise IllTyped(f"the query must have {wanted} here, not {len(relation.columns)}", *place(node))


@handles(exp.Exists)
def _exists(binder: Binder, syntax: Syntax, scope: Scope) -> Expression:
    return _there_is(binder, syntax.need("this", "a query"), scope)


@handles(ExistsQuery)
def _exists_in_more_parentheses(binder: Binder, syntax: Syntax, scope: Scope) -> Expression:
    syntax.ignore("this")  # the word itself
    (query,) = syntax.list("expressions")
    return _there_is(binder, query, scope)


def _there_is(binder: Binder, node: exp.Expr, scope: Scope) -> Expression:
    return Exists(BOOLEAN, _without_rows_use(binder.query(node, scope).relation))


def _without_rows_use(query: Relation) -> Relation:
    """A query of which only matters whether it gives a row: nobody computes its columns."""
    while True:
        is_plain = isinstance(query, tree.Project | tree.Sort) or (isinstance(query, tree.Distinct) and not query.on)
        is_more = isinstance(query, tree.Limit) and query.offset is None and _is_some(query.count)
        if not (is_plain or is_more):
            return query
        (query,) = query.sources()


def _is_some(count: Expression | None) -> bool:
    return count is None or (isinstance(count, tree.Constant) and count.value is not None and count.value > 0)


@handles(InQuery)
def _in(binder: Binder, syntax: Syntax, scope: Scope) -> Expression:
    left = syntax.need("this", "a value")
    query = syntax.take("query") or syntax.list("expressions")[0]
    return _compared(binder, row(binder, left, scope), "=", query, False, syntax.node, scope)


@handles(Quantified)
def _quantified(binder: Binder, syntax: Syntax, scope: Scope) -> Expression:
    """a < ANY (query), a < ALL (query)."""
    values = row(binder, syntax.need("this", "a value"), scope)
    side = syntax.need("expression", "a query")
    with reading(side) as part:
        query = part.need("this", "a query")
    while isinstance(query, exp.Paren):
        with reading(query) as part:
            query = part.need("this", "a query")
    if not isinstance(query, exp.Query | exp.Values):
        shown = side.sql(dialect=GmdbSql)[:60]
        raise UnsupportedExpression(f"{shown} takes a query; there are no arrays", *place(side), "Use IN (...)")
    every = isinstance(side, exp.All)
    return _compared(binder, values, COMPARISONS[type(syntax.node)], query, every, syntax.node, scope)


def _compared(
    binder: Binder,
    values: Sequence[Expression],
    symbol: str,
    query: exp.Expr,
    every: bool,
    node: exp.Expr,
    scope: Scope,
) -> Expression:
    relation = binder.query(query, scope).relation
    _require_columns(relation, len(values), query)
    if any(isinstance(one, tree.Call) and one.operation.volatile for value in values for one in value.walk()):
        raise UnsupportedExpression("what a query's rows are compared with must not be random", *place(node))
    test = comparison_of_rows(binder, symbol, values, references(relation), node)
    return QueryComparison(BOOLEAN, relation, test, every)
