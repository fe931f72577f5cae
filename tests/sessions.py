"""Several sessions of one database in a test: in turn, or each in a thread of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest

import gmdb
from gmdb.database.connection import Connection
from gmdb.format.address import RowId, device_of, offset_of
from gmdb.format.heap import live_slots
from gmdb.format.row import NO_LOCK, RowFlag

PATIENCE = 300.0  # seconds after which a test has failed; kernels may have to be compiled meanwhile

Connect = Callable[..., Connection]


@pytest.fixture
def connect(db: Connection) -> Iterator[Connect]:
    """Opens further sessions of the test's database, and closes them before it."""
    opened: list[Connection] = []

    def open_session(
        isolation: str = "read committed", lock_timeout: float = 0.05, autocommit: bool = False
    ) -> Connection:
        session = gmdb.connect(db.path, isolation=isolation, lock_timeout=lock_timeout, autocommit=autocommit)
        opened.append(session)
        return session

    yield open_session
    for session in opened:
        session.close()


def in_thread(function: Callable[[], Any]) -> Future[Any]:
    """Run something in a thread of its own; the future has its answer or its exception."""
    future: Future[Any] = Future()

    def run() -> None:
        try:
            future.set_result(function())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


def answer(future: Future[Any]) -> Any:
    return future.result(PATIENCE)


def until(condition: Callable[[], Any]) -> None:
    """Come back once the condition holds."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it does not come about"
        time.sleep(0.001)


def is_waiting(session: Connection) -> bool:
    """Whether the session stands in line for a row or table."""
    return any(waiter is session.session for waiter, _ in session._database.transactions.waits.waiting())


def start_waiting(session: Connection, function: Callable[[], Any]) -> Future[Any]:
    """Start something that has to wait for a lock; comes back when it does."""
    future = in_thread(function)
    until(lambda: future.done() or is_waiting(session))
    assert not future.done(), f"it did not wait, but gave {future}"
    return future


def page_bytes(db: Connection, page_id: int) -> bytes:
    return bytes(db._database.store.devices[device_of(page_id)].memory(offset_of(page_id)))


def row_state(db: Connection, row_id: RowId) -> tuple[str, str]:
    """The row's flag and its lock's action, as the visibility table names them."""
    page = page_bytes(db, row_id.page_id)
    at = dict(live_slots(page))[row_id.slot_id]
    word = int.from_bytes(page[at : at + 4], "little")
    flag = "DELETE" if RowFlag(word >> 24) & RowFlag.DELETE else "none"
    if word & NO_LOCK == NO_LOCK:
        return flag, "none"
    return flag, next(lock["action"] for lock in db.locks().to_pylist() if lock["lock_id"] == word & NO_LOCK)
