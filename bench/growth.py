"""How cost grows: with rows, columns, threads and versions of rows; beside peers where they have the like.

Each curve is the same work at growing sizes, as a cost that would stay the same if it grew no faster than the work:
nanoseconds a row, a value or a version, microseconds a lookup, a statement or a commit.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import gmdb
from bench import joins, lookups
from bench.bulk import Work, append, rescan
from bench.durability import committing, gmdb_updaters, sqlite_updaters
from bench.harness import Attempt, Benchmark, Contender, run_benchmark
from bench.peers import Duckdb, Gmdb, Peer, Sqlite, fill, summarize_arrow
from bench.points import insert_into_gmdb, insert_into_sqlite
from bench.tables import BenchTable, narrow_table, of_integers

ROWS_MAX = 10_000_000
SQLITE_ROWS_MAX = 1_000_000  # its lists of tuples take seconds for more
COLUMNS = (1, 3, 10, 30, 100)
VALUES = 3_000_000  # of the tables with many columns: the more columns, the fewer rows
THREADS = (1, 2, 4, 8, 16)
COMMITS = 4_000
STATEMENTS = 1_000
VERSIONS = (0, 1, 10, 100, 1000)
VERSIONED_ROWS = 2_000
_NANO, _MICRO = 1e9, 1e6


@dataclass(frozen=True)
class Point:
    """What one contender needed at one size: the median, and the least and the most of all rounds."""

    size: int
    median: float
    least: float
    most: float


@dataclass(frozen=True)
class Curve:
    """A cost by size, for each contender."""

    title: str
    axis: str
    unit: str
    points: Mapping[str, Sequence[Point]]


def curves(rounds: int, rows_max: int = ROWS_MAX) -> Iterator[Curve]:
    """All of them, one after the other."""
    sizes = lookups.table_sizes(rows_max)
    yield _curve("scan to Arrow", "rows", "ns a row", rounds, {n: _bulk(rescan, narrow_table(n)) for n in sizes})
    yield _curve("append from Arrow", "rows", "ns a row", rounds, {n: _bulk(append, narrow_table(n)) for n in sizes})
    yield _lookup_curve(sizes, rounds)
    for work in joins.WORKS:
        few = {
            n: Job(joins.benchmark(work, n, STATEMENTS), min(STATEMENTS, n), _MICRO)
            for n in sizes
            if n <= SQLITE_ROWS_MAX
        }
        yield _curve(work.title, "rows", "µs a statement", rounds, few)
    tables = {n: of_integers(n, max(VALUES // n, 1)) for n in COLUMNS}
    yield _curve("scan to Arrow", "columns", "ns a value", rounds, {n: _bulk(rescan, t, n) for n, t in tables.items()})
    yield _curve("append", "columns", "ns a value", rounds, {n: _bulk(append, t, n) for n, t in tables.items()})
    yield _curve("update and commit", "threads", "µs a commit", rounds, {n: _commits(n) for n in THREADS})
    yield _curve("scan an old snapshot", "versions a row", "ns a row", rounds, {n: _versions(n) for n in VERSIONS})


@dataclass(frozen=True)
class Job:
    """A benchmark at one size, and how many units of work each of its contenders does, times the unit's factor."""

    benchmark: Benchmark
    units: int
    factor: float


def _curve(title: str, axis: str, unit: str, rounds: int, jobs: Mapping[int, Job]) -> Curve:
    points: dict[str, list[Point]] = {}
    for size, job in jobs.items():
        with tempfile.TemporaryDirectory(prefix="gmdb-bench-") as directory:
            result = run_benchmark(job.benchmark, Path(directory), rounds)
        for measured in result.measurements:
            costs = sorted(job.factor * seconds / job.units for seconds in measured.seconds)
            median = job.factor * measured.median / job.units
            points.setdefault(measured.contender, []).append(Point(size, median, costs[0], costs[-1]))
    return Curve(title, axis, unit, points)


# ---- by rows and columns


