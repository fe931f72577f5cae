"""Runs: the entries of some pages' rows for one index, in order.  What is put in order goes into an index faster."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from gmdb.errors import UniqueViolation
from gmdb.format.address import RowId
from gmdb.format.btree import key_values
from gmdb.format.columns import Column
from gmdb.format.row import SIZE_AT
from gmdb.kernel.change.index_fill import MERGE, PIECE, begin_merge, cut_run, merge_leaves
from gmdb.kernel.change.index_sort import (
    DIGIT_BITS,
    PROGRESS,
    RUN,
    RUN_ROOM_MIN,
    arrange_run,
    extract_entries,
    sort_alike,
    sort_by_digit,
)
from gmdb.kernel.read.scan import SCAN, measure_pages
from gmdb.kernel.row import BLOCK_ROWS, ENTRY_BUFFER, POINTER_AT, VALUES_AT
from gmdb.kernel.runtime.status import BUSY, DUPLICATE, KEY_TOO_LONG, NO_ROOM
from gmdb.process.late_imports import numpy as np
from gmdb.storage.pinned_pages import FrozenStore
from gmdb.storage.store import PageStore

_ENTRIES_AT_ONCE = 1 << 20  # copied between two looks at whether to go on


class KeyTooLong(Exception):
    """A row's key is too long for an index."""


class Run:
    """Entries of some pages' rows, in order."""

    def __init__(self, store: PageStore | FrozenStore, pages: np.ndarray, in_file: bool) -> None:
        sizes = np.zeros(2, np.int64)
        store.call(measure_pages, 0, pages.ctypes.data, len(pages), sizes.ctypes.data)
        capacity = int(sizes[0]) + BLOCK_ROWS
        room = max(int(sizes[0]) * VALUES_AT + int(sizes[1]), RUN_ROOM_MIN) + 2 * ENTRY_BUFFER
        self._directory = directory = store.directory if in_file else None
        self._entries = _memory(room, directory)
        self._offsets = _memory(8 * capacity, directory).view(np.int64)
        self._prefixes = _memory(8 * capacity, directory).view(np.int64)
        self.fields = np.zeros(1, RUN)
        self.fields["room"], self.fields["capacity"] = room, capacity
        self._point_to_arrays()

    def sort(self, store: PageStore | FrozenStore, entry_page: int, check: Callable[[], None]) -> None:
        """Put the entries in order; calls ``check`` again and again, which may raise an exception to end that."""
        size = 8 * (self.count + 1)
        other_offsets, other_prefixes = (_memory(size, self._directory).view(np.int64) for _ in range(2))
        for shift in range(0, 64, DIGIT_BITS):
            check()
            if sort_by_digit(self.fields.ctypes.data, shift, other_prefixes.ctypes.data, other_offsets.ctypes.data):
                self._offsets, other_offsets = other_offsets, self._offsets
                self._prefixes, other_prefixes = other_prefixes, self._prefixes
                self._point_to_arrays()
        progress = np.zeros(1, PROGRESS)
        arguments = (self.fields.ctypes.data, progress.ctypes.data, other_offsets.ctypes.data)
        while store.call(sort_alike, 0, entry_page, *arguments):
            check()
        self._prefixes = np.empty(0, np.int64)
        self._arrange(check)

    def _arrange(self, check: Callable[[], None]) -> None:
        arranged, used = _memory(int(self.fields["used"][0]) + 8, self._directory), 0
        for first in range(0, self.count, _ENTRIES_AT_ONCE):
            check()
            count = min(self.count - first, _ENTRIES_AT_ONCE)
            used = arrange_run(self.fields.ctypes.data, first, count, arranged.ctypes.data, used)
        self._entries = arranged
        self._point_to_arrays()

    def _point_to_arrays(self) -> None:
        """Let kernels know where the arrays are."""
        self.fields["entries"] = self._entries.ctypes.data
        self.fields["offsets"], self.fields["prefixes"] = self._offsets.ctypes.data, self._prefixes.ctypes.data

    @property
    def count(self) -> int:
        return int(self.fields["count"][0])

    def between(self, first: int, last: int) -> np.ndarray:
        """The bytes of the entries from number ``first`` to before ``last``."""
        at, end = (int(self._offsets[n] if n < self.count else self.fields["used"][0]) for n in (first, last))
        return self._entries[at:end]

    def cut(self, store: PageStore | FrozenStore, entry_page: int, bounds: Sequence[bytes]) -> list[int]:
        """For each of some entries, how many of the run come before it."""
        memory = np.frombuffer(b"".join(bound.ljust(ENTRY_BUFFER, b"\0") for bound in bounds), np.uint8)
        places = memory.ctypes.data + ENTRY_BUFFER * np.arange(len(bounds), dtype=np.int64)
        cuts = np.zeros(len(bounds), np.int64)
        arguments = (self.fields.ctypes.data, places.ctypes.data, len(bounds), cuts.ctypes.data)
        store.call(cut_run, 0, entry_page, *arguments)
        return cuts.tolist()

    def next_row_id(self) -> RowId:
        """The row of the first entry that was not used yet."""
        at = int(self._offsets[int(self.fields["next"][0])]) + POINTER_AT
        word = int(self._entries[at : at + 8].view(np.int64)[0])
        return RowId.from_word(word)


