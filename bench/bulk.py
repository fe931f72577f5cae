"""Many rows at once: append from Arrow, scan to Arrow.

SQLite has no Arrow; it takes and gives lists of tuples.  It is slow enough to get by with fewer rows.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from functools import partial
from pathlib import Path

from bench.harness import Attempt, Benchmark, Contender
from bench.peers import Duckdb, Gmdb, Peer, Sqlite, fill
from bench.tables import BenchTable, narrow_table, wide_table

SQLITE_SHARE = 5  # SQLite gets a fifth of the rows
WIDE_SHARE = 5  # the wide table has a fifth of the rows
SCAN_TARGETS = {Sqlite.name: 20.0, Duckdb.name: 1.0}
APPEND_TARGETS = {Sqlite.name: 10.0, Duckdb.name: 0.7}

Work = Callable[[type[Peer], BenchTable, Path], AbstractContextManager[Attempt]]


def benchmarks(rows: int) -> list[Benchmark]:
    wide_rows = max(rows // WIDE_SHARE, 1)
    made = []
    for make, count, kind in (
        (narrow_table, rows, "(int, varchar) rows"),
        (wide_table, wide_rows, "rows of 20 columns"),
    ):
        contenders = partial(_contenders, make(count), make(max(count // SQLITE_SHARE, 1)))
        name = make(0).name
        what = f"{count:,} {kind}"
        made += [
            Benchmark(f"scan-{name}", f"scan {what}", contenders(scan), SCAN_TARGETS),
            Benchmark(f"rescan-{name}", f"scan {what} again", contenders(rescan), SCAN_TARGETS),
            Benchmark(f"append-{name}", f"append {what}", contenders(append), APPEND_TARGETS),
        ]
    return made


def _contenders(table: BenchTable, fewer_rows: BenchTable, work: Work) -> list[Contender]:
    entered = ((Gmdb, table), (Sqlite, fewer_rows), (Duckdb, table))
    return [Contender(peer.name, rows.summary, partial(work, peer, rows)) for peer, rows in entered]


@contextmanager
def append(peer: type[Peer], table: BenchTable, directory: Path) -> Iterator[Attempt]:
    """Append all rows to an empty table and have them on disk."""
    place = directory / "append"
    place.mkdir()
    with closing(peer(place, table)) as opened:
        opened.create()
        _ = table.python_rows if peer is Sqlite else table.data
        yield Attempt(opened.append, lambda _: opened.summarize(opened.scan()))
    shutil.rmtree(place)


@contextmanager
def scan(peer: type[Peer], table: BenchTable, directory: Path) -> Iterator[Attempt]:
    """Read all rows for the first time since the database was opened; the files are in the page cache."""
    place = directory / "scan"
    if not place.exists():
        fill(peer, place, table)
    with closing(peer(place, table)) as opened:
        yield Attempt(opened.scan, opened.summarize)


@contextmanager
def rescan(peer: type[Peer], table: BenchTable, directory: Path) -> Iterator[Attempt]:
    """Read all rows when they have been read before."""
    place = directory / "scan"
    if not place.exists():
        fill(peer, place, table)
    with closing(peer(place, table)) as opened:
        opened.scan()
        yield Attempt(opened.scan, opened.summarize)
