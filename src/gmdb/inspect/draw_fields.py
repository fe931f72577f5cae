"""The fields of a structure, one line each: name, value, the value in words, what the field means."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import Any

from gmdb.format.address import NO_PAGE, NO_SLOT, page_name
from gmdb.format.hash import HashPageType
from gmdb.format.layout import Layout, Region
from gmdb.format.page import PageType, SegmentType
from gmdb.format.undo import UndoOperation
from gmdb.inspect.canvas import Line, section_line

_PAGE_IDS = {
    "page_id", "map_page_id", "map_page", "next_ckpt_page", "next", "prev", "prior", "last_map_page", "first_data_page",
    "last_page", "child_seg", "first_free_page", "seg_entry",
}  # fmt: skip
_ENUMS: dict[str, type[IntEnum]] = {
    "seg_type": SegmentType,
    "type": SegmentType,
    "page_type": PageType,
    "hash_page_type": HashPageType,
    "op_type": UndoOperation,
}
_BULK_RESERVE = 2 * 15  # hexadecimal digits of the page head's reserve


def in_words(field: str, value: Any) -> str:
    """What a field's number stands for, where it stands for something."""
    if field in _PAGE_IDS:
        return page_name(value)
    if field in _ENUMS:
        kinds = _ENUMS[field]
        return kinds(value).name if value in list(kinds) else "unknown"
    if (field == "mirror_page" and value == NO_PAGE) or (field == "free_slot" and value == NO_SLOT):
        return "none"
    if field == "reserve" and len(value) == _BULK_RESERVE and value_text(value) != "0":
        return f"transaction {int.from_bytes(bytes.fromhex(value)[:8], 'little')}"
    return ""


def value_text(value: Any) -> str:
    """Byte arrays come as hexadecimal; one that is all zero is shown as 0."""
    if isinstance(value, str) and value and not value.strip("0"):
        return "0"
    return str(value)


def field_lines(
    layout: Layout, page: bytes, at: int, section: str, groups: Mapping[str, str] | None = None
) -> Iterator[Line]:
    """A line a field; nested structures in braces; ``groups`` puts a heading before some fields."""
    waiting: list[Region] = []
    for region in layout.regions(page, at):
        outer, _, inner = region.name.partition(".")
        if waiting and waiting[0].name.partition(".")[0] != outer:
            yield _braces(waiting, section)
            waiting, section = [], ""
        if inner:
            waiting.append(region)
            continue
        if groups and outer in groups:
            yield section_line(None, "", groups[outer])
        yield field_line(region, section)
        section = ""
    if waiting:
        yield _braces(waiting, section)


def field_line(region: Region, section: str) -> Line:
    value = value_text(region.value)
    meaning = region.meaning if region.meaning != value else ""
    return section_line(region.offset, section, region.name, value, in_words(region.name, region.value), meaning)


def _braces(regions: list[Region], section: str) -> Line:
    """``latch | {spinlock=0, latch_mode=0, latch_cnt=0}``."""
    outer = regions[0].name.partition(".")[0]
    inner = ", ".join(f"{region.name.partition('.')[2]}={region.value}" for region in regions)
    return section_line(regions[0].offset, section, outer, "{" + inner + "}")
