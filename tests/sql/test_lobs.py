"""Large objects in SQL."""

from __future__ import annotations

import io
from random import Random

import pytest

from gmdb.database.connection import Connection
from gmdb.errors import DataError, NotSupportedError, SchemaError, TypeMismatch, ValueTooLong

DATA = Random(3).randbytes(100_000)
TEXT = "Zeile äöü\n" * 9000


@pytest.fixture
def table(db: Connection) -> Connection:
    db.execute("create table t (i int primary key, b blob, c clob, v varchar(4000))")
    db.execute("insert into t values (?, ?, ?, ?)", (1, DATA, TEXT, "v"))
    db.execute("insert into t values (2, '\\x0102', 'short', null), (3, null, null, null)")
    db.commit()
    return db


def test_values_are_bytes_and_texts_of_any_length(table: Connection) -> None:
    everything = [(1, DATA, TEXT), (2, b"\x01\x02", "short"), (3, None, None)]
    assert table.execute("select i, b, c from t order by i").fetchall() == everything
    assert table.execute("select i, b, c from t where i = 1").fetchall() == everything[:1]
    assert table.execute("select * from t where i = 2").fetchall() == [(*everything[1], None)]
    assert table.execute("select c from t order by i").arrow()["c"].to_pylist() == [TEXT, "short", None]


@pytest.mark.parametrize("where", ["", " where i = 1"])  # in DuckDB, and row by row
def test_expressions_take_them_as_texts_and_bytes(table: Connection, where: str) -> None:
    asked = "length(c), length(b), substr(c, 7, 3), c like 'Zeile%', upper(substr(c, 1, 3)), b is null, c || 'x' = c"
    row = (len(TEXT), len(DATA), "äöü", True, "ZEI", False, False)
    assert table.execute(f"select {asked} from t{where}").fetchall()[0] == row
    assert table.execute(f"select length(cast(c as text)), length(c || c) from t{where}").fetchall()[0] == (
        len(TEXT),
        2 * len(TEXT),
    )


def test_conditions_compare_them(table: Connection) -> None:
    assert table.execute("select i from t where b = ?", (DATA,)).fetchall() == [(1,)]
    assert table.execute("select i from t where c = ? and i = 1", (TEXT,)).fetchall() == [(1,)]
    assert table.execute("select count(*), max(length(c)) from t where c is not null").fetchall() == [(2, len(TEXT))]


def test_files_are_parameters(table: Connection) -> None:
    table.execute("insert into t values (?, ?, ?, 'f')", (4, io.BytesIO(DATA * 9), io.StringIO(TEXT)))
    assert table.execute("select b, c from t where i = 4").fetchall() == [(DATA * 9, TEXT)]
    made = table.execute("update t set b = ? where i > 2 returning i, length(b)", (io.BytesIO(DATA),)).fetchall()
    assert sorted(made) == [(3, len(DATA)), (4, len(DATA))]
    again = table.execute(
        "insert into t (i, b) values (5, :f), (4, :f) on conflict (i) do update set b = excluded.b returning i, b",
        {"f": io.BytesIO(b"same" * 5000)},
    )
    assert again.fetchall() == [(5, b"same" * 5000), (4, b"same" * 5000)]
    table.executemany("insert into t (i, c) values (?, ?)", [(n, io.StringIO("n" * n)) for n in (10, 5000)])
    assert table.execute("select length(c) from t where i >= 10 order by i").fetchall() == [(10,), (5000,)]
    table.execute("create table g (i int primary key, b blob, twice int generated always as (i * 2) stored)")
    table.execute("insert into g (i, b) values (1, ?), (2, null)", (io.BytesIO(DATA),))
    table.execute("update g set i = i + 2, b = ?", (io.BytesIO(b"new"),))
    assert table.execute("select * from g order by i").fetchall() == [(3, b"new", 6), (4, b"new", 8)]
    table.commit()


def test_what_does_not_fit_is_refused(table: Connection) -> None:
    with pytest.raises(TypeMismatch, match="the file gives str"):
        table.execute("update t set b = ?", (io.StringIO("x" * 9000),))
    with pytest.raises(TypeMismatch):
        table.execute("update t set c = ? where i = 1", (b"bytes",))
    with pytest.raises(DataError):
        table.execute("update t set b = ? where i = 1", (5,))
    with pytest.raises(ValueTooLong):
        table.execute("update t set v = c where i = 1")
    with pytest.raises(TypeMismatch, match="a file is for a column"):
        table.execute("select i from t where c = ?", (io.StringIO("x"),))
    with pytest.raises(SchemaError, match="column c is a CLOB, which cannot be part of a key"):
        table.execute("create index t_c on t (c)")
    with pytest.raises(SchemaError, match="column b is a BLOB"):
        table.execute("create table u (b blob primary key)")
    table.execute("alter table t add constraint short check (length(c) < 100000)")
    with pytest.raises(NotSupportedError, match="give its large objects whole"):
        table.execute("update t set c = ? where i = 2", (io.StringIO(TEXT),))
    table.execute("update t set c = ? where i = 2", (TEXT,))
    assert table.execute("select c from t where i = 2").fetchone() == (TEXT,)


def test_queries_and_definitions_move_them(table: Connection) -> None:
    table.execute("create table copy (i int, b blob, c clob)")
    table.execute("insert into copy select i + 10, b, c from t")
    assert table.execute("select b, c from copy where i = 11").fetchall() == [(DATA, TEXT)]
    table.execute("update copy set b = (select b from t where t.i = copy.i - 10), c = c || c")
    assert table.execute("select b, c from copy where i = 11").fetchall() == [(DATA, TEXT + TEXT)]
    table.execute("alter table t add column more blob")
    table.execute("update t set more = b")
    table.execute("truncate table copy")
    table.commit()
    assert table.execute("select more from t where i = 1").fetchone() == (DATA,)
    assert table.execute("delete from t where length(b) > 5 returning c").fetchall() == [(TEXT,)]
    table.commit()
