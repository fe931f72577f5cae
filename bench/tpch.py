"""TPC-H: its 22 queries over its own data, and that gmdb's answers are DuckDB's.

``tpchgen-cli`` makes the data.  Tables have the primary keys that the standard names; DuckDB has its own files.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import date
from decimal import Decimal
from functools import cache, partial
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

import gmdb
from bench.harness import Attempt, Benchmark, Contender, Summary, show_progress
from bench.peers import Duckdb, Gmdb
from bench.tpch_queries import queries

ROWS_A_SCALE = 5_000_000  # as many rows as are moved in bulk are of scale factor 1
GENERATOR = "tpchgen-cli"
SCALE_MIN = 0.01  # below it keys come twice
TARGETS = {Duckdb.name: 0.3}
PRECISION = 1e-9  # quotients are decimals here and doubles there
KEYS = {
    "region": ("r_regionkey",),
    "nation": ("n_nationkey",),
    "supplier": ("s_suppkey",),
    "customer": ("c_custkey",),
    "part": ("p_partkey",),
    "partsupp": ("ps_partkey", "ps_suppkey"),
    "orders": ("o_orderkey",),
    "lineitem": ("l_orderkey", "l_linenumber"),
}
_LENGTHS = {"comment": 199, "address": 40, "name": 55, "clerk": 15, "phone": 15}


def benchmarks(rows: int) -> list[Benchmark]:
    scale = max(rows / ROWS_A_SCALE, SCALE_MIN)
    return [_benchmark(number, query, scale) for number, query in enumerate(queries(scale), 1)]


def _benchmark(number: int, query: str, scale: float) -> Benchmark:
    peers = ((Gmdb.name, _gmdb), (Duckdb.name, _duckdb))
    contenders = [Contender(peer, Summary(1, 0), partial(answering, connect, scale, query)) for peer, connect in peers]
    return Benchmark(f"tpch-{number:02}", f"TPC-H query {number}, scale factor {scale:g}", contenders, TARGETS)


# ---- the data, and databases of it, which all queries share


@cache
def _place() -> tempfile.TemporaryDirectory[str]:
    """Where they lie until the process ends."""
    return tempfile.TemporaryDirectory(prefix="gmdb-bench-tpch-")


@cache
def data(scale: float) -> Path:
    """The folder of the tables as Parquet files."""
    program = shutil.which(GENERATOR, path=str(Path(sys.executable).parent)) or shutil.which(GENERATOR)
    if program is None:
        raise RuntimeError(f"there is no {GENERATOR}; make setup installs it")
    folder = Path(_place().name) / f"data {scale:g}"
    show_progress(f"making TPC-H's tables, scale factor {scale:g}")
    command = [program, "parquet", "-s", f"{scale:.6f}", "--output-dir", str(folder)]
    subprocess.run(command, check=True, capture_output=True)
    return folder


def _batches(name: str, scale: float) -> Iterator[pa.RecordBatch]:
    """A table's rows, with texts as gmdb takes them."""
    for batch in pq.ParquetFile(data(scale) / f"{name}.parquet").iter_batches():
        types = [pa.string() if pa.types.is_string_view(one.type) else one.type for one in batch.schema]
        columns = [column.cast(type_) for column, type_ in zip(batch.columns, types, strict=True)]
        yield pa.RecordBatch.from_arrays(columns, batch.schema.names)


def _create(name: str, scale: float) -> str:
    schema = pq.read_schema(data(scale) / f"{name}.parquet")
    columns = [f"{field.name} {_type(field)} not null" for field in schema]
    return f"create table {name} ({', '.join(columns)}, primary key ({', '.join(KEYS[name])}))"


def _type(field: pa.Field) -> str:
    if pa.types.is_decimal(field.type):
        return f"decimal({field.type.precision},{field.type.scale})"
    if pa.types.is_string_view(field.type) or pa.types.is_string(field.type):
        return f"varchar({_LENGTHS.get(field.name.partition('_')[2], 199)})"
    return {pa.int64(): "bigint", pa.int32(): "int", pa.date32(): "date"}[field.type]


@cache
def _gmdb_filled(scale: float) -> Path:
    path = Path(_place().name) / f"{scale:g}.gmdb"
    with closing(gmdb.connect(path)) as connection:
        for name in KEYS:
            show_progress(f"loading {name} into gmdb")
            connection.execute(_create(name, scale))
            connection.append(name, _batches(name, scale))
            connection.commit()
        connection.execute("analyze")
        connection.commit()
        connection.checkpoint()
    return path


@cache
def _duckdb_filled(scale: float) -> Path:
    path = Path(_place().name) / f"{scale:g}.duckdb"
    with closing(duckdb.connect(str(path))) as connection:
        for name in KEYS:
            show_progress(f"loading {name} into DuckDB")
            connection.execute(f"create table {name} as select * from '{data(scale) / name}.parquet'")
        connection.execute("checkpoint")
    return path


def _gmdb(scale: float) -> Any:
    return gmdb.connect(_gmdb_filled(scale))


def _duckdb(scale: float) -> Any:
    return duckdb.connect(str(_duckdb_filled(scale)))


# ---- the work


@cache
def answer(query: str, scale: float) -> list[tuple[Any, ...]]:
    """DuckDB's."""
    with closing(_duckdb(scale)) as connection:
        return list(connection.execute(query).fetchall())


@contextmanager
def answering(connect: Callable[[float], Any], scale: float, query: str, _: Path) -> Iterator[Attempt]:
    """A query over rows that have been read before."""
    expected = answer(query, scale)
    with closing(connect(scale)) as connection:
        connection.execute(query).fetchall()
        yield Attempt(
            lambda: connection.execute(query).fetchall(), lambda rows: Summary(int(same_rows(rows, expected)), 0)
        )


def same_rows(rows: Sequence[tuple[Any, ...]], expected: Sequence[tuple[Any, ...]]) -> bool:
    """Whether two answers are the same, in any order of rows that are equal in what they are ordered by."""
    if len(rows) != len(expected):
        return False
    pairs = zip(sorted(rows, key=_key), sorted(expected, key=_key), strict=True)
    return all(len(a) == len(b) and all(map(_same, a, b)) for a, b in pairs)


def _key(row: tuple[Any, ...]) -> tuple[str, ...]:
    return tuple(f"{float(one):.6e}" if isinstance(one, int | float | Decimal) else _plain(one) for one in row)


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, int | float | Decimal) and isinstance(other, int | float | Decimal):
        return abs(float(one) - float(other)) <= PRECISION * max(abs(float(other)), 1.0)
    return _plain(one) == _plain(other)


def _plain(value: Any) -> str:
    return value.isoformat() if isinstance(value, date) else str(value).rstrip()
