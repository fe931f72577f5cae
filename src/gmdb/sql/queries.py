"""Queries as statements: bound, planned, and run row by row or by DuckDB, on one snapshot either way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from gmdb.database.dbapi import Result, documents_in
from gmdb.errors import ValueOutOfRange
from gmdb.process.late_dataclasses import replace
from gmdb.process.late_imports import pyarrow as pa
from gmdb.process.signals import Flattened, HeldIterator
from gmdb.sql.bind.binder import Binder, Catalog
from gmdb.sql.parser import Parsed
from gmdb.sql.plan.estimates import ROWS
from gmdb.sql.plan.paths import parse_row_id
from gmdb.sql.plan.planner import Plan
from gmdb.sql.prepared import ParameterTypes, Quick, Statement
from gmdb.sql.rows.expressions import compile_expression
from gmdb.sql.rows.point import point_of
from gmdb.sql.run import Parameters, Run
from gmdb.sql.tree import (
    Column,
    Expression,
    Filter,
    Join,
    Limit,
    Number,
    Output,
    Project,
    Reference,
    Relation,
    Sort,
    Table,
    With,
    walk,
)
from gmdb.tables.access.statements import RowChanged, Steps
from gmdb.transaction.interrupts import operation

if TYPE_CHECKING:
    from gmdb.database.connection import Connection
    from gmdb.sql.duck.execution import DuckResult

AT_ONCE = 1000  # rows that are read when a statement is executed; the others when they are fetched
_new = tuple.__new__  # a Result without the wrapper that a NamedTuple has
_NO_TIME = datetime(1970, 1, 1)  # for statements that do not ask what time it is
Row = tuple[Any, ...]


class Query(Statement):
    """SELECT, VALUES, and set operations of them."""

    documents: tuple[int, ...] = ()  # columns whose texts of JSON are made Python's values when they are fetched

    def __init__(self, connection: Connection, parsed: Parsed, types: ParameterTypes) -> None:
        super().__init__(connection, parsed, types)
        binder = self._new_binder()
        bound = binder.statement(parsed.statement)  # type: ignore[arg-type]
        self.depend_on(binder)
        self.typed_parameters = frozenset(binder.used_parameters)
        self.names = bound.names
        self.column_types = tuple(column.type for column in bound.relation.columns)
        self.documents = documents_in(self.column_types)
        self._uses_time = binder.uses_time
        relation = bound.relation
        self._locks = bound.locks
        if not self._locks:
            self.plan: Plan = self.planned(relation)
        else:
            for lock in self._locks:
                relation = _with_row_id(relation, lock.table)
            self.plan, self._count, self._offset = _without_limit(self.planned(relation, True))

    def _new_binder(self) -> Binder:
        return Binder(Catalog(self.connection), self.types)

    def _now(self) -> datetime:
        return datetime.now(UTC) if self._uses_time else _NO_TIME

    # ---- running

    def run(self, parameters: Parameters) -> Result:
        by_keys = None if self._locks or self.plan.executor != ROWS else self._run_by_keys()
        if by_keys is None:
            self.run = self.run_by  # type: ignore[method-assign]
        else:
            self.run = by_keys  # type: ignore[assignment, method-assign]
            self.quick = self._make_quick(by_keys)
        return self.run(parameters)

    def _make_quick(self, by_keys: Callable[[Parameters], Result]) -> Quick:
        names, types, documents = self.names, self.column_types, self.documents
        slowly = self.checked(by_keys)
        point = None if self._uses_time or self.views else point_of(self.connection, self.plan.tree)
        if point is None:
            return slowly

        def read(parameters: Parameters) -> Result | None:
            rows = point.read(parameters)
            if rows is None:
                return slowly(parameters)
            return _new(Result, (names, types, len(rows), iter(rows), None, None, documents))

        def find(parameters: Any) -> Result | None:
            rows = point.find(parameters)
            if rows.__class__ is not list:
                return read(parameters)
            return _new(Result, (names, types, len(rows), iter(rows), None, None, documents))

        return find if point.takes_parameters else self.typed(read)

    def _run_by_keys(self) -> Callable[[Parameters], Result] | None:
        """``run`` for look-ups by keys, with all that it needs bound to it."""
        program = self.plan.program.quick(self.connection)
        if program is None:
            return None
        work = program.run
        names, types, documents = self.names, self.column_types, self.documents
        uses_time = self._uses_time

        def run(parameters: Parameters) -> Result:
            rows = work(parameters, datetime.now(UTC) if uses_time else _NO_TIME)
            if rows is None:
                return self.run_by(parameters)
            return Result(names, types, len(rows), iter(rows), documents=documents)

        return run

    def run_by(self, parameters: Parameters, scn: int | None = None) -> Result:
        """``run``, on a snapshot; ``scn``: the instant of a statement that is running, if it goes by one."""
        if self._locks:
            return self._run_locked(parameters)
        if self.plan.executor == ROWS:
            return self._run_rows(parameters, scn)
        return self._run_in_duckdb(parameters, scn)

    @operation
    def _run_rows(self, parameters: Parameters, scn: int | None) -> Result:
        stack = ExitStack()
        try:
            reading = stack.enter_context(self.connection.one_snapshot(scn))
            rows = self.plan.program.rows(Run(self.connection, reading, parameters, self._now()))
            some = list(islice(rows, AT_ONCE))
            if len(some) < AT_ONCE:
                stack.close()
                return Result(self.names, self.column_types, len(some), iter(some), documents=self.documents)
        except BaseException:
            stack.close()
            raise
        pieces = _pieces(some, rows, stack)
        next(pieces)
        session = self.session
        held = HeldIterator(pieces, session.held, session.finish_read_if_idle)
        return Result(self.names, self.column_types, -1, Flattened.of(held), documents=self.documents)

    def _run_in_duckdb(self, parameters: Parameters, scn: int | None) -> Result:
        stack = ExitStack()
        try:
            result = self._begin_in_duckdb(parameters, scn, stack)
        except BaseException:
            stack.close()
            raise
        if result is None:
            stack.close()
            return self._run_rows(parameters, scn)
        session, batches = self.session, _batches(result, stack)
        next(batches)
        held = HeldIterator(batches, session.held, session.finish_read_if_idle)
        reader = pa.RecordBatchReader.from_batches(result.reader.schema, held)
        return Result(self.names, self.column_types, -1, None, reader, documents=self.documents)

    @operation
    def _begin_in_duckdb(self, parameters: Parameters, scn: int | None, stack: ExitStack) -> DuckResult | None:
        """DuckDB's result; None if the plan had to become one for the rows executor."""
        reading = stack.enter_context(self.connection.one_snapshot(scn))
        run = Run(self.connection, reading, parameters, self._now())
        result = self.plan.in_duckdb(run, partial(self.watch, stack))
        if result is not None:
            stack.callback(result.close)
        return result

    # ---- FOR UPDATE

    @operation
    def _run_locked(self, parameters: Parameters) -> Result:
        """Rows that are held until the transaction ends; NOWAIT and SKIP LOCKED as the statement says.

        LIMIT counts the rows that were locked: SKIP LOCKED, which takes the next row of a queue, passes over others'
        """
        offset, end = self._ends(parameters)
        heaps = [self.locked(lock.table.definition) for lock in self._locks]
        with heaps[0].statement() as steps:
            several = [steps.on(heap) for heap in heaps]
            while True:
                try:
                    rows = self._lock_rows(steps, several, parameters, end)
                    break
                except RowChanged as changed:
                    steps.start_over(changed)
        shown = [row[: -len(self._locks)] for row in rows[offset:]]
        return Result(self.names, self.column_types, len(shown), iter(shown), documents=self.documents)

    def _ends(self, parameters: Parameters) -> tuple[int, int | None]:
        """Which of the rows are returned: from which, and up to which."""
        numbers = []
        for expression, what in ((self._count, "LIMIT"), (self._offset, "OFFSET")):
            value = None if expression is None else compile_expression(expression, ())((), parameters, self._now())
            if value is not None and value < 0:
                raise ValueOutOfRange(f"{what} must not be negative")
            numbers.append(value)
        offset = numbers[1] or 0
        return offset, None if numbers[0] is None else offset + numbers[0]

    def _lock_rows(self, steps: Steps, several: list[Steps], parameters: Parameters, end: int | None) -> list[Row]:
        held: list[Row] = []
        if end == 0:
            return held
        with ExitStack() as stack:
            reading = stack.enter_context(self.connection.one_snapshot(steps.scn))
            run = Run(self.connection, reading, parameters, self._now())
            for row in self.plan.rows(run, partial(self.watch, stack)):
                if self._lock_row(several, row[-len(self._locks) :]):
                    held.append(row)
                    if len(held) == end:
                        break
        return held

    def _lock_row(self, several: list[Steps], shown: Row) -> bool:
        """Lock the rows of which one of the result is made; False: one of them is to be passed over."""
        for lock, steps, value in zip(self._locks, several, shown, strict=True):
            row_id = parse_row_id(value)
            assert row_id is not None
            if steps.lock([row_id], lock.wait is False, lock.wait is None):
                return False
        return True

    # ---- explaining

    def explain(self) -> list[str]:
        return self.plan.explain()

    @operation
    def analyze(self, parameters: Parameters) -> list[str]:
        if self._locks:
            return super().analyze(parameters)
        with ExitStack() as stack:
            reading = stack.enter_context(self.connection.one_snapshot())
            run = Run(self.connection, reading, parameters, self._now())
            return self.plan.analyze(run, partial(self.watch, stack))


