"""The tables that benchmarks work on, with the same random contents every time.

Column ``i`` counts the rows, mostly up, and is never null; its sum tells whether all rows are there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from bench.harness import Summary

NULL_SHARE = 0.1
_LETTERS = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz      ", np.uint8)
_DAY_FIRST, _DAY_LAST = 0, 20_000
_MICROSECONDS_PER_DAY = 86_400_000_000

Maker = Callable[[np.random.Generator, int], pa.Array]


@dataclass(frozen=True)
class BenchColumn:
    """A column, as gmdb and as DuckDB spell its type, and its values; SQLite needs no types."""

    name: str
    gmdb_type: str
    duckdb_type: str
    make: Maker


@dataclass(frozen=True)
class BenchTable:
    """A table and its rows."""

    name: str
    columns: tuple[BenchColumn, ...]
    row_count: int

    @cached_property
    def data(self) -> pa.Table:
        generator = np.random.default_rng(20_000_101)
        return pa.table({column.name: column.make(generator, self.row_count) for column in self.columns})

    @cached_property
    def python_rows(self) -> list[tuple]:
        """The rows as values that SQLite can store."""
        return list(zip(*(_storable(column).to_pylist() for column in self.data.columns), strict=True))

    @property
    def summary(self) -> Summary:
        return Summary(self.row_count, self.row_count * (self.row_count - 1) // 2)


def narrow_table(row_count: int) -> BenchTable:
    return BenchTable("narrow", _narrow_columns(_counted), row_count)


def shuffled_table(row_count: int) -> BenchTable:
    """The narrow table with its ``i`` in random order."""
    return BenchTable("shuffled", _narrow_columns(_shuffled), row_count)


def _narrow_columns(numbers: Maker) -> tuple[BenchColumn, ...]:
    return (
        BenchColumn("i", "INT NOT NULL", "INTEGER NOT NULL", numbers),
        BenchColumn("s", "VARCHAR(20)", "VARCHAR", _texts(4, 16, nulls=False)),
    )


def wide_table(row_count: int) -> BenchTable:
    """Twenty columns; of each but the first, a tenth is null.

    They stay the same when gmdb gets other types: figures measured before are compared with those of today.
    """
    columns = (
        BenchColumn("i", "INT NOT NULL", "INTEGER NOT NULL", _counted),
        BenchColumn("quantity", "INT", "INTEGER", _integers(pa.int32())),
        BenchColumn("customer", "BIGINT", "BIGINT", _integers(pa.int64())),
        BenchColumn("product", "BIGINT", "BIGINT", _integers(pa.int64())),
        BenchColumn("weight", "DOUBLE", "DOUBLE", _doubles),
        BenchColumn("volume", "DOUBLE", "DOUBLE", _doubles),
        BenchColumn("paid", "BOOLEAN", "BOOLEAN", _booleans),
        BenchColumn("due", "DATE", "DATE", _dates),
        BenchColumn("ordered", "TIMESTAMP", "TIMESTAMP", _timestamps),
        BenchColumn("shipped", "TIMESTAMP", "TIMESTAMP", _timestamps),
        BenchColumn("price", "DECIMAL(9,2)", "DECIMAL(9,2)", _decimals(9, 2)),
        BenchColumn("tax", "DECIMAL(18,4)", "DECIMAL(18,4)", _decimals(18, 4)),
        BenchColumn("balance", "DECIMAL(38,10)", "DECIMAL(38,10)", _decimals(38, 10)),
        BenchColumn("code", "CHAR(8)", "VARCHAR", _texts(8, 8)),
        BenchColumn("unit", "VARCHAR(4)", "VARCHAR", _texts(0, 4)),
        BenchColumn("city", "VARCHAR(20)", "VARCHAR", _texts(4, 20)),
        BenchColumn("street", "VARCHAR(60)", "VARCHAR", _texts(10, 60)),
        BenchColumn("note", "VARCHAR(200)", "VARCHAR", _texts(0, 200)),
        BenchColumn("digest", "BINARY(16)", "BLOB", _bytes(16, 16)),
        BenchColumn("picture", "VARBINARY(40)", "BLOB", _bytes(0, 40)),
    )
    return BenchTable("wide", columns, row_count)


def of_integers(columns: int, row_count: int) -> BenchTable:
    """A table of so many columns, all of them integers."""
    others = (BenchColumn(f"c{n}", "INT", "INTEGER", _integers(pa.int32())) for n in range(1, columns))
    return BenchTable("integers", (BenchColumn("i", "INT NOT NULL", "INTEGER NOT NULL", _counted), *others), row_count)


# ---- values


def _counted(_: np.random.Generator, count: int) -> pa.Array:
    return pa.array(np.arange(count, dtype=np.int32))


def _shuffled(generator: np.random.Generator, count: int) -> pa.Array:
    return pa.array(generator.permutation(count).astype(np.int32))


def _nulls(generator: np.random.Generator, count: int) -> np.ndarray:
    return generator.random(count) < NULL_SHARE


def _integers(type_: pa.DataType) -> Maker:
    limits = np.iinfo(type_.to_pandas_dtype())

    def make(generator: np.random.Generator, count: int) -> pa.Array:
        values = generator.integers(limits.min, limits.max, count, limits.dtype)
        return pa.array(values, type_, mask=_nulls(generator, count))

    return make


def _doubles(generator: np.random.Generator, count: int) -> pa.Array:
    return pa.array(generator.normal(size=count), mask=_nulls(generator, count))


def _booleans(generator: np.random.Generator, count: int) -> pa.Array:
    return pa.array(generator.random(count) < 0.5, mask=_nulls(generator, count))


def _dates(generator: np.random.Generator, count: int) -> pa.Array:
    days = generator.integers(_DAY_FIRST, _DAY_LAST, count, np.int32)
    return pa.array(days, mask=_nulls(generator, count)).cast(pa.date32())


def _timestamps(generator: np.random.Generator, count: int) -> pa.Array:
    moments = generator.integers(_DAY_FIRST, _DAY_LAST * _MICROSECONDS_PER_DAY, count, np.int64)
    return pa.array(moments, mask=_nulls(generator, count)).cast(pa.timestamp("us"))


def _decimals(precision: int, scale: int) -> Maker:
    """Decimals of about as many digits as the type has, from the two words that Arrow keeps of each."""

    def make(generator: np.random.Generator, count: int) -> pa.Array:
        words = np.empty((count, 2), np.int64)
        if precision > 18:
            limit = 10**precision >> 64
            words[:, 0] = generator.integers(np.iinfo(np.int64).min, np.iinfo(np.int64).max, count)
            words[:, 1] = generator.integers(-limit, limit, count)
        else:
            limit = 10**precision
            words[:, 0] = generator.integers(1 - limit, limit, count)
            words[:, 1] = words[:, 0] >> 63
        valid = _validity(~_nulls(generator, count))
        return pa.Array.from_buffers(pa.decimal128(precision, scale), count, [valid, pa.py_buffer(words)])

    return make


def _texts(shortest: int, longest: int, *, nulls: bool = True) -> Maker:
    def make(generator: np.random.Generator, count: int) -> pa.Array:
        return _variable(generator, count, pa.string(), shortest, longest, nulls)

    return make


def _bytes(shortest: int, longest: int) -> Maker:
    def make(generator: np.random.Generator, count: int) -> pa.Array:
        return _variable(generator, count, pa.binary(), shortest, longest, True)

    return make


def _variable(
    generator: np.random.Generator, count: int, type_: pa.DataType, shortest: int, longest: int, nulls: bool
) -> pa.Array:
    present = ~_nulls(generator, count) if nulls else np.ones(count, bool)
    lengths = generator.integers(shortest, longest, count, np.int32, endpoint=True) * present
    offsets = np.concatenate([np.zeros(1, np.int32), np.cumsum(lengths, dtype=np.int32)])
    values = np.frombuffer(generator.bytes(int(offsets[-1])), np.uint8)
    if pa.types.is_string(type_):
        values = _LETTERS[values & 31]
    buffers = [_validity(present), pa.py_buffer(offsets), pa.py_buffer(values)]
    return pa.Array.from_buffers(type_, count, buffers)


def _validity(present: np.ndarray) -> pa.Buffer | None:
    return None if present.all() else pa.py_buffer(np.packbits(present, bitorder="little"))


def _storable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Dates and timestamps as numbers, decimals as text, so that nothing is lost."""
    if pa.types.is_date32(column.type):
        return column.cast(pa.int32())
    if pa.types.is_timestamp(column.type):
        return column.cast(pa.int64())
    if pa.types.is_decimal(column.type):
        return column.cast(pa.string())
    if pa.types.is_boolean(column.type):
        return column.cast(pa.int8())
    return column
