"""What a client can ask of its session about definitions; how operations work is in operations.py."""

from __future__ import annotations

from typing import Any

from gmdb.catalog.plain import column_from_plain, constraint_from_plain
from gmdb.catalog.schema import make_columns
from gmdb.server.lob_wire import row_codec
from gmdb.server.registry import Answer, connection_of, operation, require_writable
from gmdb.server.session import Client


@operation
def create_tablespace(client: Client, name: str, **options: int) -> None:
    require_writable(client)
    connection_of(client).create_tablespace(name, **options)


@operation
def drop_tablespace(client: Client, name: str) -> None:
    require_writable(client)
    connection_of(client).drop_tablespace(name)


@operation
def create_table(
    client: Client, name: str, columns: list[list[Any]], constraints: list[list[Any]], **options: Any
) -> None:
    require_writable(client)
    made = [constraint_from_plain(constraint) for constraint in constraints]
    connection_of(client).create_table(name, _columns_given(columns), constraints=made, **options)


def _columns_given(columns: list[list[Any]]) -> list[Any]:
    """Columns by name and spelling, or whole ones."""
    return [tuple(column) if len(column) == 2 else column_from_plain(column) for column in columns]


@operation
def drop_table(client: Client, name: str) -> None:
    require_writable(client)
    connection_of(client).drop_table(name)


@operation
def truncate_table(client: Client, name: str, restart_identity: bool) -> None:
    require_writable(client)
    connection_of(client).truncate_table(name, restart_identity=restart_identity)


@operation
def set_change_feed(client: Client, table: str, on: bool) -> None:
    require_writable(client)
    connection_of(client).set_change_feed(table, on)


@operation
def rename_table(client: Client, name: str, new_name: str) -> None:
    require_writable(client)
    connection_of(client).rename_table(name, new_name)


@operation
def add_column(client: Client, table: str, column: list[Any], body: bytes = b"") -> None:
    require_writable(client)
    (made,) = make_columns(table, _columns_given([column]))
    try:
        value = client.received.values(row_codec([made]).decode(body))[0] if body else None
        connection_of(client).add_column(table, made, value)
    finally:
        client.received.close()


@operation
def rename_column(client: Client, table: str, column: str, new_name: str, checks: dict[str, str]) -> None:
    require_writable(client)
    connection_of(client).rename_column(table, column, new_name, checks=checks)


@operation
def alter_column(client: Client, table: str, column: str, changes: dict[str, Any]) -> None:
    require_writable(client)
    connection_of(client).alter_column(table, column, **changes)


@operation
def add_constraint(client: Client, table: str, constraint: list[Any]) -> None:
    require_writable(client)
    connection_of(client).add_constraint(table, constraint_from_plain(constraint))


@operation
def drop_constraint(client: Client, table: str, name: str) -> None:
    require_writable(client)
    connection_of(client).drop_constraint(table, name)


@operation
def next_identity(client: Client, table: str, column: str, count: int) -> Answer:
    require_writable(client)
    return {"first": connection_of(client).next_identity(table, column, count)}


@operation
def create_index(client: Client, name: str, table: str, columns: list[str], unique: bool, using: str) -> None:
    require_writable(client)
    connection_of(client).create_index(name, table, columns, unique=unique, using=using)


@operation
def drop_index(client: Client, name: str) -> None:
    require_writable(client)
    connection_of(client).drop_index(name)
