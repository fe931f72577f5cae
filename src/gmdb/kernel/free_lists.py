"""Map entries, and the free lists that link them.

Invariants
 1. A page on free list n has room for (n + 1) / 16 of its usable bytes beside what pct_free keeps.
 2. ``fl_flag`` in the page head and ``list_id`` in its map entry name the same list.
"""

from __future__ import annotations

from gmdb.format.address import NO_PAGE
from gmdb.format.heap import ROWS_AT
from gmdb.format.page import TAIL_SIZE, PageType
from gmdb.format.segment import (
    EMPTY_LIST,
    ENTRY_MAP_AT,
    FREE_LISTS,
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
from gmdb.kernel.area import change, damaged, page_head, touch_type
from gmdb.kernel.compiler import routine
from gmdb.kernel.memory import load_u32, records
from gmdb.kernel.redo import log_bytes, log_list
from gmdb.kernel.status import DAMAGED, DONE

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
