"""Damage between pages of a segment: maps, counts, free lists."""

from __future__ import annotations

import pytest

from gmdb.format.address import NO_PAGE, page_id_of
from gmdb.format.heap import HEAP_NODE, NODE_AT
from gmdb.format.page import PAGE_HEAD, SegmentType
from gmdb.format.segment import (
    EMPTY_LIST,
    ENTRY_MAP_AT,
    FREE_MAP_LIST,
    FURTHER_MAP_AT,
    LOADING,
    MAP_ENTRY,
    MAP_HEAD,
    NO_LIST,
    SEGMENT_HEAD,
    SEGMENT_HEAD_AT,
    map_entry_at,
)
from tests.verify.build import Damage
from tests.verify.expect import found, only

Place = tuple[int, int]


def entry_of(damage: Damage, page_id: int) -> Place:
    """Where the map entry of a data page is: map page and offset."""
    head = PAGE_HEAD.at(damage.page(page_id))
    return head.map_page_id, map_entry_at(damage.page(head.map_page_id), head.map_offset)


def listed_pages(damage: Damage, name: str, list_id: int | None = None) -> list[int]:
    """The data pages of a table that are on a free list."""
    chosen = []
    for page_id in damage.pages(name):
        flag = PAGE_HEAD.at(damage.page(page_id)).fl_flag
        if flag and (list_id is None or flag == list_id + 1):
            chosen.append(page_id)
    return chosen


# ---- maps


def test_a_data_page_that_names_another_entry(damage: Damage) -> None:
    page_id = damage.pages("bulk")[9]
    damage.set(page_id, PAGE_HEAD, 0, "map_offset", 70)
    only(damage, page_id, PAGE_HEAD.offset("map_page_id"), "the page names entry 70 of map page")


def test_a_data_page_that_names_another_map_page(damage: Damage) -> None:
    page_id = damage.pages("bulk")[9]
    only(damage, page_id, damage.set(page_id, PAGE_HEAD, 0, "map_page_id", NO_PAGE), "map page none, but entry 9")


def test_a_data_page_of_another_object(damage: Damage) -> None:
    page_id = damage.pages("empty" if damage.pages("empty") else "wide")[0]
    obj_id = damage.table("bulk").obj_id
    found(damage, page_id, damage.set(page_id, PAGE_HEAD, 0, "obj_id", obj_id), f"obj_id {obj_id} in a page of segment")


def test_a_data_page_of_another_kind_of_segment(damage: Damage) -> None:
    page_id = damage.pages("wide")[0]
    only(damage, page_id, damage.set(page_id, PAGE_HEAD, 0, "seg_type", SegmentType.SYSTEM), "seg_type 1 in a page")


def test_a_page_that_two_entries_list(damage: Damage) -> None:
    first, second = damage.pages("bulk")[8:10]
    map_page, at = entry_of(damage, second)
    damage.write(map_page, at, first.to_bytes(4, "little"))
    findings = found(damage, map_page, at, "which belongs to segment")
    assert (second, PAGE_HEAD.offset("obj_id")) in {(f.page_id, f.offset) for f in findings}  # listed by nobody now
    assert len(findings) == 2


def test_a_page_that_two_segments_list(damage: Damage) -> None:
    stolen, own = damage.pages("wide")[0], damage.pages("moved")[0]
    map_page, at = entry_of(damage, own)
    damage.write(map_page, at, stolen.to_bytes(4, "little"))
    found(damage, map_page, at, "belongs to segment")


def test_an_entry_that_lists_a_page_that_is_not_in_use(damage: Damage) -> None:
    page_id = damage.pages("bulk")[9]
    map_page, at = entry_of(damage, page_id)
    damage.write(map_page, at, page_id_of(4, 100_000).to_bytes(4, "little"))
    findings = found(damage, map_page, at, "lists page 4:100000, which is not in use")
    assert len(findings) == 2  # the page that it listed before belongs to nobody


def test_an_entry_that_lists_a_map_page(damage: Damage) -> None:
    map_page, at = entry_of(damage, damage.pages("moved")[2])
    damage.write(map_page, at, damage.table("empty").entry_page.to_bytes(4, "little"))
    found(damage, map_page, at, "which is not a data page")


def test_an_entry_that_lists_a_page_of_another_tablespace(damage: Damage) -> None:
    map_page, at = entry_of(damage, damage.pages("moved")[2])
    damage.write(map_page, at, damage.pages("types16")[0].to_bytes(4, "little"))
    found(damage, map_page, at, "another tablespace")


def test_an_entry_on_a_list_that_there_is_not(damage: Damage) -> None:
    map_page, at = entry_of(damage, damage.pages("bulk")[9])
    damage.write(map_page, at + MAP_ENTRY.offset("list_id"), b"\x4d")
    found(damage, map_page, at + MAP_ENTRY.offset("list_id"), "no list has the id 77")


