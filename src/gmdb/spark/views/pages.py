"""``view=pages``: every page below the high-water marks, or those of a table: its head, how full it is, its rows.

A page that is damaged is a row like the others, whose ``problem`` says what is wrong: damage is
part of what the view is for.  Its head is shown as it is, and may be wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from gmdb.errors import Corruption
from gmdb.format.address import OFFSET_BITS, PAGES_PER_DEVICE, device_of, page_id_of, page_name
from gmdb.format.checksum import page_crc
from gmdb.format.page import PageType, SegmentType, stored_crc
from gmdb.format.segment import SEGMENT_HEAD, SEGMENT_HEAD_AT
from gmdb.inspect.page_lists import PAGES, ROWS, name_in
from gmdb.inspect.redo_log import REDO, file_records, log_files
from gmdb.inspect.space_lists import read_segment
from gmdb.process.late_dataclasses import dataclass
from gmdb.spark.table_reader import PagePartition, divide_by_size, pages_per_range
from gmdb.spark.views.base import (
    BIGINT,
    BOOLEAN,
    DOUBLE,
    INT,
    STRING,
    StoredObject,
    Values,
    View,
    ViewColumn,
    ViewRead,
    object_names,
    objects_with_segments,
    view_columns,
)
from gmdb.tables.arrow.arrow_types import labels, numbers, page_names
from gmdb.tables.files.pinned_files import PinnedFiles

if TYPE_CHECKING:
    from gmdb.spark.views.measure import Measured
    from gmdb.storage.pinned_pages import FrozenStore


# mypy: disallow-subclassing-any=False


LOADING_PAGE = "loading"
_OF_HEADS = {"obj_id": BIGINT, "chg_num": BIGINT, "ckpt_id": BIGINT, "page_create_no": BIGINT}


class PagesView(View):
    name = "pages"
    columns = view_columns(PAGES)

    def partitions(self, read: ViewRead) -> list[PagePartition]:
        with PinnedFiles(read.path, read.instant) as files:
            sizes = {number: device.page_size for number, device in files.devices.items()}
            if read.table is None:
                hwms = read.instant.devices.items()
                ids = np.concatenate([np.arange(page_id_of(n, 0), page_id_of(n, hwm)) for n, hwm in hwms])
            else:
                objects: list[int] = []
                for stored in objects_with_segments(files, read.table):
                    objects += [*files.map_pages(stored.entry_page), *files.segment_pages(stored.entry_page)]
                ids = np.unique(np.array(objects, np.int64))
        return divide_by_size(ids, sizes, read.max_partition_bytes)

    def batches(self, read: ViewRead, partition: Any) -> Iterator[Values]:
        from gmdb.spark.reading import kept_store
        from gmdb.spark.views.measure import heads_of, measure, steps

        problems: dict[int, str] = {}
        with kept_store(read.path, read.instant) as store:
            store.skip = problems.__setitem__
            for some in steps(store, partition.page_ids()):
                problems.clear()
                whole = measure(store, store.read_pages(some), read.wants("dead_bytes", *ROWS))
                if len(whole.ids):
                    yield _of_whole(read, whole)
                if problems:
                    lost = np.array(list(problems), np.uint32)
                    yield _of_damaged(read, store, lost, heads_of(store, lost), problems)


def _of_whole(read: ViewRead, measured: Measured) -> Values:
    fill = 1 - measured.free / np.maximum(measured.room, 1)
    is_heap = measured.rows[:, 0] >= 0
    if not read.wants("dead_bytes", *ROWS):
        is_heap = np.isin(measured.heads["seg_type"], (SegmentType.SYSTEM, SegmentType.HEAP))
        is_heap &= measured.heads["page_type"] == PageType.DATA
    loads = np.ascontiguousarray(measured.heads["reserve"][:, :8]).view("<u8")[:, 0]
    return {
        **_of_places(measured.ids, measured.page_sizes),
        **_of_heads(read, measured.heads),
        "free_bytes": numbers(measured.free, INT),
        "fill": numbers(fill, DOUBLE, measured.free >= 0),
        "free_list": numbers(measured.heads["fl_flag"].astype(np.int64) - 1, INT),
        "slots": numbers(measured.slots, INT),
        **{name: numbers(measured.rows[:, number], INT) for number, name in enumerate(ROWS, 1)},
        "dead_bytes": numbers(measured.dead_bytes, INT),
        "load": numbers(loads, BIGINT, is_heap & (loads > 0)),
        "crc_ok": np.ones(len(measured.ids), np.bool_),
        "problem": pa.nulls(len(measured.ids), STRING),
    }


def _of_damaged(
    read: ViewRead, store: FrozenStore, lost: np.ndarray, heads: np.ndarray, problems: dict[int, str]
) -> Values:
    pages = [bytes(store.page(page_id)) for page_id in lost.tolist()]
    is_loading = np.isin(lost, _loading_pages(read))
    values: dict[str, Any] = {column.name: pa.nulls(len(lost), column.type) for column in PagesView.columns}
    values |= _of_places(lost, np.array([len(page) for page in pages], np.int64))
    values |= {name: _unless(is_loading, array) for name, array in _of_heads(read, heads).items()}
    types = values["page_type"].to_pylist()
    values["page_type"] = [LOADING_PAGE if is_ else type_ for is_, type_ in zip(is_loading, types, strict=True)]
    right = pa.array([page_crc(page) == stored_crc(page) for page in pages], BOOLEAN)
    values["crc_ok"] = _unless(is_loading, right)
    values["problem"] = _unless(is_loading, pa.array([problems[page_id] for page_id in lost.tolist()], STRING))
    return values


def _unless(condition: np.ndarray, array: pa.Array) -> pa.Array:
    return pa.array(
        [None if is_ else value for is_, value in zip(condition, array.to_pylist(), strict=True)], array.type
    )


def _loading_pages(read: ViewRead) -> np.ndarray:
    """Pages that bulk loads had places for and had yet to write; only damaged pages are worth asking."""
    with PinnedFiles(read.path, read.instant) as files:
        page_ids: list[int] = []
        for stored in objects_with_segments(files, None):
            if stored.kind == "table":
                with suppress(Corruption):  # of its map, which is a page among the others
                    page_ids += files.loading_pages(stored.entry_page)
        return np.array(page_ids, np.int64)


def _of_places(ids: np.ndarray, sizes: np.ndarray) -> Values:
    wide = ids.astype(np.int64)
    return {
        "page_id": wide,
        "name": page_names(wide),
        "device": wide >> OFFSET_BITS,
        "offset": wide & (PAGES_PER_DEVICE - 1),
        "page_size": sizes,
    }


def _of_heads(read: ViewRead, heads: np.ndarray) -> dict[str, pa.Array]:
    known = object_names(read.instant)
    return {
        **{name: numbers(heads[name], type_) for name, type_ in _OF_HEADS.items()},
        "object": labels(heads["obj_id"], lambda obj_id: known[obj_id].name if obj_id in known else None),
        "object_kind": labels(heads["obj_id"], lambda obj_id: known[obj_id].kind if obj_id in known else None),
        "table": labels(heads["obj_id"], lambda obj_id: known[obj_id].table if obj_id in known else None),
        "page_type": labels(heads["page_type"], lambda value: name_in(PageType, value)),
        "seg_type": labels(heads["seg_type"], lambda value: name_in(SegmentType, value)),
    }


# ---- ``view=segments``: each table's, index's and log's segment, and what its pages come to.
#
# A segment is one row, so one task measures all of its pages; the pages view, grouped by ``obj_id``, has the same sums
# and divides large segments among tasks.

# mypy: disallow-subclassing-any=False


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
            objects = objects_with_segments(files, read.table)
            for stored in objects:
                head = SEGMENT_HEAD.at(files.page(stored.entry_page), SEGMENT_HEAD_AT)
                sizes.append(int(head.page_count) * files.device(stored.entry_page).page_size)
        most = pages_per_range(sum(sizes), 1, read.max_partition_bytes)
        groups: list[list[StoredObject]] = [[]]
        taken = 0
        for stored, size in zip(objects, sizes, strict=True):
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
    """The sums over all pages of a segment, without damaged ones, which go to the store's ``skip``."""
    from gmdb.spark.views.measure import measure, steps

    free = room = 0
    sums = np.zeros(len(_SUMS), np.int64)
    for some in steps(store, page_ids):
        measured = measure(store, store.read_pages(some), read.wants("dead_bytes", *ROWS))
        is_divided = measured.free >= 0
        free, room = free + int(measured.free[is_divided].sum()), room + int(measured.room[is_divided].sum())
        columns = [measured.slots, *(measured.rows[:, number + 1] for number in range(len(ROWS))), measured.dead_bytes]
        sums += [int(column[column >= 0].sum()) for column in columns]
    return {
        "free_bytes": free,
        "fill": 1 - free / room if room else None,
        **dict(zip(_SUMS, sums.tolist(), strict=True)),
    }


# ---- ``view=redo``: the redo log's records, of the files that are there when they are read; a partition is a file.

# mypy: disallow-subclassing-any=False


@dataclass(frozen=True)
class RedoFile(InputPartition):
    """The groups that begin in one file; -1: there is none."""

    number: int


class RedoView(View):
    name = "redo"
    is_of_instant = False
    columns = view_columns(REDO)

    def partitions(self, read: ViewRead) -> list[RedoFile]:
        return [RedoFile(number) for number in log_files(read.path)] or [RedoFile(-1)]

    def batches(self, read: ViewRead, partition: Any) -> Iterator[Values]:
        if partition.number >= 0:
            yield from file_records(read.path, partition.number, read.wanted)
