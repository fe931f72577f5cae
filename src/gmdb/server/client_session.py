"""A client's session, in the owner.

Several streams of a client lead here: its messages, its scans, its appends.  Like a program with one connection
they take turns; a stream that waits for the client itself gives its turn away meanwhile.

Invariants
 1. The thread that works in the session has the turn.
 2. A session that was ended has rolled back, and a thread that gets the turn later is refused.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

from gmdb.database.connection import Connection, abandon_all
from gmdb.database.engine import Database
from gmdb.errors import Error, InterfaceError, LostWithOwner, NoSuchTable, ReadOnly
from gmdb.process.late_dataclasses import dataclass
from gmdb.process.late_imports import pyarrow as pa
from gmdb.server.wire import Received, SessionState, TableThere
from gmdb.sql.runner import Runner
from gmdb.tables.access.heap import Heap
from gmdb.transaction.session import Session

INTERRUPT_INTERVAL = 0.02


def owner_gone(path: Any) -> LostWithOwner:
    return LostWithOwner(f"the process that had {path} open is gone or has closed it; roll back and try again")


class _Free:
    """The lock of a session that whoever has the turn may use; the turn passes from thread to thread."""

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        del blocking, timeout
        return True

    def release(self) -> None:
        pass

    def __enter__(self) -> bool:
        return True

    def __exit__(self, *_: object) -> None:
        pass


class ClientSession(Session):
    """A session that can be stopped while it waits, and that may be one for reading only."""

    def __init__(self, database: Database, isolation: str, autocommit: bool, lock_timeout: float, read_only: bool):
        super().__init__(database.transactions, isolation, autocommit, lock_timeout)
        self.busy = _Free()  # type: ignore[assignment]
        self.stopped = False
        self.read_only = self.is_read_only = self.is_usually_read_only = read_only

    def require_open(self) -> None:
        if self.stopped:
            raise owner_gone(self.hub.store.directory)
        super().require_open()

    def finish_read_if_idle(self) -> None:
        self.finish_read()  # the reader has the turn

    def require_writable(self) -> None:
        if self.read_only:
            raise ReadOnly(f"{self.hub.store.directory} is open for reading only")
        super().require_writable()


@dataclass
class OpenScope:
    """A context manager that the client has entered; ``value``: a statement's steps, an instant, or None."""

    context: AbstractContextManager[Any]
    value: Any
    heap: Heap | None = None  # of a statement
    pages: Iterator[Any] | None = None  # of its rows


class _Abandoned(Exception):
    """The client gave a statement up, or is gone."""


