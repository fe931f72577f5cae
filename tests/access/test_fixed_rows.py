"""Rows of a fixed size are unpacked together as they would be one by one."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import pytest

import gmdb
from gmdb.format.address import RowId
from gmdb.format.codec import RowCodec
from gmdb.format.columns import Column
from gmdb.tables.access.fixed_rows import fixed_split
from gmdb.tables.catalog.schema import make_columns

TYPES = ("INT", "BIGINT", "DOUBLE", "DATE", "BOOLEAN", "DECIMAL(9,2)")
ROWS = [(n, n << 40, n / 4, None, None, None) for n in range(-3, 4)]


def columns_of(types: Sequence[str]) -> list[Column]:
    return list(make_columns("t", [(f"c{n}", type_) for n, type_ in enumerate(types)]))


def given_out(columns: Sequence[Column], rows: Sequence[Sequence[Any]]) -> bytes:
    """Rows as the kernel gives them out, on page 7 from slot 0 on."""
    encoded = map(RowCodec(columns).encode, rows)
    return b"".join(struct.pack("<IIq", 7, slot, len(row)) + row for slot, row in enumerate(encoded))


def test_rows_of_numbers_are_unpacked_together() -> None:
    columns = columns_of(TYPES[:3])
    rows = [row[:3] for row in ROWS]
    data = given_out(columns, rows)
    plain, placed = (fixed_split(columns, range(3), row_ids) for row_ids in (False, True))
    assert plain is not None
    assert placed is not None
    assert list(plain(data) or ()) == rows
    assert list(placed(data) or ()) == [(RowId(7, slot), row) for slot, row in enumerate(rows)]
    assert list(plain(b"") or ()) == []


def test_rows_with_nulls_or_fewer_columns_are_left_to_others() -> None:
    columns = columns_of(TYPES[:3])
    split = fixed_split(columns, range(3), False)
    assert split is not None
    for odd in ((None, 1, 1.0), (1, None, 1.0), (None, None, None)):
        assert split(given_out(columns, [(1, 2, 3.0), odd, (4, 5, 6.0)])) is None
        assert split(given_out(columns, [odd])) is None
    assert split(given_out(columns[:2], [(1, 2), (3, 4)])) is None
    assert split(given_out(columns, [(1, 2, 3.0)]) + given_out(columns[:1], [(1,)])) is None


@pytest.mark.parametrize(
    ("types", "wanted"),
    [
        (["INT", "VARCHAR(5)"], [0]),
        (["INT", "DECIMAL(38,2)"], [0]),
        (["INT", "DATE"], [1]),
        (["BOOLEAN"], [0]),
        (["DECIMAL(9,2)"], [0]),
        (["INT"] * 17, [0]),
    ],
)
def test_tables_of_other_kinds_are_left_to_others(types: list[str], wanted: list[int]) -> None:
    assert fixed_split(columns_of(types), wanted, False) is None


def test_columns_that_nobody_wants_may_be_of_any_fixed_type(db: Any) -> None:
    db.execute("create table t (k int, a int, b bigint, d double, e date, f boolean, g numeric(9, 2))")
    for n in range(20):
        values = (n % 2, n, n << 33, n / 8, "2024-01-31", n % 3 == 0, n)
        db.execute("insert into t values (?, ?, ?, ?, ?, ?, ?)", values)
    db.execute("create index t_k on t (k)")
    db.commit()
    asked = "select a, b, d, rowid from t where k = ? order by a"
    rows = db.execute(asked, (1,)).fetchall()
    assert [row[:3] for row in rows] == [(n, n << 33, n / 8) for n in range(1, 20, 2)]
    assert [db.execute("select a from t where rowid = ?", (row[3],)).fetchall() for row in rows] == [
        [(n,)] for n in range(1, 20, 2)
    ]
    db.execute("update t set b = null where a = 5")
    with gmdb.connect(db.path) as other:
        assert other.execute("select sum(b) from t where k = 1").fetchall() == [(sum(range(1, 20, 2)) << 33,)]
    assert db.execute("select a, b from t where k = 1 and a < 8 order by a").fetchall() == [
        (1, 1 << 33), (3, 3 << 33), (5, None), (7, 7 << 33),
    ]  # fmt: skip
    db.execute("alter table t add column h int")
    db.execute("insert into t values (1, 4, 4, 4, null, null, null, 4)")
    assert db.execute("select a, h from t where k = 1 and a < 8 order by a").fetchall() == [
        (1, None), (3, None), (4, 4), (5, None), (7, None),
    ]  # fmt: skip
