"""gmdb for asyncio: ``async with gmdb.aio.connect("shop.gmdb") as db``.

A connection has a thread of its own, which does what its tasks ask for, one after the other (decisions/0054).

Invariants
 1. What a cancelled task had asked for is over when its CancelledError goes on: what had not begun never begins, a
    statement is interrupted and has done nothing, or had ended already.  Commits, rollbacks and savepoints are done.
 2. An interrupt reaches the call that it is for, and no later one.
Not here: what statements and transactions mean (database/connection.py).
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from itertools import chain, count
from queue import SimpleQueue
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

import gmdb
from gmdb.errors import InterfaceError

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow as pa

    from gmdb.database.connection import Connection, Isolation
    from gmdb.database.dbapi import Cursor, Parameters, Row

__all__ = ["AsyncConnection", "AsyncCursor", "connect"]

_PATIENCE = 0.02  # seconds until a statement that is to end is interrupted again: it may not have begun when it was
_ROWS_FIRST, _ROWS_MAX = 16, 1024  # that an iteration fetches at a time, first and at most
T = TypeVar("T")
_names = count(1)


class _Job:
    """A call that a task waits for while a thread makes it."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self._call = call
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._state = "waiting"  # "running", "over"
        self.future: asyncio.Future[Any] = self._loop.create_future()

    def __call__(self) -> None:
        """Make the call, in the thread."""
        with self._lock:
            if self._state == "over":
                return
            self._state = "running"
        result, error = None, None
        try:
            result = self._call()
        except BaseException as caught:
            error = caught
        with self._lock:
            self._state = "over"
        with suppress(RuntimeError):  # the loop is closed: nobody waits
            self._loop.call_soon_threadsafe(self._tell, result, error)

    def _tell(self, result: Any, error: BaseException | None) -> None:
        if self.future.cancelled():
            return
        if error is None:
            self.future.set_result(result)
        else:
            self.future.set_exception(error)

    def drop(self) -> bool:
        """Have the call never begin; whether it had not."""
        with self._lock:
            if self._state == "waiting":
                self._state = "over"
                return True
            return False

    def interrupt(self, connection: Connection) -> None:
        """Interrupt what the connection does, if that is this call."""
        with self._lock:
            if self._state == "running":
                connection.interrupt()

    async def wait(self, connection: Connection | None) -> Any:
        """The result.  A task that is cancelled meanwhile waits for the end, which ``connection`` is told to hasten."""
        try:
            return await asyncio.shield(self.future)
        except asyncio.CancelledError:
            if connection is not None and self.drop():
                raise
            while not self.future.done():
                if connection is not None:
                    self.interrupt(connection)
                with suppress(asyncio.CancelledError):  # once is enough
                    await asyncio.wait([self.future], timeout=None if connection is None else _PATIENCE)
            raise


def _work(jobs: SimpleQueue[Callable[[], None] | None]) -> None:
    while (job := jobs.get()) is not None:
        job()
        del job  # or its result would live until the next


