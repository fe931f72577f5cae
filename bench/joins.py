"""Statements that find few rows among many: joins, subqueries, extremes, the first rows in an order, changes.

Parents have ten children each, found by an index on ``p_i``, and kinds are a third table, which children name by its
key.  All values follow from the keys, so every answer is known; which rows belong together is scattered over the
tables.  SQLite has the same indexes, keeps its rows in the order of their integer keys, and reads in a transaction.
"""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import gmdb
from bench.harness import Attempt, Benchmark, Contender, Summary
from bench.indexes import random_keys
from bench.peers import Gmdb, Sqlite

TABLE_SHARE = 5  # of the rows that are moved in bulk: children
STATEMENTS_SHARE = 2500
CHILDREN, KINDS, VALUES = 10, 50, 1000
TARGETS = {Sqlite.name: 0.3}
TABLES = (
    "create table p (i integer primary key, g integer, s varchar(20))",
    "create table c (k integer primary key, p_i integer, m_i integer, n integer, x integer)",
    "create table m (i integer primary key, s varchar(20))",
)
INDEXES = ("create index c_p on c (p_i)", "create index c_n on c (n, k)", "create index p_g on p (g)")
Row = tuple[Any, ...]


@dataclass(frozen=True)
class Family:
    """The tables' contents: ``step`` scatters the children of a parent."""

    children: int

    @property
    def parents(self) -> int:
        return max(self.children // CHILDREN, 1)

    @property
    def step(self) -> int:
        return next(prime for prime in (7919, 7907, 7901) if self.parents % prime)

    def parent(self, k: int) -> int:
        return k * self.step % self.parents

    def keys(self, parent: int) -> list[int]:
        """The children of a parent."""
        first = parent * pow(self.step, -1, self.parents) % self.parents
        return list(range(first, self.children, self.parents))

    def child(self, k: int) -> Row:
        return k, self.parent(k), k % KINDS, k % VALUES, 0

    def columns(self) -> dict[str, pa.Table]:
        keys = np.arange(self.children, dtype=np.int64)
        parents = np.arange(self.parents, dtype=np.int64)
        columns = (keys, keys * self.step % self.parents, keys % KINDS, keys % VALUES, keys * 0)
        texts = pa.array([f"parent {i}" for i in range(self.parents)])
        kinds = pa.array([f"kind {i}" for i in range(KINDS)])
        return {
            "p": pa.table([_integers(parents), _integers(parents // 10), texts], ["i", "g", "s"]),
            "c": pa.table([_integers(column) for column in columns], ["k", "p_i", "m_i", "n", "x"]),
            "m": pa.table([_integers(np.arange(KINDS)), kinds], ["i", "s"]),
        }


def _integers(values: np.ndarray) -> pa.Array:
    return pa.array(values.astype(np.int32))


@dataclass(frozen=True)
class Work:
    """A statement, and for the key of a child its parameters and its rows; a change tells a number of rows."""

    name: str
    title: str
    text: str
    parameters: Callable[[Family, int], Row]
    rows: Callable[[Family, int], list[Row] | int]


def _values_of(family: Family, parent: int) -> list[int]:
    return [k % VALUES for k in family.keys(parent)]


def _ten(family: Family, k: int) -> range:
    """Ten parents one behind the other."""
    first = family.parent(k)
    return range(first, min(first + 10, family.parents))


def _first_by_value(family: Family, k: int) -> list[Row]:
    """The first 20 children whose ``n`` is at least that of ``k``, by ``n`` and key."""
    rows: list[Row] = []
    for value in range(k % VALUES, VALUES):
        rows += [(key, value) for key in range(value, family.children, VALUES)][: 20 - len(rows)]
        if len(rows) == 20:
            break
    return rows


WORKS = (
    Work(
        "join-key", "join two tables by key",
        "select p.s, c.n from c join p on p.i = c.p_i where c.k = ?",
        lambda _, k: (k,), lambda family, k: [(f"parent {family.parent(k)}", k % VALUES)],
    ),
    Work(
        "join-three", "join three tables by key",
        "select p.s, m.s, c.n from c join p on p.i = c.p_i join m on m.i = c.m_i where c.k = ?",
        lambda _, k: (k,), lambda family, k: [(f"parent {family.parent(k)}", f"kind {k % KINDS}", k % VALUES)],
    ),
    Work(
        "join-children", "join a row to its ten children",
        "select c.k, c.n from p join c on c.p_i = p.i where p.i = ?",
        lambda family, k: (family.parent(k),),
        lambda family, k: [(key, key % VALUES) for key in family.keys(family.parent(k))],
    ),
    Work(
        "exists", "ten rows that have a child (exists)",
        "select p.i from p where p.i between ? and ? and exists (select 1 from c where c.p_i = p.i and c.n < ?)",
        lambda family, k: (family.parent(k), family.parent(k) + 9, VALUES // 2),
        lambda family, k: [(i,) for i in _ten(family, k) if min(_values_of(family, i)) < VALUES // 2],
    ),
    Work(
        "not-exists", "ten rows that have no child (not exists)",
        "select p.i from p where p.i between ? and ? and not exists (select 1 from c where c.p_i = p.i and c.n < ?)",
        lambda family, k: (family.parent(k), family.parent(k) + 9, VALUES // 20),
        lambda family, k: [(i,) for i in _ten(family, k) if min(_values_of(family, i)) >= VALUES // 20],
    ),
    Work(
        "in-subquery", "the parents of ten children (in)",
        "select p.i, p.s from p where p.i in (select c.p_i from c where c.k between ? and ?)",
        lambda _, k: (k, k + 9),
        lambda family, k: [
            (i, f"parent {i}") for i in {family.parent(key) for key in range(k, min(k + 10, family.children))}
        ],
    ),
    Work(
        "scalar-subquery", "a row with the greatest value of its children",
        "select p.i, (select max(c.n) from c where c.p_i = p.i) from p where p.i = ?",
        lambda family, k: (family.parent(k),),
        lambda family, k: [(family.parent(k), max(_values_of(family, family.parent(k))))],
    ),
    Work(
        "max-key", "the greatest key", "select max(k) from c", lambda _family, _k: (),
        lambda family, _: [(family.children - 1,)],
    ),
    Work(
        "or-keys", "two rows by key (or)",
        "select n from c where k = ? or k = ?",
        lambda family, k: (k, family.children - 1 - k),
        lambda family, k: [(key % VALUES,) for key in {k, family.children - 1 - k}],
    ),
    Work(
        "order-limit", "the first twenty in the order of an index",
        "select k, n from c where n >= ? order by n, k limit 20",
        lambda _, k: (k % VALUES,), _first_by_value,
    ),
    Work(
        "group-range", "a hundred rows of a range of an index in ten groups",
        "select p_i, count(*), sum(n) from c where p_i between ? and ? group by p_i",
        lambda family, k: (family.parent(k), family.parent(k) + 9),
        lambda family, k: [(i, len(family.keys(i)), sum(_values_of(family, i))) for i in _ten(family, k)],
    ),
    Work(
        "update-subquery", "update the ten children of a row (in)",
        "update c set x = x + 1 where p_i in (select i from p where i = ?)",
        lambda family, k: (family.parent(k),), lambda family, k: len(family.keys(family.parent(k))),
    ),
    Work(
        "delete-subquery", "delete a row that has a parent (exists)",
        "delete from c where k = ? and exists (select 1 from p where p.i = c.p_i)",
        lambda _, k: (k,), lambda _family, _k: 1,
    ),
)  # fmt: skip


def benchmarks(rows: int) -> list[Benchmark]:
    return [benchmark(work, max(rows // TABLE_SHARE, CHILDREN), max(rows // STATEMENTS_SHARE, 1)) for work in WORKS]


def benchmark(work: Work, children: int, statements: int) -> Benchmark:
    """So many statements, each for another key."""
    keys = random_keys(np.random.default_rng(20_000_101), children, statements)
    expected = Summary(len(keys), 0)
    contenders = [
        Contender(peer, expected, partial(asking, connect, work, Family(children), keys))
        for peer, connect in ((Gmdb.name, _gmdb), (Sqlite.name, _sqlite))
    ]
    title = f"{work.title}: {len(keys):,} statements over {children:,} rows"
    return Benchmark(work.name, title, contenders, TARGETS)


# ---- databases, which all works share


@cache
def _place() -> tempfile.TemporaryDirectory[str]:
    """Where they lie until the process ends."""
    return tempfile.TemporaryDirectory(prefix="gmdb-bench-joins-")


@cache
def _filled(peer: str, family: Family) -> Path:
    path = Path(_place().name) / f"{family.children}.{peer}"
    connection: Any = gmdb.connect(path) if peer == Gmdb.name else sqlite3.connect(path)
    with closing(connection):
        for text in TABLES:
            connection.execute(text)
        for name, table in family.columns().items():
            if peer == Gmdb.name:
                connection.append(name, table)
            else:
                rows = zip(*(column.to_pylist() for column in table.columns), strict=True)
                connection.executemany(f"insert into {name} values ({', '.join('?' * table.num_columns)})", rows)
        for text in (*INDEXES, "analyze"):
            connection.execute(text)
        connection.commit()
        if peer == Gmdb.name:
            connection.checkpoint()
    return path


def _gmdb(family: Family) -> Any:
    return gmdb.connect(_filled(Gmdb.name, family))


def _sqlite(family: Family) -> Any:
    connection = sqlite3.connect(_filled(Sqlite.name, family))
    connection.execute("pragma journal_mode = wal")
    return connection


# ---- the work


@contextmanager
def asking(
    connect: Callable[[Family], Any], work: Work, family: Family, keys: Sequence[int], _: Path
) -> Iterator[Attempt]:
    """Statements that have been asked before; what they changed is taken back."""
    given = [work.parameters(family, k) for k in keys]
    with closing(connect(family)) as connection:
        cursor = connection.cursor()
        _ask(cursor, work, given)
        connection.rollback()
        if isinstance(connection, sqlite3.Connection):
            cursor.execute("begin")
        yield Attempt(partial(_ask, cursor, work, given), partial(_right, work, family, keys))
        connection.rollback()


def _ask(cursor: Any, work: Work, given: Sequence[Row]) -> list[Any]:
    if work.text.startswith("select"):
        return [cursor.execute(work.text, parameters).fetchall() for parameters in given]
    return [cursor.execute(work.text, parameters).rowcount for parameters in given]


def _right(work: Work, family: Family, keys: Sequence[int], found: Sequence[Any]) -> Summary:
    """How many answers are right; all, and those of none else, are to be."""
    right = 0
    for k, rows in zip(keys, found, strict=True):
        expected = work.rows(family, k)
        is_ordered = "order by" in work.text
        right += rows == expected if isinstance(expected, int) or is_ordered else sorted(rows) == sorted(expected)
    return Summary(right, 0)
