"""Reading a table with Spark: a partition is a range of its data pages.

A reader is made where the read is planned, at a DataFrame's first action, and pickled into every task; so it holds what
all tasks need, and a partition holds the rest.  Spark keeps the plan for every later action on the same DataFrame,
which is therefore one instant for as long as it lives.  For the same reason the API's ``pushFilters`` stays as it is:
Spark would keep the filters of one action for all later ones.
"""

# mypy: disallow-subclassing-any=False

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from gmdb.errors import SchemaMismatch
from gmdb.format.address import device_of
from gmdb.inspect.device_file import DeviceFile
from gmdb.spark.options import ReadOptions
from gmdb.spark.plan import PageRange, TableRead, divide, pages_by_index, pages_per_range, table_pages
from gmdb.spark.snapshots import pin_of, table_of
from gmdb.spark.types import as_spark_expects, as_spark_takes, columns_by_name, columns_of_schema, readable_columns
from gmdb.spark.worker import settle
from gmdb.storage.directory import device_path
from gmdb.storage.pins import Pin

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

        assert isinstance(partition, PageRange)
        settle()
        expected: pa.Schema | None = None
        for batch in read_pages(self._read, partition.page_ids()):
            expected = expected or as_spark_expects(batch.schema, self._schema)
            yield pa.record_batch(as_spark_takes(batch, self._schema), schema=expected)


def plan_read(options: ReadOptions, schema: StructType, pin: Pin) -> TableRead:
    """What is to be read of the one database at ``options.path``; refuses what its table has not."""
    path = options.path
    table = table_of(pin, options.table, path)
    wanted = columns_of_schema(table, schema)
    if options.columns and columns_by_name(table, options.columns) != wanted:
        said = f"option columns asks for {', '.join(options.columns)}, the schema for"
        raise SchemaMismatch(f"table {table.name}: {said} {', '.join(schema.fieldNames())}; give one of them")
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
    found = pages_by_index(read.path, read.pin, read.table, *keys, most=max(len(pages) // INDEX_SHARE, 1))
    return pages if found is None else found
