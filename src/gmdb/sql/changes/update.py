"""UPDATE and DELETE: a plan finds the rows, then they are changed.

The plan gives each row's id, what else is asked for of it, and the values that need other tables or queries.  What one
row of the table decides is worked out row by row, so that a large object may come out of a file.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from gmdb.access.heap import Heap
from gmdb.access.indexes import name_key
from gmdb.access.lob_source import is_file, rereadable
from gmdb.access.statements import run_statement
from gmdb.access.steps import Steps
from gmdb.dbapi import Result
from gmdb.errors import DataError, UniqueViolation
from gmdb.format.address import RowId, parse_page_id
from gmdb.sql import tree
from gmdb.sql.bind.binder import Binder, Catalog
from gmdb.sql.changes.assignment import Checks, Defaults, assignments, has_queries, uses_time
from gmdb.sql.changes.returning import Returning, require_changeable, rows_of_plan
from gmdb.sql.fold import fold_relation
from gmdb.sql.parser import Parsed
from gmdb.sql.prepared import Parameters, ParameterTypes, Statement
from gmdb.sql.rows.expressions import compile_row
from gmdb.sql.syntax import Syntax, reading
from gmdb.sql.tree import Column, Expression, Reference
from gmdb.transaction.interrupts import operation

if TYPE_CHECKING:
    from gmdb.connection import Connection

Found = tuple[Any, ...]  # a row's id, and the values that the statement asked for
Row = tuple[Any, ...]


class _Change(Statement):
    """What UPDATE and DELETE share: a table, a condition, RETURNING."""

    def __init__(self, connection: Connection, parsed: Parsed, types: ParameterTypes) -> None:
        super().__init__(connection, parsed, types)
        binder = Binder(Catalog(connection), types)
        with reading(parsed.statement) as syntax:  # type: ignore[arg-type]
            target, where = syntax.need("this", "a table"), syntax.take("where")
            self._source = binder.change_source(target, self._others(syntax), where, syntax.take("with_"))
            self.table: tree.Table = self._source.table
            self.definition = require_changeable(self.table.definition)
            self._take_changes(syntax, binder)
            returning = syntax.take("returning")
        self._returning = None if returning is None else Returning(binder, returning, self._source.scope)
        self._needs_time = binder.uses_time
        self.asked = frozenset(binder.used_parameters)
        self.tables.update(binder.tables)
        self._plan_rows()

    def is_current(self) -> bool:
        return super().is_current() and (self.is_quick or not self._plan.has_outgrown(self.pages))

    @abstractmethod
    def _others(self, syntax: Syntax) -> list[exp.Expr]:
        """The tables beside the one that is changed."""

    def _take_changes(self, syntax: Syntax, binder: Binder) -> None:
        """What is to be done with the rows."""

    def _wanted(self) -> tuple[set[Column], list[tree.Output]]:
        """The columns that the changes ask for, and the values that the plan is to work out."""
        return set(), []

    def _plan_rows(self) -> None:
        """Plan the search: a row's id, then ``self.columns``."""
        columns, values = self._wanted()
        if self._returning is not None:
            columns = columns | self._returning.needs
        self.kept = [n for n, column in enumerate(self.table.stored) if column in columns]
        stored = [self.table.stored[n] for n in self.kept]
        others = sorted(columns - set(self.table.columns), key=lambda column: column.number)
        outputs = [(column, Reference(column.type, column)) for column in (self.table.row_id, *stored, *others)]
        outputs = [(Column(column.name, value.type), value) for column, value in outputs]
        self.columns = (*stored, *others, *(column for column, _ in values))
        self._others_at = len(stored) + 1, len(stored) + 1 + len(others)
        relation: tree.Relation = tree.Project(self._source.relation, (*outputs, *values))
        if self._source.shared:
            relation = tree.With(self._source.shared, relation)
        self._plan = self.planned(fold_relation(relation), row_ids=True)

    def run(self, parameters: Parameters) -> Result:
        run = self._at_once()
        self.is_quick = run is not None
        self.run = run or self._run  # type: ignore[assignment, method-assign]
        return self.run(parameters)

    @abstractmethod
    def _at_once(self) -> Callable[[Parameters], Result] | None:
        """``run`` for a single row by its key, if nobody can come between, with all that it needs bound to it."""

    @abstractmethod
    def _run(self, parameters: Parameters) -> Result:
        """``run`` for any number of rows."""

    def find(self, steps: Steps, parameters: Parameters, now: datetime | None) -> list[Found]:
        """The rows, each once: joined with several rows, the first one counts."""
        rows: dict[Any, Found] = {}
        for row in rows_of_plan(self, self._plan, parameters, now, steps.scn):
            rows.setdefault(row[0], row)
        pages: dict[str, int] = {}
        return [(_row_id(row_id, pages), *row[1:]) for row_id, row in rows.items()]

    def stored(self, found: Found) -> list[Any]:
        """A row's stored values, as far as anybody asks for them."""
        row: list[Any] = [None] * len(self.definition.columns)
        for n, value in zip(self.kept, found[1:], strict=False):
            row[n] = value
        return row

    def result(self, rows: Sequence[tuple[RowId, Row, Row]], parameters: Parameters, now: datetime | None) -> Result:
        """What came of it; ``rows``: their ids, stored values as they are now, and what they were joined with."""
        if self._returning is None:
            return Result(rowcount=len(rows))
        start, end = self._others_at
        columns = (*self.table.stored, self.table.row_id, *self.columns[start - 1 : end - 1])
        whole = [(*values, str(row_id), *others) for row_id, values, others in rows]
        shown = self._returning.rows(columns, whole, parameters, now)
        return Result(self._returning.names, self._returning.types, len(rows), shown)

    def explain(self) -> list[str]:
        said = f"{type(self).__name__.lower()} {self.definition.name}"
        return [said, *("  " + line for line in self._plan.explain())]


