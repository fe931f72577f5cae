"""One row at a time: insert, fetch and update by row id, a statement each, all in one transaction."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from bench.harness import Attempt, Benchmark, Contender, Summary
from bench.peers import Gmdb, Peer, Sqlite
from bench.tables import BenchTable, narrow_table

POINTS_SHARE = 100  # a hundredth of the rows that are moved in bulk

Insert = Callable[[Any], list]  # answers the row ids
Work = Callable[[Any, list], list[tuple] | None]  # on these rows; answers them if it fetches
UPDATE_TARGETS = {Sqlite.name: 1.0}


def benchmarks(rows: int) -> list[Benchmark]:
    table = narrow_table(max(rows // POINTS_SHARE, 1))
    return [
        _benchmark("insert", table, partial(inserting, insert_into_gmdb), partial(inserting, insert_into_sqlite)),
        _benchmark(
            "fetch",
            table,
            partial(working, insert_into_gmdb, fetch_from_gmdb),
            partial(working, insert_into_sqlite, fetch_from_sqlite),
        ),
        _benchmark(
            "update",
            table,
            partial(working, insert_into_gmdb, update_gmdb),
            partial(working, insert_into_sqlite, update_sqlite),
            UPDATE_TARGETS,
        ),
    ]


def _benchmark(
    name: str, table: BenchTable, in_gmdb: Callable, in_sqlite: Callable, targets: Mapping[str, float] | None = None
) -> Benchmark:
    contenders = [
        Contender(Gmdb.name, table.summary, partial(in_gmdb, Gmdb, table)),
        Contender(Sqlite.name, table.summary, partial(in_sqlite, Sqlite, table)),
    ]
    return Benchmark(name, f"{name} {table.row_count:,} rows one by one", contenders, targets or {})


@contextmanager
def empty(peer: type[Peer], table: BenchTable, directory: Path) -> Iterator[Peer]:
    """A database with an empty table, for one round."""
    place = directory / "points"
    place.mkdir()
    _ = table.python_rows
    with closing(peer(place, table)) as opened:
        opened.create()
        yield opened
    shutil.rmtree(place)


@contextmanager
def inserting(insert: Insert, peer: type[Peer], table: BenchTable, directory: Path) -> Iterator[Attempt]:
    """``insert`` into an empty table."""
    with empty(peer, table, directory) as opened:
        yield Attempt(partial(insert, opened), lambda _: opened.summarize(opened.scan()))


@contextmanager
def working(insert: Insert, work: Work, peer: type[Peer], table: BenchTable, directory: Path) -> Iterator[Attempt]:
    """``work`` on rows that were inserted before."""
    with empty(peer, table, directory) as opened:
        row_ids = insert(opened)
        yield Attempt(partial(work, opened, row_ids), partial(_summarize, opened))


def _summarize(peer: Peer, fetched: list[tuple] | None) -> Summary:
    if fetched is None:
        return summarize_turned(peer.table, peer.python_rows(peer.scan()))
    return Summary(len(fetched), sum(row[0] for row in fetched))


def summarize_turned(table: BenchTable, rows: Iterable[tuple]) -> Summary:
    """The rows whose text is turned round; others do not count."""
    turned = [i for i, s in rows if s == table.python_rows[i][1][::-1]]
    return Summary(len(turned), sum(turned))


# ---- the work


def insert_into_gmdb(peer: Gmdb) -> list:
    heap = peer.db.heap(peer.table.name)
    row_ids = [heap.insert(row) for row in peer.table.python_rows]
    peer.save()
    return row_ids


def insert_into_sqlite(peer: Sqlite) -> list:
    insert = f"insert into {peer.table.name} values (?, ?)"
    with peer.connection as connection:
        return [connection.execute(insert, row).lastrowid for row in peer.table.python_rows]


def fetch_from_gmdb(peer: Gmdb, row_ids: list) -> list[tuple]:
    heap = peer.db.heap(peer.table.name)
    return [heap.fetch(row_id) for row_id in row_ids]


def fetch_from_sqlite(peer: Sqlite, row_ids: list) -> list[tuple]:
    select = f"select * from {peer.table.name} where rowid = ?"
    with peer.connection as connection:
        connection.execute("begin")  # else every select locks the file anew
        return [connection.execute(select, (row_id,)).fetchone() for row_id in row_ids]


def update_gmdb(peer: Gmdb, row_ids: list) -> None:
    """Every row gets its text turned round: as long as before."""
    heap = peer.db.heap(peer.table.name)
    for row_id, (_, s) in zip(row_ids, peer.table.python_rows, strict=True):
        heap.update(row_id, {"s": s[::-1]})
    peer.save()


def update_sqlite(peer: Sqlite, row_ids: list) -> None:
    update = f"update {peer.table.name} set s = ? where rowid = ?"
    with peer.connection as connection:
        for row_id, (_, s) in zip(row_ids, peer.table.python_rows, strict=True):
            connection.execute(update, (s[::-1], row_id))
