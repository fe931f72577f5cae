"""Cursors: every way to rows gives the same rows, one by one and in batches, whatever transactions are doing."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import gmdb
from gmdb.database.connection import Connection
from gmdb.errors import NoSuchColumn, NoSuchIndex, NotSupportedError, SchemaError, SnapshotTooOld
from gmdb.format.address import RowId
from tests.searches import extent

COLUMNS = {"i": "INT", "s": "VARCHAR(900)", "d": "DOUBLE", "b": "BOOLEAN", "n": "DECIMAL(30,2)", "t": "DATE"}
NAMES = list(COLUMNS)


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Connection]:
    with gmdb.connect(tmp_path / "d.gmdb") as connection:
        connection.create_table("t", COLUMNS)
        connection.create_index("t_i", "t", ["i"])
        connection.create_index("t_si", "t", ["s", "i"])
        connection.create_index("t_d", "t", ["d"])
        connection.create_index("t_all", "t", ["n", "b", "t"])
        connection.create_index("t_hash", "t", ["i"], using="hash")
        connection.commit()
        yield connection


def row(r: random.Random) -> tuple[Any, ...]:
    text = None if r.random() < 0.1 else "x" * r.choice([0, 3, 20, 850])
    number = Decimal(r.randrange(-(10**25), 10**25)).scaleb(-2)
    values = (
        r.randrange(50),
        text,
        r.choice([0.0, -0.0, 1.5]),
        r.random() < 0.5,
        number,
        date(2020, 1, r.randint(1, 28)),
    )
    return tuple(None if r.random() < 0.1 else value for value in values)


def work(db: Connection, r: random.Random, steps: int) -> None:
    """Changes of all kinds; what is open stays open."""
    heap = db.heap("t")
    for _ in range(steps):
        ids = [row_id for row_id, _ in heap.rows()]
        action = r.random()
        if action < 0.4 or not ids:
            heap.insert(row(r))
        elif action < 0.6:
            heap.update(r.choice(ids), dict(zip(NAMES, row(r), strict=True)))
        elif action < 0.7:
            heap.delete(r.choice(ids))
        elif action < 0.8:
            columns = zip(*(row(r) for _ in range(r.choice([3, 300]))), strict=True)
            schema = db.arrow("t").schema
            db.commit()
            db.append("t", pa.table([list(column) for column in columns], schema=schema))
        else:
            db.commit() if r.random() < 0.7 else db.rollback()


def sorts(key: tuple[Any, ...], row_id: RowId) -> tuple[Any, ...]:
    return (*((value is None, 0 if value is None else value) for value in key), row_id)


def check(db: Connection, r: random.Random) -> None:
    rows = dict(db.heap("t").rows())
    for index in db.table("t").indexes:
        wanted = r.sample(NAMES, r.randint(1, len(NAMES)))
        if r.random() < 0.5:
            wanted = [NAMES[n] for n in index.positions]
        chosen = [NAMES.index(name) for name in wanted]
        keys = {row_id: tuple(values[n] for n in index.positions) for row_id, values in rows.items()}
        if index.using == "hash":
            ranges = [gmdb.KeyRange((value,), (value,)) for value in r.sample(range(50), 3)]
        else:
            ranges = [gmdb.KeyRange(), gmdb.KeyRange(backwards=True)]
        for asked in ranges:
            found = sorted(rows, key=lambda row_id: sorts(keys[row_id], row_id), reverse=asked.backwards)
            found = [row_id for row_id in found if not asked.low or keys[row_id] == asked.low]
            expected = [(row_id, tuple(rows[row_id][n] for n in chosen)) for row_id in found]
            cursor = db.select("t", wanted, by=index.name, keys=asked)
            one_by_one = list(cursor.rows())
            batches = cursor.arrow().read_all()
            if index.using == "hash":
                expected, one_by_one = sorted(expected, key=repr), sorted(one_by_one, key=repr)
            assert repr(one_by_one) == repr(expected), index.name
            values = [tuple(line.values()) for line in batches.to_pylist()]
            assert sorted(map(repr, values)) == sorted(repr(value) for _, value in expected)
            assert index.using == "hash" or list(map(repr, values)) == [repr(value) for _, value in expected]
    ids = r.sample(sorted(rows), min(len(rows), 20))
    asked_ids = [*ids, RowId(ids[0].page_id, 3000)] if ids else []
    by_ids = db.select("t", row_ids=asked_ids)
    assert repr(list(by_ids.rows())) == repr([(row_id, rows[row_id]) for row_id in ids])
    assert by_ids.arrow().read_all().num_rows == len(ids)
    assert dict(db.select("t").rows()) == rows
    assert db.select("t").arrow().read_all().num_rows == len(rows)


@pytest.mark.search
@pytest.mark.parametrize("seed", range(extent(3, 6)))
def test_every_way_to_rows_gives_the_same_rows(db: Connection, seed: int) -> None:
    """Two sessions change a table; what each reads by every index, covered or not, is what its scan reads."""
    r = random.Random(seed)
    isolation = "repeatable read" if seed % 3 == 0 else "read committed"
    with gmdb.connect(db.path, lock_timeout=0.01, isolation=isolation) as other:
        for _ in range(4):
            try:
                work(db, r, 15)
            except gmdb.Error:
                db.rollback()
            try:
                work(other, r, 15)
            except gmdb.Error:
                other.rollback()
            check(db, r)
            check(other, r)
        if r.random() < 0.5:
            db.gc()
        check(db, r)


def test_a_cursor_reads_many_rows_in_batches_that_grow(db: Connection) -> None:
    count = 80_000
    data = {"i": pa.array(range(count), pa.int32()), "s": [f"{n:05}" * (n % 40) for n in range(count)]}
    others = {name: pa.nulls(count, field.type) for name, field in zip(NAMES, db.arrow("t").schema, strict=True)}
    db.append("t", pa.table({**others, **data}))
    reader = db.select("t", ["i", "s"], by="t_i").arrow()
    sizes, values = [], []
    for batch in reader:
        sizes.append(len(batch))
        values += batch.column(0).to_pylist()
    assert values == list(range(count))
    assert sizes[0] == 64
    assert max(sizes) > 10_000
    few = db.select("t", ["i"], by="t_i", keys=gmdb.KeyRange((7,), (9,), high_open=True)).arrow().read_all()
    assert few.to_pydict() == {"i": [7, 8]}


def test_a_reading_goes_on_by_its_snapshot(db: Connection) -> None:
    for n in range(500):
        db.insert("t", (n, "x", None, None, None, None))
    db.commit()
    covered = db.select("t", ["i"], by="t_i").arrow()
    visited = db.select("t", ["i", "d"], by="t_i").arrow()
    ids = db.select("t", ["i"], row_ids=[row_id for row_id, _ in db.heap("t").rows()]).arrow()
    with gmdb.connect(db.path) as other:
        other.delete("t", lambda values: values["i"] % 2 == 0)
        other.update("t", {"i": 1000}, lambda values: values["i"] < 100)
        other.commit()
        other.gc()
    for reader in (covered, visited, ids):
        assert reader.read_all().column("i").to_pylist() == list(range(500))


def test_wrong_questions_are_refused(db: Connection) -> None:
    with pytest.raises(NoSuchIndex, match="t_i"):
        db.select("t", by="nope")
    with pytest.raises(NoSuchColumn):
        db.select("t", ["nope"])
    with pytest.raises(SchemaError, match="twice"):
        db.select("t", ["i", "i"])
    with pytest.raises(SchemaError, match="needs the name of an index"):
        db.select("t", keys=gmdb.KeyRange((1,), (2,)))
    with pytest.raises(SchemaError, match="not by both"):
        db.select("t", by="t_i", row_ids=[])
    with pytest.raises(NotSupportedError, match="B-tree"):
        db.select("t", by="t_hash", keys=gmdb.KeyRange((1,), (2,)))


def test_an_index_newer_than_the_snapshot_is_not_read(db: Connection) -> None:
    with gmdb.connect(db.path, isolation="repeatable read") as other:
        list(other.heap("t").rows())
        table = other.table("t")
        assert table.indexes
        db.create_table("u", {"i": "INT"})
        db.commit()
        other.commit()
        other.begin()
        list(other.heap("t").rows())
        db.insert("u", (1,))
        db.create_index("u_i", "u", ["i"])
        db.commit()
        with pytest.raises(SnapshotTooOld):
            other.select("u", by="u_i").arrow()
