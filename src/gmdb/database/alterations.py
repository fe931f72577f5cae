"""What ALTER TABLE asks of a connection beside single changes of definitions (connection.py).

Not here: what a clause of SQL means (sql/statements/), what a change does to the catalog (tables/catalog/changes.py).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from gmdb.database.operations import Again, operation, scope
from gmdb.errors import SchemaError
from gmdb.process.late_imports import pyarrow as pa
from gmdb.tables.catalog.schema import Constraint, TableDefinition, make_columns

if TYPE_CHECKING:
    from gmdb.database.engine import Database
    from gmdb.format.columns import Column
    from gmdb.transaction.session import Session

Texts = Mapping[str, str] | None
Expressions = Sequence[tuple[int | None, tuple[str, str, int, int]]]
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

    @operation(writes=True, again=Again.UNCOMMITTED)
    def rename_table(self, name: str, new_name: str) -> None:
        """Give a table another name."""
        with self._database.define(self.session) as change:
            change.rename_table(name, new_name)

    @operation(writes=True, again=Again.UNCOMMITTED)
    def add_column(self, table: str, column: Column | tuple[str, str], value: Any = None) -> None:
        """Add a last column, ``("c", "INT")``.  Rows that are there have NULL in it, at no cost, or get ``value``."""
        with self._database.define(self.session) as change:
            change.add_column(table, make_columns(table, [column])[0], value)

    @operation(writes=True, again=Again.UNCOMMITTED)
    def rename_column(
        self,
        table: str,
        column: str,
        new_name: str,
        *,
        checks: Texts = None,
        conditions: Texts = None,
        generated: Texts = None,
        expressions: Sequence[str] = (),
    ) -> None:
        """Give a column another name; ``checks``, ``conditions`` and ``generated`` have, by their names, what the
        table's checks, partial indexes and generated columns say from now on, and ``expressions`` what those of
        its indexes do."""
        texts = (checks or {}, conditions or {}, generated or {}, expressions)
        with self._database.define(self.session) as change:
            change.rename_column(table, column, new_name, *texts)

    @operation(writes=True, again=Again.UNCOMMITTED)
    def alter_column(self, table: str, column: str, **changes: Any) -> None:
        """Change a column's ``default`` (None: it has none any more) or whether it is ``nullable``."""
        with self._database.define(self.session) as change:
            change.alter_column(table, column, changes)

    @operation(writes=True, again=Again.UNCOMMITTED)
    def add_constraint(self, table: str, constraint: Constraint) -> None:
        """Add a constraint; a primary key or a unique constraint brings an index of its name."""
        with self._database.define(self.session) as change:
            change.add_constraint(table, constraint)

    @operation(writes=True, again=Again.UNCOMMITTED)
    def set_change_feed(self, table: str, on: bool) -> None:
        """Log a table's changes for readers from the transaction's commit on, or no more; see ``changes``."""
        with self._database.define(self.session) as change:
            change.set_change_feed(table, on)

    @operation(writes=True, again=Again.UNCOMMITTED)
    def rename_index(self, name: str, new_name: str) -> None:
        """Give an index another name, and so the constraint that it keeps, if there is one."""
        with self._database.define(self.session) as change:
            change.rename_index(name, new_name)

    @operation(writes=True, again=Again.UNCOMMITTED)
    def rename_constraint(self, table: str, name: str, new_name: str) -> None:
        """Give a constraint another name, and so the index that keeps it, if there is one."""
        with self._database.define(self.session) as change:
            change.rename_constraint(table, name, new_name)

    @operation(writes=True, again=Again.UNCOMMITTED)
    def comment(
        self,
        text: str | None,
        *,
        table: str | None = None,
        column: str | None = None,
        index: str | None = None,
        constraint: str | None = None,
        schema: str | None = None,
    ) -> None:
        """Say in the catalog what something is, or no more (None): a table, its column or constraint, an index, or a
        schema."""
        given = {"table": table, "column": column, "index": index, "constraint": constraint, "schema": schema}
        kinds = tuple(kind for kind, name in given.items() if name is not None)
        with self._database.define(self.session) as change:
            if index is not None and kinds == ("index",):
                change.comments.on_index(index, text or None)
            elif table is not None and kinds == ("table",):
                change.comments.on_table(table, text or None)
            elif table is not None and column is not None and kinds == ("table", "column"):
                change.comments.on_column(table, column, text or None)
            elif table is not None and constraint is not None and kinds == ("table", "constraint"):
                change.comments.on_constraint(table, constraint, text or None)
            elif schema is not None and kinds == ("schema",):
                change.schemas.comment(schema, text or None)
            else:
                raise SchemaError("a comment is on a table, on its column or constraint, on an index, or on a schema")

    def _hold_table(self, name: str) -> TableDefinition:
        """Take a table alone: what is found out about its rows stays true until the transaction ends."""
        with self._database.define(self.session) as change:
            return change.hold(name)

    def _rewrite_table(
        self,
        name: str,
        columns: Sequence[tuple[int | None, Column]],
        without: Container[str],
        rows: Rows,
        *,
        programs: Mapping[str, str],
        expressions: Expressions = (),
    ) -> None:
        """Give a table other columns, each with its position of now or None, and the rows that ``rows`` makes of its
        own, which get numbers in new identity columns.

        Indexes and keys whose columns go, go with them, and so do the constraints ``without``, and partial indexes
        that have none of the ``programs``, by their names.  ``expressions``: what its indexes are on from now on, each
        with its place among those of now or None; they are computed of the rows.
        """
        from gmdb.tables.access.heap import Heap
        from gmdb.tables.arrow.append import append

        with self._database.define(self.session) as change:
            old, remade = change.begin_rewrite(name, columns, without, programs, expressions)
            catalog = self._database.catalog
            computes = (catalog.generated_of,) if remade.expressions else ()
            heap = Heap(self._database.store, self.session, lambda _: remade, lambda _: None, *computes)
            new = [n for n, (origin, _) in enumerate(columns) if origin is None and remade.columns[n].is_numbered]
            take, session = self._database.catalog.next_numbers, self.session
            numbers = {n: partial(take, remade.columns[n], session=session) for n in new}
            made = rows()
            if isinstance(made, pa.RecordBatchReader):
                append(heap, (_numbered(batch, numbers) for batch in made))
            else:
                for values in made:
                    heap.insert([numbers[n](count=1)[0] if n in numbers else value for n, value in enumerate(values)])
            change.finish_rewrite(old, remade)


def _numbered(batch: pa.RecordBatch, numbers: Mapping[int, Callable[..., list[int]]]) -> pa.RecordBatch:
    """Rows with numbers in some columns, given what reserves them."""
    for n, take in numbers.items():
        values = pa.array(take(count=len(batch)), batch.schema.field(n).type)
        batch = batch.set_column(n, batch.schema.field(n), values)
    return batch
