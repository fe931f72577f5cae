"""Which batches of streams the database has: each stream's last one, in ``sys_streams``.

Invariants
 1. A batch's rows and the note that they are there are one transaction's, so that there are both or neither.
 2. A stream has one row, and whoever takes a batch in holds it: two who bring the same batch come one after the other.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from gmdb.catalog.system import SystemTables
from gmdb.errors import InterfaceError, LockTimeout, NoSuchRow, NoSuchStream, StreamConflict
from gmdb.format.address import RowId
from gmdb.transaction.session import Session

NAME_MAX = 200  # bytes of a stream's name
TABLE = "sys_streams"


@dataclass(frozen=True)
class StreamBatch:
    """A batch of a stream."""

    stream: str
    query_id: str | None  # of the query that writes the stream, which numbers its batches
    batch_id: int
    rows: int
    in_sequence: bool = False  # every batch of the query comes here, so that none may be missing before it

    def __post_init__(self) -> None:
        if not 1 <= len(self.stream.encode()) <= NAME_MAX:
            raise InterfaceError(f"{self.stream!r} is no name of a stream: it must have 1 to {NAME_MAX} bytes")


@dataclass(frozen=True)
class StreamRecord:
    """What is known of a stream, as its row has it."""

    name: str
    query_id: str | None
    table: str | None
    batch_id: int | None
    row_count: int
    batch_time: datetime | None

    def has(self, batch: StreamBatch) -> bool:
        """Whether a batch is the last that was taken in, come again; StreamConflict if it cannot be told."""
        if None not in (self.query_id, batch.query_id) and self.query_id != batch.query_id:
            said = f"stream {self.name} is query {self.query_id}'s, whose batches up to {self.batch_id} are here"
            why = f"this is batch {batch.batch_id} of query {batch.query_id}, whose checkpoint is another"
            raise StreamConflict(f"{said}; {why}: give its stream another name, or forget the old one")
        if self.batch_id is None or batch.batch_id == self.batch_id:
            return self.batch_id is not None
        said = f"stream {self.name}: batch {batch.batch_id} comes, but the last one here is {self.batch_id}"
        if batch.batch_id < self.batch_id:
            why = "the checkpoint is an older copy, and its batches may have other rows than they had"
            raise StreamConflict(f"{said}; {why}: start with a new checkpoint")
        if batch.in_sequence and batch.batch_id > self.batch_id + 1:
            why = "those between are missing, as if the database was put back to an earlier time"
            raise StreamConflict(f"{said}; {why}: bring their rows, forget the stream, and start again")
        return False

    def with_batch(self, batch: StreamBatch, table: str) -> StreamRecord:
        now, query_id = datetime.now(UTC).replace(tzinfo=None), batch.query_id or self.query_id
        return StreamRecord(self.name, query_id, table, batch.batch_id, self.row_count + batch.rows, now)

    @property
    def values(self) -> tuple[Any, ...]:
        return self.name, self.query_id, self.table, self.batch_id, self.row_count, self.batch_time


class Streams:
    def __init__(self, system: SystemTables, session: Session, lock: threading.Lock) -> None:
        """``session``: in which nothing else happens while the lock is held."""
        self._system = system
        self._session = session
        self._lock = lock

    def hold(self, own: SystemTables, name: str) -> tuple[RowId, StreamRecord]:
        """A stream, new or known, that nobody else changes before the transaction of ``own`` has ended."""
        heap = own.heap(TABLE)
        while True:
            row_id = self._place_of(name)
            try:
                heap.lock(row_id)
                return row_id, StreamRecord(*heap.fetch(row_id))
            except NoSuchRow:
                continue  # somebody has let it be forgotten meanwhile
            except LockTimeout as error:
                raise LockTimeout(f"stream {name}: somebody else is bringing a batch of it; {error}") from None

    def note(self, own: SystemTables, row_id: RowId, record: StreamRecord) -> None:
        """Keep what is known of a stream that is held, as part of the transaction of ``own``."""
        own.heap(TABLE).update(row_id, record.values)

    def forget(self, own: SystemTables, name: str) -> None:
        """Know nothing of a stream any more, once the transaction of ``own`` has committed."""
        for row_id, values in own.rows(TABLE):
            if values[0] == name:
                own.heap(TABLE).delete(row_id)
                return
        known = ", ".join(values[0] for _, values in own.rows(TABLE)) or "none yet"
        raise NoSuchStream(f"there is no stream {name}; the streams are: {known}")

    def listed(self) -> list[tuple[Any, ...]]:
        with self._lock:
            rows = sorted((values for _, values in self._system.rows(TABLE)), key=lambda values: str(values[0]))
            self._session.commit()
            return rows

    def _place_of(self, name: str) -> RowId:
        """Where a stream's row is; a new stream gets one at once, so that whoever else brings it finds the same."""
        with self._lock:
            try:
                row_id = next((row_id for row_id, values in self._system.rows(TABLE) if values[0] == name), None)
                if row_id is None:
                    row_id = self._system.heap(TABLE).insert(StreamRecord(name, None, None, None, 0, None).values)
                self._session.commit()
                return row_id
            except BaseException:
                if self._session.in_transaction:
                    self._session.rollback()
                raise
