"""How fast a database is looked through as a whole, once the page cache has it: gigabytes of its pages a second."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.harness import WrongResultError, show_progress
from bench.memory import load
from gmdb.inspect.inspector import open_inspector
from gmdb.verify import verify

DEFAULT_ROWS = 50_000_000  # 2 GB of pages
TARGET = 1.0  # GB/s
TABLE = "narrow"


@dataclass(frozen=True)
class Speed:
    """How fast some work went through pages of so many bytes."""

    what: str
    size: int
    seconds: float

    @property
    def rate(self) -> float:
        """GB/s."""
        return self.size / self.seconds / 1e9

    @property
    def met(self) -> bool:
        return self.rate >= TARGET


def measure(directory: Path, rows: int, rounds: int) -> list[Speed]:
    """Load a table, and look through its database in each of these ways."""
    path = directory / "inspection.gmdb"
    show_progress(f"loading {rows:,} rows")
    load(path, rows)
    measured = [
        _speed("gmdb verify", partial(_verify, path, rows), rounds),
        _speed(f"gmstat fill {TABLE}", partial(_fill, path), rounds),
    ]
    show_progress("")
    return measured


def _speed(what: str, run: Callable[[], int], rounds: int) -> Speed:
    """``run`` answers how many bytes of pages it tells about; the first time, which warms caches, does not count."""
    seconds = []
    for number in range(rounds + 1):
        show_progress(f"{what}: {f'round {number} of {rounds}' if number else 'warming up'}")
        start = time.perf_counter()
        size = run()
        seconds.append(time.perf_counter() - start)
    return Speed(what, size, statistics.median(seconds[1:]))


def _verify(path: Path, rows: int) -> int:
    report = verify(path)
    if not report.clean or report.rows < rows:
        raise WrongResultError(f"verify: {len(report.findings)} findings, {report.rows} rows instead of {rows}")
    return report.size


def _fill(path: Path) -> int:
    """Only the starts of pages are read; what counts is the pages that they tell about."""
    with open_inspector(path) as inspector:
        table = inspector.files.table(TABLE)
        told = sum(inspector.fill(TABLE)["pages"].to_pylist())
        known = inspector.files.segment_pages(table.entry_page)
        if told != len(known):
            raise WrongResultError(f"fill: {told} pages instead of {len(known)}")
        return told * inspector.files.device(table.entry_page).page_size


def speed_lines(speeds: list[Speed]) -> list[str]:
    return [
        f"{one.what}, {one.size / 1e9:.2f} GB of pages from the page cache: {one.rate:.2f} GB/s; "
        f"target {TARGET:g} GB/s, {'met' if one.met else '**missed**'}"
        for one in speeds
    ]
