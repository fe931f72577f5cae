"""Bulk appends: rows onto the last page, then whole pages that were filled outside of memory.

A load fills pages in a buffer of its own.  ``reserve_pages`` gives them places above the high-water mark and in
the segment's map, marked LOADING, and writes the undo records; the load writes them to the file, and
``publish_pages`` takes the mark off.  The pages carry the transaction's number, which stands in for a lock in all
of their rows: nobody else sees them until it commits, and no row needs cleaning up after that.
"""

from __future__ import annotations

from gmdb.format.address import NO_PAGE, NO_PLACE, NO_SLOT, OFFSET_BITS
from gmdb.format.device import DEVICE_HEAD_AT
from gmdb.format.heap import NODE_AT
from gmdb.format.layout import Structure
from gmdb.format.page import PAGE_SIZES, PageType
from gmdb.format.redo import ChangeOperation
from gmdb.format.row import NO_LOCK, SIZE_AT
from gmdb.format.segment import FURTHER_MAP_AT, LOADING, MAP_ENTRY, NO_LIST, SEGMENT_HEAD_AT
from gmdb.kernel.change.bulk_pages import fill_pages, formatting_at
from gmdb.kernel.change.index_sort import run_at
from gmdb.kernel.change.index_upkeep import add_entry_checked
from gmdb.kernel.heap import heap_node, log_appended, relist, row_in_slot, touch_heap
from gmdb.kernel.locks import INSERT, free_lock, lock_at, locks_available, new_lock, transaction_at
from gmdb.kernel.page.allocation import device_head, format_page, is_untouched, log_device
from gmdb.kernel.page.area import (
    address_of,
    begin_change,
    damaged,
    end_change,
    holds_rows,
    page_head,
    page_size_of,
    segment_head,
    state_of,
    touch,
)
from gmdb.kernel.page.redo import close_group, is_group_long, log_change, log_image, require_log_room
from gmdb.kernel.page.segment import (
    chain_map_page,
    clear_links,
    entry_address,
    log_entry,
    log_map_head,
    log_segment,
    map_at,
    map_entry,
    map_head,
    touch_entry,
    touch_map,
)
from gmdb.kernel.places import place_of
from gmdb.kernel.runtime.call import call_at, target_at
from gmdb.kernel.runtime.compiler import kernel, routine
from gmdb.kernel.runtime.memory import load_i64, load_u16, move_bytes, records, store_32
from gmdb.kernel.runtime.status import DONE, LOCKS_FULL, LOG_FULL, NEED_SPACE
from gmdb.kernel.undo import OP_INSERT, RECORD_SIZE, log_newest, reserve_undo, write_record

PLACE = Structure([("page_id", "<u4"), ("map_page", "<u4"), ("map_offset", "<u4")])
place_at = records(PLACE)
PLACE_SIZE = PLACE.itemsize
_INSERT_BODY, _PAGES_BODY = 4, 12
_MAP_PAGE = int(PageType.MAP)
_ENTRY_SIZE = MAP_ENTRY.size
MIN_PAGE_SIZE = PAGE_SIZES[0]
ENTRIES_AT_ONCE = 512  # entries that a call enters into an index
_INSERTED, _LOADED = int(ChangeOperation.INSERT), int(ChangeOperation.LOAD)
IMAGES_MAX = 64  # pages of the smallest size whose images make a group


@kernel
def top_up_page(area, call_address, formatting, obj_id, entry_id, page_id, count, feed):
    """Append as many of ``count`` rows as the page takes, under the statement's insert lock.

    Returns how many.  ``feed``: as a target has it.  A status about a row is returned when its block is reached: the
    rows before it are on the page, and in the undo record.
    """
    if require_log_room(area) < 0:
        return LOG_FULL
    call = call_at(call_address)
    call.undo = -1
    placed = _top_up(area, call, formatting_at(formatting), obj_id, entry_id, page_id, count, feed)
    return close_group(area, transaction_at(area, call.transaction).number, placed)


