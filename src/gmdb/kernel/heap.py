"""Rows of a heap segment: where new ones go, how they move, how they are removed.

Invariants
 1. A row that left its page has an ENTRY row in its home slot, which names the LINK row; never a chain of them.
 2. The caller has begun the change of the row's home page; changes of other pages begin and end here.
Not here: who may change a row (kernel/change/dml.py), who sees it (kernel/read/visibility.py).
"""

from __future__ import annotations

from gmdb.format.address import NO_PAGE, NO_SLOT
from gmdb.format.heap import HEAP_NODE, NODE_AT, ROWS_AT, UNDO_IMAGE_MAX
from gmdb.format.page import PAGE_HEAD, TAIL_SIZE, SegmentType
from gmdb.format.row import BITS_AT, COL_COUNT_AT, MIN_OCCUPIED, NO_LOCK, SIZE_AT, UNLOCKED, RowFlag, SizeCode
from gmdb.format.segment import EMPTY_LIST, SEGMENT_HEAD_AT
from gmdb.format.slotted import LAST_FREED, SLOT_FREED
from gmdb.kernel.locks import load_is_open
from gmdb.kernel.page.allocation import page_in_use
from gmdb.kernel.page.area import (
    begin_change,
    change,
    damaged,
    end_change,
    holds_rows,
    page_head,
    page_size_of,
    segment_head,
    touch,
)
from gmdb.kernel.page.redo import log_bytes, log_counts, log_page
from gmdb.kernel.page.segment import add_page, list_for_room, page_with_room, release_page, relist_page, touch_entry
from gmdb.kernel.places import page_of, place_of, slot_of
from gmdb.kernel.runtime.compiler import numpy as np
from gmdb.kernel.runtime.compiler import routine
from gmdb.kernel.runtime.memory import (
    load_i64,
    load_u8,
    load_u16,
    load_u32,
    move_bytes,
    records,
    store_8,
    store_16,
    store_32,
)
from gmdb.kernel.runtime.status import DONE, NO_ROOM, NOT_FOUND, ROW_TOO_LARGE

# ---- Rows on one heap page: slots, bytes, compaction.
#
# Invariants
#  1. A row's slot number never changes while the row lives; where its bytes lie does.
#  2. Rows never overlap, and the bytes from ``free_begin`` to ``free_end`` are free.

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
    """Append a row to a page that has room for it and a slot; returns the slot."""
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

    The caller logs the page.
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
            store_8(row + FLAGS_AT, flags | FLAG_COMPACTING)  # a dump taken now shows which row is being moved
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


# ---- Rows of a heap segment.

_HEAP, _SYSTEM = int(SegmentType.HEAP), int(SegmentType.SYSTEM)
_ENTRY_SIZE = MIN_OCCUPIED
_ENTRY_BITS = int(SizeCode.EIGHT)
_TARGET_AT = BITS_AT + 4
LOAD_NUMBER_AT = PAGE_HEAD.offset("reserve")
_LINK_WORD = UNLOCKED | FLAG_LINK << 24  # locks are the home row's


@routine
def row_fits(size, page_size):
    return occupied(size) + 2 <= page_size - ROWS_AT - TAIL_SIZE and size <= UNDO_IMAGE_MAX


@routine
def touch_heap(area, page_id):
    """A page that must have rows: anything else there is damage."""
    page = touch(area, page_id)
    if page == NOT_FOUND or (page > 0 and not holds_rows(page_head(page))):
        return damaged(area, page_id)
    return page


@routine
def _page_for(area, entry_id, need):
    """A page of the segment that takes ``need`` bytes more; a new one if there is none."""
    entry_page = touch_entry(area, entry_id)
    if entry_page < 0:
        return entry_page
    segment = segment_head(entry_page + SEGMENT_HEAD_AT)
    page_size = page_size_of(area, entry_id)
    if segment.last_page != NO_PAGE:
        page = touch_heap(area, segment.last_page)
        if page < 0:
            return page
        if insert_room(page, page_size, segment.pct_free) >= need:
            return segment.last_page
    page_id = page_with_room(entry_page, need, page_size)
    if page_id != NO_PAGE:
        return page_id
    page = add_page(area, entry_id, _SYSTEM if segment.type == _SYSTEM else _HEAP)
    if page < 0:
        return page
    init_heap_page(area, page)
    return page_head(page).page_id


