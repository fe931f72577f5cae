"""What a client can ask of its session about bulk loads; how operations work is in operations.py."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from gmdb.arrow.attach import Load
from gmdb.catalog.streams import StreamBatch
from gmdb.server.registry import Answer, connection_of, operation, require_writable
from gmdb.server.session import Client


@operation
def page_format(client: Client, table: str | None, tablespace: str) -> Answer:
    return asdict(connection_of(client).page_format(table, tablespace))


@operation
def attach_load(client: Client, load: dict[str, Any]) -> Answer:
    require_writable(client)
    return {"rows": connection_of(client).attach_load(Load.from_plain(load))}


@operation
def take_batch(client: Client, load: dict[str, Any], batch: list[Any]) -> Answer:
    require_writable(client)
    return {"rows": connection_of(client).take_batch(Load.from_plain(load), StreamBatch(*batch))}


@operation
def forget_stream(client: Client, name: str) -> None:
    require_writable(client)
    connection_of(client).forget_stream(name)
