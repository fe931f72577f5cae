"""Committed changes of tables with a change feed, in the order of their commits, out of the log's files.

A reader needs nothing but the files: it may be another process, while the database is in use, closed or crashed.
A transaction's changes lie anywhere before its commit, among those of others; so a position in the feed is the commit
that was read last, and the LSN from which on the log may have changes of transactions that had not committed by then.

Invariants
 1. A commit counts once its log is on disk: the files that it was found in are synced before it is given out.
 2. Commits are given out whole, each once, in the order of their SCNs.
 3. What a transaction took back is not given out; nor what one did that a crash ended, which is known at the place
    where the log goes on in another file.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from gmdb.errors import Corruption, PositionGone, PositionUnknown
from gmdb.format.address import NO_PAGE, NO_PLACE, page_of
from gmdb.format.layout import Structure
from gmdb.format.redo import ChangeOperation, payload
from gmdb.kernel.page.redo import GROUP_MAX, LENGTH_MAX, MORE, first_group
from gmdb.kernel.read.log_changes import FULL, LOG_CHANGE, LOG_COMMIT, LOG_SCAN, ROW_MIN, copy_rows, scan_log
from gmdb.kernel.runtime.status import DAMAGED
from gmdb.process.late_dataclasses import dataclass
from gmdb.process.late_imports import numpy as np
from gmdb.process.signals import check
from gmdb.storage.directory import read_control
from gmdb.storage.feeds import LogPosition
from gmdb.storage.log.log_files import ARCHIVE, RedoReader, open_if_there, redo_numbers, redo_path

CHUNK = 4 << 20
_ROOM = (CHUNK + 2 * GROUP_MAX) // ROW_MIN
_COMMITS = 1 << 16
COMMIT_END = Structure([("scn", "<i8"), ("lsn", "<i8"), ("needs", "<i8"), ("changes", "<i8")])
_GONE = "is not kept any more; start again from a snapshot, and name a reader so that the log is kept for it"
_ANOTHER_WAY = "it has gone another way since, as after a restore to an earlier time; start again from a snapshot"


@dataclass(frozen=True)
class Committed:
    """Changes of some commits, in order: of each, its place in the log, its commit, its number within that.

    ``position`` is behind the last commit, even if that has no change.
    """

    changes: np.ndarray
    commits: np.ndarray
    sequence: np.ndarray
    position: LogPosition

    @property
    def scn(self) -> np.ndarray:
        return self.commits["scn"]

    def __len__(self) -> int:
        return len(self.changes)

    def ends(self) -> np.ndarray:
        """Where each of the commits ends: the position behind it, and how many changes there are up to there."""
        scn = self.scn
        starts = np.flatnonzero(np.concatenate(([True], np.diff(scn) != 0))) if len(scn) else np.empty(0, np.int64)
        ends = np.zeros(len(starts), COMMIT_END)
        if len(starts):
            ends["scn"], ends["lsn"] = scn[starts], self.commits["lsn"][starts]
            needs = np.minimum.accumulate(self.changes["group"][::-1])[::-1]  # of this change and all behind it
            behind = np.append(needs[starts[1:]], self.position.needs)
            ends["needs"] = np.minimum(np.minimum(behind, self.position.needs), ends["lsn"])
            ends["changes"] = np.append(starts[1:], len(scn))
        return ends

    def part(self, wanted: np.ndarray | slice) -> Committed:
        return Committed(self.changes[wanted], self.commits[wanted], self.sequence[wanted], self.position)


def position_behind(end: np.void, whole: int) -> LogPosition:
    """The position behind a commit."""
    return LogPosition(int(end["scn"]), int(end["lsn"]), int(end["needs"]), whole)


class ChangeLog:
    """The log of a database's directory, for any process that can read its files."""

    def __init__(self, directory: Path) -> None:
        control = read_control(directory)
        self.directory = directory
        self.database_id: str = control["database_id"]
        self._file_size = int(control["redo_file_size"])
        self._folders = [directory, directory / ARCHIVE]
        self._synced = int(control["redo_lsn"])  # recovery needs the log from here on
        identity = bytes.fromhex(self.database_id)
        self._reader = RedoReader(self._folders, identity, self._file_size) if self._file_size else None

    # ---- places

    def _first_group(self) -> int:
        """Where the first whole group is that is kept, of those that lead to the log's end without a gap."""
        size = payload(self._file_size) if self._file_size else 1
        numbers = sorted({n for folder in self._folders for n in redo_numbers(folder)})
        first = len(numbers) - 1
        while first > 0 and numbers[first - 1] == numbers[first] - 1:
            first -= 1
        if first < 0:
            raise PositionGone(f"{self.directory} has no log; {_GONE}")
        data = np.frombuffer(self.read(numbers[first] * size, 2 * LENGTH_MAX), np.uint8)
        at = first_group(data.ctypes.data, len(data), numbers[first] * size) if len(data) else -1
        return numbers[first] * size + max(at, 0)

    def position_at(self, time: int) -> LogPosition:
        """Behind the last commit before a time, in microseconds since 1970."""
        first = self._first_group()
        position, oldest = LogPosition(0, 0, first, first), 0
        for commits in LogScan(self, position).commits():
            oldest = oldest or int(commits["time"].min())
            before = commits[commits["time"] < time]
            if len(before):
                last = before[np.argmax(before["scn"])]
                position = LogPosition(int(last["scn"]), int(last["lsn"]), first, first)
            if len(before) < len(commits):
                break
        if position.scn == 0:
            since = datetime.fromtimestamp(oldest / 1e6).isoformat(" ") if oldest else "now"
            raise PositionGone(f"{self.directory}: the log before {since} {_GONE}")
        return position

    def require(self, position: LogPosition) -> None:
        """Refuse a position from which the log is not there any more, or that is not of this log."""
        text = position.to_text(self.database_id)
        if not self._is_there(position.needs):
            raise PositionGone(f"{self.directory}: the log from position {text} on {_GONE}")

    def _is_there(self, lsn: int) -> bool:
        """Whether the log can be read on from ``lsn``, or ends there."""
        if self._reader is not None and (self._reader.has(lsn) or self._reader.after_end(lsn) is not None):
            return True
        control = read_control(self.directory)
        return bool(control["clean"]) and int(control["redo_lsn"]) == lsn

    def sync(self, last: int) -> None:
        """Sync the log up to an LSN, also if another process wrote it: all that recovery would need to get there."""
        size = payload(self._file_size)
        for number in range(self._synced // size, last // size + 1):
            for folder in self._folders:
                file = open_if_there(redo_path(folder, number))
                if file is not None:
                    with file:
                        file.sync()
        self._synced = max(self._synced, last)

    def goes_on_behind(self, lsn: int) -> bool:
        """Whether there is log behind a place without a whole group: then it is damaged there, or was being written."""
        assert self._reader is not None
        number = lsn // payload(self._file_size) + 1
        return int(read_control(self.directory)["redo_lsn"]) > lsn or self._reader.is_used(number)

    def damaged(self, lsn: int) -> Corruption:
        assert self._reader is not None
        where = self._reader.describe(lsn)
        return Corruption(f"{self.directory}: the log is damaged at {where}; changes behind it cannot be read")

    def read(self, lsn: int, length: int) -> bytes:
        """Bytes of the log, however many files they are in; fewer if it ends before."""
        assert self._reader is not None
        data = b""
        while len(data) < length:
            more = self._reader.read(lsn + len(data), length - len(data), lsn)
            if not more:
                break
            data += more
        return data

    def after_end(self, lsn: int) -> int | None:
        """Where the log goes on that seems to end at ``lsn``; None if that is its end."""
        assert self._reader is not None
        following = self._reader.after_end(lsn)
        if following is None and self._reader.is_left_behind(lsn):
            raise PositionUnknown(f"{self.directory}: {_ANOTHER_WAY}")
        if following is None and not self._is_there(lsn):
            raise PositionGone(f"{self.directory}: the log at LSN {lsn} {_GONE}")
        return following

    # ---- rows

    def rows(self, changes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The bytes of changes' rows, each with what was before behind it, and where each begins."""
        sizes = changes["size"].astype(np.int64) + np.abs(changes["before_size"])
        offsets = np.concatenate(([0], np.cumsum(sizes)))
        target = np.empty(max(int(offsets[-1]), 1), np.uint8)
        done = 0
        while done < len(changes):
            lsn = int(changes["at"][done])
            ahead = changes["at"][done:] + sizes[done:]
            near = (ahead >= lsn) & (ahead <= lsn + CHUNK)
            count = len(near) if near.all() else int(np.argmin(near))
            length = int(ahead[: max(count, 1)].max()) - lsn
            data = np.frombuffer(self.read(lsn, length), np.uint8)
            arguments = (data.ctypes.data, lsn, len(data), changes.ctypes.data, done, len(changes) - done)
            copied = copy_rows(*arguments, target.ctypes.data, offsets.ctypes.data)
            if not copied:
                raise PositionGone(f"{self.directory}: the log at LSN {lsn} {_GONE}")
            done += copied
        return target, offsets[:-1]


class LogScan:
    """Goes through the log from a position on, and gives out what was committed."""

    def __init__(self, log: ChangeLog, position: LogPosition) -> None:
        log.require(position)
        self._log = log
        self._position = position
        self._lsn = position.needs
        self._open: dict[int, list[np.ndarray]] = {}  # by transaction, changes that are not committed yet
        self._changes = np.empty(_ROOM, LOG_CHANGE)
        self._commits = np.empty(_COMMITS, LOG_COMMIT)
        self._is_right_log = not position.lsn
        self._data = b""
        self._retried_at = -1  # where there was no group, though the log goes on behind

    @property
    def position(self) -> LogPosition:
        """Behind the last commit that was given out."""
        return self._position

    @property
    def lsn(self) -> int:
        """How far the log was read."""
        return self._lsn

    def steps(self, until: int | None = None) -> Iterator[Committed]:
        """The changes committed by now, step by step; may be called again for those committed since.

        ``until``: an SCN, behind which nothing is wanted; it is not called again then.
        """
        is_over = False
        while not is_over and (until is None or self._position.scn < until):
            check()
            changes, commits, is_over = self._scan()
            committed = self._assemble(changes, commits)
            is_over = is_over and not self._goes_on_elsewhere()
            if committed.position != self._position:
                self._position = committed.position
                yield committed if until is None else committed.part(committed.scn <= until)
        if not self._is_right_log:
            raise self._unknown()

    def commits(self) -> Iterator[np.ndarray]:
        """All commits that there are by now, whatever they changed, step by step."""
        is_over = False
        while not is_over:
            _, commits, is_over = self._scan()
            is_over = is_over and not self._goes_on_elsewhere()
            if len(commits):
                yield commits

    def _scan(self) -> tuple[np.ndarray, np.ndarray, bool]:
        """Changes and commits in some more bytes of the log, and whether they were the last."""
        more = self._log.read(self._lsn + len(self._data), CHUNK)
        data = self._data + more
        scan, buffer = np.zeros(1, LOG_SCAN), np.frombuffer(data, np.uint8)
        scan["buffer"], scan["length"], scan["lsn"] = buffer.ctypes.data, len(data), self._lsn
        scan["changes"], scan["change_room"] = self._changes.ctypes.data, len(self._changes)
        scan["commits"], scan["commit_room"] = self._commits.ctypes.data, len(self._commits)
        status = scan_log(scan.ctypes.data) if len(data) else MORE
        if status == DAMAGED:
            raise self._log.damaged(int(scan["lsn"][0]))
        start, self._lsn = self._lsn, int(scan["lsn"][0])
        self._data = data[self._lsn - start :]
        changes = self._changes[: int(scan["change_count"][0])]
        commits = self._commits[: int(scan["commit_count"][0])]
        if len(commits):
            self._log.sync(self._lsn)
        return changes, commits, not (status == FULL or (status == MORE and more))

    def _goes_on_elsewhere(self) -> bool:
        """The log seems to end here: go on where it goes on after a crash or a pause, if it does."""
        self._data = b""  # it may be a group that is being written: it is read again
        following = self._log.after_end(self._lsn)
        if following is None:
            if not self._log.goes_on_behind(self._lsn):
                return False
            if self._retried_at == self._lsn:  # it was read again since
                raise self._log.damaged(self._lsn)
            self._retried_at = self._lsn
            return True
        self._lsn, self._open = following, {}  # no transaction survives that
        return True

    # ---- what was committed

    def _assemble(self, changes: np.ndarray, commits: np.ndarray) -> Committed:
        """Give out the changes of transactions that committed, and hold the others."""
        is_new = commits["scn"] > self._position.scn
        self._check(commits, is_new)
        taken_back = changes["operation"] == 0
        pending = self._take_up(
            changes, [*commits["transaction"].tolist(), *changes["transaction"][taken_back].tolist()]
        )
        if taken_back.any():
            pending = _without_taken_back(pending)
        at = _find(commits["transaction"], pending["transaction"])
        self._hold(pending[at < 0])
        chosen = np.flatnonzero(at >= 0)
        chosen = chosen[is_new[at[chosen]]]
        scn = commits["scn"][at[chosen]]
        chosen = chosen[np.argsort(scn, kind="stable")]  # within a transaction they are in order already
        done, of_commit = pending[chosen], commits[at[chosen]]
        position = self._position
        if is_new.any():
            last = commits[np.argmax(commits["scn"])]
            needs = min([int(last["lsn"]), *(int(held[0]["group"][0]) for held in self._open.values())])
            position = LogPosition(int(last["scn"]), int(last["lsn"]), needs, self._position.whole)
        return Committed(done, of_commit, _sequence_numbers(of_commit["scn"], done["operation"]), position)

    def _take_up(self, changes: np.ndarray, transactions: list[int]) -> np.ndarray:
        """Changes, behind those that were held of some transactions."""
        held = [piece for number in dict.fromkeys(transactions) for piece in self._open.pop(number, [])]
        return np.concatenate([*held, changes])

    def _hold(self, changes: np.ndarray) -> None:
        """Hold changes of transactions that are open, each in order."""
        numbers = changes["transaction"]
        for number in np.unique(numbers).tolist():
            self._open.setdefault(number, []).append(changes[numbers == number])

    def _check(self, commits: np.ndarray, is_new: np.ndarray) -> None:
        """Check that the log is the one that the position is of, and has all of the commits that are given out."""
        if not self._is_right_log and len(commits):
            before = commits[~is_new]
            scn, lsn = self._position.scn, self._position.lsn
            self._is_right_log = bool(np.any((before["scn"] == scn) & (before["lsn"] == lsn)))
            if not self._is_right_log and is_new.any():
                raise self._unknown()
        began = commits["began"][is_new]
        if np.any((began > 0) & (began < self._position.whole)):
            raise PositionGone(f"{self._log.directory}: the beginning of a transaction's log {_GONE}")

    def _unknown(self) -> PositionUnknown:
        text = self._position.to_text(self._log.database_id)
        return PositionUnknown(f"{self._log.directory}: position {text} is not in its log; {_ANOTHER_WAY}")


def _find(known: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """For each of the wanted numbers, which of the known ones it is; -1 if it is not among them."""
    if not len(known):
        return np.full(len(wanted), -1)
    order = np.argsort(known)
    at = order[np.minimum(np.searchsorted(known, wanted, sorter=order), len(known) - 1)]
    return np.where(known[at] == wanted, at, -1)


def _sequence_numbers(scn: np.ndarray, operations: np.ndarray) -> np.ndarray:
    """The numbers of changes within their transactions, which are neighbours.

    An update has two, whether or not a reader makes a deletion and an insertion of it.
    """
    widths = 1 + (operations == ChangeOperation.UPDATE)
    numbers = np.cumsum(widths) - widths
    starts = np.flatnonzero(np.concatenate(([True], np.diff(scn) != 0))) if len(scn) else np.empty(0, np.int64)
    lengths = np.diff(np.concatenate((starts, [len(scn)])))
    return numbers - np.repeat(numbers[starts], lengths)


def _without_taken_back(changes: np.ndarray) -> np.ndarray:
    """Changes but for those that their transactions took back, newest first; nor what says so."""
    keep = np.ones(len(changes), bool)
    taken_back = np.flatnonzero(changes["operation"] == 0)
    keep[taken_back] = False
    stacks: dict[int, list[int]] = {int(number): [] for number in np.unique(changes["transaction"][taken_back])}
    concerned = np.flatnonzero(np.isin(changes["transaction"], list(stacks)))
    for n in concerned.tolist():
        change = changes[n]
        stack = stacks[int(change["transaction"])]
        if change["operation"]:
            stack.append(n)
            continue
        while stack and _is_undone_by(changes[stack[-1]], change):
            keep[stack.pop()] = False
    return changes[keep]


def _is_undone_by(change: np.void, taken_back: np.void) -> bool:
    """Whether a change is of an undo record that was taken back."""
    if change["undo"] != NO_PLACE:
        return bool(change["undo"] == taken_back["undo"])
    first = int(taken_back["place"])
    return first != NO_PAGE and first <= page_of(int(change["place"])) < first + int(taken_back["size"])
