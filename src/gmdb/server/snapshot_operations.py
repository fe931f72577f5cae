"""What a client can ask of its session about pinned snapshots; how operations work is in operations.py."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from gmdb.server.registry import Answer, connection_of, operation
from gmdb.server.session import Client
from gmdb.storage.holder import Holder


@operation
def take_snapshot(client: Client, lease: float | None, holder: dict[str, Any]) -> Answer:
    pin = connection_of(client).take_snapshot(lease=lease, holder=Holder.from_plain(holder))
    return {}, pin.to_json().encode()


@operation
def feed_position(client: Client) -> Answer:
    return asdict(connection_of(client).feed_position())


@operation
def drop_snapshot(client: Client, name: str) -> None:
    connection_of(client).drop_snapshot(name)
