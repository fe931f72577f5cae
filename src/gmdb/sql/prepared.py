"""What a prepared statement is: bound and planned for tables as they are defined now, and for types of parameters."""

from __future__ import annotations

import difflib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from gmdb.database.dbapi import Result
from gmdb.errors import DefinitionChanged, NoSuchTable
from gmdb.format.columns import ColumnType
from gmdb.sql.dialect import place
from gmdb.sql.plan.planner import Plan, plan
from gmdb.sql.tree import ParameterKey, Relation
from gmdb.tables.access.heap import Heap
from gmdb.tables.catalog.schema import TableDefinition

if TYPE_CHECKING:
    from gmdb.database.connection import Connection
    from gmdb.sql.parser import Parsed
    from gmdb.transaction.interrupts import Work

Parameters = Sequence[Any] | Mapping[str, Any]
ParameterTypes = Mapping[ParameterKey, ColumnType | None]  # by types.type_of_value


class Statement(ABC):
    """A statement that was prepared, for the tables as they are defined now.

    ``tables``: by name, those that it holds for.  ``asked``: the parameters whose types it depends on.  ``is_quick``:
    what ``run`` does to the session is at most one change or read of a row, an operation by itself.
    """

    is_quick = False

    def __init__(self, connection: Connection, parsed: Parsed, types: ParameterTypes) -> None:
        self.connection = connection
        self.session = connection.session
        self.parsed = parsed
        self.types = types
        self.tables: dict[str, TableDefinition] = {}
        self._plans: list[Plan] = []
        self.asked: frozenset[ParameterKey] = frozenset()
        self._statistics_version = connection._statistics_version

    def is_current(self) -> bool:
        """Whether the tables are still defined as they were when the statement was prepared, and its plans good."""
        held = self.session.tables_seen  # by definitions that are the newest
        for table in self.tables.values():
            if held.get(table.number) is not table:
                if not self._is_still_current():
                    return False
                break
        return self.is_quick or not any(one.has_outgrown(self.pages) for one in self._plans)

    def _is_still_current(self) -> bool:
        if self._statistics_version != self.connection._statistics_version:
            return False  # there may be a better way now
        try:
            return all(self.connection.table(name) is table for name, table in self.tables.items())
        except NoSuchTable:
            return False

    def held(self, definition: TableDefinition) -> Heap:
        """The rows of a table that the statement changes, held against changes of its definition."""
        heap = self.connection.heap(definition.name)
        heap.share()
        if heap.definition is not definition:
            self.session.finish_read()  # with autocommit, it is not held any more
            raise definition_changed(definition)
        return heap

    def pages(self, definition: TableDefinition) -> int:
        """How large a table is."""
        return int(self.connection.heap(definition.name).segment.head.page_count)

    def planned(self, relation: Relation, row_ids: bool = False) -> Plan:
        """The best plan for a relation; with ``row_ids``, columns that are row ids come as such where they can."""
        statistics = self.connection.statistics
        best = plan(relation, lambda table: statistics(table.name), self.pages, row_ids, self.session.held_scn)
        self._plans.append(best)
        return best

    def watch(self, stack: ExitStack, work: Work) -> None:
        """Have an interrupt of the session end the work in DuckDB, until the stack is closed."""
        self.session.watch(work)
        stack.callback(self.session.unwatch, work)

    @abstractmethod
    def run(self, parameters: Parameters) -> Result:
        """Raises DefinitionChanged, or that an index or table is not there, if the statement is not current."""

    @abstractmethod
    def explain(self) -> list[str]:
        """What the statement does, a line each."""

    def analyze(self, parameters: Parameters) -> list[str]:
        """Run the statement, to its end; ``explain`` with what it took."""
        result = self.run(parameters)
        count = sum(1 for _ in result.rows) if result.rows is not None else result.rowcount
        return [*self.explain(), f"{max(count, 0)} rows"]


def definition_changed(table: TableDefinition) -> DefinitionChanged:
    return DefinitionChanged(f"the definition of table {table.name} has changed; run the statement again")


def no_such_table(connection: Connection, name: str, node: exp.Expr) -> NoSuchTable:
    """The error for a table that is not there, with a name that is near."""
    line, column = place(node)
    known = connection.tables()
    near = difflib.get_close_matches(name, known, 1)
    hint = f"did you mean {near[0]}?" if near else f"the tables are: {', '.join(known) or 'none yet'}"
    where = f"line {line}, column {column}: " if line else ""
    return NoSuchTable(f"{where}there is no table {name}; {hint}")
