"""The dialect for asyncio: ``create_async_engine("gmdb+aio:///shop.gmdb")``.

SQLAlchemy's own code runs in a greenlet and calls a driver that seems not to be asynchronous: what follows stands
between that and ``gmdb.aio``, as SQLAlchemy has it for other databases.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy.connectors.asyncio import (
    AsyncAdapt_dbapi_connection,
    AsyncAdapt_dbapi_cursor,
    AsyncAdapt_dbapi_ss_cursor,
)
from sqlalchemy.engine import Connection as SqlConnection
from sqlalchemy.util import await_only

import gmdb
from gmdb import aio
from gmdb.sqlalchemy.dialect import ExecutionContext, GmdbDialect
from sqlalchemy import URL, pool


class Cursor(AsyncAdapt_dbapi_cursor):
    __slots__ = ()

    def setinputsizes(self, *inputsizes: Any) -> None:
        """There is nothing to prepare."""


class StreamingCursor(AsyncAdapt_dbapi_ss_cursor, Cursor):
    """Rows are fetched as they are asked for, not all at once."""

    __slots__ = ()


class Connection(AsyncAdapt_dbapi_connection):
    """A connection of gmdb.aio, as SQLAlchemy's greenlets call it."""

    __slots__ = ()
    _cursor_cls = Cursor
    _ss_cursor_cls = StreamingCursor

    def asked(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """What a function makes of gmdb's own connection, in that one's thread."""
        return await_only(self._connection.run(function, *arguments))

    @property
    def autocommit(self) -> bool:
        return bool(self.asked(getattr, "autocommit"))

    @autocommit.setter
    def autocommit(self, on: bool) -> None:
        await_only(self._connection.set_autocommit(on))

    @property
    def isolation(self) -> Any:
        return self.asked(getattr, "isolation")

    @isolation.setter
    def isolation(self, level: Any) -> None:
        await_only(self._connection.set_isolation(level))

    def terminate(self) -> None:
        """Close, also where no loop is running: a connection was invalidated, or nobody has it any more."""
        self._connection.terminate()


class Driver:
    """What SQLAlchemy expects of a driver's module."""

    def __getattr__(self, name: str) -> Any:
        return getattr(gmdb, name)

    @property
    def exceptions_module(self) -> Any:
        return gmdb

    def connect(self, *arguments: Any, **options: Any) -> Connection:
        make = options.pop("async_creator_fn", aio.connect)
        return Connection(self, await_only(make(*arguments, **options)))


class _Asked:
    """gmdb's own connection, each of whose methods is called in its thread."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            return self._connection.asked(lambda database: getattr(database, name)(*arguments))

        return call


class AsyncExecutionContext(ExecutionContext):
    def create_server_side_cursor(self) -> Any:
        return self._dbapi_connection.cursor(server_side=True)


class AsyncGmdbDialect(GmdbDialect):
    """``gmdb+aio:///shop.gmdb``: paths, servers and options are as they are without ``+aio``."""

    driver = "aio"
    is_async = True
    has_terminate = True
    supports_statement_cache = True
    supports_server_side_cursors = True
    execution_ctx_cls = AsyncExecutionContext

    @classmethod
    def import_dbapi(cls) -> Any:
        return Driver()

    @classmethod
    def get_pool_class(cls, url: URL) -> type[pool.Pool]:  # noqa: ARG003
        return pool.AsyncAdaptedQueuePool

    def get_driver_connection(self, connection: Any) -> Any:
        return connection._connection

    def do_terminate(self, dbapi_connection: Any) -> None:
        dbapi_connection.terminate()

    def _database(self, connection: SqlConnection) -> Any:
        return _Asked(connection.connection.dbapi_connection)  # type: ignore[arg-type]


dialect = AsyncGmdbDialect
