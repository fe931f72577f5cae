"""A feed: changes one after the other, or in batches, from a position on.

Invariants
 1. What was not given out comes next, also if whoever reads stops in the middle of something.
 2. After an error the feed goes on behind its position: what is not known to have been given out comes again.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TypeVar

import numpy as np

from gmdb.arrow.changes import change_batches, divided
from gmdb.catalog.schema import TableDefinition
from gmdb.errors import InterfaceError, PositionGone
from gmdb.feed.definitions import ChangesOfTable, Definitions, require_feed, require_no_lobs
from gmdb.feed.windows import Change, SnapshotRows, Window, changes_of
from gmdb.format.redo import ChangeOperation
from gmdb.late import pyarrow as pa
from gmdb.log.changes import ChangeLog, Committed, LogScan, position_behind
from gmdb.signals import check, held
from gmdb.storage.feeds import LogPosition, Reader, read_reader, write_reader

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
    """For whom the log is kept."""

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
        self._windows = self._give()
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
        while (change := self._whole(self._next_change)) is not None:
            yield change

    def _next_change(self) -> Change | None:
        while not self._changes:
            window = next(self._windows, None)
            if window is None:
                self._windows = self._give()
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
        while (batch := self._whole(self._next_batch)) is not None:
            yield batch

    def _next_batch(self) -> tuple[str, pa.RecordBatch] | None:
        while not self._batches:
            window = next(self._windows, None)
            if window is None:
                self._windows = self._give()
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
        """Everything up to ``position`` was dealt with: the log before is not kept for this reader any more."""
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

    def _whole(self, step: Callable[[], T]) -> T:
        """Take a step; None: all that there is by now was given out.

        If it fails, or what it found is lost to a signal, the feed starts over behind the last transaction of which
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
            self._scan, self._windows = None, self._give()
            raise

    def _give(self) -> Generator[Window]:
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
        made = []
        for found in self._definitions.divide(part, self._wanted.feeds):
            self._require_begun(found)
            if not self._wanted.without_lobs:
                require_no_lobs(found.table)
            for batch, which in change_batches(self._log, found.changes, found.table, self._wanted.before):
                made.append((found.table, batch, first + found.places[which]))
        return made

    def _require_begun(self, found: ChangesOfTable) -> None:
        if require_feed(found.table) not in self._wanted.begun:
            return
        at = np.flatnonzero(found.changes.changes["operation"] == ChangeOperation.START)
        if len(at):
            since = int(found.changes.scn[at[0]])
            raise PositionGone(
                f"the changes of table {found.table.name} are logged since commit {since} only, "
                f"not since {self.position}; start again from a snapshot"
            )


def require_reader(directory: Path, name: str) -> None:
    if read_reader(directory, name) is None:
        raise PositionGone(f"{directory}: reader {name} was dropped, and with it the log; start again from a snapshot")
