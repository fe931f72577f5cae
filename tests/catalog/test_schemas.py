"""Schemas: full names by every way to a table, two sessions, rollbacks, and databases from before there were any."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import gmdb
from gmdb.database.connection import Connection
from gmdb.errors import (
    DependentObjects,
    ForeignKeyViolation,
    NoSuchIndex,
    NoSuchSchema,
    NoSuchTable,
    SchemaError,
    SchemaExists,
)
from gmdb.tables.catalog.schema import FOREIGN_KEY, PRIMARY_KEY, Constraint
from tests.server.peer import Peer
from tests.sessions import start_waiting


def rows(db: Connection, query: str) -> list[Any]:
    return db.execute(query).fetchall()


@pytest.fixture
def two(db: Connection) -> Connection:
    """A table t in public, and another one in s, with other rows."""
    db.create_schema("s")
    db.create_table("t", {"i": "INT NOT NULL"}, constraints=[Constraint(PRIMARY_KEY, ("i",))])
    db.create_table("s.t", {"i": "INT NOT NULL", "p": "INT"}, constraints=[Constraint(PRIMARY_KEY, ("i",))])
    db.insert("t", (1,))
    db.insert("s.t", (2, 1))
    db.commit()
    return db


def test_the_row_api_and_arrow_name_tables_by_their_full_names(two: Connection) -> None:
    assert two.tables() == ["s.t", "t"]
    two.append("s.t", pa.table({"i": [3], "p": [1]}))
    assert sorted(two.arrow("s.t").read_all()["i"].to_pylist()) == [2, 3]
    assert two.arrow("t").read_all()["i"].to_pylist() == [1]
    assert two.update("s.t", {"p": 1}, where=lambda row: row["i"] == 3) == 1
    assert two.delete("s.t", where=lambda row: row["i"] == 3) == 1
    assert two.select("s.t", ["i"], by="t_pkey").arrow().read_all()["i"].to_pylist() == [2]
    with pytest.raises(NoSuchTable, match=r"no table x\.t"):
        two.heap("x.t")


def test_a_foreign_key_leads_to_the_table_of_its_schema_wherever_either_goes(two: Connection) -> None:
    two.add_constraint("s.t", Constraint(FOREIGN_KEY, ("p",), references="t"))
    with pytest.raises(ForeignKeyViolation):
        two.insert("s.t", (9, 2))
    two.create_schema("w")
    two.rename_table("s.t", "w.t")
    two.rename_schema("w", "v")
    two.rename_table("t", "s.parent")
    (key,) = (one for one in two.table("v.t").constraints if one.kind == FOREIGN_KEY)
    assert key.references == "s.parent"
    with pytest.raises(ForeignKeyViolation, match=r"v\.t.*s\.parent"):
        two.insert("v.t", (9, 2))
    with pytest.raises(SchemaError, match="refers to it"):
        two.drop_table("s.parent")
    two.drop_schema("s", cascade=True)
    assert two.tables() == ["v.t"]
    assert [one.kind for one in two.table("v.t").constraints] == [PRIMARY_KEY]


def test_names_that_would_mean_two_things_are_refused(db: Connection) -> None:
    db.create_table("a.b", {"i": "INT"})  # in public
    with pytest.raises(SchemaError, match=r"there is a table a\.b in schema public"):
        db.create_schema("a")
    with pytest.raises(SchemaError, match="a dot"):
        db.create_schema("x.y")
    db.create_schema("s")
    db.create_table("s.t", {"i": "INT"})
    with pytest.raises(SchemaError, match="seem to be in a schema"):
        db.execute('create table "s.u" (i int)')
    assert rows(db, 'select * from "a.b"') == []
    with pytest.raises(NoSuchTable):
        rows(db, "select * from a.b")
    with pytest.raises(NoSuchTable):
        rows(db, 'select * from "s.t"')


def test_a_schema_belongs_to_the_transaction_that_makes_or_drops_it(path: Path) -> None:
    with gmdb.connect(path) as db, gmdb.connect(path) as other:
        db.execute("create schema s")
        db.execute("create table s.t (i int)")
        assert (other.schemas(), other.tables()) == ([], [])
        db.rollback()
        assert db.schemas() == []
        with pytest.raises(NoSuchSchema):
            db.execute("create table s.t (i int)")
        db.execute("create schema s")
        db.execute("create table s.t (i int)")
        db.commit()
        assert rows(other, "select * from s.t") == []
        db.savepoint("before")
        db.execute("drop schema s cascade")
        assert (db.schemas(), db.tables()) == ([], [])
        assert rows(other, "select * from s.t") == []
        db.rollback_to("before")
        assert rows(db, "select * from s.t") == []


def test_nothing_comes_into_a_schema_while_another_session_drops_it(path: Path) -> None:
    with gmdb.connect(path) as db, gmdb.connect(path) as other:
        db.create_schema("s")
        db.commit()
        db.drop_schema("s")
        creating = start_waiting(other, lambda: other.execute("create table s.t (i int)"))
        db.commit()
        with pytest.raises(NoSuchSchema):
            creating.result()
        other.rollback()
        db.create_schema("s")
        db.commit()
        db.create_table("s.t", {"i": "INT"})
        dropping = start_waiting(other, lambda: other.drop_schema("s"))
        db.commit()
        with pytest.raises(DependentObjects, match=r"s\.t"):
            dropping.result()


def test_a_prepared_statement_follows_the_path_and_what_comes_before_on_it(two: Connection, path: Path) -> None:
    query = "select i from t where i > 0"
    two.execute("set search_path to first, public")
    assert rows(two, query) == rows(two, query) == [(1,)]
    two.commit()
    with gmdb.connect(path) as other:
        other.execute("create schema first")
        other.execute("create table first.t as select 5 as i")
    assert rows(two, query) == [(5,)]
    assert rows(two, "select current_schema()") == [("first",)]
    two.execute("set search_path to s")
    assert rows(two, query) == [(2,)]
    two.execute("drop schema first cascade")
    two.execute("set search_path to first, public")
    assert rows(two, query) == [(1,)]


def test_a_view_means_the_same_whatever_the_path_is(two: Connection) -> None:
    two.execute("set search_path to s, public")
    two.execute("create view public.v as select t.i, (select max(x.i) from public.t x) as m from t")
    assert two.view("v").query.count('"s".t') == 1
    for path in ("s", "public", "nowhere"):
        two.execute(f"set search_path to {path}")
        assert rows(two, "select * from public.v") == [(2, 1)]
    with pytest.raises(DependentObjects, match="view v"):
        two.drop_table("s.t")


def test_indexes_are_unique_within_their_schema(two: Connection) -> None:
    two.create_index("x", "t", ["i"])
    two.create_index("x", "s.t", ["i"])
    with pytest.raises(SchemaError, match=r"index s\.x already"):
        two.create_index("x", "s.t", ["p"])
    two.drop_index("s.x")
    with pytest.raises(NoSuchIndex):
        two.drop_index("s.x")
    two.create_index("x", "s.t", ["p"])
    with pytest.raises(SchemaError, match="index t_pkey already"):
        two.rename_table("s.t", "u")
    two.commit()
    two.autocommit = True
    two.create_index("y", "s.t", ["p"])
    two.create_index("y", "t", ["i"])


def test_other_connections_find_schemas_as_they_were_committed(two: Connection, path: Path) -> None:
    two.execute("create view s.v as select i from s.t")
    two.comment("what is ours", schema="s")
    two.commit()
    two.execute("drop schema s cascade")
    two.rollback()
    with gmdb.connect(path) as again:
        assert (again.schemas(), again.tables(), again.views()) == (["s"], ["s.t", "t"], ["s.v"])
        assert rows(again, "select * from s.v") == [(2,)]
        assert rows(again, "select name, options from sys_schemas") == [("s", '{"comment":"what is ours"}')]
        with pytest.raises(SchemaExists):
            again.create_schema("s")


def test_a_client_has_schemas_and_a_path_of_its_own(path: Path, peer: Peer) -> None:
    peer("db = gmdb.connect(path)", path=path)
    with gmdb.connect(path) as db, gmdb.connect(path) as other:
        db.create_schema("s")
        db.execute("create table s.t (i int)")
        db.append("s.t", pa.table({"i": [1, 2]}))
        db.commit()
        db.execute("set search_path to s")
        assert rows(db, "select sum(i) from t") == [(3,)]
        assert rows(other, "show search_path") == [("public",)]
        with pytest.raises(NoSuchTable):
            rows(other, "select * from t")
        assert other.arrow("s.t").read_all().num_rows == 2
        assert [values for _, values in other.heap("s.t").rows()] == [(1,), (2,)]
    peer("db.close()")


def test_changes_name_tables_by_their_full_names(two: Connection) -> None:
    two.set_change_feed("s.t", True)
    two.set_change_feed("t", True)
    two.commit()
    with two.changes(tables=["s.t"]) as feed:
        two.execute("insert into s.t values (5, 5)")
        two.execute("insert into t values (5)")
        two.commit()
        change = next(iter(feed))
        assert (change.table, change.row["i"]) == ("s.t", 5)


@pytest.mark.parametrize("impossible", ["s", "information_schema", "pg_temp_1", ""])
def test_what_cannot_be_a_schema_is_refused(two: Connection, impossible: str) -> None:
    with pytest.raises(SchemaError):
        two.create_schema(impossible)
    with pytest.raises(SchemaError):
        two.drop_schema("public", cascade=True)
    with pytest.raises(SchemaError):
        two.rename_schema("public", "private")
    assert two.schemas() == ["s"]
