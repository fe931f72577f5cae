"""Heap pages: the rows of a table, in order of arrival.

Invariants
 1. ``free_begin`` is the end of the rows, ``free_end`` the start of the slot directory.
 2. A row occupies at least 20 bytes, so that an ENTRY row fits into any row's place.
 3. An ENTRY row has one 8-byte column, the row id of the LINK row that holds the data; never to another ENTRY row.
 4. ``del_count`` counts the slots whose row has the DELETE flag.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gmdb.errors import RowTooLarge
from gmdb.format import row, slotted
from gmdb.format.address import NO_SLOT
from gmdb.format.layout import Finding, Region, layout
from gmdb.format.page import HEAD_SIZE, PAGE_HEAD, PAGE_SIZES, TAIL_SIZE
from gmdb.format.row import MIN_OCCUPIED, ROW_HEAD, RowFlag

HEAP_NODE = layout(
    "heap node head",
    24,
    next=("<u4", "unused in the heap; none = 0xFFFFFFFF"),
    slot_count=("<u2", "slots in the directory, freed ones included"),
    free_slot=("<u2", "first slot that GC has freed; none = 0xFFFF"),
    reserved=("16u1", "0"),
)

UNDO_IMAGE_MAX = 32642  # 32 KiB less heads, tail, slot, and the link to an earlier record

NODE_AT = HEAD_SIZE
ROWS_AT = NODE_AT + HEAP_NODE.size


def usable_size(page_size: int) -> int:
    """Bytes for rows and their slots: 8080 of an 8 KiB page."""
    return page_size - ROWS_AT - TAIL_SIZE


def row_size_max(page_size: int) -> int:
    """The largest row that an empty page takes, and that an undo page can keep an image of."""
    return min(usable_size(page_size) - 2, UNDO_IMAGE_MAX)


def row_too_large(table: str, size: int, page_size: int, where: str = "") -> RowTooLarge:
    """The error for a row that no page of its tablespace takes, naming what would."""
    larger = [str(n) for n in PAGE_SIZES if n > page_size and 0 < size <= row_size_max(n)]
    advice = f"put the table into a tablespace of {' or '.join(larger)}-byte pages, or " if larger else ""
    return RowTooLarge(
        f"table {table}{where}: the row has {size} bytes, a page of {page_size} takes {row_size_max(page_size)}; "
        f"{advice}keep large values as LOBs"
    )


def reserve_size(page_size: int, pct_free: int) -> int:
    """Bytes that inserts leave free for updates."""
    return usable_size(page_size) * pct_free // 100


def live_slots(page: Any) -> list[tuple[int, int]]:
    """(slot, offset) of every row on the page, deleted ones included; bounded on damaged pages."""
    node = HEAP_NODE.at(page, NODE_AT)
    count = min(node.slot_count, slotted.slot_room(page, ROWS_AT))
    last = len(memoryview(page)) - TAIL_SIZE - ROW_HEAD.size
    values = enumerate(slotted.slots(page, count))
    return [(n, v) for n, v in values if not v & slotted.SLOT_FREED and ROWS_AT <= v <= last]


def row_extents(page: Any) -> Iterator[tuple[int, int, int]]:
    """(offset, end, slot) of the rows on a page, as far as the page can have room for them."""
    found = ((offset, offset + ROW_HEAD.at(page, offset).size, slot) for slot, offset in live_slots(page))
    return slotted.bounded(page, found)


def flags_of(page: Any, offset: int) -> RowFlag:
    return RowFlag(ROW_HEAD.at(page, offset).lock_id >> 24)


def regions(page: Any) -> Iterator[Region]:
    yield from HEAP_NODE.regions(page, NODE_AT, "node.")
    for offset, _, slot in row_extents(page):
        yield from row.regions(page, offset, f"rows[{slot}].")
    count = min(HEAP_NODE.at(page, NODE_AT).slot_count, slotted.slot_room(page, ROWS_AT))
    yield from slotted.regions(page, count)


def check(page: Any) -> Iterator[Finding]:
    head, node = PAGE_HEAD.at(page), HEAP_NODE.at(page, NODE_AT)
    if head.data_begin != NODE_AT:
        yield Finding(PAGE_HEAD.offset("data_begin"), f"data_begin {head.data_begin} should be {NODE_AT}")
    yield from slotted.check(page, ROWS_AT, node.slot_count)
    end = min(head.free_begin, len(memoryview(page)) - TAIL_SIZE)
    deleted, extents = 0, []
    for offset, _, slot in row_extents(page):
        findings = list(row.check(page, offset, end, f"slot {slot}"))
        yield from findings
        if findings:
            continue
        flags = flags_of(page, offset)
        deleted += RowFlag.DELETE in flags
        extents.append((offset, offset + max(ROW_HEAD.at(page, offset).size, MIN_OCCUPIED), slot))
        if RowFlag.COMPACTING in flags:
            yield Finding(offset, f"slot {slot}: compaction of this page did not end")
        if RowFlag.ENTRY in flags and RowFlag.LINK in flags:
            yield Finding(offset, f"slot {slot}: both ENTRY and LINK")
    yield from slotted.check_overlap(extents)
    if deleted != head.del_count:
        yield Finding(PAGE_HEAD.offset("del_count"), f"del_count {head.del_count}, but {deleted} rows are deleted")
    yield from _check_freed_slots(page)


def _check_freed_slots(page: Any) -> Iterator[Finding]:
    node = HEAP_NODE.at(page, NODE_AT)
    count = min(node.slot_count, slotted.slot_room(page, ROWS_AT))
    values = slotted.slots(page, count)
    freed = {n for n, value in enumerate(values) if value & slotted.SLOT_FREED}
    at, chained = node.free_slot, set()
    while at != NO_SLOT and at in freed and at not in chained:
        chained.add(at)
        following = values[at] & slotted.LAST_FREED
        at = NO_SLOT if following == slotted.LAST_FREED else following
    if at != NO_SLOT or chained != freed:
        where = NODE_AT + HEAP_NODE.offset("free_slot")
        yield Finding(where, f"the chain of freed slots breaks at {at}; {len(chained)} of {len(freed)} are in it")