def _memory(size: int, directory: object | None) -> np.ndarray:
    if directory is None:
        return np.empty(size, np.uint8)
    import tempfile

    with tempfile.TemporaryFile(dir=str(directory)) as file:
        file.truncate(size)
        return np.memmap(file, np.uint8, "r+", shape=(size,))


def sorted_runs(
    store: PageStore | FrozenStore,
    obj_id: int,
    index_page: int,
    pages: np.ndarray,
    first_slot: int,
    form: memoryview,
    check: Callable[[], None],
    in_file: bool = False,
) -> Iterator[Run]:
    """The entries of the rows that a snapshot sees on some pages, from ``first_slot`` of the first on.

    One run, or more if rows that have moved from here to other pages have made it too long.  Between two steps
    ``check`` is called, which may raise an exception to end it.
    """
    pages = np.ascontiguousarray(pages, np.uint32)
    scan = np.zeros(1, SCAN)
    scan["scn"], scan["transaction"], scan["statement"] = form
    scan["obj_id"], scan["ids"], scan["page_count"] = obj_id, pages.ctypes.data, len(pages)
    scan["row_capacity"], scan["next_slot"] = np.iinfo(np.int64).max, first_slot
    while scan["next_page"][0] < len(pages):
        run = Run(store, pages, in_file)
        _extract(store, index_page, scan, run, check)
        run.sort(store, index_page, check)
        yield run


def scan_some(store: PageStore | FrozenStore, kernel: Callable[..., int], scan: np.ndarray, *arguments: int) -> int:
    """Have a kernel read some more pages of a scan; with the guard held if they change too fast.  Returns a status."""
    status = store.call(kernel, 0, scan.ctypes.data, *arguments)
    if status == BUSY:
        with store.guard:
            scan["trusted"] = 1
            status = store.call(kernel, 0, scan.ctypes.data, *arguments)
            scan["trusted"] = 0
    return status


def _extract(
    store: PageStore | FrozenStore, index_page: int, scan: np.ndarray, run: Run, check: Callable[[], None]
) -> None:
    while scan["next_page"][0] < scan["page_count"][0]:
        check()
        store.require_open()
        status = scan_some(store, extract_entries, scan, index_page, run.fields.ctypes.data)
        if status == KEY_TOO_LONG:
            raise KeyTooLong
        if status == NO_ROOM:
            return


# ---- Pieces of sorted runs, merged onto leaf pages of a B-tree that have no place yet: without an open database.


class LeafMerge:
    """Merges pieces, each in order, of one index whose head is among a store's pages."""

    def __init__(self, store: FrozenStore, entry_page: int, pieces: Sequence[np.ndarray]) -> None:
        self._store, self._entry_page = store, entry_page
        self._memory = [piece for piece in pieces if len(piece)]
        self._pieces = np.zeros(len(self._memory), PIECE)
        self._pieces["next"] = [piece.ctypes.data for piece in self._memory]
        self._pieces["end"] = [piece.ctypes.data + len(piece) for piece in self._memory]
        self._heap = np.arange(len(self._memory), dtype=np.int64)
        self._merge = np.zeros(1, MERGE)
        self._merge["pieces"], self._merge["heap"] = self._pieces.ctypes.data, self._heap.ctypes.data
        self._merge["count"] = len(self._memory)
        store.call(begin_merge, 0, entry_page, self._merge.ctypes.data)

    @property
    def entries(self) -> int:
        """How many entries are on pages."""
        return int(self._merge["entries"][0])

    def fill(self, buffer: np.ndarray, page_size: int, where: str, columns: Sequence[Column]) -> int:
        """Put the next entries onto pages in a buffer; returns how many pages that are, 0 at the end.

        ``where`` and ``columns`` are for the error if an index that is unique gets a key twice.
        """
        place = (self._merge.ctypes.data, buffer.ctypes.data, page_size, len(buffer) // page_size)
        count = self._store.call(merge_leaves, 0, self._entry_page, *place)
        if count == DUPLICATE:
            key = ", ".join(str(value)[:100] for value in self._last_key(columns))
            names = ", ".join(column.name for column in columns)
            raise UniqueViolation(f"{where}: two rows have the same key ({names}): {key}")
        return count

    def _last_key(self, columns: Sequence[Column]) -> tuple[Any, ...]:
        at = int(self._merge["previous"][0])
        size = int.from_bytes(ctypes.string_at(at + SIZE_AT, 2), "little")
        return key_values(columns, ctypes.string_at(at, size), 0)
