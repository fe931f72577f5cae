"""Random histories of sessions that want the same unique keys, one step at a time, beside a model of who has which.

``run(world, seed, steps)`` plays one history: the seed decides everything.  Nobody waits: a lock that cannot be had at
once is an outcome, and the model knows when.  A key is undecided while another open transaction has changed a row that
had it when that transaction began, or had it since; it is taken if the newest version of a row has it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from gmdb.database.connection import Connection
from gmdb.errors import Error, LockTimeout, NoSuchRow, UniqueViolation
from gmdb.format.address import RowId
from tests.model.checks import check_indexes, undo_is_empty
from tests.model.members import World

KEYS = 5
Key = tuple[int | None, str]
Outcome = type[Error] | None


@dataclass
class Row:
    """A row: what is committed of it, and the versions that the transaction which holds it has made since."""

    row_id: RowId
    committed: Key | None
    holder: int | None = None
    versions: list[Key | None] = field(default_factory=list)
    locked: bool = False  # before it was changed

    @property
    def newest(self) -> Key | None:
        return self.versions[-1] if self.versions else self.committed

    def may_have(self, key: int) -> bool:
        """Whether it depends on the holder's end if the row has the key."""
        return any(version is not None and version[0] == key for version in (self.committed, *self.versions))


class UniqueHistory:
    def __init__(self, world: World, seed: int) -> None:
        self.random = random.Random(seed)
        self.name = f"u{seed}"
        self.sessions = self.random.sample(world.pool[:4], self.random.randint(2, 4))
        self.reader = world.pool[4]
        self.snapshot: list[Key] | None = None
        self.rows: list[Row] = []
        self.logs: list[list[tuple[Row, bool]]] = [[] for _ in self.sessions]  # rows, and whether each was changed
        self.savepoints: list[int | None] = [None for _ in self.sessions]
        self.trace: list[str] = []
        self.counts: dict[str, int] = {}
        world.pool[0].create_table(self.name, {"k": "INT", "s": "VARCHAR(2000)"})
        world.pool[0].create_index(f"{self.name}_k", self.name, ["k"], unique=True)
        world.pool[0].create_index(f"{self.name}_s", self.name, ["s", "k"], unique=self.random.random() < 0.5)
        world.pool[0].commit()

    # ---- what the model says

    def may_take(self, session: int, key: int | None, own: Row | None) -> Outcome:
        for row in self.rows:
            if row is own or key is None:
                continue
            if row.holder not in (None, session) and row.versions:
                if row.may_have(key):
                    return LockTimeout
            elif row.newest is not None and row.newest[0] == key:
                return UniqueViolation
        return None

    def may_change(self, session: int, row: Row) -> Outcome:
        if row.holder in (None, session):
            return NoSuchRow if row.newest is None else None
        return NoSuchRow if row.committed is None else LockTimeout

    def _changed(self, session: int, row: Row, version: Key | None) -> None:
        row.holder = session
        row.versions.append(version)
        self.logs[session].append((row, True))

    def visible(self, session: int) -> list[Key]:
        rows = [row.newest if row.holder == session else row.committed for row in self.rows]
        return [version for version in rows if version is not None]

    # ---- steps

    def expect(self, outcome: Outcome, action: Callable[[], Any]) -> tuple[bool, Any]:
        ended: Outcome = None
        result, message = None, "it succeeded"
        try:
            result = action()
        except Error as error:
            ended, message = type(error), f"{type(error).__name__}: {error}"
        assert ended is outcome, f"{message}; the model says {outcome}"
        name = "done" if outcome is None else outcome.__name__
        self.counts[name] = self.counts.get(name, 0) + 1
        return ended is None, result

    def _key(self) -> int | None:
        return self.random.choice([None, *range(KEYS)])

    def _text(self) -> str:
        return self.random.choice("abc") * self.random.choice([1, 30, 700, 1900]) + f"{self.random.random()}"

    def _heap(self, session: int) -> Any:
        return self.sessions[session].heap(self.name)

    def insert(self, session: int) -> None:
        version = (self._key(), self._text())
        outcome = self.may_take(session, version[0], None)
        done, row_id = self.expect(outcome, lambda: self._heap(session).insert(version))
        if done:
            row = Row(row_id, None)
            self.rows = [other for other in self.rows if other.row_id != row_id]  # it was gone, and its place is free
            self.rows.append(row)
            self._changed(session, row, version)

    def _update(self, session: int, row: Row, changes: dict[str, Any]) -> None:
        outcome = self.may_change(session, row)
        if outcome is None and "k" in changes and row.newest is not None and changes["k"] != row.newest[0]:
            outcome = self.may_take(session, changes["k"], row)
        done, _ = self.expect(outcome, lambda: self._heap(session).update(row.row_id, changes))
        if done:
            assert row.newest is not None
            self._changed(session, row, (changes.get("k", row.newest[0]), changes.get("s", row.newest[1])))

    def update_key(self, session: int) -> None:
        if self.rows:
            self._update(session, self.random.choice(self.rows), {"k": self._key()})

    def update_text(self, session: int) -> None:
        if self.rows:
            self._update(session, self.random.choice(self.rows), {"s": self._text()})

    def delete(self, session: int) -> None:
        if self.rows:
            row = self.random.choice(self.rows)
            done, _ = self.expect(self.may_change(session, row), lambda: self._heap(session).delete(row.row_id))
            if done:
                self._changed(session, row, None)

    def lock(self, session: int) -> None:
        if self.rows:
            row = self.random.choice(self.rows)
            done, _ = self.expect(self.may_change(session, row), lambda: self._heap(session).lock(row.row_id))
            if done and row.holder is None:
                row.holder, row.locked = session, True
                self.logs[session].append((row, False))

    def find(self, session: int) -> None:
        key = self.random.randrange(KEYS)
        found = [values for _, values in self._heap(session).by(f"{self.name}_k").find((key,))]
        assert found == [version for version in self.visible(session) if version[0] == key]

    def read(self, session: int) -> None:
        for index, order in (("k", lambda v: (v[0] is None, v[0] or 0)), ("s", lambda v: v[1])):
            found = [values for _, values in self._heap(session).by(f"{self.name}_{index}").range()]
            assert sorted(found, key=repr) == sorted(self.visible(session), key=repr)
            assert [order(v) for v in found] == sorted(order(v) for v in found)

    def read_old(self, _: int) -> None:
        """Somebody under repeatable read goes on seeing what was there."""
        if self.snapshot is not None and self.random.random() < 0.3:
            self.reader.commit()
            self.snapshot = None
        found = [values for _, values in self.reader.heap(self.name).by(f"{self.name}_k").range()]
        if self.snapshot is None:
            self.snapshot = [row.committed for row in self.rows if row.committed is not None]
        assert sorted(found, key=repr) == sorted(self.snapshot, key=repr)

    def savepoint(self, session: int) -> None:
        self.sessions[session].savepoint("s")
        self.savepoints[session] = len(self.logs[session])

    def rollback_to(self, session: int) -> None:
        mark = self.savepoints[session]
        if mark is not None:
            self.sessions[session].rollback_to("s")
            self._take_back(session, mark)

    def _take_back(self, session: int, mark: int) -> None:
        while len(self.logs[session]) > mark:
            row, was_changed = self.logs[session].pop()
            if was_changed:
                row.versions.pop()
            else:
                row.locked = False
            if not row.versions and not row.locked:
                row.holder = None
                if row.committed is None:
                    self.rows.remove(row)

    def fail_in_the_middle(self, session: int) -> None:
        """A statement of many changes, the last of which is refused, leaves nothing."""
        mark = len(self.logs[session])
        rows = [row for row in self.rows if row.holder == session and row.versions and row.newest is not None]
        if not rows:
            return
        with pytest.raises(ZeroDivisionError):
            self._fail(session, rows)
        self._take_back(session, mark)

    def _fail(self, session: int, rows: list[Row]) -> None:
        with self._heap(session).statement():
            for row in rows:
                self._update(session, row, {"k": self._key()})
            raise ZeroDivisionError

    def _end(self, session: int) -> None:
        for row in self.rows:
            if row.holder == session:
                row.holder, row.locked = None, False
                row.versions.clear()
        self.logs[session].clear()
        self.savepoints[session] = None

    def commit(self, session: int) -> None:
        self.sessions[session].commit()
        for row, _ in self.logs[session]:
            row.committed = row.newest
        self._end(session)
        keys = [row.committed[0] for row in self.rows if row.committed is not None and row.committed[0] is not None]
        assert len(set(keys)) == len(keys)

    def rollback(self, session: int) -> None:
        self.sessions[session].rollback()
        self._take_back(session, 0)
        self._end(session)

    def collect(self, session: int) -> None:
        self.sessions[session].gc()
        self.rows = [row for row in self.rows if row.committed is not None or row.holder is not None]

    STEPS = (
        *[insert] * 8, *[update_key] * 12, *[update_text] * 4, *[delete] * 5, *[lock] * 2, *[find] * 3, read,
        *[read_old] * 2, *[savepoint] * 3, *[rollback_to] * 3, *[fail_in_the_middle] * 2, *[commit] * 5,
        *[rollback] * 3, *[collect] * 3,
    )  # fmt: skip

    def play(self, steps: int) -> None:
        for _ in range(steps):
            step, session = self.random.choice(self.STEPS), self.random.randrange(len(self.sessions))
            self.trace.append(f"{session} {step.__name__}")
            step(self, session)
        for session in range(len(self.sessions)):
            self.random.choice([UniqueHistory.commit, UniqueHistory.rollback])(self, session)
        self.read(0)
        self.sessions[0].commit()
        self.reader.commit()
        self._settle(self.sessions[0])

    def _settle(self, db: Connection) -> None:
        db.gc()
        assert db.locks().num_rows == 0
        assert undo_is_empty(db)
        check_indexes(db, self.name)
        db.drop_table(self.name)
        db.commit()


def run(world: World, seed: int, steps: int) -> dict[str, int]:
    """Play the history of a seed; answers how often changes ended in which way."""
    history = UniqueHistory(world, seed)
    try:
        history.play(steps)
    except Exception as error:
        tail = "\n".join(history.trace[-60:])
        pytest.fail(f"run(world, seed={seed}, steps={steps})\n{tail}\n{type(error).__name__}: {error}")
    return history.counts
