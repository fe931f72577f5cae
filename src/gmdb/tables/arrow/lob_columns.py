"""Large objects in record batches: kernels read and write cells, programs get and give values.

Cells of TEXT and BYTEA columns are the values themselves, but for those that are on pages.

Invariants
 1. A batch that has large objects has values of ``BATCH_BYTES`` at most, or one row.
 2. Nothing that was read by a snapshot which has been given up is handed out.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from typing import TypeAlias

from gmdb.errors import Corruption, DataError
from gmdb.format.arrays import EncodedArray
from gmdb.format.columns import Column, Kind
from gmdb.format.lob import (
    TEXT_IN_ROW_MAX,
    TEXT_LOCATOR,
    TEXT_MARK,
    LobSegment,
    encode_cell,
    encode_text_locator,
    is_text_locator,
)
from gmdb.format.row import SizeCode, header_size
from gmdb.kernel.lob import fill_values, measure_cells
from gmdb.process.late_imports import compute as pc
from gmdb.process.late_imports import numpy as np
from gmdb.process.late_imports import pyarrow as pa
from gmdb.storage.pinned_pages import FrozenStore
from gmdb.storage.store import PageStore
from gmdb.tables.access.lobs import SPILLED_FROM, Lobs
from gmdb.tables.arrow.array_columns import as_lists, has_arrays
from gmdb.tables.arrow.arrow_types import arrow_schema, arrow_type, stored_type

BATCH_BYTES = 16 << 20
Part: TypeAlias = "tuple[pa.RecordBatch, int, int]"  # some rows of a batch, and which


class LobReading:
    """Turns batches of some columns, as kernels read them, into batches of values."""

    def __init__(self, store: PageStore | FrozenStore, segment: LobSegment | None, columns: Sequence[Column]) -> None:
        self._store = store
        self._columns = list(columns)
        self._positions = [n for n, column in enumerate(columns) if column.type.may_be_apart]
        self._has_arrays = has_arrays(columns)
        self._obj_id = segment.obj_id if segment is not None else 0
        self.schema = arrow_schema(columns)
        self.stored_schema = pa.schema([pa.field(c.name, stored_type(c.type), c.nullable) for c in columns])

    def values(self, batch: pa.RecordBatch, check: Callable[[], None]) -> Iterator[Part]:
        """The batch with values, in parts if they are many.  ``check`` raises if its snapshot was given up."""
        for part, start, end in self._whole_cells(batch, check):
            if self._has_arrays:
                own, others = part.columns[: len(self._columns)], part.columns[len(self._columns) :]
                lists = as_lists(self._columns, own)
                check()
                part = pa.RecordBatch.from_arrays([*lists, *others], schema=self._schema_of(batch))
            yield part, start, end

    def _whole_cells(self, batch: pa.RecordBatch, check: Callable[[], None]) -> Iterator[Part]:
        """``values``, but for arrays, which are in their cells."""
        sizes = np.zeros(len(batch), np.int64)
        positions = [n for n in self._positions if self._measure(n, batch.column(n), sizes)]
        if not positions:
            yield batch, 0, len(batch)
            return
        if len(batch) and not 0 <= int(sizes.min()) <= int(sizes.max()) <= len(self._positions) * self._store.size():
            check()
            raise Corruption("a large object has more bytes than the database")
        for start, end in _parts(sizes):
            part = batch.slice(start, end - start)
            arrays = [
                self._array(n, batch.column(n), start, end, check) if n in positions else part.column(n)
                for n in range(batch.num_columns)
            ]
            check()
            schema = self._schema_of(batch) if not self._has_arrays else None
            names = batch.schema.names if schema is None else None
            yield pa.RecordBatch.from_arrays(arrays, names, schema), start, end

    def _lead(self, n: int) -> int:
        """Bytes before a value in its cell."""
        return int(self._columns[n].type.is_lob)

    def _measure(self, n: int, cells: pa.Array, sizes: np.ndarray) -> bool:
        """Add the sizes of a column's values to those of their rows; False if the cells are the values."""
        if not self._columns[n].type.is_lob and not _lookalikes(cells).any():
            return False
        values, offsets = _buffers(cells)
        measure_cells(values, offsets, len(cells), self._lead(n), sizes.ctypes.data)
        return True

    def _schema_of(self, batch: pa.RecordBatch) -> pa.Schema:
        """The schema with what else the batch has, such as the places of its rows."""
        fields = [*self.schema, *list(batch.schema)[len(self.schema) :]]
        return pa.schema(fields)

    def _array(self, n: int, cells: pa.Array, start: int, end: int, check: Callable[[], None]) -> pa.Array:
        """The values of some cells of a column."""
        values, offsets = _buffers(cells)
        sizes, count, lead = np.zeros(end - start, np.int64), end - start, self._lead(n)
        measure_cells(values, offsets + 4 * start, count, lead, sizes.ctypes.data)
        ends = np.zeros(end + 1, np.int64)
        ends[start + 1 :] = np.cumsum(sizes)
        data = pa.allocate_buffer(max(int(ends[-1]), 1), resizable=True)
        target = ends.ctypes.data + 8 * start
        try:
            cells_at = (self._obj_id, values, offsets + 4 * start, count, lead)
            status = self._store.call(fill_values, 0, *cells_at, data.address, target)
        except Corruption:
            check()
            raise
        if status < 0:
            check()
            raise Corruption(f"column {self._columns[n].name}: a large object is not where its row says")
        nulls = cells.slice(start, count).null_count
        validity = cells.buffers()[0] if nulls else None
        type_ = pa.binary() if self._columns[n].type.is_array else arrow_type(self._columns[n].type)
        if not lead:
            ends = ends.astype(np.int32)  # one value is shorter than 2 GiB
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


