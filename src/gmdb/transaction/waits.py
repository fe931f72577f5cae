"""Waiting for rows and tables that others hold.

Invariants
 1. Sessions that wait for the same thing get it in order of arrival; but one that holds it already and wants more of
    it goes first, since all others wait for that one.
 2. A wait that would close a circle of transactions waiting for each other is refused at once.
 3. No session waits while it holds the store's guard.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any

from gmdb.errors import Deadlock, LockTimeout, RowLocked, WriteConflict
from gmdb.format.address import RowId
from gmdb.kernel.change.dml import holds_row
from gmdb.kernel.runtime.call import BLOCKED, BLOCKER, LATEST, SCN
from gmdb.kernel.runtime.status import CHANGED, DAMAGED, LOCKED, LOCKS_FULL, LOG_FULL, NEED_SPACE, UNDO_FULL
from gmdb.storage.store import PAGES_MIN

if TYPE_CHECKING:
    from gmdb.transaction.session import Session


class _Waiter:
    def __init__(self, session: Session) -> None:
        self.session = session
        self.turn = threading.Event()


class LockWaits:
    """Queues of waiting sessions, by what they wait for.  Its own lock guards them; it is held only briefly."""

    def __init__(self, note: Callable[[int], None]) -> None:
        """``note`` is called with 1 when there is a queue, and with 0 when there is none any more."""
        self._lock = threading.Lock()
        self._note = note
        self.queues: dict[Hashable, deque[_Waiter]] = {}
        self.releases = 0
        self._waits_for: dict[Session, tuple[Hashable, list[Session]]] = {}

    def has_queue(self, key: Hashable, session: Session) -> bool:
        """Whether others wait for the same already."""
        queue = self.queues.get(key)
        return bool(queue) and queue is not None and queue[0].session is not session

    def wait(
        self,
        session: Session,
        key: Hashable,
        what: str,
        holders: list[Session],
        seen: int,
        deadline: float,
        goes_first: bool = False,
    ) -> None:
        """Wait until the session is first in the queue for ``key`` and something was released.

        ``holders`` have it now; ``seen`` is what ``releases`` was before the caller tried.  The caller then tries
        again, and calls ``leave`` once it has what it wanted, or has given up.
        """
        with self._lock:
            waiter = self._enter(session, key, goes_first)
            if self.queues[key][0] is waiter and self.releases != seen:
                return  # between the try and now; a wake-up for it will not come again
            self._waits_for[session] = (key, holders)
            if self._in_a_circle(session):
                self._remove(key, session)
                raise Deadlock(f"{what} is held by a transaction that waits for this one; roll back and try again")
        waiter.turn.wait(max(deadline - time.monotonic(), 0))
        with self._lock:
            timed_out = not waiter.turn.is_set()
            waiter.turn.clear()
            self._waits_for.pop(session, None)
            if timed_out:
                self._remove(key, session)
                limit = session.lock_timeout
                raise LockTimeout(
                    f"{what} was held by another transaction for over {limit:g} s (lock_timeout); try again"
                )

    def _enter(self, session: Session, key: Hashable, goes_first: bool) -> _Waiter:
        queue = self.queues.setdefault(key, deque())
        self._note(1)
        for waiter in queue:
            if waiter.session is session:
                return waiter
        waiter = _Waiter(session)
        if goes_first:
            queue.appendleft(waiter)
        else:
            queue.append(waiter)
        return waiter

    def _remove(self, key: Hashable, session: Session) -> None:
        queue = self.queues.get(key)
        self._waits_for.pop(session, None)
        if queue is None:
            return
        for waiter in list(queue):
            if waiter.session is session:
                queue.remove(waiter)
        if not queue:
            del self.queues[key]
            self._note(int(bool(self.queues)))
        else:
            self._wake(queue[0])

    def _wake(self, waiter: _Waiter) -> None:
        """Wake a session to try again; until then it counts as not waiting."""
        waiter.turn.set()
        self._waits_for.pop(waiter.session, None)

    def leave(self, key: Hashable, session: Session) -> None:
        """Remove a session from a queue: it has what it waited for, or gave up."""
        with self._lock:
            self._remove(key, session)

    def wake(self) -> None:
        """A transaction released something: the first in each queue tries again."""
        with self._lock:
            self.releases += 1
            for queue in self.queues.values():
                self._wake(queue[0])

    def interrupt(self, session: Session) -> None:
        """Wake a session wherever it is in a queue, so that it finds out that it is interrupted."""
        with self._lock:
            for queue in self.queues.values():
                for waiter in queue:
                    if waiter.session is session:
                        self._wake(waiter)

    def is_waiting(self, session: Session) -> bool:
        with self._lock:
            return any(waiter.session is session for queue in self.queues.values() for waiter in queue)

    def _blockers(self, session: Session) -> list[Session]:
        """The sessions that this one waits for: the holders, and those before it in the queue."""
        waiting = self._waits_for.get(session)
        if waiting is None:
            return []
        key, holders = waiting
        ahead = []
        for waiter in self.queues.get(key, ()):
            if waiter.session is session:
                break
            ahead.append(waiter.session)
        return [other for other in (*holders, *ahead) if other is not session]

    def _in_a_circle(self, start: Session) -> bool:
        reached: set[Session] = set()
        border = self._blockers(start)
        while border:
            session = border.pop()
            if session is start:
                return True
            if session not in reached:
                reached.add(session)
                border.extend(self._blockers(session))
        return False

    def waiting(self) -> list[tuple[Session, Hashable]]:
        with self._lock:
            return [(session, key) for session, (key, _) in self._waits_for.items()]


# ---- A change of a row that cannot be made at once: wait for the row, make room, use a newer snapshot, retry.

RETRIED = (LOCKED, CHANGED, NEED_SPACE, DAMAGED, LOCKS_FULL, UNDO_FULL, LOG_FULL)


def must_queue(session: Session, key: RowId | None, arguments: tuple[int, ...]) -> bool:
    """Whether others wait for the row already; not if the session holds it."""
    hub = session.hub
    return key is not None and hub.waits.has_queue(key, session) and not holds_row(hub.store.area, *arguments)


def change_with_retries(
    session: Session,
    kernel: Any,
    space_id: int,
    key: RowId | None,
    arguments: tuple[int, ...],
    nowait: bool,
    result: int,
) -> int:
    """Retry after a first try that returned the status ``result``, until there is a result or an error."""
    waits = session.hub.waits
    deadline = time.monotonic() + session.lock_timeout
    waited = False
    session.pages_wanted = PAGES_MIN
    seen = waits.releases - 1  # retry at once: it may have been released already
    try:
        while result in RETRIED:
            if result == CHANGED and session.depth and session.call[LATEST]:
                return result
            if result == LOCKED and not nowait:
                waited, awaited = True, _awaited(session, key)
                holder = session.hub.active.get(session.call[BLOCKER])
                try:
                    waits.wait(session, awaited, f"row {awaited}", [holder] if holder else [], seen, deadline)
                finally:
                    if awaited != key:
                        waits.leave(awaited, session)
            else:
                _make_retry_possible(session, result, key)
            seen = waits.releases
            result = _retry(session, kernel, space_id, key, arguments, result)
        return result
    finally:
        if waited:
            waits.leave(key, session)
            session.forget_interrupt()


def _awaited(session: Session, key: RowId | None) -> RowId | None:
    """The row that is waited for: the one to be changed, or another that may have the same key."""
    place = session.call[BLOCKED]
    return key if place < 0 else RowId.from_place(place)


def _make_retry_possible(session: Session, result: int, key: RowId | None) -> None:
    """Do what a retry needs and must be done without the guard, or raise."""
    if result == LOCKED:
        raise RowLocked(f"row {key} is held by another transaction")
    if result in (LOCKS_FULL, UNDO_FULL):
        session.hub.make_room(result)
    elif result == LOG_FULL:
        session.hub.store.throttle()
        session.hub.store.make_log_room(False)
    elif result == CHANGED and not session.call[LATEST]:
        raise WriteConflict(f"row {key} was changed by another transaction since this one's snapshot")


def _retry(
    session: Session, kernel: Any, space_id: int, key: RowId | None, arguments: tuple[int, ...], result: int
) -> int:
    store = session.hub.store
    session.check_interrupted()
    with session.hub.guard:
        session.require_open()
        if result == NEED_SPACE:
            session.pages_wanted = store.grow_for(space_id, session.pages_wanted)
        elif result == DAMAGED:
            store.raise_damage()
        elif result == CHANGED:
            session.call[SCN] = session.hub.memory.scn
        if must_queue(session, key, arguments):
            session.call[BLOCKER] = session.call[BLOCKED] = -1
            return LOCKED
        session.reserve_records()
        return kernel(store.area, *arguments)
