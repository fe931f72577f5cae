"""Spark's JDBC source with a PostgreSQL server of its own, given the settings that it does best with.

The table that is read has a primary key, by which JDBC's partitions find their rows; that which is loaded has no
index.  The server writes its log durably, as gmdb does, and has memory and log enough not to checkpoint meanwhile.
"""

from __future__ import annotations

import secrets
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.csv

from bench.harness import Summary, show_progress
from bench.postgres import DATABASE, USER, Connection, Listening, available, server
from bench.spark.peers import Peer
from bench.spark.source import DIGEST, KEY, POSTGRES_COLUMNS, TABLE, Source, batches

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DRIVER = Path("/usr/share/java/postgresql.jar")
READ_PARTITIONS, FETCH_SIZES = (2, 4, 8), (1_000, 10_000)
LOAD_PARTITIONS, BATCH_SIZES = (2, 8), (1_000, 10_000)
TRIAL_SHARE = 10  # settings are compared on a tenth of the rows
_SETTINGS = ("shared_buffers=1GB", "max_wal_size=4GB", "checkpoint_timeout=1h", "maintenance_work_mem=256MB")
_LOADED = "loaded"

Settings = Mapping[str, int]


def missing() -> str | None:
    """What there is not, and should be, to compare with JDBC."""
    if not available():
        return "there is no PostgreSQL (apt-get install postgresql)"
    if not DRIVER.exists():
        return f"there is no {DRIVER} (apt-get install libpostgresql-jdbc-java)"
    return None


@contextmanager
def postgres(spark: SparkSession, directory: Path) -> Iterator[JdbcPeer]:
    listening = Listening(_free_port(), secrets.token_hex(16))
    with server(listening, _SETTINGS) as connection:
        yield JdbcPeer(spark, directory, connection, listening)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class JdbcPeer(Peer):
    name = "JDBC"

    def __init__(self, spark: SparkSession, directory: Path, connection: Connection, listening: Listening) -> None:
        super().__init__(spark, directory)
        self._connection = connection
        self._options = {
            "url": f"jdbc:postgresql://127.0.0.1:{listening.port}/{DATABASE}?reWriteBatchedInserts=true",
            "user": USER,
            "password": listening.password,
            "driver": "org.postgresql.Driver",
        }
        self.reading: Settings = {"numPartitions": READ_PARTITIONS[0], "fetchsize": FETCH_SIZES[-1]}
        self.loading: Settings = {"numPartitions": LOAD_PARTITIONS[0], "batchsize": BATCH_SIZES[-1]}

    @property
    def version(self) -> str:
        return str(self._connection.ask("show server_version").rows[0][0]).split()[0]

    def fill(self, source: Source) -> None:
        self._rows = source.rows
        self._create(TABLE)
        file = self._connection.folder / "rows.csv"  # where the server's user may read
        for batch in batches(source.rows):
            pyarrow.csv.write_csv(batch, file, pyarrow.csv.WriteOptions(include_header=False))
            file.chmod(0o644)
            self._connection.ask(f"copy {TABLE} from '{file}' (format csv)")
            file.unlink()
        self._connection.ask(f"alter table {TABLE} add primary key ({KEY})")
        self._connection.ask(f"vacuum analyze {TABLE}")

    def read(self) -> DataFrame:
        return self._read(self.reading, self._rows, TABLE)

    def _read(self, settings: Settings, rows: int, table: str) -> DataFrame:
        reader = self.spark.read.format("jdbc").options(**self._options, **settings)
        return reader.options(dbtable=table, partitionColumn=KEY, lowerBound=0, upperBound=rows).load()

    def clear(self) -> None:
        self._connection.ask(f"drop table if exists {_LOADED}")
        self._create(_LOADED)

    def load(self, rows: DataFrame) -> None:
        self._load(self.loading, rows)

    def _load(self, settings: Settings, rows: DataFrame) -> None:
        rows.write.format("jdbc").options(**self._options, **settings, dbtable=_LOADED).mode("append").save()

    def loaded(self) -> Summary:
        ((rows, total),) = self._connection.ask(f"select count(*), sum({KEY}) from {_LOADED}").rows
        return Summary(int(rows or 0), int(total or 0))

    def _create(self, table: str) -> None:
        columns = ", ".join(f"{name} {type_}" for name, type_ in POSTGRES_COLUMNS.items())
        self._connection.ask(f"create table {table} ({columns})")

    # ---- its best settings

    def tune_reading(self, row_count: int) -> None:
        rows = max(row_count // TRIAL_SHARE, 1)
        part = f"(select * from {TABLE} where {KEY} < {rows}) as part"
        tried = [{"numPartitions": n, "fetchsize": size} for n, size in product(READ_PARTITIONS, FETCH_SIZES)]

        def run(settings: Settings) -> None:
            self._read(settings, rows, part).selectExpr(*DIGEST).collect()

        self.reading = self._fastest("read", tried, run)

    def tune_loading(self, rows: DataFrame, row_count: int) -> None:
        part = rows.where(f"{KEY} < {row_count // TRIAL_SHARE}")
        tried = [{"numPartitions": n, "batchsize": size} for n, size in product(LOAD_PARTITIONS, BATCH_SIZES)]

        def run(settings: Settings) -> None:
            self.clear()
            self._load(settings, part)

        self.loading = self._fastest("load", tried, run)

    @staticmethod
    def _fastest(doing: str, tried: list[dict[str, int]], run: Callable[[Settings], None]) -> Settings:
        run(tried[0])  # warms Java up
        seconds = []
        for settings in tried:
            show_progress(f"{doing}: JDBC with {described(settings)}")
            start = time.perf_counter()
            run(settings)
            seconds.append(time.perf_counter() - start)
        show_progress("")
        return tried[seconds.index(min(seconds))]


def described(settings: Settings) -> str:
    return ", ".join(f"{name}={value:,}" for name, value in settings.items())
