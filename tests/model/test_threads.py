"""Threads with random transactions: whoever reads sees every group of rows in balance, and no increment is lost."""

from __future__ import annotations

import random
import threading
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import gmdb
from gmdb.database.connection import Connection
from gmdb.errors import Transient
from gmdb.format.address import RowId
from tests.model.checks import undo_is_empty
from tests.searches import extent
from tests.sessions import PATIENCE

THREADS = 4
GROUPS = 30
ROWS = 8  # of a group
TOTAL = 100  # of a group's values, whenever somebody looks
SECONDS = extent(2, 6)
COLUMNS = {"part": "INT NOT NULL", "value": "INT NOT NULL", "counter": "INT NOT NULL", "text": "VARCHAR(2000)"}


def totals(rows: Iterable[Any]) -> dict[int, int]:
    """Each group's sum."""
    found: defaultdict[int, int] = defaultdict(int)
    for part, value in rows:
        found[part] += value
    return dict(found)


class Actor(threading.Thread):
    """One session in a thread, with one random transaction after the other."""

    def __init__(self, path: Path, seed: int, stop: threading.Event, counters: list[RowId]) -> None:
        super().__init__(daemon=True)
        self.random = random.Random(seed)
        self.path = path
        self.isolation = ("read committed", "repeatable read")[seed % 2]
        self.stop = stop
        self.counters = counters
        self.increments: Counter[int] = Counter()
        self.counts: Counter[str] = Counter()
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            with gmdb.connect(self.path, isolation=self.isolation, lock_timeout=0.5) as db:
                while not self.stop.is_set():
                    self.transaction(db)
        except BaseException as error:
            self.failure = error
            self.stop.set()

    def transaction(self, db: Connection) -> None:
        work = self.random.choice(
            [self.look, self.move, self.move, self.replace, self.count, self.count, self.count_by_statement, self.grow]
        )
        pending: Counter[int] = Counter()
        try:
            for _ in range(self.random.randint(1, 3)):
                self.step(db, work, pending)
            if self.random.random() < 0.15:
                db.rollback()
                self.counts["rolled back"] += 1
                return
            db.commit()
        except Exception as error:
            if not isinstance(error, Transient):
                raise
            db.rollback()
            self.counts[type(error).__name__] += 1
            return
        self.increments += pending
        self.counts[work.__name__] += 1

    def step(self, db: Connection, work: Any, pending: Counter[int]) -> None:
        """Do some work; now and then more of it, which is taken back."""
        work(db, pending)
        if self.random.random() < 0.3:
            db.savepoint("before")
            work(db, Counter())
            db.rollback_to("before")

    # ---- reading

    def look(self, db: Connection, _: Counter[int]) -> None:
        if self.random.random() < 0.5:
            table = db.arrow("rows", ["part", "value"]).read_all()
            found = totals(zip(table["part"].to_pylist(), table["value"].to_pylist(), strict=True))
        else:
            found = totals(values[:2] for _, values in db.heap("rows").rows())
        assert found == dict.fromkeys(range(GROUPS), TOTAL)

    # ---- writing: each leaves the group's total as it was

    def group(self, db: Connection) -> list[tuple[RowId, dict[str, Any]]]:
        wanted = self.random.randrange(GROUPS)
        found = db.select_for_update("rows", lambda row: row["part"] == wanted)
        assert sum(row["value"] for _, row in found) == TOTAL
        return found

    def move(self, db: Connection, _: Counter[int]) -> None:
        (one, first), (other, second) = self.random.sample(self.group(db), 2)
        amount = self.random.randint(-50, 50)
        db.heap("rows").update(one, {"value": first["value"] - amount})
        db.heap("rows").update(other, {"value": second["value"] + amount, "text": self.text()})

    def replace(self, db: Connection, _: Counter[int]) -> None:
        """A row goes, another comes in its place."""
        row_id, row = self.random.choice(self.group(db))
        db.heap("rows").delete(row_id)
        db.heap("rows").insert((row["part"], row["value"], 0, self.text()))

    def grow(self, db: Connection, _: Counter[int]) -> None:
        for row_id, _row in self.group(db):
            db.heap("rows").update(row_id, {"text": self.text()})

    def text(self) -> str:
        return "x" * self.random.choice([0, 10, 200, 1900])

    def count(self, db: Connection, pending: Counter[int]) -> None:
        number = self.random.randrange(len(self.counters))
        heap, row_id = db.heap("counters"), self.counters[number]
        heap.lock(row_id)
        heap.update(row_id, {"counter": heap.fetch(row_id)[1] + 1})
        pending[number] += 1

    def count_by_statement(self, db: Connection, pending: Counter[int]) -> None:
        rest = self.random.randrange(5)
        db.update("counters", lambda row: {"counter": row["counter"] + 1}, lambda row: row["number"] % 5 == rest)
        pending.update(number for number in range(len(self.counters)) if number % 5 == rest)


def fill(db: Connection) -> list[RowId]:
    db.create_table("rows", COLUMNS, pct_free=10)
    db.create_table("counters", {"number": "INT NOT NULL", "counter": "INT NOT NULL"})
    db.commit()
    for part in range(GROUPS):
        for number in range(ROWS):
            db.insert("rows", (part, TOTAL if number == 0 else 0, 0, None))
    counters = [db.insert("counters", (number, 0)) for number in range(20)]
    db.commit()
    return counters


@pytest.mark.search
def test_threads_lose_no_increment_and_see_every_group_in_balance(db: Connection, path: Path) -> None:
    counters, stop = fill(db), threading.Event()
    actors = [Actor(path, seed, stop, counters) for seed in range(THREADS)]
    for actor in actors:
        actor.start()
    stop.wait(SECONDS)
    stop.set()
    for actor in actors:
        actor.join(PATIENCE)
        assert not actor.is_alive(), "a thread hangs"
    for actor in actors:
        if actor.failure is not None:
            raise actor.failure
    expected = {number: sum(actor.increments[number] for actor in actors) for number in range(len(counters))}
    assert {number: counter for _, (number, counter) in db.heap("counters").rows()} == expected
    assert totals(values[:2] for _, values in db.heap("rows").rows()) == dict.fromkeys(range(GROUPS), TOTAL)
    assert db.arrow("rows").read_all().num_rows == GROUPS * ROWS
    db.commit()
    db.gc()
    assert db.locks().num_rows == 0
    assert undo_is_empty(db)
    print(dict(sum((actor.counts for actor in actors), Counter())))
