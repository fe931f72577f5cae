"""Unique keys among sessions: who gets a key, who waits, who is refused, and what rollbacks give back."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import gmdb
from gmdb.database.connection import Connection
from gmdb.errors import Deadlock, LockTimeout, Transient, UniqueViolation, WriteConflict
from gmdb.format.address import RowId
from gmdb.transaction import gc
from tests.model.checks import check_indexes
from tests.searches import extent
from tests.sessions import PATIENCE, Connect, answer, connect, start_waiting, until

__all__ = ["connect"]
LEVELS = ("read committed", "repeatable read")


@pytest.fixture
def table(db: Connection) -> Iterator[Connection]:
    """A table with a unique index, whose garbage is collected when the test says so; at its end, as it must be."""
    db._database.transactions.stop()
    db.create_table("t", {"k": "INT", "s": "VARCHAR(3000)"})
    db.create_index("t_k", "t", ["k"], unique=True)
    db.commit()
    yield db
    db.rollback()
    db.gc()
    check_indexes(db, "t")


def keys(db: Connection) -> list[int | None]:
    return [values[0] for _, values in db.heap("t").by("t_k").range()]


def contents(db: Connection) -> list[tuple[Any, ...]]:
    """The rows in key order, found both ways."""
    found = list(db.heap("t").rows())
    by_key = list(db.heap("t").by("t_k").range())
    assert sorted(map(repr, found)) == sorted(map(repr, by_key))
    db.commit()
    return [values for _, values in by_key]


# ---- who waits for a key, and how that ends


def insert(session: Connection, _: RowId) -> None:
    session.insert("t", (1, "second"))


def update(session: Connection, row_id: RowId) -> None:
    session.heap("t").update(row_id, {"k": 1})


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("take", [insert, update])
@pytest.mark.parametrize("holder", ["inserts it", "updates to it", "deletes it", "updates it away"])
@pytest.mark.parametrize("end", ["commits", "rolls back"])
def test_whoever_wants_a_key_that_is_not_decided_waits_for_its_holder(
    table: Connection, connect: Connect, level: str, take: Callable[..., None], holder: str, end: str
) -> None:
    second = connect(level, lock_timeout=60)
    spare, mine = table.insert("t", (7, "first's")), table.insert("t", (8, "second's"))
    row_id = table.insert("t", (1, "there")) if "it away" in holder or "deletes" in holder else spare
    table.commit()
    if holder == "inserts it":
        table.insert("t", (1, "new"))
    elif holder == "deletes it":
        table.heap("t").delete(row_id)
    else:
        table.heap("t").update(row_id, {"k": 1 if holder == "updates to it" else 9})
    waiting = start_waiting(second, lambda: take(second, mine))
    table.commit() if end == "commits" else table.rollback()
    frees = holder in ("deletes it", "updates it away")
    if frees == (end == "commits"):
        answer(waiting)
        second.commit()
        assert keys(table).count(1) == 1
    else:
        with pytest.raises(UniqueViolation, match=r"table t, index t_k \(k\): row"):
            answer(waiting)
        second.rollback()
    table.gc()
    contents(table)


def test_waiters_for_one_key_get_it_one_after_the_other(table: Connection, connect: Connect) -> None:
    first, second, third = (connect(lock_timeout=60) for _ in range(3))
    first.insert("t", (1, "first"))
    waiting = [start_waiting(one, lambda one=one: one.insert("t", (1, "later"))) for one in (second, third)]
    first.rollback()
    until(lambda: any(one.done() for one in waiting))
    done = 0 if waiting[0].done() else 1
    answer(waiting[done])
    (second, third)[done].commit()
    with pytest.raises(UniqueViolation):
        answer(waiting[1 - done])
    assert contents(table) == [(1, "later")]


def test_sessions_that_wait_for_each_others_keys_are_told_of_their_deadlock(
    table: Connection, connect: Connect
) -> None:
    first, second = connect(lock_timeout=60), connect(lock_timeout=60)
    first.insert("t", (1, "first"))
    second.insert("t", (2, "second"))
    waiting = start_waiting(first, lambda: first.insert("t", (2, "first")))
    with pytest.raises(Deadlock, match="is held by a transaction that waits for this one"):
        second.insert("t", (1, "second"))
    second.rollback()
    answer(waiting)
    first.commit()
    assert contents(table) == [(1, "first"), (2, "first")]


def test_a_circle_of_a_key_and_a_row_is_a_deadlock_too(table: Connection, connect: Connect) -> None:
    first, second = connect(lock_timeout=60), connect(lock_timeout=60)
    row_id = first.insert("t", (5, "row"))
    first.commit()
    first.insert("t", (1, "first"))
    second.heap("t").update(row_id, {"s": "second's"})
    waiting = start_waiting(second, lambda: second.insert("t", (1, "second")))
    with pytest.raises(Deadlock):
        first.heap("t").update(row_id, {"s": "first's"})
    first.rollback()
    answer(waiting)
    second.commit()
    assert contents(table) == [(1, "second"), (5, "second's")]


def test_a_wait_for_a_key_ends_with_the_time_for_it(table: Connection, connect: Connect) -> None:
    impatient = connect(lock_timeout=0.05)
    table.insert("t", (1, "held"))
    with pytest.raises(LockTimeout):
        impatient.insert("t", (1, "late"))
    impatient.insert("t", (2, "goes on"))
    impatient.commit()
    table.commit()
    assert contents(table) == [(1, "held"), (2, "goes on")]


def test_a_row_that_is_only_locked_has_its_key_for_sure(table: Connection, connect: Connect) -> None:
    other = connect(lock_timeout=60)
    row_id = table.insert("t", (1, "locked"))
    table.commit()
    table.heap("t").lock(row_id)
    with pytest.raises(UniqueViolation):
        other.insert("t", (1, "again"))


def test_repeatable_read_is_refused_a_key_that_came_after_its_snapshot(table: Connection, connect: Connect) -> None:
    old = connect("repeatable read")
    assert contents(old) == []
    assert list(old.heap("t").rows()) == []
    row_id = table.insert("t", (1, "newer"))
    table.commit()
    with pytest.raises(UniqueViolation):
        old.insert("t", (1, "older"))
    assert old.heap("t").by("t_k").find((1,)) == []
    table.heap("t").delete(row_id)
    table.commit()
    old.insert("t", (1, "older"))
    old.commit()
    assert contents(table) == [(1, "older")]


def test_nulls_never_collide(table: Connection, connect: Connect) -> None:
    other = connect(lock_timeout=0)
    table.create_index("t_sk", "t", ["s", "k"], unique=True)
    table.commit()
    for _ in range(3):
        table.insert("t", (None, "same"))
        other.insert("t", (None, "same"))
        table.insert("t", (None, None))
    table.commit()
    other.commit()
    assert len(contents(table)) == 9


# ---- within a transaction, and back


ENDS = ["commit", "rollback", "rollback_to", "statement"]


def swap_by_delete_and_insert(db: Connection, one: RowId, two: RowId) -> None:
    first, second = db.heap("t").fetch(one), db.heap("t").fetch(two)
    db.heap("t").delete(one)
    db.heap("t").delete(two)
    db.insert("t", (first[0], second[1]))
    db.insert("t", (second[0], first[1]))


def swap_by_a_third_value(db: Connection, one: RowId, two: RowId) -> None:
    heap = db.heap("t")
    first, second = heap.fetch(one)[0], heap.fetch(two)[0]
    for row_id, key in ((one, -1), (two, first), (one, second)):
        heap.update(row_id, {"k": key})


def insert_again(db: Connection, one: RowId, two: RowId) -> None:
    key = db.heap("t").fetch(one)[0]
    for _ in range(3):
        db.heap("t").delete(one)
        one = db.insert("t", (key, "b"))
    db.heap("t").update(two, {"s": "a"})


def there_and_back(db: Connection, one: RowId, two: RowId) -> None:
    """Each row has keys that the other has had."""
    heap = db.heap("t")
    for key, row_id in ((3, one), (1, two), (4, two), (1, one), (2, two), (5, one), (1, two), (2, one)):
        heap.update(row_id, {"k": key})


def in_one_statement(db: Connection, work: Callable[[], Any]) -> None:
    with db.heap("t").statement():
        work()


@pytest.mark.parametrize("swap", [swap_by_delete_and_insert, swap_by_a_third_value, insert_again, there_and_back])
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("collected", [False, True])
def test_two_rows_exchange_their_keys_in_a_transaction(
    table: Connection, connect: Connect, swap: Callable[..., None], end: str, collected: bool
) -> None:
    one, two = table.insert("t", (1, "a")), table.insert("t", (2, "b"))
    table.commit()
    if collected:
        table.gc()
    reader = connect("repeatable read")
    before = contents(reader)
    assert list(reader.heap("t").by("t_k").range()) == [(one, (1, "a")), (two, (2, "b"))]
    table.savepoint("s")
    if end == "statement":
        with pytest.raises(UniqueViolation):
            in_one_statement(table, lambda: (swap(table, one, two), table.insert("t", (2, "no"))))
    else:
        swap(table, one, two)
        getattr(table, end)(*["s"] if end == "rollback_to" else [])
    assert [values for _, values in reader.heap("t").by("t_k").range()] == before
    assert reader.heap("t").by("t_k").find((1,)) == [(one, (1, "a"))]
    table.commit()
    table.gc()
    assert contents(table) == ([(1, "b"), (2, "a")] if end == "commit" else before)
    reader.commit()
    for key in (1, 2):
        with pytest.raises(UniqueViolation):
            table.insert("t", (key, "taken"))
    table.insert("t", (5, "free"))


def test_a_statement_that_fails_gives_its_keys_back(table: Connection, connect: Connect) -> None:
    other = connect(lock_timeout=0)
    for key in (1, 2, 3):
        table.insert("t", (key, "x"))
    table.commit()
    with pytest.raises(UniqueViolation):
        table.update("t", lambda row: {"k": {1: 11, 2: 12, 3: 11}[row["k"]]})
    other.insert("t", (11, "other's"))
    other.insert("t", (12, "other's"))
    other.commit()
    assert keys(table) == [1, 2, 3, 11, 12]


def test_a_savepoint_gives_keys_back_to_others(table: Connection, connect: Connect) -> None:
    other = connect(lock_timeout=60)
    table.insert("t", (1, "kept"))
    table.savepoint("s")
    table.insert("t", (2, "given back"))
    table.rollback_to("s")
    other.insert("t", (2, "other's"))
    other.commit()
    table.commit()
    assert contents(table) == [(1, "kept"), (2, "other's")]


# ---- garbage in between


def test_an_entry_that_was_used_again_and_given_back_goes_though_its_deleter_was_purged(
    table: Connection, connect: Connect
) -> None:
    """The deleter's lock is not right beneath: a change of another column came in between."""
    reader = connect("repeatable read")
    row_id = table.insert("t", (1, "a"))
    table.commit()
    table.gc()
    old = connect("repeatable read")
    assert len(list(old.heap("t").rows())) == 1
    table.heap("t").update(row_id, {"k": 2})
    table.commit()
    assert len(list(reader.heap("t").rows())) == 1
    table.heap("t").update(row_id, {"s": "b"})
    table.commit()
    table.heap("t").update(row_id, {"k": 1})
    old.commit()
    table.gc()  # the first change, not the second
    table.rollback()
    assert keys(table) == [2]
    reader.commit()
    table.commit()
    table.gc()
    check_indexes(table, "t")
    table.insert("t", (1, "c"))


