"""Reading a database's files: pages, segments, tables, rows, and what is said when they are damaged."""

from __future__ import annotations

import pytest

from gmdb.errors import Corruption, NoSuchTable, NotADatabase, StorageError
from gmdb.format.address import RowId, page_id_of
from gmdb.format.page import PageType, SegmentType
from gmdb.format.row import RowFlag, encode_cells, encode_row
from gmdb.tables.catalog.schema import SYS_TABLES_ENTRY
from gmdb.tables.files.database_files import DatabaseFiles
from tests.inspect.build import (
    TBL_COLUMNS,
    TBL_ENTRY,
    TBL_FIRST,
    UNDO_ENTRY,
    UNDO_FIRST,
    DeviceBuilder,
    build_database,
    change_page,
    heap_body,
    reference_rows,
)

MAP_NEXT_AT = 644


def cut(path, size):
    with path.open("r+b") as file:
        file.truncate(size)


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """The worked example in full: 150,002 rows."""
    return build_database(tmp_path_factory.mktemp("large") / "built.gmdb", reference_rows(150_002))


def test_tables_and_their_columns_are_read_from_the_catalog(database):
    with DatabaseFiles(database) as files:
        assert [table.name for table in files.tables()] == ["sys_tables", "sys_columns", "tbl"]
        tbl = files.table("TBL")
    assert (tbl.obj_id, tbl.entry_page, tbl.columns) == (16, TBL_ENTRY, TBL_COLUMNS)


def test_rows_are_read_with_their_row_ids(database):
    with DatabaseFiles(database) as files:
        rows = list(files.rows(files.table("tbl")))
    assert [values for _, values in rows] == reference_rows(300)
    assert rows[2][0] == RowId(TBL_FIRST, 2)
    assert rows[233][0] == RowId(TBL_FIRST + 1, 0)


def test_150002_rows_take_644_data_pages_and_three_map_pages(large):
    with DatabaseFiles(large) as files:
        pages, maps = files.segment_pages(TBL_ENTRY), files.map_pages(TBL_ENTRY)
    assert len(pages) == 644
    assert maps == [TBL_ENTRY, TBL_ENTRY + 236, TBL_ENTRY + 236 + 253]
    assert pages[0] == TBL_FIRST
    assert pages[235] == TBL_ENTRY + 237


def test_a_missing_table_is_answered_with_the_name_that_was_meant(database):
    with DatabaseFiles(database) as files:
        with pytest.raises(NoSuchTable, match="did you mean tbl"):
            files.table("tbll")
        with pytest.raises(NoSuchTable, match="its tables are: tbl"):
            files.table("zzz")


def test_spaces_name_their_devices_and_counts(database):
    with DatabaseFiles(database) as files:
        found = [
            (s.space_id, s.name, s.page_size, s.page_count, s.hwm, s.free_pages, s.seg_num) for s in files.spaces()
        ]
    assert found == [(0, "system", 8192, 5, 5, 0, 2), (1, "undo", 32768, 6, 6, 3, 1), (4, "users", 8192, 11, 11, 5, 2)]


def test_segments_are_found_by_their_entry_pages(database):
    with DatabaseFiles(database) as files:
        assert files.segment_entries(0) == [SYS_TABLES_ENTRY, 3]
        assert files.segment_entries(1) == [UNDO_ENTRY]
        assert files.segment_pages(UNDO_ENTRY) == [UNDO_FIRST]


def test_deleted_rows_are_skipped_and_migrated_ones_followed(database):
    columns = TBL_COLUMNS
    moved_to = RowId(TBL_FIRST, 3)
    rows = [
        encode_row(columns, (1, "2")),
        encode_row(columns, (2, "3"), lock_word=0xFFFFFF | RowFlag.DELETE << 24),
        encode_cells([moved_to.word.to_bytes(8, "little")], [2], lock_word=0xFFFFFF | RowFlag.ENTRY << 24),
        encode_row(columns, (9, "moved"), lock_word=0xFFFFFF | RowFlag.LINK << 24),
    ]
    offsets = [104 + sum(map(len, rows[:n])) for n in range(len(rows))]
    owner = {"obj_id": 16, "seg_type": SegmentType.HEAP, "page_type": PageType.DATA, "map_page_id": TBL_ENTRY}
    page = DeviceBuilder(4, "users").page(heap_body(rows), offsets, place=TBL_FIRST, del_count=1, **owner)
    change_page(database, TBL_FIRST, 0, page)
    change_page(database, TBL_FIRST + 1, 84, b"\0\0", sealed=True)
    with DatabaseFiles(database) as files:
        found = list(files.rows(files.table("tbl")))
    assert found == [(RowId(TBL_FIRST, 0), (1, "2")), (RowId(TBL_FIRST, 2), (9, "moved"))]


def test_a_migrated_row_that_is_not_where_it_should_be_is_corruption(database):
    entry = encode_cells([RowId(TBL_FIRST, 5).word.to_bytes(8, "little")], [2], lock_word=0x02FFFFFF)
    change_page(database, TBL_FIRST, 104, entry, sealed=True)
    with DatabaseFiles(database) as files, pytest.raises(Corruption, match="4:7:0: it has moved to 4:7:5"):
        list(files.rows(files.table("tbl")))


