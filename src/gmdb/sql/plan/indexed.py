"""Expressions that indexes are on: what a statement must say for an index to serve it, whatever it was written like.

Rows keep what such an expression gives behind their columns, where only indexes name it; statements compute it anew if
they show it.  For choosing a path each expression has a column that stands for it.
"""

from __future__ import annotations

from functools import lru_cache

from gmdb.errors import Error
from gmdb.sql import tree
from gmdb.sql.bind.of_rows import bind_indexed, columns_of
from gmdb.sql.dialect import parse_expression
from gmdb.sql.plan.terms import substituted
from gmdb.sql.tree import Column, Expression
from gmdb.tables.catalog.schema import TableDefinition

Indexed = tuple[tuple[Expression | None, Column], ...]  # None: it has no meaning, or no index is on it any more


@lru_cache(256)
def _bound(definition: TableDefinition) -> tuple[tuple[Column, ...], Indexed]:
    own, indexed = tuple(columns_of(definition.columns)), list[tuple[Expression | None, Column]]()
    for hidden in definition.hidden:
        value: Expression | None = None
        if hidden.generated is not None:
            try:
                value = bind_indexed(parse_expression(hidden.generated), definition.name, definition.columns, own)
            except Error:  # it speaks of a column by a name that it had before
                value = None
        indexed.append((value, Column(hidden.name, hidden.type if value is None else value.type)))
    return own, tuple(indexed)


def expressions_of(table: tree.Table) -> Indexed:
    """What indexes of a table are on, in the order of the table's ``hidden``, about its columns as a statement has
    them."""
    if not table.definition.expressions:
        return ()
    own, indexed = _bound(table.definition)
    references = {column: tree.Reference(now.type, now) for column, now in zip(own, table.stored, strict=True)}
    return tuple((value and substituted(value, references), column) for value, column in indexed)
