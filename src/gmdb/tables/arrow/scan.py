"""Scan a heap into record batches, on one snapshot, several ranges of pages at a time.

Writers go on meanwhile: kernel/read/scan.py says how a scan stays correct.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Any, TypeAlias

from gmdb.errors import Corruption
from gmdb.format.address import device_of, offset_of, page_of, slot_of
from gmdb.format.columns import Column, Kind
from gmdb.format.lob import LobSegment
from gmdb.kernel.read.lookup import CURSOR, read_index, read_places
from gmdb.kernel.read.scan import SCAN, measure_pages, scan_pages
from gmdb.kernel.row import ARROW_COLUMN
from gmdb.kernel.runtime.status import NO_ROOM
from gmdb.process.late_imports import compute as pc
from gmdb.process.late_imports import numpy as np
from gmdb.process.late_imports import pyarrow as pa
from gmdb.storage.memory import numbers
from gmdb.storage.pinned_pages import FrozenStore
from gmdb.storage.store import PageStore, Segment
from gmdb.tables.access.index_entries import INDEX_KINDS, Walk
from gmdb.tables.access.indexes import IndexDefinition, KeyRange
from gmdb.tables.arrow.arrow_types import require_times, stored_type
from gmdb.tables.arrow.lob_columns import LobReading
from gmdb.tables.catalog.schema import TableDefinition
from gmdb.transaction.snapshots import Snapshot

# ---- Memory that kernels decode columns into, and the Arrow arrays that it becomes.

_WIDTHS = {
    **{Kind.SHORT: 2, Kind.WORD: 4, Kind.LONG: 8},
    **dict.fromkeys((Kind.DECIMAL_WORD, Kind.DECIMAL_LONG, Kind.DECIMAL_WIDE, Kind.WIDE), 16),
}


def plan_columns(columns: Sequence[Column]) -> np.ndarray:
    """The columns as kernels know them; those that are wanted get buffers."""
    plan = np.zeros(len(columns), ARROW_COLUMN)
    for entry, column in zip(plan, columns, strict=True):
        entry["kind"] = column.type.kind
    return plan


def longest_value(columns: Iterable[Column]) -> int:
    """Bytes that a value of one of these columns has at most, of those whose values have no fixed length."""
    variable = (c for c in columns if c.type.kind in (Kind.TEXT, Kind.BYTES))
    return max((c.type.in_row_max for c in variable), default=0)


def _too_long(obj_id: int, page_id: int | None = None) -> Corruption:
    """There is no room for a row in buffers that have room for the longest values that there can be."""
    return Corruption(f"a row of object {obj_id} has a value that is longer than its column's type allows", page_id)


class ColumnBuffers:
    """The buffers of one column, as large as they may have to be, and the array that they become."""

    def __init__(self, entry: Any, column: Column, slots: int, row_bytes: int) -> None:
        self._entry, self._column = entry, column
        self._type = stored_type(column.type)
        self._variable = column.type.kind in (Kind.TEXT, Kind.BYTES)
        self._validity = _filled((slots + 7) // 8, 0xFF)
        if self._variable:
            longest = min(slots * column.type.in_row_max, row_bytes)
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
        array = pa.Array.from_buffers(self._type, rows, buffers, nulls)
        if self._column.type.name == "TIME":
            require_times(self._column, array)
        return array


def _filled(size: int, byte: int) -> pa.Buffer:
    buffer = pa.allocate_buffer(max(size, 1), resizable=True)
    np.frombuffer(buffer, np.uint8)[:] = byte
    return buffer


# ---- Scan a heap into record batches, on one snapshot, several ranges of pages at a time.


@cache
def place_field() -> pa.Field:
    """Of the column with rows' places."""
    return pa.field("place", pa.int64(), nullable=False)


RANGE_SIZE = 8 << 20  # bytes of pages that make a batch


def row_id_texts(places: np.ndarray) -> pa.Array:
    """Row ids as SQL writes them, of places."""
    pages = page_of(places)
    parts = (device_of(pages), offset_of(pages), slot_of(places))
    return pc.binary_join_element_wise(*(pa.array(part).cast(pa.string()) for part in parts), ":")


class Reading:
    """The snapshot of a scan, as kernels read it, for as long as it is held."""

    def __init__(self, form: memoryview, snapshot: Snapshot | None = None) -> None:
        self.form = form
        self._snapshot = snapshot

    @classmethod
    def of_closed(cls) -> Reading:
        """A reading that sees everything: for a database that does not change."""
        return cls(numbers(((1 << 63) - 1, -1, 0)))

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
        page_ids: memoryview | np.ndarray,
        page_size: int,
        threads: int | None = None,
        places: bool = False,
        lobs: LobSegment | None = None,
    ) -> None:
        """``lobs``: where the table's large objects are.

        ``places``: a last column says where each row is.
        """
        self._store = store
        self._obj_id = obj_id
        self._columns = columns[: max(wanted) + 1] if wanted else []
        self._wanted = list(wanted)
        self._ids = np.ascontiguousarray(page_ids, np.uint32)
        self._longest = longest_value(columns[n] for n in self._wanted)
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
        from concurrent.futures import ThreadPoolExecutor

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
        """Raise if the snapshot was given up, before anything read by it leaves the scan."""
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
            if row_bytes >= slots * self._longest:
                raise _too_long(self._obj_id, int(ids[int(scan["next_page"][0])]))
            row_bytes *= 4  # rows that moved to pages outside of this range have more bytes than its pages

    def _run(self, scan: np.ndarray) -> bool:
        """Scan to the end.  False: the buffers are too small."""
        from gmdb.tables.access.sorted_runs import scan_some

        while scan["next_page"][0] < scan["page_count"][0]:
            if scan_some(self._store, scan_pages, scan) == NO_ROOM:
                return False
        return True


