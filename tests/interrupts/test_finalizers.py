"""What nobody has any more is closed, and no signal is lost to a finalizer."""

from __future__ import annotations

import gc
import signal
import threading
from _thread import interrupt_main
from collections.abc import Iterator
from functools import partial
from operator import call
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import gmdb
from gmdb.database import engine
from gmdb.database.connection import Connection
from gmdb.process.finalizers import Closed, Living, close_abandoned
from gmdb.process.signals import Held, HeldIterator, held
from tests.interrupts.striking import Strikes
from tests.sessions import answer, in_thread, until

DROPS = 30


class Thing:
    pass


def steps(said: list[str]) -> Iterator[int]:
    try:
        yield from range(3)
    finally:
        said.append("closed")


def test_what_is_abandoned_is_closed_when_an_operation_begins() -> None:
    said: list[str] = []
    reading = HeldIterator(steps(said), Held(), lambda: said.append("ended"))
    assert next(reading) == 0
    del reading
    with held:
        assert said == ["closed", "ended"]


def test_an_operation_of_another_thread_closes_it_as_well() -> None:
    said: list[str] = []
    reading = HeldIterator(steps(said), Held())
    next(reading)
    del reading
    thread = threading.Thread(target=held.__enter__)
    thread.start()
    thread.join()
    assert said == ["closed"]


def test_a_circle_that_holds_a_read_is_closed() -> None:
    said: list[str] = []
    circle: Any = Thing()

    def rows(thing: Any) -> Iterator[Any]:
        try:
            yield 1
            yield thing
        finally:
            said.append("closed")

    circle.rows = HeldIterator(rows(circle), Held())
    next(circle.rows)
    del circle
    gc.collect()
    close_abandoned(patiently=True)
    assert said == ["closed"]


def test_what_cannot_be_closed_is_told_of_and_the_rest_is_closed(caplog: pytest.LogCaptureFixture) -> None:
    def failing() -> Iterator[int]:
        try:
            yield 1
        finally:
            raise OSError("no such thing")

    said: list[str] = []
    for one in (failing(), steps(said)):
        next(one)
        Closed(one, None)
    del one
    close_abandoned(patiently=True)
    assert said == ["closed"]
    assert "OSError: no such thing" in caplog.text


def test_what_closes_something_may_abandon_something() -> None:
    said: list[str] = []

    def nested() -> Iterator[int]:
        inner = HeldIterator(steps(said), held)
        next(inner)
        try:
            yield 1
        finally:
            inner.close()
            said.append("and then")

    outer = HeldIterator(nested(), held)
    next(outer)
    del outer
    close_abandoned(patiently=True)
    assert sorted(said) == ["and then", "closed"]


def test_a_read_that_is_dropped_ends_also_if_nothing_else_is_done(db: Connection) -> None:
    db.execute("create table t (i int)")
    db.append("t", pa.table({"i": pa.array(range(10_000), pa.int32())}))
    db.commit()
    snapshots = db.session.hub.snapshots
    rows = db.heap("t").rows()
    next(rows)
    assert snapshots.held()
    del rows
    until(lambda: not snapshots.held())


def test_no_signal_is_lost_to_a_finalizer() -> None:
    """One is pending whenever something is let go of: Python handles it where the next function of its own begins."""
    strikes, living, caught = Strikes(), Living[Thing](), 0
    strikes.use(signal.SIGALRM)
    send = partial(interrupt_main, signal.SIGALRM)
    for _ in range(DROPS):
        reading = HeldIterator(steps([]), held)
        next(reading)
        dropped = [reading, Thing()]
        living.add(dropped[1])
        del reading
        # All of it happens in one call of a function in C.
        attempt = strikes.run(lambda dropped=dropped: list(map(call, (send, dropped.clear))), no_more, no_more)
        assert not dropped
        assert not list(living)
        caught += attempt.interrupted
    noise = strikes.take_noise()
    strikes.close()
    close_abandoned(patiently=True)
    assert (noise, caught) == ("", DROPS)


def no_more() -> None:
    pass


def test_a_connection_that_is_abandoned_while_a_database_is_opened_waits_for_nobody(tmp_path: Path) -> None:
    """Its finalizer may run in the very thread whose start the opening waits for."""
    abandoned = [gmdb.connect(tmp_path / "abandoned.gmdb")]
    with engine._opening:
        answer(in_thread(abandoned.clear))
    assert engine.is_open_here(tmp_path / "abandoned.gmdb")
    gmdb.connect(tmp_path / "other.gmdb").close()
    assert not engine.is_open_here(tmp_path / "abandoned.gmdb")
