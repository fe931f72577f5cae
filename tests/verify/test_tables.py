"""Damage between tables: the catalog against segments, migrated rows, and undo against locks."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import gmdb
from gmdb.format.address import UNDO_DEVICE, RowId, page_id_of, page_name
from gmdb.format.page import PAGE_HEAD, SegmentType
from gmdb.format.row import ROW_HEAD, RowFlag, header_size
from gmdb.format.segment import SEGMENT_HEAD, SEGMENT_HEAD_AT
from gmdb.format.transactions import TRANSACTION_ENTRY, committed
from gmdb.format.undo import OWNER_AT, UNDO_RECORD, UndoOperation, record_extents
from gmdb.tables.files.database_files import DatabaseFiles, entry_target
from tests.verify.build import Damage
from tests.verify.expect import found, only

UNDO_ENTRY = page_id_of(UNDO_DEVICE, 1)

# ---- the catalog


def catalog_row(damage: Damage, table: str, name: str) -> tuple[int, int]:
    """Page and offset of the row of a system table that describes ``name``, the first if there are several."""
    with DatabaseFiles(damage.path) as files:
        row_id = next(row_id for row_id, values in files.rows(files.table(table)) if name in values)
    return row_id.page_id, dict(damage.rows(table))[row_id]


def test_a_table_that_starts_where_no_segment_does(damage: Damage) -> None:
    page_id, offset = catalog_row(damage, "sys_tables", "empty")
    at = offset + ROW_HEAD.size + 4 + 2 + 6 + 4
    damage.write(page_id, at, damage.pages("bulk")[0].to_bytes(8, "little"))
    findings = found(damage, page_id, offset, "table empty starts at page 4:2, which is not an entry page")
    assert len(findings) == 2  # and its segment is nobody's


def test_a_table_that_starts_past_the_end(damage: Damage) -> None:
    page_id, offset = catalog_row(damage, "sys_tables", "empty")
    damage.write(page_id, offset + ROW_HEAD.size + 4 + 2 + 6 + 4, b"\xff" * 8)
    found(damage, page_id, offset, "which is not in use")


def test_a_table_in_another_tables_segment(damage: Damage) -> None:
    page_id, offset = catalog_row(damage, "sys_tables", "empty")
    other = damage.table("types32").entry_page
    damage.write(page_id, offset + ROW_HEAD.size + 4 + 2 + 6 + 4, other.to_bytes(8, "little"))
    found(damage, page_id, offset, "which is of object")


def test_a_table_in_a_segment_of_another_kind(damage: Damage) -> None:
    entry = damage.table("empty").entry_page
    damage.set(entry, PAGE_HEAD, 0, "seg_type", SegmentType.BTREE)
    damage.set(entry, SEGMENT_HEAD, SEGMENT_HEAD_AT, "type", SegmentType.BTREE)
    only(damage, *catalog_row(damage, "sys_tables", "empty"), "whose seg_type is 4 instead of 3")


def test_a_table_in_another_tablespace_than_its_segment(damage: Damage) -> None:
    page_id, offset = catalog_row(damage, "sys_tables", "empty")
    damage.write(page_id, offset + ROW_HEAD.size + 4 + 2 + 6, (4).to_bytes(4, "little"))
    only(damage, page_id, offset, "which lies in tablespace 7 instead of 4")


def test_a_segment_without_a_table(damage: Damage) -> None:
    """Everything that the catalog says of table ``empty`` becomes deleted rows."""
    table = damage.table("empty")
    rows = [
        (row_id.page_id, offset)
        for name in ("sys_tables", "sys_columns")
        for row_id, offset in damage.rows(name)
        if damage.page(row_id.page_id)[offset + ROW_HEAD.size :][:4] == table.obj_id.to_bytes(4, "little")
    ]
    assert len(rows) == 2
    for page_id, offset in rows:
        damage.write(page_id, offset + 3, bytes([RowFlag.DELETE]))
        damage.set(page_id, PAGE_HEAD, 0, "del_count", PAGE_HEAD.at(damage.page(page_id)).del_count + 1)
    at = SEGMENT_HEAD_AT + SEGMENT_HEAD.offset("obj_id")
    only(damage, table.entry_page, at, f"a segment of object {table.obj_id}, but no table or index starts here")


def test_a_table_that_is_there_twice(damage: Damage) -> None:
    page_id, offset = catalog_row(damage, "sys_tables", "types32")
    other, at = catalog_row(damage, "sys_tables", "types16")
    name_at = ROW_HEAD.size + 4 + 2
    damage.write(other, at + name_at, damage.page(page_id)[offset + name_at :][:7])
    found(damage, page_id, offset, "table types32, number 19, is there twice")


def test_a_table_whose_number_is_still_to_be_given(damage: Damage) -> None:
    number = damage.table("empty").obj_id
    damage.set_control("next_obj_id", number)
    found(damage, *catalog_row(damage, "sys_tables", "empty"), f"which the next table would get ({number})")


def test_two_columns_with_one_number(damage: Damage) -> None:
    page_id, offset = catalog_row(damage, "sys_columns", "vb")
    damage.write(page_id, offset + ROW_HEAD.size + 4, (3).to_bytes(4, "little"))
    found(damage, page_id, offset, "column vb of table types8 has number 3")


def test_a_column_of_no_table(damage: Damage) -> None:
    page_id, offset = catalog_row(damage, "sys_columns", "vb")
    damage.write(page_id, offset + ROW_HEAD.size, (4711).to_bytes(4, "little"))
    found(damage, page_id, offset, "column vb is of object 4711, which is not a table")


def test_two_columns_with_one_name(damage: Damage) -> None:
    page_id, offset = catalog_row(damage, "sys_columns", "d9")
    at = damage.page(page_id).index(b"\0d9\0", offset) + 1
    damage.write(page_id, at, b"vb")
    later = [o for r, o in damage.rows("sys_columns") if o > offset and b"\0vb\0" in damage.page(page_id)[o : o + 40]]
    found(damage, page_id, later[0], "table types8 has two columns called vb")


def test_a_catalog_that_cannot_be_read_is_no_reason_to_stop(damage: Damage) -> None:
    damaged = damage.pages("bulk")[4]
    damage.write(damaged, 7000, b"\1", sealed=False)
    page_id, offset = catalog_row(damage, "sys_columns", "vb")
    damage.write(page_id, offset + ROW_HEAD.size + 8, b"\xff\xff")
    findings = found(damage, page_id, offset, "the catalog cannot be read")
    assert {f.page_id for f in findings} == {page_id, damaged}


# ---- migrated rows


def an_entry(damage: Damage, number: int = 0) -> tuple[RowId, int, RowId]:
    """An ENTRY row: its id, its offset, and the row that it leads to."""
    row_id, offset = damage.rows("moved", wanted=RowFlag.ENTRY)[number]
    return row_id, offset, entry_target(damage.page(row_id.page_id), offset)


def test_an_entry_that_leads_to_no_link(damage: Damage) -> None:
    row_id, offset, _ = an_entry(damage)
    damage.write(row_id.page_id, offset + header_size(1), RowId(page_id_of(4, 70_000), 2).word.to_bytes(8, "little"))
    findings = found(damage, row_id.page_id, offset + 12, f"slot {row_id.slot_id}: an ENTRY row leads to row 4:70000:2")
    assert len(findings) == 2  # and its LINK row has no ENTRY


def test_two_entries_that_lead_to_one_link(damage: Damage) -> None:
    first, second = an_entry(damage, 0), an_entry(damage, 1)
    damage.write(second[0].page_id, second[1] + 12, first[2].word.to_bytes(8, "little"))
    found(damage, second[0].page_id, second[1] + 12, "to which another ENTRY row leads already")


def test_a_link_without_an_entry(damage: Damage) -> None:
    _, _, target = an_entry(damage)
    row_id, offset = next(pair for pair in damage.rows("moved", wanted=RowFlag.LINK) if pair[0] == target)
    damage.write(row_id.page_id, offset + 3, b"\0")
    home, at, _ = an_entry(damage)
    only(damage, home.page_id, at + 12, "where no LINK row is")
    damage.write(row_id.page_id, offset + 3, bytes([RowFlag.LINK]))
    plain, at = damage.rows("moved", unwanted=RowFlag.LINK | RowFlag.ENTRY)[0]
    damage.write(plain.page_id, at + 3, bytes([RowFlag.LINK]))
    only(damage, plain.page_id, at, "a LINK row to which no ENTRY row leads")


def test_an_entry_that_leads_to_another_tables_link(damage: Damage) -> None:
    home, at, target = an_entry(damage)
    other, other_at = damage.rows("bulk")[0]
    damage.write(other.page_id, other_at + 3, bytes([RowFlag.LINK]))
    damage.write(home.page_id, at + 12, other.word.to_bytes(8, "little"))
    found(damage, home.page_id, at + 12, "a row of object 16")
    assert target != other


def test_an_entry_of_another_shape(damage: Damage) -> None:
    row_id, offset = damage.rows("moved", unwanted=RowFlag.LINK | RowFlag.ENTRY)[0]
    damage.write(row_id.page_id, offset + 3, bytes([RowFlag.ENTRY]))
    found(damage, row_id.page_id, offset + ROW_HEAD.offset("size"), "an ENTRY row has one column of 8 bytes")


def test_an_entry_whose_row_id_is_none(damage: Damage) -> None:
    row_id, offset, _ = an_entry(damage)
    damage.write(row_id.page_id, offset + 18, b"\0\0")
    found(damage, row_id.page_id, offset + 18, "does not end in 65535")


def test_a_link_with_a_lock(damage: Damage) -> None:
    row_id, offset = damage.rows("moved", wanted=RowFlag.LINK)[0]
    damage.write(row_id.page_id, offset, b"\7\0\0")
    found(damage, row_id.page_id, offset, "locks are kept at the row's home")


def test_a_damaged_page_is_not_asked_for_the_entries_on_it(damage: Damage) -> None:
    row_id, _, _ = an_entry(damage)
    damage.write(row_id.page_id, 100, b"\1", sealed=False)
    assert {finding.page_id for finding in damage.findings()} == {row_id.page_id}


# ---- undo and locks


def test_a_closed_database_has_no_locked_row(damage: Damage) -> None:
    row_id, offset = damage.rows("bulk")[4]
    damage.write(row_id.page_id, offset, b"\7\0\0")
    only(damage, row_id.page_id, offset, f"slot {row_id.slot_id}: the row has lock 7, but the database was closed")


def records(dumped: Damage) -> list[tuple[int, int]]:
    """Page and offset of the live undo records."""
    with DatabaseFiles(dumped.path) as files:
        pages = files.segment_pages(page_id_of(UNDO_DEVICE, 1))
    return [
        (page_id, offset)
        for page_id in pages
        for offset, _, _ in record_extents(dumped.page(page_id))
        if UNDO_RECORD.at(dumped.page(page_id), offset).op_type not in (UndoOperation.NONE, UndoOperation.OWNER)
    ]


def test_locks_and_undo_of_a_database_at_work_agree(dumped: Damage) -> None:
    assert len(records(dumped)) >= 8
    assert dumped.findings() == []


def test_a_closed_database_has_no_live_undo_record(dumped: Damage) -> None:
    dumped.set_control("purpose", 0)
    for page_id, offset in records(dumped):
        found(dumped, page_id, offset, "the record is live, but the database was closed")


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("row_id.page_id", page_id_of(4, 9_000), "damaged, or not in use"),
        ("row_id.page_id", page_id_of(0, 3), "is not a data page of object 16"),
        ("row_id.slot_id", 4_000, "there is no row"),
        ("seg_entry", page_id_of(4, 2), "seg_entry 4:2 is not where table t starts"),
        ("lock_id", 99, "not 99"),
    ],
)
def test_a_record_that_is_wrong(dumped: Damage, field: str, value: int, message: str) -> None:
    page_id, offset = records(dumped)[0]
    dumped.set(page_id, UNDO_RECORD, offset, field, value)
    found(dumped, page_id, offset, message)


def test_a_lock_that_no_record_names(dumped: Damage) -> None:
    row_id, offset = next(pair for pair in dumped.rows("t") if _lock(dumped, *pair) == 0xFFFFFF)
    dumped.write(row_id.page_id, offset, (77).to_bytes(3, "little"))
    only(dumped, row_id.page_id, offset, "the row has lock 77, which no live undo record of the row has")


def test_a_record_whose_row_has_no_lock(dumped: Damage) -> None:
    row_id, offset = next(pair for pair in dumped.rows("t") if _lock(dumped, *pair) != 0xFFFFFF)
    dumped.write(row_id.page_id, offset, b"\xff\xff\xff")
    assert any(f"row {row_id} has lock none" in finding.message for finding in dumped.findings())


def _lock(damage: Damage, row_id: RowId, offset: int) -> int:
    return int.from_bytes(damage.page(row_id.page_id)[offset : offset + 3], "little")


def test_records_of_whole_pages_name_pages_of_their_table(tmp_path: Path) -> None:
    with gmdb.connect(tmp_path / "load.gmdb") as db:
        db.create_table("t", {"i": "INT"})
        db.commit()
        db.append("t", pa.table({"i": pa.array(range(2_000), pa.int32())}))
        db.dump(tmp_path / "load.dump")
        db.rollback()
    loaded = Damage(tmp_path / "load.dump")
    assert loaded.findings() == []
    page_id, offset = records(loaded)[-1]
    loaded.write(page_id, offset + UNDO_RECORD.size + 8, (77).to_bytes(4, "little"))
    found(loaded, page_id, offset, "is not listed by entry 77 of map page 4:1, as the record has it")
    loaded.set(page_id, UNDO_RECORD, offset, "row_id.page_id", page_id_of(0, 3))
    found(loaded, page_id, offset, "is not a data page of object 16")


# ---- runs of undo records, and the table of committed transactions


def undo_page(dumped: Damage) -> int:
    return records(dumped)[0][0]


def owners(dumped: Damage, page_id: int) -> list[int]:
    """Where a page's OWNER records are."""
    page = dumped.page(page_id)
    kinds = ((offset, UNDO_RECORD.at(page, offset).op_type) for offset, _, _ in record_extents(page))
    return [offset for offset, kind in kinds if kind == UndoOperation.OWNER]


