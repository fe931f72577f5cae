"""What pages belong to: tables, their indexes and large objects, and the undo log, as a pin has them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from gmdb.catalog.plain import table_from_plain
from gmdb.catalog.schema import TableDefinition
from gmdb.errors import Corruption
from gmdb.format.address import NO_PAGE
from gmdb.format.segment import SEGMENT_HEAD, SEGMENT_HEAD_AT
from gmdb.format.undo import TRANSACTIONS_ID, UNDO_ENTRY, UNDO_ID
from gmdb.inspect.pinned import PinnedFiles
from gmdb.storage.pins import Pin


@dataclass(frozen=True)
class StoredObject:
    """Something that has a segment."""

    obj_id: int
    name: str
    kind: str
    table: str | None
    entry_page: int


def tables_of(pin: Pin) -> list[TableDefinition]:
    return [table_from_plain(plain) for plain in pin.tables]


def objects_of(table: TableDefinition) -> Iterator[StoredObject]:
    """A table's segments."""
    yield StoredObject(table.obj_id, table.name, "table", table.name, table.entry_page)
    if table.lobs is not None:
        yield StoredObject(table.lobs.obj_id, table.name, "lobs", table.name, table.lobs.entry_page)
    for index in table.indexes:
        yield StoredObject(index.obj_id, index.name, f"{index.using} index", table.name, index.entry_page)


def object_names(pin: Pin) -> dict[int, StoredObject]:
    """What there is at an instant, by number.  Tables of transactions under way are not known."""
    undo = StoredObject(UNDO_ID, "undo", "undo", None, UNDO_ENTRY)
    transactions = StoredObject(TRANSACTIONS_ID, "transactions", "transactions", None, NO_PAGE)
    of_tables = [stored for table in tables_of(pin) for stored in objects_of(table)]
    return {stored.obj_id: stored for stored in (undo, transactions, *of_tables)}


def transactions_entry(files: PinnedFiles) -> int:
    """The entry page of the table of committed transactions; NO_PAGE if there is none yet."""
    return int(SEGMENT_HEAD.at(files.sound_page(UNDO_ENTRY), SEGMENT_HEAD_AT).child_seg)


def objects_with_segments(files: PinnedFiles, table: TableDefinition | None) -> list[StoredObject]:
    """All objects, by the places of their segments; of one table, only what is its own."""
    if table is not None:
        return list(objects_of(table))
    known = object_names(files.pin)
    try:
        entry = transactions_entry(files)
    except Corruption:  # of the undo log's own segment, which says so itself
        entry = NO_PAGE
    known[TRANSACTIONS_ID] = replace(known[TRANSACTIONS_ID], entry_page=entry)
    listed = [stored for stored in known.values() if stored.entry_page != NO_PAGE]
    return sorted(listed, key=lambda stored: stored.entry_page)
