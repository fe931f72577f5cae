"""A real cluster of separate executor processes: equal answers, and whoever is killed, the database is whole.

The driver is a process of its own here, so that it can be killed, too, and the database's owner is another.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import gmdb
from gmdb.errors import InterfaceError
from gmdb.spark.fleet import read_report
from gmdb.storage.loads import LOADS_NAME
from gmdb.storage.pins import read_pins
from tests.integrity import assert_sound
from tests.server.peer import Peer
from tests.spark.fleets import flip_bytes, make_fleet

pytestmark = pytest.mark.spark
ACCOUNTS, BALANCE = 4000, 1000
PATIENCE = 300.0  # kernels may have to be compiled, in every executor

DRIVER = """
import os, tempfile
from pathlib import Path
import gmdb.spark
from gmdb.spark.jobs import start_session
made = tempfile.mkdtemp()
os.environ["SPARK_LOCAL_DIRS"] = os.environ["SPARK_WORKER_DIR"] = made
spark = start_session(Path(made) / "spark.log", "local-cluster[2,1,1024]", {
    "spark.executorEnv.PYTHONPATH": os.environ.get("PYTHONPATH", ""), "spark.task.maxFailures": "8"})

def read(path, table, **options):
    return spark.read.format("gmdb").options(table=table, **options).load(path)

def totals(path, pause=0.0):
    def slowly(batches):
        for batch in batches:
            time.sleep(pause)
            yield batch
    frame = read(path, "account", columns="id,balance", maxPartitionBytes="32k")
    frame = frame.mapInArrow(slowly, frame.schema)
    return tuple(frame.selectExpr("sum(balance)", "count(*)").collect()[0])

def load(path, first, count, pause=0.0):
    def slowly(batches):
        for batch in batches:
            time.sleep(pause)
            yield batch
    frame = spark.range(first, first + count, numPartitions=12)
    frame = frame.selectExpr("cast(id as int) id", "1000L balance", "'l' note")
    frame = frame.mapInArrow(slowly, frame.schema)
    frame.write.format("gmdb").option("table", "account").mode("append").save(path)

jvm = spark.sparkContext._gateway.proc.pid
"""

OWNER = """
import random
stop = threading.Event()
done = []

def transfers(path, accounts):
    chance = random.Random(1)
    with gmdb.connect(path, lock_timeout=30) as db:
        while not stop.wait(0.003):
            payer, payee = chance.sample(range(accounts), 2)
            try:
                db.execute("update account set balance = balance - 7, note = ? where id = ?",
                           ("n" * chance.choice((3, 390)), payer))
                db.execute("update account set balance = balance + 7 where id = ?", (payee,))
                db.commit()
                done.append(1)
            except gmdb.errors.Transient:
                db.rollback()

def begin(path, accounts):
    global db, thread
    stop.clear()
    db = gmdb.connect(path, sync="group")
    thread = threading.Thread(target=transfers, args=(path, accounts), daemon=True)
    thread.start()

def end():
    stop.set()
    thread.join()
    db.close()
"""


@pytest.fixture(scope="module")
def driver() -> Iterator[Peer]:
    made = Peer(DRIVER)
    yield made
    made.end()


@pytest.fixture
def owner(path: Path) -> Iterator[Peer]:
    """A process that has the test's database open, and moves money in it all the time."""
    with gmdb.connect(path) as db:
        db.execute("create table account (id int primary key, balance bigint not null, note varchar(400))")
        ids = pa.array(range(ACCOUNTS), pa.int32())
        db.append("account", pa.table({"id": ids, "balance": [BALANCE] * ACCOUNTS, "note": ["opened"] * ACCOUNTS}))
        db.commit()
    made = Peer(OWNER)
    made("begin(path, accounts)", path=str(path), accounts=ACCOUNTS)
    yield made
    if made.process.poll() is None:
        made("end()")
    made.end()
    gmdb.connect(path).close()
    assert_sound(path)


