"""Damage of large objects: their pages, and the cells of rows that lead to them."""

from __future__ import annotations

from pathlib import Path

import pytest

import gmdb
from gmdb.format.lob import DATA_AT, LOB_NODE, NODE_AT, LobPlace, Locator, capacity, decode_cell
from gmdb.format.page import PAGE_HEAD
from gmdb.format.row import ROW_HEAD, walk_cells
from gmdb.tables.files.database_files import DatabaseFiles
from tests.verify.build import Damage
from tests.verify.expect import found, only

PAGE = capacity(8192)
SIZES = (10, PAGE, 5 * PAGE, 3 * PAGE + 1)


@pytest.fixture
def damage(tmp_path: Path) -> Damage:
    with gmdb.connect(tmp_path / "d.gmdb") as db:
        db.create_table("t", {"k": "INT", "b": "BLOB"})
        for n, size in enumerate(SIZES):
            db.insert("t", (n, bytes([n]) * size))
    return Damage(tmp_path / "d.gmdb")


def cell_of(damage: Damage, n: int) -> tuple[int, int]:
    """Where the cell of a row's large object is: page and offset."""
    row_id, offset = damage.rows("t")[n]
    page = damage.page(row_id.page_id)
    cells = list(walk_cells(page, offset, offset + ROW_HEAD.at(page, offset).size))
    return row_id.page_id, cells[1][1]


def first_page(damage: Damage, n: int) -> int:
    page_id, at = cell_of(damage, n)
    value = decode_cell(damage.page(page_id)[at : at + 16])
    assert isinstance(value, Locator)
    return value.first_page


def child(damage: Damage, n: int, number: int) -> int:
    raw = damage.page(first_page(damage, n))[DATA_AT + 4 * number :]
    return int.from_bytes(raw[:4], "little")


def test_sound_large_objects_are_clean(damage: Damage) -> None:
    assert damage.findings() == []
    with DatabaseFiles(damage.path) as files:
        lobs = files.table("t").lobs
        assert lobs is not None
        assert len(files.segment_pages(lobs.entry_page)) == 1 + 6 + 5


def test_a_cell_that_is_neither_a_value_nor_a_locator(damage: Damage) -> None:
    page_id, at = cell_of(damage, 0)
    damage.write(page_id, at, b"\x07")
    only(damage, page_id, at, "is not a cell of a large object")


def test_a_cell_that_leads_elsewhere(damage: Damage) -> None:
    page_id, at = cell_of(damage, 2)
    lost = first_page(damage, 2)
    damage.write(page_id, at + 4, page_id.to_bytes(4, "little"))
    found(damage, page_id, at, "where no large object begins")
    found(damage, lost, NODE_AT, "a large object that no row has")


def test_two_cells_that_lead_to_one_value(damage: Damage) -> None:
    page_id, at = cell_of(damage, 2)
    damage.write(page_id, at + 4, first_page(damage, 1).to_bytes(4, "little"))
    found(damage, page_id, at, "as another row does")


def test_a_cell_with_another_length(damage: Damage) -> None:
    page_id, at = cell_of(damage, 2)
    damage.write(page_id, at + 8, (5 * PAGE - 1).to_bytes(8, "little"))
    only(damage, page_id, at, f"says {5 * PAGE - 1} bytes, but the large object")


def test_a_row_that_has_lost_its_value(damage: Damage) -> None:
    page_id, at = cell_of(damage, 1)
    lost = first_page(damage, 1)
    damage.write(page_id, at, bytes([LobPlace.HERE]))
    only(damage, lost, NODE_AT, "a large object that no row has")


def test_a_page_that_is_another_ones(damage: Damage) -> None:
    first, leaf = first_page(damage, 2), child(damage, 2, 3)
    damage.set(leaf, LOB_NODE, NODE_AT, "number", 2)
    found(damage, first, DATA_AT + 12, "is not page 3 of level 0")
    found(damage, leaf, NODE_AT, "a page of a large object that does not lead to it")


def test_pages_in_another_order(damage: Damage) -> None:
    first = first_page(damage, 2)
    swapped = [child(damage, 2, n) for n in (1, 0)]
    damage.write(first, DATA_AT, b"".join(page_id.to_bytes(4, "little") for page_id in swapped))
    found(damage, first, DATA_AT, "is not page 0 of level 0")


def test_a_page_that_is_not_full(damage: Damage) -> None:
    leaf = child(damage, 2, 1)
    at = damage.set(leaf, PAGE_HEAD, 0, "free_begin", DATA_AT + 100)
    only(damage, leaf, at, f"the page has 100 bytes of a large object, not {PAGE}")


def test_a_length_that_its_pages_do_not_have(damage: Damage) -> None:
    first = first_page(damage, 2)
    damage.set(first, LOB_NODE, NODE_AT, "length", 9 * PAGE)
    found(damage, first, DATA_AT, "has 5 pages of level 0, but needs 9")


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [("level", 3, "level 3; there are 3"), ("length", 1 << 33, "cannot be this page's")],
)
def test_a_node_head_that_makes_no_sense(damage: Damage, field: str, value: int, said: str) -> None:
    first = first_page(damage, 2)
    found(damage, first, damage.set(first, LOB_NODE, NODE_AT, field, value), said)


def test_ids_that_are_cut_off(damage: Damage) -> None:
    first = first_page(damage, 2)
    found(damage, first, damage.set(first, PAGE_HEAD, 0, "free_begin", DATA_AT + 18), "is within a page id")


def test_a_table_without_a_segment_for_them(damage: Damage) -> None:
    entry = damage.table("t").lobs
    assert entry is not None
    damage.set(entry.entry_page, PAGE_HEAD, 0, "seg_type", 3)
    assert any(
        "large objects of table t start at page 4:2, whose seg_type is 3" in f.message for f in damage.findings()
    )
