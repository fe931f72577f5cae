"""Tables and their parts for SQLAlchemy's inspector, from gmdb's own definitions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, time
from typing import Any

from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.engine import Connection as SqlConnection
from sqlalchemy.engine import reflection
from sqlalchemy.sql.compiler import GenericTypeCompiler

from gmdb.errors import NoSuchTable
from gmdb.format.columns import Column, ColumnType
from gmdb.tables.access.indexes import Direction
from gmdb.tables.catalog.counters import LARGEST_OF, counting_of
from gmdb.tables.catalog.schema import (
    CHECK,
    FOREIGN_KEY,
    NO_ACTION,
    PRIMARY_KEY,
    UNIQUE,
    Constraint,
    TableDefinition,
)
from sqlalchemy import Column as SqlAlchemyColumn
from sqlalchemy import exc
from sqlalchemy import types as sqltypes

# ---- Types: which of gmdb's stands for one of SQLAlchemy's, and what a column of a table is to SQLAlchemy.
#
# Not here: what values look like in gmdb (format/columns.py).

TEXT = "TEXT"
BYTES = "BYTEA"
_OLDER_TEXT, _OLDER_BYTEA = ColumnType("VARCHAR", 4000), ColumnType("VARBINARY", 32000)  # which these once were
TIME_LENGTH = 15  # of 23:59:59.999999
NUMERIC_DIGITS = (38, 10)  # of a NUMERIC without any: gmdb's have as many as they were defined with

Process = Callable[[Any], Any]


class Date(sqltypes.Date):
    """DATE takes the day of a datetime, as PostgreSQL does."""

    def bind_processor(self, dialect: Any) -> Process:  # noqa: ARG002
        return lambda value: value.date() if isinstance(value, datetime) else value


class DateTime(sqltypes.DateTime):
    """TIMESTAMP has no time zone: a time with one is kept, and given out, as UTC."""

    def bind_processor(self, dialect: Any) -> Process:  # noqa: ARG002
        def process(value: Any) -> Any:
            if isinstance(value, datetime):
                return value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)
            return datetime(value.year, value.month, value.day) if isinstance(value, date) else value

        return process

    def result_processor(self, dialect: Any, coltype: Any) -> Process | None:  # noqa: ARG002
        if not self.timezone:
            return None
        return lambda value: None if value is None else value.replace(tzinfo=UTC)


class Time(sqltypes.Time):
    """A time of day is a text of hours to microseconds, which sorts and compares as the time does."""

    def bind_processor(self, dialect: Any) -> Process:  # noqa: ARG002
        def process(value: Any) -> Any:
            if isinstance(value, datetime):
                value = value.time()
            return value.isoformat("microseconds") if isinstance(value, time) else value

        return process

    def result_processor(self, dialect: Any, coltype: Any) -> Process:  # noqa: ARG002
        return lambda value: None if value is None else time.fromisoformat(value)

    def literal_processor(self, dialect: Any) -> Process:
        bind = self.bind_processor(dialect)
        return lambda value: f"'{bind(value)}'"


class LargeBinary(sqltypes.LargeBinary):
    def literal_processor(self, dialect: Any) -> Process:  # noqa: ARG002
        return lambda value: f"'\\x{bytes(value).hex()}'::bytea"


def _called(kind: str) -> Any:
    def visit(self: Any, type_: Any, **options: Any) -> str:  # noqa: ARG001
        return kind

    return visit


class TypeCompiler(GenericTypeCompiler):
    """What a type is called in gmdb's SQL."""

    visit_TINYINT = _called("SMALLINT")  # noqa: N815
    visit_DOUBLE = visit_DOUBLE_PRECISION = visit_FLOAT = visit_REAL = _called("DOUBLE PRECISION")  # noqa: N815
    visit_DATETIME = visit_TIMESTAMP = _called("TIMESTAMP")  # noqa: N815
    visit_TIME = _called(f"VARCHAR({TIME_LENGTH})")  # noqa: N815
    visit_TEXT = visit_UnicodeText = _called(TEXT)  # noqa: N815
    visit_unicode_text = visit_text = _called(TEXT)
    visit_JSON = _called(TEXT)  # noqa: N815
    visit_CLOB = visit_NCLOB = _called("CLOB")  # noqa: N815
    visit_BLOB = _called("BLOB")  # noqa: N815
    visit_large_binary = _called(BYTES)
    visit_UUID = _called("CHAR(32)")  # noqa: N815

    def visit_NUMERIC(self, type_: Any, **options: Any) -> str:  # noqa: N802
        """A value without a number of digits carries its own; a column must have one."""
        precision, scale = type_.precision, type_.scale
        if precision is None and not isinstance(options.get("type_expression"), SqlAlchemyColumn):
            return "NUMERIC"
        if precision is None:
            precision, scale = NUMERIC_DIGITS[0], NUMERIC_DIGITS[1] if scale is None else scale
        return f"NUMERIC({precision}, {scale or 0})"

    visit_DECIMAL = visit_NUMERIC  # noqa: N815

    def visit_VARCHAR(self, type_: Any, **_given: Any) -> str:  # noqa: N802
        return f"VARCHAR({type_.length})" if type_.length else TEXT

    def visit_ARRAY(self, type_: Any, **options: Any) -> str:  # noqa: N802
        if (type_.dimensions or 1) > 1:
            raise exc.CompileError(f"an array of gmdb's has one dimension, not {type_.dimensions}")
        return f"{self.process(type_.item_type, **options)}[]"

    visit_NVARCHAR = visit_VARCHAR  # noqa: N815

    def visit_CHAR(self, type_: Any, **_given: Any) -> str:  # noqa: N802
        return f"CHAR({type_.length or 1})"

    visit_NCHAR = visit_CHAR  # noqa: N815

    def visit_BINARY(self, type_: Any, **_given: Any) -> str:  # noqa: N802
        return f"BINARY({type_.length or 1})"

    def visit_VARBINARY(self, type_: Any, **_given: Any) -> str:  # noqa: N802
        return f"VARBINARY({type_.length})" if type_.length else BYTES

    def visit_enum(self, type_: Any, **_given: Any) -> str:
        """Lengths count bytes, and those of an Enum characters."""
        return f"VARCHAR({max([type_.length or 1, *(len(name.encode()) for name in type_.enums)])})"


