"""Operations on a session: one at a time, whole, and ended from another thread or a signal handler.

An *operation* is what a program asks of a session: a statement, a commit, a step of a read.  Threads that share a
connection take turns, an operation each.  Signals are held meanwhile (process/signals.py).

Invariants
 1. Only what is under way when ``interrupt`` is called ends: a session that does nothing goes on as before.
 2. An interrupt ends work between two steps; a commit that is being written is never ended.
 3. A signal handler may call ``interrupt``: in the main thread it takes no lock, which that thread might hold.
 4. What changes a session is an operation, or a single kernel call under the guard while ``busy`` is held: the fast
    path.  Of that, all that must not be lost is recorded by the kernel itself (``records`` of kernel.call.CALL).
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from gmdb.errors import InterfaceError, StatementInterrupted
from gmdb.process.signals import Held, HeldIterator, in_helper_thread

if TYPE_CHECKING:
    from gmdb.transaction.hub import Transactions
    from gmdb.transaction.session import Session
    from gmdb.transaction.snapshots import Snapshot


_IS_GENERATOR = 0x20  # of the flags of a function's code: inspect.CO_GENERATOR
_PATIENCE = 0.02  # seconds until a thread that uses a connection which is to be closed is interrupted again
T = TypeVar("T")
Method = TypeVar("Method", bound=Callable[..., Any])


class HasSession(Protocol):
    session: Session


def operation(method: Method, check: Callable[[Any], None] | None = None) -> Method:
    """Make a method of an object with a session an operation on that session, which ``check`` may refuse.

    Of a generator function, which reads, each step is an operation; under autocommit the read ends with the last.
    """
    if method.__code__.co_flags & _IS_GENERATOR:

        @functools.wraps(method)
        def begin(self: HasSession, *arguments: Any, **options: Any) -> Any:
            session = self.session
            return HeldIterator(method(self, *arguments, **options), session.held, session.finish_read_if_idle)

        return cast(Method, begin)

    @functools.wraps(method)
    def run(self: HasSession, *arguments: Any, **options: Any) -> Any:
        session = self.session
        with session.busy, session.held:
            try:
                if check is not None:
                    check(session)
                return method(self, *arguments, **options)
            except BaseException:
                session.finish_failed()
                raise

    return cast(Method, run)


class Work(Protocol):
    """Work outside of this engine that can be ended."""

    def interrupt(self) -> None: ...


class Interruptible:
    """The part of a session that others can interrupt."""

    hub: Transactions

    def _do_nothing_yet(self) -> None:
        self.busy = threading.RLock()  # one operation at a time
        self.held = Held(weakref.proxy(self))  # no reference cycle: an unused session is freed at once
        self.closing = False  # another thread waits for the work to end, and closes the session then
        self.interrupted = False  # the work that is going on is to end
        self._working = 0  # statements that are running, one within the other
        self._reads: set[Snapshot] = set()
        self._elsewhere: set[Work] = set()

    def begin_work(self) -> None:
        """A statement begins."""
        self._working += 1

    def end_work(self) -> None:
        """A statement has ended: an interrupt of it that comes only now does not end the next."""
        with self.hub.guard:
            self._working -= 1
            if not self._working:
                self.interrupted = False

    @contextmanager
    def ended_soon(self) -> Iterator[None]:
        """Have the session to close it: what another thread does with it is interrupted, and finds it closed."""
        self.closing = True
        while not self.busy.acquire(timeout=_PATIENCE):
            self._interrupt()  # it may have begun to wait just now
        self.closing = False
        try:
            yield
        finally:
            self.busy.release()

    def watch(self, work: Work) -> None:
        """End this work, too, on an interrupt, until ``unwatch``."""
        self._elsewhere.add(work)
        if self.interrupted:  # before the work could be interrupted
            work.interrupt()

    def unwatch(self, work: Work) -> None:
        self._elsewhere.discard(work)

    def check_interrupted(self) -> None:
        """To be called between two steps of a long operation."""
        if self.interrupted:
            self.interrupted = False
            if self.closing:
                raise InterfaceError("the connection is closed")
            raise _interrupted()

    def forget_interrupt(self) -> None:
        """A wait that was not part of a statement is over."""
        if not self._working:
            self.interrupted = False

    def interrupt(self) -> None:
        """Have the work under way in the session end soon, with StatementInterrupted."""
        if threading.get_ident() == threading.main_thread().ident:
            in_helper_thread(self._interrupt)
        else:
            self._interrupt()

    def _interrupt(self) -> None:
        session, waits = cast("Session", self), self.hub.waits
        with self.hub.guard:
            if session.closed:
                return
            if self._working or waits.is_waiting(session):
                self.interrupted = True
            for snapshot in list(self._reads):
                snapshot.cancel(_interrupted())
        waits.interrupt(session)
        for work in list(self._elsewhere):
            work.interrupt()


def _interrupted() -> StatementInterrupted:
    return StatementInterrupted("the statement was interrupted")
