"""Statements are prepared once and kept: they go by the table as it is, whatever has become of it meanwhile."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import gmdb
from gmdb.errors import CheckViolation, InvalidSyntax, NullNotAllowed, UniqueViolation

INSERT = "insert into t values (?, ?)"


@pytest.fixture
def db(path: Path):
    with gmdb.connect(path) as db:
        db.execute("create table t (i int primary key, s varchar(9) not null)")
        db.execute(INSERT, (1, "a"))
        db.commit()
        yield db


def rows(db: gmdb.Connection) -> list[tuple]:
    return sorted(db.execute("select * from t").fetchall())


def test_a_row_of_parameters_is_checked_and_counted(db: gmdb.Connection) -> None:
    assert db.execute(INSERT, (2, "b")).rowcount == 1
    assert db.execute("insert into t (s, i) values (?, ?)", ("c", 3)).lastrowid == 3
    assert db.execute("insert into t values (:i, :s || '!')", {"i": 4, "s": "d"}).lastrowid == 4
    with pytest.raises(UniqueViolation, match=r"\(i\) = \(2\)|i.*2"):
        db.execute(INSERT, (2, "again"))
    with pytest.raises(NullNotAllowed, match="column s"):
        db.execute(INSERT, (5, None))
    with pytest.raises(gmdb.DataError):
        db.execute(INSERT, (6, "longer than nine"))
    assert rows(db) == [(1, "a"), (2, "b"), (3, "c"), (4, "d!")]


def test_a_row_is_changed_by_its_key_or_nothing_is(db: gmdb.Connection) -> None:
    update = "update t set s = ? where i = ?"
    db.execute(INSERT, (2, "b"))
    assert [db.execute(update, given).rowcount for given in (("x", 1), ("x", 7), ("x", None), ("y", 2))] == [1, 0, 0, 1]
    with pytest.raises(NullNotAllowed, match="column s"):
        db.execute(update, (None, 1))
    with pytest.raises(gmdb.DataError):
        db.execute(update, ("longer than nine", 1))
    with pytest.raises(UniqueViolation):
        db.execute("update t set i = ? where i = ?", (2, 1))
    assert db.execute("update t set i = ?, s = s || ? where i = ?", (3, "!", 1)).rowcount == 1
    assert rows(db) == [(2, "y"), (3, "x!")]
    db.rollback()
    assert db.execute(update, ("z", 1)).rowcount == 1  # no transaction is open: the long way
    assert rows(db) == [(1, "z")]


def test_a_column_that_comes_and_goes(db: gmdb.Connection) -> None:
    db.execute("alter table t add column n int")
    db.execute(INSERT, (2, "b"))
    db.execute("insert into t values (?, ?, ?)", (3, "c", 7))
    db.execute("update t set s = ? where i = ?", ("bb", 2))
    assert rows(db) == [(1, "a", None), (2, "bb", None), (3, "c", 7)]
    db.rollback()
    db.execute("update t set s = ? where i = ?", ("aa", 1))
    db.execute("update t set s = ? where i = ?", ("a", 1))
    db.execute(INSERT, (2, "b"))
    with pytest.raises(InvalidSyntax, match="3 values for 2 columns"):
        db.execute("insert into t values (?, ?, ?)", (3, "c", 7))
    assert rows(db) == [(1, "a"), (2, "b")]


def test_what_another_session_does_to_the_table(db: gmdb.Connection, path: Path) -> None:
    with gmdb.connect(path) as other:
        other.execute("alter table t add constraint small check (i < 10)")
    with pytest.raises(CheckViolation, match="small"):
        db.execute(INSERT, (10, "b"))
    db.commit()
    with gmdb.connect(path) as other:
        other.execute("drop table t")
        other.execute("create table t (s varchar(9), i bigint)")
    with pytest.raises(gmdb.Error):
        db.execute(INSERT, (1 << 40, "b"))
    db.execute(INSERT, ("b", 1 << 40))
    assert rows(db) == [("b", 1 << 40)]


@pytest.mark.parametrize("statement", ["prepare p as select 1", "execute p (1)", "deallocate p", "deallocate all", "p"])
def test_statements_have_no_names(db: gmdb.Connection, statement: str) -> None:
    with pytest.raises(InvalidSyntax, match="does not know this statement: " + re.escape(statement)):
        db.execute(statement)
