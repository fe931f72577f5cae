"""Reading a table with Spark: a partition is a range of its data pages.

A reader is made where the read is planned, and pickled into every task; so it holds what all tasks need, and a
partition holds the rest.  Its API has a ``pushFilters``, which stays as it is: Spark keeps the plan that it made
with the filters of one action for every later action on the same DataFrame.
"""

# mypy: disallow-subclassing-any=False

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from gmdb.errors import SchemaMismatch
from gmdb.spark.options import ReadOptions
from gmdb.spark.plan import PageRange, Snapshot, closed_database, divide
from gmdb.spark.types import as_spark_expects, as_spark_takes, positions, unique_positions

if TYPE_CHECKING:
    from gmdb.storage.store import PageStore


class TableReader(DataSourceReader):
    """Some columns of one table, in the state that the database has when this is made."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._path = options.path
        self._schema = schema
        with closed_database(options.path) as files:
            self._snapshot = Snapshot.of(files.control)
            table = files.table(options.table)
            self._wanted = positions(table, schema)
            if options.columns and unique_positions(table, options.columns) != self._wanted:
                said = f"option columns asks for {', '.join(options.columns)}, the schema for"
                raise SchemaMismatch(f"table {table.name}: {said} {', '.join(schema.fieldNames())}; give one of them")
            self._entry_page, self._obj_id, self._lobs = table.entry_page, table.obj_id, table.lobs
            self._columns = table.columns[: max(self._wanted) + 1]
            self._page_size = files.device(table.entry_page).page_size
        self._pages_per_range = max(options.max_partition_bytes // self._page_size, 1)

    def partitions(self) -> list[InputPartition]:
        with closed_database(self._path) as files:
            self._snapshot.require(files.control, self._path)
            return list(divide(files.segment_pages(self._entry_page), self._pages_per_range))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """A range of pages as record batches, on the task's one thread: Spark runs a task for each core."""
        from gmdb.storage.store import PageStore  # brings compiled kernels, which planning can do without

        assert isinstance(partition, PageRange)
        store = PageStore(self._path, read_only=True)
        try:
            self._snapshot.require(store.control, self._path)
            yield from self._batches(store, partition)
        finally:
            store.close()

    def _batches(self, store: PageStore, pages: PageRange) -> Iterator[pa.RecordBatch]:
        from gmdb.arrow.scan import Reading, Scan

        of_table = self._obj_id, self._columns, self._wanted
        scan = Scan(store, *of_table, pages.page_ids(), self._page_size, threads=1, lobs=self._lobs)
        expected = as_spark_expects(scan.schema, self._schema)
        for batch in scan.batches(Reading.of_closed()):
            yield pa.record_batch(as_spark_takes(batch), schema=expected)
