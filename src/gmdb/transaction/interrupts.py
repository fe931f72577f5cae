"""Ending what a session does, from another thread or a signal handler.

Invariants
 1. Only what is under way when ``interrupt`` is called ends: a session that does nothing goes on as before.
 2. Whoever is told, is told between two steps; a commit that is being written is never ended.
 3. A signal handler may call ``interrupt``: in the main thread it takes no lock, which that thread might hold.
"""

from __future__ import annotations

import _thread
import threading
import weakref
from typing import TYPE_CHECKING, Protocol, cast

from gmdb.errors import StatementInterrupted

if TYPE_CHECKING:
    from gmdb.transaction.hub import Transactions
    from gmdb.transaction.session import Session
    from gmdb.transaction.snapshots import Snapshot


class Work(Protocol):
    """Something that goes on outside of this engine, and can be ended."""

    def interrupt(self) -> None: ...


class Interruptible:
    """The part of a session that others can tell to stop."""

    hub: Transactions

    def _do_nothing_yet(self) -> None:
        self.interrupted = False  # the work that is going on is to end
        self._working = 0  # statements that are running, one within the other
        self._reads: weakref.WeakSet[Snapshot] = weakref.WeakSet()
        self._elsewhere: weakref.WeakSet[Work] = weakref.WeakSet()

    def begin_work(self) -> None:
        """A statement begins."""
        self._working += 1

    def end_work(self) -> None:
        """A statement has ended: an interrupt of it, which may be coming just now, is none of the next."""
        with self.hub.guard:
            self._working -= 1
            if not self._working:
                self.interrupted = False

    def watch(self, work: Work) -> None:
        """End this, too, for as long as somebody has it."""
        self._elsewhere.add(work)

    def leave_alone(self, work: Work) -> None:
        self._elsewhere.discard(work)

    def check_interrupted(self) -> None:
        """To be called between two steps of what may take long."""
        if self.interrupted:
            self.interrupted = False
            raise _interrupted()

    def forget_interrupt(self) -> None:
        """A wait is over that was no part of a statement."""
        if not self._working:
            self.interrupted = False

    def interrupt(self) -> None:
        """Let what goes on in the session end with StatementInterrupted, soon."""
        if threading.get_ident() == threading.main_thread().ident:
            _thread.start_new_thread(self._interrupt, ())
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
