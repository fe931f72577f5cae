"""A link's channel once its own process is the owner: messages are answered here, by the process's own connection.

A connection that was made through another process and has outlived it keeps its objects: heaps, cursors, reads.  They
go on sending messages, which need no socket now.  What is asked of the connection itself goes the short way, to
``connection`` (server/remote.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from gmdb.database.connection import Connection
from gmdb.server.channel import Route
from gmdb.server.client_session import Client
from gmdb.server.operations import answer
from gmdb.server.wire import Head, SessionState, TableThere, error_head, pack, unpack
from gmdb.tables.arrow.append import append


class OwnChannel:
    """A session of this process's own database.  Its state is never asked for: it is not lost before the process is."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.route = Route(connection.path, "this process", "", "", False, "")
        self.state = SessionState(0, connection.autocommit, connection.isolation, connection.session.lock_timeout)
        self._client = Client(connection._database, "")
        self._client.connection = connection
        self._dropped: list[int] = []

    def is_there(self) -> bool:
        return True

    def ask(self, head: Head, body: bytearray) -> tuple[Head, bytes]:
        head["discard"], self._dropped = self._dropped, []
        return unpack(answer(self._client, pack(head, body)))

    def send(self, table: TableThere, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Head:
        del schema
        try:
            with self._client.turn():
                self._client.session.require_open()
                self._client.session.require_writable()
                return {"rows": append(self._client.heap(table), self._each(batches))}
        except Exception as error:
            return error_head(error)

    def _each(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The program may use the connection while it makes a batch."""
        steps = iter(batches)
        while True:
            with self._client.turn_given_away():
                batch = next(steps, None)
            if batch is None:
                return
            yield batch

    def batches(self, scan: int) -> Iterator[pa.RecordBatch]:
        return iter(self._client.scans.pop(scan))

    def drop(self, number: int) -> None:
        self._dropped.append(number)

    def interrupt(self, number: int) -> None:
        del number
        self.connection.interrupt()

    def give_up(self) -> None:
        self.close()

    def close(self) -> None:
        self.connection.close()
