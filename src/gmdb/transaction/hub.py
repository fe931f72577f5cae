"""All transactions of one open database: what they share.

What guards what: docs/invariants.md.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING

from gmdb.errors import Corruption, LocksExhausted, UndoExhausted
from gmdb.format.address import NO_PAGE, UNDO_DEVICE, device_of, offset_of
from gmdb.format.page import PAGE_HEAD, SegmentType
from gmdb.format.undo import TRANSACTIONS_ID, UNDO_ENTRY, UNDO_ID
from gmdb.kernel.runtime.call import COMMIT, FEED_FROM
from gmdb.kernel.runtime.status import LOCKS_FULL
from gmdb.kernel.undo import commit_transaction, release_dead_page, set_child
from gmdb.process.finalizers import Living
from gmdb.process.hooks import Hook
from gmdb.storage.log.redo_buffer import RedoLog
from gmdb.storage.log.reports import Progress, Recovery
from gmdb.storage.store import PageStore, Segment
from gmdb.transaction.gc import BackgroundCollector, Collector
from gmdb.transaction.lock_area import TransactionMemory
from gmdb.transaction.recovery import recover_transactions
from gmdb.transaction.snapshots import Snapshots
from gmdb.transaction.table_locks import Changes, TableLocks
from gmdb.transaction.waits import LockWaits

if TYPE_CHECKING:
    from gmdb.transaction.session import Session


def create_undo_segment(store: PageStore) -> None:
    """Make a new database's undo segment."""
    segment = Segment.create(store, store.spaces[UNDO_DEVICE], UNDO_ID, "undo", SegmentType.UNDO, pct_free=0)
    if segment.entry_page != UNDO_ENTRY:
        raise Corruption(f"{store.directory} is new by its control file, but has pages", UNDO_ENTRY)


def _table_segment(store: PageStore) -> Segment:
    """The segment of the table of committed transactions; created if it does not exist."""
    space = store.spaces[UNDO_DEVICE]
    undo = Segment(store, space, UNDO_ENTRY)
    if undo.head.child_seg == NO_PAGE and not store.read_only:
        table = Segment.create(store, space, TRANSACTIONS_ID, "transactions", SegmentType.UNDO, pct_free=0)
        store.call(set_child, UNDO_DEVICE, UNDO_ENTRY, table.entry_page)
    return Segment(store, space, undo.head.child_seg)


def _no_definitions(changes: Changes, scn: int, /) -> None:
    """While there is no catalog yet."""