def table_entries(dumped: Damage) -> list[tuple[int, int, int]]:
    """Page, offset and transaction of each entry of the table of committed transactions."""
    with DatabaseFiles(dumped.path) as files:
        child = SEGMENT_HEAD.at(files.page(UNDO_ENTRY), SEGMENT_HEAD_AT).child_seg
        pages = files.segment_pages(child)
        return [(page_id, at, number) for page_id in pages for at, number, _ in committed(files.page(page_id))]


def test_an_undo_page_that_counts_its_dead_records_wrong(dumped: Damage) -> None:
    page_id = undo_page(dumped)
    count = PAGE_HEAD.at(dumped.page(page_id)).del_count
    assert count >= len(owners(dumped, page_id)) > 0
    only(dumped, page_id, dumped.set(page_id, PAGE_HEAD, 0, "del_count", count + 1), f"but {count} records are dead")


def test_live_records_of_nobody(dumped: Damage) -> None:
    page_id = undo_page(dumped)
    dumped.write(page_id, OWNER_AT, bytes(8))
    only(dumped, page_id, OWNER_AT, "but their transaction is not named")


def test_one_run_that_is_there_twice(dumped: Damage) -> None:
    page_id = undo_page(dumped)
    [offset] = owners(dumped, page_id)
    dumped.write(page_id, offset + UNDO_RECORD.size, dumped.page(page_id)[OWNER_AT : OWNER_AT + 12])
    only(dumped, page_id, offset, "run 0 of transaction")


