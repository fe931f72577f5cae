"""Definitions that come and go: tables with their columns and rows, each noted in the transaction that made it so."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Any

NAMES = [f"d_{number}" for number in range(8)]


class Definer:
    def __init__(self, db: Any, dice: Random) -> None:
        self._db, self._dice = db, dice

    def step(self) -> str:
        """Change one definition, or several, and commit or roll back; answers what was done."""
        done = [self._change(self._dice.choice(NAMES)) for _ in range(self._dice.choice([1, 1, 3]))]
        if self._dice.random() < 0.2:
            self._db.rollback()
            return "definition rolled back"
        self._db.commit()
        return f"definition {done[-1]}"

    def _change(self, name: str) -> str:
        noted = self._db.execute("select columns, lines from definitions where name = ?", (name,)).fetchone()
        if noted is None:
            return self._create(name)
        columns, lines = noted
        what = self._dice.choice(["add column", "index", "truncate", "drop", "fill"])
        if what == "add column" and columns < 12:
            self._db.execute(f"alter table {name} add column c{columns} int default {columns}")
            columns += 1
        elif what == "index":
            self._db.execute(f"drop index if exists {name}_c0")
            self._db.execute(f"create index {name}_c0 on {name} (c0)")
        elif what == "truncate":
            self._db.execute(f"truncate table {name}")
            lines = 0
        elif what == "drop":
            self._db.execute(f"drop table {name}")
            self._db.execute("delete from definitions where name = ?", (name,))
            return what
        else:
            lines += self._fill(name)
        self._db.execute("update definitions set columns = ?, lines = ? where name = ?", (columns, lines, name))
        return what

    def _create(self, name: str) -> str:
        self._db.execute(f"create table {name} (c0 int, c1 varchar(2000))")
        self._db.execute("insert into definitions values (?, 2, ?)", (name, self._fill(name)))
        return "create"

    def _fill(self, name: str) -> int:
        rows = [(number, "x" * self._dice.choice([3, 300, 1900])) for number in range(self._dice.choice([1, 10, 60]))]
        self._db.executemany(f"insert into {name} (c0, c1) values (?, ?)", rows)
        return len(rows)


def complaints(db: Any) -> Iterable[str]:
    """Where tables are not what was noted about them."""
    noted = {name: (columns, lines) for name, columns, lines in db.execute("select * from definitions").fetchall()}
    there = {name for name in db.tables() if name in NAMES}
    if there != set(noted):
        yield f"tables {sorted(there)} instead of {sorted(noted)}"
    for name in sorted(there & set(noted)):
        columns = len(db.table(name).columns)
        (lines,) = db.execute(f"select count(*) from {name}").fetchone()
        if (columns, lines) != noted[name]:
            yield f"{name} has {columns} columns and {lines} rows instead of {noted[name]}"