@routine
def _top_up(area, call, state, obj_id, entry_id, page_id, count, feed):
    page = touch(area, page_id)
    if page < 0:
        return page
    if not holds_rows(page_head(page)) or page_head(page).obj_id != obj_id:
        return 0  # it was empty, and has been given back
    if page_size_of(area, page_id) != state.page_size:
        return damaged(area, page_id)
    status = reserve_undo(area, call, RECORD_SIZE + _INSERT_BODY)
    if status < 0:
        return status
    if call.insert_lock < 0:
        if locks_available(area) < 1:
            return LOCKS_FULL
        call.insert_lock = new_lock(area, call.transaction, INSERT, call.statement, NO_PAGE, NO_SLOT, NO_LOCK)
        lock_at(area, call.insert_lock).rows = 0
    state.pages, state.page, state.page_count, state.lock_word = page, 0, 1, call.insert_lock
    first, free_begin = heap_node(page + NODE_AT).slot_count, page_head(page).free_begin
    begin_change(area, page_id)
    placed = fill_pages(state, 0, count)
    rows = heap_node(page + NODE_AT).slot_count - first
    if rows:
        log_appended(area, page, state.page_size, free_begin, first)
    end_change(area, page_id)
    if rows:
        lock_at(area, call.insert_lock).rows += rows
        record = write_record(area, call, page_id, first, call.insert_lock, obj_id, entry_id, OP_INSERT, _INSERT_BODY)
        store_32(record + RECORD_SIZE, rows)
        log_newest(area, call, record)
        if feed:
            _log_appended_rows(area, call, feed, page_id, page, state.page_size, first, rows)
        status = relist(area, entry_id, page_id, page)
    elif lock_at(area, call.insert_lock).rows == 0:
        free_lock(area, call.insert_lock)
        call.insert_lock = -1
    return status if status < 0 else placed


@routine
def _log_appended_rows(area, call, feed, page_id, page, page_size, first, count):
    """Log rows that were put on a page as changes of a table with a change feed."""
    for slot in range(first, first + count):
        row = row_in_slot(page, page_size, slot)
        size = load_u16(row + SIZE_AT)
        log_change(area, call, feed, _INSERTED, place_of(page_id, slot), call.undo, row, size, row, 0, 0)


@routine
def _take_above(area, home):
    """The page at the device's high-water mark, which the mark then leaves behind."""
    page = address_of(area, home)
    head = device_head(page + DEVICE_HEAD_AT)
    page_id = home | head.hwm
    if not is_untouched(area, page_id):
        return damaged(area, home)
    head.hwm += 1
    log_device(area, page)
    return page_id


@routine
def _reserve_page(area, entry_id, entry_page, home, place):
    """A place for a data page at the end of the map, with a new map page before it if the last is full."""
    segment = segment_head(entry_page + SEGMENT_HEAD_AT)
    map_page = touch_map(area, entry_id, segment.last_map_page)
    if map_page < 0:
        return map_page
    head = map_head(map_page + map_at(map_page))
    if head.map_count == head.map_capacity:
        map_id = _take_above(area, home)
        if map_id < 0:
            return map_id
        page = format_page(area, map_id, segment.obj_id, segment.type, _MAP_PAGE, FURTHER_MAP_AT)
        chain_map_page(area, entry_page, page, map_id, map_page)
        map_page, head = page, map_head(page + FURTHER_MAP_AT)
    page_id = _take_above(area, home)
    if page_id < 0:
        return page_id
    place.map_page = segment.last_map_page
    place.map_offset = head.map_count
    place.page_id = page_id
    at = entry_address(map_page, head.map_count)
    entry = map_entry(at)
    entry.page_id = place.page_id
    entry.list_id = LOADING
    clear_links(at)
    log_entry(area, map_page, head.map_count)
    head.map_count += 1
    page_head(map_page).free_begin += _ENTRY_SIZE
    segment.last_map_page_full = 1 if head.map_count == head.map_capacity else 0
    log_map_head(area, map_page)
    if segment.first_data_page == NO_PAGE:
        segment.first_data_page = place.page_id
    segment.page_count += 1
    log_segment(area, entry_page)
    return DONE


@kernel
def reserve_pages(area, call_address, number, obj_id, entry_id, device, places, count):
    """Places for ``count`` pages on a device, and an undo record for each run of neighbours among them.

    Returns how many records were written; they are the newest on the undo page.  A map page or two may be needed
    beside: the device must have room above its high-water mark, and the undo page for a record a map page.
    """
    if require_log_room(area) < 0:
        return LOG_FULL
    call = call_at(call_address)
    runs = _reserve(area, call, obj_id, entry_id, device, places, count)
    return close_group(area, number, runs)


