"""Queries within expressions: a function for each, within the one that asks.

A query that refers to no row around it is run once, when it is first asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gmdb.sql import tree
from gmdb.sql.rows import running
from gmdb.sql.rows.code import Term
from gmdb.sql.rows.keys import Equality, equality_of
from gmdb.sql.tree import Column, Expression, Relation, columns_of

if TYPE_CHECKING:
    from gmdb.sql.rows.pipeline import Pipeline


def _function(
    pipe: Pipeline, query: Relation, needed: set[Column], first: str, consume: Callable[[], None], ending: str
) -> str:
    """A call of a function that begins with a line, runs a query, and ends with a line."""
    name = pipe.code.fresh("q")
    is_free = not tree.outer_columns(query) and needed <= set(query.columns)
    with pipe.code.define(f"{name}()", ending, outermost=is_free), pipe.nowhere(is_free):
        pipe.code.emit(first)
        pipe.produce(query, needed, consume, True)
        pipe.code.emit(ending)
    return f"{pipe.once(f'{name}()')}()" if is_free else f"{name}()"


def _scalar_query(pipe: Pipeline, expression: tree.ScalarQuery) -> Term:
    (column,) = expression.query.columns
    pipe.code.names["too_many_rows"] = running.too_many_rows
    missing = pipe.code.bind(running.MISSING)

    def take() -> None:
        pipe.code.emit(f"if value is not {missing}: too_many_rows()")
        pipe.code.emit(f"value = {pipe.value(column).code}")

    ending = f"return None if value is {missing} else value"
    return pipe.assign(_function(pipe, expression.query, {column}, f"value = {missing}", take, ending))


def _exists(pipe: Pipeline, expression: tree.Exists) -> Term:
    return pipe.assign(exists(pipe, expression.query, None), False)


def exists(pipe: Pipeline, query: Relation, condition: Expression | None) -> str:
    """A call that tells whether a query has a row that meets the condition."""
    needed = set() if condition is None else columns_of(condition)
    if condition is None:
        pipe.want_first_of(query)
        if not isinstance(query, tree.Filter):
            pipe.want_few(1)

    def say_so() -> None:
        pipe.when(condition, lambda: pipe.code.emit("return True"))

    return _function(pipe, query, needed, "pass", say_so, "return False")


def _query_comparison(pipe: Pipeline, expression: tree.QueryComparison) -> Term:
    query, test, needed = expression.query, expression.test, columns_of(expression.test)
    is_correlated = bool(tree.outer_columns(query))
    equality = None if expression.every or is_correlated else equality_of(test, set(query.columns))
    if equality is not None:
        return _in_set(pipe, query, equality)
    decided, other = ("False", "True") if expression.every else ("True", "False")
    first, last = f"result = {other}", "return result"

    def compare() -> None:
        term = pipe.term(test)
        pipe.code.emit(f"if {term.code} is {decided}: return {decided}")
        pipe.code.emit(f"if {term.code} is None: result = None")

    if is_correlated or needed <= set(query.columns):
        return pipe.assign(_function(pipe, query, needed, first, compare, last))
    columns = pipe.columns_in(query, needed)
    rows, name = pipe.kept_once(query, columns), pipe.code.fresh("q")
    with pipe.code.define(f"{name}()", last):
        pipe.code.emit(first)
        pipe.loop(pipe.unpack(columns, nullable=True), f"{rows}()", compare)
        pipe.code.emit(last)
    return pipe.assign(f"{name}()")


def _in_set(pipe: Pipeline, query: Relation, equality: Equality) -> Term:
    """``value IN (query)`` by a set of what the query finds."""
    name, inner, outer = pipe.code.fresh("f"), equality.inner, equality.outer
    with pipe.code.define(f"{name}()", outermost=True), pipe.nowhere():

        def give() -> None:
            pipe.code.emit(f"yield {inner.key(pipe.code, pipe.term(inner.value))}")

        pipe.produce(query, columns_of(inner.value), give, True)
        pipe.code.emit("yield from ()")
    pipe.code.names["is_in"] = running.is_in
    key = outer.key(pipe.code, pipe.term(outer.value))
    return pipe.assign(f"is_in({key}, {pipe.once(f'set({name}())')}())")


QUERIES: dict[type[Expression], Callable[[Pipeline, Any], Term]] = {
    tree.ScalarQuery: _scalar_query,
    tree.Exists: _exists,
    tree.QueryComparison: _query_comparison,
}
