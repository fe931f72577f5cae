"""Damage within a page: its head, its slots, its rows as their table's columns want them."""

from __future__ import annotations

from pathlib import Path

import pytest

import gmdb
from gmdb.errors import Corruption
from gmdb.format import heap
from gmdb.format.address import SYSTEM_DEVICE, UNDO_DEVICE, page_id_of
from gmdb.format.device import DEVICE_HEAD, DEVICE_HEAD_AT
from gmdb.format.heap import HEAP_NODE, NODE_AT
from gmdb.format.page import PAGE_HEAD, TAIL_SIZE, slot_offset
from gmdb.format.row import BITS_AT, COL_COUNT_AT, SIZE_AT, RowFlag, walk_cells
from gmdb.format.undo import RECORDS_AT, UNDO_HEAD, UNDO_RECORD
from gmdb.tables.catalog.schema import SYSTEM_TABLES
from gmdb.tables.files.database_files import DatabaseFiles
from gmdb.verify import verify
from tests.verify.build import ALL_TYPES, WIDE_COLUMNS, Damage
from tests.verify.expect import found, only

COLUMNS = list(ALL_TYPES)


def test_a_sound_database_of_all_kinds_of_tables_is_clean(sound_database) -> None:
    report = verify(sound_database)
    assert report.findings == []
    assert report.clean
    assert report.tables == len(SYSTEM_TABLES) + 10
    assert report.rows > 50_000
    assert report.pages > 500


def test_a_page_with_a_wrong_crc(damage: Damage) -> None:
    page_id = damage.pages("bulk")[5]
    damage.write(page_id, 7000, b"\xff\x01", sealed=False)
    only(damage, page_id, 8192 - TAIL_SIZE, "CRC")


def test_a_page_in_another_ones_place(damage: Damage) -> None:
    first, second = damage.pages("bulk")[3:5]
    damage.write_page(second, damage.page(first), sealed=False)
    only(damage, second, PAGE_HEAD.offset("page_id"), "its head says")


def test_a_page_of_zeros(damage: Damage) -> None:
    page_id = damage.pages("bulk")[5]
    damage.write_page(page_id, bytes(8192), sealed=False)
    only(damage, page_id, 0, "all bytes are zero")


def test_a_latch_that_was_written(damage: Damage) -> None:
    page_id = damage.pages("bulk")[5]
    damage.write(page_id, 1, b"\1")
    only(damage, page_id, 0, "latch")


def test_a_page_of_no_known_type(damage: Damage) -> None:
    page_id = damage.pages("bulk")[5]
    found(damage, page_id, damage.set(page_id, PAGE_HEAD, 0, "page_type", 77), "not a page of gmdb")


def test_a_page_that_a_later_checkpoint_wrote(damage: Damage) -> None:
    page_id = damage.pages("bulk")[5]
    only(damage, page_id, damage.set(page_id, PAGE_HEAD, 0, "ckpt_id", 999), "checkpoint 999")


def test_a_page_that_a_later_transaction_loaded(damage: Damage) -> None:
    page_id, at = damage.pages("bulk")[5], PAGE_HEAD.offset("reserve")
    damage.write(page_id, at, (10**9).to_bytes(8, "little"))
    only(damage, page_id, at, "transaction 1000000000")


@pytest.mark.parametrize(("field", "value"), [("free_end", 99), ("free_begin", 50), ("data_begin", 81)])
def test_a_page_head_that_misplaces_what_is_in_it(damage: Damage, field: str, value: int) -> None:
    page_id = damage.pages("bulk")[5]
    found(damage, page_id, damage.set(page_id, PAGE_HEAD, 0, field, value), field)


def test_a_wrong_count_of_deleted_rows(damage: Damage) -> None:
    page_id = damage.pages("bulk")[5]
    only(damage, page_id, damage.set(page_id, PAGE_HEAD, 0, "del_count", 3), "0 rows are deleted")


def test_a_slot_that_leads_outside_of_the_rows(damage: Damage) -> None:
    page_id = damage.pages("bulk")[5]
    damage.write(page_id, slot_offset(8192, 4), (90).to_bytes(2, "little"))
    only(damage, page_id, slot_offset(8192, 4), "slot 4: offset 90")


def test_two_rows_that_overlap(damage: Damage) -> None:
    page_id = damage.pages("bulk")[5]
    (_, first), *_ = heap.live_slots(damage.page(page_id))
    damage.write(page_id, slot_offset(8192, 1), first.to_bytes(2, "little"))
    only(damage, page_id, first, "overlap")


def test_a_chain_of_freed_slots_that_breaks(damage: Damage) -> None:
    page_id = damage.pages("bulk")[5]
    only(damage, page_id, damage.set(page_id, HEAP_NODE, NODE_AT, "free_slot", 2), "chain of freed slots")


