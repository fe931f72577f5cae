"""Temporary tables: of one session, and gone with it, however it ends."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import gmdb
from gmdb.database.connection import Connection
from gmdb.database.copies import restore
from gmdb.errors import LostWithOwner, NoSuchTable, SchemaError, UniqueViolation
from gmdb.tables.catalog.schema import FIRST_USER_ID
from gmdb.tables.files.database_files import DatabaseFiles
from tests.crash.harness import create
from tests.integrity import problems
from tests.server.peer import Peer


def rows(db: Connection, query: str) -> list[Any]:
    return db.execute(query).fetchall()


def nothing_is_left(path: Path) -> bool:
    """Whether the files of a database, which is sound, have nothing but the table t."""
    gmdb.connect(path).close()
    with DatabaseFiles(path) as files:
        names = [table.name for table in files.tables() if table.obj_id >= FIRST_USER_ID]
    return names == ["t"] and problems(path) == []


@pytest.fixture
def shop(path: Path) -> Path:
    with gmdb.connect(path) as db:
        db.execute("create table t (i int)")
        db.execute("insert into t values (1)")
    return path


def test_a_session_has_its_own_and_nobody_else_sees_it(shop: Path) -> None:
    with gmdb.connect(shop) as db, gmdb.connect(shop) as other:
        db.execute("create temp table t (i int primary key, x serial)")
        db.execute("insert into t (i) values (7)")
        db.commit()
        assert rows(db, "select i, x from t") == [(7, 1)]
        assert rows(other, "select * from t") == [(1,)]
        assert (other.tables(), other.sequences(), other.views()) == (["t"], [], [])
        assert rows(other, "select count(*) from sys_tables where name = 't'") == [(1,)]
        (name,) = (one for one in db.tables() if one != "t")
        with pytest.raises(NoSuchTable):
            other.heap(name)
        with pytest.raises(NoSuchTable):
            rows(other, f"select * from {name}")
        other.execute("create temp table t (a text)")
        assert rows(other, "select * from t") == []
    assert nothing_is_left(shop)


def test_the_row_api_and_arrow_know_it_by_the_schema_pg_temp(shop: Path) -> None:
    with gmdb.connect(shop) as db:
        db.create_table("pg_temp.t", {"i": "INT", "s": "VARCHAR(5)"})
        db.append("pg_temp.t", pa.table({"i": [1, 2], "s": ["a", "b"]}))
        assert db.arrow("pg_temp.t").read_all().num_rows == 2
        assert rows(db, "select s from t order by i") == [("a",), ("b",)]
        db.create_index("t_i", "pg_temp.t", ["i"], unique=True)
        with pytest.raises(UniqueViolation):
            db.insert("pg_temp.t", (1, "c"))
        db.rename_table("pg_temp.t", "pg_temp.u")
        assert db.select("pg_temp.u", by="t_i").arrow().read_all()["s"].to_pylist() == ["a", "b"]
        with pytest.raises(SchemaError):
            db.set_change_feed("pg_temp.u", True)
    assert nothing_is_left(shop)


def test_a_statement_is_prepared_anew_when_a_temporary_table_comes_and_goes(shop: Path) -> None:
    query = "select count(*) from t"
    with gmdb.connect(shop) as db:
        assert rows(db, query) == rows(db, query) == [(1,)]
        db.commit()
        db.execute("create temp table t (i int)")
        assert rows(db, query) == rows(db, query) == [(0,)]
        db.rollback()
        assert rows(db, query) == [(1,)]
        db.execute("create temp table t (i int)")
        assert rows(db, query) == [(0,)]
        db.commit()
        db.execute("drop table t")
        assert rows(db, query) == [(1,)]
        db.rollback()
        assert rows(db, query) == [(0,)]


@pytest.mark.parametrize("autocommit", [False, True], ids=["in transactions", "autocommit"])
def test_rows_go_with_each_commit_if_it_says_so(shop: Path, autocommit: bool) -> None:
    with gmdb.connect(shop) as db:
        db.autocommit = autocommit
        db.execute("create temp table gone (i int primary key) on commit delete rows")
        db.execute("create temp table kept (i int)")
        db.commit()
        for _ in range(3):
            db.begin()
            db.execute("insert into gone values (1), (2)")
            db.execute("insert into kept select i from gone")
            assert rows(db, "select sum(i) from gone") == [(3,)]
            db.commit()
            assert rows(db, "select * from gone") == []
            db.commit()
        assert rows(db, "select count(*) from kept") == [(6,)]
        db.commit()
        for remade in ("truncate gone", "alter table gone add column g int default 1"):
            db.begin()
            db.execute("insert into gone values (1)")
            db.execute("savepoint before")
            db.execute(remade)
            db.execute("rollback to before")
            assert rows(db, "select * from gone") == [(1,)]
            db.commit()
            assert rows(db, "select * from gone") == []
            db.commit()
        before = db.table("pg_temp.gone")
        db.execute("insert into kept values (1)")
        db.commit()
        assert db.table("pg_temp.gone") is before  # there was nothing to do to it
    assert nothing_is_left(shop)


def test_it_goes_with_a_connection_that_nobody_closes(shop: Path) -> None:
    with gmdb.connect(shop) as other:
        db = gmdb.connect(shop)
        db.execute("create temp table mine as select 1 as i")
        db.commit()
        del db
        gc.collect()
        assert other.tables() == ["t"]
    assert nothing_is_left(shop)


def test_an_owner_that_is_killed_leaves_nothing_of_it(shop: Path) -> None:
    owner = Peer()
    owner("db = gmdb.connect(path)", path=shop)
    with gmdb.connect(shop) as client:
        client.execute("create temp table t (i int primary key, x text)")
        client.execute("insert into t select g, 'x' from generate_series(1, 2000) as g")
        client.commit()
        owner("db.execute('create temp table mine as select 1 as i'); db.commit(); db.checkpoint()")
        owner.kill()
        with pytest.raises(LostWithOwner):  # it was there, and is gone
            rows(client, "select * from t")
        client.rollback()
        assert rows(client, "select * from t") == [(1,)]
    owner.end()
    assert nothing_is_left(shop)


def test_a_backup_has_none(shop: Path, tmp_path: Path) -> None:
    with gmdb.connect(shop) as db:
        db.execute("create temp table mine as select 1 as i")
        db.commit()
        db.backup(tmp_path / "copy")
    restore(tmp_path / "copy", tmp_path / "restored.gmdb")
    assert nothing_is_left(tmp_path / "restored.gmdb")


def test_a_client_has_its_own_and_an_owner_drops_it_with_the_client(shop: Path, peer: Peer) -> None:
    peer("db = gmdb.connect(path)", path=shop)
    with gmdb.connect(shop) as other:
        with gmdb.connect(shop) as db:
            db.execute("create temp table t as select 5 as i")
            db.commit()
            assert rows(db, "select * from t") == [(5,)]
            assert rows(other, "select * from t") == [(1,)]
            assert db.arrow("pg_temp.t").read_all()["i"].to_pylist() == [5]
        assert rows(other, "select * from t") == [(1,)]
    peer("db.close()")
    assert nothing_is_left(shop)


def test_a_new_database_knows_of_none(path: Path) -> None:
    create(path)
    with gmdb.connect(path) as db, pytest.raises(NoSuchTable):
        rows(db, "select * from pg_temp.t")
