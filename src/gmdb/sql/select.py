"""Queries: over one table by an index or row ids, row by row; everything else in DuckDB over Arrow.

For a row or a few a trip through DuckDB costs a hundred times what finding them does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from gmdb.access.steps import RowChanged, Steps
from gmdb.catalog.schema import TableDefinition
from gmdb.dbapi import Result
from gmdb.errors import DataError, NoSuchFunction, NotSupportedError, UnsupportedExpression, ValueOutOfRange
from gmdb.format.columns import ColumnType
from gmdb.sql.duck.plan import parameter_type
from gmdb.sql.duckdb_query import DuckQuery
from gmdb.sql.expressions import Compiled, compile_assignment, compile_expression
from gmdb.sql.parser import Parsed
from gmdb.sql.paths import conjuncts
from gmdb.sql.projection import Projection
from gmdb.sql.scope import Scope, folded
from gmdb.sql.statement import NO_TABLE, Found, Given, Parameters, PointFinder, RowFinder, Statement, is_for_rows
from gmdb.sql.types import BIGINT, TEXT

if TYPE_CHECKING:
    from gmdb.connection import Connection

FEW_ROWS = 2000  # that are worked on one by one in less time than DuckDB takes to begin
AT_ONCE = 1000  # rows that are found when a statement is executed; the others when they are fetched
_PLAIN = {"expressions", "from_", "where", "order", "limit", "offset", "locks", "kind"}


def prepare_select(connection: Connection, parsed: Parsed) -> Statement:
    query: Any = parsed.statement
    if isinstance(query, exp.Select) and is_plain(query):
        try:
            plain = RowQuery(connection, query)
            if plain.is_fit:
                return plain
        except (NoSuchFunction, UnsupportedExpression):  # DuckDB may know what rows one by one do not
            if query.args.get("locks"):
                raise
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
            statistics, order = connection.statistics(table.name), self._wanted_order(table, alias)
            self._finder = RowFinder(table, alias, self._rownum.rest, statistics, order)
            is_short = not self._finder.path.is_scan and (self._finder.path.estimate or 0) <= FEW_ROWS
            self.is_fit = is_short or bool(query.args.get("locks")) or self._is_first_rows()
        if self.is_fit:
            self._prepare()

    def _is_first_rows(self) -> bool:
        """Whether only some rows of the table are wanted, whichever: then a scan need not go far."""
        has_limit = self._query.args.get("limit") is not None or self._rownum.limits
        return bool(has_limit) and not self._query.args.get("order") and self._rownum.rest is None

    def _wanted_order(self, table: TableDefinition, alias: str) -> list[tuple[str, bool]]:
        """The columns by which the first rows are wanted, and whether they descend, if it is as indexes have them."""
        if self._query.args.get("limit") is None or self._rownum.limits:
            return []
        found = []
        for node in _ordered(self._query):
            column, descends = node.this, bool(node.args.get("desc"))
            if not isinstance(column, exp.Column) or bool(node.args.get("nulls_first")) != descends:
                return []
            qualifier = column.args.get("table")
            renamed = any(
                isinstance(one, exp.Alias) and folded(one.args["alias"]) == folded(column.this)
                for one in self._query.expressions
            )
            if renamed or (qualifier is not None and folded(qualifier) != alias):
                return []
            found.append((folded(column.this), descends))
        return found if all(any(c.name == name for c in table.columns) for name, _ in found) else []

    def _prepare(self) -> None:
        finder, query = self._finder, self._query
        scope = finder.scope if finder is not None else NO_TABLE
        self._projection = Projection(query.expressions, scope)
        self._has_open_types = None in self._projection.types
        self._order = [_Order(node, scope, self._projection) for node in _ordered(query)]
        self._limit = _compile_count(query.args.get("limit"))
        self._offset = _compile_count(query.args.get("offset"))
        self._locks = query.args.get("locks") or []
        is_more = self._order or self._limit or self._offset or self._locks or self._rownum.limits
        self._point = None if finder is None or is_more or finder.scope.uses_row_id else finder.point

    def run(self, parameters: Parameters) -> Result:
        if self._point is not None and not self._uses_time and None not in self._projection.types:
            self.run = self._find_at_once(self._point)  # type: ignore[assignment, method-assign]
            return self.run(parameters)
        return self._run(parameters)

    def _find_at_once(self, point: PointFinder) -> Callable[[Parameters], Result]:
        """``run`` for a single row by its key, with all that it needs bound to it."""
        rows, key_of = point.rows(self.connection), point.key
        make, names, types = self._projection.make, self._projection.names, self._projection.types

        def run(parameters: Parameters) -> Result:
            key = key_of(parameters)
            try:
                found = rows.find(key) if None not in key else []
            except DataError:  # a value of another type: comparing it row by row tells what comes of that
                return self._run(parameters)
            if not found:
                return Result(names, types, 0, iter(()))
            return Result(names, types, 1, iter((make(found[0][1], Given(parameters, None)),)))

        return run

    def _run(self, parameters: Parameters) -> Result:
        projection, given = self._projection, self.given(parameters)
        if self._finder is None:
            rows: Iterator[Any] = iter([projection.make((), given)])
        else:
            found = self._locked(given) if self._locks else self._cut(self._wanted(given), given)
            rows = (projection.make(values, given) for _, values in found)
        some = list(islice(rows, AT_ONCE))
        everything = iter(some) if len(some) < AT_ONCE else chain(some, rows)
        count = len(some) if len(some) < AT_ONCE else -1
        return Result(projection.names, self._types(some), count, everything)

    def _types(self, rows: list[Any]) -> tuple[ColumnType | None, ...]:
        """The types of columns; a parameter that nothing else gives a type has that of its value."""
        types = self._projection.types
        if not self._has_open_types or not rows:
            return types
        return tuple(
            type_ or (TEXT if isinstance(value, str) else parameter_type(value))
            for type_, value in zip(types, rows[0], strict=True)
        )

    def _wanted(self, given: Given, steps: Steps | None = None) -> Iterator[Found]:
        """The rows in the order that was asked for; within a running statement, by its steps."""
        finder = self._finder
        assert finder is not None
        if steps is None:
            rows = finder.rows(self.connection.heap(finder.table.name).wanting(finder.scope.used), given)
        else:
            rows = finder.rows_within(steps, given)
        rows = finder.extended(rows)
        for limit in self._rownum.limits:
            rows = islice(rows, max(limit(given), 0))
        if not self._order or (finder.path.ordered and finder.path.is_usable(given)):
            return rows
        found = list(rows)
        for order in reversed(self._order):
            order.sort(found, given)
        return iter(found)

    def _cut(self, rows: Iterator[Found], given: Given) -> Iterator[Found]:
        if self._limit is None and self._offset is None:
            return rows
        first, end = self._ends(given)
        return islice(rows, first, end)

    def _ends(self, given: Given) -> tuple[int, int | None]:
        offset = 0 if self._offset is None else self._offset(given)
        limit = None if self._limit is None else self._limit(given)
        return offset, None if limit is None else offset + limit

    def _locked(self, given: Given) -> Iterator[Found]:
        """Rows that are held until the transaction ends; ``nowait`` and ``skip locked`` as was asked.

        LIMIT counts the rows that could be had: whoever takes the next one from a queue passes over those of others.
        """
        finder, wait = self._finder, self._locks[0].args.get("wait")
        assert finder is not None
        first, end = self._ends(given)
        with self.connection.heap(finder.table.name).wanting(finder.scope.used).statement() as steps:
            while True:
                held: list[Found] = []
                try:
                    for row in self._wanted(given, steps) if end != 0 else ():
                        if not steps.lock([row[0]], wait is True, wait is False):
                            held.append(row)
                        if len(held) == end:
                            break
                    return iter(held[first:])
                except RowChanged as changed:
                    steps.start_over(changed)

    def explain(self) -> list[str]:
        if self._finder is None:
            return ["one row, without a table"]
        said = [self._finder.path.describe(self._finder.table.name)]
        if self._finder.condition is not None:
            said.append("  rows are asked: " + self._query.args["where"].this.sql())
        if self._order and not self._finder.path.ordered:
            said.append("  sorted in memory")
        return said


def _ordered(query: exp.Select) -> list[exp.Ordered]:
    order = query.args.get("order")
    return list(order.expressions) if order is not None else []


def _compile_count(node: exp.Expr | None) -> Any:
    """LIMIT or OFFSET as a function of the parameters."""
    if node is None:
        return None
    amount = node.expression
    if isinstance(node, exp.Fetch):
        options = node.args.get("limit_options")
        if options is not None and (options.args.get("with_ties") or options.args.get("percent")):
            raise NotSupportedError("WITH TIES and PERCENT are not supported")
        amount = node.args.get("count") or exp.Literal.number(1)
    compiled = compile_assignment(amount, NO_TABLE, BIGINT)

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
