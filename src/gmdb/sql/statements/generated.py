"""Generated columns: what their expressions mean, and how statements compute them.

An expression gives the same for the same row at any time: it asks for nothing but other columns of the row, none of
which are generated themselves.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any

from sqlglot import exp

import gmdb.sql.bind.queries  # noqa: F401  # without it nobody would know what a call means
from gmdb.errors import Error, SchemaError, UnsupportedExpression
from gmdb.format.columns import Column as StoredColumn
from gmdb.sql import tree
from gmdb.sql.bind.coercion import fold
from gmdb.sql.bind.expressions import bind_assigned
from gmdb.sql.bind.of_rows import alone, bind_indexed, columns_of, require_immutable
from gmdb.sql.bind.scope import Scope
from gmdb.sql.dialect import parse_expression, place
from gmdb.sql.plan.terms import substituted
from gmdb.sql.rows.expressions import compile_row
from gmdb.sql.tree import Expression
from gmdb.tables.access.generated import Generation, require_short
from gmdb.tables.access.indexes import HIDDEN
from gmdb.tables.catalog.schema import TableDefinition


def bind_generated(
    node: exp.Expr, column: StoredColumn, table: str, columns: Sequence[StoredColumn], own: Sequence[tree.Column]
) -> Expression:
    """The expression of a generated column; ``own``: the table's columns as the expression is to know them."""
    what = f"the expression of generated column {column.name}"
    binder = alone(node, what)
    value = bind_assigned(binder, node, Scope.of_table(table, own), column.type)
    require_immutable(value, what, node)
    value = fold(value)
    numbers = {one: n for n, one in enumerate(own)}
    for base in (columns[numbers[one]] for one in tree.columns_of(value)):
        where = f"column {column.name} is generated of column {base.name}"
        if base.generated is not None:
            raise UnsupportedExpression(f"{where}, which is generated itself", *place(node))
        if base.type.is_lob:
            raise UnsupportedExpression(f"{where}, which is a {base.type}", *place(node), "Use TEXT or BYTEA")
    return value


@lru_cache(256)
def _kept(
    table: str, columns: Sequence[StoredColumn], hidden: Sequence[StoredColumn]
) -> tuple[tuple[tree.Column, ...], Mapping[int, Expression]]:
    """The expressions that the catalog keeps, by the positions of their columns, and what they are about.

    ``hidden``: those that indexes are on.
    """
    own = tuple(columns_of(columns))
    expressions = {}
    for n, column in enumerate((*columns, *hidden)):
        if column.generated is None:
            continue
        try:
            node = parse_expression(column.generated)
            if n < len(columns):
                expressions[n] = bind_generated(node, column, table, columns, own)
            else:
                expressions[n] = bind_indexed(node, table, columns, own)
        except Error as error:
            what = f"table {table}, column {column.name.removeprefix(HIDDEN)}: generated as ({column.generated})"
            raise SchemaError(f"{what} has no meaning: {error}") from None
    return own, expressions


class Generated:
    """The generated columns of a table, for a statement that changes its rows."""

    def __init__(self, table: TableDefinition, stored: Sequence[tree.Column] | None = None) -> None:
        """``stored``: the table's columns as the statement has them."""
        self._table = table
        own, expressions = _kept(table.name, table.columns, table.hidden)
        self._columns = own if stored is None else tuple(stored)
        known = dict(zip(own, self._columns, strict=True))
        references = {column: tree.Reference(now.type, now) for column, now in known.items()}
        self.expressions = {n: substituted(value, references) for n, value in expressions.items()}
        numbers = {column: n for n, column in enumerate(self._columns)}
        self.bases = {
            n: frozenset(numbers[one] for one in tree.columns_of(value)) for n, value in self.expressions.items()
        }

    def after(self, positions: Iterable[int]) -> Generated:
        """Those of them that are others once some columns have new values."""
        changed = set(positions)
        return self._chosen([n for n, bases in self.bases.items() if not changed.isdisjoint(bases)])

    @property
    def shown(self) -> Generated:
        """Those of them that are columns, and not what indexes are on."""
        return self._chosen([n for n in self.expressions if n < len(self._columns)])

    def within(self, positions: Container[int]) -> Generated:
        """Those of them that are made of some columns only."""
        return self._chosen([n for n, bases in self.bases.items() if all(base in positions for base in bases)])

    def _chosen(self, numbers: Iterable[int]) -> Generated:
        chosen = Generated.__new__(Generated)
        chosen._table, chosen._columns = self._table, self._columns
        chosen.bases = {n: self.bases[n] for n in numbers}
        chosen.expressions = {n: self.expressions[n] for n in numbers}
        return chosen

    def __bool__(self) -> bool:
        return bool(self.expressions)

    @property
    def positions(self) -> tuple[int, ...]:
        return tuple(self.expressions)

    @property
    def needs(self) -> set[tree.Column]:
        """The columns that they are made of."""
        return {self._columns[n] for bases in self.bases.values() for n in bases}

    @cached_property
    def _compute(self) -> Any:
        return compile_row(list(self.expressions.values()), self._columns)

    def compute(self, row: Sequence[Any]) -> Sequence[Any]:
        """Their values, of a row's."""
        values: Sequence[Any] = self._compute(tuple(row), (), None)
        return values

    @property
    def generation(self) -> Generation:
        """How they come about, for those who know no expressions."""
        return Generation(self.bases, self.compute)

    def put_into(self, row: list[Any]) -> None:
        """Compute them where a row has them."""
        if self.expressions:
            for n, value in zip(self.expressions, self.compute(row), strict=True):
                if n >= len(self._columns) and isinstance(value, str | bytes):
                    require_short(self._table.name, self._table.stored[n], value)
                row[n] = value


def generation_of(table: TableDefinition) -> Generation:
    """How a table's generated columns come about."""
    return Generated(table).generation
