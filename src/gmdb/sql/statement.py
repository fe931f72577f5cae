"""What a prepared statement is, and what statements over one table share."""

from __future__ import annotations

import difflib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlglot import exp

from gmdb.access.heap import Heap
from gmdb.access.steps import Steps
from gmdb.catalog.schema import TableDefinition
from gmdb.catalog.statistics import TableStatistics
from gmdb.dbapi import Result
from gmdb.errors import NoSuchTable, SchemaError
from gmdb.format.address import RowId
from gmdb.format.columns import Column, ColumnType
from gmdb.sql.dialect import place
from gmdb.sql.expressions import (
    EvaluationContext,
    compile_assignment,
    compile_condition,
    compile_expression,
    has_subquery,
    is_aggregate,
)
from gmdb.sql.paths import Evaluate, Path, Unusable, choose, comparisons, conjuncts
from gmdb.sql.scope import Scope, ScopeTable, folded, table_name

if TYPE_CHECKING:
    from gmdb.access.keyed import KeyedRows
    from gmdb.connection import Connection

Parameters = Sequence[Any] | Mapping[str, Any]
Found = tuple[RowId, tuple[Any, ...]]
ROWID_TYPE = ColumnType("VARCHAR", 40)


class Given(NamedTuple):
    """What a run of a statement goes by."""

    parameters: Parameters
    context: EvaluationContext | None  # if the statement asks for the time


class Statement(ABC):
    """A statement that was prepared, for the tables as they are defined now."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.session = connection.session
        self.tables: dict[str, TableDefinition] = {}
        self._statistics_version = connection.statistics_version
        self._uses_time = False

    def note_time(self, node: exp.Expr) -> None:
        """Note whether the statement asks for the time, which is the same for all of a run."""
        kinds = (exp.CurrentDate, exp.CurrentTimestamp, exp.CurrentTime, exp.Localtimestamp)
        names = ("now", "current_timestamp", "localtimestamp", "transaction_timestamp", "statement_timestamp")
        self._uses_time = self._uses_time or any(
            isinstance(part, kinds) or (isinstance(part, exp.Func) and part.name.lower() in names)
            for part in node.walk()
        )

    def given(self, parameters: Parameters) -> Given:
        return Given(parameters, EvaluationContext() if self._uses_time else None)

    def table(self, node: exp.Expr) -> TableDefinition:
        """The table that a node names; the statement holds for as long as that is its definition."""
        name = table_name(node)
        try:
            definition = self.connection.table(name)
        except NoSuchTable:
            raise no_such_table(self.connection, name, node) from None
        if definition.name != name:  # names that are quoted have their letters as they are
            raise no_such_table(self.connection, name, node)
        self.tables[name] = definition
        return definition

    def changed_table(self, node: exp.Expr) -> TableDefinition:
        """The table that a statement changes; system tables are changed by definitions only."""
        definition = self.table(node)
        if is_system_name(definition.name):
            raise SchemaError(f"{definition.name} is a system table; it is changed by definitions only")
        return definition

    def is_current(self) -> bool:
        """Whether the tables are still defined as they were when the statement was prepared."""
        held = self.session.tables_held  # by definitions that nobody can change meanwhile
        for table in self.tables.values():
            if held.get(table.number) is not table:
                return self._is_still_current()
        return True

    def _is_still_current(self) -> bool:
        if self._statistics_version != self.connection.statistics_version:
            return False  # there may be a better way now
        try:
            return all(self.connection.table(name) is table for name, table in self.tables.items())
        except NoSuchTable:
            return False

    @abstractmethod
    def run(self, parameters: Parameters) -> Result: ...

    def run_many(self, sets: Sequence[Parameters]) -> Result:
        """The statement for each of many sets of parameters, all or none."""
        changed = 0
        with self.connection.all_or_nothing():
            for parameters in sets:
                changed += max(self.run(parameters).rowcount, 0)
        return Result(rowcount=changed)

    @abstractmethod
    def explain(self) -> list[str]:
        """What the statement does, a line each."""


def no_such_table(connection: Connection, name: str, node: exp.Expr) -> NoSuchTable:
    line, column = place(node)
    known = connection.tables()
    near = difflib.get_close_matches(name, known, 1)
    hint = f"did you mean {near[0]}?" if near else f"the tables are: {', '.join(known) or 'none yet'}"
    where = f"line {line}, column {column}: " if line else ""
    return NoSuchTable(f"{where}there is no table {name}; {hint}")


def is_system_name(name: str) -> bool:
    return name.startswith("sys_")


def alias_of(node: exp.Expr, name: str) -> str:
    """What a statement calls its table: by another name, if it says so."""
    return folded(node.args["alias"].this) if node.args.get("alias") else name


def is_for_rows(node: exp.Expr) -> bool:
    """Whether an expression can be worked out of one row."""
    return not is_aggregate(node) and not has_subquery(node)


class RowScope(Scope):
    """The columns of one table's rows, and behind them ``rowid``."""

    def __init__(self, columns: Sequence[Column], alias: str) -> None:
        super().__init__([ScopeTable(alias, columns, 0, {"rowid": (len(columns), ROWID_TYPE)})])
        self.columns = tuple(columns)
        self.alias = alias
        self.uses_row_id = False
        self.used: set[int] = set()  # positions of the columns that expressions ask for

    def column(self, name: str, table: str | None, node: exp.Expr) -> tuple[int, ColumnType]:
        position, type_ = super().column(name, table, node)
        self.used.add(position)
        self.uses_row_id = self.uses_row_id or position == len(self.columns)
        return position, type_

    def is_own(self, qualifier: Any) -> bool:
        return qualifier is None or folded(qualifier) == self.alias


