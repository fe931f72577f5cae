"""What a session's transactions may: their isolation, and whether they change anything; for one of them, or for all.

Invariants
 1. A transaction that is for reading only gets no slot, without which nothing is changed; so it becomes one before its
    first change, or not at all.
 2. What was set for one transaction ends with it, however it ends.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, cast

from gmdb.errors import Error, InterfaceError, ReadOnlyTransaction

if TYPE_CHECKING:
    from gmdb.transaction.session import Session


class HasModes:
    """The part of a session that knows what its transactions may."""

    is_read_only = False  # the transaction that is open, or begins next
    is_usually_read_only = False
    _isolation_after: str | None = None  # of the transactions behind one that has another

    @property
    def usual_isolation(self) -> str:
        return self._isolation_after or cast("Session", self).isolation

    @property
    def has_own_modes(self) -> bool:
        """Whether the transaction is not like the others."""
        return self._isolation_after is not None or self.is_read_only != self.is_usually_read_only

    def set_transaction(self, isolation: str | None, read_only: bool | None) -> None:
        """Choose for the transaction that is open and has done nothing yet, or begins next; None: as it is."""
        session = cast("Session", self)
        session.require_open()
        if session.autocommit:
            raise InterfaceError("every statement is a transaction of its own: begin one, and set it then")
        if read_only is not None and read_only != self.is_read_only and session.has_begun_work:
            raise InterfaceError("a transaction is for reading only, or not, before its first statement")
        if isolation is not None and isolation != session.isolation:
            usual = self.usual_isolation
            session.set_isolation(isolation)
            self._isolation_after = usual
        if read_only is not None:
            self.is_read_only = read_only

    def set_transactions(self, isolation: str | None, read_only: bool | None) -> None:
        """Choose for all transactions that begin from now on; None: as it is."""
        session = cast("Session", self)
        session.require_open()
        if session.in_transaction:
            raise InterfaceError("what transactions are like cannot change within one: commit or roll back first")
        if isolation is not None:
            session.set_isolation(isolation)
        if read_only is not None:
            self.is_read_only = self.is_usually_read_only = read_only

    def _end_modes(self) -> None:
        """The transaction is over: the next one is as usual."""
        session = cast("Session", self)
        self.is_read_only = self.is_usually_read_only
        isolation, self._isolation_after = self._isolation_after, None
        if isolation is not None and not session.closed and not session.closing:
            with suppress(Error):  # the database is closed, and so is the session
                session.set_isolation(isolation)

    def _require_changing(self) -> None:
        if self.is_read_only:
            raise ReadOnlyTransaction("the transaction is for reading only; what it may do is set when it begins")
