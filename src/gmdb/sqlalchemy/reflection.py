"""What tables there are, for SQLAlchemy's inspector: read off gmdb's own definitions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sqlalchemy.engine import Connection as SqlConnection
from sqlalchemy.engine import reflection

from gmdb.catalog.schema import CHECK, PRIMARY_KEY, UNIQUE, Constraint, TableDefinition
from gmdb.errors import NoSuchTable
from gmdb.format.columns import Column
from gmdb.sqlalchemy.types import reflected
from sqlalchemy import exc

DEFAULT_SCHEMA: str | None = None  # there is but one, without a name


class Reflection:
    """The dialect's methods that find definitions out; there are no schemas, views or sequences."""

    def _definition(self, connection: SqlConnection, name: str, schema: str | None) -> TableDefinition:
        database: Any = connection.connection.driver_connection
        try:
            if schema != DEFAULT_SCHEMA or name.startswith("sys_"):
                raise NoSuchTable(name)
            return database.table(name)
        except NoSuchTable:
            raise exc.NoSuchTableError(name if schema is None else f"{schema}.{name}") from None

    def _constraints(self, connection: SqlConnection, name: str, schema: str | None, kind: str) -> Iterator[Constraint]:
        found = self._definition(connection, name, schema).constraints
        return iter(sorted((one for one in found if one.kind == kind), key=lambda one: one.name))

    @reflection.cache
    def get_table_names(self, connection: SqlConnection, schema: str | None = None, **_given: Any) -> list[str]:
        database: Any = connection.connection.driver_connection
        return list(database.tables()) if schema == DEFAULT_SCHEMA else []

    def get_view_names(self, *_given: Any, **_more: Any) -> list[str]:
        return []

    get_temp_table_names = get_temp_view_names = get_sequence_names = get_schema_names = get_view_names

    @reflection.cache
    def has_table(self, connection: SqlConnection, table_name: str, schema: str | None = None, **_given: Any) -> bool:
        try:
            self._definition(connection, table_name, schema)
        except exc.NoSuchTableError:
            return False
        return True

    def has_sequence(self, *_given: Any, **_more: Any) -> bool:
        return False

    @reflection.cache
    def get_columns(
        self, connection: SqlConnection, table_name: str, schema: str | None = None, **_given: Any
    ) -> list[dict[str, Any]]:
        return [_column(column) for column in self._definition(connection, table_name, schema).columns]

    @reflection.cache
    def get_pk_constraint(
        self, connection: SqlConnection, table_name: str, schema: str | None = None, **_given: Any
    ) -> dict[str, Any]:
        for key in self._constraints(connection, table_name, schema, PRIMARY_KEY):
            return {"name": key.name, "constrained_columns": list(key.columns)}
        return {"name": None, "constrained_columns": []}

    @reflection.cache
    def get_unique_constraints(
        self, connection: SqlConnection, table_name: str, schema: str | None = None, **_given: Any
    ) -> list[dict[str, Any]]:
        found = self._constraints(connection, table_name, schema, UNIQUE)
        return [{"name": one.name, "column_names": list(one.columns)} for one in found]

    @reflection.cache
    def get_check_constraints(
        self, connection: SqlConnection, table_name: str, schema: str | None = None, **_given: Any
    ) -> list[dict[str, Any]]:
        found = self._constraints(connection, table_name, schema, CHECK)
        return [{"name": one.name, "sqltext": one.text} for one in found]

    @reflection.cache
    def get_foreign_keys(
        self, connection: SqlConnection, table_name: str, schema: str | None = None, **_given: Any
    ) -> list[dict[str, Any]]:
        self._definition(connection, table_name, schema)
        return []

    @reflection.cache
    def get_indexes(
        self, connection: SqlConnection, table_name: str, schema: str | None = None, **_given: Any
    ) -> list[dict[str, Any]]:
        """All indexes but the primary key's; one that keeps a unique constraint says so."""
        table = self._definition(connection, table_name, schema)
        kinds = {one.name: one.kind for one in table.constraints}
        found = []
        for index in sorted(table.indexes, key=lambda one: one.name):
            if kinds.get(index.name) == PRIMARY_KEY:
                continue
            names = [table.columns[n].name for n in index.positions]
            made: dict[str, Any] = {"name": index.name, "column_names": names, "unique": index.unique}
            if kinds.get(index.name) == UNIQUE:
                made["duplicates_constraint"] = index.name
            if index.using != "btree":
                made["dialect_options"] = {"gmdb_using": index.using}
            found.append(made)
        return found

    def get_table_comment(self, *_given: Any, **_more: Any) -> Any:
        raise NotImplementedError  # as SQLAlchemy wants to be told that there are no comments


def _column(column: Column) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": column.name,
        "type": reflected(column.type),
        "nullable": column.nullable,
        "default": column.default,
        "autoincrement": column.identity is not None,
    }
    if column.identity is not None:
        found["identity"] = {"always": column.identity == "always", "start": 1, "increment": 1}
    return found
