"""Rows of a heap segment: where new ones go, how they move, how they leave.

Invariants
 1. A row that left its page has an ENTRY row in its home slot, which names the LINK row; never a chain of them.
 2. Whoever calls has begun the change of the row's home page; changes of other pages begin and end here.
Not here: who may change a row (dml.py), who sees it (visibility.py).
"""

from __future__ import annotations

from gmdb.format.address import NO_PAGE, NO_SLOT
from gmdb.format.heap import NODE_AT, ROWS_AT, UNDO_IMAGE_MAX
from gmdb.format.page import PAGE_HEAD, TAIL_SIZE
from gmdb.format.row import BITS_AT, COL_COUNT_AT, MIN_OCCUPIED, SIZE_AT, UNLOCKED, SizeCode
from gmdb.format.segment import SEGMENT_HEAD_AT
from gmdb.kernel.area import (
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
from gmdb.kernel.compiler import routine
from gmdb.kernel.free_lists import page_with_room, relist_page, touch_entry
from gmdb.kernel.heap_page import (
    FLAG_DELETE,
    FLAG_ENTRY,
    FLAG_LINK,
    FLAGS_AT,
    compact_rows,
    flags_of,
    free_slot,
    heap_node,
    init_heap_page,
    insert_room,
    list_of,
    occupied,
    put_row,
    rewrite_row,
    row_in_slot,
)
from gmdb.kernel.locks import load_is_open
from gmdb.kernel.memory import load_i64, load_u16, load_u32, store_8, store_16, store_32
from gmdb.kernel.pages import page_in_use
from gmdb.kernel.redo import log_bytes, log_counts, log_page
from gmdb.kernel.segment import add_page, release_page
from gmdb.kernel.status import DONE, NOT_FOUND, ROW_TOO_LARGE

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
    page_id = add_page(area, entry_id)
    if page_id < 0:
        return page_id
    page = touch_heap(area, page_id)
    if page < 0:
        return page  # the segment's head says that it is of something else
    init_heap_page(area, page)
    return page_id


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
    """Put a row on a page of the segment that takes it; answers page id << 16 | slot, or a status."""
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
        return damaged(area, page_id)  # its free list, or the segment, says what is not so
    begin_change(area, page_id)
    slot = put_row(area, page, page_size, row, size)
    end_change(area, page_id)
    status = relist(area, entry_id, page_id, page)
    return status if status < 0 else page_id << 16 | slot


@routine
def home_of(area, obj_id, page_id, slot):
    """The row in a home slot of the table, whatever its flags; LINK rows are nobody's home."""
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
    """Take away a LINK row that no ENTRY leads to any more."""
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
    """Make a home row an ENTRY row that leads to page id << 16 | slot; its lock stays."""
    change(area, page)
    store_8(row + FLAGS_AT, flags_of(row) | FLAG_ENTRY)
    store_16(row + SIZE_AT, _ENTRY_SIZE)
    store_16(row + COL_COUNT_AT, 1)
    store_32(row + BITS_AT, _ENTRY_BITS)
    store_32(row + _TARGET_AT, target >> 16)
    store_16(row + _TARGET_AT + 4, target & 0xFFFF)
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

    Answers NEED_SPACE with nothing changed if the row must leave its page and no other has room.
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
