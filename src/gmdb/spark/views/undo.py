"""``view=undo``: the records of the undo log, each with the version of a row from before, and whose it is."""

# mypy: disallow-subclassing-any=False

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from gmdb.catalog.schema import TableDefinition
from gmdb.format.address import NO_PAGE, NO_SLOT, page_name
from gmdb.format.page import PAGE_HEAD, PageType
from gmdb.format.row import NO_LOCK
from gmdb.format.transactions import committed
from gmdb.format.undo import UNDO_ENTRY, Owner, UndoOperation, record_extents, record_owners
from gmdb.inspect.pinned import PinnedFiles
from gmdb.inspect.undo_view import UndoRecordView, view_undo_records
from gmdb.spark.plan import PageRange, divide_by_size
from gmdb.spark.views.base import BIGINT, BINARY, INT, STRING, Values, View, ViewColumn, ViewRead
from gmdb.spark.views.objects import object_names, objects_of, tables_of, transactions_entry

if TYPE_CHECKING:
    from gmdb.storage.frozen import FrozenStore

_COUNT_NO_MORE = (UndoOperation.NONE, UndoOperation.OWNER)


@dataclass(frozen=True)
class UndoRange(PageRange):
    """Some undo pages, and where the table of committed transactions is."""

    committed: PageRange


@dataclass(frozen=True)
class UndoRow:
    """A record, where it is, and whose."""

    page_id: int
    record: UndoRecordView
    owner: Owner

    @property
    def is_live(self) -> bool:
        return self.record.head["op_type"] not in _COUNT_NO_MORE


class UndoView(View):
    name = "undo"
    columns = (
        ViewColumn("page_id", BIGINT, "the undo page"),
        ViewColumn("page", STRING, "as people write it: `1:7`"),
        ViewColumn("slot", INT, "the record's slot on it"),
        ViewColumn("transaction", BIGINT, "the transaction that wrote it; NULL: the page is nobody's"),
        ViewColumn("run", BIGINT, "which of the transaction's runs of records it is in"),
        ViewColumn("operation", STRING, "what was done, such as `HEAP_UPDATE`; `NONE`: the record counts no more"),
        ViewColumn("state", STRING, "`in flight` or `committed`, at the instant; NULL: the record counts no more"),
        ViewColumn("scn", BIGINT, "when the transaction committed; NULL: it had not"),
        ViewColumn("row", STRING, "the row, as SQL's rowid"),
        ViewColumn("row_page", BIGINT, "its page"),
        ViewColumn("row_slot", INT, "its slot; NULL: the record is about whole pages from there on, or a segment"),
        ViewColumn("lock_id", BIGINT, "the writer's lock"),
        ViewColumn("obj_id", BIGINT, "the table or index"),
        ViewColumn("object", STRING, "its name; NULL if it is none that was committed"),
        ViewColumn("table", STRING, "the table that it is, or belongs to"),
        ViewColumn("size", INT, "bytes of the record, its head included"),
        ViewColumn("image", BINARY, "what follows the head: how the row was before"),
        ViewColumn("before", STRING, "of updates: the values before, as JSON, by column"),
    )

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
    from gmdb.spark.views.measure import steps

    found: dict[int, int] = {}
    for some in steps(store, page_ids):
        for page_id in store.read_pages(some).tolist():
            page = bytes(store.page(page_id))
            if PAGE_HEAD.at(page).page_type == PageType.TRANSACTIONS:
                found |= {number: since for _, number, since in committed(page) if since <= scn}
    return found


def records_on(store: FrozenStore, page_ids: np.ndarray, tables: dict[int, TableDefinition]) -> Iterator[UndoRow]:
    """The records of some undo pages."""
    for page_id in store.read_pages(page_ids).tolist():
        page = bytes(store.page(page_id))
        if PAGE_HEAD.at(page).page_type == PageType.DATA:
            owners = record_owners(page, record_extents(page))
            for record, owner in zip(view_undo_records(page, tables), owners, strict=True):
                yield UndoRow(page_id, record, owner)


def _values(row: UndoRow, scns: dict[int, int], stored: Any) -> dict[str, Any]:
    record, head, number = row.record, row.record.head, row.owner.number
    row_page, row_slot = record.row_id
    has_row = row_page != NO_PAGE
    scn = scns.get(number) if row.is_live else None
    return {
        "page_id": row.page_id,
        "page": page_name(row.page_id),
        "slot": record.slot,
        "transaction": number or None,
        "run": row.owner.run if number else None,
        "operation": record.operation,
        "state": None if not row.is_live else "in flight" if scn is None else "committed",
        "scn": scn,
        "row": str(record.row_id) if has_row and row_slot != NO_SLOT else None,
        "row_page": row_page if has_row else None,
        "row_slot": row_slot if row_slot != NO_SLOT else None,
        "lock_id": None if head["lock_id"] == NO_LOCK else head["lock_id"],
        "obj_id": head["obj_id"],
        "object": stored.name if stored else None,
        "table": stored.table if stored else None,
        "size": head["size"],
        "image": record.body,
        "before": _before(record),
    }


def _before(record: UndoRecordView) -> str | None:
    if record.image is None or record.image.cells is None:
        return None
    names = [cell.name for cell in record.image.cells]
    return json.dumps(dict(zip(names, record.image.document()["values"], strict=True)), ensure_ascii=False)
