"""Garbage collection: what no snapshot needs any more is taken away.

Transactions enter the history when they end, in commit order.  Those that every snapshot sees are purged: their
locks come off the rows, their undo records go, and rows that are deleted for everyone are removed from their pages.

Invariants
 1. The guard is held for a batch of records or one page at a time, not longer.
"""

from __future__ import annotations

import threading
from array import array
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from gmdb.errors import StorageError
from gmdb.format.address import UNDO_DEVICE
from gmdb.kernel.ending import forget_transaction
from gmdb.kernel.gc import purge_records, tidy_page

if TYPE_CHECKING:
    from gmdb.transaction.hub import Transactions

BATCH = 64
TIDY_AT_ONCE = 1024


@dataclass
class Ended:
    """A transaction that has ended, and what is left of it."""

    slot: int
    scn: int  # 0: it was rolled back
    undo: array[int]
    tables: dict[int, tuple[int, int]] = field(default_factory=dict)  # obj_id: (entry page, tablespace)
    pages: set[tuple[int, int]] = field(default_factory=set)  # (obj_id, page): has rows to remove


class Collector:
    def __init__(self, hub: Transactions) -> None:
        self._hub = hub
        self.history: deque[Ended] = deque()
        self._running = threading.Lock()

    def add(self, ended: Ended) -> None:
        self.history.append(ended)

    def collect(self) -> int:
        """Purge all that can be; answers how many transactions were done."""
        done = 0
        untidy: dict[tuple[int, int], tuple[int, int]] = {}
        with self._running:
            while True:
                with self._hub.guard:
                    if not self.history or self.history[0].scn > self._hub.snapshots.oldest():
                        break
                    ended = self.history.popleft()
                self._purge(ended)
                done += 1
                untidy.update({key: ended.tables[key[0]] for key in ended.pages if key[0] in ended.tables})
                if len(untidy) > TIDY_AT_ONCE:
                    self._tidy(untidy)
            self._tidy(untidy)
        return done

    def _purge(self, ended: Ended) -> None:
        store = self._hub.store
        places = np.array(ended.undo, np.int64)
        pages = np.zeros(len(places), np.int64)
        done = 0
        while done < len(places):
            count = min(BATCH, len(places) - done)
            with self._hub.guard:
                at, to = places.ctypes.data + 8 * done, pages.ctypes.data + 8 * done
                done += store.call_essential(purge_records, UNDO_DEVICE, at, count, to, 1)
        ended.pages.update((page >> 32, page & 0xFFFF_FFFF) for page in set(pages[pages != 0].tolist()))
        with self._hub.guard:
            if ended.scn:
                store.call_essential(forget_transaction, UNDO_DEVICE, ended.slot)
            self._hub.memory.forget_load(ended.slot)
            self._hub.memory.free(ended.slot)

    def _tidy(self, untidy: dict[tuple[int, int], tuple[int, int]]) -> None:
        """Remove dead rows from pages, (obj_id, page) by (entry page, tablespace): each page once for many deletes."""
        while untidy:
            (obj_id, page_id), (entry_page, space_id) = untidy.popitem()
            removed = 1
            while removed > 0:
                with self._hub.guard:
                    removed = self._hub.store.call_essential(tidy_page, space_id, obj_id, entry_page, page_id)


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
            if self._collector.history:
                try:
                    self._collector.collect()
                except StorageError:
                    return  # the disk failed: whoever changes something is told so