def executors(jvm: int) -> list[int]:
    """The executors' Java processes."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == jvm and b"CoarseGrainedExecutorBackend" in (process / "cmdline").read_bytes():
                found.append(int(process.name))
        except OSError:
            continue
    return found


def wait_until(is_so: Callable[[], Any]) -> None:
    began = time.monotonic()
    while not is_so():
        assert time.monotonic() - began < PATIENCE
        time.sleep(0.1)


def ask(driver: Peer, source: str, **given: Any) -> Any:
    driver.start(source, **given)
    return finish(driver)


def finish(driver: Peer) -> Any:
    assert driver.has_answered(PATIENCE)
    return driver.finish()


def whole(path: Path) -> tuple[int, int]:
    with gmdb.connect(path) as db:
        return db.execute("select sum(balance), count(*) from account").fetchall()[0]


RIGHT = (ACCOUNTS * BALANCE, ACCOUNTS)


def test_executors_read_a_fleet_and_tell_what_they_leave_out(driver: Peer, tmp_path: Path):
    paths, report = make_fleet(tmp_path / "fleet", 3, 1000), tmp_path / "report"
    said = flip_bytes(paths[1])
    counting = "dict(read(fleet, 'tbl', onError='skip', reportTo=report).groupBy('_database').count().collect())"
    fleet = str(tmp_path / "fleet" / "*")
    assert ask(driver, counting, fleet=fleet, report=str(report)) == {str(paths[0]): 1000, str(paths[2]): 1000}
    (told,) = read_report(report)
    assert (told.database, said in told.error) == (str(paths[1]), True)
    with pytest.raises(InterfaceError, match="report_to: say where workers are to tell"):
        ask(driver, "gmdb.spark.read_fleet(spark, fleet, 'tbl', on_error='skip')", fleet=fleet)


@pytest.mark.usefixtures("owner")
def test_a_cluster_reads_and_loads_what_sql_says(driver: Peer, path: Path):
    assert ask(driver, "totals(path)", path=str(path)) == RIGHT
    ask(driver, "load(path, first, count)", first=ACCOUNTS, count=1000)
    more = ((ACCOUNTS + 1000) * BALANCE, ACCOUNTS + 1000)
    assert ask(driver, "totals(path)") == whole(path) == more


@pytest.mark.usefixtures("owner")
def test_an_executor_that_is_killed_amid_a_read(driver: Peer, path: Path):
    jvm = ask(driver, "jvm")
    driver.start("totals(path, 0.5)", path=str(path))
    wait_until(lambda: read_pins(path))
    time.sleep(2)
    os.kill(executors(jvm)[0], signal.SIGKILL)
    assert finish(driver) == RIGHT


@pytest.mark.usefixtures("owner")
def test_an_executor_that_is_killed_amid_a_load(driver: Peer, path: Path):
    jvm = ask(driver, "jvm")
    driver.start("load(path, first, 600, 0.5)", path=str(path), first=ACCOUNTS)
    wait_until(lambda: list((path / LOADS_NAME).glob("*/part-*")))
    os.kill(executors(jvm)[0], signal.SIGKILL)
    finish(driver)  # tasks that had been done may be done again: each row is there once
    assert whole(path) == ((ACCOUNTS + 600) * BALANCE, ACCOUNTS + 600)
    assert not (path / LOADS_NAME).exists()


def test_an_owner_that_is_killed_amid_a_read(driver: Peer, owner: Peer, path: Path):
    driver.start("totals(path, 0.3)", path=str(path))
    wait_until(lambda: read_pins(path))
    time.sleep(1)
    owner.process.kill()
    owner.process.wait()
    assert finish(driver) == RIGHT  # its instant is in the files
    assert ask(driver, "totals(path)") == RIGHT  # whoever reads next recovers the database
    assert whole(path) == RIGHT


def test_an_owner_that_is_killed_amid_a_load(driver: Peer, owner: Peer, path: Path):
    """The tasks need no owner; what has it taken in opens the database by itself."""
    driver.start("load(path, first, 600, 0.3)", path=str(path), first=ACCOUNTS)
    wait_until(lambda: list((path / LOADS_NAME).glob("*/part-*")))
    owner.process.kill()
    owner.process.wait()
    finish(driver)
    assert whole(path) == ((ACCOUNTS + 600) * BALANCE, ACCOUNTS + 600)
    assert not (path / LOADS_NAME).exists()


def test_a_driver_that_is_killed_amid_a_read_and_amid_a_load(driver: Peer, owner: Peer, path: Path):
    """The last test here: the driver does not come back."""
    jvm = ask(driver, "jvm")
    driver.start("(totals(path), load(path, first, 600, 0.5))", path=str(path), first=ACCOUNTS)
    wait_until(lambda: list((path / LOADS_NAME).glob("*/part-*")))
    assert read_pins(path)
    os.kill(jvm, signal.SIGKILL)
    driver.process.kill()
    driver.process.wait()
    wait_until(lambda: not read_pins(path))  # the owner finds that nobody needs them any more
    owner("end()")
    owner.process.kill()
    owner.process.wait()
    assert whole(path) == RIGHT
    assert not (path / LOADS_NAME).exists()
