"""Append record batches to a heap, as one statement.

The first rows fill up the table's last page, under an insert lock; all others go to new pages, which carry the
transaction's number instead of locks.

Invariants
 1. Memory is bounded by the batch and a buffer of some pages, not by the table.
 2. The guard is not held while rows are formatted, nor while the source is asked for more.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from gmdb.access.heap import Heap
from gmdb.arrow.formatting import PageFormatter
from gmdb.arrow.lobs import cells_of
from gmdb.arrow.placing import BUFFER_SIZE, PagePlacer
from gmdb.arrow.schema import batches_of, fit_batch
from gmdb.format.address import NO_PAGE, device_of, offset_of
from gmdb.format.heap import HEAP_NODE
from gmdb.format.page import HEAD_SIZE
from gmdb.kernel.bulk import top_up_page
from gmdb.late import pyarrow as pa
from gmdb.signals import let_through
from gmdb.transaction.call import INSERT_LOCK


def append(heap: Heap, data: Any) -> int:
    """Append all rows of ``data``, or none; answers how many."""
    heap.segment.store.require_writable()
    batches = batches_of(data)
    heap.share()
    with heap.session.statement():
        load = _Load(heap)
        load.add_all(batches)
        return load.finish()


class _Load:
    def __init__(self, heap: Heap) -> None:
        self._heap, self._session, self._segment = heap, heap.session, heap.segment
        self._placer = PagePlacer(heap)
        pct_free, template = heap.segment.head.pct_free, self._placer.template
        self._formatter = PageFormatter(heap.name, heap.columns, self._placer.page_size, pct_free, template)
        self._buffer = np.zeros(BUFFER_SIZE, np.uint8)

    def add_all(self, batches: Iterable[pa.RecordBatch]) -> None:
        for batch in let_through(batches):
            self._session.check_interrupted()
            arrays = fit_batch(self._heap.name, self._heap.columns, batch, self._formatter.row_count)
            if self._heap.lobs is not None:
                for n in self._heap.lobs.positions:
                    arrays[n] = cells_of(self._heap.lobs, self._heap.columns[n], arrays[n])
            self._formatter.point_at(arrays)
            self._add(len(batch))

    def _add(self, count: int) -> None:
        formatter, done = self._formatter, 0
        if not formatter.is_started:
            done = self._top_up(count)
            if done < count:
                formatter.start(self._buffer)
        while done < count:
            done += formatter.add(done, count - done)
            if done < count:
                self._placer.place(self._buffer, formatter.end())
                formatter.start(self._buffer)
        formatter.row_count += count

    def _top_up(self, count: int) -> int:
        """Put rows on the page where the table, or this transaction's own append before, ended."""
        own = self._session.last_page_loaded(self._segment.entry_page)
        page_id = own if own is not None else self._segment.head.last_page
        if page_id == NO_PAGE or count == 0:
            return 0
        heap = self._heap
        call = (self._session.call_address, self._formatter.address)
        arguments = (*call, heap.obj_id, self._segment.entry_page, page_id, count, heap.feed)
        space_id = self._segment.space.space_id
        first = self._slot_count(page_id)
        placed = self._session.change(top_up_page, space_id, None, arguments)
        if placed < 0:
            self._formatter.refuse(placed)
        if self._heap.indexes:
            self._placer.enter([page_id], first, self._session.call[INSERT_LOCK])
        return placed

    def _slot_count(self, page_id: int) -> int:
        page = self._segment.store.devices[device_of(page_id)].memory(offset_of(page_id))
        return int(HEAP_NODE.at(page, HEAD_SIZE).slot_count)

    def finish(self) -> int:
        """Place the last pages; answers the number of rows."""
        count = self._formatter.end()
        if count:
            self._placer.place(self._buffer, count)
        self._placer.finish()
        return self._formatter.row_count