class Transactions:
    def __init__(self, store: PageStore, redo: RedoLog | None) -> None:
        """Wire the parts up.  ``redo`` is None if nothing may be changed."""
        self.store = store
        self.guard = store.guard
        self.redo = redo
        # LSN, slot, SCN of commits that are not on disk yet, from where on the log has their changes, and what
        # definitions they have changed
        self._pending: deque[tuple[int, int, int, int, Changes]] = deque()
        self.has_abandoned_commits = False  # a session was interrupted while it waited for its commit to be on disk
        self.memory = TransactionMemory(store)
        self.memory.set("undo_entry", UNDO_ENTRY)
        self.snapshots = Snapshots(self.memory)
        self.waits = LockWaits(lambda there_are: self.memory.set("has_queues", there_are))
        self.tables = TableLocks()
        self.collector = Collector(self)
        self.active: dict[int, Session] = {}
        self.sessions: Living[Session] = Living()  # all that are in use
        self.publish_definitions = Hook(_no_definitions)
        self._background: BackgroundCollector | None = None
        table = _table_segment(store)
        if table.entry_page != NO_PAGE:
            self.memory.use_table(table.page_ids())
        if redo is not None:
            redo.on_durable.connect(self.publish)

    def recover(self, recovery: Recovery, progress: Progress | None) -> None:
        """Recover transactions after a crash."""
        self.memory.start_at(recovery.scn)
        self.memory.next_number = recovery.next_transaction
        undo = Segment(self.store, self.store.spaces[UNDO_DEVICE], UNDO_ENTRY)
        recover_transactions(self, undo, recovery, progress)

    def start(self) -> None:
        """Collect garbage in the background from now on."""
        if not self.store.read_only:
            self._background = BackgroundCollector(self.collector)

    # ---- commits

    def log_commit(self, slot: int, call_address: int, call: memoryview, definitions: Changes) -> int:
        """Log a commit; returns the LSN that must be on disk for it to count, 0 if nothing was changed."""
        with self.guard:
            self.store.require_healthy()
            now = time.time_ns() // 1000
            lsn = self.store.call_essential(commit_transaction, UNDO_DEVICE, call_address, now)
            if lsn:
                self._pending.append((lsn, slot, call[COMMIT], call[FEED_FROM], definitions))
            return lsn

    def log_from(self) -> int:
        """The LSN from which on the log has all changes for readers of transactions that others do not see yet."""
        with self.guard:
            if self.redo is None:  # the database is read-only
                return int(self.store.control["redo_lsn"])
            active = [session.call[FEED_FROM] for session in self.active.values()]
            begun = [*active, *(began for _, _, _, began, _ in self._pending)]
            return min([*(lsn for lsn in begun if lsn), self.redo.end])

    def publish(self, durable: int) -> None:
        """Let others see the commits that are on disk, in the order of their SCNs, rows and definitions at once."""
        with self.guard:
            while self._pending and self._pending[0][0] <= durable:
                _, slot, scn, _, definitions = self._pending[0]
                if definitions:
                    self.publish_definitions(definitions, scn)
                    for session in self.sessions:
                        session.forget_tables_seen()
                self.memory.publish(slot, scn)
                self._pending.popleft()
        if self.has_abandoned_commits:
            self.has_abandoned_commits = bool(self._pending)
            self.waits.wake()

    def finish_commits(self) -> None:
        """Bring commits to disk for which no session waits any more, so that others see them and get their rows."""
        with self.guard:
            last = self._pending[-1][0] if self.has_abandoned_commits and self._pending else 0
        if last and self.redo is not None:
            self.redo.make_durable(last)

    def object_of(self, page_id: int) -> int:
        """The obj_id of the table that a page belongs to now; 0 if none."""
        device = self.store.devices.get(device_of(page_id))
        if device is None or offset_of(page_id) >= device.page_count:
            return 0
        return int(PAGE_HEAD.at(device.memory(offset_of(page_id))).obj_id)

    def notify_ended(self) -> None:
        if self._background is not None:
            self._background.notify()

    def make_room(self, status: int) -> None:
        """Lock ids or undo space ran out: give up old snapshots before a writer is refused."""
        before = self._used()
        self.collector.collect()
        while self._used() >= before:
            with self.guard:
                cancelled = self.snapshots.cancel_oldest()
            self.collector.collect()
            if not cancelled and self._used() >= before:
                if status == LOCKS_FULL:
                    raise LocksExhausted("every lock id is in use by open transactions; commit or roll back some")
                raise UndoExhausted("the undo space is full of open transactions' records; commit or roll back some")

    def _used(self) -> tuple[int, int]:
        undo = Segment(self.store, self.store.spaces[UNDO_DEVICE], UNDO_ENTRY).head.page_count
        return self.memory.get("locks_used"), undo

    def settle(self) -> None:
        """Remove all undo: all transactions have ended.  Undo pages that were kept for the next ones go, too."""
        self.collector.collect()
        undo = Segment(self.store, self.store.spaces[UNDO_DEVICE], UNDO_ENTRY)
        with self.guard:
            self.memory.set("undo_pool_count", 0)
            for page_id in undo.page_ids().tolist():
                self.store.call_essential(release_dead_page, UNDO_DEVICE, page_id)

    def stop(self) -> None:
        """End the background work."""
        if self._background is not None:
            self._background.stop()
            self._background = None
