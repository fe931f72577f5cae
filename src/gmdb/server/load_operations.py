"""What a client can ask of its session about bulk loads; how operations work is in operations.py."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from gmdb.arrow.attach import Load, NewTable
from gmdb.catalog.plain import column_from_plain
from gmdb.server.registry import Answer, connection_of, operation, require_writable
from gmdb.server.session import Client


@operation
def page_format(client: Client, table: str | None, tablespace: str) -> Answer:
    return asdict(connection_of(client).page_format(table, tablespace))


@operation
def attach_load(client: Client, load: list[Any], create: list[Any] | None) -> Answer:
    require_writable(client)
    table, load_id, files, overwrite = load
    made = None
    if create is not None:
        columns, tablespace, pct_free = create
        made = NewTable(tuple(map(column_from_plain, columns)), tablespace, pct_free)
    return {"rows": connection_of(client).attach_load(Load(table, load_id, tuple(files), overwrite, made))}
