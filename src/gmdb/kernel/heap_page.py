"""Rows on one heap page: slots, bytes, compaction.

Invariants
 1. A row's slot number never changes while the row lives; where its bytes lie does.
 2. Rows never overlap, and the bytes from ``free_begin`` to ``free_end`` are free.
"""

from __future__ import annotations

import numpy as np

from gmdb.format.address import NO_PAGE, NO_SLOT
from gmdb.format.heap import HEAP_NODE, NODE_AT, ROWS_AT
from gmdb.format.page import TAIL_SIZE
from gmdb.format.row import MIN_OCCUPIED, NO_LOCK, SIZE_AT, RowFlag
from gmdb.format.segment import EMPTY_LIST
from gmdb.format.slotted import LAST_FREED, SLOT_FREED
from gmdb.kernel.area import change, page_head
from gmdb.kernel.compiler import routine
from gmdb.kernel.free_lists import list_for_room
from gmdb.kernel.memory import load_u8, load_u16, load_u32, move_bytes, records, store_8, store_16, store_32
from gmdb.kernel.redo import log_bytes, log_counts, log_page
from gmdb.kernel.status import DONE, NO_ROOM, NOT_FOUND

heap_node = records(HEAP_NODE)
_NODE_SIZE = HEAP_NODE.size
FLAG_DELETE, FLAG_ENTRY, FLAG_LINK, FLAG_COMPACTING = (int(flag) for flag in RowFlag)
FLAGS_AT = 3
_SLOTS_AT, _SLOTS_SIZE = NODE_AT + HEAP_NODE.offset("slot_count"), 4


@routine
def slot_address(page, page_size, slot):
    return page + page_size - TAIL_SIZE - 2 * (slot + 1)


@routine
def occupied(size):
    return max(size, MIN_OCCUPIED)


@routine
def _log_slot(area, page, page_size, slot):
    """Log a slot, and the counts of slots."""
    log_bytes(area, page, slot_address(page, page_size, slot) - page, 2)
    log_bytes(area, page, _SLOTS_AT, _SLOTS_SIZE)


@routine
def init_heap_page(area, page):
    """Turn a freshly formatted page into a heap page without rows."""
    node = heap_node(page + NODE_AT)
    node.next = NO_PAGE
    node.free_slot = NO_SLOT
    page_head(page).free_begin = NODE_AT + _NODE_SIZE
    log_bytes(area, page, NODE_AT, _NODE_SIZE)
    log_counts(area, page)


@routine
def insert_room(page, page_size, pct_free):
    """Bytes, slot included, that inserts may still put on the page; pct_free does not bind the first row."""
    head = page_head(page)
    free = head.free_end - head.free_begin
    if heap_node(page + NODE_AT).slot_count == 0:
        return free
    return free - (page_size - ROWS_AT - TAIL_SIZE) * pct_free // 100


@routine
def list_of(page, page_size, pct_free):
    if heap_node(page + NODE_AT).slot_count == 0:
        return EMPTY_LIST
    return list_for_room(insert_room(page, page_size, pct_free), page_size)


@routine
def _take_slot(page, page_size):
    """A slot for a new row: one that was freed, or one more."""
    node = heap_node(page + NODE_AT)
    slot = node.free_slot
    if slot != NO_SLOT:
        following = load_u16(slot_address(page, page_size, slot)) & LAST_FREED
        node.free_slot = NO_SLOT if following == LAST_FREED else following
        return slot
    slot = node.slot_count
    node.slot_count = slot + 1
    page_head(page).free_end -= 2
    return slot


@routine
def free_slot(area, page, page_size, slot):
    change(area, page)
    node = heap_node(page + NODE_AT)
    following = LAST_FREED if node.free_slot == NO_SLOT else node.free_slot
    store_16(slot_address(page, page_size, slot), SLOT_FREED | following)
    node.free_slot = slot
    _log_slot(area, page, page_size, slot)


@routine
def put_row(area, page, page_size, row, size):
    """Append a row to a page that has room for it and a slot; answers the slot."""
    change(area, page)
    head = page_head(page)
    at = head.free_begin
    slot = _take_slot(page, page_size)
    move_bytes(page + at, row, size)
    head.free_begin = at + occupied(size)
    store_16(slot_address(page, page_size, slot), at)
    log_bytes(area, page, at, size)
    log_counts(area, page)
    _log_slot(area, page, page_size, slot)
    return slot


