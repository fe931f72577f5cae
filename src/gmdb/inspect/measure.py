"""How full pages are: out of the starts of many pages at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gmdb.format import btree, heap, lob, undo
from gmdb.format.layout import Layout
from gmdb.format.page import HEAD_SIZE, PAGE_HEAD, TAIL_SIZE, PageType, SegmentType
from gmdb.format.row import MIN_OCCUPIED, NO_LOCK, ROW_HEAD, SIZE_AT, RowFlag
from gmdb.format.slotted import SLOT_FREED, slot_room

_NODES: dict[int, tuple[Layout, int]] = {  # of each kind of segment, its pages' node head and where entries begin
    SegmentType.SYSTEM: (heap.HEAP_NODE, heap.ROWS_AT),
    SegmentType.HEAP: (heap.HEAP_NODE, heap.ROWS_AT),
    SegmentType.UNDO: (undo.UNDO_HEAD, undo.RECORDS_AT),
    SegmentType.BTREE: (btree.BTREE_NODE, btree.ENTRIES_AT),
    SegmentType.HASH: (btree.BTREE_NODE, btree.ENTRIES_AT),
    SegmentType.LOB: (lob.LOB_NODE, lob.DATA_AT),
}
START = HEAD_SIZE + max(node.size for node, _ in _NODES.values())  # bytes of a page that tell how full it is
NONE = -1  # of a number: the page has no such thing
ROWS = ("live_rows", "dead_rows", "left_rows", "came_rows", "locked_rows")
_ROW_SEGMENTS = (SegmentType.SYSTEM, SegmentType.HEAP)


@dataclass(frozen=True)
class Division:
    """Pages by their starts: heads, and numbers of each, NONE where a page has no such thing."""

    heads: np.ndarray
    room: np.ndarray  # bytes for entries and their slots
    free: np.ndarray
    slots: np.ndarray

    @property
    def has_rows(self) -> np.ndarray:
        """Which of them are pages of rows."""
        return (self.free >= 0) & np.isin(self.heads["seg_type"], _ROW_SEGMENTS)


def divide(starts: np.ndarray, sizes: np.ndarray) -> Division:
    """``starts``: the first START bytes of each page; ``sizes``: the pages' sizes."""
    heads = np.ascontiguousarray(starts[:, :HEAD_SIZE]).view(PAGE_HEAD.dtype)[:, 0]
    begins, slots = np.full(len(starts), NONE, np.int64), np.full(len(starts), NONE, np.int64)
    is_data = heads["page_type"] == PageType.DATA
    for seg_type, (node, begin) in _NODES.items():
        chosen = is_data & (heads["seg_type"] == seg_type)
        begins[chosen] = begin
        if "slot_count" in (node.dtype.names or ()):
            at = HEAD_SIZE + node.offset("slot_count")
            slots[chosen] = np.ascontiguousarray(starts[chosen, at : at + 2]).view("<u2")[:, 0]
    free_begin, free_end = heads["free_begin"].astype(np.int64), heads["free_end"].astype(np.int64)
    is_divided = (begins >= 0) & (begins <= free_begin) & (free_begin <= free_end) & (free_end <= sizes - TAIL_SIZE)
    room = np.where(is_divided, sizes - TAIL_SIZE - begins, NONE)
    return Division(heads, room, np.where(is_divided, free_end - free_begin, NONE), slots)


def count_rows(page: bytes) -> tuple[int, ...]:
    """Of a page of rows: live, deleted, gone elsewhere, come from elsewhere, locked; then bytes that are not dead."""
    count = min(heap.HEAP_NODE.at(page, heap.NODE_AT).slot_count, slot_room(page, heap.ROWS_AT))
    end = len(page) - TAIL_SIZE
    places = np.frombuffer(page, "<u2", count, end - 2 * count).astype(np.int64)
    in_use = (places & SLOT_FREED == 0) & (places >= heap.ROWS_AT) & (places <= end - ROW_HEAD.size)
    places = places[in_use]
    raw = np.frombuffer(page, np.uint8).astype(np.int64)
    flags = raw[places + 3]
    locks = raw[places] | raw[places + 1] << 8 | raw[places + 2] << 16
    sizes = raw[places + SIZE_AT] | raw[places + SIZE_AT + 1] << 8
    dead, came = flags & RowFlag.DELETE != 0, flags & RowFlag.LINK != 0
    at_home, left = ~came, flags & RowFlag.ENTRY != 0
    kept = int(np.maximum(sizes, MIN_OCCUPIED)[~dead].sum())
    counts = (at_home & ~dead, at_home & dead, at_home & left, came, at_home & (locks != NO_LOCK))
    return (*(int(one.sum()) for one in counts), kept)
