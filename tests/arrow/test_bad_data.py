"""Data that does not fit is refused whole, with the table, column and row named."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from gmdb.database.connection import Connection
from gmdb.errors import (
    Corruption,
    Error,
    InterfaceError,
    NoSuchColumn,
    NoSuchTable,
    NullNotAllowed,
    RowTooLarge,
    SchemaMismatch,
    TypeMismatch,
    ValueOutOfRange,
    ValueTooLong,
)
from gmdb.format.columns import ColumnType
from gmdb.tables.arrow.scan import Lookup, Reading, Scan


@pytest.fixture
def table(db: Connection) -> Connection:
    db.create_table("t", {"i": "INT NOT NULL", "s": "VARCHAR(10)", "b": "VARBINARY(32602)"})
    db.commit()
    db.append("t", batch([1, 2, 3]))
    return db


def batch(numbers: list[Any], texts: list[Any] | None = None, blobs: list[Any] | None = None) -> pa.RecordBatch:
    count = len(numbers)
    return pa.record_batch(
        {
            "i": pa.array(numbers, pa.int32()),
            "s": pa.array(texts or ["ok"] * count, pa.string()),
            "b": pa.array(blobs or [b"x"] * count, pa.binary()),
        }
    )


MANY = list(range(3000))

BAD: list[tuple[Any, type[Error], str]] = [
    (
        batch(MANY, ["ok"] * 2999 + ["eleven byte"]),
        ValueTooLong,
        r"table t, column s, row 2999: .* 11 bytes .*VARCHAR\(10\)",
    ),
    (batch([1, None]), NullNotAllowed, "table t, column i: row 1 has no value"),
    (batch(MANY, None, [b"x"] * 2000 + [b"y" * 8100] + [b"x"] * 999), RowTooLarge, r"table t, row 2000: .*16384"),
    (batch([1, 2], None, [b"", b"y" * 32602]), RowTooLarge, r"32768.*LOBs"),
    (pa.table({"i": [1], "s": ["a"]}), SchemaMismatch, "it has no b"),
    (pa.table({"i": [1], "s": ["a"], "b": [b""], "z": [1]}), SchemaMismatch, "the table has no z"),
    (pa.table({"i": ["1"], "s": ["a"], "b": [b""]}), TypeMismatch, "column i: Arrow type string does not fit INT"),
    (pa.table({"i": [1.5], "s": ["a"], "b": [b""]}), TypeMismatch, "column i: Arrow type double"),
    (pa.table({"i": [1, 2, 2**40], "s": ["a"] * 3, "b": [b""] * 3}), ValueOutOfRange, "column i: row 2: 1099511627776"),
    (42, InterfaceError, "int holds no Arrow data"),
    ([1, 2], InterfaceError, "a int among the batches"),
]


@pytest.mark.parametrize(("data", "error", "message"), BAD)
def test_bad_data_is_refused_and_leaves_no_trace(
    table: Connection, data: Any, error: type[Error], message: str
) -> None:
    before = table.arrow("t").read_all()
    with pytest.raises(error, match=message):
        table.append("t", data)
    assert table.arrow("t").read_all().equals(before)
    assert table.append("t", batch([4])) == 1


def test_a_bad_batch_takes_back_the_good_ones_before_it(table: Connection) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        for _ in range(20):
            yield batch(list(range(3000)))
        yield batch([1], ["far too long a text"])

    with pytest.raises(ValueTooLong, match="row 60000"):
        table.append("t", batches())
    assert table.arrow("t", columns=["i"]).read_all()["i"].to_pylist() == [1, 2, 3]
    table.commit()
    table.gc()
    assert len(table.heap("t").segment.page_ids()) == 1


def test_a_source_that_fails_takes_back_what_it_gave(table: Connection) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield batch(list(range(3000)))
        raise RuntimeError("the source broke")

    with pytest.raises(RuntimeError, match="the source broke"):
        table.append("t", batches())
    assert table.arrow("t", columns=["i"]).read_all()["i"].to_pylist() == [1, 2, 3]


def test_a_source_may_itself_change_the_database(table: Connection) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield batch([4])
        table.heap("t").insert((5, "x", b""))
        yield batch([6])

    table.append("t", batches())
    assert sorted(table.arrow("t", columns=["i"]).read_all()["i"].to_pylist()) == [1, 2, 3, 4, 5, 6]


def test_the_length_of_a_text_counts_its_bytes(table: Connection) -> None:
    assert table.append("t", batch([1], ["größer 1"])) == 1  # ten bytes
    with pytest.raises(ValueTooLong, match="11 bytes"):
        table.append("t", batch([1], ["größer 12"]))


def test_unknown_names_are_told_with_the_known_ones(table: Connection) -> None:
    with pytest.raises(NoSuchTable, match="no table u; the tables are: t"):
        table.arrow("u")
    with pytest.raises(NoSuchColumn, match="table t has no column z; its columns are i, s, b"):
        table.arrow("t", columns=["z"])


def test_values_longer_than_the_catalog_says_are_damage(table: Connection) -> None:
    """A damaged catalog may say so of a column; no buffer would ever be large enough for its values."""
    table.append("t", batch([4], blobs=[bytes(200)]))
    heap = table.heap("t")
    short = [replace(c, type=ColumnType("VARBINARY", 1)) if c.name == "b" else c for c in heap.columns]
    store, page_size = heap.segment.store, heap.segment.space.page_size
    with heap.session.cursor() as (snapshot, form):
        reading = Reading(form, snapshot)
        scan = Scan(store, heap.obj_id, short, [0, 2], heap.segment.page_ids(), page_size)
        lookup = Lookup(store, heap.obj_id, short, [0, 2])
        places = np.array([row_id.place for row_id, _ in heap.rows()], np.int64)
        for batches in (scan.batches(reading), lookup.by_places(places, reading)):
            with pytest.raises(Corruption, match="has a value that is longer than its column's type allows"):
                list(batches)
