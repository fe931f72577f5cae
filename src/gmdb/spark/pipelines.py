"""From files into a table, and from a table into files."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gmdb
from gmdb.errors import InterfaceError, NoSuchColumn, NoSuchTable
from gmdb.spark import read_table
from gmdb.spark.files import Sources, read_files, require_target, size_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from gmdb.catalog.schema import TableDefinition


@dataclass(frozen=True)
class Moved:
    """What went through; ``size`` is None if the files are where nobody here can count them."""

    rows: int
    size: int | None
    seconds: float

    def document(self) -> dict[str, Any]:
        return {"rows": self.rows, "bytes": self.size, "seconds": round(self.seconds, 3)}


def load_files(
    spark: SparkSession, database: Path, table: str, sources: Sources, *, create: bool = False, overwrite: bool = False
) -> Moved:
    """Bring files into a table, all in one transaction; with ``create``, a table and a database that are not there."""
    began, is_new = time.perf_counter(), not database.exists()
    frame, count = _counted(read_files(spark, sources, None if is_new else _table_if_any(database, table, create)))
    writer = frame.write.format("gmdb").option("table", table).mode("overwrite" if overwrite else "append")
    try:
        if create:
            writer = writer.option("createTable", "true")
        writer.save(str(database.absolute()))
    except BaseException:
        if is_new and create:
            shutil.rmtree(database, ignore_errors=True)
        raise
    return Moved(count(), sources.size, time.perf_counter() - began)


def _table_if_any(database: Path, table: str, create: bool) -> TableDefinition | None:
    """The table that is there; None if it is not, but may be made."""
    with gmdb.connect(database, read_only=True) as connection:
        try:
            return connection.table(table)
        except NoSuchTable as error:
            if create:
                return None
            raise NoSuchTable(f"{error}; --create makes one") from None


@dataclass(frozen=True)
class Wanted:
    """What of a table is exported, and how it is laid out; nothing given: all of it."""

    columns: Sequence[str] = ()
    where: str | None = None
    partition_by: Sequence[str] = ()
    files: int | None = None
    compression: str = "zstd"


def export_table(
    spark: SparkSession, database: Path, table: str, target: str, wanted: Wanted, *, overwrite: bool = False
) -> Moved:
    """Write a table's rows into a directory of Parquet files."""
    began = time.perf_counter()
    require_target(target, database, overwrite)
    lost = [name for name in wanted.partition_by if wanted.columns and name.lower() not in _lower(wanted.columns)]
    if lost:
        raise InterfaceError(f"files are to be divided by {', '.join(lost)}, which --columns leaves out")
    frame = read_table(spark, database, table)
    _require_columns(frame, table, [*wanted.columns, *wanted.partition_by])
    frame, count = _counted(_chosen(spark, database, table, wanted))
    if wanted.files is not None:
        frame = frame.repartition(wanted.files, *wanted.partition_by)
    writer = frame.write.mode("overwrite" if overwrite else "append").option("compression", wanted.compression)
    if wanted.partition_by:
        writer = writer.partitionBy(*wanted.partition_by)
    writer.parquet(target)
    return Moved(count(), size_of(target), time.perf_counter() - began)


def _chosen(spark: SparkSession, database: Path, table: str, wanted: Wanted) -> DataFrame:
    if wanted.where is None:
        return read_table(spark, database, table, wanted.columns or None)
    frame = read_table(spark, database, table).where(wanted.where)
    return frame.select(*wanted.columns) if wanted.columns else frame


def _require_columns(frame: DataFrame, table: str, names: Sequence[str]) -> None:
    known = _lower(frame.columns)
    for name in names:
        if name.lower() not in known:
            raise NoSuchColumn(f"table {table} has no column {name}; it has {', '.join(frame.columns)}")


def _lower(names: Sequence[str]) -> list[str]:
    return [name.lower() for name in names]


def _counted(frame: DataFrame) -> tuple[DataFrame, Any]:
    """The frame, and a function that says how many rows went through it in the one action on it."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

    observation = Observation()
    observed = frame.observe(observation, f.count(f.lit(1)).alias("rows"))
    return observed, lambda: int(observation.get["rows"])
