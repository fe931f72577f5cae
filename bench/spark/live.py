"""Writers beside Spark: how many transfers they commit while Spark reads the same table, and while it reads Parquet.

The writers are threads of a process that owns the database; Spark's jobs are equal but for the format.  Both share the
machine's cores with the writers, so what is compared is what pinning, and keeping old pages, costs the writers.
"""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

import gmdb
from bench.harness import show_progress

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ACCOUNTS, BALANCE = 1_000_000, 1000
WRITERS = 8
SECONDS = 12.0  # of each kind of reading in a round
TARGET = 0.9


@dataclass(frozen=True)
class Beside:
    """What was done while Spark read one format: commits in a second, and how many reads that were."""

    format: str
    rate: float
    reads: int


def measure(spark: SparkSession, directory: Path, rounds: int) -> list[Beside]:
    """Rounds of both kinds in turn."""
    path, copy = directory / "live.gmdb", directory / "live.parquet"
    _make(path, copy)
    found = []
    with _writers(path) as count:
        kinds: dict[str, Callable[[], DataFrame]] = {
            "gmdb": lambda: spark.read.format("gmdb").option("table", "account").load(str(path)),
            "Parquet": lambda: spark.read.parquet(str(copy)),
        }
        for read in kinds.values():  # workers start, and files come into memory
            _require_whole(read())
        for number in range(rounds):
            for name, read in kinds.items():
                show_progress(f"live: round {number + 1}, {name}")
                found.append(_beside(name, read, count))
    return found


def _make(path: Path, copy: Path) -> None:
    ids = pa.array(range(ACCOUNTS), pa.int32())
    rows = pa.table({"id": ids, "balance": [BALANCE] * ACCOUNTS, "note": ["opened"] * ACCOUNTS})
    copy.mkdir(parents=True)
    for number in range(8):
        part = rows.slice(number * ACCOUNTS // 8, ACCOUNTS // 8)
        pq.write_table(part, copy / f"part-{number}.parquet")
    with gmdb.connect(path) as db:
        db.execute("create table account (id int primary key, balance bigint not null, note varchar(60))")
        db.append("account", rows)
        db.commit()


def _require_whole(frame: DataFrame) -> None:
    sums = tuple(frame.selectExpr("sum(balance)", "count(*)", "count(note)").collect()[0])
    if sums != (ACCOUNTS * BALANCE, ACCOUNTS, ACCOUNTS):
        raise AssertionError(f"a read beside writers gave {sums}")


def _beside(name: str, read: Callable[[], DataFrame], count: Callable[[], int]) -> Beside:
    began, before, reads = time.monotonic(), count(), 0
    while time.monotonic() - began < SECONDS:
        _require_whole(read())
        reads += 1
    return Beside(name, (count() - before) / (time.monotonic() - began), reads)


@contextmanager
def _writers(path: Path) -> Iterator[Callable[[], int]]:
    """A process that owns the database and moves money in it; answers how many transfers were committed so far."""
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.spark.live", str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )

    def count() -> int:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("\n")
        process.stdin.flush()
        return int(process.stdout.readline())

    try:
        count()
        yield count
    finally:
        process.communicate()


def summary(found: list[Beside]) -> dict[str, Any]:
    """The median rate of each kind, and their ratio."""
    rates = {name: sorted(one.rate for one in found if one.format == name) for name in ("gmdb", "Parquet")}
    medians = {name: values[len(values) // 2] for name, values in rates.items()}
    reads = {name: sum(one.reads for one in found if one.format == name) for name in rates}
    return {"rates": medians, "reads": reads, "ratio": medians["gmdb"] / medians["Parquet"]}


def described(found: list[Beside]) -> str:
    made = summary(found)
    rates, reads = made["rates"], made["reads"]
    beside = [f"{rates[name]:,.0f} transfers/s while it read {name} {reads[name]} times" for name in rates]
    return f"{WRITERS} writers beside Spark: {', '.join(beside)}: {made['ratio']:.2f}x (target {TARGET}x)"


# ---- the process of the writers


def _transfer(path: str, seed: int, stop: threading.Event, done: list[int]) -> None:
    chance = random.Random(seed)
    with gmdb.connect(path, lock_timeout=30) as db:
        while not stop.is_set():
            payer, payee = chance.randrange(ACCOUNTS), chance.randrange(ACCOUNTS)
            if payer == payee:
                continue
            try:
                db.execute("update account set balance = balance - 7, note = ? where id = ?", ("paid", payer))
                db.execute("update account set balance = balance + 7 where id = ?", (payee,))
                db.commit()
                done[seed] += 1
            except gmdb.errors.Transient:
                db.rollback()


def main() -> None:
    path, stop, done = sys.argv[1], threading.Event(), [0] * WRITERS
    with gmdb.connect(path, sync="group"):
        threads = [threading.Thread(target=_transfer, args=(path, n, stop, done)) for n in range(WRITERS)]
        for thread in threads:
            thread.start()
        for _ in sys.stdin:
            print(sum(done), flush=True)
        stop.set()
        for thread in threads:
            thread.join()


if __name__ == "__main__":
    main()
