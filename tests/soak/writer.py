"""One writer of the town: each step is a transaction that keeps the books right, or is rolled back."""

from __future__ import annotations

from random import Random
from typing import Any

from gmdb.errors import UniqueViolation
from tests.soak.town import ACCOUNTS, ENTRIES_KEPT, FILE_EVERY, file_of, text_of

INSERT = "insert into entries values (?, ?, ?, ?)"


class Writer:
    def __init__(self, number: int) -> None:
        self._number = number

    def step(self, db: Any, dice: Random) -> int | None:
        """Change some of everything, and commit; answers the number of the step, or None if it was rolled back."""
        line = db.execute("select steps, low, high, versions from books where writer = ?", (self._number,)).fetchone()
        steps, low, high, versions = line
        if dice.random() < 0.1:
            self._waste(db, dice, low, high)
        self._move(db, dice)
        high = self._add(db, dice, high)
        versions += self._change(db, dice, low, high)
        low, forgotten = self._forget(db, low, high)
        values = (steps + 1, low, high, versions - forgotten, self._number)
        db.execute("update books set steps = ?, low = ?, high = ?, versions = ? where writer = ?", values)
        if dice.random() < 0.1:
            db.rollback()
            return None
        db.commit()
        return int(steps) + 1

    def _move(self, db: Any, dice: Random) -> None:
        """Take money from one account and give it to another, in any order: deadlocks are wanted."""
        amount = dice.randint(-50, 50)
        for account, change in zip(dice.sample(range(ACCOUNTS), 2), (-amount, amount), strict=True):
            db.execute("update accounts set balance = balance + ? where id = ?", (change, account))

    def _add(self, db: Any, dice: Random, high: int) -> int:
        count = dice.choice([0, 1, 1, 2, 5, 20])
        new = range(high + 1, high + count + 1)
        db.executemany(INSERT, [(self._number, number, 0, text_of(self._number, number, 0)) for number in new])
        for number in new:
            if number % FILE_EVERY == 0:
                db.execute("insert into files values (?, ?, ?)", (self._number, number, file_of(self._number, number)))
        return high + count

    def _change(self, db: Any, dice: Random, low: int, high: int) -> int:
        """Give some entries their next version; answers by how much the sum of versions grows."""
        numbers = dice.sample(range(low + 1, high + 1), min(high - low, dice.choice([0, 1, 2, 6])))
        for number in numbers:
            key = (self._number, number)
            (version,) = db.execute("select version from entries where writer = ? and number = ?", key).fetchone()
            values = (version + 1, text_of(self._number, number, version + 1), *key)
            db.execute("update entries set version = ?, text = ? where writer = ? and number = ?", values)
        return len(numbers)

    def _forget(self, db: Any, low: int, high: int) -> tuple[int, int]:
        """Delete the oldest entries if there are too many; answers the new lower bound, and their versions' sum."""
        if high - low <= ENTRIES_KEPT:
            return low, 0
        bound = (self._number, high - ENTRIES_KEPT)
        of_these = "where writer = ? and number <= ?"
        (versions,) = db.execute(f"select sum(version) from entries {of_these}", bound).fetchone()
        db.execute(f"delete from entries {of_these}", bound)
        db.execute(f"delete from files {of_these}", bound)
        return bound[1], int(versions)

    def _waste(self, db: Any, dice: Random, low: int, high: int) -> None:
        """Work that must leave nothing: behind a savepoint, or in a statement that fails."""
        db.execute("savepoint here")
        db.execute("update entries set version = -1, text = null where writer = ?", (self._number,))
        db.execute("update accounts set balance = 0 where id = ?", (dice.randrange(ACCOUNTS),))
        if high > low:
            rows = [(self._number, number, 0, "twice") for number in (high + 1, high + 2, high)]
            try:
                db.executemany(INSERT, rows)
            except UniqueViolation:
                pass
            else:
                raise AssertionError(f"writer {self._number}: entry {high} was taken twice")
        db.execute("rollback to here")
