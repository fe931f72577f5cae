"""Any rows of any types, through pages and back."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gmdb
from gmdb.database.connection import Connection
from gmdb.errors import SchemaError
from gmdb.format.columns import Column
from gmdb.format.row import decode_row, encode_row
from gmdb.tables.arrow.arrow_types import arrow_schema
from gmdb.tables.arrow.scan import Reading, Scan
from tests.arrow.values import stored, tables
from tests.integrity import assert_sound

Table = tuple[list[Column], list[tuple[Any, ...]]]


def as_arrow(columns: list[Column], rows: list[tuple[Any, ...]]) -> pa.Table:
    schema = arrow_schema(columns)
    arrays = [pa.array([row[i] for row in rows], field.type) for i, field in enumerate(schema)]
    return pa.Table.from_arrays(arrays, schema=schema)


def new_table(db: Connection, columns: list[Column]) -> None:
    """Table t of these columns, in place of the one before."""
    db.commit()
    if db.tables():
        db.drop_table("t")
        db.commit()
    db.create_table("t", {column.name: str(column.type) for column in columns}, tablespace="wide")
    db.commit()


@given(table=tables())
@settings(max_examples=100, deadline=None)
def test_rows_survive_the_plain_codec(table: Table) -> None:
    columns, rows = table
    for row in rows:
        expected = tuple(stored(c, v) for c, v in zip(columns, row, strict=True))
        assert decode_row(columns, encode_row(columns, row)) == expected


@pytest.fixture(scope="module")
def shared() -> Any:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "shared.gmdb"
        with gmdb.connect(path) as db:
            db.create_tablespace("wide", page_size=32768)
            yield db
        assert_sound(path)


@given(table=tables(), split=st.integers(0, 12))
@settings(max_examples=120, deadline=None)
def test_rows_survive_pages_whichever_way_they_went_in(shared: Connection, table: Table, split: int) -> None:
    columns, rows = table
    db = shared
    new_table(db, columns)
    arrow = as_arrow(columns, rows)
    db.append("t", arrow.slice(0, split))
    heap = db.heap("t")
    ids = [heap.insert(row) for row in rows[split:]]
    expected = [tuple(stored(c, v) for c, v in zip(columns, row, strict=True)) for row in rows]
    scanned = db.arrow("t").read_all()
    assert scanned.schema == arrow_schema(columns)
    scanned.validate(full=True)
    assert [tuple(row.values()) for row in scanned.to_pylist()] == expected
    assert [values for _, values in heap.rows()] == expected
    assert [heap.fetch(row_id) for row_id in ids] == expected[min(split, len(rows)) :]


@given(table=tables(), data=st.data())
@settings(max_examples=60, deadline=None)
def test_some_columns_are_those_columns_of_all(shared: Connection, table: Table, data: st.DataObject) -> None:
    columns, rows = table
    new_table(shared, columns)
    shared.append("t", as_arrow(columns, rows))
    names = data.draw(st.lists(st.sampled_from([c.name for c in columns]), unique=True, min_size=1))
    whole = shared.arrow("t").read_all()
    assert shared.arrow("t", columns=names).read_all().equals(whole.select(names))


def test_slices_and_chunks_of_arrow_data_are_read_from_their_offset(db: Connection) -> None:
    db.create_table("t", {"i": "INT", "b": "BOOLEAN", "s": "VARCHAR(20)"})
    db.commit()
    numbers = [None if n % 7 == 0 else n for n in range(1000)]
    table = pa.table(
        {
            "i": pa.array(numbers, pa.int32()),
            "b": pa.array([None if n is None else n % 3 == 0 for n in numbers]),
            "s": pa.array([None if n is None else f"text {n}" for n in numbers]),
        }
    )
    for start, length in ((3, 10), (13, 500), (513, 0), (513, 487)):
        db.append("t", table.slice(start, length))
    assert db.arrow("t").read_all().equals(table.slice(3).combine_chunks())


def test_a_table_of_1024_columns_scans(db: Connection) -> None:
    db.create_tablespace("wide", page_size=32768)
    db.create_table("t", {f"c{n}": "BIGINT" for n in range(1024)}, tablespace="wide")
    db.commit()
    table = pa.table({f"c{n}": [n, None, -n] for n in range(1024)})
    db.append("t", table)
    assert db.arrow("t").read_all().to_pylist() == table.to_pylist()
    assert db.arrow("t", columns=["c1023"]).read_all()["c1023"].to_pylist() == [1023, None, -1023]


def test_related_arrow_types_are_converted_without_loss(db: Connection) -> None:
    db.create_table("t", {"i": "INT", "d": "DECIMAL(10,2)", "s": "VARCHAR(9)", "t": "TIMESTAMP", "x": "DOUBLE"})
    db.commit()
    count = db.append(
        "t",
        pa.table(
            {
                "x": pa.array([1], pa.int64()),
                "t": pa.array([1_700_000_000], pa.timestamp("s", "Europe/Paris")),
                "s": pa.array(["a"]).dictionary_encode(),
                "d": pa.array([7], pa.int16()),
                "i": pa.array([5], pa.uint64()),
            }
        ),
    )
    assert count == 1
    row = db.arrow("t").read_all().to_pylist()[0]
    assert (row["i"], str(row["d"]), row["s"], row["x"]) == (5, "7.00", "a", 1.0)
    assert str(row["t"]) == "2023-11-14 22:13:20"


def test_a_table_can_be_appended_to_itself(db: Connection) -> None:
    db.create_table("t", {"i": "INT"})
    db.commit()
    db.append("t", pa.table({"i": pa.array(range(5000), pa.int32())}))
    db.append("t", db.arrow("t"))
    assert db.arrow("t").read_all()["i"].to_pylist() == [*range(5000), *range(5000)]


def test_a_scan_has_room_for_rows_that_moved_to_pages_outside_of_its_range(db: Connection) -> None:
    db.create_table("t", {"i": "INT", "s": "VARCHAR(4000)"}, pct_free=0)
    db.commit()
    heap = db.heap("t")
    rows = [heap.insert((n, "short")) for n in range(300)]
    for n, row_id in enumerate(rows):
        heap.update(row_id, (n, str(n % 10) * 3000))
    columns = db.table("t").columns
    db.commit()
    home = Scan(heap.segment.store, heap.obj_id, columns, [0, 1], heap.segment.page_ids()[:1], 8192)
    batches = list(home.batches(Reading.of_closed()))
    assert batches[0]["s"].to_pylist() == [str(n % 10) * 3000 for n in range(300)]


def test_a_column_asked_for_twice_is_refused(db: Connection) -> None:
    db.create_table("t", {"i": "INT"})
    db.commit()
    with pytest.raises(SchemaError, match="named twice in i, i"):
        db.arrow("t", columns=["i", "i"])


def test_a_row_behind_many_freed_slots_is_found_by_scans_and_indexes(db: Connection) -> None:
    """The directory of a page has room for as many slots as two bytes each allow, if few of them have rows."""
    db.create_table("t", {"i": "INT"})
    db.create_index("t_i", "t", ["i"])
    db.insert("t", (-1,))
    db.commit()
    for n in range(2060):
        db.append("t", pa.table({"i": pa.array([n], pa.int32())}))
        [(row_id, _)] = db.heap("t").by("t_i").find((n,))
        if n < 2059:
            db.heap("t").delete(row_id)
            db.commit()
            if n % 40 == 0:
                db.gc()
    assert row_id.slot_id > 2048
    assert [row["i"] for row in db.arrow("t").read_all().to_pylist()] == [-1, 2059]
    db.commit()
