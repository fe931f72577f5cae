"""BEGIN, SET TRANSACTION and settings: isolation and reading only, of one transaction or of all."""

from __future__ import annotations

from pathlib import Path

import pytest

import gmdb
from gmdb.database.connection import Connection
from gmdb.errors import InterfaceError, InvalidSyntax, ReadOnlyTransaction, UnsupportedExpression
from tests.server.peer import Peer
from tests.sessions import Connect

CHANGES = (
    "insert into t values (10, 1)",
    "insert into t select k + 100, n from t",
    "update t set n = 5 where k = 1",
    "update t set n = n + 1",
    "delete from t where k = 1",
    "delete from t",
    "select * from t for update",
    "create table u (i int)",
    "create view v as select 1",
    "alter table t add column x int",
    "create index on t (n)",
    "truncate table t",
    "drop table t",
)


@pytest.fixture
def t(db: Connection) -> Connection:
    db.execute("create table t (k int primary key, n int)")
    db.execute("insert into t values (1, 1), (2, 2)")
    db.commit()
    return db


def shown(db: Connection, name: str) -> str:
    return str(db.execute(f"show {name}").fetchone()[0])


def test_a_transaction_that_is_for_reading_only_changes_nothing(t: Connection) -> None:
    for _ in range(3):  # until statements take their fastest ways
        t.execute("insert into t values (10, 1)")
        t.execute("update t set n = 5 where k = 1")
        t.execute("delete from t where k = 1")
        t.rollback()
    for begin in ("begin read only", "start transaction isolation level repeatable read, read only"):
        t.execute(begin)
        for text in CHANGES:
            with pytest.raises(ReadOnlyTransaction):
                t.execute(text)
        with pytest.raises(ReadOnlyTransaction):
            t.insert("t", (10, 1))
        with pytest.raises(ReadOnlyTransaction):
            t.append("t", t.arrow("t"))
        assert t.execute("select * from t order by k").fetchall() == [(1, 1), (2, 2)]
        t.commit()
    assert t.execute("insert into t values (10, 1)").rowcount == 1
    with pytest.raises(InterfaceError, match="first statement"):
        t.execute("set transaction read only")
    t.rollback()


def test_what_was_set_for_one_transaction_ends_with_it(t: Connection, connect: Connect) -> None:
    for end in ("commit", "rollback"):
        t.execute("begin isolation level repeatable read")
        assert t.execute("select n from t where k = 1").fetchone() == (1,)
        other = connect(autocommit=True)
        other.execute("update t set n = n + 10 where k = 1")
        assert t.execute("select n from t where k = 1").fetchone() == (1,)
        t.execute(end)
        assert shown(t, "transaction isolation level") == "read committed"
        assert t.execute("select n from t where k = 1").fetchone() == (11,)
        other.execute("update t set n = 1 where k = 1")
        assert t.execute("select n from t where k = 1").fetchone() == (1,)
        t.commit()


@pytest.mark.usefixtures("t")
def test_with_autocommit_a_transaction_is_begun_to_be_set(connect: Connect) -> None:
    session = connect(autocommit=True)
    with pytest.raises(InterfaceError, match="begin one"):
        session.execute("set transaction read only")
    session.execute("begin")
    session.execute("set transaction isolation level repeatable read, read only")
    assert session.execute("select count(*) from t").fetchone() == (2,)
    with pytest.raises(InterfaceError):
        session.execute("set transaction isolation level read committed")
    with pytest.raises(ReadOnlyTransaction):
        session.execute("delete from t")
    session.execute("commit")
    assert session.autocommit
    assert session.execute("delete from t").rowcount == 2
    with pytest.raises(gmdb.Error):
        session.execute("begin isolation level chaos")
    assert not session.in_transaction


def test_all_transactions_can_be_for_reading_only(t: Connection) -> None:
    t.execute("set session characteristics as transaction isolation level repeatable read, read only")
    for _ in range(2):
        with pytest.raises(ReadOnlyTransaction):
            t.execute("delete from t")
        assert t.isolation == "repeatable read"
        t.rollback()
    t.execute("begin read write")
    assert t.execute("delete from t where k = 2").rowcount == 1
    t.commit()
    assert (shown(t, "transaction_read_only"), shown(t, "default_transaction_read_only")) == ("on", "on")
    t.execute("set default_transaction_read_only = off")
    t.execute("reset default_transaction_isolation")
    assert t.execute("delete from t").rowcount == 1
    assert t.isolation == "read committed"
    with pytest.raises(InterfaceError):
        t.execute("set session characteristics as transaction read only")


def test_an_isolation_that_is_set_for_good_lasts_longer_than_one_for_a_transaction(t: Connection) -> None:
    t.set_transaction(isolation="repeatable read")
    t.isolation = "read committed"
    t.execute("select * from t").fetchall()
    t.commit()
    assert t.isolation == "read committed"


def test_settings_are_shown_set_and_reset(t: Connection) -> None:
    t.execute("set lock_timeout = '2s'")
    assert shown(t, "lock_timeout") == "2000ms"
    t.execute("set lock_timeout to default")
    assert shown(t, "lock_timeout") == "5000ms"
    assert shown(t, "search_path") == "public"
    t.execute("set search_path to public")
    t.execute("set client_encoding = 'UTF8'")
    for text in ("set nothing = 1", "show nothing", "set server_version = '9'"):
        with pytest.raises(UnsupportedExpression):
            t.execute(text)
    for text in ("begin read only, read write", "set transaction", "set transaction chaos", "set lock_timeout = x"):
        with pytest.raises(InvalidSyntax):
            t.execute(text)
    with pytest.raises(UnsupportedExpression):
        t.execute("begin deferrable")


def test_a_client_sets_its_transactions(peer: Peer, path: Path) -> None:
    peer("db = gmdb.connect(path)", path=path)
    try:
        with gmdb.connect(path) as client:
            client.execute("create table t (i int)")
            client.commit()
            client.set_transaction(read_only=True, isolation="repeatable read")
            assert client.isolation == "repeatable read"
            with pytest.raises(ReadOnlyTransaction):
                client.insert("t", (1,))
            client.rollback()
            client.insert("t", (1,))
            assert client.isolation == "read committed"
    finally:
        peer("db.close()")
