"""Planning a read, on the driver's host: which pages hold the rows, and how to divide them.

Not here: pinning the instant (snapshots.py), decoding pages (reading.py).
"""

# mypy: disallow-subclassing-any=False

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from pyspark.sql.datasource import InputPartition

from gmdb.access.indexes import IndexDefinition, KeyRange
from gmdb.catalog.schema import TableDefinition
from gmdb.format.address import DEVICES, OFFSET_BITS
from gmdb.inspect.pinned import PinnedFiles
from gmdb.spark.options import MAX_PARTITION_BYTES
from gmdb.storage.pins import Pin

if TYPE_CHECKING:
    from gmdb.sql.filtering import RowFilter

Run = tuple[int, int]
RANGES_MIN = 8  # a table that is worth it is divided among that many tasks
SMALL_PARTITION_BYTES = 16 << 20


@dataclass(frozen=True)
class PageRange(InputPartition):
    """Some data pages of a table, as runs of neighbouring page ids: (first, count)."""

    runs: tuple[Run, ...]

    def page_ids(self) -> np.ndarray:
        """The pages one by one, in the order of the segment's map."""
        runs = [np.arange(first, first + count, dtype=np.uint32) for first, count in self.runs]
        return np.concatenate(runs) if runs else np.empty(0, np.uint32)


@dataclass(frozen=True)
class TableRead:
    """What tasks read: columns of a table by name, those of where a row is among them, at an instant."""

    path: Path
    pin: Pin
    table: TableDefinition
    wanted: tuple[str, ...]
    where: str
    page_size: int
    skips_damage: bool

    def filter(self) -> RowFilter | None:
        """The condition on rows; none if all are wanted."""
        if not self.where:
            return None
        from gmdb.sql.filtering import RowFilter  # brings DuckDB, which most reads can do without

        return RowFilter(self.table, self.wanted, self.where)


def table_pages(path: Path, pin: Pin, entry_page: int) -> list[int]:
    """The data pages of a segment at a pin's instant; not those that a bulk load had yet to write."""
    with PinnedFiles(path, pin) as files:
        return files.segment_pages(entry_page)


def pages_by_index(
    path: Path, pin: Pin, table: TableDefinition, index: IndexDefinition, keys: KeyRange | None, most: int
) -> list[int] | None:
    """The pages with rows in a range of an index's keys, in their order; nothing if that is more than ``most``."""
    if keys is None:  # compared with NULL: no row
        return []
    from gmdb.arrow.places import find_places  # brings compiled kernels, which other plans can do without
    from gmdb.storage.frozen import FrozenStore

    store = FrozenStore(path, pin)
    try:
        found: set[int] = set()
        for places in find_places(store, table, index, keys):
            found.update(np.unique(places >> 16).tolist())
            if len(found) > most:
                return None
        return sorted(found)
    finally:
        store.close()


def pages_per_range(size: int, page_size: int, most: int | None) -> int:
    """How many pages make a partition: up to ``most`` bytes of them, or, unless that is given, some for each core."""
    if most is None:
        most = min(max(size // RANGES_MIN, SMALL_PARTITION_BYTES), MAX_PARTITION_BYTES)
    return max(most // page_size, 1)


def divide(page_ids: Sequence[int], pages_per_range: int) -> list[PageRange]:
    """Ranges of about equal size, none larger than asked for; one empty range for a table without pages."""
    ranges = max(-(-len(page_ids) // pages_per_range), 1)
    parts = np.array_split(np.asarray(page_ids, np.int64), ranges)
    return [PageRange(tuple(_runs(part))) for part in parts]


def divide_by_size(page_ids: np.ndarray, page_sizes: Mapping[int, int], most: int | None) -> list[PageRange]:
    """Ranges of pages of several devices, whose pages have these sizes."""
    sizes = np.zeros(DEVICES, np.int64)
    sizes[list(page_sizes)] = list(page_sizes.values())
    ends = np.cumsum(sizes[page_ids >> OFFSET_BITS])
    total = int(ends[-1]) if len(ends) else 0
    breaks = np.flatnonzero(np.diff((ends - 1) // pages_per_range(total, 1, most))) + 1
    return [PageRange(tuple(_runs(part))) for part in np.split(page_ids, breaks)]


def _runs(page_ids: np.ndarray) -> Iterator[Run]:
    breaks = np.flatnonzero(np.diff(page_ids) != 1) + 1
    for run in np.split(page_ids, breaks):
        if len(run):
            yield int(run[0]), len(run)
