"""Large objects in record batches: kernels read and write cells, programs get and give values.

Invariants
 1. A batch has values of ``BATCH_BYTES`` at most, or one row.
 2. Nothing that was read by a snapshot which has been given up is handed out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from gmdb.errors import Corruption
from gmdb.format.columns import Column
from gmdb.format.lob import LobSegment, encode_cell
from gmdb.kernel.lob import fill_values, measure_cells
from gmdb.process.late_imports import numpy as np
from gmdb.process.late_imports import pyarrow as pa
from gmdb.storage.pinned_pages import FrozenStore
from gmdb.storage.store import PageStore
from gmdb.tables.access.lobs import Lobs
from gmdb.tables.arrow.arrow_types import arrow_schema, arrow_type, stored_type

BATCH_BYTES = 16 << 20
Part: TypeAlias = "tuple[pa.RecordBatch, int, int]"  # some rows of a batch, and which


class LobReading:
    """Turns batches of some columns, as kernels read them, into batches of values."""

    def __init__(self, store: PageStore | FrozenStore, segment: LobSegment | None, columns: Sequence[Column]) -> None:
        self._store = store
        self._columns = list(columns)
        self._positions = [n for n, column in enumerate(columns) if column.type.is_lob]
        self._obj_id = segment.obj_id if segment is not None else 0
        self.schema = arrow_schema(columns)
        self.stored_schema = pa.schema([pa.field(c.name, stored_type(c.type), c.nullable) for c in columns])

    def values(self, batch: pa.RecordBatch, check: Callable[[], None]) -> Iterator[Part]:
        """The batch with values, in parts if they are many.  ``check`` raises if its snapshot was given up."""
        if not self._positions:
            yield batch, 0, len(batch)
            return
        sizes = np.zeros(len(batch), np.int64)
        for n in self._positions:
            values, offsets = _buffers(batch.column(n))
            measure_cells(values, offsets, len(batch), sizes.ctypes.data)
        if len(batch) and not 0 <= int(sizes.min()) <= int(sizes.max()) <= len(self._positions) * self._store.size():
            check()
            raise Corruption("a large object has more bytes than the database")
        for start, end in _parts(sizes):
            part = batch.slice(start, end - start)
            arrays = [
                self._array(n, batch.column(n), start, end, check) if n in self._positions else part.column(n)
                for n in range(batch.num_columns)
            ]
            check()
            yield pa.RecordBatch.from_arrays(arrays, schema=self._schema_of(batch)), start, end

    def _schema_of(self, batch: pa.RecordBatch) -> pa.Schema:
        """The schema with what else the batch has, such as the places of its rows."""
        fields = [*self.schema, *list(batch.schema)[len(self.schema) :]]
        return pa.schema(fields)

    def _array(self, n: int, cells: pa.Array, start: int, end: int, check: Callable[[], None]) -> pa.Array:
        """The values of some cells of a column."""
        values, offsets = _buffers(cells)
        sizes, count = np.zeros(end - start, np.int64), end - start
        measure_cells(values, offsets + 4 * start, count, sizes.ctypes.data)
        ends = np.zeros(end + 1, np.int64)
        ends[start + 1 :] = np.cumsum(sizes)
        data = pa.allocate_buffer(max(int(ends[-1]), 1), resizable=True)
        target = ends.ctypes.data + 8 * start
        try:
            cells_at = (self._obj_id, values, offsets + 4 * start, count)
            status = self._store.call(fill_values, 0, *cells_at, data.address, target)
        except Corruption:
            check()
            raise
        if status < 0:
            check()
            raise Corruption(f"column {self._columns[n].name}: a large object is not where its row says")
        nulls = cells.slice(start, count).null_count
        validity = cells.buffers()[0] if nulls else None
        type_ = arrow_type(self._columns[n].type)
        return pa.Array.from_buffers(type_, count, [validity, pa.py_buffer(ends), data], nulls, start)


def _buffers(cells: pa.Array) -> tuple[int, int]:
    """Where the bytes and the offsets of cells are."""
    _, offsets, values = cells.buffers()
    return values.address if values is not None else 0, offsets.address + 4 * cells.offset


def _parts(sizes: np.ndarray) -> Iterator[tuple[int, int]]:
    """Runs of rows whose values are not too many bytes."""
    ends = np.cumsum(sizes)
    start = 0
    while start < len(sizes):
        before = int(ends[start - 1]) if start else 0
        end = max(int(np.searchsorted(ends, before + BATCH_BYTES, "right")), start + 1)
        yield start, end
        start = end


def cells_of(lobs: Lobs, column: Column, values: pa.Array) -> pa.Array:
    """Values as the cells of rows, long ones on pages; within a statement."""
    cells: list[bytes | None] = []
    for value in values:
        if not value.is_valid:
            cells.append(None)
            continue
        stored = lobs.keep(column, value.as_py())
        cells.append(encode_cell(stored.encode() if isinstance(stored, str) else stored))
    return pa.array(cells, pa.binary())
