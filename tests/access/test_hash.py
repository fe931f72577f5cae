"""Hash indexes against a dict: any types, duplicates, NULLs, addresses that meet, deletes down to nothing."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import gmdb
from gmdb.database.connection import Connection
from gmdb.format.address import RowId
from gmdb.tables.access.index_entries import HashIndex
from gmdb.tables.access.indexes import KeyRange
from tests.access.hashes import address_of, check_hash, entries_of, make_hash, page_of, rows_that_meet
from tests.access.test_btree import TYPES
from tests.integrity import problems

Entry = tuple[tuple[Any, ...], RowId]


@pytest.fixture
def db(path: Path) -> Iterator[Connection]:
    """A database whose pages are sound when the test is over; its indexes belong to no table."""
    database = gmdb.connect(path)
    yield database
    database.close()
    assert [found for found in problems(path) if "no table or index starts here" not in found] == []


def found(index: HashIndex, key: tuple[Any, ...]) -> list[RowId]:
    entries = list(index.walk(KeyRange(key, key)))
    assert all(other == key for other, _ in entries)
    return sorted(row_id for _, row_id in entries)


def compare(index: HashIndex, entries: set[Entry], keys: list[tuple[Any, ...]]) -> None:
    walked = list(index.walk())
    assert (len(walked), set(walked)) == (len(entries), entries)
    for key in keys:
        assert found(index, key) == sorted(row_id for other, row_id in entries if other == key)
    check_hash(index)


def empty(index: HashIndex, entries: set[Entry], r: random.Random) -> None:
    """Take everything out, in any order: nothing is left but the root."""
    for entry in r.sample(sorted(entries, key=repr), len(entries)):
        assert index.take(*entry)
    compare(index, set(), [])
    assert index.segment.head.page_count == 1


def play(index: HashIndex, types: list[str], seed: int, steps: int) -> None:
    """Random inserts and deletes, then deletes down to nothing."""
    r = random.Random(seed)
    entries: set[Entry] = set()
    for step in range(steps):
        if entries and r.random() < 0.35:
            entry = r.choice(sorted(entries, key=repr)) if step % 8 == 0 else next(iter(entries))
            assert entry in index
            assert index.take(*entry)
            entries.discard(entry)
            assert entry not in index
            assert not index.take(*entry)
        else:
            key = tuple(None if r.random() < 0.05 else TYPES[type_](r) for type_ in types)
            entry = key, RowId(r.randint(0, 5), r.randint(0, 300))
            if entry not in entries:
                index.add(*entry)
                entries.add(entry)
        if step % (steps // 4) == 0:
            compare(index, entries, r.sample(sorted({key for key, _ in entries}, key=repr), min(len(entries), 3)))
    keys = sorted({key for key, _ in entries}, key=repr)
    compare(index, entries, keys[:50])
    empty(index, entries, r)


@pytest.mark.parametrize("type_", TYPES)
def test_a_hash_index_is_a_dict_whatever_its_keys_are(db: Connection, type_: str) -> None:
    play(make_hash(db, [type_]), [type_], seed=len(type_), steps=2000 if "300" in type_ else 800)


@pytest.mark.parametrize("seed", range(4))
def test_composite_keys_are_found_by_all_their_columns(db: Connection, seed: int) -> None:
    types = random.Random(seed).sample(list(TYPES), random.Random(seed).randint(2, 5))
    play(make_hash(db, types), types, seed, steps=1500)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 3), st.booleans()), max_size=400), st.integers(0, 2000))
def test_any_adds_and_takes(db: Connection, steps: list[tuple[int, int, bool]], size: int) -> None:
    """Keys of up to 2000 bytes: few fit into a bucket."""
    store = db._database.store
    index = make_hash(db, ["VARCHAR(2000)"], obj_id=store.control["next_obj_id"])
    store.write_control(next_obj_id=store.control["next_obj_id"] + 1)
    entries: set[Entry] = set()
    for number, row, adds in steps:
        entry = ((f"{number:04}" + "x" * (size - 10 - number),), RowId(row, number))
        assert (entry in index) == (entry in entries)
        if adds and entry not in entries:
            index.add(*entry)
            entries.add(entry)
        elif not adds:
            assert index.take(*entry) == (entry in entries)
            entries.discard(entry)
    compare(index, entries, [key for key, _ in entries])
    empty(index, entries, random.Random(size))


def test_ten_thousands_of_rows_with_one_key_spread_over_buckets(db: Connection) -> None:
    index, r = make_hash(db, ["INT"]), random.Random(1)
    rows = [RowId(page, slot) for page in range(100) for slot in range(300)]
    for n in range(500):
        index.add((n,), RowId(n, 1000))
    for row_id in r.sample(rows, len(rows)):
        index.add((7,), row_id)
    assert found(index, (7,)) == sorted([*rows, RowId(7, 1000)])
    assert found(index, (8,)) == [RowId(8, 1000)]
    assert 5 <= check_hash(index) <= 6
    assert index.segment.head.page_count < 350
    for row_id in r.sample(rows, len(rows)):
        assert index.take((7,), row_id)
    assert check_hash(index) == 1
    assert index.segment.head.page_count <= 8
    empty(index, {((n,), RowId(n, 1000)) for n in range(500)}, r)


def test_rows_of_one_key_whose_addresses_are_the_same_are_told_apart(db: Connection) -> None:
    """More than a bucket takes, with all 64 bits in common: directories go on by the row id."""
    index, r = make_hash(db, ["VARCHAR(1000)"]), random.Random(2)
    entries: set[Entry] = {(("k" * 900,), row_id) for row_id in rows_that_meet(0x123456, 200)}
    for entry in sorted(entries, key=repr):
        index.add(*entry)
    assert len({address_of(index, row_id) for _, row_id in list(entries)[:20]}) == 1
    assert check_hash(index) > 7
    compare(index, entries, [("k" * 900,)])
    empty(index, entries, r)


def test_keys_that_meet_in_the_upper_bits_make_deep_directories_and_leave_none_behind(db: Connection) -> None:
    finder = make_hash(db, ["BIGINT"], obj_id=2000)
    for n in range(60_000):
        finder.add((n,), RowId(n, 0))
    buckets = [entries_of(page_of(finder, page_id)) for page_id in finder.segment.page_ids().tolist()]
    by_address = sorted(entry for bucket in buckets for entry in bucket)
    assert len(by_address) == 60_000
    near = {((place >> 16,), RowId(place >> 16, 0)) for _, place in by_address[1000:2500]}
    index = make_hash(db, ["BIGINT"])
    for entry in near:
        index.add(*entry)
    compare(index, near, [key for key, _ in near][:100])
    for entry in list(near)[:1400]:
        assert index.take(*entry)
        near.discard(entry)
    compare(index, near, [key for key, _ in near])
    empty(index, near, random.Random(3))


def test_a_walk_goes_on_while_the_index_changes_under_it(db: Connection) -> None:
    index = make_hash(db, ["INT"])
    for n in range(0, 10_000, 2):
        index.add((1,), RowId(n, 0))
    walk = index.walk(KeyRange((1,), (1,)))
    seen = [next(walk)[1].page_id for _ in range(100)]
    for n in range(1, 10_000, 2):
        index.add((1,), RowId(n, 0))
    gone = {n for n in range(0, 10_000, 4)}
    for n in gone:
        index.take((1,), RowId(n, 0))
    seen += [row_id.page_id for _, row_id in walk]
    assert len(seen) == len(set(seen))
    assert {n for n in range(0, 10_000, 2)} - gone <= set(seen)


def test_zeros_are_equal_nans_are_and_nulls_are(db: Connection) -> None:
    index = make_hash(db, ["DOUBLE", "INT"])
    other_nan = -math.nan
    for n, value in enumerate([math.nan, 0.0, -0.0, other_nan, None, 5e-324, None]):
        index.add((value, 1), RowId(n, 0))
    for value, expected in ((0.0, [1, 2]), (-0.0, [1, 2]), (math.nan, [0, 3]), (None, [4, 6]), (5e-324, [5])):
        assert sorted(row_id.page_id for _, row_id in index.walk(KeyRange((value, 1), (value, 1)))) == expected
        assert list(index.walk(KeyRange((value, None), (value, None)))) == []


def test_a_long_random_run(db: Connection) -> None:
    """Nearly a hundred thousand steps over few and many keys, in waves that grow and shrink."""
    r, index, entries = random.Random(4), make_hash(db, ["INT", "VARCHAR(60)"]), {}
    for wave in range(6):
        for _ in range(8_000):
            key = (r.choice([r.randint(0, 5), r.randint(0, 10**6), None]), "x" * r.choice([0, 3, 50]))
            entry = key, RowId(r.randint(0, 10**6), r.randint(0, 9))
            if entry not in entries:
                index.add(*entry)
                entries[entry] = None
        shrink_to = len(entries) // r.choice([2, 20, 500])
        order = list(entries)
        r.shuffle(order)
        for entry in order[shrink_to:]:
            assert index.take(*entry), wave
            del entries[entry]
        compare(index, set(entries), [key for key, _ in order[: min(shrink_to, 30)]])
    empty(index, set(entries), r)
