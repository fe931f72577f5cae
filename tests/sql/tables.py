"""Arrow tables as a query's sources, and the same rows as SQL."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta
from decimal import Decimal
from random import Random
from typing import Any
from uuid import UUID

import pyarrow as pa

from gmdb.format.columns import Column, ColumnType, parse_column
from gmdb.format.interval import Interval
from gmdb.tables.arrow.arrow_types import arrow_schema


class ArrowSource:
    """A table in memory; remembers what was read of it, and whether its readers were closed."""

    def __init__(self, columns: dict[str, str], rows: list[tuple[Any, ...]], batch_rows: int = 3) -> None:
        self.columns = [parse_column(name, spelling) for name, spelling in columns.items()]
        values = [list(column) for column in zip(*rows, strict=True)] or [[] for _ in self.columns]
        schema = arrow_schema(self.columns)
        arrays = [
            pa.array([pad(column.type, value) for value in items], field.type)
            for column, items, field in zip(self.columns, values, schema, strict=True)
        ]
        self.table = pa.Table.from_arrays(arrays, schema=schema)
        self.batch_rows = batch_rows
        self.asked: list[list[str] | None] = []
        self.open = 0

    def read(self, columns: list[str] | None) -> Any:
        self.asked.append(columns)
        return _Reader(self, self.table if columns is None else self.table.select(columns))


class _Reader:
    """A reader that tells its source when it is closed."""

    def __init__(self, source: ArrowSource, table: pa.Table) -> None:
        self._source = source
        self._batches = table.to_batches(source.batch_rows)
        source.open += 1

    def __iter__(self) -> Any:
        return iter(self._batches)

    def close(self) -> None:
        self._source.open -= 1


def pad(type_: ColumnType, value: Any) -> Any:
    return value.ljust(type_.length) if type_.name == "CHAR" and value is not None else value


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    """A table's rows as tuples, also when two columns have the same name."""
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True)) if table.num_columns else []


def literal(value: Any) -> str:
    """A value as PostgreSQL reads it."""
    if value is None:
        return "NULL"
    if isinstance(value, bytes):
        return f"'\\x{value.hex()}'"
    if isinstance(value, str | date | time | datetime | float | Interval | UUID):
        return "'" + str(value).replace("'", "''") + "'"
    return str(value)


def create_statements(name: str, columns: list[Column], rows: list[tuple[Any, ...]]) -> str:
    """PostgreSQL's statements that make the same table."""
    names = {"DOUBLE": "double precision", "VARBINARY": "bytea", "BINARY": "bytea"}
    listed = ", ".join(f"{column.name} {names.get(column.type.name, str(column.type))}" for column in columns)
    values = ", ".join(f"({', '.join(map(literal, row))})" for row in rows)
    return f"CREATE TABLE {name} ({listed}); INSERT INTO {name} VALUES {values};"


COLUMNS = {
    "i": "int",
    "j": "int",
    "b": "bigint",
    "n": "decimal(9,2)",
    "m": "decimal(15,4)",
    "x": "double",
    "s": "varchar(20)",
    "u": "varchar(20)",
    "c": "char(4)",
    "d": "date",
    "t": "timestamp",
    "f": "boolean",
    "y": "varbinary(8)",
}
_WORDS = [
    "",
    "a",
    "A",
    "b",
    "ab",
    "abc",
    "Abc",
    "a b",
    "ä",
    "äöü",
    "Zebra",
    "zebra",
    "50%",
    "x_y",
    "it's",
    "  lead",
    "0",
]


def random_rows(random: Random, count: int) -> list[tuple[Any, ...]]:
    """Rows with many equal values and NULLs."""
    start = date(2020, 1, 28)

    def some(value: Any) -> Any:
        return None if random.random() < 0.15 else value

    def row() -> tuple[Any, ...]:
        return (
            some(random.randint(-5, 9)),
            some(random.choice([0, 1, 2, 3, 1000, -70000])),
            some(random.choice([0, 1, -1, 7, 10**10, -(10**12) + 3])),
            some(Decimal(random.randint(-999, 999)).scaleb(-2)),
            some(Decimal(random.randint(-(10**9), 10**9)).scaleb(-4)),
            some(random.choice([0.0, 0.5, -1.25, 3.0, 1e10, 0.1, 2.5, -2.5, 1 / 3])),
            some(random.choice(_WORDS)),
            some(random.choice(_WORDS)),
            some(random.choice(["a", "ab", "abcd", "", "b", "A"])),
            some(start + timedelta(days=random.randint(0, 40))),
            some(datetime(2020, 2, 27, 23, 59, 58) + timedelta(microseconds=random.randint(0, 4 * 86400) * 500_001)),
            some(random.random() < 0.5),
            some(random.choice([b"", b"\x00", b"ab", b"\xff\x01"])),
        )

    return [row() for _ in range(count)]
