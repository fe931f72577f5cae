"""Reading a database that is in use: each DataFrame is one instant, and nobody waits for it."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import gmdb
import gmdb.spark
from gmdb.database.connection import Connection
from gmdb.storage.pins import expires_at, read_pins
from tests.frozen import grow_older
from tests.searches import extent
from tests.sessions import until

pytestmark = pytest.mark.spark
ACCOUNTS, BALANCE, WRITERS, READS = 3000, 1000, 8, extent(6, 20)
PAUSE = 0.003  # seconds between two transactions of a thread, as long as a disk takes: Spark is to get on, too


def make_bank(db: Connection) -> None:
    db.execute("create table account (id int primary key, balance bigint not null, note varchar(400))")
    ids = pa.array(range(ACCOUNTS), pa.int32())
    db.append("account", pa.table({"id": ids, "balance": [BALANCE] * ACCOUNTS, "note": ["opened"] * ACCOUNTS}))
    db.commit()


@contextmanager
def transfers(path: Path, writers: int = WRITERS) -> Iterator[list[int]]:
    """Threads that move money all the time; notes grow and shrink, so that rows leave their pages and come back."""
    stop, done = threading.Event(), [0] * writers

    def work(number: int) -> None:
        chance = random.Random(number)
        with gmdb.connect(path, lock_timeout=30) as db:
            while not stop.wait(PAUSE):
                payer, payee = chance.sample(range(ACCOUNTS), 2)
                note = "n" * chance.choice((3, 3, 390))
                try:
                    pay = "update account set balance = balance - ?, note = ? where id = ?"
                    db.execute(pay, (7, note, payer))
                    db.execute("update account set balance = balance + 7 where id = ?", (payee,))
                    if chance.random() < 0.1:
                        db.rollback()
                    else:
                        db.commit()
                        done[number] += 1
                except gmdb.errors.Transient:
                    db.rollback()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(writers)]
    for thread in threads:
        thread.start()
    try:
        yield done
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def totals(frame: DataFrame) -> tuple[int, int]:
    row = frame.selectExpr("sum(balance)", "count(*)").collect()[0]
    return row[0], row[1]


@pytest.mark.search
def test_every_read_of_a_live_table_has_the_same_sum(path: Path, load: Callable[..., DataFrame]):
    right = (ACCOUNTS * BALANCE, ACCOUNTS)
    with gmdb.connect(path, sync="group") as db:
        make_bank(db)
        with transfers(path) as done:
            first = load("account")
            at_first = sorted(first.collect())
            for number in range(READS):
                assert totals(load("account", maxPartitionBytes="64k")) == right
                if number % 4 == 0:
                    db.checkpoint()
                    db.gc()
            assert sorted(first.collect()) == at_first  # one instant for life, however many reads later
        assert min(done) > 0
        assert sorted(tuple(row) for row in load("account").collect()) == sorted(
            db.execute("select * from account").fetchall()
        )


def test_two_tables_of_one_snapshot_are_of_one_instant(spark: SparkSession, path: Path):
    """Every transaction puts the same key into both tables: in one snapshot they have the same keys."""
    stop = threading.Event()
    with gmdb.connect(path, sync="group") as db:
        db.execute("create table a (k int)")
        db.execute("create table b (k int)")
        db.commit()

        def work() -> None:
            with gmdb.connect(path) as writer:
                number = 0
                while not stop.wait(PAUSE):
                    writer.insert("a", (number,))
                    writer.insert("b", (number,))
                    writer.commit()
                    number += 1

        thread = threading.Thread(target=work)
        thread.start()
        try:
            seen = []
            for _ in range(5):
                with gmdb.spark.snapshot(spark, path) as instant:
                    left, right = instant.read_table("a"), instant.read_table("b")
                    joined = left.join(right, "k", "full").count()
                    assert joined == left.count() == right.count() == left.join(right, "k").count()
                    seen.append(joined)
            assert seen == sorted(seen)
        finally:
            stop.set()
            thread.join()
        assert read_pins(path) == []


def test_filters_of_one_action_do_not_stick_to_the_next(path: Path, load: Callable[..., DataFrame]):
    """PySpark keeps what a reader's pushFilters was told for all later actions on the same DataFrame."""
    with gmdb.connect(path) as db:
        db.execute("create table t (i int, s varchar(10))")
        db.append("t", pa.table({"i": pa.array(range(100), pa.int32()), "s": [str(n % 10) for n in range(100)]}))
        db.commit()
        frame = load("t")
        assert frame.filter("i < 5").count() == 5
        assert frame.count() == 100
        assert frame.filter("i < 5").union(frame).count() == 105
        few, many = frame.filter("i < 10").alias("few"), frame.filter("i >= 5").alias("many")
        assert few.join(many, "i").count() == 5
        assert few.unionByName(many).count() == 105
        chosen = load("t", where="i < 5")
        assert (chosen.count(), chosen.filter("i > 2").count(), chosen.union(frame).count()) == (5, 2, 105)


