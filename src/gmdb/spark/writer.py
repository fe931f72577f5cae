"""What Spark calls to write a DataFrame, or a batch of a streaming query: a load of one table (loading.py)."""

# mypy: disallow-subclassing-any=False

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from gmdb.spark.loading import StagedRows, TableLoad
from gmdb.spark.write_options import WriteOptions

Messages = Sequence[WriterCommitMessage | None]


class TableWriter(DataSourceArrowWriter):
    """A write of one table."""

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        self._load, self._batch_id = TableLoad(options, schema, overwrite), options.batch_id

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedRows:
        return self._load.stage(iterator)

    def commit(self, messages: Messages) -> None:
        self._load.take_in(messages, self._batch_id)

    def abort(self, messages: Messages) -> None:
        self._load.drop(messages)


class TableStreamWriter(DataSourceStreamArrowWriter):
    """A batch of a streaming query into one table; ``overwrite``: the query's output mode is complete."""

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        self._load = TableLoad(options, schema, overwrite)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedRows:
        return self._load.stage(iterator)

    def commit(self, messages: Messages, batchId: int) -> None:  # noqa: N803  (Spark's name)
        self._load.take_in(messages, batchId)

    def abort(self, messages: Messages, batchId: int) -> None:  # noqa: N803
        del batchId
        self._load.drop(messages)
