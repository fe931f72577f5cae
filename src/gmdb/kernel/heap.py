"""Rows on heap pages: insert, fetch, update, delete, migration, compaction.

Invariants
 1. A row's slot number never changes while the row lives; where its bytes lie does.
 2. A row that left its page has an ENTRY row in its home slot, which names the LINK row; never a chain of them.
 3. Rows never overlap, and the bytes from ``free_begin`` to ``free_end`` are free.
"""

from __future__ import annotations

import numpy as np

from gmdb.format.address import NO_PAGE, NO_SLOT
from gmdb.format.heap import HEAP_NODE, NODE_AT, ROWS_AT
from gmdb.format.page import TAIL_SIZE, PageType
from gmdb.format.row import BITS_AT, COL_COUNT_AT, MIN_OCCUPIED, SIZE_AT, UNLOCKED, RowFlag, SizeCode
from gmdb.format.segment import EMPTY_LIST, SEGMENT_HEAD_AT
from gmdb.format.slotted import LAST_FREED, SLOT_FREED
from gmdb.kernel.area import change, page_head, page_size_of, touch, touch_type
from gmdb.kernel.compiler import kernel, routine
from gmdb.kernel.memory import load_u8, load_u16, load_u32, move_bytes, records, store_8, store_16, store_32
from gmdb.kernel.pages import page_in_use
from gmdb.kernel.segment import add_page, list_for_room, page_with_room, relist_page, segment_head, touch_entry
from gmdb.kernel.status import DELETED, DONE, NO_ROOM, NOT_FOUND, ROW_TOO_LARGE

heap_node = records(HEAP_NODE)
_NODE_SIZE = HEAP_NODE.size
_DATA = int(PageType.DATA)
_DELETE, _ENTRY, _LINK, _COMPACTING = (int(flag) for flag in RowFlag)
_FLAGS_AT = 3
_ENTRY_SIZE = MIN_OCCUPIED
_ENTRY_BITS = int(SizeCode.EIGHT)


# ---- one page


@routine
def slot_address(page, page_size, slot):
    return page + page_size - TAIL_SIZE - 2 * (slot + 1)


@routine
def occupied(size):
    return max(size, MIN_OCCUPIED)


@routine
def init_heap_page(page):
    """Turn a freshly formatted page into a heap page without rows."""
    node = heap_node(page + NODE_AT)
    node.next = NO_PAGE
    node.free_slot = NO_SLOT
    page_head(page).free_begin = NODE_AT + _NODE_SIZE


@routine
def insert_room(page, page_size, pct_free):
    """Bytes, slot included, that inserts may still put on the page; pct_free does not bind the first row."""
    head = page_head(page)
    free = head.free_end - head.free_begin
    if heap_node(page + NODE_AT).slot_count == 0:
        return free
    return free - (page_size - ROWS_AT - TAIL_SIZE) * pct_free // 100


@routine
def _list_of(page, page_size, pct_free):
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
def _free_slot(page, page_size, slot):
    node = heap_node(page + NODE_AT)
    following = LAST_FREED if node.free_slot == NO_SLOT else node.free_slot
    store_16(slot_address(page, page_size, slot), SLOT_FREED | following)
    node.free_slot = slot


@routine
def put_row(page, page_size, row, size):
    """Append a row to a page that has room for it and a slot; answers the slot."""
    head = page_head(page)
    at = head.free_begin
    slot = _take_slot(page, page_size)
    move_bytes(page + at, row, size)
    head.free_begin = at + occupied(size)
    store_16(slot_address(page, page_size, slot), at)
    return slot


@routine
def row_in_slot(page, page_size, slot):
    """The address of the row in a slot; NOT_FOUND if the slot does not exist or was freed."""
    if slot < 0 or slot >= heap_node(page + NODE_AT).slot_count:
        return NOT_FOUND
    offset = load_u16(slot_address(page, page_size, slot))
    return NOT_FOUND if offset & SLOT_FREED else page + offset


@routine
def flags_of(row):
    return load_u8(row + _FLAGS_AT)


@routine
def compact_rows(page, page_size):
    """Slide the rows together, in the order in which they lie; what is left between them becomes free."""
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
            store_8(row + _FLAGS_AT, flags | _COMPACTING)  # a dump taken now shows which row is on its way
            move_bytes(page + to, row, size)
            store_16(slot_address(page, page_size, slot), to)
            store_8(page + to + _FLAGS_AT, flags)
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
def rewrite_row(page, page_size, slot, row, size):
    """Give the row in a slot new bytes: in its place, elsewhere on the page, or NO_ROOM."""
    head = page_head(page)
    old = row_in_slot(page, page_size, slot)
    if occupied(size) > occupied(load_u16(old + SIZE_AT)):
        if occupied(size) > head.free_end - head.free_begin:
            freed = _free_after_compaction(page, page_size) + occupied(load_u16(old + SIZE_AT))
            if occupied(size) > freed:
                return NO_ROOM
            store_16(slot_address(page, page_size, slot), SLOT_FREED)  # compaction passes over it
            compact_rows(page, page_size)
        store_16(slot_address(page, page_size, slot), head.free_begin)
        old = page + head.free_begin
        head.free_begin += occupied(size)
    move_bytes(old, row, size)
    return DONE


