"""How full the pages of each segment are, and how much of them is dead: the segments view, in a few numbers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
