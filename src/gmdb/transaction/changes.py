"""A change of a row that cannot be made at once: wait for the row, make room, go by a newer snapshot, try again."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from gmdb.errors import RowLocked, WriteConflict
from gmdb.format.address import RowId
from gmdb.kernel.dml import holds_row
from gmdb.kernel.status import CHANGED, DAMAGED, LOCKED, LOCKS_FULL, LOG_FULL, NEED_SPACE, UNDO_FULL
from gmdb.storage.store import PAGES_MIN
from gmdb.transaction.call import BLOCKED, BLOCKER, LATEST, SCN

if TYPE_CHECKING:
    from gmdb.transaction.session import Session

TRY_AGAIN = (LOCKED, CHANGED, NEED_SPACE, DAMAGED, LOCKS_FULL, UNDO_FULL, LOG_FULL)


def is_in_line(session: Session, key: RowId | None, arguments: tuple[int, ...]) -> bool:
    """Whether others came first to wait for the row; not if the session holds it already."""
    hub = session.hub
    return key is not None and hub.waits.has_queue(key, session) and not holds_row(hub.store.area, *arguments)


def change_with_patience(
    session: Session,
    kernel: Any,
    space_id: int,
    key: RowId | None,
    arguments: tuple[int, ...],
    nowait: bool,
    result: int,
) -> int:
    """Go on after a first try that ended with the status ``result``, until there is a result or no hope."""
    waits = session.hub.waits
    deadline = time.monotonic() + session.lock_timeout
    waited = False
    session.pages_wanted = PAGES_MIN
    seen = waits.releases - 1  # try once more at once: it may have been let go already
    try:
        while result in TRY_AGAIN:
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
                _overcome(session, result, key)
            seen = waits.releases
            result = _try_again(session, kernel, space_id, key, arguments, result)
        return result
    finally:
        if waited:
            waits.leave(key, session)
            session.forget_interrupt()


def _awaited(session: Session, key: RowId | None) -> RowId | None:
    """The row that is waited for: the one to be changed, or another that may have the same key."""
    place = session.call[BLOCKED]
    return key if place < 0 else RowId(place >> 16, place & 0xFFFF)


def _overcome(session: Session, result: int, key: RowId | None) -> None:
    """Do what helps outside of the guard, or give up."""
    if result == LOCKED:
        raise RowLocked(f"row {key} is held by another transaction")
    if result in (LOCKS_FULL, UNDO_FULL):
        session.hub.make_room(result)
    elif result == LOG_FULL:
        session.hub.store.throttle()
        session.hub.store.make_log_room(False)
    elif result == CHANGED and not session.call[LATEST]:
        raise WriteConflict(f"row {key} was changed by another transaction since this one's snapshot")


def _try_again(
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
        if is_in_line(session, key, arguments):
            session.call[BLOCKER] = session.call[BLOCKED] = -1
            return LOCKED
        session.reserve_records()
        return kernel(store.area, *arguments)
