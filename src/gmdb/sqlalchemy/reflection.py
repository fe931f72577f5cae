"""Tables and their parts for SQLAlchemy's inspector, from gmdb's own definitions."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import Any

from sqlalchemy.dialects.postgresql import ARRAY, JSONB
from sqlalchemy.engine import Connection as SqlConnection
from sqlalchemy.engine import reflection
from sqlalchemy.sql.compiler import GenericTypeCompiler
from sqlalchemy.sql.sqltypes import _AbstractInterval
from sqlalchemy.sql.type_api import NativeForEmulated

from gmdb.errors import NoSuchTable, ValueOutOfRange
from gmdb.format import interval as gmdb_interval
from gmdb.format.columns import JSONS, Column, ColumnType
from gmdb.tables.access.indexes import HIDDEN, Direction
from gmdb.tables.catalog.counters import LARGEST_OF, counting_of
from gmdb.tables.catalog.names import PUBLIC, TEMPORARY, full_name, is_temporary, parts_of
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
NUMERIC_DIGITS = (38, 10)  # of a NUMERIC without any: gmdb's have as many as they were defined with

Process = Callable[[Any], Any]


class Date(sqltypes.Date):
    """DATE takes the day of a datetime, as PostgreSQL does."""

    def bind_processor(self, dialect: Any) -> Process:  # noqa: ARG002
        return lambda value: value.date() if isinstance(value, datetime) else value


class DateTime(sqltypes.DateTime):
    """TIMESTAMP takes a date, and a time with a zone as UTC; TIMESTAMPTZ takes a time without one as UTC."""

    def bind_processor(self, dialect: Any) -> Process:  # noqa: ARG002
        def process(value: Any) -> Any:
            if isinstance(value, date) and not isinstance(value, datetime):
                value = datetime(value.year, value.month, value.day)
            if not isinstance(value, datetime):
                return value
            if self.timezone:
                return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
            return value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)

        return process

    def result_processor(self, dialect: Any, coltype: Any) -> Process | None:  # noqa: ARG002
        """Columns of before there was TIMESTAMPTZ have times of UTC."""
        if not self.timezone:
            return None
        return lambda value: value.replace(tzinfo=UTC) if value is not None and value.tzinfo is None else value


class Time(sqltypes.Time):
    """TIME takes that of a datetime."""

    def bind_processor(self, dialect: Any) -> Process:  # noqa: ARG002
        return lambda value: value.time() if isinstance(value, datetime) else value


def _timedelta(value: Any) -> timedelta:
    try:
        return value.timedelta
    except OverflowError:
        raise ValueOutOfRange(f"the interval {value} is too long for a timedelta") from None


class INTERVAL(NativeForEmulated, _AbstractInterval):
    """INTERVAL, whose values are timedeltas: a month is 30 days."""

    __visit_name__ = "INTERVAL"
    native = True

    @classmethod
    def adapt_emulated_to_native(cls, impl: Any, **kw: Any) -> INTERVAL:  # noqa: ARG003
        return cls()

    @property
    def _type_affinity(self) -> type[sqltypes.Interval]:
        return sqltypes.Interval

    def as_generic(self, allow_nulltype: bool = False) -> sqltypes.Interval:  # noqa: ARG002
        return sqltypes.Interval(native=True)

    @property
    def python_type(self) -> type[timedelta]:
        return timedelta

    def result_processor(self, dialect: Any, coltype: Any) -> Process:  # noqa: ARG002
        return lambda value: None if value is None else _timedelta(value)

    def literal_processor(self, dialect: Any) -> Process:  # noqa: ARG002
        return lambda value: f"INTERVAL '{gmdb_interval.Interval.of(value)}'"


class LargeBinary(sqltypes.LargeBinary):
    def literal_processor(self, dialect: Any) -> Process:  # noqa: ARG002
        return lambda value: f"'\\x{bytes(value).hex()}'::bytea"


class Json(sqltypes.JSON):
    """Documents come as Python's values; of columns that are texts, as those for JSON once were, they are read here."""

    def result_processor(self, dialect: Any, coltype: Any) -> Process | None:
        return None if coltype in JSONS else super().result_processor(dialect, coltype)


