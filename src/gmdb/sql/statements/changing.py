"""What INSERT, UPDATE, DELETE and MERGE have in common: a table, and a place alone or within another statement."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from gmdb.database.dbapi import Result
from gmdb.sql import tree
from gmdb.sql.bind.binder import Binder, Catalog
from gmdb.sql.bind.scope import Scope
from gmdb.sql.parser import Parsed
from gmdb.sql.prepared import ParameterTypes, Statement
from gmdb.sql.run import Parameters
from gmdb.sql.statements.course import Course, run_course
from gmdb.sql.statements.parts import Parts, Within
from gmdb.tables.access.heap import Heap
from gmdb.tables.access.lob_files import rereadable
from gmdb.tables.access.statements import Steps
from gmdb.tables.catalog.schema import TableDefinition

if TYPE_CHECKING:
    from gmdb.database.connection import Connection
    from gmdb.sql.statements.assignment import Returning


class Changing(Statement):
    """A statement that changes rows of one table, ``definition``, alone or as a part of another statement."""

    definition: TableDefinition
    needs_time = False

    def __init__(
        self, connection: Connection, parsed: Parsed, types: ParameterTypes, within: Within | None = None
    ) -> None:
        super().__init__(connection, parsed, types)
        self._returning: Returning | None = None
        if within is None:
            self.binder, self._around = Binder(Catalog(connection), types), Scope()
            self._shared_around: tuple[tree.Shared, ...] = ()
            self.parts = Parts(self, self.binder)
        else:
            self.binder, self._around = within.binder, Scope(within.scope)
            self._shared_around, self.parts = within.shared, within.parts

    @property
    def returned(self) -> tuple[tree.Column, ...]:
        """The columns that it returns."""
        return () if self._returning is None else self._returning.columns

    @abstractmethod
    def change(self, course: Course) -> Result:
        """Change the rows; raises RowChanged if one is not as the snapshot shows it."""

    def course(self, parameters: Parameters) -> Result:
        """The whole statement, all or nothing."""
        every = [self, *self.parts.changes]
        if any(one.definition.lobs is not None for one in every):
            parameters = rereadable(parameters)
        needs_time, heap = any(one.needs_time for one in every), self.locked(self.definition)
        return run_course(self, heap, self._whole, parameters, needs_time, bool(self.parts))

    def _whole(self, course: Course) -> Result:
        self.parts.run_for(self.inputs_read, course)
        result = self.change(course)
        self.parts.run_rest(course)
        return result

    def heap_and_steps(self, course: Course) -> tuple[Heap, Steps]:
        assert course.steps is not None
        heap = self.locked(self.definition)
        return heap, course.steps.on(heap)
