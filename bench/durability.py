"""Commits that are on disk: beside SQLite, and how gmdb gets over crashes and checkpoints.

``commits`` is a benchmark like the others.  ``recovery`` and ``checkpoint`` compare gmdb with a target: how fast the
log is replayed after a crash, and how long updates take while a large checkpoint is being written.
"""

from __future__ import annotations

import os
import random
import sqlite3
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import gmdb
from bench.harness import Attempt, Benchmark, Contender
from bench.peers import Gmdb, Peer, Sqlite
from bench.points import empty, insert_into_gmdb, insert_into_sqlite, summarize_turned
from bench.tables import BenchTable, narrow_table
from gmdb.format.address import RowId
from gmdb.storage.log import durability
from gmdb.storage.store import MAIN_PAGE_SIZE

THREADS = 8
COMMITS_SHARE = 250  # of the rows that are moved in bulk, so many are updated, a commit each
COMMIT_TARGETS = {Sqlite.name: 2.0}
REPLAY_TARGET = 100  # MB of redo a second
LATENCY_TARGET = 10  # milliseconds, of 99 of 100 updates
_BUSY_SECONDS = 60.0
_MB = 1_000_000
_TEXT_LENGTH, _ROWS_A_PAGE = 900, 6  # of the large table


def benchmarks(rows: int) -> list[Benchmark]:
    table = narrow_table(max(rows // COMMITS_SHARE, THREADS))
    works = {Gmdb: (insert_into_gmdb, gmdb_updaters), Sqlite: (insert_into_sqlite, sqlite_updaters)}
    contenders = [Contender(peer.name, table.summary, partial(committing, peer, *works[peer], table)) for peer in works]
    title = f"update {table.row_count:,} rows in {THREADS} threads, a durable commit each"
    return [Benchmark("commits", title, contenders, COMMIT_TARGETS)]


# ---- commits

Update = Callable[[Any, str], None]  # of one row, by its id; it is on disk afterwards
Updaters = Callable[[Any, ExitStack, int], list[Update]]  # one for each thread, with a connection of its own


@contextmanager
def committing(
    peer: type[Peer],
    insert: Callable[[Any], list],
    updaters: Updaters,
    table: BenchTable,
    directory: Path,
    threads: int = THREADS,
) -> Iterator[Attempt]:
    """Update every row once, each in a transaction of its own; neighbours are different threads'."""
    with empty(peer, table, directory) as opened, ExitStack() as stack:
        if isinstance(opened, Sqlite):
            opened.connection.execute("pragma journal_mode = wal")
        row_ids = insert(opened)
        work = [(row_id, s[::-1]) for row_id, (_, s) in zip(row_ids, table.python_rows, strict=True)]
        updates = updaters(opened, stack, threads)
        for number, update in enumerate(updates):
            update(row_ids[number], table.python_rows[number][1])  # the first one of a connection prepares much
        run = partial(update_durably, updates, [work[n::threads] for n in range(threads)])
        yield Attempt(run, lambda _: summarize_turned(table, opened.python_rows(opened.scan())))


def update_durably(updates: Sequence[Update], shares: Sequence[list[tuple]]) -> None:
    def run(update: Update, share: list[tuple]) -> None:
        for row_id, text in share:
            update(row_id, text)

    with ThreadPoolExecutor(len(updates)) as pool:
        list(pool.map(run, updates, shares))


def gmdb_updaters(peer: Gmdb, stack: ExitStack, threads: int) -> list[Update]:
    def updater(db: gmdb.Connection) -> Update:
        heap = db.heap(peer.table.name)

        def update(row_id: Any, text: str) -> None:
            heap.update(row_id, {"s": text})
            db.commit()

        return update

    return [updater(stack.enter_context(gmdb.connect(peer.db.path))) for _ in range(threads)]


def sqlite_updaters(peer: Sqlite, stack: ExitStack, threads: int) -> list[Update]:
    statement = f"update {peer.table.name} set s = ? where rowid = ?"

    def updater() -> Update:
        path = peer.directory / "bench.sqlite"
        made = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        connection = stack.enter_context(closing(made))
        connection.execute("pragma synchronous = full")

        def update(row_id: Any, text: str) -> None:
            connection.execute("begin immediate")
            connection.execute(statement, (text, row_id))
            connection.execute("commit")

        return update

    return [updater() for _ in range(threads)]


# ---- recovery


@dataclass(frozen=True)
class Replay:
    """What opening a database after a crash took."""

    redo_bytes: int
    commits: int
    replay_seconds: float
    open_seconds: float

    @property
    def rate(self) -> float:
        """MB of redo a second, while redo was replayed."""
        return self.redo_bytes / self.replay_seconds / _MB

    @property
    def met(self) -> bool:
        return self.rate >= REPLAY_TARGET


_CRASH = "import sys; from bench.durability import crash; crash(sys.argv[1], int(sys.argv[2]))"
CRASH_ROWS = 20_000


def crash(path: str, redo_bytes: int) -> None:
    """Make so much redo of small updates, without a checkpoint on the way; then die."""
    durability.REDO_LIMIT = durability.DIRTY_LIMIT = 1 << 40
    durability.INTERVAL = 1e9
    db = gmdb.connect(path, sync="off")
    table = narrow_table(CRASH_ROWS)
    db.create_table(table.name, {c.name: c.gmdb_type for c in table.columns})
    heap = db.heap(table.name)
    row_ids = [heap.insert(row) for row in table.python_rows]
    db.commit()
    db.gc()
    db.checkpoint()
    random.Random(20_000_101).shuffle(row_ids)
    start, number = _log_end(db), 0
    while number % 10 or _log_end(db) - start < redo_bytes:
        heap.update(row_ids[number % CRASH_ROWS], {"s": f"{number:016}"})
        number += 1
        if number % 10 == 0:
            db.commit()
    os._exit(0)


def _log_end(db: gmdb.Connection) -> int:
    made = db._database.durability
    assert made is not None
    with db._database.store.guard:
        return made.redo.end


def measure_recovery(directory: Path, redo_bytes: int = 200 * _MB) -> Replay:
    path = directory / "crash.gmdb"
    root = Path(__file__).resolve().parents[1]
    subprocess.run([sys.executable, "-c", _CRASH, str(path), str(redo_bytes)], cwd=root, check=True)
    _warm_up(directory)
    store, recovery = durability.open_store(path, read_only=True)  # replays, and leaves the files as they are
    store.close()
    assert recovery is not None
    started = time.perf_counter()
    gmdb.connect(path).close()
    return Replay(recovery.redo_bytes, recovery.commits, recovery.seconds, time.perf_counter() - started)


def _warm_up(directory: Path) -> None:
    """Recover a small database, so that the kernels' code is loaded."""
    path = directory / "warm.gmdb"
    root = Path(__file__).resolve().parents[1]
    subprocess.run([sys.executable, "-c", _CRASH, str(path), "100000"], cwd=root, check=True)
    gmdb.connect(path).close()


def recovery_line(replay: Replay) -> str:
    return (
        f"{replay.redo_bytes / _MB:,.0f} MB of redo, {replay.commits:,} commits: replayed in "
        f"{replay.replay_seconds:.2f} s, {replay.rate:,.0f} MB a second, target {REPLAY_TARGET}, "
        f"{'met' if replay.met else '**missed**'}; opening and closing took {replay.open_seconds:.2f} s in all"
    )


# ---- updates beside a checkpoint


@dataclass(frozen=True)
class Latencies:
    """How long updates took, in milliseconds, beside a checkpoint and before it."""

    checkpoint_bytes: int
    checkpoint_seconds: float
    updates: int
    median: float
    percentile_99: float
    longest: float
    alone_99: float

    @property
    def met(self) -> bool:
        return self.percentile_99 < LATENCY_TARGET


def measure_checkpoint(directory: Path, dirty_bytes: int = 1 << 30) -> Latencies:
    """Change so many bytes of pages, then update rows, a transaction each, while a checkpoint writes them."""
    limits = durability.REDO_LIMIT, durability.DIRTY_LIMIT, durability.INTERVAL
    durability.REDO_LIMIT = durability.DIRTY_LIMIT = 1 << 40
    durability.INTERVAL = 1e9
    try:
        with gmdb.connect(directory / "checkpoint.gmdb") as db:
            row_ids = _make_dirty(db, dirty_bytes)
            alone = _update_until(db, row_ids, _Timer(2.0))
            with ThreadPoolExecutor(1) as pool:
                running = pool.submit(db._database.checkpoint)
                beside = _update_until(db, row_ids, running.done)
                report = running.result()
    finally:
        durability.REDO_LIMIT, durability.DIRTY_LIMIT, durability.INTERVAL = limits
    return Latencies(
        report.bytes,
        report.seconds,
        len(beside),
        1000 * statistics.median(beside),
        1000 * float(np.percentile(beside, 99)),
        1000 * max(beside),
        1000 * float(np.percentile(alone, 99)),
    )


def _make_dirty(db: gmdb.Connection, dirty_bytes: int) -> list:
    """A table of which a row on every page has changed; answers these rows."""
    count = dirty_bytes // MAIN_PAGE_SIZE * _ROWS_A_PAGE
    db.create_table("large", {"i": "INT", "s": f"VARCHAR({_TEXT_LENGTH})"})
    text = pa.array(["x" * _TEXT_LENGTH])
    for first in range(0, count, 100_000):
        some = min(100_000, count - first)
        numbers = pa.array(np.arange(first, first + some, dtype=np.int32))
        db.append("large", pa.table({"i": numbers, "s": text.take(pa.array(np.zeros(some, np.int64)))}))
        db.commit()
    db.checkpoint()
    heap = db.heap("large")
    row_ids = [RowId(page, 0) for page in heap.segment.page_ids().tolist()]
    for number, row_id in enumerate(row_ids):
        heap.update(row_id, {"i": number})
        if number % 1000 == 999:
            db.commit()
    db.commit()
    return row_ids


class _Timer:
    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def __call__(self) -> bool:
        return time.monotonic() >= self._end


def _update_until(db: gmdb.Connection, row_ids: list, done: Callable[[], bool]) -> list[float]:
    """The seconds that each update and its commit took."""
    heap, chosen = db.heap("large"), random.Random(20_000_101)
    taken = []
    while not done():
        row_id = chosen.choice(row_ids)
        started = time.perf_counter()
        heap.update(row_id, {"i": len(taken)})
        db.commit()
        taken.append(time.perf_counter() - started)
    return taken


def checkpoint_line(found: Latencies) -> str:
    return (
        f"a checkpoint of {found.checkpoint_bytes / (1 << 20):,.0f} MiB in {found.checkpoint_seconds:.1f} s; "
        f"{found.updates:,} updates with a commit each beside it: median {found.median:.2f} ms, 99 % below "
        f"{found.percentile_99:.2f} ms, at most {found.longest:.1f} ms ({found.alone_99:.2f} ms for 99 % before it); "
        f"target below {LATENCY_TARGET} ms for 99 %, {'met' if found.met else '**missed**'}"
    )