IMPLEMENTATIONS = {
    sqltypes.ARRAY: ARRAY,
    sqltypes.Date: Date,
    sqltypes.DateTime: DateTime,
    sqltypes.Time: Time,
    sqltypes.LargeBinary: LargeBinary,
}

PLAIN: dict[str, Any] = {
    "INT": sqltypes.INTEGER,
    "BIGINT": sqltypes.BIGINT,
    "DOUBLE": sqltypes.DOUBLE_PRECISION,
    "BOOLEAN": sqltypes.BOOLEAN,
    "DATE": sqltypes.DATE,
    "TIMESTAMP": sqltypes.TIMESTAMP,
    "CLOB": sqltypes.CLOB,
    "BLOB": sqltypes.BLOB,
}
SIZED: dict[str, Any] = {
    "CHAR": sqltypes.CHAR,
    "VARCHAR": sqltypes.VARCHAR,
    "BINARY": sqltypes.BINARY,
    "VARBINARY": sqltypes.VARBINARY,
}


def reflected(type_: ColumnType) -> sqltypes.TypeEngine[Any]:
    """A column's type, for SQLAlchemy."""
    if type_.is_array:
        return ARRAY(reflected(type_.element))
    if type_.name == "DECIMAL":
        return sqltypes.NUMERIC(type_.length, type_.scale)
    if type_ in (ColumnType("VARCHAR"), _OLDER_TEXT):
        return sqltypes.TEXT()
    if type_ in (ColumnType("VARBINARY"), _OLDER_BYTEA):
        return sqltypes.LargeBinary()
    if type_.name in SIZED:
        return SIZED[type_.name](type_.length)
    return PLAIN[type_.name]() if type_.name in PLAIN else sqltypes.NullType()


# ---- What tables there are, for SQLAlchemy's inspector.

