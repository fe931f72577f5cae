"""Changes as Python sees them, decoded some at a time; and the rows of a snapshot in the same form."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from gmdb.arrow.changes import OPERATIONS, SNAPSHOT, feed_columns, meta_fields
from gmdb.arrow.scan import Reading, Scan, place_field, row_id_texts
from gmdb.arrow.values import python_columns
from gmdb.catalog.plain import table_from_plain
from gmdb.catalog.schema import TableDefinition
from gmdb.format.address import device_of
from gmdb.format.redo import ChangeOperation
from gmdb.inspect.pinned import PinnedFiles
from gmdb.late import pyarrow as pa
from gmdb.storage.feeds import LogPosition
from gmdb.storage.frozen import FrozenStore
from gmdb.storage.holder import Holder
from gmdb.storage.pins import Pin

_ROWS = (SNAPSHOT, *(OPERATIONS[n] for n in (ChangeOperation.INSERT, ChangeOperation.UPDATE, ChangeOperation.DELETE)))


class Change(NamedTuple):
    """What became of a row; or of a table, or of its feed."""

    table: str
    operation: str  # "snapshot", "insert", "update", "delete", "truncate", "drop", "start", "stop"
    row: dict[str, Any] | None  # as it is now; of a deleted one, as it was
    before: dict[str, Any] | None  # of an updated row, if it was asked for
    scn: int  # of the commit
    sequence: int  # within the transaction
    commit_time: datetime
    row_id: str | None


class Source(Protocol):
    """What a feed must be told by whoever has the database open."""

    @property
    def path(self) -> Path: ...
    def table(self, name: str) -> TableDefinition: ...
    def _feed_position(self) -> LogPosition: ...
    def take_snapshot(self, *, lease: float | None = None, holder: Holder | None = None) -> Pin: ...
    def drop_snapshot(self, name: str) -> None: ...


@dataclass
class Window:
    """Batches of some changes, each with its table and which of the changes its rows are.

    ``ends``: behind which of the changes a commit is over, and the position there.
    """

    batches: list[tuple[TableDefinition, pa.RecordBatch, np.ndarray]]
    ends: dict[int, LogPosition] = field(default_factory=dict)
    position: LogPosition | None = None  # behind all of it


def changes_of(window: Window) -> list[tuple[Change, LogPosition | None]]:
    """A window's changes in order, and behind which of them a position is reached."""
    found: list[tuple[int, Change]] = []
    for table, batch, places in window.batches:
        found += zip(places.tolist(), _rows_of(table, batch), strict=True)
    found.sort(key=lambda one: one[0])
    behind = [place for place, _ in found[1:]]  # an update may be two changes: its commit is over behind the second
    is_last = [place != after for (place, _), after in zip_longest(found, behind)]
    ends = window.ends
    return [(change, ends.get(place) if last else None) for (place, change), last in zip(found, is_last, strict=True)]


def _rows_of(table: TableDefinition, batch: pa.RecordBatch) -> Iterator[Change]:
    """A batch's rows: the table's columns, what became of the row, and perhaps the columns as they were before."""
    keys = [column.name for column in feed_columns(table.columns)]
    count, behind = len(keys), len(keys) + len(meta_fields())
    for values in zip(*python_columns(batch), strict=True):
        operation, scn, sequence, at, row_id = values[count:behind]
        row = dict(zip(keys, values[:count], strict=True)) if operation in _ROWS else None
        old = values[behind:]
        before = dict(zip(keys, old, strict=True)) if old and operation == "update" else None
        yield Change(table.name, operation, row, before, scn, sequence, at, row_id)


class SnapshotRows:
    """The rows that tables had at a snapshot, which is let go when they were read, or nobody wants them any more."""

    def __init__(self, source: Source, pin: Pin, feeds: Collection[int]) -> None:
        self._source, self._pin = source, pin
        self._tables = [t for t in map(table_from_plain, pin.tables) if t.feed is not None and t.feed.feed_id in feeds]
        self._is_over = False

    def windows(self) -> Iterator[Window]:
        store = FrozenStore(self._source.path, self._pin)
        try:
            for table in self._tables:
                yield from (Window([(table, *one)]) for one in self._batches(store, table))
        finally:
            store.close()
        self.close()

    def _batches(self, store: FrozenStore, table: TableDefinition) -> Iterator[tuple[pa.RecordBatch, np.ndarray]]:
        with PinnedFiles(self._source.path, self._pin) as files:
            pages = np.array(files.segment_pages(table.entry_page), np.uint32)
            page_size = files.devices[device_of(table.entry_page)].page_size
        wanted = [n for n, column in enumerate(table.columns) if not column.type.is_lob]
        scan = Scan(store, table.obj_id, table.columns, wanted, pages, page_size, threads=1, places=True)
        done = 0
        for batch in scan.batches(Reading.of_closed()):
            yield self._as_changes(table, batch, done), np.arange(done, done + len(batch))
            done += len(batch)

    def _as_changes(self, table: TableDefinition, batch: pa.RecordBatch, done: int) -> pa.RecordBatch:
        count, at = len(batch), datetime.fromtimestamp(self._pin.created, UTC)
        names = [column.name for column in feed_columns(table.columns)]
        types = [one.type for one in meta_fields()]
        meta = [
            pa.repeat(SNAPSHOT, count),
            pa.repeat(pa.scalar(self._pin.scn, types[1]), count),
            pa.array(np.arange(done, done + count)),
            pa.repeat(pa.scalar(at, types[3]), count),
            row_id_texts(batch.column(place_field().name).to_numpy()),
        ]
        columns = [batch.column(name) for name in names]
        return pa.RecordBatch.from_arrays([*columns, *meta], names=[*names, *(one.name for one in meta_fields())])

    def close(self) -> None:
        if not self._is_over:
            self._is_over = True
            self._source.drop_snapshot(self._pin.name)
