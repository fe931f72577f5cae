"""Changes of definitions belong to the transaction: it sees them at once, others when it commits."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import gmdb
from gmdb.database.connection import Connection
from gmdb.errors import (
    Deadlock,
    LockTimeout,
    NoSuchIndex,
    NoSuchTable,
    NullNotAllowed,
    SchemaError,
    SnapshotTooOld,
    TableExists,
    UniqueViolation,
)
from gmdb.tables.access.indexes import KeyRange
from tests.sessions import PATIENCE, Connect, answer, start_waiting

ROWS = [(n, f"row {n}") for n in range(20)]


@pytest.fixture
def table(db: Connection) -> Connection:
    """A committed table t with rows and two indexes."""
    db.create_table("t", {"i": "INT", "s": "VARCHAR(20)"})
    db.append("t", pa.table({"i": pa.array([i for i, _ in ROWS], pa.int32()), "s": [s for _, s in ROWS]}))
    db.create_index("t_i", "t", ["i"], unique=True)
    db.create_index("t_s", "t", ["s"])
    db.commit()
    return db


def values(db: Connection, name: str = "t") -> list[Any]:
    return sorted(row for _, row in db.heap(name).rows())


def state(db: Connection) -> Any:
    """All that a session finds, by every way."""
    found: dict[str, Any] = {}
    for name in db.tables():
        definition = db.table(name)
        rows = sorted(db.heap(name).rows())
        assert len(db.arrow(name).read_all()) == len(rows)
        for index in definition.indexes:
            keyed = db.heap(name).by(index.name)
            for row_id, row in rows:
                key = [row[n] for n in index.positions]
                assert (row_id, row) in keyed.find(key)
            assert len(list(keyed.tree.walk())) >= len(rows)
        shape = [(column.name, str(column.type)) for column in definition.columns]
        found[name] = shape, sorted(index.name for index in definition.indexes), rows
    return found


def fill_new_table(db: Connection) -> None:
    db.create_table("new", {"k": "INT", "s": "VARCHAR(30)"})
    for n in range(30):
        db.insert("new", (n, "x" * n))
    db.append("new", pa.table({"k": pa.array(range(100, 3000), pa.int32()), "s": ["bulk"] * 2900}))
    db.create_index("new_k", "new", ["k"], unique=True)
    db.update("new", {"k": 5000}, lambda row: row["k"] == 7)


def index_what_was_changed(db: Connection) -> None:
    heap = db.heap("t")
    ids = {row[0]: row_id for row_id, row in heap.rows()}
    heap.update(ids[1], {"s": "changed before"})
    heap.delete(ids[2])
    heap.insert((100, "new before"))
    db.create_index("t_more", "t", ["s", "i"])
    heap.update(ids[1], {"s": "row 1"})
    heap.update(ids[3], {"s": "changed after"})
    heap.delete(ids[4])
    heap.insert((101, "new after"))


def truncate_and_fill(db: Connection) -> None:
    db.insert("t", (50, "before"))
    db.truncate_table("t")
    db.insert("t", (3, "after"))
    db.truncate_table("t")
    db.append("t", pa.table({"i": pa.array([4, 5], pa.int32()), "s": ["four", "five"]}))


def add_columns(db: Connection) -> None:
    db.add_column("t", ("c", "INT"))
    db.insert("t", (30, "with c", 1))
    db.add_column("t", ("d", "VARCHAR(10) NOT NULL"), "filled")
    db.create_index("t_c", "t", ["c", "d"])
    db.update("t", {"c": 2}, lambda row: row["i"] == 5)


def rename(db: Connection) -> None:
    db.rename_column("t", "s", "text")
    db.rename_table("t", "other")
    db.insert("other", (60, "renamed"))
    db.create_table("t", {"x": "INT"})
    db.insert("t", (1,))


def drop_changed(db: Connection) -> None:
    db.update("t", {"s": "changed"}, lambda row: row["i"] < 5)
    db.drop_index("t_i")
    db.insert("t", (1, "twice"))
    db.drop_table("t")


def drop_what_was_made(db: Connection) -> None:
    fill_new_table(db)
    db.drop_index("new_k")
    db.drop_table("new")


CHANGES = [
    fill_new_table,
    index_what_was_changed,
    truncate_and_fill,
    add_columns,
    rename,
    drop_changed,
    drop_what_was_made,
]


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_rolled_back_never_was(
    table: Connection, connect: Connect, change: Callable[[Connection], None]
) -> None:
    before = state(table)
    change(table)
    table.rollback()
    assert state(table) == before == state(connect())
    table.gc()
    assert state(table) == before


@pytest.mark.parametrize("change", CHANGES)
def test_a_savepoint_takes_definitions_back(
    table: Connection, connect: Connect, change: Callable[[Connection], None]
) -> None:
    table.insert("t", (77, "kept"))
    before = state(table)
    table.savepoint("here")
    change(table)
    table.rollback_to("here")
    assert state(table) == before
    change(table)
    after = state(table)
    table.commit()
    assert state(table) == after == state(connect())


@pytest.mark.parametrize("change", CHANGES)
def test_others_see_it_when_it_is_committed_and_so_does_the_next_process(
    table: Connection, connect: Connect, change: Callable[[Connection], None]
) -> None:
    other = connect(lock_timeout=0.01)
    before = other.table("t")
    change(table)
    assert other.tables() == ["t"]
    assert other.table("t") == before
    after = state(table)
    table.commit()
    assert state(other) == after
    table.gc()
    assert state(table) == after


@pytest.mark.parametrize("change", CHANGES)
def test_it_is_there_after_the_database_was_closed(path: Path, change: Callable[[Connection], None]) -> None:
    with gmdb.connect(path) as db:
        db.create_table("t", {"i": "INT", "s": "VARCHAR(20)"})
        db.create_index("t_i", "t", ["i"])
        db.create_index("t_s", "t", ["s"], using="hash")
        for row in ROWS:
            db.insert("t", row)
        db.commit()
        change(db)
        after = state(db)
    with gmdb.connect(path) as db:
        assert state(db) == after


def test_a_heap_that_was_kept_follows_its_table(table: Connection, connect: Connect) -> None:
    other = connect()
    heap, keyed = other.heap("t"), other.heap("t").by("t_i")
    heap.insert((200, "other's"))
    other.commit()
    table.truncate_table("t")
    table.add_column("t", ("c", "INT"))
    table.rename_table("t", "u")
    table.commit()
    assert list(heap.rows()) == []
    assert keyed.find((200,)) == []
    row_id = heap.insert((1, "a", 2))
    assert keyed.find((1,)) == [(row_id, (1, "a", 2))]
    assert list(keyed.range()) == [(row_id, (1, "a", 2))]
    other.commit()
    table.drop_table("u")
    table.commit()
    for _ in range(2):
        with pytest.raises(NoSuchTable, match="was dropped"):
            heap.insert((2, "b", None))
        with pytest.raises(NoSuchTable, match="was dropped"):
            keyed.find((1,))


def test_whoever_has_changed_a_table_has_it_alone(table: Connection, connect: Connect) -> None:
    other = connect()
    table.add_column("t", ("c", "INT"))
    with pytest.raises(LockTimeout, match="table"):
        other.insert("t", (1, "x"))
    with pytest.raises(LockTimeout):
        other.drop_table("t")
    table.rollback()
    other.insert("t", (100, "x"))
    with pytest.raises(LockTimeout):
        connect().truncate_table("t")


def test_of_two_who_make_a_table_of_one_name_the_second_waits_for_the_first(db: Connection, connect: Connect) -> None:
    second, third = connect(lock_timeout=PATIENCE), connect(lock_timeout=PATIENCE)
    db.create_table("t", {"i": "INT"})
    waiting = start_waiting(second, lambda: second.create_table("T", {"i": "INT"}))
    db.rollback()
    answer(waiting)
    late = start_waiting(third, lambda: third.create_table("t", {"i": "INT"}))
    second.commit()
    with pytest.raises(TableExists, match="there is a table T already"):
        answer(late)


def test_of_two_who_make_an_index_of_one_name_the_second_waits_for_the_first(db: Connection, connect: Connect) -> None:
    db.create_table("a", {"i": "INT"})
    db.create_table("b", {"i": "INT"})
    db.commit()
    second = connect(lock_timeout=PATIENCE)
    db.create_index("x", "a", ["i"])
    waiting = start_waiting(second, lambda: second.create_index("x", "b", ["i"]))
    db.commit()
    with pytest.raises(SchemaError, match="there is an index x already"):
        answer(waiting)


def test_sessions_that_change_tables_crosswise_are_told_of_their_deadlock(db: Connection, connect: Connect) -> None:
    for name in ("a", "b"):
        db.create_table(name, {"i": "INT"})
    db.commit()
    first, second = connect(lock_timeout=PATIENCE), connect(lock_timeout=PATIENCE)
    first.add_column("a", ("c", "INT"))
    second.add_column("b", ("c", "INT"))
    waiting = start_waiting(first, lambda: first.drop_table("b"))
    with pytest.raises(Deadlock):
        second.drop_table("a")
    second.rollback()
    answer(waiting)


def test_a_statement_that_fails_leaves_the_rest_of_its_transaction(table: Connection) -> None:
    table.insert("t", (500, "row 3"))
    table.create_table("u", {"i": "INT"})
    before = state(table)
    with pytest.raises(UniqueViolation):
        table.create_index("t_twice", "t", ["s"], unique=True)
    with pytest.raises(NullNotAllowed):
        table.add_column("t", ("c", "INT NOT NULL"))
    with pytest.raises(TableExists):
        table.rename_table("u", "T")
    with pytest.raises(SchemaError):
        table.rename_column("t", "s", "I")
    assert state(table) == before
    table.commit()
    assert state(table) == before


def test_with_autocommit_a_definition_is_everyones_at_once(db: Connection, connect: Connect) -> None:
    auto, other = connect(autocommit=True), connect()
    auto.create_table("t", {"i": "INT"})
    assert other.tables() == ["t"]
    other.insert("t", (1,))
    with pytest.raises(LockTimeout):
        auto.truncate_table("t")
    other.commit()
    auto.truncate_table("t")
    auto.create_index("t_i", "t", ["i"])
    assert list(other.heap("t").rows()) == []
    other.commit()
    auto.drop_table("t")
    assert db.tables() == []
    assert not auto.in_transaction


def test_definitions_are_changed_as_they_are_now_and_read_as_the_snapshot_sees_them(
    table: Connection, connect: Connect
) -> None:
    old = connect("repeatable read")
    assert len(values(old)) == len(ROWS)
    table.rollback()
    table.create_table("later", {"i": "INT"})
    table.insert("later", (1,))
    table.commit()
    with pytest.raises(NoSuchTable):  # it came after the snapshot
        values(old, "later")
    old.add_column("later", ("c", "INT"))
    old.rename_column("later", "i", "j")
    old.create_index("later_j", "later", ["j"])
    old.commit()
    assert values(old, "later") == [(1, None)]
    assert old.heap("later").by("later_j").find((1,))


def test_an_index_has_nothing_for_snapshots_from_before_its_commit(table: Connection, connect: Connect) -> None:
    table.update("t", {"i": 1000}, lambda row: row["i"] == 5)
    table.create_index("t_more", "t", ["i", "s"])
    old = connect("repeatable read")
    old.create_table("elsewhere", {"i": "INT"})
    assert values(old, "sys_tables")
    table.commit()
    with pytest.raises(SnapshotTooOld):
        old.heap("t").by("t_more").find((5,))
    assert (5, "row 5") in values(old)
    old.rollback()
    assert old.heap("t").by("t_more").find((5,)) == []
    assert len(list(old.select("t", by="t_more", keys=KeyRange((1000,), (1000,))).rows())) == 1


def test_a_read_that_is_open_goes_on_after_its_table_was_truncated(table: Connection, connect: Connect) -> None:
    reader = connect(autocommit=True)
    batches = reader.arrow("t")
    reader.commit()
    table.truncate_table("t")
    table.commit()
    table.gc()
    assert len(batches.read_all()) == len(ROWS)
    table.gc()
    assert values(table) == []


def test_an_index_of_a_constraint_goes_with_the_constraint_only(db: Connection) -> None:
    db.create_table("t", {"i": "INT"}, constraints=[gmdb.Constraint("unique", ("i",))])
    with pytest.raises(SchemaError, match="keeps a constraint"):
        db.drop_index("t_i_key")
    db.drop_constraint("t", "t_i_key")
    with pytest.raises(NoSuchIndex):
        db.drop_index("t_i_key")
    assert db.table("t").constraints == ()
    assert db.table("t").indexes == ()


def test_a_table_of_ones_own_is_read_by_its_key_though_the_snapshot_is_older(db: Connection, connect: Connect) -> None:
    db.execute("create table other (i int)")
    db.commit()
    with connect(isolation="repeatable read") as mine:
        assert mine.execute("select count(*) from other").fetchone() == (0,)
        db.execute("insert into other values (1)")
        db.commit()
        mine.execute("create table own (i int primary key)")
        mine.execute("insert into own values (1)")
        assert mine.execute("select i from own where i = 1").fetchall() == [(1,)]
        mine.truncate_table("own")
        mine.execute("insert into own values (2)")
        assert mine.execute("select i from own where i = 2").fetchall() == [(2,)]
        mine.commit()
        assert mine.execute("select i from own where i = 2").fetchall() == [(2,)]


def test_an_index_of_ones_own_that_is_newer_than_the_snapshot_is_passed_over(db: Connection, connect: Connect) -> None:
    db.execute("create table t (i int, s varchar(10))")
    db.execute("insert into t values (1, 'one'), (2, 'two')")
    db.commit()
    with connect(isolation="repeatable read") as mine:
        assert mine.execute("select count(*) from t").fetchone() == (2,)
        db.execute("update t set s = 'new' where i = 1")
        db.commit()
        mine.execute("create index t_i on t (i)")
        assert mine.execute("select s from t where i = 1").fetchall() == [("one",)]
        mine.commit()
        assert mine.execute("select s from t where i = 1").fetchall() == [("new",)]


def test_rows_are_found_by_key_after_a_change_of_ones_own_was_taken_back(table: Connection) -> None:
    heap = table.heap("t")
    keyed = heap.by("t_i")
    place = keyed.find((5,))
    table.add_column("t", ("more", "INT"))
    assert len(list(heap.rows())) == len(ROWS)
    table.rollback()
    gc.collect()  # by now nobody else holds the memory that kernels were led to before
    others = [np.full(11, 1 << 40) for _ in range(1000)]
    assert len(list(heap.rows())) == len(ROWS)
    assert keyed.find((5,)) == place == [(place[0][0], ROWS[5])]
    del others
