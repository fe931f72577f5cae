"""Views in transactions, for several sessions, through an owner, after crashes, and in older databases."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import gmdb
from gmdb.database.connection import Connection
from gmdb.errors import DependentObjects, InvalidSyntax, LockTimeout, NoSuchTable, SchemaError, UnsupportedExpression
from gmdb.tables.catalog.schema import SYSTEM_TABLES
from tests.integrity import assert_sound
from tests.server.peer import Peer
from tests.sessions import PATIENCE, Connect, answer, start_waiting


@pytest.fixture
def shop(db: Connection) -> Connection:
    """A committed table with a view over it."""
    db.execute("create table t (i int primary key, s varchar(20))")
    db.execute("insert into t values (1, 'one'), (2, 'two'), (3, 'three')")
    db.execute("create view v as select * from t where i > 1")
    db.commit()
    return db


def rows(db: Connection, text: str = "select * from v order by 1", values: Any = ()) -> list[tuple[Any, ...]]:
    return db.execute(text, values).fetchall()


def test_a_view_belongs_to_the_transaction(shop: Connection, connect: Connect) -> None:
    other = connect()
    shop.execute("create view w as select s from v")
    assert shop.views() == ["v", "w"]
    assert other.views() == ["v"]
    with pytest.raises(NoSuchTable):
        rows(other, "select * from w")
    shop.savepoint("before")
    shop.execute("drop view w")
    shop.execute("create or replace view v as select i, s, i + 1 as more from t")
    assert rows(shop)[0] == (1, "one", 2)
    shop.rollback_to("before")
    assert shop.views() == ["v", "w"]
    assert rows(shop) == [(2, "two"), (3, "three")]
    shop.rollback()
    assert shop.views() == ["v"]
    shop.execute("create view w as select s from v")
    shop.commit()
    assert rows(other, "select * from w order by 1") == [("three",), ("two",)]


def test_a_statement_that_was_prepared_goes_by_the_view_as_it_is_now(shop: Connection, connect: Connect) -> None:
    other = connect(autocommit=True)
    point = "select s from v where i = ?"
    change = "update v set s = s || '!' where i = ?"
    for session in (shop, other):
        for _ in range(3):  # until it takes its fastest way
            assert rows(session, point, (2,)) == [("two",)]
    for _ in range(3):
        assert shop.execute(change, (1,)).rowcount == 0
    shop.execute("create or replace view v as select i, s from t where i < 2")
    assert rows(shop, point, (2,)) == []
    assert shop.execute(change, (1,)).rowcount == 1
    assert rows(other, point, (2,)) == [("two",)]
    shop.commit()
    assert rows(other, point, (2,)) == []
    assert rows(other, point, (1,)) == [("one!",)]
    shop.execute("drop view v")
    shop.execute("create table v (i int, s varchar(20))")
    assert rows(shop, point, (1,)) == []
    shop.commit()
    assert rows(other, point, (1,)) == []
    assert other.execute("insert into v values (1, 'table')").rowcount == 1


def test_under_repeatable_read_views_are_those_of_the_snapshot(shop: Connection, connect: Connect) -> None:
    old = connect("repeatable read")
    assert rows(old) == [(2, "two"), (3, "three")]
    shop.execute("drop view v")
    shop.execute("drop table t")
    shop.commit()
    assert rows(old) == [(2, "two"), (3, "three")]
    assert old.views() == ["v"]
    old.commit()
    with pytest.raises(NoSuchTable):
        rows(old)


def test_what_a_new_view_uses_is_dropped_after_the_view_is_known(shop: Connection, connect: Connect) -> None:
    other = connect(lock_timeout=PATIENCE)
    shop.execute("create view w as select count(*) as n from t")
    waiting = start_waiting(other, lambda: other.execute("drop table t"))
    shop.commit()
    with pytest.raises(DependentObjects, match="views v, w"):
        answer(waiting)
    other.execute("drop table t cascade")
    impatient = connect()
    with pytest.raises(LockTimeout):
        impatient.execute("create view x as select * from t")
    other.commit()
    with pytest.raises(NoSuchTable):
        impatient.execute("create view x as select * from t")


def test_a_view_is_refused_if_its_table_went_while_it_waited(shop: Connection, connect: Connect) -> None:
    other = connect(lock_timeout=PATIENCE)
    shop.execute("drop table t cascade")
    waiting = start_waiting(other, lambda: other.execute("create view w as select * from t"))
    shop.execute("create table t (other int)")
    shop.commit()
    answer(waiting)  # it is of the table that is there now
    assert other.view("w").column_names() == ["other"]


def test_two_sessions_give_a_view_the_same_name_one_after_the_other(shop: Connection, connect: Connect) -> None:
    shop.execute("create view w as select 1 as a")
    with pytest.raises(LockTimeout):
        connect().execute("create table w (i int)")
    with pytest.raises(LockTimeout):
        connect().execute("create or replace view w as select 2 as a")
    shop.commit()
    connect(autocommit=True).execute("create or replace view w as select 2 as a")
    assert rows(shop, "select * from w") == [(2,)]


def test_a_row_api_says_that_a_view_is_none_of_its_tables(shop: Connection) -> None:
    for action in (
        lambda: shop.insert("v", (1, "x")),
        lambda: shop.heap("v"),
        lambda: shop.append("v", shop.arrow("t")),
        lambda: shop.create_index("v_i", "v", ["i"]),
        lambda: shop.truncate_table("v"),
        lambda: shop.rename_table("v", "w"),
        lambda: shop.execute("analyze v"),
        lambda: shop.execute("alter table if exists v add column x int"),
    ):
        with pytest.raises(NoSuchTable, match="v is a view"):
            action()
    with pytest.raises(DependentObjects, match="view v"):
        shop.drop_table("t")
    with pytest.raises(DependentObjects, match="column s of table t"):
        shop.rename_column("t", "s", "text")
    shop.truncate_table("t")
    assert rows(shop) == []
    shop.drop_table("t", cascade=True)
    assert shop.views() == []


def test_a_view_cannot_be_part_of_itself(shop: Connection) -> None:
    shop.execute("create view w as select * from v")
    for query in ("select * from v", "select * from w", "select i, s from t where i in (select i from w)"):
        with pytest.raises(SchemaError, match="own query"):
            shop.execute(f"create or replace view v as {query}")


def test_a_view_that_is_not_supported_is_refused(shop: Connection) -> None:
    for text in (
        "create materialized view x as select 1",
        "create view x with (security_barrier = true) as select 1",
        "create view x as select * from t for update",
        "alter view v rename column i to j",
        "alter view v alter column i set default 1",
        "insert into v values (9, 'x') on conflict do nothing",
    ):
        with pytest.raises(UnsupportedExpression):
            shop.execute(text)
    for text in (
        "create recursive view x (n) as select 1",
        "create view x as",
        "create view x as delete from t",
    ):
        with pytest.raises(InvalidSyntax):
            shop.execute(text)
    with pytest.raises(InvalidSyntax, match="no parameters"):
        shop.execute("create view x as select ? as a", (1,))
    with pytest.raises(SchemaError, match="sys_"):
        shop.execute("create view sys_x as select 1")
    assert shop.views() == ["v"]


def test_long_and_wide_views_are_kept_whole(path: Path) -> None:
    columns = [f"column_number_{n}" for n in range(300)]
    listed = ", ".join(f"{n} as {name} -- ü\n" for n, name in enumerate(columns))
    with gmdb.connect(path) as db:
        db.execute(f"create view wide as select {listed}")
        assert len(db.arrow("sys_views").read_all()) > 5
    with gmdb.connect(path) as db:
        assert db.view("wide").column_names() == columns
        assert rows(db, "select * from wide") == [tuple(range(300))]
        assert rows(db, "select length(definition) > 5000 from sys_views") == [(True,)]
        db.execute("drop view wide")
    assert_sound(path)


def test_an_older_database_gets_views_when_it_is_opened_for_writing(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as older:
        older.delitem(SYSTEM_TABLES, "sys_views")
        with gmdb.connect(path) as db:
            db.execute("create table t (i int)")
    with gmdb.connect(path, read_only=True) as db:
        assert db.views() == []
        assert rows(db, "select * from sys_views") == []
    with gmdb.connect(path) as db:
        db.execute("create view v as select * from t")
    with gmdb.connect(path) as db:
        assert rows(db) == []
    assert_sound(path)


_KILLED = """
import os, sys, gmdb
db = gmdb.connect(sys.argv[1])
db.execute("create table t (i int)")
db.execute("create view kept as select i + 1 as j from t")
db.execute("create view replaced as select 1 as a")
db.commit()
db.execute("create or replace view replaced as select 1 as a, 2 as b")
db.commit()
db.execute("insert into t values (1)")
db.execute("drop view kept")
db.execute("create view lost as select * from t")
os._exit(9)
"""


def test_views_are_as_they_were_committed_after_a_crash(path: Path) -> None:
    assert subprocess.run([sys.executable, "-c", _KILLED, str(path)], check=False).returncode == 9
    with gmdb.connect(path) as db:
        assert db.views() == ["kept", "replaced"]
        assert rows(db, "select * from kept") == []
        assert rows(db, "select * from replaced") == [(1, 2)]
    assert_sound(path)


def test_a_client_makes_views_and_learns_of_them(peer: Peer, path: Path) -> None:
    peer("db = gmdb.connect(path)", path=path)
    try:
        with gmdb.connect(path) as client:
            client.execute("create table t (i int, s varchar(20))")
            client.execute("create view v (a, b) as select * from t with check option")
            client.execute("insert into v values (1, 'x')")
            client.commit()
            assert client.views() == ["v"]
            assert client.view("v") == pickle.loads(pickle.dumps(client.view("v")))
            assert client.view("v").uses == (("t", ("i", "s")),)
            assert client.execute("select * from v").arrow().to_pylist() == [{"a": 1, "b": "x"}]
            client.rename_view("v", "w")
            with pytest.raises(DependentObjects):
                client.drop_table("t")
            client.drop_view("w")
            client.drop_table("t")
            client.commit()
    finally:
        peer("db.close()")


def test_the_shell_lists_and_describes_views(shop: Connection, capsys: pytest.CaptureFixture[str]) -> None:
    from gmdb.cli import main

    main(["sql", str(shop.path), "-c", "describe v"])
    assert "select * from t where i > 1" in capsys.readouterr().out
    main(["sql", str(shop.path), "--output", "csv", "-c", "show tables"])
    assert capsys.readouterr().out.split() == ["name,kind", "t,table", "v,view"]
