"""Cursors: rows of a table by one way of finding them, one by one or as Arrow batches, on one snapshot.

The ways: the whole table in page order, a range of an index's keys in key order, or a list of row ids in its order.
If an index has all columns that are wanted, the rows themselves are not visited.
Not here: choosing the way (the caller does).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Any

from gmdb.errors import SchemaError
from gmdb.format.address import RowId, place_of
from gmdb.format.columns import require_same
from gmdb.process.late_imports import numpy as np
from gmdb.process.late_imports import pyarrow as pa
from gmdb.process.signals import Flattened
from gmdb.tables.access.heap import Heap
from gmdb.tables.access.index_entries import Walk
from gmdb.tables.access.indexes import EVERYTHING, KeyRange, keys_without_index, no_such_index
from gmdb.tables.access.tracked_rows import note_row_read
from gmdb.tables.arrow.arrow_types import python_columns
from gmdb.tables.arrow.scan import Batch, Lookup, Reading, Scan, place_field
from gmdb.tables.catalog.schema import TableDefinition
from gmdb.transaction.interrupts import operation

Row = tuple[RowId, tuple[Any, ...]]


class RowCursor:
    """Some columns of a table's rows.  Every read is on a snapshot of its own, taken when it begins."""

    def __init__(self, heap: Heap, table: TableDefinition, columns: Sequence[str] | None) -> None:
        self._wanted, self._known = table.positions(columns), table.columns
        self._heap = heap.wanting(self._wanted)
        self.session = heap.session

    def rows(self) -> Iterator[Row]:
        """The rows one by one, each with its row id."""
        return Flattened.of(self._pieces())

    def _pieces(self) -> Iterator[Iterable[Row]]:
        """The rows, some at a time."""
        raise NotImplementedError

    def _read(self, reading: Reading, places: bool = False) -> Iterator[Any]:
        """First the schema, then the batches; with ``places``, a last column tells where rows are."""
        raise NotImplementedError

    @operation
    def arrow(self) -> pa.RecordBatchReader:
        """The rows as a stream of record batches."""
        batches = self._batches()
        schema = next(batches)
        return pa.RecordBatchReader.from_batches(schema, batches)

    def read_by(self, reading: Reading, places: bool = False) -> pa.RecordBatchReader:
        """``arrow``, by a snapshot that the caller holds.

        With ``places`` there is a last column: the place of each row.
        """
        batches = self._read_seen(reading, places)
        return pa.RecordBatchReader.from_batches(next(batches), batches)

    @operation
    def _batches(self) -> Iterator[Any]:
        """First the schema, so that the snapshot is taken when the stream is asked for; then the batches."""
        with self._heap.session.cursor() as (snapshot, form):
            yield from self._read_seen(Reading(form, snapshot))

    def _read_seen(self, reading: Reading, places: bool = False) -> Iterator[Any]:
        """``_read``, of the table as the snapshot sees it."""
        self._heap.see(reading.scn)
        self._require_same()
        yield from self._read(reading, places)

    def _require_same(self) -> None:
        """Refuse to read other columns than were asked for: the read has begun, and sees the table by now."""
        require_same(self._heap.name, self._known, self._heap.columns, self._wanted)

    @operation
    def _project(self, pieces: Iterable[Iterable[Row]]) -> Iterator[Iterable[Row]]:
        """Of whole rows, the columns that are wanted."""
        wanted, is_whole = self._wanted, None
        choose = itemgetter(*wanted) if len(wanted) > 1 else lambda values: tuple(values[n] for n in wanted)
        for piece in pieces:
            if is_whole is None:
                self._require_same()
                is_whole = wanted == list(range(len(self._heap.columns)))
            yield piece if is_whole else [(row_id, choose(values)) for row_id, values in piece]


class FullScan(RowCursor):
    """The whole table, in page order."""

    def _pieces(self) -> Iterator[Iterable[Row]]:
        return self._project(self._heap.pieces())

    def _read(self, reading: Reading, places: bool = False) -> Iterator[Any]:
        segment = self._heap.segment
        pages, page_size = self._heap.page_ids(reading.check), segment.space.page_size
        of_table = segment.store, self._heap.obj_id, self._heap.columns, self._wanted
        scan = Scan(*of_table, pages, page_size, places=places, lobs=self._heap.definition.lobs)
        yield scan.schema
        yield from scan.batches(reading)