def _with_row_id(relation: Relation, table: Table) -> Relation:
    """A query over the rows of tables with the ids of one of them behind its columns."""
    column = table.row_id if table.row_id not in relation.columns else Column(table.row_id.name, table.row_id.type)
    if not isinstance(relation, Project | With):
        return Project(_carrying(relation, table.row_id), (*_outputs(relation), (column, _reference(table.row_id))))
    if isinstance(relation, With):
        return replace(relation, body=_with_row_id(relation.body, table))
    source = _carrying(relation.source, table.row_id)
    return Project(source, (*relation.outputs, (column, _reference(table.row_id))))


def _carrying(relation: Relation, column: Column) -> Relation:
    """A relation that has a column of a table in it among its columns, too; others are as they were."""
    if column in relation.columns:
        return relation
    if isinstance(relation, Project):
        return Project(_carrying(relation.source, column), (*relation.outputs, (column, _reference(column))))
    if isinstance(relation, With):
        return replace(relation, body=_carrying(relation.body, column))
    if isinstance(relation, Join):
        if _has_table(relation.left, column):
            return replace(relation, left=_carrying(relation.left, column))
        return replace(relation, right=_carrying(relation.right, column))
    assert isinstance(relation, Sort | Limit | Filter | Number)
    return replace(relation, source=_carrying(relation.source, column))


