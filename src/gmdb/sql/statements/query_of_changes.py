"""A query whose WITH changes rows: all of it is one statement, which is done when it is executed."""

from __future__ import annotations

from gmdb.database.dbapi import Result
from gmdb.errors import UnsupportedExpression
from gmdb.sql.bind.binder import Binder
from gmdb.sql.prepared import Statement
from gmdb.sql.queries import Query
from gmdb.sql.run import Parameters
from gmdb.sql.statements.course import Course, run_course
from gmdb.sql.statements.parts import Parts
from gmdb.tables.access.lob_files import rereadable
from gmdb.transaction.interrupts import operation


class QueryOfChanges(Query):
    """A query whose WITH changes rows."""

    def _new_binder(self) -> Binder:
        binder = super()._new_binder()
        self._parts = Parts(self, binder)
        return binder

    def run(self, parameters: Parameters) -> Result:
        return self._run_course(parameters)

    @operation
    def _run_course(self, parameters: Parameters) -> Result:
        if self._locks:
            raise UnsupportedExpression("FOR UPDATE cannot stand in a query whose WITH changes rows")
        changes = self._parts.changes
        if any(one.definition.lobs is not None for one in changes):
            parameters = rereadable(parameters)
        needs_time = self._uses_time or any(one.needs_time for one in changes)
        return run_course(self, self.locked(changes[0].definition), self._whole, parameters, needs_time, True)

    def _whole(self, course: Course) -> Result:
        self._parts.run_for(self.inputs_read, course)
        rows = self.rows_in_course(self.plan, course)
        self._parts.run_rest(course)
        return Result(self.names, self.column_types, len(rows), iter(rows))

    def explain(self) -> list[str]:
        return [*super().explain(), *self._parts.explain_of(self)]

    def analyze(self, parameters: Parameters) -> list[str]:
        return Statement.analyze(self, parameters)
