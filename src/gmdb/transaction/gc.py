"""Garbage collection: what no snapshot needs any more is removed.

Transactions enter the history when they end, in commit order.  Those that every snapshot sees are purged: their
locks come off the rows, their undo records go, and rows that are deleted for everyone are removed from their pages.

Invariants
 1. The guard is held for a batch of records or one page at a time, not longer.
 2. A transaction leaves the history when nothing is left of it: if the disk is full, it stays for the next time.
 3. A transaction's index entries are purged before its rows: then a row's lock may be another transaction's.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

from gmdb.errors import DiskFull, StorageError
from gmdb.format.address import UNDO_DEVICE
from gmdb.kernel.change.gc import purge_records, put_index_records_first, tidy_page
from gmdb.kernel.undo import forget_transaction
from gmdb.process.finalizers import close_abandoned
from gmdb.process.late_dataclasses import dataclass, field
from gmdb.storage.memory import address_of, numbers, zeros

if TYPE_CHECKING:
    from gmdb.transaction.hub import Transactions

BATCH = 64
TIDY_AT_ONCE = 1024


@dataclass
class Ended:
    """A transaction that has ended, and what is left of it."""

    slot: int
    scn: int  # 0: it was rolled back
    undo: memoryview  # places of its undo records, oldest first
    tables: dict[int, tuple[int, int]] = field(default_factory=dict)  # obj_id: (entry page, tablespace)
    pages: set[tuple[int, int]] = field(default_factory=set)  # (obj_id, page): has rows to remove
    done: int = 0  # records that are purged: if the disk is full in the middle, it goes on there
    is_unordered: bool = False  # records of index entries are among those of rows


class Collector:
    def __init__(self, hub: Transactions) -> None:
        self._hub = hub
        self.history: deque[Ended] = deque()
        self._running = threading.Lock()

    def add(self, ended: Ended) -> None:
        self.history.append(ended)

    def finish_commits(self) -> None:
        self._hub.finish_commits()

    def collect(self) -> int:
        """Purge all that can be purged; returns of how many transactions."""
        done = 0
        untidy: dict[tuple[int, int], tuple[int, int]] = {}
        with self._running:
            while ended := self._next():
                tables = {obj_id: table for one in ended for obj_id, table in one.tables.items()}
                untidy.update({key: tables[key[0]] for key in self._purge(ended) if key[0] in tables})
                done += len(ended)
                if len(untidy) > TIDY_AT_ONCE:
                    self._tidy(untidy)
            self._tidy(untidy)
        return done

    def _next(self) -> list[Ended]:
        """The next transactions that everyone sees: several, since most are small.  They stay in the history."""
        ended: list[Ended] = []
        records = 0
        with self._hub.guard:
            oldest = self._hub.snapshots.oldest() if self.history else 0
            for one in self.history:
                if one.scn > oldest or records >= BATCH or len(ended) == BATCH:
                    break
                if one.is_unordered:
                    self._order(one)
                ended.append(one)
                records += len(one.undo) - one.done
        return ended

    def _order(self, one: Ended) -> None:
        buffer = zeros(len(one.undo), "q")
        self._hub.store.call(put_index_records_first, 0, address_of(one.undo), len(buffer), address_of(buffer))
        one.is_unordered = False

    def _purge(self, ended: list[Ended]) -> set[tuple[int, int]]:
        """Remove all that is left of some transactions; returns the pages, with their tables, to be tidied."""
        places = numbers(place for one in ended for place in one.undo[one.done :])
        pages = zeros(len(places), "q")
        done = 0
        while done < len(places):
            count = min(BATCH, len(places) - done)
            with self._hub.guard:
                at, to = address_of(places) + 8 * done, address_of(pages) + 8 * done
                purged = self._hub.store.call_surely(purge_records, UNDO_DEVICE, at, count, to, 1)
            _note_purged(ended, pages[done : done + purged].tolist())
            done += purged
        with self._hub.guard:
            for one in ended:
                if one.scn:
                    self._hub.store.call_surely(forget_transaction, UNDO_DEVICE, one.slot)
                self._hub.memory.forget_load(one.slot)
                self.history.popleft()
                self._hub.memory.free(one.slot)
        return set().union(*(one.pages for one in ended))

    def _tidy(self, untidy: dict[tuple[int, int], tuple[int, int]]) -> None:
        """Remove dead rows from pages, (obj_id, page) by (entry page, tablespace): each page once for many deletes."""
        while untidy:
            (obj_id, page_id), (entry_page, space_id) = untidy.popitem()
            removed = 1
            while removed > 0:
                with self._hub.guard:
                    removed = self._hub.store.call_surely(tidy_page, space_id, obj_id, entry_page, page_id)


def _note_purged(ended: list[Ended], pages: list[int]) -> None:
    """The next ``len(pages)`` records of some transactions are gone; a page that is not 0 has rows to remove."""
    for one in ended:
        mine, pages = pages[: len(one.undo) - one.done], pages[len(one.undo) - one.done :]
        one.done += len(mine)
        one.pages.update((page >> 32, page & 0xFFFF_FFFF) for page in set(mine) - {0})


class BackgroundCollector:
    """A thread that collects whenever enough has ended."""

    def __init__(self, collector: Collector, threshold: int = 256, interval: float = 0.2) -> None:
        self._collector = collector
        self.threshold = threshold
        self._interval = interval
        self._wake = threading.Event()
        self._stop = False
        self._thread = threading.Thread(target=self._run, name="gmdb-gc", daemon=True)
        self._thread.start()

    def notify(self) -> None:
        if len(self._collector.history) >= self.threshold:
            self._wake.set()

    def stop(self) -> None:
        self._stop = True
        self._wake.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop:
            self._wake.wait(self._interval)
            self._wake.clear()
            if self._stop:
                return
            try:
                close_abandoned()
                self._collector.finish_commits()
                if self._collector.history:
                    self._collector.collect()
            except DiskFull:
                continue  # the next time there may be space
            except StorageError:
                return  # the disk failed, or a page is damaged: the next change raises that
