"""All transactions of one open database: what they share.

What guards what: docs/invariants.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gmdb.errors import LocksExhausted, TransactionsOpen, UndoExhausted
from gmdb.format.address import UNDO_DEVICE, device_of, offset_of, page_id_of
from gmdb.format.page import PAGE_HEAD, SegmentType
from gmdb.kernel.status import LOCKS_FULL
from gmdb.storage.segment import Segment
from gmdb.storage.store import PageStore
from gmdb.transaction.gc import BackgroundCollector, Collector
from gmdb.transaction.memory import TransactionMemory
from gmdb.transaction.snapshots import Snapshots
from gmdb.transaction.tables import TableLocks
from gmdb.transaction.waits import LockWaits

if TYPE_CHECKING:
    from gmdb.transaction.session import Session

UNDO_ENTRY = page_id_of(UNDO_DEVICE, 1)
UNDO_ID = 3


def create_undo_segment(store: PageStore) -> None:
    """Make a new database's undo segment."""
    segment = Segment.create(store, store.spaces[UNDO_DEVICE], UNDO_ID, "undo", SegmentType.UNDO, pct_free=0)
    assert segment.entry_page == UNDO_ENTRY


class Transactions:
    def __init__(self, store: PageStore, background: bool = True) -> None:
        self.store = store
        self.guard = store.guard
        self.memory = TransactionMemory(store)
        self.memory.set("undo_entry", UNDO_ENTRY)
        self.snapshots = Snapshots(self.memory)
        self.waits = LockWaits()
        self.tables = TableLocks()
        self.collector = Collector(self)
        self.active: dict[int, Session] = {}
        self._background = BackgroundCollector(self.collector) if background and not store.read_only else None

    def object_of(self, page_id: int) -> int:
        """The table that a page belongs to at the moment."""
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

    def require_settled(self) -> None:
        """Refuse while somebody needs old versions: pages on disk hold no locks.  The guard is held."""
        if self.active or self.collector.history:
            snapshots = len(self.snapshots.held())
            raise TransactionsOpen(
                f"{len(self.active)} transactions and {snapshots} readers are at work; commit or roll back first"
            )

    def stop(self) -> None:
        """End the background work."""
        if self._background is not None:
            self._background.stop()
            self._background = None
