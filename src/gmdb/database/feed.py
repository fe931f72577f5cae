"""Reading a database's changes: every committed insert, update and delete of tables with a change feed, in order.

    with db.changes(tables=["orders"], reader="copy") as feed:
        for change in feed:
            print(change.operation, change.table, change.row)
        feed.acknowledge()

The changes come out of the log's files (storage/log/committed_changes.py), by the definitions that their tables had
at the time.

"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterator
from datetime import UTC, datetime
from itertools import zip_longest
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Protocol, TypeVar

from gmdb.errors import Corruption, InterfaceError, NoChangeFeed, NotSupportedError, PositionGone
from gmdb.format.address import device_of
from gmdb.format.redo import ChangeOperation
from gmdb.process.late_dataclasses import dataclass, field
from gmdb.process.late_imports import numpy as np
from gmdb.process.late_imports import pyarrow as pa
from gmdb.process.signals import check, held
from gmdb.storage.documents import Holder
from gmdb.storage.feeds import LogPosition, Reader, definition_numbers, read_definition, read_reader, write_reader
from gmdb.storage.log.committed_changes import ChangeLog, Committed, LogScan, position_behind
from gmdb.storage.pinned_pages import FrozenStore
from gmdb.storage.pins import Pin
from gmdb.tables.arrow.arrow_types import python_columns
from gmdb.tables.arrow.change_batches import OPERATIONS, SNAPSHOT, change_batches, divided, feed_columns, meta_fields
from gmdb.tables.arrow.scan import Reading, Scan, place_field, row_id_texts
from gmdb.tables.catalog.definition_documents import table_from_plain
from gmdb.tables.catalog.schema import TableDefinition
from gmdb.tables.files.pinned_files import PinnedFiles

# ---- Which tables changes are of: the definitions that the folder ``feeds`` keeps.


@dataclass(frozen=True)
class ChangesOfTable:
    """Changes of rows of one definition, in the order of their commits."""

    table: TableDefinition
    changes: Committed
    places: np.ndarray  # which of the changes that were divided they are


class Definitions:
    """Definitions by the numbers that changes name."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._known: dict[int, TableDefinition] = {}

    def __getitem__(self, version: int) -> TableDefinition:
        if version not in self._known:
            self._known[version] = table_from_plain(read_definition(self._directory, version))
        return self._known[version]

    def of_feed(self, feed_id: int) -> Iterator[TableDefinition]:
        """All definitions that a feed's table has had, the newest first."""
        for version in sorted(definition_numbers(self._directory), reverse=True):
            if self.feed_of(version) == feed_id:
                yield self[version]

    def feed_of(self, version: int) -> int:
        table = self[version]
        if table.feed is None:
            message = f"{self._directory}: definition {version} of the change feeds, of table {table.name}, has no feed"
            raise Corruption(f"{message}; changes behind it cannot be read")
        return table.feed.feed_id

    def divide(self, committed: Committed, feeds: Collection[int] | None) -> Iterator[ChangesOfTable]:
        """The changes of each definition, of those feeds that are wanted."""
        versions = committed.changes["version"]
        for version in np.unique(versions).tolist():
            if feeds is None or self.feed_of(version) in feeds:
                places = np.flatnonzero(versions == version)
                yield ChangesOfTable(self[version], committed.part(places), places)


def require_feed(table: TableDefinition) -> int:
    """The number of a table's feed."""
    if table.feed is None:
        what = f"the changes of table {table.name} are not logged"
        raise NoChangeFeed(f"{what}; have them logged from now on: ALTER TABLE {table.name} SET (change_feed = true)")
    return table.feed.feed_id


def require_no_lobs(table: TableDefinition) -> None:
    """Refuse a table whose changes would silently lack some columns."""
    for column in table.columns:
        if column.type.is_lob:
            message = f"table {table.name}: its changes cannot have column {column.name}, {column.type}"
            why = "the log says only where a large object was, and what was there may be gone"
            raise NotSupportedError(f"{message}: {why}; changes(..., without_lobs=True) leaves such columns out")


def position_of_pin(pin: Pin) -> LogPosition:
    """The position behind all that a snapshot sees."""
    return LogPosition(pin.scn, 0, pin.log_from, pin.log_from)


