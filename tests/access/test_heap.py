"""Rows by row id."""

from __future__ import annotations

import pytest

from gmdb.database.connection import Connection
from gmdb.errors import DataError, NoSuchRow, RowTooLarge, TypeMismatch, ValueTooLong
from gmdb.format.address import RowId, page_id_of
from gmdb.format.heap import flags_of, live_slots
from gmdb.format.row import RowFlag
from gmdb.tables.access.heap import Heap


@pytest.fixture
def heap(db: Connection) -> Heap:
    db.create_table("t", {"k": "INT", "s": "VARCHAR(4000)"})
    db.commit()
    return db.heap("t")


def flags(heap: Heap, row_id: RowId) -> RowFlag:
    page = bytes(heap.segment.store.devices[4].memory(row_id.page_id & 0x3FFFFF))
    return flags_of(page, dict(live_slots(page))[row_id.slot_id])


def test_an_update_that_fits_stays_in_its_place(heap: Heap) -> None:
    row_id = heap.insert((1, "some text"))
    heap.update(row_id, (2, "less"))
    assert heap.fetch(row_id) == (2, "less")


def test_an_update_that_grows_moves_within_the_page_and_keeps_its_row_id(heap: Heap) -> None:
    first, second = heap.insert((1, "a")), heap.insert((2, "b"))
    heap.update(first, (1, "a" * 500))
    assert (heap.fetch(first), heap.fetch(second)) == ((1, "a" * 500), (2, "b"))
    assert flags(heap, first) == RowFlag(0)


def test_an_update_uses_the_bytes_that_earlier_moves_left_behind(heap: Heap) -> None:
    rows = [heap.insert((n, "x" * 100)) for n in range(40)]
    for size in range(200, 3300, 100):
        heap.update(rows[0], (0, "y" * size))
    assert flags(heap, rows[0]) == RowFlag(0)
    assert [heap.fetch(row) for row in rows[1:]] == [(n, "x" * 100) for n in range(1, 40)]


def test_a_row_that_outgrows_its_page_leaves_an_entry_behind(heap: Heap) -> None:
    rows = [heap.insert((n, "x" * 1000)) for n in range(5)]
    heap.update(rows[0], (0, "y" * 4000))
    assert flags(heap, rows[0]) == RowFlag.ENTRY
    assert heap.fetch(rows[0]) == (0, "y" * 4000)
    assert next(heap.rows()) == (rows[0], (0, "y" * 4000))


def test_migrating_again_does_not_lengthen_the_chain(heap: Heap) -> None:
    rows = [heap.insert((n, "x" * 1000)) for n in range(30)]
    for size in (3900, 3000, 3950, 20, 4000):
        for row in rows[:4]:
            heap.update(row, (0, "z" * size))
    assert all(heap.fetch(row) == (0, "z" * 4000) for row in rows[:4])


def test_a_migrated_row_that_shrinks_stays_where_it_is_and_can_be_deleted(heap: Heap) -> None:
    rows = [heap.insert((n, "x" * 1000)) for n in range(6)]
    heap.update(rows[2], (2, "y" * 4000))
    heap.update(rows[2], (2, "small"))
    assert heap.fetch(rows[2]) == (2, "small")
    heap.delete(rows[2])
    with pytest.raises(NoSuchRow, match="has no row"):
        heap.fetch(rows[2])


def test_an_insert_does_not_get_a_deleted_rows_id(heap: Heap) -> None:
    row_id = heap.insert((1, "a"))
    heap.delete(row_id)
    assert heap.insert((2, "b")) != row_id
    with pytest.raises(NoSuchRow):
        heap.update(row_id, (3, "c"))
    with pytest.raises(NoSuchRow):
        heap.delete(row_id)


def test_collection_frees_deleted_rows_and_keeps_the_others(db: Connection, heap: Heap) -> None:
    rows = [heap.insert((n, "x" * 100)) for n in range(40)]
    heap.update(rows[1], (1, "y" * 4000))
    db.commit()
    for row in rows[::2]:
        heap.delete(row)
    db.commit()
    db.gc()
    assert [heap.fetch(row)[0] for row in rows[1::2]] == list(range(1, 40, 2))
    new = heap.insert((99, "new"))
    assert heap.fetch(new) == (99, "new")


def test_pages_that_become_empty_are_used_again(db: Connection, heap: Heap) -> None:
    rows = [heap.insert((n, "x" * 1900)) for n in range(30)]
    db.commit()
    pages = len(heap.segment.page_ids())
    for row in rows:
        heap.delete(row)
    db.commit()
    db.gc()
    assert len(heap.segment.page_ids()) == 1
    for n in range(30):
        heap.insert((n, "y" * 1900))
    assert len(heap.segment.page_ids()) <= pages


def test_a_later_insert_fills_the_room_of_earlier_pages(heap: Heap) -> None:
    for n in range(20):
        heap.insert((n, "x" * 2400))
    pages = len(heap.segment.page_ids())
    for n in range(10):
        heap.insert((n, "y" * 900))
    assert len(heap.segment.page_ids()) == pages


@pytest.mark.parametrize(
    "row_id", [RowId(page_id_of(4, 2), 999), RowId(page_id_of(4, 50), 0), RowId(page_id_of(9, 9), 0), RowId(0, 0)]
)
def test_a_row_id_that_was_never_given_out_leads_to_no_row(heap: Heap, row_id: RowId) -> None:
    heap.insert((1, "a"))
    with pytest.raises(NoSuchRow):
        heap.fetch(row_id)


def test_a_row_id_of_another_table_leads_to_no_row(db: Connection, heap: Heap) -> None:
    db.create_table("other", {"x": "INT"})
    db.commit()
    row_id = db.heap("other").insert((7,))
    with pytest.raises(NoSuchRow):
        heap.fetch(row_id)


def test_a_row_larger_than_a_page_is_refused_with_advice(db: Connection) -> None:
    db.create_table("wide", {name: "VARCHAR(4000)" for name in "abc"})
    db.commit()
    heap = db.heap("wide")
    with pytest.raises(RowTooLarge, match=r"wide.*12021 bytes.*8078.*16384 or 32768-byte pages.*LOBs"):
        heap.insert(("x" * 4000,) * 3)
    row_id = heap.insert(("x", "y", "z"))
    with pytest.raises(RowTooLarge):
        heap.update(row_id, ("x" * 4000,) * 3)
    assert heap.fetch(row_id) == ("x", "y", "z")


def test_the_largest_row_fills_an_empty_page(db: Connection) -> None:
    db.create_table("big", {"b": "VARBINARY(32602)"})
    db.commit()
    heap = db.heap("big")
    heap.insert((b"x" * (8078 - 14),))
    with pytest.raises(RowTooLarge):
        heap.insert((b"x" * (8078 - 13),))


def test_bad_values_are_refused_and_named(heap: Heap) -> None:
    for values, error, message in [
        ((1, "x" * 4001), ValueTooLong, "column s: a value of 4001 bytes"),
        (("1", "x"), TypeMismatch, "column k"),
        ((1 << 31, "x"), DataError, "column k"),
        ((1,), DataError, "1 values for 2 columns"),
    ]:
        with pytest.raises(error, match=message):
            heap.insert(values)
    assert list(heap.rows()) == []