def test_an_entry_whose_mark_is_taken_back_has_no_lock_of_a_purged_transaction(
    table: Connection, connect: Connect
) -> None:
    reader = connect("repeatable read")
    assert contents(reader) == []
    list(reader.heap("t").rows())
    row_id = table.insert("t", (1, "a"))
    table.commit()
    table.heap("t").update(row_id, {"k": 2})
    reader.commit()
    table.gc()
    table.rollback()
    table.gc()
    check_indexes(table, "t")


@pytest.mark.parametrize("batch", [1, 2, 3, 5])
def test_a_lock_that_is_another_transactions_by_now_is_on_no_entry(
    table: Connection, connect: Connect, monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    """Garbage collection stops after any record, as it does when the disk is full; others go on meanwhile."""
    monkeypatch.setattr(gc, "BATCH", batch)
    other = connect(lock_timeout=0)
    collector = table._database.transactions.collector
    row_id = table.insert("t", (1, "a"))
    table.commit()
    table.gc()
    for stop in range(1, 6):
        table.heap("t").update(row_id, {"k": 2})
        table.commit()
        call, calls = collector._hub.store.call_essential, 0

        def fail(kernel: Any, *arguments: int, call: Any = call, stop: int = stop) -> int:
            nonlocal calls
            calls += kernel is gc.purge_records
            if calls > stop:
                raise gmdb.errors.DiskFull("no space for the log")
            return call(kernel, *arguments)

        with monkeypatch.context() as patch:
            patch.setattr(collector._hub.store, "call_essential", fail)
            with suppress(gmdb.errors.DiskFull):
                table.gc()
        other.heap("t").update(row_id, {"k": 1})
        other.savepoint("s")
        other.heap("t").update(row_id, {"k": 3})
        table.gc()
        other.rollback_to("s")
        assert other.heap("t").by("t_k").find((1,)) == [(row_id, (1, "a"))]
        other.rollback()
        table.gc()
        check_indexes(table, "t")
        table.heap("t").update(row_id, {"k": 1})
        table.commit()
        table.gc()


# ---- many at once


class Racer(threading.Thread):
    """One session that takes keys, gives them back and moves them on, at random."""

    def __init__(self, path: Path, seed: int, stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self.random = random.Random(seed)
        self.path, self.stop, self.number = path, stop, seed
        self.counts: Counter[str] = Counter()
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            level = LEVELS[self.number % 2]
            with gmdb.connect(self.path, isolation=level, lock_timeout=5) as db:
                while not self.stop.is_set():
                    self.transaction(db)
        except BaseException as error:
            self.failure = error
            self.stop.set()

    def transaction(self, db: Connection) -> None:
        try:
            for _ in range(self.random.randint(1, 4)):
                self.step(db)
            if self.random.random() < 0.3:
                db.rollback()
                self.counts["rolled back"] += 1
            else:
                db.commit()
                self.counts["committed"] += 1
        except gmdb.errors.Error as error:
            if not isinstance(error, Transient):
                raise
            db.rollback()
            self.counts[type(error).__name__] += 1
        if self.random.random() < 0.1:
            db.gc()

    def step(self, db: Connection) -> None:
        key = self.random.choice([None, *range(6)])
        heap = db.heap("t")
        found = heap.by("t_k").find((self.random.randrange(6),))
        assert len(found) <= 1 or db.session.isolation == "repeatable read"
        try:
            if not found or self.random.random() < 0.3:
                heap.insert((key, f"{self.number}"))
            elif self.random.random() < 0.6:
                heap.update(found[0][0], {"k": key})
            else:
                heap.delete(found[0][0])
        except UniqueViolation:
            self.counts["refused"] += 1
        except gmdb.errors.NoSuchRow:
            self.counts["gone"] += 1


@pytest.mark.search
def test_threads_that_race_for_keys_never_both_have_one(table: Connection, path: Path) -> None:
    assert keys(table) == []
    table.commit()
    stop, enough = threading.Event(), extent(300, 3000)
    racers = [Racer(path, seed, stop) for seed in range(4)]
    for racer in racers:
        racer.start()
    watching = gmdb.connect(path)

    def have_raced() -> bool:
        for read in (lambda: [v[0] for _, v in watching.heap("t").rows()], lambda: keys(watching)):
            found = [key for key in read() if key is not None]
            assert len(set(found)) == len(found), found
        watching.commit()
        time.sleep(0.01)
        counts = [sum(racer.counts[what] for racer in racers) for what in ("committed", "refused", "rolled back")]
        return stop.is_set() or (min(counts) > enough // 10 and counts[0] > enough)

    until(have_raced)
    stop.set()
    watching.close()
    for racer in racers:
        racer.join(PATIENCE)
        assert not racer.is_alive(), "a thread hangs"
        if racer.failure is not None:
            raise racer.failure


def test_repeatable_read_does_not_change_a_row_that_lost_its_key_since(table: Connection, connect: Connect) -> None:
    old = connect("repeatable read", lock_timeout=0)
    row_id = table.insert("t", (1, "a"))
    table.commit()
    assert old.heap("t").by("t_k").find((1,)) == [(row_id, (1, "a"))]
    table.heap("t").update(row_id, {"k": 2})
    table.commit()
    assert old.heap("t").by("t_k").find((1,)) == [(row_id, (1, "a"))]
    with pytest.raises(WriteConflict):
        old.heap("t").update(row_id, {"k": 3})