# ---- Changes as Python sees them, decoded some at a time; and the rows of a snapshot in the same form.

_ROWS = (SNAPSHOT, *(OPERATIONS[n] for n in (ChangeOperation.INSERT, ChangeOperation.UPDATE, ChangeOperation.DELETE)))


class Change(NamedTuple):
    """A change of a row; or of a table, or of its feed."""

    table: str
    operation: str  # "snapshot", "insert", "update", "delete", "truncate", "drop", "start", "stop"
    row: dict[str, Any] | None  # as it is now; of a deleted one, as it was
    before: dict[str, Any] | None  # of an updated row, if it was asked for
    scn: int  # of the commit
    sequence: int  # within the transaction
    commit_time: datetime
    row_id: str | None


class Source(Protocol):
    """What a feed asks of the process that has the database open."""

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
    changes: list[tuple[int, Change]] = []
    for table, batch, places in window.batches:
        changes += zip(places.tolist(), _rows_of(table, batch), strict=True)
    changes.sort(key=lambda one: one[0])
    behind = [place for place, _ in changes[1:]]  # an update may be two changes: its commit is over behind the second
    is_last = [place != after for (place, _), after in zip_longest(changes, behind)]
    ends = window.ends
    return [(change, ends.get(place) if last else None) for (place, change), last in zip(changes, is_last, strict=True)]


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
    """The rows that tables had at a snapshot, which is let go once they are read, or no longer wanted."""

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


# ---- A feed: changes one after the other, or in batches, from a position on.
#
# Invariants
#  1. What was not given out comes next, also if the reader stops in the middle of something.
#  2. After an error the feed goes on behind its position: what is not known to have been given out comes again.

POLL = 0.05  # seconds between two looks at a log that has nothing new
WINDOW_ROWS = 1 << 13  # changes that are decoded at once
T = TypeVar("T")


@dataclass(frozen=True)
class Wanted:
    """What a feed gives out: the changes of some feeds, all if none are named.

    ``begun``: those that must not begin behind the feed's position, since changes before that were not logged.
    """

    feeds: Collection[int] | None
    begun: Collection[int]
    before: bool
    without_lobs: bool = False  # columns of large objects are left out; otherwise tables that have some are refused


@dataclass(frozen=True)
class NamedReader:
    """A reader for whom the log is kept."""

    name: str
    keep: int
    feeds: dict[str, int]

    def register(self, log: ChangeLog, position: LogPosition) -> None:
        text = position.to_text(log.database_id)
        place = (self.name, log.database_id, text, position.needs)
        write_reader(log.directory, Reader(*place, self.keep, 0.0, self.feeds))


