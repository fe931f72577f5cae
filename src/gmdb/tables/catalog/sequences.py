"""Changes of sequences: their definitions, which belong to the transaction; the numbers, which do not.

A sequence is kept as a table without rows, so that its name is among those of tables and its definition comes, changes
and goes as theirs do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gmdb.errors import SchemaError
from gmdb.format.address import MAIN_SPACE
from gmdb.process.late_dataclasses import replace
from gmdb.tables.catalog.counters import Counting
from gmdb.tables.catalog.names import full_name
from gmdb.tables.catalog.schema import SEQUENCE_COLUMN, NumberSequence, TableDefinition, make_columns
from gmdb.tables.catalog.tables import Catalog
from gmdb.transaction.session import Session

if TYPE_CHECKING:
    from gmdb.tables.catalog.changes import DefinitionChanges


class SequenceChanges:
    def __init__(self, catalog: Catalog, session: Session, changes: DefinitionChanges) -> None:
        self._catalog, self._session, self._changes = catalog, session, changes
        self._system = catalog.system(session)

    def create(self, name: str, type_: str, counting: Counting, owner: tuple[str, str]) -> None:
        """Add a sequence, which goes with a column of a table if it has an owner."""
        counter = self._catalog.new_number()
        self._catalog.counters.create(counter, counting.start)
        sequence = NumberSequence(counter, type_, *owner, counting.plain)
        columns = make_columns(name, [SEQUENCE_COLUMN])
        self._changes.create_table(name, columns, (), MAIN_SPACE, 0, sequence.plain)

    def alter(
        self, name: str, type_: str, counting: Counting, owner: tuple[str, str] | None, restart: int | None
    ) -> None:
        """Let a sequence count in another way; ``restart`` is no part of the transaction."""
        definition = self._take(name)
        before = definition.counts
        table, column = (before.owner, before.column) if owner is None else owner
        self._keep(definition, before._replace(type=type_, owner=table, column=column, numbers=counting.plain))
        self._catalog.counters.restart(before.counter, restart)

    def drop(self, names: Sequence[str], cascade: bool) -> None:
        """Remove sequences; columns that have their numbers by default are in the way, or lose that default."""
        for name in names:
            definition = self._take(name)
            for table, column in self._users(definition.name):
                if not cascade:
                    what = f"column {column} of table {table.name} gets its numbers"
                    raise SchemaError(f"sequence {name} cannot go: {what}; drop its default first, or say CASCADE")
                self._changes.alter_column(table.name, column, {"default": None})
            self._changes._drop_table(definition)

    def rename(self, name: str, new_name: str) -> None:
        definition = self._take(name)
        users = self._users(definition.name)
        new_name = self._changes.rename_definition(definition, new_name)
        for table, column in users:
            changes = {"default": default_of(new_name), "sequence": new_name}
            self._changes.alter_column(table.name, column, changes)

    # ---- of tables that change

    def drop_owned(self, table: str, column: str = "") -> None:
        owned = self._owned(table)
        self.drop([one.name for one in owned if column in ("", one.counts.column)], cascade=True)

    def restart_owned(self, table: str) -> None:
        for one in self._owned(table):
            self._catalog.counters.restart(one.counts.counter, Counting(*one.counts.numbers).start)

    def rename_owner(self, table: str, new_table: str, column: str = "", new_column: str = "") -> None:
        for one in self._owned(table):
            owned = one.counts
            if column in ("", owned.column):
                definition = self._take(one.name)
                self._keep(definition, owned._replace(owner=new_table, column=new_column or owned.column))

    def move_owned(self, table: str, schema: str) -> None:
        """A table has come into another schema: its sequences follow."""
        for one in self._owned(table):
            self.rename(one.name, full_name(schema, one.own_name))

    # ---- shared parts

    def _take(self, name: str) -> TableDefinition:
        return self._changes._take(name, is_sequence=True)

    def _keep(self, definition: TableDefinition, sequence: NumberSequence) -> None:
        definition = replace(definition, sequence=sequence.plain)
        self._system.change_table(definition)
        self._changes._change(definition)

    def _owned(self, table: str) -> list[TableDefinition]:
        known = self._catalog.tables_of(self._session).values()
        return [one for one in known if one.sequence and one.counts.owner == table]

    def _users(self, sequence: str) -> list[tuple[TableDefinition, str]]:
        """The columns that have a sequence's numbers by default."""
        known: Any = self._catalog.tables_of(self._session).values()
        return [(table, one.name) for table in known for one in table.columns if one.sequence == sequence]


def default_of(sequence: str) -> str:
    """The default of a column that gets a sequence's numbers, as SQL writes it."""
    return f"nextval('{_written(sequence)}')"


def _written(sequence: str) -> str:
    """A full name of a sequence, as it stands in a text that SQL reads."""
    parts = [part.replace("'", "''") for part in sequence.split(".", 1)]
    return ".".join(part if part == part.lower() and part.isidentifier() else f'"{part}"' for part in parts)
