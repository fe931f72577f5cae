"""Changes of schemas, as part of a session's transaction.

Invariants
 1. A session that puts something into a schema shares the schema until its transaction ends, and one that drops or
    renames a schema has it alone: nothing is ever in a schema that there is not.
 2. What is temporary is in a schema of its session's own, which needs no definition and goes with the session.
Not here: what full names mean (names.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gmdb.errors import DependentObjects, NoSuchSchema, SchemaError, SchemaExists
from gmdb.process.late_dataclasses import replace
from gmdb.tables.catalog.names import PUBLIC, TEMPORARY, full_name, is_temporary
from gmdb.tables.catalog.schema import SchemaDefinition, TableDefinition, require_name
from gmdb.tables.catalog.tables import Catalog
from gmdb.transaction.session import Session
from gmdb.transaction.table_locks import Name

if TYPE_CHECKING:
    from gmdb.tables.catalog.changes import DefinitionChanges

_SHOWN = 5  # names in a message


class SchemaChanges:
    def __init__(self, catalog: Catalog, session: Session, changes: DefinitionChanges) -> None:
        self._catalog, self._session, self._changes = catalog, session, changes
        self._system = catalog.system(session)

    def create(self, name: str) -> None:
        self._take_new_name(name)
        schema = SchemaDefinition(name, self._catalog.new_number())
        self._system.enter_schema(schema)
        self._session.change_definitions({schema.number: schema})

    def drop(self, name: str, cascade: bool) -> None:
        """Remove a schema, and with ``cascade`` all that is in it and what depends on that."""
        schema = self._take(name)
        contents = self._contents(schema.name)
        if contents and not cascade:
            shown = ", ".join(contents[:_SHOWN]) + (" and others" if len(contents) > _SHOWN else "")
            raise DependentObjects(f"schema {schema.name} has {shown}; drop that first, or write CASCADE")
        self.empty(schema.name)
        self._system.remove_schema(schema.number)
        self._session.change_definitions({schema.number: None})

    def empty(self, name: str) -> None:
        """Remove all that is in a schema, and what depends on it."""
        session, catalog = self._session, self._catalog
        for view in self._views(name):
            if view in catalog.views_of(session):  # not gone with another one
                self._changes.drop_view(view, cascade=True)
        tables = [one.name for one in catalog.tables_of(session).values() if one.schema == name and not one.sequence]
        if tables:
            self._changes.drop_tables(tables, cascade=True)
        sequences = [one.name for one in catalog.tables_of(session).values() if one.schema == name]
        self._changes.sequences.drop(sequences, cascade=True)

    def rename(self, name: str, new_name: str) -> None:
        """Give a schema another name, and so all that is in it."""
        schema = self._take(name)
        self._take_new_name(new_name)
        renamed = replace(schema, name=new_name)
        self._system.change_schema(renamed)
        self._session.change_definitions({schema.number: renamed})
        catalog, session = self._catalog, self._session
        for table in catalog.tables_of(session).values():
            if table.schema == schema.name and not table.sequence:
                self._changes.rename_table(table.name, full_name(new_name, table.own_name))
        for view in self._views(schema.name):
            own = catalog.view(view, session).own_name
            self._changes.rename_view(view, full_name(new_name, own))
        for sequence in list(catalog.tables_of(session).values()):
            if sequence.schema == schema.name:
                self._changes.sequences.rename(sequence.name, full_name(new_name, sequence.own_name))

    def comment(self, name: str, comment: str | None) -> None:
        schema = replace(self._take(name), comment=comment)
        self._system.change_schema(schema)
        self._session.change_definitions({schema.number: schema})

    def place_for(self, name: str) -> tuple[str, str]:
        """The schema of a full name that something is to have, held, and that name."""
        schema, own = self._catalog.parts_of(name, self._session)
        require_name("table", own)
        if is_temporary(own.split(".")[0]) or own.startswith(f"{TEMPORARY}."):
            raise SchemaError(f"{name}: names that begin with {TEMPORARY} are those of temporary tables")
        if schema == PUBLIC and "." in own:  # nobody makes a schema meanwhile in which it would seem to be
            self._session.take_alone(Name("schema", own.split(".")[0].lower()))
            self._session.see_newest()
            if self._catalog.parts_of(name, self._session)[0] != PUBLIC:
                return self.place_for(name)
        self.share(schema)
        return schema, full_name(schema, own)

    def share(self, name: str) -> None:
        """Hold a schema against being dropped or renamed, since something is put into it."""
        if name == PUBLIC or is_temporary(name):
            return
        schema = self._catalog.schema(name, self._session)
        self._session.share_table(schema.number, f"schema {name}")
        self._session.see_newest()
        now = self._catalog.schemas_of(self._session).get(name)
        if now is None or now.number != schema.number:
            raise NoSuchSchema(f"schema {name} was dropped")

    # ---- temporary tables

    def end_with_transactions(self, table: TableDefinition) -> None:
        """Have the session empty a new table, or drop it, when its transactions commit."""
        if table.on_commit not in ("delete", "drop"):
            raise SchemaError(f"table {table.name}: a commit does not {table.on_commit!r} its rows")
        if not is_temporary(table.schema):
            raise SchemaError(f"table {table.name} is not temporary: ON COMMIT is for temporary tables only")
        catalog, changes = self._catalog, type(self._changes)
        self._session.at_commit = lambda session: changes(catalog, session).schemas.settle_temporary()

    def settle_temporary(self) -> None:
        """The transaction is about to commit: empty temporary tables that it has used, or drop them."""
        session = self._session
        own = [one for one in self._catalog.tables_of(session).values() if one.schema == session.temporary_schema]
        new = session.definitions.now  # what a savepoint took back is in use, too, and held
        used = [one for one in own if one.number in new or session.holds(one.number)]
        emptied = [one.name for one in used if one.on_commit == "delete"]
        dropped = [one.name for one in own if one.on_commit == "drop"]
        if dropped:
            self._changes.drop_tables(dropped, cascade=True)
        if emptied:
            self._changes.truncate_tables(emptied)

    # ---- shared parts

    def _take(self, name: str) -> SchemaDefinition:
        """Take a schema alone; returns its definition, as it is then."""
        if name == PUBLIC:
            raise SchemaError(f"schema {PUBLIC} is always there, under this name")
        while True:
            schema = self._catalog.schema(name, self._session)
            self._session.take_alone(schema.number, f"schema {schema.name}")
            self._session.take_alone(Name("schema", schema.name.lower()))
            self._session.see_newest()
            now = self._catalog.schemas_of(self._session).get(schema.name)
            if now is not None and now.number == schema.number:
                return now

    def _take_new_name(self, name: str) -> None:
        require_name("schema", name)
        if name.startswith("pg_") or name == "information_schema":
            raise SchemaError(f"a schema cannot be called {name}: such names are those of the system's schemas")
        if "." in name:
            raise SchemaError(f"a schema cannot be called {name}: a dot stands between its name and those within it")
        self._session.take_alone(Name("schema", name.lower()))
        self._session.see_newest()
        for taken in (PUBLIC, *self._catalog.schemas_of(self._session)):
            if taken.lower() == name.lower():
                raise SchemaExists(f"there is a schema {taken} already")
        for taken in (*self._catalog.tables_of(self._session), *self._catalog.views_of(self._session)):
            if taken.startswith(f"{name}."):
                raise SchemaError(f"a schema cannot be called {name}: there is a table {taken} in schema {PUBLIC}")

    def _views(self, schema: str) -> list[str]:
        return sorted(one.name for one in self._catalog.views_of(self._session).values() if one.schema == schema)

    def _contents(self, schema: str) -> list[str]:
        """The names of all that is in a schema."""
        tables = self._catalog.tables_of(self._session).values()
        return [*sorted(one.name for one in tables if one.schema == schema), *self._views(schema)]