class ChangeFeed:
    """The changes of some tables from a position on.  Iterating ends where the log does, and goes on from there."""

    def __init__(
        self,
        log: ChangeLog,
        position: LogPosition,
        wanted: Wanted,
        reader: NamedReader | None = None,
        snapshot: SnapshotRows | None = None,
    ) -> None:
        """``snapshot``: rows that come before all changes."""
        self._log, self._wanted, self._reader, self._snapshot = log, wanted, reader, snapshot
        self._definitions = Definitions(log.directory)
        self._position = position
        self._scan: LogScan | None = LogScan(log, position)
        self._windows = self._read_windows()
        self._changes: deque[tuple[Change, LogPosition | None]] = deque()
        self._batches: deque[tuple[str, pa.RecordBatch]] = deque()
        self._reached: LogPosition | None = None  # when what is in the queues was given out
        self._closed = False

    @property
    def position(self) -> str:
        """Where the feed stands: behind the last transaction of which all changes were given out."""
        return self._position.to_text(self._log.database_id)

    def __iter__(self) -> Iterator[Change]:
        """The changes that were committed by now, in order."""
        while (change := self._take_step(self._next_change)) is not None:
            yield change

    def _next_change(self) -> Change | None:
        while not self._changes:
            window = next(self._windows, None)
            if window is None:
                self._windows = self._read_windows()
                return None
            self._changes.extend(changes_of(window))
            self._reached = window.position
            if not self._changes and window.position is not None:
                self._position = window.position
            check()
        change, position = self._changes.popleft()
        if not self._changes and self._reached is not None:
            position = self._reached
        self._position = position or self._position
        return change

    def batches(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        """The changes that were committed by now as record batches, with their tables' names.

        Those of one table are in order; of several tables, ``_scn`` and ``_sequence`` tell the order.
        """
        while (batch := self._take_step(self._next_batch)) is not None:
            yield batch

    def _next_batch(self) -> tuple[str, pa.RecordBatch] | None:
        while not self._batches:
            window = next(self._windows, None)
            if window is None:
                self._windows = self._read_windows()
                return None
            self._batches.extend((table.name, batch) for table, batch, _ in window.batches)
            self._reached = window.position or max(window.ends.values(), default=None)
            if not self._batches and window.position is not None:
                self._position = window.position
            check()
        batch = self._batches.popleft()
        if not self._batches:
            self._position = self._reached or self._position
        return batch

    def follow(self, patience: float | None = None) -> Iterator[Change]:
        """The changes as they are committed, for good, or until there was none for ``patience`` seconds."""
        last = time.monotonic()
        while patience is None or time.monotonic() - last < patience:
            for change in self:
                yield change
                last = time.monotonic()
            time.sleep(POLL)

    def acknowledge(self) -> None:
        """Everything up to ``position`` was processed: the log before is not kept for this reader any more."""
        self._require_open()
        if self._reader is None:
            raise InterfaceError('a feed without a reader has nothing to acknowledge; give it one: reader="copy"')
        require_reader(self._log.directory, self._reader.name)
        self._reader.register(self._log, self._position)

    def close(self) -> None:
        self._closed = True
        self._windows.close()
        if self._snapshot is not None:
            self._snapshot.close()

    def __enter__(self) -> ChangeFeed:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _require_open(self) -> None:
        if self._closed:
            raise InterfaceError("the feed is closed")

    def _take_step(self, step: Callable[[], T]) -> T:
        """Take a step; it returns None if all that there is by now was given out.

        If it fails, or its result is lost to a signal, the feed starts over behind the last transaction of which
        all changes were given out.
        """
        self._require_open()
        before = self._position
        try:
            with held:
                return step()
        except BaseException:
            self._position, self._reached = before, None
            self._changes, self._batches = deque(), deque()
            self._scan, self._windows = None, self._read_windows()
            raise

    def _read_windows(self) -> Generator[Window]:
        if self._snapshot is not None:
            yield from self._snapshot.windows()
            self._snapshot = None
        if self._scan is None:
            self._scan = LogScan(self._log, self._position)
        for committed in self._scan.steps():
            ends = {int(end["changes"]) - 1: position_behind(end, committed.position.whole) for end in committed.ends()}
            done = 0
            for part in divided(committed, WINDOW_ROWS):
                window = Window(self._decoded(part, done), ends)
                done += len(part)
                window.position = committed.position if done == len(committed) else None
                yield window
            if not done:
                yield Window([], {}, committed.position)

    def _decoded(self, part: Committed, first: int) -> list[tuple[TableDefinition, pa.RecordBatch, np.ndarray]]:
        batches = []
        for one in self._definitions.divide(part, self._wanted.feeds):
            self._require_begun(one)
            if not self._wanted.without_lobs:
                require_no_lobs(one.table)
            for batch, which in change_batches(self._log, one.changes, one.table, self._wanted.before):
                batches.append((one.table, batch, first + one.places[which]))
        return batches

    def _require_begun(self, changes: ChangesOfTable) -> None:
        if require_feed(changes.table) not in self._wanted.begun:
            return
        at = np.flatnonzero(changes.changes.changes["operation"] == ChangeOperation.START)
        if len(at):
            since = int(changes.changes.scn[at[0]])
            raise PositionGone(
                f"the changes of table {changes.table.name} are logged since commit {since} only, "
                f"not since {self.position}; start again from a snapshot"
            )


def require_reader(directory: Path, name: str) -> None:
    if read_reader(directory, name) is None:
        raise PositionGone(f"{directory}: reader {name} was dropped, and with it the log; start again from a snapshot")
