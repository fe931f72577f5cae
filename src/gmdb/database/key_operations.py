"""The part of a connection that is about constraints which are checked later than rows are changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gmdb.database.operations import operation

if TYPE_CHECKING:
    from gmdb.database.engine import Database
    from gmdb.transaction.session import Session


class KeyOperations:
    session: Session
    _database: Database

    @operation(writes=True)
    def drop_constraint(self, table: str, name: str, *, cascade: bool = False) -> None:
        """Remove a constraint, and the index that came with it.

        Foreign keys that refer to what it keeps are in the way; with ``cascade``, they go as well.
        """
        with self._database.define(self.session) as change:
            change.drop_constraint(table, name, cascade)

    @operation(writes=True)
    def validate_constraint(self, table: str, name: str) -> None:
        """Look whether rows fulfil a foreign key that was added as not valid; from then on it is valid.

        Of a check, this says that the caller has looked.
        """
        with self._database.define(self.session) as change:
            change.validate_constraint(table, name)

    @operation()
    def set_constraints(self, names: Sequence[str] | None, *, deferred: bool) -> None:
        """Check foreign keys that are deferrable, or all (None), at the commit or from now on after each statement.

        It lasts until the transaction ends.  What was put off until then is checked at once if it is no more.
        """
        checks = self._database.catalog.foreign_key_checks(self.session)
        with self.session.statement():
            checks.defer(names, deferred)
