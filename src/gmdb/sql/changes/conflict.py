"""ON CONFLICT DO NOTHING or DO UPDATE: what becomes of a row whose key another row has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from sqlglot import exp

from gmdb.access.heap import Heap
from gmdb.access.indexes import name_key
from gmdb.catalog.schema import TableDefinition
from gmdb.errors import InvalidSyntax, ProgrammingError, SchemaError, UniqueViolation, UnsupportedExpression
from gmdb.format.address import RowId
from gmdb.sql import tree
from gmdb.sql.bind.binder import Binder
from gmdb.sql.bind.expressions import condition
from gmdb.sql.bind.scope import Scope
from gmdb.sql.changes.assignment import Checks, Defaults, assignments, columns_of, has_queries
from gmdb.sql.dialect import place
from gmdb.sql.fold import fold
from gmdb.sql.names import column_names, folded
from gmdb.sql.prepared import Parameters
from gmdb.sql.rows.expressions import compile_row
from gmdb.sql.syntax import Syntax, reading
from gmdb.sql.tree import Expression

Evaluate = Callable[..., tuple[Any, ...]]


class Conflict:
    def __init__(
        self,
        binder: Binder,
        node: exp.Expr,
        table: tuple[str, TableDefinition],
        columns: Sequence[tree.Column],
        defaults: Defaults,
        checks: Checks,
    ) -> None:
        """``table``: what the statement calls it, and its definition; ``columns``: those of a row that is there."""
        self._alias, self._table = table
        self._checks = checks
        self._names: list[str] = []
        self._positions: list[int] = []
        self._sets: Evaluate | None = None
        self._where: Evaluate | None = None
        with reading(node) as syntax:
            action = syntax.word("action", "DO NOTHING", "DO UPDATE")
            self._index = self._chosen_index(syntax)
            parts, where = syntax.list("expressions"), syntax.take("where")
        if action == "DO NOTHING" and not parts:
            if where is not None:
                raise InvalidSyntax("syntax error: DO NOTHING has no WHERE", *place(where))
            return
        if self._index is None:
            raise InvalidSyntax("on conflict do update needs the columns of a unique index", *place(node))
        given = columns_of(self._table.columns)
        both = (*columns, *given)
        scope = Scope.of_tables([(self._alias, columns, None), ("excluded", given, None)])
        scope.visible = list(scope.items[0].columns)  # a bare name is that of the row which is there
        sets = assignments(binder, parts, scope, self._table, defaults)
        self._positions = list(sets)
        self._names = [self._table.columns[n].name for n in sets]
        self._sets = compile_row(_rowwise(list(sets.values()), node), both)
        if where is not None:
            with reading(where) as inner:
                test = inner.need("this", "a condition")
            self._where = compile_row(_rowwise([fold(condition(binder, test, scope))], where), both)

    def _chosen_index(self, syntax: Syntax) -> str | None:
        """The unique index that is meant; None: any."""
        table, constraint = self._table, syntax.take("constraint")
        keys = column_names(syntax.list("conflict_keys"))
        if constraint is not None:
            return table.index(folded(constraint)).name
        if not keys:
            return None
        for index in table.indexes:
            if index.unique and {table.columns[n].name for n in index.positions} == set(keys):
                return index.name
        raise SchemaError(f"table {table.name} has no unique index on ({', '.join(keys)})")

    def insert(
        self, heap: Heap, row: list[Any], done: dict[RowId, Any], parameters: Parameters, now: datetime | None
    ) -> None:
        """Insert a row, or do what is to be done instead; the row that is there then is added to ``done``."""
        try:
            done[heap.insert(row)] = row
        except UniqueViolation as violation:
            if self._index is not None and violation.index != self._index:
                raise name_key(violation, self._table.index(violation.index), row) from None
            if self._sets is None:
                return
            row_id = RowId(*violation.row_id)  # type: ignore[misc]
            if row_id in done:
                said = "on conflict do update cannot change a row twice, or one that it has inserted"
                raise ProgrammingError(f"table {self._table.name}: {said}") from None
            old = heap.fetch(row_id)
            both = (*old, *row)
            if self._where is None or self._where(both, parameters, now)[0] is True:
                values, new = self._sets(both, parameters, now), list(old)
                for position, value in zip(self._positions, values, strict=True):
                    new[position] = value
                self._checks.check(new, now)
                heap.update(row_id, dict(zip(self._names, values, strict=True)))
                done[row_id] = new


def _rowwise(expressions: list[Expression], node: exp.Expr) -> list[Expression]:
    """Expressions that can be worked out of the two rows alone."""
    if has_queries(expressions):
        raise UnsupportedExpression("a query cannot stand in ON CONFLICT", *place(node))
    return expressions
