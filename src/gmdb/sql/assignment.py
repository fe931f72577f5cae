"""Putting values into columns: what INSERT and UPDATE make of an expression for the column that it goes to.

Unlike a cast, an assignment cuts nothing off: a text that is too long is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sqlglot import exp

from gmdb.access.lob_source import is_file
from gmdb.catalog.schema import CHECK, TableDefinition
from gmdb.errors import CheckViolation, NotSupportedError, NullNotAllowed
from gmdb.format.columns import Column, ColumnType
from gmdb.sql.dialect import parse_expression
from gmdb.sql.expressions import compile_assignment, compile_expression
from gmdb.sql.scope import Scope

Assign = Callable[..., Any]  # from a row, parameters and context to a value for a column


def assign_to(node: exp.Expr, scope: Scope, column: Column) -> Assign:
    """An expression as a value of a column."""
    return compile_assignment(node, scope, column.type).evaluate


def assign_found(type_: ColumnType | None, column: Column) -> Callable[[Any], Any]:
    """What turns a value that a query found into one of a column."""
    value: exp.Expr = exp.Placeholder(this="value")
    assign = assign_to(value if type_ is None else exp.cast(value, str(type_)), Scope(), column)
    return lambda found: None if found is None else assign((), {"value": found}, None)


def is_default(node: exp.Expr) -> bool:
    """Whether a value is the word DEFAULT."""
    if isinstance(node, exp.Var):
        return node.name.lower() == "default"
    return isinstance(node, exp.Column) and node.name.lower() == "default" and not node.this.quoted


class Defaults:
    """What a table's columns get if they are given nothing."""

    def __init__(self, table: TableDefinition) -> None:
        self._columns = table.columns
        self._assigns: dict[int, Assign] = {}
        self.nodes: list[exp.Expr] = []
        for n, column in enumerate(table.columns):
            if column.default is not None:
                self.nodes.append(parse_expression(column.default))
                self._assigns[n] = assign_to(self.nodes[-1], Scope(), column)

    def of(self, position: int) -> Assign | None:
        """The default of a column; None if it is NULL."""
        return self._assigns.get(position)

    def is_identity(self, position: int) -> bool:
        return self._columns[position].identity is not None


class Checks:
    """What a table's rows must fulfil: NOT NULL, and its CHECK constraints."""

    def __init__(self, table: TableDefinition) -> None:
        scope = Scope.of(table.name, table.columns)
        self._table = table
        checks = [constraint for constraint in table.constraints if constraint.kind == CHECK]
        self.nodes = [parse_expression(constraint.text) for constraint in checks]
        self._checks = [(c, compile_expression(node, scope)) for c, node in zip(checks, self.nodes, strict=True)]
        self._not_null = [n for n, column in enumerate(table.columns) if not column.nullable]

    def __bool__(self) -> bool:
        return bool(self._checks)

    def use(self, position: int) -> bool:
        """Whether a CHECK constraint asks for a column."""
        return any(position in compiled.columns for _, compiled in self._checks)

    def concern(self, positions: Sequence[int]) -> bool:
        """Whether new values in some columns can break anything."""
        return bool(self._checks) or any(n in self._not_null for n in positions)

    def check(self, row: Sequence[Any], context: Any) -> None:
        """Refuse a row that breaks a constraint, naming it."""
        for n in self._not_null:
            if row[n] is None:
                name = self._table.columns[n].name
                raise NullNotAllowed(f"table {self._table.name}: column {name} is NOT NULL and was given no value")
        values = tuple(row)
        if self._checks and any(map(is_file, values)):
            raise NotSupportedError(f"table {self._table.name} has checks: give its large objects whole, not as files")
        for constraint, compiled in self._checks:
            if compiled.evaluate(values, (), context) is False:
                raise CheckViolation(
                    f"table {self._table.name}, constraint {constraint.name}: the row {values!r} breaks "
                    f"CHECK ({constraint.text})"
                )
