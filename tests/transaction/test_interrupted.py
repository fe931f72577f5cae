"""What is under way in a session ends when it is interrupted, from any thread; what is not under way does not."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import pyarrow as pa
import pytest

import gmdb
from gmdb.database.connection import Connection
from gmdb.errors import (
    InterfaceError,
    LocksExhausted,
    LockTimeout,
    NoSuchSavepoint,
    SchemaError,
    StatementInterrupted,
    UniqueViolation,
)
from gmdb.format.address import page_id_of
from gmdb.tables.access.heap import Heap
from gmdb.transaction import gc, lock_area
from tests.sessions import Connect, answer, in_thread, until


def interrupt(session: Connection, from_thread: bool) -> None:
    """A signal handler runs in the main thread, whatever that holds; others take the guard themselves."""
    if from_thread:
        answer(in_thread(session.interrupt))
    else:
        assert threading.current_thread() is threading.main_thread()
        session.interrupt()


@pytest.mark.parametrize("from_thread", [True, False])
def test_a_wait_for_a_row_ends(db: Connection, heap: Heap, connect: Connect, from_thread: bool) -> None:
    row_id = heap.insert((1, 1))
    db.commit()
    heap.lock(row_id)
    waiting, behind = connect(lock_timeout=60), connect(lock_timeout=60)
    waits = db.session.hub.waits
    ended = in_thread(lambda: waiting.heap("t").update(row_id, {"value": 2}))
    until(lambda: waits.is_waiting(waiting.session))
    later = in_thread(lambda: behind.heap("t").update(row_id, {"value": 3}))
    until(lambda: waits.is_waiting(behind.session))
    interrupt(waiting, from_thread)
    with pytest.raises(StatementInterrupted):
        answer(ended)
    waiting.rollback()
    db.rollback()
    answer(later)  # whoever stood behind it in line gets the row
    behind.commit()
    assert heap.fetch(row_id) == (1, 3)


def test_a_wait_for_a_table_ends(db: Connection, heap: Heap, connect: Connect) -> None:
    heap.insert((1, 1))
    waiting = connect(lock_timeout=60)
    ended = in_thread(lambda: waiting.drop_table("t"))
    until(lambda: db.session.hub.waits.is_waiting(waiting.session))
    waiting.interrupt()
    with pytest.raises(StatementInterrupted):
        answer(ended)
    waiting.rollback()
    db.commit()
    assert len(list(heap.rows())) == 1


def test_a_read_ends_at_its_next_step(db: Connection, heap: Heap) -> None:
    for number in range(2000):
        heap.insert((number, number))
    db.commit()
    rows = heap.rows()
    next(rows)
    interrupt(db, from_thread=True)
    with pytest.raises(StatementInterrupted):
        list(rows)
    assert len(list(heap.rows())) == 2000


def test_a_session_that_does_nothing_goes_on_as_before(heap: Heap, connect: Connect) -> None:
    idle = connect()
    interrupt(idle, from_thread=True)
    idle.insert("t", (1, 1))
    idle.commit()
    idle.close()
    interrupt(idle, from_thread=True)
    assert [values for _, values in heap.rows()] == [(1, 1)]


def test_work_that_a_session_has_elsewhere_is_told(db: Connection, heap: Heap) -> None:
    class Elsewhere:
        told = 0

        def interrupt(self) -> None:
            self.told += 1

    work, unwatched = Elsewhere(), Elsewhere()
    db.session.watch(work)
    db.session.watch(unwatched)
    db.session.unwatch(unwatched)
    interrupt(db, from_thread=True)
    assert (work.told, unwatched.told) == (1, 0)
    heap.insert((1, 1))


def test_a_statement_that_is_told_between_two_steps_has_done_nothing(db: Connection, heap: Heap) -> None:
    for number in range(10):
        heap.insert((number, 0))
    db.commit()

    def change(row: dict[str, int]) -> dict[str, int]:
        if row["id"] == 5:
            interrupt(db, from_thread=True)
        return {"value": 1}

    with pytest.raises(StatementInterrupted):
        db.update("t", change)
    assert {values[1] for _, values in heap.rows()} == {0}
    assert db.update("t", {"value": 1}) == 10


# ---- what else a session refuses, or must get right however rarely it happens


def test_isolation_changes_between_transactions_only(db: Connection, heap: Heap) -> None:
    heap.insert((1, 1))
    db.isolation = "read committed"
    with pytest.raises(InterfaceError, match="cannot change within a transaction"):
        db.isolation = "repeatable read"
    db.commit()
    db.isolation = "repeatable read"
    with pytest.raises(SchemaError, match="is not one of"):
        db.isolation = "chaos"
    assert db.isolation == "repeatable read"


def test_a_transaction_within_autocommit_ends_with_autocommit(db: Connection, heap: Heap, connect: Connect) -> None:
    session = connect(autocommit=True)
    session.begin()
    with pytest.raises(InterfaceError, match="open already"):
        session.begin()
    session.insert("t", (1, 1))
    session.savepoint("a")
    session.savepoint("b")
    session.rollback_to("a")
    with pytest.raises(NoSuchSavepoint):
        session.rollback_to("c")
    assert not session.autocommit or session.in_transaction
    session.rollback()
    session.insert("t", (2, 2))
    db.rollback()
    assert [values for _, values in heap.rows()] == [(2, 2)]


def test_a_change_that_fails_under_autocommit_leaves_no_transaction(
    db: Connection, heap: Heap, connect: Connect
) -> None:
    db.create_index("k", "t", ["id"], unique=True)
    row_id = heap.insert((1, 1))
    db.commit()
    heap.lock(row_id)
    session = connect(autocommit=True, lock_timeout=0)
    with pytest.raises(LockTimeout):
        session.heap("t").update(row_id, {"value": 2})
    assert not session.in_transaction
    with pytest.raises(UniqueViolation):
        session.insert("t", (1, 2))
    assert not session.in_transaction
    db.commit()
    assert heap.fetch(row_id) == (1, 1)


def test_a_cursor_that_saw_nothing_of_what_is_taken_back_goes_on(db: Connection, heap: Heap) -> None:
    heap.insert((1, 1))
    rows = heap.rows()
    assert next(rows)[1] == (1, 1)
    db.savepoint("s")
    heap.insert((2, 2))
    db.rollback_to("s")
    assert list(rows) == []


def test_bulk_appends_that_nobody_sees_yet_are_limited(
    db: Connection, heap: Heap, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock_area, "LOADS_MAX", 2)
    data = pa.table({"id": pa.array(range(3000), pa.int32()), "value": pa.array(range(3000), pa.int32())})
    sessions = [connect() for _ in range(3)]
    for session in sessions[:2]:
        session.append("t", data)
    with pytest.raises(LocksExhausted, match="2 bulk appends"):
        sessions[2].append("t", data)
    sessions[0].rollback()
    db.gc()
    assert sessions[2].append("t", data) == 3000
    sessions[2].rollback()
    sessions[1].rollback()
    assert list(heap.rows()) == []


def test_rows_of_many_pages_are_removed_page_by_page(
    db: Connection, heap: Heap, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gc, "TIDY_AT_ONCE", 1)
    ids = [heap.insert((number, number)) for number in range(900)]
    db.commit()
    for row_id in ids[::3]:
        heap.delete(row_id)
        if row_id[1] % 40 == 0:
            db.commit()
    db.commit()
    db.gc()
    assert len(list(heap.rows())) == 600
    assert db.locks().num_rows == 0


def test_a_table_that_another_drops_is_not_dropped_twice(heap: Heap, connect: Connect) -> None:
    first, second = connect(), connect(lock_timeout=0)
    first.drop_table("t")
    with pytest.raises(LockTimeout):
        second.drop_table("t")
    first.rollback()
    second.drop_table("t")
    second.rollback()
    assert list(heap.rows()) == []


def test_who_recovers_is_told_how_far_it_is(db: Connection, heap: Heap, tmp_path: Path) -> None:
    for number in range(10):
        heap.insert((number, number))
    db.commit()
    db.update("t", {"value": 0})
    db.checkpoint()
    shutil.copytree(db.path, tmp_path / "left")
    db.rollback()
    told: list[tuple[str, int, int]] = []
    with gmdb.connect(tmp_path / "left", progress=lambda *step: told.append(step)) as left:
        assert {values[1] for _, values in left.heap("t").rows()} == set(range(10))
    assert told[-1] == ("rolling back", 10, 10)


def test_a_database_for_reading_only_needs_log_from_where_it_counts(path: Path) -> None:
    with gmdb.connect(path) as db:
        db.create_table("t", {"i": "INT"})
    with gmdb.connect(path, read_only=True) as db:
        hub = db.session.hub
        assert hub.log_from() == hub.store.control["redo_lsn"]
        assert hub.object_of(page_id_of(900, 0)) == 0
