"""An undo record, byte for byte: one session updates a row, another reads the row from undo."""

from __future__ import annotations

import pytest

from gmdb.database.connection import Connection
from gmdb.format.address import RowId, device_of
from gmdb.format.page import PAGE_HEAD, SegmentType
from gmdb.format.undo import NODE_AT, UNDO_HEAD, UNDO_RECORD, UndoOperation
from tests.sessions import Connect, page_bytes

RECORD_AT, IMAGE_AT = 84, 108


@pytest.fixture
def row_id(db: Connection) -> RowId:
    db.create_table("tbl", {"i": "INT", "s": "VARCHAR(10)"})
    db.commit()
    row_id = db.heap("tbl").insert((0, "hello"))
    db.commit()
    db.gc()
    return row_id


@pytest.fixture
def lock(db: Connection, row_id: RowId) -> dict[str, int]:
    """The lock of ``update tbl set s = 'hello1' where i = 0``, not committed."""
    assert db.update("tbl", {"s": "hello1"}, where=lambda row: row["i"] == 0) == 1
    [lock] = db.locks().to_pylist()
    assert (lock["page_id"], lock["slot_id"]) == row_id
    return lock


@pytest.fixture
def page(db: Connection, lock: dict[str, int]) -> bytes:
    assert device_of(lock["undo_page"]) == 1
    return page_bytes(db, lock["undo_page"])


@pytest.mark.usefixtures("lock")
def test_another_session_gets_hello_out_of_undo(db: Connection, row_id: RowId, connect: Connect) -> None:
    other = connect()
    assert other.heap("tbl").fetch(row_id) == (0, "hello")
    assert other.arrow("tbl").read_all().to_pylist() == [{"i": 0, "s": "hello"}]
    assert db.heap("tbl").fetch(row_id) == (0, "hello1")


def test_the_lock_names_its_row_and_its_undo_record(row_id: RowId, lock: dict[str, int]) -> None:
    assert (lock["action"], lock["page_id"], lock["slot_id"]) == ("UPDATE", row_id.page_id, row_id.slot_id)
    assert lock["undo_slot"] == 0


def test_the_undo_page_has_one_record(page: bytes) -> None:
    head = PAGE_HEAD.at(page)
    assert len(page) == 32768
    assert (head.seg_type, head.free_begin, head.free_end) == (SegmentType.UNDO, 132, 32758)
    assert UNDO_HEAD.at(page, NODE_AT).slot_count == 1
    assert page[32758:32760] == RECORD_AT.to_bytes(2, "little")


def test_the_record_says_what_was_done_to_which_row(
    db: Connection, page: bytes, row_id: RowId, lock: dict[str, int]
) -> None:
    record = UNDO_RECORD.at(page, RECORD_AT)
    assert (record.row_id.page_id, record.row_id.slot_id, record.row_id.sid_reserve) == (*row_id, 65535)
    assert (record.size, record.op_type, record.reserved) == (48, UndoOperation.HEAP_UPDATE_INC, 0xFF)
    table = db.table("tbl")
    assert (record.lock_id, record.obj_id, record.seg_entry) == (lock["lock_id"], table.obj_id, table.entry_page)


def test_the_image_has_only_the_column_that_changed(page: bytes) -> None:
    image = page[IMAGE_AT : RECORD_AT + 48]
    assert image[0:4] == b"\xff\xff\xff\xff"  # no lock before
    assert image[4:6] == (20).to_bytes(2, "little")
    assert image[6:8] == (1).to_bytes(2, "little")  # columns
    assert image[8:12] == (3).to_bytes(4, "little")  # their size bits
    assert image[12:20] == bytes.fromhex("06 00 68 65 6c 6c 6f 00")
    assert image[20:22] == b"\x01\x00"  # column 1; what follows is padding
    assert len(image) == 24
