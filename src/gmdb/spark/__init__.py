"""gmdb's tables in Apache Spark: reading them in parallel.  The only folder that imports pyspark.

``spark.read.format("gmdb")`` needs no import of this; Spark finds it through ``pyspark_gmdb``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["read_table"]


def read_table(spark: SparkSession, path: str | Path, table: str, columns: Sequence[str] | None = None) -> DataFrame:
    """A table of the database at ``path``, or some of its columns, as a DataFrame."""
    reader = spark.read.format("gmdb").option("table", table)
    if columns is not None:
        reader = reader.option("columns", ",".join(columns))
    return reader.load(str(Path(path).absolute()))
