"""gmdb: a transactional row store embedded in Python, whose data files Apache Spark reads in parallel."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from gmdb.database.pep249 import (
    BINARY,
    DATETIME,
    NUMBER,
    ROWID,
    STRING,
    Binary,
    Date,
    DateFromTicks,
    Time,
    TimeFromTicks,
    Timestamp,
    TimestampFromTicks,
)
from gmdb.errors import (
    DatabaseError,
    DataError,
    Error,
    IntegrityError,
    InterfaceError,
    InternalError,
    NotSupportedError,
    OperationalError,
    ProgrammingError,
    Warning,
)
from gmdb.format.address import RowId
from gmdb.format.columns import Column, ColumnType
from gmdb.format.interval import Interval
from gmdb.tables.access.indexes import KeyRange
from gmdb.tables.catalog.schema import Constraint

if TYPE_CHECKING:
    from gmdb import aio, inspect
    from gmdb.database.connection import Connection, Isolation

__all__ = [
    "BINARY",
    "DATETIME",
    "NUMBER",
    "ROWID",
    "STRING",
    "Binary",
    "Column",
    "ColumnType",
    "Connection",
    "Constraint",
    "DataError",
    "DatabaseError",
    "Date",
    "DateFromTicks",
    "Error",
    "IntegrityError",
    "InterfaceError",
    "InternalError",
    "Interval",
    "KeyRange",
    "NotSupportedError",
    "OperationalError",
    "ProgrammingError",
    "RowId",
    "Time",
    "TimeFromTicks",
    "Timestamp",
    "TimestampFromTicks",
    "Warning",
    "aio",
    "apilevel",
    "connect",
    "inspect",
    "paramstyle",
    "threadsafety",
]
__version__ = "0.1.0"
apilevel = "2.0"
threadsafety = 2  # threads share the module and connections
paramstyle = "qmark"  # and ``:name``


def __getattr__(name: str) -> Any:
    """What brings pyarrow, or much else, is loaded by whoever uses it."""
    if name == "Connection":
        return import_module("gmdb.database.connection").Connection
    if name in ("aio", "inspect"):
        return import_module(f"gmdb.{name}")
    raise AttributeError(f"module 'gmdb' has no attribute {name!r}")


def connect(
    path: Any,
    *,
    isolation: Isolation = "read committed",
    autocommit: bool = False,
    lock_timeout: float = 5.0,
    read_only: bool = False,
    sync: str | None = None,
    progress: Callable[[str, int, int], None] | None = None,
    token: str | None = None,
    tls_ca: Any = None,
) -> Connection:
    """A connection to the database at ``path``, a directory; it is made if nothing is there.

    ``isolation`` is "read committed", "repeatable read" or "serializable"; ``lock_timeout`` is how many seconds a
    writer waits for another's row.  If another process has the database open, this one works through it.  Use the
    connection as a context manager, or call ``commit()`` and ``close()``.

    ``sync`` says when a commit returns: "full", the default, when it is on disk; "group" waits a moment for others, so
    that many commits share one sync; "off" does not wait for the disk: a power failure may take the last commits.
    ``progress(what, done, total)`` is called while a database that was not closed is recovered.

    ``path`` may be the URL of a server (``gmdb serve``): ``gmdb://host:7433``, or ``gmdb+tls://host:7433`` to use TLS,
    as does whoever gives ``tls_ca``, a file with the certificate of the CA to be believed; without it those of the
    system are.  ``token`` is the server's; without it the environment's GMDB_TOKEN is used.
    """
    from gmdb.server.connect import connect as connect_to  # brings pyarrow; commands that need none skip it

    return connect_to(
        path,
        isolation=isolation,
        autocommit=autocommit,
        lock_timeout=lock_timeout,
        read_only=read_only,
        sync=sync,
        progress=progress,
        token=token,
        tls_ca=tls_ca,
    )
