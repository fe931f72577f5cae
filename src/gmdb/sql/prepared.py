"""The base of prepared statements: bound and planned for tables as they are defined, and for types of parameters."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING

from gmdb.database.dbapi import Result
from gmdb.errors import NoSuchTable
from gmdb.format.columns import ColumnType
from gmdb.sql.plan.planner import Plan, plan
from gmdb.sql.run import Parameters, definition_changed
from gmdb.sql.tree import ParameterKey, Relation
from gmdb.tables.access.heap import Heap
from gmdb.tables.catalog.schema import TableDefinition

if TYPE_CHECKING:
    from gmdb.database.connection import Connection
    from gmdb.sql.parser import Parsed
    from gmdb.transaction.interrupts import Work

ParameterTypes = Mapping[ParameterKey, ColumnType | None]  # by types.type_of_value


class Statement(ABC):
    """A statement that was prepared, for the tables as they are defined now.

    ``tables``: those that it names.  ``typed_parameters``: those whose types it depends on.  ``is_quick``: ``run`` does
    one read or change of a row at most, as an operation of its own.
    """

    is_quick = False

    def __init__(self, connection: Connection, parsed: Parsed, types: ParameterTypes) -> None:
        self.connection = connection
        self.session = connection.session
        self.parsed = parsed
        self.types = types
        self.tables: dict[str, TableDefinition] = {}
        self._plans: list[Plan] = []
        self.typed_parameters: frozenset[ParameterKey] = frozenset()
        self._statistics_version = connection._statistics_version

    def is_current(self) -> bool:
        """Whether the tables are still defined as they were when it was prepared, and its plans are not stale."""
        held = self.session.tables_seen  # by definitions that are the newest
        for table in self.tables.values():
            if held.get(table.number) is not table:
                if not self._is_still_current():
                    return False
                break
        return self.is_quick or not any(one.has_outgrown(self.pages) for one in self._plans)

    def _is_still_current(self) -> bool:
        if self._statistics_version != self.connection._statistics_version:
            return False  # there may be a better plan now
        try:
            return all(self.connection.table(name) is table for name, table in self.tables.items())
        except NoSuchTable:
            return False

    def locked(self, definition: TableDefinition) -> Heap:
        """The rows of a table that the statement changes, locked against changes of its definition."""
        heap = self.connection.heap(definition.name)
        heap.share()
        if heap.definition is not definition:
            self.session.finish_read()  # with autocommit, this releases the lock
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
        """Raises DefinitionChanged, NoSuchIndex or NoSuchTable if the statement is not current."""

    @abstractmethod
    def explain(self) -> list[str]:
        """What the statement does, a line each."""

    def analyze(self, parameters: Parameters) -> list[str]:
        """Run the statement, to its end; ``explain`` with what it took."""
        result = self.run(parameters)
        count = sum(1 for _ in result.rows) if result.rows is not None else result.rowcount
        return [*self.explain(), f"{max(count, 0)} rows"]
