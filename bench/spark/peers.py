"""Where Spark can have its rows: in gmdb, in PostgreSQL behind JDBC, in Parquet files; each loads and reads its way."""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING

import gmdb
from bench.harness import Summary
from bench.spark.source import KEY, TABLE, Source, create_gmdb, fill_gmdb

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Loader(ABC):
    """Something that rows go into; its files are in a directory."""

    name: str

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self.spark = spark
        self.directory = directory

    @abstractmethod
    def clear(self) -> None:
        """Have an empty table to load."""

    @abstractmethod
    def load(self, rows: DataFrame) -> None: ...

    @abstractmethod
    def loaded(self) -> Summary:
        """Of the key, in the table that was loaded."""


class Peer(Loader):
    """Has a second table, to be read."""

    @abstractmethod
    def fill(self, source: Source) -> None:
        """Have the source's rows, to be read."""

    @abstractmethod
    def read(self) -> DataFrame:
        """All columns."""

    def read_key(self) -> DataFrame:
        """One column; Spark finds out by itself which one a query needs, unless it is told."""
        return self.read().select(KEY)


class GmdbPeer(Peer):
    name = "gmdb"

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        super().__init__(spark, directory)
        self._to_read, self._to_load = directory / "read.gmdb", directory / "load.gmdb"

    def fill(self, source: Source) -> None:
        fill_gmdb(self._to_read, source.rows)

    def read(self) -> DataFrame:
        return self.spark.read.format("gmdb").option("table", TABLE).load(str(self._to_read))

    def read_key(self) -> DataFrame:
        return self.spark.read.format("gmdb").options(table=TABLE, columns=KEY).load(str(self._to_read))

    def clear(self) -> None:
        shutil.rmtree(self._to_load, ignore_errors=True)
        create_gmdb(self._to_load)

    def load(self, rows: DataFrame) -> None:
        rows.write.format("gmdb").option("table", TABLE).mode("append").save(str(self._to_load))

    def loaded(self) -> Summary:
        return loaded_gmdb(self._to_load)


def loaded_gmdb(path: Path) -> Summary:
    with gmdb.connect(path) as db:
        return Summary(*db.execute(f"select count(*), sum({KEY}) from {TABLE}").fetchone())


class ParquetPeer(Peer):
    """The source itself is what is read: it is Parquet already."""

    name = "Parquet"

    def fill(self, source: Source) -> None:
        self._source = source

    def read(self) -> DataFrame:
        return self.spark.read.parquet(str(self._source.folder))

    def clear(self) -> None:
        shutil.rmtree(self._to_load, ignore_errors=True)

    def load(self, rows: DataFrame) -> None:
        rows.write.parquet(str(self._to_load))

    def loaded(self) -> Summary:
        row = self.spark.read.parquet(str(self._to_load)).selectExpr("count(*)", f"sum({KEY})").collect()[0]
        return Summary(*row)

    @property
    def _to_load(self) -> Path:
        return self.directory / "load.parquet"


class Nowhere(Loader):
    """Reads the source and drops the rows: what any load spends before it does anything of its own."""

    name = "source alone"

    def __init__(self, spark: SparkSession, directory: Path, keys: Summary) -> None:
        super().__init__(spark, directory)
        self._keys = keys

    def clear(self) -> None: ...

    def load(self, rows: DataFrame) -> None:
        rows.write.format("noop").mode("overwrite").save()

    def loaded(self) -> Summary:
        return self._keys
