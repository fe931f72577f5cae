"""Change feeds: how many changes a second Spark's streams get through, and what logging them costs a writer.

The stream goes from the log of a database that is open to nowhere, with a first run that is not counted.  The writers
do the same to two tables, one with a change feed and one without, in turn; a named reader holds the log meanwhile.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

import gmdb
import gmdb.spark
from bench.harness import show_progress
from gmdb.database.connection import Connection

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RATE_TARGET = 200_000
COST_TARGET = 0.95
UPDATES = 1000  # rows of a transaction of those that the stream carries
KEEP = 16 << 30
SECONDS = 4.0  # of each kind of writing in a round


@dataclass(frozen=True)
class FeedFigures:
    """Changes a second of each kind of stream; commits a second with and without a feed, by kind of transaction."""

    rates: dict[str, list[float]]
    writers: dict[str, dict[str, list[float]]]


def measure(spark: SparkSession, directory: Path, changes: int, rounds: int) -> FeedFigures:
    return FeedFigures(_streams(spark, directory / "stream", changes, rounds), _writers(directory / "writers", rounds))


# ---- streams


def _streams(spark: SparkSession, directory: Path, changes: int, rounds: int) -> dict[str, list[float]]:
    path = directory / "feed.gmdb"
    directory.mkdir(parents=True)
    found: dict[str, list[float]] = {}
    with gmdb.connect(path, sync="off") as db:
        _make(db, "t", changes // 2)
        db.set_change_feed("t", True)
        db.commit()
        db.changes(reader="bench", keep=KEEP)  # holds the log
        for kind, write in {"inserts": _insert, "updates": _update}.items():
            show_progress(f"feed: logging {changes:,} {kind}")
            position = db.changes().position
            write(db, changes)
            for number in range(rounds + 1):
                show_progress(f"feed: streaming {kind}, round {number}")
                seconds = _stream(spark, path, position, directory / f"{kind}-{number}", changes)
                if number:
                    found.setdefault(kind, []).append(changes / seconds)
    return found


def _make(db: Connection, name: str, rows: int) -> None:
    db.execute(f"create table {name} (id int primary key, balance bigint not null, note varchar(60))")
    ids = pa.array(range(rows), pa.int32())
    db.append(name, pa.table({"id": ids, "balance": [1000] * rows, "note": ["opened"] * rows}))
    db.commit()


def _insert(db: Connection, changes: int) -> None:
    first = changes
    for start in range(first, first + changes, 100_000):
        ids = pa.array(range(start, min(start + 100_000, first + changes)), pa.int32())
        db.append("t", pa.table({"id": ids, "balance": [1] * len(ids), "note": ["later"] * len(ids)}))
        db.commit()


def _update(db: Connection, changes: int) -> None:
    rows = changes // 2
    for start in range(0, changes, UPDATES):
        first = start % rows
        db.execute(
            "update t set balance = balance + 1, note = 'again' where id >= ? and id < ?", (first, first + UPDATES)
        )
        db.commit()


def _stream(spark: SparkSession, path: Path, position: str, checkpoint: Path, changes: int) -> float:
    frame = gmdb.spark.read_changes(spark, path, "t", since=position, keep="16g")
    began = time.monotonic()
    writing = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    query = writing.trigger(availableNow=True).start()
    query.awaitTermination()
    seconds = time.monotonic() - began
    rows = sum(progress["numInputRows"] for progress in query.recentProgress)
    if rows != changes:
        raise AssertionError(f"a stream of {changes} changes had {rows}")
    return seconds


# ---- writers


def _writers(directory: Path, rounds: int) -> dict[str, dict[str, list[float]]]:
    directory.mkdir(parents=True)
    found: dict[str, dict[str, list[float]]] = {}
    with gmdb.connect(directory / "writers.gmdb") as db:
        for name in ("plain", "logged"):
            _make(db, name, 100_000)
        db.set_change_feed("logged", True)
        db.commit()
        feed = db.changes(reader="bench")
        for kind, rows in (("commits of 1 update", 1), ("commits of 100 updates", 100)):
            for number in range(rounds + 1):
                show_progress(f"feed: writers, {kind}, round {number}")
                for name in ("plain", "logged"):
                    rate = _write(db, name, rows)
                    if number:
                        found.setdefault(kind, {}).setdefault(name, []).append(rate)
                for _ in feed.batches():
                    pass
                feed.acknowledge()
    return found


def _write(db: Connection, table: str, rows: int) -> float:
    began, done, key = time.monotonic(), 0, 0
    while time.monotonic() - began < SECONDS:
        for _ in range(rows):
            key = (key + 7919) % 100_000
            db.execute(f"update {table} set balance = balance + 1, note = 'paid' where id = ?", (key,))
        db.commit()
        done += 1
    return done / (time.monotonic() - began)


# ---- the report


def summary(found: FeedFigures) -> dict[str, Any]:
    rates = {kind: statistics.median(values) for kind, values in found.rates.items()}
    costs = {
        kind: statistics.median(with_ / without for with_, without in zip(by["logged"], by["plain"], strict=True))
        for kind, by in found.writers.items()
    }
    return {"changes_a_second": rates, "writers_with_a_feed": costs}


def described(found: FeedFigures) -> list[str]:
    made = summary(found)
    lines = [
        f"a stream of {kind}: {rate:,.0f} changes/s (target {RATE_TARGET:,}, "
        f"{'met' if rate >= RATE_TARGET else 'missed'}; {_spread(found.rates[kind])})"
        for kind, rate in made["changes_a_second"].items()
    ]
    for kind, ratio in made["writers_with_a_feed"].items():
        rate = statistics.median(found.writers[kind]["plain"])
        verdict = "met" if ratio >= COST_TARGET else "missed"
        lines.append(f"{kind}, with a feed: {ratio:.2f}x of {rate:,.0f}/s without (target {COST_TARGET}x, {verdict})")
    return lines


def _spread(values: list[float]) -> str:
    return f"{min(values):,.0f} – {max(values):,.0f}"
