"""RETURNING: what a statement shows of the rows that it has changed, and finding those rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from gmdb.errors import SchemaError, UnsupportedExpression
from gmdb.sql import tree
from gmdb.sql.bind.binder import Binder
from gmdb.sql.bind.scope import Scope
from gmdb.sql.changes.assignment import has_queries, is_system_name
from gmdb.sql.dialect import place
from gmdb.sql.fold import fold
from gmdb.sql.plan.planner import Plan
from gmdb.sql.prepared import Parameters, Statement
from gmdb.sql.rows.expressions import compile_row
from gmdb.sql.run import Run
from gmdb.sql.syntax import reading

if TYPE_CHECKING:
    from gmdb.catalog.schema import TableDefinition


class Returning:
    """The expressions behind RETURNING.  ``needs``: the columns that they ask for."""

    def __init__(self, binder: Binder, node: exp.Expr, scope: Scope) -> None:
        with reading(node) as syntax:
            outputs = binder.select_list(syntax.list("expressions"), scope)
        self.expressions = [fold(expression) for _, expression in outputs]
        if has_queries(self.expressions):
            raise UnsupportedExpression("a query cannot stand in RETURNING", *place(node))
        self.names = tuple(name for name, _ in outputs)
        self.types = tuple(binder.shown_type(expression) for expression in self.expressions)
        self.needs = tree.columns_used(self.expressions)

    def rows(
        self, columns: Sequence[tree.Column], rows: Iterable[Any], parameters: Parameters, now: datetime | None
    ) -> Iterator[tuple[Any, ...]]:
        """What is shown of some rows, which have these columns."""
        show = compile_row(self.expressions, columns)
        return iter([show(row, parameters, now) for row in rows])


def require_changeable(definition: TableDefinition) -> TableDefinition:
    """Refuse to change the rows of a system table."""
    if is_system_name(definition.name):
        raise SchemaError(f"{definition.name} is a system table; it is changed by definitions only")
    return definition


def rows_of_plan(
    statement: Statement, ready: Plan, parameters: Parameters, now: datetime | None, scn: int
) -> list[tuple[Any, ...]]:
    """The rows that a plan finds for a statement that is running, by its snapshot."""
    connection = statement.connection
    with ExitStack() as stack:
        snapshot = stack.enter_context(connection.one_snapshot(scn))
        run = Run(connection, snapshot, parameters, now or datetime.now())
        return list(ready.rows(run, partial(statement.watch, stack)))