def test_an_owner_record_of_another_size(dumped: Damage) -> None:
    page_id = undo_page(dumped)
    [offset] = owners(dumped, page_id)
    dumped.set(page_id, UNDO_RECORD, offset, "size", 36)
    only(dumped, page_id, offset, "an OWNER record has 40 bytes, this one 36")


def test_a_transaction_that_is_in_the_table_twice(dumped: Damage) -> None:
    [(page_id, offset, number)] = table_entries(dumped)
    entry = dumped.page(page_id)[offset : offset + TRANSACTION_ENTRY.size]
    dumped.write(page_id, offset + 3 * TRANSACTION_ENTRY.size, entry)
    at = offset + 3 * TRANSACTION_ENTRY.size
    only(dumped, page_id, at, f"transaction {number} is in the table twice")


def test_a_committed_transaction_without_an_scn(dumped: Damage) -> None:
    [(page_id, offset, number)] = table_entries(dumped)
    dumped.write(page_id, offset + 8, bytes(8))
    found(dumped, page_id, offset, f"transaction {number} has an entry, but no SCN")


def test_a_closed_database_has_cleaned_up_after_all_transactions(dumped: Damage) -> None:
    dumped.set_control("purpose", 0)
    [(page_id, offset, number)] = table_entries(dumped)
    found(dumped, page_id, offset, f"transaction {number} committed and was not cleaned up after")


