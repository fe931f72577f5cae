"""The peers and gmdb itself, each with a database on disk and its usual way to move many rows."""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

import gmdb
from bench.harness import Summary
from bench.tables import BenchTable


class Peer(ABC):
    """A database with one table, ``table.name``, in a directory of its own."""

    name: str

    def __init__(self, directory: Path, table: BenchTable) -> None:
        self.directory = directory
        self.table = table

    @abstractmethod
    def create(self) -> None:
        """Make the table."""

    @abstractmethod
    def append(self) -> None:
        """Add all rows of the table's data, and have them on disk."""

    @abstractmethod
    def scan(self) -> Any:
        """All rows, in the form in which a program gets many of them."""

    @abstractmethod
    def summarize(self, scanned: Any) -> Summary:
        """What ``scan`` answered, summarized."""

    @abstractmethod
    def python_rows(self, scanned: Any) -> list[tuple]:
        """What ``scan`` answered, as tuples."""

    @abstractmethod
    def close(self) -> None: ...


def summarize_arrow(table: pa.Table) -> Summary:
    return Summary(table.num_rows, pc.sum(table["i"]).as_py())


def rows_of_arrow(table: pa.Table) -> list[tuple]:
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


class Gmdb(Peer):
    name = "gmdb"

    def __init__(self, directory: Path, table: BenchTable) -> None:
        super().__init__(directory, table)
        self.db = gmdb.connect(directory / "bench.gmdb")

    def create(self) -> None:
        self.db.create_table(self.table.name, {c.name: c.gmdb_type for c in self.table.columns})
        self.db.commit()
        self.db.checkpoint()

    def append(self) -> None:
        self.db.append(self.table.name, self.table.data)
        self.save()

    def save(self) -> None:
        """Commit: that has it on disk."""
        self.db.commit()

    def scan(self) -> pa.Table:
        return self.db.arrow(self.table.name).read_all()

    def summarize(self, scanned: pa.Table) -> Summary:
        return summarize_arrow(scanned)

    def python_rows(self, scanned: pa.Table) -> list[tuple]:
        return rows_of_arrow(scanned)

    def close(self) -> None:
        self.db.close()


class Sqlite(Peer):
    name = "SQLite"

    def __init__(self, directory: Path, table: BenchTable) -> None:
        super().__init__(directory, table)
        self.connection = sqlite3.connect(directory / "bench.sqlite")

    def create(self) -> None:
        with self.connection:
            self.connection.execute(f"create table {self.table.name} ({', '.join(c.name for c in self.table.columns)})")

    def append(self) -> None:
        marks = ", ".join("?" * len(self.table.columns))
        with self.connection:
            self.connection.executemany(f"insert into {self.table.name} values ({marks})", self.table.python_rows)

    def scan(self) -> list[tuple]:
        return self.connection.execute(f"select * from {self.table.name}").fetchall()

    def summarize(self, scanned: list[tuple]) -> Summary:
        return Summary(len(scanned), sum(row[0] for row in scanned))

    def python_rows(self, scanned: list[tuple]) -> list[tuple]:
        return scanned

    def close(self) -> None:
        self.connection.close()


class Duckdb(Peer):
    name = "DuckDB"

    def __init__(self, directory: Path, table: BenchTable) -> None:
        super().__init__(directory, table)
        self.connection = duckdb.connect(str(directory / "bench.duckdb"))

    def create(self) -> None:
        columns = ", ".join(f"{c.name} {c.duckdb_type}" for c in self.table.columns)
        self.connection.execute(f"create table {self.table.name} ({columns})")
        self.connection.execute("checkpoint")

    def append(self) -> None:
        self.connection.register("arrow_data", self.table.data)
        self.connection.execute(f"insert into {self.table.name} select * from arrow_data")
        self.connection.execute("checkpoint")

    def scan(self) -> pa.Table:
        return self.connection.sql(f"select * from {self.table.name}").to_arrow_table()

    def summarize(self, scanned: pa.Table) -> Summary:
        return summarize_arrow(scanned)

    def python_rows(self, scanned: pa.Table) -> list[tuple]:
        return rows_of_arrow(scanned)

    def close(self) -> None:
        self.connection.close()


def fill(peer: type[Peer], directory: Path, table: BenchTable) -> None:
    """Leave a database with the table and its rows in ``directory``."""
    directory.mkdir()
    with closing(peer(directory, table)) as opened:
        opened.create()
        opened.append()
