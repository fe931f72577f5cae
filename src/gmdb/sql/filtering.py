"""A condition over the rows of one table that come as batches, without a connection: as a worker of Spark reads them.

The rows are those of SELECT … WHERE: the same binder, and DuckDB, decide about each one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from sqlglot import exp

from gmdb.errors import Error, InvalidSyntax, UnsupportedExpression
from gmdb.format.columns import Column
from gmdb.process.late_dataclasses import replace
from gmdb.process.late_imports import pyarrow as pa
from gmdb.sql.bind.binder import Binder
from gmdb.sql.bind.of_rows import NoConnection
from gmdb.sql.duck.execution import Source
from gmdb.sql.duck.text import result_of, write
from gmdb.sql.parser import parse
from gmdb.sql.plan.choosing import Chooser
from gmdb.sql.plan.estimates import Estimates
from gmdb.sql.rows.expressions import compile_row
from gmdb.sql.syntax import Written
from gmdb.sql.tree import Filter, Project, Relation, Table, conjuncts, walk
from gmdb.tables.access.indexes import IndexDefinition, KeyRange
from gmdb.tables.catalog.names import full_name
from gmdb.tables.catalog.schema import TableDefinition

_CLAUSES = {"expressions", "from_", "where", "kind"}


class Batches(Protocol):
    """Rows of the table: their columns, and those that are asked for by name."""

    @property
    def columns(self) -> Sequence[Column]: ...

    def read(self, columns: list[str] | None) -> pa.RecordBatchReader: ...


class RowFilter:
    """Some columns of the rows that meet a condition."""

    def __init__(self, table: TableDefinition, wanted: Sequence[str], where: str) -> None:
        self._table = table
        listed = ", ".join(_quoted(name) for name in wanted)
        self._text = f"SELECT {listed} FROM {_quoted(table.own_name)} WHERE {where}"
        self._statement = self._parsed(where)

    def _parsed(self, where: str) -> exp.Select:
        """The query, if the text is one condition and nothing more."""
        try:
            parsed = parse(self._text)
        except InvalidSyntax as error:
            raise InvalidSyntax(f"where: {where!r} is not a condition: {error}") from None
        statement = parsed.statement
        clauses = (
            {name for name, value in statement.args.items() if value} if isinstance(statement, exp.Select) else {"?"}
        )
        if not isinstance(statement, exp.Select) or clauses - _CLAUSES or parsed.count or parsed.names:
            raise InvalidSyntax(f"where: {where!r} is more than a condition; write what would stand behind WHERE")
        if statement.args["where"].find(exp.Query) is not None:
            raise InvalidSyntax(f"where: {where!r} is not a condition on one row; no subqueries there")
        return statement

    def _bound(self, columns: Sequence[Column]) -> tuple[Relation, bool]:
        """The query over these columns, and whether it asks for the time."""
        binder = Binder(_OneTable(replace(self._table, columns=tuple(columns))), {})
        relation = binder.statement(self._statement.copy()).relation
        if not all(isinstance(one, Project | Filter | Table) for one in walk(relation)):
            raise UnsupportedExpression("where: a condition on one row has no number of the row (rownum)")
        return relation, binder.uses_time

    def keys(self) -> tuple[IndexDefinition, KeyRange | None] | None:
        """An index and the range of its keys that all rows of the condition lie in, no range if there are none;
        nothing if no index serves."""
        try:
            relation, _ = self._bound(self._table.columns)
            tables = [one for one in walk(relation) if isinstance(one, Table)]
            parts = [part for one in walk(relation) if isinstance(one, Filter) for part in conjuncts(one.condition)]
            estimates = Estimates(lambda _: None, lambda _: 1.0)
            estimates.learn(tables[0])
            paths = [choice.path for choice in Chooser(tables[0], parts, estimates, alone=True).choices()]
            paths = [path for path in paths if path.index is not None]
            if not paths:
                return None
            path = max(paths, key=lambda one: (one.is_single, min(len(span.expressions()) for span in one.spans)))
            values = iter(compile_row(tuple(path.expressions()), ())(()))
            ranges = path.ranges([[next(values) for _ in span.expressions()] for span in path.spans])
        except Error:  # reading the rows tells it, if the condition makes no sense
            return None
        assert path.index is not None
        if not ranges:
            return path.index, None
        first, last = ranges[0], ranges[-1]
        return path.index, replace(first, high=last.high, high_open=last.high_open)

    def check(self, columns: Sequence[Column]) -> None:
        """Refuse a condition that makes no sense for these columns, before anything is read."""
        _, uses_time = self._bound(columns)
        if uses_time:
            raise UnsupportedExpression("where: it asks for the time, which is another on every worker; write it out")

    def batches(self, source: Batches) -> Iterator[pa.RecordBatch]:
        relation, _ = self._bound(source.columns)
        written = write(relation)
        sources = [
            Source(read.alias, read.schema, None, _by_position(source, [column.name for column in read.columns]))
            for read in written.reads
        ]
        result = result_of(written, sources, {})
        try:
            yield from result.reader
        finally:
            result.close()


def _by_position(source: Batches, names: Sequence[str]) -> Callable[[Sequence[int]], Iterator[pa.RecordBatch]]:
    def batches(columns: Sequence[int]) -> Iterator[pa.RecordBatch]:
        reader = source.read([names[n] for n in columns])
        try:
            yield from reader
        finally:
            reader.close()

    return batches


class _OneTable(NoConnection):
    """Knows one table."""

    def __init__(self, table: TableDefinition) -> None:
        self._table = table

    def find(self, written: Written, in_view: bool, passed: set[str]) -> TableDefinition:
        del written, in_view, passed  # the statement names this one alone
        return self._table

    def column_of(self, table: Written, node: exp.Expr) -> str:
        del node
        return full_name(table.schema, table.name)

    def is_view(self, name: str) -> bool:
        del name
        return False

    def listing(self, name: str, *_: Any) -> Sequence[Column]:
        raise self.no_such_table(Written(name), exp.Null())


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
