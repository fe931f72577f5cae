"""What is in the columns of a table: NULLs, distinct values, smallest and largest, how values are spread.

Two passes over the table, for all of its columns at once: the first counts and finds smallest and largest values, the
second counts how many values lie in each of some parts, equally wide, of what is between them.

Distinct values, and the most frequent ones of texts, are estimates (HyperLogLog++, and a sketch that never counts too
many); the first are exact if asked for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gmdb.catalog.schema import TableDefinition
from gmdb.format.columns import Column
from gmdb.spark import read_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTS = 20
FREQUENT_SHOWN, FREQUENT_TRACKED = 10, 10_000
TEXT_SHOWN = 200  # characters of a smallest, largest or frequent value
_NUMBERS = ("INT", "BIGINT", "DECIMAL")
_EPOCH_DAY, _EPOCH = date(1970, 1, 1), datetime(1970, 1, 1)


@dataclass(frozen=True)
class Histogram:
    """``edges[n]`` to ``edges[n + 1]`` are ``counts[n]`` values; only the last part has its upper edge."""

    edges: list[Any]
    counts: list[int]

    def document(self) -> dict[str, Any]:
        return {"edges": [plain(edge) for edge in self.edges], "counts": self.counts}


@dataclass
class ColumnProfile:
    name: str
    type: str
    nulls: int
    distinct: int
    smallest: Any
    largest: Any
    histogram: Histogram | None = None
    frequent: list[tuple[Any, int]] | None = None

    def document(self) -> dict[str, Any]:
        frequent = None if self.frequent is None else [{"value": plain(v), "count": n} for v, n in self.frequent]
        return {
            "name": self.name,
            "type": self.type,
            "nulls": self.nulls,
            "distinct": self.distinct,
            "min": plain(self.smallest),
            "max": plain(self.largest),
            "histogram": None if self.histogram is None else self.histogram.document(),
            "most_frequent": frequent,
        }


@dataclass(frozen=True)
class TableProfile:
    table: str
    rows: int
    distinct_is_exact: bool
    columns: list[ColumnProfile]
    left_out: list[str]  # large objects, which nobody asked for

    def document(self) -> dict[str, Any]:
        columns = [column.document() for column in self.columns]
        about = {"table": self.table, "rows": self.rows, "distinct_is_exact": self.distinct_is_exact}
        return {**about, "columns": columns, "left_out": self.left_out}


def plain(value: Any) -> Any:
    """A value as JSON has it."""
    if isinstance(value, bytes | bytearray):
        return bytes(value).hex()[:TEXT_SHOWN]
    if isinstance(value, str):
        return value[:TEXT_SHOWN]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, int | float | bool | None) else str(value)


def profile_table(
    spark: SparkSession,
    database: Path,
    table: TableDefinition,
    *,
    columns: Sequence[str] = (),
    exact: bool = False,
    **options: str,
) -> TableProfile:
    """Look at a table's columns; at those of large objects only if they are named.

    ``database`` may be a pattern, of databases whose tables are taken together; ``options`` are those of reads.
    """
    if columns:
        chosen = [table.columns[table.position(name)] for name in columns]
    else:
        chosen = [column for column in table.columns if not column.type.is_lob]
    left_out = [column.name for column in table.columns if column.type.is_lob and column not in chosen]
    if not chosen:
        count = read_table(spark, database, table.name, **options).count()
        return TableProfile(table.name, count, exact, [], left_out)
    frame = read_table(spark, database, table.name, [column.name for column in chosen], **options)
    rows, profiles = _summaries(frame, chosen, exact)
    _add_histograms(frame, chosen, profiles)
    return TableProfile(table.name, rows, exact, profiles, left_out)


# ---- the first pass


def _summaries(frame: DataFrame, columns: Sequence[Column], exact: bool) -> tuple[int, list[ColumnProfile]]:
    from pyspark.sql import functions as f

    wanted = [f.count(f.lit(1)).alias("rows")]
    for n, column in enumerate(columns):
        value = f.col(_quoted(column.name))
        number = f.when(f.isnan(value), None).otherwise(value) if column.type.name == "DOUBLE" else value
        distinct = f.count_distinct(value) if exact else f.approx_count_distinct(value)
        wanted += [
            f.count(value).alias(f"filled{n}"),
            distinct.alias(f"distinct{n}"),
            f.min(number).alias(f"min{n}"),
            f.max(number).alias(f"max{n}"),
        ]
        if _is_counted_by_value(column):
            sketch = f"approx_top_k({_quoted(column.name)}, {FREQUENT_SHOWN}, {FREQUENT_TRACKED})"
            wanted.append(f.expr(sketch).alias(f"frequent{n}"))
    found = frame.agg(*wanted).first().asDict()
    profiles = []
    for n, column in enumerate(columns):
        nulls, ends = found["rows"] - found[f"filled{n}"], (found[f"min{n}"], found[f"max{n}"])
        profile = ColumnProfile(column.name, str(column.type), nulls, found[f"distinct{n}"], *ends)
        if _is_counted_by_value(column):
            pairs = found[f"frequent{n}"] or []
            profile.frequent = [(item, int(count)) for item, count in pairs if item is not None]
        profiles.append(profile)
    return int(found["rows"]), profiles


def _is_counted_by_value(column: Column) -> bool:
    return column.type.name in ("CHAR", "VARCHAR", "CLOB", "BOOLEAN")


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


# ---- the second pass


def _add_histograms(frame: DataFrame, columns: Sequence[Column], profiles: Sequence[ColumnProfile]) -> None:
    from pyspark.sql import functions as f

    scales = {n: scale for n, (c, p) in enumerate(zip(columns, profiles, strict=True)) if (scale := _scale(c, p))}
    if not scales:
        return
    parts = f.array(*(f.expr(scale.part) for scale in scales.values()))
    counts = frame.select(f.posexplode(parts).alias("place", "part")).where("part is not null")
    found = [[0] * (len(scale.edges) - 1) for scale in scales.values()]
    for place, part, count in counts.groupBy("place", "part").count().collect():
        found[place][part] = count
    for made, (n, scale) in zip(found, scales.items(), strict=True):
        profiles[n].histogram = Histogram([scale.back(edge) for edge in scale.edges], made)


@dataclass(frozen=True)
class _Scale:
    """How a column's values become numbers, and back."""

    expression: str
    edges: list[float]
    back: Callable[[float], Any]

    @property
    def part(self) -> str:
        """In Spark's SQL, which part a value lies in; the largest lies on the last edge, or by rounding beyond it."""
        first, last, count = self.edges[0], self.edges[-1], len(self.edges) - 1
        part = "0"
        if last > first:
            share = f"(({self.expression}) - {first!r}D) / {last - first!r}D"
            part = f"cast(least(greatest(floor({share} * {count}), 0), {count - 1}) as int)"
        return f"if(({self.expression}) is null, null, {part})"  # least and greatest pass NULL over


