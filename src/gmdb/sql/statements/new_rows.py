"""New rows of a table, as INSERT and MERGE make them: values for some columns, defaults and numbers for the others."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from datetime import datetime
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from gmdb.errors import GeneratedAlways, InvalidSyntax, ProgrammingError, SchemaError, UniqueViolation
from gmdb.format.address import RowId
from gmdb.sql.bind.binder import Binder
from gmdb.sql.bind.scope import Scope
from gmdb.sql.bind.targets import Target
from gmdb.sql.dialect import place
from gmdb.sql.statements import assignment
from gmdb.sql.statements.assignment import Checks, Defaults
from gmdb.sql.tree import Expression
from gmdb.tables.access.heap import Heap
from gmdb.tables.access.indexes import name_key

if TYPE_CHECKING:
    from gmdb.database.connection import Connection

Row = list[Any]
OVERRIDING = ("OVERRIDING SYSTEM VALUE", "OVERRIDING USER VALUE")


class NewRows:
    """``overriding``: the words behind the table, or nothing."""

    def __init__(
        self, connection: Connection, target: Target, defaults: Defaults, checks: Checks, overriding: str
    ) -> None:
        self._connection = connection
        self._target, self._definition = target, target.table.definition
        self._defaults, self._checks = defaults, checks
        self._overriding = overriding
        self._targets: list[int] = []
        self._are_named = False

    def name_columns(self, names: Sequence[str] | None, scope: Scope, node: exp.Expr) -> None:
        """The columns that get values; without names all, of a view up to the first one that is computed."""
        positions = self._target.positions
        if names is None:
            shown = (one.name for one in self._target.item.columns)
            self._targets = [positions[name] for name in takewhile(positions.__contains__, shown)]
            return
        self._are_named = True
        self._targets = [self._target.position(one, scope, node) for one in names]
        if len(set(names)) < len(names):
            raise SchemaError(f"table {self._definition.name}: a column is named twice")

    def positions(self, count: int, what: str, node: exp.Expr) -> list[int]:
        """The columns that so many values are for."""
        if count > len(self._targets) or (self._are_named and count < len(self._targets)):
            error = InvalidSyntax if what == "values" else SchemaError
            message = f"{count} {what} for {len(self._targets)} columns"
            raise error(f"table {self._definition.name}: {message}", *place(node))
        return self._targets[:count]

    def values(self, binder: Binder, values: Sequence[exp.Expr], scope: Scope, node: exp.Expr) -> dict[int, Expression]:
        """The values of a row of VALUES, by the positions of their columns; without those that are DEFAULT."""
        assigned = {}
        for position, value in zip(self.positions(len(values), "values", node), values, strict=False):
            if assignment.is_default(value):
                continue
            bound = assignment.bind_value(binder, value, scope, self._definition.columns[position])
            if self.takes_value(position):
                assigned[position] = bound
        return assigned

    def takes_value(self, position: int) -> bool:
        """Whether a column gets the value that is written for it, and not a number of its own."""
        column = self._definition.columns[position]
        if column.identity and self._overriding == OVERRIDING[1]:
            return False
        if column.identity == "always" and not self._overriding:
            message = f"column {column.name} is generated always; leave it out, or write DEFAULT"
            raise ProgrammingError(f"{message}, or OVERRIDING SYSTEM VALUE before VALUES")
        if column.generated is not None:
            raise GeneratedAlways(f"column {column.name} is generated; leave it out, or write DEFAULT")
        return True

    def complete(self, assigned: dict[int, Expression]) -> list[Expression]:
        """A whole row: the values, and defaults for the rest; numbers of identity columns come later."""
        return [assigned.get(n, self._defaults.of(n)) for n in range(len(self._definition.columns))]

    def missing(self, assigned: Container[int]) -> list[int]:
        """The identity columns that get numbers."""
        return [n for n, c in enumerate(self._definition.columns) if c.is_numbered and n not in assigned]

    def finisher(self, assigned: Container[int]) -> Callable[[Sequence[Any], datetime | None], Row]:
        """What makes a row whole, by numbers for identity columns without a value, and checks it."""
        columns, missing = self._definition.columns, self.missing(assigned)
        name, next_numbers, complete = self._definition.name, self._connection._next_numbers, self._checks.complete

        def finish(values: Sequence[Any], now: datetime | None) -> Row:
            row = list(values)
            for n in missing:
                (row[n],) = next_numbers(name, columns[n].name, 1)
            complete(row, now)
            return row

        return finish


def put(heap: Heap, row: Row) -> RowId:
    """Insert a row; a key that is there already is named."""
    try:
        return heap.insert(row)
    except UniqueViolation as violation:
        raise name_key(violation, heap.definition.index(violation.index), row) from None
