"""The reference notes' table: 150,002 rows, byte for byte."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import gmdb
from gmdb.database.connection import Connection
from gmdb.format.heap import HEAP_NODE, NODE_AT, live_slots
from gmdb.format.page import PAGE_HEAD, PageType
from gmdb.format.row import ROW_HEAD
from gmdb.format.segment import MAP_HEAD, map_head_at, mapped_pages
from tests.integrity import assert_sound, read_pages

HELLO = "06 00 68 65 6c 6c 6f 00"
Rows = list[tuple[int, str]]


def insert_one_by_one(db: Connection, rows: Rows) -> None:
    heap = db.heap("tbl")
    for row in rows:
        heap.insert(row)


def append_at_once(db: Connection, rows: Rows) -> None:
    integers, strings = zip(*rows, strict=True)
    db.append("tbl", pa.table({"i": pa.array(integers, pa.int32()), "s": strings}))


def append_in_odd_batches(db: Connection, rows: Rows) -> None:
    start, length = 0, 1
    while start < len(rows):
        append_at_once(db, rows[start : start + length])
        start, length = start + length, length * 3 + 1


@pytest.fixture(scope="module", params=[insert_one_by_one, append_at_once, append_in_odd_batches])
def pages(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[int, bytes]:
    path: Path = tmp_path_factory.mktemp("reference") / "notes.gmdb"
    with gmdb.connect(path) as db:
        db.create_table("tbl", {"i": "INT", "s": "VARCHAR(10)"})
        db.commit()
        request.param(db, [(1, "2"), (2, "3"), *((i, "hello") for i in range(150_000))])
    assert_sound(path)
    return {page_id: page for page_id, page in read_pages(path).items() if page_id >> 22 == 4}


def data_pages(pages: dict[int, bytes]) -> list[bytes]:
    return [page for page in pages.values() if PAGE_HEAD.at(page).page_type == PageType.DATA]


def row_bytes(page: bytes, slot: int) -> str:
    offset = dict(live_slots(page))[slot]
    return page[offset + 12 : offset + ROW_HEAD.at(page, offset).size].hex(" ")


def test_the_rows_take_644_data_pages(pages: dict[int, bytes]) -> None:
    assert len(data_pages(pages)) == 644


def test_the_first_page_is_the_drawn_one(pages: dict[int, bytes]) -> None:
    page = data_pages(pages)[0]
    head, node = PAGE_HEAD.at(page), HEAP_NODE.at(page, NODE_AT)
    assert [offset for _, offset in live_slots(page)[:4]] == [104, 124, 144, 168]
    assert [ROW_HEAD.at(page, offset).size for _, offset in live_slots(page)[:4]] == [20, 20, 24, 24]
    assert (node.slot_count, head.free_begin, head.free_end) == (233, 5688, 7718)
    assert row_bytes(page, 0) == "01 00 00 00 02 00 32 00"
    assert row_bytes(page, 1) == "02 00 00 00 02 00 33 00"
    assert row_bytes(page, 2) == f"00 00 00 00 {HELLO}"
    assert ROW_HEAD.at(page, 104).bit_array == 13
    assert ROW_HEAD.at(page, 104).col_count == 2


def test_the_second_page_is_the_drawn_one(pages: dict[int, bytes]) -> None:
    page = data_pages(pages)[1]
    head, node = PAGE_HEAD.at(page), HEAP_NODE.at(page, NODE_AT)
    assert [offset for _, offset in live_slots(page)[:3]] == [104, 128, 152]
    assert (node.slot_count, head.free_begin, head.free_end) == (233, 5696, 7718)
    assert [row_bytes(page, n)[:2] for n in range(3)] == ["e7", "e8", "e9"]
    assert row_bytes(page, 0) == f"e7 00 00 00 {HELLO}"


def test_a_fresh_segment_takes_consecutive_pages_with_its_map_pages_between(pages: dict[int, bytes]) -> None:
    kinds = [PAGE_HEAD.at(page).page_type for page in pages.values()]
    expected = [PageType.DEVICE_HEAD, PageType.SEGMENT_ENTRY, *[PageType.DATA] * 235, PageType.MAP]
    expected += [*[PageType.DATA] * 252, PageType.MAP, *[PageType.DATA] * 157]
    assert kinds == expected


def test_map_pages_hold_235_and_252_entries(pages: dict[int, bytes]) -> None:
    maps = [p for p in pages.values() if PAGE_HEAD.at(p).page_type in (PageType.SEGMENT_ENTRY, PageType.MAP)]
    assert [len(mapped_pages(page)) for page in maps] == [235, 252, 157]
    assert [MAP_HEAD.at(page, map_head_at(page)).map_capacity for page in maps] == [235, 252, 252]
    assert [PAGE_HEAD.at(page).data_begin for page in maps] == [640, 80, 80]


def test_every_page_names_its_map_entry(pages: dict[int, bytes]) -> None:
    for page_id, page in pages.items():
        if PAGE_HEAD.at(page).page_type == PageType.DATA:
            head = PAGE_HEAD.at(page)
            assert mapped_pages(pages[head.map_page_id])[head.map_offset] == page_id
