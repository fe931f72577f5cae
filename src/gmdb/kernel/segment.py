"""Segments: creating, growing, giving pages back, dropping.

Invariants
 1. Every data page is in exactly one map entry, and names it (map_page_id, map_offset).
Not here: which page has room (free_lists.py).
"""

from __future__ import annotations

from gmdb.format.address import NO_PAGE
from gmdb.format.page import HEAD_SIZE, PAGE_HEAD, TAIL_SIZE, PageType
from gmdb.format.segment import (
    ENTRY_MAP_AT,
    FREE_LISTS,
    FREE_MAP_LIST,
    FURTHER_MAP_AT,
    LOADING,
    MAP_ENTRY,
    MAP_HEAD,
    NO_LIST,
    SEGMENT_HEAD,
    SEGMENT_HEAD_AT,
)
from gmdb.kernel.area import (
    change,
    damaged,
    page_head,
    page_size_of,
    pages_at_most,
    segment_head,
    touch,
)
from gmdb.kernel.compiler import kernel, routine
from gmdb.kernel.free_lists import (
    LAST_AT,
    LIST_SIZE,
    LISTS_AT,
    clear_links,
    entry_address,
    link_entry,
    log_entry,
    map_at,
    map_entry,
    map_head,
    map_link,
    names_page,
    set_link,
    touch_entry,
    touch_map,
    unlink_entry,
)
from gmdb.kernel.memory import move_bytes, store_32
from gmdb.kernel.pages import count_segment, format_page, give_page_back, page_in_use, pages_available, take_page
from gmdb.kernel.redo import log_bytes, log_counts
from gmdb.kernel.status import DAMAGED, DONE, NEED_SPACE

_ENTRY_PAGE, _MAP_PAGE, _DATA_PAGE = int(PageType.SEGMENT_ENTRY), int(PageType.MAP), int(PageType.DATA)
_ENTRY_SIZE, _MAP_HEAD_SIZE = MAP_ENTRY.size, MAP_HEAD.size
_FIELDS_AT = SEGMENT_HEAD_AT + SEGMENT_HEAD.offset("last_map_page")
_FIELDS_SIZE = SEGMENT_HEAD_AT + SEGMENT_HEAD.offset("free_lists[0].first.map_page") - _FIELDS_AT
_NAME_AT, NAME_SIZE = SEGMENT_HEAD_AT + SEGMENT_HEAD.offset("obj_name"), 64
_MAP_PLACE_AT, _MAP_PLACE_SIZE = PAGE_HEAD.offset("map_page_id"), 6


@routine
def log_segment(area, entry_page):
    """Count and log a change of the segment's counts and ends."""
    change(area, entry_page)
    log_bytes(area, entry_page, _FIELDS_AT, _FIELDS_SIZE)


@routine
def log_map_head(area, map_page):
    """Count and log a change of a map page's head, and where its entries end."""
    change(area, map_page)
    log_bytes(area, map_page, map_at(map_page), _MAP_HEAD_SIZE)
    log_counts(area, map_page)


@routine
def _format_map(page, page_size):
    at = map_at(page)
    head = map_head(page + at)
    head.prior = NO_PAGE
    head.next = NO_PAGE
    head.map_capacity = (page_size - TAIL_SIZE - at - _MAP_HEAD_SIZE) // _ENTRY_SIZE
    page_head(page).free_begin = at + _MAP_HEAD_SIZE


@routine
def make_segment(area, space_id, obj_id, seg_type, pct_free, name):
    """A segment without data pages, called by the 64 bytes at ``name``; answers its entry page."""
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
    move_bytes(page + _NAME_AT, name, NAME_SIZE)
    for i in range(FREE_LISTS + 2):
        set_link(page + LISTS_AT + i * LIST_SIZE, NO_PAGE, 0, NO_PAGE)
        set_link(page + LISTS_AT + i * LIST_SIZE + LAST_AT, NO_PAGE, 0, NO_PAGE)
    _format_map(page, page_size_of(area, entry_id))
    log_bytes(area, page, SEGMENT_HEAD_AT, ENTRY_MAP_AT - SEGMENT_HEAD_AT + _MAP_HEAD_SIZE)
    log_counts(area, page)
    count_segment(area, space_id, 1)
    return entry_id


