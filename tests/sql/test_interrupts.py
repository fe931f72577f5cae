"""A statement is ended from another thread: it has done nothing, its transaction goes on, and so does the session."""

from __future__ import annotations

import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import gmdb
from gmdb.database.connection import Connection
from gmdb.errors import StatementInterrupted
from tests.integrity import assert_sound
from tests.server.peer import Peer
from tests.sessions import answer, in_thread, until

ROWS = 1_000_000  # so many take a second or more, also when kernels change many in one call
MANY = 1_000_000
A_WHILE = 0.1
SOON = 30.0  # an interrupted statement must end by then; those of these tests take longer, or have a lock_timeout of 60

ENDLESS = "select count(*) from few a, few b, few c, few d where a.i + b.i + c.i + d.i < 0"


@pytest.fixture(scope="module")
def other() -> Iterator[Peer]:
    with tempfile.TemporaryDirectory() as made, pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", made)
        peer = Peer()
        yield peer
        peer.end()


@pytest.fixture(params=["here", "through the owner"])
def db(request: pytest.FixtureRequest, path: Path, other: Peer) -> Iterator[Connection]:
    """A session of this process, or of one that another process has; ``rival`` in the other process is another."""
    tables = "create table t (i int, s varchar(10)); create table few (i int); create table copy (i int, s varchar(10))"
    with gmdb.connect(path) as made:
        made.cursor().executescript(tables)
        made.append("t", pa.table({"i": pa.array(range(ROWS), pa.int32()), "s": ["hello"] * ROWS}))
        made.append("few", pa.table({"i": pa.array(range(3000), pa.int32())}))
    if request.param == "here":
        connection = gmdb.connect(path, lock_timeout=60)
        other("db = gmdb.connect(path, lock_timeout=60)", path=str(path))
    else:
        other("db = gmdb.connect(path, lock_timeout=60)", path=str(path))
        connection = gmdb.connect(path, lock_timeout=60)
    yield connection
    if request.param == "here":
        other("db.close()")
        connection.close()
    else:
        connection.close()
        other("db.close()")
    assert_sound(path)


def interrupted(db: Connection, function: Callable[[], Any]) -> float:
    """Let something run for a while, then interrupt it; answers how many seconds passed until it had ended."""
    future = in_thread(function)
    time.sleep(A_WHILE)
    assert not future.done(), f"it did not take long enough: {future}"
    began = time.monotonic()
    db.interrupt()
    with pytest.raises(StatementInterrupted, match="interrupted"):
        answer(future)
    took = time.monotonic() - began
    assert took < SOON
    return took


