"""A worker's start: what gmdb adds to PySpark's own, until the first batch is there.

Spark starts a Python process for each task here (``spark.python.worker.reuse``), which reads a small table, or makes
the same rows itself.  Both reads were planned before, so that a round is a task and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

import gmdb
from bench.harness import Attempt, Benchmark, Contender, Result, Summary, run_benchmark
from gmdb.spark.jobs import local_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 1000
ROUNDS = 20
TARGET_SECONDS = 0.3
ALONE = "PySpark alone"


def measure(directory: Path, cores: int, rounds: int) -> Result:
    """In a session of its own."""
    directory.mkdir()
    spark = local_session(directory / "spark.log", cores, {"spark.python.worker.reuse": "false"})
    try:
        tables = {"gmdb": _gmdb(spark, directory / "start.gmdb"), ALONE: _alone(spark)}
        whole = Summary(ROWS, ROWS * (ROWS - 1) // 2)
        contenders = [Contender(name, whole, partial(_reading, table)) for name, table in tables.items()]
        benchmark = Benchmark("start", f"a new worker reads {ROWS:,} rows", contenders)
        return run_benchmark(benchmark, directory, max(rounds, ROUNDS))
    finally:
        spark.stop()


def _gmdb(spark: SparkSession, path: Path) -> DataFrame:
    with gmdb.connect(path) as db:
        db.execute("create table item (id int)")
        db.append("item", pa.table({"id": pa.array(range(ROWS), pa.int32())}))
    return spark.read.format("gmdb").option("table", "item").load(str(path))


def _alone(spark: SparkSession) -> DataFrame:
    from pyspark.sql.datasource import DataSource, DataSourceReader

    count = ROWS  # workers get what these classes refer to here, and have no module of benchmarks

    class Rows(DataSourceReader):
        def read(self, _: Any) -> Iterator[Any]:
            import numpy as np  # out of a range pyarrow would make the same with pandas, which takes long to import
            import pyarrow as pa

            yield pa.record_batch({"id": pa.array(np.arange(count, dtype=np.int32))})

    class Source(DataSource):
        @classmethod
        def name(cls) -> str:
            return "alone"

        def schema(self) -> str:
            return "id int"

        def reader(self, schema: Any) -> DataSourceReader:  # noqa: ARG002
            return Rows()

    spark.dataSource.register(Source)
    return spark.read.format("alone").load()


@contextmanager
def _reading(table: DataFrame, _: Path) -> Iterator[Attempt]:
    yield Attempt(table.collect, lambda rows: Summary(len(rows), sum(row[0] for row in rows)))


def described(result: Result) -> str:
    ours, alone = (measured.median for measured in result.measurements)
    outcome = "met" if ours - alone <= TARGET_SECONDS else "**missed**"
    target = f"target at most {1000 * TARGET_SECONDS:.0f} ms, {outcome}"
    return f"gmdb adds {1000 * (ours - alone):.0f} ms to what PySpark takes until a new worker's first batch ({target})"
