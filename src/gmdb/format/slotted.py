"""The slot directory that heap, B-tree, hash bucket and undo pages share.

Slot *n* is the u16 at ``page_size − 8 − 2(n + 1)``: the offset of its entry from the page's start.
An entry is found by its slot alone, so it may move within the page while its slot number stays.

A slot that GC has freed has its high bit set; the other bits lead to the next free slot (0x7FFF: none).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from struct import unpack_from
from typing import Any

from gmdb.format.layout import Finding, Region
from gmdb.format.page import PAGE_HEAD, TAIL_SIZE, slot_offset

SLOT_FREED = 0x8000
LAST_FREED = 0x7FFF
ENTRY_MIN = 12  # bytes of an entry's head


def slot_room(page: Any, entries_at: int) -> int:
    """How many slots the page could hold at most: a bound for counts read from a damaged page."""
    return (len(memoryview(page)) - TAIL_SIZE - entries_at) // 2


def slots(page: Any, slot_count: int) -> list[int]:
    """The directory's values, in slot order; it must have room for so many."""
    directory_at = len(memoryview(page)) - TAIL_SIZE - 2 * slot_count
    return list(unpack_from(f"<{slot_count}H", page, directory_at))[::-1]


def bounded(page: Any, extents: Iterable[tuple[int, int, int]]) -> Iterator[tuple[int, int, int]]:
    """Those (offset, end, slot) of entries that a page can have room for: all of a sound one's.

    Slots of a damaged page may all lead to one long entry; looking at each would take memory that no page is worth.
    """
    size = len(memoryview(page))
    room = 2 * size
    for offset, end, slot in extents:
        room -= max(min(end, size) - offset, ENTRY_MIN)
        if room < 0:
            return
        yield offset, end, slot


def regions(page: Any, slot_count: int) -> Iterator[Region]:
    size = len(memoryview(page))
    for number, value in enumerate(slots(page, slot_count)):
        meaning = "freed; low bits: next freed slot" if value & SLOT_FREED else "offset of the slot's entry"
        yield Region(slot_offset(size, number), 2, f"slots[{number}]", value, meaning)


def check(page: Any, entries_at: int, slot_count: int) -> Iterator[Finding]:
    """Whether head, directory and entries keep out of each other's way.  Entry contents are the caller's."""
    head = PAGE_HEAD.at(page)
    size = len(memoryview(page))
    directory_at = size - TAIL_SIZE - 2 * slot_count
    if slot_count > slot_room(page, entries_at):
        yield Finding(head.data_begin, f"slot_count {slot_count} is more than the page can hold")
        return
    if head.free_end != directory_at:
        yield Finding(PAGE_HEAD.offset("free_end"), f"free_end {head.free_end} should be {directory_at}")
    if not entries_at <= head.free_begin <= directory_at:
        at = PAGE_HEAD.offset("free_begin")
        yield Finding(at, f"free_begin {head.free_begin} lies outside {entries_at} … {directory_at}")
    for number, value in enumerate(slots(page, slot_count)):
        if not value & SLOT_FREED and not entries_at <= value < min(head.free_begin, directory_at):
            at = slot_offset(size, number)
            yield Finding(
                at, f"slot {number}: offset {value} lies outside the entries, {entries_at} … {head.free_begin}"
            )


def check_overlap(extents: list[tuple[int, int, int]]) -> Iterator[Finding]:
    """``extents`` are (offset, end, slot) of the entries: no byte may belong to two."""
    extents.sort()
    for (_, end, slot), (start, _, other) in pairwise(extents):
        if start < end:
            yield Finding(start, f"slots {slot} and {other} overlap at offset {start}")
