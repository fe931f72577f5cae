"""Putting values into columns: what INSERT and UPDATE make of an expression, and what the table asks of its rows.

Unlike a cast, an assignment cuts nothing off: a text that is too long is refused by the column that gets it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from datetime import datetime
from typing import Any

from sqlglot import exp

import gmdb.sql.bind.queries  # noqa: F401  # without it nobody would know what a call in a DEFAULT means
from gmdb.database.dbapi import documents_in
from gmdb.errors import (
    CheckViolation,
    GeneratedAlways,
    InvalidSyntax,
    NotSupportedError,
    NullNotAllowed,
    ProgrammingError,
    SchemaError,
    UnsupportedExpression,
)
from gmdb.format.columns import Column as StoredColumn
from gmdb.process.late_dataclasses import dataclass, field
from gmdb.sql import tree
from gmdb.sql.bind.binder import Binder, projected
from gmdb.sql.bind.coercion import assign, fold, fold_relation
from gmdb.sql.bind.expressions import bind, bind_assigned
from gmdb.sql.bind.of_rows import alone, bind_condition, columns_of
from gmdb.sql.bind.scope import Scope
from gmdb.sql.bind.targets import Target
from gmdb.sql.casts import accept_parameter
from gmdb.sql.dialect import parse_expression, place
from gmdb.sql.operations.registry import Operation
from gmdb.sql.rows.expressions import compile_row
from gmdb.sql.rows.sources import too_many_rows
from gmdb.sql.statements.changing import Changing
from gmdb.sql.statements.course import Course, Row
from gmdb.sql.statements.generated import Generated
from gmdb.sql.syntax import column_name, is_system_name, reading
from gmdb.sql.tree import Call, Case, Constant, Expression, Parameter
from gmdb.sql.types import BIGINT, BOOLEAN, TEXT, TEXTS, within
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
    """What a table's rows must be: they have what its generated columns give, and fulfil NOT NULL and CHECK."""

    def __init__(self, table: TableDefinition, changed: Target | None = None) -> None:
        """``changed``: what a statement changes, if it is through a view, whose rows the table's may have to be."""
        self._table = table
        constraints = [constraint for constraint in table.constraints if constraint.kind == CHECK]
        self._broken = [f"constraint {one.name}: the row {{}} breaks CHECK ({one.text})" for one in constraints]
        columns = columns_of(table.columns) if changed is None else changed.table.stored
        scope = Scope.of_table(table.name, columns)
        self._all_generated = Generated(table, columns)
        self.generated = self._all_generated.shown  # whoever takes a whole row computes the others
        conditions = [bind_check(parse_expression(constraint.text), scope) for constraint in constraints]
        for view, test in changed.checks if changed is not None else ():
            self._broken.append(f"view {view}: the row {{}} would not be one of the view's")
            conditions.append(fold(Case(BOOLEAN, ((test, Constant(BOOLEAN, True)),), Constant(BOOLEAN, False))))
        self._columns = columns
        used = tree.columns_used(conditions)
        self._used = {n for n, column in enumerate(columns) if column in used}
        self._evaluate = compile_row(conditions, columns) if conditions else None
        self._texts = [n for n in sorted(self._used) if table.columns[n].type.name in TEXTS]
        self._not_null = [n for n, column in enumerate(table.columns) if not column.nullable]
        self.use_time = uses_time(conditions)

    def __bool__(self) -> bool:
        return bool(self._broken)

    def use(self, position: int) -> bool:
        """Whether a CHECK constraint asks for a column."""
        return position in self._used

    def after(self, positions: Iterable[int]) -> Checks:
        """The checks for rows that were right before some columns got new values, which change generated ones."""
        checks = copy(self)
        checks.generated = self._all_generated.after(positions)
        positions = {*positions, *checks.generated.positions}
        checks._not_null = [n for n in self._not_null if n in positions]
        return checks

    def of_columns(self) -> Checks:
        """The checks for rows of which others compute what indexes are on."""
        checks = copy(self)
        checks.generated = self.generated.shown
        return checks

    def concern(self, positions: Iterable[int]) -> bool:
        """Whether new values in some columns can break or change anything."""
        return bool(self._broken or self.generated) or any(n in self._not_null for n in positions)

    @property
    def needs(self) -> set[tree.Column]:
        """The columns that ``complete`` asks for."""
        return set(self._columns) if self._broken else self.generated.needs

    def complete(self, row: list[Any], now: datetime | None) -> None:
        """Put into a row what generated columns are, and check it."""
        self.generated.put_into(row)
        self.check(row, now)

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
        for n in self._texts:  # parameters come to columns of texts as they are
            if not isinstance(values[n], str | None):
                self._table.columns[n].encode(values[n])
        outcome = self._evaluate(values, (), now)
        if False in outcome:
            broken = self._broken[outcome.index(False)].split("{}", 1)
            raise CheckViolation(f"table {self._table.name}, {repr(values).join(broken)}")


