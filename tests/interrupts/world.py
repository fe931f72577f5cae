"""A database, the session that is interrupted, another that watches, and a model of what both must see.

``State`` has tables by their names.  ``Model`` has what is committed, what the session sees, and what else it has:
savepoints, autocommit.  Models are never changed: what an operation brings about is another model, so that after an
interrupt what is found can be compared with that before and that after, and must be one of them.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotInTime
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

import gmdb
from gmdb.errors import Error
from tests.integrity import problems
from tests.server.peer import Peer

LOCK_TIMEOUT = 0.2  # of the session that is interrupted: only a test's own lock stands in its way
PATIENCE = 8.0  # seconds after which the session that watches must be done with what takes milliseconds
BATCH_ROWS = 1000  # some pages
LOB_SIZE = 70_000
BIG, LOBS, FED, TICKS = "big", "l", "f", "w"
BASIC = ("t", "p", FED)  # tables that are always there, of rows (id, v, s)
EXTRA = ("d0", "d1", "d2")  # that come and go


class Broken(Exception):
    """Something is not as it must be; the first argument is the kind."""


@dataclass(frozen=True)
class TableState:
    columns: tuple[str, ...] = ("id", "v", "s")
    indexes: frozenset[str] = frozenset()
    rows: Mapping[int, tuple[Any, ...]] = field(default_factory=dict)

    def with_rows(self, changes: Mapping[int, tuple[Any, ...] | None]) -> TableState:
        rows = {**self.rows, **changes}
        return replace(self, rows={key: values for key, values in rows.items() if values is not None})


State = Mapping[str, TableState]


@dataclass(frozen=True)
class Model:
    committed: State
    current: State
    autocommit: bool = False
    begun: bool = False  # explicitly, within autocommit
    isolation: str = "read committed"
    savepoints: tuple[tuple[str, State], ...] = ()
    defined: bool = False  # the transaction has changed definitions, so others cannot look at the tables

    @property
    def is_alone(self) -> bool:
        """Whether a statement is a transaction of its own."""
        return self.autocommit and not self.begun

    def seeing(self, current: State, defined: bool = False) -> Model:
        """After a statement that has brought this about."""
        if self.is_alone:
            return replace(self, committed=current, current=current)
        return replace(self, current=current, defined=self.defined or defined)

    def with_table(self, name: str, table: TableState | None, defined: bool = False) -> Model:
        tables = {**self.current, name: table}
        return self.seeing({key: value for key, value in tables.items() if value is not None}, defined)

    def with_rows(self, name: str, changes: Mapping[int, tuple[Any, ...] | None]) -> Model:
        return self.with_table(name, self.current[name].with_rows(changes))

    def ended(self, state: State) -> Model:
        return replace(self, committed=state, current=state, begun=False, savepoints=(), defined=False)


class World:
    """``remote``: a process that owns the database, so that both sessions of this one go through it.

    ``outsider``: one that tries whether it can open what this process should have let go.
    """

    def __init__(self, place: Path, name: str, remote: Peer | None = None, outsider: Peer | None = None) -> None:
        self.place = place / name
        self.place.mkdir(parents=True)
        self.path = self.place / "db"
        self.remote, self.outsider = remote, outsider
        self.feed: tuple[str | None, dict[int, Any]] = (None, {})  # where a reader of changes stands, and its copy
        self.next_key = 0
        self.ticks = 0
        self.watchers = ThreadPoolExecutor(1)
        self._row_ids: dict[str, tuple[TableState, dict[int, Any]]] = {}
        if remote is not None:
            remote("db = gmdb.connect(path)", path=str(self.path))
        self.db: Any = gmdb.connect(self.path, lock_timeout=LOCK_TIMEOUT)
        self.model = self._found()
        self.watcher: Any = None
        self.watch(self._open_watcher)

    def _open_watcher(self) -> None:
        self.watcher = gmdb.connect(self.path, lock_timeout=3.0)

    def _found(self) -> Model:
        db, state = self.db, {}
        for name in BASIC:
            db.execute(f"create table {name} (id int primary key, v int, s varchar(300))")
            state[name] = TableState(indexes=frozenset([f"{name}_pkey"]))
        db.execute("create index t_v on t (v)")
        db.execute("create index t_h on t using hash (v)")
        db.set_change_feed(FED, True)
        db.execute(f"create table {BIG} (id int, v int)")
        db.execute(f"create table {LOBS} (id int, b blob)")
        db.execute(f"create table {TICKS} (id int)")
        state["t"] = replace(state["t"], indexes=state["t"].indexes | {"t_v", "t_h"})
        state[BIG] = TableState(("id", "v"))
        state[LOBS] = TableState(("id", "b"))
        for name in BASIC:
            rows = {self.new_key(): ("s" * 20,) for _ in range(12)}
            made = {key: (key, key % 7, *rest) for key, rest in rows.items()}
            for values in made.values():
                db.insert(name, values)
            state[name] = state[name].with_rows(made)
        db.commit()
        for name in BASIC:
            known = frozenset(index.name for index in db.table(name).indexes)
            state[name] = replace(state[name], indexes=known)
        db.commit()
        return Model(state, state)

    def new_key(self) -> int:
        self.next_key += 1
        return self.next_key

    def connections(self) -> int:
        """How many this process has."""
        return self.db._database.connections if self.remote is None else 0

    # ---- the session that watches

    def start(self, function: Callable[[], Any]) -> Future[Any]:
        return self.watchers.submit(function)

    def watch(self, function: Callable[[], Any]) -> Any:
        """Have the other session do something, in its thread."""
        try:
            return self.start(function).result(PATIENCE)
        except NotInTime:
            raise Broken("others hang", "another connection waits for ever") from None
        except Error as error:
            raise Broken("others fail", f"another connection: {type(error).__name__}: {error}") from error

    def tick(self) -> None:
        """A commit of another session: one that was interrupted when it was in the log is known after it."""

        def commit() -> None:
            self.ticks += 1
            self.watcher.insert(TICKS, (self.ticks,))
            self.watcher.commit()

        self.watch(commit)

    def row_id(self, name: str, key: int) -> Any:
        """That of a committed row, by the other session: this one must not have looked before it changes the row."""
        table = self.model.committed[name]
        if name not in self._row_ids or self._row_ids[name][0] is not table:
            if self.model.defined:
                found = {values[0]: row_id for row_id, values in self.db.heap(name).rows()}
                return found[key]
            self._row_ids[name] = table, self.watch(lambda: self._find_row_ids(name))
        return self._row_ids[name][1][key]

    def _find_row_ids(self, name: str) -> dict[int, Any]:
        found = {values[0]: row_id for row_id, values in self.watcher.heap(name).rows()}
        self.watcher.rollback()
        return found

    # ---- what is there

    def seen(self, names: tuple[str, ...] | None = None) -> dict[str, TableState]:
        """Tables, or all of them, as the session sees them; those that are not there are left out."""
        return observe(self.db, names)

    def check_committed(self) -> None:
        """What others see is what was committed, they can change all of it, and then nothing is held by anybody."""

        def look() -> dict[str, TableState]:
            seen = observe(self.watcher, None)
            for name, table in self.model.committed.items():
                if name != BIG:
                    self.watcher.update(name, {table.columns[1]: None})
            self.watcher.rollback()
            return seen

        difference = differs(self.watch(look), self.model.committed)
        if difference:
            raise Broken("others see", difference)
        if self.remote is None:
            self._check_left_behind()

    def _check_left_behind(self) -> None:
        hub = self.db._database.transactions
        held = list(hub.snapshots.held())
        if held:
            raise Broken("snapshot held", f"{len(held)} snapshots are held by nobody")
        if hub.active:
            raise Broken("transaction open", f"{len(hub.active)} transactions are open that nobody knows of")
        if self.db._database.store.failure is not None:
            raise Broken("failed", f"the database takes no more changes: {self.db._database.store.failure}")

    def end_transaction(self, commit: bool) -> None:
        """Without interrupts."""
        if commit:
            self.db.commit()
            self.model = self.model.ended(self.model.current)
        else:
            self.db.rollback()
            self.model = self.model.ended(self.model.committed)
        if self.db.in_transaction:
            raise Broken("transaction open", "in_transaction after commit or rollback")

    def check_all(self, commit: bool) -> None:
        self.end_transaction(commit)
        if self.db.autocommit != self.model.autocommit:
            raise Broken("autocommit", f"autocommit is {self.db.autocommit}")
        self.check_committed()
        difference = differs(self.seen(), self.model.committed)
        if difference:
            raise Broken("rows", difference)
        self.db.rollback()

    # ---- its end

    def check_files(self) -> None:
        """Close the database, verify it, and open it again."""
        self.close()
        found = problems(self.path)
        if found:
            raise Broken("verify", "; ".join(found[:5]))
        self.reopen()
        self.check_all(commit=False)

    def reopen(self) -> None:
        if self.remote is not None:
            self.remote("db = gmdb.connect(path)", path=str(self.path))
        self.db = gmdb.connect(
            self.path, lock_timeout=LOCK_TIMEOUT, autocommit=self.model.autocommit, isolation=self.model.isolation
        )
        self.watch(self._open_watcher)

    def close(self) -> None:
        self.watch(self.watcher.close)
        self.db.close()
        if self.remote is not None:
            self.remote("db.close()")
        self._row_ids.clear()

    def remove(self) -> None:
        self.watchers.shutdown(wait=False, cancel_futures=True)
        shutil.rmtree(self.place, ignore_errors=True)


def observe(db: Any, names: tuple[str, ...] | None) -> dict[str, TableState]:
    there = set(db.tables()) - {TICKS}
    return {name: observe_table(db, name) for name in sorted(there if names is None else there & set(names))}


def observe_table(db: Any, name: str) -> TableState:
    definition = db.table(name)
    columns = tuple(column.name for column in definition.columns)
    indexes = frozenset(index.name for index in definition.indexes)
    if name == BIG:
        table = db.arrow(name).read_all()
        keys, places = np.unique(table["id"].to_numpy(), return_inverse=True)
        sums = np.bincount(places, table["v"].to_numpy()).astype(int).tolist()
        zipped = zip(keys.tolist(), np.bincount(places).tolist(), sums, strict=True)
        return TableState(columns, indexes, {key: (key, count, total) for key, count, total in zipped})
    found = [values for _, values in db.heap(name).rows()]
    rows = {values[0]: plain(values) for values in found}
    if len(rows) != len(found):
        raise Broken("rows", f"table {name} has rows twice")
    return TableState(columns, indexes, rows)


def plain(values: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(crc32(value) if isinstance(value, bytes) else value for value in values)


def batch_state(key: int) -> tuple[int, int, int]:
    return key, BATCH_ROWS, BATCH_ROWS * (BATCH_ROWS - 1) // 2


def lob_of(key: int, version: int) -> bytes:
    return (b"%d-%d " % (key, version)) * (LOB_SIZE // 8)


def differs(seen: State, expected: State, names: tuple[str, ...] | None = None) -> str:
    """What is different, in words; empty if nothing is."""
    told = []
    for name in sorted({*seen, *expected}):
        if names is not None and name not in names:
            continue
        left, right = seen.get(name), expected.get(name)
        if left == right:
            continue
        if left is None or right is None:
            told.append(f"table {name} is {'not ' if left is None else ''}there")
        elif (left.columns, left.indexes) != (right.columns, right.indexes):
            told.append(f"{name} is {left.columns} {sorted(left.indexes)}, not {right.columns} {sorted(right.indexes)}")
        else:
            more = {key: row for key, row in left.rows.items() if right.rows.get(key) != row}
            less = {key: row for key, row in right.rows.items() if left.rows.get(key) != row}
            told.append(f"{name} has {_short(more)} instead of {_short(less)}")
    return "; ".join(told)


def _short(rows: Mapping[int, tuple[Any, ...]]) -> str:
    told = ", ".join(str(row)[:24] for row in list(rows.values())[:4])
    return f"{len(rows)} rows {told}" if rows else "nothing"


def until(condition: Callable[[], bool], seconds: float = 10.0) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.001)
    return True