# ---- a segment


@routine
def touch_heap(area, page_id):
    return touch_type(area, page_id, _DATA, 0)


@routine
def _place_row(area, entry_id, row, size):
    """Put a row on a page of the segment that takes it; answers page id << 16 | slot, or a status."""
    entry_page = touch_entry(area, entry_id)
    if entry_page < 0:
        return entry_page
    segment = segment_head(entry_page + SEGMENT_HEAD_AT)
    page_size = page_size_of(area, entry_id)
    need = occupied(size) + 2
    if need > page_size - ROWS_AT - TAIL_SIZE:
        return ROW_TOO_LARGE
    page_id = segment.last_page
    page = NOT_FOUND
    if page_id != NO_PAGE:
        page = touch_heap(area, page_id)
        if page < 0:
            return page
    if page == NOT_FOUND or insert_room(page, page_size, segment.pct_free) < need:
        page_id = page_with_room(entry_page, need, page_size)
        if page_id == NO_PAGE:
            page_id = add_page(area, entry_id)
            if page_id < 0:
                return page_id
            page = touch_heap(area, page_id)
            init_heap_page(page)
        else:
            page = touch_heap(area, page_id)
            if page < 0:
                return page
    slot = put_row(page, page_size, row, size)
    change(area, page_id, page)
    status = relist_page(area, entry_id, page, _list_of(page, page_size, segment.pct_free))
    return status if status < 0 else page_id << 16 | slot


@kernel
def insert_row(area, entry_id, row, size):
    """Add a row to a heap; answers its row id as page id << 16 | slot, or a status."""
    return _place_row(area, entry_id, row, size)


@routine
def home_of(area, obj_id, page_id, slot):
    """The row in a home slot of the table, whatever its flags; LINK rows are nobody's home."""
    if not page_in_use(area, page_id):
        return NOT_FOUND
    page = touch(area, page_id)
    if page < 0:
        return page
    head = page_head(page)
    if head.obj_id != obj_id or head.page_type != _DATA:
        return NOT_FOUND
    row = row_in_slot(page, page_size_of(area, page_id), slot)
    return NOT_FOUND if row < 0 or flags_of(row) & _LINK else row


@routine
def linked_row(area, entry_row):
    """The LINK row that an ENTRY row leads to."""
    page_id = load_u32(entry_row + BITS_AT + 4)
    page = touch_heap(area, page_id)
    if page < 0:
        return page
    return row_in_slot(page, page_size_of(area, page_id), load_u16(entry_row + BITS_AT + 8))


@kernel
def fetch_row(area, obj_id, page_id, slot, out):
    """Copy a row's bytes to ``out``; answers their number, or a status."""
    row = home_of(area, obj_id, page_id, slot)
    if row < 0:
        return row
    if flags_of(row) & _DELETE:
        return DELETED
    if flags_of(row) & _ENTRY:
        row = linked_row(area, row)
        if row < 0:
            return row
    size = load_u16(row + SIZE_AT)
    move_bytes(out, row, size)
    store_8(out + _FLAGS_AT, 0)
    return size


@routine
def relist(area, entry_id, page_id, page):
    """Put the page on the free list that its room asks for."""
    entry_page = touch_entry(area, entry_id)
    if entry_page < 0:
        return entry_page
    pct_free = segment_head(entry_page + SEGMENT_HEAD_AT).pct_free
    return relist_page(area, entry_id, page, _list_of(page, page_size_of(area, page_id), pct_free))


@routine
def _remove_link(area, entry_id, page_id, slot):
    """Take away a LINK row that no ENTRY leads to any more."""
    page = touch_heap(area, page_id)
    if page < 0:
        return page
    page_size = page_size_of(area, page_id)
    _free_slot(page, page_size, slot)
    change(area, page_id, page)
    return DONE


@routine
def _write_entry(page, page_size, slot, target):
    """Make the row in a home slot an ENTRY row that leads to page id << 16 | slot."""
    row = row_in_slot(page, page_size, slot)
    flags = (flags_of(row) | _ENTRY) << 24
    store_32(row, UNLOCKED | flags)
    store_16(row + SIZE_AT, _ENTRY_SIZE)
    store_16(row + COL_COUNT_AT, 1)
    store_32(row + BITS_AT, _ENTRY_BITS)
    store_32(row + BITS_AT + 4, target >> 16)
    store_16(row + BITS_AT + 8, target & 0xFFFF)
    store_16(row + BITS_AT + 10, 0xFFFF)


