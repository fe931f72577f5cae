"""Loads in which processes die: a worker, the driver, the owner of the database."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import gmdb
from gmdb.spark.jobs import require_java
from gmdb.storage.loads import LOADS_NAME, NOTE_NAME
from tests.integrity import assert_sound
from tests.server.peer import Peer

pytestmark = pytest.mark.spark
PATIENCE = 300.0  # far more than anything here takes

# A driver of its own.  Tasks write their first rows, then leave word in a folder, and wait there to be let go on.
DRIVER = """
import os, sys, time
from pathlib import Path
from pyspark.sql import SparkSession

master, database, folder, what = sys.argv[1:]
os.environ["PYSPARK_PYTHON"] = sys.executable
builder = SparkSession.builder.master(master).config("spark.ui.enabled", "false")
builder = builder.config("spark.executorEnv.PYTHONPATH", os.pathsep.join(sys.path))
builder = builder.config("spark.sql.execution.arrow.maxRecordsPerBatch", 100)
spark = builder.config("spark.sql.warehouse.dir", folder + "/warehouse").getOrCreate()

def pass_on(batches):
    from pyspark import TaskContext
    context, died = TaskContext.get(), Path(folder) / "died"
    for n, batch in enumerate(batches):
        yield batch
        if n == 2 and what == "die" and context.partitionId() == 1 and not died.exists():
            died.write_text(str(context.taskAttemptId()))
            os._exit(1)
        if n == 2 and what == "wait":
            (Path(folder) / f"waiting-{context.partitionId()}").touch()
            time.sleep(600)

frame = spark.range(0, 2000, numPartitions=2).selectExpr("cast(id as int) i", "concat('text ', id) s")
frame = frame.mapInArrow(pass_on, "i int, s string")
frame.write.format("gmdb").option("table", "tbl").mode("append").save(database)
spark.stop()
"""


@pytest.fixture
def table(path: Path) -> Path:
    """A closed database with a table tbl of no rows."""
    with gmdb.connect(path) as db:
        db.create_table("tbl", {"i": "INT", "s": "VARCHAR(20)"})
    return path


def start_driver(master: str, path: Path, folder: Path, what: str) -> subprocess.Popen[bytes]:
    require_java()
    folder.mkdir()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "SPARK_LOCAL_IP": "127.0.0.1"}
    arguments = [sys.executable, "-c", DRIVER, master, str(path), str(folder), what]
    with (folder / "log").open("wb") as log:
        return subprocess.Popen(arguments, env=environment, cwd=folder, stdout=log, stderr=log)


def wait_for(condition: Callable[[], Any]) -> None:
    until = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.05)


def rows_of(path: Path) -> list[tuple[int, int]]:
    with gmdb.connect(path) as db:
        return db.execute("select count(*), count(distinct i) from tbl").fetchall()


def test_a_worker_that_dies_is_replaced_and_its_rows_count_once(table, tmp_path):
    driver = start_driver("local-cluster[2,1,1024]", table, tmp_path / "driver", "die")
    try:
        assert driver.wait(PATIENCE) == 0, (tmp_path / "driver" / "log").read_text()[-3000:]
    finally:
        driver.kill()
        driver.wait()
    assert (tmp_path / "driver" / "died").exists()
    assert not (table / LOADS_NAME).exists()
    assert rows_of(table) == [(2000, 2000)]
    assert_sound(table)


def test_a_driver_that_is_killed_leaves_nothing_after_the_next_opening(table, tmp_path):
    driver = start_driver("local[2]", table, tmp_path / "driver", "wait")
    try:
        wait_for(lambda: len(list((tmp_path / "driver").glob("waiting-*"))) == 2 or driver.poll() is not None)
        assert driver.poll() is None, (tmp_path / "driver" / "log").read_text()[-3000:]
        (folder,) = (table / LOADS_NAME).iterdir()
        wait_for(lambda: len(list(folder.glob("part-*"))) == 2)
        assert rows_of(table) == [(0, 0)]
        assert len(list(folder.glob("part-*"))) == 2  # the driver lives
        java = json.loads((folder / NOTE_NAME).read_text())["pid"]
        os.kill(java, signal.SIGKILL)
    finally:
        driver.kill()
        driver.wait()
    wait_for(lambda: not Path(f"/proc/{java}").exists())
    assert rows_of(table) == [(0, 0)]
    assert not (table / LOADS_NAME).exists()
    assert_sound(table)


def test_a_load_outlives_the_owner_that_was_there_when_it_was_planned(spark: SparkSession, table, tmp_path):
    go = tmp_path / "go"

    def wait_to_go(batches):
        import time

        for batch in batches:
            while not go.exists():
                time.sleep(0.01)
            yield batch

    owner = Peer()
    owner(f"db = gmdb.connect({str(table)!r})")
    frame = spark.createDataFrame([(n, f"text {n}") for n in range(500)], "i int, s string").repartition(2)
    frame = frame.mapInArrow(wait_to_go, "i int, s string")

    def save() -> None:
        spark.createDataFrame([(1,)], "i int")  # so that Spark knows of data sources in this thread
        frame.write.format("gmdb").option("table", "tbl").mode("append").save(str(table))

    with ThreadPoolExecutor(1) as pool:
        saving = pool.submit(save)
        wait_for(lambda: (table / LOADS_NAME).exists() or saving.done())
        assert not saving.done()
        os.kill(owner.pid, signal.SIGKILL)
        owner.process.wait()
        go.touch()
        saving.result(PATIENCE)
    assert rows_of(table) == [(500, 500)]
    assert not (table / LOADS_NAME).exists()
    assert_sound(table)


def test_a_crash_right_after_the_commit_leaves_the_rows_once(table):
    prepare = "from tests.arrow.staged import stage\nfrom pathlib import Path\n"
    loader = Peer(prepare)
    loader(f"db = gmdb.connect({str(table)!r})")
    loader("load = stage(db, 'tbl', pa.table({'i': pa.array(range(300), pa.int32()), 's': ['x'] * 300}))")
    loader("db._attach_load(load)")
    loader("db.commit()")
    loader("db._attach_load(load)")  # of which nothing is committed
    os.kill(loader.pid, signal.SIGKILL)
    loader.process.wait()
    assert (table / LOADS_NAME).exists()
    assert rows_of(table) == [(300, 300)]
    assert not (table / LOADS_NAME).exists()
    assert_sound(table)