def stored_arrays(
    lobs: Lobs, columns: Sequence[Column], arrays: Sequence[pa.Array], row_max: int, kept: Container[str]
) -> list[pa.Array]:
    """A batch's columns as rows have them, with long values on pages; within a statement.

    ``row_max``: bytes of a row: if some have more, TEXT and BYTEA values of theirs go to pages, too, but for those of
    columns that are ``kept``.
    """
    stored = list(arrays)
    for n in lobs.positions:
        if columns[n].type.is_lob:
            stored[n] = _cells_of(lobs, columns[n], stored[n])
    for n, rows in long_texts(columns, stored, row_max, kept).items():
        stored[n] = _texts_on_pages(lobs, columns[n], stored[n], rows)
    return stored


def _cells_of(lobs: Lobs, column: Column, values: pa.Array) -> pa.Array:
    """Values of BLOB or CLOB columns as the cells of rows."""
    cells: list[bytes | None] = []
    for value in values:
        if not value.is_valid:
            cells.append(None)
            continue
        stored = lobs.keep(column, value.as_py())
        cells.append(encode_cell(stored.encode() if isinstance(stored, str) else stored))
    return pa.array(cells, pa.binary())


def _texts_on_pages(lobs: Lobs, column: Column, values: pa.Array, rows: np.ndarray) -> pa.Array:
    """Values of a TEXT or BYTEA column, with those of some rows on pages."""
    locators, mask = [], np.zeros(len(values), bool)
    mask[rows] = True
    for row in rows.tolist():
        try:
            value = values[row].as_py()
        except UnicodeDecodeError as error:
            raise DataError(f"column {column.name}: a text that is not UTF-8: {error.reason}") from None
        whole = EncodedArray(value) if column.type.is_array else value
        locators.append(encode_text_locator(lobs.keep(column, whole, anyway=True)))
    cells = pc.replace_with_mask(values.cast(pa.binary()), pa.array(mask), pa.array(locators, pa.binary()))
    return cells.cast(values.type, safe=False) if values.type != pa.binary() else cells


# ---- Which values of a batch rows do not keep.  It needs no open database: tasks of bulk loads ask, too.


def long_texts(
    columns: Sequence[Column], arrays: Sequence[pa.Array], row_max: int, kept: Container[str] = ()
) -> dict[int, np.ndarray]:
    """By columns' numbers, the rows whose TEXT or BYTEA values do not stay in them; ``kept``: columns whose values
    do unless they alone are too long."""
    texts = [n for n, column in enumerate(columns) if column.type.may_be_long]
    if not texts:
        return {}
    sizes = {n: _sizes(arrays[n]) for n in texts}
    long = {n: (sizes[n] > TEXT_IN_ROW_MAX) | _lookalikes(arrays[n]) for n in texts}
    total = sum(_stored_sizes(column, array) for column, array in zip(columns, arrays, strict=True))
    total = header_size(len(columns)) + np.broadcast_to(total, len(arrays[0])).astype(np.int64)
    for n in texts:
        total = total - np.where(long[n], sizes[n] - TEXT_LOCATOR.size, 0)
    spilling = [n for n in texts if columns[n].name not in kept]
    for row in np.flatnonzero(total > row_max).tolist() if spilling else ():
        rest, others = total[row], sorted((n for n in spilling if not long[n][row]), key=lambda n: sizes[n][row])
        while rest > row_max and others and sizes[others[-1]][row] >= SPILLED_FROM:
            n = others.pop()
            long[n][row] = True
            rest -= sizes[n][row] - TEXT_LOCATOR.size
    return {n: np.flatnonzero(rows) for n, rows in long.items() if rows.any()}


def _sizes(values: pa.Array) -> np.ndarray:
    """The bytes of each value."""
    return pc.fill_null(pc.binary_length(values), 0).to_numpy(zero_copy_only=False)


def _lookalikes(values: pa.Array) -> np.ndarray:
    """Which values look like the place of one; no NULL does."""
    found = np.zeros(len(values), bool)
    _, offsets, data = values.buffers()
    if data is None or not len(values):
        return found
    ends = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1]
    rows = np.flatnonzero(np.diff(ends) == TEXT_LOCATOR.size)
    if len(rows):
        rows = rows[np.frombuffer(data, np.uint8)[ends[rows]] == TEXT_MARK[0]]
    for row in rows.tolist():
        value = values[row]
        found[row] = value.is_valid and is_text_locator(value.as_buffer().to_pybytes())
    return found


def _stored_sizes(column: Column, values: pa.Array) -> np.ndarray | int:
    """How many bytes of a row each value takes, or all do at most."""
    if column.type.size_code != SizeCode.VARIABLE:
        return 4 * column.type.size_code
    if column.type.kind not in (Kind.TEXT, Kind.BYTES):
        return 18
    return 3 + (column.type.length if column.type.padding else _sizes(values))
