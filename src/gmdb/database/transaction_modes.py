"""What a connection's transactions may: their isolation, and whether they change anything."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gmdb.database.operations import operation

if TYPE_CHECKING:
    from gmdb.transaction.session import Session


class HasTransactionModes:
    """The part of a connection that chooses what its transactions may."""

    session: Session

    @operation()
    def set_transaction(self, *, isolation: str | None = None, read_only: bool | None = None) -> None:
        """Choose for the transaction that begins next, or is open and has done nothing yet; None: as it is.

        One that is ``read_only`` refuses changes by ``ReadOnlyTransaction``.
        """
        self.session.set_transaction(isolation, read_only)

    @operation()
    def set_all_transactions(self, *, isolation: str | None = None, read_only: bool | None = None) -> None:
        """Choose for all transactions that begin from now on; None: as it is."""
        self.session.set_transactions(isolation, read_only)
