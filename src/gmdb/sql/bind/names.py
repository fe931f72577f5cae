"""Names of tables, views, sequences and indexes: what each means, where it stands in a statement.

A name with a schema before it is looked up there alone; one without is looked up in the schemas of the *path*, one
after the other: the session's temporary tables, what PostgreSQL has in ``pg_catalog``, and ``search_path``.  Within a
view's text the path is ``public``, wherever the view is read.  What is found has a full name (tables/catalog/names.py),
which is all that the rest of gmdb knows.

A statement that is prepared notes the full names that came before what it means: were there something of such a name,
it would mean that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from sqlglot import exp

from gmdb.errors import NoSuchIndex, NoSuchSchema, NoSuchSequence, NoSuchTable, SchemaError, UnsupportedExpression
from gmdb.sql.bind.scope import nearest, where
from gmdb.sql.bind.standard_views import standard_names, standard_view
from gmdb.sql.dialect import place
from gmdb.sql.syntax import INFORMATION_SCHEMA, PG_CATALOG, Written, is_system_name
from gmdb.tables.catalog.names import PUBLIC, TEMPORARY, full_name
from gmdb.tables.catalog.schema import TableDefinition
from gmdb.tables.catalog.view_definitions import ViewDefinition, no_table_but_a_view

if TYPE_CHECKING:
    from gmdb.database.connection import Connection

SYSTEM_SCHEMAS = (PG_CATALOG, INFORMATION_SCHEMA)
Relation = TableDefinition | ViewDefinition


class Names:
    """What names mean for a connection, now."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._session = connection.session

    # ---- where a name is looked up

    def path(self, in_view: bool = False) -> list[str]:
        """The schemas in which a name without one is looked up, also if there are no such schemas."""
        own = self._session.temporary_schema
        schemas = [PUBLIC] if in_view else [*((own,) if own else ()), *self._session.search_path]
        if PG_CATALOG not in schemas:
            schemas.insert(1 if own and not in_view else 0, PG_CATALOG)
        return schemas

    def _schemas(self, written: Written, in_view: bool = False) -> list[str]:
        schema = written.schema
        if schema == TEMPORARY:
            return [self._session.temporary_schema or TEMPORARY]
        return [schema] if schema else self.path(in_view)

    def full_names(self, written: Written, in_view: bool = False) -> list[str]:
        """What a name may mean of all that was created, the first meaning first."""
        schemas = self._schemas(written, in_view)
        return [full_name(schema, written.name) for schema in schemas if schema not in SYSTEM_SCHEMAS]

    # ---- what there is

    def find(self, written: Written, in_view: bool = False, passed: set[str] | None = None) -> Relation | None:
        """The table or view of a name, or the view of ``pg_catalog`` or ``information_schema``; None: there is none.

        ``passed`` gets the full names that came before.
        """
        for schema in self._schemas(written, in_view):
            if schema in SYSTEM_SCHEMAS:
                view = standard_view(schema, written.name)
                if view is not None:
                    return view
                continue
            name = full_name(schema, written.name)
            found = self._connection._relation(name)
            if found is not None and found.schema == schema:
                return found
            if passed is not None and not written.schema:
                passed.add(name)
        return None

    def is_there(self, name: str) -> bool:
        """Whether there is something of a full name."""
        return self._connection._relation(name) is not None

    def table(self, written: Written, node: exp.Expr, others: Sequence[str] = ()) -> TableDefinition:
        """A table, for what is done to tables alone."""
        found = self.find(written)
        if isinstance(found, TableDefinition):
            if found.sequence:
                raise SchemaError(f"{where(node)}{found.name} is a sequence, not a table")
            return found
        raise self.no_such_table(written, node, others)

    def view(self, written: Written) -> ViewDefinition | None:
        """A view that was created."""
        found = self.find(written)
        return found if isinstance(found, ViewDefinition) and found.number else None

    def sequence(self, written: Written) -> str:
        """The full name of a sequence."""
        found = self.find_sequence(written)
        if found is None:
            known = ", ".join(self._connection.sequences()) or "none yet"
            raise NoSuchSequence(f"there is no sequence {written}; the sequences are: {known}")
        return found

    def find_sequence(self, written: Written) -> str | None:
        known = set(self._connection.sequences())
        return next((name for name in self.full_names(written) if name in known), None)

    def index(self, written: Written) -> str:
        """The full name of an index, which there need not be."""
        names = self.full_names(written)
        for name in names:
            if self._connection._has_index(name):
                return name
        if written.schema and not self.has_schema(written.schema):
            raise NoSuchIndex(f"there is no index {written}, for there is no schema {written.schema}")
        return names[-1] if names else written.name

    def no_such_table(self, written: Written, node: exp.Expr, others: Sequence[str] = ()) -> Exception:
        """The error for a name that is that of no table."""
        found = self.find(written)
        if isinstance(found, ViewDefinition):
            return NoSuchTable(f"{where(node)}{no_table_but_a_view(str(written))}")
        if found is not None:
            return is_a_sequence(found, node)
        if written.schema in SYSTEM_SCHEMAS:
            hint = nearest(written.name, standard_names(written.schema))
            return NoSuchTable(f"{where(node)}there is no {written}{hint}")
        if written.schema and not self.has_schema(written.schema):
            hint = nearest(written.schema, self.schemas())
            return NoSuchTable(
                f"{where(node)}there is no table {written}, for there is no schema {written.schema}{hint}"
            )
        known = [*others, *self._connection.tables(), *self._connection.views()]
        hint = nearest(str(written), known) if known else "; there are no tables yet"
        return NoSuchTable(f"{where(node)}there is no table {written}{hint}")

    # ---- schemas

    def schemas(self) -> list[str]:
        return [PUBLIC, *self._connection.schemas(), *SYSTEM_SCHEMAS]

    def has_schema(self, name: str) -> bool:
        return name in (PUBLIC, *SYSTEM_SCHEMAS, TEMPORARY, self._session.temporary_schema) or (
            name in self._connection.schemas()
        )

    def current_schemas(self) -> Iterator[str]:
        """The schemas of ``search_path`` that there are."""
        own = self._session.temporary_schema
        for schema in self._session.search_path:
            name = own if schema == TEMPORARY else schema
            if name and self.has_schema(name):
                yield name

    def for_new(self, written: Written, node: exp.Expr, temporary: bool = False) -> str:
        """The full name that something new gets.  ``temporary``: as a part of the session alone."""
        if is_system_name(written.name):
            raise SchemaError(f"{written.name}: names that begin with sys_ are those of system tables")
        schema = self._schema_for_new(written, node, temporary)
        name = full_name(schema, written.name)
        if schema == PUBLIC and self._connection._parts_of(name)[0] != PUBLIC:
            message = f'"{written.name}" cannot be a name in {PUBLIC}: it would seem to be in a schema'
            raise SchemaError(f"{where(node)}{message}")
        return name

    def _schema_for_new(self, written: Written, node: exp.Expr, temporary: bool) -> str:
        own = (TEMPORARY, self._session.temporary_schema)
        schema = written.schema or ("" if not temporary else TEMPORARY) or next(self.current_schemas(), "")
        if not schema:
            raise NoSuchSchema(f"{where(node)}no schema of search_path is there, for {written.name} to be in")
        if schema in SYSTEM_SCHEMAS:
            raise UnsupportedExpression(f"what is in {schema} cannot be changed: {written}", *place(node))
        if temporary and schema not in own:
            raise SchemaError(f"{where(node)}{written} cannot be temporary in schema {schema}")
        if not self.has_schema(schema):
            hint = nearest(schema, self.schemas())
            raise NoSuchSchema(f"{where(node)}there is no schema {schema}{hint}")
        return self._connection._own_schema() if schema in own else schema


def as_sql(relation: Relation) -> str:
    """A table or a view as a statement names it, whatever the path is."""
    return ".".join(exp.to_identifier(part, quoted=True).sql() for part in (relation.schema, relation.own_name))


def is_a_sequence(found: Relation, node: exp.Expr) -> UnsupportedExpression:
    message = f"{found.name} is a sequence, not a table"
    return UnsupportedExpression(message, *place(node), "sys_sequences says how it stands")
