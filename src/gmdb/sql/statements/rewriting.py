"""What ALTER TABLE makes of a table's rows when columns go or get other types.

All such actions of a statement are gathered, and the rows are made anew once; where the bytes of no row differ, the
definition alone changes.  As in PostgreSQL, what USING asks for is what columns were before the statement.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from gmdb.errors import (
    CheckViolation,
    DependentObjects,
    Error,
    IllTyped,
    NoSuchColumn,
    SchemaError,
    StatementError,
    UnsupportedExpression,
)
from gmdb.format.columns import Column, ColumnType, has_cells
from gmdb.process.late_dataclasses import replace
from gmdb.process.late_imports import pyarrow as pa
from gmdb.sql import tree
from gmdb.sql.bind.coercion import assign, fold, fold_relation
from gmdb.sql.bind.names import as_sql
from gmdb.sql.bind.of_rows import bind_indexed, columns_of, indexed_type
from gmdb.sql.bind.scope import Scope, nearest, new_table
from gmdb.sql.dialect import parse_expression, place
from gmdb.sql.index_programs import program_of
from gmdb.sql.parser import Parsed
from gmdb.sql.prepared import Statement
from gmdb.sql.queries import Query
from gmdb.sql.rows.expressions import compile_row
from gmdb.sql.statements.assignment import bind_alone, bind_check, bind_default, uses_time
from gmdb.sql.statements.generated import Generated, bind_generated
from gmdb.sql.statements.stored_texts import columns_named, written
from gmdb.sql.types import within
from gmdb.tables.catalog.schema import CHECK, Constraint, TableDefinition

if TYPE_CHECKING:
    from gmdb.database.connection import Connection


def column_position(table: TableDefinition, name: str) -> int:
    """A column's place by its name as SQL means it, which in quotes has its letters as they are."""
    for n, column in enumerate(table.columns):
        if column.name == name:
            return n
    raise NoSuchColumn(f"table {table.name} has no column {name}{nearest(name, [one.name for one in table.columns])}")


