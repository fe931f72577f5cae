"""Threads that share a connection take turns: nothing crashes, and no update is lost."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import gmdb
from gmdb.database.connection import Connection
from tests.integrity import assert_sound
from tests.server.peer import Peer

THREADS, ROUNDS = 8, 40


def together(work: Callable[[int], None]) -> None:
    """Run something in several threads at once; what one of them raises is raised here."""
    errors: list[BaseException] = []
    begin = threading.Barrier(THREADS)

    def run(n: int) -> None:
        try:
            begin.wait()
            work(n)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(n,)) for n in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


@pytest.fixture(params=["here", "with an owner"])
def db(request: pytest.FixtureRequest, path: Path, peer: Peer) -> Iterator[Connection]:
    if request.param == "with an owner":
        peer("import gmdb; owner = gmdb.connect(path)", path=path)
    with gmdb.connect(path) as opened:
        opened.execute("create table t (id int primary key, n int, s varchar(100))")
        opened.executemany("insert into t values (?, 0, '')", [(n,) for n in range(THREADS)])
        opened.commit()
        yield opened
    if request.param == "with an owner":
        peer("owner.close()")
    assert_sound(path)


def numbers(db: Connection) -> list[int]:
    return [n for (n,) in db.execute("select n from t order by id").fetchall()]


@pytest.mark.parametrize("commits", [False, True])
@pytest.mark.parametrize("one_row", [True, False])
def test_no_update_is_lost(db: Connection, one_row: bool, commits: bool) -> None:
    def work(thread: int) -> None:
        for _ in range(ROUNDS):
            db.execute("update t set n = n + 1 where id = ?", (0 if one_row else thread,))
            if commits:
                db.commit()

    together(work)
    db.commit()
    assert numbers(db) == ([THREADS * ROUNDS] + [0] * (THREADS - 1) if one_row else [ROUNDS] * THREADS)


def test_every_kind_of_statement_beside_others(db: Connection) -> None:
    """Each thread's rows are as its own statements made them, whatever others did in between."""

    def work(thread: int) -> None:
        heap = db.heap("t")
        for round_ in range(ROUNDS):
            own = (thread + 1) * 1000 + round_
            db.execute("insert into t values (?, ?, ?)", (own, thread, f"{thread}"))
            row_id = heap.insert((own + 500, thread, "x" * (round_ * 2)))
            assert heap.fetch(row_id)[0] == own + 500
            heap.update(row_id, {"n": thread + 1})
            assert db.execute("select n, s from t where id = ?", (own,)).fetchone() == (thread, f"{thread}")
            found = db.execute("select id, n from t where id = ? or id = ?", (own, own + 500)).fetchall()
            assert sorted(found) == [(own, thread), (own + 500, thread + 1)]
            db.execute("delete from t where id = ?", (own,))
            db.execute("update t set s = 'changed' where id = ?", (own + 500,))

    together(work)
    db.commit()
    left = db.execute("select id, n, s from t where id >= 1000 order by id").fetchall()
    wanted = [((t + 1) * 1000 + r + 500, t + 1, "changed") for t in range(THREADS) for r in range(ROUNDS)]
    assert left == wanted


def test_scans_rollbacks_and_savepoints_beside_changes(db: Connection) -> None:
    def work(thread: int) -> None:
        for _ in range(ROUNDS // 4):
            if thread == 0:
                db.rollback()
            elif thread == 1:
                assert sum(1 for _ in db.heap("t").rows()) == THREADS
            elif thread == 2:
                assert db.execute("select count(*) from t a join t b on a.id = b.id").fetchone() == (THREADS,)
            elif thread == 3:
                db.commit()
            else:
                db.execute("update t set n = n + 1, s = ? where id = ?", ("s" * thread, thread))

    with suppress(gmdb.errors.CursorInvalid):  # a read saw changes that another thread's rollback took back
        together(work)
    db.rollback()
    assert db.execute("select count(*) from t").fetchone() == (THREADS,)


def test_a_thread_that_waits_is_told_when_another_closes_the_connection(path: Path) -> None:
    with gmdb.connect(path) as db:
        db.execute("create table t (id int primary key)")
        db.execute("insert into t values (1)")
        db.commit()
        db.execute("update t set id = 1")
        other = gmdb.connect(path, lock_timeout=60)
        errors: list[BaseException] = []

        def wait() -> None:
            try:
                other.execute("update t set id = 1")
            except BaseException as error:
                errors.append(error)

        waiting = threading.Thread(target=wait)
        waiting.start()
        while not db.execute("select count(*) from sys_locks").fetchone() or not other.session.hub.waits.queues:
            pass
        other.close()
        waiting.join()
        assert isinstance(errors[0], gmdb.errors.InterfaceError)
