"""Definitions that a transaction has changed: private until it commits, and rolled back with it.

Here a definition is any object of the catalog's, by the number of its table; None once the table is dropped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from gmdb.kernel.runtime.call import STAMP

if TYPE_CHECKING:
    from gmdb.transaction.hub import Transactions
    from gmdb.transaction.session import Session


Changes = Mapping[int, Any]


class ChangedDefinitions:
    def __init__(self) -> None:
        self.now: Changes = {}
        self._before: list[tuple[int, Changes]] = []  # undo records when it was changed, what was changed until then

    def change(self, changes: Changes, undo_count: int) -> None:
        """Note changed definitions; the transaction has ``undo_count`` undo records by now."""
        self._before.append((undo_count, self.now))
        self.now = {**self.now, **changes}

    def take_back_to(self, undo_count: int) -> set[int]:
        """Forget the changes whose undo records are gone; returns the tables that are as they were again."""
        reached = self.now
        while self._before and self._before[-1][0] > undo_count:
            _, self.now = self._before.pop()
        return {number for number in reached if reached[number] is not self.now.get(number, self)}


# ---- Table locks: a transaction that changes rows shares a table, one that changes its definition has it alone.
#
# Names are taken alone, too, when they are given or removed.  Readers take no lock: they use the definition that
# belongs to their snapshot, and what that leads to is kept for as long as the snapshot is held.


class Name(NamedTuple):
    """A name that is being given or removed, as sessions lock it."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"the name {self.name} of a {self.kind}"


class TableLocks:
    """Which session holds which table until its transaction ends.  The caller holds the store's guard."""

    def __init__(self) -> None:
        self._shared: dict[Hashable, set[Session]] = {}
        self._alone: dict[Hashable, Session] = {}

    def share(self, key: Hashable, session: Session) -> list[Session]:
        """Take the table together with others; returns the sessions in the way, none if it was taken."""
        holder = self._alone.get(key)
        if holder is not None and holder is not session:
            return [holder]
        self._shared.setdefault(key, set()).add(session)
        return []

    def take_alone(self, key: Hashable, session: Session) -> list[Session]:
        others = [other for other in self._shared.get(key, ()) if other is not session]
        holder = self._alone.get(key)
        if holder is not None and holder is not session:
            others.append(holder)
        if not others:
            self._alone[key] = session
        return others

    def is_alone(self, key: Hashable, session: Session) -> bool:
        return self._alone.get(key) is session

    def holders(self) -> list[tuple[Hashable, Session, bool]]:
        """Who holds what, and whether alone."""
        shared = [(key, session, False) for key, sessions in self._shared.items() for session in sessions]
        return shared + [(key, session, True) for key, session in self._alone.items()]

    def release(self, session: Session, keys: set[Hashable]) -> None:
        for key in keys:
            sharing = self._shared.get(key)
            if sharing is not None:
                sharing.discard(session)
                if not sharing:
                    del self._shared[key]
            if self._alone.get(key) is session:
                del self._alone[key]


class HoldsTables:
    """The part of a session that holds tables and names, until its transaction ends."""

    hub: Transactions

    def _release_tables(self) -> None:
        self.tables_held: dict[int, object] = {}  # tables that are locked, and the definitions by which they are used
        self.tables_seen: dict[int, object] = {}  # definitions by which reads go; emptied when others come, by the hub
        cast("Session", self).call[STAMP] += 1
        self.has_read = False  # anything, in this transaction
        self._locks_taken: set[Hashable] = set()
        self._segments_used: dict[int, tuple[int, int]] = {}  # obj_id: entry page, tablespace
        self._loads: list[tuple[int, int, int, int]] = []  # undo mark, entry page, last page, tablespace

    def share_table(self, number: int, name: str) -> None:
        """Hold a table against changes of its definition until the transaction ends.

        A transaction that changed it before has released it, and its commit is visible, also if it was interrupted
        while it waited for the disk.
        """
        session = cast("Session", self)
        session.require_open()
        if number in self._locks_taken:
            return  # also if others wait for it: a holder does not queue
        tables = self.hub.tables
        with self.hub.guard:  # the fast path, while nobody waits for anything
            is_shared = not self.hub.waits.queues and not tables.share(number, session)
        if not is_shared:
            _take(session, number, f"table {name}", lambda: tables.share(number, session))
        self._locks_taken.add(number)
        if self.hub.has_abandoned_commits:
            self.hub.finish_commits()

    def use_table(self, number: int, definition: object, obj_id: int, entry_page: int, space_id: int) -> None:
        """Use a definition of a table that is shared; ``obj_id``: of its segment."""
        self.tables_held[number] = self.tables_seen[number] = definition
        self._segments_used[obj_id] = (entry_page, space_id)

    def forget_tables_seen(self) -> None:
        """Other definitions have come: reads look them up again.  The guard is held."""
        self.tables_seen.clear()
        cast("Session", self).call[STAMP] += 1

    def _forget_definitions(self, numbers: Iterable[int]) -> None:
        """Definitions of tables have changed: they are looked up again at their next use."""
        for number in numbers:
            self.tables_held.pop(number, None)
            self.tables_seen.pop(number, None)
        cast("Session", self).call[STAMP] += 1

    def note_load(self, entry_page: int, last_page: int, space_id: int) -> None:
        """Have inserts into the table go on at ``last_page`` once the transaction has committed."""
        self._loads.append((cast("Session", self).mark(), entry_page, last_page, space_id))

    def last_page_loaded(self, entry_page: int) -> int | None:
        """The page at which this transaction's own bulk append of a table ended."""
        return next((last for _, entry, last, _ in reversed(self._loads) if entry == entry_page), None)

    def holds(self, key: Hashable) -> bool:
        """Whether the transaction has a table or name, together with others or alone."""
        return key in self._locks_taken

    def take_alone(self, key: Hashable, what: str = "") -> None:
        """Take a table, or a name, alone until the transaction ends; ``what``: how messages name it.

        A transaction that had it before has released it, and its commit is visible, as with ``share_table``.
        """
        session, tables = cast("Session", self), self.hub.tables
        if not tables.is_alone(key, session):
            _take(session, key, what or str(key), lambda: tables.take_alone(key, session))
            self._locks_taken.add(key)
            self.hub.finish_commits()

    def share_instead(self, number: int) -> None:
        """Let others share a table that was taken alone; a session that needs it alone still waits."""
        session = cast("Session", self)
        with self.hub.guard:
            self.hub.tables.release(session, {number})
            self.hub.tables.share(number, session)
        self.hub.waits.wake()


def _take(session: Session, key: Hashable, what: str, attempt: Callable[[], list[Session]]) -> None:
    """Take a table, waiting up to the session's lock timeout for the sessions in the way, which ``attempt`` returns."""
    deadline = time.monotonic() + session.lock_timeout
    goes_first = session.holds(key)
    key = ("table", key)
    waits = session.hub.waits
    waited = False
    while True:
        seen = waits.releases
        with session.hub.guard:
            must_queue = not goes_first and waits.has_queue(key, session)
            holders = [] if must_queue else attempt()
            blocked = must_queue or bool(holders)
        if not blocked:
            if waited:
                waits.leave(key, session)
                session.forget_interrupt()
            return
        waited = True
        waits.wait(session, key, what, holders, seen, deadline, goes_first)
        try:
            session.check_interrupted()
            session.require_open()
        except BaseException:
            waits.leave(key, session)
            raise
