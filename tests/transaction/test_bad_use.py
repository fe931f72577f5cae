"""What goes wrong between sessions: clear errors in good time, and nothing lost."""

from __future__ import annotations

import contextlib
import time

import pyarrow as pa
import pytest

import gmdb
from gmdb.database.connection import Connection
from gmdb.errors import (
    InterfaceError,
    LockTimeout,
    NoSuchSavepoint,
    NoSuchTable,
    RowLocked,
    SchemaError,
    Transient,
)
from gmdb.format.address import RowId
from gmdb.tables.access.heap import Heap
from tests.integrity import assert_sound
from tests.sessions import PATIENCE, Connect, answer, start_waiting


@pytest.fixture
def rows(db: Connection, heap: Heap) -> list[RowId]:
    made = [heap.insert((n, 10 * n)) for n in range(6)]
    db.commit()
    db.gc()
    return made


def values(session: Connection) -> list[int]:
    return [row[1] for _, row in session.heap("t").rows()]


# ---- locks held for too long


def test_a_lock_held_past_its_timeout_is_reported_in_time(heap: Heap, rows: list[RowId], connect: Connect) -> None:
    heap.update(rows[1], {"value": 11})
    waiter = connect(lock_timeout=0.1)
    started = time.monotonic()
    with pytest.raises(LockTimeout, match=rf"row {rows[1]} was held by another transaction for over 0\.1 s") as error:
        waiter.heap("t").update(rows[1], {"value": 12})
    assert 0.1 <= time.monotonic() - started < PATIENCE
    assert isinstance(error.value, Transient)


def test_after_a_lock_timeout_the_transaction_goes_on(heap: Heap, rows: list[RowId], connect: Connect) -> None:
    heap.update(rows[1], {"value": 11})
    waiter = connect()
    waiter.heap("t").update(rows[2], {"value": 22})
    with pytest.raises(LockTimeout):
        waiter.update("t", {"value": 0})
    heap.session.rollback()
    waiter.heap("t").update(rows[1], {"value": 12})
    waiter.commit()
    assert values(waiter) == [0, 12, 22, 30, 40, 50]


def test_a_session_that_gave_up_no_longer_stands_in_line(db: Connection, rows: list[RowId], connect: Connect) -> None:
    db.heap("t").update(rows[0], {"value": 1})
    with pytest.raises(LockTimeout):
        connect().heap("t").update(rows[0], {"value": 2})
    db.commit()
    connect().heap("t").update(rows[0], {"value": 3})
    assert db._database.transactions.waits.queues == {}


def test_the_holder_of_a_row_changes_it_again_while_others_wait(
    db: Connection, heap: Heap, rows: list[RowId], connect: Connect
) -> None:
    heap.update(rows[0], {"value": 1})
    other = connect(lock_timeout=PATIENCE)
    waiting = start_waiting(other, lambda: other.heap("t").update(rows[0], {"value": 3}))
    heap.lock(rows[0])
    heap.update(rows[0], {"value": 2})
    db.commit()
    answer(waiting)
    other.commit()
    assert heap.fetch(rows[0]) == (0, 3)


def test_select_for_update_without_waiting_fails_at_once(heap: Heap, rows: list[RowId], connect: Connect) -> None:
    heap.lock(rows[3])
    impatient = connect(lock_timeout=PATIENCE)
    started = time.monotonic()
    with pytest.raises(RowLocked, match=f"row {rows[3]} is held") as error:
        impatient.select_for_update("t", nowait=True)
    assert time.monotonic() - started < PATIENCE
    assert isinstance(error.value, Transient)


def test_select_for_update_leaves_out_rows_that_are_held(heap: Heap, rows: list[RowId], connect: Connect) -> None:
    heap.lock(rows[3])
    heap.delete(rows[4])
    found = connect().select_for_update("t", where=lambda row: row["id"] > 1, skip_locked=True)
    assert [(row_id, row["value"]) for row_id, row in found] == [(rows[2], 20), (rows[5], 50)]