class KeyScan(RowCursor):
    """The rows of a range of an index's keys, in their order."""

    def __init__(
        self, heap: Heap, table: TableDefinition, columns: Sequence[str] | None, index: str, keys: KeyRange
    ) -> None:
        super().__init__(heap, table, columns)
        if not any(known.name == index and not known.building for known in table.indexes):
            self._heap.by(index)  # says why it is not there
        self._index, self._keys = table.index(index), keys
        self._index.require(keys)
        positions = self._index.positions
        self.covered = all(n in positions and not table.columns[n].type.has_likenesses for n in self._wanted)
        # (Entries of equal doubles may have other bytes than the row, as 0.0 and -0.0 do.)

    def _pieces(self) -> Iterator[Iterable[Row]]:
        if self.covered:
            return self._covered_rows()
        return self._project(self._heap.by(self._index.name).pieces(self._keys))

    @operation
    def _covered_rows(self) -> Iterator[Iterable[Row]]:
        with self._heap.session.cursor() as (snapshot, form):
            self._heap.see(snapshot.scn)
            self._require_same()
            for batch, places in self._lookup(Reading(form, snapshot)):
                yield _rows_of(batch, places)

    def _read(self, reading: Reading, places: bool = False) -> Iterator[Any]:
        batches = self._lookup(reading)  # first, for it may be refused
        yield from _with_places(self._make_lookup().schema, batches, places)

    def _make_lookup(self) -> Lookup:
        store, obj_id, columns = self._heap.segment.store, self._heap.obj_id, self._heap.columns
        if not self.covered:
            return Lookup(store, obj_id, columns, self._wanted, lobs=self._heap.definition.lobs)
        positions = self._index.positions
        wanted = [positions.index(n) for n in self._wanted]
        stored = self._heap.stored
        return Lookup(store, obj_id, [stored[n] for n in positions], wanted, covered=True)

    def _lookup(self, reading: Reading) -> Iterator[Batch]:
        keyed = self._heap.by_seen(self._index.name)
        if keyed.index.positions != self._index.positions:
            raise no_such_index(self._heap.name, self._index.name, self._heap.indexes)
        keyed.require_seen(reading.scn)
        keyed.note_read(self._keys)
        return self._make_lookup().by_walk(Walk(keyed.tree, self._keys), reading)


class RowIdScan(RowCursor):
    """The rows with some row ids, in their order; those that are not there are left out."""

    def __init__(
        self, heap: Heap, table: TableDefinition, columns: Sequence[str] | None, row_ids: Sequence[RowId]
    ) -> None:
        super().__init__(heap, table, columns)
        self._places = np.array([place_of(page_id, slot) for page_id, slot in row_ids], np.int64)

    @operation
    def _pieces(self) -> Iterator[Iterable[Row]]:
        with self._heap.session.cursor() as (snapshot, form):
            self._heap.see(snapshot.scn)
            self._require_same()
            self._note_read()
            for batch, places in self._lookup().by_places(self._places, Reading(form, snapshot)):
                yield _rows_of(batch, places)

    def _read(self, reading: Reading, places: bool = False) -> Iterator[Any]:
        lookup = self._lookup()
        self._note_read()
        yield from _with_places(lookup.schema, lookup.by_places(self._places, reading), places)

    def _note_read(self) -> None:
        if self._heap.tracked is not None:
            for place in self._places.tolist():
                note_row_read(self._heap, place)

    def _lookup(self) -> Lookup:
        of_table = self._heap.segment.store, self._heap.obj_id, self._heap.columns
        return Lookup(*of_table, self._wanted, lobs=self._heap.definition.lobs)


def _with_places(schema: pa.Schema, batches: Iterator[Batch], places: bool) -> Iterator[Any]:
    """The schema, then the batches, with the rows' places as a last column if they are wanted."""
    yield schema.append(place_field()) if places else schema
    for batch, at in batches:
        yield batch.append_column(place_field(), pa.array(at)) if places else batch


def _rows_of(batch: pa.RecordBatch, places: np.ndarray) -> Iterator[Row]:
    """A batch, row by row."""
    columns = python_columns(batch)
    values = zip(*columns, strict=True) if columns else iter([()] * len(places))
    row_ids = list(map(RowId.from_place, places.tolist()))
    return zip(row_ids, values, strict=True)


def open_cursor(
    heap: Heap,
    table: TableDefinition,
    columns: Sequence[str] | None,
    by: str | None,
    keys: KeyRange | None,
    row_ids: Sequence[RowId] | None,
) -> RowCursor:
    """The cursor for a way to find rows: an index and a range of its keys, row ids, or neither."""
    if by is not None and row_ids is not None:
        raise SchemaError(f"table {table.name}: rows are found by an index or by row ids, not by both")
    if by is not None:
        return KeyScan(heap, table, columns, by, keys or EVERYTHING)
    if row_ids is not None:
        return RowIdScan(heap, table, columns, row_ids)
    if keys is not None:
        raise keys_without_index(table.name)
    return FullScan(heap, table, columns)