# ---- SET


@dataclass(slots=True)
class Sets:
    """What SET gives to columns: ``values`` by their positions.  ``queries``: those of ``(a, b) = (SELECT ...)``, each
    with the numbers of its rows behind its columns; values are columns of theirs."""

    values: dict[int, Expression] = field(default_factory=dict)
    queries: list[tree.Number] = field(default_factory=list)

    @property
    def numbers(self) -> list[tree.Column]:
        return [one.number for one in self.queries]

    def beside(self, relation: tree.Relation, condition: Expression | None = None) -> tree.Relation:
        """The rows that are changed, if they meet a condition, with what their queries give; no row gives NULLs."""
        for query in self.queries:
            is_lateral = not tree.outer_columns(query).isdisjoint(relation.columns)
            relation = tree.Join("left", relation, query, condition, is_lateral)
        return relation

    def counted(self, rows: list[Row]) -> list[Row]:
        """Rows that end with ``numbers``; refused if one of the queries has given a second row."""
        if any(number is not None and number > 1 for row in rows for number in row[-len(self.queries) :]):
            too_many_rows()
        return rows


def assignments(binder: Binder, nodes: Sequence[exp.Expr], scope: Scope, changed: Target, defaults: Defaults) -> Sets:
    """What SET gives to columns: ``a = 1, (b, c) = (2, default), (d, e) = (select ...)``."""
    table, sets, taken, again = changed.table.definition, Sets(), set[int](), list[int]()

    def position_of(target: exp.Expr, value: exp.Expr) -> int:
        name = column_name(target)
        position = changed.position(name, scope, target)
        if position in taken:
            raise InvalidSyntax(f"column {name} is set twice", *place(target))
        taken.add(position)
        if table.columns[position].identity == "always" and not is_default(value):
            raise ProgrammingError(f"column {name} is generated always, and keeps the number that its row came with")
        return position

    for node in nodes:
        if not isinstance(node, exp.EQ):
            raise InvalidSyntax(f"{node.sql()} is not an assignment", *place(node))
        with reading(node) as syntax:
            target, value = syntax.need("this", "a column"), syntax.need("expression", "a value")
        if isinstance(target, exp.Bracket):
            hint = "Set the whole array, such as a = a[1:2] || 5 || a[4:]"
            raise UnsupportedExpression("an element of an array is not set by itself", *place(target), hint)
        if not isinstance(target, exp.Tuple | exp.Paren):
            targets, values = [target], [value]
        else:
            targets = listed(target)
            if isinstance(value, exp.Subquery):
                positions = [position_of(one, value) for one in targets]
                sets.values |= _of_query(binder, value, scope, [table.columns[n] for n in positions], positions, sets)
                continue
            values = _row(value)
        if len(targets) != len(values):
            raise InvalidSyntax(f"{len(values)} values for {len(targets)} columns", *place(node))
        for one, given in zip(targets, values, strict=True):
            position = position_of(one, given)
            if table.columns[position].generated is not None:
                _require_default(table.columns[position], given)
                again.append(position)
            elif not is_default(given):
                sets.values[position] = bind_value(binder, given, scope, table.columns[position])
            elif table.columns[position].is_numbered:
                name = table.columns[position].name
                raise UnsupportedExpression(f"column {name} gets numbers when rows come, not again", *place(given))
            else:
                sets.values[position] = defaults.of(position)
    stored = changed.table.stored
    made = Generated(table, stored).after(sets.values).shown.positions
    sets.values |= {n: tree.Reference(stored[n].type, stored[n]) for n in again if n not in made}
    return sets


def _require_default(column: StoredColumn, node: exp.Expr) -> None:
    if not is_default(node):
        raise GeneratedAlways(f"column {column.name} is generated; it can only be set to DEFAULT")


def _row(node: exp.Expr) -> list[exp.Expr]:
    """The values of ``(1, 2)`` or ``row(1, 2)``."""
    if isinstance(node, exp.Anonymous) and str(node.this).lower() == "row":
        with reading(node) as syntax:
            syntax.ignore("this")
            return syntax.list("expressions")
    if isinstance(node, exp.Tuple):
        return listed(node)
    hint = "Write a list of values in parentheses, row(...), or a query in parentheses"
    raise UnsupportedExpression(f"several columns are set to {node.sql()}", *place(node), hint)