def test_an_entry_whose_load_never_ended(damage: Damage) -> None:
    map_page, at = entry_of(damage, damage.pages("types8")[3])
    damage.write(map_page, at + MAP_ENTRY.offset("list_id"), bytes([LOADING]))
    only(damage, map_page, at, "entry 3 is marked as being loaded")


def test_a_map_page_whose_prior_is_wrong(damage: Damage) -> None:
    _, second = damage.map_pages("bulk")
    at = damage.set(second, MAP_HEAD, FURTHER_MAP_AT, "prior", 77)
    only(damage, second, at, "prior says 0:77")


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (page_id_of(4, 100_000), "which is not in use"),
        (page_id_of(4, 2), "which is not a map page"),
        (page_id_of(4, 1), "which is not a map page"),
    ],
)
def test_a_map_that_leads_astray(damage: Damage, target: int, message: str) -> None:
    first, _ = damage.map_pages("bulk")
    at = damage.set(first, MAP_HEAD, ENTRY_MAP_AT, "next", target)
    only(damage, first, at, message)


def test_a_map_that_goes_on_in_a_damaged_page(damage: Damage) -> None:
    first, second = damage.map_pages("bulk")
    damage.write(second, 4000, b"\x99", sealed=False)
    findings = found(damage, first, ENTRY_MAP_AT + MAP_HEAD.offset("next"), "which is damaged")
    assert {f.page_id for f in findings} == {first, second}


def test_a_map_that_goes_on_in_another_tables_map_page(damage: Damage) -> None:
    first, second = damage.map_pages("bulk")
    damage.set(second, PAGE_HEAD, 0, "obj_id", 4711)
    found(damage, first, ENTRY_MAP_AT + MAP_HEAD.offset("next"), "which is of object 4711")


def test_a_map_page_with_a_wrong_capacity(damage: Damage) -> None:
    entry = damage.table("moved").entry_page
    at = damage.set(entry, MAP_HEAD, ENTRY_MAP_AT, "map_capacity", 99)
    found(damage, entry, at, "map_capacity 99")


def test_a_map_page_that_no_other_leads_to(damage: Damage) -> None:
    first, second = damage.map_pages("bulk")
    damage.set(first, MAP_HEAD, ENTRY_MAP_AT, "next", NO_PAGE)
    found(damage, second, PAGE_HEAD.offset("obj_id"), "to which no other map page leads")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("page_count", 7),
        ("first_data_page", page_id_of(4, 3)),
        ("last_map_page", page_id_of(4, 3)),
        ("last_map_page_full", 1),
        ("last_page", page_id_of(4, 1)),
        ("create_no", 99),
        ("type", 1),
        ("space_id", 5),
        ("obj_id", 999),
    ],
)
def test_a_segment_head_that_is_wrong(damage: Damage, field: str, value: int) -> None:
    entry = damage.table("bulk").entry_page
    only(damage, entry, damage.set(entry, SEGMENT_HEAD, SEGMENT_HEAD_AT, field, value), field)


def test_a_map_page_of_another_kind_of_segment(damage: Damage) -> None:
    _, second = damage.map_pages("bulk")
    only(damage, second, damage.set(second, PAGE_HEAD, 0, "seg_type", SegmentType.UNDO), "seg_type 2 in a map page")


# ---- free lists


def test_a_page_that_does_not_know_its_list(damage: Damage) -> None:
    page_id = listed_pages(damage, "gone1")[5]
    flag = damage.set(page_id, PAGE_HEAD, 0, "fl_flag", 3)
    only(damage, page_id, flag, "fl_flag 3, but its map entry says list")


def test_a_page_without_the_room_that_its_list_promises(damage: Damage) -> None:
    page_id = listed_pages(damage, "gone1")[5]
    at = PAGE_HEAD.offset("free_begin")
    end = PAGE_HEAD.at(damage.page(page_id)).free_end
    damage.set(page_id, PAGE_HEAD, 0, "free_begin", end - 100)
    only(damage, page_id, at, "promises")


def test_a_page_with_rows_on_the_empty_list(damage: Damage) -> None:
    """A page of a list of its own becomes one of the empty list, in all places that say so."""
    [page_id] = listed_pages(damage, "wide")
    map_page, at = entry_of(damage, page_id)
    list_id = PAGE_HEAD.at(damage.page(page_id)).fl_flag - 1
    damage.set(page_id, PAGE_HEAD, 0, "fl_flag", EMPTY_LIST + 1)
    damage.write(map_page, at + MAP_ENTRY.offset("list_id"), bytes([EMPTY_LIST]))
    lists = SEGMENT_HEAD_AT + SEGMENT_HEAD.offset("free_lists[0].first.map_page")
    page = damage.page(map_page)
    old, empty = (page[lists + 24 * n : lists + 24 * n + 24] for n in (list_id, EMPTY_LIST))
    damage.write(map_page, lists + 24 * list_id, empty)
    damage.write(map_page, lists + 24 * EMPTY_LIST, old)
    only(damage, page_id, NODE_AT + HEAP_NODE.offset("slot_count"), "on the empty list")