class JsonPath(sqltypes.JSON.JSONPathType):
    """A path is an array of texts."""

    def bind_processor(self, dialect: Any) -> Process:  # noqa: ARG002
        return _path

    def literal_processor(self, dialect: Any) -> Process:
        quote: Any = self.string_literal_processor(dialect)
        return lambda value: quote(_path(value))


def _path(value: Any) -> Any:
    if value is None or isinstance(value, str):
        return value
    steps = (str(one).replace("\\", "\\\\").replace('"', '\\"') for one in value)
    return "{" + ",".join(f'"{step}"' for step in steps) + "}"


def _called(kind: str) -> Any:
    def visit(self: Any, type_: Any, **options: Any) -> str:  # noqa: ARG001
        return kind

    return visit


class TypeCompiler(GenericTypeCompiler):
    """What a type is called in gmdb's SQL."""

    visit_TINYINT = _called("SMALLINT")  # noqa: N815
    visit_DOUBLE = visit_DOUBLE_PRECISION = visit_FLOAT = _called("DOUBLE PRECISION")  # noqa: N815
    visit_TIME = _called("TIME")  # noqa: N815
    visit_INTERVAL = _called("INTERVAL")  # noqa: N815
    visit_TEXT = visit_UnicodeText = _called(TEXT)  # noqa: N815
    visit_unicode_text = visit_text = _called(TEXT)
    visit_JSON, visit_JSONB = _called("JSON"), _called("JSONB")  # noqa: N815
    visit_CLOB = visit_NCLOB = _called("CLOB")  # noqa: N815
    visit_BLOB = _called("BLOB")  # noqa: N815
    visit_large_binary = _called(BYTES)
    visit_UUID = _called("UUID")  # noqa: N815

    def visit_TIMESTAMP(self, type_: Any, **_given: Any) -> str:  # noqa: N802
        return "TIMESTAMPTZ" if type_.timezone else "TIMESTAMP"

    visit_DATETIME = visit_TIMESTAMP  # noqa: N815

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
    sqltypes.Interval: INTERVAL,
    sqltypes.LargeBinary: LargeBinary,
    sqltypes.JSON: Json,
    sqltypes.JSON.JSONPathType: JsonPath,
}

