"""Rows by their keys: found one by one and by ranges, entered in random order, indexed when they are there already.

SQLite keeps its rows in the order of an integer primary key and needs no index for it, which is the fastest that it
has; only ``create-index`` makes it an index beside the table.  Its log is written ahead, as gmdb's is.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import gmdb
from bench.harness import Attempt, Benchmark, Contender, Summary
from bench.peers import Gmdb, Sqlite, rows_of_arrow, summarize_arrow
from bench.tables import BenchTable, narrow_table, shuffled_table

TABLE_SHARE = 10  # rows are looked up in a table of a tenth of those that are moved in bulk
LOOKUP_SHARE = 100
RANGE_SHARE = 50
INSERT_SHARE = 5
LOOKUP_TARGETS = {Sqlite.name: 1.0}
RANGE_TARGETS = {Sqlite.name: 5.0}
INSERT_TARGETS = {Sqlite.name: 1.0}
CREATE_TARGETS = {Sqlite.name: 2.0}
INDEX = "by_i"
_BATCH_ROWS = 100_000


def benchmarks(rows: int) -> list[Benchmark]:
    return [
        _lookup(narrow_table(_share(rows, TABLE_SHARE)), _share(rows, LOOKUP_SHARE)),
        _range(_share(rows, TABLE_SHARE), _share(rows, RANGE_SHARE)),
        _random_insert(shuffled_table(_share(rows, INSERT_SHARE))),
        _create_index(shuffled_table(rows)),
    ]


def _share(rows: int, share: int) -> int:
    return max(rows // share, 1)


def _lookup(table: BenchTable, count: int) -> Benchmark:
    keys = random_keys(np.random.default_rng(20_000_101), table.row_count, count)
    entered = {Gmdb.name: IndexedGmdb, f"{Gmdb.name}, hash index": HashedGmdb, Sqlite.name: KeyedSqlite}
    expected = Summary(len(keys), sum(keys))
    contenders = [Contender(name, expected, partial(finding, peer, table, keys)) for name, peer in entered.items()]
    return Benchmark("lookup", f"find {len(keys):,} of {table.row_count:,} rows by key", contenders, LOOKUP_TARGETS)


def _range(row_count: int, count: int) -> Benchmark:
    """gmdb's rows in random order come first: the target is for them, which are harder to get by key."""
    low = (row_count - count) // 2
    high = low + count
    entered = {
        Gmdb.name: (IndexedGmdb, shuffled_table(row_count)),
        f"{Gmdb.name}, rows in order": (IndexedGmdb, narrow_table(row_count)),
        Sqlite.name: (KeyedSqlite, shuffled_table(row_count)),
    }
    expected = Summary(count, sum(range(low, high)))
    contenders = [
        Contender(name, expected, partial(ranging, peer, table, low, high)) for name, (peer, table) in entered.items()
    ]
    title = f"{count:,} rows in random order, by a range of keys to Arrow"
    return Benchmark("range", title, contenders, RANGE_TARGETS)


def _random_insert(table: BenchTable) -> Benchmark:
    entered = {Gmdb.name: IndexedGmdb, Sqlite.name: KeyedSqlite}
    contenders = [Contender(name, table.summary, partial(inserting, peer, table)) for name, peer in entered.items()]
    title = f"append {table.row_count:,} rows with keys in random order to an indexed table"
    return Benchmark("random-insert", title, contenders, INSERT_TARGETS)


def _create_index(table: BenchTable) -> Benchmark:
    entered = {Gmdb.name: GmdbWithDuplicates, Sqlite.name: IndexedSqlite}
    contenders = [Contender(name, table.summary, partial(indexing, peer, table)) for name, peer in entered.items()]
    title = f"index {table.row_count:,} rows in random order"
    return Benchmark("create-index", title, contenders, CREATE_TARGETS)


def random_keys(generator: np.random.Generator, row_count: int, count: int) -> list[int]:
    """Keys of a table of so many rows, in random order, none of them twice."""
    return generator.choice(row_count, min(count, row_count), replace=False).tolist()


# ---- databases with indexes


