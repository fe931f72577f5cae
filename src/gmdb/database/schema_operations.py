"""The part of a connection that is about schemas, and about what full names there are (tables/catalog/names.py)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gmdb.database.operations import Again, operation
from gmdb.tables.catalog.names import TEMPORARY, full_name, temporary_schema
from gmdb.tables.catalog.schema import FIRST_USER_ID

if TYPE_CHECKING:
    from gmdb.database.engine import Database
    from gmdb.tables.catalog.schema import SchemaDefinition, TableDefinition
    from gmdb.tables.catalog.view_definitions import ViewDefinition
    from gmdb.transaction.session import Session


class HasSchemas:
    session: Session
    _database: Database

    @operation()
    def schemas(self) -> list[str]:
        """The names of the schemas that were created; ``public`` is always there."""
        return sorted(self._database.catalog.schemas_of(self.session))

    @operation(writes=True, again=Again.UNCOMMITTED)
    def create_schema(self, name: str) -> None:
        """Add a schema, whose name stands before those of the tables in it: ``create_table("s.t", …)``."""
        with self._database.define(self.session) as change:
            change.schemas.create(name)

    @operation(writes=True, again=Again.UNCOMMITTED)
    def drop_schema(self, name: str, *more: str, cascade: bool = False) -> None:
        """Remove schemas that have nothing in them; with ``cascade``, what they have goes, and what depends on it."""
        with self._database.define(self.session) as change:
            for one in (name, *more):
                change.schemas.drop(one, cascade)

    @operation(writes=True, again=Again.UNCOMMITTED)
    def rename_schema(self, name: str, new_name: str) -> None:
        """Give a schema another name, and so all that is in it."""
        with self._database.define(self.session) as change:
            change.schemas.rename(name, new_name)

    # ---- for SQL

    def _schema(self, name: str) -> SchemaDefinition:
        return self._database.catalog.schema(name, self.session)

    def _relation(self, name: str) -> TableDefinition | ViewDefinition | None:
        """The table, sequence or view of a full name."""
        catalog = self._database.catalog
        return catalog.tables_of(self.session).get(name) or catalog.views_of(self.session).get(name)

    def _relations(self) -> list[TableDefinition | ViewDefinition]:
        """All tables, sequences and views that were created, as far as the session knows them."""
        catalog = self._database.catalog
        tables = (one for one in catalog.tables_of(self.session).values() if one.obj_id >= FIRST_USER_ID)
        return sorted((*tables, *catalog.views_of(self.session).values()), key=lambda one: one.number)

    def _definitions_seen(self) -> tuple[object, object]:
        """Objects that are others when the session knows of other definitions."""
        catalog = self._database.catalog
        return catalog.tables_of(self.session), catalog.views_of(self.session)

    def _has_index(self, name: str) -> bool:
        tables = self._database.catalog.tables_of(self.session).values()
        return any(full_name(table.schema, index.name) == name for table in tables for index in table.indexes)

    def _parts_of(self, name: str) -> tuple[str, str]:
        """The schema of a full name, which need not be that of anything, and the name within it."""
        return self._database.catalog.parts_of(name, self.session)

    def _own_schema(self) -> str:
        """The schema of the session's temporary tables."""
        session = self.session
        if not session.temporary_schema:
            session.require_writable()
            session.temporary_schema = temporary_schema(self._database.catalog.new_number())
            self._statements.forget()  # type: ignore[attr-defined]
        return session.temporary_schema

    def _know_own_schema(self, name: str) -> None:
        """Something of this full name is to be made."""
        if name.startswith(f"{TEMPORARY}."):
            self._own_schema()

    def _look_in(self, schemas: Sequence[str]) -> None:
        """Have SQL look for names without a schema in these schemas, from now on."""
        self.session.search_path = tuple(schemas)
        self._statements.forget()  # type: ignore[attr-defined]
