"""Single rows in one call of a kernel, which takes Python's values as they are: the same as step by step."""

from __future__ import annotations

import gc
import random
import threading
from typing import Any

import gmdb
from gmdb.database.connection import Connection
from gmdb.errors import Error
from gmdb.kernel.runtime.status import NOT_NOW
from tests.searches import extent
from tests.sessions import until

COLUMNS = {
    "i": "INT NOT NULL", "b": "BIGINT", "d": "DOUBLE", "o": "BOOLEAN",
    "c": "CHAR(6)", "v": "VARCHAR(9)", "y": "BINARY(4)", "w": "VARBINARY(7)",
}  # fmt: skip


class Number(int):
    """Not a plain int."""


class Text(str):
    """Not a plain str."""


VALUES: list[Any] = [
    None, True, False, 0, 1, -1, 2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**63 - 1, 2**63, -(2**63) - 1, 2**80,
    0.0, -0.0, 1.5, float("inf"), float("nan"), 2.0**53 + 2, Number(7), Text("abc"),
    "", "a", "ü", "äöüäöü", "123456789", "1234567890", "日本語", "a\0b", "a  ", "\ud800", "1", "1.5", "true",
    b"", b"\0", b"1234", b"1234567", b"12345678", bytearray(b"12"), memoryview(b"34"), 1.25, object(), (), [],
]  # fmt: skip


def outcome(work: Any, *arguments: Any) -> Any:
    """What a call returns, or the kind of its error and what it says."""
    try:
        return work(*arguments)
    except Error as error:
        return type(error), str(error)


def test_whatever_the_values_are_one_call_does_what_encoding_does(db: Connection) -> None:
    db.create_table("t", COLUMNS)
    heap, chance = db.heap("t"), random.Random(5)
    assert heap.shape is not None
    row = (1, 2, 3.0, True, "c", "v", b"y123", b"w")
    db.commit()
    for number in range(extent(3000, 100_000)):
        values = [chance.choice(VALUES) if chance.random() < 0.5 else usual for usual in row]
        expected = outcome(lambda values=values: heap.plain_decode(heap.encode(values)))
        row_id = outcome(heap.insert, values)
        assert repr(outcome(heap.fetch, row_id) if isinstance(row_id, gmdb.RowId) else row_id) == repr(expected)
        if isinstance(row_id, gmdb.RowId):
            name = chance.choice(list(COLUMNS))
            new = chance.choice(VALUES)
            position = list(COLUMNS).index(name)
            changed = [new if n == position else value for n, value in enumerate(heap.fetch(row_id))]
            expected = outcome(lambda changed=changed: heap.plain_decode(heap.encode(changed)))
            found = outcome(heap.update, row_id, {name: new})
            assert repr(heap.fetch(row_id) if found is None else found) == repr(expected)
        if number % 100 == 99:
            db.rollback()


def test_a_row_is_inserted_although_another_thread_held_the_guard(db: Connection) -> None:
    db.create_table("t", {"i": "INT"})
    heap = db.heap("t")
    heap.insert((0,))  # the transaction is open, and the table is held
    holds, lets_go, done = threading.Event(), threading.Event(), threading.Event()
    found = []

    def hold() -> None:
        with heap.segment.store.guard:
            holds.set()
            lets_go.wait()

    def insert() -> None:
        found.append(heap.insert_at_once((1,)))
        heap.insert((2,))
        done.set()

    threads = [threading.Thread(target=hold), threading.Thread(target=insert)]
    threads[0].start()
    holds.wait()
    threads[1].start()
    until(lambda: found)
    assert found[0] < 0
    assert not done.wait(0.05)
    lets_go.set()
    for thread in threads:
        thread.join()
    assert [values for _, values in heap.rows()] == [(0,), (2,)]


def test_a_row_is_changed_only_as_it_was_read(db: Connection) -> None:
    """Between finding a row and changing it another session may commit: the change then is made step by step."""
    db.execute("create table t (i integer primary key, n bigint)")
    db.execute("insert into t values (1, 10)")
    db.commit()
    heap = db.heap("t")
    heap.insert((2, 0))
    find = heap.by_seen("t_pkey").finder((1,), True)
    assert find is not None
    change, delete = heap.changer_as_read(["n"]), heap.changer_as_read([])
    with gmdb.connect(db.path) as other:
        for number, work in enumerate((lambda place: change(place, (99,)), lambda place: delete(place, ()))):
            place, (n,) = find((1,))
            other.execute("update t set n = n + 1 where i = 1")
            other.commit()
            assert work(place) == NOT_NOW
            assert db.execute("update t set n = n + 100 where i = 1").rowcount == 1
            assert db.execute("select n from t where i = 1").fetchone() == (n + 101,)
            db.commit()
            heap.insert((3 + number, 0))


def test_finalizers_that_run_while_rows_are_made_cannot_use_the_database(db: Connection) -> None:
    db.execute("create table t (i integer primary key, s varchar(20))")
    db.executemany("insert into t values (?, ?)", [(i, f"number {i}") for i in range(50)])
    db.commit()
    select, said = "select s from t where i = ?", []

    class Loop:
        def __init__(self) -> None:
            self.itself = self

        def __del__(self) -> None:
            said.append(outcome(lambda: db.execute(select, (1,)).fetchall()))

    thresholds = gc.get_threshold()
    gc.set_threshold(1, 1, 1)
    try:
        for i in range(50):
            Loop()
            assert db.execute(select, (i,)).fetchall() == [(f"number {i}",)]
    finally:
        gc.set_threshold(*thresholds)
    gc.collect()
    allowed = ([("number 1",)], gmdb.InterfaceError)
    assert said
    assert all(one == allowed[0] or one[0] is allowed[1] for one in said)