def _has_table(relation: Relation, row_id: Column) -> bool:
    return any(isinstance(one, Table) and one.row_id is row_id for one in walk(relation))


def _reference(column: Column) -> Reference:
    return Reference(column.type, column)


def _outputs(relation: Relation) -> tuple[Output, ...]:
    return tuple((Column(one.name, one.type), _reference(one)) for one in relation.columns)


def _without_limit(plan: Plan) -> tuple[Plan, Expression | None, Expression | None]:
    """A plan without the limit at its top, and what that is."""
    tree, projects = plan.tree, []
    while isinstance(tree, Project):
        projects.append(tree)
        tree = tree.source
    if not isinstance(tree, Limit):
        return plan, None, None
    rest: Relation = tree.source
    for project in reversed(projects):
        rest = replace(project, source=rest)
    return plan.of(rest), tree.count, tree.offset


def _pieces(some: list[Row], rows: Iterator[Row], stack: ExitStack) -> Iterator[list[Row]]:
    """First nothing, then rows, some at a time; the snapshot is held until all are read or the generator is closed."""
    with stack:
        yield []  # from here on closing the generator closes the stack
        while some:
            yield some
            some = list(islice(rows, AT_ONCE))


def _batches(result: DuckResult, stack: ExitStack) -> Iterator[pa.RecordBatch]:
    """First nothing, then the batches."""
    with stack:
        yield None
        yield from result.reader
