"""What a client can ask of its session about indexes whose leaves it has made; operations.py says how this works."""

from __future__ import annotations

from typing import Any

from gmdb.catalog.plain import index_to_plain
from gmdb.server.registry import Answer, connection_of, operation, require_writable
from gmdb.server.session import Client
from gmdb.storage.holder import Holder


@operation
def begin_index(
    client: Client,
    name: str,
    table: str,
    columns: list[str],
    unique: bool,
    load_id: str,
    lease: float | None,
    holder: dict[str, Any],
) -> Answer:
    require_writable(client)
    for_whom = {"lease": lease, "holder": Holder.from_plain(holder)}
    index, pin = connection_of(client).begin_index(name, table, columns, unique=unique, load_id=load_id, **for_whom)
    return {"index": index_to_plain(index)}, pin.to_json().encode()


@operation
def finish_index(client: Client, files: list[str]) -> Answer:
    return {"entries": connection_of(client).finish_index(files)}


@operation
def abandon_index(client: Client) -> None:
    connection_of(client).abandon_index()
