"""MERGE and changes in WITH: beside other sessions, whole or not at all, and for clients."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import gmdb
from gmdb.database.connection import Connection
from gmdb.errors import DivisionByZero, ProgrammingError, ReadOnlyTransaction, UniqueViolation, WriteConflict
from tests.sessions import Connect, answer, connect, start_waiting

__all__ = ["connect"]

MERGE = """merge into t using s on t.id = s.id when matched and t.v >= 50 then delete
    when matched then update set v = t.v + s.v when not matched then insert values (s.id, s.v)"""
MOVE = "with gone as (delete from t where v < 50 returning id, v) insert into s select id, v from gone"


@pytest.fixture(params=["local", "remote"])
def both(request: pytest.FixtureRequest, path: Path) -> Iterator[Connection]:
    """A session of this process, or of one that another process has."""
    is_remote = request.param == "remote"
    if is_remote:
        request.getfixturevalue("peer")("own = gmdb.connect(path)", path=str(path))
    try:
        with gmdb.connect(path) as connection:
            filled(connection)
            yield connection
    finally:
        if is_remote:
            request.getfixturevalue("peer")("own.close()")


def filled(db: Connection) -> None:
    db.execute("create table t (id int primary key, v int)")
    db.execute("create table s (id int, v int)")
    db.execute("insert into t values (1, 10), (2, 20), (3, 60)")
    db.execute("insert into s values (2, 5), (9, 90)")
    db.commit()


def rows(db: Connection, text: str, parameters: Any = ()) -> list[tuple[Any, ...]]:
    return db.execute(text, parameters).fetchall()


def test_clients_merge_and_move(both: Connection) -> None:
    merged = both.execute(f"{MERGE} returning merge_action(), t.id, t.v")
    assert sorted(merged.fetchall()) == [("INSERT", 9, 90), ("UPDATE", 2, 25)]
    assert both.execute(MOVE).rowcount == 2
    assert rows(both, "select id, v from s order by id, v") == [(1, 10), (2, 5), (2, 25), (9, 90)]
    found = both.execute("with x as (delete from s where id = $1 returning v) select sum(v) from x", (2,))
    assert found.fetchall() == [(30,)]
    both.rollback()
    assert rows(both, "select count(*) from t") == [(3,)]


def test_a_part_that_fails_takes_the_others_back(both: Connection) -> None:
    both.execute("delete from s where id = 9")
    with pytest.raises(UniqueViolation):
        both.execute("with gone as (delete from s returning id) insert into t select id, 1 from gone")
    with pytest.raises(DivisionByZero):
        both.execute("with gone as (delete from s returning id) select id / 0 from gone")
    with pytest.raises(DivisionByZero):
        both.execute(f"{MERGE} returning 1 / (t.v - 25)")
    assert rows(both, "select (select count(*) from s), (select sum(v) from t)") == [(1, 90)]
    both.execute("set autocommit on")
    for statement in (
        "update t set v = 0 returning 1 / v",
        "insert into t values (0, 0) returning 1 / v",
        "delete from t returning 1 / (v - v)",
        f"{MERGE} returning 1 / (t.v - 25)",
        "with x as (update t set v = 0) select 1 / (v - v) from t",
    ):
        with pytest.raises(DivisionByZero):
            both.execute(statement)
        assert rows(both, "select count(*), sum(v) from t") == [(3, 90)], statement


@pytest.mark.parametrize(
    ("statement", "held", "then"),
    [
        (MERGE, "update t set v = 70 where id = 2", [(1, 10), (3, 60), (9, 90)]),  # another clause applies then
        (MERGE, "update t set id = 4 where id = 2", [(1, 10), (2, 5), (3, 60), (4, 20), (9, 90)]),
        (MERGE, "delete from t where id = 2", [(1, 10), (2, 5), (3, 60), (9, 90)]),
        (MOVE, "update t set v = 55 where id = 2", [(2, 55), (3, 60)]),
        (f"with x as (update t set v = v + 1 where id = 1) {MERGE}", "update t set v = 70 where id = 2", None),
    ],
    ids=["another clause", "no match", "gone", "condition", "parts"],
)
def test_a_statement_that_waited_for_a_row_goes_by_what_it_is_now(
    db: Connection, connect: Connect, statement: str, held: str, then: list[tuple[int, int]] | None
) -> None:
    filled(db)
    other = connect(lock_timeout=60)
    db.execute(held)
    waiting = start_waiting(other, lambda: other.execute(statement))
    db.commit()
    answer(waiting)
    expected = then or [(1, 11), (3, 60), (9, 90)]
    assert rows(other, "select * from t order by id") == expected


def test_a_join_that_waited_for_a_lock_is_asked_anew(db: Connection, connect: Connect) -> None:
    filled(db)
    other = connect(lock_timeout=60)
    db.execute("update t set v = v + 100 where id = 2")
    text = "select t.id, t.v, s.v from t join s on s.id in (t.id, 9) where t.v < 50 order by 1, 3 for update of t"
    waiting = start_waiting(other, lambda: other.execute(text).fetchall())
    db.commit()
    assert answer(waiting) == [(1, 10, 90)]
    assert rows(db, "select id from t order by id for update of t skip locked") == [(2,), (3,)]
    other.rollback()


def test_under_repeatable_read_it_is_a_conflict(db: Connection, connect: Connect) -> None:
    filled(db)
    other = connect(isolation="repeatable read")
    assert rows(other, "select count(*) from t") == [(3,)]
    db.execute("update t set v = 70 where id = 2")
    db.commit()
    for statement in (MERGE, MOVE):
        with pytest.raises(WriteConflict):
            other.execute(statement)
    other.rollback()


def test_they_are_refused_where_nothing_may_change(both: Connection) -> None:
    both.execute("set transaction read only")
    for statement in (MERGE, MOVE, "with x as (delete from t) select 1"):
        with pytest.raises(ReadOnlyTransaction):
            both.execute(statement)


def test_change_feeds_have_what_was_done(db: Connection) -> None:
    filled(db)
    db.execute("alter table t set (change_feed = true)")
    db.commit()
    feed = db.changes()
    db.execute(MERGE)
    db.execute("with x as (delete from t where id = 1) insert into t values (7, 7)")
    db.commit()
    seen = sorted((change.operation, change.row["id"], change.row["v"]) for change in feed if change.row is not None)
    assert seen == [("delete", 1, 10), ("insert", 7, 7), ("insert", 9, 90), ("update", 2, 25)]


def test_many_sets_of_parameters_run_such_statements(both: Connection) -> None:
    with pytest.raises(ProgrammingError):
        both.executemany("with x as (delete from t where id = ?) select 1", [(1,)])
    text = "with gone as (delete from t where id = ? returning id) insert into s select id, 0 from gone"
    assert both.executemany(text, [(1,), (2,), (8,)]).rowcount == 2
    merge = "merge into t using (select $1::int as k, $2::int as w) n on id = k when matched then update set v = w"
    assert both.executemany(f"{merge} when not matched then insert values (k, w)", [(3, 1), (5, 2)]).rowcount == 2
    assert rows(both, "select * from t order by id") == [(3, 1), (5, 2)]


def test_explain_shows_all_parts(db: Connection) -> None:
    filled(db)
    lines = [line for (line,) in db.execute(f"explain {MOVE}").fetchall()]
    assert lines[0] == "insert into s"
    assert "delete t" in lines
    assert rows(db, f"explain {MERGE}")[0] == ("merge into t",)
    assert rows(db, "explain analyze with x as (delete from t returning id) select id from x")[-1] == ("3 rows",)
    assert rows(db, "select count(*) from t") == [(0,)]