def _of_query(
    binder: Binder,
    node: exp.Expr,
    scope: Scope,
    columns: Sequence[StoredColumn],
    positions: Sequence[int],
    sets: Sets,
) -> dict[int, Expression]:
    """The values of some columns that a query gives together."""
    bound = binder.query(node, scope, open_types=True)
    if len(bound.values) != len(columns):
        raise InvalidSyntax(f"the query has {len(bound.values)} columns for {len(columns)}", *place(node))
    outputs = []
    for column, value in zip(columns, bound.values, strict=True):
        if column.generated is not None:
            _require_default(column, node)
        assigned = assign(value, column.type, node)
        outputs.append((tree.Column(column.name, assigned.type), assigned))
    relation = tree.Limit(projected(bound.relation, outputs), Constant(BIGINT, 2))  # the second is refused
    sets.queries.append(tree.Number(relation, tree.Column("", BIGINT)))
    return {n: tree.Reference(one.type, one) for n, (one, _) in zip(positions, outputs, strict=True)}


def listed(node: exp.Expr) -> list[exp.Expr]:
    """What stands in parentheses."""
    with reading(node) as syntax:
        return [syntax.need("this", "a value")] if isinstance(node, exp.Paren) else syntax.list("expressions")


def parameter_of(expression: Expression) -> tree.ParameterKey | None:
    """The parameter that alone is the value of a column."""
    if isinstance(expression, Call) and expression.operation.name == "parameter":
        expression = expression.arguments[0]
    return expression.key if isinstance(expression, Parameter) else None


# ---- RETURNING: what a statement shows of the rows that it has changed, and finding those rows.


class Returning:
    """The expressions behind RETURNING.  ``needs``: the columns that they ask for.

    Queries in them see what was there before the statement.
    """

    def __init__(self, statement: Changing, binder: Binder, node: exp.Expr, scope: Scope) -> None:
        with reading(node) as syntax:
            outputs = binder.select_list(syntax.list("expressions"), scope)
        self._statement = statement
        self.expressions = [fold(expression) for _, expression in outputs]
        self.names = tuple(name for name, _ in outputs)
        self.types = tuple(binder.shown_type(expression) for expression in self.expressions)
        self.columns = tuple(binder.output(*pair)[0] for pair in zip(self.names, self.expressions, strict=True))
        self.documents = documents_in(self.types)
        self.needs = tree.columns_used(self.expressions)
        self._input: tree.Input | None = None  # if there are queries

    @property
    def only_shows(self) -> bool:
        """Whether it shows columns as they are, which cannot fail."""
        return all(isinstance(one, tree.Reference) for one in self.expressions)

    def plan(self, columns: Sequence[tree.Column], shared: tuple[tree.Shared, ...] = ()) -> None:
        """Prepare to show rows that have these columns."""
        if not any(map(tree.has_queries, self.expressions)):
            self._show = compile_row(self.expressions, columns)
            return
        self._input = tree.Input("the rows that were changed", tuple(columns))
        outputs = zip(map(tree.Column, self.names, self.types), self.expressions, strict=True)
        relation: tree.Relation = tree.Project(self._input, tuple(outputs))
        relation = tree.With(shared, relation) if shared else relation
        self._plan = self._statement.planned(fold_relation(relation))

    def rows(self, course: Course, rows: Iterable[Row]) -> Iterator[Row]:
        """What is shown of some rows."""
        if self._input is None:
            shown = [self._show(row, course.parameters, course.now) for row in rows]
            return iter(self._with_lists(shown))
        course.inputs[self._input.key] = list(rows)
        return iter(self._statement.rows_in_course(self._plan, course))

    def _with_lists(self, rows: list[Row]) -> list[Row]:
        """Rows with lists of their own where they have arrays."""
        arrays = [n for n, type_ in enumerate(self.types) if type_.is_array]
        if not arrays:
            return rows
        return [
            tuple(list(value) if n in arrays and value is not None else value for n, value in enumerate(row))
            for row in rows
        ]


def require_changeable(definition: TableDefinition) -> TableDefinition:
    """Refuse to change the rows of a system table."""
    if is_system_name(definition.name):
        raise SchemaError(f"{definition.name} is a system table; it is changed by definitions only")
    return definition