@routine
def chain_map_page(area, entry_page, page, map_id, last_page):
    """Make a freshly formatted page the segment's last map page."""
    segment = segment_head(entry_page + SEGMENT_HEAD_AT)
    _format_map(page, page_size_of(area, map_id))
    map_head(page + FURTHER_MAP_AT).prior = segment.last_map_page
    log_map_head(area, page)
    map_head(last_page + map_at(last_page)).next = map_id
    log_map_head(area, last_page)
    segment.last_map_page = map_id
    segment.last_map_page_full = 0
    log_segment(area, entry_page)


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
    chain_map_page(area, entry_page, page, map_id, last_page)
    return map_id


@routine
def _free_entry(area, entry_id, entry_page):
    """A map entry to use, as map page << 16 | number: one that was freed, or the next new one."""
    freed = map_link(entry_page + LISTS_AT + FREE_MAP_LIST * LIST_SIZE)
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
    log_map_head(area, map_page)
    if head.map_count == head.map_capacity:
        segment.last_map_page_full = 1
    map_entry(entry_address(map_page, number)).list_id = NO_LIST
    return map_id << 16 | number


@routine
def space_of_segment(area, entry_id):
    """The tablespace that a segment's pages come from; its entry page is sound."""
    return segment_head(touch_entry(area, entry_id) + SEGMENT_HEAD_AT).space_id


@routine
def _next_page(area, entry_id, map_id, first):
    """The data page that is listed next in map order, from entry ``first`` of a map page on; NO_PAGE if none is."""
    for _ in range(pages_at_most(area)):
        if map_id == NO_PAGE:
            break
        page = touch_map(area, entry_id, map_id)
        if page < 0:
            return NO_PAGE
        head = map_head(page + map_at(page))
        for number in range(first, head.map_count):
            if map_entry(entry_address(page, number)).page_id != NO_PAGE:
                return map_entry(entry_address(page, number)).page_id
        map_id, first = head.next, 0
    return NO_PAGE


@routine
def _comes_first(area, entry_id, map_id, number, first):
    """Whether a map entry lies before that of the segment's first data page, ``first``."""
    page, entry_page = touch(area, first), touch_entry(area, entry_id)
    own = page > 0 and page_head(page).obj_id == page_head(entry_page).obj_id
    if not own or page_head(page).page_type != _DATA_PAGE:  # a bulk load is still writing it: only the map knows
        return _next_page(area, entry_id, entry_id, 0) != first
    at, place = page_head(page).map_page_id, page_head(page).map_offset
    if at == map_id:
        return number < place
    if map_id == segment_head(entry_page + SEGMENT_HEAD_AT).last_map_page:
        return False
    following = entry_id
    for _ in range(pages_at_most(area)):
        if following == NO_PAGE or following == at:
            break
        if following == map_id:
            return True
        map_page = touch_map(area, entry_id, following)
        if map_page < 0:
            return False
        following = map_head(map_page + map_at(map_page)).next
    return False


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
    log_bytes(area, page, _MAP_PLACE_AT, _MAP_PLACE_SIZE)
    map_page = touch_map(area, entry_id, map_id)
    entry = map_entry(entry_address(map_page, number))
    entry.page_id = page_id
    entry.list_id = NO_LIST
    clear_links(entry_address(map_page, number))
    log_entry(area, map_page, number)
    first = segment.first_data_page
    if first == NO_PAGE or _comes_first(area, entry_id, map_id, number, first):  # the entry may have been freed
        segment.first_data_page = page_id
    segment.last_page = page_id
    segment.page_count += 1
    log_segment(area, entry_page)
    return page_id


@kernel
def read_map(area, entry_id, ids, capacity):
    """Write the ids of the segment's data pages, in map order; answers how many there are.

    Counts on past ``capacity`` without writing, so that a caller can ask for the number first.
    """
    count, map_id, pages_max = 0, entry_id, pages_at_most(area)
    for _ in range(pages_max):
        if map_id == NO_PAGE:
            return count
        if count > pages_max:
            break
        page = touch_map(area, entry_id, map_id)
        if page < 0:
            return page
        head = map_head(page + map_at(page))
        for number in range(head.map_count):
            entry = map_entry(entry_address(page, number))
            if entry.page_id != NO_PAGE and entry.list_id != LOADING:
                if count < capacity:
                    store_32(ids + 4 * count, entry.page_id)
                count += 1
        map_id = head.next
    return damaged(area, entry_id)  # the map leads round in a circle


