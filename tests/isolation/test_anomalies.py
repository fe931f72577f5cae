"""Which anomalies each isolation level prevents: each cell of the table in docs/isolation.md, with sessions in threads.

Every scenario starts from the rows (1, 10) and (2, 20), and tells whether the anomaly came about.  All of it is done
with reads that look at every row, and again with reads that go by an index.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from gmdb.database.connection import Connection
from gmdb.errors import SerializationFailure, Transient, WriteConflict
from gmdb.format.address import RowId
from tests.sessions import PATIENCE, Connect, is_waiting, until

DOCUMENT = Path(__file__).resolve().parents[2] / "docs/isolation.md"


class Player:
    """A session in a thread of its own."""

    def __init__(self, session: Connection, by_index: bool) -> None:
        self.session = session
        self._by_index = by_index
        self._thread = ThreadPoolExecutor(1)

    def _do(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return self._thread.submit(function, *arguments).result(PATIENCE)

    def read(self, *ids: int) -> Any:
        """The value of a row, or a list of several, all in one statement."""
        if self._by_index and len(ids) == 1:
            found = self._do(lambda: self.session.heap("t").by("t_id").find(ids))
            return dict(row for _, row in found)[ids[0]]
        rows = dict(self.select(lambda row: row[0] in ids))
        return rows[ids[0]] if len(ids) == 1 else [rows[i] for i in ids]

    def rows(self) -> Iterator[tuple[RowId, tuple[int, int]]]:
        heap = self.session.heap("t")
        return heap.by("t_id").range() if self._by_index else heap.rows()

    def select(self, where: Callable[[tuple[int, int]], bool]) -> list[tuple[int, int]]:
        return self._do(lambda: [row for _, row in self.rows() if where(row)])

    def between(self, low: int, high: int) -> list[tuple[int, int]]:
        """The rows with values from ``low`` to ``high``."""
        if not self._by_index:
            return self.select(lambda row: low <= row[1] <= high)
        return self._do(lambda: [row for _, row in self.session.heap("t").by("t_value").range((low,), (high,))])

    def set(self, row: int, value: int) -> None:
        self._do(self._set, row, value)

    def _set(self, row: int, value: int) -> int:
        return self.session.update("t", {"value": value}, where=lambda found: found["id"] == row)

    def insert(self, row: int, value: int) -> None:
        self._do(self.session.insert, "t", (row, value))

    def start(self, function: Callable[[], Any]) -> Future[Any]:
        """Begin something that has to wait for another session; comes back when it does."""
        future = self._thread.submit(function)
        until(lambda: future.done() or is_waiting(self.session))
        assert not future.done(), "it did not wait"
        return future

    def start_set(self, row: int, value: int) -> Future[Any]:
        return self.start(lambda: self._set(row, value))

    def finish(self, started: Future[Any]) -> bool:
        """Whether what was begun went through; rolled back if it met a conflict."""
        try:
            started.result(PATIENCE)
        except WriteConflict:
            self.rollback()
            return False
        return True

    def delete_where(self, value: int) -> int:
        return self.session.delete("t", where=lambda row: row["value"] == value)

    def try_delete(self, value: int) -> int | None:
        """How many rows went; None for a conflict."""
        try:
            return self._do(self.delete_where, value)
        except WriteConflict:
            self.rollback()
            return None

    def commit(self) -> None:
        self._do(self.session.commit)

    def rollback(self) -> None:
        self._do(self.session.rollback)

    def stop(self) -> None:
        self._thread.shutdown()


Players = tuple[Player, Player, Player]


def final(players: Players) -> dict[int, int]:
    for player in players:
        with suppress(SerializationFailure):  # then nothing of it is there
            player.commit()
    return dict(players[0].select(lambda _: True))


# ---- scenarios: each answers whether the anomaly came about


def g0(t: Players) -> bool:
    """Write cycles: two transactions write two rows, and each row keeps another's value."""
    t[0].set(1, 11)
    waiting = t[1].start_set(1, 12)
    t[0].set(2, 21)
    t[0].commit()
    if t[1].finish(waiting):
        t[1].set(2, 22)
    return final(t) not in ({1: 11, 2: 21}, {1: 12, 2: 22})


def g1a(t: Players) -> bool:
    """Aborted reads: a value is read that its transaction rolls back."""
    t[0].set(1, 101)
    during = t[1].read(1)
    t[0].rollback()
    return 101 in (during, t[1].read(1))