DEFAULT_SCHEMA: str | None = None  # there is but one, without a name


class Reflection:
    """The dialect's methods that find definitions out; there are no schemas."""

    def _database(self, connection: SqlConnection) -> Any:
        """gmdb's own connection."""
        return connection.connection.driver_connection

    def _definition(self, connection: SqlConnection, name: str, schema: str | None) -> TableDefinition:
        """A table; or a view, as one that has columns and nothing else."""
        database = self._database(connection)
        try:
            if schema != DEFAULT_SCHEMA or name.startswith("sys_"):
                raise NoSuchTable(name)
            if name in database.views():
                return TableDefinition(name, 0, 0, 0, database.view(name).columns)
            return database.table(name)
        except NoSuchTable:
            raise exc.NoSuchTableError(name if schema is None else f"{schema}.{name}") from None

    def _constraints(self, connection: SqlConnection, name: str, schema: str | None, kind: str) -> Iterator[Constraint]:
        constraints = self._definition(connection, name, schema).constraints
        return iter(sorted((one for one in constraints if one.kind == kind), key=lambda one: one.name))

    @reflection.cache
    def get_table_names(self, connection: SqlConnection, schema: str | None = None, **_given: Any) -> list[str]:
        database = self._database(connection)
        return list(database.tables()) if schema == DEFAULT_SCHEMA else []

    @reflection.cache
    def get_view_names(self, connection: SqlConnection, schema: str | None = None, **_given: Any) -> list[str]:
        database = self._database(connection)
        return list(database.views()) if schema == DEFAULT_SCHEMA else []

    @reflection.cache
    def get_view_definition(
        self, connection: SqlConnection, view_name: str, schema: str | None = None, **_given: Any
    ) -> str:
        database = self._database(connection)
        if schema != DEFAULT_SCHEMA or view_name not in database.views():
            raise exc.NoSuchTableError(view_name if schema is None else f"{schema}.{view_name}")
        return str(database.view(view_name).query)

    def get_temp_table_names(self, *_given: Any, **_more: Any) -> list[str]:
        return []

    get_temp_view_names = get_schema_names = get_temp_table_names

    @reflection.cache
    def get_sequence_names(self, connection: SqlConnection, schema: str | None = None, **_given: Any) -> list[str]:
        database = self._database(connection)
        return list(database.sequences()) if schema == DEFAULT_SCHEMA else []

    @reflection.cache
    def has_table(self, connection: SqlConnection, table_name: str, schema: str | None = None, **_given: Any) -> bool:
        try:
            self._definition(connection, table_name, schema)
        except exc.NoSuchTableError:
            return False
        return True

    @reflection.cache
    def has_sequence(
        self, connection: SqlConnection, sequence_name: str, schema: str | None = None, **_given: Any
    ) -> bool:
        return sequence_name in self.get_sequence_names(connection, schema)

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
            return {"name": key.name, "constrained_columns": list(key.columns), **_comment(key)}
        return {"name": None, "constrained_columns": []}

    @reflection.cache
    def get_unique_constraints(
        self, connection: SqlConnection, table_name: str, schema: str | None = None, **_given: Any
    ) -> list[dict[str, Any]]:
        constraints = self._constraints(connection, table_name, schema, UNIQUE)
        return [
            {"name": one.name, "column_names": list(one.columns), **_comment(one), **_nulls_of(one)}
            for one in constraints
        ]

    @reflection.cache
    def get_check_constraints(
        self, connection: SqlConnection, table_name: str, schema: str | None = None, **_given: Any
    ) -> list[dict[str, Any]]:
        constraints = self._constraints(connection, table_name, schema, CHECK)
        return [{"name": one.name, "sqltext": one.text, **_comment(one)} for one in constraints]

    @reflection.cache
    def get_foreign_keys(
        self, connection: SqlConnection, table_name: str, schema: str | None = None, **_given: Any
    ) -> list[dict[str, Any]]:
        return [
            {
                "name": one.name,
                "constrained_columns": list(one.columns),
                "referred_schema": None,
                "referred_table": one.references,
                "referred_columns": list(one.key),
                "options": _foreign_key_options(one),
                **_comment(one),
            }
            for one in self._constraints(connection, table_name, schema, FOREIGN_KEY)
        ]

    @reflection.cache
    def get_indexes(
        self, connection: SqlConnection, table_name: str, schema: str | None = None, **_given: Any
    ) -> list[dict[str, Any]]:
        """All indexes but the primary key's; one that keeps a unique constraint says so."""
        table = self._definition(connection, table_name, schema)
        kinds = {one.name: one.kind for one in table.constraints}
        indexes = []
        for index in sorted(table.indexes, key=lambda one: one.name):
            if kinds.get(index.name) == PRIMARY_KEY:
                continue
            names = [table.columns[n].name for n in index.key]
            entry: dict[str, Any] = {"name": index.name, "column_names": names, "unique": index.unique}
            orders = {name: words for n, name in enumerate(names) if (words := _sorting(index.direction(n)))}
            if orders:
                entry["column_sorting"] = orders
            if kinds.get(index.name) == UNIQUE:
                entry["duplicates_constraint"] = index.name
            options: dict[str, Any] = {} if index.using == "btree" else {"gmdb_using": index.using}
            if index.included:
                options["gmdb_include"] = [table.columns[n].name for n in index.positions[len(index.key) :]]
            if not index.nulls_distinct:
                options["gmdb_nulls_not_distinct"] = True
            if index.condition is not None:
                options["gmdb_where"] = index.condition
            if options:
                entry["dialect_options"] = options
            indexes.append(entry)
        return indexes

    @reflection.cache
    def get_table_comment(
        self, connection: SqlConnection, table_name: str, schema: str | None = None, **_given: Any
    ) -> dict[str, Any]:
        return {"text": self._definition(connection, table_name, schema).comment}


