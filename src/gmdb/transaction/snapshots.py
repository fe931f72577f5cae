"""Snapshots in use, and the oldest of them: what they might need is kept.

Invariants
 1. ``oldest`` in the global area is never newer than a snapshot in use that was not cancelled.
 2. A reader by a cancelled snapshot raises before it returns anything that it read.
"""

from __future__ import annotations

from gmdb.errors import Error, SchemaError, SnapshotTooOld
from gmdb.kernel.read.visibility import SNAPSHOT
from gmdb.storage.memory import numbers
from gmdb.transaction.lock_area import TransactionMemory

ISOLATION_LEVELS = ("read committed", "repeatable read")  # a snapshot for a statement, or for the transaction
NO_FORM = numbers(())
OWN = SNAPSHOT.names.index("transaction")  # in the form: the reader's own transaction


def require_level(isolation: str) -> None:
    if isolation not in ISOLATION_LEVELS:
        raise SchemaError(f"isolation {isolation!r} is not one of {', '.join(ISOLATION_LEVELS)}")


class Snapshot:
    """One instant: the commits up to ``scn``.  Held until ``release``."""

    def __init__(self, registry: Snapshots, scn: int, undo_mark: int = 0) -> None:
        self._registry = registry
        self.scn = scn
        self.undo_mark = undo_mark  # how many of the session's own changes it sees
        self.form = NO_FORM  # as kernels read it, if a cursor uses it
        self._cancelled: Error | None = None

    def cancel(self, reason: Error) -> None:
        """Have ``check`` raise ``reason`` from now on."""
        self._cancelled = reason
        self._registry.remove(self)

    def check(self) -> None:
        if self._cancelled is not None:
            raise self._cancelled

    def release(self) -> None:
        self._registry.remove(self)


class Snapshots:
    """The snapshots in use.  The caller holds the store's guard."""

    def __init__(self, memory: TransactionMemory) -> None:
        self._memory = memory
        self._held: dict[int, Snapshot] = {}

    def take(self, scn: int | None = None, undo_mark: int = 0) -> Snapshot:
        """The instant of the newest commit, or one that another snapshot holds."""
        snapshot = Snapshot(self, self._memory.scn if scn is None else scn, undo_mark)
        self._held[id(snapshot)] = snapshot
        return snapshot

    def remove(self, snapshot: Snapshot) -> None:
        self._held.pop(id(snapshot), None)

    def oldest(self) -> int:
        """The commit up to which everyone sees everything; kernels get it, too."""
        scn = min((s.scn for s in list(self._held.values())), default=self._memory.scn)
        self._memory.set("oldest", scn)
        return scn

    def cancel_oldest(self) -> bool:
        """Give up the oldest snapshot, if it holds anything back."""
        oldest = min(self._held.values(), key=lambda s: s.scn, default=None)
        if oldest is None or oldest.scn == self._memory.scn:
            return False
        oldest.cancel(SnapshotTooOld("the snapshot is too old: versions it needs were given up; start over"))
        return True

    def held(self) -> list[Snapshot]:
        return list(self._held.values())
