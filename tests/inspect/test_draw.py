"""Drawings and documents of pages: the notes' figures are in them, and damage is shown where it is."""

from __future__ import annotations

import json
import random
from datetime import date, datetime
from decimal import Decimal

import pytest

from gmdb.format.address import page_id_of
from gmdb.format.page import PAGE_HEAD, PageType, SegmentType
from gmdb.format.row import encode_row
from gmdb.inspect.canvas import COLOURED
from gmdb.inspect.draw import draw_page
from gmdb.inspect.report import page_document
from gmdb.tables.catalog.schema import make_columns
from gmdb.tables.files.database_files import DatabaseFiles
from gmdb.tables.files.page_view import view_page, view_row
from tests.inspect.build import TBL_ENTRY, TBL_FIRST, UNDO_FIRST, change_page

INDEX_ROOT = page_id_of(4, 10)


def drawn(database, page_id, **options):
    with DatabaseFiles(database) as files:
        return "\n".join(draw_page(view_page(files, page_id), **options))


def document(database, page_id):
    with DatabaseFiles(database) as files:
        made = page_document(view_page(files, page_id))
    return json.loads(json.dumps(made))


def line_with(text, *words):
    found = [line for line in text.splitlines() if all(word in line for word in words)]
    assert found, f"no line with {words}"
    return found[0]


def test_a_heap_page_is_drawn_with_the_figures_of_the_notes(database):
    text = drawn(database, TBL_FIRST)
    assert text.splitlines()[0].startswith("page 4:7 (16777223): heap page of table tbl, 8192 bytes at 57344")
    assert "5688" in line_with(text, "free_begin")
    assert "7718" in line_with(text, "free_end")
    assert "233" in line_with(text, "slot_count")
    assert "i = 1, s = '2'" in line_with(text, "116  |", "01  00  00  00  02  00  32  00")
    assert "i = 0, s = 'hello'" in line_with(text, "156  |", "00  00  00  00  06  00  68  65")
    assert line_with(text, "164  |", "6c  6c  6f  00")
    assert "13" in line_with(text, "bit_array")
    assert line_with(text, "144|  124|  104", "slots 2 … 0")
    assert "right" in line_with(text, "crc")
    assert "damaged" not in text
    assert "\033" not in text


def test_the_document_of_a_heap_page_is_nested_by_the_formats_names(database):
    made = document(database, TBL_FIRST)
    assert made["head"]["latch"] == {"spinlock": 0, "latch_mode": 0, "latch_cnt": 0}
    assert (made["head"]["free_begin"], made["head"]["free_end"]) == (5688, 7718)
    assert made["node"]["slot_count"] == len(made["slots"]) == len(made["rows"]) == 233
    assert made["slots"][:4] == [104, 124, 144, 168]
    assert made["rows"][0] == {
        "slot": 0,
        "offset": 104,
        "lock_id": 0xFFFFFF,
        "flags": 0,
        "flag_names": [],
        "size": 20,
        "col_count": 2,
        "bit_array": 13,
        "bytes": "0100000002003200",
        "values": [1, "2"],
    }
    assert made["rows"][2]["bytes"] == "00000000060068656c6c6f00"
    assert made["tail"]["crc"] > 0
    assert made["problems"] == []


def test_the_second_page_of_the_worked_example_starts_with_231(database):
    made = document(database, TBL_FIRST + 1)
    assert made["slots"][:3] == [104, 128, 152]
    assert made["rows"][0]["bytes"] == "e7000000060068656c6c6f00"
    assert made["rows"][0]["values"] == [231, "hello"]


def test_an_undo_page_is_drawn_with_the_row_as_it_was(database):
    text, made = drawn(database, UNDO_FIRST), document(database, UNDO_FIRST)
    assert "heap_update_inc" in line_with(text, "record 0", "row 4:7:2 of table tbl")
    assert "s = 'hello'" in line_with(text, "120  |", "06  00  68  65  6c  6c  6f  00")
    assert made["head"]["free_begin"] == 132
    assert made["head"]["free_end"] == 32758
    record = made["records"][0]
    assert (record["offset"], record["size"], record["op_type"]) == (84, 48, 2)
    assert record["row_id"] == {"page_id": TBL_FIRST, "slot_id": 2, "sid_reserve": 65535}
    assert (record["image"]["offset"], record["image"]["bit_array"], record["image"]["values"]) == (108, 3, ["hello"])
    assert record["changed_columns"] == [1]


def test_a_btree_page_is_drawn_with_its_children_and_keys(database):
    text, made = drawn(database, INDEX_ROOT), document(database, INDEX_ROOT)
    assert made["node"]["level"] == 2
    assert made["slots"] == [128, 108]
    assert [entry["child_page"] for entry in made["entries"]] == [page_id_of(4, 340), page_id_of(4, 344)]
    assert made["entries"][0]["key"] == "2b010000"
    assert "4:340" in line_with(text, "child page", "140")


def test_an_entry_page_is_drawn_with_its_map(database):
    text, made = drawn(database, TBL_ENTRY), document(database, TBL_ENTRY)
    assert made["segment"]["obj_name"] == "tbl"
    assert len(made["segment"]["free_lists"]) == 14
    assert made["map"]["map_capacity"] == 235
    assert [entry["page_id"] for entry in made["entries"]] == [TBL_FIRST, TBL_FIRST + 1]
    assert "4:7" in line_with(text, "entry 0", "652")