def _comment(constraint: Constraint) -> dict[str, Any]:
    return {} if constraint.comment is None else {"comment": constraint.comment}


def _nulls_of(constraint: Constraint) -> dict[str, Any]:
    return {} if constraint.nulls_distinct else {"dialect_options": {"gmdb_nulls_not_distinct": True}}


def _sorting(direction: Direction) -> tuple[str, ...]:
    """What is not as usual about a column's direction, in the words of SQLAlchemy."""
    words = ("desc",) if direction.descending else ()
    if direction.nulls_first == direction.descending:  # NULLs are greater than all else
        return words
    return (*words, "nulls_first" if direction.nulls_first else "nulls_last")


def _column(column: Column) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "name": column.name,
        "type": reflected(column.type),
        "nullable": column.nullable,
        "default": column.default,
        "autoincrement": column.identity is not None,
        "comment": column.comment,
    }
    if column.identity is not None:
        fields["identity"] = {"always": column.identity == "always", **_counting(column)}
    if column.generated is not None:
        fields["computed"] = {"sqltext": column.generated, "persisted": True}
    return fields


def _counting(column: Column) -> dict[str, Any]:
    """How an identity counts, as ``Identity`` has it; what was not said as it goes without saying."""
    largest = LARGEST_OF[column.type.name]
    counting = counting_of(column)
    return {
        "start": counting.start,
        "increment": counting.increment,
        "minvalue": counting.low,
        "maxvalue": min(counting.high, largest),
        "cycle": counting.cycle,
        "cache": counting.cache or 1,
    }


def _foreign_key_options(constraint: Constraint) -> dict[str, Any]:
    """What is not as usual about a foreign key, by the names that ``ForeignKeyConstraint`` has for it."""
    options: dict[str, Any] = {
        name: action.upper()
        for name, action in (("ondelete", constraint.on_delete), ("onupdate", constraint.on_update))
        if action != NO_ACTION
    }
    if constraint.sets:
        options["ondelete"] += f" ({', '.join(constraint.sets)})"
    if constraint.deferrable:
        options["deferrable"] = True
    if constraint.deferred:
        options["initially"] = "DEFERRED"
    return options | ({"match": "FULL"} if constraint.match_full else {})