def _bulk(work: Work, table: BenchTable, columns: int = 1) -> Job:
    """Move all rows of a table; ``columns``: what a unit of work is counted by beside the rows."""
    peers: list[type[Peer]] = [Gmdb, Duckdb]
    if table.row_count <= SQLITE_ROWS_MAX:
        peers.append(Sqlite)
    contenders = [Contender(peer.name, table.summary, partial(work, peer, table)) for peer in peers]
    name = f"{work.__name__} {table.row_count:,} rows of {len(table.columns)} columns"
    return Job(Benchmark(name, name, contenders), table.row_count * columns, _NANO)


def _lookup_curve(sizes: Sequence[int], rounds: int) -> Curve:
    points: dict[str, list[Point]] = {}
    for size in sizes:
        with tempfile.TemporaryDirectory(prefix="gmdb-bench-") as directory:
            for cost in lookups.measure(Path(directory), size, rounds):
                point = Point(size, cost.microseconds, min(cost.rounds), max(cost.rounds))
                points.setdefault(cost.by if cost.by == Sqlite.name else f"gmdb, {cost.by}", []).append(point)
    return Curve("find a row by its key", "rows", "µs a lookup", points)


# ---- by threads


def _commits(threads: int) -> Job:
    table = narrow_table(COMMITS)
    works: dict[type[Peer], tuple[Callable[[Any], list], Any]] = {
        Gmdb: (insert_into_gmdb, gmdb_updaters),
        Sqlite: (insert_into_sqlite, sqlite_updaters),
    }
    contenders = [
        Contender(peer.name, table.summary, partial(committing, peer, *work, table, threads=threads))
        for peer, work in works.items()
    ]
    return Job(Benchmark(f"commits in {threads} threads", "", contenders), COMMITS, _MICRO)


# ---- by versions


def _versions(count: int) -> Job:
    table = narrow_table(VERSIONED_ROWS)
    contenders = [
        Contender("gmdb, the old snapshot", table.summary, partial(_scanning, table, count, True)),
        Contender("gmdb, a new one", table.summary, partial(_scanning, table, count, False)),
    ]
    return Job(Benchmark(f"scan of {count} versions", "", contenders), table.row_count, _NANO)


@contextmanager
def _scanning(table: BenchTable, count: int, is_old: bool, directory: Path) -> Iterator[Attempt]:
    """Scan a table whose rows have each been updated so many times since an open snapshot was taken."""
    place = directory / "versions"
    if not place.exists():
        fill(Gmdb, place, table)
    with ExitStack() as stack:
        path = place / "bench.gmdb"
        old = stack.enter_context(closing(gmdb.connect(path, isolation="repeatable read")))
        old.arrow(table.name).read_all()
        with gmdb.connect(path) as writer:
            heap = writer.heap(table.name)
            row_ids = [row_id for row_id, _ in heap.rows()]
            for number in range(count):
                for row_id in row_ids:
                    heap.update(row_id, {"s": f"{number:04}"})
                writer.commit()
        reader = old if is_old else stack.enter_context(closing(gmdb.connect(path)))
        yield Attempt(lambda: reader.arrow(table.name).read_all(), summarize_arrow)


# ---- the report


def growth_table(drawn: Sequence[Curve]) -> str:
    lines = ["| work | by | size | cost | least – most |", "|---|---|---:|---:|---:|"]
    for curve in drawn:
        for contender, points in curve.points.items():
            for point in points:
                cost = f"{_short(point.median)} {curve.unit}"
                spread = f"{_short(point.least)} – {_short(point.most)}"
                lines.append(f"| {curve.title} | {contender} | {point.size:,} {curve.axis} | {cost} | {spread} |")
    return "\n".join(lines)


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def growth_json(drawn: Sequence[Curve]) -> list[dict[str, Any]]:
    return [
        {
            "title": curve.title,
            "axis": curve.axis,
            "unit": curve.unit,
            "points": {name: [vars(point) for point in points] for name, points in curve.points.items()},
        }
        for curve in drawn
    ]