@routine
def _drop_entries(area, space_id, map_page, limit):
    """Give back up to ``limit`` of the last pages that a map page lists, and forget their entries."""
    head = map_head(map_page + map_at(map_page))
    while limit > 0 and head.map_count > 0:
        head.map_count -= 1
        page_head(map_page).free_begin -= _ENTRY_SIZE
        page_id = map_entry(entry_address(map_page, head.map_count)).page_id
        if page_id != NO_PAGE:  # backwards, so that the list of free pages hands them out in ascending order
            give_page_back(area, space_id, page_id)
        limit -= 1
    log_map_head(area, map_page)
    return limit


@routine
def drop_some(area, obj_id, entry_id, limit):
    """Give up to ``limit`` pages of a segment that nobody uses back to its tablespace, the entry page last.

    Answers 1 if there are more, 0 once it is gone.  A segment that is half dropped is good for nothing else.
    """
    entry_page = touch(area, entry_id)
    if entry_page < 0:
        return entry_page
    segment = segment_head(entry_page + SEGMENT_HEAD_AT)
    if page_head(entry_page).page_type != _ENTRY_PAGE or page_head(entry_page).obj_id != obj_id:
        return 0
    space_id = segment.space_id
    for _ in range(limit):
        map_id = segment.last_map_page
        map_page = touch_map(area, entry_id, map_id)
        if map_page < 0:
            return map_page
        if not page_in_use(area, map_id):
            return damaged(area, map_id)  # it would not be given back, and turn up again and again
        limit = _drop_entries(area, space_id, map_page, limit)
        if limit == 0:
            break
        prior = map_head(map_page + map_at(map_page)).prior
        give_page_back(area, space_id, map_id)
        if map_id == entry_id:
            count_segment(area, space_id, -1)
            return 0
        segment.last_map_page = prior
        log_segment(area, entry_page)
    return 1


@routine
def _release_entry(area, entry_id, map_id, number):
    """Free a map entry, and give its page back to the tablespace."""
    entry_page, map_page = touch_entry(area, entry_id), touch_map(area, entry_id, map_id)
    if entry_page < 0 or map_page < 0:
        return DAMAGED
    status = unlink_entry(area, entry_id, map_id, number)
    if status < 0:
        return status
    entry = map_entry(entry_address(map_page, number))
    page_id = entry.page_id
    entry.page_id = NO_PAGE
    status = link_entry(area, entry_id, map_id, number, FREE_MAP_LIST)
    segment = segment_head(entry_page + SEGMENT_HEAD_AT)
    segment.page_count -= 1
    if segment.first_data_page == page_id:
        segment.first_data_page = _next_page(area, entry_id, map_id, number + 1)
    if segment.last_page == page_id:
        segment.last_page = NO_PAGE
    log_segment(area, entry_page)
    give_page_back(area, segment.space_id, page_id)
    return status


@routine
def release_page(area, entry_id, page_id):
    """Take a data page out of the segment and give it back to the tablespace."""
    page = touch(area, page_id)
    if page < 0:
        return damaged(area, page_id)
    map_id, number = page_head(page).map_page_id, page_head(page).map_offset
    if page_head(page).page_type != _DATA_PAGE or not names_page(area, entry_id, map_id, number, page_id):
        return damaged(area, page_id)
    return _release_entry(area, entry_id, map_id, number)


@routine
def _is_map(area, entry_id, map_id):
    page = touch(area, map_id)
    return page > 0 and (page_head(page).page_type == _MAP_PAGE or map_id == entry_id)


@routine
def release_listed(area, entry_id, map_id, number, page_id):
    """Release a page that may never have been written, so that only the map knows it."""
    is_listed = _is_map(area, entry_id, map_id) and names_page(area, entry_id, map_id, number, page_id)
    return _release_entry(area, entry_id, map_id, number) if is_listed else DONE
