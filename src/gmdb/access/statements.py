"""Statements over the rows that meet a condition: update, delete, select for update.

The rows are collected first, then changed: a statement never meets its own changes.  Under read committed a
statement that had to wait for a row which then changed starts over on a new snapshot; from the second time on it
locks its rows before it changes them and keeps the locks, so that it comes to an end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gmdb.access.heap import Heap
from gmdb.errors import InterfaceError, RowLocked
from gmdb.format.address import RowId
from gmdb.kernel.status import CHANGED, DELETED, NOT_FOUND
from gmdb.transaction.snapshots import Snapshot

Row = dict[str, Any]
Condition = Callable[[Row], bool] | None
LOCK_FIRST_FROM = 2


class _RowChanged(Exception):
    """A row is not as the statement's snapshot shows it: start over."""


def update_where(heap: Heap, changes: Mapping[str, Any] | Callable[[Row], Mapping[str, Any]], where: Condition) -> int:
    """Change the rows that meet the condition; ``changes`` may be computed from a row.  Answers their number."""

    def change(row_id: RowId, row: Row) -> None:
        _require(heap.try_update(row_id, changes(row) if callable(changes) else changes), heap, row_id)

    return len(_run(heap, where, change))


def delete_where(heap: Heap, where: Condition) -> int:
    """Delete the rows that meet the condition; answers their number."""
    return len(_run(heap, where, lambda row_id, _: _require(heap.try_delete(row_id), heap, row_id)))


def select_for_update(
    heap: Heap, where: Condition, nowait: bool = False, skip_locked: bool = False
) -> list[tuple[RowId, Row]]:
    """Lock the rows that meet the condition until the transaction ends; answers them."""
    skipped: set[RowId] = set()

    def lock(row_id: RowId, _: Row) -> None:
        try:
            _require(heap.try_lock(row_id, nowait or skip_locked), heap, row_id)
        except RowLocked:
            if not skip_locked:
                raise
            skipped.add(row_id)

    found = _run(heap, where, lock)
    return [(row_id, row) for row_id, row in found if row_id not in skipped]


def _require(status: int, heap: Heap, row_id: RowId) -> None:
    if status in (CHANGED, DELETED, NOT_FOUND):
        raise _RowChanged(f"row {row_id} of table {heap.name} was changed while the statement ran")
    heap.refuse_if_failed(status, row_id)


def _run(heap: Heap, where: Condition, act: Callable[[RowId, Row], None]) -> list[tuple[RowId, Row]]:
    session = heap.session
    heap.share()
    with session.statement() as snapshot:
        restarts = 0
        while True:
            mark = session.mark()
            rows = _matching(heap, snapshot, where)
            try:
                if restarts >= LOCK_FIRST_FROM:
                    for row_id, _ in rows:
                        _require(heap.try_lock(row_id), heap, row_id)
                for row_id, row in rows:
                    act(row_id, row)
                return rows
            except _RowChanged as changed:
                if session.hub.memory.scn == snapshot.scn:  # nobody else committed anything: it would happen again
                    raise InterfaceError(f"{changed}, by the statement's own function") from None
                session.take_back_to(mark)
                session.start_over(snapshot)
                restarts += 1


def _matching(heap: Heap, snapshot: Snapshot, where: Condition) -> list[tuple[RowId, Row]]:
    names: Sequence[str] = [column.name for column in heap.columns]
    form = heap.session.form_of(snapshot)
    found = []
    for page_id in heap.segment.page_ids().tolist():
        for row_id, values in heap.rows_of_page(page_id, form):
            row = dict(zip(names, values, strict=True))
            if where is None or where(row):
                found.append((row_id, row))
        snapshot.check()
    return found
