"""UPDATE and DELETE: a plan finds the rows, then they are changed.

The plan gives each row's id, its stored values that are needed, and the values that need other tables or queries.
What depends on one row of the table alone is computed row by row, so that a large object may come out of a file.  Few
rows that are found by keys are changed at once (at_once.py), where that is possible.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from gmdb.database.dbapi import Result
from gmdb.errors import UniqueViolation
from gmdb.format.address import RowId, parse_page_id
from gmdb.format.columns import has_cells
from gmdb.sql import rows, tree
from gmdb.sql.bind.binder import Binder
from gmdb.sql.bind.coercion import fold_relation
from gmdb.sql.parser import Parsed
from gmdb.sql.plan.estimates import ROWS
from gmdb.sql.prepared import ParameterTypes, Quick
from gmdb.sql.rows.expressions import compile_row
from gmdb.sql.rows.point import as_given
from gmdb.sql.run import Parameters
from gmdb.sql.statements import assignment
from gmdb.sql.statements.assignment import Checks, Defaults, Returning
from gmdb.sql.statements.at_once import NOT_DONE, FoundRow, change_at_once, change_point, each_once, finds_one
from gmdb.sql.statements.changing import Changing
from gmdb.sql.statements.course import Course
from gmdb.sql.statements.parts import Within
from gmdb.sql.syntax import Syntax, reading
from gmdb.sql.tree import Column, Expression, Reference
from gmdb.tables.access.heap import Heap
from gmdb.tables.access.indexes import name_key
from gmdb.tables.access.lob_files import is_file
from gmdb.transaction.interrupts import operation

if TYPE_CHECKING:
    from gmdb.database.connection import Connection

Row = tuple[Any, ...]
_new = tuple.__new__  # a Result without the wrapper that a NamedTuple has


class _Change(Changing):
    """What UPDATE and DELETE share: a table, a condition, RETURNING."""

    def __init__(
        self, connection: Connection, parsed: Parsed, types: ParameterTypes, within: Within | None = None
    ) -> None:
        super().__init__(connection, parsed, types, within)
        binder = self.binder
        with reading(parsed.statement) as syntax:  # type: ignore[arg-type]
            target, where = syntax.need("this", "a table"), syntax.take("where")
            with_, others = syntax.take("with_"), self._others(syntax)
            self._source = binder.change_source(target, others, where, with_, self._around)
            self._shared = (*self._shared_around, *self._source.shared)
            self.table: tree.Table = self._source.table
            self.definition = assignment.require_changeable(self.table.definition)
            self._take_changes(syntax, binder)
            returning = syntax.take("returning")
        if returning is not None:
            self._returning = Returning(self, binder, returning, self._source.scope)
        self.needs_time = self.needs_time or binder.uses_time
        self.typed_parameters = frozenset(binder.used_parameters)
        self.depend_on(binder)
        self._plan_rows()

    @abstractmethod
    def _others(self, syntax: Syntax) -> list[exp.Expr]:
        """The tables beside the one that is changed."""

    def _take_changes(self, syntax: Syntax, binder: Binder) -> None:
        """What is to be done with the rows."""

    def _needs(self) -> tuple[set[Column], list[tree.Output]]:
        """The columns that the changes need, and the values that the plan computes."""
        return set(), []

    def _plan_rows(self) -> None:
        """Plan the search: a row's id, then ``self.columns``."""
        columns, values = self._needs()
        if self._returning is not None:
            columns = columns | self._returning.needs
        self._stored_positions = [n for n, column in enumerate(self.table.stored) if column in columns]
        stored = [self.table.stored[n] for n in self._stored_positions]
        others = sorted(columns - set(self.table.columns), key=lambda column: column.number)
        outputs = [(column, Reference(column.type, column)) for column in (self.table.row_id, *stored, *others)]
        outputs = [(Column(column.name, value.type), value) for column, value in outputs]
        self.columns = (*stored, *others, *(column for column, _ in values))
        self._others_at = len(stored) + 1, len(stored) + 1 + len(others)
        relation: tree.Relation = tree.Project(self._found_in(), (*outputs, *values))
        if self._shared:
            relation = tree.With(self._shared, relation)
        self._plan = self.planned(fold_relation(relation), row_ids=True)
        if self._returning is not None:
            self._returning.plan((*self.table.stored, self.table.row_id, *others), self._shared)

    def _found_in(self) -> tree.Relation:
        """The relation of the rows that are changed, with all that the changes are made of."""
        return self._source.relation

    def run(self, parameters: Parameters) -> Result:
        by_keys = None if self.parts else self._run_by_keys()
        if by_keys is None:
            self.run = self._run  # type: ignore[method-assign]
        else:
            self.run = by_keys  # type: ignore[assignment, method-assign]
            self.quick = self._make_quick(self.checked(by_keys))
        return self.run(parameters)

    def _run_by_keys(self) -> Callable[[Parameters], Result] | None:
        """``run`` for few rows that are found by keys."""
        program, session = self._program_at_once(), self.session
        if program is None:
            return None
        heap = self.connection.heap(self.definition.name)
        change = change_at_once(heap, program, self._patch_maker(heap), finds_one(self._plan.tree), self.needs_time)

        def run(parameters: Parameters) -> Result:
            if session.plain:
                count = change(parameters)
                if count >= 0:
                    return Result((), (), count)
            return self._run(parameters)

        return run

    def _make_quick(self, slowly: Quick) -> Quick:
        session, point = self.session, None if self.views else self._point()
        if point is None:
            return slowly

        def quick(parameters: Parameters) -> Result | None:
            count = point(parameters) if session.plain else NOT_DONE
            return slowly(parameters) if count < 0 else _new(Result, ((), (), count, None, None, None, ()))

        return self.typed(quick)

    def _program_at_once(self) -> rows.Quick | None:
        """The search for row ids, and for what ``_patch_maker`` needs of each row."""
        is_more = self._returning is not None or has_cells(self.definition.columns)
        if is_more or self._plan.executor != ROWS:
            return None
        outputs = self._outputs_at_once()
        if outputs is None:
            return None
        row_id, *values = (Reference(column.type, column) for column in self._plan.tree.columns)
        row = tree.Project(self._plan.tree, tuple(zip((row_id.column, *self.columns), (row_id, *values), strict=True)))
        return rows.Program(tree.Project(row, ((row_id.column, row_id), *outputs)), row_ids=True).quick(self.connection)

    @abstractmethod
    def _point(self) -> Callable[[Parameters], int] | None:
        """The change of the row of a key in two calls of kernels; None if it is more than that."""

    @abstractmethod
    def _outputs_at_once(self) -> list[tree.Output] | None:
        """Values of rows that are changed at once; None: they cannot be."""

    @abstractmethod
    def _patch_maker(self, heap: Heap) -> Callable[[FoundRow], bytes]:
        """What makes the patch of a row that was found at once; an empty one deletes it."""

    @operation
    def _run(self, parameters: Parameters) -> Result:
        """``run`` for any number of rows."""
        return self.course(parameters)

    def find(self, course: Course) -> list[FoundRow]:
        """The rows, each once: joined with several rows, the first one counts."""
        rows = self._required(with_row_ids(self.rows_in_course(self._plan, course)))
        return course.not_changed(self.definition, each_once(rows))

    def _required(self, rows: list[FoundRow]) -> list[FoundRow]:
        """Refuse rows from which new values cannot be made."""
        return rows

    def _stored(self, found: FoundRow) -> list[Any]:
        """A row's stored values, as far as they are needed."""
        row: list[Any] = [None] * len(self.definition.stored)
        for n, value in zip(self._stored_positions, found[1:], strict=False):
            row[n] = value
        return row

    def _result(self, course: Course, found: Sequence[FoundRow], seen: Sequence[Row]) -> Result:
        """What came of it; ``seen``: if there is RETURNING, the rows' stored values as it shows them."""
        if self._returning is None:
            return Result(rowcount=len(found))
        start, end = self._others_at
        count = len(self.table.stored)  # behind which rows have what indexes are on
        whole = [(*values[:count], str(row[0]), *row[start:end]) for row, values in zip(found, seen, strict=True)]
        returning = self._returning
        shown = returning.rows(course, whole)
        return Result(returning.names, returning.types, len(found), shown, documents=returning.documents)

    def explain(self) -> list[str]:
        title = f"{type(self).__name__.lower()} {self.definition.name}"
        return [title, *("  " + line for line in self._plan.explain()), *self.parts.explain_of(self)]