def test_a_row_whose_place_is_too_small_for_an_entry_row(damage: Damage) -> None:
    page_id = damage.pages("bulk")[5]
    page = damage.page(page_id)
    slot, last = max(heap.live_slots(page), key=lambda item: item[1])
    damage.write(page_id, last + SIZE_AT, bytes.fromhex("0c00 0000 00000000"))
    damage.set(page_id, PAGE_HEAD, 0, "free_begin", last + 12)
    found(damage, page_id, last, f"slot {slot}: a row takes 20 bytes")


def test_an_undo_record_that_does_not_fit(dumped: Damage) -> None:
    damage = dumped
    with DatabaseFiles(damage.path) as files:
        page_id, *_ = files.segment_pages(page_id_of(UNDO_DEVICE, 1))
    damage.set(page_id, PAGE_HEAD, 0, "free_begin", 32758)
    damage.set(page_id, PAGE_HEAD, 0, "free_end", 32758)
    damage.set(page_id, UNDO_HEAD, NODE_AT, "slot_count", 1)
    damage.write(page_id, slot_offset(32768, 0), (32750).to_bytes(2, "little"))
    found(damage, page_id, 32750, "reaches past the records' end")
    damage.write(page_id, slot_offset(32768, 0), RECORDS_AT.to_bytes(2, "little"))
    damage.set(page_id, UNDO_RECORD, RECORDS_AT, "size", 0)
    found(damage, page_id, RECORDS_AT, "a record of 0 bytes")


def test_a_device_head_that_makes_no_sense(damage: Damage) -> None:
    page_id = page_id_of(SYSTEM_DEVICE, 0)
    only(damage, page_id, damage.set(page_id, DEVICE_HEAD, DEVICE_HEAD_AT, "free_page_count", 70_000), "free pages")


# ---- rows


def a_row(damage: Damage, name: str = "types8", number: int = 2) -> tuple[int, int]:
    """Page and offset of a row whose columns all have values."""
    row_id, offset = damage.rows(name, unwanted=RowFlag.ENTRY | RowFlag.DELETE)[number]
    return row_id.page_id, offset


def cell_of(damage: Damage, column: str) -> tuple[int, int, int]:
    """Page, offset and length of a column's value in that row."""
    page_id, offset = a_row(damage)
    page = damage.page(page_id)
    end = offset + int.from_bytes(page[offset + SIZE_AT : offset + SIZE_AT + 2], "little")
    _, at, length = list(walk_cells(page, offset, end))[COLUMNS.index(column)]
    return page_id, at, length


def test_a_row_with_more_columns_than_its_table(damage: Damage) -> None:
    page_id, offset = a_row(damage, "wide")
    damage.write(page_id, offset + COL_COUNT_AT, (WIDE_COLUMNS + 2).to_bytes(2, "little"))
    bits = int.from_bytes(damage.page(page_id)[offset + BITS_AT : offset + BITS_AT + 12], "little")
    first = next(n for n in range(WIDE_COLUMNS) if bits >> 2 * n & 3)
    bits ^= 1 << 2 * first | 1 << 2 * (WIDE_COLUMNS + 1)  # the value of one column becomes the last one's
    damage.write(page_id, offset + BITS_AT, bits.to_bytes(12, "little"))
    only(damage, page_id, offset + COL_COUNT_AT, f"{WIDE_COLUMNS + 2} columns, its table {WIDE_COLUMNS}")


def test_size_bits_behind_the_last_column(damage: Damage) -> None:
    page_id, offset = a_row(damage, "wide")
    damage.write(page_id, offset + BITS_AT + 11, b"\x40")
    only(damage, page_id, offset + BITS_AT, "size bits behind")


def test_a_row_that_ends_before_its_values_do(damage: Damage) -> None:
    page_id, offset = a_row(damage)
    damage.write(page_id, offset + SIZE_AT, (60).to_bytes(2, "little"))
    [finding] = damage.findings()
    assert finding.page_id == page_id
    assert "past the row's end" in finding.message


def test_a_value_of_another_size_than_its_type(damage: Damage) -> None:
    page_id, offset = a_row(damage, "bulk", 0)
    row = bytearray(damage.page(page_id)[offset : offset + 24])
    row[BITS_AT] = 0b1110  # an 8-byte INT; the text begins 4 bytes later and is 4 shorter
    row[12:] = bytes(8) + b"\2\0" + b"h\0"
    damage.write(page_id, offset, bytes(row))
    only(damage, page_id, offset + BITS_AT, "column i, INT, is stored as 8 bytes")


def test_a_null_where_none_may_be(damage: Damage) -> None:
    page_id, offset = a_row(damage, "wide", 0)
    damage.write(page_id, offset + BITS_AT, b"\0")
    assert "values end" in damage.findings()[0].message
    row_id, offset = damage.rows("bulk")[1]  # (1, NULL): its only value is i
    damage.write(row_id.page_id, offset + SIZE_AT, bytes.fromhex("0c00 0200 00000000"))
    found(damage, row_id.page_id, offset + BITS_AT, "column i is NOT NULL, but is NULL")


