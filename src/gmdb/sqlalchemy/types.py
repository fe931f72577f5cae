"""Types: which of gmdb's stands for one of SQLAlchemy's, and what a column of a table is to SQLAlchemy.

Not here: what values look like in gmdb (format/columns.py).
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, time
from typing import Any

from sqlalchemy.sql.compiler import GenericTypeCompiler

from gmdb.format.columns import VARCHAR_MAX, ColumnType
from sqlalchemy import Column
from sqlalchemy import types as sqltypes

TEXT = "TEXT"
BYTES = "BYTEA"
BYTEA_MAX = 32000
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
    def visit(self: Any, type_: Any, **given: Any) -> str:  # noqa: ARG001
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
    visit_CLOB = visit_NCLOB = visit_JSON = _called("CLOB")  # noqa: N815
    visit_BLOB = visit_large_binary = _called("BLOB")  # noqa: N815
    visit_UUID = _called("CHAR(32)")  # noqa: N815

    def visit_NUMERIC(self, type_: Any, **given: Any) -> str:  # noqa: N802
        """A value without a number of digits carries its own; a column must have one."""
        precision, scale = type_.precision, type_.scale
        if precision is None and not isinstance(given.get("type_expression"), Column):
            return "NUMERIC"
        if precision is None:
            precision, scale = NUMERIC_DIGITS[0], NUMERIC_DIGITS[1] if scale is None else scale
        return f"NUMERIC({precision}, {scale or 0})"

    visit_DECIMAL = visit_NUMERIC  # noqa: N815

    def visit_VARCHAR(self, type_: Any, **_given: Any) -> str:  # noqa: N802
        return f"VARCHAR({type_.length})" if type_.length else TEXT

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
    sqltypes.Date: Date,
    sqltypes.DateTime: DateTime,
    sqltypes.Time: Time,
    sqltypes.LargeBinary: LargeBinary,
}

_PLAIN: dict[str, Any] = {
    "INT": sqltypes.INTEGER,
    "BIGINT": sqltypes.BIGINT,
    "DOUBLE": sqltypes.DOUBLE_PRECISION,
    "BOOLEAN": sqltypes.BOOLEAN,
    "DATE": sqltypes.DATE,
    "TIMESTAMP": sqltypes.TIMESTAMP,
    "CLOB": sqltypes.CLOB,
    "BLOB": sqltypes.BLOB,
}
_SIZED: dict[str, Any] = {
    "CHAR": sqltypes.CHAR,
    "VARCHAR": sqltypes.VARCHAR,
    "BINARY": sqltypes.BINARY,
    "VARBINARY": sqltypes.VARBINARY,
}


def reflected(type_: ColumnType) -> sqltypes.TypeEngine[Any]:
    """A column's type, for SQLAlchemy."""
    if type_.name == "DECIMAL":
        return sqltypes.NUMERIC(type_.length, type_.scale)
    if type_ == ColumnType("VARCHAR", VARCHAR_MAX):
        return sqltypes.TEXT()
    if type_ == ColumnType("VARBINARY", BYTEA_MAX):
        return sqltypes.LargeBinary()
    if type_.name in _SIZED:
        return _SIZED[type_.name](type_.length)
    return _PLAIN[type_.name]() if type_.name in _PLAIN else sqltypes.NullType()
