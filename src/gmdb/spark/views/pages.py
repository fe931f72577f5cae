"""``view=pages``: every page below the high-water marks, or those of a table: its head, how full it is, its rows.

A page that is damaged is a row like the others, whose ``problem`` says what is wrong: who looks at pages looks for
that, too.  Its head is shown as it was found, and may be wrong.
"""

# mypy: disallow-subclassing-any=False

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from gmdb.errors import Corruption
from gmdb.format.address import OFFSET_BITS, PAGES_PER_DEVICE, page_id_of
from gmdb.format.checksum import page_crc
from gmdb.format.page import PageType, SegmentType, stored_crc
from gmdb.inspect.arrays import labels, numbers, page_names
from gmdb.inspect.measure import ROWS
from gmdb.inspect.page_lists import PAGES, name_in
from gmdb.inspect.pinned import PinnedFiles
from gmdb.spark.plan import PageRange, divide_by_size
from gmdb.spark.views.base import BIGINT, BOOLEAN, DOUBLE, INT, STRING, Values, View, ViewRead, view_columns
from gmdb.spark.views.objects import object_names, objects_with_segments

if TYPE_CHECKING:
    from gmdb.spark.views.measure import Measured
    from gmdb.storage.frozen import FrozenStore

LOADING_PAGE = "loading"
_OF_HEADS = {"obj_id": BIGINT, "chg_num": BIGINT, "ckpt_id": BIGINT, "page_create_no": BIGINT}


class PagesView(View):
    name = "pages"
    columns = view_columns(PAGES)

    def partitions(self, read: ViewRead) -> list[PageRange]:
        with PinnedFiles(read.path, read.instant) as files:
            sizes = {number: device.page_size for number, device in files.devices.items()}
            if read.table is None:
                hwms = read.instant.devices.items()
                ids = np.concatenate([np.arange(page_id_of(n, 0), page_id_of(n, hwm)) for n, hwm in hwms])
            else:
                found: list[int] = []
                for stored in objects_with_segments(files, read.table):
                    found += [*files.map_pages(stored.entry_page), *files.segment_pages(stored.entry_page)]
                ids = np.unique(np.array(found, np.int64))
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


def _of_whole(read: ViewRead, found: Measured) -> Values:
    fill = 1 - found.free / np.maximum(found.room, 1)
    is_heap = found.rows[:, 0] >= 0
    if not read.wants("dead_bytes", *ROWS):
        is_heap = np.isin(found.heads["seg_type"], (SegmentType.SYSTEM, SegmentType.HEAP))
        is_heap &= found.heads["page_type"] == PageType.DATA
    loads = np.ascontiguousarray(found.heads["reserve"][:, :8]).view("<u8")[:, 0]
    return {
        **_of_places(found.ids, found.page_sizes),
        **_of_heads(read, found.heads),
        "free_bytes": numbers(found.free, INT),
        "fill": numbers(fill, DOUBLE, found.free >= 0),
        "free_list": numbers(found.heads["fl_flag"].astype(np.int64) - 1, INT),
        "slots": numbers(found.slots, INT),
        **{name: numbers(found.rows[:, number], INT) for number, name in enumerate(ROWS, 1)},
        "dead_bytes": numbers(found.dead_bytes, INT),
        "load": numbers(loads, BIGINT, is_heap & (loads > 0)),
        "crc_ok": np.ones(len(found.ids), np.bool_),
        "problem": pa.nulls(len(found.ids), STRING),
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
        found: list[int] = []
        for stored in objects_with_segments(files, None):
            if stored.kind == "table":
                with suppress(Corruption):  # of its map, which is a page among the others
                    found += files.loading_pages(stored.entry_page)
        return np.array(found, np.int64)


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
