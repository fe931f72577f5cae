"""Segments: creating, growing, the free lists, dropping.

Invariants
 1. Every data page is in exactly one map entry, and names it (map_page_id, map_offset).
 2. A page on free list n has room for (n + 1) / 16 of its usable bytes beside what pct_free keeps.
 3. ``fl_flag`` in the page head and ``list_id`` in its map entry name the same list.
"""

from __future__ import annotations

from gmdb.format.address import NO_PAGE
from gmdb.format.heap import ROWS_AT
from gmdb.format.page import HEAD_SIZE, TAIL_SIZE, PageType
from gmdb.format.segment import (
    EMPTY_LIST,
    ENTRY_MAP_AT,
    FREE_LISTS,
    FREE_MAP_LIST,
    FURTHER_MAP_AT,
    LIST_HEAD,
    MAP_ENTRY,
    MAP_HEAD,
    MAP_LINK,
    NO_LIST,
    ROOM_STEPS,
    SEGMENT_HEAD,
    SEGMENT_HEAD_AT,
)
from gmdb.kernel.area import change, mark_dirty, page_head, page_size_of, touch_type
from gmdb.kernel.compiler import kernel, routine
from gmdb.kernel.memory import load_u32, records, store_32
from gmdb.kernel.pages import format_page, give_page_back, pages_available, take_page
from gmdb.kernel.status import DAMAGED, DONE, NEED_SPACE

segment_head = records(SEGMENT_HEAD)
map_head = records(MAP_HEAD)
map_entry = records(MAP_ENTRY)
map_link = records(MAP_LINK)
_ENTRY_PAGE, _MAP_PAGE, _DATA_PAGE = int(PageType.SEGMENT_ENTRY), int(PageType.MAP), int(PageType.DATA)
_ENTRY_SIZE, _MAP_HEAD_SIZE, _LINK_SIZE, _LIST_SIZE = MAP_ENTRY.size, MAP_HEAD.size, MAP_LINK.size, LIST_HEAD.size
_LISTS_AT = SEGMENT_HEAD_AT + SEGMENT_HEAD.offset("free_lists[0].first.map_page")
_PRIOR_AT, _NEXT_AT = MAP_ENTRY.offset("prior.map_page"), MAP_ENTRY.offset("next.map_page")
_LAST_AT = LIST_HEAD.offset("last.map_page")


@routine
def touch_entry(area, entry_id):
    return touch_type(area, entry_id, _ENTRY_PAGE, 0)


@routine
def touch_map(area, segment_entry, map_id):
    return touch_type(area, map_id, _ENTRY_PAGE if map_id == segment_entry else _MAP_PAGE, 0)


@routine
def map_at(page):
    return ENTRY_MAP_AT if page_head(page).page_type == _ENTRY_PAGE else FURTHER_MAP_AT


@routine
def entry_address(map_page, number):
    return map_page + map_at(map_page) + _MAP_HEAD_SIZE + number * _ENTRY_SIZE


@routine
def _set_link(at, map_id, number, page_id):
    link = map_link(at)
    link.map_page = map_id
    link.offset = number
    link.page_id = page_id


@routine
def clear_links(entry_at):
    """A map entry that is on no list leads nowhere."""
    _set_link(entry_at + _PRIOR_AT, NO_PAGE, 0, NO_PAGE)
    _set_link(entry_at + _NEXT_AT, NO_PAGE, 0, NO_PAGE)


@routine
def _format_map(page, page_size):
    at = map_at(page)
    head = map_head(page + at)
    head.prior = NO_PAGE
    head.next = NO_PAGE
    head.map_capacity = (page_size - TAIL_SIZE - at - _MAP_HEAD_SIZE) // _ENTRY_SIZE
    page_head(page).free_begin = at + _MAP_HEAD_SIZE