def test_a_page_past_the_end_or_on_no_device_is_an_error_that_names_it(database):
    with DatabaseFiles(database) as files:
        with pytest.raises(StorageError, match="no page 4:11"):
            files.page(page_id_of(4, 11))
        with pytest.raises(StorageError, match=r"9:1: .* has no device 9; its devices are 0, 1, 4"):
            files.page(page_id_of(9, 1))


def test_a_file_that_was_cut_short_is_corruption_that_names_the_page(database):
    cut(database / "device-0004", 8 * 8192 + 100)
    with DatabaseFiles(database) as files:
        with pytest.raises(Corruption, match="4:8 is cut short") as raised:
            files.page(page_id_of(4, 8))
        assert raised.value.page_id == page_id_of(4, 8)
        with pytest.raises(Corruption, match="4:9 is missing"):
            files.page(page_id_of(4, 9))
        assert any("ends after 8 of 11 pages" in problem for problem in files.spaces()[2].problems())


@pytest.mark.parametrize(("device", "page_size"), [(0, 8192), (1, 32768), (4, 8192)])
def test_pages_behind_a_damaged_device_head_are_still_read(database, device, page_size):
    change_page(database, page_id_of(device, 0), 0, b"\xff" * 300)
    with DatabaseFiles(database) as files:
        assert files.devices[device].page_size == page_size
        assert files.devices[device].problems()
        assert len(files.page(page_id_of(device, 4))) == page_size
        assert [table.name for table in files.tables()][-1] == "tbl"


def test_an_empty_device_file_is_a_damaged_device(database):
    cut(database / "device-0004", 0)
    with DatabaseFiles(database) as files:
        assert files.devices[4].file_pages == 0
        assert files.spaces()[-1].problems()
        with pytest.raises(StorageError, match="4:6"):
            files.segment_pages(TBL_ENTRY)


def test_a_map_that_runs_in_a_circle_ends_in_corruption(database):
    change_page(database, TBL_ENTRY, MAP_NEXT_AT, TBL_ENTRY.to_bytes(4, "little"), sealed=True)
    with DatabaseFiles(database) as files, pytest.raises(Corruption, match="4:6 leads back to map page 4:6"):
        files.segment_pages(TBL_ENTRY)


@pytest.mark.parametrize(
    ("target", "said"),
    [(page_id_of(4, 999), "map page 4:6 leads on to a bad page"), (TBL_FIRST, "4:7 should be a MAP page")],
)
def test_a_map_that_leads_to_no_map_page_is_corruption(database, target, said):
    change_page(database, TBL_ENTRY, MAP_NEXT_AT, target.to_bytes(4, "little"), sealed=True)
    with DatabaseFiles(database) as files, pytest.raises(Corruption, match=said):
        files.segment_pages(TBL_ENTRY)


def test_a_map_that_leads_into_another_segment_is_corruption(large):
    second = TBL_ENTRY + 236
    with DatabaseFiles(large) as files:
        wrong = bytearray(files.page(second))
        right = bytes(wrong)
    wrong[80:84] = TBL_FIRST.to_bytes(4, "little")
    change_page(large, second, 0, bytes(wrong), sealed=True)
    with DatabaseFiles(large) as files, pytest.raises(Corruption, match="belongs behind 4:7"):
        files.segment_pages(TBL_ENTRY)
    change_page(large, second, 0, right)


def test_a_map_that_counts_more_entries_than_fit_is_corruption(database):
    change_page(database, TBL_ENTRY, MAP_NEXT_AT + 4, b"\xff\xff", sealed=True)
    with DatabaseFiles(database) as files, pytest.raises(Corruption, match="65535 entries, but has room for 235"):
        files.segment_pages(TBL_ENTRY)


def test_a_map_page_whose_crc_is_wrong_is_not_followed(database):
    change_page(database, TBL_ENTRY, 2000, b"\xff")
    with DatabaseFiles(database) as files, pytest.raises(Corruption, match="4:6 is damaged: its CRC"):
        files.segment_pages(TBL_ENTRY)


def test_a_page_written_to_the_wrong_place_is_corruption(database):
    with DatabaseFiles(database) as files:
        stray = files.page(TBL_FIRST + 1)
    change_page(database, TBL_FIRST, 0, stray)
    with DatabaseFiles(database) as files, pytest.raises(Corruption, match=r"4:7 is damaged: its head says .* 4:8"):
        list(files.rows(files.table("tbl")))


def test_a_row_that_cannot_be_read_is_corruption_that_names_its_row_id(database):
    change_page(database, TBL_FIRST, 144 + 18, b"\xff", sealed=True)
    with DatabaseFiles(database) as files, pytest.raises(Corruption, match="table tbl, row 4:7:2"):
        list(files.rows(files.table("tbl")))


def test_the_path_of_a_file_is_no_database(database):
    with pytest.raises(NotADatabase, match="is a file"):
        DatabaseFiles(database / "device-0004")
