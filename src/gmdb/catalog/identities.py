"""Counters that number the rows of identity columns.

Invariants
 1. No number is handed out twice: ``sys_identities`` has, committed, the first number of which none is handed out.
    What it gains and loses is no part of a user's transaction.
 2. Numbers may be left out: those of rows that were rolled back, and after a crash the rest of a block.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any

from gmdb.catalog.system import SystemTables
from gmdb.errors import Corruption, ValueOutOfRange
from gmdb.format.address import RowId
from gmdb.transaction.session import Session

BLOCK = 1000  # numbers that are taken from sys_identities together
LARGEST = (1 << 63) - 1


class _Counter:
    def __init__(self, row_id: RowId, following: int) -> None:
        self.row_id = row_id
        self.following = following
        self.end = following  # up to here numbers may be handed out


class Identities:
    def __init__(self, system: SystemTables, session: Session, lock: threading.Lock) -> None:
        """``session``: in which nothing else happens while the lock is held."""
        self._system = system
        self._session = session
        self._lock = lock
        rows = system.rows("sys_identities")
        self._counters = {number: _Counter(row_id, following) for row_id, (number, following) in rows}
        session.commit()

    def create(self, number: int, start: int = 1) -> None:
        """A new counter.  It is there at once; if its column never comes about, nobody asks for it."""
        with self._lock:
            row_id = self._commit(lambda: self._system.heap("sys_identities").insert((number, start)))
            self._counters[number] = _Counter(row_id, start)

    def take(self, number: int, count: int) -> int:
        """The first of ``count`` numbers that nobody else gets."""
        with self._lock:
            counter = self._counter(number)
            first, following = counter.following, counter.following + count
            if following > LARGEST:
                raise ValueOutOfRange(f"an identity column has used up all numbers up to {LARGEST}")
            if following > counter.end:
                self._write(counter, number, min(following + BLOCK, LARGEST))
            counter.following = following
            return first

    def _counter(self, number: int) -> _Counter:
        if number not in self._counters:
            raise Corruption(f"sys_identities has no counter {number}; see gmdb verify")
        return self._counters[number]

    def restart(self, number: int, start: int) -> None:
        """Go on with another number."""
        with self._lock:
            counter = self._counter(number)
            self._write(counter, number, start)
            counter.following = counter.end = start

    def settle(self) -> None:
        """Give back what is left of blocks: the database is about to be closed."""
        with self._lock:
            for number, counter in self._counters.items():
                if counter.end > counter.following:
                    self._write(counter, number, counter.following)

    def forget_all_but(self, used: Iterable[int]) -> None:
        """Remove counters that are no column's any more."""
        gone = set(self._counters) - set(used)
        for number in gone:
            self._system.heap("sys_identities").delete(self._counters.pop(number).row_id)
        self._session.commit()

    def listed(self) -> list[tuple[int, int]]:
        """Each counter and the number that it hands out next."""
        with self._lock:
            return [(number, counter.following) for number, counter in sorted(self._counters.items())]

    def numbers(self) -> list[int]:
        return list(self._counters)

    def _write(self, counter: _Counter, number: int, end: int) -> None:
        heap = self._system.heap("sys_identities")
        self._commit(lambda: heap.update(counter.row_id, (number, end)))
        counter.end = end

    def _commit(self, change: Callable[[], Any]) -> Any:
        """Do something in the catalog's own session, and make it last."""
        try:
            made = change()
            self._session.commit()
            return made
        except BaseException:
            if self._session.in_transaction:
                self._session.rollback()
            raise
