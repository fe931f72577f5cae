"""Putting values into columns: what INSERT and UPDATE make of an expression, and what the table asks of its rows.

Unlike a cast, an assignment cuts nothing off: a text that is too long is refused by the column that gets it.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import ExitStack
from copy import copy
from datetime import datetime
from functools import partial
from typing import Any

from sqlglot import exp

import gmdb.sql.bind.queries  # noqa: F401  # without it nobody would know what a call in a DEFAULT means
from gmdb.errors import (
    CheckViolation,
    InvalidSyntax,
    NotSupportedError,
    NullNotAllowed,
    SchemaError,
    UnsupportedExpression,
)
from gmdb.format.columns import Column as StoredColumn
from gmdb.sql import tree
from gmdb.sql.bind.binder import Binder
from gmdb.sql.bind.coercion import fold
from gmdb.sql.bind.expressions import bind, bind_assigned
from gmdb.sql.bind.of_rows import alone, bind_condition, columns_of
from gmdb.sql.bind.scope import Scope
from gmdb.sql.bind.targets import Target
from gmdb.sql.casts import accept_parameter
from gmdb.sql.dialect import parse_expression, place
from gmdb.sql.operations.registry import Operation
from gmdb.sql.plan.planner import Plan
from gmdb.sql.prepared import Statement
from gmdb.sql.rows.expressions import compile_row
from gmdb.sql.run import Parameters, Run
from gmdb.sql.syntax import column_name, is_system_name, reading
from gmdb.sql.tree import Call, Case, Constant, Expression, Parameter
from gmdb.sql.types import BOOLEAN, TEXT, within
from gmdb.tables.access.lob_files import is_file
from gmdb.tables.catalog.schema import CHECK, TableDefinition

Evaluate = Callable[..., Any]  # of a row, parameters and the time


def is_default(node: exp.Expr) -> bool:
    """Whether a value is the word DEFAULT."""
    if isinstance(node, exp.Var):
        return node.name.lower() == "default"
    is_name = isinstance(node, exp.Column) and not node.args.get("table")
    return is_name and node.name.lower() == "default" and not node.this.quoted


def bind_value(binder: Binder, node: exp.Expr, scope: Scope, column: StoredColumn) -> Expression:
    """An expression as a value of a column; a large object may come as a file, if it is a parameter."""
    expression = fold(bind_assigned(binder, node, scope, column.type))
    if column.type.is_lob and isinstance(expression, Parameter):
        accept = accept_parameter(within(column.type), _label(expression))
        read = Operation(
            "parameter", (TEXT,), within(column.type), lambda value: value if is_file(value) else accept(value)
        )
        return Call(read.gives, read, (Parameter(TEXT, expression.key),))
    return expression


def _label(parameter: Parameter) -> str:
    return f":{parameter.key}" if isinstance(parameter.key, str) else f"number {parameter.key + 1}"


def uses_time(expressions: Iterable[Expression]) -> bool:
    return any(isinstance(part, tree.Now) for expression in expressions for part in expression.walk())


# ---- what the catalog keeps as texts


def bind_alone(node: exp.Expr, what: str, scope: Scope) -> Expression:
    """An expression of a table's rows; ``what`` it is, for a message."""
    return bind(alone(node, what), node, scope)


def bind_default(node: exp.Expr, column: StoredColumn) -> Expression:
    return bind_value(alone(node, "DEFAULT"), node, Scope(), column)


def bind_check(node: exp.Expr, scope: Scope) -> Expression:
    """A condition of a table's rows."""
    return bind_condition(node, scope, "CHECK")


class Defaults:
    """What a table's columns get where a row has no value for them."""

    def __init__(self, table: TableDefinition) -> None:
        self._columns = table.columns
        self._expressions = {
            n: bind_default(parse_expression(column.default), column)
            for n, column in enumerate(table.columns)
            if column.default is not None and not column.sequence
        }
        self.use_time = uses_time(self._expressions.values())

    def of(self, position: int) -> Expression:
        """The default of a column, which may be NULL."""
        default = self._expressions.get(position)
        return Constant(within(self._columns[position].type), None) if default is None else default


