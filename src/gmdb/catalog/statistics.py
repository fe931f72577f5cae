"""What ANALYZE found out about tables: how many rows there are, how many keys, and how they are spread.

They say which way to rows is short.  They are as old as the last ANALYZE, and no answer depends on them.
"""

from __future__ import annotations

import json
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from gmdb.catalog.system import SystemTables
from gmdb.errors import SchemaError
from gmdb.format.columns import EPOCH, EPOCH_DATE
from gmdb.storage.documents import parse
from gmdb.transaction.session import Session

BOUNDS = 33  # values of a column that part its rows into equal shares
BOUNDS_BYTES_MAX = 4000
Place = float | str


@dataclass(frozen=True)
class KeyStatistics:
    """Of the values of some columns together; ``bounds``: of a single column, in order."""

    distinct: int
    bounds: tuple[Any, ...] = ()  # numbers or texts

    def share_below(self, value: Any, inclusive: bool) -> float:
        """The share of rows whose value is less than this one, or as large."""
        at: Any = place_of(value)
        if not self.bounds or type(at) is not type(self.bounds[0]):
            return 0.5
        step = bisect_right(self.bounds, at) if inclusive else bisect_left(self.bounds, at)
        if step in (0, len(self.bounds)):
            return float(step > 0)
        low, high = self.bounds[step - 1 : step + 1]
        within = 0.5 if isinstance(at, str) else (at - low) / (high - low)
        return (step - 1 + within) / (len(self.bounds) - 1)


@dataclass(frozen=True)
class TableStatistics:
    rows: int
    keys: Mapping[tuple[int, ...], KeyStatistics] = field(default_factory=dict)  # by the columns' positions

    def rows_with(self, positions: tuple[int, ...]) -> float:
        """How many rows have the same values in some columns, on average."""
        known = self.keys.get(positions)
        return self.rows / max(known.distinct, 1) if known is not None else self.rows / 10


def place_of(value: Any) -> Place | None:
    """Where a value stands among those of its type, as a number or a text."""
    if isinstance(value, datetime):
        return (value - EPOCH).total_seconds()
    if isinstance(value, date):
        return float((value - EPOCH_DATE).days)
    if isinstance(value, int | float | Decimal):
        return float(value)
    if isinstance(value, bytes):
        return value.hex()
    return value if isinstance(value, str) else None


def bounds_of(sample: Iterable[Any]) -> tuple[Place, ...]:
    """Values that part a sample into equal shares; none if they would not fit into the catalog."""
    places: list[Any] = sorted(place for value in sample if (place := place_of(value)) is not None)
    if not places:
        return ()
    steps = (BOUNDS - 1) or 1
    bounds = tuple(places[n * (len(places) - 1) // steps] for n in range(BOUNDS))
    return bounds if len(json.dumps(bounds).encode()) <= BOUNDS_BYTES_MAX else ()


class Statistics:
    """The statistics of all tables, by their numbers; kept in ``sys_statistics``, outside of anybody's transaction."""

    def __init__(self, system: SystemTables, session: Session, lock: threading.Lock) -> None:
        """``session``: in which nothing else happens while the lock is held."""
        self._system = system
        self._session = session
        self._lock = lock
        self._tables = _read(system)
        self.version = 0  # changes with them
        session.commit()

    def of(self, number: int) -> TableStatistics | None:
        return self._tables.get(number)

    def keep(self, number: int, found: TableStatistics) -> None:
        """Replace what is known of a table."""
        with self._lock:
            self._strike({number})
            heap = self._system.heap("sys_statistics")
            for row in rows_of(number, found):
                heap.insert(row)
            self._session.commit()
            self._tables[number] = found
            self.version += 1

    def forget_all_but(self, used: Iterable[int]) -> None:
        """Remove what was known of tables that are gone."""
        gone = set(self._tables) - set(used)
        if gone:
            self._strike(gone)
            self._session.commit()
            self._tables = {number: found for number, found in self._tables.items() if number not in gone}

    def listed(self) -> list[tuple[Any, ...]]:
        return [row for number, found in sorted(self._tables.items()) for row in rows_of(number, found)]

    def _strike(self, numbers: set[int]) -> None:
        heap = self._system.heap("sys_statistics")
        for row_id, values in self._system.rows("sys_statistics"):
            if values[0] in numbers:
                heap.delete(row_id)


def rows_of(number: int, found: TableStatistics) -> list[tuple[Any, ...]]:
    """Statistics as rows of ``sys_statistics``."""
    rows: list[tuple[Any, ...]] = [(number, "", found.rows, found.rows, None)]
    for positions, key in found.keys.items():
        bounds = json.dumps(key.bounds) if key.bounds else None
        rows.append((number, ",".join(map(str, positions)), found.rows, key.distinct, bounds))
    return rows


def _read(system: SystemTables) -> dict[int, TableStatistics]:
    totals: dict[int, int] = {}
    keys: dict[int, dict[tuple[int, ...], KeyStatistics]] = {}
    for _, (number, positions, rows, distinct, bounds) in system.rows("sys_statistics"):
        totals[number] = rows
        if positions:
            of_table = keys.setdefault(number, {})
            of_table[_numbers(positions)] = KeyStatistics(distinct, _bounds(bounds) if bounds else ())
    return {number: TableStatistics(rows, keys.get(number, {})) for number, rows in totals.items()}


def _bounds(text: str) -> tuple[Place, ...]:
    """Bounds as the catalog has them: numbers only, or texts only."""
    bounds = parse(text)
    if not isinstance(bounds, list):
        raise SchemaError(f"the bounds of a key are no list: {text[:40]}")
    for kinds in ((int, float), (str,)):
        if all(type(bound) in kinds for bound in bounds):
            return tuple(bounds)
    raise SchemaError(f"the bounds of a key have several types: {text[:40]}")


def _numbers(positions: str) -> tuple[int, ...]:
    return tuple(map(int, positions.split(",")))


def key_columns(indexes: Iterable[Sequence[int]]) -> list[tuple[int, ...]]:
    """The first columns of indexes, alone and together: what statistics are worth having of."""
    found = {tuple(positions[: n + 1]) for positions in indexes for n in range(len(positions))}
    return sorted(found)