@routine
def _reserve(area, call, obj_id, entry_id, device, places, count):
    entry_page = touch_entry(area, entry_id)
    if entry_page < 0:
        return entry_page
    home = device << OFFSET_BITS
    head = device_head(address_of(area, home) + DEVICE_HEAD_AT)
    if head.hwm + count + count // 100 + 2 > head.page_count:
        return NEED_SPACE
    status = reserve_undo(area, call, (RECORD_SIZE + _PAGES_BODY + 2) * (count // 100 + 3))
    if status < 0:
        return status
    for i in range(count):
        status = _reserve_page(area, entry_id, entry_page, home, place_at(places + i * PLACE_SIZE))
        if status < 0:
            return status
    runs, start = 0, 0
    for i in range(1, count + 1):
        first = place_at(places + start * PLACE_SIZE).page_id
        if i == count or place_at(places + i * PLACE_SIZE).page_id != first + (i - start):
            record = write_record(area, call, first, NO_SLOT, NO_LOCK, obj_id, entry_id, OP_INSERT, _PAGES_BODY)
            store_32(record + RECORD_SIZE, i - start)
            store_32(record + RECORD_SIZE + 4, place_at(places + start * PLACE_SIZE).map_page)
            store_32(record + RECORD_SIZE + 8, place_at(places + start * PLACE_SIZE).map_offset)
            log_newest(area, call, record)
            runs += 1
            start = i
    return runs


@kernel
def stamp_pages(pages, page_size, places, count):
    """Write into the heads of filled pages where they belong."""
    for i in range(count):
        head, place = page_head(pages + i * page_size), place_at(places + i * PLACE_SIZE)
        head.page_id = place.page_id
        head.map_page_id = place.map_page
        head.map_offset = place.map_offset
    return DONE


@kernel
def log_pages(area, number, pages, page_size, count, call_address, feed):
    """Log the images of filled pages of a load of transaction ``number``; returns how many went into the group.

    ``feed``: as a target has it; only then it needs the transaction's call.
    """
    if require_log_room(area) < 0:
        return LOG_FULL
    done = min(count, IMAGES_MAX * MIN_PAGE_SIZE // page_size)
    for i in range(done):
        page = pages + i * page_size
        log_image(area, page, page_size)
        if feed:
            place = place_of(page_head(page).page_id, 0)
            call = call_at(call_address)
            log_change(area, call, feed, _LOADED, place, NO_PLACE, page, 0, page, 0, 0)
    return close_group(area, number, done)


@kernel
def publish_pages(area, entry_id, places, count):
    """The pages are written: scans may go there."""
    if require_log_room(area) < 0:
        return LOG_FULL
    for i in range(count):
        place = place_at(places + i * PLACE_SIZE)
        map_page = touch_map(area, entry_id, place.map_page)
        if map_page < 0:
            return map_page
        map_entry(entry_address(map_page, place.map_offset)).list_id = NO_LIST
        log_entry(area, map_page, place.map_offset)
    return close_group(area, 0, DONE)


@routine
def _enter_run(area, call, target, n, run, lock_id):
    entry, done = state_of(area).index_scratch, 0
    while run.next < run.count and done < ENTRIES_AT_ONCE and not is_group_long(area):
        source = run.entries + load_i64(run.offsets + 8 * run.next)
        move_bytes(entry, source, load_u16(source + SIZE_AT))
        status = add_entry_checked(area, call, target, n, entry, lock_id)
        if status < 0:
            return done if done else status
        run.next += 1
        done += 1
    return done


@kernel
def enter_run(area, target_address, n, run_address, lock_id):
    """Enter the next entries of a run, of rows that were appended, into index number ``n`` of a table.

    Returns how many, 0 once all are in.
    """
    if require_log_room(area) < 0:
        return LOG_FULL
    target = target_at(target_address)
    call = call_at(target.call)
    call.undo, call.blocked, call.index = -1, -1, n
    done = _enter_run(area, call, target, n, run_at(run_address), lock_id)
    return close_group(area, transaction_at(area, call.transaction).number, done)


@kernel
def open_last_page(area, entry_id, page_id):
    """The load is about to commit: inserts go on at its last page."""
    if require_log_room(area) < 0:
        return LOG_FULL
    entry_page, page = touch_entry(area, entry_id), touch_heap(area, page_id)
    if entry_page < 0 or page < 0:
        return min(entry_page, page)
    segment_head(entry_page + SEGMENT_HEAD_AT).last_page = page_id
    log_segment(area, entry_page)
    return close_group(area, 0, relist(area, entry_id, page_id, page))
