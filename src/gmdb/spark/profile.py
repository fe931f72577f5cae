"""What is in the columns of a table and how full the pages of segments are, in numbers and as a picture."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gmdb.errors import InterfaceError, OperationalError
from gmdb.format.address import page_name
from gmdb.format.columns import Column
from gmdb.process.late_dataclasses import dataclass
from gmdb.spark import read_table
from gmdb.tables.catalog.schema import FIRST_USER_ID, TableDefinition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


# ---- What is in the columns of a table: NULLs, distinct values, smallest and largest, how values are spread.
#
# Two passes over the table, for all of its columns at once: the first counts and finds smallest and largest values, the
# second counts how many values lie in each of some parts, equally wide, of what is between them.
#
# Distinct values, and the most frequent ones of texts, are estimates (HyperLogLog++, and a sketch that never counts too
# many); the first are exact if asked for.

PARTS = 20
FREQUENT_SHOWN, FREQUENT_TRACKED = 10, 10_000
TEXT_SHOWN = 200  # characters of a smallest, largest or frequent value
_NUMBERS = ("SMALLINT", "INT", "BIGINT", "DECIMAL")
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
    left_out: list[str]  # large objects, which were not asked for

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
    """Profile a table's columns; those of large objects and arrays only if they are named.

    ``database`` may be a pattern, of databases whose tables are taken together; ``options`` are those of reads.
    """
    if columns:
        chosen = [table.columns[table.position(name)] for name in columns]
    else:
        chosen = [column for column in table.columns if column.type.may_be_key]
    left_out = [column.name for column in table.columns if not column.type.may_be_key and column not in chosen]
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
        number = f.when(f.isnan(value), None).otherwise(value) if column.type.name in ("REAL", "DOUBLE") else value
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
    row = frame.agg(*wanted).first().asDict()
    profiles = []
    for n, column in enumerate(columns):
        nulls, ends = row["rows"] - row[f"filled{n}"], (row[f"min{n}"], row[f"max{n}"])
        profile = ColumnProfile(column.name, str(column.type), nulls, row[f"distinct{n}"], *ends)
        if _is_counted_by_value(column):
            pairs = row[f"frequent{n}"] or []
            profile.frequent = [(item, int(count)) for item, count in pairs if item is not None]
        profiles.append(profile)
    return int(row["rows"]), profiles


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
    histograms = [[0] * (len(scale.edges) - 1) for scale in scales.values()]
    for place, part, count in counts.groupBy("place", "part").count().collect():
        histograms[place][part] = count
    for histogram, (n, scale) in zip(histograms, scales.items(), strict=True):
        profiles[n].histogram = Histogram([scale.back(edge) for edge in scale.edges], histogram)


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
    if kind in ("REAL", "DOUBLE"):
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


# ---- How full the pages of each segment are, and how much of them is dead: the segments view, in a few numbers.


@dataclass(frozen=True)
class SegmentSpace:
    """The data pages of a segment.  ``dead`` is part of ``used``, and of pages with rows alone."""

    entry_page: int
    object: str
    type: str
    pages: int
    size: int
    used: int
    dead: int
    dead_rows: int

    @property
    def fill(self) -> float:
        return self.used / self.size if self.size else 0.0

    def document(self) -> dict[str, Any]:
        counts = {"pages": self.pages, "bytes": self.size, "used": self.used, "dead": self.dead}
        about = {"entry": page_name(self.entry_page), "object": self.object, "type": self.type}
        return {**about, **counts, "dead_rows": self.dead_rows, "fill": round(self.fill, 4)}


def segment_spaces(spark: SparkSession, database: Path) -> list[SegmentSpace]:
    """Every segment of a database at one instant, in order of address."""
    frame = spark.read.format("gmdb").option("view", "segments").load(str(database.absolute()))
    spaces = []
    for row in frame.orderBy("entry_page").collect():
        size = row["pages"] * row["page_size"]
        used, dead = size - (row["free_bytes"] or 0), row["dead_bytes"] or 0
        about = (row["entry_page"], row["name"], row["kind"], row["pages"])
        spaces.append(SegmentSpace(*about, size, used, dead, row["dead_rows"] or 0))
    return spaces


@dataclass(frozen=True)
class DatabaseSpace:
    """All segments of a database together; ``rows`` are those of its own tables."""

    database: str
    tables: int
    rows: int
    pages: int
    size: int
    used: int
    dead: int
    damaged_pages: int
    problem: str | None

    @property
    def fill(self) -> float:
        return self.used / self.size if self.size else 0.0

    def document(self) -> dict[str, Any]:
        counts = {"tables": self.tables, "rows": self.rows, "pages": self.pages, "bytes": self.size}
        space = {"used": self.used, "dead": self.dead, "fill": round(self.fill, 4)}
        damage = {"damaged_pages": self.damaged_pages, "problem": self.problem}
        return {"database": self.database, **counts, **space, **damage}


def database_spaces(spark: SparkSession, fleet: str, **options: str) -> list[DatabaseSpace]:
    """Every database that a pattern matches, in order of their paths; ``options`` are those of reads."""
    from pyspark.sql import functions as f

    frame = spark.read.format("gmdb").options(view="segments", **options).load(fleet)
    is_users = (f.col("kind") == "table") & (f.col("obj_id") >= FIRST_USER_ID)
    size = f.col("pages") * f.col("page_size")
    sums = {
        "tables": f.when(is_users, 1).otherwise(0),
        "rows": f.when(is_users, f.col("live_rows")).otherwise(0),
        "pages": f.col("pages"),
        "size": size,
        "used": size - f.coalesce("free_bytes", f.lit(0)),
        "dead": f.coalesce("dead_bytes", f.lit(0)),
        "damaged_pages": f.col("damaged_pages"),
    }
    wanted = [f.sum(value).alias(name) for name, value in sums.items()]
    rows = frame.groupBy("_database").agg(*wanted, f.min("problem").alias("problem")).orderBy("_database").collect()
    counts = [{name: int(row[name] or 0) for name in sums} for row in rows]
    return [DatabaseSpace(row["_database"], problem=row["problem"], **n) for row, n in zip(rows, counts, strict=True)]


# ---- A picture of what is in a table's columns, and of how full its segments are.

ENDINGS = (".png", ".svg")
MATPLOTLIB_NEEDED = "pictures need matplotlib; install gmdb with it: pip install 'gmdb[plot]'"
ACROSS = 3
PANELS_MAX = 60
LABEL_LENGTH = 18


def require_picture(file: Path) -> None:
    """Refuse what could not be drawn, before anything takes long."""
    if file.suffix.lower() not in ENDINGS:
        raise InterfaceError(f"{file}: a picture's name ends in {' or '.join(ENDINGS)}")
    if not file.absolute().parent.is_dir():
        raise InterfaceError(f"{file}: there is no directory {file.parent}")
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise OperationalError(MATPLOTLIB_NEEDED) from None


def draw_profiles(file: Path, tables: Sequence[TableProfile], segments: Sequence[SegmentSpace]) -> None:
    """A panel for each column that has something to show, and one for the segments."""
    from matplotlib.figure import Figure

    panels = [(t, c) for t in tables for c in t.columns if c.histogram is not None or c.frequent][:PANELS_MAX]
    spaces = [segment for segment in segments if segment.pages]
    rows = math.ceil(len(panels) / ACROSS)
    heights = [2.2] * rows + ([max(1.5, 0.3 * len(spaces) + 0.8)] if spaces else [])
    if not heights:
        heights = [1.0]
    figure = Figure(figsize=(4.2 * ACROSS, sum(heights)), layout="constrained")
    grid = figure.add_gridspec(len(heights), ACROSS, height_ratios=heights)
    for number, (table, column) in enumerate(panels):
        axes = figure.add_subplot(grid[number // ACROSS, number % ACROSS])
        _draw_column(axes, table, column)
    if spaces:
        _draw_spaces(figure.add_subplot(grid[len(heights) - 1, :]), spaces)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # an emoji that the font lacks is drawn as a box
        figure.savefig(file, dpi=120)


def _draw_column(axes: Any, table: TableProfile, column: ColumnProfile) -> None:
    nulls = f", {column.nulls:,} NULL" if column.nulls else ""
    axes.set_title(f"{table.table}.{column.name}  {column.type}{nulls}".replace("$", r"\$"), fontsize=8)
    axes.tick_params(labelsize=6)
    if column.histogram is not None:
        edges, counts = column.histogram.edges, column.histogram.counts
        widths = [right - left for left, right in pairwise(edges)]
        if len(edges) == 2 and edges[0] == edges[1]:
            axes.bar([str(edges[0])], counts, color="tab:blue")
        else:
            axes.bar(edges[:-1], counts, width=widths, align="edge", color="tab:blue")
    elif column.frequent:
        labels = [_label(value) for value, _ in column.frequent]
        axes.barh(range(len(labels)), [count for _, count in column.frequent], color="tab:green")
        axes.set_yticks(range(len(labels)), labels)
        axes.invert_yaxis()


def _label(value: Any) -> str:
    text = str(plain(value))
    text = text if len(text) <= LABEL_LENGTH else text[: LABEL_LENGTH - 1] + "…"
    return text.replace("$", r"\$")


def _draw_spaces(axes: Any, spaces: Sequence[SegmentSpace]) -> None:
    """Live, dead and free bytes of each segment, as shares."""
    places = range(len(spaces))
    live = [(space.used - space.dead) / space.size for space in spaces]
    dead = [space.dead / space.size for space in spaces]
    axes.barh(places, live, color="tab:blue", label="live")
    axes.barh(places, dead, left=live, color="tab:red", label="dead")
    axes.set_yticks(places, [_label(f"{space.object} {space.type}") for space in spaces])
    axes.invert_yaxis()
    axes.set_xlim(0, 1)
    axes.tick_params(labelsize=6)
    axes.legend(fontsize=6)
    axes.set_title("how full the pages of each segment are", fontsize=8)
