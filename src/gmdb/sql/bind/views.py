"""Views: what reading one means.

A view is bound anew from its text wherever it is named, as a query in FROM would be.  Its text sees nothing of the
statement around it, and of each table the columns that there were when the view was made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from gmdb.errors import SchemaError
from gmdb.sql.dialect import parse
from gmdb.tables.catalog.view_definitions import ViewDefinition

if TYPE_CHECKING:
    from gmdb.sql.bind.binder import Binder, Bound


def query_of(view: ViewDefinition) -> exp.Expr:
    """The parsed text of a view."""
    trees = parse(view.query)
    if len(trees) != 1 or not isinstance(trees[0], exp.Query | exp.Values):
        raise SchemaError(f"view {view.name} is not a query: {view.query[:80]}")
    return trees[0]


def read_view(binder: Binder, view: ViewDefinition) -> Bound:
    """A view's query, with columns of its own."""
    with binder.inside(view):
        bound = binder.query(query_of(view))
    if len(bound.names) != len(view.columns):
        count = f"{len(view.columns)} columns, and its query {len(bound.names)} by now"
        raise SchemaError(f"view {view.name} has {count}: drop the view and create it anew")
    return bound