def test_device_heads_and_free_pages_are_drawn(database):
    assert "11" in line_with(drawn(database, page_id_of(4, 0)), "hwm")
    assert document(database, page_id_of(4, 0))["space"]["name"] == "users"
    assert document(database, page_id_of(4, 0))["device"]["free_page_count"] == 5
    assert document(database, page_id_of(4, 5))["node"]["next"] == page_id_of(4, 4)
    assert "free page" in drawn(database, page_id_of(4, 5))


def test_the_offset_where_something_is_wrong_is_marked_and_listed(database):
    change_page(database, TBL_FIRST, 120, b"\xff\xff")
    lines = drawn(database, TBL_FIRST).splitlines()
    assert lines[1] == "damaged: 2 problems, listed at the end"
    assert [line for line in lines if line.startswith("!")] == [
        line_with("\n".join(lines), "!  116  |", "unreadable"),
        line_with("\n".join(lines), "! 8184  |", "wrong"),
    ]
    assert lines[-3] == "2 problems:"


def test_rows_are_shown_in_hexadecimal_when_the_catalog_is_unreadable(database):
    change_page(database, page_id_of(0, 4), 200, b"\xff" * 50)
    made = document(database, TBL_FIRST)
    assert made["table"] is None
    assert made["rows"][0]["values"] is None
    assert made["rows"][0]["bytes"] == "0100000002003200"
    assert "01  00  00  00  02  00  32  00" in drawn(database, TBL_FIRST)
    assert document(database, page_id_of(0, 2))["rows"][2]["values"] == [16, "tbl", 4, TBL_ENTRY] + 5 * [None]


def test_a_page_whose_object_number_is_damaged_is_still_known_through_its_map(database):
    change_page(database, TBL_FIRST, PAGE_HEAD.offset("obj_id"), b"\x63\0\0\0", sealed=True)
    assert document(database, TBL_FIRST)["table"] == "tbl"


def test_a_value_that_its_type_cannot_have_is_a_problem(database):
    change_page(database, TBL_FIRST, 144 + 18, b"\xff", sealed=True)
    made = document(database, TBL_FIRST)
    assert [problem["offset"] for problem in made["problems"]] == [144]
    assert made["rows"][2]["values"] is None


def test_a_page_of_zeros_is_wrong_only_below_the_high_water_mark(database):
    change_page(database, TBL_FIRST, 0, bytes(8192))
    assert "all bytes are zero" in document(database, TBL_FIRST)["problems"][0]["message"]
    with (database / "device-0004").open("ab") as file:
        file.write(bytes(8192))
    assert document(database, page_id_of(4, 11))["problems"] == []
    assert "never written" in drawn(database, page_id_of(4, 11))


@pytest.mark.parametrize("seed", range(40))
def test_noise_of_every_kind_is_drawn_without_failing(database, seed):
    generator = random.Random(seed)
    page = bytearray(generator.randbytes(8192))
    head = PAGE_HEAD.at(page)
    head.page_type = generator.choice([*PageType, 99])
    head.seg_type = generator.choice([*SegmentType, 99])
    if seed % 2:
        for at in (80, 84, 90):
            page[at : at + 2] = generator.randrange(60).to_bytes(2, "little")
    change_page(database, TBL_FIRST, 0, bytes(page))
    made = document(database, TBL_FIRST)
    assert made["problems"]
    text = drawn(database, TBL_FIRST, full=bool(seed % 3))
    assert f"{len(made['problems'])} problem" in text.splitlines()[1]


def test_long_values_are_cut_unless_all_is_asked_for(database):
    change_page(database, TBL_FIRST, 26, b"\x4d\x00")
    assert "more bytes; --full shows them" in drawn(database, TBL_FIRST)
    assert "more bytes" not in drawn(database, TBL_FIRST, full=True)


def test_colour_is_used_only_when_asked_for(database):
    assert "\033[1m" in drawn(database, TBL_FIRST, paint=COLOURED)


def test_values_that_json_has_no_type_for_become_strings():
    columns = make_columns(
        "t", {"d": "DATE", "t": "TIMESTAMP", "n": "DECIMAL(30,2)", "b": "VARBINARY(4)", "f": "DOUBLE", "z": "BOOLEAN"}
    )
    values = (date(2024, 2, 29), datetime(2024, 2, 29, 12, 30), Decimal("1.50"), b"\xca\xfe", float("inf"), True)
    made = view_row(encode_row(columns, values), 0, 0, columns).document()
    assert made["values"] == ["2024-02-29", "2024-02-29T12:30:00", "1.50", "cafe", "inf", True]


def test_a_row_of_more_than_sixteen_columns_shows_its_values_behind_all_size_bits():
    columns = make_columns("t", {f"c{n}": "INT" for n in range(20)})
    made = view_row(encode_row(columns, tuple(range(20))), 0, 0, columns).document()
    assert made["bytes"].startswith("00000000" + "01000000")
    assert made["further_bits"] == "55000000"
    assert made["values"] == list(range(20))


def test_a_migrated_row_says_where_it_moved_to(database):
    entry = bytes.fromhex("ffffff02 1400 0100 02000000") + bytes.fromhex("08000001 0300 ffff")
    change_page(database, TBL_FIRST, 104, entry, sealed=True)
    assert document(database, TBL_FIRST)["rows"][0]["moved_to"] == "4:8:3"
    assert "moved to 4:8:3" in drawn(database, TBL_FIRST)
    assert "ENTRY" in line_with(drawn(database, TBL_FIRST), "107  |")