@routine
def relist(area, entry_id, page_id, page):
    """Put the page on the free list that its room asks for; on none while a bulk load has it."""
    if load_is_open(area, load_i64(page + LOAD_NUMBER_AT)):
        return DONE
    entry_page = touch_entry(area, entry_id)
    if entry_page < 0:
        return entry_page
    pct_free = segment_head(entry_page + SEGMENT_HEAD_AT).pct_free
    return relist_page(area, entry_id, page, list_of(page, page_size_of(area, page_id), pct_free))


@routine
def place_row(area, entry_id, row, size):
    """Put a row on a page of the segment that takes it; returns its place, or a status."""
    page_size = page_size_of(area, entry_id)
    if not row_fits(size, page_size):
        return ROW_TOO_LARGE
    page_id = _page_for(area, entry_id, occupied(size) + 2)
    if page_id < 0:
        return page_id
    page = touch_heap(area, page_id)
    if page < 0:
        return page
    room = page_head(page).free_end - page_head(page).free_begin
    if room < occupied(size) + 2 or page_size_of(area, page_id) != page_size:
        return damaged(area, page_id)  # its free list, or the segment, is wrong about it
    begin_change(area, page_id)
    slot = put_row(area, page, page_size, row, size)
    end_change(area, page_id)
    status = relist(area, entry_id, page_id, page)
    return status if status < 0 else place_of(page_id, slot)


@routine
def home_of(area, obj_id, page_id, slot):
    """The row in a home slot of the table, whatever its flags; NOT_FOUND for a LINK row."""
    if not page_in_use(area, page_id):
        return NOT_FOUND
    page = touch(area, page_id)
    if page < 0:
        return page
    head = page_head(page)
    if head.obj_id != obj_id or not holds_rows(head):
        return NOT_FOUND
    row = row_in_slot(page, page_size_of(area, page_id), slot)
    return NOT_FOUND if row < 0 or flags_of(row) & FLAG_LINK else row


@routine
def link_target(entry_row):
    """The page that an ENTRY row leads to."""
    return load_u32(entry_row + _TARGET_AT)


@routine
def linked_row(area, entry_row):
    """The LINK row that an ENTRY row leads to."""
    page_id = link_target(entry_row)
    page = touch_heap(area, page_id)
    return page if page < 0 else link_in_slot(area, page, page_id, load_u16(entry_row + _TARGET_AT + 4))


@routine
def link_in_slot(area, page, page_id, slot):
    """The LINK row in a slot; NOT_FOUND if there is none."""
    row = row_in_slot(page, page_size_of(area, page_id), slot)
    return row if row > 0 and flags_of(row) & FLAG_LINK else NOT_FOUND


@routine
def data_of(area, home):
    """Where a home row's data lies: in place, or in its LINK row."""
    return linked_row(area, home) if flags_of(home) & FLAG_ENTRY else home


@routine
def _has_rows(page, page_size):
    for slot in range(heap_node(page + NODE_AT).slot_count):
        if row_in_slot(page, page_size, slot) >= 0:
            return True
    return False


@routine
def compact(area, entry_id, page_id, page):
    """Slide the page's rows together; a page whose slots are all freed starts over without any."""
    page_size = page_size_of(area, page_id)
    change(area, page)
    compact_rows(page, page_size)
    if not _has_rows(page, page_size):
        node = heap_node(page + NODE_AT)
        node.slot_count = 0
        node.free_slot = NO_SLOT
        page_head(page).free_end = page_size - TAIL_SIZE
    log_page(area, page)
    return relist(area, entry_id, page_id, page)


@routine
def release_if_empty(area, entry_id, page_id, page):
    """Give a page without rows back to the tablespace, but for the one where inserts go on."""
    entry_page = touch_entry(area, entry_id)
    if entry_page < 0:
        return entry_page
    last = segment_head(entry_page + SEGMENT_HEAD_AT).last_page
    if heap_node(page + NODE_AT).slot_count or page_id == last or load_is_open(area, load_i64(page + LOAD_NUMBER_AT)):
        return DONE
    return release_page(area, entry_id, page_id)


