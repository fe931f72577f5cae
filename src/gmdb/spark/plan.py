"""Planning a read, on the driver's host: what is in the files, and how to divide it.

Invariants
 1. No kernel is needed, so none is imported: planning is a matter of milliseconds.
 2. While a plan is made, no process has the database open for writing; later, a task compares the snapshot.
Not here: decoding pages (reader.py).
"""

# mypy: disallow-subclassing-any=False

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pyspark.sql.datasource import InputPartition

from gmdb.errors import NotClosed, SnapshotExpired
from gmdb.inspect.files import DatabaseFiles
from gmdb.storage.directory import DirectoryLock, require_database

Run = tuple[int, int]


@dataclass(frozen=True)
class Snapshot:
    """Which state of which database: every change ends in a commit, which has a number."""

    database_id: str
    scn: int

    @classmethod
    def of(cls, control: dict[str, Any]) -> Snapshot:
        return cls(control["database_id"], control["scn"])

    def require(self, control: dict[str, Any], path: Path) -> None:
        """Raise SnapshotExpired unless the database is as it was when this was taken."""
        now = Snapshot.of(control)
        if now.database_id != self.database_id:
            raise SnapshotExpired(f"{path} is another database since load(); load again")
        if now.scn != self.scn:
            raise SnapshotExpired(f"{path} changed since load(); load again")


@dataclass(frozen=True)
class PageRange(InputPartition):
    """Some data pages of a table, as runs of neighbouring page ids: (first, count)."""

    runs: tuple[Run, ...]

    def page_ids(self) -> np.ndarray:
        """The pages one by one, in the order of the segment's map."""
        runs = [np.arange(first, first + count, dtype=np.uint32) for first, count in self.runs]
        return np.concatenate(runs) if runs else np.empty(0, np.uint32)


@contextmanager
def closed_database(path: Path) -> Iterator[DatabaseFiles]:
    """The database's files, while no process may change them; DatabaseInUse if one has it open to do so."""
    require_database(path)
    lock = DirectoryLock(path, exclusive=False)
    try:
        with DatabaseFiles(path) as files:
            if not files.control["clean"]:
                raise NotClosed(f"{path} was not closed: open it once, which recovers it, and close it")
            yield files
    finally:
        lock.release()


def divide(page_ids: Sequence[int], pages_per_range: int) -> list[PageRange]:
    """Ranges of about equal size, none larger than asked for; one empty range for a table without pages."""
    ranges = max(-(-len(page_ids) // pages_per_range), 1)
    parts = np.array_split(np.asarray(page_ids, np.int64), ranges)
    return [PageRange(tuple(_runs(part))) for part in parts]


def _runs(page_ids: np.ndarray) -> Iterator[Run]:
    breaks = np.flatnonzero(np.diff(page_ids) != 1) + 1
    for run in np.split(page_ids, breaks):
        if len(run):
            yield int(run[0]), len(run)
