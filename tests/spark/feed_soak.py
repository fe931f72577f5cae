"""A second database that a stream of changes keeps equal to a busy one, with crashes and restarts on the way.

    python -m tests.spark.feed_soak --minutes 5

A process of its own writes to the source all the time: transactions of all kinds, rollbacks, savepoints.  It is killed
now and then, and started again; so is the query.  At the end both tables are equal, row for row, and both databases
are sound.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

import gmdb
import gmdb.spark
from gmdb.spark.jobs import local_session
from tests.integrity import assert_sound

KEYS = 2000
TRANSACTIONS_MIN, RESTARTS_MIN = 100, 2
PAUSE = 0.003  # seconds after a transaction, as long as a disk takes: in memory the stream would never catch up
TABLE = "create table t (i int primary key, s varchar(500), n bigint)"


# ---- the process that writes


def write(path: Path, seed: int) -> None:
    """Change the source at random until killed; prints the number of transactions now and then."""
    dice, done = random.Random(seed), 0
    with gmdb.connect(path, sync="group") as db:
        print(done, flush=True)  # it has begun
        while True:
            for _ in range(dice.randint(1, 6)):
                _change(db, dice)
            if dice.random() < 0.8:
                db.commit()
                done += 1
            else:
                db.rollback()
            if done % 10 == 0:
                print(done, flush=True)
            time.sleep(PAUSE)


def _change(db: Any, dice: random.Random) -> None:
    key, kind = dice.randrange(KEYS), dice.random()
    if kind < 0.4:
        db.execute("delete from t where i = ?", (key,))
        db.execute("insert into t values (?, ?, ?)", (key, "x" * dice.randrange(400), dice.randrange(10**12)))
    elif kind < 0.8:
        db.execute("update t set n = n + 1, s = ? where i between ? and ?", ("y" * dice.randrange(400), key, key + 9))
    elif kind < 0.9:
        db.execute("delete from t where i between ? and ?", (key, key + 2))
    elif kind < 0.9995:
        db.execute("savepoint here")
        db.execute("update t set n = -1 where i between ? and ?", (key, key + 20))
        db.execute("rollback to here")
    else:
        db.execute("truncate table t")


# ---- the stream


@dataclass
class Outcome:
    transactions: int = 0
    changes: int = 0
    batches: int = 0
    owner_kills: int = 0
    query_restarts: int = 0
    rows: int = 0


class Soak:
    def __init__(self, spark: SparkSession, directory: Path, seed: int, patience: float = 12.0) -> None:
        """``patience``: seconds after which something is stopped at the latest."""
        self._spark, self._dice, self._patience = spark, random.Random(seed), patience
        self._source, self._copy = directory / "source.gmdb", directory / "copy.gmdb"
        self._checkpoint = directory / "checkpoint"
        self.outcome = Outcome()
        for path, feed in ((self._source, " with (change_feed = true)"), (self._copy, "")):
            with gmdb.connect(path) as db:
                db.execute(TABLE + feed)

    def run(self, seconds: float) -> Outcome:
        until = time.monotonic() + seconds
        with gmdb.connect(self._copy):  # is open all the while, for the stream to bring its batches to
            while time.monotonic() < until or not self._has_seen_enough():
                writer = self._start_writer()
                try:
                    assert writer.stdout is not None
                    writer.stdout.readline()  # however slow the machine is, it writes for as long as that
                    left = max(until - time.monotonic(), self._patience / 2)
                    self._stream_for(min(self._dice.uniform(0.2, 2) * self._patience, left))
                finally:
                    writer.kill()
                    printed = writer.communicate()[0].split()
                self.outcome.transactions += int(printed[-1]) if printed else 0
                self.outcome.owner_kills += 1
            self._count(self._query(available_now=True))
        return self._compare()

    def _has_seen_enough(self) -> bool:
        """Also on a slow machine: work, and a restart in the middle of it."""
        return self.outcome.transactions >= TRANSACTIONS_MIN and self.outcome.query_restarts >= RESTARTS_MIN

    def _start_writer(self) -> subprocess.Popen[str]:
        arguments = [sys.executable, "-m", "tests.spark.feed_soak", "--write", str(self._source)]
        return subprocess.Popen(
            [*arguments, "--seed", str(self._dice.randrange(10**6))], stdout=subprocess.PIPE, text=True
        )

    def _query(self, available_now: bool) -> StreamingQuery:
        changes = gmdb.spark.read_changes(self._spark, self._source, "t", reader="copy", maxRowsPerBatch=20_000)
        writing = changes.writeStream.format("gmdb").option("table", "t").option("apply", "changes")
        writing = writing.option("checkpointLocation", str(self._checkpoint))
        if available_now:
            query = writing.trigger(availableNow=True).start(str(self._copy))
            query.awaitTermination()
        else:
            query = writing.trigger(processingTime="100 milliseconds").start(str(self._copy))
        return query

    def _stream_for(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            query = self._query(available_now=False)
            query.awaitTermination(self._dice.uniform(0.25, 1) * self._patience)  # raises what has gone wrong
            self._count(query)
            query.stop()
            self.outcome.query_restarts += 1

    def _count(self, query: StreamingQuery) -> None:
        self.outcome.changes += sum(progress["numInputRows"] for progress in query.recentProgress)
        self.outcome.batches += sum(progress["numInputRows"] > 0 for progress in query.recentProgress)

    def _compare(self) -> Outcome:
        tables = []
        for path in (self._source, self._copy):
            with gmdb.connect(path) as db:
                tables.append(sorted(db.execute("select * from t").fetchall()))
            assert_sound(path)
        assert tables[0] == tables[1]
        self.outcome.rows = len(tables[0])
        return self.outcome


def main() -> None:
    parser = argparse.ArgumentParser("tests.spark.feed_soak", description="Keep a copy equal to a busy database.")
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--write", metavar="DB", type=Path, help="be the process that writes")
    given = parser.parse_args()
    if given.write:
        write(given.write, given.seed)
        return
    with tempfile.TemporaryDirectory(prefix="gmdb-feed-") as name:
        spark = local_session(Path(name) / "spark.log")
        try:
            print(f"seed {given.seed}: {Soak(spark, Path(name), given.seed).run(60 * given.minutes)}")
        finally:
            spark.stop()


if __name__ == "__main__":
    main()