@routine
def remove_link(area, entry_id, page_id, slot):
    """Remove a LINK row that no ENTRY leads to any more."""
    page = touch_heap(area, page_id)
    if page < 0:
        return page
    if link_in_slot(area, page, page_id, slot) < 0:
        return damaged(area, page_id)
    begin_change(area, page_id)
    free_slot(area, page, page_size_of(area, page_id), slot)
    status = compact(area, entry_id, page_id, page)
    end_change(area, page_id)
    return release_if_empty(area, entry_id, page_id, page) if status == DONE else status


@routine
def _write_entry(area, page, row, target):
    """Make a home row an ENTRY row that leads to a place; its lock stays."""
    change(area, page)
    store_8(row + FLAGS_AT, flags_of(row) | FLAG_ENTRY)
    store_16(row + SIZE_AT, _ENTRY_SIZE)
    store_16(row + COL_COUNT_AT, 1)
    store_32(row + BITS_AT, _ENTRY_BITS)
    store_32(row + _TARGET_AT, page_of(target))
    store_16(row + _TARGET_AT + 4, slot_of(target))
    store_16(row + _TARGET_AT + 6, 0xFFFF)
    log_bytes(area, page, row - page, _ENTRY_SIZE)


@routine
def _migrate(area, entry_id, page, home, row, size):
    """Put the row's bytes on another page and an ENTRY row in its home slot."""
    word = load_u32(row)
    store_32(row, _LINK_WORD)
    target = place_row(area, entry_id, row, size)
    store_32(row, word)
    if target < 0:
        return target
    _write_entry(area, page, home, target)
    return DONE


@routine
def _replace_migrated(area, entry_id, page_id, page, slot, row, size):
    """New data for a row that has left home: back home, in its LINK row's page, or on a third page."""
    page_size = page_size_of(area, page_id)
    home = row_in_slot(page, page_size, slot)
    link_id, link_slot = link_target(home), load_u16(home + _TARGET_AT + 4)
    link_page = touch_heap(area, link_id)
    if link_page < 0:
        return link_page
    if link_in_slot(area, link_page, link_id, link_slot) < 0 or page_size_of(area, link_id) != page_size:
        return damaged(area, link_id)
    if rewrite_row(area, page, page_size, slot, row, size) == DONE:
        status = relist(area, entry_id, page_id, page)
        return remove_link(area, entry_id, link_id, link_slot) if status == DONE else status
    word = load_u32(row)
    store_32(row, _LINK_WORD)
    begin_change(area, link_id)
    status = rewrite_row(area, link_page, page_size, link_slot, row, size)
    end_change(area, link_id)
    store_32(row, word)
    if status == DONE:
        return relist(area, entry_id, link_id, link_page)
    status = _migrate(area, entry_id, page, home, row, size)
    return remove_link(area, entry_id, link_id, link_slot) if status == DONE else status


@routine
def replace_row(area, entry_id, page_id, page, slot, row, size):
    """Give a row new data.  Its row id stays, wherever the data goes; ``row``'s lock word and flags are ignored.

    Returns NEED_SPACE with nothing changed if the row must leave its page and no other has room.
    """
    page_size = page_size_of(area, page_id)
    home = row_in_slot(page, page_size, slot)
    word = load_u32(home) & ~(FLAG_ENTRY << 24)
    store_32(row, word)
    if flags_of(home) & FLAG_ENTRY:
        return _replace_migrated(area, entry_id, page_id, page, slot, row, size)
    if rewrite_row(area, page, page_size, slot, row, size) == DONE:
        return relist(area, entry_id, page_id, page)
    return _migrate(area, entry_id, page, home, row, size)


@routine
def remove_row(area, entry_id, page_id, page, slot):
    """Free a row's slot, and the LINK row that it leads to; its bytes wait for compaction."""
    page_size = page_size_of(area, page_id)
    row = row_in_slot(page, page_size, slot)
    if flags_of(row) & FLAG_ENTRY:
        status = remove_link(area, entry_id, link_target(row), load_u16(row + _TARGET_AT + 4))
        if status < 0:
            return status
    if flags_of(row) & FLAG_DELETE:
        page_head(page).del_count -= 1
    free_slot(area, page, page_size, slot)
    log_counts(area, page)
    return DONE
