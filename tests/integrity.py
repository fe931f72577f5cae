"""Checks that every closed database of a test must pass: pages, maps, free lists, high-water marks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gmdb.format import heap
from gmdb.format.address import NO_PAGE, page_id_of, page_name
from gmdb.format.anatomy import check
from gmdb.format.device import DEVICE_HEAD, DEVICE_HEAD_AT, FREE_NODE, FREE_NODE_AT, SPACE_HEAD, SPACE_HEAD_AT
from gmdb.format.page import PAGE_HEAD, PageType, SegmentType
from gmdb.format.row import BITS_AT, ROW_HEAD, RowFlag
from gmdb.format.segment import (
    EMPTY_LIST,
    FREE_MAP_LIST,
    MAP_ENTRY,
    MAP_HEAD,
    NO_LIST,
    ROOM_STEPS,
    SEGMENT_HEAD,
    SEGMENT_HEAD_AT,
    map_entry_at,
    map_head_at,
)
from gmdb.storage.directory import device_numbers, device_path


def read_pages(directory: Path) -> dict[int, bytes]:
    """Every page below the high-water marks, by id, straight from the files."""
    pages = {}
    for device in device_numbers(directory):
        data = device_path(directory, device).read_bytes()
        size = SPACE_HEAD.at(data, SPACE_HEAD_AT).page_size
        for offset in range(DEVICE_HEAD.at(data, DEVICE_HEAD_AT).hwm):
            pages[page_id_of(device, offset)] = data[offset * size : (offset + 1) * size]
    return pages


def problems(directory: Path) -> list[str]:
    """What is wrong with a closed database; empty if nothing is."""
    pages = read_pages(directory)
    found = [f"page {page_name(i)}: {f.message}" for i, page in pages.items() for f in check(page, i)]
    if found:
        return found
    owners: dict[int, str] = {}
    for page_id, page in pages.items():
        if PAGE_HEAD.at(page).page_type == PageType.SEGMENT_ENTRY:
            found += _segment_problems(pages, page_id, owners)
    found += _device_problems(pages, owners)
    found += _migration_problems(pages)
    return found


def assert_sound(directory: Path) -> None:
    found = problems(directory)
    assert not found, "\n".join(found[:20])


def _own(owners: dict[int, str], page_id: int, who: str) -> list[str]:
    if page_id in owners:
        return [f"page {page_name(page_id)} belongs to {owners[page_id]} and to {who}"]
    owners[page_id] = who
    return []


def _segment_problems(pages: dict[int, bytes], entry: int, owners: dict[int, str]) -> list[str]:
    segment = SEGMENT_HEAD.at(pages[entry], SEGMENT_HEAD_AT)
    who = f"segment {page_name(entry)}"
    found, count, first, prior, map_id = [], 0, NO_PAGE, NO_PAGE, entry
    on_list: dict[tuple[int, int], int] = {}
    while map_id != NO_PAGE:
        page = pages[map_id]
        found += _own(owners, map_id, who)
        head = MAP_HEAD.at(page, map_head_at(page))
        if head.prior != prior:
            found.append(f"{who}: map page {page_name(map_id)} has prior {page_name(head.prior)}")
        for number in range(head.map_count):
            listed = MAP_ENTRY.at(page, map_entry_at(page, number))
            if listed.list_id != NO_LIST:
                on_list[map_id, number] = listed.list_id
            if listed.page_id == NO_PAGE:
                continue
            first = listed.page_id if first == NO_PAGE else first
            count += 1
            found += _own(owners, listed.page_id, who)
            found += _data_page_problems(pages, listed.page_id, map_id, number, listed.list_id, segment.pct_free)
        prior, map_id = map_id, head.next
    if (count, first) != (segment.page_count, segment.first_data_page):
        found.append(f"{who}: {count} pages from {page_name(first)}; its head says otherwise")
    if prior != segment.last_map_page:
        found.append(f"{who}: last map page is {page_name(prior)}")
    return found + _list_problems(pages, entry, on_list)


def _data_page_problems(
    pages: dict[int, bytes], page_id: int, map_id: int, number: int, list_id: int, pct_free: int
) -> list[str]:
    page = pages[page_id]
    head, name = PAGE_HEAD.at(page), page_name(page_id)
    found = []
    if (head.map_page_id, head.map_offset) != (map_id, number):
        found.append(f"page {name} does not name its map entry")
    if head.fl_flag != (0 if list_id == NO_LIST else list_id + 1):
        found.append(f"page {name}: fl_flag {head.fl_flag}, map entry says list {list_id}")
    if head.seg_type in (SegmentType.HEAP, SegmentType.SYSTEM):
        slots = heap.HEAP_NODE.at(page, heap.NODE_AT).slot_count
        room = head.free_end - head.free_begin - heap.reserve_size(len(page), pct_free)
        if list_id == EMPTY_LIST and slots:
            found.append(f"page {name} has rows, but is on the empty list")
        if list_id < EMPTY_LIST and room * ROOM_STEPS < (list_id + 1) * heap.usable_size(len(page)):
            found.append(f"page {name} has {room} bytes of room, too few for list {list_id}")
    return found


def _list_problems(pages: dict[int, bytes], entry: int, on_list: dict[tuple[int, int], int]) -> list[str]:
    """Each list, walked from its head, has exactly the entries that say they are on it."""
    found = []
    segment = SEGMENT_HEAD.dtype
    raw = pages[entry][SEGMENT_HEAD_AT : SEGMENT_HEAD_AT + SEGMENT_HEAD.size]
    fields = SEGMENT_HEAD.values(raw)
    assert segment.itemsize == len(raw)
    for list_id in range(FREE_MAP_LIST + 1):
        name = (
            f"free_lists[{list_id}]"
            if list_id < EMPTY_LIST
            else "empty_list"
            if list_id == EMPTY_LIST
            else "free_map_list"
        )
        place = (fields[f"{name}.first.map_page"], fields[f"{name}.first.offset"])
        walked: list[Any] = []
        before = (NO_PAGE, 0)
        while place[0] != NO_PAGE and len(walked) <= len(on_list):
            listed = MAP_ENTRY.at(pages[place[0]], map_entry_at(pages[place[0]], place[1]))
            walked.append(place)
            if (listed.prior.map_page, listed.prior.offset) != before:
                found.append(f"segment {page_name(entry)}, list {list_id}: {place} does not lead back to {before}")
            before, place = place, (listed.next.map_page, listed.next.offset)
        if (fields[f"{name}.last.map_page"], fields[f"{name}.last.offset"]) != before:
            found.append(f"segment {page_name(entry)}, list {list_id}: its last entry is {before}")
        if sorted(walked) != sorted(p for p, on in on_list.items() if on == list_id):
            found.append(f"segment {page_name(entry)}, list {list_id}: walked {walked}")
    return found


def _device_problems(pages: dict[int, bytes], owners: dict[int, str]) -> list[str]:
    found = []
    for page_id, page in pages.items():
        if PAGE_HEAD.at(page).page_type != PageType.DEVICE_HEAD:
            continue
        head = DEVICE_HEAD.at(page, DEVICE_HEAD_AT)
        found += _own(owners, page_id, "the device")
        free, at = 0, head.first_free_page
        while at != NO_PAGE and free <= len(pages):
            found += _own(owners, at, "the free-page list")
            free, at = free + 1, FREE_NODE.at(pages[at], FREE_NODE_AT).next
        if free != head.free_page_count:
            found.append(f"device page {page_name(page_id)}: {free} free pages, its head says {head.free_page_count}")
    found += [f"page {page_name(i)} belongs to nobody" for i in pages if i not in owners]
    return found


def _migration_problems(pages: dict[int, bytes]) -> list[str]:
    """Every ENTRY leads to a LINK, every LINK has one ENTRY."""
    entries, links = [], set()
    for page_id, page in pages.items():
        head = PAGE_HEAD.at(page)
        if head.page_type != PageType.DATA or head.seg_type not in (SegmentType.HEAP, SegmentType.SYSTEM):
            continue
        for slot, offset in heap.live_slots(page):
            flags = heap.flags_of(page, offset)
            if RowFlag.LINK in flags:
                links.add((page_id, slot))
            if RowFlag.ENTRY in flags:
                at = offset + BITS_AT + 4
                entries.append(
                    (int.from_bytes(page[at : at + 4], "little"), int.from_bytes(page[at + 4 : at + 6], "little"))
                )
                assert ROW_HEAD.at(page, offset).size == 20
    return [] if sorted(entries) == sorted(links) else [f"ENTRY rows lead to {entries}, LINK rows are {links}"]
