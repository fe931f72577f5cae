"""The same SQL for all, through ``execute``: single rows by key, many rows in and out, two of TPC-H's queries.

Statements are asked for again and again, so that everybody has them prepared.  SQLite keeps its rows in the order of
their integer key, and reads within a transaction: else every select would lock the file anew.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

import gmdb
from bench import lineitem
from bench.harness import Attempt, Benchmark, Contender, Summary
from bench.indexes import random_keys
from bench.peers import Duckdb, Gmdb, Sqlite

TABLE_SHARE = 5  # of the rows that are moved in bulk
POINTS_SHARE = 50
LINES_TIMES = 1.2  # as many order lines as rows that are moved in bulk
CREATE = "create table t (i integer primary key, s varchar(20), n bigint)"
INSERT = "insert into t values (?, ?, ?)"
SELECT = "select i, s from t where i = ?"
UPDATE = "update t set n = n + ? where i = ?"
EVERYTHING = "select * from t"
POINT_TARGETS = {Sqlite.name: 1.0}
INSERT_TARGETS = {Sqlite.name: 2.0}
FETCH_TARGETS = {Sqlite.name: 1.0}
QUERY_TARGETS = {Sqlite.name: 10.0, Duckdb.name: 0.3}

Run = Callable[[Any], Any]


def benchmarks(rows: int) -> list[Benchmark]:
    count = max(rows // TABLE_SHARE, 1)
    keys = random_keys(np.random.default_rng(20_000_101), count, max(rows // POINTS_SHARE, 1))
    few, total = (Summary(n, n * (n - 1) // 2) for n in (len(keys), count))
    lines = max(int(rows * LINES_TIMES), 1)
    return [
        _points("sql-select", f"select {len(keys):,} of {count:,} rows by key", count, keys, _select),
        _points("sql-update", f"update {len(keys):,} of {count:,} rows by key", count, keys, _update),
        _rows("sql-insert", f"insert {len(keys):,} rows, a statement each", few, entering_each, POINT_TARGETS),
        _rows("sql-executemany", f"executemany of {count:,} inserts", total, entering_all, INSERT_TARGETS),
        _rows("sql-fetchall", f"fetchall of {count:,} rows", total, fetching, FETCH_TARGETS),
        _query("lines-1", f"TPC-H query 1 over {lines:,} order lines", lines, lineitem.PRICING_SUMMARY, _counted),
        _query("lines-6", f"TPC-H query 6 over {lines:,} order lines", lines, lineitem.FORECAST_REVENUE, _summed),
    ]


def _points(name: str, title: str, count: int, keys: list[int], run: Callable[[Any, list[int]], Any]) -> Benchmark:
    expected = Summary(len(keys), sum(keys))
    contenders = [
        Contender(peer, expected, partial(pointing, connect, count, keys, run))
        for peer, connect in ((Gmdb.name, _gmdb), (Sqlite.name, _sqlite))
    ]
    return Benchmark(name, title, contenders, POINT_TARGETS)


def _rows(name: str, title: str, expected: Summary, prepare: Any, targets: dict[str, float]) -> Benchmark:
    contenders = [
        Contender(peer, expected, partial(prepare, connect, expected.rows))
        for peer, connect in ((Gmdb.name, _gmdb), (Sqlite.name, _sqlite))
    ]
    return Benchmark(name, title, contenders, targets)


def _query(name: str, title: str, lines: int, query: str, check: Callable[[int, list[tuple]], Summary]) -> Benchmark:
    """What comes of the query is compared with what comes of the data; the lines count as rows."""
    loads = ((Gmdb.name, _gmdb_lines), (Sqlite.name, _sqlite_lines), (Duckdb.name, _duckdb_lines))
    expected = Summary(lines, 0)
    contenders = [Contender(peer, expected, partial(querying, load, lines, query, check)) for peer, load in loads]
    return Benchmark(name, title, contenders, QUERY_TARGETS)


# ---- databases


def _gmdb(directory: Path) -> Any:
    return gmdb.connect(directory / "bench.gmdb")


def _sqlite(directory: Path) -> Any:
    connection = sqlite3.connect(directory / "bench.sqlite")
    connection.execute("pragma journal_mode = wal")
    return connection


def table_rows(count: int) -> list[tuple]:
    return [(i, f"number {i}", 0) for i in range(count)]


@contextmanager
def _filled(connect: Callable[[Path], Any], count: int, directory: Path) -> Iterator[Any]:
    """A database with the table and its rows, the same one in all rounds."""
    place, new = directory / "filled", not (directory / "filled").exists()
    place.mkdir(exist_ok=True)
    with closing(connect(place)) as connection:
        if new:
            connection.execute(CREATE)
            connection.executemany(INSERT, table_rows(count))
            connection.commit()
        yield connection


def _gmdb_lines(directory: Path, table: pa.Table) -> Any:
    connection = gmdb.connect(directory / "bench.gmdb")
    if not connection.tables():
        connection.execute(_create_lines())
        connection.append("lineitem", table)
        connection.commit()
        connection.checkpoint()
    return connection


def _sqlite_lines(directory: Path, table: pa.Table) -> Any:
    """Dates are texts: SQLite has none."""
    new = not (directory / "bench.sqlite").exists()
    connection = _sqlite(directory)
    if new:
        connection.execute(_create_lines())
        columns = [c.cast(pa.string()) if c.type == pa.date32() else c for c in table.columns]
        marks = ", ".join("?" * len(columns))
        rows = zip(*(column.to_pylist() for column in columns), strict=True)
        connection.executemany(f"insert into lineitem values ({marks})", rows)
        connection.commit()
    return connection


def _duckdb_lines(directory: Path, table: pa.Table) -> Any:
    new = not (directory / "bench.duckdb").exists()
    connection = duckdb.connect(str(directory / "bench.duckdb"))
    if new:
        connection.register("lines", table)
        connection.execute("create table lineitem as select * from lines")
        connection.execute("checkpoint")
    return connection


def _create_lines() -> str:
    return f"create table lineitem ({', '.join(f'{name} {type_}' for name, type_ in lineitem.COLUMNS.items())})"


# ---- the work


@contextmanager
def pointing(
    connect: Callable[[Path], Any], count: int, keys: list[int], run: Callable[[Any, list[int]], Any], directory: Path
) -> Iterator[Attempt]:
    """Statements for single rows that have been read before."""
    with _filled(connect, count, directory) as connection:
        connection.execute("update t set n = 0")
        connection.commit()
        _select(connection, keys)

        def summarize(found: list[tuple] | None) -> Summary:
            if found is None:  # what was added up, and to how many rows
                sums = connection.execute("select count(*), sum(i) from t where n = i + 1").fetchone()
                return Summary(*map(int, sums))
            right = [i for (i, s), key in zip(found, keys, strict=True) if (i, s) == (key, f"number {key}")]
            return Summary(len(right), sum(right))

        yield Attempt(partial(run, connection, keys), summarize)


def _select(connection: Any, keys: list[int]) -> list[tuple]:
    cursor = connection.cursor()
    if isinstance(connection, sqlite3.Connection):
        cursor.execute("begin")
    found = [cursor.execute(SELECT, (key,)).fetchone() for key in keys]
    connection.commit()
    return found


def _update(connection: Any, keys: list[int]) -> None:
    cursor = connection.cursor()
    for key in keys:
        cursor.execute(UPDATE, (key + 1, key))
    connection.commit()


def _insert_all(connection: Any, rows: list[tuple]) -> None:
    connection.executemany(INSERT, rows)


def _insert_each(connection: Any, rows: list[tuple]) -> None:
    cursor = connection.cursor()
    for row in rows:
        cursor.execute(INSERT, row)


@contextmanager
def entering(
    insert: Callable[[Any, list[tuple]], None], connect: Callable[[Path], Any], count: int, directory: Path
) -> Iterator[Attempt]:
    """Insert all rows into an empty table in one transaction, and have them on disk."""
    place = directory / "enter"
    place.mkdir()
    rows = table_rows(count)
    with closing(connect(place)) as connection:
        connection.execute(CREATE)
        connection.commit()

        def run() -> None:
            insert(connection, rows)
            connection.commit()

        yield Attempt(run, lambda _: Summary(*connection.execute("select count(*), sum(i) from t").fetchone()))
    shutil.rmtree(place)


entering_all, entering_each = partial(entering, _insert_all), partial(entering, _insert_each)


@contextmanager
def fetching(connect: Callable[[Path], Any], count: int, directory: Path) -> Iterator[Attempt]:
    with _filled(connect, count, directory) as connection:
        yield Attempt(
            lambda: connection.execute(EVERYTHING).fetchall(),
            lambda rows: Summary(len(rows), sum(row[0] for row in rows)),
        )


@contextmanager
def querying(
    load: Callable[[Path, pa.Table], Any],
    lines: int,
    query: str,
    check: Callable[[int, list[tuple]], Summary],
    directory: Path,
) -> Iterator[Attempt]:
    """A query over rows that have been read before."""
    with closing(load(directory, lineitem.lineitem(lines))) as connection:
        connection.execute(query).fetchall()
        yield Attempt(lambda: connection.execute(query).fetchall(), partial(check, lines))


def _counted(lines: int, found: list[tuple]) -> Summary:
    """The number of lines if query 1 counts as many as it should."""
    counted = sum(row[-1] for row in found)
    return Summary(lines if counted == lineitem.shipped_by_then(lineitem.lineitem(lines)) else counted, 0)


def _summed(lines: int, found: list[tuple]) -> Summary:
    """The number of lines if query 6 answers what it should."""
    right = lineitem.revenue(lineitem.lineitem(lines))
    return Summary(lines if abs((found[0][0] or 0.0) - right) <= 1e-9 * max(right, 1.0) else 0, 0)
