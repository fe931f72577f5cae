"""Segments: creating, growing, giving pages back, dropping.

Invariants
 1. Every data page is in exactly one map entry, and names it (map_page_id, map_offset).
"""

from __future__ import annotations

from gmdb.format.address import NO_PAGE
from gmdb.format.heap import ROWS_AT
from gmdb.format.page import HEAD_SIZE, PAGE_HEAD, TAIL_SIZE, PageType
from gmdb.format.segment import (
    EMPTY_LIST,
    ENTRY_MAP_AT,
    FREE_LISTS,
    FREE_MAP_LIST,
    FURTHER_MAP_AT,
    LIST_HEAD,
    LOADING,
    MAP_ENTRY,
    MAP_HEAD,
    MAP_LINK,
    NO_LIST,
    ROOM_STEPS,
    SEGMENT_HEAD,
    SEGMENT_HEAD_AT,
)
from gmdb.kernel.page.allocation import (
    count_segment,
    format_page,
    give_page_back,
    page_in_use,
    pages_available,
    take_page,
)
from gmdb.kernel.page.area import (
    change,
    damaged,
    page_head,
    page_size_of,
    pages_at_most,
    segment_head,
    touch,
    touch_type,
)
from gmdb.kernel.page.redo import log_bytes, log_counts, log_list
from gmdb.kernel.places import page_of, place_of, slot_of
from gmdb.kernel.runtime.compiler import kernel, routine
from gmdb.kernel.runtime.memory import load_u32, move_bytes, records, store_32
from gmdb.kernel.runtime.status import DAMAGED, DONE, NEED_SPACE

# ---- Map entries, and the free lists that link them.
#
# Invariants
#  1. A page on free list n has room for (n + 1) / 16 of its usable bytes beside what pct_free keeps.
#  2. ``fl_flag`` in the page head and ``list_id`` in its map entry name the same list.

map_entry = records(MAP_ENTRY)
map_link = records(MAP_LINK)
map_head = records(MAP_HEAD)
_ENTRY_PAGE, _MAP_PAGE = int(PageType.SEGMENT_ENTRY), int(PageType.MAP)
_ENTRY_SIZE, _MAP_HEAD_SIZE = MAP_ENTRY.size, MAP_HEAD.size
_PRIOR_AT, _NEXT_AT = MAP_ENTRY.offset("prior.map_page"), MAP_ENTRY.offset("next.map_page")
LISTS_AT = SEGMENT_HEAD_AT + SEGMENT_HEAD.offset("free_lists[0].first.map_page")
LIST_SIZE = LIST_HEAD.size
LAST_AT = LIST_HEAD.offset("last.map_page")


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
def has_entry(map_page, number):
    """Whether a map page has an entry of that number; what leads to one, on another page, may not be true."""
    return number < map_head(map_page + map_at(map_page)).map_count


@routine
def set_link(at, map_id, number, page_id):
    link = map_link(at)
    link.map_page = map_id
    link.offset = number
    link.page_id = page_id


@routine
def log_entry(area, map_page, number):
    """Count and log a change of a map entry."""
    change(area, map_page)
    log_bytes(area, map_page, entry_address(map_page, number) - map_page, _ENTRY_SIZE)


@routine
def _log_list_head(area, entry_page, list_id):
    change(area, entry_page)
    log_bytes(area, entry_page, LISTS_AT + list_id * LIST_SIZE, LIST_SIZE)


@routine
def clear_links(entry_at):
    """A map entry that is on no list leads nowhere."""
    set_link(entry_at + _PRIOR_AT, NO_PAGE, 0, NO_PAGE)
    set_link(entry_at + _NEXT_AT, NO_PAGE, 0, NO_PAGE)


@routine
def _write_neighbour(area, entry_id, entry_page, list_id, link_at, backwards, map_id, number, page_id):
    """Make the entry that ``link_at`` leads to, or the list head's end, lead to (map_id, number, page_id)."""
    neighbour = load_u32(link_at)
    if neighbour == NO_PAGE:
        at = entry_page + LISTS_AT + list_id * LIST_SIZE
        set_link(at + LAST_AT if backwards else at, map_id, number, page_id)
        _log_list_head(area, entry_page, list_id)
        return DONE
    page = touch_map(area, entry_id, neighbour)
    if page < 0:
        return page
    other = map_link(link_at).offset
    if not has_entry(page, other):
        return damaged(area, neighbour)
    at = entry_address(page, other)
    set_link(at + _PRIOR_AT if backwards else at + _NEXT_AT, map_id, number, page_id)
    log_entry(area, page, other)
    return DONE


