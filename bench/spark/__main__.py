"""``python -m bench.spark``: measure Spark with gmdb, and print how it compares."""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

import gmdb
from bench.arguments import positive
from bench.harness import Result, run_benchmark, show_progress
from bench.report import behind_first, results_json, results_table
from bench.spark import feed, growth, jdbc, live, picture, start
from bench.spark.peers import GmdbPeer, Nowhere, ParquetPeer
from bench.spark.source import Source, write_source
from bench.spark.work import load_benchmarks, read_benchmarks
from gmdb.errors import OperationalError
from gmdb.spark.jobs import local_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTS = ("start", "read", "load", "live", "feed", "growth")
CORES = 2
DEFAULT_ROWS = 10_000_000
CHANGES_SHARE = 5  # a stream carries one change for so many rows
LARGEST_TIMES = 5  # as many rows has the largest table of those that show growth
DEFAULT_ROUNDS = 3
INTRODUCTION = (
    "# gmdb beside JDBC and Parquet, in Spark\n\n"
    "Written by `make bench-spark`: the same Spark reads and loads the same rows with each, one after the other in\n"
    "each round, and what it read is checked. What is behind a peer stands first, then what misses its target."
)


@dataclass
class Outcome:
    """What was found out so far."""

    results: list[Result] = field(default_factory=list)
    measured: list[growth.Growth] = field(default_factory=list)
    live: list[live.Beside] = field(default_factory=list)
    feed: feed.FeedFigures | None = None
    notes: list[str] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)


def main(arguments: Sequence[str] | None = None) -> int:
    given = _parse(arguments)
    signal.signal(signal.SIGTERM, _end)
    outcome = Outcome(
        versions={"gmdb": gmdb.__version__, "Python": platform.python_version(), "pyarrow": pa.__version__}
    )
    with tempfile.TemporaryDirectory(prefix="gmdb-bench-") as name:
        try:
            if "start" in (given.only or PARTS):
                outcome.results.append(start.measure(Path(name) / "start", CORES, given.rounds))
                outcome.notes.append(start.described(outcome.results[-1]))
            spark = local_session(Path(name) / "spark.log", CORES, _configuration())
        except OperationalError as error:
            print(error, file=sys.stderr)
            return 1
        try:
            outcome.versions["Spark"] = spark.version
            _measure(spark, Path(name), given, outcome)
        finally:
            spark.stop()
    _report(given, outcome)
    return 0


def _end(*_: object) -> None:
    """End as after Ctrl-C: with the server stopped and the files removed."""
    raise KeyboardInterrupt


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("bench.spark", description="Measure Spark with gmdb, JDBC and Parquet.")
    parser.add_argument("--rows", type=positive, default=DEFAULT_ROWS, help="rows to read and load (%(default)s)")
    parser.add_argument(
        "--largest", type=positive, help="rows of the largest table of those that show growth (five times --rows)"
    )
    parser.add_argument("--rounds", type=positive, default=DEFAULT_ROUNDS, help="rounds that count (%(default)s)")
    parser.add_argument("--only", action="append", choices=PARTS, help="a part of it; repeatable")
    parser.add_argument("--no-jdbc", action="store_true", help="leave PostgreSQL out")
    parser.add_argument("--into", type=Path, metavar="DIR", help="tables, measurements and a picture go there, too")
    return parser.parse_args(arguments)


def _configuration() -> dict[str, str]:
    """Spark's usual settings, and PostgreSQL's driver."""
    return {"spark.jars": str(jdbc.DRIVER)} if jdbc.DRIVER.exists() else {}


# ---- measuring


