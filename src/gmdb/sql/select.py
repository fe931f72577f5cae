"""Queries: over one table by an index or row ids, row by row; everything else in DuckDB over Arrow.

For a row or a few a trip through DuckDB costs a hundred times what finding them does.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from gmdb.access.heap import Heap
from gmdb.access.statements import run_statement
from gmdb.access.steps import Steps
from gmdb.dbapi import Result
from gmdb.errors import DataError, NotSupportedError, ValueOutOfRange
from gmdb.sql.duckdb_query import DuckQuery
from gmdb.sql.expressions import Compiled, compile_assignment, compile_expression
from gmdb.sql.parser import Parsed
from gmdb.sql.paths import conjuncts
from gmdb.sql.projection import Projection
from gmdb.sql.scope import Scope, folded
from gmdb.sql.statement import NO_TABLE, Found, Given, Parameters, RowFinder, Statement, is_for_rows
from gmdb.sql.types import BIGINT

if TYPE_CHECKING:
    from gmdb.connection import Connection

AT_ONCE = 1000  # rows that are found when a statement is executed; the others when they are fetched
_PLAIN = {"expressions", "from_", "where", "order", "limit", "offset", "locks", "kind"}


def prepare_select(connection: Connection, parsed: Parsed) -> Statement:
    query: Any = parsed.statement
    if isinstance(query, exp.Select) and is_plain(query):
        plain = RowQuery(connection, query)
        if plain.is_fit:
            return plain
    if query.args.get("locks"):
        raise NotSupportedError("for update is for queries over one table, without groups or subqueries")
    return DuckQuery(connection, parsed)


def is_plain(query: exp.Select) -> bool:
    """Whether a query has nothing but rows of one table at most, and expressions over one row."""
    if any(value for name, value in query.args.items() if name not in _PLAIN):
        return False
    source = query.args.get("from_")
    if source is not None and not (isinstance(source.this, exp.Table) and isinstance(source.this.this, exp.Identifier)):
        return False
    if source is not None and (source.this.args.get("joins") or folded(source.this.this).startswith("sys_")):
        return False
    parts = [*query.expressions, query.args.get("where"), query.args.get("order")]
    return all(is_for_rows(part) for part in parts if part is not None)


class RowQuery(Statement):
    """A query over rows of one table, or of none."""

    def __init__(self, connection: Connection, query: exp.Select) -> None:
        super().__init__(connection)
        self._query = query
        self.note_time(query)
        source, where = query.args.get("from_"), query.args.get("where")
        self.is_fit = True
        self._rownum = _RowNumbers(None if where is None else where.this)
        if not self._rownum.is_fit:
            self.is_fit = False
            return
        self._finder: RowFinder | None = None
        if source is not None:
            table = self.table(source.this)
            alias = folded(source.this.args["alias"].this) if source.this.args.get("alias") else table.name
            self._finder = RowFinder(table, alias, self._rownum.rest)
            self.is_fit = not self._finder.path.is_scan or bool(query.args.get("locks")) or self._is_first_rows()
        if self.is_fit:
            self._prepare()

    def _is_first_rows(self) -> bool:
        """Whether only some rows of the table are wanted, whichever: then a scan need not go far."""
        has_limit = self._query.args.get("limit") is not None or self._rownum.limits
        return bool(has_limit) and not self._query.args.get("order") and self._rownum.rest is None

    def _prepare(self) -> None:
        finder, query = self._finder, self._query
        scope = finder.scope if finder is not None else NO_TABLE
        self._projection = Projection(query.expressions, scope)
        self._order = [_Order(node, scope, self._projection) for node in _ordered(query)]
        self._limit = _compile_count(query.args.get("limit"))
        self._offset = _compile_count(query.args.get("offset"))
        self._locks = query.args.get("locks") or []
        is_more = self._order or self._limit or self._offset or self._locks or self._rownum.limits
        self._point = None if finder is None or is_more or finder.scope.uses_row_id else finder.point

    def run(self, parameters: Parameters) -> Result:
        if self._point is not None:
            try:
                found = self._point.find(self.connection, parameters)
            except DataError:  # a value of another type: comparing it row by row tells what comes of that
                pass
            else:
                make, given = self._projection.make, self.given(parameters)
                made = [make(found[0][1], given)] if found else []
                return Result(self._projection.names, self._projection.types, len(made), iter(made))
        return self._run(parameters)

    def _run(self, parameters: Parameters) -> Result:
        projection, given = self._projection, self.given(parameters)
        if self._finder is None:
            rows: Iterator[Any] = iter([projection.make((), given)])
        else:
            found = self._found(given)
            if self._order:
                found = iter(self._sorted(list(found), given))
            if self._limit is not None or self._offset is not None or self._rownum.limits:
                found = self._cut(found, given)
            rows = (projection.make(values, given) for _, values in found)
        some = list(islice(rows, AT_ONCE))
        everything = iter(some) if len(some) < AT_ONCE else chain(some, rows)
        count = len(some) if len(some) < AT_ONCE else -1
        return Result(projection.names, projection.types, count, everything)

    def _found(self, given: Given) -> Iterator[Found]:
        finder = self._finder
        assert finder is not None
        heap = self.connection.heap(finder.table.name).wanting(finder.scope.used)
        if self._locks:
            return iter(self._lock(heap, finder, given))
        return finder.extended(finder.rows(heap, given))

    def _lock(self, heap: Heap, finder: RowFinder, given: Given) -> list[Found]:
        """Rows that are held until the transaction ends; ``nowait`` and ``skip locked`` as was asked."""
        wait = self._locks[0].args.get("wait")
        skipped: set[Any] = set()

        def find(steps: Steps) -> list[Found]:
            return list(self._cut(finder.rows_within(steps, given), given))

        def act(steps: Steps, found: list[Found]) -> None:
            skipped.update(steps.lock((row_id for row_id, _ in found), wait is True, wait is False))

        found = run_statement(heap, find, act)
        return list(finder.extended(iter([row for row in found if row[0] not in skipped])))

    def _sorted(self, rows: list[Found], given: Given) -> list[Found]:
        for order in reversed(self._order):
            order.sort(rows, given)
        return rows

    def _cut(self, rows: Iterator[Found], given: Given) -> Iterator[Found]:
        for limit in self._rownum.limits:
            rows = islice(rows, max(limit(given), 0))
        offset = 0 if self._offset is None else self._offset(given)
        limit = None if self._limit is None else self._limit(given)
        return islice(rows, offset, None if limit is None else offset + limit)

    def explain(self) -> list[str]:
        if self._finder is None:
            return ["one row, without a table"]
        said = [self._finder.path.describe(self._finder.table.name)]
        if self._finder.condition is not None:
            said.append("  rows are asked: " + self._query.args["where"].this.sql())
        if self._order:
            said.append("  sorted in memory")
        return said


def _ordered(query: exp.Select) -> list[exp.Ordered]:
    order = query.args.get("order")
    return list(order.expressions) if order is not None else []


def _compile_count(node: exp.Expr | None) -> Any:
    """LIMIT or OFFSET as a function of the parameters."""
    if node is None:
        return None
    compiled = compile_assignment(node.expression, NO_TABLE, BIGINT)

    def count(given: Given) -> int | None:
        value = compiled.evaluate((), *given)
        if value is not None and value < 0:
            raise ValueOutOfRange(f"{node.key.upper()} must not be negative, and is {value}")
        return 0 if value is None and node.key == "offset" else value

    return count


class _Order:
    """One key that rows are sorted by; an output column by its number or name, or any expression."""

    def __init__(self, node: exp.Ordered, scope: Scope, projection: Projection) -> None:
        chosen = projection.chosen_by(node.this)
        self._compiled: Compiled = chosen or compile_expression(node.this, scope)
        self._descending = bool(node.args.get("desc"))
        self._nulls_first = bool(node.args.get("nulls_first"))

    def sort(self, rows: list[Found], given: Given) -> None:
        evaluate, descending, (parameters, context) = self._compiled.evaluate, self._descending, given
        last = not self._nulls_first if not descending else self._nulls_first

        def key(found: Found) -> tuple[bool, Any]:
            value = evaluate(found[1], parameters, context)
            return ((value is None) is last, 0 if value is None else value)

        rows.sort(key=key, reverse=descending)


class _RowNumbers:
    """Conditions on ``rownum``, the number of a row in the order in which rows are found: they are limits."""

    def __init__(self, condition: exp.Expr | None) -> None:
        rest, self.limits, self.is_fit = [], [], True
        for part in conjuncts(condition):
            if not any(_is_rownum(node) for node in part.walk()):
                rest.append(part)
                continue
            limit = self._limit(part)
            if limit is None:
                self.is_fit = False
            else:
                self.limits.append(limit)
        self.rest = exp.and_(*rest, copy=False) if rest else None

    @staticmethod
    def _limit(part: exp.Expr) -> Any:
        """The limit that a condition such as ``rownum < 2`` is, as a function of the parameters."""
        if type(part) not in (exp.LT, exp.LTE) or not _is_rownum(part.this) or not is_for_rows(part.expression):
            return None
        compiled = compile_assignment(part.expression, NO_TABLE, BIGINT)
        less = 1 if isinstance(part, exp.LT) else 0
        return lambda given: (compiled.evaluate((), *given) or 0) - less


def _is_rownum(node: exp.Expr) -> bool:
    return isinstance(node, exp.Column) and node.name.lower() == "rownum" and not node.args.get("table")
