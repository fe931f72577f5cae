"""How full the pages of each segment are, and how much of them is dead: rows that are deleted, and holes between rows.

``segment_spaces`` is the one way to it, so that whatever else can tell of pages can take its place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gmdb.errors import DatabaseInUse
from gmdb.format.address import page_name
from gmdb.format.heap import HEAP_NODE, NODE_AT, ROWS_AT
from gmdb.format.page import HEAD_SIZE, PAGE_HEAD, TAIL_SIZE, SegmentType
from gmdb.format.row import MIN_OCCUPIED, SIZE_AT, RowFlag
from gmdb.format.slotted import SLOT_FREED
from gmdb.inspect.files import DatabaseFiles
from gmdb.inspect.segments import read_segments
from gmdb.verify.verifier import closed_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGES_A_TASK = 4096
_OF_ROWS = (SegmentType.HEAP, SegmentType.SYSTEM)


@dataclass(frozen=True)
class SegmentSpace:
    """The data pages of a segment.  ``dead`` is part of ``used``, and of pages with rows alone."""

    entry_page: int
    object: str
    type: str
    pages: int = 0
    size: int = 0
    used: int = 0
    dead: int = 0
    dead_rows: int = 0

    @property
    def fill(self) -> float:
        return self.used / self.size if self.size else 0.0

    def plus(self, other: Sequence[int]) -> SegmentSpace:
        pages, size, used, dead, dead_rows = other
        return replace(
            self,
            pages=self.pages + pages,
            size=self.size + size,
            used=self.used + used,
            dead=self.dead + dead,
            dead_rows=self.dead_rows + dead_rows,
        )

    def document(self) -> dict[str, Any]:
        counts = {"pages": self.pages, "bytes": self.size, "used": self.used, "dead": self.dead}
        about = {"entry": page_name(self.entry_page), "object": self.object, "type": self.type}
        return {**about, **counts, "dead_rows": self.dead_rows, "fill": round(self.fill, 4)}


def segment_spaces(spark: SparkSession, database: Path) -> list[SegmentSpace]:
    """Every segment of a closed database, in order of address."""
    path = database.absolute()
    try:
        with closed_files(path) as files:
            found, pages = {}, {}
            for segment in read_segments(files):
                entry = segment.entry_page
                found[entry] = SegmentSpace(entry, str(segment.head["obj_name"]), segment.type_name)
                pages[entry] = np.array(files.segment_pages(entry), np.int64)
            work = [
                (entry, ids[n : n + PAGES_A_TASK])
                for entry, ids in pages.items()
                for n in range(0, len(ids), PAGES_A_TASK)
            ]
            if work:
                rdd = spark.sparkContext.parallelize(work, len(work))
                for entry, sums in rdd.mapPartitions(lambda part: _measure(path, part)).collect():
                    found[entry] = found[entry].plus(sums)
    except DatabaseInUse as error:
        raise DatabaseInUse(f"{error}; or leave the segments out: --no-segments") from None
    return list(found.values())


def _measure(path: Path, work: Iterator[tuple[int, np.ndarray]]) -> Iterator[tuple[int, tuple[int, ...]]]:
    """On a worker: sums over some pages of a segment."""
    with DatabaseFiles(path) as files:
        for entry, ids in work:
            measured = [measure_page(files.page(page_id)) for page_id in ids.tolist()]
            size, used, dead, dead_rows = (sum(column) for column in zip(*measured, strict=True))
            yield entry, (len(ids), size, used, dead, dead_rows)


def measure_page(page: bytes) -> tuple[int, int, int, int]:
    """Of a data page: its size, bytes in use, of these dead ones, and rows that are deleted."""
    head = PAGE_HEAD.at(page)
    size = len(page)
    if not HEAD_SIZE <= head.free_begin <= head.free_end <= size:
        return size, size, 0, 0  # damaged, or a page that is not divided: full
    used = size - (head.free_end - head.free_begin)
    if head.seg_type not in _OF_ROWS:
        return size, used, 0, 0
    count = min(HEAP_NODE.at(page, NODE_AT).slot_count, (size - TAIL_SIZE - ROWS_AT) // 2)
    slots = np.frombuffer(page, "<u2", count, size - TAIL_SIZE - 2 * count).astype(np.int64)
    offsets = slots[(slots & SLOT_FREED == 0) & (slots >= ROWS_AT) & (slots + MIN_OCCUPIED <= head.free_begin)]
    memory = np.frombuffer(page, np.uint8)
    sizes = memory[offsets + SIZE_AT].astype(np.int64) | memory[offsets + SIZE_AT + 1].astype(np.int64) << 8
    is_dead = memory[offsets + 3] & int(RowFlag.DELETE) != 0
    live = int(np.maximum(sizes, MIN_OCCUPIED)[~is_dead].sum())
    return size, used, max(head.free_begin - ROWS_AT - live, 0), int(is_dead.sum())
