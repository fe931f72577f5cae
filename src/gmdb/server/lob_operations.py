"""What a client can ask of large objects; how operations work is in operations.py."""

from __future__ import annotations

from gmdb.access.lob_file import OpenLob
from gmdb.errors import InterfaceError
from gmdb.format.address import RowId
from gmdb.server.registry import Answer, operation
from gmdb.server.session import Client

READ_MAX = 1 << 20


class OwnerLob:
    """A large object that a client reads from."""

    def __init__(self, opened: OpenLob) -> None:
        self.opened = opened

    def close(self) -> None:
        self.opened.let_go()


@operation
def send_ahead(client: Client) -> Answer:
    """Begin a value that a later message will name."""
    number = client.new_number()
    client.received.begin(number)
    return {"number": number}


@operation
def send_piece(client: Client, number: int, body: bytes) -> None:
    client.received.add(number, body)


@operation
def lob_open(client: Client, table: int, column: str, row: list[int]) -> Answer:
    opened = client.heaps[table].open_lob(column, RowId(*row))
    number = client.new_number()
    client.cursors[number] = OwnerLob(opened)  # type: ignore[assignment]
    return {"lob": number, "length": opened.length, "text": opened.is_text}


@operation
def lob_read(client: Client, lob: int, at: int, size: int) -> Answer:
    client.session.require_open()
    found = client.cursors.get(lob)
    if not isinstance(found, OwnerLob):
        raise InterfaceError("there is no such large object open")
    return {}, found.opened.read_at(at, min(size, READ_MAX))