def g1b(t: Players) -> bool:
    """Intermediate reads: a value is read that its transaction later replaces."""
    t[0].set(1, 101)
    during = t[1].read(1)
    t[0].set(1, 11)
    t[0].commit()
    return 101 in (during, t[1].read(1))


def g1c(t: Players) -> bool:
    """Circular information flow: two transactions each read what the other wrote."""
    t[0].set(1, 11)
    t[1].set(2, 22)
    return (t[0].read(2), t[1].read(1)) != (20, 10)


def otv(t: Players) -> bool:
    """Observed transaction vanishes: one row shows a transaction's work, and then another row does not."""
    t[0].set(1, 11)
    t[0].set(2, 19)
    waiting = t[1].start_set(1, 12)
    t[0].commit()
    went_on = t[1].finish(waiting)
    first = t[2].read(1, 2)
    if went_on:
        t[1].set(2, 18)
    between = t[2].read(2)
    t[1].commit()
    last = (t[2].read(2), t[2].read(1))
    assert first == [11, 19]
    return between == 18 or last not in ((19, 11), (18, 12))


def pmp(t: Players) -> bool:
    """Predicate-many-preceders: two reads by conditions in one transaction see different sets of rows."""
    assert t[0].between(30, 30) == []
    t[1].insert(3, 30)
    t[1].set(1, 31)
    t[1].commit()
    found = t[0].between(21, 40)
    assert found in ([], [(3, 30), (1, 31)], [(1, 31), (3, 30)])
    return found != []


def pmp_write(t: Players) -> bool:
    """The same in one writing statement: it picks rows by one instant and changes them in another."""
    first, second, _ = t
    first._do(lambda: first.session.update("t", lambda row: {"value": row["value"] + 10}))
    waiting = second.start(lambda: second.delete_where(20))
    first.commit()
    second.finish(waiting)
    return final(t) not in ({2: 30}, {1: 20, 2: 30})


def p4(t: Players) -> bool:
    """Lost update: both read a row and add to it, and one addition is gone."""
    seen = t[0].read(1), t[1].read(1)
    t[0].set(1, seen[0] + 1)
    waiting = t[1].start_set(1, seen[1] + 5)
    t[0].commit()
    if not t[1].finish(waiting):
        t[1].set(1, t[1].read(1) + 5)
    return final(t)[1] != 16


def g_single(t: Players) -> bool:
    """Read skew: a transaction reads one row before and one row after another transaction."""
    before = t[0].read(1)
    t[1].set(1, 12)
    t[1].set(2, 18)
    t[1].commit()
    return (before, t[0].read(2)) == (10, 18)


def g2_item(t: Players) -> bool:
    """Write skew: two transactions read the same two rows, and each changes another one."""
    assert t[0].read(1, 2) == t[1].read(1, 2) == [10, 20]
    t[0].set(1, 11)
    t[1].set(2, 21)
    return final(t) == {1: 11, 2: 21}


SCENARIOS = {
    "G0": g0,
    "G1a": g1a,
    "G1b": g1b,
    "G1c": g1c,
    "OTV": otv,
    "PMP": pmp,
    "PMP, writing": pmp_write,
    "P4": p4,
    "G-single": g_single,
    "G2-item": g2_item,
}
LEVELS = ("read committed", "repeatable read", "serializable")
POSSIBLE = {
    ("PMP", "read committed"),
    ("P4", "read committed"),
    ("G-single", "read committed"),
    ("G2-item", "read committed"),
    ("G2-item", "repeatable read"),
}


@pytest.fixture(params=["every row", "by index"])
def play(request: pytest.FixtureRequest, db: Connection, connect: Connect) -> Iterator[Callable[[str], Players]]:
    """Three sessions of a level, on the two rows."""
    by_index = request.param == "by index"
    db.create_table("t", {"id": "INT", "value": "INT"})
    db.commit()
    if by_index:
        db.create_index("t_id", "t", ["id"], unique=True)
        db.create_index("t_value", "t", ["value"])
        db.commit()
    db.insert("t", (1, 10))
    db.insert("t", (2, 20))
    db.commit()
    playing: list[Player] = []

    def at_level(level: str) -> Players:
        playing.extend(Player(connect(level, lock_timeout=PATIENCE), by_index) for _ in range(3))
        return playing[0], playing[1], playing[2]

    yield at_level
    for player in playing:
        player.stop()


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("anomaly", SCENARIOS)
def test_an_anomaly_comes_about_only_where_the_table_says(
    play: Callable[[str], Players], anomaly: str, level: str
) -> None:
    assert SCENARIOS[anomaly](play(level)) == ((anomaly, level) in POSSIBLE)


