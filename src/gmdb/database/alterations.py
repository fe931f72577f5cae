"""What ALTER TABLE asks of a connection beside single changes of definitions (connection.py).

Not here: what a clause of SQL means (sql/statements/), what a change does to the catalog (tables/catalog/changes.py).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from gmdb.database.operations import scope
from gmdb.process.late_imports import pyarrow as pa
from gmdb.tables.catalog.schema import TableDefinition

if TYPE_CHECKING:
    from gmdb.database.engine import Database
    from gmdb.format.columns import Column
    from gmdb.transaction.session import Session

Rows = Callable[[], "pa.RecordBatchReader | Iterable[Sequence[Any]]"]


class Alterations:
    """The part of a connection that changes what there is of a table."""

    session: Session
    _database: Database

    @scope()
    def defining(self) -> Iterator[None]:
        """``all_or_nothing`` for definitions: what is read within is the newest there is."""
        with self.session.defining():
            yield

    def _hold_table(self, name: str) -> TableDefinition:
        """Take a table alone: what is found out about its rows stays true until the transaction ends."""
        with self._database.define(self.session) as change:
            return change.hold(name)

    def _rewrite_table(
        self, name: str, columns: Sequence[tuple[int, Column]], without: Container[str], rows: Rows
    ) -> None:
        """Give a table other columns, each with its position of now, and the rows that ``rows`` makes of its own.

        Indexes and keys whose columns go, go with them, and so do the constraints ``without``.
        """
        from gmdb.tables.access.heap import Heap
        from gmdb.tables.arrow.append import append

        with self._database.define(self.session) as change:
            old, remade = change.begin_rewrite(name, columns, without)
            heap = Heap(self._database.store, self.session, lambda _: remade)
            made = rows()
            if isinstance(made, pa.RecordBatchReader):
                append(heap, made)
            else:
                for values in made:
                    heap.insert(values)
            change.finish_rewrite(old, remade)
