"""PEP 249, and what people expect beside it: of a connection of this process, and of one through an owner."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import gmdb
from gmdb import dbapi
from gmdb.connection import Connection
from gmdb.errors import InterfaceError, ProgrammingError, UniqueViolation
from tests.server.peer import Peer

TYPES = """i int primary key, b bigint, d double precision, n decimal(12,3), t boolean, day date, at timestamp,
           s varchar(20), x varbinary(9)"""
ROW = (1, 1 << 40, 0.5, Decimal("12.345"), True, date(2024, 2, 29), datetime(2024, 2, 29, 1, 2, 3, 4), "grüß", b"\0\1")


@pytest.fixture(params=["local", "remote"])
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Connection]:
    path = tmp_path / "d.gmdb"
    if request.param == "local":
        with gmdb.connect(path) as connection:
            yield connection
        return
    owner = Peer()
    owner("own = gmdb.connect(path)", path=str(path))
    try:
        with gmdb.connect(path) as connection:
            yield connection
    finally:
        owner.end()


def test_module_attributes() -> None:
    assert (gmdb.apilevel, gmdb.threadsafety, gmdb.paramstyle) == ("2.0", 1, "qmark")
    assert issubclass(gmdb.IntegrityError, gmdb.DatabaseError)
    assert dbapi.STRING == "VARCHAR"
    assert dbapi.NUMBER != "VARCHAR"


def test_values_of_every_type_go_in_and_come_out(db: Connection) -> None:
    cursor = db.cursor()
    cursor.execute(f"create table t ({TYPES})")
    cursor.execute("insert into t values (?, ?, ?, ?, ?, ?, ?, ?, ?)", ROW)
    assert cursor.rowcount == 1
    cursor.execute("select * from t where i = :i", {"i": 1})
    assert cursor.fetchone() == ROW
    assert cursor.fetchone() is None
    assert [one[0] for one in cursor.description or ()] == ["i", "b", "d", "n", "t", "day", "at", "s", "x"]
    assert [one[1] for one in cursor.description or ()][3] == dbapi.NUMBER
    nulls = (2, *[None] * 8)
    cursor.execute("insert into t values (?, ?, ?, ?, ?, ?, ?, ?, ?)", nulls)
    assert db.execute("select * from t order by i").fetchall() == [ROW, nulls]


def test_fetching(db: Connection) -> None:
    db.execute("create table t (i int primary key)")
    db.executemany("insert into t values (?)", [(n,) for n in range(250)])
    cursor = db.execute("select i from t order by i")
    assert cursor.fetchmany(3) == [(0,), (1,), (2,)]
    assert cursor.fetchone() == (3,)
    assert [row[0] for row in cursor] == list(range(4, 250))
    assert cursor.fetchall() == []
    assert db.execute("select i from t where i < 5").arrow().to_pydict() == {"i": [0, 1, 2, 3, 4]}
    reader = db.execute("select i from t").fetch_record_batch()
    assert sum(len(batch) for batch in reader) == 250
    cursor = db.execute("delete from t")
    assert cursor.rowcount == 250
    assert cursor.description is None
    with pytest.raises(ProgrammingError):
        cursor.fetchone()


def test_many_sets_of_parameters(db: Connection) -> None:
    db.execute("create table t (i int primary key, s varchar(5) default 'x', n int)")
    assert db.executemany("insert into t (i, n) values (?, ?)", [(n, n * n) for n in range(300)]).rowcount == 300
    named = [{"a": n, "b": n} for n in range(300, 310)]
    assert db.executemany("insert into t (i, n) values (:a, :b)", named).rowcount == 10
    table = pa.table({"i": [1000, 1001], "n": [1, None]})
    assert db.executemany("insert into t (i, n) values (?, ?)", table).rowcount == 2
    assert db.execute("select count(*), count(n), min(s) from t").fetchone() == (312, 311, "x")
    assert db.executemany("update t set n = ? where i = ?", [(5, 0), (6, 1)]).rowcount == 2
    db.commit()
    with pytest.raises(UniqueViolation):
        db.executemany("insert into t (i) values (?)", [(n,) for n in range(5000, 5100)] + [(0,)])
    assert db.execute("select count(*) from t").fetchone() == (312,)


@pytest.mark.parametrize(
    ("statement", "parameters", "said"),
    [
        ("select ?", (), "1 parameters, but 0"),
        ("select 1", (1,), "0 parameters, but 1"),
        ("select :a", (1,), "named parameters"),
        ("select :a", {"b": 1}, "no value for parameter :a"),
        ("select ?, :a", (1,), "either"),
        ("", (), "no statement"),
        ("select 1; select 2", (), "more than one"),
    ],
)
def test_wrong_parameters_are_refused(db: Connection, statement: str, parameters: Any, said: str) -> None:
    with pytest.raises(ProgrammingError, match=said):
        db.execute(statement, parameters)


def test_transactions(db: Connection) -> None:
    db.execute("create table t (i int)")
    db.commit()
    db.execute("insert into t values (1)")
    db.rollback()
    assert db.execute("select count(*) from t").fetchone() == (0,)
    db.commit()
    db.autocommit = True
    db.execute("insert into t values (1)")
    db.execute("insert into t values (2)")
    with gmdb.connect(db.path) as other:
        assert other.execute("select count(*) from t").fetchone() == (2,)


def test_scripts(db: Connection) -> None:
    db.cursor().executescript("create table t (i int); insert into t values (1); -- a comment; with a semicolon\n;")
    assert db.execute("select i from t").fetchall() == [(1,)]


def test_a_closed_cursor_or_connection_says_so(db: Connection) -> None:
    cursor = db.execute("select 1")
    cursor.close()
    cursor.close()
    with pytest.raises(InterfaceError):
        cursor.fetchone()
    with pytest.raises(InterfaceError):
        cursor.execute("select 1")
    db.close()
    with pytest.raises(gmdb.Error):
        db.execute("select 1")


def test_a_default_may_ask_for_the_time(db: Connection) -> None:
    db.execute("create table stamped (i int, at timestamp default current_timestamp, check (at <= now()))")
    before = datetime.now()
    db.execute("insert into stamped (i) values (1)")
    db.executemany("insert into stamped (i) values (?)", [(n,) for n in range(2000)])
    db.execute("update stamped set at = default where i = 1")
    (low, count) = db.execute("select min(at), count(*) from stamped").fetchall()[0]
    assert count == 2001
    assert before <= low <= datetime.now()