class NewForm:
    """Columns that go, that get other types, and that are new; the table is held alone."""

    def __init__(self, connection: Connection, table: str) -> None:
        self._connection = connection
        self.definition = connection.table(table)
        self._dropped: set[int] = set()
        self._types: dict[int, ColumnType] = {}
        self._made: dict[int, tree.Expression] = {}  # what USING says, or a conversion
        self._added: list[tuple[Column, tree.Expression | None]] = []  # and what rows that are there get
        self._expressions: dict[int, exp.Expr] = {}  # of generated columns: what they are from now on
        self._indexed: list[tuple[str, str, int, int]] = []  # expressions that indexes are to be on
        self._source = new_table(self.definition)

    def has(self, name: str) -> bool:
        """Whether there is such a column that does not go, or one comes."""
        known = (n for n, column in enumerate(self.definition.columns) if column.name == name)
        return any(n not in self._dropped for n in known) or any(column.name == name for column, _ in self._added)

    def drop(self, name: str, cascade: bool) -> None:
        """Let a column go, with the constraints and indexes that need it; with ``cascade``, others' foreign keys, too.

        Generated columns that are made of it are in the way; with ``cascade``, they go as well.
        """
        position = self._position(name)
        using = [one for one in self._generated_of(position) if self.has(one)]
        if using and not cascade:
            message = f"table {self.definition.name}: column {using[0]} is generated of column {name}"
            raise DependentObjects(f"{message}; drop it first, or say CASCADE")
        for one in using:
            self.drop(one, cascade)
        self._dropped.add(position)
        self._connection._release_columns(self.definition.name, [name], cascade=cascade)

    def _generated_of(self, position: int) -> list[str]:
        """The generated columns that are made of a column."""
        bases = Generated(self.definition).shown.bases
        return [self.definition.columns[n].name for n, own in bases.items() if position in own]

    def drop_expression(self, name: str) -> None:
        """A generated column keeps its values, and is one as any other from now on."""
        self._position(name)
        self._connection.alter_column(self.definition.name, name, generated=None)
        self.definition = self._connection.table(self.definition.name)
        self._source = new_table(self.definition)

    def add_expressions(self, expressions: Sequence[tuple[str, str, int, int]]) -> None:
        """Let rows have what indexes are to be on."""
        self._indexed += expressions
        self.apply()

    def set_expression(self, name: str, node: exp.Expr) -> None:
        self._expressions[self._position(name)] = node

    def set_type(self, name: str, type_: ColumnType, using: exp.Expr | None, node: exp.Expr) -> None:
        position = self._position(name)
        if position in self._types:
            raise SchemaError(f"table {self.definition.name}: the type of column {name} is changed twice")
        before = self.definition.columns[position]
        using_it = [one for one in self._generated_of(position) if self.has(one)]
        if using_it:
            message = f"the type of column {name} cannot change, since column {using_it[0]} is generated of it"
            raise UnsupportedExpression(message, *place(node), f"Drop column {using_it[0]} first")
        self._types[position] = type_
        if before.generated is not None:
            if using is not None:
                message = f"column {name} is generated, and cannot be made by USING"
                raise UnsupportedExpression(message, *place(using), "Change its expression by SET EXPRESSION")
            self._expressions.setdefault(position, parse_expression(before.generated))
            return
        if using is not None:
            scope = Scope.of_table(self.definition.name, self._source.stored)
            self._made[position] = fold(assign(bind_alone(using, "USING", scope), type_, using))
        elif not before.type.widens_to(type_):
            stored = self._source.stored[position]
            try:
                self._made[position] = assign(tree.Reference(stored.type, stored), type_, node)
            except IllTyped:
                message = f"column {name}, {before.type}, does not become {type_} by itself"
                hint = f"Say how: USING {name}::{type_}"
                raise IllTyped(message, *place(node), hint) from None

    def add(self, column: Column, default: exp.Expr | None, generated: exp.Expr | None) -> None:
        """Add a last column."""
        value = None if default is None else bind_default(default, column)
        if column.is_numbered or (isinstance(value, tree.Constant) and value.value is None):
            value = tree.Constant(within(column.type), None)
        if generated is not None:
            self._expressions[len(self.definition.columns) + len(self._added)] = generated
        self._added.append((column, value))

    def _position(self, name: str) -> int:
        position = column_position(self.definition, name)
        if position in self._dropped:
            raise SchemaError(f"table {self.definition.name}: column {name} is dropped")
        return position

    # ---- changing the table

    def apply(self) -> None:
        table = self._connection.table(self.definition.name)  # which has lost constraints since, perhaps
        self._source = replace(self._source, definition=table)
        gone = {table.columns[n].name for n in self._dropped}
        columns: list[tuple[int | None, Column]] = [
            (n, self._changed(n, column)) for n, column in enumerate(table.columns) if n not in self._dropped
        ]
        without = {c.name for c in table.constraints if c.kind == CHECK and not gone.isdisjoint(columns_named(c.text))}
        changed = {table.columns[n].name for n in {*self._types, *self._expressions} if n < len(table.columns)}
        checks = [c for c in table.constraints if c.kind == CHECK and c.name not in without]
        checks = [check for check in checks if not changed.isdisjoint(columns_named(check.text))]
        for check in checks:
            self._require_sense(check, [column for _, column in columns])
        is_other = bool(table.expressions) and bool(self._added or self._types)
        gets_values = (
            bool(self._indexed)
            or is_other
            or any(column.is_numbered or _is_value(value) for column, value in self._added)
        )
        if self._dropped or self._made or self._expressions or gets_values:
            new = [(None, column) for column, _ in self._added]
            all_columns = self._with_new_expressions([*columns, *new])
            programs = self._programs(gone, [column for _, column in all_columns])
            expressions = self._kept_expressions(table, gone, [column for _, column in all_columns])
            options: Any = {"programs": programs, "expressions": expressions}
            self._connection._rewrite_table(table.name, all_columns, without, lambda: self._rows(columns), **options)
        else:
            for position, type_ in self._types.items():
                self._connection.alter_column(table.name, table.columns[position].name, type=type_)
            for column, _ in self._added:
                self._connection.add_column(table.name, column)
        for check in checks:
            require_rows(self._connection, table.name, check)

    def _with_new_expressions(self, columns: Sequence[tuple[int | None, Column]]) -> list[tuple[int | None, Column]]:
        """The columns as they will be, with the new expressions of generated ones."""
        whole = [column for _, column in columns]
        added = len(self.definition.columns) - len(columns) + len(self._added)
        kept = []
        for at, (n, column) in enumerate(columns):
            node = self._expressions.get(at + added if n is None else n)
            if node is not None:
                bind_generated(node, column, self.definition.name, whole, columns_of(whole))
                column = replace(column, generated=written(node))
            kept.append((n, column))
        return kept

    def _require_sense(self, check: Constraint, columns: Sequence[Column]) -> None:
        """Refuse other types with which a check means nothing."""
        try:
            bind_check(parse_expression(check.text), Scope.of_table(self.definition.name, columns_of(columns)))
        except StatementError as error:
            what = f"table {self.definition.name}, constraint {check.name}: CHECK ({check.text})"
            raise SchemaError(f"{what} has no meaning any more: {error}; drop it first") from None

    def _programs(self, gone: Container[str], columns: Sequence[Column]) -> dict[str, str]:
        """What kernels evaluate for the partial indexes that stay, over the table's columns as they will be."""
        programs = {}
        for index in self.definition.indexes:
            if index.condition is None or any(name in gone for name in columns_named(index.condition)):
                continue
            try:
                _, programs[index.name] = program_of(parse_expression(index.condition), self.definition.name, columns)
            except StatementError as error:
                what = f"table {self.definition.name}, index {index.name}: WHERE {index.condition}"
                raise SchemaError(f"{what} has no meaning any more: {error}; drop it first") from None
        return programs

    def _kept_expressions(
        self, table: TableDefinition, gone: Container[str], columns: Sequence[Column]
    ) -> list[tuple[int | None, tuple[str, str, int, int]]]:
        """What indexes that stay are on, with the types that it has with the table's columns as they will be."""
        kept: list[tuple[int | None, tuple[str, str, int, int]]] = []
        for n, (text, *_) in enumerate(table.expressions):
            if not text or any(name in gone for name in columns_named(text)):
                continue
            try:
                node = parse_expression(text)
                type_ = indexed_type(bind_indexed(node, table.name, columns, columns_of(columns)), node)
            except StatementError as error:
                what = f"table {table.name}: ({text}), which an index is on,"
                raise SchemaError(f"{what} has no meaning any more: {error}; drop the index first") from None
            kept.append((n, (text, type_.name, type_.length, type_.scale)))
        return [*kept, *((None, one) for one in self._indexed)]

    def _changed(self, position: int, column: Column) -> Column:
        """A column as it will be."""
        type_ = self._types.get(position, column.type)
        if position in self._expressions:
            column = replace(column, generated=written(self._expressions[position]))
        if type_ == column.type:
            return column
        column = replace(column, type=type_)
        if column.default is not None and not column.sequence:
            try:
                bind_default(parse_expression(column.default), column)
            except Error as error:
                what = f"table {self.definition.name}: the default of column {column.name}, {column.default}"
                raise SchemaError(f"{what}, is none for {type_}: {error}; drop the default first") from None
        return column

    # ---- the rows

    def _rows(self, columns: Sequence[tuple[Any, Column]]) -> pa.RecordBatchReader | Iterator[tuple[Any, ...]]:
        """The rows as they become: the columns that stay, then the new ones."""
        stored = self._source.stored
        values = [self._made.get(n) or tree.Reference(stored[n].type, stored[n]) for n, _ in columns]
        values += [value or tree.Constant(within(column.type), None) for column, value in self._added]
        all_columns = [*(column for _, column in columns), *(column for column, _ in self._added)]
        names = [column.name for column in all_columns]
        made = [tree.Column(name, value.type) for name, value in zip(names, values, strict=True)]
        whole: list[tree.Expression] = [tree.Reference(one.type, one) for one in made]
        origins = [*(n for n, _ in columns), *range(len(stored), len(stored) + len(self._added))]
        for n, origin in enumerate(origins):  # generated columns are made of the others as they will be
            if origin in self._expressions:
                node = self._expressions[origin]
                whole[n] = bind_generated(node, all_columns[n], self.definition.name, all_columns, made)
        if has_cells((*self.definition.columns, *all_columns)):
            return self._one_by_one(values, made, whole)
        rows = tree.Project(self._source, tuple(zip(made, values, strict=True)))
        if self._expressions:
            outputs = [(tree.Column(name, value.type), value) for name, value in zip(names, whole, strict=True)]
            rows = tree.Project(rows, tuple(outputs))
        return _NewRows(self._connection, rows).run_by({}).as_reader()

    def _one_by_one(
        self, values: Sequence[tree.Expression], made: Sequence[tree.Column], whole: Sequence[tree.Expression]
    ) -> Iterator[tuple[Any, ...]]:
        """Rows with large objects, of which one is in memory at a time: ``values``, and what is made of these."""
        evaluate, finish, now = compile_row(values, self._source.stored), compile_row(whole, made), datetime.now(UTC)
        for _, row in self._connection.heap(self.definition.name).rows():
            yield finish(evaluate(row, (), now), (), now)


def _is_value(value: tree.Expression | None) -> bool:
    """Whether a new column has something else than NULL in the rows that are there."""
    return value is not None and not (isinstance(value, tree.Constant) and value.value is None)


class _NewRows(Query):
    """A query that was not written."""

    def __init__(self, connection: Connection, relation: tree.Project) -> None:
        Statement.__init__(self, connection, Parsed("", exp.Select()), {})
        self.names = tuple(column.name for column, _ in relation.outputs)
        self.column_types = tuple(column.type for column, _ in relation.outputs)
        self._uses_time = uses_time(value for _, value in relation.outputs)
        self._locks = ()
        self.plan = self.planned(fold_relation(relation))


def require_rows(connection: Connection, table: str, check: Constraint) -> None:
    """Refuse a check that rows of the table, which is held alone, break."""
    quoted = as_sql(connection.table(table))
    broken = connection._statements.run(f"select 1 from {quoted} where not ({check.text}) limit 1", ())
    if broken.as_reader().read_all().num_rows:
        raise CheckViolation(f"table {table} has rows that break CHECK ({check.text})")
