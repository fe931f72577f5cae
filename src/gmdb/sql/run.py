"""One run of a statement: what both executors need beside the plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from gmdb.errors import DefinitionChanged
from gmdb.process.late_dataclasses import dataclass, field

if TYPE_CHECKING:
    from gmdb.database.connection import Connection
    from gmdb.tables.access.heap import Heap
    from gmdb.tables.arrow.scan import Reading
    from gmdb.tables.catalog.schema import TableDefinition

Parameters = Sequence[Any] | Mapping[str, Any]


@dataclass(slots=True)
class Run:
    """``reading``: the instant by which everything is read.  ``now``: when the statement began.  ``inputs``: the rows
    of each ``tree.Input`` of its plan, by its key."""

    connection: Connection
    reading: Reading
    parameters: Parameters
    now: datetime
    inputs: Mapping[int, Sequence[tuple[Any, ...]]] = field(default_factory=dict)

    def heap(self, definition: TableDefinition) -> Heap:
        """A table's rows as the run's snapshot sees the table."""
        heap = self.connection.heap(definition.name)
        heap.see(self.reading.scn)
        if heap.definition is not definition:
            raise definition_changed(definition)
        return heap


def definition_changed(table: TableDefinition) -> DefinitionChanged:
    return DefinitionChanged(f"the definition of table {table.name} has changed; run the statement again")