def test_a_snapshot_expires_and_says_so(spark: SparkSession, path: Path):
    with gmdb.connect(path) as db:
        make_bank(db)
        with gmdb.spark.snapshot(spark, path, lease=6) as instant:
            frame = instant.read_table("account")
            assert frame.count() == ACCOUNTS
            [pin] = read_pins(path)
            expiry = expires_at(path, pin)
            until(lambda: expires_at(path, pin) > expiry)  # whoever holds a snapshot renews its lease
            assert frame.count() == ACCOUNTS
            ticket = instant.ticket
        with pytest.raises(Exception, match="load again"):
            frame.count()
        with pytest.raises(Exception, match="load again"):
            gmdb.spark.read_table(spark, path, "account", snapshot=ticket).count()


def test_a_lease_is_renewed_by_reading_and_runs_out_without(path: Path, load: Callable[..., DataFrame]):
    with gmdb.connect(path) as db:
        make_bank(db)
        frame = load("account", lease="600s")
        assert frame.count() == ACCOUNTS
        [pin] = read_pins(path)
        grow_older(path, pin, 500)
        assert expires_at(path, pin) < time.time() + 200
        assert frame.count() == ACCOUNTS
        assert expires_at(path, pin) > time.time() + 200
        grow_older(path, pin, 700)
        until(lambda: read_pins(path) == [])
        with pytest.raises(Exception, match="SnapshotExpired"):
            frame.count()
        assert load("account").count() == ACCOUNTS


def test_conditions_and_places(path: Path, load: Callable[..., DataFrame]):
    with gmdb.connect(path) as db:
        db.execute("create table t (k int primary key, v varchar(20), d decimal(12,3))")
        rows = [(n, None if n % 5 == 0 else f"v{n % 17}", n * 1.5) for n in range(20_000)]
        db.executemany("insert into t values (?, ?, ?)", rows)
        db.commit()
        for where in ("k between 4000 and 4100", "v = 'v3' and d < 3000", "v is null or k = 7", "k in (1, 2, 19999)"):
            found = load("t", where=where)
            expected = db.execute(f"select * from t where {where}").fetchall()
            assert sorted(map(repr, map(tuple, found.collect()))) == sorted(map(repr, expected))
        narrow, whole = load("t", where="k between 4000 and 4100"), load("t", maxPartitionBytes="32k")
        assert narrow.rdd.getNumPartitions() == 1 < whole.rdd.getNumPartitions()
        placed = load("t", columns="k,_rowid,_page_id", where="k < 3").collect()
        by_rowid = {row["_rowid"]: row["k"] for row in placed}
        assert by_rowid == dict(db.execute("select rowid, k from t where k < 3").fetchall())
        assert load("t", columns="_page_id").distinct().count() == len(db.heap("t").segment.page_ids())
