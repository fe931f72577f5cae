"""Starts: a fresh process that does one small thing, and ends.

The interpreter's own start counts, as it does for whoever waits.  SQLite comes with Python and is one small library: it
shows how little a start can be.
"""

from __future__ import annotations

import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import duckdb

import gmdb
from bench.harness import Attempt, Benchmark, Contender, Summary
from bench.peers import Duckdb, Gmdb, Sqlite
from gmdb.format.address import parse_page_id

ROUNDS = 20
ROWS = 1000
KEY = 7
PAGE = "4:4"  # has rows of the table
TARGETS = {Duckdb.name: 0.67}  # one and a half times its time
PAGE_SECONDS = 0.12
LIBRARIES: dict[str, Any] = {Gmdb.name: gmdb, Sqlite.name: sqlite3, Duckdb.name: duckdb}

_CODE = """
import {library}, sys
connection = {library}.connect(sys.argv[1])
print(*connection.execute("{statement}", {parameters}).fetchone())
connection.close()
"""
_BY_KEY = ("select id from item where id = ?", (KEY,))
_ONE = ("select 1", ())
_SQL = ["-m", "gmdb.cli", "sql", "--output", "csv", "-c", "select 1"]
_GMSTAT = "from gmdb.cli import gmstat; raise SystemExit(gmstat())"
_DRAWN = re.compile(r"page \S+ \((\d+)\): heap page")

Command = Callable[[Path], list[str]]  # the interpreter's arguments, given the database


def benchmarks(_: int) -> list[Benchmark]:
    """The database is small, and always the same."""
    by_key = [_contender(name, KEY, partial(_statement, name, *_BY_KEY)) for name in LIBRARIES]
    one = [
        _contender(
            Gmdb.name, 1, lambda path: ["-m", "gmdb.cli", "sql", str(path), "--output", "csv", "-c", "select 1"]
        ),
        *(_contender(name, 1, partial(_statement, name, *_ONE)) for name in (Sqlite.name, Duckdb.name)),
    ]
    page = [_contender(Gmdb.name, parse_page_id(PAGE), lambda path: ["-c", _GMSTAT, "page", str(path), PAGE])]
    return [
        Benchmark("start-by-key", "start: import, connect, select a row by its key", by_key, TARGETS, ROUNDS),
        Benchmark("start-sql", 'start: `gmdb sql -c "select 1"`', one, TARGETS, ROUNDS),
        Benchmark("start-page", "start: `gmstat page`", page, {}, ROUNDS, PAGE_SECONDS),
    ]


def _statement(name: str, statement: str, parameters: tuple[Any, ...], path: Path) -> list[str]:
    code = _CODE.format(library=LIBRARIES[name].__name__, statement=statement, parameters=parameters)
    return ["-c", code, str(path)]


def _contender(name: str, answer: int, command: Command) -> Contender:
    return Contender(name, Summary(1, answer), partial(starting, LIBRARIES[name], command))


@contextmanager
def starting(library: Any, command: Command, directory: Path) -> Iterator[Attempt]:
    """A process that prints the answer."""
    path = directory / f"shop.{library.__name__}"
    if not path.exists():
        _fill(library, path)
    yield Attempt(partial(_run, command(path)), _summarize)


def _fill(library: Any, path: Path) -> None:
    connection = library.connect(str(path))
    connection.execute("create table item (id int primary key, label varchar(20))")
    connection.executemany("insert into item values (?, ?)", [(n, f"item {n}") for n in range(ROWS)])
    connection.commit()
    connection.close()


def _run(arguments: Sequence[str]) -> str:
    return subprocess.run([sys.executable, *arguments], check=True, capture_output=True, text=True).stdout


def _summarize(printed: str) -> Summary:
    """The number that was printed last, or that of the page that was drawn."""
    drawn = _DRAWN.match(printed)
    return Summary(1, int(drawn[1] if drawn is not None else printed.split()[-1]))
