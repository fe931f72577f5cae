"""UPDATE and DELETE: rows are found by the best path, then changed.

What one row of the table decides is worked out row by row.  Subqueries and other tables make the search a query in
DuckDB, which finds row ids and, for UPDATE, new values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from gmdb.access.heap import Heap
from gmdb.access.indexes import name_key
from gmdb.access.lob_source import is_file, rereadable
from gmdb.access.statements import run_statement
from gmdb.access.steps import Steps
from gmdb.dbapi import Result, rows_of
from gmdb.errors import DataError, InvalidSyntax, NoSuchFunction, UniqueViolation, UnsupportedExpression
from gmdb.sql.assignment import Assign, Checks, Defaults, assign_found, assign_to, is_default
from gmdb.sql.dialect import place
from gmdb.sql.duckdb_query import DuckQuery
from gmdb.sql.parser import Parsed
from gmdb.sql.paths import parse_row_id
from gmdb.sql.projection import Projection
from gmdb.sql.scope import folded
from gmdb.sql.statement import Found, Given, Parameters, PointFinder, RowFinder, Statement, is_for_rows

if TYPE_CHECKING:
    from gmdb.connection import Connection


LARGE_PAGES = 64  # of a table: DuckDB has looked through more of them before rows one by one could be


class _Change(Statement):
    """What UPDATE and DELETE share: a table, a condition, RETURNING."""

    def __init__(self, connection: Connection, parsed: Parsed) -> None:
        super().__init__(connection)
        node: Any = parsed.statement
        self._node = node
        self._parsed = parsed
        self.definition = self.changed_table(self._node.this)
        named = self._node.this.args.get("alias")
        self._alias = folded(named.this) if named else self.definition.name
        where = self._node.args.get("where")
        self._condition: exp.Expr | None = None if where is None else where.this
        self.needs_query = self._has_other_tables() or not (self._condition is None or is_for_rows(self._condition))
        self.finder = self._row_finder()
        self.note_time(self._node)
        returning = self._node.args.get("returning")
        self.returning = Projection(returning.expressions, self.finder.scope) if returning is not None else None
        self._query: DuckQuery | None = None

    def _row_finder(self) -> RowFinder:
        """What finds the rows; a query does it where rows one by one cannot tell, or would be slow to."""
        statistics = self.connection.statistics(self.definition.name)
        if not self.needs_query:
            try:
                finder = RowFinder(self.definition, self._alias, self._condition, statistics)
            except (NoSuchFunction, UnsupportedExpression):
                self.needs_query = True
            else:
                self.needs_query = finder.path.is_scan and self._condition is not None and self._is_large()
                return finder
        return RowFinder(self.definition, self._alias, None, statistics)

    def _is_large(self) -> bool:
        if self.definition.lobs is not None:
            return False  # they would be read, too
        return int(self.connection.heap(self.definition.name).segment.head.page_count) > LARGE_PAGES

    def _has_other_tables(self) -> bool:
        node = self._node
        return bool(node.args.get("from_") or node.args.get("using") or node.args.get("with_"))

    def prepare_query(self, values: list[exp.Expr]) -> None:
        """Let a query find the rows, and work out some values for each."""
        columns = ["rowid", *(column.name for column in self.definition.columns)]
        own = [exp.column(exp.to_identifier(name, True), exp.to_identifier(self._alias, True)) for name in columns]
        target = self._node.this.copy()
        others = self._node.args.get("using") or []
        if self._node.args.get("from_"):
            others = [self._node.args["from_"].this, *(self._node.args["from_"].args.get("joins") or [])]
        joins = [part.copy() if isinstance(part, exp.Join) else exp.Join(this=part.copy()) for part in others]
        query = exp.Select(
            expressions=[exp.alias_(part, f"c{n}") for n, part in enumerate([*own, *(v.copy() for v in values)])],
            from_=exp.From(this=target),
            joins=joins + [join.pop() for join in list(target.args.get("joins") or [])],
            where=None if self._condition is None else exp.Where(this=self._condition.copy()),
            with_=self._node.args["with_"].copy() if self._node.args.get("with_") else None,
        )
        self._query = DuckQuery(self.connection, replace(self._parsed, statement=query))
        self.tables.update(self._query.tables)

    def rows_within(self, steps: Steps, given: Given) -> list[tuple[Any, ...]]:
        """The rows: row id, values, and what the query has worked out."""
        if self._query is None:
            return list(self.finder.rows_within(steps, given))
        return list(self._queried(self._query.run(given.parameters, steps.scn)))

    def _queried(self, found: Result) -> Iterator[tuple[Any, ...]]:
        seen = set()
        size = len(self.definition.columns) + 1
        convert = self.conversions(found.types[size:])
        for row in rows_of(found.reader):
            if row[0] not in seen:  # joined with several rows: the first one counts
                seen.add(row[0])
                new = tuple([change(value) for change, value in zip(convert, row[size:], strict=True)])
                yield parse_row_id(row[0]), row[1:size], new

    def conversions(self, types: Any) -> list[Callable[[Any], Any]]:
        """What turns the values that the query has worked out into those of columns."""
        del types
        return []

    def seen(self, heap: Heap, rows: list[Found]) -> list[Found]:
        """Rows as RETURNING sees them: large objects that were read from files are read from their pages."""
        if self.returning is None:
            return rows
        whole = heap.wanting(None)
        return [(i, whole.fetch(i)) if any(map(is_file, values)) else (i, values) for i, values in rows]

    def result(self, rows: list[Found], given: Given) -> Result:
        if self.returning is None:
            return Result(rowcount=len(rows))
        extended = self.finder.extended(iter(rows))
        made = [self.returning.make(values, given) for _, values in extended]
        return Result(self.returning.names, self.returning.types, len(rows), iter(made))

    def explain(self) -> list[str]:
        said = f"{type(self).__name__.lower()}: "
        if self._query is None:
            return [said + self.finder.path.describe(self.definition.name)]
        first, *rest = self._query.explain()
        return [f"{said}rows of {self.definition.name} by {first}", *rest]


class Update(_Change):
    def __init__(self, connection: Connection, parsed: Parsed) -> None:
        super().__init__(connection, parsed)
        self._assigns: list[tuple[int, str, Assign | None]] = []  # None: the query has worked it out
        self._asked: list[exp.Expr] = []
        defaults = Defaults(self.definition)
        for part in self._node.expressions:
            self._assigns.append(self._assignment(part, defaults))
        positions = [position for position, _, _ in self._assigns]
        if len(set(positions)) < len(positions):
            raise InvalidSyntax("a column is set twice", *place(self._node))
        if self.needs_query or self._asked:
            self.prepare_query(self._asked)
        self._checks = Checks(self.definition)
        for node in (*defaults.nodes, *self._checks.nodes):
            self.note_time(node)
        self._needs_check = self._checks.concern(positions)
        is_plain = self._query is None and self.returning is None and not self.finder.scope.uses_row_id
        self._point = self.finder.point if is_plain and not self._uses_time else None

    def _assignment(self, part: exp.Expr, defaults: Defaults) -> tuple[int, str, Assign | None]:
        if not isinstance(part, exp.EQ) or not isinstance(part.this, exp.Column):
            raise InvalidSyntax(f"{part.sql()} is no assignment", *place(part))
        position, _ = self.finder.scope.column(folded(part.this.this), None, part.this)
        column, value = self.definition.columns[position], part.expression
        if is_default(value):
            return position, column.name, defaults.of(position) or _nothing
        if self._is_own(value):
            with suppress(NoSuchFunction, UnsupportedExpression):  # which DuckDB may know
                return position, column.name, assign_to(value, self.finder.scope, column)
        self._asked.append(value)
        return position, column.name, None

    def _is_own(self, value: exp.Expr) -> bool:
        """Whether a value can be worked out of the table's row alone."""
        if self._has_other_tables() and value.find(exp.Column) is not None:
            return False
        return is_for_rows(value)

    def conversions(self, types: Any) -> list[Callable[[Any], Any]]:
        asked = [self.definition.columns[position] for position, _, assign in self._assigns if assign is None]
        return [assign_found(type_, column) for type_, column in zip(types, asked, strict=True)]

    def run(self, parameters: Parameters) -> Result:
        self.run = self._run if self._point is None else self._change_at_once(self._point)  # type: ignore[assignment, method-assign]
        return self.run(parameters)

    def _run(self, parameters: Parameters) -> Result:
        given = self.given(parameters if self.definition.lobs is None else rereadable(parameters))
        heap = self.connection.heap(self.definition.name).wanting(None if self._checks else self.finder.scope.used)
        changed: list[Found] = []

        def act(steps: Steps, found: list[tuple[Any, ...]]) -> None:
            changed.clear()
            steps.update(self._changes(found, given, changed))

        try:
            run_statement(heap, lambda steps: self.rows_within(steps, given), act)
        except UniqueViolation as violation:
            raise name_key(violation, self.definition.index(violation.index), changed[-1][1]) from None
        return self.result(self.seen(heap, changed), given)

    def _change_at_once(self, point: PointFinder) -> Callable[[Parameters], Result]:
        """``run`` for a single row by its key, if nobody can come between, with all that it needs bound to it."""
        session, change, key_of = self.session, point.rows(self.connection).change_at_once, point.key
        positions, names, assigns = zip(*self._assigns, strict=True)
        encode = self.connection.heap(self.definition.name).patch_encoder(names)
        check = self._checks.check if self._needs_check else None

        def run(parameters: Parameters) -> Result:
            def patch_of(values: tuple[Any, ...]) -> bytes:
                new = [assign(values, parameters, None) for assign in assigns]
                if check is not None:
                    row = list(values)
                    for position, value in zip(positions, new, strict=True):
                        row[position] = value
                    check(row, None)
                return encode(new)

            if session.plain:
                key = key_of(parameters)
                try:
                    count = change(key, patch_of) if None not in key else 0
                except DataError:  # the long way tells what is wrong, if anything is
                    count = -1
                if count >= 0:
                    return Result((), (), count)
            return self._run(parameters)

        return run

    def _changes(self, found: list[tuple[Any, ...]], given: Given, changed: list[Found]) -> Any:
        """The new values of each row; the whole rows are collected in ``changed``."""
        for row_id, values, *worked_out in found:
            row, ready = list(values), iter(worked_out[0] if worked_out else ())
            seen = (*values, str(row_id)) if self.finder.scope.uses_row_id else values
            new = {}
            for position, name, assign in self._assigns:
                row[position] = new[name] = next(ready) if assign is None else assign(seen, *given)
            self._checks.check(row, given.context)
            changed.append((row_id, tuple(row)))
            yield row_id, new


def _nothing(*_: Any) -> None:
    """The default of a column that has none."""


class Delete(_Change):
    def __init__(self, connection: Connection, parsed: Parsed) -> None:
        super().__init__(connection, parsed)
        if self.needs_query:
            self.prepare_query([])

    def run(self, parameters: Parameters) -> Result:
        heap = self.connection.heap(self.definition.name).wanting(self.finder.scope.used)
        given = self.given(parameters)

        def act(steps: Steps, found: list[tuple[Any, ...]]) -> None:
            steps.delete(row[0] for row in found)

        deleted = run_statement(heap, lambda steps: self.rows_within(steps, given), act)
        return self.result([(row[0], row[1]) for row in deleted], given)
