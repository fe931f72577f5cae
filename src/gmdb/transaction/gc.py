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

from gmdb.format.address import UNDO_DEVICE
from gmdb.kernel.gc import purge_records, tidy_page
from gmdb.kernel.rollback import release_u_lock

if TYPE_CHECKING:
    from gmdb.transaction.hub import Transactions

BATCH = 64


@dataclass
class Ended:
    """A transaction that has ended, and what is left of it."""

    slot: int
    scn: int  # 0: it was rolled back
    undo: array[int]
    u_locks: list[int]
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
        with self._running:
            while True:
                with self._hub.guard:
                    if not self.history or self.history[0].scn > self._hub.snapshots.oldest():
                        return done
                    ended = self.history.popleft()
                self._purge(ended)
                done += 1

    def _purge(self, ended: Ended) -> None:
        store = self._hub.store
        places = np.frombuffer(ended.undo, np.int64) if ended.undo else np.empty(0, np.int64)
        for start in range(0, len(places), BATCH):
            batch = np.ascontiguousarray(places[start : start + BATCH])
            pages = np.empty(len(batch), np.int64)
            with self._hub.guard:
                store.call(purge_records, UNDO_DEVICE, batch.ctypes.data, len(batch), pages.ctypes.data)
            ended.pages.update((page >> 32, page & 0xFFFF_FFFF) for page in set(pages[pages != 0].tolist()))
        with self._hub.guard:
            for lock_id in ended.u_locks:
                store.call(release_u_lock, UNDO_DEVICE, lock_id, ended.slot)
            self._hub.memory.forget_load(ended.slot)
            self._hub.memory.free(ended.slot)
        self._tidy(ended)

    def _tidy(self, ended: Ended) -> None:
        for obj_id, page_id in ended.pages:
            table = ended.tables.get(obj_id)
            if table is not None:
                with self._hub.guard:
                    self._hub.store.call(tidy_page, table[1], obj_id, table[0], page_id)


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
                self._collector.collect()
