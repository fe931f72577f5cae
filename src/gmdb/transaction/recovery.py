"""After a crash: the transactions that were under way, as undo pages have them.

Those that did not commit are rolled back; of those that did, what was kept for snapshots is removed.  The lock area is
not rebuilt: no session is open yet, and afterwards no row has a lock.

Invariants
 1. Every step is logged: a crash in the middle leaves fewer records to go through, the next time.
"""

from __future__ import annotations

import time
from collections import defaultdict
from typing import TYPE_CHECKING

from gmdb.errors import Corruption
from gmdb.format.address import UNDO_DEVICE, device_of, offset_of, page_name, page_of, place_of, slot_of
from gmdb.format.page import PAGE_HEAD, PageType, SegmentType, slot_offset
from gmdb.format.transactions import committed
from gmdb.format.undo import NODE_AT, OWNER_AT, UNDO_HEAD, UNDO_OWNER, UNDO_RECORD, UndoOperation, record_extents
from gmdb.kernel.change.gc import purge_records, tidy_page
from gmdb.kernel.change.rollback import take_back
from gmdb.kernel.runtime.status import DONE
from gmdb.kernel.undo import check_page, forget_transaction, release_dead_page
from gmdb.storage.log.reports import Progress, Recovery
from gmdb.storage.memory import address_of, numbers, zeros
from gmdb.storage.store import UNDO_PAGE_SIZE, Segment

if TYPE_CHECKING:
    from gmdb.transaction.hub import Transactions


class _Unfinished:
    """A transaction that undo pages have records of."""

    def __init__(self) -> None:
        self.runs: list[tuple[int, list[int]]] = []  # which run, its live records' places

    def places(self) -> list[int]:
        """Its live records, oldest first."""
        return [place for _, places in sorted(self.runs) for place in places]


def recover_transactions(hub: Transactions, undo: Segment, recovery: Recovery, progress: Progress | None) -> None:
    """Leave no record, no lock and nothing uncommitted."""
    started = time.monotonic()
    work = _Work(hub, undo)
    winners, losers = work.sort_out()
    total = sum(len(transaction.places()) for transaction in losers.values())
    for number, transaction in losers.items():
        recovery.rolled_back += 1
        for place in reversed(transaction.places()):
            work.take_back(place, number)
            recovery.records_undone += 1
            if progress is not None:
                progress("rolling back", recovery.records_undone, total)
    for transaction in winners.values():
        recovery.cleaned_up += 1
        work.clean_up(transaction.places())
    work.finish()
    recovery.seconds += time.monotonic() - started


class _Work:
    def __init__(self, hub: Transactions, undo: Segment) -> None:
        self._hub = hub
        self._store = hub.store
        self._undo = undo
        self._untidy: set[tuple[int, int, int]] = set()  # obj_id, entry page, page

    def _page(self, page_id: int, kind: PageType = PageType.DATA) -> memoryview:
        """A page of undo, or of the table of those that committed."""
        is_sound = self._store.call(check_page, UNDO_DEVICE, page_id) == DONE
        device = self._store.devices.get(device_of(page_id))
        if is_sound and device is not None and device.page_size == UNDO_PAGE_SIZE:
            page = device.memory(offset_of(page_id))
            if PAGE_HEAD.at(page).page_type == kind and PAGE_HEAD.at(page).seg_type == SegmentType.UNDO:
                return page
        raise Corruption(f"page {page_name(page_id)} should be one of undo, and is not", page_id)

    def sort_out(self) -> tuple[dict[int, _Unfinished], dict[int, _Unfinished]]:
        """The transactions that committed, and those that did not, by their numbers."""
        table = self._hub.memory.table_page_ids()
        pages = (self._page(page_id, PageType.TRANSACTIONS) for page_id in table)
        done = {number for page in pages for _, number, _ in committed(page)}
        unfinished: dict[int, _Unfinished] = defaultdict(_Unfinished)
        for page_id in self._undo.page_ids().tolist():
            self._read_page(page_id, unfinished)
        winners = {number: transaction for number, transaction in unfinished.items() if number in done}
        return winners, {number: transaction for number, transaction in unfinished.items() if number not in done}

    def _read_page(self, page_id: int, unfinished: dict[int, _Unfinished]) -> None:
        page = self._page(page_id)
        if UNDO_HEAD.at(page, NODE_AT).slot_count == 0:
            return
        owner = UNDO_OWNER.at(page, OWNER_AT)
        places: list[int] = []
        number, run = owner.number, owner.run
        for offset, _, slot in record_extents(page):
            operation = UNDO_RECORD.at(page, offset).op_type
            if operation == UndoOperation.OWNER:
                _add_run(unfinished, number, run, places)
                owner = UNDO_OWNER.at(page, offset + UNDO_RECORD.size)
                number, run, places = owner.number, owner.run, []
            elif operation != UndoOperation.NONE:
                places.append(place_of(page_id, slot))
                self._note(UNDO_RECORD.at(page, offset))
        _add_run(unfinished, number, run, places)

    def _note(self, record: object) -> None:
        """The record's page may have rows to remove once the record is purged."""
        if record.op_type <= UndoOperation.HEAP_DELETE:  # type: ignore[attr-defined]
            self._untidy.add((record.obj_id, record.seg_entry, record.row_id.page_id))  # type: ignore[attr-defined]

    def take_back(self, place: int, number: int) -> None:
        while self._store.call_surely(take_back, self._space_of(place), place, 0, number):
            pass

    def _space_of(self, place: int) -> int:
        page = self._page(page_of(place))
        at = slot_offset(len(page), slot_of(place))
        record = UNDO_RECORD.at(page, int.from_bytes(page[at : at + 2], "little"))
        return self._space(record.row_id.page_id)

    def _space(self, page_id: int) -> int:
        device = self._store.devices.get(device_of(page_id))
        if device is None:
            raise Corruption(f"an undo record refers to page {page_name(page_id)}, which no device has", page_id)
        return device.space_id

    def clean_up(self, places: list[int]) -> None:
        batch = numbers(places)
        pages = zeros(len(batch), "q")
        done = 0
        while done < len(batch):
            done += self._store.call_surely(
                purge_records,
                UNDO_DEVICE,
                address_of(batch) + 8 * done,
                len(batch) - done,
                address_of(pages) + 8 * done,
                0,
            )

    def finish(self) -> None:
        """Tidy up the pages, free the table's entries and the undo pages."""
        for obj_id, entry_page, page_id in self._untidy:
            while self._store.call_surely(tidy_page, self._space(entry_page), obj_id, entry_page, page_id):
                pass
        for slot in self._hub.memory.table_slots_used():
            self._store.call_surely(forget_transaction, UNDO_DEVICE, slot)
        for page_id in self._undo.page_ids().tolist():
            self._store.call_surely(release_dead_page, UNDO_DEVICE, page_id)


def _add_run(unfinished: dict[int, _Unfinished], number: int, run: int, places: list[int]) -> None:
    if places:
        unfinished[number].runs.append((run, places))