# ---- Rows that an index or a list of row ids leads to, as record batches.
#
# Not here: scans of pages, which need no guard.

BATCH_ROWS = (64, 4096, 65536)  # of the first batch, the second, and all others: the first rows come soon
VALUE_BYTES = 64  # of a variable value, as long as nothing else is known
Batch: TypeAlias = "tuple[pa.RecordBatch, np.ndarray]"


class Lookup:
    """Some columns of the rows that are found, as batches; with each, the places of its rows."""

    def __init__(
        self,
        store: PageStore | FrozenStore,
        obj_id: int,
        columns: Sequence[Column],
        wanted: Sequence[int],
        covered: bool = False,
        lobs: LobSegment | None = None,
    ) -> None:
        """``columns`` are the table's, or, if ``covered``, the index's; ``wanted`` numbers them."""
        self._store = store
        self._obj_id = obj_id
        self._columns = columns[: max(wanted) + 1] if wanted else []
        self._wanted = list(wanted)
        self._covered = covered
        self._lobs = LobReading(store, lobs, [columns[n] for n in wanted])
        self.schema = self._lobs.schema

    def by_walk(self, walk: Walk, reading: Reading) -> Iterator[Batch]:
        """The rows of a walk through an index."""

        def read(cursor: np.ndarray) -> int:
            return self._store.call(read_index, 0, cursor.ctypes.data, walk.address)

        return self._batches(np.empty(0, np.int64), reading, read, lambda _: walk.done)

    def by_places(self, places: np.ndarray, reading: Reading) -> Iterator[Batch]:
        """The rows at some places, but for those that the snapshot does not see."""

        def read(cursor: np.ndarray) -> int:
            return self._store.call(read_places, 0, cursor.ctypes.data)

        return self._batches(places, reading, read, lambda cursor: cursor["next_place"][0] == len(places))

    def _batches(
        self,
        places: np.ndarray,
        reading: Reading,
        read: Callable[[np.ndarray], int],
        is_over: Callable[[np.ndarray], bool],
    ) -> Iterator[Batch]:
        cursor = np.zeros(1, CURSOR)
        cursor["obj_id"], cursor["covered"] = self._obj_id, int(self._covered)
        cursor["places"], cursor["place_count"] = places.ctypes.data, len(places)
        number, value_bytes, longest = 0, VALUE_BYTES, longest_value(self._columns[n] for n in self._wanted)
        while not is_over(cursor):
            rows = BATCH_ROWS[min(number, len(BATCH_ROWS) - 1)]
            batch, has_room = self._batch(cursor, rows, value_bytes, reading, read, is_over)
            if len(batch[1]):
                number += 1
                for part, start, end in self._lobs.values(batch[0], reading.check):
                    yield part, batch[1][start:end]
            if not has_room:
                if not len(batch[1]) and value_bytes >= longest:
                    raise _too_long(self._obj_id)
                value_bytes *= 4

    def _batch(
        self,
        cursor: np.ndarray,
        rows: int,
        value_bytes: int,
        reading: Reading,
        read: Callable[[np.ndarray], int],
        is_over: Callable[[np.ndarray], bool],
    ) -> tuple[Batch, bool]:
        """The next batch, and whether its buffers were large enough for all its rows."""
        plan, places = plan_columns(self._columns), np.empty(rows, np.int64)
        buffers = [ColumnBuffers(plan[n], self._columns[n], rows, rows * value_bytes) for n in self._wanted]
        cursor["columns"], cursor["column_count"] = plan.ctypes.data, len(plan)
        cursor["row_capacity"], cursor["done"], cursor["row_ids"] = rows, 0, places.ctypes.data
        status = 0
        while status != NO_ROOM and cursor["done"][0] < rows and not is_over(cursor):
            with self._store.guard:
                self._store.require_open()
                reading.check()  # once the snapshot is given up, the index may be gone, too
                cursor["scn"], cursor["transaction"], cursor["statement"] = reading.form
                status = read(cursor)
        done = int(cursor["done"][0])
        arrays = [buffer.array(done) for buffer in buffers]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self._lobs.stored_schema) if arrays else _of_no_columns(done)
        return (batch, places[:done]), status != NO_ROOM


def _of_no_columns(rows: int) -> pa.RecordBatch:
    """Rows of which no column is read, only their number."""
    return pa.RecordBatch.from_struct_array(pa.array([{}] * rows, pa.struct([])))


# ---- Where the rows of a range of an index's keys are, in a database's pages at an instant.


def find_places(
    store: FrozenStore, table: TableDefinition, index: IndexDefinition, keys: KeyRange
) -> Iterator[np.ndarray]:
    """The places of the rows that the instant sees, in the order of the keys."""
    columns = [table.stored[n] for n in index.positions]
    segment = Segment(store, None, index.entry_page)  # type: ignore[arg-type]  # nothing is added to it
    tree = INDEX_KINDS[index.using](segment, columns)
    store.load_all_undo()
    lookup = Lookup(store, table.obj_id, columns, [], covered=True)
    for _, places in lookup.by_walk(Walk(tree, keys), Reading.of_closed()):
        yield places
