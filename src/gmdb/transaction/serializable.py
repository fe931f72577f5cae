"""Serializable transactions: who has read what another one has written since, and who must give way for it.

They read by one snapshot each, as under repeatable read.  What that lets through is found by *conflicts*: T1 -> T2 if
T1 has read what T2 has changed beside it, so that T1 comes before T2 in any order that explains both.  Where the order
of commits cannot be such an order there is a T1 -> T2 -> T3 (T1 may be T3) of which T3 committed first; one of the
three is refused before the last of them has committed.  docs/decisions/0047-serializable.md has the reasons.

Invariants
 1. A read is noted before its rows leave the reader, a change before its transaction commits, so that whoever comes
    second finds the other.
 2. A transaction that has ended stays known for as long as one is open that began before it ended.
 3. Of what has ended a bounded number is known one by one; the oldest are taken together for one, which has all their
    marks and conflicts: it may be found in conflict where none of them was, never the other way round.
 4. A transaction is either refused before its commit is logged or never.

Not here: what a row's keys are (tables/access/tracked_rows.py).  The caller of what has an underscore holds the guard.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from threading import RLock

from gmdb.errors import SerializationFailure
from gmdb.transaction.lock_area import TransactionMemory
from gmdb.transaction.marks import Key, Keys, Positions, Reads, Span, Writes, row_meets, span_meets

ENDED_MAX = 256  # transactions that have ended and are known one by one
_IN_NO_ORDER = (
    "this transaction and others beside it have read and changed rows in a way that no order of them explains; "
    "roll back and start over"
)
_KEY_WAS_FREED = (
    "another transaction has given up the same key of a unique index since this one's snapshot; "
    "roll back and start over"
)


class Tracked:
    """A serializable transaction, from its snapshot until nobody who ran beside it is open any more."""

    def __init__(self, all_: SerializableTransactions, snapshot: int, begun: int, is_read_only: bool) -> None:
        self._all = all_
        self.snapshot = snapshot  # SCN
        self.begun = begun  # both count beginnings and ends; 0: it has not ended
        self.ended = 0
        self.scn = 0  # of its commit; 0: none yet, or it has changed nothing
        self.first_commit = self.last_commit = math.inf  # SCN; of several transactions in one, the first and the last
        self.is_read_only = is_read_only  # it will not change anything, or has not
        self.is_several = False  # transactions that have ended, taken together
        self.doomed = ""  # why it cannot commit
        self.reads: dict[int, Reads] = {}  # by the table's number
        self.writes: dict[int, Writes] = {}
        self.ins: set[Tracked] = set()  # who has read what it changed
        self.outs: set[Tracked] = set()  # who has changed what it read
        self.earliest_out = math.inf  # the first commit of those that it had among its ``outs``, and nobody knows now
        self.seen: set[int] = set()  # tables that were looked at, as long as it is open

    @property
    def is_committed(self) -> bool:
        return self.ended > 0

    # ---- what it reads and writes

    def read_row(self, number: int, place: int) -> None:
        """The row at a place; one that is not there may come about there."""
        self._read(number, lambda reads: reads.add_row(place), lambda writes: row_meets(place, writes))

    def read_span(self, number: int, span: Span) -> None:
        self._read(number, lambda reads: reads.add_span(span), lambda writes: span_meets(span, writes))

    def read_all(self, number: int) -> None:
        """The whole table."""
        self._read(number, Reads.add_all, lambda writes: writes.whole or bool(writes.rows))

    def _read(self, number: int, note: Callable[[Reads], None], meets: Callable[[Writes], bool]) -> None:
        with self._all.guard:
            if self.ended:
                return  # whatever may still be read was noted when it ended
            self._all._require(self)
            note(self.reads.setdefault(number, Reads()))
            for other in self._all._beside(self):
                writes = other.writes.get(number)
                if writes is not None and meets(writes):
                    self._all._note_conflict(self, other, self)

    def write_row(
        self,
        number: int,
        place: int,
        keys: Keys,
        freed: Iterable[tuple[Positions, Key]] = (),
        taken: Iterable[tuple[Positions, Key]] = (),
    ) -> None:
        """Note a change of a row; ``keys``: of its versions; ``freed``, ``taken``: unique keys that come and go."""
        taken = list(taken)
        with self._all.guard:
            self._all._require(self)
            self.writes.setdefault(number, Writes()).add(place, keys, freed)
            for other in list(self._all._beside(self)):
                reads, writes = other.reads.get(number), other.writes.get(number)
                if taken and writes is not None and other.is_committed and writes.has_freed(taken):
                    self.fail(_KEY_WAS_FREED)
                if reads is not None and reads.meet_change(place, keys):
                    self._all._note_conflict(other, self, self)

    def write_all(self, number: int) -> None:
        """Note a change of many rows, or of the definition, of a table."""
        with self._all.guard:
            self._all._require(self)
            self.writes.setdefault(number, Writes()).add_all()
            for other in list(self._all._beside(self)):
                reads = other.reads.get(number)
                if reads is not None and not reads.is_empty:
                    self._all._note_conflict(other, self, self)

    def fail(self, why: str = _IN_NO_ORDER) -> None:
        """Refuse to go on: nothing of the transaction can be committed any more."""
        self.doomed = why
        raise SerializationFailure(why)


class SerializableTransactions:
    """Those of one database that are open, or have ended and still matter."""

    def __init__(self, guard: RLock, memory: TransactionMemory) -> None:
        self.guard = guard
        self._memory = memory
        self._clock = 0
        self._open: dict[Tracked, None] = {}
        self._ended: deque[Tracked] = deque()  # in the order of their ends

    @property
    def known(self) -> int:
        """How many are open, or have ended and still matter."""
        return len(self._open) + len(self._ended)

    # ---- beginnings and ends

    def _begin(self, snapshot: int, is_read_only: bool) -> Tracked:
        self._clock += 1
        tracked = Tracked(self, snapshot, self._clock, is_read_only)
        self._open[tracked] = None
        return tracked

    def _require(self, one: Tracked) -> None:
        if one.doomed:
            one.fail(one.doomed)

    def _before_commit(self, one: Tracked) -> None:
        """Refuse a commit, or have a transaction refuse its own that would come between two others.

        It is the first of T1 -> T2 -> T3 that commits if neither T1 nor T2 has.
        """
        self._require(one)
        for pivot in one.ins:
            if pivot.is_committed or pivot.doomed:
                continue
            for first in pivot.ins:
                if first is one or not (first.is_committed or first.is_read_only or first.doomed):
                    pivot.doomed = _IN_NO_ORDER
                    break

    def _commit(self, one: Tracked, scn: int) -> None:
        """It has committed, at ``scn`` if it has changed anything."""
        if not scn:
            one.writes.clear()
        self._clock += 1
        one.ended, one.scn = self._clock, scn
        one.first_commit = one.last_commit = scn or self._memory.get("next_scn") - 1
        one.is_read_only = not one.writes
        one.seen.clear()
        del self._open[one]
        self._ended.append(one)
        self._forget_old()

    def _roll_back(self, one: Tracked) -> None:
        self._clock += 1
        one.ended = self._clock  # what is still read by it counts for nobody
        self._open.pop(one, None)
        self._detach(one)
        self._forget_old()

    def _forget_old(self) -> None:
        """Forget what ended before all that are open began; take the oldest together if there are many."""
        begun = min((one.begun for one in self._open), default=self._clock + 1)
        snapshot = min((one.snapshot for one in self._open), default=self._memory.scn)
        while self._ended and self._ended[0].ended < begun and self._ended[0].scn <= snapshot:
            self._detach(self._ended.popleft())
        while len(self._ended) > ENDED_MAX:
            oldest = self._ended.popleft()
            self._merge(oldest, self._ended[0])

    def _detach(self, one: Tracked) -> None:
        for reader in one.ins:
            reader.outs.discard(one)
            reader.earliest_out = min(reader.earliest_out, one.first_commit)
        for writer in one.outs:
            writer.ins.discard(one)
        one.ins, one.outs = set(), set()

    def _merge(self, one: Tracked, into: Tracked) -> None:
        """Take two that have committed for one."""
        into.is_several = True
        for reader in one.ins - {into}:
            reader.outs.discard(one)
            reader.outs.add(into)
        for writer in one.outs - {into}:
            writer.ins.discard(one)
            writer.ins.add(into)
        if into in one.outs:
            into.earliest_out = min(into.earliest_out, into.first_commit)
        if one in into.outs:
            into.earliest_out = min(into.earliest_out, one.first_commit)
        into.ins = (into.ins | one.ins) - {one, into}
        into.outs = (into.outs | one.outs) - {one, into}
        into.earliest_out = min(into.earliest_out, one.earliest_out)
        into.snapshot, into.scn = max(into.snapshot, one.snapshot), max(into.scn, one.scn)
        into.first_commit = min(into.first_commit, one.first_commit)
        into.last_commit = max(into.last_commit, one.last_commit)
        into.is_read_only = into.is_read_only and one.is_read_only
        for number, reads in one.reads.items():
            into.reads.setdefault(number, Reads()).merge(reads)
        for number, writes in one.writes.items():
            if number in into.writes:
                into.writes[number].merge(writes)
            else:
                into.writes[number] = writes
        one.ins, one.outs = set(), set()

    # ---- conflicts

    def _beside(self, one: Tracked) -> Iterator[Tracked]:
        """Those that one which is open runs, or ran, beside; not those that will never commit."""
        for other in self._open:
            if other is not one and not other.doomed:
                yield other
        for other in reversed(self._ended):
            if other.scn > one.snapshot or other.ended > one.begun:
                yield other

    def _note_conflict(self, reader: Tracked, writer: Tracked, own: Tracked) -> None:
        """``reader`` -> ``writer``, of which one is ``own``: the transaction that has found out."""
        if writer in reader.outs and not (reader.is_several or writer.is_several):
            return  # what made it harmless then does so now; of several it may have been another one's
        reader.outs.add(writer)
        writer.ins.add(reader)
        if not (_has_pivot_in(reader, writer) or _is_pivot_before(reader, writer)):
            return
        if own is writer or writer.is_committed:
            own.fail()
        writer.doomed = _IN_NO_ORDER


def _has_pivot_in(reader: Tracked, writer: Tracked) -> bool:
    """reader -> writer -> T3, of which T3 committed first."""
    commits = [writer.earliest_out, *(last.first_commit for last in writer.outs if last.is_committed)]
    return any(_precedes(commit, reader) and commit <= writer.last_commit for commit in commits)


def _is_pivot_before(reader: Tracked, writer: Tracked) -> bool:
    """T1 -> reader -> writer, of which the writer committed first."""
    if not writer.is_committed or reader.is_read_only:
        return False
    return any(not first.doomed and _precedes(writer.first_commit, first) for first in reader.ins)


def _precedes(commit: float, first: Tracked) -> bool:
    """Whether a commit could stand after T1 in an order that explains all, though it came before T1's.

    What only reads, and began before that commit, takes its place before it.
    """
    if commit == math.inf or commit > first.last_commit:
        return False
    return not first.is_read_only or commit <= first.snapshot
