"""Results as a table, which is also Markdown, and as JSON."""

from __future__ import annotations

import json
import os
import platform
import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any

import duckdb
import pyarrow as pa

import gmdb
from bench.growth import Curve, growth_json
from bench.harness import Measurement, Result

TIMES, TO = "\N{MULTIPLICATION SIGN}", "\N{EN DASH}"
HEADINGS = ("work", "by", "median ms", f"min {TO} max", "gmdb's speed", "target", "")
_RIGHT = {2, 3, 4, 5}
OTHERS = {"SQLite", "DuckDB", "JDBC", "Parquet"}  # beside which one can be behind; others are gmdb in another way


def versions() -> dict[str, str]:
    return {
        "gmdb": gmdb.__version__,
        "SQLite": sqlite3.sqlite_version,
        "DuckDB": duckdb.__version__,
        "Python": platform.python_version(),
        "pyarrow": pa.__version__,
    }


def environment() -> dict[str, Any]:
    return {"cores": len(os.sched_getaffinity(0)), "versions": versions()}


def heading(rounds: int) -> str:
    named = ", ".join(f"{name} {version}" for name, version in versions().items())
    return f"{environment()['cores']} cores; {rounds} rounds; {named}"


def behind_first(results: Sequence[Result]) -> list[Result]:
    """Those that are slower than a peer first, then those that miss a target, each from the worst on; then the rest."""

    def worst(result: Result) -> tuple[int, float]:
        peers = result.measurements[1:]
        least = min((result.ratio(peer) for peer in peers if peer.contender in OTHERS), default=1.0)
        misses = result.is_in_time is False or any(result.met(peer) is False for peer in peers)
        return 0 if least < 1 else 1 if misses else 2, least

    return sorted(results, key=worst)


def results_table(results: Sequence[Result]) -> str:
    lines = [HEADINGS, *(line for result in results for line in _lines(result))]
    text = _aligned(lines)
    if any(m.rows != result.benchmark.rows for result in results for m in result.measurements):
        text += "\n\n\\* measured with fewer rows, and scaled to all of them"
    return text


def _lines(result: Result) -> Iterator[tuple[str, ...]]:
    for number, measured in enumerate(result.measurements):
        title = "" if number else result.benchmark.title
        mark = "" if measured.rows == result.benchmark.rows else " \\*"
        spread = f"{_milliseconds(min(measured.seconds))} {TO} {_milliseconds(max(measured.seconds))}"
        compared = _comparison(result, measured) if number else _limit(result)
        yield title, measured.contender + mark, _milliseconds(measured.median), spread, *compared


def _limit(result: Result) -> tuple[str, str, str]:
    """What is asked of the first contender by itself."""
    limit = result.benchmark.seconds_max
    if limit is None:
        return "", "", ""
    return "", f"{_milliseconds(limit)} ms", "met" if result.is_in_time else "**missed**"


def _comparison(result: Result, peer: Measurement) -> tuple[str, str, str]:
    target = result.benchmark.targets.get(peer.contender)
    ratio = result.ratio(peer)
    shown = f"{ratio:.{2 if ratio < 10 else 0}f}{TIMES}"
    if target is None:
        return shown, "", ""
    return shown, f"{target:g}{TIMES}", "met" if result.met(peer) else "**missed**"


def _milliseconds(seconds: float) -> str:
    value = 1000 * seconds
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def _aligned(lines: Sequence[tuple[str, ...]]) -> str:
    widths = [max(len(line[i]) for line in lines) for i in range(len(HEADINGS))]
    rule = tuple("-" * (width - 1) + ":" if i in _RIGHT else "-" * width for i, width in enumerate(widths))
    return "\n".join(_line(cells, widths) for cells in (lines[0], rule, *lines[1:]))


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    placed = [c.rjust(w) if i in _RIGHT else c.ljust(w) for i, (c, w) in enumerate(zip(cells, widths, strict=True))]
    return f"| {' | '.join(placed)} |"


def results_json(results: Sequence[Result], drawn: Sequence[Curve] = ()) -> str:
    figures = {"benchmarks": [_as_json(result) for result in results], "growth": growth_json(drawn)}
    return json.dumps({**environment(), **figures}, indent=2)


def _as_json(result: Result) -> dict[str, Any]:
    first, *peers = result.measurements
    measured = [
        {"contender": m.contender, "rows": m.rows, "median_seconds": m.median, "seconds": list(m.seconds)}
        for m in (first, *peers)
    ]
    compared = [
        {
            "peer": peer.contender,
            "ratio": result.ratio(peer),
            "target": result.benchmark.targets.get(peer.contender),
            "met": result.met(peer),
        }
        for peer in peers
    ]
    return {
        "name": result.benchmark.name,
        "title": result.benchmark.title,
        "rows": result.benchmark.rows,
        "measured": measured,
        "seconds_max": result.benchmark.seconds_max,
        "in_time": result.is_in_time,
        "compared": compared,
    }
