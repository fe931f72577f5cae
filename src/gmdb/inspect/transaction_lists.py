"""Listings about transactions: undo records, locks, transactions, waits, pinned snapshots."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from gmdb.errors import Error
from gmdb.format import anatomy
from gmdb.format.address import NO_PAGE, NO_SLOT, RowId, page_name
from gmdb.format.page import PAGE_HEAD, PageType, SegmentType
from gmdb.format.row import NO_LOCK
from gmdb.format.segment import SEGMENT_HEAD, SEGMENT_HEAD_AT
from gmdb.format.slotted import bounded
from gmdb.format.transactions import committed
from gmdb.format.undo import TRANSACTIONS_ID, UNDO_ENTRY, Owner, UndoOperation, record_extents, record_owners
from gmdb.inspect.listing import BIGINT, BYTES, DOUBLE, INT, TEXT, TIMESTAMP, ListColumn, Listing
from gmdb.inspect.objects import segment_objects
from gmdb.inspect.page_lists import ALL_PAGES, PageSelection, data_pages
from gmdb.process.late_dataclasses import dataclass
from gmdb.storage.pins import expires_at, image_files, read_pins, skipped_path
from gmdb.tables.catalog.schema import TableDefinition
from gmdb.tables.files.database_files import DatabaseFiles
from gmdb.tables.files.page_view import UndoRecordView, known_tables, view_undo_records

if TYPE_CHECKING:
    import pyarrow as pa


# ---- Listings from the undo log: its records, each with its transaction, and the locks and transactions they show.

UNDO = (
    ListColumn("page_id", BIGINT, "the undo page", True),
    ListColumn("page", TEXT, "as people write it: `1:7`"),
    ListColumn("slot", INT, "the record's slot on it"),
    ListColumn("transaction", BIGINT, "the transaction that wrote it; NULL: none is named on the page"),
    ListColumn("run", BIGINT, "which of the transaction's runs of records it is in", True),
    ListColumn("operation", TEXT, "what was done, such as `HEAP_UPDATE`; `NONE`: the record no longer counts"),
    ListColumn("state", TEXT, "`in flight` or `committed`, at the instant; NULL: the record no longer counts"),
    ListColumn("scn", BIGINT, "when the transaction committed; NULL: it had not"),
    ListColumn("row", TEXT, "the row, as SQL's rowid"),
    ListColumn("row_page", BIGINT, "its page", True),
    ListColumn("row_slot", INT, "its slot; NULL: the record is about whole pages from this one on, or a segment", True),
    ListColumn("lock_id", BIGINT, "the writer's lock"),
    ListColumn("obj_id", BIGINT, "the table or index", True),
    ListColumn("object", TEXT, "its name; NULL if it is none that was committed"),
    ListColumn("table", TEXT, "the table that it is, or belongs to", True),
    ListColumn("size", INT, "bytes of the record, its head included"),
    ListColumn("image", BYTES, "what follows the head: how the row was before", True),
    ListColumn("before", TEXT, "of updates: the values before, as JSON, by column"),
)
LOCKS = (
    ListColumn("lock_id", BIGINT, "the lock's number"),
    ListColumn("transaction", BIGINT, "the transaction that holds it; NULL: not known from undo"),
    ListColumn("action", TEXT, "what was done to the row first"),
    ListColumn("row", TEXT, "the row, as SQL's rowid; NULL: the rows that a statement inserted"),
    ListColumn("page_id", BIGINT, "its page", True),
    ListColumn("slot_id", INT, "its slot", True),
    ListColumn("beneath", BIGINT, "the lock beneath; NULL: none"),
    ListColumn("undo_record", TEXT, "its newest undo record, as PAGE:SLOT"),
)
TRANSACTIONS = (
    ListColumn("transaction", BIGINT, "its number"),
    ListColumn("state", TEXT, "`active`, `committed`, `rolled back`; out of files, `never ended`"),
    ListColumn("scn", BIGINT, "when it committed; NULL: it has not"),
    ListColumn("locks", BIGINT, "locks that it has"),
)
_NOT_LIVE = (UndoOperation.NONE, UndoOperation.OWNER)
IN_FLIGHT, COMMITTED = "in flight", "committed"
FROM_FILES = "out of the undo log in the files"


@dataclass(frozen=True)
class UndoRow:
    """An undo record, its page, and its transaction."""

    page_id: int
    record: UndoRecordView
    owner: Owner

    @property
    def is_live(self) -> bool:
        return self.record.head["op_type"] not in _NOT_LIVE


def rows_of(pages: Iterable[tuple[int, bytes]], tables: dict[int, TableDefinition]) -> Iterator[UndoRow]:
    """The records of some undo pages."""
    for page_id, page in pages:
        if PAGE_HEAD.at(page).page_type == PageType.DATA:
            owners = record_owners(page, list(bounded(page, record_extents(page))))
            for record, owner in zip(view_undo_records(page, tables), owners, strict=True):
                yield UndoRow(page_id, record, owner)


def commits_of(pages: Iterable[bytes]) -> dict[int, int]:
    """The SCNs of committed transactions, by number, out of pages of the transaction table."""
    scns: dict[int, int] = {}
    for page in pages:
        if PAGE_HEAD.at(page).page_type == PageType.TRANSACTIONS:
            scns |= {number: scn for _, number, scn in committed(page)}
    return scns


def undo_values(row: UndoRow, scns: dict[int, int], name: str | None, table: str | None) -> dict[str, Any]:
    """A record by the names of UNDO; ``name`` and ``table`` are of the object that it is about."""
    record, head, number = row.record, row.record.head, row.owner.number
    row_page, row_slot = record.row_id
    has_row = row_page != NO_PAGE
    scn = scns.get(number) if row.is_live else None
    return {
        "page_id": row.page_id,
        "page": page_name(row.page_id),
        "slot": record.slot,
        "transaction": _in_bigint(number) or None,
        "run": row.owner.run if number else None,
        "operation": record.operation,
        "state": None if not row.is_live else IN_FLIGHT if scn is None else COMMITTED,
        "scn": _in_bigint(scn),
        "row": str(record.row_id) if has_row and row_slot != NO_SLOT else None,
        "row_page": row_page if has_row else None,
        "row_slot": row_slot if row_slot != NO_SLOT else None,
        "lock_id": None if head["lock_id"] == NO_LOCK else head["lock_id"],
        "obj_id": head["obj_id"],
        "object": name,
        "table": table,
        "size": head["size"],
        "image": record.body,
        "before": _before(record),
    }


def _in_bigint(number: int | None) -> int | None:
    """A number of 8 bytes as a BIGINT; None if it is too large, which only damage can cause."""
    return number if number is not None and number < 1 << 63 else None


def _before(record: UndoRecordView) -> str | None:
    if record.image is None or record.image.cells is None:
        return None
    names = [cell.name for cell in record.image.cells]
    return json.dumps(dict(zip(names, record.image.document()["values"], strict=True)), ensure_ascii=False)


# ---- out of the files


def undo_rows(files: DatabaseFiles, listing: Listing, pages: PageSelection = ALL_PAGES) -> Iterator[UndoRow]:
    """The records of the undo log, as far as its pages make sense; problems are noted in ``listing``."""
    tables = known_tables(files)
    for entry in _undo_entries(files):
        yield from rows_of(_sound(files, pages.of(data_pages(files, entry, listing.wrong)), listing), tables)


def commits(files: DatabaseFiles, listing: Listing) -> dict[int, int]:
    """The SCNs of the transactions, by number, that are still in the table of committed ones."""
    try:
        entry = int(SEGMENT_HEAD.at(files.sound_page(UNDO_ENTRY), SEGMENT_HEAD_AT).child_seg)
    except Error:  # reported with the undo segment itself; a database made by hand may have none
        return {}
    listed = data_pages(files, entry, listing.wrong) if entry != NO_PAGE else []
    return commits_of(page for _, page in _sound(files, listed, listing))


def _undo_entries(files: DatabaseFiles) -> list[int]:
    entries = []
    for device in files.devices:
        for entry in files.segment_entries(device):
            head = SEGMENT_HEAD.at(files.page(entry), SEGMENT_HEAD_AT)
            if head.type == SegmentType.UNDO and head.obj_id != TRANSACTIONS_ID:
                entries.append(entry)
    return entries


def _sound(files: DatabaseFiles, page_ids: Iterable[int], listing: Listing) -> Iterator[tuple[int, bytes]]:
    """Pages with their bytes; damaged ones too, whose problems are noted in ``listing``."""
    for page_id in page_ids:
        try:
            page = files.page(page_id)
        except Error as error:
            listing.wrong(page_name(page_id), error)
            continue
        for finding in anatomy.check(page, page_id):
            listing.wrong(page_name(page_id), f"offset {finding.offset}: {finding.message}")
        yield page_id, page


def undo(files: DatabaseFiles, pages: PageSelection = ALL_PAGES) -> Listing:
    listing = Listing("undo", UNDO)
    known = {stored.obj_id: stored for stored in segment_objects(files)}
    scns = commits(files, listing)
    for row in undo_rows(files, listing, pages):
        stored = known.get(row.record.head["obj_id"])
        table = stored.table.name if stored is not None and stored.table is not None else None
        listing.add(**undo_values(row, scns, stored.name if stored else None, table))
    return listing


def locks(files: DatabaseFiles) -> Listing:
    """The locks of transactions that had not committed, from the undo log in the files."""
    listing = Listing("locks", LOCKS, notes=[FROM_FILES])
    scns, seen = commits(files, listing), set()
    for row in undo_rows(files, listing):
        lock_id = row.record.head["lock_id"]
        if not row.is_live or row.owner.number in scns or lock_id == NO_LOCK or lock_id in seen:
            continue
        seen.add(lock_id)
        page_id, slot = row.record.row_id
        has_row = page_id != NO_PAGE and slot != NO_SLOT
        listing.add(
            lock_id=lock_id,
            transaction=_in_bigint(row.owner.number) or None,
            action=row.record.operation,
            row=str(row.record.row_id) if has_row else None,
            page_id=page_id if has_row else None,
            slot_id=slot if has_row else None,
            undo_record=f"{page_name(row.page_id)}:{row.record.slot}",
        )
    return listing


def transactions(files: DatabaseFiles) -> Listing:
    """The transactions that the undo log in the files has records of."""
    listing = Listing("transactions", TRANSACTIONS, notes=[FROM_FILES])
    scns = commits(files, listing)
    held: dict[int, set[int]] = {number: set() for number in scns}
    for row in undo_rows(files, listing):
        if row.is_live:
            held.setdefault(row.owner.number, set()).add(row.record.head["lock_id"])
    for number, lock_ids in sorted(held.items()):
        scn = scns.get(number)
        state = "never ended" if scn is None else COMMITTED
        listing.add(
            transaction=_in_bigint(number) or None, state=state, scn=_in_bigint(scn), locks=len(lock_ids - {NO_LOCK})
        )
    return listing


# ---- Listings of what is going on, from the memory of the process that has the database open; else from its files.

WAITS = (
    ListColumn("transaction", BIGINT, "the transaction that waits; NULL: it has changed nothing yet"),
    ListColumn("waits_for", TEXT, "the row or table that another transaction has locked"),
    ListColumn("kind", TEXT, "`row` or `table`"),
)
SNAPSHOTS = (
    ListColumn("name", TEXT, "the pin's name"),
    ListColumn("taken", TIMESTAMP, "when, in UTC"),
    ListColumn("scn", BIGINT, "the newest commit that it has"),
    ListColumn("ckpt_id", BIGINT, "the checkpoint that it is of", True),
    ListColumn("held_by", TEXT, "the process that asked for it"),
    ListColumn("expires_in", DOUBLE, "seconds that its lease still runs"),
    ListColumn("skipped_pages", INT, "damaged pages that reads by it have left out"),
)


def live_locks(view: Callable[[str], pa.Table]) -> Listing:
    listing = Listing("locks", LOCKS)
    for lock in view("sys_locks").to_pylist():
        has_row = lock["slot_id"] != NO_SLOT and lock["page_id"] != NO_PAGE
        undo = f"{page_name(lock['undo_page'])}:{lock['undo_slot']}" if lock["undo_page"] != NO_PAGE else None
        listing.add(
            lock_id=lock["lock_id"],
            transaction=lock["transaction"],
            action=lock["action"],
            row=str(RowId(lock["page_id"], lock["slot_id"])) if has_row else None,
            page_id=lock["page_id"] if has_row else None,
            slot_id=lock["slot_id"] if has_row else None,
            beneath=None if lock["previous"] == NO_LOCK else lock["previous"],
            undo_record=undo,
        )
    return listing


def live_transactions(view: Callable[[str], pa.Table]) -> Listing:
    return Listing("transactions", TRANSACTIONS, _rows(view("sys_transactions"), TRANSACTIONS))


def live_waits(view: Callable[[str], pa.Table]) -> Listing:
    return Listing("waits", WAITS, _rows(view("sys_waits"), WAITS))


def _rows(table: pa.Table, columns: tuple[ListColumn, ...]) -> list[tuple[Any, ...]]:
    return list(zip(*(table[column.name].to_pylist() for column in columns), strict=True))


def waits(files: DatabaseFiles) -> Listing:
    """Transactions that wait; none if no process has the database open."""
    del files
    return Listing("waits", WAITS, notes=["waits are in the memory of the process that has the database open"])


def snapshots(files: DatabaseFiles) -> Listing:
    """Pinned snapshots; they are in files, whether the database is open or not."""
    listing = Listing("snapshots", SNAPSHOTS)
    for pin in read_pins(files.path):
        skipped = skipped_path(files.path, pin.name)
        listing.add(
            name=pin.name,
            taken=datetime.fromtimestamp(int(pin.created), UTC).replace(tzinfo=None),
            scn=pin.scn,
            ckpt_id=pin.ckpt_id,
            held_by=str(pin.holder),
            expires_in=round(max(expires_at(files.path, pin) - time.time(), 0.0), 1),
            skipped_pages=len(set(skipped.read_text().splitlines())) if skipped.exists() else 0,
        )
    size = sum(path.stat().st_size for _, _, path in image_files(files.path))
    listing.notes.append(f"{size / (1 << 20):,.1f} MiB of images")
    return listing
