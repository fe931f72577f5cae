"""Reading a table with Spark: planning the read on the driver's host, and a partition for each range of pages."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from gmdb.errors import SchemaMismatch
from gmdb.format.address import DEVICES, OFFSET_BITS, device_of, page_of
from gmdb.process.late_dataclasses import dataclass
from gmdb.spark.options import MAX_PARTITION_BYTES, ReadOptions
from gmdb.spark.pinned_snapshots import pin_of, table_of
from gmdb.spark.spark_types import (
    as_spark_expects,
    as_spark_takes,
    columns_by_name,
    columns_of_schema,
    readable_columns,
)
from gmdb.storage.directory import device_path
from gmdb.storage.pins import Pin
from gmdb.tables.access.indexes import IndexDefinition, KeyRange
from gmdb.tables.catalog.schema import TableDefinition
from gmdb.tables.files.device_file import DeviceFile
from gmdb.tables.files.pinned_files import PinnedFiles

if TYPE_CHECKING:
    from gmdb.sql.filtering import RowFilter


# ---- What a task does for the worker that it runs in, which is used again for others.

_is_settled = False


def settle() -> None:
    """Have the garbage collector pass over what was imported.

    After each task Spark has a worker's garbage collected; looking through numba's objects takes 40 ms each time.
    """
    global _is_settled
    if not _is_settled and TaskContext.get() is not None:
        _is_settled = True
        gc.collect()
        gc.freeze()


# ---- Planning a read, on the driver's host: which pages hold the rows, and how to divide them.
#
# Not here: pinning the instant (pinned_snapshots.py), decoding pages (reading.py).

# mypy: disallow-subclassing-any=False


Run = tuple[int, int]
RANGES_MIN = 8  # a table that is worth it is divided among that many tasks
SMALL_PARTITION_BYTES = 16 << 20


@dataclass(frozen=True)
class PagePartition(InputPartition):
    """Some data pages of a table, as runs of neighbouring page ids: (first, count)."""

    runs: tuple[Run, ...]

    def page_ids(self) -> np.ndarray:
        """The pages one by one, in the order of the segment's map."""
        runs = [np.arange(first, first + count, dtype=np.uint32) for first, count in self.runs]
        return np.concatenate(runs) if runs else np.empty(0, np.uint32)


@dataclass(frozen=True)
class TableRead:
    """What tasks read: columns of a table by name, those of where a row is among them, at an instant."""

    path: Path
    pin: Pin
    table: TableDefinition
    wanted: tuple[str, ...]
    where: str
    page_size: int
    skips_damage: bool

    def filter(self) -> RowFilter | None:
        """The condition on rows; none if all are wanted."""
        if not self.where:
            return None
        from gmdb.sql.filtering import RowFilter  # brings DuckDB, which most reads can do without

        return RowFilter(self.table, self.wanted, self.where)


def table_pages(path: Path, pin: Pin, entry_page: int) -> list[int]:
    """The data pages of a segment at a pin's instant; not those that a bulk load had yet to write."""
    with PinnedFiles(path, pin) as files:
        return files.segment_pages(entry_page)


def pages_by_index(
    path: Path, pin: Pin, table: TableDefinition, index: IndexDefinition, keys: KeyRange | None, most: int
) -> list[int] | None:
    """The pages with rows in a range of an index's keys, in their order; nothing if that is more than ``most``."""
    if keys is None:  # compared with NULL: no row
        return []
    from gmdb.storage.pinned_pages import FrozenStore
    from gmdb.tables.arrow.scan import find_places  # brings compiled kernels, which other plans can do without

    store = FrozenStore(path, pin)
    try:
        page_ids: set[int] = set()
        for places in find_places(store, table, index, keys):
            page_ids.update(np.unique(page_of(places)).tolist())
            if len(page_ids) > most:
                return None
        return sorted(page_ids)
    finally:
        store.close()


