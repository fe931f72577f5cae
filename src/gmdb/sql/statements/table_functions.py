"""System views (``sys_tables``) and the inspector's table functions (``gm_pages('tbl')``), as tables of a query.

A function is named for a listing and takes what that takes, written out: ``gm_rows('tbl', pages => '4:7..4:20')``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from gmdb.errors import NoSuchFunction
from gmdb.format.columns import Column, ColumnType
from gmdb.process.late_imports import pyarrow as pa
from gmdb.sql.dialect import place
from gmdb.sql.postgres_catalog import is_listing, read_catalog
from gmdb.sql.syntax import is_system_name
from gmdb.sql.types import TEXT
from gmdb.tables.arrow.arrow_types import arrow_schema

if TYPE_CHECKING:
    from gmdb.database.connection import Connection
    from gmdb.sql import tree

PREFIX = "gm_"  # of the names of table functions


def require_listing(name: str, node: exp.Expr) -> str:
    """The listing that a table function is named for."""
    from gmdb.inspect.inspector import LISTINGS  # with all that looks at pages

    listing = name.lower().removeprefix(PREFIX)
    if not name.lower().startswith(PREFIX) or listing not in LISTINGS:
        known = ", ".join(f"{PREFIX}{one}" for one in LISTINGS)
        raise NoSuchFunction(f"there is no table function {name}; there are {known}", *place(node))
    return listing


def listing_columns(
    connection: Connection, name: str, arguments: Sequence[Any] = (), options: Mapping[str, Any] | None = None
) -> list[Column]:
    """The columns of a view, or of a table function's listing."""
    return _columns(_table(connection, name, arguments, options or {}), is_system_name(name))


def read_listing(connection: Connection, listing: tree.Listing) -> pa.Table:
    """The rows as they are now, of the types that ``listing_columns`` tells."""
    table = _table(connection, listing.name, listing.arguments, dict(listing.options))
    return table.cast(arrow_schema(_columns(table, is_system_name(listing.name))))


def _table(connection: Connection, name: str, arguments: Sequence[Any], options: Mapping[str, Any]) -> pa.Table:
    if is_listing(name):
        return read_catalog(connection, name)
    if is_system_name(name):
        return connection.system_view(name)
    return connection.inspect(name.removeprefix(PREFIX), *arguments, **options)


def _columns(table: pa.Table, is_view: bool) -> list[Column]:
    if not is_view:
        from gmdb.inspect.listing import columns_of

        return columns_of(table.schema)
    return [Column(field.name, _column_type(field.type)) for field in table.schema]


def _column_type(type_: pa.DataType) -> ColumnType:
    """The type of a view's column."""
    if pa.types.is_boolean(type_):
        return ColumnType("BOOLEAN")
    if pa.types.is_integer(type_):
        return ColumnType("BIGINT" if type_.bit_width == 64 or type_ == pa.uint32() else "INT")
    if pa.types.is_floating(type_):
        return ColumnType("DOUBLE")
    return ColumnType("TIMESTAMP") if pa.types.is_timestamp(type_) else TEXT