def with_row_ids(rows: list[FoundRow]) -> list[FoundRow]:
    """Rows that begin with their ids, as such; a plan may show them as texts."""
    if not rows or isinstance(rows[0][0], RowId):
        return rows
    pages: dict[str, int] = {}
    return [(row_id_of(row[0], pages), *row[1:]) for row in rows]


def row_id_of(shown: str, pages: dict[str, int]) -> RowId:
    """A row id from the way that a plan shows it; ``pages`` are those that were met before."""
    page, _, slot = shown.rpartition(":")
    if page not in pages:
        pages[page] = parse_page_id(page)
    return RowId(pages[page], int(slot))


class Update(_Change):
    def _others(self, syntax: Syntax) -> list[exp.Expr]:
        return syntax.list("from_")

    def _take_changes(self, syntax: Syntax, binder: Binder) -> None:
        defaults = Defaults(self.definition)
        scope, target = self._source.scope, self._source.target
        self._sets = assignment.assignments(binder, syntax.list("expressions"), scope, target, defaults)
        sets = self._sets.values
        self._checks = Checks(self.definition, target).after(sets)
        self._derived = self._checks.generated.positions  # what follows from the new values
        self._positions = [*sets, *self._derived]
        self._names = [self.definition.stored[n].name for n in self._positions]
        own = set(self.table.stored)
        self._computed: list[tree.Output] = []
        self._values: list[Expression] = []
        for name, value in zip(self._names, sets.values(), strict=False):
            if tree.has_queries(value) or not tree.columns_of(value) <= own:
                self._computed.append((Column(name, value.type), value))
                value = Reference(value.type, self._computed[-1][0])
            self._values.append(value)
        self._computed += [(Column("", number.type), Reference(number.type, number)) for number in self._sets.numbers]
        self._shows_row_id = any(self.table.row_id in tree.columns_of(value) for _, value in self._computed)
        self.needs_time = assignment.uses_time(self._values) or self._checks.use_time

    def _found_in(self) -> tree.Relation:
        return self._sets.beside(self._source.relation)

    def _required(self, rows: list[FoundRow]) -> list[FoundRow]:
        return self._sets.counted(rows) if self._sets.queries else rows

    def _needs(self) -> tuple[set[Column], list[tree.Output]]:
        computed = {column for column, _ in self._computed}
        columns = (tree.columns_used(self._values) - computed) | self._checks.needs
        if self._returning is not None:
            columns |= self._returning.needs
        return columns, self._computed

    def _plan_rows(self) -> None:
        super()._plan_rows()
        self._make = compile_row(self._values, (self.table.row_id, *self.columns))

    def _outputs_at_once(self) -> list[tree.Output] | None:
        if self._shows_row_id or self._checks.use_time or self._sets.numbers:
            return None
        values = [(Column("", value.type), value) for value in self._values]
        stored = [self.table.stored[n] for n in self._stored_positions] if self._checks.needs else []
        return [*values, *((column, Reference(column.type, column)) for column in stored)]

    def _point(self) -> Callable[[Parameters], int] | None:
        if self.needs_time or self._checks or self._computed or self._derived:
            return None
        if self.table.row_id in tree.columns_used(self._values):
            return None
        ordered = sorted(zip(self._positions, self._names, self._values, strict=True), key=itemgetter(0))
        new_values = compile_row([as_given(value) for _, _, value in ordered], self.columns)
        return change_point(self.connection, self._plan.tree, [name for _, name, _ in ordered], new_values)

    def _patch_maker(self, heap: Heap) -> Callable[[FoundRow], bytes]:
        if not self._checks.concern(self._positions):
            return heap.patch_encoder(self._names, 1)
        encode, complete = heap.patch_encoder(self._names), self._checks.complete
        positions, end = self._positions, 1 + len(self._values)

        def patch_of(found: FoundRow) -> bytes:
            row = self._stored(found[end - 1 :])
            for n, value in zip(positions, found[1:end], strict=False):
                row[n] = value
            complete(row, None)
            return encode([row[n] for n in positions])

        return patch_of

    def change(self, course: Course) -> Result:
        heap, steps = self.heap_and_steps(course)
        found, changed = self.find(course), list[Row]()
        course.lock_first(steps, (row[0] for row in found))
        changes = self._changes(found, course.parameters, course.now, changed)
        try:
            if not has_cells(heap.columns):
                encode = heap.patch_keeper(self._names)
                steps.change_all((row_id, encode(new)) for row_id, new in changes)
            else:
                steps.update((row_id, dict(zip(self._names, new, strict=True))) for row_id, new in changes)
        except UniqueViolation as violation:
            row = self._whole_row(found[steps.done][0], changed[steps.done])
            raise name_key(violation, self.definition.index(violation.index), row) from None
        course.note(self.definition, (row[0] for row in found))
        return self._result(course, found, [] if self._returning is None else self._seen(heap, found, changed))

    def _whole_row(self, row_id: RowId, new: Row) -> list[Any]:
        """A row as it was to be."""
        row = list(self.connection.heap(self.definition.name).wanting(()).fetch(row_id))
        row += [None] * (len(self.definition.stored) - len(row))
        for n, value in zip(self._positions, new, strict=True):
            row[n] = value
        return row

    def _changes(
        self, found: Iterable[FoundRow], parameters: Parameters, now: datetime | None, changed: list[Row]
    ) -> Iterator[tuple[RowId, Row]]:
        """The new values of each row, which are collected in ``changed``, too."""
        make, is_concerned = self._make, self._checks.concern(self._positions)
        for row in found:
            new = make(row, parameters, now)
            if self._shows_row_id:
                new = tuple(str(value) if isinstance(value, RowId) else value for value in new)
            if is_concerned:
                whole = self._changed(row, new)
                self._checks.complete(whole, now)
                new = tuple(whole[n] for n in self._positions)
            changed.append(new)
            yield row[0], new

    def _changed(self, found: FoundRow, new: Row) -> list[Any]:
        """A row's stored values with the new ones."""
        row = self._stored(found)
        for n, value in zip(self._positions, new, strict=False):
            row[n] = value
        return row

    def _seen(self, heap: Heap, found: Sequence[FoundRow], changed: Sequence[Row]) -> list[Row]:
        """Rows as RETURNING sees them: large objects that were read from files are read from their pages."""
        whole = [(row[0], tuple(self._changed(row, new))) for row, new in zip(found, changed, strict=True)]
        return [heap.fetch(row_id) if any(map(is_file, values)) else values for row_id, values in whole]


class Delete(_Change):
    def _others(self, syntax: Syntax) -> list[exp.Expr]:
        return syntax.list("using")

    def _outputs_at_once(self) -> list[tree.Output] | None:
        return []

    def _point(self) -> Callable[[Parameters], int] | None:
        if self.needs_time:
            return None
        return change_point(self.connection, self._plan.tree, (), lambda *_: ())

    def _patch_maker(self, heap: Heap) -> Callable[[FoundRow], bytes]:
        del heap
        return lambda _: b""

    def change(self, course: Course) -> Result:
        _, steps = self.heap_and_steps(course)
        found = self.find(course)
        course.lock_first(steps, (row[0] for row in found))
        steps.delete(row[0] for row in found)
        course.note(self.definition, (row[0] for row in found))
        return self._result(
            course, found, [] if self._returning is None else [tuple(self._stored(row)) for row in found]
        )
