"""``view=undo`` and ``view=locks``: what transactions have done, and what they hold, at the instant."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from gmdb.format.address import NO_PAGE, NO_SLOT, RowId
from gmdb.format.row import NO_LOCK
from gmdb.format.undo import UNDO_ENTRY, UndoOperation
from gmdb.inspect.transaction_lists import UNDO, UndoRow, commits_of, rows_of, undo_values
from gmdb.process.late_dataclasses import dataclass, field
from gmdb.spark.table_reader import PagePartition, divide, divide_by_size
from gmdb.spark.views.base import (
    BIGINT,
    BOOLEAN,
    INT,
    STRING,
    Values,
    View,
    ViewColumn,
    ViewRead,
    object_names,
    objects_of,
    tables_of,
    transactions_entry,
    view_columns,
)
from gmdb.storage.pins import locks_path
from gmdb.tables.arrow.arrow_types import labels, numbers
from gmdb.tables.catalog.schema import TableDefinition
from gmdb.tables.files.pinned_files import PinnedFiles

if TYPE_CHECKING:
    from gmdb.storage.pinned_pages import FrozenStore


# ---- ``view=undo``: the records of the undo log, each with the version of a row from before, and whose it is.

# mypy: disallow-subclassing-any=False


@dataclass(frozen=True)
class UndoRange(PagePartition):
    """Some undo pages, and where the table of committed transactions is."""

    committed: PagePartition


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
    """The transactions that have committed up to an SCN and are still in the table of them, with their SCNs."""
    commits = commits_of(page for _, page in _pages(store, page_ids))
    return {number: since for number, since in commits.items() if since <= scn}


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


# ---- ``view=locks``: what transactions under way at the instant hold: row locks and bulk loads.
#
# A pin notes the locks themselves; whose they are and of which table, the undo log says, where every lock has a record.

# mypy: disallow-subclassing-any=False


LOCK, LOAD = "lock", "load"
_Whose = tuple[int, int]  # transaction and object


@dataclass
class _Owners:
    """The owners of locks and loads, as far as undo says."""

    of_locks: dict[int, _Whose] = field(default_factory=dict)
    of_loads: dict[int, _Whose] = field(default_factory=dict)


class LocksView(View):
    name = "locks"
    columns = (
        ViewColumn("kind", STRING, "`lock`: of a row, or of the rows that a statement inserted; `load`: a bulk load"),
        ViewColumn("lock_id", BIGINT, "the lock's number"),
        ViewColumn("load", BIGINT, "the bulk load's number, which its pages carry"),
        ViewColumn("transaction", BIGINT, "the transaction's number; NULL if undo does not tell"),
        ViewColumn("action", STRING, "what it did to the row first: `INSERT`, `UPDATE`, `DELETE` or `U_LOCK`"),
        ViewColumn("row", STRING, "the row, as SQL's rowid; NULL: the rows that a statement inserted"),
        ViewColumn("row_page", BIGINT, "its page"),
        ViewColumn("row_slot", INT, "its slot"),
        ViewColumn("previous", BIGINT, "the lock beneath; NULL: none"),
        ViewColumn("undo_page", BIGINT, "where the newest undo record of the row is"),
        ViewColumn("undo_slot", INT, "its slot"),
        ViewColumn("statement", BIGINT, "the transaction's statement that did it"),
        ViewColumn("last_statement", BIGINT, "the statement that changed the row last"),
        ViewColumn("rows", BIGINT, "rows that share the lock"),
        ViewColumn("u_locked", BOOLEAN, "whether the row was locked first and changed later"),
        ViewColumn("obj_id", BIGINT, "the table"),
        ViewColumn("table", STRING, "its name; NULL if it is none that was committed"),
    )

    def partitions(self, read: ViewRead) -> list[PagePartition]:
        with PinnedFiles(read.path, read.instant) as files:
            pages = files.segment_pages(UNDO_ENTRY)
        return divide(pages, max(len(pages), 1))

    def batches(self, read: ViewRead, partition: Any) -> Iterator[Values]:
        from gmdb.spark.reading import kept_store, note_skipped
        from gmdb.storage.pinned_pages import read_locks

        area, ids, loads = read_locks(locks_path(read.path, read.instant.name))
        if not len(ids) and not len(loads):
            return
        with kept_store(read.path, read.instant) as store:
            store.skip = partial(note_skipped, read.path, read.instant) if read.skips_damage else None
            owners = _owners(store, partition.page_ids())
        named = object_names(read.instant)

        def table_name(obj_id: int) -> str | None:
            return named[obj_id].table if obj_id in named else None

        chosen = None if read.table is None else [stored.obj_id for stored in objects_of(read.table)]
        for values in (_of_locks(ids, area[ids], owners.of_locks), _of_loads(loads, owners.of_loads)):
            is_wanted = (
                np.ones(len(values["obj_id"]), np.bool_) if chosen is None else np.isin(values["obj_id"], chosen)
            )
            if is_wanted.any():
                values["table"] = labels(values["obj_id"], table_name)
                for name in ("obj_id", "transaction"):
                    values[name] = numbers(values[name], BIGINT)
                yield {name: values[name].filter(pa.array(is_wanted)) for name in read.wanted}


def _owners(store: FrozenStore, undo_pages: np.ndarray) -> _Owners:
    """Look through the undo log."""
    from gmdb.spark.views.measure import steps

    owners = _Owners()
    loaded: dict[int, _Whose] = {}  # by the first of the pages that a bulk load has filled
    for some in steps(store, undo_pages):
        for row in records_on(store, some, {}):
            if row.is_live:
                head = row.record.head
                whose = (row.owner.number, head["obj_id"])
                if head["lock_id"] != NO_LOCK:
                    owners.of_locks.setdefault(head["lock_id"], whose)
                if head["op_type"] == UndoOperation.HEAP_INSERT and row.record.row_id.slot_id == NO_SLOT:
                    loaded[row.record.row_id.page_id] = whose
    for page_id, number in _load_numbers(store, sorted(loaded)):
        owners.of_loads[number] = loaded[page_id]
    return owners


def _load_numbers(store: FrozenStore, page_ids: list[int]) -> Iterator[tuple[int, int]]:
    """The numbers of bulk loads that pages carry; not of those that were yet to be written."""
    from gmdb.spark.views.measure import heads_of, steps

    unwritten: dict[int, str] = {}
    store.skip = unwritten.__setitem__
    for some in steps(store, np.array(page_ids, np.uint32)):
        whole = store.read_pages(some)
        loads = np.ascontiguousarray(heads_of(store, whole)["reserve"][:, :8]).view("<u8")[:, 0]
        yield from zip(whole.tolist(), loads.tolist(), strict=True)


def _of_locks(ids: np.ndarray, locks: np.ndarray, owners: dict[int, _Whose]) -> dict[str, Any]:
    from gmdb.kernel.locks import LockAction

    count = len(ids)
    whose = np.array([owners.get(lock_id, (-1, -1)) for lock_id in ids.tolist()], np.int64).reshape(count, 2)
    has_row, has_undo = locks["row_slot"] != NO_SLOT, locks["undo_page"] != NO_PAGE
    pairs = zip(locks["row_page"].tolist(), locks["row_slot"].tolist(), has_row.tolist(), strict=True)
    return {
        "kind": pa.array([LOCK] * count, STRING),
        "lock_id": numbers(ids, BIGINT),
        "load": pa.nulls(count, BIGINT),
        "transaction": whose[:, 0],
        "obj_id": whose[:, 1],
        "action": labels(locks["action"], lambda action: LockAction(action).name),
        "row": pa.array([str(RowId(page, slot)) if is_ else None for page, slot, is_ in pairs], STRING),
        "row_page": numbers(locks["row_page"], BIGINT, locks["row_page"] != NO_PAGE),
        "row_slot": numbers(locks["row_slot"], INT, has_row),
        "previous": numbers(locks["previous"], BIGINT, locks["previous"] != NO_LOCK),
        "undo_page": numbers(locks["undo_page"], BIGINT, has_undo),
        "undo_slot": numbers(locks["undo_slot"], INT, has_undo),
        "statement": numbers(locks["statement"], BIGINT),
        "last_statement": numbers(locks["last_statement"], BIGINT),
        "rows": numbers(locks["rows"], BIGINT),
        "u_locked": pa.array(locks["u_locked"] == 1, BOOLEAN),
    }


def _of_loads(loads: np.ndarray, owners: dict[int, _Whose]) -> dict[str, Any]:
    count = len(loads)
    whose = np.array([owners.get(number, (-1, -1)) for number in loads["number"].tolist()], np.int64).reshape(count, 2)
    return {
        **{column.name: pa.nulls(count, column.type) for column in LocksView.columns},
        "kind": pa.array([LOAD] * count, STRING),
        "load": numbers(loads["number"], BIGINT),
        "transaction": whose[:, 0],
        "obj_id": whose[:, 1],
        "action": pa.array(["INSERT"] * count, STRING),
        "statement": numbers(loads["statement"], BIGINT),
    }
