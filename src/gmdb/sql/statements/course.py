"""The course of a statement that changes rows: its parts, each of which changes the rows of one table.

INSERT, UPDATE, DELETE and MERGE are one part each, and WITH may have more of them.

Invariants
 1. All parts read by the statement's snapshot, and see nothing of what it has changed itself.
 2. All happen or none; under read committed all start over if a row has changed that one of them had to wait for.
 3. A row that one part has changed is not changed by another one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from gmdb.database.dbapi import Result
from gmdb.format.address import RowId
from gmdb.process.late_dataclasses import dataclass, field
from gmdb.sql.prepared import Statement
from gmdb.sql.run import Parameters
from gmdb.tables.access.heap import Heap
from gmdb.tables.access.statements import LOCK_FIRST_FROM, RowChanged, Steps
from gmdb.tables.catalog.schema import TableDefinition

Row = tuple[Any, ...]


@dataclass(slots=True)
class Course:
    """One attempt.

    ``steps``: None, if it reads nothing.  ``before``: the last statement of the transaction before it.  ``is_patient``:
    rows are locked before they are changed, so that the attempt succeeds.  ``changed``: tables, by their numbers, and
    rows that parts have changed; None if there is one part only.  ``inputs``: what each ``tree.Input`` of plans stands
    for.
    """

    parameters: Parameters
    now: datetime | None
    steps: Steps | None = None
    before: int = 0
    is_patient: bool = False
    changed: set[tuple[int, RowId]] | None = None
    inputs: dict[int, Sequence[Row]] = field(default_factory=dict)

    def lock_first(self, steps: Steps, row_ids: Iterable[RowId]) -> None:
        """Lock rows before they are changed, if the statement had to start over too often."""
        if self.is_patient:
            (steps.lock_until_restart if self.changed else steps.lock)(row_ids)

    def not_changed(self, table: TableDefinition, rows: list[Row]) -> list[Row]:
        """Rows that begin with their ids, without those that other parts have changed."""
        if not self.changed:
            return rows
        return [row for row in rows if (table.number, row[0]) not in self.changed]

    def has_changed(self, table: TableDefinition, row_id: RowId) -> bool:
        return bool(self.changed) and (table.number, row_id) in self.changed  # type: ignore[operator]

    def note(self, table: TableDefinition, row_ids: Iterable[RowId]) -> None:
        """Note rows as changed."""
        if self.changed is not None:
            self.changed.update((table.number, row_id) for row_id in row_ids)


def run_course(
    statement: Statement,
    heap: Heap,
    change: Callable[[Course], Result],
    parameters: Parameters,
    needs_time: bool,
    has_parts: bool,
) -> Result:
    """Run a statement that changes rows, until no row stands in its way.  ``has_parts``: more than one."""
    now = datetime.now(UTC) if needs_time else None
    with heap.statement() as steps:
        before, restarts = statement.session.statement_number - 1, 0
        while True:
            changed = set[tuple[int, RowId]]() if has_parts else None
            try:
                return change(Course(parameters, now, steps, before, restarts >= LOCK_FIRST_FROM, changed))
            except RowChanged as reason:
                steps.start_over(reason)
                restarts += 1
