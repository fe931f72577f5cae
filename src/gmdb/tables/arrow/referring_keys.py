"""Keys of many rows at once, for foreign keys: those of rows that come in bulk, and those of whole tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from gmdb.process.late_imports import numpy as np
from gmdb.process.late_imports import pyarrow as pa
from gmdb.tables.access.heap import Heap
from gmdb.tables.access.row_changes import Watch
from gmdb.tables.arrow.arrow_types import python_values
from gmdb.tables.arrow.scan import Reading, Scan


def note_rows(watch: Watch, columns: Sequence[pa.Array]) -> None:
    """Have a watch know of new rows, by their columns."""
    for one in watch.foreign_keys:
        for key in _distinct([columns[n] for n in one.positions]):
            watch.refers(one, key)


def note_pages(heap: Heap, pages: Sequence[int], form: memoryview) -> None:
    """Have a heap's watch know of new rows, which its own transaction has put on pages."""
    watch = heap.watch
    for one in watch.foreign_keys if watch is not None else ():
        for key in keys_of_rows(heap, one.positions, np.array(pages, np.uint32), Reading(form).check, form):
            watch.refers(one, key)  # type: ignore[union-attr]


def keys_of_rows(
    heap: Heap, positions: Sequence[int], pages: np.ndarray, check: Callable[[], None], form: memoryview
) -> Iterator[tuple[Any, ...]]:
    """The values of some columns in the rows of some pages, few of them more than once; NULLs included."""
    store, page_size = heap.segment.store, heap.segment.space.page_size
    wanted = sorted(set(positions))
    scan = Scan(store, heap.obj_id, heap.columns, wanted, pages, page_size, lobs=heap.definition.lobs)
    for batch in scan.batches(Reading(form)):
        check()
        heap.session.check_interrupted()
        yield from _distinct([batch.column(wanted.index(n)) for n in positions])


def _distinct(columns: Sequence[pa.Array]) -> Iterator[tuple[Any, ...]]:
    names = [f"k{n}" for n in range(len(columns))]
    keys = pa.table(list(columns), names=names).group_by(names).aggregate([])
    return zip(*(python_values(keys.column(name)) for name in names), strict=True)
