"""Reading a database's changes: every committed insert, update and delete of tables with a change feed, in order.

    with db.changes(tables=["orders"], reader="copy") as feed:
        for change in feed:
            print(change.operation, change.table, change.row)
        feed.acknowledge()

The changes come out of the log's files (log/changes.py), by the definitions that their tables had at the time.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Protocol, cast

import numpy as np
import pyarrow as pa

from gmdb.arrow.changes import BEFORE, META_FIELDS, SNAPSHOT, change_batches
from gmdb.arrow.scan import PLACE, Reading, Scan, row_id_texts
from gmdb.catalog.plain import table_from_plain
from gmdb.catalog.schema import TableDefinition
from gmdb.engine import Database
from gmdb.errors import InterfaceError, NoChangeFeed, PositionGone
from gmdb.format.address import device_of
from gmdb.inspect.pinned import PinnedFiles
from gmdb.log.changes import ChangeLog, Committed, LogScan
from gmdb.storage.feeds import (
    KEEP,
    LogPosition,
    Reader,
    definition_numbers,
    read_definition,
    read_reader,
    require_keep,
    require_reader_name,
    write_reader,
)
from gmdb.storage.frozen import FrozenStore
from gmdb.storage.holder import Holder
from gmdb.storage.pins import Pin
from gmdb.transaction.session import Session

POLL = 0.05  # seconds between two looks at a log that has nothing new
_META = {field.name for field in META_FIELDS}


class Change(NamedTuple):
    """What became of a row; or of a table, if it was truncated or dropped, or its changes are logged no more."""

    table: str
    operation: str  # "snapshot", "insert", "update", "delete", "truncate", "drop", "stop"
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
    def feed_position(self) -> LogPosition: ...
    def take_snapshot(self, *, lease: float | None = None, holder: Holder | None = None) -> Pin: ...
    def drop_snapshot(self, name: str) -> None: ...


@dataclass(frozen=True)
class ChangesOfTable:
    """Changes of rows of one definition, in the order of their commits."""

    table: TableDefinition
    changes: Committed
    places: np.ndarray  # which of the step's changes they are


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
        feed = self[version].feed
        assert feed is not None
        return feed.feed_id

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
        said = f"the changes of table {table.name} are not logged"
        raise NoChangeFeed(f"{said}; have them logged from now on: ALTER TABLE {table.name} SET (change_feed = true)")
    return table.feed.feed_id


def position_of_pin(pin: Pin) -> LogPosition:
    """Behind all that a snapshot sees."""
    return LogPosition(pin.scn, 0, pin.log_from, pin.log_from)


def register(directory: Path, name: str, database_id: str, position: LogPosition, keep: int) -> None:
    """Have the log kept from a position on, for a reader with a name."""
    text = position.to_text(database_id)
    write_reader(directory, Reader(require_reader_name(name), database_id, text, position.needs, keep, 0.0))


class ChangeFeed:
    """The changes of some tables from a position on.  Iterating ends where the log does, and goes on from there."""

    def __init__(
        self,
        log: ChangeLog,
        position: LogPosition,
        feeds: Collection[int] | None,
        before: bool,
        reader: str | None,
        keep: int,
        rows: Iterator[Change],
    ) -> None:
        """``rows``: those that come before all changes."""
        self._log, self._feeds, self._before = log, feeds, before
        self._reader, self._keep = reader, keep
        self._rows = rows
        self._definitions = Definitions(log.directory)
        self._scan = LogScan(log, position)
        self._position = position
        self._closed = False

    @property
    def position(self) -> str:
        """Where the feed stands: behind the last transaction of which all changes were given out."""
        return self._position.to_text(self._log.database_id)

    def __iter__(self) -> Iterator[Change]:
        """The changes that were committed by now, whole transactions."""
        self._require_open()
        yield from self._rows
        for committed in self._scan.steps():
            found: list[tuple[int, Change]] = []
            for part in self._definitions.divide(committed, self._feeds):
                found += zip(part.places.tolist(), self._changes(part), strict=True)
            for _, change in sorted(found, key=lambda one: one[0]):
                yield change
            self._position = committed.position

    def follow(self, patience: float | None = None) -> Iterator[Change]:
        """The changes as they are committed, for good, or until there was none for ``patience`` seconds."""
        last = time.monotonic()
        while patience is None or time.monotonic() - last < patience:
            for change in self:
                yield change
                last = time.monotonic()
            time.sleep(POLL)

    def batches(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        """The changes that were committed by now as record batches, with their tables' names.

        Those of one table are in order; of several tables, ``_scn`` and ``_sequence`` tell the order.
        """
        self._require_open()
        for committed in self._scan.steps():
            for part in self._definitions.divide(committed, self._feeds):
                for batch in self._batches(part):
                    yield part.table.name, batch
            self._position = committed.position

    def acknowledge(self) -> None:
        """Everything up to ``position`` was dealt with: the log before is not kept for this reader any more."""
        self._require_open()
        if self._reader is None:
            raise InterfaceError('a feed without a reader has nothing to acknowledge; give it one: reader="copy"')
        if read_reader(self._log.directory, self._reader) is None:
            raise PositionGone(
                f"{self._log.directory}: reader {self._reader} fell behind its limit of {self._keep} bytes of log, "
                "or was dropped; start again from a snapshot"
            )
        register(self._log.directory, self._reader, self._log.database_id, self._position, self._keep)

    def close(self) -> None:
        self._closed = True
        close = getattr(self._rows, "close", None)
        if close is not None:
            close()

    def __enter__(self) -> ChangeFeed:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _require_open(self) -> None:
        if self._closed:
            raise InterfaceError("the feed is closed")

    def _batches(self, part: ChangesOfTable) -> Iterator[pa.RecordBatch]:
        return change_batches(self._log, part.changes, part.table.columns, self._before)

    def _changes(self, part: ChangesOfTable) -> Iterator[Change]:
        for batch in self._batches(part):
            for values in batch.to_pylist():
                yield _as_change(part.table.name, values, self._before)


def _as_change(table: str, values: dict[str, Any], with_before: bool) -> Change:
    operation = values["_op"]
    has_row = operation in ("insert", "update", "delete")
    row = {k: v for k, v in values.items() if k not in _META and not k.startswith(BEFORE)} if has_row else None
    before = None
    if with_before and operation == "update":
        before = {k.removeprefix(BEFORE): v for k, v in values.items() if k.startswith(BEFORE)}
    place = (values["_scn"], values["_sequence"], values["_commit_time"], values["_rowid"])
    return Change(table, operation, row, before, *place)


def open_feed(
    source: Source,
    since: str | datetime | None,
    tables: Sequence[str] | None,
    before: bool,
    reader: str | None,
    keep: int | None,
    snapshot: bool,
) -> ChangeFeed:
    """A feed, from where its reader stands, or from a position or time, or from a snapshot that comes first."""
    directory = source.path
    keep = require_keep(KEEP if keep is None else keep)
    definitions = None if tables is None else [source.table(name) for name in tables]
    feeds = None if definitions is None else {require_feed(table) for table in definitions}
    log = ChangeLog(directory)
    if snapshot and (since is not None or definitions is None):
        raise InterfaceError("a feed that begins with a snapshot needs its tables, and begins nowhere else")
    known = read_reader(directory, reader) if reader is not None else None
    if known is not None and not snapshot and since is None:
        position = LogPosition.from_text(known.position, log.database_id)
    else:
        position = _first_position(source, log, since)
    if reader is not None:
        register(directory, reader, log.database_id, position, keep)
    rows: Iterator[Change] = iter(())
    if snapshot and definitions is not None:
        pin = source.take_snapshot()
        position = position_of_pin(pin)
        rows = _rows_of_pin(source, pin, feeds or set())
    return ChangeFeed(log, position, feeds, before, reader, keep, rows)


def _first_position(source: Source, log: ChangeLog, since: str | datetime | None) -> LogPosition:
    if since is None:
        return source.feed_position()
    if isinstance(since, datetime):
        return log.position_at(int(since.timestamp() * 1_000_000))
    return LogPosition.from_text(since, log.database_id)


def _rows_of_pin(source: Source, pin: Pin, feeds: Collection[int]) -> Iterator[Change]:
    """The rows of tables at a snapshot, which is let go at the end."""
    taken = datetime.fromtimestamp(pin.created)
    try:
        store = FrozenStore(source.path, pin)
        try:
            for table in map(table_from_plain, pin.tables):
                if table.feed is None or table.feed.feed_id not in feeds:
                    continue
                with PinnedFiles(source.path, pin) as files:
                    pages = np.array(files.segment_pages(table.entry_page), np.uint32)
                    page_size = files.devices[device_of(table.entry_page)].page_size
                wanted = [n for n, column in enumerate(table.columns) if not column.type.is_lob]
                scan = Scan(store, table.obj_id, table.columns, wanted, pages, page_size, threads=1, places=True)
                number = 0
                for batch in scan.batches(Reading.of_closed()):
                    ids = row_id_texts(batch.column(PLACE.name).to_numpy()).to_pylist()
                    for row_id, row in zip(ids, batch.drop_columns([PLACE.name]).to_pylist(), strict=True):
                        yield Change(table.name, SNAPSHOT, row, None, pin.scn, number, taken, row_id)
                        number += 1
        finally:
            store.close()
    finally:
        source.drop_snapshot(pin.name)


class ReadsChanges:
    """The part of a connection that gives out changes."""

    _database: Database
    session: Session

    def changes(
        self,
        since: str | datetime | None = None,
        tables: Sequence[str] | None = None,
        *,
        before: bool = False,
        reader: str | None = None,
        keep: int | None = None,
        snapshot: bool = False,
    ) -> ChangeFeed:
        """The committed changes of tables with a change feed, in the order of their commits.

        They begin behind ``since``: a feed's ``position``, or a time; if there is none, where the ``reader`` of that
        name stands, or now.  With ``snapshot``, the tables' rows come first, then all that was committed since.
        ``before``: updates have the rows' values before, too.  For a reader with a name the log is kept, up to
        ``keep`` bytes of it, from where it last acknowledged.
        """
        return open_feed(cast("Source", self), since, tables, before, reader, keep, snapshot)

    def feed_position(self) -> LogPosition:
        """Where a feed of changes that begins now would stand."""
        self.session.require_open()
        return self._database.feed_position()
