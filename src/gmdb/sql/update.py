"""UPDATE and DELETE: rows are found by the best path, then changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlglot import exp

from gmdb.access.heap import Heap
from gmdb.access.lob_source import is_file, rereadable
from gmdb.access.statements import run_statement
from gmdb.access.steps import Steps
from gmdb.dbapi import Result
from gmdb.errors import InvalidSyntax, NotSupportedError
from gmdb.sql.assignment import Assign, Checks, Defaults, assign_to, is_default
from gmdb.sql.dialect import place
from gmdb.sql.parser import Parsed
from gmdb.sql.projection import Projection
from gmdb.sql.scope import folded
from gmdb.sql.statement import Found, Given, Parameters, RowFinder, Statement, is_for_rows

if TYPE_CHECKING:
    from gmdb.connection import Connection


class _Change(Statement):
    """What UPDATE and DELETE share: a table, a condition, RETURNING."""

    def __init__(self, connection: Connection, parsed: Parsed) -> None:
        super().__init__(connection)
        node: Any = parsed.statement
        if node.args.get("from_") or node.args.get("using") or node.args.get("with_") or node.this.args.get("joins"):
            raise NotSupportedError(f"{node.key} over several tables; find the rows by a subquery in WHERE instead")
        where = node.args.get("where")
        condition = None if where is None else self._condition(where.this)
        self.definition = self.table(node.this)
        alias = folded(node.this.args["alias"].this) if node.this.args.get("alias") else self.definition.name
        self.finder = RowFinder(self.definition, alias, condition)
        returning = node.args.get("returning")
        self.note_time(node)
        self.returning = Projection(returning.expressions, self.finder.scope) if returning is not None else None

    def _condition(self, condition: exp.Expr) -> exp.Expr:
        """The condition; a subquery in it is answered first, by the statement that has it."""
        if not is_for_rows(condition):
            raise NotSupportedError("subqueries in the conditions of UPDATE and DELETE")
        return condition

    def seen(self, heap: Heap, rows: list[Found]) -> list[Found]:
        """Rows as RETURNING sees them: large objects that were read from files are read from their pages."""
        if self.returning is None:
            return rows
        return [(i, heap.fetch(i)) if any(map(is_file, values)) else (i, values) for i, values in rows]

    def result(self, rows: list[Found], given: Given) -> Result:
        if self.returning is None:
            return Result(rowcount=len(rows))
        extended = self.finder.extended(iter(rows))
        made = [self.returning.make(values, given) for _, values in extended]
        return Result(self.returning.names, self.returning.types, len(rows), iter(made))

    def explain(self) -> list[str]:
        return [f"{type(self).__name__.lower()}: {self.finder.path.describe(self.definition.name)}"]


class Update(_Change):
    def __init__(self, connection: Connection, parsed: Parsed) -> None:
        super().__init__(connection, parsed)
        node: Any = parsed.statement
        self._assigns: list[tuple[int, str, Assign]] = []
        defaults = Defaults(self.definition)
        for part in node.expressions:
            self._assigns.append(self._assignment(part, defaults))
        positions = [position for position, _, _ in self._assigns]
        if len(set(positions)) < len(positions):
            raise InvalidSyntax("a column is set twice", *place(node))
        self._checks = Checks(self.definition)

    def _assignment(self, part: exp.Expr, defaults: Defaults) -> tuple[int, str, Assign]:
        if not isinstance(part, exp.EQ) or not isinstance(part.this, exp.Column):
            raise InvalidSyntax(f"{part.sql()} is no assignment", *place(part))
        position, _ = self.finder.scope.column(folded(part.this.this), None, part.this)
        column, value = self.definition.columns[position], part.expression
        if is_default(value):
            return position, column.name, defaults.of(position) or _nothing
        if not is_for_rows(value):
            raise NotSupportedError("subqueries in SET")
        return position, column.name, assign_to(value, self.finder.scope, column)

    def run(self, parameters: Parameters) -> Result:
        heap, given = self.connection.heap(self.definition.name), self.given(rereadable(parameters))
        heap.want_lobs(None if self._checks else self.finder.scope.used)
        changed: list[Found] = []

        def act(steps: Steps, found: list[Found]) -> None:
            changed.clear()
            steps.update(self._changes(found, given, changed))

        run_statement(heap, lambda steps: list(self.finder.rows_within(steps, given)), act)
        return self.result(self.seen(heap, changed), given)

    def _changes(self, found: list[Found], given: Given, changed: list[Found]) -> Any:
        """The new values of each row; the whole rows are collected in ``changed``."""
        for row_id, values in found:
            row = list(values)
            new = {name: assign(values, *given) for _, name, assign in self._assigns}
            for (position, _, _), value in zip(self._assigns, new.values(), strict=True):
                row[position] = value
            self._checks.check(row, given.context)
            changed.append((row_id, tuple(row)))
            yield row_id, new


def _nothing(*_: Any) -> None:
    """The default of a column that has none."""


class Delete(_Change):
    def run(self, parameters: Parameters) -> Result:
        heap, given = self.connection.heap(self.definition.name), self.given(parameters)
        heap.want_lobs(self.finder.scope.used)

        def act(steps: Steps, found: list[Found]) -> None:
            steps.delete(row_id for row_id, _ in found)

        deleted = run_statement(heap, lambda steps: list(self.finder.rows_within(steps, given)), act)
        return self.result(deleted, given)