@routine
def log_appended(area, page, page_size, free_begin, slot_count):
    """Count and log all rows that were written behind ``free_begin``, into the slots from ``slot_count`` on."""
    change(area, page)
    head = page_head(page)
    directory = page_size - TAIL_SIZE - 2 * slot_count
    log_bytes(area, page, free_begin, head.free_begin - free_begin)
    log_bytes(area, page, head.free_end, directory - head.free_end)
    log_counts(area, page)
    log_bytes(area, page, _SLOTS_AT, _SLOTS_SIZE)


@routine
def row_in_slot(page, page_size, slot):
    """The address of the row in a slot; NOT_FOUND if the slot does not exist or was freed."""
    if slot < 0 or slot >= heap_node(page + NODE_AT).slot_count:
        return NOT_FOUND
    offset = load_u16(slot_address(page, page_size, slot))
    return NOT_FOUND if offset & SLOT_FREED else page + offset


@routine
def flags_of(row):
    return load_u8(row + FLAGS_AT)


@routine
def compact_rows(page, page_size):
    """Slide the rows together, in the order in which they lie; what is left between them becomes free.

    Whoever calls logs the page.
    """
    head = page_head(page)
    slot_count = heap_node(page + NODE_AT).slot_count
    order = np.empty(slot_count, np.int64)
    count = 0
    for slot in range(slot_count):
        offset = load_u16(slot_address(page, page_size, slot))
        if not offset & SLOT_FREED:
            order[count] = offset << 16 | slot
            count += 1
    order[:count].sort()
    to = ROWS_AT
    for i in range(count):
        offset, slot = order[i] >> 16, order[i] & 0xFFFF
        row = page + offset
        size = occupied(load_u16(row + SIZE_AT))
        if offset != to:
            flags = flags_of(row)
            store_8(row + FLAGS_AT, flags | FLAG_COMPACTING)  # a dump taken now shows which row is on its way
            move_bytes(page + to, row, size)
            store_16(slot_address(page, page_size, slot), to)
            store_8(page + to + FLAGS_AT, flags)
        to += size
    head.free_begin = to


@routine
def _free_after_compaction(page, page_size):
    """How many bytes would be free if the page were compacted."""
    used = 0
    for slot in range(heap_node(page + NODE_AT).slot_count):
        row = row_in_slot(page, page_size, slot)
        if row != NOT_FOUND:
            used += occupied(load_u16(row + SIZE_AT))
    return page_head(page).free_end - ROWS_AT - used


@routine
def rewrite_row(area, page, page_size, slot, row, size):
    """Give the row in a slot new bytes: in its place, elsewhere on the page, or NO_ROOM."""
    head = page_head(page)
    old = row_in_slot(page, page_size, slot)
    if occupied(size) <= occupied(load_u16(old + SIZE_AT)):
        change(area, page)
        move_bytes(old, row, size)
        log_bytes(area, page, old - page, size)
        return DONE
    compacted = occupied(size) > head.free_end - head.free_begin
    if compacted:
        if occupied(size) > _free_after_compaction(page, page_size) + occupied(load_u16(old + SIZE_AT)):
            return NO_ROOM
        store_16(slot_address(page, page_size, slot), SLOT_FREED)  # compaction passes over it
        compact_rows(page, page_size)
    change(area, page)
    at = head.free_begin
    store_16(slot_address(page, page_size, slot), at)
    head.free_begin = at + occupied(size)
    move_bytes(page + at, row, size)
    if compacted:
        log_page(area, page)
    else:
        log_bytes(area, page, at, size)
        log_counts(area, page)
        _log_slot(area, page, page_size, slot)
    return DONE


@routine
def lock_of(row):
    """The lock id in the row's lock word."""
    return load_u32(row) & NO_LOCK


@routine
def set_lock(area, page, row, lock_id):
    """Put a lock id into the row's lock word; the flags stay."""
    change(area, page)
    store_32(row, (load_u32(row) & ~NO_LOCK) | lock_id)
    log_bytes(area, page, row - page, 4)


@routine
def set_deleted(area, page, row, deleted):
    """Set or clear the row's DELETE flag, and count it."""
    flags = flags_of(row)
    if bool(flags & FLAG_DELETE) == deleted:
        return
    change(area, page)
    store_8(row + FLAGS_AT, flags ^ FLAG_DELETE)
    page_head(page).del_count += 1 if deleted else -1
    log_bytes(area, page, row - page, 4)
    log_counts(area, page)
