"""``view=segments``: each table's, index's and log's segment, and what its pages come to.

A segment is one row, so one task measures all of its pages; the pages view, grouped by ``obj_id``, has the same sums
and divides large segments among tasks.
"""

# mypy: disallow-subclassing-any=False

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from pyspark.sql.datasource import InputPartition

from gmdb.format.address import device_of, page_name
from gmdb.format.segment import SEGMENT_HEAD, SEGMENT_HEAD_AT
from gmdb.inspect.measure import ROWS
from gmdb.inspect.pinned import PinnedFiles
from gmdb.inspect.segments import read_segment
from gmdb.spark.plan import pages_per_range
from gmdb.spark.views.base import BIGINT, DOUBLE, INT, STRING, Values, View, ViewColumn, ViewRead
from gmdb.spark.views.objects import StoredObject, objects_with_segments

if TYPE_CHECKING:
    from gmdb.storage.frozen import FrozenStore

_SUMS = ("slots", *ROWS, "dead_bytes")


@dataclass(frozen=True)
class SegmentGroup(InputPartition):
    """Some segments."""

    objects: tuple[StoredObject, ...]


class SegmentsView(View):
    name = "segments"
    columns = (
        ViewColumn("obj_id", BIGINT, "the object's number"),
        ViewColumn("name", STRING, "its name; of large objects, the table's"),
        ViewColumn("kind", STRING, "`table`, `lobs`, `btree index`, `hash index`, `undo` or `transactions`"),
        ViewColumn("table", STRING, "the table that it is, or belongs to"),
        ViewColumn("space_id", INT, "the tablespace's number"),
        ViewColumn("tablespace", STRING, "the tablespace's name"),
        ViewColumn("entry_page", BIGINT, "the segment's first page"),
        ViewColumn("entry", STRING, "as people write it: `4:1`"),
        ViewColumn("page_size", INT, "bytes of a page"),
        ViewColumn("pages", BIGINT, "data pages that its map lists"),
        ViewColumn("map_pages", INT, "map pages, the entry page included"),
        ViewColumn("pct_free", INT, "per cent of a page that inserts leave for updates"),
        ViewColumn("free_bytes", BIGINT, "sum over its data pages"),
        ViewColumn("fill", DOUBLE, "share of the room for entries and slots that is in use; NULL: no such pages"),
        ViewColumn("slots", BIGINT, "sum over its data pages"),
        ViewColumn("live_rows", BIGINT, "of tables: rows that nobody has deleted"),
        ViewColumn("dead_rows", BIGINT, "of tables: deleted rows that are not yet removed"),
        ViewColumn("left_rows", BIGINT, "of tables: those of both that are not on their home page"),
        ViewColumn("came_rows", BIGINT, "of tables: rows on pages that are not their home"),
        ViewColumn("locked_rows", BIGINT, "of tables: rows that have a lock, of a transaction that may have ended"),
        ViewColumn("dead_bytes", BIGINT, "of tables: bytes of deleted rows, and of gaps between rows"),
        ViewColumn("damaged_pages", BIGINT, "pages that are damaged, and in no sum"),
        ViewColumn("problem", STRING, "what is wrong with the map, or with the first damaged page; NULL: nothing"),
    )

    def partitions(self, read: ViewRead) -> list[SegmentGroup]:
        sizes = []
        with PinnedFiles(read.path, read.instant) as files:
            found = objects_with_segments(files, read.table)
            for stored in found:
                head = SEGMENT_HEAD.at(files.page(stored.entry_page), SEGMENT_HEAD_AT)
                sizes.append(int(head.page_count) * files.device(stored.entry_page).page_size)
        most = pages_per_range(sum(sizes), 1, read.max_partition_bytes)
        groups: list[list[StoredObject]] = [[]]
        taken = 0
        for stored, size in zip(found, sizes, strict=True):
            if groups[-1] and taken + size > most:
                groups.append([])
                taken = 0
            groups[-1].append(stored)
            taken += size
        return [SegmentGroup(tuple(group)) for group in groups]

    def batches(self, read: ViewRead, partition: Any) -> Iterator[Values]:
        from gmdb.spark.reading import kept_store

        rows = []
        with PinnedFiles(read.path, read.instant) as files, kept_store(read.path, read.instant) as store:
            spaces = {space.space_id: space.name for space in files.spaces()}
            for stored in partition.objects:
                rows.append(_segment(read, files, store, stored, spaces))
        if rows:
            yield {name: [row[name] for row in rows] for name in read.wanted}


def _segment(
    read: ViewRead, files: PinnedFiles, store: FrozenStore, stored: StoredObject, spaces: dict[int, str]
) -> dict[str, Any]:
    segment = read_segment(files, stored.entry_page)
    damaged: dict[int, str] = {}
    store.skip = damaged.__setitem__
    sums: dict[str, Any] = {}
    if read.wants("free_bytes", "fill", "damaged_pages", "problem", *_SUMS):
        sums = _sums(read, store, np.array(segment.pages, np.uint32))
    if stored.kind != "table":
        sums |= dict.fromkeys((*ROWS, "dead_bytes"))
    problems = [*segment.problems, *damaged.values()]
    return {
        "obj_id": stored.obj_id,
        "name": stored.name,
        "kind": stored.kind,
        "table": stored.table,
        "space_id": segment.head["space_id"],
        "tablespace": spaces.get(segment.head["space_id"]),
        "entry_page": stored.entry_page,
        "entry": page_name(stored.entry_page),
        "page_size": store.devices[device_of(stored.entry_page)].page_size,
        "pages": segment.data_pages,
        "map_pages": segment.map_pages,
        "pct_free": segment.head["pct_free"],
        **sums,
        "damaged_pages": len(damaged),
        "problem": problems[0] if problems else None,
    }


def _sums(read: ViewRead, store: FrozenStore, page_ids: np.ndarray) -> dict[str, Any]:
    """What all pages of a segment come to; those that are damaged the store's ``skip`` is told of."""
    from gmdb.spark.views.measure import measure, steps

    free = room = 0
    sums = np.zeros(len(_SUMS), np.int64)
    for some in steps(store, page_ids):
        found = measure(store, store.read_pages(some), read.wants("dead_bytes", *ROWS))
        is_divided = found.free >= 0
        free, room = free + int(found.free[is_divided].sum()), room + int(found.room[is_divided].sum())
        columns = [found.slots, *(found.rows[:, number + 1] for number in range(len(ROWS))), found.dead_bytes]
        sums += [int(column[column >= 0].sum()) for column in columns]
    return {
        "free_bytes": free,
        "fill": 1 - free / room if room else None,
        **dict(zip(_SUMS, sums.tolist(), strict=True)),
    }
