"""PEP 249's type objects and constructors, and its exceptions as attributes of connections.

Not here: cursors (database/dbapi.py), which bring Arrow; a program that only wants these names need not load it.
"""

from __future__ import annotations

import time as clock
from datetime import date, datetime, time

from gmdb import errors


class TypeObject:
    """Equal to the codes of some types, as PEP 249 has it."""

    def __init__(self, *names: str) -> None:
        self._names = frozenset(names)

    def __eq__(self, other: object) -> bool:
        return other is self or (isinstance(other, str) and other in self._names)

    def __hash__(self) -> int:
        return hash(self._names)

    def __repr__(self) -> str:
        return f"TypeObject({', '.join(sorted(self._names))})"


STRING = TypeObject("CHAR", "VARCHAR", "CLOB", "UUID", "JSON", "JSONB")
BINARY = TypeObject("BINARY", "VARBINARY", "BLOB")
NUMBER = TypeObject("SMALLINT", "INT", "BIGINT", "REAL", "DOUBLE", "DECIMAL", "BOOLEAN")
DATETIME = TypeObject("DATE", "TIME", "TIMESTAMP", "TIMESTAMPTZ", "INTERVAL")
ROWID = TypeObject("ROWID")
Date, Time, Timestamp, Binary = date, time, datetime, bytes


def DateFromTicks(ticks: float) -> date:  # noqa: N802
    return date(*clock.localtime(ticks)[:3])


def TimeFromTicks(ticks: float) -> time:  # noqa: N802
    return time(*clock.localtime(ticks)[3:6])


def TimestampFromTicks(ticks: float) -> datetime:  # noqa: N802
    return datetime(*clock.localtime(ticks)[:6])


class HasErrors:
    """The exceptions as attributes, so that code that was given a connection need not know whose it is."""

    Warning = errors.Warning
    Error = errors.Error
    InterfaceError = errors.InterfaceError
    DatabaseError = errors.DatabaseError
    DataError = errors.DataError
    OperationalError = errors.OperationalError
    IntegrityError = errors.IntegrityError
    InternalError = errors.InternalError
    ProgrammingError = errors.ProgrammingError
    NotSupportedError = errors.NotSupportedError
