"""What a connection does with rows of a table by name: the same, whether the table's heap is here or with an owner."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gmdb.access.lob_file import File, open_file
from gmdb.access.statements import Condition, Row, delete_where, select_for_update, update_where
from gmdb.format.address import RowId

if TYPE_CHECKING:
    from gmdb.access.heap import Heap


class ChangesRows(ABC):
    """A base of connections, which know tables by their names."""

    @abstractmethod
    def heap(self, name: str) -> Heap:
        """A table's rows one by one: insert, fetch, update, delete by row id."""

    def open_lob(self, table: str, column: str, row_id: RowId) -> File:
        """A value of a BLOB column as a file of bytes, of a CLOB column as one of text, which can be read from.

        It is what it was when it was opened, whatever others do meanwhile, until it is closed.
        """
        return open_file(self.heap(table).open_lob(column, row_id))

    def insert(self, name: str, values: Sequence[Any]) -> RowId:
        return self.heap(name).insert(values)

    def update(
        self, name: str, changes: Mapping[str, Any] | Callable[[Row], Mapping[str, Any]], where: Condition = None
    ) -> int:
        """Change the rows that meet ``where``; ``changes`` may be computed from a row.  Answers their number."""
        return update_where(self.heap(name), changes, where)

    def delete(self, name: str, where: Condition = None) -> int:
        """Delete the rows that meet ``where``; answers their number."""
        return delete_where(self.heap(name), where)

    def select_for_update(
        self, name: str, where: Condition = None, *, nowait: bool = False, skip_locked: bool = False
    ) -> list[tuple[RowId, Row]]:
        """Lock the rows that meet ``where`` until the transaction ends; answers them."""
        return select_for_update(self.heap(name), where, nowait, skip_locked)
