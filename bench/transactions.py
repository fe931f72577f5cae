"""Transactions side by side, gmdb beside itself: writers beside writers, a scan beside a writer.

Threads share Python's interpreter lock, so a scan is also compared with one beside a thread that only keeps Python
busy: what it loses there is not lost in the database.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from functools import cache, partial
from itertools import count
from pathlib import Path

import pyarrow as pa

import gmdb
from bench.harness import Attempt, Benchmark, Contender
from bench.peers import Gmdb, fill
from bench.points import POINTS_SHARE, empty, insert_into_gmdb, summarize_turned
from bench.tables import BenchTable, narrow_table

THREADS = 8
SCAN_SHARE = 5  # a fifth of the rows that are moved in bulk
SCANS = 10  # a single scan is over before threads have taken turns
UPDATES_A_COMMIT = 100
ROWS_UPDATED = 10_000  # at random places; the writer goes round them

Companion = Callable[[Path, BenchTable, threading.Event, threading.Event], None]  # sets one event, stops at the other


def benchmarks(rows: int) -> list[Benchmark]:
    few, many = narrow_table(max(rows // POINTS_SHARE, THREADS)), narrow_table(max(rows // SCAN_SHARE, 1))
    writers = {f"{THREADS} threads": THREADS, "1 thread": 1}
    beside: dict[str, Companion | None] = {"beside a writer": write, "alone": None, "beside a busy loop": spin}
    return [
        Benchmark(
            "writers",
            f"update {few.row_count:,} rows in threads, a transaction each",
            [Contender(name, few.summary, partial(updating, number, few)) for name, number in writers.items()],
            {"1 thread": 1.0},
        ),
        Benchmark(
            "scan-beside",
            f"scan {many.row_count:,} (int, varchar) rows {SCANS} times",
            [Contender(name, many.summary, partial(scanning, other, many)) for name, other in beside.items()],
            {"alone": 0.7},
        ),
    ]


# ---- writers beside writers


@contextmanager
def updating(threads: int, table: BenchTable, directory: Path) -> Iterator[Attempt]:
    """Update every row once; neighbours are different threads'."""
    with empty(Gmdb, table, directory) as opened, ExitStack() as stack:
        row_ids = insert_into_gmdb(opened)
        work = [(row_id, s[::-1]) for row_id, (_, s) in zip(row_ids, table.python_rows, strict=True)]
        connections = [stack.enter_context(gmdb.connect(opened.db.path)) for _ in range(threads)]
        shares = [work[n::threads] for n in range(threads)]
        run = partial(update_in_threads, connections, table.name, shares)
        yield Attempt(run, lambda _: summarize_turned(table, opened.python_rows(opened.scan())))


def update_in_threads(connections: Sequence[gmdb.Connection], table: str, shares: Sequence[list[tuple]]) -> None:
    """Each thread updates its share; all transactions are open until the last one is done."""
    done = threading.Barrier(len(connections))

    def update(db: gmdb.Connection, share: list[tuple]) -> None:
        heap = db.heap(table)
        for row_id, text in share:
            heap.update(row_id, {"s": text})
        done.wait()
        db.commit()

    with ThreadPoolExecutor(len(connections)) as pool:
        list(pool.map(update, connections, shares))


# ---- a scan beside something else


@contextmanager
def scanning(companion: Companion | None, table: BenchTable, directory: Path) -> Iterator[Attempt]:
    """Scan what has been read before, while ``companion`` is at work."""
    place = directory / "scan"
    if not place.exists():
        fill(Gmdb, place, table)
    with closing(Gmdb(place, table)) as opened:
        opened.scan()
        with _working(companion, opened.db.path, table):
            yield Attempt(partial(scan_repeatedly, opened), opened.summarize)


def scan_repeatedly(peer: Gmdb) -> pa.Table:
    for _ in range(SCANS - 1):
        peer.scan()
    return peer.scan()


@contextmanager
def _working(companion: Companion | None, path: Path, table: BenchTable) -> Iterator[None]:
    if companion is None:
        yield
        return
    started, stop = threading.Event(), threading.Event()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(companion, path, table, started, stop)
        try:
            while not started.wait(0.01) and not running.done():
                pass
            yield
        finally:
            stop.set()
        running.result()


def write(path: Path, table: BenchTable, started: threading.Event, stop: threading.Event) -> None:
    """Update random rows, some in each transaction."""
    row_ids = random_rows(path, table.name)
    with gmdb.connect(path) as db:
        heap = db.heap(table.name)
        for number in count(1):
            heap.update(row_ids[number % len(row_ids)], {"s": f"{number % ROWS_UPDATED:04}"})
            if number % UPDATES_A_COMMIT == 0:
                db.commit()
                started.set()
                if stop.is_set():
                    return


def spin(_path: Path, _table: BenchTable, started: threading.Event, stop: threading.Event) -> None:
    """Keep Python busy, as a writer does, without a database."""
    started.set()
    texts = {}
    for number in count():
        texts[number % ROWS_UPDATED] = {"s": f"{number % ROWS_UPDATED:04}"}
        if stop.is_set():
            return


@cache
def random_rows(path: Path, table: str) -> list:
    """Row ids from all over a table; finding them takes seconds, so it is done once."""
    with gmdb.connect(path) as db:
        row_ids = [row_id for row_id, _ in db.heap(table).rows()]
    return random.Random(20_000_101).sample(row_ids, min(ROWS_UPDATED, len(row_ids)))