def test_a_row_too_short_to_have_a_value_that_it_must_have(damage: Damage) -> None:
    row_id, offset = damage.rows("bulk")[1]
    damage.write(row_id.page_id, offset + SIZE_AT, bytes.fromhex("0c00 0000 00000000"))
    only(damage, row_id.page_id, offset + COL_COUNT_AT, "column i is NOT NULL, but the row has only 0 columns")


@pytest.mark.parametrize(
    ("column", "raw", "message"),
    [
        ("t", b"\2\0\0\0", "2 is neither 0 nor 1"),
        ("d9", (10**9).to_bytes(4, "little"), "more than 9 digits"),
        ("d9", (-(10**9)).to_bytes(4, "little", signed=True), "more than 9 digits"),
        ("d18", (10**18).to_bytes(8, "little"), "more than 18 digits"),
        ("d38", (10**38).to_bytes(16, "little"), "more than 38 digits"),
        ("d38", (-(10**38)).to_bytes(16, "little", signed=True), "more than 38 digits"),
        ("c", b"\xc3\x28\0", "not UTF-8"),
        ("c", b"\xed\xa0\x80", "not UTF-8"),
        ("c", b"abcdef", "does not end in NUL"),
    ],
)
def test_a_value_that_its_type_does_not_have(damage: Damage, column: str, raw: bytes, message: str) -> None:
    page_id, at, _ = cell_of(damage, column)
    damage.write(page_id, at, raw)
    only(damage, page_id, at, message)


@pytest.mark.parametrize("value", [10**38 - 1, 1 - 10**38, 0, -1])
def test_a_decimal_of_all_its_digits_is_right(damage: Damage, value: int) -> None:
    page_id, at, _ = cell_of(damage, "d38")
    damage.write(page_id, at, value.to_bytes(16, "little", signed=True))
    assert damage.findings() == []


def test_values_of_other_lengths_than_their_columns(damage: Damage) -> None:
    """The tables' columns are said to be shorter than they were when the rows were written."""
    [page_id] = damage.pages("sys_columns")
    page = damage.page(page_id)
    at = [page.index(f"\0{name}\0".encode()) + len(name) + 2 for name in ("VARCHAR", "CHAR", "BINARY", "VARBINARY")]
    at.append(page.index(b"\0VARCHAR\0" + (900).to_bytes(4, "little")) + 9)
    for offset in at[1:]:
        damage.write(page_id, offset, (3).to_bytes(4, "little"))
    messages = " ".join(finding.message for finding in damage.findings())
    for said in (
        "column v, VARCHAR(3): the value has 11 bytes as it is stored, not 1 to 4",
        "column c, CHAR(3): the value has 6 bytes as it is stored, not 4",
        "column bin, BINARY(3): the value has 4 bytes as it is stored, not 3",
        "column vb, VARBINARY(3): the value has 4 bytes as it is stored, not 0 to 3",
    ):
        assert said in messages


def test_an_unknown_flag(damage: Damage) -> None:
    page_id, offset = a_row(damage)
    damage.write(page_id, offset + 3, b"\x40")
    only(damage, page_id, offset, "flags, 0x40")


def test_a_compaction_that_did_not_end(damage: Damage) -> None:
    page_id, offset = a_row(damage)
    damage.write(page_id, offset + 3, bytes([RowFlag.COMPACTING]))
    only(damage, page_id, offset, "compaction")


def test_a_wrong_value_in_a_row_that_has_what_an_index_on_an_expression_is_on(path: Path) -> None:
    with gmdb.connect(path) as db:
        db.execute("create table t (i int, b boolean, s varchar(10))")
        db.execute("insert into t values (7, true, 'One'), (8, false, 'Two')")
        db.execute("create index on t (lower(s))")
        db.commit()
    damage = Damage(path)
    row_id, offset = damage.rows("t")[0]
    page = damage.page(row_id.page_id)
    _, (_, at, _), *_ = walk_cells(page, offset, len(page) - TAIL_SIZE)
    damage.write(row_id.page_id, at, b"\2")
    only(damage, row_id.page_id, at, "column b, BOOLEAN: 2 is neither 0 nor 1")


@pytest.mark.parametrize("number", [-1, 86_400_000_000])
def test_a_time_that_no_day_has(path: Path, number: int) -> None:
    with gmdb.connect(path) as db:
        db.execute("create table t (at time, several time[])")
        db.execute("insert into t values ('12:00', array[time '23:59:59.999999'])")
        db.commit()
    damage = Damage(path)
    row_id, offset = damage.rows("t")[0]
    assert damage.findings() == []
    page = damage.page(row_id.page_id)
    (_, at, _), (_, several, length) = walk_cells(page, offset, len(page) - TAIL_SIZE)
    for place in (at, several + length - 8):
        damage.write_page(row_id.page_id, page)
        damage.write(row_id.page_id, place, number.to_bytes(8, "little", signed=True))
        assert [finding.offset for finding in damage.findings()] == [at if place == at else several]
        with gmdb.connect(path, read_only=True) as db, pytest.raises(Corruption, match="TIME"):
            db.arrow("t").read_all()