class Checks:
    """What a table's rows must fulfil: NOT NULL, and its CHECK constraints."""

    def __init__(self, table: TableDefinition, changed: Target | None = None) -> None:
        """``changed``: what a statement changes, if it is through a view, whose rows the table's may have to be."""
        self._table = table
        constraints = [constraint for constraint in table.constraints if constraint.kind == CHECK]
        self._broken = [f"constraint {one.name}: the row {{}} breaks CHECK ({one.text})" for one in constraints]
        columns = columns_of(table.columns) if changed is None else changed.table.stored
        scope = Scope.of_table(table.name, columns)
        conditions = [bind_check(parse_expression(constraint.text), scope) for constraint in constraints]
        for view, test in changed.checks if changed is not None else ():
            self._broken.append(f"view {view}: the row {{}} would not be one of the view's")
            conditions.append(fold(Case(BOOLEAN, ((test, Constant(BOOLEAN, True)),), Constant(BOOLEAN, False))))
        used = tree.columns_used(conditions)
        self._used = {n for n, column in enumerate(columns) if column in used}
        self._evaluate = compile_row(conditions, columns) if conditions else None
        self._not_null = [n for n, column in enumerate(table.columns) if not column.nullable]
        self.use_time = uses_time(conditions)

    def __bool__(self) -> bool:
        return bool(self._broken)

    def use(self, position: int) -> bool:
        """Whether a CHECK constraint asks for a column."""
        return position in self._used

    def after(self, positions: Container[int]) -> Checks:
        """The checks for rows that were right before some columns got new values."""
        checks = copy(self)
        checks._not_null = [n for n in self._not_null if n in positions]
        return checks

    def concern(self, positions: Iterable[int]) -> bool:
        """Whether new values in some columns can break anything."""
        return bool(self._broken) or any(n in self._not_null for n in positions)

    def check(self, row: Sequence[Any], now: datetime | None) -> None:
        """Refuse a row that breaks a constraint, naming it."""
        for n in self._not_null:
            if row[n] is None:
                name = self._table.columns[n].name
                raise NullNotAllowed(f"table {self._table.name}: column {name} is NOT NULL and has no value")
        if self._evaluate is None:
            return
        values = tuple(row)
        if any(map(is_file, values)):
            raise NotSupportedError(f"table {self._table.name} has checks: give its large objects whole, not as files")
        outcome = self._evaluate(values, (), now)
        if False in outcome:
            broken = self._broken[outcome.index(False)].split("{}", 1)
            raise CheckViolation(f"table {self._table.name}, {repr(values).join(broken)}")


# ---- SET


def assignments(
    binder: Binder, nodes: Sequence[exp.Expr], scope: Scope, changed: Target, defaults: Defaults
) -> dict[int, Expression]:
    """What SET gives to columns, by their positions: ``a = 1, (b, c) = (2, default)``."""
    table, sets = changed.table.definition, dict[int, Expression]()
    for target, value in _pairs(nodes):
        name = column_name(target)
        position = changed.position(name, scope, target)
        if position in sets:
            raise InvalidSyntax(f"column {name} is set twice", *place(target))
        if is_default(value):
            if table.columns[position].is_numbered:
                raise UnsupportedExpression(f"column {name} gets numbers when rows come, not again", *place(value))
            sets[position] = defaults.of(position)
        else:
            sets[position] = bind_value(binder, value, scope, table.columns[position])
    return sets


def _pairs(nodes: Sequence[exp.Expr]) -> Iterator[tuple[exp.Expr, exp.Expr]]:
    """Each column that is set, and its value."""
    for node in nodes:
        if not isinstance(node, exp.EQ):
            raise InvalidSyntax(f"{node.sql()} is not an assignment", *place(node))
        with reading(node) as syntax:
            target, value = syntax.need("this", "a column"), syntax.need("expression", "a value")
        if not isinstance(target, exp.Tuple):
            yield target, value
            continue
        targets, values = listed(target), listed(value)
        if len(targets) != len(values):
            raise InvalidSyntax(f"{len(values)} values for {len(targets)} columns", *place(node))
        yield from zip(targets, values, strict=True)


def listed(node: exp.Expr) -> list[exp.Expr]:
    if not isinstance(node, exp.Tuple):
        raise UnsupportedExpression(f"several columns are set to {node.sql()}", *place(node), "Write a list of values")
    with reading(node) as syntax:
        return syntax.list("expressions")


def parameter_of(expression: Expression) -> tree.ParameterKey | None:
    """The parameter that alone is the value of a column."""
    if isinstance(expression, Call) and expression.operation.name == "parameter":
        expression = expression.arguments[0]
    return expression.key if isinstance(expression, Parameter) else None


# ---- RETURNING: what a statement shows of the rows that it has changed, and finding those rows.


class Returning:
    """The expressions behind RETURNING.  ``needs``: the columns that they ask for."""

    def __init__(self, binder: Binder, node: exp.Expr, scope: Scope) -> None:
        with reading(node) as syntax:
            outputs = binder.select_list(syntax.list("expressions"), scope)
        self.expressions = [fold(expression) for _, expression in outputs]
        if any(map(tree.has_queries, self.expressions)):
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