class Client:
    """One client and what it has open."""

    def __init__(self, database: Database, key: str) -> None:
        self.database = database
        self.key = key
        self.connection: Connection | None = None
        self._session: ClientSession
        self.heaps: dict[int, Heap] = {}
        self.cursors: dict[int, Iterator[Any]] = {}
        self.scans: dict[int, pa.RecordBatchReader] = {}
        self.scopes: dict[int, OpenScope] = {}
        self.received = Received()
        self.ended = False
        self._numbers = iter(range(1, 1 << 62))
        self._turn = threading.Lock()
        self._asked = 0  # the number of what the client has asked for last
        self._asking = threading.Lock()
        self._told: SessionState | None = None

    def open(self, options: dict[str, Any]) -> None:
        """Begin the session."""
        with self.turn():
            if self.connection is not None:
                raise InterfaceError("this client has its session already")
            session = ClientSession(
                self.database,
                str(options["isolation"]),
                bool(options["autocommit"]),
                float(options["lock_timeout"]),
                bool(options["read_only"]),
            )
            self._session = session
            self.connection = Connection(self.database, session, Runner)

    @property
    def session(self) -> Session:
        if self.connection is None:
            raise InterfaceError("this client has no session")
        return self.connection.session

    def state_to_tell(self) -> SessionState | None:
        """What the client must know of its session to go on with another one, if that is not what it was told last."""
        session, connection = self.session, self.connection
        assert connection is not None
        kept = bool(self.scopes or connection._builds or self.received.is_waiting)
        reads_on = not session.autocommit and session.isolation == "repeatable read" and bool(self.scans)
        is_missed = kept or reads_on or session.has_what_would_be_missed
        told = self._told
        statements: Any = connection._statements
        usual = (session.is_autocommit, session.usual_isolation, session.lock_timeout, statements.time_zone)
        state = (*usual, session.is_usually_read_only, session.was_begun, is_missed)
        if told is not None and told[1:] == state:
            return None
        self._told = SessionState(1 if told is None else told.number + 1, *state)
        return self._told

    def heap(self, table: TableThere) -> Heap:
        """The rows of a table that this client has asked for, or had from the owner before."""
        assert self.connection is not None
        obj_id, name, number = table[:3]
        heap = self.heaps.get(obj_id)
        if heap is None:
            if self.connection.table(name).number != number:
                raise NoSuchTable(f"the table that was called {name} is not there any more")
            heap = self.heaps[obj_id] = self.connection.heap(name)
        return heap

    def new_number(self) -> int:
        """A number for something that the client keeps open."""
        return next(self._numbers)

    @contextmanager
    def turn(self) -> Iterator[None]:
        with self._turn:
            self._require_not_ended()
            yield

    @contextmanager
    def turn_given_away(self) -> Iterator[None]:
        """Give the turn away while a stream that has it waits for the client."""
        self._turn.release()
        try:
            yield
        finally:
            self._turn.acquire()
        self._require_not_ended()

    def _require_not_ended(self) -> None:
        if self.ended:
            raise owner_gone(self.database.store.directory)

    # ---- scopes

    def enter(self, context: AbstractContextManager[Any], heap: Heap | None = None) -> tuple[int, Any]:
        """Enter a context manager for the client, which leaves it by its number; returns number and value."""
        number, value = self.new_number(), context.__enter__()
        self.scopes[number] = OpenScope(context, value, heap)
        return number, value

    def leave(self, number: int, succeeded: bool) -> None:
        """The client leaves it; ``succeeded``: without an exception."""
        opened = self.scopes.pop(number)
        if succeeded:
            opened.context.__exit__(None, None, None)
            return
        with suppress(_Abandoned):
            opened.context.__exit__(_Abandoned, _Abandoned(), None)

    def begin(self, number: int) -> None:
        """A request of the client begins, under a number."""
        with self._asking:
            self._asked = number

    def interrupt(self, number: int) -> None:
        """End the client's request of this number, unless it has made another since."""
        with self._asking:
            if self.connection is not None and number >= self._asked:
                self.connection.interrupt()

    # ---- the end

    def stop(self) -> None:
        """Have the thread that works in the session finish soon; a wait ends at once."""
        if self.connection is not None:
            session = self._session
            session.stopped = True
            session.hub.waits.interrupt(session)

    def end(self) -> None:
        """Roll back and end the session; may be called several times once the client is gone."""
        while not self._turn.acquire(timeout=INTERRUPT_INTERVAL):
            self.stop()  # it may have begun to wait only now
        try:
            if not self.ended:
                self.ended = True
                self._close()
        finally:
            self._turn.release()

    def _close(self) -> None:
        for cursor in self.cursors.values():
            cursor.close()  # type: ignore[attr-defined]
        self.cursors.clear()
        self.scans.clear()
        self.received.close()
        if self.connection is None:
            return
        session = self._session
        session.stopped = False
        if not self.database.store.devices:
            return
        for number in sorted(self.scopes, reverse=True):
            self.leave(number, succeeded=False)
        abandon_all(self.connection._builds)
        session.close()
        if session.temporary_schema:
            with suppress(Error):  # then they go when the database is opened next
                self.database.drop_temporary()
