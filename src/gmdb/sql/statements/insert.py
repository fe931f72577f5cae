"""INSERT: of values, of what a query finds, or of many sets of parameters at once (executemany.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from gmdb.database.dbapi import Result, rows_in
from gmdb.errors import (
    Error,
    InvalidSyntax,
    ProgrammingError,
    SchemaError,
    UniqueViolation,
    UnsupportedExpression,
)
from gmdb.format.address import RowId
from gmdb.format.columns import has_cells
from gmdb.kernel.runtime.call import FIRST_INDEX
from gmdb.process.late_imports import pyarrow as pa
from gmdb.process.signals import let_through
from gmdb.sql import tree
from gmdb.sql.bind.binder import Binder, projected
from gmdb.sql.bind.coercion import assign, fold, fold_relation
from gmdb.sql.bind.expressions import condition
from gmdb.sql.bind.of_rows import bind_condition, columns_of
from gmdb.sql.bind.scope import Scope, new_table, where
from gmdb.sql.bind.targets import Target, change_target
from gmdb.sql.dialect import place
from gmdb.sql.parser import Parsed
from gmdb.sql.plan.implication import condition_of, implies
from gmdb.sql.plan.planner import Plan
from gmdb.sql.prepared import ParameterTypes, Quick
from gmdb.sql.rows.expressions import compile_row
from gmdb.sql.rows.point import are_parameters, as_given
from gmdb.sql.run import Parameters
from gmdb.sql.statements import assignment
from gmdb.sql.statements.assignment import Checks, Defaults, Returning
from gmdb.sql.statements.changing import Changing
from gmdb.sql.statements.course import Course
from gmdb.sql.statements.executemany import ROWS_MIN, BulkRows, in_batches
from gmdb.sql.statements.indexes import kept_as
from gmdb.sql.statements.new_rows import OVERRIDING, NewRows, put
from gmdb.sql.statements.parts import Within
from gmdb.sql.syntax import Syntax, column_name, column_names, folded, reading, table_name
from gmdb.sql.tree import Constant, Expression
from gmdb.sql.types import BOOLEAN, INTEGERS
from gmdb.tables.access.heap import Heap
from gmdb.tables.access.indexes import HIDDEN, IndexDefinition, name_key
from gmdb.tables.access.lob_files import is_file, rereadable
from gmdb.tables.catalog.schema import TableDefinition
from gmdb.transaction.interrupts import operation

if TYPE_CHECKING:
    from gmdb.database.connection import Connection


# ---- ON CONFLICT DO NOTHING or DO UPDATE: what becomes of a row whose key another row has.


class Conflict:
    def __init__(
        self,
        statement: Changing,
        binder: Binder,
        node: exp.Expr,
        table: tuple[str, Target],
        views: Scope,
        rules: tuple[Defaults, Checks],
    ) -> None:
        """``table``: what the statement calls it, and what it is; ``views``: where the queries of WITH have names."""
        self._alias, target = table
        self._statement = statement
        self._table = target.table.definition
        defaults, self._checks = rules
        self._positions: list[int] = []
        self._sets: assignment.Sets | None = None
        self._query: tree.Relation | None = None  # if queries stand in the action
        with reading(node) as syntax:
            action = syntax.word("action", "DO NOTHING", "DO UPDATE")
            self._relation = new_table(self._table)
            self._index = self._chosen_index(syntax)
            parts, where = syntax.list("expressions"), syntax.take("where")
        if action == "DO NOTHING" and not parts:
            if where is not None:
                raise InvalidSyntax("syntax error: DO NOTHING has no WHERE", *place(where))
            return
        if self._index is None:
            raise InvalidSyntax("on conflict do update needs the columns of a unique index", *place(node))
        columns, new = target.table.stored, columns_of(self._table.columns)
        self._both = (*columns, *new)
        scope = Scope.of_tables([(self._alias, columns, None), ("excluded", new, None)])
        scope.visible = list(scope.items[0].columns)  # a bare name is that of the row which is there
        scope.parent, scope.views = views, views.views
        sets = assignment.assignments(binder, parts, scope, target, defaults)
        self._checks = self._checks.after(sets.values).of_columns()
        self._positions = [*sets.values, *self._checks.generated.positions]
        test = None
        if where is not None:
            with reading(where) as inner:
                test = fold(condition(binder, inner.need("this", "a condition"), scope))
        self._take_action(sets, test)

    def _take_action(self, sets: assignment.Sets, test: Expression | None) -> None:
        """Prepare to compute, of the row that is there and the new one, whether it is changed and to what."""
        tests = [Constant(BOOLEAN, True) if test is None else test]
        values = list(sets.values.values())
        self._sets, self._input = sets, tree.Input("the row in conflict", self._both)
        if not sets.queries and not any(map(tree.has_queries, (*tests, *values))):
            self._test, self._values = compile_row(tests, self._both), compile_row(values, self._both)
            return
        numbers = [tree.Reference(one.type, one) for one in sets.numbers]
        met = tree.Filter(self._input, tests[0])
        outputs = [(tree.Column("", one.type), one) for one in (*values, *numbers)]
        self._query = tree.Project(sets.beside(met), tuple(outputs))

    def plan(self, shared: tuple[tree.Shared, ...]) -> None:
        if self._query is not None:
            relation = tree.With(shared, self._query) if shared else self._query
            self._plan = self._statement.planned(fold_relation(relation))

    def _new_values(self, both: Sequence[Any], course: Course) -> Sequence[Any] | None:
        """What the columns that are set get; None if the row stays as it is."""
        if self._query is None:
            is_met = self._test(both, course.parameters, course.now)[0] is True
            return self._values(both, course.parameters, course.now) if is_met else None
        assert self._sets is not None
        course.inputs[self._input.key] = [tuple(both)]
        rows = self._statement.rows_in_course(self._plan, course)
        if self._sets.queries:
            rows = self._sets.counted(rows)
        return rows[0][: len(self._sets.values)] if rows else None

    def _chosen_index(self, syntax: Syntax) -> str | None:
        """The unique index whose conflicts count; None: any."""
        table, constraint = self._table, syntax.take("constraint")
        listed, predicate = syntax.list("conflict_keys"), syntax.take("index_predicate")
        if constraint is not None:
            return self._kept_by(folded(constraint), constraint)
        if not listed:
            return None
        keys = dict.fromkeys(self._key(node) for node in listed)  # in the order in which they are written
        parts = [] if predicate is None else self._predicate(predicate)
        found = [index for index in table.indexes if index.unique and not index.building]
        for index in sorted(found, key=lambda one: one.condition is not None):
            if {table.stored[n].name for n in index.key} == keys.keys() and self._has_all(index, parts):
                return index.name
        those = " of all rows that meet the condition" if parts else ""
        shown = ", ".join(one.removeprefix(HIDDEN) for one in keys)
        raise SchemaError(f"{where(listed[0])}table {table.name} has no unique index on ({shown}){those}")

    def _key(self, node: exp.Expr) -> str:
        """A column, or what stands for an expression that an index is on."""
        inner = node.this if isinstance(node, exp.Ordered) else node
        if isinstance(inner, exp.Column | exp.Identifier):
            return column_names([node])[0]
        if isinstance(node, exp.Ordered):
            with reading(node) as ordered:
                ordered.ignore("nulls_first")
                inner = ordered.need("this", "an expression")
        inner = inner.this if isinstance(inner, exp.Paren) else inner
        return HIDDEN + kept_as(self._table, inner)[0]

    def _kept_by(self, name: str, node: exp.Expr) -> str:
        """The index that keeps a constraint."""
        index = self._table.index(name)
        if index.condition is not None:
            message = f"index {name} is of some rows only, and no constraint; name its columns and its condition"
            raise InvalidSyntax(message, *place(node))
        return index.name

    def _predicate(self, node: exp.Expr) -> list[Expression]:
        """The condition that the index must be of, as parts that are all true."""
        with reading(node) as inner:
            test = inner.need("this", "a condition")
        columns = self._relation.stored
        scope = Scope.of_table(self._table.name, columns)
        return tree.conjuncts(bind_condition(test, scope, "the condition of an index"))

    def _has_all(self, index: IndexDefinition, parts: list[Expression]) -> bool:
        condition = condition_of(index, self._relation)
        return condition is None or implies(parts, condition)

    def insert(self, heap: Heap, row: list[Any], done: dict[RowId, Any], course: Course) -> None:
        """Insert a row, or do what is to be done instead; the row that is there then is added to ``done``."""
        try:
            done[self._put(heap, row)] = row
        except UniqueViolation as violation:
            if self._index is not None and violation.index != self._index:
                raise name_key(violation, self._table.index(violation.index), row) from None
            if self._sets is None:
                return
            row_id = RowId(*violation.row_id)  # type: ignore[misc]
            if row_id in done or course.has_changed(self._table, row_id):
                message = "on conflict do update cannot change a row twice, or one that the statement has inserted"
                raise ProgrammingError(f"table {self._table.name}: {message}") from None
            old = heap.fetch(row_id)
            values = self._new_values((*old, *row), course)
            if values is not None:
                new = list(old)
                for position, value in zip(self._positions, values, strict=False):
                    new[position] = value
                self._checks.complete(new, course.now)
                heap.update(row_id, {self._table.columns[n].name: new[n] for n in self._positions})
                done[row_id] = new

    def _put(self, heap: Heap, row: list[Any]) -> RowId:
        """Insert a row, whose key in the index of this is looked at before those in others."""
        if self._index is None:
            return heap.insert(row)
        call = heap.session.call
        call[FIRST_INDEX] = [index.name for index in heap.indexes].index(self._index)
        try:
            return heap.insert(row)
        finally:
            call[FIRST_INDEX] = 0


# ---- INSERT.

Row = list[Any]
Done = dict[RowId, Sequence[Any]]
Each = Callable[[Parameters], Result]
Make = Callable[[Course], Row]
_ONE_ROW = Result(rowcount=1)
_new = tuple.__new__  # a Result without the wrapper that a NamedTuple has


class Insert(Changing):
    def __init__(
        self, connection: Connection, parsed: Parsed, types: ParameterTypes, within: Within | None = None
    ) -> None:
        super().__init__(connection, parsed, types, within)
        self._binder = self.binder
        with reading(parsed.statement) as syntax:  # type: ignore[arg-type]
            self._take_target(syntax.need("this", "a table"))
            self._defaults, self._checks = Defaults(self.definition), Checks(self.definition, self._target)
            overriding = syntax.word("settings", *OVERRIDING)
            self._new = NewRows(connection, self._target, self._defaults, self._checks, overriding)
            self._new.name_columns(self._named, self._scope, syntax.node)
            self._single_row: dict[int, Expression] | None = (
                None  # the values of a single row, which no query is part of
            )
            self._rows: Callable[[Course], Iterator[Row]]
            self._query: Plan | None = None
            self._take_source(syntax)
            returning, conflict = syntax.take("returning"), syntax.take("conflict")
        if returning is not None:
            self._scope.parent, self._scope.views = self._names, self._names.views
            self._returning = Returning(self, self._binder, returning, self._scope)
            self._returning.plan((*self._columns, self._row_id), self._shared)
        self._conflict = None if conflict is None else self._bound_conflict(conflict)
        self._is_plain = self._conflict is None and self._returning is None and not self.parts
        self._number = _numbering(self.definition)
        self._quick_target = 0  # the description of the table that ``quick`` goes by
        self.needs_time = self._binder.uses_time or self._defaults.use_time or self._checks.use_time
        self.depend_on(self._binder)
        self.typed_parameters = frozenset(self._binder.used_parameters)

    def _bound_conflict(self, node: exp.Expr) -> Conflict:
        if self._target.name != self.definition.name:
            message = f"ON CONFLICT is not supported through a view: {self._target.name}"
            raise UnsupportedExpression(message, *place(node), "Insert into the table itself")
        table, rules = (self._alias, self._target), (self._defaults, self._checks)
        conflict = Conflict(self, self._binder, node, table, self._names, rules)
        conflict.plan(self._shared)
        return conflict

    # ---- what goes where

    def _take_target(self, target: exp.Expr) -> None:
        """The table, and which of its columns get values."""
        named: list[str] | None = None
        if isinstance(target, exp.Schema):
            with reading(target) as schema:
                named = [column_name(part) for part in schema.list("expressions")]
                target = schema.need("this", "a table")
        with reading(target) as syntax:
            syntax.ignore("this", "db", "only")  # no table inherits from another
            alias = syntax.take("alias")
        name = table_name(target)
        called = "" if alias is None else _alias(alias)
        self._alias = called or name.name
        self._target = change_target(self._binder, target, name, called)
        table = self._target.table
        self.definition = assignment.require_changeable(table.definition)
        self._columns, self._row_id = table.stored, table.row_id
        self._scope = Scope()
        self._scope.add(self._target.item)
        self._named = named

    def _take_source(self, syntax: Syntax) -> None:
        source = syntax.take("expression")
        self._names, shared = self._binder.with_clause(syntax.take("with_"), self._around)
        self._shared = (*self._shared_around, *shared)
        if syntax.flag("default"):
            self._take_values([[]], [])
        elif source is None:
            raise InvalidSyntax("syntax error: INSERT needs VALUES, a query or DEFAULT VALUES", *place(syntax.node))
        elif isinstance(source, exp.Values):
            with reading(source) as values:
                rows = values.list("expressions")
            self._take_values([assignment.listed(row) if isinstance(row, exp.Tuple) else [row] for row in rows], rows)
        else:
            self._take_query(source)

    def _take_values(self, rows: list[list[exp.Expr]], nodes: list[exp.Expr]) -> None:
        makers = []
        for n, values in enumerate(rows):
            assigned = self._new.values(self._binder, values, self._names, nodes[n]) if nodes else {}
            if len(rows) == 1 and not any(map(tree.has_queries, assigned.values())):
                self._single_row = assigned
            makers.append(self._maker(assigned))

        self._rows = lambda course: (one(course) for one in makers)

    def _maker(self, assigned: dict[int, Expression]) -> Make:
        """What makes one row."""
        expressions = self._new.complete(assigned)
        finish = self._new.finisher(assigned)
        if not any(map(tree.has_queries, expressions)):
            evaluate = compile_row(expressions, ())
            return lambda course: finish(evaluate((), course.parameters, course.now), course.now)
        outputs = [(tree.Column("", one.type), one) for one in expressions]
        ready = self._plan(tree.Project(tree.One(), tuple(outputs)))

        def make(course: Course) -> Row:
            (row,) = self.rows_in_course(ready, course)
            return finish(row, course.now)

        return make

    def _plan(self, relation: tree.Relation) -> Plan:
        relation = tree.With(self._shared, relation) if self._shared else relation
        return self.planned(fold_relation(relation))

    def _take_query(self, source: exp.Expr) -> None:
        columns = self.definition.columns
        bound = self._binder.query(source, self._names, open_types=True)
        positions = self._new.positions(len(bound.values), "columns of the query", source)
        assigned = {}
        for position, value in zip(positions, bound.values, strict=True):
            if self._new.takes_value(position):
                assigned[position] = assign(value, columns[position].type, source)
        outputs = [(tree.Column(c.name, e.type), e) for c, e in zip(columns, self._new.complete(assigned), strict=True)]
        self._query = ready = self._plan(projected(bound.relation, outputs))
        self._finish = self._new.finisher(assigned)
        self._from_query = {n: n for n in range(len(columns)) if n not in self._new.missing(assigned)}

        self._rows = lambda course: (self._finish(row, course.now) for row in self.rows_in_course(ready, course))

    # ---- inserting

    def run(self, parameters: Parameters) -> Result:
        by_row = self._run_by_row()
        self.run = by_row or self._run  # type: ignore[assignment, method-assign]
        return self.run(parameters)

    def _run_by_row(self) -> Callable[[Parameters], Result] | None:
        """``run`` for a single row, which is what programs do most.

        None if the statement lacks values of columns, or does more than that.
        """
        assigned = self._single_row
        is_more = not self._is_plain or self.needs_time or has_cells(self.definition.columns)
        if assigned is None or is_more or len(assigned) < len(self._columns):
            return None
        values = [assigned[n] for n in range(len(assigned))]
        evaluate, is_row = compile_row(values, ()), are_parameters(values)
        heap, number = self.connection.heap(self.definition.name), self._number
        check, concerns_all = self._checks.check, bool(self._checks)

        def run(parameters: Parameters) -> Result:
            row: Any = parameters if is_row else evaluate((), parameters)
            if concerns_all or None in row:
                check(row, None)
            try:
                if heap.insert_at_once(row) < 0 and heap.insert_encoded(row) < 0:
                    self._insert_held(row)
            except UniqueViolation as violation:
                raise name_key(violation, self.definition.index(violation.index), row) from None
            if heap.target != self._quick_target and heap.definition is self.definition:
                self.quick, self._quick_target = self._make_quick(heap, values), heap.target
            return Result((), (), 1, None, None, None if number is None else row[number])

        return run

    def _make_quick(self, heap: Heap, values: Sequence[Expression]) -> Quick:
        """One call of a kernel, which itself checks that the definition is the same, and that values fit."""
        insert, number, slowly, store = heap.insert_at_once, self._number, self.checked(self.run), heap.segment.store
        check, concerns_all = self._checks.check, bool(self._checks)
        if heap.shape is None or self.views:
            return slowly
        if not concerns_all:
            values = list(map(as_given, values))
        evaluate = compile_row(values, ())

        def quick(parameters: Any) -> Result | None:
            if insert(parameters) < 0:
                return slowly(parameters)
            if store.scans:
                store.give_way()
            return _ONE_ROW if number is None else _new(Result, ((), (), 1, None, None, parameters[number], ()))

        def evaluated(parameters: Parameters) -> Result | None:
            try:
                row = evaluate((), parameters)
                if concerns_all:
                    check(row, None)
            except Error:  # by this definition, which may not be that of now
                return slowly(parameters)
            if insert(row) < 0:
                return slowly(parameters)
            if store.scans:
                store.give_way()
            return _ONE_ROW if number is None else _new(Result, ((), (), 1, None, None, row[number], ()))

        return quick if are_parameters(values) and not concerns_all else self.typed(evaluated)

    @operation
    def _insert_held(self, row: Sequence[Any]) -> None:
        self.locked(self.definition).insert(row)

    def _run(self, parameters: Parameters) -> Result:
        if self.definition.lobs is not None:
            parameters = rereadable(parameters)
        shows = self._returning is None or self._returning.only_shows  # which cannot fail when the row is there
        if self._single_row is None or self._conflict is not None or not shows or self.parts:
            return self.course(parameters)
        # A single change needs no statement of several steps.
        heap, now = self.locked(self.definition), datetime.now(UTC) if self.needs_time else None
        course = Course(parameters, now)
        row = next(self._rows(course))
        return self._result(heap, {put(heap, row): row}, course)

    def change(self, course: Course) -> Result:
        heap, done = self.locked(self.definition), Done()
        if self._query is not None and self._conflict is None and self._returning is None:
            return self._insert_found(heap, self._query, course)
        for row in self._rows(course):
            if self._conflict is None:
                done[put(heap, row)] = row
            else:
                self._conflict.insert(heap, row, done, course)
        course.note(self.definition, done)
        return self._result(heap, done, course)

    def _insert_found(self, heap: Heap, query: Plan, course: Course) -> Result:
        """Insert the rows of a query, many at once if there are many."""
        rows, last, number, now = self.rows_in_course(query, course), None, self._number, course.now
        for some in in_batches(rows, len(self._columns)):
            batch = None
            if len(some) >= ROWS_MIN:
                bulk = BulkRows(
                    self.definition, self._from_query, self._defaults, self._checks, now or datetime.now(UTC)
                )
                batch = bulk.from_sets(some, self.connection)
            if batch is not None:
                self.connection.append(self.definition.name, batch)
                last = None if number is None else batch.column(number)[-1].as_py()
                continue
            for values in some:
                row = self._finish(values, now)
                course.note(self.definition, (put(heap, row),))
                last = None if number is None else row[number]
        return Result(rowcount=len(rows), last_id=last)

    def _result(self, heap: Heap, done: Done, course: Course) -> Result:
        last_id = next(reversed(done.values()))[self._number] if done and self._number is not None else None
        if self._returning is None:
            return Result(rowcount=len(done), last_id=last_id)
        seen = [(i, heap.fetch(i) if any(map(is_file, values)) else values) for i, values in done.items()]
        returning = self._returning
        shown = returning.rows(course, [(*values, str(row_id)) for row_id, values in seen])
        return Result(returning.names, returning.types, len(done), shown, None, last_id, returning.documents)

    def bulk_rows(self) -> BulkRows | None:
        """What makes rows of many sets at once, if each row is nothing but parameters."""
        if self._single_row is None or not self._is_plain:
            return None
        parameters = {n: assignment.parameter_of(value) for n, value in self._single_row.items()}
        if None in parameters.values():
            return None
        return BulkRows(self.definition, parameters, self._defaults, self._checks, datetime.now(UTC))

    def explain(self) -> list[str]:
        source = ["values"] if self._query is None else self._query.explain()
        title = f"insert into {self.definition.name}"
        return [title, *("  " + line for line in source), *self.parts.explain_of(self)]


def insert_many(connection: Connection, parsed: Parsed, insert: Insert | None, sets: Any, each: Each) -> Result:
    """An INSERT for each of many sets of parameters, which may be Arrow data, all or none.

    ``insert`` is the statement for parameters of any types, if there is one; ``each`` runs the one for a set.
    """
    bulk, done = insert.bulk_rows() if insert is not None else None, 0

    def run(rows: pa.RecordBatch | None, some: Iterable[Any]) -> int:
        """Append rows, or, if there are none, run the statement for each set."""
        if bulk is not None and rows is not None:
            return connection.append(bulk.table.name, rows)
        return sum(each(parsed.check(one)).rowcount for one in some)

    with connection.all_or_nothing():
        if hasattr(sets, "__arrow_c_stream__"):
            for batch in let_through(pa.RecordBatchReader.from_stream(sets)):
                rows = bulk.from_arrow(batch, connection) if bulk and _fits(batch, parsed) else None
                done += run(rows, rows_in(batch))
        else:
            for some in let_through(in_batches(sets, parsed.count)):
                done += run(bulk.from_sets(some, connection) if bulk and len(some) >= ROWS_MIN else None, some)
    return Result(rowcount=done)


def _fits(batch: pa.RecordBatch, parsed: Parsed) -> bool:
    """Whether a batch has the parameters by their numbers or names."""
    return parsed.names <= set(batch.schema.names) if parsed.names else batch.num_columns == parsed.count


def _alias(node: exp.Expr) -> str:
    with reading(node) as syntax:
        return folded(syntax.need("this", "a name"))


def _numbering(table: TableDefinition) -> int | None:
    """The column whose values number the rows: the identity, or a primary key that is one integer."""
    for n, column in enumerate(table.columns):
        if column.is_numbered or (table.primary_key == (column.name,) and column.type.name in INTEGERS):
            return n
    return None