def test_the_documentation_has_the_same_table() -> None:
    lines = [line for line in DOCUMENT.read_text(encoding="utf-8").splitlines() if re.match(r"\| \*\*", line)]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    documented = {
        (name.strip("*"), level): told for name, _, *rest in cells for level, told in zip(LEVELS, rest, strict=True)
    }
    expected = {(a, b): "possible" if (a, b) in POSSIBLE else "prevented" for a in SCENARIOS for b in LEVELS}
    assert documented == expected


# ---- how the levels get there


def test_a_statement_that_waited_for_a_row_that_changed_starts_over(play: Callable[[str], Players]) -> None:
    first, second, third = play("read committed")
    first._do(lambda: first.session.update("t", lambda row: {"value": row["value"] + 10}))
    waiting = second.start(lambda: second.delete_where(20))
    first.commit()
    assert waiting.result(PATIENCE) == 1
    assert final((first, second, third)) == {2: 30}


def test_a_statement_that_waited_for_a_row_that_stayed_goes_on(play: Callable[[str], Players]) -> None:
    first, second, third = play("read committed")
    first._do(lambda: first.session.update("t", lambda row: {"value": row["value"] + 10}))
    waiting = second.start(lambda: second.delete_where(20))
    first.rollback()
    assert waiting.result(PATIENCE) == 1
    assert final((first, second, third)) == {1: 10}


@pytest.mark.parametrize("level", LEVELS)
def test_a_statement_sees_one_instant_from_its_first_row_to_its_last(
    play: Callable[[str], Players], level: str
) -> None:
    reader, writer, _ = play(level)
    rows = reader.rows()
    first = reader._do(next, rows)
    writer.set(1, 12)
    writer.set(2, 18)
    writer.commit()
    assert [first, *reader._do(list, rows)] == [(first[0], (1, 10)), (first[0]._replace(slot_id=1), (2, 20))]


def test_repeatable_read_refuses_to_write_over_a_newer_commit(play: Callable[[str], Players]) -> None:
    first, second, _ = play("repeatable read")
    assert second.read(1) == 10
    first.set(1, 11)
    first.commit()
    with pytest.raises(WriteConflict) as error:
        second.set(1, 12)
    assert isinstance(error.value, Transient)
    assert second.read(1, 2) == [10, 20]  # the transaction itself is whole, and still sees its instant


def test_repeatable_read_goes_on_when_the_holder_rolls_back(play: Callable[[str], Players]) -> None:
    first, second, third = play("repeatable read")
    assert second.read(1) == 10
    first.set(1, 11)
    waiting = second.start_set(1, 12)
    first.rollback()
    assert second.finish(waiting)
    assert final((first, second, third)) == {1: 12, 2: 20}


def test_repeatable_read_does_not_delete_by_what_another_has_changed(play: Callable[[str], Players]) -> None:
    first, second, third = play("repeatable read")
    assert first.read(1) == 10
    second.set(1, 12)
    second.set(2, 18)
    second.commit()
    assert first.try_delete(20) is None
    assert final((first, second, third)) == {1: 12, 2: 18}


def test_a_row_that_is_locked_first_loses_no_update(play: Callable[[str], Players]) -> None:
    """Under read committed too: what select for update answers is as new as its lock."""
    first, second, third = play("read committed")

    def add(player: Player, amount: int) -> None:
        [(row_id, row)] = player.session.select_for_update("t", where=lambda row: row["id"] == 1)
        player.session.heap("t").update(row_id, {"value": row["value"] + amount})

    first._do(add, first, 1)
    waiting = second.start(lambda: add(second, 5))
    first.commit()
    waiting.result(PATIENCE)
    assert final((first, second, third)) == {1: 16, 2: 20}


def test_computing_in_the_statement_loses_no_update(play: Callable[[str], Players]) -> None:
    first, second, third = play("read committed")

    def add(player: Player, amount: int) -> int:
        return player.session.update(
            "t", lambda row: {"value": row["value"] + amount}, where=lambda row: row["id"] == 1
        )

    first._do(add, first, 1)
    waiting = second.start(lambda: add(second, 5))
    first.commit()
    waiting.result(PATIENCE)
    assert final((first, second, third)) == {1: 16, 2: 20}


def test_locking_what_was_read_prevents_write_skew(play: Callable[[str], Players]) -> None:
    first, second, _ = play("repeatable read")
    first._do(first.session.select_for_update, "t")
    waiting = second.start(lambda: second.session.select_for_update("t"))
    first.set(1, 11)
    first.commit()
    assert not second.finish(waiting)