class AsyncCursor:
    """One statement at a time, and its result: a ``gmdb`` cursor, whose methods are awaited."""

    def __init__(self, connection: AsyncConnection, cursor: Cursor) -> None:
        self.connection = connection
        self._cursor = cursor
        self._ahead: deque[Row] = deque()  # rows that were fetched and not yet given out
        self._are_last = False  # no more come behind those

    def __repr__(self) -> str:
        return repr(self._cursor).replace("gmdb.Cursor", "gmdb.aio.AsyncCursor", 1)

    async def execute(self, statement: str, parameters: Parameters | None = ()) -> AsyncCursor:
        """Run a statement; ``?`` stands for the parameters in order, ``:name`` for those of a mapping."""
        return await self._run(partial(self._cursor.execute, statement, parameters))

    async def executemany(self, statement: str, parameters: Iterable[Parameters] | Any) -> AsyncCursor:
        """Run a statement for each of many sets of parameters, which may be the rows of Arrow data."""
        return await self._run(partial(self._cursor.executemany, statement, parameters))

    async def executescript(self, script: str) -> AsyncCursor:
        """Run several statements, one after the other."""
        return await self._run(partial(self._cursor.executescript, script))

    async def _run(self, statement: Callable[[], Any]) -> AsyncCursor:
        """Run a statement; its first rows come with it, if rows are what it gives: most have no more than these."""

        def run() -> tuple[list[Row], bool]:
            statement()
            if not self._cursor._result.rows:
                return [], False
            rows = self._cursor.fetchmany(_ROWS_FIRST)
            return rows, len(rows) < _ROWS_FIRST

        self._forget()
        rows, self._are_last = await self.connection._ask(run)
        self._ahead.extend(rows)
        return self

    def _forget(self) -> None:
        self._ahead.clear()
        self._are_last = False

    async def fetchone(self) -> Row | None:
        if self._ahead:
            return self._take(1)[0]
        rows = await self._fetched(1)
        return rows[0] if rows else None

    async def fetchmany(self, size: int | None = None) -> list[Row]:
        wanted = self._cursor.arraysize if size is None else size
        rows = self._take(wanted)
        return rows if rows and len(rows) == wanted else rows + await self._fetched(wanted - len(rows))

    async def fetchall(self) -> list[Row]:
        rows = await self._fetched(None)
        return self._take(len(self._ahead)) + rows

    async def __aiter__(self) -> AsyncIterator[Row]:
        size = _ROWS_FIRST
        while True:
            while self._ahead:
                yield self._take(1)[0]
            size = min(size * 4, _ROWS_MAX)
            self._ahead.extend(rows := await self._fetched(size))
            if not rows:
                return

    def _take(self, count: int) -> list[Row]:
        """As many of the rows that are at hand."""
        if self._ahead and self.connection.closed:
            raise InterfaceError("the connection is closed")
        return [self._ahead.popleft() for _ in range(min(len(self._ahead), max(count, 0)))]

    async def _fetched(self, count: int | None) -> list[Row]:
        """Rows behind those that are at hand; None: all."""
        if self._are_last and not self.connection.closed and (count is None or count >= 0):
            return []
        fetch = self._cursor.fetchall if count is None else partial(self._cursor.fetchmany, count)
        rows: list[Row] = await self.connection._ask(fetch)
        return rows

    async def arrow(self) -> pa.Table:
        """The result as an Arrow table."""
        return await self._whole(self._cursor.arrow)

    async def df(self) -> pandas.DataFrame:
        """The result as a pandas DataFrame."""
        return await self._whole(self._cursor.df)

    async def pl(self) -> polars.DataFrame:
        """The result as a polars DataFrame."""
        return await self._whole(self._cursor.pl)

    async def _whole(self, read: Callable[[], T]) -> T:
        """The rest of the result, with the rows at hand put back."""
        rows = self._take(len(self._ahead))
        if rows or self._are_last:
            self._forget()
            self._cursor._rows = chain(rows, self._cursor._fetched())
        return await self.connection._ask(read)

    async def close(self) -> None:
        """Drop the result.  Closing twice does nothing."""
        is_read = self._are_last or not self._cursor._result.has_rows
        self._forget()
        if is_read or self.connection.closed:
            self._cursor.close()
        else:  # it may have to wait for what the connection does
            await self.connection._ask(self._cursor.close, whole=True)

    # ---- what is known without asking

    @property
    def description(self) -> list[tuple[Any, ...]] | None:
        return self._cursor.description

    @property
    def rowcount(self) -> int:
        return self._cursor.rowcount

    @property
    def lastrowid(self) -> int | None:
        return self._cursor.lastrowid

    @property
    def arraysize(self) -> int:
        return self._cursor.arraysize

    @arraysize.setter
    def arraysize(self, size: int) -> None:
        self._cursor.arraysize = size

    def setinputsizes(self, sizes: Any) -> None:
        """PEP 249 asks for it; there is nothing to prepare."""

    def setoutputsize(self, size: int, column: int | None = None) -> None:
        """PEP 249 asks for it; there is nothing to prepare."""

    async def __aenter__(self) -> AsyncCursor:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class AsyncConnection:
    """One session of a database, whose methods are awaited.  Tasks that share it share its transaction."""

    def __init__(self, connection: Connection, jobs: SimpleQueue[Callable[[], None] | None]) -> None:
        self._connection = connection
        self._jobs = jobs
        self._stop = weakref.finalize(self, jobs.put, None)  # without close(), the connection goes with its last user
        self._stop.atexit = False
        self._blocks = 0  # of ``transaction`` that are open, one within the other

    def __repr__(self) -> str:
        return repr(self._connection).replace("gmdb.Connection", "gmdb.aio.AsyncConnection", 1)

    async def _ask(self, call: Callable[[], T], *, whole: bool = False) -> T:
        """Have the thread make a call; ``whole``: to its end, also if the task is cancelled."""
        if not self._stop.alive:
            raise InterfaceError("the connection is closed")
        job = _Job(call)
        self._jobs.put(job)
        result: T = await job.wait(None if whole else self._connection)
        return result

    async def run(self, function: Callable[..., T], *arguments: Any, **options: Any) -> T:
        """What a function makes of the ``gmdb.Connection`` behind this one, in the connection's thread.

        ``await db.run(lambda db: db.backup("copy.gmdb"))``: everything that has no method here.
        """
        return await self._ask(partial(function, self._connection, *arguments, **options))

    # ---- statements

    def cursor(self) -> AsyncCursor:
        """A cursor for statements."""
        return AsyncCursor(self, self._connection.cursor())

    async def execute(self, statement: str, parameters: Parameters | None = ()) -> AsyncCursor:
        """Run a statement with a cursor of its own."""
        return await self.cursor().execute(statement, parameters)

    async def executemany(self, statement: str, parameters: Iterable[Parameters] | Any) -> AsyncCursor:
        """Run a statement for each of many sets of parameters, which may be the rows of Arrow data."""
        return await self.cursor().executemany(statement, parameters)

    async def executescript(self, script: str) -> AsyncCursor:
        """Run several statements, one after the other."""
        return await self.cursor().executescript(script)

    async def append(self, name: str, data: Any) -> int:
        """Append Arrow data to a table, all of it or nothing; returns the number of rows."""
        return await self._ask(partial(self._connection.append, name, data))

    async def arrow(self, name: str, columns: list[str] | None = None) -> pa.Table:
        """A table's rows, or some of its columns, as an Arrow table."""
        return await self._ask(lambda: self._connection.arrow(name, columns).read_all())

    # ---- transactions

    @asynccontextmanager
    async def transaction(
        self, *, isolation: Isolation | None = None, read_only: bool | None = None
    ) -> AsyncIterator[AsyncConnection]:
        """A transaction: committed at the end of the block, rolled back if that fails or is cancelled.

        Within a transaction it is a savepoint.
        """
        connection = self._connection
        name = await self._ask(partial(_begin, connection, self._blocks > 0, isolation, read_only), whole=True)
        self._blocks += 1
        try:
            yield self
        except BaseException:
            with suppress(InterfaceError):  # it was closed meanwhile, which rolls back
                await self._ask(partial(_undo, connection, name), whole=True)
            raise
        else:
            await self._ask(partial(_keep, connection, name), whole=True)
        finally:
            self._blocks -= 1

    async def begin(self) -> None:
        """Begin a transaction.  Without it one begins with the first statement."""
        await self._ask(self._connection.begin, whole=True)

    async def commit(self) -> None:
        """Make the transaction's changes permanent."""
        await self._ask(self._connection.commit, whole=True)

    async def rollback(self) -> None:
        """Take back what was changed since the transaction began."""
        await self._ask(self._connection.rollback, whole=True)

    async def set_autocommit(self, on: bool) -> None:
        """Whether a statement is a transaction of its own, unless one was begun."""
        await self._ask(partial(setattr, self._connection, "autocommit", on), whole=True)

    async def set_isolation(self, level: Isolation) -> None:
        """ "read committed", "repeatable read" or "serializable"; it changes between transactions only."""
        await self._ask(partial(setattr, self._connection, "isolation", level), whole=True)

    async def in_transaction(self) -> bool:
        """Whether something is open that ``commit`` would end."""
        return await self._ask(lambda: self._connection.in_transaction)

    def interrupt(self) -> None:
        """End the statement that is running, for whichever task; that gets StatementInterrupted."""
        self._connection.interrupt()

    # ---- the end

    @property
    def closed(self) -> bool:
        return not self._stop.alive or self._connection.closed

    async def close(self) -> None:
        """Roll back what is not committed.  What other tasks do with the connection ends.  Twice does nothing."""
        if self._stop.detach() is not None:
            job = _Job(self._connection.close)
            self._end(job)
            await job.wait(None)

    def terminate(self) -> None:
        """Close without waiting for the end, also where no loop is running."""
        if self._stop.detach() is not None:
            self._end(self._connection.close)

    def _end(self, close: Callable[[], None]) -> None:
        """Have another thread close the connection, which ends what this one's does."""
        self._jobs.put(None)
        threading.Thread(target=close, name="gmdb-aio-close", daemon=True).start()

    async def __aenter__(self) -> AsyncConnection:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None and not self.closed:
                await self.commit()
        finally:
            await self.close()


