"""B-trees against a sorted list: any types, any order, duplicates, NULLs, deletes down to nothing."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import gmdb
from gmdb.database.connection import Connection
from gmdb.errors import DataError
from gmdb.format.address import RowId
from gmdb.format.btree import BTREE_NODE, NODE_AT
from gmdb.format.page import PAGE_HEAD
from gmdb.format.segment import map_capacity
from gmdb.tables.access.index_entries import BTreeIndex
from gmdb.tables.access.indexes import KeyRange
from tests.access.trees import check_tree, level_of, make_tree, page_of, root_of
from tests.integrity import problems

Make = Callable[[random.Random], Any]
TYPES: dict[str, Make] = {
    "INT": lambda r: r.randint(-50, 50),
    "BIGINT": lambda r: r.choice([-(2**63), 2**63 - 1, r.randint(-9, 9)]),
    "DOUBLE": lambda r: r.choice([-math.inf, math.inf, -1.5, 0.0, 1e300, r.random()]),
    "DATE": lambda r: date(1970, 1, 1) + timedelta(days=r.randint(-400, 400)),
    "BOOLEAN": lambda r: r.random() < 0.5,
    "DECIMAL(9,2)": lambda r: Decimal(r.randint(-999, 999)) / 100,
    "DECIMAL(38,0)": lambda r: Decimal(r.choice([-(10**37), 10**37, r.randint(-(2**70), 2**70)])),
    "VARCHAR(300)": lambda r: r.choice(["", "a", "aa", "ab", "ä", "z" * r.randint(0, 300)]),
    "VARBINARY(20)": lambda r: r.randbytes(r.randint(0, 20)),
}


@pytest.fixture
def db(path: Path) -> Iterator[Connection]:
    """A database whose pages are sound when the test is over; its indexes belong to no table."""
    database = gmdb.connect(path)
    yield database
    database.close()
    assert [found for found in problems(path) if "no table or index starts here" not in found] == []


def order(key: tuple[Any, ...], row_id: RowId) -> tuple[Any, ...]:
    """What sorts as an index does: NULLs last, text by its bytes, then the row id."""
    return (*((v is None, v.encode() if isinstance(v, str) else 0 if v is None else v) for v in key), row_id)


def walked(tree: BTreeIndex, **options: Any) -> list[tuple[tuple[Any, ...], RowId]]:
    return list(tree.walk(KeyRange(**options)))


def play(tree: BTreeIndex, types: list[str], seed: int, steps: int, nulls: bool = True) -> None:
    """Random inserts and deletes, then deletes down to nothing; the tree is what a sorted list is."""
    r = random.Random(seed)
    entries: dict[tuple[tuple[Any, ...], RowId], None] = {}

    def compare() -> None:
        expected = sorted(entries, key=lambda entry: order(*entry))
        assert walked(tree) == expected
        assert walked(tree, backwards=True) == expected[::-1]
        check_tree(tree)

    for step in range(steps):
        if entries and r.random() < 0.35:
            entry = r.choice(list(entries))
            assert entry in tree
            assert tree.take(*entry)
            del entries[entry]
            assert entry not in tree
            assert not tree.take(*entry)
        else:
            key = tuple(None if nulls and r.random() < 0.05 else TYPES[type_](r) for type_ in types)
            entry = key, RowId(r.randint(0, 5), r.randint(0, 300))
            if entry not in entries:
                tree.add(*entry)
                entries[entry] = None
        if step % (steps // 4) == 0:
            compare()
    compare()
    for entry in r.sample(list(entries), len(entries)):
        assert tree.take(*entry)
    entries.clear()
    compare()
    assert tree.segment.head.page_count == 1


@pytest.mark.parametrize("unique", [False, True])
@pytest.mark.parametrize("type_", TYPES)
def test_a_tree_is_a_sorted_list_whatever_its_keys_are(db: Connection, type_: str, unique: bool) -> None:
    play(make_tree(db, [type_], unique), [type_], seed=len(type_), steps=2000 if "300" in type_ else 800)


@pytest.mark.parametrize("seed", range(6))
def test_composite_keys_sort_by_one_column_after_the_other(db: Connection, seed: int) -> None:
    types = random.Random(seed).sample(list(TYPES), random.Random(seed).randint(2, 5))
    play(make_tree(db, types, unique=seed % 2 == 0), types, seed, steps=1500)


def test_many_duplicates_of_a_key_span_pages(db: Connection) -> None:
    for number, unique in enumerate((False, True)):
        tree = make_tree(db, ["INT"], unique, obj_id=2000 + number)
        row_ids = [RowId(page, slot) for page in range(40) for slot in range(50)]
        for row_id in random.Random(1).sample(row_ids, len(row_ids)):
            tree.add((7,), row_id)
        tree.add((6,), RowId(0, 0))
        tree.add((8,), RowId(0, 0))
        assert [row_id for _, row_id in tree.walk(KeyRange((7,), (7,)))] == row_ids
        assert level_of(tree, root_of(tree)) >= 1
        for row_id in row_ids[::-1]:
            assert tree.take((7,), row_id)
        assert [key for key, _ in tree.walk()] == [(6,), (8,)]
        check_tree(tree)


def test_ranges_begin_and_end_where_they_should(db: Connection) -> None:
    tree = make_tree(db, ["INT", "VARCHAR(10)"], unique=False)
    rows = [((n // 10, f"{n % 10}"), RowId(n, 0)) for n in range(5000)]
    for entry in random.Random(2).sample(rows, len(rows)):
        tree.add(*entry)
    for low, high in (((100,), (120,)), ((100, "5"), (120,)), ((), (3,)), ((498,), ()), ((7,), (7,)), ((600,), ())):
        for low_open in (False, True):
            for high_open in (False, True):
                expected = [
                    entry
                    for entry in rows
                    if (not low or (entry[0][: len(low)] > low if low_open else entry[0][: len(low)] >= low))
                    and (not high or (entry[0][: len(high)] < high if high_open else entry[0][: len(high)] <= high))
                ]
                options = {"low": low, "high": high, "low_open": low_open, "high_open": high_open}
                assert walked(tree, **options) == expected
                assert walked(tree, **options, backwards=True) == expected[::-1]


def test_a_walk_goes_on_while_the_tree_changes_under_it(db: Connection) -> None:
    tree = make_tree(db, ["INT"], unique=True)
    for n in range(0, 20000, 2):
        tree.add((n,), RowId(n, 0))
    walk = tree.walk()
    seen = [next(walk) for _ in range(100)]
    for n in range(1, 20000, 2):
        tree.add((n,), RowId(n, 0))
    for n in range(10000, 20000, 4):
        tree.take((n,), RowId(n, 0))
    seen += walk
    keys = [key for (key,), _ in seen]
    assert keys == sorted(set(keys))
    assert {n for n in range(0, 20000, 2) if n < 10000 or n % 4} <= set(keys)
    assert not {n for n in range(16000, 20000, 4)} & set(keys)


def test_zeros_are_equal_and_nan_is_the_largest_double(db: Connection) -> None:
    tree = make_tree(db, ["DOUBLE"], unique=False)
    for n, value in enumerate([math.nan, 0.0, -0.0, math.inf, -math.inf, None, 5e-324]):
        tree.add((value,), RowId(n, 0))
    assert [row_id.page_id for _, row_id in tree.walk()] == [4, 1, 2, 6, 3, 0, 5]
    assert len(walked(tree, low=(0.0,), high=(-0.0,))) == 2


def test_a_key_that_is_too_long_is_refused(db: Connection) -> None:
    tree = make_tree(db, ["VARCHAR(4000)"], unique=False)
    with pytest.raises(DataError, match="at most 2000 bytes, not 2003"):
        tree.add(("x" * 2000,), RowId(0, 0))
    for n in range(50):
        tree.add(("x" * 1990 + f"{n:02}",), RowId(n, 0))
    check_tree(tree)


@pytest.mark.parametrize("shuffled", [False, True])
def test_the_references_root_at_level_two(db: Connection, shuffled: bool) -> None:
    """An int index, filled until its root is at level 2: the root is entry 78 of the second map page."""
    tree = make_tree(db, ["INT"], unique=True)
    keys = list(range(200_000))
    if shuffled:
        random.Random(3).shuffle(keys)
    for key in keys:
        tree.add((key,), RowId(key, 0))
        if key % 16 == 0 and level_of(tree, root_of(tree)) == 2:
            break
    root = page_of(tree, root_of(tree))
    head, node = PAGE_HEAD.at(root), BTREE_NODE.at(root, NODE_AT)
    assert tree.segment.page_ids().tolist().index(root_of(tree)) == 313
    assert head.map_page_id != tree.segment.entry_page
    assert head.map_offset == 313 - map_capacity(8192, True) == 78
    assert (head.chg_num, node.level, node.slot_count) == (3, 2, 2)
    assert (head.free_begin, head.free_end) == (152, 8180)
    assert [int.from_bytes(root[at : at + 2], "little") for at in (8182, 8180)] == [128, 108]
    assert [int.from_bytes(root[at + 4 : at + 6], "little") for at in (128, 108)] == [24, 20]
    assert (node.prev, node.next) == (0xFFFFFFFF, 0xFFFFFFFF)
    check_tree(tree)
