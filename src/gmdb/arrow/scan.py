"""Scan a heap into record batches, several ranges of pages at a time.

Pages are decoded in rounds, one range of pages a thread.  The store's guard is held during a round, so a batch
never shows a page half changed; between rounds others may write.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa

from gmdb.arrow.schema import arrow_schema, arrow_type
from gmdb.format.columns import Column, Kind
from gmdb.kernel.columns import ARROW_COLUMN
from gmdb.kernel.scan import measure_pages, scan_pages
from gmdb.kernel.status import NO_ROOM
from gmdb.storage.store import PageStore

RANGE_SIZE = 4 << 20  # bytes of pages that make a batch
_WIDTHS = {Kind.WORD: 4, Kind.LONG: 8, Kind.DECIMAL_WORD: 16, Kind.DECIMAL_LONG: 16, Kind.DECIMAL_WIDE: 16}


class Scan:
    """Some columns of a table's pages, as a stream of record batches."""

    def __init__(
        self,
        store: PageStore,
        columns: Sequence[Column],
        wanted: Sequence[int],
        page_ids: np.ndarray,
        page_size: int,
        *,
        threads: int = 0,
    ) -> None:
        """``threads`` decode at a time: one a core unless given."""
        self._store = store
        self._threads = threads or len(os.sched_getaffinity(0))
        self._columns = columns[: max(wanted) + 1] if wanted else []
        self._wanted = list(wanted)
        self._ids = np.ascontiguousarray(page_ids, np.uint32)
        self._range = max(RANGE_SIZE // page_size, 1)
        self.schema = arrow_schema([columns[i] for i in wanted])

    def reader(self) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(self.schema, self.batches())

    def batches(self) -> Iterator[pa.RecordBatch]:
        ranges = [self._ids[i : i + self._range] for i in range(0, len(self._ids), self._range)]
        threads = min(self._threads, len(ranges))
        if threads <= 1:
            for i in range(max(len(ranges), 1)):
                yield from self._round(ranges[i : i + 1], map)
            return
        with ThreadPoolExecutor(threads, "gmdb-scan") as pool:
            for i in range(0, len(ranges), 2 * threads):
                yield from self._round(ranges[i : i + 2 * threads], pool.map)

    def _round(self, ranges: list[np.ndarray], run: Any) -> list[pa.RecordBatch]:
        with self._store.guard:
            self._store.require_open()
            return [batch for batch in run(self._decode, ranges) if batch.num_rows]

    def _decode(self, ids: np.ndarray) -> pa.RecordBatch:
        """One range of pages as a batch."""
        sizes = np.zeros(2, np.int64)
        self._store.call(measure_pages, 0, ids.ctypes.data, len(ids), sizes.ctypes.data)
        slots, row_bytes = int(sizes[0]), int(sizes[1])
        while True:
            plan = np.zeros(len(self._columns), ARROW_COLUMN)
            for entry, column in zip(plan, self._columns, strict=True):
                entry["kind"] = column.type.kind
            outputs = [_Output(plan[i], self._columns[i], slots, row_bytes) for i in self._wanted]
            rows = self._store.call(scan_pages, 0, ids.ctypes.data, len(ids), plan.ctypes.data, len(plan))
            if rows != NO_ROOM:
                return pa.record_batch([output.array(rows) for output in outputs], schema=self.schema)
            row_bytes *= 4  # rows that moved to pages outside of this range have more bytes than its pages


class _Output:
    """The buffers of one column, as large as they may have to be, and the array that they become."""

    def __init__(self, entry: Any, column: Column, slots: int, row_bytes: int) -> None:
        self._entry = entry
        self._type = arrow_type(column.type)
        self._variable = column.type.kind in (Kind.TEXT, Kind.BYTES)
        self._validity = _filled((slots + 7) // 8, 0xFF)
        if self._variable:
            longest = min(slots * column.type.length, row_bytes)
            self._offsets = pa.allocate_buffer(4 * (slots + 1), resizable=True)
            np.frombuffer(self._offsets, np.int32, 1)[0] = 0
            self._values = pa.allocate_buffer(max(longest, 1), resizable=True)
            entry["offsets"] = self._offsets.address
            entry["capacity"] = longest
        elif column.type.kind is Kind.BIT:
            self._values = _filled((slots + 7) // 8, 0)
        else:
            self._values = pa.allocate_buffer(max(slots * _WIDTHS[column.type.kind], 1), resizable=True)
        entry["wanted"] = 1
        entry["validity"] = self._validity.address
        entry["values"] = self._values.address

    def array(self, rows: int) -> pa.Array:
        nulls = int(self._entry["nulls"])
        validity = self._validity if nulls else None
        if self._variable:
            self._values.resize(int(self._entry["used"]), shrink_to_fit=True)
            buffers = [validity, self._offsets, self._values]
        else:
            buffers = [validity, self._values]
        return pa.Array.from_buffers(self._type, rows, buffers, nulls)


def _filled(size: int, byte: int) -> pa.Buffer:
    buffer = pa.allocate_buffer(max(size, 1), resizable=True)
    np.frombuffer(buffer, np.uint8)[:] = byte
    return buffer
