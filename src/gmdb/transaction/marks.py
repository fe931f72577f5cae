"""What a serializable transaction has read and written of a table, so that it can be compared with others.

Reads are rows, pages of rows, keys of an index, ranges of keys, or the whole table; writes are rows with the keys that
their versions had.  A key is a tuple of values that sort as the index does (tables/access/tracked_rows.py).

Invariants
 1. What is noted covers what was read or written: a mark may be wider than that, never narrower.
 2. A table's marks take bounded memory: many rows become pages, many of anything become the whole table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gmdb.process.late_dataclasses import dataclass, field

ROWS_MAX = 1024  # single rows that are noted; more become pages
PAGES_MAX = 1024
KEYS_MAX = 1024  # single keys of an index
RANGES_MAX = 64
WRITES_MAX = 4096  # rows, and keys of an index, that a transaction has written
_PAGE_BITS = 16  # of a row's place, below its page

Positions = tuple[int, ...]  # of an index's columns, in the table
Key = tuple[Any, ...]
Keys = Mapping[Positions, Iterable[Key]]  # by index


@dataclass(frozen=True, slots=True)
class Span:
    """Keys of an index, from ``low`` to ``high``: each the first columns of a key, or nothing."""

    positions: Positions
    low: Key = ()
    high: Key = ()
    low_open: bool = False
    high_open: bool = False

    @property
    def is_key(self) -> bool:
        """Whether it is one whole key."""
        is_single = self.low == self.high and not self.low_open and not self.high_open
        return is_single and len(self.low) == len(self.positions)

    def __contains__(self, key: Key) -> bool:
        try:
            low, high = key[: len(self.low)], key[: len(self.high)]
            if low < self.low or (self.low_open and low == self.low and self.low):
                return False
            return not (high > self.high or (self.high_open and high == self.high and self.high))
        except TypeError:  # values that Python does not compare
            return True

    def meets(self, keys: Keys) -> bool:
        """Whether some of the keys are in it, or may be: those of an index that was not there are not known."""
        known = keys.get(self.positions)
        if known is None:
            return True
        if self.is_key and isinstance(known, set):
            return self.low in known
        return any(key in self for key in known)


@dataclass(slots=True)
class Writes:
    """What a transaction has written of a table."""

    whole: bool = False  # more than is noted by itself
    rows: set[int] = field(default_factory=set)  # places
    keys: dict[Positions, set[Key]] = field(default_factory=dict)  # of all versions
    freed: set[tuple[Positions, Key]] = field(default_factory=set)  # unique keys that were given up
    may_have_freed: bool = False  # others, too

    def add(self, place: int, keys: Keys, freed: Iterable[tuple[Positions, Key]]) -> None:
        self.freed.update(freed)
        if self.whole:
            self._settle()
            return
        before = bool(self.rows)
        self.rows.add(place)
        for positions, some in keys.items():
            if before and positions not in self.keys:  # rows before had keys in it that nobody has noted
                self.whole = True
            self.keys.setdefault(positions, set()).update(some)
        if any(positions not in keys for positions in self.keys):
            self.whole = True
        self._settle()

    def add_all(self) -> None:
        self.whole = True
        self._settle()

    def merge(self, other: Writes) -> None:
        if other.keys.keys() != self.keys.keys():
            self.whole = True
        self.whole |= other.whole
        self.may_have_freed |= other.may_have_freed
        self.freed |= other.freed
        if not self.whole:
            self.rows |= other.rows
            for positions, some in other.keys.items():
                self.keys[positions] |= some
        self._settle()

    def has_freed(self, keys: Iterable[tuple[Positions, Key]]) -> bool:
        return any(self.may_have_freed or key in self.freed for key in keys)

    def _settle(self) -> None:
        """Keep within bounds."""
        if len(self.freed) > WRITES_MAX:
            self.freed.clear()
            self.may_have_freed = True
        if len(self.rows) > WRITES_MAX or any(len(some) > 2 * WRITES_MAX for some in self.keys.values()):
            self.whole = True
        if self.whole:
            self.rows.clear()
            self.keys.clear()


@dataclass(slots=True)
class Reads:
    """What a transaction has read of a table."""

    whole: bool = False
    rows: set[int] = field(default_factory=set)  # places
    pages: set[int] = field(default_factory=set)  # all of whose rows count as read
    keys: dict[Positions, set[Key]] = field(default_factory=dict)
    ranges: dict[Span, None] = field(default_factory=dict)

    def add_row(self, place: int) -> None:
        if not self.whole and place >> _PAGE_BITS not in self.pages:
            self.rows.add(place)
            self._settle()

    def add_span(self, span: Span) -> None:
        if self.whole:
            return
        if span.is_key:
            self.keys.setdefault(span.positions, set()).add(span.low)
        else:
            self.ranges[span] = None
        self._settle()

    def add_all(self) -> None:
        self.whole = True
        self._settle()

    def merge(self, other: Reads) -> None:
        self.whole |= other.whole
        self.rows |= other.rows
        self.pages |= other.pages
        for positions, some in other.keys.items():
            self.keys.setdefault(positions, set()).update(some)
        self.ranges.update(other.ranges)
        self._settle()

    def _settle(self) -> None:
        """Keep within bounds: note fewer and wider things."""
        if len(self.rows) > ROWS_MAX:
            self.pages.update(place >> _PAGE_BITS for place in self.rows)
            self.rows.clear()
        keys = sum(map(len, self.keys.values()))
        if len(self.pages) > PAGES_MAX or keys > KEYS_MAX or len(self.ranges) > RANGES_MAX:
            self.whole = True
        if self.whole:
            self.rows.clear()
            self.pages.clear()
            self.keys.clear()
            self.ranges.clear()

    def meet_change(self, place: int, keys: Keys) -> bool:
        """Whether a change of the row at a place, whose versions have these keys, changes what was read."""
        if self.whole or place in self.rows or place >> _PAGE_BITS in self.pages:
            return True
        for positions, read in self.keys.items():
            written = keys.get(positions)
            if written is None or not read.isdisjoint(written):
                return True
        return any(span.meets(keys) for span in self.ranges)

    @property
    def is_empty(self) -> bool:
        return not (self.whole or self.rows or self.pages or self.keys or self.ranges)


def row_meets(place: int, writes: Writes) -> bool:
    """Whether somebody else's writes change the row at a place."""
    return writes.whole or place in writes.rows


def span_meets(span: Span, writes: Writes) -> bool:
    """Whether somebody else's writes change which rows have keys of a span, or what is in these rows."""
    return writes.whole or (bool(writes.rows) and span.meets(writes.keys))