@routine
def _migrate(area, entry_id, page_id, page, slot, row, size):
    """Put the row's bytes on another page and an ENTRY row in its home slot."""
    store_8(row + _FLAGS_AT, _LINK)
    target = _place_row(area, entry_id, row, size)
    store_8(row + _FLAGS_AT, 0)
    if target < 0:
        return target
    _write_entry(page, page_size_of(area, page_id), slot, target)
    change(area, page_id, page)
    return DONE


@routine
def _update_migrated(area, entry_id, page_id, page, slot, row, size):
    """An update of a row that has left home: in its LINK row's page, back home, or on a third page."""
    page_size = page_size_of(area, page_id)
    home = row_in_slot(page, page_size, slot)
    link_id, link_slot = load_u32(home + BITS_AT + 4), load_u16(home + BITS_AT + 8)
    link_page = touch_heap(area, link_id)
    if link_page < 0:
        return link_page
    store_8(row + _FLAGS_AT, _LINK)
    status = rewrite_row(link_page, page_size, link_slot, row, size)
    store_8(row + _FLAGS_AT, 0)
    if status == DONE:
        change(area, link_id, link_page)
        return relist(area, entry_id, link_id, link_page)
    status = rewrite_row(page, page_size, slot, row, size)
    if status == DONE:
        change(area, page_id, page)
        status = relist(area, entry_id, page_id, page)
    else:
        status = _migrate(area, entry_id, page_id, page, slot, row, size)
    if status == DONE:
        status = _remove_link(area, entry_id, link_id, link_slot)
    return status


@kernel
def update_row(area, obj_id, entry_id, page_id, slot, row, size):
    """Give a row new bytes.  Its row id stays, wherever the bytes go."""
    old = home_of(area, obj_id, page_id, slot)
    if old < 0:
        return old
    page_size = page_size_of(area, page_id)
    if flags_of(old) & _DELETE:
        return DELETED
    if occupied(size) + 2 > page_size - ROWS_AT - TAIL_SIZE:
        return ROW_TOO_LARGE
    page = touch_heap(area, page_id)
    if flags_of(old) & _ENTRY:
        return _update_migrated(area, entry_id, page_id, page, slot, row, size)
    status = rewrite_row(page, page_size, slot, row, size)
    if status == NO_ROOM:
        return _migrate(area, entry_id, page_id, page, slot, row, size)
    change(area, page_id, page)
    return relist(area, entry_id, page_id, page)


@kernel
def delete_row(area, obj_id, page_id, slot):
    """Set the row's DELETE flag; its bytes stay until the page is compacted."""
    row = home_of(area, obj_id, page_id, slot)
    if row < 0:
        return row
    if flags_of(row) & _DELETE:
        return DELETED
    page = touch_heap(area, page_id)
    store_8(row + _FLAGS_AT, flags_of(row) | _DELETE)
    page_head(page).del_count += 1
    change(area, page_id, page)
    return DONE


@kernel
def compact_page(area, entry_id, page_id):
    """Remove the deleted rows of a page, free their slots, and slide the others together."""
    page = touch_heap(area, page_id)
    if page < 0:
        return page
    page_size = page_size_of(area, page_id)
    for slot in range(heap_node(page + NODE_AT).slot_count):
        row = row_in_slot(page, page_size, slot)
        if row < 0 or not flags_of(row) & _DELETE:
            continue
        if flags_of(row) & _ENTRY:
            link_id, link_slot = load_u32(row + BITS_AT + 4), load_u16(row + BITS_AT + 8)
            status = _remove_link(area, entry_id, link_id, link_slot)
            if status < 0:
                return status
        _free_slot(page, page_size, slot)
        page_head(page).del_count -= 1
    compact_rows(page, page_size)
    _drop_last_slots(page, page_size)
    change(area, page_id, page)
    return relist(area, entry_id, page_id, page)


@routine
def _drop_last_slots(page, page_size):
    """A page whose slots are all freed starts over without any."""
    node = heap_node(page + NODE_AT)
    for slot in range(node.slot_count):
        if row_in_slot(page, page_size, slot) >= 0:
            return
    node.slot_count = 0
    node.free_slot = NO_SLOT
    page_head(page).free_end = page_size - TAIL_SIZE


@kernel
def list_rows(area, page_id, slots):
    """Write the slots (u16) of the page's rows, migrated ones included, deleted ones not; answers their number."""
    page = touch_heap(area, page_id)
    if page < 0:
        return page
    page_size = page_size_of(area, page_id)
    count = 0
    for slot in range(heap_node(page + NODE_AT).slot_count):
        row = row_in_slot(page, page_size, slot)
        if row >= 0 and not flags_of(row) & (_DELETE | _LINK):
            store_16(slots + 2 * count, slot)
            count += 1
    return count
