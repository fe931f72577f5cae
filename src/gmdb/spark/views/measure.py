"""How full pages are and how many rows they have: heads of many pages at once, rows by a kernel."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from gmdb.format import btree, heap, lob, undo
from gmdb.format.layout import Layout
from gmdb.format.page import HEAD_SIZE, PAGE_HEAD, TAIL_SIZE, PageType, SegmentType
from gmdb.kernel.frozen import ROW_COUNTS, count_rows
from gmdb.storage.frozen import FrozenStore

STEP_BYTES = 4 << 20  # pages that are in memory at a time
_ROWS = (SegmentType.SYSTEM, SegmentType.HEAP)
_NODES: dict[int, tuple[Layout, int]] = {  # of each kind of segment, its pages' node head and where entries begin
    SegmentType.SYSTEM: (heap.HEAP_NODE, heap.ROWS_AT),
    SegmentType.HEAP: (heap.HEAP_NODE, heap.ROWS_AT),
    SegmentType.UNDO: (undo.UNDO_HEAD, undo.RECORDS_AT),
    SegmentType.BTREE: (btree.BTREE_NODE, btree.ENTRIES_AT),
    SegmentType.HASH: (btree.BTREE_NODE, btree.ENTRIES_AT),
    SegmentType.LOB: (lob.LOB_NODE, lob.DATA_AT),
}
_START = HEAD_SIZE + max(node.size for node, _ in _NODES.values())
NONE = -1  # of a number: the page has no such thing


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
    """Look at pages that were read and are whole."""
    starts = store.page_starts(ids, _START)
    heads = np.ascontiguousarray(starts[:, :HEAD_SIZE]).view(PAGE_HEAD.dtype)[:, 0]
    sizes = _page_sizes(store, ids)
    begins, slots = np.full(len(ids), NONE, np.int64), np.full(len(ids), NONE, np.int64)
    is_data = heads["page_type"] == PageType.DATA
    for seg_type, (node, begin) in _NODES.items():
        chosen = is_data & (heads["seg_type"] == seg_type)
        begins[chosen] = begin
        if "slot_count" in (node.dtype.names or ()):
            at = HEAD_SIZE + node.offset("slot_count")
            slots[chosen] = np.ascontiguousarray(starts[chosen, at : at + 2]).view("<u2")[:, 0]
    free_begin, free_end = heads["free_begin"].astype(np.int64), heads["free_end"].astype(np.int64)
    is_divided = (begins >= 0) & (begins <= free_begin) & (free_begin <= free_end) & (free_end <= sizes - TAIL_SIZE)
    rows = np.full((len(ids), ROW_COUNTS), NONE, np.int64)
    dead = np.full(len(ids), NONE, np.int64)
    has_rows = np.flatnonzero(is_divided & np.isin(heads["seg_type"], _ROWS)) if with_rows else np.empty(0, np.int64)
    if len(has_rows):
        chosen_ids, counts = (
            np.ascontiguousarray(ids[has_rows], np.uint32),
            np.zeros((len(has_rows), ROW_COUNTS), "<i8"),
        )
        store.call(count_rows, 0, chosen_ids.ctypes.data, len(chosen_ids), counts.ctypes.data)
        rows[has_rows] = counts
        dead[has_rows] = free_begin[has_rows] - heap.ROWS_AT - counts[:, -1]
    return Measured(
        ids,
        heads,
        sizes,
        np.where(is_divided, sizes - TAIL_SIZE - begins, NONE),
        np.where(is_divided, free_end - free_begin, NONE),
        slots,
        rows,
        dead,
    )


def _page_sizes(store: FrozenStore, ids: np.ndarray) -> np.ndarray:
    sizes = np.zeros(max(store.devices) + 1, np.int64)
    for number, device in store.devices.items():
        sizes[number] = device.page_size
    return sizes[ids >> 22]
