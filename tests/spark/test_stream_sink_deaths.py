"""Streams into a table in which processes die at any moment: each row is there once, when the stream is over."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import gmdb
from gmdb.database.connection import Connection
from gmdb.spark.jobs import require_java
from gmdb.storage.loads import LOADS_NAME
from tests.integrity import assert_sound
from tests.server.peer import Peer
from tests.spark.streaming import add_files, read_files, write_all

pytestmark = pytest.mark.spark
PATIENCE = 600.0  # far more than anything here takes
FILES, ROWS, KILLS = 8, 500, 6  # batches, rows of each, and how often the owner is killed

# A driver of its own, with several batches under way.
DRIVER = """
import sys
from pathlib import Path
from gmdb.spark.jobs import local_session
from tests.spark.streaming import read_files, write_all

database, files, checkpoint = map(Path, sys.argv[1:])
spark = local_session(checkpoint.with_name("spark.log"), cores=1)
write_all(read_files(spark, files, "i int, s string"), database, checkpoint, stream="numbers")
"""


@pytest.fixture
def closed(path: Path, tmp_path: Path) -> Path:
    """A closed database with a table that takes any row, also twice; and files for it."""
    with gmdb.connect(path) as db:
        db.execute("create table tbl (i int, s varchar(20))")
        db.execute("create index tbl_i on tbl (i)")
    ids = [range(n * ROWS, (n + 1) * ROWS) for n in range(FILES)]
    files = [pa.table({"i": pa.array(some, pa.int32()), "s": [f"text {n}" for n in some]}) for some in ids]
    add_files(tmp_path / "files", files)
    return path


def last_batch(db: Connection) -> int:
    found = [row["batch_id"] for row in db.system_view("sys_streams").to_pylist()]
    return -1 if found in ([], [None]) else int(found[0])


def assert_complete(path: Path) -> None:
    with gmdb.connect(path) as db:
        found = db.execute("select i, s from tbl order by i").fetchall()
        assert found == [(n, f"text {n}") for n in range(FILES * ROWS)]
        assert db.execute("select row_count from sys_streams").fetchall() == [(FILES * ROWS,)]
    assert not (path / LOADS_NAME).exists()
    assert_sound(path)


def start_driver(path: Path, folder: Path) -> subprocess.Popen[bytes]:
    require_java()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "SPARK_LOCAL_IP": "127.0.0.1"}
    arguments = [sys.executable, "-c", DRIVER, str(path), str(folder / "files"), str(folder / "checkpoint")]
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(arguments, env=environment, stdout=log, stderr=log, start_new_session=True)


def test_a_driver_that_is_killed_at_any_moment_and_started_again(closed: Path, tmp_path: Path):
    chance = random.Random(8)
    with gmdb.connect(closed) as db:
        for pause in (0.0, chance.uniform(0, 0.5), None):  # right after a commit, some time later, not at all
            before, until = last_batch(db), time.monotonic() + PATIENCE
            driver = start_driver(closed, tmp_path)
            try:
                while pause is not None and last_batch(db) < before + 2:
                    assert driver.poll() is None, (tmp_path / "log").read_text()[-3000:]
                    assert time.monotonic() < until
                    time.sleep(0.005)
                if pause is None:
                    assert driver.wait(PATIENCE) == 0, (tmp_path / "log").read_text()[-3000:]
                else:
                    time.sleep(pause)
                    assert driver.poll() is None
            finally:
                if driver.poll() is None:
                    os.killpg(driver.pid, signal.SIGKILL)  # with Java, which is in its group
                driver.wait()
            while (closed / LOADS_NAME).exists():  # it goes while the database is open
                assert time.monotonic() < until + PATIENCE
                time.sleep(0.02)
    assert_complete(closed)


def test_an_owner_that_is_killed_at_any_moment(spark: SparkSession, closed: Path, tmp_path: Path):
    chance = random.Random(9)
    writer = read_files(spark, tmp_path / "files", "i int, s string").repartition(2).writeStream.format("gmdb")
    writer = writer.options(table="tbl", checkpointLocation=str(tmp_path / "checkpoint")).trigger(availableNow=True)
    owner = Peer()
    owner(f"db = gmdb.connect({str(closed)!r})")
    query = writer.start(str(closed))
    try:
        for _ in range(KILLS):
            time.sleep(chance.uniform(0.1, 1.0))
            owner.kill()
            owner.end()
            owner = Peer()
            owner.start(f"db = gmdb.connect({str(closed)!r})")
        assert query.awaitTermination(int(PATIENCE))
    finally:
        query.stop()
        owner.kill()
        owner.end()
    assert query.exception() is None
    assert_complete(closed)


def test_a_query_that_is_stopped_amid_a_batch_and_started_again(spark: SparkSession, closed: Path, tmp_path: Path):
    go, began = tmp_path / "go", tmp_path / "began"

    def wait_to_go(batches):
        import time

        for batch in batches:
            began.touch()
            while not go.exists():
                time.sleep(0.01)
            yield batch

    schema = "i int, s string"
    frame = read_files(spark, tmp_path / "files", schema).mapInArrow(wait_to_go, schema)
    writer = frame.writeStream.format("gmdb").options(table="tbl", checkpointLocation=str(tmp_path / "checkpoint"))
    query, until = writer.start(str(closed)), time.monotonic() + PATIENCE
    while not began.exists():
        assert time.monotonic() < until
        time.sleep(0.02)
    query.stop()
    go.touch()
    write_all(frame, closed, tmp_path / "checkpoint")
    assert_complete(closed)
