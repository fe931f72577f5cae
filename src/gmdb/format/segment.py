"""Segments: the entry page with the segment head, and the map pages that list a segment's data pages.

Invariants
 1. The entry page holds the first map entries; further map pages are chained both ways from its map head.
 2. An entry is in use if it names a page; unused ones are linked into ``free_map_list``.
 3. The entry of a page on a free list says which (``list_id``) and links to its neighbours in that list.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gmdb.format.address import NO_PAGE, page_name
from gmdb.format.layout import Finding, Region, layout
from gmdb.format.page import HEAD_SIZE, PAGE_HEAD, TAIL_SIZE, PageType

FREE_LISTS = 14
NO_LIST = 0xFF
LOADING = 0xFE
EMPTY_LIST = FREE_LISTS
FREE_MAP_LIST = FREE_LISTS + 1
ROOM_STEPS = 16  # list n holds pages that an insert may put (n + 1) / 16 of the usable bytes into
DEFAULT_PCT_FREE = 25

MAP_LINK = layout(
    "map link",
    12,
    map_page=("<u4", "map page of the entry that is linked to; none = 0xFFFFFFFF"),
    offset=("<u2", "its number in that map page"),
    reserved=("<u2", "0"),
    page_id=("<u4", "the data page it lists"),
)

LIST_HEAD = layout(
    "list head",
    24,
    first=(MAP_LINK, "first entry of the list"),
    last=(MAP_LINK, "last entry of the list"),
)

SEGMENT_HEAD = layout(
    "segment head",
    560,
    schema_id=("<u4", "owner's schema; 0"),
    obj_id=("<u4", "the table, index or undo log"),
    obj_name=("S64", "its name when it was created, for people reading dumps"),
    create_no=("<u4", "how often the entry page was formatted"),
    type=("<u4", "kind of segment: see SegmentType"),
    space_id=("<u4", "tablespace that the pages come from"),
    last_map_page=("<u4", "last of the chained map pages"),
    last_map_page_full=("<u4", "1: the last map page has no entry left"),
    first_data_page=("<u4", "page of the first map entry; none = 0xFFFFFFFF"),
    last_page=("<u4", "data page that was added last, where inserts try first; none = 0xFFFFFFFF"),
    page_count=("<u4", "data pages"),
    free_lists=((LIST_HEAD, FREE_LISTS), "pages by the room that inserts may use"),
    empty_list=(LIST_HEAD, "pages without any row"),
    free_map_list=(LIST_HEAD, "map entries that list no page"),
    min_list_id=("u1", "unused; 0"),
    pct_free=("u1", "per cent of a page that inserts leave for updates"),
    reserve=("2u1", "0"),
    reserve2=("64u1", "of an index: its index head; else 0"),
    child_seg=("<u4", "entry page of a segment that belongs to this one; none = 0xFFFFFFFF"),
)

MAP_HEAD = layout(
    "map head",
    12,
    prior=("<u4", "map page before this one; none = 0xFFFFFFFF"),
    next=("<u4", "map page after this one; none = 0xFFFFFFFF"),
    map_count=("<u2", "entries that were ever used"),
    map_capacity=("<u2", "entries that the page has room for"),
)

MAP_ENTRY = layout(
    "map entry",
    32,
    page_id=("<u4", "the data page; none = 0xFFFFFFFF"),
    list_id=(
        "u1",
        "free list it is on: 0–13, 14 empty, 15 unused entry, 254 a page that a bulk load is still writing, 255 none",
    ),
    reserved=("3u1", "0"),
    prior=(MAP_LINK, "entry before it in that list"),
    next=(MAP_LINK, "entry after it in that list"),
)

SEGMENT_HEAD_AT = HEAD_SIZE
ENTRY_MAP_AT = HEAD_SIZE + SEGMENT_HEAD.size
FURTHER_MAP_AT = HEAD_SIZE
PROGRAM_SIZE_AT = SEGMENT_HEAD_AT + SEGMENT_HEAD.offset("reserve2") + 62  # on entry pages; see the index head
PROGRAM_ENTRIES = 32  # fewer map entries on the entry page of an index with a key program, which lies there instead
PROGRAM_ROOM = PROGRAM_ENTRIES * MAP_ENTRY.size


def map_capacity(page_size: int, is_entry_page: bool) -> int:
    """235 entries in an 8 KiB entry page, 252 in a further map page; fewer beside a key program."""
    head = ENTRY_MAP_AT if is_entry_page else FURTHER_MAP_AT
    return (page_size - head - TAIL_SIZE - MAP_HEAD.size) // MAP_ENTRY.size


def map_room(page: Any) -> int:
    """How many entries a map page has room for."""
    is_entry_page = map_head_at(page) == ENTRY_MAP_AT
    has_program = is_entry_page and any(memoryview(page)[PROGRAM_SIZE_AT : PROGRAM_SIZE_AT + 2])
    return map_capacity(len(memoryview(page)), is_entry_page) - (PROGRAM_ENTRIES if has_program else 0)


def map_head_at(page: Any) -> int:
    """Where the map head lies: behind the segment head on an entry page, behind the page head on others."""
    return ENTRY_MAP_AT if PAGE_HEAD.at(page).page_type == PageType.SEGMENT_ENTRY else FURTHER_MAP_AT


def map_entry_at(page: Any, number: int) -> int:
    return map_head_at(page) + MAP_HEAD.size + number * MAP_ENTRY.size


def mapped_pages(page: Any) -> list[int]:
    """The data pages that a map page lists, in order.  Trusts ``map_count`` only as far as the page reaches."""
    count = min(MAP_HEAD.at(page, map_head_at(page)).map_count, map_room(page))
    ids = [MAP_ENTRY.at(page, map_entry_at(page, i)).page_id for i in range(count)]
    return [page_id for page_id in ids if page_id != NO_PAGE]


def regions(page: Any) -> Iterator[Region]:
    at = map_head_at(page)
    if at == ENTRY_MAP_AT:
        yield from SEGMENT_HEAD.regions(page, SEGMENT_HEAD_AT, "segment.")
    yield from MAP_HEAD.regions(page, at, "map.")
    for i in range(min(MAP_HEAD.at(page, at).map_count, map_room(page))):
        yield from MAP_ENTRY.regions(page, map_entry_at(page, i), f"entries[{i}].")


def check(page: Any) -> Iterator[Finding]:
    at, room = map_head_at(page), map_room(page)
    head = MAP_HEAD.at(page, at)
    if PAGE_HEAD.at(page).data_begin != at:
        yield Finding(PAGE_HEAD.offset("data_begin"), f"data_begin should be {at}")
    if head.map_capacity != room:
        yield Finding(at + MAP_HEAD.offset("map_capacity"), f"map_capacity {head.map_capacity} should be {room}")
    if head.map_count > room:
        yield Finding(at + MAP_HEAD.offset("map_count"), f"map_count {head.map_count} is over the capacity, {room}")
    seen: set[int] = set()
    for i in range(min(head.map_count, room)):
        entry_at = map_entry_at(page, i)
        entry = MAP_ENTRY.at(page, entry_at)
        page_id = entry.page_id
        if entry.list_id > FREE_MAP_LIST and entry.list_id not in (LOADING, NO_LIST):
            yield Finding(entry_at + MAP_ENTRY.offset("list_id"), f"entry {i}: no list has the id {entry.list_id}")
        if (page_id == NO_PAGE) != (entry.list_id == FREE_MAP_LIST):
            yield Finding(entry_at, f"entry {i}: page {page_name(page_id)} on list {entry.list_id}")
        if page_id != NO_PAGE and page_id in seen:
            yield Finding(entry_at, f"entry {i}: page {page_name(page_id)} is listed twice")
        seen.add(page_id)
