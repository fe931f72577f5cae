"""``python -m bench``: run benchmarks and print how gmdb compares; ``memory``, ``undo``, … : gmdb by itself."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench import (
    bulk,
    durability,
    explorer,
    growth,
    indexes,
    inspection,
    joins,
    lookups,
    memory,
    picture,
    points,
    sql,
    starts,
    tpch,
    transactions,
    undo,
)
from bench.arguments import positive
from bench.harness import Benchmark, Result, run_benchmark
from bench.report import behind_first, heading, results_json, results_table

DEFAULT_ROWS = 5_000_000
DEFAULT_ROUNDS = 5
GROWTH_ROUNDS = 3
INTRODUCTION = (
    "# gmdb beside SQLite and DuckDB\n\n"
    "Written by `make bench`: gmdb and its peers do the same work over the same data, one after the other in each\n"
    "round, and what each did is checked. What is behind a peer stands first, then what misses its target."
)


def benchmarks(rows: int) -> list[Benchmark]:
    """Every benchmark; another one is added here."""
    modules = (bulk, points, indexes, sql, joins, tpch, transactions, durability, starts)
    return [benchmark for module in modules for benchmark in module.benchmarks(rows)]


def main(arguments: Sequence[str] | None = None) -> int:
    given = _parse(arguments)
    if given.what == "memory":
        return _run_memory(given.rows or memory.DEFAULT_ROWS)
    if given.what == "undo":
        return _run_undo(given.rows or DEFAULT_ROWS)
    if given.what == "lookups":
        return _run_lookups(given.rows or lookups.DEFAULT_ROWS, given.rounds)
    if given.what == "inspect":
        return _run_inspection(given.rows or inspection.DEFAULT_ROWS, given.rounds)
    if given.what in ("recovery", "checkpoint"):
        return _run_durability(given.what)
    chosen = _chosen(given)
    if not chosen:
        known = ", ".join(benchmark.name for benchmark in benchmarks(1))
        print(f"no benchmark has {' or '.join(given.only)} in its name; there are {known}", file=sys.stderr)
        return 2
    results = _run(chosen, given.rounds) if given.what == "speed" else []
    if results:
        print(heading(given.rounds), results_table(behind_first(results)), sep="\n\n")
    drawn: list[growth.Curve] = []
    if given.what == "growth" or given.into:
        drawn = list(growth.curves(min(given.rounds, GROWTH_ROUNDS), given.rows or growth.ROWS_MAX))
        print(growth.growth_table(drawn))
    if given.json:
        given.json.write_text(results_json(results, drawn) + "\n", encoding="utf-8")
    if given.into:
        _write(given.into, results, drawn, heading(given.rounds))
    return 0


def _chosen(given: argparse.Namespace) -> list[Benchmark]:
    """The benchmarks that were asked for by parts of their names, or all."""
    known = benchmarks(given.rows or DEFAULT_ROWS)
    return [one for one in known if not given.only or any(name in one.name for name in given.only)]


def _write(folder: Path, results: Sequence[Result], drawn: Sequence[growth.Curve], title: str) -> None:
    """The tables, every single measurement, and pictures of both."""
    folder.mkdir(parents=True, exist_ok=True)
    text = f"{INTRODUCTION}\n\n{title}.\n\n{results_table(behind_first(results))}\n"
    text += f"\n![Ratios](engine.png)\n\n## Growth\n\n{growth.growth_table(drawn)}\n\n![Growth](growth.png)\n"
    (folder / "engine.md").write_text(text, encoding="utf-8")
    (folder / "engine.json").write_text(results_json(results, drawn) + "\n", encoding="utf-8")
    picture.draw_results(folder / "engine.png", results, title)
    picture.draw_growth(folder / "growth.png", drawn, title)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("bench", description="Measure gmdb beside SQLite and DuckDB.")
    modes = ("speed", "growth", "lookups", "memory", "undo", "inspect", "recovery", "checkpoint")
    parser.add_argument("what", nargs="?", choices=modes, default="speed")
    own = (("lookups", lookups), ("memory", memory), ("inspect", inspection))
    larger = ", ".join(f"{mode} {module.DEFAULT_ROWS:,}" for mode, module in own)
    parser.add_argument(
        "--rows", type=positive, help=f"rows of the largest table (default: {DEFAULT_ROWS:,}, {larger})"
    )
    parser.add_argument(
        "--rounds", type=positive, default=DEFAULT_ROUNDS, help="rounds that count (default: %(default)s)"
    )
    parser.add_argument(
        "--only", action="append", metavar="NAME", help="benchmarks with NAME in their name; repeatable"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all measurements to FILE, too")
    parser.add_argument(
        "--into",
        type=Path,
        metavar="DIR",
        help="measure growth, too; tables, measurements and pictures go there",
    )
    return parser.parse_args(arguments)


def _run(chosen: Sequence[Benchmark], rounds: int) -> list[Result]:
    results = []
    for benchmark in chosen:
        with tempfile.TemporaryDirectory(prefix="gmdb-bench-") as directory:
            results.append(run_benchmark(benchmark, Path(directory), max(rounds, benchmark.rounds_min)))
    return results


def _run_lookups(rows: int, rounds: int) -> int:
    with tempfile.TemporaryDirectory(prefix="gmdb-bench-") as directory:
        costs = [cost for size in lookups.table_sizes(rows) for cost in lookups.measure(Path(directory), size, rounds)]
    print(lookups.lookups_table(costs))
    return 0


def _run_memory(rows: int) -> int:
    """A tenth of the rows beside all of them: what does not grow is bounded."""
    print(memory.memory_table([memory.measure(max(rows // 10, 1)), memory.measure(rows)]))
    return 0


def _run_undo(rows: int) -> int:
    with tempfile.TemporaryDirectory(prefix="gmdb-bench-") as directory:
        print(undo.undo_line(undo.measure(Path(directory), max(rows // undo.UPDATES_SHARE, 1))))
    return 0


def _run_inspection(rows: int, rounds: int) -> int:
    with tempfile.TemporaryDirectory(prefix="gmdb-bench-") as directory:
        print(*inspection.speed_lines(inspection.measure(Path(directory), rows, rounds)), sep="\n")
        if explorer.has_browser():
            print(explorer.map_line(explorer.measure(Path(directory))))
    return 0


def _run_durability(what: str) -> int:
    with tempfile.TemporaryDirectory(prefix="gmdb-bench-") as directory:
        if what == "recovery":
            print(durability.recovery_line(durability.measure_recovery(Path(directory))))
        else:
            print(durability.checkpoint_line(durability.measure_checkpoint(Path(directory))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
