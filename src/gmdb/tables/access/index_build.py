"""Filling an index from a table that has rows, while others go on changing them.

Entries are taken from the pages as a snapshot sees them, by several threads, each sorting a run of its own; the runs
are merged into a tree from the leaves up.  Then the index is as the table was at the snapshot.  What was committed
since is caught up with (``catch_up``), from the undo records that writers left for it.  Leaves may have been made
elsewhere by the same snapshot, too (``attach``).
Not here: who may use the table or the index meanwhile (tables/catalog/index_creation.py).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from typing import NoReturn

from gmdb.errors import UniqueViolation, ValueTooLong
from gmdb.format.btree import IndexKind
from gmdb.kernel.change.index_calls import add_some
from gmdb.kernel.change.index_fill import FILL, FILL_SCRATCH, attach_leaves, fill_tree, finish_tree
from gmdb.kernel.change.index_sort import RUN
from gmdb.kernel.change.index_upkeep import apply_shadows, check_shadows
from gmdb.kernel.page.soundness import LEVELS_MAX
from gmdb.kernel.runtime.status import DUPLICATE, KEY_TOO_LONG
from gmdb.process.late_imports import numpy as np
from gmdb.tables.access.heap import Heap
from gmdb.tables.access.index_entries import Index
from gmdb.tables.access.indexes import IndexDefinition, key_limit
from gmdb.tables.access.sorted_runs import KeyTooLong, Run, sorted_runs

PART_SIZE = 256 << 20  # bytes of pages that make a run, at most
MEMORY_MAX = 1 << 30  # runs of a larger table lie in a file without a name, beside the database's


class _Growing:
    """A tree on its way up, as kernels see it."""

    def __init__(self, root: int, runs: np.ndarray) -> None:
        self._open_pages, self._scratch = np.full(LEVELS_MAX, -1, np.int64), np.zeros(FILL_SCRATCH, np.uint8)
        self._open_pages[0] = root
        self._runs, self._fill = runs, np.zeros(1, FILL)
        self._fill["runs"], self._fill["run_count"] = runs.ctypes.data, len(runs)
        self._fill["pages"], self._fill["scratch"] = self._open_pages.ctypes.data, self._scratch.ctypes.data
        self.address: int = self._fill.ctypes.data

    @property
    def entries(self) -> int:
        """How many it has so far."""
        return int(self._fill["count"][0])


class Filling:
    """Fills one index of a table."""

    def __init__(self, tree: Index, heap: Heap, index: IndexDefinition) -> None:
        self._tree = tree
        self._heap = heap
        self._index = index
        self._store = heap.segment.store

    def fill(self, form: memoryview) -> None:
        """Enter the rows that a snapshot sees into the index, which is empty."""
        runs = self._collect(form)
        fields = np.concatenate([run.fields for run in runs]) if runs else np.zeros(0, RUN)
        if self._tree.kind == IndexKind.BTREE:
            self._grow_tree(fields)
        else:
            self._add_all(fields)

    # ---- from pages to runs

    def _collect(self, form: memoryview) -> list[Run]:
        from concurrent.futures import CancelledError, ThreadPoolExecutor, as_completed

        pages = np.sort(self._heap.segment.page_ids()).astype(np.uint32)  # rows in the order of their ids
        threads = len(os.sched_getaffinity(0))
        page_size = self._heap.segment.space.page_size
        count = max(threads, -(-len(pages) * page_size // PART_SIZE))
        in_file = len(pages) * page_size > MEMORY_MAX
        parts = [part for part in np.array_split(pages, count) if len(part)]
        ended = threading.Event()

        def check() -> None:
            if ended.is_set():
                raise CancelledError
            self._heap.session.check_interrupted()

        with ThreadPoolExecutor(threads, "gmdb-index") as pool:
            try:
                futures = [pool.submit(self._runs, part, form, check, in_file) for part in parts]
                for future in as_completed(futures):
                    future.result()
            except BaseException:  # of a part, or an interrupt of this thread: the other parts end with it
                ended.set()
                pool.shutdown(wait=True, cancel_futures=True)
                raise
        return [run for future in futures for run in future.result()]

    def _runs(self, pages: np.ndarray, form: memoryview, check: Callable[[], None], in_file: bool) -> list[Run]:
        entry_page = self._tree.segment.entry_page
        try:
            return list(sorted_runs(self._store, self._heap.obj_id, entry_page, pages, 0, form, check, in_file))
        except KeyTooLong:
            self._refuse(KEY_TOO_LONG)

    # ---- from runs to an index

    def _grow_tree(self, runs: np.ndarray) -> None:
        growing = _Growing(self._tree.root, runs)
        while self._call(fill_tree, growing.address):
            pass
        self._call(finish_tree, growing.address)

    def attach(self, leaves: Iterable[tuple[np.ndarray, int]]) -> int:
        """Let the index, which is empty, have leaves that were made elsewhere; returns how many entries they have.

        They come in the order of their entries, checked, in buffers: with each, how many pages are in it.
        """
        growing, page_size = _Growing(self._tree.root, np.zeros(0, RUN)), self._tree.segment.space.page_size
        for buffer, count in leaves:
            self._store.throttle()
            done = 0
            while done < count:
                at = buffer.ctypes.data + done * page_size
                done += self._call(attach_leaves, growing.address, at, count - done)
        self._call(finish_tree, growing.address)
        return growing.entries

    def _add_all(self, runs: np.ndarray) -> None:
        for run in runs:
            done = np.array([run], RUN)
            while self._call(add_some, done.ctypes.data):
                pass

    # ---- what was committed meanwhile

    def catch_up(self, places: np.ndarray) -> None:
        """Do to the index what transactions would have done; ``places`` are their undo records, in order."""
        done = 0
        while done < len(places):
            done += self._call(apply_shadows, places.ctypes.data + 8 * done, min(len(places) - done, 256))
        if self._tree.unique:
            for first in range(0, len(places), 1024):
                self._call(check_shadows, places.ctypes.data + 8 * first, min(len(places) - first, 1024))

    def _call(self, kernel: Callable[..., int], *arguments: int) -> int:
        self._heap.session.check_interrupted()
        segment = self._tree.segment
        status = self._store.call_guarded(kernel, segment.space.space_id, segment.entry_page, *arguments)
        if status in (DUPLICATE, KEY_TOO_LONG):
            self._refuse(status)
        return status

    def _refuse(self, status: int) -> NoReturn:
        where = f"table {self._heap.name}, index {self._index.name}"
        if status == DUPLICATE:
            names = ", ".join(column.name for column in self._tree.columns[: len(self._index.key)])
            raise UniqueViolation(f"{where}: two rows have the same key ({names})")
        apart = "and none of its values may have left its row, as do those that have no room there"
        raise ValueTooLong(f"{where}: there is a row that it does not take: {key_limit(self._index)}, {apart}")
