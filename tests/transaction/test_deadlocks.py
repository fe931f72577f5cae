"""Sessions that wait for each other: in line, and in circles."""

from __future__ import annotations

from concurrent.futures import FIRST_EXCEPTION, Future, wait
from typing import Any

import pytest

from gmdb.database.connection import Connection
from gmdb.errors import Deadlock, Transient
from gmdb.format.address import RowId
from tests.sessions import PATIENCE, Connect, answer, in_thread, start_waiting


@pytest.fixture
def rows(db: Connection) -> list[RowId]:
    db.create_table("t", {"id": "INT", "value": "INT"})
    db.commit()
    made = [db.insert("t", (n, 0)) for n in range(4)]
    db.commit()
    return made


def add(session: Connection, row: int) -> int:
    return session.update("t", lambda found: {"value": found["value"] + 1}, where=lambda found: found["id"] == row)


def values(session: Connection) -> list[int]:
    return [row[1] for _, row in session.heap("t").rows()]


@pytest.mark.usefixtures("rows")
@pytest.mark.parametrize("count", [2, 3, 4])
def test_of_sessions_that_wait_in_a_circle_exactly_one_gives_way(db: Connection, connect: Connect, count: int) -> None:
    sessions = [connect(lock_timeout=PATIENCE) for _ in range(count)]
    for n, session in enumerate(sessions):
        add(session, n)

    def go_round(n: int) -> None:
        add(sessions[n], (n + 1) % count)
        sessions[n].commit()

    waiting: list[Future[Any]] = [in_thread(lambda n=n: go_round(n)) for n in range(count)]
    wait(waiting, PATIENCE, FIRST_EXCEPTION)
    [victim] = [n for n in range(count) if waiting[n].done() and waiting[n].exception()]
    error = waiting[victim].exception()
    assert isinstance(error, Deadlock)
    assert isinstance(error, Transient)
    assert "roll back and try again" in str(error)
    sessions[victim].rollback()
    for n in range(count):
        if n != victim:
            answer(waiting[n])
    add(sessions[victim], victim)
    add(sessions[victim], (victim + 1) % count)
    sessions[victim].commit()
    assert values(db)[:count] == [2] * count


@pytest.mark.usefixtures("rows")
def test_a_deadlock_is_found_at_once(connect: Connect) -> None:
    first, second = connect(lock_timeout=PATIENCE), connect(lock_timeout=PATIENCE)
    add(first, 0)
    add(second, 1)
    waiting = start_waiting(first, lambda: add(first, 1))
    with pytest.raises(Transient):  # as programs that try again catch it
        add(second, 0)
    second.rollback()
    assert answer(waiting) == 1


@pytest.mark.usefixtures("rows")
def test_the_victim_keeps_what_its_transaction_did_before_the_statement(db: Connection, connect: Connect) -> None:
    first, second = connect(lock_timeout=PATIENCE), connect(lock_timeout=PATIENCE)
    add(first, 0)
    add(second, 1)
    waiting = start_waiting(first, lambda: add(first, 1))
    with pytest.raises(Deadlock):
        second.update("t", {"value": 9}, where=lambda row: row["id"] in (0, 3))
    second.commit()
    answer(waiting)
    first.commit()
    assert values(db) == [1, 2, 0, 0]


def test_a_circle_through_a_u_lock_is_found(rows: list[RowId], connect: Connect) -> None:
    first, second = connect(lock_timeout=PATIENCE), connect(lock_timeout=PATIENCE)
    first.heap("t").lock(rows[0])
    second.heap("t").lock(rows[1])
    waiting = start_waiting(first, lambda: first.heap("t").lock(rows[1]))
    with pytest.raises(Deadlock):
        second.heap("t").delete(rows[0])
    second.rollback()
    answer(waiting)


def test_a_drop_that_waits_for_one_who_wants_its_rows_is_a_circle(rows: list[RowId], connect: Connect) -> None:
    first, second = connect(lock_timeout=PATIENCE), connect(lock_timeout=PATIENCE)
    first.heap("t").lock(rows[0])
    second.heap("t").lock(rows[1])
    waiting = start_waiting(first, lambda: first.drop_table("t"))
    with pytest.raises(Deadlock):
        second.heap("t").delete(rows[0])
    second.rollback()
    answer(waiting)
    first.commit()
    assert second.tables() == []


def test_a_circle_through_the_line_for_a_row_is_found(rows: list[RowId], connect: Connect) -> None:
    """The third waits for the second only because the second came first.

    Each takes rows by their ids: a statement that looks for its rows again, since they have changed, leaves the line.
    """

    def take(session: Connection, row: int) -> None:
        session.heap("t").update(rows[row], {"value": 5})

    first, second, third = (connect(lock_timeout=PATIENCE) for _ in range(3))
    take(first, 0)
    take(third, 1)
    line = [start_waiting(second, lambda: (take(second, 0), take(second, 1), second.commit()))]
    line.append(start_waiting(third, lambda: (take(third, 0), third.commit())))
    first.commit()
    done, _ = wait(line, PATIENCE, FIRST_EXCEPTION)
    [victim] = [future for future in done if future.exception()]
    assert isinstance(victim.exception(), Deadlock)
    (second if victim is line[0] else third).rollback()
    answer(line[1] if victim is line[0] else line[0])


def test_writers_get_a_row_in_order_of_arrival(db: Connection, rows: list[RowId], connect: Connect) -> None:
    add(db, 0)
    arrived: list[int] = []
    line = []

    def take(n: int, session: Connection) -> None:
        session.heap("t").lock(rows[0])
        arrived.append(n)
        session.commit()

    for n in range(6):
        session = connect(lock_timeout=PATIENCE)
        line.append(start_waiting(session, lambda n=n, session=session: take(n, session)))
    db.commit()
    for future in line:
        answer(future)
    assert arrived == list(range(6))


def test_whoever_lets_a_row_go_does_not_overtake_those_who_wait_for_it(
    db: Connection, rows: list[RowId], connect: Connect
) -> None:
    add(db, 0)
    other = connect(lock_timeout=PATIENCE)

    def twice() -> None:
        other.heap("t").update(rows[0], {"value": 10})
        other.commit()

    waiting = start_waiting(other, twice)
    db.commit()
    db.heap("t").update(rows[0], {"value": 20})
    db.commit()
    answer(waiting)
    assert values(db)[0] == 20


@pytest.mark.usefixtures("rows")
def test_waiting_for_one_row_holds_nobody_up_at_another(db: Connection, connect: Connect) -> None:
    add(db, 0)
    waiter = connect(lock_timeout=PATIENCE)
    waiting = start_waiting(waiter, lambda: add(waiter, 0))
    busy = connect(lock_timeout=0.05)
    for _ in range(20):
        add(busy, 1)
        busy.commit()
    assert not waiting.done()
    db.rollback()
    assert answer(waiting) == 1


@pytest.mark.usefixtures("rows")
def test_whoever_shares_a_table_and_wants_it_alone_goes_before_those_who_wait_for_it(
    db: Connection, connect: Connect
) -> None:
    holder, other = connect(lock_timeout=PATIENCE), connect(lock_timeout=PATIENCE)
    number = db.table("t").number
    holder.session.begin_work()
    holder.session.share_table(number, "t")
    other.session.begin_work()
    waiting = start_waiting(other, lambda: other.session.take_alone(number))
    holder.session.take_alone(number)  # all others wait for this one: to stand in line behind them were a deadlock
    assert not waiting.done()
    holder.rollback()
    answer(waiting)
    other.rollback()