def test_a_lock_taken_after_a_change_leaves_the_change_to_be_taken_back_once(
    db: Connection, heap: Heap, rows: list[RowId]
) -> None:
    heap.update(rows[0], {"value": 1})
    heap.lock(rows[1])
    db.rollback()
    assert values(db) == [0, 10, 20, 30, 40, 50]
    db.gc()
    assert db.locks().num_rows == 0


def test_rows_locked_for_update_hold_writers_off_until_the_end(
    rows: list[RowId], db: Connection, connect: Connect
) -> None:
    db.select_for_update("t", where=lambda row: row["id"] == 2)
    other = connect().heap("t")
    assert other.fetch(rows[2]) == (2, 20)
    with pytest.raises(LockTimeout):
        other.update(rows[2], {"value": 0})
    db.commit()
    other.update(rows[2], {"value": 0})


# ---- sessions used wrongly


@pytest.mark.parametrize(
    "use",
    [
        lambda db: db.heap("t"),
        lambda db: db.insert("t", (1, 1)),
        lambda db: db.update("t", {"value": 1}),
        lambda db: db.delete("t"),
        lambda db: db.arrow("t"),
        lambda db: db.append("t", pa.table({"id": [1], "value": [1]})),
        lambda db: db.begin(),
        lambda db: db.commit(),
        lambda db: db.rollback(),
        lambda db: db.savepoint("s"),
        lambda db: db.create_table("u", {"i": "INT"}),
        lambda db: db.drop_table("t"),
        lambda db: db.gc(),
        lambda db: db.checkpoint(),
        lambda db: db.select_for_update("t"),
    ],
)
@pytest.mark.parametrize("last", [False, True], ids=["others are open", "the last one"])
def test_a_closed_connection_says_that_it_is_closed(path, use, last: bool) -> None:
    db, other = gmdb.connect(path), gmdb.connect(path)
    db.create_table("t", {"id": "INT", "value": "INT"})
    db.commit()
    if last:
        other.close()
    db.close()
    db.close()
    with pytest.raises(InterfaceError, match="closed"):
        use(db)
    other.close()


@pytest.mark.parametrize("act", ["fetch", "insert", "update", "delete", "lock", "rows"])
def test_a_heap_of_a_closed_connection_says_that_it_is_closed(rows: list[RowId], connect: Connect, act: str) -> None:
    session = connect()
    heap = session.heap("t")
    heap.update(rows[0], {"value": 5})
    session.close()
    arguments = {"insert": [(1, 1)], "update": [rows[0], {"value": 1}], "rows": []}.get(act, [rows[0]])
    with pytest.raises(InterfaceError, match="closed"):
        list(getattr(heap, act)(*arguments))


def test_a_connection_that_is_closed_inside_a_transaction_rolls_back(
    db: Connection, heap: Heap, rows: list[RowId], connect: Connect
) -> None:
    other = connect()
    other.update("t", {"value": 0})
    other.insert("t", (7, 70))
    other.delete("t", where=lambda row: row["id"] == 3)
    other.close()
    assert values(db) == [0, 10, 20, 30, 40, 50]
    heap.update(rows[3], {"value": 1})


def test_the_last_connection_rolls_back_and_leaves_sound_pages_without_locks(path) -> None:
    with gmdb.connect(path) as db:
        db.create_table("t", {"id": "INT", "value": "INT"})
        db.commit()
        db.insert("t", (1, 10))
    db = gmdb.connect(path)
    db.update("t", {"value": 99})
    db.insert("t", (2, 20))
    db.close()
    assert_sound(path)
    with gmdb.connect(path) as db:
        assert values(db) == [10]
        assert db.locks().num_rows == 0


