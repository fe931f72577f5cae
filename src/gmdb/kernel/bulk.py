"""Bulk appends: rows onto the last page, then whole pages that were filled outside of memory.

A load fills pages in a buffer of its own.  ``reserve_pages`` gives them places above the high-water mark and in
the segment's map, marked LOADING, and writes the undo records; the load writes them to the file, and
``publish_pages`` takes the mark off.  The pages carry the transaction's number, which stands in for a lock in all
of their rows: nobody else sees them until it commits, and no row needs cleaning up after that.
"""

from __future__ import annotations

import numpy as np

from gmdb.format.address import NO_PAGE, NO_SLOT, OFFSET_BITS
from gmdb.format.device import DEVICE_HEAD_AT
from gmdb.format.heap import NODE_AT
from gmdb.format.page import PageType
from gmdb.format.row import NO_LOCK
from gmdb.format.segment import FURTHER_MAP_AT, LOADING, MAP_ENTRY, NO_LIST, SEGMENT_HEAD_AT
from gmdb.kernel.append import fill_pages, formatting_at
from gmdb.kernel.area import address_of, begin_change, change, device_of_page, end_change, page_head
from gmdb.kernel.compiler import kernel, routine
from gmdb.kernel.dml import call_at
from gmdb.kernel.free_lists import clear_links, entry_address, map_at, map_entry, touch_entry, touch_map
from gmdb.kernel.heap import relist, touch_heap
from gmdb.kernel.heap_page import heap_node
from gmdb.kernel.locks import INSERT, free_lock, lock_at, locks_available, new_lock
from gmdb.kernel.memory import records, store_32
from gmdb.kernel.pages import device_head, format_page
from gmdb.kernel.segment import chain_map_page, map_head, segment_head
from gmdb.kernel.status import DONE, LOCKS_FULL, NEED_SPACE
from gmdb.kernel.undo import OP_INSERT, RECORD_SIZE, newest_place, reserve_undo, write_record

PLACE = np.dtype([("page_id", "<u4"), ("map_page", "<u4"), ("map_offset", "<u4")])
place_at = records(PLACE)
PLACE_SIZE = PLACE.itemsize
_INSERT_BODY = 4
_MAP_PAGE = int(PageType.MAP)
_ENTRY_SIZE = MAP_ENTRY.size


@kernel
def top_up_page(area, call_address, formatting, obj_id, entry_id, page_id, count):
    """Append as many of ``count`` rows as the page takes, under the statement's insert lock.

    Answers how many.  A status about a row is answered when its block is reached: the rows before it are on the
    page, and in the undo record.
    """
    call, state = call_at(call_address), formatting_at(formatting)
    call.undo = -1
    page = touch_heap(area, page_id)
    if page < 0:
        return page
    status = reserve_undo(area, RECORD_SIZE + _INSERT_BODY)
    if status < 0:
        return status
    if call.insert_lock < 0:
        if locks_available(area) < 1:
            return LOCKS_FULL
        call.insert_lock = new_lock(area, call.transaction, INSERT, call.statement, NO_PAGE, NO_SLOT, NO_LOCK)
        lock_at(area, call.insert_lock).rows = 0
    state.pages, state.page, state.page_count, state.lock_word = page, 0, 1, call.insert_lock
    first = heap_node(page + NODE_AT).slot_count
    begin_change(area, page_id)
    placed = fill_pages(state, 0, count)
    end_change(area, page_id, page)
    rows = heap_node(page + NODE_AT).slot_count - first
    if rows:
        lock_at(area, call.insert_lock).rows += rows
        record = write_record(area, page_id, first, call.insert_lock, obj_id, entry_id, OP_INSERT, _INSERT_BODY)
        store_32(record + RECORD_SIZE, rows)
        call.undo = newest_place(area)
        status = relist(area, entry_id, page_id, page)
    elif lock_at(area, call.insert_lock).rows == 0:
        free_lock(area, call.insert_lock)
        call.insert_lock = -1
    return status if status < 0 else placed


@routine
def _take_above(area, home):
    """The page at the device's high-water mark, which the mark then leaves behind."""
    page = address_of(area, home)
    head = device_head(page + DEVICE_HEAD_AT)
    page_id = home | head.hwm
    head.hwm += 1
    change(area, home, page)
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
        page = format_page(area, map_id, segment.obj_id, segment.type, _MAP_PAGE, FURTHER_MAP_AT)
        chain_map_page(area, entry_id, entry_page, page, map_id, map_page)
        map_page, head = page, map_head(page + FURTHER_MAP_AT)
    place.map_page = segment.last_map_page
    place.map_offset = head.map_count
    place.page_id = _take_above(area, home)
    at = entry_address(map_page, head.map_count)
    entry = map_entry(at)
    entry.page_id = place.page_id
    entry.list_id = LOADING
    clear_links(at)
    head.map_count += 1
    page_head(map_page).free_begin += _ENTRY_SIZE
    segment.last_map_page_full = 1 if head.map_count == head.map_capacity else 0
    change(area, place.map_page, map_page)
    if segment.first_data_page == NO_PAGE:
        segment.first_data_page = place.page_id
    segment.page_count += 1
    change(area, entry_id, entry_page)
    return DONE


@kernel
def reserve_pages(area, call_address, obj_id, entry_id, device, places, count):
    """Places for ``count`` pages on a device, and an undo record for each run of neighbours among them.

    Answers how many records were written; they are the newest on the undo page.  A map page or two may be needed
    beside: the device must have room above its high-water mark, and the undo page for a record a map page.
    """
    entry_page = touch_entry(area, entry_id)
    if entry_page < 0:
        return entry_page
    home = device << OFFSET_BITS
    head = device_head(address_of(area, home) + DEVICE_HEAD_AT)
    if head.hwm + count + count // 100 + 2 > device_of_page(area, home).page_count:
        return NEED_SPACE
    status = reserve_undo(area, (RECORD_SIZE + _INSERT_BODY + 2) * (count // 100 + 3))
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
            record = write_record(area, first, NO_SLOT, NO_LOCK, obj_id, entry_id, OP_INSERT, _INSERT_BODY)
            store_32(record + RECORD_SIZE, i - start)
            runs += 1
            start = i
    call_at(call_address).undo = newest_place(area)
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
def publish_pages(area, entry_id, places, count):
    """The pages are written: scans may go there."""
    for i in range(count):
        place = place_at(places + i * PLACE_SIZE)
        map_page = touch_map(area, entry_id, place.map_page)
        if map_page < 0:
            return map_page
        map_entry(entry_address(map_page, place.map_offset)).list_id = NO_LIST
        change(area, place.map_page, map_page)
    return DONE


@kernel
def open_last_page(area, entry_id, page_id):
    """The load has committed: inserts go on at its last page."""
    entry_page, page = touch_entry(area, entry_id), touch_heap(area, page_id)
    if entry_page < 0 or page < 0:
        return min(entry_page, page)
    segment_head(entry_page + SEGMENT_HEAD_AT).last_page = page_id
    change(area, entry_id, entry_page)
    return relist(area, entry_id, page_id, page)
