"""Scan a heap into record batches, on one snapshot, several ranges of pages at a time.

Writers go on meanwhile: kernel/scan.py tells how a scan keeps out of their way.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numpy as np

from gmdb.arrow.buffers import ColumnBuffers, plan_columns
from gmdb.arrow.lobs import LobReading
from gmdb.format.address import OFFSET_BITS, PAGES_PER_DEVICE
from gmdb.format.columns import Column
from gmdb.format.lob import LobSegment
from gmdb.kernel.scan import SCAN, measure_pages, scan_pages
from gmdb.kernel.status import BUSY, NO_ROOM
from gmdb.late import compute as pc
from gmdb.late import pyarrow as pa
from gmdb.storage.frozen import FrozenStore
from gmdb.storage.store import PageStore
from gmdb.transaction.snapshots import Snapshot


@cache
def place_field() -> pa.Field:
    """Of the column with rows' places."""
    return pa.field("place", pa.int64(), nullable=False)


RANGE_SIZE = 8 << 20  # bytes of pages that make a batch


def row_id_texts(places: np.ndarray) -> pa.Array:
    """Row ids as SQL writes them, of places (page id << 16 | slot)."""
    parts = (places >> 16 >> OFFSET_BITS, places >> 16 & (PAGES_PER_DEVICE - 1), places & 0xFFFF)
    return pc.binary_join_element_wise(*(pa.array(part).cast(pa.string()) for part in parts), ":")


class Reading:
    """What a scan goes by: a snapshot, as kernels read it, for as long as it is held."""

    def __init__(self, form: np.ndarray, snapshot: Snapshot | None = None) -> None:
        self.form = form
        self._snapshot = snapshot

    @classmethod
    def of_closed(cls) -> Reading:
        """Everything: for a database that nobody changes."""
        return cls(np.array([np.iinfo(np.int64).max, -1, 0], np.int64))

    @property
    def scn(self) -> int:
        """The newest commit that it sees."""
        return int(self.form[0])

    def check(self) -> None:
        if self._snapshot is not None:
            self._snapshot.check()


class Scan:
    """Some columns of a table's pages, as record batches."""

    def __init__(
        self,
        store: PageStore | FrozenStore,
        obj_id: int,
        columns: Sequence[Column],
        wanted: Sequence[int],
        page_ids: np.ndarray,
        page_size: int,
        threads: int | None = None,
        places: bool = False,
        lobs: LobSegment | None = None,
    ) -> None:
        """``lobs``: where the table's large objects are.

        ``places``: a last column tells where each row is, page id << 16 | slot.
        """
        self._store = store
        self._obj_id = obj_id
        self._columns = columns[: max(wanted) + 1] if wanted else []
        self._wanted = list(wanted)
        self._ids = np.ascontiguousarray(page_ids, np.uint32)
        self._range = max(RANGE_SIZE // page_size, 1)
        self._threads = threads or len(os.sched_getaffinity(0))
        self._places = places
        self._lobs = LobReading(store, lobs, [columns[i] for i in wanted])
        self.schema, self._stored_schema = self._lobs.schema, self._lobs.stored_schema
        if places:
            self.schema, self._stored_schema = (
                self.schema.append(place_field()),
                self._stored_schema.append(place_field()),
            )

    def batches(self, reading: Reading) -> Iterator[pa.RecordBatch]:
        """The rows that the snapshot sees, in page order."""
        for batch in self._stored(reading):
            for part, _, _ in self._lobs.values(batch, reading.check):
                yield part

    def _stored(self, reading: Reading) -> Iterator[pa.RecordBatch]:
        """``batches``, with cells instead of large objects."""
        ranges = [self._ids[i : i + self._range] for i in range(0, len(self._ids), self._range)]
        threads = min(self._threads, len(ranges))
        if threads <= 1:
            for ids in ranges:
                yield from self._round(map, [ids], reading)
            return
        with ThreadPoolExecutor(threads, "gmdb-scan") as pool:
            for i in range(0, len(ranges), 2 * threads):
                yield from self._round(pool.map, ranges[i : i + 2 * threads], reading)

    def _round(self, run: Any, ranges: list[np.ndarray], reading: Reading) -> list[pa.RecordBatch]:
        """Some ranges as batches; meanwhile writers give way."""
        self._store.scans += 1
        try:
            decoded = list(run(lambda ids: self._decode(ids, reading), ranges))
        finally:
            self._store.scans -= 1
        return self._checked(decoded, reading)

    @staticmethod
    def _checked(batches: list[pa.RecordBatch], reading: Reading) -> list[pa.RecordBatch]:
        """Nothing that was read by a snapshot which has been given up leaves the scan."""
        reading.check()
        return [batch for batch in batches if batch.num_rows]

    def _decode(self, ids: np.ndarray, reading: Reading) -> pa.RecordBatch:
        """One range of pages as a batch."""
        self._store.require_open()
        ids = self._store.read_ahead(ids)
        sizes = np.zeros(2, np.int64)
        self._store.call(measure_pages, 0, ids.ctypes.data, len(ids), sizes.ctypes.data)
        slots, row_bytes = int(sizes[0]), int(sizes[1])
        while True:
            plan = plan_columns(self._columns)
            outputs = [ColumnBuffers(plan[i], self._columns[i], slots, row_bytes) for i in self._wanted]
            scan = np.zeros(1, SCAN)
            scan["scn"], scan["transaction"], scan["statement"] = reading.form
            scan["obj_id"], scan["ids"], scan["page_count"] = self._obj_id, ids.ctypes.data, len(ids)
            scan["columns"], scan["column_count"] = plan.ctypes.data, len(plan)
            scan["row_capacity"] = slots
            places = np.empty(slots if self._places else 0, np.int64)
            scan["row_ids"] = places.ctypes.data if self._places else 0
            if self._run(scan):
                rows = int(scan["done"][0])
                arrays = [output.array(rows) for output in outputs]
                if self._places:
                    arrays.append(pa.array(places[:rows]))
                return pa.record_batch(arrays, schema=self._stored_schema)
            row_bytes *= 4  # rows that moved to pages outside of this range have more bytes than its pages

    def _run(self, scan: np.ndarray) -> bool:
        """Scan to the end; with the guard where pages change too fast.  False: the buffers are too small."""
        while scan["next_page"][0] < scan["page_count"][0]:
            status = self._store.call(scan_pages, 0, scan.ctypes.data)
            if status == BUSY:
                with self._store.guard:
                    scan["trusted"] = 1
                    status = self._store.call(scan_pages, 0, scan.ctypes.data)
                    scan["trusted"] = 0
            if status == NO_ROOM:
                return False
        return True