def test_a_block_that_fails_rolls_back(path) -> None:
    with gmdb.connect(path) as db:
        db.create_table("t", {"id": "INT", "value": "INT"})
    with pytest.raises(ZeroDivisionError), gmdb.connect(path) as db:
        db.insert("t", (1, 1 // 0 if db.insert("t", (1, 1)) else 0))
    with gmdb.connect(path) as db:
        assert values(db) == []


@pytest.mark.usefixtures("rows")
def test_a_transaction_cannot_begin_inside_another(db: Connection) -> None:
    db.begin()
    db.update("t", {"value": 1})
    with pytest.raises(InterfaceError, match="open already; commit or roll back"):
        db.begin()
    db.rollback()
    db.begin()
    assert values(db) == [0, 10, 20, 30, 40, 50]


def test_an_unknown_isolation_level_is_refused_and_leaves_nothing_open(db: Connection) -> None:
    before = db._database.connections
    with pytest.raises(SchemaError, match=r"isolation 'snapshot' is not one of read committed, .*, serializable"):
        gmdb.connect(db.path, isolation="snapshot")
    assert db._database.connections == before


# ---- savepoints


@pytest.mark.parametrize("act", ["rollback_to", "release_savepoint"])
def test_an_unknown_savepoint_is_named(db: Connection, act: str) -> None:
    db.savepoint("known")
    with pytest.raises(NoSuchSavepoint, match="no savepoint unknown is set"):
        getattr(db, act)("unknown")


@pytest.mark.usefixtures("rows")
@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_a_savepoint_ends_with_its_transaction(db: Connection, end: str) -> None:
    db.savepoint("s")
    db.update("t", {"value": 1})
    getattr(db, end)()
    with pytest.raises(NoSuchSavepoint):
        db.rollback_to("s")


@pytest.mark.usefixtures("rows")
def test_a_savepoint_can_be_returned_to_again_and_takes_later_ones_with_it(db: Connection) -> None:
    db.savepoint("outer")
    db.update("t", {"value": 1})
    db.savepoint("inner")
    for _ in range(2):
        db.update("t", {"value": 2})
        db.rollback_to("outer")
        assert values(db) == [0, 10, 20, 30, 40, 50]
    with pytest.raises(NoSuchSavepoint):
        db.rollback_to("inner")


def test_a_name_set_twice_means_the_newer_savepoint_until_that_is_released(db: Connection, heap: Heap) -> None:
    row_id = heap.insert((1, 0))
    db.savepoint("s")
    heap.update(row_id, {"value": 1})
    db.savepoint("s")
    heap.update(row_id, {"value": 2})
    db.rollback_to("s")
    assert heap.fetch(row_id) == (1, 1)
    db.release_savepoint("s")
    db.rollback_to("s")
    assert heap.fetch(row_id) == (1, 0)


# ---- statements that fail


def fail_at_third(row: dict[str, int]) -> dict[str, int]:
    return {"value": 100 // (2 - row["id"])}


@pytest.mark.parametrize("autocommit", [False, True])
def test_an_update_that_fails_at_the_third_row_leaves_no_trace(
    db: Connection, rows: list[RowId], connect: Connect, autocommit: bool
) -> None:
    session = connect(autocommit=autocommit)
    session.heap("t").update(rows[5], {"value": 55})
    with pytest.raises(ZeroDivisionError):
        session.update("t", fail_at_third)
    assert values(session) == [0, 10, 20, 30, 40, 55]
    db.heap("t").update(rows[0], {"value": 1})  # nobody holds it
    session.commit()
    assert db.locks().to_pylist()[-1]["action"] in ("UPDATE", "INSERT")


@pytest.mark.usefixtures("rows")
def test_a_value_that_does_not_fit_leaves_no_trace(db: Connection) -> None:
    with pytest.raises(gmdb.errors.DataError):
        db.update("t", lambda row: {"value": 1 << (16 * row["id"])})
    assert values(db) == [0, 10, 20, 30, 40, 50]


def test_a_statement_that_times_out_at_its_last_row_leaves_no_trace(
    db: Connection, rows: list[RowId], connect: Connect
) -> None:
    db.heap("t").lock(rows[5])
    other = connect()
    with pytest.raises(LockTimeout):
        other.delete("t")
    assert values(other) == [0, 10, 20, 30, 40, 50]
    db.heap("t").update(rows[0], {"value": 1})


@pytest.mark.usefixtures("rows")
def test_an_append_that_fails_leaves_no_trace(db: Connection) -> None:
    def batches():
        yield pa.record_batch({"id": pa.array([7, 8], pa.int32()), "value": pa.array([1, 2], pa.int32())})
        raise ConnectionError("the source is gone")

    schema = pa.schema({"id": pa.int32(), "value": pa.int32()})
    with pytest.raises(ConnectionError):
        db.append("t", pa.RecordBatchReader.from_batches(schema, batches()))
    assert values(db) == [0, 10, 20, 30, 40, 50]
    db.commit()
    assert values(db) == [0, 10, 20, 30, 40, 50]


def test_a_statement_whose_own_function_deletes_its_rows_ends(db: Connection, heap: Heap, rows: list[RowId]) -> None:
    calls = 0

    def change(row: dict[str, int]) -> dict[str, int]:
        nonlocal calls
        calls += 1
        assert calls < 100, "it starts over again and again"
        if row["id"] == 0:
            heap.delete(rows[2])
        return {"value": 1}

    with contextlib.suppress(gmdb.Error):
        db.update("t", change)


# ---- table locks


def test_a_table_is_not_dropped_while_a_transaction_changes_it(
    db: Connection, rows: list[RowId], connect: Connect
) -> None:
    db.heap("t").lock(rows[0])
    other = connect(lock_timeout=0.05)
    with pytest.raises(LockTimeout, match=r"table .* was held by another transaction for over 0\.05 s"):
        other.drop_table("t")
    assert db.tables() == ["t"]
    assert values(db) == [0, 10, 20, 30, 40, 50]


def test_a_drop_waits_for_the_transaction_that_uses_the_table(
    db: Connection, heap: Heap, rows: list[RowId], connect: Connect
) -> None:
    heap.update(rows[0], {"value": 1})
    other = connect(lock_timeout=PATIENCE)
    waiting = start_waiting(other, lambda: other.drop_table("t"))
    assert db.tables() == ["t"]
    db.commit()
    answer(waiting)
    other.commit()
    assert db.tables() == []
    with pytest.raises(NoSuchTable):
        db.heap("t")


@pytest.mark.usefixtures("heap")
def test_a_session_that_comes_too_late_does_not_reach_the_dropped_tables_pages(
    db: Connection, rows: list[RowId], connect: Connect
) -> None:
    dropping, late = connect(), connect(lock_timeout=0.05)
    heap = late.heap("t")
    dropping.drop_table("t")
    assert heap.fetch(rows[0]) == (0, 0)  # until that is committed
    dropping.commit()
    db.gc()
    db.create_table("u", {"id": "INT", "value": "INT"})
    db.commit()
    db.heap("u").insert((1, 1))
    db.commit()
    with pytest.raises(NoSuchTable, match="table t was dropped"):
        heap.fetch(rows[0])


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_a_table_dropped_with_changes_of_its_own_transaction_does_no_harm(
    db: Connection, heap: Heap, rows: list[RowId], end: str
) -> None:
    heap.insert((7, 70))
    heap.update(rows[0], {"value": 1})
    heap.delete(rows[1])
    heap.lock(rows[2])
    db.drop_table("t")
    getattr(db, end)()
    assert db.tables() == ([] if end == "commit" else ["t"])
    db.create_table("u", {"id": "INT"})
    db.commit()
    db.insert("u", (1,))
    db.commit()
    db.gc()
    assert db.locks().num_rows == 0