def pages_per_range(size: int, page_size: int, most: int | None) -> int:
    """How many pages make a partition: up to ``most`` bytes of them, or, unless that is given, some for each core."""
    if most is None:
        most = min(max(size // RANGES_MIN, SMALL_PARTITION_BYTES), MAX_PARTITION_BYTES)
    return max(most // page_size, 1)


def divide(page_ids: Sequence[int], pages_per_range: int) -> list[PagePartition]:
    """Ranges of about equal size, none larger than asked for; one empty range for a table without pages."""
    ranges = max(-(-len(page_ids) // pages_per_range), 1)
    parts = np.array_split(np.asarray(page_ids, np.int64), ranges)
    return [PagePartition(tuple(_runs(part))) for part in parts]


def divide_by_size(page_ids: np.ndarray, page_sizes: Mapping[int, int], most: int | None) -> list[PagePartition]:
    """Ranges of pages of several devices, whose pages have these sizes."""
    sizes = np.zeros(DEVICES, np.int64)
    sizes[list(page_sizes)] = list(page_sizes.values())
    ends = np.cumsum(sizes[page_ids >> OFFSET_BITS])
    total = int(ends[-1]) if len(ends) else 0
    breaks = np.flatnonzero(np.diff((ends - 1) // pages_per_range(total, 1, most))) + 1
    return [PagePartition(tuple(_runs(part))) for part in np.split(page_ids, breaks)]


def _runs(page_ids: np.ndarray) -> Iterator[Run]:
    breaks = np.flatnonzero(np.diff(page_ids) != 1) + 1
    for run in np.split(page_ids, breaks):
        if len(run):
            yield int(run[0]), len(run)


# ---- Reading a table with Spark: a partition is a range of its data pages.
#
# A reader is made where the read is planned, at a DataFrame's first action, and pickled into every task; so it holds
# what all tasks need, and a partition holds the rest.  Spark keeps the plan for every later action on the same
# DataFrame, which is therefore one instant for as long as it lives.  For the same reason the API's ``pushFilters``
# stays as it is: Spark would keep the filters of one action for all later ones.

# mypy: disallow-subclassing-any=False


INDEX_SHARE = 4  # an index says which pages to read if they are less than one of so many


class TableReader(DataSourceReader):
    """Some columns of one table, in the state that the database has when this is made, or of a snapshot."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        with pin_of(options) as pin:
            self._read = plan_read(options, schema, pin)
        self._schema = schema
        self._max_partition_bytes = options.max_partition_bytes

    def partitions(self) -> list[InputPartition]:
        read = self._read
        pages = pages_to_read(read)
        size = len(pages) * read.page_size
        return list(divide(pages, pages_per_range(size, read.page_size, self._max_partition_bytes)))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """A range of pages as record batches."""
        from gmdb.spark.reading import read_pages  # brings compiled kernels, which planning can do without

        assert isinstance(partition, PagePartition)
        settle()
        expected: pa.Schema | None = None
        for batch in read_pages(self._read, partition.page_ids()):
            expected = expected or as_spark_expects(batch.schema, self._schema)
            yield pa.record_batch(as_spark_takes(batch, self._schema), schema=expected)


def plan_read(options: ReadOptions, schema: StructType, pin: Pin) -> TableRead:
    """What is to be read of the one database at ``options.path``; refuses columns that its table lacks."""
    path = options.path
    table = table_of(pin, options.table, path)
    wanted = columns_of_schema(table, schema)
    if options.columns and columns_by_name(table, options.columns) != wanted:
        message = f"option columns asks for {', '.join(options.columns)}, the schema for"
        raise SchemaMismatch(f"table {table.name}: {message} {', '.join(schema.fieldNames())}; give one of them")
    device = DeviceFile(device_path(path, device_of(table.entry_page)), device_of(table.entry_page))
    device.close()
    names = tuple(column.name for column in wanted)
    read = TableRead(path, pin, table, names, options.where, device.page_size, options.skips_damage)
    row_filter = read.filter()
    if row_filter is not None:
        row_filter.check(readable_columns(table))
    return read


def pages_to_read(read: TableRead) -> list[int]:
    """The table's pages, or those of them that may have rows which meet the condition; tasks ask each row."""
    pages = table_pages(read.path, read.pin, read.table.entry_page)
    row_filter = read.filter()
    keys = row_filter.keys() if row_filter is not None else None
    if keys is None:
        return pages
    by_index = pages_by_index(read.path, read.pin, read.table, *keys, most=max(len(pages) // INDEX_SHARE, 1))
    return pages if by_index is None else by_index
