"""Reading a range of a table's pages in a task: pages as a pin has them, rows that meet a condition, as batches."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa

from gmdb.errors import Corruption
from gmdb.format.address import page_name, page_of
from gmdb.format.columns import Column
from gmdb.spark.spark_types import PAGE_ID, ROWID, readable_columns
from gmdb.spark.table_reader import TableRead
from gmdb.storage.pinned_pages import FrozenStore
from gmdb.storage.pins import Pin, skipped_path
from gmdb.tables.arrow.arrow_types import arrow_schema
from gmdb.tables.arrow.scan import Reading, Scan, place_field, row_id_texts
from gmdb.tables.catalog.schema import TableDefinition

_logger = logging.getLogger("gmdb")


Skip = Callable[[int, str], None]


def read_pages(read: TableRead, page_ids: np.ndarray, on_skip: Skip | None = None) -> Iterator[pa.RecordBatch]:
    """The rows of some pages, on the task's one thread: Spark runs a task for each core.

    ``on_skip`` is called as well for damaged pages that are skipped.
    """

    def note(page_id: int, what: str) -> None:
        note_skipped(read.path, read.pin, page_id, what)
        if on_skip is not None:
            on_skip(page_id, what)

    skip = note if read.skips_damage else None
    with kept_store(read.path, read.pin) as store:
        store.skip = skip
        source = PageSource(store, read.table, page_ids, read.page_size, skip)
        row_filter = read.filter()
        yield from source.batches(list(read.wanted)) if row_filter is None else row_filter.batches(source)


_kept: list[FrozenStore] = []  # the one that the task before has left


@contextmanager
def kept_store(path: Path, pin: Pin) -> Iterator[FrozenStore]:
    """The pages of a pin: those of the task before, if it read by the same one, since opening them takes a while."""
    store = _kept.pop() if _kept else None
    if store is not None and (store.directory, store.pin.name) != (path, pin.name):
        store.close()
        store = None
    if store is None:
        store = FrozenStore(path, pin)
    else:
        store.require_pin()
    try:
        yield store
    except BaseException:
        store.close()
        raise
    if _kept:
        store.close()
    else:
        store.forget()
        _kept.append(store)


def note_skipped(path: Path, pin: Pin, page_id: int, what: str) -> None:
    """Note a damaged page: in the log, and for a report that counts them."""
    _logger.warning("skipped: %s", what)
    if pin.is_kept:
        line = f"{page_name(page_id)}: {what}\n".encode()
        file = os.open(skipped_path(path, pin.name), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            os.write(file, line)
        finally:
            os.close(file)


class PageSource:
    """Some pages of a table as a query reads them."""

    def __init__(
        self,
        store: FrozenStore,
        table: TableDefinition,
        page_ids: np.ndarray,
        page_size: int,
        skip: Skip | None,
    ) -> None:
        self._store = store
        self._table = table
        self._page_ids = page_ids
        self._page_size = page_size
        self._skip = skip
        self.columns: Sequence[Column] = readable_columns(table)

    def read(self, columns: list[str] | None) -> pa.RecordBatchReader:
        names = [column.name for column in self.columns] if columns is None else columns
        schema = arrow_schema([column for name in names for column in self.columns if column.name == name])
        return pa.RecordBatchReader.from_batches(schema, self.batches(names))

    def batches(self, names: list[str]) -> Iterator[pa.RecordBatch]:
        """The columns with these names, of all rows."""
        stored = [name for name in names if name not in (ROWID.name, PAGE_ID.name)]
        positions = [self._table.position(name) for name in stored]
        with_places = len(stored) < len(names) or not stored
        for batch in self._scanned(self._page_ids, positions, with_places):
            yield _with_places(batch, names) if with_places else batch

    def _scanned(self, page_ids: np.ndarray, positions: list[int], places: bool) -> Iterator[pa.RecordBatch]:
        try:
            scan = Scan(
                self._store,
                self._table.obj_id,
                self._table.columns,
                positions,
                page_ids,
                self._page_size,
                threads=1,
                places=places,
                lobs=self._table.lobs,
            )
            if self._skip is None:
                yield from scan.batches(Reading.of_closed())
                return
            batches = list(scan.batches(Reading.of_closed()))
        except Corruption as error:
            if self._skip is None:
                raise
            if len(page_ids) == 1:
                self._skip(int(page_ids[0]), str(error))
                return
            half = len(page_ids) // 2  # a row may lead to a damaged page from any of them
            yield from self._scanned(page_ids[:half], positions, places)
            yield from self._scanned(page_ids[half:], positions, places)
            return
        yield from batches


def _with_places(batch: pa.RecordBatch, names: list[str]) -> pa.RecordBatch:
    """The batch with the columns of where its rows are, and in the order that is asked for."""
    places = batch.column(batch.schema.get_field_index(place_field().name) if names else 0).to_numpy()
    arrays: list[pa.Array] = []
    for name in names:
        if name == ROWID.name:
            arrays.append(row_id_texts(places))
        elif name == PAGE_ID.name:
            arrays.append(pa.array(page_of(places)))
        else:
            arrays.append(batch.column(name))
    return pa.RecordBatch.from_arrays(arrays, names=names)
