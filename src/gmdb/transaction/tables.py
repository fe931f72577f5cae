"""Table locks: whoever changes or reads rows shares a table, whoever changes its definition has it alone."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gmdb.transaction.session import Session


class TableLocks:
    """Who holds which table; held until the transaction ends.  Whoever calls holds the store's guard."""

    def __init__(self) -> None:
        self._shared: dict[int, set[Session]] = {}
        self._alone: dict[int, Session] = {}

    def share(self, obj_id: int, session: Session) -> list[Session]:
        """Take the table together with others; answers who is in the way, nobody if it was taken."""
        holder = self._alone.get(obj_id)
        if holder is not None and holder is not session:
            return [holder]
        self._shared.setdefault(obj_id, set()).add(session)
        return []

    def take_alone(self, obj_id: int, session: Session) -> list[Session]:
        others = [other for other in self._shared.get(obj_id, ()) if other is not session]
        holder = self._alone.get(obj_id)
        if holder is not None and holder is not session:
            others.append(holder)
        if not others:
            self._alone[obj_id] = session
        return others

    def release(self, session: Session, obj_ids: set[int]) -> None:
        for obj_id in obj_ids:
            self._shared.get(obj_id, set()).discard(session)
            if self._alone.get(obj_id) is session:
                del self._alone[obj_id]


def lock_table(session: Session, obj_id: int, attempt: Callable[[], list[Session]]) -> None:
    """Take a table, waiting for those who are in the way, which ``attempt`` tells, for as long as the session waits."""
    deadline = time.monotonic() + session.lock_timeout
    key = ("table", obj_id)
    waits = session.hub.waits
    waited = False
    while True:
        seen = waits.releases
        with session.hub.guard:
            holders = [] if waits.has_queue(key, session) else attempt()
            blocked = waits.has_queue(key, session) or bool(holders)
        if not blocked:
            if waited:
                waits.leave(key, session)
            return
        waited = True
        waits.wait(session, key, f"table {obj_id}", holders, seen, deadline)
        try:
            session.require_open()
        except BaseException:
            waits.leave(key, session)
            raise
