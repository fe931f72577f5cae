"""The rows that Spark reads and loads, with the same random contents every time; the source is a folder of Parquet.

Sums over the columns are exact, doubles included, so that every contender can be held to them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import gmdb
from bench.harness import Summary

TABLE = "orders"
KEY = "i"  # counts the rows
GMDB_COLUMNS = {
    "i": "INT NOT NULL",
    "customer": "BIGINT",
    "weight": "DOUBLE",
    "price": "DECIMAL(12,2)",
    "due": "DATE",
    "city": "VARCHAR(20)",
}
POSTGRES_COLUMNS = {**{name: type_.lower() for name, type_ in GMDB_COLUMNS.items()}, "weight": "double precision"}
DIGEST = (
    "count(i)",
    "sum(i)",
    "sum(customer)",
    "sum(weight)",
    "sum(price)",
    "sum(unix_date(due))",
    "sum(length(city))",
)
BATCH_ROWS = 1_000_000
_LETTERS = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz      ", np.uint8)


@dataclass(frozen=True)
class Source:
    """A folder of Parquet files, and what is in it."""

    folder: Path
    digest: Summary  # of all columns
    keys: Summary  # of the key alone

    @property
    def rows(self) -> int:
        return self.keys.rows


def batches(rows: int) -> Iterator[pa.RecordBatch]:
    for first in range(0, rows, BATCH_ROWS):
        yield _batch(first, min(BATCH_ROWS, rows - first))


def _batch(first: int, count: int) -> pa.RecordBatch:
    generator = np.random.default_rng(20_000_101 + first)
    cents = np.zeros((count, 2), np.int64)  # Arrow keeps two words of each decimal
    cents[:, 0] = generator.integers(0, 10**9, count)
    ends = np.cumsum(generator.integers(4, 20, count, np.int32, endpoint=True), dtype=np.int32)
    letters = _LETTERS[generator.integers(0, len(_LETTERS), int(ends[-1]))]
    offsets = np.concatenate([np.zeros(1, np.int32), ends])
    columns = [
        pa.array(np.arange(first, first + count, dtype=np.int32)),
        pa.array(generator.integers(0, 10**9, count)),
        pa.array(generator.integers(0, 1 << 26, count) / 8),  # eighths: no sum of them is rounded
        pa.Array.from_buffers(pa.decimal128(12, 2), count, [None, pa.py_buffer(cents)]),
        pa.array(generator.integers(0, 20_000, count, np.int32)).cast(pa.date32()),
        pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(offsets), pa.py_buffer(letters)]),
    ]
    return pa.record_batch(columns, names=list(GMDB_COLUMNS))


def write_source(folder: Path, rows: int) -> Source:
    folder.mkdir(parents=True)
    total = 0
    for number, batch in enumerate(batches(rows)):
        pq.write_table(pa.Table.from_batches([batch]), folder / f"{number:05}.parquet", compression="snappy")
        total += digest_of_arrow(batch).total
    return Source(folder, Summary(rows, total), keys_of(rows))


def keys_of(rows: int) -> Summary:
    return Summary(rows, rows * (rows - 1) // 2)


def digest_of_arrow(batch: pa.RecordBatch) -> Summary:
    sums = [pc.sum(batch[name]).as_py() for name in ("i", "customer", "weight", "price")]
    days = pc.sum(batch["due"].cast(pa.int32())).as_py()
    return digest_of((batch.num_rows, *sums, days, pc.sum(pc.utf8_length(batch["city"])).as_py()))


def digest_of(sums: tuple[int, int, int, float, Decimal, int, int]) -> Summary:
    """What Spark answers to DIGEST, as one number that changes with any of them."""
    rows, keys, customers, weight, price, days, letters = sums
    return Summary(rows, keys + 3 * customers + 5 * int(8 * weight) + 7 * int(100 * price) + 11 * days + 13 * letters)


def create_gmdb(path: Path) -> None:
    with gmdb.connect(path) as db:
        db.create_table(TABLE, GMDB_COLUMNS)
        db.commit()


def fill_gmdb(path: Path, rows: int) -> None:
    create_gmdb(path)
    with gmdb.connect(path) as db:
        db.append(TABLE, batches(rows))
        db.commit()
