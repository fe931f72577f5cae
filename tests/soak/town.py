"""A town whose books always balance: any instant of it can be checked without knowing what has happened.

Writers move money between accounts, and keep entries of their own, whose texts follow from their numbers and versions;
each has a line in the books that says which entries it has, changed in the same transactions.  So whoever reads all
tables of one instant, by whatever way, can tell whether it is one: money is conserved, each writer has just the
entries that its line says, and every text and file is the one that belongs to it.
Not here: who writes (owner.py), and what outlives crashes (judge.py).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

WRITERS = 6
ACCOUNTS, BALANCE = 100, 1000
ENTRIES_KEPT = 250  # of each writer: older ones are deleted
FILE_EVERY = 40  # entries between two that have a file
LOAD_ROWS = 4000  # of each load by Spark

ENTRIES = (
    "create table entries (writer int, number int, version int not null, text varchar(3000), "
    "primary key (writer, number))"
)
TABLES = (
    "create table accounts (id int primary key, balance bigint not null) with (change_feed = true)",
    "create table books (writer int primary key, steps int, low int, high int, versions bigint)",
    f"{ENTRIES} with (change_feed = true)",
    "create table files (writer int, number int, data blob, primary key (writer, number))",
    "create table loads (batch int not null, number int not null, text varchar(40))",
    "create table definitions (name varchar(30) primary key, columns int not null, lines int not null)",
    "create index entries_hashed on entries using hash (number)",
    "create index accounts_by_balance on accounts (balance, id)",
)


def text_of(writer: int, number: int, version: int) -> str:
    """The text of an entry: short ones, and now and then one that needs another page when its version changes."""
    mixed = number * 37 + version * 911 + writer * 101
    length = 1500 + mixed % 1400 if mixed % 17 == 0 else 5 + mixed % 60
    return (f"{writer}/{number}/{version};" * (length // 6 + 1))[:length]


def file_of(writer: int, number: int) -> bytes:
    dice = Random(writer * 1_000_003 + number)
    return dice.randbytes(dice.choice([100, 9_000, 40_000]))


def found(db: Any) -> None:
    """Make the town."""
    for statement in TABLES:
        db.execute(statement)
    db.executemany("insert into accounts values (?, ?)", [(k, BALANCE) for k in range(ACCOUNTS)])
    db.executemany("insert into books values (?, 0, 0, 0, 0)", [(writer,) for writer in range(WRITERS)])
    db.commit()


@dataclass
class Instant:
    """What one reader saw, as rows of columns in the tables' order; None: not read."""

    accounts: list[tuple[int, int]]
    books: list[tuple[int, int, int, int, int]]
    entries: list[tuple[int, int, int, str]]
    files: list[tuple[int, int, bytes]] | None = None

    @property
    def rows(self) -> int:
        return len(self.accounts) + len(self.books) + len(self.entries) + len(self.files or ())

    @property
    def steps(self) -> dict[int, int]:
        """How many transactions of each writer it has."""
        return {writer: steps for writer, steps, *_ in self.books}

    def complaints(self, acknowledged: Mapping[int, int]) -> list[str]:
        """What is wrong with it, if it was read after those transactions of each writer were acknowledged."""
        wrong = [*self._accounts(), *self._books(acknowledged)]
        entries: dict[int, list[tuple[int, int, str]]] = defaultdict(list)
        for writer, number, version, text in self.entries:
            entries[writer].append((number, version, text))
        files: dict[int, list[tuple[int, bytes]]] = defaultdict(list)
        for writer, number, data in self.files or ():
            files[writer].append((number, data))
        for writer, _, low, high, versions in self.books:
            wrong += [f"writer {writer}: {what}" for what in _entries(writer, entries[writer], low, high, versions)]
            if self.files is not None:
                wrong += [f"writer {writer}: {what}" for what in _files(writer, files[writer], low, high)]
        return wrong

    def _accounts(self) -> Iterable[str]:
        total = sum(int(balance) for _, balance in self.accounts)
        if sorted(k for k, _ in self.accounts) != list(range(ACCOUNTS)):
            yield f"{len(self.accounts)} accounts instead of {ACCOUNTS}"
        if total != ACCOUNTS * BALANCE:
            yield f"the accounts have {total} in all instead of {ACCOUNTS * BALANCE}"

    def _books(self, acknowledged: Mapping[int, int]) -> Iterable[str]:
        if sorted(self.steps) != list(range(WRITERS)):
            yield f"books of {sorted(self.steps)}"
        for writer, steps in self.steps.items():
            if steps < acknowledged.get(writer, 0):
                yield f"writer {writer} was told of {acknowledged[writer]} commits, and {steps} are there"


def _entries(writer: int, entries: list[tuple[int, int, str]], low: int, high: int, versions: int) -> Iterable[str]:
    numbers = sorted(number for number, *_ in entries)
    if numbers != list(range(low + 1, high + 1)):
        yield f"entries {_shortened(numbers)} instead of {low + 1} to {high}"
    if (found := sum(version for _, version, _ in entries)) != versions:
        yield f"versions add up to {found} instead of {versions}"
    for number, version, text in entries:
        if text != text_of(writer, number, version):
            yield f"entry {number}, version {version}, has the text {text[:60]!r}"


def _files(writer: int, files: list[tuple[int, bytes]], low: int, high: int) -> Iterable[str]:
    expected = [number for number in range(low + 1, high + 1) if number % FILE_EVERY == 0]
    if (numbers := sorted(number for number, _ in files)) != expected:
        yield f"files {numbers} instead of {expected}"
    for number, data in files:
        if data != file_of(writer, number):
            yield f"file {number} has other {len(data)} bytes"


def _shortened(numbers: list[int]) -> str:
    return str(numbers) if len(numbers) < 12 else f"{numbers[0]}...{numbers[-1]} ({len(numbers)})"


# ---- reading an instant in each of the ways that there are

WAYS = ("sql", "arrow", "index")


def look(db: Any, way: str, with_files: bool = False) -> Instant:
    """All tables in one transaction of a connection with repeatable reads."""
    try:
        read = {"sql": _by_sql, "arrow": _by_arrow, "index": _by_index}[way]
        instant = Instant(read(db, "accounts"), read(db, "books"), read(db, "entries"))
        if with_files:
            instant.files = [tuple(row) for row in db.execute("select writer, number, data from files").fetchall()]
        return instant
    finally:
        db.rollback()


def _by_sql(db: Any, table: str) -> list[Any]:
    return list(db.execute(f"select * from {table}").fetchall())


def _by_arrow(db: Any, table: str) -> list[Any]:
    return rows_of(db.arrow(table).read_all())


def rows_of(table: Any) -> list[Any]:
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


_INDEXES = {"accounts": "accounts_by_balance", "books": "books_pkey", "entries": "entries_pkey"}


def _by_index(db: Any, table: str) -> list[Any]:
    """Row by row in the order of an index."""
    return [values for _, values in db.select(table, by=_INDEXES[table]).rows()]
