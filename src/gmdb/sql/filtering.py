"""A condition over the rows of one table that come as batches, without a connection: as a worker of Spark reads them.

The answer is that of SELECT … WHERE: the same translation, and DuckDB, decide about each row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from sqlglot import exp

from gmdb.access.indexes import IndexDefinition, KeyRange
from gmdb.catalog.schema import TableDefinition
from gmdb.errors import InvalidSyntax, NoSuchFunction, UnsupportedExpression
from gmdb.format.columns import Column
from gmdb.sql import duck
from gmdb.sql.parser import parse
from gmdb.sql.paths import Unusable
from gmdb.sql.statement import Given, RowFinder, is_for_rows

_CLAUSES = {"expressions", "from_", "where", "kind"}


class RowFilter:
    """Some columns of the rows that meet a condition."""

    def __init__(self, table: TableDefinition, wanted: Sequence[str], where: str) -> None:
        self._table = table
        listed = ", ".join(_quoted(name) for name in wanted)
        self._text = f"SELECT {listed} FROM {_quoted(table.name)} WHERE {where}"
        self._statement = self._parsed(where)

    def _parsed(self, where: str) -> exp.Select:
        """The query, if the text is one condition and nothing more."""
        try:
            parsed = parse(self._text)
        except InvalidSyntax as error:
            raise InvalidSyntax(f"where: {where!r} is no condition: {error}") from None
        found = parsed.statement
        clauses = {name for name, value in found.args.items() if value} if isinstance(found, exp.Select) else {"?"}
        if not isinstance(found, exp.Select) or clauses - _CLAUSES or parsed.count or parsed.names:
            raise InvalidSyntax(f"where: {where!r} is more than a condition; write what would stand behind WHERE")
        if not is_for_rows(found.args["where"].this):
            raise InvalidSyntax(f"where: {where!r} is no condition on one row; no subqueries and no aggregates there")
        return found

    def keys(self) -> tuple[IndexDefinition, KeyRange | None] | None:
        """An index and the range of its keys that all rows of the condition lie in, no range if there are none;
        nothing if no index serves."""
        condition = self._statement.args["where"].this
        try:
            path = RowFinder(self._table, self._table.name, condition, None).path
            if path.index is None:
                return None
            return path.index, path.keys(Given((), None))
        except (NoSuchFunction, UnsupportedExpression, Unusable):
            return None

    def check(self, columns: Sequence[Column]) -> None:
        """Refuse a condition that makes no sense for these columns, before anything is read."""
        plan = duck.prepare(self._statement, {self._table.name: _Columns(columns)})
        if plan.uses_now:
            raise UnsupportedExpression("where: it asks for the time, which is another on every worker; write it out")

    def batches(self, source: duck.Source) -> Iterator[pa.RecordBatch]:
        answer = duck.run(self._statement, {self._table.name: source}, (), self._text)
        try:
            yield from answer.reader
        finally:
            answer.close()


class _Columns:
    """A table of which only the columns are asked for."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self.columns = columns

    def read(self, columns: list[str] | None) -> pa.RecordBatchReader:
        raise AssertionError(f"{columns} are read, though nothing was to be")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
