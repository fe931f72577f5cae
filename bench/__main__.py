"""``python -m bench``: run benchmarks and print how gmdb compares; ``memory``, ``undo``, … : gmdb by itself."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench import bulk, durability, explorer, indexes, inspection, lookups, memory, points, sql, transactions, undo
from bench.harness import Benchmark, Result, run_benchmark
from bench.report import heading, results_json, results_table

DEFAULT_ROWS = 5_000_000
DEFAULT_ROUNDS = 7


def benchmarks(rows: int) -> list[Benchmark]:
    """Every benchmark; another one is added here."""
    modules = (bulk, points, indexes, sql, transactions, durability)
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
    chosen = benchmarks(given.rows or DEFAULT_ROWS)
    if given.only:
        chosen = [benchmark for benchmark in chosen if any(name in benchmark.name for name in given.only)]
    if not chosen:
        known = ", ".join(benchmark.name for benchmark in benchmarks(1))
        print(f"no benchmark has {' or '.join(given.only)} in its name; there are {known}", file=sys.stderr)
        return 2
    results = _run(chosen, given.rounds)
    print(heading(given.rounds), results_table(results), sep="\n\n")
    if given.json:
        given.json.write_text(results_json(results) + "\n", encoding="utf-8")
    return 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("bench", description="Measure gmdb beside SQLite and DuckDB.")
    modes = ("speed", "lookups", "memory", "undo", "inspect", "recovery", "checkpoint")
    parser.add_argument("what", nargs="?", choices=modes, default="speed")
    own = (("lookups", lookups), ("memory", memory), ("inspect", inspection))
    larger = ", ".join(f"{mode} {module.DEFAULT_ROWS:,}" for mode, module in own)
    parser.add_argument(
        "--rows", type=_positive, help=f"rows of the largest table (default: {DEFAULT_ROWS:,}, {larger})"
    )
    parser.add_argument(
        "--rounds", type=_positive, default=DEFAULT_ROUNDS, help="rounds that count (default: %(default)s)"
    )
    parser.add_argument(
        "--only", action="append", metavar="NAME", help="benchmarks with NAME in their name; repeatable"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all measurements to FILE, too")
    return parser.parse_args(arguments)


def _positive(text: str) -> int:
    number = int(text.replace("_", ""))
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return number


def _run(chosen: Sequence[Benchmark], rounds: int) -> list[Result]:
    results = []
    for benchmark in chosen:
        with tempfile.TemporaryDirectory(prefix="gmdb-bench-") as directory:
            results.append(run_benchmark(benchmark, Path(directory), rounds))
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