def _begin(connection: Connection, is_within: bool, isolation: Isolation | None, read_only: bool | None) -> str:
    """The name of the savepoint, if there is a transaction already."""
    if not is_within and not connection.in_transaction:
        connection.begin()
        if isolation is not None or read_only is not None:
            try:
                connection.set_transaction(isolation=isolation, read_only=read_only)
            except BaseException:
                connection.rollback()
                raise
        return ""
    if isolation is not None or read_only is not None:
        raise InterfaceError("a transaction within another is a savepoint, with the isolation of the outer one")
    name = f"gmdb_aio_{next(_names)}"
    connection.savepoint(name)
    return name


def _undo(connection: Connection, name: str) -> None:
    if not name:
        connection.rollback()
    elif connection.in_transaction:
        connection.rollback_to(name)
        connection.release_savepoint(name)


def _keep(connection: Connection, name: str) -> None:
    if name:
        connection.release_savepoint(name)
    else:
        connection.commit()


class _Connecting(Awaitable[AsyncConnection], AbstractAsyncContextManager[AsyncConnection]):
    """A connection to be: ``await`` it, or enter it, which closes it in the end."""

    def __init__(self, path: Any, options: dict[str, Any]) -> None:
        self._path = path
        self._options = options
        self._connection: AsyncConnection | None = None

    def __await__(self) -> Generator[Any, None, AsyncConnection]:
        return self._connect().__await__()

    async def _connect(self) -> AsyncConnection:
        jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        threading.Thread(target=_work, args=(jobs,), name="gmdb-aio", daemon=True).start()
        job = _Job(partial(gmdb.connect, self._path, **self._options))
        jobs.put(job)
        try:
            return AsyncConnection(await job.wait(None), jobs)
        except BaseException:
            if job.future.done() and not job.future.exception():  # the task was cancelled meanwhile
                jobs.put(job.future.result().close)
            jobs.put(None)
            raise

    async def __aenter__(self) -> AsyncConnection:
        self._connection = await self
        return self._connection

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._connection is not None
        await self._connection.__aexit__(kind, error, trace)


def connect(path: Any, **options: Any) -> _Connecting:
    """A connection to the database at ``path``, or of a server: ``await`` it, or ``async with`` it.

    The options are those of ``gmdb.connect``.  As a context manager a connection commits at the end of its block, or
    rolls back if that fails or is cancelled, and closes.
    """
    return _Connecting(path, options)