def _row_id(shown: Any, pages: dict[str, int]) -> RowId:
    """A row id from the way that a plan shows it; ``pages`` are those that were met before."""
    if isinstance(shown, RowId):
        return shown
    page, _, slot = shown.rpartition(":")
    if page not in pages:
        pages[page] = parse_page_id(page)
    return RowId(pages[page], int(slot))


class Update(_Change):
    def _others(self, syntax: Syntax) -> list[exp.Expr]:
        return syntax.list("from_")

    def _take_changes(self, syntax: Syntax, binder: Binder) -> None:
        defaults = Defaults(self.definition)
        sets = assignments(binder, syntax.list("expressions"), self._source.scope, self.definition, defaults)
        self._checks = Checks(self.definition).after(sets)
        self._positions = list(sets)
        self._names = [self.definition.columns[n].name for n in sets]
        own = set(self.table.stored)
        self._asked: list[tree.Output] = []
        self._values: list[Expression] = []
        for name, value in zip(self._names, sets.values(), strict=True):
            if has_queries([value]) or not tree.columns_of(value) <= own:
                self._asked.append((Column(name, value.type), value))
                value = Reference(value.type, self._asked[-1][0])
            self._values.append(value)
        self._shows_row_id = any(self.table.row_id in tree.columns_of(value) for _, value in self._asked)
        self._uses_time = uses_time(self._values) or self._checks.use_time

    def _wanted(self) -> tuple[set[Column], list[tree.Output]]:
        asked = {column for column, _ in self._asked}
        columns = tree.columns_used(self._values) - asked
        if self._checks:
            columns.update(self.table.stored)
        elif self._returning is not None:
            columns |= self._returning.needs
        return columns, self._asked

    def _plan_rows(self) -> None:
        super()._plan_rows()
        self._make = compile_row(self._values, (self.table.row_id, *self.columns))

    def _at_once(self) -> Callable[[Parameters], Result] | None:
        point = self._plan.point()
        uses_time = self._uses_time or self._needs_time
        if point is None or self._returning or self._asked or uses_time or self.definition.lobs is not None:
            return None
        session, key_of = self.session, point.key
        change = self.connection.heap(self.definition.name).by(point.index).change_at_once
        encode = self.connection.heap(self.definition.name).patch_encoder(self._names)
        make, positions = compile_row(self._values, self.table.stored), self._positions
        check = self._checks.check if self._checks.concern(positions) else None

        def run(parameters: Parameters) -> Result:
            def patch_of(values: Row) -> bytes:
                new = make(values, parameters)
                if check is not None:
                    row = list(values)
                    for position, value in zip(positions, new, strict=True):
                        row[position] = value
                    check(row, None)
                return encode(new)

            key = key_of(parameters)
            if session.plain:
                try:
                    count = change(key, patch_of) if None not in key else 0
                except DataError:  # the long way tells what is wrong, if anything is
                    count = -1
                if count >= 0:
                    return Result((), (), count)
            return self._run(parameters)

        return run

    @operation
    def _run(self, parameters: Parameters) -> Result:
        if self.definition.lobs is not None:
            parameters = rereadable(parameters)
        now = datetime.now() if self._uses_time or self._needs_time else None
        heap = self.held(self.definition)
        changed: list[tuple[RowId, Row, Row]] = []

        def act(steps: Steps, rows: list[Found]) -> None:
            changed.clear()
            steps.update(self._changes(rows, parameters, now, changed))

        try:
            run_statement(heap, lambda steps: self.find(steps, parameters, now), act)
        except UniqueViolation as violation:
            row_id, row, _ = changed[-1]
            raise name_key(violation, self.definition.index(violation.index), self._whole(row_id, row)) from None
        return self.result(self._seen(heap, changed), parameters, now)

    def _whole(self, row_id: RowId, row: Row) -> Row:
        """A row with the columns that nobody asked for before."""
        stored = self.connection.heap(self.definition.name).wanting(()).fetch(row_id)
        known = {*self.kept, *self._positions}
        return tuple(row[n] if n in known else value for n, value in enumerate(stored))

    def _changes(
        self, rows: Iterable[Found], parameters: Parameters, now: datetime | None, changed: list[tuple[RowId, Row, Row]]
    ) -> Iterator[tuple[RowId, dict[str, Any]]]:
        """The new values of each row; the rows as they are then are collected in ``changed``."""
        make, check = self._make, self._checks.check
        positions, names, (start, end) = self._positions, self._names, self._others_at
        for found in rows:
            new = make(found, parameters, now)
            if self._shows_row_id:
                new = tuple(str(value) if isinstance(value, RowId) else value for value in new)
            row = self.stored(found)
            for n, value in zip(positions, new, strict=True):
                row[n] = value
            check(row, now)
            changed.append((found[0], tuple(row), found[start:end]))
            yield found[0], dict(zip(names, new, strict=True))

    def _seen(self, heap: Heap, rows: list[tuple[RowId, Row, Row]]) -> list[tuple[RowId, Row, Row]]:
        """Rows as RETURNING sees them: large objects that were read from files are read from their pages."""
        if self._returning is None:
            return rows
        return [(i, heap.fetch(i), others) if any(map(is_file, row)) else (i, row, others) for i, row, others in rows]


class Delete(_Change):
    def _others(self, syntax: Syntax) -> list[exp.Expr]:
        return syntax.list("using")

    def _at_once(self) -> Callable[[Parameters], Result] | None:
        point = self._plan.point()
        if point is None or self._returning or self.definition.lobs is not None:
            return None
        session, key_of = self.session, point.key
        delete = self.connection.heap(self.definition.name).by(point.index).change_at_once

        def run(parameters: Parameters) -> Result:
            key = key_of(parameters)
            if session.plain:
                try:
                    count = delete(key, None) if None not in key else 0
                except DataError:  # no row has such a key, or it is of another type than the last one
                    count = -1
                if count >= 0:
                    return Result((), (), count)
            return self._run(parameters)

        return run

    @operation
    def _run(self, parameters: Parameters) -> Result:
        now = datetime.now() if self._needs_time else None
        heap, (start, end) = self.held(self.definition), self._others_at

        def act(steps: Steps, rows: list[Found]) -> None:
            steps.delete(row[0] for row in rows)

        rows = run_statement(heap, lambda steps: self.find(steps, parameters, now), act)
        return self.result([(row[0], tuple(self.stored(row)), row[start:end]) for row in rows], parameters, now)