@kernel
def create_segment(area, space_id, obj_id, seg_type, pct_free):
    """A segment without data pages; answers its entry page."""
    entry_id = take_page(area, space_id)
    if entry_id < 0:
        return entry_id
    page = format_page(area, entry_id, obj_id, seg_type, _ENTRY_PAGE, ENTRY_MAP_AT)
    head = segment_head(page + SEGMENT_HEAD_AT)
    head.obj_id = obj_id
    head.create_no = page_head(page).page_create_no
    head.type = seg_type
    head.space_id = space_id
    head.last_map_page = entry_id
    head.first_data_page = NO_PAGE
    head.last_page = NO_PAGE
    head.pct_free = pct_free
    head.child_seg = NO_PAGE
    for i in range(FREE_LISTS + 2):
        _set_link(page + _LISTS_AT + i * _LIST_SIZE, NO_PAGE, 0, NO_PAGE)
        _set_link(page + _LISTS_AT + i * _LIST_SIZE + _LAST_AT, NO_PAGE, 0, NO_PAGE)
    _format_map(page, page_size_of(area, entry_id))
    return entry_id


# ---- free lists


@routine
def _write_neighbour(area, entry_id, entry_page, list_id, link_at, backwards, map_id, number, page_id):
    """Make the entry that ``link_at`` leads to, or the list head's end, lead to (map_id, number, page_id)."""
    neighbour = load_u32(link_at)
    if neighbour == NO_PAGE:
        at = entry_page + _LISTS_AT + list_id * _LIST_SIZE
        _set_link(at + _LAST_AT if backwards else at, map_id, number, page_id)
        return DONE
    page = touch_map(area, entry_id, neighbour)
    if page < 0:
        return page
    at = entry_address(page, map_link(link_at).offset)
    _set_link(at + _PRIOR_AT if backwards else at + _NEXT_AT, map_id, number, page_id)
    mark_dirty(area, neighbour)
    return DONE


@routine
def unlink_entry(area, entry_id, map_id, number):
    """Take a map entry off the list it is on, if any."""
    entry_page, map_page = touch_entry(area, entry_id), touch_map(area, entry_id, map_id)
    if entry_page < 0 or map_page < 0:
        return DAMAGED
    at = entry_address(map_page, number)
    entry = map_entry(at)
    list_id = entry.list_id
    if list_id == NO_LIST:
        return DONE
    prior, following = map_link(at + _PRIOR_AT), map_link(at + _NEXT_AT)
    status = _write_neighbour(
        area,
        entry_id,
        entry_page,
        list_id,
        at + _PRIOR_AT,
        False,
        following.map_page,
        following.offset,
        following.page_id,
    )
    if status == DONE:
        status = _write_neighbour(
            area, entry_id, entry_page, list_id, at + _NEXT_AT, True, prior.map_page, prior.offset, prior.page_id
        )
    entry.list_id = NO_LIST
    clear_links(at)
    change(area, map_id, map_page)
    mark_dirty(area, entry_id)
    return status


@routine
def link_entry(area, entry_id, map_id, number, list_id):
    """Put a map entry that is on no list at the head of one."""
    entry_page, map_page = touch_entry(area, entry_id), touch_map(area, entry_id, map_id)
    if entry_page < 0 or map_page < 0:
        return DAMAGED
    at = entry_address(map_page, number)
    page_id = map_entry(at).page_id
    list_at = entry_page + _LISTS_AT + list_id * _LIST_SIZE
    first = map_link(list_at)
    _set_link(at + _NEXT_AT, first.map_page, first.offset, first.page_id)
    _set_link(at + _PRIOR_AT, NO_PAGE, 0, NO_PAGE)
    status = _write_neighbour(area, entry_id, entry_page, list_id, list_at, True, map_id, number, page_id)
    _set_link(list_at, map_id, number, page_id)
    map_entry(at).list_id = list_id
    change(area, map_id, map_page)
    mark_dirty(area, entry_id)
    return status


@routine
def list_for_room(room, page_size):
    """The free list that a page belongs on that inserts may put ``room`` bytes into; NO_LIST if too little."""
    step = room * ROOM_STEPS // (page_size - ROWS_AT - TAIL_SIZE)
    return NO_LIST if step < 1 else min(step, FREE_LISTS) - 1


