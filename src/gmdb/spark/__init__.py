"""gmdb's tables in Apache Spark.  The only folder that imports pyspark.

``spark.read.format("gmdb")`` needs no import of this; Spark finds it through ``pyspark_gmdb``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from gmdb.spark.indexing import IndexMade
    from gmdb.spark.snapshots import SparkSnapshot

__all__ = ["create_index", "read_changes", "read_table", "snapshot"]


def read_table(
    spark: SparkSession,
    path: str | Path,
    table: str,
    columns: Sequence[str] | None = None,
    where: str | None = None,
    **options: Any,
) -> DataFrame:
    """A table of the database at ``path``, or some of its columns and rows, as a DataFrame.

    ``options`` are those of ``spark.read.format("gmdb")``, such as ``snapshot`` or ``maxPartitionBytes``.
    """
    from gmdb.spark.snapshots import read_frame

    return read_frame(spark, Path(path).absolute(), table, columns, where, **options)


def snapshot(spark: SparkSession, path: str | Path, lease: float | None = None) -> SparkSnapshot:
    """Hold one instant of the database: a context manager, whose ``read_table`` gives DataFrames of that instant."""
    from gmdb.spark.snapshots import SparkSnapshot

    return SparkSnapshot(spark, path, lease)


def read_changes(
    spark: SparkSession, path: str | Path, table: str, since: str = "snapshot", **options: Any
) -> DataFrame:
    """The changes of a table as a streaming DataFrame: its rows first, then every change since, as it is committed.

    ``since``: ``"snapshot"``, ``"now"``, a position, or a time; ``options`` are those of
    ``spark.readStream.format("gmdb")``, such as ``reader`` or ``maxRowsPerBatch``.
    """
    stream = spark.readStream.format("gmdb").option("table", table).option("since", since)
    for name, value in options.items():
        stream = stream.option(name, value)
    return stream.load(str(Path(path).absolute()))


def create_index(
    spark: SparkSession, path: str | Path, name: str, table: str, columns: Sequence[str], unique: bool = False
) -> IndexMade:
    """Add an index to a table of the database at ``path``: Spark's tasks sort its entries and make its leaves.

    Others go on using the table meanwhile, but for two moments.  If it fails, nothing is left of it.
    """
    from gmdb.spark import indexing

    return indexing.create_index(spark, path, name, table, columns, unique)
