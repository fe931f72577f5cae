"""How full pages are and how many rows they have: heads of many pages at once, rows by a kernel."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gmdb.format import heap
from gmdb.format.page import HEAD_SIZE, PAGE_HEAD
from gmdb.inspect.page_lists import NONE, START, divide
from gmdb.kernel.read.pinned_pages import ROW_COUNTS, count_rows
from gmdb.process.late_dataclasses import dataclass
from gmdb.storage.pinned_pages import FrozenStore

STEP_BYTES = 4 << 20  # pages that are in memory at a time


@dataclass(frozen=True)
class Measured:
    """Pages that were read: their heads, and numbers of each, NONE where a page has no such thing."""

    ids: np.ndarray
    heads: np.ndarray
    page_sizes: np.ndarray
    room: np.ndarray  # bytes for entries and their slots
    free: np.ndarray
    slots: np.ndarray
    rows: np.ndarray  # ROW_COUNTS columns
    dead_bytes: np.ndarray  # of deleted rows, and between rows


def steps(store: FrozenStore, page_ids: np.ndarray) -> Iterator[np.ndarray]:
    """Some pages at a time, so that memory is bounded."""
    smallest = min(device.page_size for device in store.devices.values())
    at_once = STEP_BYTES // smallest
    for first in range(0, len(page_ids), at_once):
        yield page_ids[first : first + at_once]


def heads_of(store: FrozenStore, ids: np.ndarray) -> np.ndarray:
    """The heads of pages that were read, whole or not."""
    return np.ascontiguousarray(store.page_starts(ids, HEAD_SIZE)).view(PAGE_HEAD.dtype)[:, 0]


def measure(store: FrozenStore, ids: np.ndarray, with_rows: bool) -> Measured:
    """Measure pages that were read and are whole."""
    sizes = _page_sizes(store, ids)
    division = divide(store.page_starts(ids, START), sizes)
    rows = np.full((len(ids), ROW_COUNTS), NONE, np.int64)
    dead = np.full(len(ids), NONE, np.int64)
    has_rows = np.flatnonzero(division.has_rows) if with_rows else np.empty(0, np.int64)
    if len(has_rows):
        chosen = np.ascontiguousarray(ids[has_rows], np.uint32)
        counts = np.zeros((len(has_rows), ROW_COUNTS), "<i8")
        store.call(count_rows, 0, chosen.ctypes.data, len(chosen), counts.ctypes.data)
        rows[has_rows] = counts
        dead[has_rows] = division.heads["free_begin"][has_rows].astype(np.int64) - heap.ROWS_AT - counts[:, -1]
    return Measured(ids, division.heads, sizes, division.room, division.free, division.slots, rows, dead)


def _page_sizes(store: FrozenStore, ids: np.ndarray) -> np.ndarray:
    sizes = np.zeros(max(store.devices) + 1, np.int64)
    for number, device in store.devices.items():
        sizes[number] = device.page_size
    return sizes[ids >> 22]
