"""How time and memory grow with the rows: gmdb's loads and reads by themselves, in tables of different sizes.

A worker is a Python process that Spark starts.  Its private memory is what no other process has as well; pages of
mapped files are among it.
"""

from __future__ import annotations

import math
import shutil
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.harness import WrongResultError, show_progress
from bench.memory import Peak
from bench.spark.peers import loaded_gmdb
from bench.spark.source import TABLE, create_gmdb, digest_of, write_source
from bench.spark.work import read_everything

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULT_LARGEST = 50_000_000
SIZES = (10_000, 100_000, 300_000, 1_000_000, 3_000_000, 10_000_000)
ONE_ROUND_FROM = 20_000_000  # rows; so many smooth a round by themselves
FIT_FROM = 1_000_000  # rows; below, a job's fixed cost outweighs them
EXPONENT_MAX = 1.1
MEMORY_GROWTH_MAX = 32  # MiB, from a fifth of the rows or so to all of them
_SAMPLE_SECONDS = 0.05


@dataclass(frozen=True)
class Growth:
    """What so many rows took; memory is the peak of the largest worker while reading, in MiB."""

    rows: int
    load_seconds: float
    read_seconds: float
    worker_memory: float


def table_sizes(largest: int) -> list[int]:
    return [*(size for size in SIZES if size < largest), largest]


def measure(spark: SparkSession, directory: Path, rows: int, rounds: int) -> Growth:
    """Load a table of so many rows and read it."""
    rounds = 1 if rows >= ONE_ROUND_FROM else rounds
    show_progress(f"growth: making a source of {rows:,} rows")
    source = write_source(directory / "source", rows)
    database = directory / "growth.gmdb"
    table = spark.read.format("gmdb").option("table", TABLE)
    frame = spark.read.parquet(str(source.folder))
    loads, reads = [], []
    try:
        for number in range(rounds):
            show_progress(f"growth: {rows:,} rows, round {number + 1} of {rounds}")
            shutil.rmtree(database, ignore_errors=True)
            create_gmdb(database)
            save = frame.write.format("gmdb").option("table", TABLE).mode("append").save
            loads.append(_seconds(lambda save=save: save(str(database))))
            _require(loaded_gmdb(database), source.keys)
            reads.append(_seconds(lambda: read_everything(table.load(str(database)))))
        show_progress(f"growth: {rows:,} rows, memory")
        with worker_peak(java_process(spark)) as workers:
            _require(digest_of(read_everything(table.load(str(database)))), source.digest)
    finally:
        shutil.rmtree(directory)
        show_progress("")
    return Growth(rows, statistics.median(loads), statistics.median(reads), workers.peak)


def _seconds(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _require(found: Any, expected: Any) -> None:
    if found != expected:
        raise WrongResultError(f"growth: {found} instead of {expected}")


# ---- memory


def worker_peak(root: int) -> Peak:
    """The most private memory that any one process below ``root`` had, in MiB."""
    return Peak(lambda: max(map(private_memory, descendants(root)), default=0.0), _SAMPLE_SECONDS)


def java_process(spark: SparkSession) -> int:
    """The process whose children are Spark's workers."""
    return int(spark._jvm.java.lang.ProcessHandle.current().pid())


def descendants(root: int) -> list[int]:
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:  # it has ended
                continue
    found = [root]
    for process in found:
        found += [pid for pid, parent in parents.items() if parent == process]
    return found[1:]


def private_memory(pid: int) -> float:
    """In MiB; nothing for a process that has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith(("Private_Clean:", "Private_Dirty:"))) / 1024


# ---- what it comes to


@dataclass(frozen=True)
class Fit:
    """Two ways to say how time follows rows: as a power of them, and as a fixed cost with a cost for each million."""

    exponent: float
    fixed_seconds: float
    seconds_per_million: float

    @property
    def linear(self) -> bool:
        return self.exponent <= EXPONENT_MAX


def fit(rows: Sequence[int], seconds: Sequence[float]) -> Fit:
    """Least squares, of relative errors; the power is that of the larger tables, if there are two of them."""
    counts, times = np.asarray(rows, float), np.asarray(seconds, float)
    large = counts >= FIT_FROM
    if large.sum() < 2:
        large[:] = True
    exponent = np.polyfit(np.log(counts[large]), np.log(times[large]), 1)[0] if large.sum() > 1 else math.nan
    columns = np.stack([np.ones_like(counts), counts / 1e6], 1) / times[:, None]
    (fixed, each), *_ = np.linalg.lstsq(columns, np.ones_like(counts), rcond=None)
    return Fit(float(exponent), float(fixed), float(each))


def growth_table(measured: Sequence[Growth]) -> str:
    lines = ["| rows | load, s | read, s | largest worker, MiB |", "|---:|---:|---:|---:|"]
    lines += [f"| {g.rows:,} | {g.load_seconds:.2f} | {g.read_seconds:.2f} | {g.worker_memory:.0f} |" for g in measured]
    return "\n".join([*lines, "", *conclusions(measured)])


def conclusions(measured: Sequence[Growth]) -> list[str]:
    """A line for each thing that should grow in a certain way, if there are sizes to compare."""
    if len(measured) < 2:
        return []
    rows = [g.rows for g in measured]
    lines = []
    for name, seconds in (
        ("load", [g.load_seconds for g in measured]),
        ("read", [g.read_seconds for g in measured]),
    ):
        fitted = fit(rows, seconds)
        outcome = "met" if fitted.linear else "**missed**"
        said = f"{fitted.fixed_seconds:.2f} s and {fitted.seconds_per_million:.3f} s a million rows"
        lines.append(f"{name}: {said}; grows as rows^{fitted.exponent:.2f} (target: at most {EXPONENT_MAX}, {outcome})")
    few, many = measured[-2:]
    added = many.worker_memory - few.worker_memory
    outcome = "met" if added <= MEMORY_GROWTH_MAX else "**missed**"
    said = f"memory: {many.rows / few.rows:g} times the rows take {added:+.0f} MiB in the largest worker"
    lines.append(f"{said} (target: at most {MEMORY_GROWTH_MAX}, {outcome})")
    return lines


def growth_json(measured: Sequence[Growth]) -> list[dict[str, Any]]:
    return [asdict(growth) for growth in measured]
