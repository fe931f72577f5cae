"""What a task of a stream reads."""

# mypy: disallow-subclassing-any=False

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql.datasource import InputPartition

from gmdb.catalog.schema import TableDefinition
from gmdb.spark.plan import PageRange
from gmdb.storage.feeds import LogPosition


@dataclass(frozen=True)
class SnapshotRange(InputPartition):
    """Some pages of the table as a stream begins with it."""

    snapshot: str
    pages: PageRange


@dataclass(frozen=True)
class ChangeRange(InputPartition):
    """The commits behind a position, up to one; ``table``: as the stream's schema has it."""

    start: LogPosition
    until: int
    table: TableDefinition
