"""Comments: what somebody should know of a table, a column, an index or a constraint, as part of its definition."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gmdb.process.late_dataclasses import replace
from gmdb.tables.catalog.system import SystemTables

if TYPE_CHECKING:
    from gmdb.tables.catalog.changes import DefinitionChanges


class CommentChanges:
    """``comment``: None for none."""

    def __init__(self, system: SystemTables, changes: DefinitionChanges) -> None:
        self._system, self._changes = system, changes

    def on_table(self, name: str, comment: str | None) -> None:
        table = replace(self._changes._take(name), comment=comment)
        self._system.change_table(table)
        self._changes._change(table)

    def on_column(self, name: str, column: str, comment: str | None) -> None:
        table = self._changes._take(name)
        position = table.position(column)
        self._changes._replace_column(table, position, replace(table.columns[position], comment=comment))

    def on_index(self, name: str, comment: str | None) -> None:
        table, index = self._changes._take_index(name)
        commented = replace(index, comment=comment)
        self._system.change_index(commented)
        indexes = tuple(commented if one is index else one for one in table.indexes)
        self._changes._change(replace(table, indexes=indexes))

    def on_constraint(self, name: str, constraint: str, comment: str | None) -> None:
        table = self._changes._take(name)
        old = table.constraint(constraint)
        commented = replace(old, comment=comment)
        table = replace(table, constraints=tuple(commented if one is old else one for one in table.constraints))
        self._system.change_constraint(table, commented)
        self._changes._change(table)
