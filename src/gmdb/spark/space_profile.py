"""How full the pages of each segment are, and how much of them is dead: the segments view, in a few numbers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gmdb.catalog.schema import FIRST_USER_ID
from gmdb.format.address import page_name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
    made = []
    for row in frame.orderBy("entry_page").collect():
        size = row["pages"] * row["page_size"]
        used, dead = size - (row["free_bytes"] or 0), row["dead_bytes"] or 0
        about = (row["entry_page"], row["name"], row["kind"], row["pages"])
        made.append(SegmentSpace(*about, size, used, dead, row["dead_rows"] or 0))
    return made


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
    found = frame.groupBy("_database").agg(*wanted, f.min("problem").alias("problem")).orderBy("_database").collect()
    counts = [{name: int(row[name] or 0) for name in sums} for row in found]
    return [DatabaseSpace(row["_database"], problem=row["problem"], **n) for row, n in zip(found, counts, strict=True)]
