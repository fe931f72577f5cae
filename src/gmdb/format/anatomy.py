"""Any page, taken apart: ``regions`` names every byte, ``check`` says what is wrong.

Invariants
 1. The regions of a page cover each of its bytes once, whatever the bytes are.
 2. ``check`` returns a list for any bytes; it raises nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from gmdb.format import btree, device, hash, heap, lob, segment, transactions, undo
from gmdb.format.address import page_name
from gmdb.format.checksum import page_crc
from gmdb.format.layout import Finding, Region
from gmdb.format.page import PAGE_HEAD, PAGE_SIZES, PAGE_TAIL, TAIL_SIZE, PageType, SegmentType, stored_crc

_DATA_PAGES: dict[int, ModuleType] = {
    SegmentType.SYSTEM: heap,
    SegmentType.HEAP: heap,
    SegmentType.UNDO: undo,
    SegmentType.BTREE: btree,
    SegmentType.HASH: hash,
    SegmentType.LOB: lob,
}


def structure_of(page: Any) -> ModuleType | None:
    """The module of format/ that knows what lies behind this page's head."""
    head = PAGE_HEAD.at(page)
    if head.page_type == PageType.DEVICE_HEAD:
        return device
    if head.page_type in (PageType.SEGMENT_ENTRY, PageType.MAP):
        return segment
    if head.page_type == PageType.TRANSACTIONS:
        return transactions
    if head.page_type == PageType.DATA:
        return _DATA_PAGES.get(head.seg_type)
    return None


def regions(page: Any) -> list[Region]:
    """Every byte of the page, named, in order of offset."""
    size = len(memoryview(page))
    claimed = list(PAGE_HEAD.regions(page, 0, "head."))
    claimed += PAGE_TAIL.regions(page, size - TAIL_SIZE, "tail.")
    structure = structure_of(page)
    if structure is not None:
        claimed += structure.regions(page)
    elif PAGE_HEAD.at(page).page_type == PageType.FREE:
        claimed += device.free_page_regions(page)
    return list(_cover(page, claimed))


def _cover(page: Any, claimed: list[Region]) -> Iterator[Region]:
    """Drop what overlaps or leaves the page (damage can do that), then name the gaps."""
    head, size = PAGE_HEAD.at(page), len(memoryview(page))
    taken = bytearray(size)
    disjoint = []
    for region in claimed:
        end = region.end
        if end <= size and taken.find(1, region.offset, end) < 0:
            taken[region.offset : end] = b"\1" * region.length
            disjoint.append(region)
    at = 0
    for region in [*sorted(disjoint, key=lambda r: r.offset), Region(size, 0, "", None, "")]:
        if region.offset > at:
            yield from _gap(page, at, region.offset, head.free_begin, head.free_end)
        if region.length:
            yield region
        at = region.end


def _gap(page: Any, start: int, end: int, free_begin: int, free_end: int) -> Iterator[Region]:
    if start < free_begin < end:
        yield from _gap(page, start, free_begin, free_begin, free_end)
        start = free_begin
    free = start >= free_begin and end <= free_end
    name, meaning = ("free", "free bytes") if free else ("unused", "left behind by a row that moved, or never used")
    yield Region(start, end - start, name, bytes(memoryview(page)[start:end]).hex(), meaning)


def check(page: Any, page_id: int | None = None, whole: bool = False) -> list[Finding]:
    """What is wrong with this page; ``page_id`` is where it was found, if that is known.

    ``whole``: its CRC was found to be right.
    """
    size = len(memoryview(page))
    if size not in PAGE_SIZES:
        return [Finding(0, f"{size} bytes are not a whole page: page sizes are {PAGE_SIZES}")]
    head = PAGE_HEAD.at(page)
    if head.page_type == PageType.NONE and not any(memoryview(page)):
        return []
    findings = list(_check_head(page, page_id, whole))
    structure = structure_of(page)
    if structure is not None:
        findings += _guarded(structure.check, page)
    elif head.page_type != PageType.FREE:
        at = PAGE_HEAD.offset("page_type")
        findings.append(Finding(at, f"page_type {head.page_type} with seg_type {head.seg_type} is not a page of gmdb"))
    return findings


def _check_head(page: Any, page_id: int | None, whole: bool) -> Iterator[Finding]:
    head = PAGE_HEAD.at(page)
    stored = stored_crc(page)
    computed = stored if whole else page_crc(page)
    if computed != stored:
        at = len(memoryview(page)) - TAIL_SIZE
        yield Finding(at, f"CRC {stored:08x} is stored, but the bytes give {computed:08x}")
    if page_id is not None and head.page_id != page_id:
        named = page_name(head.page_id)
        yield Finding(PAGE_HEAD.offset("page_id"), f"this is page {page_name(page_id)}, but its head says {named}")
    if any(bytes(memoryview(page)[:8])):
        yield Finding(0, "latch and mutex are not zero")


def _guarded(check_body: Callable[[Any], Iterator[Finding]], page: Any) -> list[Finding]:
    """A body so damaged that its check fails is one finding more, not an exception."""
    findings = []
    try:
        for finding in check_body(page):
            findings.append(finding)
    except (ValueError, IndexError, OverflowError) as error:
        findings.append(Finding(0, f"the page's contents make no sense: {error}"))
    return findings