@pytest.mark.parametrize("field", ["prior", "next"])
def test_a_list_whose_links_do_not_lead_back(damage: Damage, field: str) -> None:
    page_id = _with_neighbours(damage)
    map_page, at = entry_of(damage, page_id)
    place = at + MAP_ENTRY.offset(f"{field}.offset")
    other = int.from_bytes(damage.page(map_page)[place : place + 2], "little")
    damage.write(map_page, place, (other + 1 if other == 0 else other - 1).to_bytes(2, "little"))
    found(damage, map_page, at + MAP_ENTRY.offset(f"{field}.map_page"), "does not lead back to it")


def _with_neighbours(damage: Damage) -> int:
    for page_id in listed_pages(damage, "gone1"):
        map_page, at = entry_of(damage, page_id)
        entry = MAP_ENTRY.at(damage.page(map_page), at)
        if NO_PAGE not in (entry.prior.map_page, entry.next.map_page):
            return page_id
    raise AssertionError("no page has neighbours on its list")


def test_a_list_that_leads_out_of_the_segment(damage: Damage) -> None:
    map_page, at = entry_of(damage, _with_neighbours(damage))
    place = damage.set(map_page, MAP_ENTRY, at, "next.map_page", 3)
    found(damage, map_page, place, "leads to no entry of the segment")


def test_a_link_that_names_another_page(damage: Damage) -> None:
    map_page, at = entry_of(damage, _with_neighbours(damage))
    damage.set(map_page, MAP_ENTRY, at, "next.page_id", 3)
    only(damage, map_page, at + MAP_ENTRY.offset("next.map_page"), "its next names page 0:3")


@pytest.mark.parametrize("side", ["first", "last"])
def test_a_list_head_that_is_wrong(damage: Damage, side: str) -> None:
    entry = damage.table("gone1").entry_page
    field = f"free_map_list.{side}"
    damage.set(entry, SEGMENT_HEAD, SEGMENT_HEAD_AT, f"{field}.map_page", NO_PAGE)
    only(
        damage, entry, SEGMENT_HEAD_AT + SEGMENT_HEAD.offset(f"{field}.map_page"), f"{field} is none, but by the links"
    )


def test_an_entry_that_is_linked_but_on_no_list(damage: Damage) -> None:
    page_id = next(p for p in damage.pages("types8") if not PAGE_HEAD.at(damage.page(p)).fl_flag)
    map_page, at = entry_of(damage, page_id)
    assert damage.get(map_page, MAP_ENTRY, at, "list_id") == NO_LIST
    place = damage.set(map_page, MAP_ENTRY, at, "prior.map_page", map_page)
    only(damage, map_page, place, "is on no list, but is linked into one")


def test_entries_linked_in_a_circle(damage: Damage) -> None:
    """Two unused entries lead to each other, apart from their list, and the list does without them."""
    entry = damage.table("bulk").entry_page
    page = bytearray(damage.page(entry))
    count = MAP_HEAD.at(page, ENTRY_MAP_AT).map_count
    unused = [n for n in range(count) if page[map_entry_at(page, n) + MAP_ENTRY.offset("list_id")] == FREE_MAP_LIST]
    middle = [n for n in unused if _is_between(page, entry, n)]
    first, second = next((a, b) for a in middle for b in middle if _next(page, a) == b)
    before, after = _prior(page, first), _next(page, second)
    for a, b in ((before, after), (second, first)):
        _link(page, entry, a, b)
    damage.write_page(entry, bytes(page))
    findings = found(
        damage, entry, map_entry_at(page, first) + MAP_ENTRY.offset("next.map_page"), "does not lead to it"
    )
    assert len(findings) == 2


def _prior(page: bytearray, number: int) -> int:
    return int(MAP_ENTRY.at(page, map_entry_at(page, number)).prior.offset)


def _next(page: bytearray, number: int) -> int:
    return int(MAP_ENTRY.at(page, map_entry_at(page, number)).next.offset)


def _is_between(page: bytearray, entry: int, number: int) -> bool:
    links = MAP_ENTRY.at(page, map_entry_at(page, number))
    return links.prior.map_page == links.next.map_page == entry


def _link(page: bytearray, entry: int, before: int, after: int) -> None:
    for number, field, other in ((before, "next", after), (after, "prior", before)):
        at = map_entry_at(page, number) + MAP_ENTRY.offset(f"{field}.map_page")
        page[at : at + 6] = entry.to_bytes(4, "little") + other.to_bytes(2, "little")
