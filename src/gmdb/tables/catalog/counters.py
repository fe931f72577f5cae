"""Counters: what numbers the rows of identity columns, and what sequences hand out.

Invariants
 1. No number is handed out twice, unless the program has the counter begin again, or it goes round: ``sys_identities``
    has, committed, a number beyond all that were handed out.  Its changes are not part of a user's transaction.
 2. Numbers may be left out: those of rows that were rolled back, and after a crash the rest of a block.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from gmdb.errors import Corruption, SchemaError, ValueOutOfRange
from gmdb.format.address import RowId
from gmdb.format.columns import Column
from gmdb.process.late_dataclasses import dataclass
from gmdb.tables.catalog.system import SystemTables
from gmdb.transaction.session import Session

BLOCK = 1000  # numbers that are taken from sys_identities together
LARGEST = (1 << 63) - 1
LARGEST_OF = {"SMALLINT": (1 << 15) - 1, "INT": (1 << 31) - 1, "BIGINT": LARGEST}


@dataclass(frozen=True)
class Counting:
    """How a counter goes on; ``cache``: numbers that are taken together, 0 for as many as usual."""

    start: int = 1
    increment: int = 1
    low: int = 1
    high: int = LARGEST
    cycle: bool = False
    cache: int = 0

    def __post_init__(self) -> None:
        numbers = (self.start, self.increment, self.low, self.high, self.cache)
        if not all(type(n) is int and -LARGEST - 1 <= n <= LARGEST for n in numbers) or type(self.cycle) is not bool:
            raise SchemaError(f"a counter goes by whole numbers of 64 bits, not by {numbers}")
        if self.increment == 0:
            raise SchemaError("the increment of a counter cannot be 0")
        if self.low >= self.high:
            raise SchemaError(f"the smallest number, {self.low}, must be less than the largest, {self.high}")
        self.require(self.start, "the first number")
        if self.cache < 0:
            raise SchemaError(f"a counter cannot set {self.cache} numbers aside")

    @property
    def plain(self) -> tuple[Any, ...]:
        """As definitions keep it."""
        return self.start, self.increment, self.low, self.high, self.cycle, self.cache

    def require(self, number: int, what: str) -> None:
        if not self.low <= number <= self.high:
            raise SchemaError(f"{what}, {number}, does not lie between {self.low} and {self.high}")

    @classmethod
    def of(cls, type_: str = "BIGINT", increment: int = 1, **given: Any) -> Counting:
        """A counter of a type, with what was not given as PostgreSQL has it."""
        if type_ not in LARGEST_OF:
            raise SchemaError(f"a sequence is {', '.join(LARGEST_OF)}, not {type_}")
        unknown = given.keys() - {"low", "high", "start", "cycle", "cache"}
        if unknown:
            raise SchemaError(f"a sequence has no option {unknown.pop()}")
        largest = LARGEST_OF[type_]
        low = given.pop("low", None)
        high = given.pop("high", None)
        low = (1 if increment > 0 else -largest - 1) if low is None else low
        high = (largest if increment > 0 else -1) if high is None else high
        if not -largest - 1 <= low <= largest or not -largest - 1 <= high <= largest:
            raise SchemaError(f"the numbers from {low} to {high} are not all {type_}")
        start = given.pop("start", None)
        return cls((low if increment > 0 else high) if start is None else start, increment, low, high, **given)


def changed_counting(type_: str, before: Counting, new_type: str, options: Mapping[str, Any]) -> Counting:
    """A counter with some options changed; the ends of its type become those of another one."""
    kept = {name: getattr(before, name) for name in ("start", "increment", "low", "high", "cycle", "cache")}
    largest, new_largest = LARGEST_OF[type_], LARGEST_OF.get(new_type, LARGEST)
    if before.low == -largest - 1:
        kept["low"] = -new_largest - 1
    if before.high == largest:
        kept["high"] = new_largest
    return Counting.of(new_type, **{**kept, **options})


def counting_of(column: Column) -> Counting:
    """How the numbers of an identity column go on."""
    if not column.numbers:
        return Counting()
    start, increment, low, high, cache, *cycle = column.numbers  # without the last one if the numbers end some day
    return Counting(start, increment, low, high, bool(cycle and cycle[0]), cache)


def identity_plain(counting: Counting) -> tuple[Any, ...]:
    """How an identity counts, as its column keeps it."""
    *most, cycle, cache = counting.plain
    return (*most, cache, 1) if cycle else (*most, cache)


class _Counter:
    def __init__(self, row_id: RowId, following: int) -> None:
        self.row_id = row_id
        self.following = following
        self.end = following  # up to here numbers may be handed out


class Counters:
    def __init__(self, system: SystemTables, session: Session, lock: threading.Lock) -> None:
        """``session``: used by nothing else while the lock is held."""
        self._system = system
        self._session = session
        self._lock = lock
        rows = system.rows("sys_identities")
        self._counters = {number: _Counter(row_id, following) for row_id, (number, following) in rows}
        session.commit()

    def create(self, number: int, start: int = 1) -> None:
        """A new counter, which exists at once; if what it is for is never created, it stays unused."""
        with self._lock:
            row_id = self._commit(lambda: self._system.heap("sys_identities").insert((number, start)))
            self._counters[number] = _Counter(row_id, start)

    def take(self, number: int, count: int, counting: Counting) -> list[int]:
        """Reserve ``count`` numbers."""
        taken: list[int] = []
        with self._lock:
            counter = self._counter(number)
            while len(taken) < count:
                taken += self._take_some(counter, number, count - len(taken), counting)
        return taken

    def _take_some(self, counter: _Counter, number: int, count: int, counting: Counting) -> range:
        """Numbers up to the largest at most."""
        first, step = counter.following, counting.increment
        high, low = min(counting.high, LARGEST - 1), max(counting.low, -LARGEST)
        if not low <= first <= high:
            if not counting.cycle:
                raise ValueOutOfRange(f"all numbers from {counting.low} to {counting.high} are used up")
            first = low if step > 0 else high
        count = min(count, abs((high if step > 0 else low) - first) // abs(step) + 1)
        following = first + count * step
        if following > counter.end if step > 0 else following < counter.end:
            beyond = following + (counting.cache or BLOCK) * step
            self._write(counter, number, max(min(beyond, LARGEST), -LARGEST - 1))
        counter.following = max(min(following, LARGEST), -LARGEST - 1)
        return range(first, following, step)

    def _counter(self, number: int) -> _Counter:
        if number not in self._counters:
            raise Corruption(f"sys_identities has no counter {number}; see gmdb verify")
        return self._counters[number]

    def restart(self, number: int, start: int | None = None) -> None:
        """Go on with another number; None: the same, but with nothing set aside."""
        with self._lock:
            counter = self._counter(number)
            start = counter.following if start is None else max(min(start, LARGEST), -LARGEST - 1)
            self._write(counter, number, start)
            counter.following = counter.end = start

    def settle(self) -> None:
        """Give back the unused numbers of blocks: the database is about to be closed."""
        with self._lock:
            for number, counter in self._counters.items():
                if counter.end != counter.following:
                    self._write(counter, number, counter.following)

    def forget_all_but(self, used: Iterable[int]) -> None:
        """Remove counters that are for nothing any more."""
        gone = set(self._counters) - set(used)
        for number in gone:
            self._system.heap("sys_identities").delete(self._counters.pop(number).row_id)
        self._session.commit()

    def listed(self) -> list[tuple[int, int]]:
        """Each counter and the number that it hands out next."""
        with self._lock:
            return [(number, counter.following) for number, counter in sorted(self._counters.items())]

    def following(self, number: int) -> int:
        """The number that a counter hands out next."""
        with self._lock:
            return self._counter(number).following

    def numbers(self) -> list[int]:
        return list(self._counters)

    def _write(self, counter: _Counter, number: int, end: int) -> None:
        heap = self._system.heap("sys_identities")
        self._commit(lambda: heap.update(counter.row_id, (number, end)))
        counter.end = end

    def _commit(self, change: Callable[[], Any]) -> Any:
        """Make a change in the catalog's own session, and commit it."""
        try:
            made = change()
            self._session.commit()
            return made
        except BaseException:
            if self._session.in_transaction:
                self._session.rollback()
            raise
