"""Segment heads and maps: lists by their ends, map entries one line each."""

from __future__ import annotations

from collections.abc import Iterator

from gmdb.format.address import NO_PAGE, page_name
from gmdb.format.layout import Record
from gmdb.format.segment import (
    EMPTY_LIST,
    ENTRY_MAP_AT,
    FREE_LISTS,
    FREE_MAP_LIST,
    MAP_ENTRY,
    MAP_HEAD,
    MAP_LINK,
    NO_LIST,
    SEGMENT_HEAD,
    SEGMENT_HEAD_AT,
    map_capacity,
    map_entry_at,
    map_head_at,
)
from gmdb.inspect.canvas import RULE, Line, section_line
from gmdb.inspect.draw_fields import field_line, field_lines

_LIST_NAMES = {EMPTY_LIST: "empty", FREE_MAP_LIST: "unused", NO_LIST: "none"}


def segment_head_lines(page: bytes) -> Iterator[Line]:
    section, drawn = "segment head", set()
    for region in SEGMENT_HEAD.regions(page, SEGMENT_HEAD_AT):
        outer = region.name.partition(".")[0]
        if outer == region.name:
            yield field_line(region, section)
        elif outer not in drawn:
            drawn.add(outer)
            yield section_line(region.offset, section, outer, _ends(page, region.offset))
        section = ""


def _ends(page: bytes, at: int) -> str:
    """A list by its first and last entry."""
    first, last = (MAP_LINK.at(page, at + n * MAP_LINK.size) for n in range(2))
    return "empty" if first.map_page == last.map_page == NO_PAGE else f"{_link(first)} … {_link(last)}"


def _link(link: Record) -> str:
    """``4:9 (entry 2 of 4:6)``, or ``none``."""
    if link.map_page == NO_PAGE:
        return "none"
    return f"{page_name(link.page_id)} (entry {link.offset} of {page_name(link.map_page)})"


def list_name(list_id: int) -> str:
    known = _LIST_NAMES.get(list_id)
    return known if known else str(list_id) if list_id < FREE_LISTS else f"unknown {list_id}"


def map_lines(page: bytes) -> Iterator[Line]:
    at = map_head_at(page)
    yield from field_lines(MAP_HEAD, page, at, "map head")
    yield RULE
    room = map_capacity(len(page), at == ENTRY_MAP_AT)
    for number in range(min(MAP_HEAD.at(page, at).map_count, room)):
        yield _entry_line(page, number)


def _entry_line(page: bytes, number: int) -> Line:
    at = map_entry_at(page, number)
    entry = MAP_ENTRY.at(page, at)
    words = f"list {list_name(entry.list_id)}"
    if entry.list_id != NO_LIST:
        words += f", prior {_link(entry.prior)}, next {_link(entry.next)}"
    return section_line(at, f"entry {number}", f"page {page_name(entry.page_id)}", str(entry.page_id), words)
