"""``view=undo``: the records of the undo log, each with the version of a row from before, and whose it is."""

# mypy: disallow-subclassing-any=False

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from gmdb.catalog.schema import TableDefinition
from gmdb.format.address import NO_PAGE
from gmdb.format.undo import UNDO_ENTRY
from gmdb.inspect.pinned import PinnedFiles
from gmdb.inspect.undo_lists import UNDO, UndoRow, commits_of, rows_of, undo_values
from gmdb.spark.plan import PageRange, divide_by_size
from gmdb.spark.views.base import Values, View, ViewRead, view_columns
from gmdb.spark.views.objects import object_names, objects_of, tables_of, transactions_entry

if TYPE_CHECKING:
    from gmdb.storage.frozen import FrozenStore


@dataclass(frozen=True)
class UndoRange(PageRange):
    """Some undo pages, and where the table of committed transactions is."""

    committed: PageRange


class UndoView(View):
    name = "undo"
    columns = view_columns(UNDO)

    def partitions(self, read: ViewRead) -> list[UndoRange]:
        with PinnedFiles(read.path, read.instant) as files:
            pages = np.array(files.segment_pages(UNDO_ENTRY), np.int64)
            entry = transactions_entry(files)
            table = np.array(files.segment_pages(entry) if entry != NO_PAGE else [], np.int64)
            sizes = {number: device.page_size for number, device in files.devices.items()}
        (known,) = divide_by_size(table, sizes, 1 << 62)
        return [UndoRange(part.runs, known) for part in divide_by_size(pages, sizes, read.max_partition_bytes)]

    def batches(self, read: ViewRead, partition: Any) -> Iterator[Values]:
        from gmdb.spark.reading import kept_store, note_skipped
        from gmdb.spark.views.measure import steps

        named = object_names(read.instant)
        chosen = None if read.table is None else {stored.obj_id for stored in objects_of(read.table)}
        tables = {table.obj_id: table for table in tables_of(read.instant)}
        with kept_store(read.path, read.instant) as store:
            store.skip = partial(note_skipped, read.path, read.instant) if read.skips_damage else None
            scns = committed_at(store, partition.committed.page_ids(), read.instant.scn)
            for some in steps(store, partition.page_ids()):
                rows = [
                    _values(row, scns, named.get(row.record.head["obj_id"]))
                    for row in records_on(store, some, tables)
                    if chosen is None or row.record.head["obj_id"] in chosen
                ]
                if rows:
                    yield {name: [row[name] for row in rows] for name in read.wanted}


def committed_at(store: FrozenStore, page_ids: np.ndarray, scn: int) -> dict[int, int]:
    """The transactions that have committed up to an SCN and are still in the table of them, with theirs."""
    found = commits_of(page for _, page in _pages(store, page_ids))
    return {number: since for number, since in found.items() if since <= scn}


def records_on(store: FrozenStore, page_ids: np.ndarray, tables: dict[int, TableDefinition]) -> Iterator[UndoRow]:
    """The records of some undo pages."""
    return rows_of(_pages(store, page_ids), tables)


def _pages(store: FrozenStore, page_ids: np.ndarray) -> Iterator[tuple[int, bytes]]:
    from gmdb.spark.views.measure import steps

    for some in steps(store, page_ids):
        for page_id in store.read_pages(some).tolist():
            yield page_id, bytes(store.page(page_id))


def _values(row: UndoRow, scns: dict[int, int], stored: Any) -> dict[str, Any]:
    return undo_values(row, scns, stored.name if stored else None, stored.table if stored else None)
