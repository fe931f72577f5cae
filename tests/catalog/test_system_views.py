"""System views: definitions as a session goes by them, and what is going on."""

from __future__ import annotations

from typing import Any

import pytest

from gmdb import Constraint
from gmdb.database.connection import Connection
from gmdb.errors import NoSuchTable
from tests.sessions import PATIENCE, Connect, answer, start_waiting


def view(db: Connection, name: str) -> list[dict[str, Any]]:
    return db.system_view(name).to_pylist()


def test_views_of_definitions_have_what_the_system_tables_have(db: Connection) -> None:
    db.create_table("t", {"i": "INT", "s": "VARCHAR(9)"}, constraints=[Constraint("primary key", ("i",))])
    db.create_index("t_s", "t", ["s"])
    for name in ("sys_tables", "sys_columns", "sys_indexes", "sys_constraints"):
        found, stored = db.system_view(name), db.arrow(name).read_all()
        assert found.schema == stored.schema
        key = [tuple(map(str, row.values())) for row in found.to_pylist()]
        assert sorted(key) == sorted(tuple(map(str, row.values())) for row in stored.to_pylist())


def test_a_session_sees_its_own_definitions(db: Connection, connect: Connect) -> None:
    db.create_table("t", {"i": "INT"})
    names = {row["name"] for row in view(db, "sys_segments")}
    assert "t" in names
    assert "t" not in {row["name"] for row in view(connect(), "sys_segments")}
    db.commit()
    (segment,) = [row for row in view(connect(), "sys_segments") if row["name"] == "t"]
    assert (segment["kind"], segment["entry"], segment["page_count"]) == ("heap", "4:1", 0)


def test_what_is_going_on_is_shown(db: Connection, connect: Connect) -> None:
    db.create_table("t", {"i": "INT"})
    row_id = db.insert("t", (1,))
    db.commit()
    old = connect("repeatable read")
    old.heap("t").fetch(row_id)
    other = connect(lock_timeout=PATIENCE)
    db.heap("t").update(row_id, {"i": 2})
    (lock,) = [row for row in view(db, "sys_locks") if row["action"] == "UPDATE"]
    (transaction,) = [row for row in view(db, "sys_transactions") if row["state"] == "active"]
    assert lock["transaction"] == transaction["transaction"]
    waiting = start_waiting(other, lambda: other.heap("t").delete(row_id))
    (wait,) = view(db, "sys_waits")
    assert (wait["waits_for"], wait["kind"]) == (str(row_id), "row")
    held = [row for row in view(db, "sys_table_locks") if row["held"] == "t"]
    assert {row["mode"] for row in held} == {"shared"}
    assert len(held) == 2  # of those who change rows
    db.commit()
    answer(waiting)
    assert [row["behind"] for row in view(db, "sys_snapshots")] == [1]
    dropping = connect(lock_timeout=PATIENCE)
    waiting = start_waiting(dropping, lambda: dropping.drop_table("t"))
    assert [row["kind"] for row in view(db, "sys_waits")] == ["table"]
    old.rollback()
    other.rollback()
    answer(waiting)
    assert "alone" in {row["mode"] for row in view(db, "sys_table_locks")}


def test_a_view_that_is_not_there_is_named(db: Connection) -> None:
    with pytest.raises(NoSuchTable, match="there is no system view sys_x; there are sys_tables"):
        db.system_view("sys_x")
