"""Statements over the rows that meet a condition: update, delete, select for update.

The rows are collected first, then changed: a statement never meets its own changes.  Under read committed a
statement that had to wait for a row which then changed starts over on a new snapshot; from the second time on it
locks its rows before it changes them and keeps the locks, so that it comes to an end.

The condition and the changes are functions of the program, and run where it runs; the steps are the heap's, which
may be in another process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gmdb.access.lob_source import rereadable
from gmdb.access.steps import RowChanged, Steps
from gmdb.format.address import RowId

if TYPE_CHECKING:
    from gmdb.access.heap import Heap

Row = dict[str, Any]
Found = list[tuple[RowId, Row]]
Condition = Callable[[Row], bool] | None
LOCK_FIRST_FROM = 2


def update_where(heap: Heap, changes: Mapping[str, Any] | Callable[[Row], Mapping[str, Any]], where: Condition) -> int:
    """Change the rows that meet the condition; ``changes`` may be computed from a row.  Answers their number."""

    given = changes if callable(changes) else rereadable(changes)

    def act(steps: Steps, found: Found) -> None:
        steps.update((row_id, given(row) if callable(given) else given) for row_id, row in found)

    return len(_run(heap, where, act))


def delete_where(heap: Heap, where: Condition) -> int:
    """Delete the rows that meet the condition; answers their number."""
    if where is None:
        heap = heap.wanting(())
    return len(_run(heap, where, lambda steps, found: steps.delete(row_id for row_id, _ in found)))


def select_for_update(
    heap: Heap, where: Condition, nowait: bool = False, skip_locked: bool = False
) -> list[tuple[RowId, Row]]:
    """Lock the rows that meet the condition until the transaction ends; answers them."""
    skipped: set[RowId] = set()

    def act(steps: Steps, found: Found) -> None:
        skipped.update(steps.lock((row_id for row_id, _ in found), nowait, skip_locked))

    found = _run(heap, where, act)
    return [(row_id, row) for row_id, row in found if row_id not in skipped]


def run_statement(heap: Heap, find: Callable[[Steps], list[Any]], act: Callable[[Steps, list[Any]], None]) -> list[Any]:
    """Find rows, each of which begins with its row id, and act on them: all of it or nothing; answers the rows."""
    with heap.statement() as steps:
        restarts = 0
        while True:
            found = find(steps)
            try:
                if restarts >= LOCK_FIRST_FROM:
                    steps.lock(row[0] for row in found)
                act(steps, found)
                return found
            except RowChanged as changed:
                steps.start_over(changed)
                restarts += 1


def _run(heap: Heap, where: Condition, act: Callable[[Steps, Found], None]) -> Found:
    return run_statement(heap, lambda steps: _matching(heap, steps, where), act)


def _matching(heap: Heap, steps: Steps, where: Condition) -> Found:
    names: Sequence[str] = [column.name for column in heap.columns]
    found = []
    for row_id, values in steps.rows():
        row = dict(zip(names, values, strict=True))
        if where is None or where(row):
            found.append((row_id, row))
    return found