def _scale(column: Column, profile: ColumnProfile) -> _Scale | None:
    low, high, name = profile.smallest, profile.largest, _quoted(column.name)
    kind = column.type.name
    if low is None or (isinstance(low, float) and not (math.isfinite(low) and math.isfinite(high))):
        return None
    if kind in _NUMBERS:
        is_whole = kind != "DECIMAL" or not column.type.scale
        return _Scale(f"cast({name} as double)", _edges(low, high, is_whole), lambda edge: edge)
    if kind == "DOUBLE":
        return _Scale(f"nullif({name}, double('NaN'))", _edges(low, high, False), lambda edge: edge)
    if kind == "DATE":
        days = _edges((low - _EPOCH_DAY).days, (high - _EPOCH_DAY).days, True)
        return _Scale(f"cast(unix_date({name}) as double)", days, lambda edge: _EPOCH_DAY + timedelta(days=edge))
    if kind == "TIMESTAMP":
        seconds = _edges((low - _EPOCH).total_seconds(), (high - _EPOCH).total_seconds(), False)
        expression = f"timestampdiff(MICROSECOND, timestamp_ntz'1970-01-01 00:00:00', {name}) / 1e6D"
        return _Scale(expression, seconds, lambda edge: _EPOCH + timedelta(seconds=edge))
    return None


def _edges(low: float | Decimal, high: float | Decimal, is_whole: bool) -> list[float]:
    """Parts of equal width; of whole numbers that are few, one for each."""
    first, last = float(low), float(high)
    if not math.isfinite(last - first):
        return [first, first]
    if is_whole and last - first < PARTS:
        return [first + n for n in range(int(last - first) + 2)]
    if is_whole:
        width = math.ceil((last - first + 1) / PARTS)
        parts = math.ceil((last - first + 1) / width)
        return [first + n * width for n in range(parts + 1)]
    step = (last - first) / PARTS
    return [first + n * step for n in range(PARTS)] + [last]