@routine
def relist_page(area, entry_id, page, list_id):
    """Move a data page to another free list."""
    head = page_head(page)
    if list_id + 1 == head.fl_flag or (list_id == NO_LIST and head.fl_flag == 0):
        return DONE
    map_id, number = head.map_page_id, head.map_offset
    status = unlink_entry(area, entry_id, map_id, number)
    if status == DONE and list_id != NO_LIST:
        status = link_entry(area, entry_id, map_id, number, list_id)
    head.fl_flag = 0 if list_id == NO_LIST else list_id + 1
    mark_dirty(area, head.page_id)
    return status


# ---- growing and shrinking


@routine
def chain_map_page(area, entry_id, entry_page, page, map_id, last_page):
    """Make a freshly formatted page the segment's last map page."""
    segment = segment_head(entry_page + SEGMENT_HEAD_AT)
    _format_map(page, page_size_of(area, map_id))
    map_head(page + FURTHER_MAP_AT).prior = segment.last_map_page
    map_head(last_page + map_at(last_page)).next = map_id
    change(area, segment.last_map_page, last_page)
    segment.last_map_page = map_id
    segment.last_map_page_full = 0
    change(area, entry_id, entry_page)


@routine
def _add_map_page(area, entry_id, entry_page):
    """Chain one more map page to the segment; answers its id."""
    segment = segment_head(entry_page + SEGMENT_HEAD_AT)
    last_id = segment.last_map_page
    last_page = touch_map(area, entry_id, last_id)
    if last_page < 0:
        return last_page
    map_id = take_page(area, segment.space_id)
    if map_id < 0:
        return map_id
    page = format_page(area, map_id, segment.obj_id, segment.type, _MAP_PAGE, FURTHER_MAP_AT)
    chain_map_page(area, entry_id, entry_page, page, map_id, last_page)
    return map_id


@routine
def _free_entry(area, entry_id, entry_page):
    """A map entry to use, as map page << 16 | number: one that was freed, or the next new one."""
    freed = map_link(entry_page + _LISTS_AT + FREE_MAP_LIST * _LIST_SIZE)
    if freed.map_page != NO_PAGE:
        map_id, number = freed.map_page, freed.offset
        status = unlink_entry(area, entry_id, map_id, number)
        return status if status < 0 else map_id << 16 | number
    segment = segment_head(entry_page + SEGMENT_HEAD_AT)
    map_id = segment.last_map_page
    map_page = touch_map(area, entry_id, map_id)
    if map_page < 0:
        return map_page
    head = map_head(map_page + map_at(map_page))
    if head.map_count == head.map_capacity:
        map_id = _add_map_page(area, entry_id, entry_page)
        if map_id < 0:
            return map_id
        map_page = touch_map(area, entry_id, map_id)
        head = map_head(map_page + FURTHER_MAP_AT)
    number = head.map_count
    head.map_count = number + 1
    page_head(map_page).free_begin += _ENTRY_SIZE
    if head.map_count == head.map_capacity:
        segment.last_map_page_full = 1
    map_entry(entry_address(map_page, number)).list_id = NO_LIST
    return map_id << 16 | number


@routine
def add_page(area, entry_id):
    """A new data page, formatted but for its node head and on no free list; answers its id."""
    entry_page = touch_entry(area, entry_id)
    if entry_page < 0:
        return entry_page
    segment = segment_head(entry_page + SEGMENT_HEAD_AT)
    if pages_available(area, segment.space_id) < 2:  # a map page may be needed too: take both or none
        return NEED_SPACE
    place = _free_entry(area, entry_id, entry_page)
    if place < 0:
        return place
    map_id, number = place >> 16, place & 0xFFFF
    page_id = take_page(area, segment.space_id)
    if page_id < 0:
        return page_id
    page = format_page(area, page_id, segment.obj_id, segment.type, _DATA_PAGE, HEAD_SIZE)
    head = page_head(page)
    head.map_page_id = map_id
    head.map_offset = number
    map_page = touch_map(area, entry_id, map_id)
    entry = map_entry(entry_address(map_page, number))
    entry.page_id = page_id
    entry.list_id = NO_LIST
    clear_links(entry_address(map_page, number))
    change(area, map_id, map_page)
    if segment.first_data_page == NO_PAGE:
        segment.first_data_page = page_id
    segment.last_page = page_id
    segment.page_count += 1
    change(area, entry_id, entry_page)
    return page_id