class IndexedGmdb(Gmdb):
    """gmdb with an index on ``i``."""

    using, unique = "btree", True

    def create(self) -> None:
        super().create()
        self.add_index()

    def load(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Make the table, append the rows, then index them; nothing is left to be written later."""
        super().create()
        self.db.append(self.table.name, batches)
        self.add_index()
        self.db.checkpoint()

    def add_index(self) -> None:
        self.db.create_index(INDEX, self.table.name, ["i"], unique=self.unique, using=self.using)
        self.db.commit()

    def drop_index(self) -> None:
        """Leave nothing of the index, nor work on its remains."""
        self.db.drop_index(INDEX)
        self.db.commit()
        self.db.gc()
        self.db.checkpoint()

    def find(self, keys: Sequence[int]) -> list:
        find = self.db.heap(self.table.name).by(INDEX).find
        return [find((key,)) for key in keys]

    def rows_found(self, found: list) -> list[tuple]:
        return [row for rows in found for _, row in rows]

    def find_range(self, low: int, high: int) -> pa.Table:
        keys = gmdb.KeyRange((low,), (high,), high_open=True)
        return self.db.select(self.table.name, by=INDEX, keys=keys).arrow().read_all()

    def summarize_index(self) -> Summary:
        return summarize_arrow(self.db.select(self.table.name, ["i"], by=INDEX).arrow().read_all())


class HashedGmdb(IndexedGmdb):
    using = "hash"


class GmdbWithDuplicates(IndexedGmdb):
    """The index would take a key twice."""

    unique = False


class KeyedSqlite(Sqlite):
    """SQLite with rows in the order of ``i``."""

    key_type = "integer primary key"

    def create(self) -> None:
        first, *others = (column.name for column in self.table.columns)
        self.connection.execute("pragma journal_mode = wal")
        with self.connection:
            self.connection.execute(f"create table {self.table.name} ({first} {self.key_type}, {', '.join(others)})")

    def load(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Make the table and insert the rows, which are never all in Python at a time; nothing stays in the log."""
        self.create()
        rows = (row for batch in batches for row in rows_of_arrow(batch))
        with self.connection:
            self.connection.executemany(f"insert into {self.table.name} values (?, ?)", rows)
        self._checkpoint()

    def _checkpoint(self) -> None:
        self.connection.execute("pragma wal_checkpoint(truncate)")

    def find(self, keys: Sequence[int]) -> list:
        select = f"select * from {self.table.name} where i = ?"
        with self.connection as connection:
            connection.execute("begin")  # else every select locks the file anew
            return [connection.execute(select, (key,)).fetchone() for key in keys]

    def rows_found(self, found: list) -> list[tuple]:
        return [row for row in found if row is not None]

    def find_range(self, low: int, high: int) -> pa.Table:
        select = f"select * from {self.table.name} where i >= ? and i < ?"
        columns = zip(*self.connection.execute(select, (low, high)).fetchall(), strict=True)
        schema = self.table.data.schema
        return pa.table([pa.array(*typed) for typed in zip(columns, schema.types, strict=True)], schema=schema)


class IndexedSqlite(KeyedSqlite):
    """SQLite with rows in the order in which they came, and an index on ``i``."""

    key_type = "integer"

    def load(self, batches: Iterable[pa.RecordBatch]) -> None:
        super().load(batches)
        self.add_index()

    def add_index(self) -> None:
        with self.connection:
            self.connection.execute(f"create index {INDEX} on {self.table.name} (i)")

    def drop_index(self) -> None:
        with self.connection:
            self.connection.execute(f"drop index {INDEX}")
        self._checkpoint()

    def summarize_index(self) -> Summary:
        select = f"select count(*), sum(i) from {self.table.name} indexed by {INDEX}"
        return Summary(*self.connection.execute(select).fetchone())


Indexed = IndexedGmdb | KeyedSqlite


@contextmanager
def loaded(peer: type[Any], table: BenchTable, directory: Path) -> Iterator[Any]:
    """A database with the table's rows and its index, the same one in all rounds."""
    place, new = directory / "loaded", not (directory / "loaded").exists()
    place.mkdir(exist_ok=True)
    with closing(peer(place, table)) as opened:
        if new:
            opened.load(table.data.to_batches(max_chunksize=_BATCH_ROWS))
        yield opened


# ---- the work


@contextmanager
def finding(peer: type[Indexed], table: BenchTable, keys: list[int], directory: Path) -> Iterator[Attempt]:
    """Find rows that have been found before, one by one."""
    wanted = rows_of_arrow(table.data.take(pa.array(keys)))
    with loaded(peer, table, directory) as opened:
        opened.find(keys)
        yield Attempt(partial(opened.find, keys), lambda found: summarize_found(wanted, opened.rows_found(found)))


def summarize_found(wanted: list[tuple], found: list[tuple]) -> Summary:
    """The rows that were found where they were wanted; others do not count."""
    right = [row[0] for row, other in zip(found, wanted, strict=False) if row == other]
    return Summary(len(right), sum(right))


@contextmanager
def ranging(peer: type[Indexed], table: BenchTable, low: int, high: int, directory: Path) -> Iterator[Attempt]:
    """Read the rows from one key to another when they have been read before."""
    with loaded(peer, table, directory) as opened:
        opened.find_range(low, high)
        yield Attempt(partial(opened.find_range, low, high), summarize_arrow)


@contextmanager
def inserting(peer: type[Indexed], table: BenchTable, directory: Path) -> Iterator[Attempt]:
    """Append all rows to an empty table in one transaction, and have them on disk."""
    place = directory / "insert"
    place.mkdir()
    _ = table.python_rows if issubclass(peer, Sqlite) else table.data
    with closing(peer(place, table)) as opened:
        opened.create()
        yield Attempt(opened.append, lambda _: summarize_arrow(opened.find_range(0, table.row_count)))
    shutil.rmtree(place)


@contextmanager
def indexing(
    peer: type[GmdbWithDuplicates] | type[IndexedSqlite], table: BenchTable, directory: Path
) -> Iterator[Attempt]:
    """Index rows that have been read before."""
    with loaded(peer, table, directory) as opened:
        opened.summarize_index()
        opened.drop_index()
        yield Attempt(opened.add_index, lambda _: opened.summarize_index())
