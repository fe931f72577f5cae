"""gmdb's tables in Apache Spark.  The only folder that imports pyspark.

``spark.read.format("gmdb")`` needs no import of this; Spark finds it through ``pyspark_gmdb``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from gmdb.spark.distributed_index import IndexMade
    from gmdb.spark.fleet import FleetRead
    from gmdb.spark.pinned_snapshots import SparkSnapshot

__all__ = ["create_index", "read_changes", "read_fleet", "read_table", "snapshot"]


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
    from gmdb.spark.pinned_snapshots import read_frame

    return read_frame(spark, Path(path).absolute(), table, columns, where, **options)


def read_fleet(
    spark: SparkSession,
    fleet: str | Path | Sequence[str],
    table: str,
    columns: Sequence[str] | None = None,
    where: str | None = None,
    on_error: str = "fail",
    report_to: str | Path | None = None,
    **options: Any,
) -> FleetRead:
    """A table of each of many databases as one DataFrame, ``frame``, whose column ``_database`` says of which a row is.

    ``fleet`` is a pattern, such as ``fleet/*``, or a list of paths.  With ``on_error="skip"``, databases that cannot be
    read are left out, and ``skipped`` tells which and why, after an action.  Workers write that to the directory
    ``report_to``, which may be left out if they are all on this machine.
    """
    from gmdb.spark import fleet as fleet_frame

    options["table"] = table
    if columns is not None:
        options["columns"] = ",".join(columns)
    if where is not None:
        options["where"] = where
    return fleet_frame.read_fleet(spark, fleet, on_error, report_to, options)


def snapshot(spark: SparkSession, path: str | Path, lease: float | None = None) -> SparkSnapshot:
    """Hold one instant of the database: a context manager, whose ``read_table`` gives DataFrames of that instant."""
    from gmdb.spark.pinned_snapshots import SparkSnapshot

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
    from gmdb.spark import distributed_index

    return distributed_index.create_index(spark, path, name, table, columns, unique)