def test_a_child_that_is_not_the_table_of_transactions(damage: Damage) -> None:
    at = damage.set(UNDO_ENTRY, SEGMENT_HEAD, SEGMENT_HEAD_AT, "child_seg", damage.table("empty").entry_page)
    found(damage, UNDO_ENTRY, at, "leads to no segment that belongs to this one")


def test_a_table_with_a_child(damage: Damage) -> None:
    entry = damage.table("empty").entry_page
    at = damage.set(entry, SEGMENT_HEAD, SEGMENT_HEAD_AT, "child_seg", damage.table("types32").entry_page)
    only(damage, entry, at, "leads to no segment that belongs to this one")


@pytest.fixture
def in_between(tmp_path: Path) -> Damage:
    """The pages of a database in which a table is being made, and another was dropped that a reader may still need."""
    with gmdb.connect(tmp_path / "db") as db, gmdb.connect(tmp_path / "db", isolation="repeatable read") as reader:
        for name in ("t", "gone"):
            db.create_table(name, {"i": "INT"})
            db.commit()
        db.insert("gone", (1,))
        db.commit()
        list(reader.heap("t").rows())
        db.drop_table("gone")
        db.commit()
        space = db._database.store.space("main")
        db.session.create_segment(space, 4711, "made", SegmentType.HEAP, 10)
        db.dump(tmp_path / "dump")
        db.rollback()
        reader.rollback()
    return Damage(tmp_path / "dump")


def test_segments_that_come_and_go_are_nothing_wrong(in_between: Damage) -> None:
    assert in_between.findings() == []


@pytest.mark.parametrize("kind", [UndoOperation.CREATE_SEGMENT, UndoOperation.SET_DROP])
def test_a_record_of_a_segment_that_is_not_there(in_between: Damage, kind: UndoOperation) -> None:
    page_id, offset = next(
        place for place in records(in_between) if UNDO_RECORD.at(in_between.page(place[0]), place[1]).op_type == kind
    )
    entry = in_between.get(page_id, UNDO_RECORD, offset, "seg_entry")
    in_between.set(page_id, UNDO_RECORD, offset, "obj_id", 99)
    found(in_between, page_id, offset, f"page {page_name(entry)} is not the entry page of object 99")
    in_between.set(page_id, UNDO_RECORD, offset, "row_id.page_id", page_id_of(4, 9))
    found(in_between, page_id, offset, "names another place than its segment's entry page")
