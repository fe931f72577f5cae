"""Streams for tests: a folder of Parquet files, of which each is a batch."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

FIRST_TIME = 1_700_000_000  # by which Spark puts files in order


def add_files(folder: Path, tables: Iterable[pa.Table]) -> None:
    """Files that a stream reads in this order, behind those that are there."""
    folder.mkdir(exist_ok=True)
    first = len(list(folder.glob("*.parquet")))
    for number, table in enumerate(tables, first):
        path = folder / f"{number:04d}.parquet"
        pq.write_table(table, path)
        os.utime(path, (FIRST_TIME + 10 * number,) * 2)


def read_files(spark: SparkSession, folder: Path, schema: str) -> DataFrame:
    reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).option("latestFirst", "false")
    return reader.parquet(str(folder))


def write_all(frame: DataFrame, path: Path, checkpoint: Path, mode: str = "append", **options: Any) -> str:
    """Run a query until it has brought all that is there; answers its id."""
    writer = frame.writeStream.format("gmdb").options(**{"table": "tbl", **options}).outputMode(mode)
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start(str(path))
    query.awaitTermination()
    return str(query.id)


def forget_commits(checkpoint: Path, *numbers: int) -> None:
    """Let Spark believe that it did not come to note the end of some batches."""
    for number in numbers:
        (checkpoint / "commits" / str(number)).unlink()
        (checkpoint / "commits" / f".{number}.crc").unlink(missing_ok=True)
