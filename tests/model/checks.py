"""What must be so in an open database with nobody at work."""

from __future__ import annotations

from typing import Any

from gmdb.database.connection import Connection
from gmdb.format.address import RowId, device_of, offset_of
from gmdb.format.page import PAGE_HEAD
from gmdb.format.undo import NODE_AT, UNDO_ENTRY, UNDO_HEAD
from gmdb.storage.store import Segment
from gmdb.tables.access.index_entries import HashIndex
from gmdb.tables.access.indexes import IndexDefinition
from tests.access.hashes import check_hash
from tests.access.trees import check_tree, entries_with_locks


def check_indexes(db: Connection, table: str) -> None:
    """With nobody at work, an index has an entry for each row, without a lock, and no other."""
    heap = db.heap(table)
    rows = list(heap.rows())
    for index in heap.indexes:
        keyed = heap.by(index.name)
        its_rows = rows_of(db, table, index, rows)
        expected = [(tuple(values[n] for n in index.positions), row_id) for row_id, values in its_rows]
        assert sorted(map(repr, keyed.tree.walk())) == sorted(map(repr, expected)), index.name
        if isinstance(keyed.tree, HashIndex):
            check_hash(keyed.tree)
        else:
            assert not entries_with_locks(keyed.tree), index.name
            check_tree(keyed.tree)
    db.commit()


def rows_of(
    db: Connection, table: str, index: IndexDefinition, rows: list[tuple[RowId, tuple[Any, ...]]]
) -> list[tuple[RowId, tuple[Any, ...]]]:
    """Those of a table's rows that an index has entries of."""
    if index.condition is None:
        return rows
    wanted = {row_id for (row_id,) in db.execute(f"select rowid from {table} where {index.condition}")}
    return [row for row in rows if str(row[0]) in wanted]


def undo_is_empty(db: Connection) -> bool:
    """Whether no undo page has a live record, and there are no more pages than sessions could have left."""
    store = db._database.store
    segment = Segment(store, store.spaces[1], UNDO_ENTRY)
    pages = [bytes(store.devices[device_of(i)].memory(offset_of(i))) for i in segment.page_ids().tolist()]
    live = [UNDO_HEAD.at(page, NODE_AT).slot_count - PAGE_HEAD.at(page).del_count for page in pages]
    return len(pages) <= 16 and not any(live)
