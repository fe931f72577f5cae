"""Listings of what is going on: from memory where a process has the database open, else what the files tell."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from gmdb.format.address import NO_PAGE, NO_SLOT, RowId, page_name
from gmdb.format.row import NO_LOCK
from gmdb.inspect.files import DatabaseFiles
from gmdb.inspect.listing import BIGINT, DOUBLE, INT, TEXT, TIMESTAMP, ListColumn, Listing
from gmdb.inspect.undo_lists import LOCKS, TRANSACTIONS
from gmdb.storage.images import image_files
from gmdb.storage.pins import expires_at, read_pins, skipped_path

if TYPE_CHECKING:
    import pyarrow as pa

WAITS = (
    ListColumn("transaction", BIGINT, "who waits; NULL: it has changed nothing yet"),
    ListColumn("waits_for", TEXT, "the row or table that another has"),
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
    made = Listing("locks", LOCKS)
    for lock in view("sys_locks").to_pylist():
        has_row = lock["slot_id"] != NO_SLOT and lock["page_id"] != NO_PAGE
        undo = f"{page_name(lock['undo_page'])}:{lock['undo_slot']}" if lock["undo_page"] != NO_PAGE else None
        made.add(
            lock_id=lock["lock_id"],
            transaction=lock["transaction"],
            action=lock["action"],
            row=str(RowId(lock["page_id"], lock["slot_id"])) if has_row else None,
            page_id=lock["page_id"] if has_row else None,
            slot_id=lock["slot_id"] if has_row else None,
            beneath=None if lock["previous"] == NO_LOCK else lock["previous"],
            undo_record=undo,
        )
    return made


def live_transactions(view: Callable[[str], pa.Table]) -> Listing:
    return Listing("transactions", TRANSACTIONS, _rows(view("sys_transactions"), TRANSACTIONS))


def live_waits(view: Callable[[str], pa.Table]) -> Listing:
    return Listing("waits", WAITS, _rows(view("sys_waits"), WAITS))


def _rows(table: pa.Table, columns: tuple[ListColumn, ...]) -> list[tuple[Any, ...]]:
    return list(zip(*(table[column.name].to_pylist() for column in columns), strict=True))


def waits(files: DatabaseFiles) -> Listing:
    """Nobody waits where no process has the database open."""
    del files
    return Listing("waits", WAITS, notes=["waits are in the memory of the process that has the database open"])


def snapshots(files: DatabaseFiles) -> Listing:
    """Pinned instants; the files say so, whoever has the database open."""
    made = Listing("snapshots", SNAPSHOTS)
    for pin in read_pins(files.path):
        skipped = skipped_path(files.path, pin.name)
        made.add(
            name=pin.name,
            taken=datetime.fromtimestamp(int(pin.created), UTC).replace(tzinfo=None),
            scn=pin.scn,
            ckpt_id=pin.ckpt_id,
            held_by=str(pin.holder),
            expires_in=round(max(expires_at(files.path, pin) - time.time(), 0.0), 1),
            skipped_pages=len(set(skipped.read_text().splitlines())) if skipped.exists() else 0,
        )
    size = sum(path.stat().st_size for _, _, path in image_files(files.path))
    made.notes.append(f"{size / (1 << 20):,.1f} MiB of images")
    return made