NO_TABLE = Scope()


class PointFinder:
    """The one row, or none, whose whole key a statement gives: what programs ask for most."""

    def __init__(self, table: str, path: Path) -> None:
        assert path.index is not None
        self._table = table
        self._index = path.index.name
        self.key = path.whole_key()

    def rows(self, connection: Connection) -> KeyedRows:
        """The table's rows by the index."""
        return connection.heap(self._table).by(self._index)


class RowFinder:
    """The rows of one table that meet a condition, found by the best path."""

    def __init__(
        self,
        table: TableDefinition,
        alias: str,
        condition: exp.Expr | None,
        statistics: TableStatistics | None,
        order: Sequence[tuple[str, bool]] = (),
    ) -> None:
        self.table = table
        self.scope = RowScope(table.columns, alias)
        self.condition = None if condition is None else compile_condition(condition, self.scope)
        found = comparisons(condition, self._is_own)
        self.path = choose(table, found, self._compile_value, statistics, order)
        parts = list(conjuncts(condition))
        key_decides = self.path.is_single and len(parts) == len(found) == len(self.path.equal) == len(self.path.nodes)
        is_short = table.lobs is None  # else only the large objects that are asked for are read
        self.point = PointFinder(table.name, self.path) if key_decides and is_short else None

    def _is_own(self, column: exp.Column) -> bool:
        return self.scope.is_own(column.args.get("table"))

    def _compile_value(self, column: str, node: exp.Expr) -> Evaluate:
        """A value that a column is compared with; a parameter or a text literal is taken as one of its type."""
        _, type_ = self.scope.column(column, None, node)
        is_open = isinstance(node, exp.Placeholder) or (isinstance(node, exp.Literal) and node.is_string)
        compiled = compile_assignment(node, NO_TABLE, type_) if is_open else compile_expression(node, NO_TABLE)
        return lambda given: compiled.evaluate((), *given)

    def extended(self, rows: Iterator[Found]) -> Iterator[Found]:
        """The rows with their row ids behind them, as SQL shows them, if an expression asks for those."""
        if not self.scope.uses_row_id:
            return rows
        return ((row_id, (*values, str(row_id))) for row_id, values in rows)

    def rows(self, heap: Heap, given: Given) -> Iterator[Found]:
        """The rows, as a statement that begins now sees them."""
        return self._filtered(self._unfiltered(heap, given), given)

    def rows_within(self, steps: Steps, given: Given) -> Iterator[Found]:
        """The rows, as a statement that is running sees them."""
        return self._filtered(self._unfiltered(steps, given), given)

    def _unfiltered(self, reader: Heap | Steps, given: Given) -> Iterator[Found]:
        path = self.path
        if path.row_ids is not None:
            return reader.rows_at(path.found_row_ids(given))
        if path.index is not None:
            try:
                keys = path.keys(given)
            except Unusable:
                return reader.rows()
            return iter(()) if keys is None else reader.rows_by(path.index.name, keys)
        return reader.rows()

    def _filtered(self, rows: Iterator[Found], given: Given) -> Iterator[Found]:
        if self.condition is None:
            return rows
        evaluate, (parameters, context) = self.condition.evaluate, given
        if not self.scope.uses_row_id:
            return (found for found in rows if evaluate(found[1], parameters, context) is True)
        return (found for found in rows if evaluate((*found[1], str(found[0])), parameters, context) is True)
