"""Who takes part in a random history: a database with its sessions, and what the model knows of each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import gmdb
from gmdb.database.connection import Connection

Values = tuple[int, int | None, str | None]


@dataclass
class Change:
    """One row as a transaction left it; None: deleted."""

    key: int
    values: Values | None


@dataclass
class Snapshot:
    number: int
    rows: dict[int, Values]


@dataclass
class Cursor:
    """A read that goes on while the world changes; ``rows`` is what it has to see."""

    source: Iterator[dict[int, Values]]
    rows: dict[int, Values]
    seen_changes: int
    snapshot: int
    transaction: int
    invalid: bool = False
    found: dict[int, Values] = field(default_factory=dict)


class Member:
    """A session, and what the model knows of its transaction."""

    def __init__(self, connection: Connection, isolation: str) -> None:
        self.db = connection
        self.isolation = isolation
        self.transaction = 0
        self.cursors: list[Cursor] = []
        self._reset()

    def _reset(self) -> None:
        self.log: list[Change] = []
        self.held: set[int] = set()
        self.savepoints: list[tuple[str, int, set[int]]] = []
        self.snapshot: Snapshot | None = None

    @property
    def autocommit(self) -> bool:
        return self.db.autocommit

    def own(self) -> dict[int, Values | None]:
        return {change.key: change.values for change in self.log}

    def holds(self, key: int) -> bool:
        return key in self.held or any(change.key == key for change in self.log)

    def take_back_to(self, mark: int) -> list[Change]:
        gone = self.log[mark:]
        if gone:
            for cursor in self.cursors:
                if cursor.transaction == self.transaction and cursor.seen_changes > mark:
                    cursor.invalid = True
        del self.log[mark:]
        return gone

    def end(self) -> None:
        self.transaction += 1
        self._reset()


class World:
    """One database with a pool of sessions, for many histories."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.kinds = ["read committed"] * 4 + ["repeatable read"] * 4 + ["autocommit"] * 2
        self.pool = [self._connect(kind) for kind in self.kinds]
        self.hub = self.pool[0]._database.transactions
        self.hub.stop()  # GC is a step of the history, so that a seed is all it takes to see one again

    def _connect(self, kind: str) -> Connection:
        autocommit = kind == "autocommit"
        isolation = "read committed" if autocommit else kind
        return gmdb.connect(self.path, isolation=isolation, autocommit=autocommit, lock_timeout=0)

    def close(self) -> None:
        for connection in self.pool:
            connection.close()
