"""``view=redo``: the redo log's records, of the files that are there when they are read; a partition is a file."""

# mypy: disallow-subclassing-any=False

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import InputPartition

from gmdb.inspect.redo_log import REDO, file_records, log_files
from gmdb.spark.views.base import Values, View, ViewRead, view_columns


@dataclass(frozen=True)
class RedoFile(InputPartition):
    """The groups that begin in one file; -1: there is none."""

    number: int


class RedoView(View):
    name = "redo"
    is_of_instant = False
    columns = view_columns(REDO)

    def partitions(self, read: ViewRead) -> list[RedoFile]:
        return [RedoFile(number) for number in log_files(read.path)] or [RedoFile(-1)]

    def batches(self, read: ViewRead, partition: Any) -> Iterator[Values]:
        if partition.number >= 0:
            yield from file_records(read.path, partition.number, read.wanted)
