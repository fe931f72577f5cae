"""Pages filled outside of memory, and how they become part of a segment.

A bulk append first plans which pages above the high-water mark it will use, as if it took them one by one: data
pages in sequence, with a map page wherever the map before it is full.  It writes the data pages to the file.
Nothing refers to them until ``adopt_pages`` enters them all into the map, which only changes memory.
"""

from __future__ import annotations

import numpy as np

from gmdb.format.address import NO_PAGE, OFFSET_BITS
from gmdb.format.device import DEVICE_HEAD_AT
from gmdb.format.page import PageType
from gmdb.format.segment import FURTHER_MAP_AT, NO_LIST, SEGMENT_HEAD_AT
from gmdb.kernel.append import PLACE_SIZE, place_at
from gmdb.kernel.area import address_of, change, page_head, page_size_of
from gmdb.kernel.compiler import kernel, routine
from gmdb.kernel.heap import relist, touch_heap
from gmdb.kernel.memory import move_bytes, records
from gmdb.kernel.pages import device_head, format_page
from gmdb.kernel.segment import (
    chain_map_page,
    clear_links,
    entry_address,
    map_at,
    map_entry,
    map_head,
    segment_head,
    touch_entry,
    touch_map,
)
from gmdb.kernel.status import DONE

PLAN = np.dtype(
    [
        ("next_page", "<i8"),  # the page above the high-water mark that is used next
        ("map_page", "<i8"),  # the map page that gets the next entry
        ("map_count", "<i8"),  # entries that it will have by then
        ("map_capacity", "<i8"),
        ("further_capacity", "<i8"),  # entries of a map page yet to be made
    ]
)
plan_at = records(PLAN)
_MAP_PAGE = int(PageType.MAP)


@kernel
def plan_pages(plan, places, count):
    """Choose places for ``count`` data pages, and for the map pages that they need on the way."""
    state = plan_at(plan)
    for i in range(count):
        if state.map_count == state.map_capacity:
            state.map_page = state.next_page
            state.next_page += 1
            state.map_count = 0
            state.map_capacity = state.further_capacity
        place = place_at(places + i * PLACE_SIZE)
        place.page_id = state.next_page
        place.map_page = state.map_page
        place.map_offset = state.map_count
        state.next_page += 1
        state.map_count += 1
    return DONE


@routine
def _raise_high_water_mark(area, page_id):
    home = page_id >> OFFSET_BITS << OFFSET_BITS
    page = address_of(area, home)
    head = device_head(page + DEVICE_HEAD_AT)
    if head.hwm <= page_id - home:
        head.hwm = page_id - home + 1
        change(area, home, page)


@routine
def _adopt(area, entry_id, entry_page, place):
    segment = segment_head(entry_page + SEGMENT_HEAD_AT)
    if segment.last_map_page != place.map_page:
        last_id = segment.last_map_page
        _raise_high_water_mark(area, place.map_page)
        page = format_page(area, place.map_page, segment.obj_id, segment.type, _MAP_PAGE, FURTHER_MAP_AT)
        chain_map_page(area, entry_id, entry_page, page, place.map_page, touch_map(area, entry_id, last_id))
    _raise_high_water_mark(area, place.page_id)
    map_page = touch_map(area, entry_id, place.map_page)
    head = map_head(map_page + map_at(map_page))
    at = entry_address(map_page, place.map_offset)
    entry = map_entry(at)
    entry.page_id = place.page_id
    entry.list_id = NO_LIST
    clear_links(at)
    head.map_count = place.map_offset + 1
    page_head(map_page).free_begin = at + (entry_address(map_page, 1) - entry_address(map_page, 0)) - map_page
    segment.last_map_page_full = 1 if head.map_count == head.map_capacity else 0
    change(area, place.map_page, map_page)
    if segment.first_data_page == NO_PAGE:
        segment.first_data_page = place.page_id
    segment.last_page = place.page_id
    segment.page_count += 1


@kernel
def adopt_pages(area, entry_id, places, count):
    """Enter written pages into the segment's map; the last of them is where inserts go on."""
    entry_page = touch_entry(area, entry_id)
    if entry_page < 0:
        return entry_page
    for i in range(count):
        _adopt(area, entry_id, entry_page, place_at(places + i * PLACE_SIZE))
    change(area, entry_id, entry_page)
    last_id = segment_head(entry_page + SEGMENT_HEAD_AT).last_page
    last_page = touch_heap(area, last_id)
    return last_page if last_page < 0 else relist(area, entry_id, last_id, last_page)


@kernel
def replace_page(area, entry_id, page_id, image):
    """Give a data page new contents, its place in the map and its free list kept."""
    page = touch_heap(area, page_id)
    if page < 0:
        return page
    move_bytes(page, image, page_size_of(area, page_id))
    change(area, page_id, page)
    return relist(area, entry_id, page_id, page)
