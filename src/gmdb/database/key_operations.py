"""The part of a connection that is about constraints, and about sequences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gmdb.database.operations import Again, operation
from gmdb.errors import InterfaceError

if TYPE_CHECKING:
    from gmdb.database.engine import Database
    from gmdb.transaction.session import Session


class KeyOperations:
    session: Session
    _database: Database

    @operation(writes=True, again=Again.UNCOMMITTED)
    def drop_constraint(self, table: str, name: str, *, cascade: bool = False) -> None:
        """Remove a constraint, and the index that came with it.

        Foreign keys that refer to what it keeps are in the way; with ``cascade``, they go as well.
        """
        with self._database.define(self.session) as change:
            change.drop_constraint(table, name, cascade)

    @operation(writes=True, again=Again.UNCOMMITTED)
    def validate_constraint(self, table: str, name: str) -> None:
        """Look whether rows fulfil a foreign key that was added as not valid; from then on it is valid.

        Of a check, this says that the caller has looked.
        """
        with self._database.define(self.session) as change:
            change.validate_constraint(table, name)

    @operation(writes=True, again=Again.UNCOMMITTED)
    def _release_columns(self, table: str, columns: Sequence[str], *, cascade: bool) -> None:
        """Let go of what depends on columns that are about to be dropped."""
        with self._database.define(self.session) as change:
            change.release_columns(table, columns, cascade)

    @operation()
    def set_constraints(self, names: Sequence[str] | None, *, deferred: bool) -> None:
        """Check foreign keys that are deferrable, or all (None), at the commit or from now on after each statement.

        It lasts until the transaction ends.  What was put off until then is checked at once if it is no more.
        """
        checks = self._database.catalog.foreign_key_checks(self.session)
        with self.session.statement():
            checks.defer(names, deferred)

    # ---- sequences

    @operation(writes=True, again=Again.UNCOMMITTED)
    def create_sequence(self, name: str, *, type: str = "BIGINT", owner: Sequence[str] = (), **options: Any) -> None:
        """Add a sequence: ``create_sequence("s", start=10, increment=-1, low=1, high=10, cycle=True, cache=5)``.

        ``type``: SMALLINT, INT or BIGINT, which bounds its numbers.  ``owner``: a table and its column, with which it
        goes.  Its definition belongs to the transaction; the numbers that it hands out do not.
        """
        from gmdb.tables.catalog.counters import Counting

        self._know_own_schema(name)  # type: ignore[attr-defined]
        with self._database.define(self.session) as change:
            table, column = owner or ("", "")
            if table:
                table = self._database.catalog.table(table, self.session).name
            change.sequences.create(name, type, Counting.of(type, **options), (table, column))

    @operation(writes=True)
    def alter_sequence(
        self,
        name: str,
        *,
        type: str | None = None,
        owner: Sequence[str] | None = None,
        restart: int | bool = False,
        **options: Any,
    ) -> None:
        """Have a sequence count in another way; what is not named stays.  ``owner``: an empty one for none.

        ``restart``: it goes on with this number, or (True) with its first one, and that is not part of the transaction.
        """
        with self._database.define(self.session) as change:
            self._database.alter_sequence(change, name, type, owner, restart, options)

    @operation(writes=True, again=Again.UNCOMMITTED)
    def drop_sequence(self, name: str, *more: str, cascade: bool = False) -> None:
        """Remove sequences; with ``cascade`` columns that get their numbers by default lose that default."""
        with self._database.define(self.session) as change:
            change.sequences.drop([name, *more], cascade)

    @operation(writes=True, again=Again.UNCOMMITTED)
    def rename_sequence(self, name: str, new_name: str) -> None:
        """Give a sequence another name."""
        with self._database.define(self.session) as change:
            change.sequences.rename(name, new_name)

    @operation()
    def sequences(self) -> list[str]:
        """The names of the sequences."""
        return self._database.catalog.sequences(self.session)

    @operation(writes=True, again=Again.ALWAYS)
    def nextval(self, sequence: str) -> int:
        """The next number of a sequence.  Others get other ones, even if this transaction is rolled back."""
        return self._database.catalog.next_values(sequence, 1, self.session)[0]

    @operation(writes=True, again=Again.ALWAYS)
    def setval(self, sequence: str, value: int, is_called: bool = True) -> int:
        """Have a sequence go on behind a number, or, if that was not handed out, with it."""
        return self._database.set_sequence(sequence, value, is_called, self.session)

    @operation()
    def currval(self, sequence: str) -> int:
        """The number that this connection got from a sequence last."""
        definition = self._database.catalog.sequence(sequence, self.session)
        if definition.number not in self.session.last_values:
            raise InterfaceError(f"this connection has got no number of sequence {definition.name} yet")
        return self.session.last_values[definition.number]

    @operation()
    def lastval(self) -> int:
        """The number that this connection got last, of any sequence."""
        if self.session.last_sequence not in self.session.last_values:
            raise InterfaceError("this connection has got no number of a sequence yet")
        return self.session.last_values[self.session.last_sequence]

    @operation(writes=True, again=Again.ALWAYS)
    def _next_numbers(self, table: str, column: str, count: int) -> list[int]:
        """Numbers for an identity column, or for one that gets those of a sequence."""
        return self._database.next_numbers(table, column, count, self.session)