@kernel
def read_map(area, entry_id, ids, capacity):
    """Write the ids of the segment's data pages, in map order; answers how many there are.

    Counts on past ``capacity`` without writing, so that a caller can ask for the number first.
    """
    count = 0
    map_id = entry_id
    while map_id != NO_PAGE:
        page = touch_map(area, entry_id, map_id)
        if page < 0:
            return page
        head = map_head(page + map_at(page))
        for number in range(head.map_count):
            page_id = map_entry(entry_address(page, number)).page_id
            if page_id != NO_PAGE:
                if count < capacity:
                    store_32(ids + 4 * count, page_id)
                count += 1
        map_id = head.next
    return count


@kernel
def drop_segment(area, entry_id):
    """Give every page of the segment back to its tablespace, the entry page last."""
    entry_page = touch_entry(area, entry_id)
    if entry_page < 0:
        return entry_page
    space_id = segment_head(entry_page + SEGMENT_HEAD_AT).space_id
    map_id = segment_head(entry_page + SEGMENT_HEAD_AT).last_map_page
    while True:
        page = touch_map(area, entry_id, map_id)
        if page < 0:
            return page
        head = map_head(page + map_at(page))
        prior = head.prior
        for number in range(head.map_count - 1, -1, -1):  # so that the list hands them out in ascending order
            page_id = map_entry(entry_address(page, number)).page_id
            if page_id != NO_PAGE:
                give_page_back(area, space_id, page_id)
        give_page_back(area, space_id, map_id)
        if map_id == entry_id:
            return DONE
        map_id = prior


@routine
def _first_page(area, entry_id):
    """The first data page in map order; NO_PAGE if the segment has none."""
    map_id = entry_id
    while map_id != NO_PAGE:
        page = touch_map(area, entry_id, map_id)
        if page < 0:
            return NO_PAGE
        head = map_head(page + map_at(page))
        for number in range(head.map_count):
            if map_entry(entry_address(page, number)).page_id != NO_PAGE:
                return map_entry(entry_address(page, number)).page_id
        map_id = head.next
    return NO_PAGE


@kernel
def release_page(area, entry_id, page_id):
    """Take an empty data page out of the segment and give it back to the tablespace."""
    page = touch_type(area, page_id, _DATA_PAGE, 0)
    entry_page = touch_entry(area, entry_id)
    if page < 0 or entry_page < 0:
        return DAMAGED
    map_id, number = page_head(page).map_page_id, page_head(page).map_offset
    status = unlink_entry(area, entry_id, map_id, number)
    if status < 0:
        return status
    map_page = touch_map(area, entry_id, map_id)
    map_entry(entry_address(map_page, number)).page_id = NO_PAGE
    status = link_entry(area, entry_id, map_id, number, FREE_MAP_LIST)
    segment = segment_head(entry_page + SEGMENT_HEAD_AT)
    segment.page_count -= 1
    if segment.first_data_page == page_id:
        segment.first_data_page = _first_page(area, entry_id)
    if segment.last_page == page_id:
        segment.last_page = NO_PAGE
    change(area, entry_id, entry_page)
    give_page_back(area, segment.space_id, page_id)
    return status


@routine
def first_on_list(entry_page, list_id):
    """The first page of a list; NO_PAGE if it is empty."""
    return map_link(entry_page + _LISTS_AT + list_id * _LIST_SIZE).page_id


@routine
def page_with_room(entry_page, need, page_size):
    """A listed page that surely takes ``need`` bytes; NO_PAGE if there is none."""
    usable = page_size - ROWS_AT - TAIL_SIZE
    steps = (need * ROOM_STEPS + usable - 1) // usable
    for list_id in range(max(steps, 1) - 1, FREE_LISTS):
        page_id = first_on_list(entry_page, list_id)
        if page_id != NO_PAGE:
            return page_id
    return first_on_list(entry_page, EMPTY_LIST)
