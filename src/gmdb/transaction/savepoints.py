"""Savepoints: named places in a transaction to which it can return."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from gmdb.errors import NoSuchSavepoint

if TYPE_CHECKING:
    from gmdb.transaction.session import Session


class HasSavepoints:
    """The part of a session that knows the savepoints of its transaction."""

    def _forget_savepoints(self) -> None:
        self._savepoints: list[tuple[str, int]] = []  # name, undo records at the time

    def savepoint(self, name: str) -> None:
        session = cast("Session", self)
        session.require_open()
        self._savepoints.append((name, session.mark()))

    def rollback_to(self, name: str) -> None:
        """Take back all that was done since the savepoint; it stays set."""
        at = self._find_savepoint(name)
        cast("Session", self).take_back_to(self._savepoints[at][1])
        del self._savepoints[at + 1 :]

    def release_savepoint(self, name: str) -> None:
        del self._savepoints[self._find_savepoint(name) :]

    def _find_savepoint(self, name: str) -> int:
        cast("Session", self).require_open()
        for at in reversed(range(len(self._savepoints))):
            if self._savepoints[at][0] == name:
                return at
        raise NoSuchSavepoint(f"no savepoint {name} is set in this transaction")
