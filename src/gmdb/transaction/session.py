"""A session: one transaction at a time, statement by statement.

Invariants
 1. A statement that fails leaves no trace: its changes are rolled back.
 2. Under read committed each statement has its own snapshot, under the other levels each transaction.
 3. A session is used by one thread at a time.
 4. A cursor keeps its instant, also when the transaction commits; if changes that it has seen are rolled back, its
    next step raises CursorInvalid.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Protocol, cast

from gmdb.errors import (
    CursorInvalid,
    InterfaceError,
    NoSuchSavepoint,
    SerializationFailure,
    StorageError,
    WriteConflict,
)
from gmdb.format.address import UNDO_DEVICE, RowId
from gmdb.format.page import SegmentType
from gmdb.kernel.change.bulk import open_last_page
from gmdb.kernel.change.gc import changed_page, is_row_lock
from gmdb.kernel.change.rollback import take_back
from gmdb.kernel.runtime.call import (
    ALONE,
    BLOCKED,
    BLOCKER,
    CALL,
    COMMIT,
    FEED_FROM,
    INSERT_LOCK,
    IS_UNORDERED,
    LATEST,
    LOB_ROOTS,
    LOB_ROOTS_MAX,
    PLAIN,
    RECORD_COUNT,
    RECORD_LIMIT,
    RECORDS,
    RECORDS_A_CALL,
    SCN,
    SIZE,
    STATEMENT,
    TRANSACTION,
    UNDO_PAGE,
    UNDO_RUNS,
)
from gmdb.kernel.runtime.status import LOCKED
from gmdb.kernel.undo import end_rollback, log_table_change, mark_dropped
from gmdb.storage.memory import address_of, numbers, zeros
from gmdb.storage.store import Segment, Tablespace
from gmdb.transaction.gc import Ended
from gmdb.transaction.hub import Transactions
from gmdb.transaction.interrupts import Interruptible
from gmdb.transaction.modes import HasModes
from gmdb.transaction.own_names import HasOwnNames
from gmdb.transaction.serializable import Tracked
from gmdb.transaction.snapshots import OWN, SERIALIZABLE, Snapshot, require_level
from gmdb.transaction.table_locks import ChangedDefinitions, Changes, HoldsTables
from gmdb.transaction.waits import change_with_retries, must_queue

# ---- Savepoints: named places in a transaction to which it can return.


class HasSavepoints:
    """The part of a session that knows the savepoints of its transaction."""

    def _forget_savepoints(self) -> None:
        self._savepoints: list[tuple[str, int]] = []  # name, undo records at the time

    def savepoint(self, name: str) -> None:
        session = cast("Session", self)
        session.require_open()
        self._savepoints.append((name, session.mark()))

    def rollback_to(self, name: str) -> None:
        """Roll back all changes since the savepoint, which stays set."""
        at = self._find_savepoint(name)
        cast("Session", self).take_back_to(self._savepoints[at][1])
        del self._savepoints[at + 1 :]

    def release_savepoint(self, name: str) -> None:
        del self._savepoints[self._find_savepoint(name) :]

    def _find_savepoint(self, name: str) -> int:
        cast("Session", self).require_open()
        for at in reversed(range(len(self._savepoints))):
            if self._savepoints[at][0] == name:
                return at
        raise NoSuchSavepoint(f"no savepoint {name} is set in this transaction")


# ---- What a transaction has done that is yet to be checked.


class Unchecked(Protocol):
    """Checks of the layers above, which come at the end of statements or of the transaction."""

    @property
    def is_told(self) -> bool:
        """Whether the program has said when to check in this transaction."""

    @property
    def is_waiting(self) -> bool:
        """Whether something is put off until the commit."""

    def settle(self) -> None:
        """Check and do what is due at the end of a statement, as part of it."""

    def settle_all(self) -> None:
        """Check what was put off: the transaction is about to commit."""

    def take_back_to(self, mark: int) -> None:
        """Forget what concerns changes that are taken back."""


# ---- A session.

RECORDS_FIRST, RECORDS_KEPT = 1 << 12, 1 << 16  # places in a new list of undo records; in one that is used again


class Session(HoldsTables, HasSavepoints, HasModes, HasOwnNames, Interruptible):
    def __init__(self, hub: Transactions, isolation: str, autocommit: bool, lock_timeout: float) -> None:
        require_level(isolation)
        self.hub = hub
        self.isolation = isolation
        self.is_serializable = False  # whether what transactions read and write is noted: there is need if they change
        self.autocommit = autocommit
        self.lock_timeout = lock_timeout
        self.closed = False
        self.call = zeros(len(CALL.names), "q")
        self.call_address = address_of(self.call)
        self._lob_roots = zeros(LOB_ROOTS_MAX, "q")
        self.call[LOB_ROOTS] = address_of(self._lob_roots)
        self._use_records(zeros(RECORDS_FIRST, "q"))
        self._cursors: set[Snapshot] = set()  # that are being read by
        self.pages_wanted = 0  # how many pages a change asks for that found too few
        self.last_values: dict[int, int] = {}  # of sequences, by their tables' numbers
        self.last_sequence = 0
        self.checks: Any = None  # what ``unchecked`` is in a transaction that needs it
        self._do_nothing_yet()
        self.depth = 0  # statements of several steps that are running, one within the other
        self._resumes_autocommit = False  # when a transaction ends that was begun explicitly
        self._defining = False  # definitions are read as they are now, whatever the isolation
        self.call[ALONE] = 1
        self._note_isolation()
        self._reset()
        with hub.guard:
            hub.sessions.add(self)

    def _reads_latest(self) -> bool:
        """Whether each statement has a snapshot of its own."""
        if self._defining:
            return True
        return self.isolation == "read committed" or (self.autocommit and not self.is_serializable)

    def _note_isolation(self) -> None:
        self.is_serializable = self.isolation == SERIALIZABLE and not self.hub.store.read_only
        self.call[LATEST] = int(self._reads_latest())

    @property
    def notes_changes(self) -> bool:
        """Whether changes of single rows are noted; a change of a definition is as a whole."""
        return self.is_serializable and not self._defining

    def _reset(self) -> None:
        if self._resumes_autocommit:
            self.autocommit, self._resumes_autocommit = True, False
            self.call[LATEST] = int(self._reads_latest())
        self.slot = -1
        self._logged_at = 0  # where the log must be on disk for the commit to count that is under way
        self.plain = False
        self.call[PLAIN] = 0
        self.call[TRANSACTION] = -1
        self.call[STATEMENT] = 0
        self.call[UNDO_PAGE] = -1
        self.call[UNDO_RUNS] = 0
        self.call[FEED_FROM] = 0
        self.call[RECORD_COUNT] = self.call[IS_UNORDERED] = 0
        if len(self._records) > RECORDS_KEPT:
            self._use_records(zeros(RECORDS_FIRST, "q"))
        self._forget_savepoints()
        self._release_tables()
        self.unchecked: Unchecked | None = None
        self.definitions = ChangedDefinitions()
        self._pages_to_tidy: set[tuple[int, int]] = set()
        self._snapshot: Snapshot | None = None
        self.tracked: Tracked | None = None  # what a serializable transaction has read and written
        self._end_modes()

    def set_autocommit(self, on: bool) -> None:
        """Make each statement a transaction of its own, or not; what is open is committed first."""
        self.commit()
        self.autocommit = on
        self.call[LATEST] = int(self._reads_latest())

    def set_isolation(self, isolation: str) -> None:
        """What transactions see of others from now on; refused while one is open, which keeps its own."""
        require_level(isolation)
        self.require_open()
        if self.has_begun_work and isolation != self.isolation:
            raise InterfaceError("the isolation cannot change within a transaction: commit or roll back first")
        self.isolation, self._isolation_after = isolation, None
        self._note_isolation()

    @property
    def is_autocommit(self) -> bool:
        return self.autocommit or self._resumes_autocommit

    @property
    def in_transaction(self) -> bool:
        return self._resumes_autocommit or self.has_begun_work

    @property
    def has_begun_work(self) -> bool:
        """Whether a transaction is open that has read or changed anything."""
        has_read = self.has_read and not self.autocommit  # else the read was a transaction of its own
        return self.slot >= 0 or has_read or self._snapshot is not None or bool(self._locks_taken)

    @property
    def was_begun(self) -> bool:
        """Whether ``begin`` has suspended autocommit."""
        return self._resumes_autocommit

    @property
    def has_what_would_be_missed(self) -> bool:
        """Whether another session in its place would differ: changes, locks, savepoints, an instant to read by, and
        what was said of this transaction alone."""
        has_state = self.slot >= 0 or bool(self._locks_taken) or bool(self._savepoints) or self.has_own_modes
        is_told = self.unchecked is not None and self.unchecked.is_told
        return has_state or self.has_own_names or is_told or (self.in_transaction and not self._reads_latest())

    @property
    def statement_number(self) -> int:
        return self.call[STATEMENT]

    def require_open(self) -> None:
        if self.closed or self.closing:
            raise InterfaceError("the connection is closed")
        self.hub.store.require_open()

    def require_writable(self) -> None:
        """Refuse a change where the database, or the transaction, is for reading only."""
        self.hub.store.require_writable()
        self._require_changing()

    # ---- statements

    def _begin(self) -> None:
        """Give the transaction a slot, before its first change."""
        self.require_writable()
        self.slot = self.call[TRANSACTION] = self.hub.memory.begin()
        self.hub.active[self.slot] = self
        self._note_plain()

    def _note_plain(self) -> None:
        """``plain``: a change is a single kernel call, since the transaction is open and under read committed."""
        latest = bool(self.call[LATEST])
        self.plain = self.slot >= 0 and not self.autocommit and latest and not self.depth and not self.closed
        self.call[PLAIN] = int(self.plain)

    def new_statement(self) -> None:
        """The next statement, on its snapshot.  The guard is held."""
        call = self.call
        call[STATEMENT] += 1
        call[INSERT_LOCK] = -1
        call[SCN] = self.hub.memory.scn if self._reads_latest() else self._transaction_snapshot().scn

    def prepare(self) -> None:
        """Set the snapshot of a single read or change.  The guard is held."""
        if self.closed:
            self.require_open()
        if not self.call[LATEST]:
            self.call[SCN] = self._transaction_snapshot().scn

    def _transaction_snapshot(self) -> Snapshot:
        """The snapshot that a transaction has for its whole life, unless it is one under read committed."""
        if self._snapshot is None:
            self._snapshot = self.hub.snapshots.take()
            if self.is_serializable:
                self.track()
        self._snapshot.check()
        return self._snapshot

    def track(self) -> Tracked:
        """What the serializable transaction has read and written so far.  The guard is held."""
        if self.tracked is None:
            scn = self.hub.memory.scn if self._snapshot is None else self._snapshot.scn
            self.tracked = self.hub.serializable._begin(scn, self.is_read_only)
        return self.tracked

    @property
    def reading_scn(self) -> int:
        """The instant by which a single read goes.  The guard is held."""
        return self.hub.memory.scn if self.call[LATEST] else self._transaction_snapshot().scn

    @property
    def held_scn(self) -> int | None:
        """The SCN of the one snapshot that the transaction reads by; None if it has none."""
        return None if self._snapshot is None else self._transaction_snapshot().scn

    @property
    def definitions_scn(self) -> int | None:
        """The instant by which the transaction knows definitions; None: the newest."""
        return None if self.call[LATEST] else self.held_scn

    def finish_read(self) -> None:
        """Under autocommit a read is over when it is done."""
        if self.autocommit and not self.depth and not self.closed:
            if self.tracked is not None and self.tracked.doomed:
                self.rollback()
            else:
                self.commit()

    def finish_read_if_idle(self) -> None:
        """``finish_read`` of a read that ended in any thread, unless another thread's operation is running.

        It never waits: the other thread may wait for this read.
        """
        if self.busy.acquire(False):
            try:
                self.finish_read()
            finally:
                self.busy.release()

    def finish_failed(self) -> None:
        """Under autocommit, roll back what a failed operation left open."""
        if self.autocommit and not self.depth and not self.closed and self.in_transaction and self.hub.store.devices:
            self.rollback()

    @contextmanager
    def cursor(self, scn: int | None = None, statement: int | None = None) -> Iterator[tuple[Snapshot, memoryview]]:
        """A snapshot that is held while it is read by, and its form for kernels.

        ``scn``: that of another snapshot, which is held, too.  ``statement``: the last one of the transaction whose
        changes are seen; all, if it is not said.
        """
        self.require_open()
        self.check_interrupted()
        with self.hub.guard:
            if scn is None:
                scn = self.hub.memory.scn if self._reads_latest() else self._transaction_snapshot().scn
            snapshot = self.hub.snapshots.take(scn, self.mark())
            own = self.slot if self.mark() else -1
            last = self.call[STATEMENT] if statement is None else statement
            form = snapshot.form = numbers((scn, own, last))
            self._cursors.add(snapshot)
            self._reads.add(snapshot)
        try:
            yield snapshot, form
        finally:
            with self.hub.guard:
                snapshot.release()
                self._reads.discard(snapshot)
                self._cursors.discard(snapshot)

    @contextmanager
    def statement(self) -> Iterator[Snapshot]:
        """A statement of several steps, on one snapshot that is kept for it; all of it happens or nothing."""
        try:
            with self._steps() as snapshot:
                yield snapshot
                if self.unchecked is not None and self.depth == 1:
                    self.unchecked.settle()
        except BaseException:
            if self.autocommit and not self.depth:
                self.rollback()
            raise
        if self.autocommit and not self.depth:
            self._commit_or_roll_back()

    @contextmanager
    def _steps(self) -> Iterator[Snapshot]:
        """``statement``, which ends no transaction."""
        self.require_open()
        with self.hub.guard:
            self.new_statement()
            snapshot = self._snapshot or self.hub.snapshots.take()
            mark = self.mark()
        self.begin_work()
        self.depth += 1
        self.call[ALONE] = 0
        self._note_plain()
        try:
            yield snapshot
        except BaseException:
            self._end_statement(snapshot)
            self.take_back_to(mark)
            raise
        self._end_statement(snapshot)

    def _end_statement(self, snapshot: Snapshot) -> None:
        self.depth -= 1
        self.end_work()
        self.call[ALONE] = int(self.depth == 0)
        self._note_plain()
        if snapshot is not self._snapshot:
            with self.hub.guard:
                snapshot.release()

    @contextmanager
    def defining(self) -> Iterator[None]:
        """A statement that changes definitions: it uses the newest ones, whatever the transaction's snapshot."""
        with self._newest_definitions(), self.statement():
            yield

    @contextmanager
    def _newest_definitions(self) -> Iterator[None]:
        before, self._defining = self._defining, True
        self.call[LATEST] = 1
        try:
            yield
        finally:
            self._defining = before
            self.call[LATEST] = int(self._reads_latest())
            self._note_plain()

    def see_newest(self) -> None:
        """After a wait: let the statement see what was committed meanwhile."""
        with self.hub.guard:
            self.call[SCN] = self.hub.memory.scn

    def change_definitions(self, changes: Changes) -> None:
        """Use other definitions from now on, as all do once the transaction commits; their undo records are written."""
        self.definitions.change(changes, self.mark())
        self._forget_definitions(changes)

    # ---- changes of rows

    def change(
        self, kernel: Any, space_id: int, key: RowId | None, arguments: tuple[int, ...], nowait: bool = False
    ) -> int:
        """Run a kernel that changes a row; wait, make room and retry as its status requires.  Returns its result.

        Within ``statement`` the caller handles a CHANGED row; else the change is retried on a new snapshot.
        """
        hub = self.hub
        if self.interrupted:
            self.check_interrupted()
        alone = self.depth == 0
        if hub.store.scans:
            hub.store.give_way()
        if self.slot < 0:
            hub.store.throttle()
        result = hub.store.under_guard(self.busy, self._try_change, kernel, key, arguments)
        try:
            if result < 0:
                result = change_with_retries(self, kernel, space_id, key, arguments, nowait, result)
        except BaseException:
            if alone and self.autocommit:
                self.rollback()
            raise
        if alone and self.autocommit:
            self.commit() if result >= 0 else self.rollback()
        return result

    def _try_change(self, kernel: Any, key: RowId | None, arguments: tuple[int, ...]) -> int:
        self.require_open()
        if self.slot < 0:
            self._begin()
        self.prepare()
        self.reserve_records()
        if self.hub.waits.queues and must_queue(self, key, arguments):
            self.call[BLOCKER] = self.call[BLOCKED] = -1
            return LOCKED
        return kernel(self.hub.store.area, *arguments)

    def start_over(self, snapshot: Snapshot) -> None:
        """Let a statement see what was committed meanwhile; not under repeatable read."""
        with self.hub.guard:
            if snapshot is self._snapshot:
                raise WriteConflict("a row was changed by another transaction since this one's snapshot")
            snapshot.scn = self.call[SCN] = self.hub.memory.scn

    def form_of(self, snapshot: Snapshot) -> memoryview:
        """The statement's snapshot as kernels read it, without the changes of the statement itself."""
        return numbers((snapshot.scn, self.slot, self.call[STATEMENT] - 1))

    def mark(self) -> int:
        """How far the transaction has come, for ``take_back_to``."""
        return self.call[RECORD_COUNT]

    @property
    def refused_size(self) -> int:
        """Bytes of the row that was refused as too large."""
        return self.call[SIZE]

    def _use_records(self, records: memoryview) -> None:
        """Have kernels list the transaction's undo records here."""
        self.call[RECORDS] = address_of(records)
        self.call[RECORD_LIMIT] = len(records) - RECORDS_A_CALL
        self._records = records

    def reserve_records(self) -> None:
        """Make sure that the list of undo records has room for those of one more call.  The guard is held."""
        count = self.call[RECORD_COUNT]
        if count > self.call[RECORD_LIMIT]:
            longer = zeros(2 * len(self._records), "q")
            longer[:count] = self._records[:count]
            self._use_records(longer)

    def create_segment(self, space: Tablespace, obj_id: int, name: str, kind: SegmentType, pct_free: int) -> Segment:
        """Make a segment that goes if the transaction is rolled back."""
        with self.hub.guard:
            self.begin_if_needed()
            self.reserve_records()
            return Segment.create(self.hub.store, space, obj_id, name, kind, pct_free, self.call_address)

    def drop_segment(self, obj_id: int, segment: Segment) -> None:
        """Have a segment's pages given back once the transaction has committed and no snapshot needs them."""
        with self.hub.guard:
            self.begin_if_needed()
            self.reserve_records()
            self.hub.store.call(mark_dropped, UNDO_DEVICE, self.call_address, obj_id, segment.entry_page)

    def log_table_change(self, feed: int, operation: int) -> None:
        """Log a change of a table with a change feed, as part of the newest change of the transaction."""
        self.hub.store.call_guarded(log_table_change, UNDO_DEVICE, self.call_address, feed, operation)

    def begin_if_needed(self) -> int:
        """The transaction's slot; it starts now if it had not.  The guard is held."""
        if self.slot < 0:
            self._begin()
        return self.slot

    # ---- the end of transactions

    def begin(self) -> None:
        """Start a transaction.  (One starts by itself with the first statement.)"""
        self.require_open()
        if self.is_serializable and self.autocommit and self.slot < 0:
            self.finish_read()  # of rows that are still to come
        if self.in_transaction:
            raise InterfaceError("a transaction is open already; commit or roll back first")
        if self.autocommit:  # not until this one ends
            self.autocommit, self._resumes_autocommit = False, True
            self.call[LATEST] = int(self._reads_latest())

    def commit(self) -> None:
        """Commit.  Returns once the commit is on disk; from then on others see it."""
        self.require_open()
        if self.unchecked is not None and self.unchecked.is_waiting and not self._logged_at:
            with self._steps():
                self.unchecked.settle_all()
        if self.at_commit is not None and not self._logged_at and self.slot >= 0:
            with self._newest_definitions(), self._steps():  # a last statement of the transaction
                self.at_commit(self)
        if self.is_serializable:
            self._settle_reads()
        if self.slot >= 0:
            try:
                self._log_commit()
            except SerializationFailure:
                self.rollback()
                raise
            except BaseException:
                if self._logged_at:  # another thread will have it on disk: it cannot be rolled back any more
                    self.hub.has_abandoned_commits = True
                    self._finish_commit()
                raise
        self._finish_commit()

    def _commit_or_roll_back(self) -> None:
        """Commit a statement that is a transaction of its own; one that is refused leaves nothing open."""
        try:
            self.commit()
        except BaseException:
            if self.in_transaction and self.hub.store.devices and not self.closed:
                self.rollback()
            raise

    def _finish_commit(self) -> None:
        """The commit is on disk, or will be.  A second time does nothing."""
        with self.hub.guard:
            self._cursors.clear()  # what they have seen cannot be rolled back any more
            if self.tracked is not None and not self.tracked.is_committed:
                self.hub.serializable._commit(self.tracked, 0)
            if self.slot >= 0 and self.call[COMMIT] == 0:  # it changed nothing
                self.hub.memory.mark_rolled_back(self.slot)
            self._end(self.call[COMMIT])

    def _log_commit(self) -> None:
        """Have the commit on disk.  Not under the guard: the thread that writes the log needs it."""
        with self.hub.guard:
            if self.tracked is not None:
                self.hub.serializable._before_commit(self.tracked)  # from here on it cannot be refused any more
            for _, entry_page, last_page, space_id in self._loads:
                self.hub.store.call_essential(open_last_page, space_id, entry_page, last_page)
            lsn = self.hub.log_commit(self.slot, self.call_address, self.call, self.definitions.now)
            if self.tracked is not None:
                self.hub.serializable._commit(self.tracked, self.call[COMMIT] if lsn else 0)
            self._logged_at = lsn
        if lsn and self.hub.redo is not None:
            self.hub.redo.make_durable(lsn)

    def _settle_reads(self) -> None:
        """Before the commit of a serializable transaction: note what is not known yet of what it reads and writes."""
        try:
            with self.hub.guard:
                for number in self.definitions.now:
                    self.track().write_all(number)
                if self.tracked is not None:
                    self.hub.serializable._require(self.tracked)
                    for number in self.tracked.seen if self._cursors else ():
                        self.tracked.read_all(number)  # of what is half read nobody knows where it will go on
        except SerializationFailure:
            self.rollback()
            raise

    def rollback(self) -> None:
        self.require_open()
        if self._logged_at:
            raise InterfaceError("the transaction is being committed; it cannot be rolled back any more")
        if self.hub.store.failure is None:
            self.take_back_to(0)
        with self.hub.guard:
            for cursor in self._cursors:  # those that saw locks at most; the slot may be another transaction's soon
                cursor.form[OWN] = -1
            self._cursors.clear()
            if self.slot >= 0 and self.hub.store.failure is None:
                self.hub.store.call_essential(end_rollback, UNDO_DEVICE, self.call_address)
                self.hub.memory.mark_rolled_back(self.slot)
            self._end(0)

    def _end(self, scn: int) -> None:
        hub = self.hub
        if self.slot >= 0 and hub.store.failure is None:  # else its changes stay as they are, invisible to all
            del hub.active[self.slot]
            records = numbers(self._records[: self.mark()])
            ended = Ended(self.slot, scn, records, self._segments_used, self._pages_to_tidy)
            ended.is_unordered = bool(self.call[IS_UNORDERED])
            hub.collector.add(ended)
            hub.notify_ended()
        if self._snapshot is not None:
            self._snapshot.release()
        if self.tracked is not None and not self.tracked.is_committed:
            hub.serializable._roll_back(self.tracked)
        released = self.slot >= 0 or bool(self._locks_taken)
        hub.tables.release(self, self._locks_taken)
        self._reset()
        if released:
            hub.waits.wake()

    def take_back_to(self, mark: int) -> None:
        """Undo all changes after the first ``mark``, newest first."""
        store = self.hub.store
        if self.mark() == mark:
            return
        while self.mark() > mark:
            with self.hub.guard:
                place = int(self._records[self.mark() - 1])
                self._cancel_cursors(place)
                page_id = self._tidy_later(place)
                arguments = (place, 1, self.hub.memory.number(self.slot))
                while store.call_essential(take_back, self._space_of(page_id), *arguments):
                    pass  # a segment goes a part at a time
                self.call[RECORD_COUNT] -= 1
        self._loads = [load for load in self._loads if load[0] <= mark]
        if self.unchecked is not None:
            self.unchecked.take_back_to(mark)
        self._forget_definitions(self.definitions.take_back_to(mark))
        self.hub.waits.wake()

    def _cancel_cursors(self, place: int) -> None:
        """Cancel reads that have seen the newest change, which is about to be rolled back."""
        for cursor in list(self._cursors):
            if cursor.undo_mark < self.mark():
                continue
            if is_row_lock(self.hub.store.area, place):
                cursor.undo_mark = self.mark() - 1
            else:
                cursor.cancel(CursorInvalid("changes that this read had seen were rolled back; read again"))

    def _tidy_later(self, place: int) -> int:
        page_id = self.hub.store.call(changed_page, UNDO_DEVICE, place)
        self._pages_to_tidy.add((self.hub.object_of(page_id), page_id))
        return page_id

    def _space_of(self, page_id: int) -> int:
        return self.hub.store.space_of(page_id).space_id

    def close(self) -> None:
        """Roll back what is open and end the session.  What another thread is committing here is committed first."""
        if not self.closed and self.hub.store.devices:
            lsn = self._logged_at
            if lsn and self.hub.redo is not None:
                with suppress(StorageError):  # the thread that commits gets the error
                    self.hub.redo.make_durable(lsn)
                self._finish_commit()
            self.rollback()
        self.forget_tables_seen()
        self.unchecked = self.checks = None
        self.closed = True
        self.call[PLAIN] = 0
