"""Table functions of the inspector: ``select * from gm_pages('tbl')``, over pages as they are in memory.

A function is named for a listing and takes what that takes, written out: ``gm_rows('tbl', pages => '4:7..4:20')``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
from sqlglot import exp

from gmdb.arrow.scan import Reading
from gmdb.arrow.schema import arrow_schema
from gmdb.errors import NoSuchFunction, UnsupportedExpression
from gmdb.inspect.inspector import LISTINGS
from gmdb.inspect.listing import columns_of
from gmdb.sql.duck.names import LISTING_PREFIX
from gmdb.sql.duck.scope import spot
from gmdb.sql.statement import Given

if TYPE_CHECKING:
    from gmdb.connection import Connection


class ListingCall:
    """A call of such a function in FROM."""

    def __init__(self, node: exp.Anonymous) -> None:
        self.name = str(node.this).lower().removeprefix(LISTING_PREFIX)
        if self.name not in LISTINGS:
            known = ", ".join(f"{LISTING_PREFIX}{name}" for name in LISTINGS)
            raise NoSuchFunction(f"there is no table function {node.this}; there are {known}", *spot(node))
        self._arguments: list[Any] = []
        self._options: dict[str, Any] = {}
        for one in node.expressions:
            if isinstance(one, exp.Kwarg):
                self._options[one.this.name.lower()] = _written(one.expression)
            else:
                self._arguments.append(_written(one))

    def source(self, connection: Connection) -> ListingSource:
        return ListingSource(connection.inspect(self.name, *self._arguments, **self._options))


def _written(node: exp.Expr) -> Any:
    if isinstance(node, exp.Literal):
        return node.this if node.is_string else int(node.this) if node.this.isdecimal() else node.this
    said = f"{node.sql(dialect='postgres')[:80]}: table functions of the inspector take texts and numbers, written out"
    raise UnsupportedExpression(said, *spot(node))


class ListingSource:
    """A listing as DuckDB reads it."""

    def __init__(self, table: pa.Table) -> None:
        self.columns = columns_of(table.schema)
        self._table = table.cast(arrow_schema(self.columns))

    def begin(self, reading: Reading, given: Given) -> ListingSource:
        del reading, given
        return self

    def read(self, columns: list[str] | None) -> pa.RecordBatchReader:
        return (self._table if columns is None else self._table.select(columns)).to_reader()