def _measure(spark: SparkSession, directory: Path, given: argparse.Namespace, outcome: Outcome) -> None:
    parts = given.only or PARTS
    if "read" in parts or "load" in parts:
        with tempfile.TemporaryDirectory(dir=directory) as name, ExitStack() as stack:
            show_progress(f"making a source of {given.rows:,} rows")
            source = write_source(Path(name) / "source", given.rows)
            server = None if given.no_jdbc else _postgres(spark, Path(name), stack, outcome)
            if "read" in parts:
                _read(spark, Path(name), source, server, given.rounds, outcome)
            if "load" in parts:
                _load(spark, Path(name), source, server, given.rounds, outcome)
    if "live" in parts:
        outcome.live = live.measure(spark, directory / "live", given.rounds)
        outcome.notes.append(live.described(outcome.live))
    if "feed" in parts:
        outcome.feed = feed.measure(spark, directory / "feed", given.rows // CHANGES_SHARE, given.rounds)
        outcome.notes += feed.described(outcome.feed)
    if "growth" in parts:
        for rows in growth.table_sizes(given.largest or LARGEST_TIMES * given.rows):
            outcome.measured.append(growth.measure(spark, directory / "growth", rows, given.rounds))


def _postgres(spark: SparkSession, directory: Path, stack: ExitStack, outcome: Outcome) -> jdbc.JdbcPeer | None:
    """A server, or a note that says why there is none."""
    reason = jdbc.missing()
    if reason is None:
        try:
            show_progress("starting PostgreSQL")
            peer = stack.enter_context(jdbc.postgres(spark, directory))
        except (OSError, RuntimeError, subprocess.SubprocessError) as error:
            reason = f"PostgreSQL did not start: {error}"
        else:
            outcome.versions["PostgreSQL"] = peer.version
            return peer
    outcome.notes.append(f"not compared with JDBC: {reason}")
    return None


def _read(
    spark: SparkSession, directory: Path, source: Source, server: jdbc.JdbcPeer | None, rounds: int, outcome: Outcome
) -> None:
    peers = [GmdbPeer(spark, directory), *([server] if server else []), ParquetPeer(spark, directory)]
    for peer in peers:
        show_progress(f"read: making the table for {peer.name}")
        peer.fill(source)
    if server:
        server.tune_reading(source.rows)
        outcome.notes.append(f"JDBC reads best with {jdbc.described(server.reading)}")
    outcome.results += [run_benchmark(b, directory, rounds) for b in read_benchmarks(peers, source)]


def _load(
    spark: SparkSession, directory: Path, source: Source, server: jdbc.JdbcPeer | None, rounds: int, outcome: Outcome
) -> None:
    rows = spark.read.parquet(str(source.folder))
    if server:
        server.tune_loading(rows, source.rows)
        outcome.notes.append(f"JDBC loads best with {jdbc.described(server.loading)}")
    others = [ParquetPeer(spark, directory), Nowhere(spark, directory, source.keys)]
    peers = [GmdbPeer(spark, directory), *([server] if server else []), *others]
    outcome.results += [run_benchmark(b, directory, rounds) for b in load_benchmarks(peers, source, rows)]


# ---- the report


def _report(given: argparse.Namespace, outcome: Outcome) -> None:
    versions = ", ".join(f"{name} {version}" for name, version in outcome.versions.items())
    heading = f"Spark on {CORES} cores of {len(os.sched_getaffinity(0))}; {given.rounds} rounds; {versions}"
    tables = results_table(behind_first(outcome.results)) if outcome.results else ""
    grown = growth.growth_table(outcome.measured) if outcome.measured else ""
    notes = "\n".join(f"- {note}" for note in outcome.notes)
    print(*filter(None, (heading, tables, grown, notes)), sep="\n\n")
    if given.into:
        parts = (INTRODUCTION, f"{heading}.", tables, notes, "![Seconds](spark.png)", grown and f"## Growth\n\n{grown}")
        _write(given.into, outcome, "\n\n".join(filter(None, parts)), heading)


def _write(folder: Path, outcome: Outcome, text: str, heading: str) -> None:
    """The tables, every single measurement, and a picture of both."""
    folder.mkdir(parents=True, exist_ok=True)
    figures = {**json.loads(results_json(outcome.results)), "versions": outcome.versions, "notes": outcome.notes}
    figures["live"] = live.summary(outcome.live) if outcome.live else None
    figures["feed"] = feed.summary(outcome.feed) if outcome.feed is not None else None
    figures["growth"] = growth.growth_json(outcome.measured)
    (folder / "spark.json").write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    (folder / "spark.md").write_text(text + "\n", encoding="utf-8")
    if outcome.results or outcome.measured:
        picture.draw(folder / "spark.png", outcome.results, outcome.measured, heading)


if __name__ == "__main__":
    sys.exit(main())