@routine
def names_page(area, entry_id, map_id, number, page_id):
    """Whether a map entry exists and lists the page."""
    page = touch_map(area, entry_id, map_id)
    return page > 0 and has_entry(page, number) and map_entry(entry_address(page, number)).page_id == page_id


@routine
def unlink_entry(area, entry_id, map_id, number):
    """Take a map entry off the list it is on, if any."""
    entry_page, map_page = touch_entry(area, entry_id), touch_map(area, entry_id, map_id)
    if entry_page < 0 or map_page < 0:
        return DAMAGED
    if not has_entry(map_page, number):
        return damaged(area, map_id)
    at = entry_address(map_page, number)
    entry = map_entry(at)
    list_id = entry.list_id
    if list_id == NO_LIST or list_id == LOADING:
        entry.list_id = NO_LIST
        log_entry(area, map_page, number)
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
    log_entry(area, map_page, number)
    return status


@routine
def link_entry(area, entry_id, map_id, number, list_id):
    """Put a map entry that is on no list at the head of one."""
    entry_page, map_page = touch_entry(area, entry_id), touch_map(area, entry_id, map_id)
    if entry_page < 0 or map_page < 0:
        return DAMAGED
    if not has_entry(map_page, number):
        return damaged(area, map_id)
    at = entry_address(map_page, number)
    page_id = map_entry(at).page_id
    list_at = entry_page + LISTS_AT + list_id * LIST_SIZE
    first = map_link(list_at)
    set_link(at + _NEXT_AT, first.map_page, first.offset, first.page_id)
    set_link(at + _PRIOR_AT, NO_PAGE, 0, NO_PAGE)
    status = _write_neighbour(area, entry_id, entry_page, list_id, list_at, True, map_id, number, page_id)
    set_link(list_at, map_id, number, page_id)
    _log_list_head(area, entry_page, list_id)
    map_entry(at).list_id = list_id
    log_entry(area, map_page, number)
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
    if not names_page(area, entry_id, map_id, number, head.page_id):
        return damaged(area, head.page_id)
    status = unlink_entry(area, entry_id, map_id, number)
    if status == DONE and list_id != NO_LIST:
        status = link_entry(area, entry_id, map_id, number, list_id)
    head.fl_flag = 0 if list_id == NO_LIST else list_id + 1
    change(area, page)
    log_list(area, page)
    return status


@routine
def first_on_list(entry_page, list_id):
    """The first page of a list; NO_PAGE if it is empty."""
    return map_link(entry_page + LISTS_AT + list_id * LIST_SIZE).page_id


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


# ---- Segments.

_DATA_PAGE = int(PageType.DATA)

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
    """A segment without data pages, with the name in the 64 bytes at ``name``; returns its entry page."""
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
    """Chain one more map page to the segment; returns its id."""
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
    """A map entry to use, as the place of its map page and number: one that was freed, or the next new one."""
    freed = map_link(entry_page + LISTS_AT + FREE_MAP_LIST * LIST_SIZE)
    if freed.map_page != NO_PAGE:
        map_id, number = freed.map_page, freed.offset
        status = unlink_entry(area, entry_id, map_id, number)
        return status if status < 0 else place_of(map_id, number)
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
    return place_of(map_id, number)


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
def add_page(area, entry_id, seg_type):
    """Add a data page, formatted but for its node head and on no free list; returns its address.

    DAMAGED if the segment's head says that its pages are not of type ``seg_type``; 0 stands for any.
    """
    entry_page = touch_entry(area, entry_id)
    if entry_page < 0:
        return entry_page
    segment = segment_head(entry_page + SEGMENT_HEAD_AT)
    if pages_available(area, segment.space_id) < 2:  # a map page may be needed too: take both or none
        return NEED_SPACE
    place = _free_entry(area, entry_id, entry_page)
    if place < 0:
        return place
    map_id, number = page_of(place), slot_of(place)
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
    return damaged(area, page_id) if seg_type and head.seg_type != seg_type else page


@kernel
def read_map(area, entry_id, ids, capacity):
    """Write the ids of the segment's data pages, in map order; returns how many there are.

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

    Returns 1 if there are more, 0 once it is gone.  A segment that is half dropped can only be dropped further.
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
            return damaged(area, map_id)  # it could not be given back, and this loop would come to it again
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
