"""Reading a view with Spark: what was asked for is checked where the read is planned, and the rest is the view's."""

# mypy: disallow-subclassing-any=False

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from gmdb.errors import InterfaceError, SchemaMismatch
from gmdb.spark.options import ReadOptions
from gmdb.spark.pinned_snapshots import describe, pin_of, table_of
from gmdb.spark.views import STORAGE_VIEWS
from gmdb.spark.views.base import View, ViewRead, record_batch
from gmdb.storage.directory import require_database


def view_schema(options: ReadOptions) -> StructType:
    """The columns of the view that the options name; refuses options that it does not take, and what is not there."""
    view = chosen_view(options)
    require_database(options.path)
    if options.table:
        describe(options.path, options.table, options.snapshot, options.owner)
    return view.spark_schema(options.columns)


def chosen_view(options: ReadOptions) -> View:
    view = STORAGE_VIEWS[options.view]
    if options.where:
        raise InterfaceError(f"where is for rows of tables; of view {view.name}, filter the DataFrame")
    if not view.is_of_instant and (options.table or options.snapshot):
        raise InterfaceError(f"view {view.name} is of all that the files have: it takes no table and no snapshot")
    return view


@contextmanager
def plan_view(view: View, options: ReadOptions, wanted: tuple[str, ...]) -> Iterator[ViewRead]:
    """What is to be read of the one database at ``options.path``, whose pin is let go if planning fails."""
    with pin_of(options) if view.is_of_instant else nullcontext() as pin:
        table = table_of(pin, options.table, options.path) if pin is not None and options.table else None
        yield ViewRead(options.path, pin, table, wanted, options.max_partition_bytes, options.skips_damage)


class ViewReader(DataSourceReader):
    """Some columns of a view, in the state that the database has when this is made, or of a snapshot."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        view = chosen_view(options)
        self._columns = view.columns_of_schema(schema)
        if options.columns and view.choose(options.columns) != self._columns:
            message = f"option columns asks for {', '.join(options.columns)}, the schema for"
            raise SchemaMismatch(f"view {view.name}: {message} {', '.join(schema.fieldNames())}; give one of them")
        self._view = view
        self._names = schema.fieldNames()
        with plan_view(view, options, tuple(column.name for column in self._columns)) as self._read:
            pass

    def partitions(self) -> list[InputPartition]:
        return list(self._view.partitions(self._read))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        for values in self._view.batches(self._read, partition):
            yield record_batch(self._columns, self._names, values)
