"""Random histories of several sessions, one step at a time, beside a model that knows every snapshot.

``run(world, seed, steps)`` plays one history: the seed decides everything.  The model is plain: what is committed is
a dict; a transaction is a list of changes over it; a snapshot is a copy of that dict.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

import gmdb.tables.arrow.scan as arrow_scan
from gmdb.errors import CursorInvalid, Error, LockTimeout, NoSuchRow, RowLocked, WriteConflict
from gmdb.format.address import RowId, device_of, offset_of
from gmdb.format.heap import check
from tests.model.checks import check_indexes, undo_is_empty
from tests.model.members import Change, Cursor, Member, Snapshot, Values, World

Outcome = type[Error] | None
TEXT_MAX = 2000
SCHEMA = pa.schema({"id": pa.int32(), "value": pa.int32(), "text": pa.string()})


class History:
    def __init__(self, world: World, seed: int) -> None:
        self.random = random.Random(seed)
        self.world = world
        self.hub = world.hub
        self.name = f"t{seed}"
        chosen = self.random.sample(range(len(world.pool)), self.random.randint(2, 4))
        self.members = [Member(world.pool[n], world.kinds[n]) for n in chosen]
        self.committed: dict[int, Values] = {}
        self.number = 0  # of the newest commit
        self.next_key = 1
        self.row_ids: dict[int, RowId] = {}  # of rows whose row id cannot be anybody else's by now
        self.created: dict[int, int] = {}  # number of the commit that brought the row
        self.changed: dict[int, int] = {}  # number of the row's newest commit
        self.loaded: set[int] = set()
        self.trace: list[str] = []
        world.pool[0].create_table(
            self.name,
            {"id": "INT NOT NULL", "value": "INT", "text": f"VARCHAR({TEXT_MAX})"},
            pct_free=self.random.choice([0, 10, 30]),
        )
        world.pool[0].commit()
        self.indexed = {1: "btree", 3: "hash"}.get(seed % 4, "")
        if self.indexed:
            world.pool[0].create_index(f"{self.name}_id", self.name, ["id"], unique=True, using=self.indexed)
            world.pool[0].commit()
            second = ["value", "id"] if self.indexed == "btree" else ["value"]
            world.pool[0].create_index(f"{self.name}_value", self.name, second, using=self.indexed)
            world.pool[0].commit()

    # ---- what the model says

    def visible(self, member: Member) -> dict[int, Values]:
        """What a statement that begins now sees."""
        rows = dict(self._snapshot(member).rows)
        for key, values in member.own().items():
            if values is None:
                rows.pop(key, None)
            else:
                rows[key] = values
        return rows

    def _snapshot(self, member: Member) -> Snapshot:
        if member.isolation != "repeatable read":
            return Snapshot(self.number, self.committed)
        if member.snapshot is None:
            member.snapshot = Snapshot(self.number, dict(self.committed))
        return member.snapshot

    def may_write(self, member: Member, key: int) -> tuple[Outcome, ...]:
        """What a change of the row ends with; None is success."""
        snapshot = self._snapshot(member)
        for other in self.members:
            if other is not member and other.holds(key):
                return (LockTimeout,) if key in self.created else (NoSuchRow,)
        own = member.own()
        if key in own:
            return (NoSuchRow,) if own[key] is None else (None,)
        if self.created.get(key, -1) > snapshot.number:
            return (WriteConflict, NoSuchRow)
        if self.changed.get(key, -1) > snapshot.number:
            return (WriteConflict,)
        return (None,) if key in self.committed else (NoSuchRow,)

    def _finish(self, member: Member) -> None:
        if member.autocommit:
            self._commit(member)

    def _commit(self, member: Member) -> None:
        self.number += bool(member.log)
        for key, values in member.own().items():
            self.created.setdefault(key, self.number)
            self.changed[key] = self.number
            if values is None:
                self.committed.pop(key, None)
            else:
                self.committed[key] = values
        member.end()

    def _forget_row_ids(self) -> None:
        """After GC the row id of a row that nobody sees may be another's."""
        held = [m.snapshot.number for m in self.members if m.snapshot]
        held += [c.snapshot for m in self.members for c in m.cursors if not c.invalid]
        oldest = min(held, default=self.number)
        for key in list(self.row_ids):
            pending = any(m.holds(key) for m in self.members)
            if not pending and key not in self.committed and self.changed.get(key, -1) <= oldest:
                del self.row_ids[key]

    def _taken_back(self, gone: list[Change]) -> None:
        for change in gone:
            if change.key in self.loaded and change.key not in self.created:
                self.row_ids.pop(change.key, None)  # its page went back to the tablespace at once

    # ---- steps

    def expect(self, outcomes: tuple[Outcome, ...], action: Callable[[], Any]) -> tuple[bool, Any]:
        """Run the action; it has to end as one of the outcomes says.  Answers whether it succeeded, and with what."""
        ended: Outcome = None
        result, message = None, "it succeeded"
        try:
            result = action()
        except Error as error:
            ended, message = type(error), f"{type(error).__name__}: {error}"
        assert ended in outcomes, f"{message}; the model says {outcomes}"
        return ended is None, result

    def _text(self) -> str | None:
        size = self.random.choice([None, 0, 3, 50, 300, 900, 1990, self.random.randint(0, TEXT_MAX)])
        return None if size is None else self.random.choice("abcäz")[0] * (size // 2)

    def _values(self) -> Values:
        self.next_key += 1
        value = self.random.choice([None, self.random.randint(-9, 9)])
        return self.next_key, value, self._text()

    def _pick(self) -> int | None:
        return self.random.choice(sorted(self.row_ids)) if self.row_ids else None

    def insert(self, member: Member) -> None:
        self._snapshot(member)
        values = self._values()
        row_id = member.db.heap(self.name).insert(values)
        assert row_id not in self.row_ids.values(), f"row id {row_id} is in use"
        self.row_ids[values[0]] = row_id
        member.log.append(Change(values[0], values))
        self._finish(member)

    def _changes(self) -> dict[str, Any]:
        changes: dict[str, Any] = {}
        if self.random.random() < 0.6:
            changes["value"] = self.random.choice([None, self.random.randint(-9, 9)])
        if not changes or self.random.random() < 0.5:
            changes["text"] = self._text()
        return changes

    def _apply(self, member: Member, key: int, changes: dict[str, Any]) -> None:
        old = self.visible(member)[key]
        member.log.append(Change(key, (key, changes.get("value", old[1]), changes.get("text", old[2]))))

    def update(self, member: Member) -> None:
        key = self._pick()
        if key is None:
            return
        changes = self._changes()
        heap, row_id = member.db.heap(self.name), self.row_ids[key]
        done, _ = self.expect(self.may_write(member, key), lambda: heap.update(row_id, changes))
        if done:
            self._apply(member, key, changes)
        self._finish(member)

    def delete(self, member: Member) -> None:
        key = self._pick()
        if key is None:
            return
        heap, row_id = member.db.heap(self.name), self.row_ids[key]
        done, _ = self.expect(self.may_write(member, key), lambda: heap.delete(row_id))
        if done:
            member.log.append(Change(key, None))
        self._finish(member)

    def lock(self, member: Member) -> None:
        key = self._pick()
        if key is None:
            return
        nowait = self.random.random() < 0.5
        outcomes = self.may_write(member, key)
        if nowait:
            outcomes = tuple(RowLocked if outcome is LockTimeout else outcome for outcome in outcomes)
        heap, row_id = member.db.heap(self.name), self.row_ids[key]
        done, _ = self.expect(outcomes, lambda: heap.lock(row_id, nowait))
        if done and not member.holds(key):
            member.held.add(key)
        self._finish(member)

    def _condition(self) -> Callable[[Any], bool]:
        rest = self.random.randint(0, 2)
        return lambda row: row["id"] % 3 == rest

    def _matching(self, member: Member, where: Callable[[Any], bool]) -> list[int]:
        return [key for key in self.visible(member) if where({"id": key})]

    def _statement_outcomes(self, member: Member, keys: list[int]) -> tuple[Outcome, ...]:
        outcomes = {outcome for key in keys for outcome in self.may_write(member, key)} - {None}
        return tuple(outcomes) or (None,)

    def update_where(self, member: Member) -> None:
        where, changes = self._condition(), self._changes()
        keys = self._matching(member, where)
        outcomes = self._statement_outcomes(member, keys)
        done, count = self.expect(outcomes, lambda: member.db.update(self.name, changes, where))
        if done:
            assert count == len(keys)
            for key in keys:
                self._apply(member, key, changes)
        self._finish(member)

    def delete_where(self, member: Member) -> None:
        where = self._condition()
        keys = self._matching(member, where)
        outcomes = self._statement_outcomes(member, keys)
        done, count = self.expect(outcomes, lambda: member.db.delete(self.name, where))
        if done:
            assert count == len(keys)
            member.log += [Change(key, None) for key in keys]
        self._finish(member)

    def lock_where(self, member: Member) -> None:
        """Select for update, past the rows that others hold."""
        where = self._condition()
        keys = self._matching(member, where)
        outcomes = self._statement_outcomes(member, keys)
        if WriteConflict in outcomes:
            return  # which rows it had locked by then depends on their order
        free = [key for key in keys if None in self.may_write(member, key)]
        select = lambda: member.db.select_for_update(self.name, where, skip_locked=True)  # noqa: E731
        _, found = self.expect((None,), select)
        assert sorted(row["id"] for _, row in found) == sorted(free)
        member.held.update(key for key in free if not member.holds(key))
        self._finish(member)

    def fetch(self, member: Member) -> None:
        key = self._pick()
        if key is None:
            return
        rows = self.visible(member)
        outcomes: tuple[Outcome, ...] = (None,) if key in rows else (NoSuchRow,)
        heap, row_id = member.db.heap(self.name), self.row_ids[key]
        _, values = self.expect(outcomes, lambda: heap.fetch(row_id))
        assert values == rows.get(key)
        self._finish(member)

    def read_rows(self, member: Member) -> None:
        found = list(member.db.heap(self.name).rows())
        rows = self.visible(member)
        assert len(found) == len(rows)
        assert {values[0]: values for _, values in found} == rows
        for row_id, values in found:
            assert self.row_ids.get(values[0], row_id) == row_id
        if self.indexed and not member.autocommit:
            self._read_by_indexes(member, found)
        self._finish(member)

    def _read_by_indexes(self, member: Member, found: list[tuple[RowId, Values]]) -> None:
        """An index gives the same rows: a B-tree in its order, both ways, a hash index by each key."""
        heap = member.db.heap(self.name)
        if self.indexed == "hash":
            for value in {row[1] for _, row in found} | {100}:
                expected = sorted((row for row in found if row[1][1] == value), key=lambda row: row[0])
                assert sorted(heap.by(f"{self.name}_value").find((value,)), key=lambda row: row[0]) == expected
            for key in self.row_ids.keys() | {row[0] for _, row in found}:
                expected = [row for row in found if row[1][0] == key]
                assert heap.by(f"{self.name}_id").find((key,)) == expected
            return
        by_id = sorted(found, key=lambda row: row[1][0])
        assert list(heap.by(f"{self.name}_id").range()) == by_id
        assert list(heap.by(f"{self.name}_id").range(backwards=True)) == by_id[::-1]
        by_value = [row for _, row in heap.by(f"{self.name}_value").range()]
        assert sorted(by_value) == sorted(row for _, row in found) if None not in sum(by_value, ()) else True
        assert len(by_value) == len(found)
        assert [row[1] for row in by_value] == sorted((row[1] for row in by_value), key=lambda v: (v is None, v))
        for row_id, values in found[:3]:
            assert heap.by(f"{self.name}_id").find((values[0],)) == [(row_id, values)]

    def read_arrow(self, member: Member) -> None:
        self.check_arrow(member.db.arrow(self.name).read_all(), self.visible(member))
        self._finish(member)

    @staticmethod
    def check_arrow(table: pa.Table, rows: dict[int, Values]) -> None:
        table.validate(full=True)
        found = [tuple(row.values()) for row in table.to_pylist()]
        assert len(found) == len(rows)
        assert {values[0]: values for values in found} == rows

    def append(self, member: Member) -> None:
        self._snapshot(member)
        data = [self._values() for _ in range(self.random.choice([0, 1, 3, 8, 20]))]
        columns = [list(column) for column in zip(*data, strict=True)] or [[], [], []]
        assert member.db.append(self.name, pa.table(columns, schema=SCHEMA)) == len(data)
        member.log += [Change(values[0], values) for values in data]
        keys = {values[0] for values in data}
        self.loaded |= keys
        self._finish(member)
        for row_id, values in member.db.heap(self.name).rows():
            if values[0] in keys:
                assert row_id not in self.row_ids.values(), f"row id {row_id} is in use"
                self.row_ids[values[0]] = row_id
        assert keys <= set(self.row_ids)

    def savepoint(self, member: Member) -> None:
        if member.autocommit:
            return
        name = f"s{self.random.randint(0, 3)}"
        member.db.savepoint(name)
        member.savepoints.append((name, len(member.log), set(member.held)))

    def rollback_to(self, member: Member) -> None:
        if not member.savepoints:
            return
        name = self.random.choice(member.savepoints)[0]
        at = max(n for n, (other, *_) in enumerate(member.savepoints) if other == name)
        if self.random.random() < 0.2:
            member.db.release_savepoint(name)
            del member.savepoints[at:]
            return
        member.db.rollback_to(name)
        self._taken_back(member.take_back_to(member.savepoints[at][1]))
        member.held = set(member.savepoints[at][2])
        del member.savepoints[at + 1 :]

    def commit(self, member: Member) -> None:
        member.db.commit()
        self._commit(member)

    def rollback(self, member: Member) -> None:
        member.db.rollback()
        self._taken_back(member.take_back_to(0))
        member.end()

    def collect(self, member: Member) -> None:
        member.db.gc()
        self._forget_row_ids()

    # ---- cursors

    def open_cursor(self, member: Member) -> None:
        if len(member.cursors) >= 3:
            return
        by_row = self.random.random() < 0.5
        source = self._walk_rows(member) if by_row else self._walk_batches(member)
        rows = self.visible(member)
        number = self._snapshot(member).number
        cursor = Cursor(source, rows, len(member.log), number, member.transaction)
        if self._step(cursor):
            member.cursors.append(cursor)

    def _walk_rows(self, member: Member) -> Iterator[dict[int, Values]]:
        for row_id, values in member.db.heap(self.name).rows():
            assert self.row_ids.get(values[0], row_id) == row_id
            yield {values[0]: values}

    def _walk_batches(self, member: Member) -> Iterator[dict[int, Values]]:
        """Opened now, read later, a page a batch."""
        before, arrow_scan.RANGE_SIZE = arrow_scan.RANGE_SIZE, 1
        try:
            reader = member.db.arrow(self.name)
        finally:
            arrow_scan.RANGE_SIZE = before

        def walk() -> Iterator[dict[int, Values]]:
            yield {}
            for batch in reader:
                yield {values[0]: values for values in (tuple(row.values()) for row in batch.to_pylist())}

        return walk()

    def _step(self, cursor: Cursor) -> bool:
        """Read on; answers whether there may be more."""
        try:
            found = next(cursor.source)
        except StopIteration:
            assert cursor.found == cursor.rows
            return False
        except CursorInvalid:
            assert cursor.invalid, "nothing that the cursor saw was rolled back"
            return False
        for key, values in found.items():
            assert key not in cursor.found, f"row {key} came twice"
            assert cursor.rows.get(key) == values
        cursor.found |= found
        return True

    def read_on(self, member: Member) -> None:
        if not member.cursors:
            return
        cursor = self.random.choice(member.cursors)
        for _ in range(self.random.choice([1, 2, 5, 1000])):
            if not self._step(cursor):
                member.cursors.remove(cursor)
                return

    def close_cursor(self, member: Member) -> None:
        if member.cursors:
            cursor = member.cursors.pop(self.random.randrange(len(member.cursors)))
            cursor.source.close()  # type: ignore[attr-defined]

    # ---- the whole

    STEPS = (
        *[insert] * 10,
        *[update] * 14,
        *[delete] * 5,
        *[lock] * 4,
        update_where,
        delete_where,
        lock_where,
        *[fetch] * 6,
        *[read_rows] * 4,
        *[read_arrow] * 4,
        *[append] * 2,
        *[savepoint] * 5,
        *[rollback_to] * 4,
        *[commit] * 6,
        *[rollback] * 3,
        *[collect] * 3,
        *[open_cursor] * 4,
        *[read_on] * 6,
        close_cursor,
    )

    def play(self, steps: int) -> None:
        for _ in range(steps):
            step, member = self.random.choice(self.STEPS), self.random.choice(self.members)
            self.trace.append(f"{self.members.index(member)} {step.__name__}")
            step(self, member)
        self.settle()

    def settle(self) -> None:
        """Let every session end, and look at what is left."""
        for member in self.members:
            self.trace.append(f"{self.members.index(member)} settle")
            self.random.choice([History.commit, History.rollback])(self, member)
            for cursor in member.cursors:
                while self._step(cursor):
                    pass
            member.cursors.clear()
        for member in self.members:
            self.read_rows(member)
            self.read_arrow(member)
            self.commit(member)
        self.world.pool[0].gc()
        self.read_rows(self.members[0])
        self.commit(self.members[0])
        assert self.world.pool[0].locks().num_rows == 0
        assert self.world.pool[0].transactions().num_rows == 0
        assert undo_is_empty(self.world.pool[0])
        self._check_pages()
        self.world.pool[0].drop_table(self.name)
        self.world.pool[0].commit()

    def _check_pages(self) -> None:
        if self.indexed:
            check_indexes(self.world.pool[0], self.name)
        store = self.hub.store
        for page_id in self.world.pool[0].heap(self.name).segment.page_ids().tolist():
            page = bytes(store.devices[device_of(page_id)].memory(offset_of(page_id)))
            assert list(check(page)) == []


def run(world: World, seed: int, steps: int) -> None:
    """Play the history of a seed; a failure tells the seed and what happened up to it."""
    history = History(world, seed)
    try:
        history.play(steps)
    except Exception as error:
        kinds = ", ".join(member.isolation for member in history.members)
        tail = "\n".join(history.trace[-60:])
        pytest.fail(
            f"run(world, seed={seed}, steps={steps}), sessions: {kinds}\n{tail}\n{type(error).__name__}: {error}"
        )
