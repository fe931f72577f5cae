"""Which changes make a batch of a stream: kept on the driver's host, from one batch to the next.

A stream may begin with a snapshot: then batches are ranges of a pinned table's pages, until all were read.  From then
on they are commits, in order and never divided, as the log has them.  An offset says how far that has come.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from gmdb.database.feed import Definitions, NamedReader, position_of_pin, require_feed, require_reader
from gmdb.errors import FeedError, TableChanged
from gmdb.format.columns import Column
from gmdb.format.heap import HEAP_NODE, NODE_AT
from gmdb.format.redo import ChangeOperation
from gmdb.process.late_dataclasses import asdict, dataclass, replace
from gmdb.spark.change_reader import ChangeRange, SnapshotRange
from gmdb.spark.options import NOW, SNAPSHOT, ChangeOptions
from gmdb.spark.pinned_snapshots import drop_pin, position_now, table_of, take_pin
from gmdb.spark.table_reader import PagePartition, divide, pages_per_range
from gmdb.storage.documents import Holder
from gmdb.storage.feeds import LogPosition, remove_reader
from gmdb.storage.log.committed_changes import COMMIT_END, ChangeLog, Committed, LogScan, position_behind
from gmdb.storage.pins import Pin, read_pin, renew
from gmdb.tables.catalog.schema import TableDefinition
from gmdb.tables.files.pinned_files import PinnedFiles

RANGES_MAX = 8  # tasks of a batch
RANGE_ROWS = 1 << 15  # changes that are worth a task
IDLE_BYTES = 8 << 20  # of log without a change of the table, after which a batch of nothing moves the stream on
IDLE_SHARE = 4  # or such a share of what is kept
_ENDS = {ChangeOperation.DROP: "was dropped", ChangeOperation.STOP: "has no change feed any more"}


@dataclass(frozen=True)
class Offset:
    """How far a stream has come: how many ranges of its snapshot it has read; after that, a position in the feed.

    The first one of a stream says nothing: Spark asks for it again and again, also when it goes on from another.
    """

    position: str = ""
    reader: str = ""
    feed: int = 0  # the table's, which gets another one if it is made again
    snapshot: str = ""
    pages_a_range: int = 0
    ranges_read: int = 0
    is_read: bool = False  # all of the snapshot, which is let go when that is known to be dealt with

    @property
    def begins_in_snapshot(self) -> bool:
        return bool(self.snapshot) and not self.is_read

    def to_plain(self) -> dict[str, Any]:
        return asdict(self)


class StreamPlanner:
    def __init__(self, options: ChangeOptions, table: TableDefinition) -> None:
        """``table``: as the stream's schema has it."""
        self._options, self._table = options, table
        self._feed = require_feed(table)
        self._log = ChangeLog(options.path)
        self._definitions = Definitions(options.path)
        self._scan: LogScan | None = None
        self._ahead = np.empty(0, COMMIT_END)  # commits that were read, with their rows, and not handed out yet
        self._reached: LogPosition | None = None  # where what was handed out ends
        self._scanned: LogPosition | None = None  # where what was found ends
        self._given: tuple[Offset, Offset, np.ndarray] | None = None  # the newest batch, and its commits
        self._error: FeedError | None = None  # why the stream ends behind what was found
        self._error_scn = 0
        self._begun: Offset | None = None  # where this stream began, if it is a new one
        self._target: int | None = None  # the SCN at which a stream of what is available ends

    # ---- where a stream begins

    def _begin(self) -> Offset:
        """Where a new stream begins; from now on the log is kept for it."""
        options = self._options
        reader = options.reader or f"stream-{secrets.token_hex(6)}"
        position = self._first_position()
        self._register(reader, position)
        if options.since != SNAPSHOT:
            self._log.require(position)
            return Offset(self._text(position), reader, self._feed)
        pin = take_pin(options.path, options.lease, options.owner, Holder.nobody())
        try:
            table = table_of(pin, options.table, options.path)
            if table.feed != self._table.feed:
                raise TableChanged(f"table {table.name} was changed while the stream began; start it again")
            pages = self._pages_a_range(pin, table)
        except BaseException:
            drop_pin(options.path, pin.name, options.owner)
            remove_reader(options.path, reader)
            raise
        return Offset(self._text(position_of_pin(pin)), reader, self._feed, pin.name, pages)

    def _first_position(self) -> LogPosition:
        since = self._options.since
        if since in (SNAPSHOT, NOW):
            return position_now(self._options.path, self._options.owner)
        if isinstance(since, str):
            return LogPosition.from_text(since, self._log.database_id)
        return self._log.position_at(int(since.timestamp() * 1_000_000))

    def _pages_a_range(self, pin: Pin, table: TableDefinition) -> int:
        """How many pages of the snapshot make a task's range, or a batch if those are limited."""
        with PinnedFiles(self._options.path, pin) as files:
            pages = files.segment_pages(table.entry_page)
            if not pages:
                return 1
            page = files.page(pages[0])
        size = len(pages) * len(page)
        count = pages_per_range(size, len(page), self._options.max_partition_bytes)
        if self._options.max_rows is not None:
            rows = max(int(HEAP_NODE.at(page, NODE_AT).slot_count), 1)
            count = min(count, max(self._options.max_rows // rows, 1))
        return count

    # ---- where the next batch ends

    def end_at(self, scn: int) -> None:
        """Hand out nothing that was committed behind ``scn``."""
        self._target = scn

    def latest(self, start: Offset, max_rows: int | None) -> Offset:
        """Where a batch ends that begins at ``start``, with that many rows at most, but whole transactions."""
        if not start.position:
            self._begun = self._begun or self._begin()
            return self._latest_of_snapshot(self._begun, max_rows) if self._begun.snapshot else self._begun
        require_reader(self._options.path, start.reader)
        if start.begins_in_snapshot:
            return self._latest_of_snapshot(start, max_rows)
        if start.snapshot:  # a batch behind it is asked for: it was dealt with
            drop_pin(self._options.path, start.snapshot, self._options.owner)
        position = LogPosition.from_text(start.position, self._log.database_id)
        if self._reached != position:
            self._scan = LogScan(self._log, position)
            self._ahead, self._reached, self._scanned, self._error = self._ahead[:0], position, position, None
        for commits in self._steps(max_rows):
            self._ahead = np.concatenate((self._ahead, commits))
        count = self._count(max_rows)
        batch, end = self._ahead[:count], self._end_of(position, count)
        if not count and self._error is not None and (self._target is None or self._error_scn <= self._target):
            raise self._error
        self._ahead, self._reached = self._ahead[count:], end
        offset = Offset(self._text(end), start.reader, self._feed)
        if end == position:
            offset = start
        self._given = (start, offset, batch)
        return offset

    def _end_of(self, position: LogPosition, count: int) -> LogPosition:
        """The position behind so many of the commits that were read."""
        assert self._scanned is not None
        if count == self._up_to_target() and self._error is None and self._scanned.scn > position.scn:
            idle = self._scanned.needs - position.needs
            if count or idle > min(IDLE_BYTES, self._options.keep // IDLE_SHARE):
                return self._scanned
        return position_behind(self._ahead[count - 1], position.whole) if count else position

    def _up_to_target(self) -> int:
        """How many of the commits that were read may be handed out."""
        if self._target is None:
            return len(self._ahead)
        return int(np.searchsorted(self._ahead["scn"], self._target, "right"))

    def _count(self, max_rows: int | None) -> int:
        """How many of the commits that were read make the batch."""
        count = self._up_to_target()
        if max_rows is not None and count:
            fitting = int(np.searchsorted(np.cumsum(self._ahead["changes"][:count]), max_rows, "right"))
            count = max(fitting, 1)
        return count

    def _steps(self, max_rows: int | None) -> Iterator[np.ndarray]:
        """Commits that change the table, as far as a batch of so many rows needs to know."""
        assert self._scan is not None
        rows = int(self._ahead["changes"].sum())
        if self._error is not None or (max_rows is not None and rows > max_rows):
            return
        for committed in self._scan.steps():
            if self._target is None or committed.position.scn <= self._target:
                self._scanned = committed.position
            commits = self._commits(committed)
            rows += int(commits["changes"].sum())
            yield commits
            if self._error is not None or (max_rows is not None and rows > max_rows):
                return

    def _commits(self, committed: Committed) -> np.ndarray:
        """The commits of a step that change the table, each with how many rows, up to one that ends the stream."""
        mine = np.zeros(len(committed), bool)
        ends = np.iinfo(np.int64).max
        for part in self._definitions.divide(committed, {self._feed}):
            mine[part.places] = True
            ends = min(ends, self._ends_at(part.table, part.changes))
        commits = committed.ends()
        if len(commits):
            starts = np.concatenate(([0], commits["changes"][:-1]))
            commits["changes"] = np.add.reduceat(mine, starts)
        return commits[(commits["changes"] > 0) & (commits["scn"] < ends)]

    def _ends_at(self, table: TableDefinition, changes: Committed) -> int:
        """The SCN of the first commit that the stream cannot hand out; it will say why."""
        operations, ends = changes.changes["operation"], np.iinfo(np.int64).max
        for operation, message in _ENDS.items():
            at = np.flatnonzero(operations == operation)
            if len(at) and changes.scn[at[0]] < ends:
                ends = self._error_scn = int(changes.scn[at[0]])
                self._error = TableChanged(f"table {table.name} {message}: its stream of changes ends")
        if self._is_new_schema(table) and len(changes) and changes.scn[0] < ends:
            ends = self._error_scn = int(changes.scn[0])
            self._error = TableChanged(
                f"table {table.name} has other columns than the stream since commit {ends}; start the stream again to "
                'go on with them, or go on without new ones: .option("schemaChange", "follow")'
            )
        return ends

    def _is_new_schema(self, table: TableDefinition) -> bool:
        assert table.feed is not None
        assert self._table.feed is not None
        if self._options.follows_schema or table.feed.version <= self._table.feed.version:
            return False
        wanted = [self._table.position(name) for name in self._options.columns] or None
        return _shape(table.columns, wanted) != _shape(self._table.columns, wanted)

    # ---- a batch's tasks

    def partitions(self, start: Offset, end: Offset) -> Sequence[SnapshotRange | ChangeRange]:
        if start.begins_in_snapshot or (not start.position and end.snapshot):
            ranges = self._ranges(end)[start.ranges_read : end.ranges_read]
            return [SnapshotRange(end.snapshot, one) for one in ranges]
        if not start.position or start.position == end.position:
            return []
        first = LogPosition.from_text(start.position, self._log.database_id)
        last = LogPosition.from_text(end.position, self._log.database_id)
        known = self._given is not None and self._given[:2] == (start, end)
        commits = self._given[2] if known and self._given is not None else self._commits_again(first, last.scn)
        if not len(commits):
            return []
        total = np.cumsum(commits["changes"])
        count = min(RANGES_MAX, -(-int(total[-1]) // RANGE_ROWS))
        cuts = np.unique(np.searchsorted(total, total[-1] * np.arange(1, count + 1) // count))
        ranges, begin = [], first
        for cut in cuts.tolist():
            last_commit = commits[cut]
            ranges.append(ChangeRange(begin, int(last_commit["scn"]), self._table))
            begin = position_behind(last_commit, first.whole)
        return ranges

    def _commits_again(self, first: LogPosition, until: int) -> np.ndarray:
        """The commits of a batch that was planned before this process began."""
        commits = [self._commits(committed) for committed in LogScan(self._log, first).steps(until)]
        return np.concatenate([np.empty(0, COMMIT_END), *commits])

    # ---- the snapshot

    def _latest_of_snapshot(self, start: Offset, max_rows: int | None) -> Offset:
        renew(self._options.path, start.snapshot)
        count = len(self._ranges(start))
        done = count if max_rows is None else min(start.ranges_read + 1, count)
        return replace(start, ranges_read=done, is_read=done == count)

    def _ranges(self, offset: Offset) -> list[PagePartition]:
        pin = read_pin(self._options.path, offset.snapshot)
        table = table_of(pin, self._table.name, self._options.path)
        with PinnedFiles(self._options.path, pin) as files:
            pages = files.segment_pages(table.entry_page)
        return divide(pages, offset.pages_a_range)

    # ---- readers

    def commit(self, end: Offset) -> None:
        """Everything before ``end`` was processed."""
        self._register(end.reader, LogPosition.from_text(end.position, self._log.database_id))

    def _register(self, reader: str, position: LogPosition) -> None:
        NamedReader(reader, self._options.keep, {self._table.name: self._feed}).register(self._log, position)

    def _text(self, position: LogPosition) -> str:
        return position.to_text(self._log.database_id)


def _shape(columns: Sequence[Column], wanted: Sequence[int] | None) -> list[tuple[str, str]]:
    """The names and types of the wanted columns; of all columns if none are named."""
    return [(column.name, str(column.type)) for n, column in enumerate(columns) if wanted is None or n in wanted]