@pytest.mark.parametrize(
    "statement",
    [
        ENDLESS,
        "update t set i = i + 1",
        "delete from t",
        "insert into copy select t.i, t.s from t, generate_series(1, 100)",
        "select * from t where i >= 0 for update",
    ],
)
def test_a_statement_that_is_interrupted_has_done_nothing_and_the_transaction_goes_on(
    db: Connection, statement: str
) -> None:
    db.execute("insert into copy values (-1, 'before')")
    interrupted(db, lambda: db.execute(statement).fetchall())
    assert db.execute("select i, s from copy").fetchall() == [(-1, "before")]
    assert db.execute("select count(*), sum(i) from t").fetchall() == [(ROWS, ROWS * (ROWS - 1) // 2)]
    db.commit()
    assert db.execute("select count(*) from copy").fetchall() == [(1,)]


def test_a_wait_for_a_row_is_interrupted(db: Connection, other: Peer) -> None:
    other("_ = db.execute('update few set i = 5000 where i = 1')")
    db.execute("insert into copy values (-1, 'before')")
    interrupted(db, lambda: db.execute("update few set i = i + 1"))
    other("db.rollback()")
    assert db.execute("update few set i = i + 1").rowcount == 3000
    assert db.execute("select count(*) from copy").fetchone() == (1,)
    db.rollback()


def test_a_wait_for_a_row_outside_of_sql_is_interrupted(db: Connection, other: Peer) -> None:
    heap = db.heap("few")
    row_id, _ = next(heap.rows())
    other("_ = db.execute('update few set i = 5000 where i = 0')")
    interrupted(db, lambda: heap.update(row_id, {"i": 1}))
    other("db.rollback()")
    heap.update(row_id, {"i": 1})
    assert heap.fetch(row_id) == (1,)
    db.rollback()


def test_a_wait_for_a_table_is_interrupted(db: Connection, other: Peer) -> None:
    other("_ = db.execute('update few set i = 5000 where i = 1')")
    interrupted(db, lambda: db.execute("alter table few add column j int"))
    other("db.rollback()")
    db.execute("alter table few add column j int")
    db.rollback()


def test_an_append_is_interrupted_between_batches(db: Connection) -> None:
    batch = pa.record_batch({"i": pa.array([1], pa.int32()), "s": ["x"]})

    def batches() -> Iterator[pa.RecordBatch]:
        for _ in range(2000):
            yield batch
            time.sleep(0.005)

    interrupted(db, lambda: db.append("copy", batches()))
    assert db.execute("select count(*) from copy").fetchone() == (0,)
    assert db.append("copy", batch) == 1
    db.rollback()


@pytest.mark.parametrize("autocommit", [False, True])
def test_building_an_index_is_interrupted(path: Path, autocommit: bool) -> None:
    with gmdb.connect(path) as made:
        made.execute("create table t (i bigint)")
        made.append("t", pa.table({"i": pa.array(range(MANY))}))
    with gmdb.connect(path, autocommit=autocommit) as db:
        future = in_thread(lambda: db.execute("create index t_i on t (i)"))
        until(lambda: db.session._working or len(db.session._elsewhere))
        time.sleep(0.02)
        db.interrupt()
        with pytest.raises(StatementInterrupted):
            answer(future)
        assert db.table("t").indexes == ()
        assert db.execute("select count(*) from t").fetchone() == (MANY,)
        db.execute("create index t_i on t (i)")
        assert db.execute("select i from t where i = 7").fetchall() == [(7,)]
    assert_sound(path)


def test_rows_that_are_being_fetched_are_interrupted(db: Connection) -> None:
    cursor = db.execute("select a.i from few a, few b, few c")
    future = in_thread(lambda: sum(batch.num_rows for batch in cursor.fetch_record_batch()))
    time.sleep(A_WHILE)
    db.interrupt()
    with pytest.raises(StatementInterrupted):
        answer(future)
    assert db.execute("select 1").fetchone() == (1,)


def test_an_interrupt_of_nothing_does_nothing(db: Connection) -> None:
    db.interrupt()
    time.sleep(0.05)  # it travels to the owner
    db.execute("update few set i = i + 1 where i < 10")
    heap = db.heap("few")
    row_id = heap.insert((1,))
    heap.update(row_id, {"i": 2})
    assert heap.fetch(row_id) == (2,)
    assert len(list(heap.rows())) == 3001
    db.rollback()
    with pytest.raises(gmdb.Error, match="no table"):
        db.execute("select * from nothing")


def test_under_repeatable_read_the_snapshot_outlives_an_interrupt(db: Connection, path: Path) -> None:
    with gmdb.connect(path, isolation="repeatable read", lock_timeout=60) as steady:
        assert steady.execute("select count(*) from copy").fetchone() == (0,)
        db.execute("insert into copy values (1, 'later')")
        db.commit()
        interrupted(steady, lambda: steady.execute("update t set i = i + 1"))
        interrupted(steady, lambda: steady.execute(ENDLESS).fetchall())
        assert steady.execute("select count(*) from copy").fetchone() == (0,)
        steady.rollback()


def test_interrupts_that_come_too_often_leave_nothing_half_done(db: Connection) -> None:
    """A user who holds the keys down: whatever moment it is, the statement ends or has happened whole."""
    over = threading.Event()

    def hammer() -> None:
        while not over.wait(0.003):
            db.interrupt()

    hammering = threading.Thread(target=hammer)
    hammering.start()
    done = 0
    try:
        for _ in range(60):
            try:
                done += db.execute("update few set i = i + 1").rowcount // 3000
                db.commit()
            except StatementInterrupted:
                pass
    finally:
        over.set()
        hammering.join()
    time.sleep(0.05)
    assert db.execute("select min(i), count(*) from few").fetchone() == (done, 3000)


def test_a_signal_handler_interrupts(path: Path) -> None:
    """Also while the thread that it runs in holds a lock of the engine's, or waits for one."""
    with gmdb.connect(path, lock_timeout=60) as db, gmdb.connect(path) as rival:
        db.execute("create table t (i int)")
        db.executemany("insert into t values (?)", [(n,) for n in range(5000)])
        db.commit()
        rival.execute("update t set i = -1 where i = 4999")
        before = signal.signal(signal.SIGALRM, lambda *_: db.interrupt())
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.5)
            with pytest.raises(StatementInterrupted):
                db.execute("update t set i = i + 1")
            signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
            for _ in range(300):
                try:
                    db.execute("update t set i = i + 1 where i < 50")
                    db.rollback()
                except StatementInterrupted:
                    continue
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        time.sleep(0.05)
        rival.rollback()
        db.rollback()
        assert db.execute("select count(*), sum(i) from t").fetchone() == (5000, 5000 * 4999 // 2)
    assert_sound(path)
