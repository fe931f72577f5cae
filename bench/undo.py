"""How much undo space many short transactions take while garbage is collected behind them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import gmdb
from gmdb.format.address import UNDO_DEVICE
from gmdb.storage.store import Segment
from gmdb.transaction.hub import UNDO_ENTRY

UPDATES_SHARE = 5  # a fifth of the rows that are moved in bulk
ROWS = 1000
UPDATES_A_COMMIT = 10
TARGET = 64  # MiB; the peak must stay below
_MIB = 1 << 20


@dataclass(frozen=True)
class UndoUse:
    """The largest undo segment after any commit, and what was left once all garbage was collected, in MiB."""

    updates: int
    peak: float
    left: float

    @property
    def met(self) -> bool:
        return self.peak < TARGET


def undo_size(db: gmdb.Connection) -> float:
    """The pages of the undo segment at the moment, in MiB."""
    store = db._database.store
    space = store.spaces[UNDO_DEVICE]
    with store.guard:
        return Segment(store, space, UNDO_ENTRY).head.page_count * space.page_size / _MIB


def measure(directory: Path, updates: int) -> UndoUse:
    """Update the same rows again and again, a few in each transaction."""
    with gmdb.connect(directory / "undo.gmdb") as db:
        db.create_table("narrow", {"i": "INT NOT NULL", "s": "VARCHAR(20)"})
        heap = db.heap("narrow")
        row_ids = [heap.insert((i, f"{i:08}")) for i in range(ROWS)]
        db.commit()
        peak = 0.0
        for number in range(updates):
            heap.update(row_ids[number % ROWS], {"s": f"{number:08}"})
            if number % UPDATES_A_COMMIT == UPDATES_A_COMMIT - 1:
                db.commit()
                peak = max(peak, undo_size(db))
        db.commit()
        db.gc()
        return UndoUse(updates, peak, undo_size(db))


def undo_line(use: UndoUse) -> str:
    what = f"{use.updates:,} updates of {ROWS:,} rows, {UPDATES_A_COMMIT} a transaction"
    outcome = "met" if use.met else "**missed**"
    return (
        f"{what}: at most {use.peak:.1f} MiB of undo, {use.left:.1f} MiB once garbage is collected; "
        f"target below {TARGET} MiB, {outcome}"
    )
