"""A feed against a model: whatever transactions do, and whenever the database or the reader ends, nothing is missed.

Sessions commit, roll back, go back to savepoints, change definitions and truncate, in turns; the owner is closed or
crashes in between; the reader starts over from its position at random.  What it has applied, in the order in which it
came, must be what the table has.
"""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import gmdb
from gmdb.database.connection import Connection
from gmdb.database.feed import ChangeFeed
from gmdb.errors import IntegrityError, TransactionError

STEPS = 120


class Writers:
    """Sessions that do something at random, one after the other."""

    def __init__(self, path: Path, dice: random.Random) -> None:
        self._dice, self._path = dice, path
        self.sessions = [gmdb.connect(path, lock_timeout=0.0) for _ in range(3)]
        self._savepoints = [0, 0, 0]

    def step(self) -> None:
        which = self._dice.randrange(len(self.sessions))
        db = self.sessions[which]
        try:
            self._act(db, which)
        except (TransactionError, IntegrityError):
            if self._dice.random() < 0.5:
                db.rollback()
                self._savepoints[which] = 0

    def _act(self, db: Connection, which: int) -> None:
        dice = self._dice
        action = dice.choices(
            ["insert", "update", "delete", "append", "savepoint", "back", "commit", "rollback", "define", "truncate"],
            [30, 25, 12, 4, 8, 6, 20, 6, 2, 1],
        )[0]
        key = dice.randrange(300)
        if action == "insert":
            columns = [c.name for c in db.table("t").columns]
            values: list[Any] = [key, "v" * dice.choice([0, 5, 300, 1500]), *([1] * (len(columns) - 2))]
            db.insert("t", values)
        elif action == "update":
            db.execute("update t set s = ? where i between ? and ?", ("u" * dice.randrange(1800), key, key + 5))
        elif action == "delete":
            db.execute("delete from t where i between ? and ?", (key, key + 3))
        elif action == "append":
            first, count = dice.randrange(1000, 10**6), dice.choice([3, 400])
            columns = {c.name: pa.nulls(count, pa.int32()) for c in db.table("t").columns[2:]}
            keys = pa.array(range(first, first + count), pa.int32())
            db.append("t", pa.table({"i": keys, "s": ["a" * 50] * count, **columns}))
        elif action == "savepoint":
            self._savepoints[which] += 1
            db.execute(f"savepoint s{self._savepoints[which]}")
        elif action == "back" and self._savepoints[which]:
            self._savepoints[which] = dice.randint(1, self._savepoints[which])
            db.execute(f"rollback to s{self._savepoints[which]}")
        elif action in ("commit", "rollback"):
            db.commit() if action == "commit" else db.rollback()
            self._savepoints[which] = 0
        elif action == "define":
            count = len(db.table("t").columns)
            if count < 8:
                db.execute(f"alter table t add column c{count} int default {count}")
        elif action == "truncate":
            db.execute("truncate table t")

    def close(self) -> None:
        for db in self.sessions:
            db.close()


class Copy:
    """What a reader makes of the changes."""

    def __init__(self) -> None:
        self.rows: dict[str, tuple[Any, ...]] = {}
        self.last = (0, 0)

    def apply(self, feed: ChangeFeed) -> None:
        for change in feed:
            assert (change.scn, change.sequence) > self.last
            self.last = (change.scn, change.sequence)
            if change.operation == "truncate":
                self.rows.clear()
                continue
            assert change.row is not None
            assert change.row_id is not None
            if change.operation == "delete":
                gone = self.rows.pop(change.row_id)
                assert gone == _values(change.row)
            elif change.operation == "update":
                assert _values(change.before or {})[: len(self.rows[change.row_id])] == self.rows[change.row_id]
                self.rows[change.row_id] = _values(change.row)
            else:
                assert change.row_id not in self.rows
                self.rows[change.row_id] = _values(change.row)


def _values(row: dict[str, Any]) -> tuple[Any, ...]:
    """A row's values, without those at its end that it has not: an older row has fewer columns."""
    values = list(row.values())
    while values and values[-1] is None:
        values.pop()
    return tuple(values)


def table_of(path: Path) -> dict[str, tuple[Any, ...]]:
    with gmdb.connect(path) as db:
        found = db.execute("select rowid, * from t")
        names = [column[0] for column in found.description][1:]
        return {str(row[0]): _values(dict(zip(names, row[1:], strict=True))) for row in found.fetchall()}


@pytest.mark.parametrize("seed", range(6))
def test_what_a_reader_has_applied_is_what_the_table_has(path: Path, tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    with gmdb.connect(path, sync="off") as db:
        db.execute("create table t (i int primary key, s varchar(2000)) with (change_feed = true)")
        db.commit()
        feed, copy = db.changes(reader="copy", before=True), Copy()
    for _ in range(5):
        writers = Writers(path, dice)
        for _ in range(STEPS):
            writers.step()
            if dice.random() < 0.05:
                copy.apply(feed)
                if dice.random() < 0.5:
                    feed = writers.sessions[0].changes(since=feed.position, before=True, reader="copy")
            if dice.random() < 0.03:
                writers.sessions[0].checkpoint()
                writers.sessions[0].gc()
        if dice.random() < 0.5:
            path = _as_after_a_crash(path, tmp_path / f"crashed-{dice.random()}.gmdb", writers)
            with gmdb.connect(path) as db:
                feed = db.changes(since=feed.position, before=True, reader="copy")
        else:
            writers.close()
        copy.apply(feed)
        assert copy.rows == table_of(path)


def _as_after_a_crash(path: Path, copied: Path, writers: Writers) -> Path:
    """A copy of the files as they are while the database is open: what a process that is killed leaves."""
    database = writers.sessions[0]._database
    with database.store.guard, database.durability.checkpoints.none_running():  # type: ignore[union-attr]
        shutil.copytree(path, copied, ignore=lambda _, names: [n for n in names if n.endswith((".lock", ".sock"))])
        os.sync()
    writers.close()
    return copied
