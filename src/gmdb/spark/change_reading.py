"""Reading a part of a stream in a task: rows of a snapshot, or changes out of the log."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from pyspark.sql.types import StructType

from gmdb.database.feed import Definitions, require_feed
from gmdb.format.address import device_of
from gmdb.spark.change_reader import ChangeRange, SnapshotRange
from gmdb.spark.options import ChangeOptions
from gmdb.spark.pinned_snapshots import table_of
from gmdb.spark.reading import read_pages
from gmdb.spark.spark_types import ROWID, as_spark_expects, as_spark_takes
from gmdb.spark.table_reader import TableRead
from gmdb.storage.directory import device_path
from gmdb.storage.log.committed_changes import ChangeLog, LogScan
from gmdb.storage.pins import Pin, read_pin
from gmdb.tables.arrow.change_batches import BEFORE, SNAPSHOT, change_batches, meta_fields
from gmdb.tables.files.device_file import DeviceFile

_META = [field.name for field in meta_fields()]


def _wanted(schema: StructType) -> list[str]:
    """The table's columns that a stream's schema has."""
    return [name for name in schema.fieldNames() if name not in _META and not name.startswith(BEFORE)]


def read_snapshot(options: ChangeOptions, schema: StructType, part: SnapshotRange) -> Iterator[pa.RecordBatch]:
    """Rows that were there when the stream began."""
    pin = read_pin(options.path, part.snapshot)
    table = table_of(pin, options.table, options.path)
    names, number = _wanted(schema), device_of(table.entry_page)
    device = DeviceFile(device_path(options.path, number), number)
    device.close()
    read = TableRead(options.path, pin, table, (*names, ROWID.name), "", device.page_size, False)
    done = 0
    for batch in read_pages(read, part.pages.page_ids()):
        yield _in_form(_as_changes(batch, names, pin, done), schema)
        done += len(batch)


def _as_changes(batch: pa.RecordBatch, names: list[str], pin: Pin, done: int) -> pa.Table:
    count = len(batch)
    taken = pa.scalar(round(pin.created * 1_000_000), pa.timestamp("us", tz="UTC"))
    meta = [
        pa.repeat(SNAPSHOT, count),
        pa.repeat(pa.scalar(pin.scn, pa.int64()), count),
        pa.array(np.arange(done, done + count)),
        pa.repeat(taken, count),
        batch.column(ROWID.name),
    ]
    return pa.table([*(batch.column(name) for name in names), *meta], names=[*names, *_META])


def read_changes(options: ChangeOptions, schema: StructType, part: ChangeRange) -> Iterator[pa.RecordBatch]:
    """The changes of some commits."""
    log, definitions, feed = ChangeLog(options.path), Definitions(options.path), require_feed(part.table)
    positions = [part.table.position(name) for name in _wanted(schema)]
    wanted, numbers = [part.table.columns[n] for n in positions], [part.table.numbers[n] for n in positions]
    for committed in LogScan(log, part.start).steps(part.until):
        for changes in definitions.divide(committed, {feed}):
            arguments = (changes.table, options.before_images, wanted, numbers)
            for batch, _ in change_batches(log, changes.changes, *arguments):
                yield _in_form(pa.Table.from_batches([batch]), schema)


def _in_form(table: pa.Table, schema: StructType) -> pa.RecordBatch:
    """A batch with the columns of the schema; those that it lacks are NULL."""
    known, arrays = {field.name: field.type for field in table.schema}, []
    for name in schema.fieldNames():
        missing = known.get(name.removeprefix(BEFORE))
        arrays.append(table.column(name).combine_chunks() if name in known else pa.nulls(table.num_rows, missing))
    batch = pa.RecordBatch.from_arrays(arrays, names=schema.fieldNames())
    return pa.record_batch(as_spark_takes(batch, schema), schema=as_spark_expects(batch.schema, schema))