PLAIN: dict[str, Any] = {
    "SMALLINT": sqltypes.SMALLINT,
    "INT": sqltypes.INTEGER,
    "BIGINT": sqltypes.BIGINT,
    "REAL": sqltypes.REAL,
    "DOUBLE": sqltypes.DOUBLE_PRECISION,
    "BOOLEAN": sqltypes.BOOLEAN,
    "DATE": sqltypes.DATE,
    "TIME": sqltypes.TIME,
    "TIMESTAMP": sqltypes.TIMESTAMP,
    "UUID": sqltypes.UUID,
    "TIMESTAMPTZ": partial(sqltypes.TIMESTAMP, timezone=True),
    "INTERVAL": INTERVAL,
    "JSON": sqltypes.JSON,
    "JSONB": JSONB,
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


class Reflection:
    """The dialect's methods that find definitions out.  Without a schema, what SQL finds by a name is meant: a table of
    the session's own, or one of the first schema of its path, which is ``default_schema_name``."""

    default_schema_name: str | None

    def _database(self, connection: SqlConnection) -> Any:
        """gmdb's own connection."""
        return connection.connection.driver_connection

    @property
    def _usual_schema(self) -> str:
        return self.default_schema_name or PUBLIC

    def _definition(self, connection: SqlConnection, name: str, schema: str | None) -> TableDefinition:
        """A table; or a view, as one that has columns and nothing else."""
        database = self._database(connection)
        for own in (TEMPORARY, self._usual_schema) if schema is None else (schema,):
            full = full_name(own, name)
            if own == PUBLIC and name.startswith("sys_"):
                continue
            with suppress(NoSuchTable):
                return database.table(full)
            with suppress(NoSuchTable):
                return TableDefinition(full, 0, 0, 0, database.view(full).columns)
        raise exc.NoSuchTableError(name if schema is None else f"{schema}.{name}")

    def _names(self, connection: SqlConnection, kind: str, schema: str | None, of_session: bool = False) -> list[str]:
        """The names of what a method of the connection lists, of a schema or of the session's own."""
        database = self._database(connection)
        schemas = set(database.schemas())
        found = [_parts(name, schemas) for name in getattr(database, kind)()]
        if of_session:
            return [name for own, name in found if is_temporary(own)]
        return [name for own, name in found if own == (schema or self._usual_schema)]

    def _constraints(self, connection: SqlConnection, name: str, schema: str | None, kind: str) -> Iterator[Constraint]:
        constraints = self._definition(connection, name, schema).constraints
        return iter(sorted((one for one in constraints if one.kind == kind), key=lambda one: one.name))

    @reflection.cache
    def get_schema_names(self, connection: SqlConnection, **_given: Any) -> list[str]:
        return sorted([PUBLIC, *self._database(connection).schemas()])

    @reflection.cache
    def has_schema(self, connection: SqlConnection, schema_name: str, **_given: Any) -> bool:
        return schema_name == PUBLIC or schema_name in self._database(connection).schemas()

    @reflection.cache
    def get_table_names(self, connection: SqlConnection, schema: str | None = None, **_given: Any) -> list[str]:
        return self._names(connection, "tables", schema)

    @reflection.cache
    def get_view_names(self, connection: SqlConnection, schema: str | None = None, **_given: Any) -> list[str]:
        return self._names(connection, "views", schema)

    @reflection.cache
    def get_temp_table_names(self, connection: SqlConnection, **_given: Any) -> list[str]:
        return self._names(connection, "tables", None, of_session=True)

    @reflection.cache
    def get_temp_view_names(self, connection: SqlConnection, **_given: Any) -> list[str]:
        return self._names(connection, "views", None, of_session=True)

    @reflection.cache
    def get_sequence_names(self, connection: SqlConnection, schema: str | None = None, **_given: Any) -> list[str]:
        return self._names(connection, "sequences", schema)

    @reflection.cache
    def get_view_definition(
        self, connection: SqlConnection, view_name: str, schema: str | None = None, **_given: Any
    ) -> str:
        database = self._database(connection)
        for own in (TEMPORARY, self._usual_schema) if schema is None else (schema,):
            with suppress(NoSuchTable):
                return str(database.view(full_name(own, view_name)).query)
        raise exc.NoSuchTableError(view_name if schema is None else f"{schema}.{view_name}")

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
        schemas = set(self._database(connection).schemas())
        keys = []
        for one in self._constraints(connection, table_name, schema, FOREIGN_KEY):
            own, name = _parts(one.references, schemas)
            is_usual = own == self._usual_schema or is_temporary(own)
            keys.append(
                {
                    "name": one.name,
                    "constrained_columns": list(one.columns),
                    "referred_schema": None if is_usual and own != schema else own,
                    "referred_table": name,
                    "referred_columns": list(one.key),
                    "options": _foreign_key_options(one),
                    **_comment(one),
                }
            )
        return keys

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
            names = [table.stored[n].name.removeprefix(HIDDEN) for n in index.key]
            known = [name if n < len(table.columns) else None for n, name in zip(index.key, names, strict=True)]
            entry: dict[str, Any] = {"name": index.name, "column_names": known, "unique": index.unique}
            if None in known:
                entry["expressions"] = names
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


def _parts(name: str, schemas: Container[str]) -> tuple[str, str]:
    """The schema of a full name, and the name within it."""
    own = name.partition(".")[0]
    return parts_of(name, (own,) if is_temporary(own) else schemas)


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
