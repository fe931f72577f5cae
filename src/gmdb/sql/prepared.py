"""The base of prepared statements: bound and planned for tables as they are defined, and for types of parameters."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from gmdb.database.dbapi import Result
from gmdb.errors import DefinitionChanged, NoSuchIndex, NoSuchTable
from gmdb.format.columns import ColumnType
from gmdb.sql.plan.planner import Plan, plan
from gmdb.sql.run import Parameters, Run, definition_changed
from gmdb.sql.tree import ParameterKey, Relation, inputs_of
from gmdb.sql.types import INT, INTEGERS, type_of_value
from gmdb.tables.access.heap import Heap
from gmdb.tables.catalog.schema import TableDefinition
from gmdb.tables.catalog.view_definitions import ViewDefinition

if TYPE_CHECKING:
    from gmdb.database.connection import Connection
    from gmdb.sql.bind.binder import Binder
    from gmdb.sql.parser import Parsed
    from gmdb.sql.statements.course import Course
    from gmdb.transaction.interrupts import Work

ParameterTypes = Mapping[ParameterKey, ColumnType | None]  # by types.type_of_value
Check = Callable[[Any], bool]
Quick = Callable[[Parameters], Result | None]
NOT_CURRENT = (DefinitionChanged, NoSuchIndex, NoSuchTable)  # perhaps since the statement was prepared


class Statement(ABC):
    """A statement that was prepared, for the tables as they are defined now.

    ``tables`` and ``views``: those that it names, by their full names; ``mean_the_same``: whether its names, which
    other names could come before, mean that still.  ``typed_parameters``: those whose types it depends on.
    ``quick``: a fast path, which may come with the first run.  It returns None, and has done nothing, if the statement
    is not current, if parameters are of other types, or if it does not apply for any other reason.
    """

    quick: Quick | None = None

    def __init__(self, connection: Connection, parsed: Parsed, types: ParameterTypes) -> None:
        self.connection = connection
        self.session = connection.session
        self.parsed = parsed
        self.types = types
        self.tables: dict[str, TableDefinition] = {}
        self.views: dict[str, ViewDefinition] = {}
        self.mean_the_same: tuple[Callable[[], bool], ...] = ()
        self._plans: list[Plan] = []
        self.inputs_read: set[int] = set()  # the keys of the inputs of its plans
        self.typed_parameters: frozenset[ParameterKey] = frozenset()
        self._statistics_version = connection._statistics_version

    def depend_on(self, binder: Binder) -> None:
        """Note what a binder has found for names of the statement."""
        self.tables.update(binder.tables)
        self.views.update(binder.views)
        if binder.passed or binder.schema:
            self.mean_the_same = (*self.mean_the_same, binder.means_the_same)

    def is_current(self) -> bool:
        """Whether the tables are still defined as they were when it was prepared, and its plans are not stale."""
        if self.views and not self._has_views():
            return False
        if self.mean_the_same and not all(check() for check in self.mean_the_same):
            return False
        held = self.session.tables_seen  # by definitions that are the newest
        for table in self.tables.values():
            if held.get(table.number) is not table:
                if not self._is_still_current():
                    return False
                break
        return self.quick is not None or not any(one.has_outgrown(self.pages) for one in self._plans)

    def _has_views(self) -> bool:
        """Whether the views are still as they were."""
        try:
            return all(self.connection.view(name) is view for name, view in self.views.items())
        except NoSuchTable:
            return False

    def _is_still_current(self) -> bool:
        if self._statistics_version != self.connection._statistics_version:
            return False  # there may be a better plan now
        try:
            return all(self.connection.table(name) is table for name, table in self.tables.items())
        except NoSuchTable:
            return False

    def fits(self) -> Check:
        """A function that tells whether parameters have the types that the statement was prepared for."""
        return _check(_conditions({key: self.types.get(key) for key in self.typed_parameters}))

    def typed(self, run: Quick) -> Quick:
        """A fast path for parameters of the right types; that the statement is current, ``run`` checks itself."""
        takes = self._takes()
        return lambda parameters: run(parameters) if takes(parameters) else None

    def checked(self, run: Callable[[Parameters], Result]) -> Quick:
        """A fast path of what checks nothing itself: neither types nor whether the statement is current."""
        session, is_current, takes = self.session, self.is_current, self._takes()

        def quick(parameters: Parameters) -> Result | None:
            if session.closed or not is_current() or not takes(parameters):
                return None
            try:
                return run(parameters)
            except NOT_CURRENT:
                if is_current():
                    raise
                return None

        return quick

    def _takes(self) -> Check:
        """A function that tells whether parameters are as many and of such types as the statement needs."""
        names, count = self.parsed.names, self.parsed.count
        if names:
            shape = (Condition("parameters.__class__ is dict and parameters.keys() >= names", {"names": names}),)
        else:
            shape = (Condition(f"parameters.__class__ in (tuple, list) and len(parameters) == {count}"),)
        return _check((*shape, *_conditions({key: self.types.get(key) for key in self.typed_parameters})))

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
        self.inputs_read |= inputs_of(relation)
        return best

    def plan_alone(self, relation: Relation) -> Plan:
        """``planned``, of what runs apart from the statement's own plans."""
        before = set(self.inputs_read)
        best = self.planned(relation)
        self.inputs_read = before
        return best

    def rows_in_course(self, ready: Plan, course: Course) -> list[tuple[Any, ...]]:
        """The rows of a plan, by the snapshot of a statement that changes rows."""
        assert course.steps is not None
        with ExitStack() as stack:
            snapshot = stack.enter_context(self.connection.one_snapshot(course.steps.scn, course.before))
            now = course.now or datetime.now(UTC)
            run = Run(self.connection, snapshot, course.parameters, now, course.inputs)
            return list(ready.rows(run, partial(self.watch, stack)))

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


class Condition(NamedTuple):
    """A condition on ``parameters``, as Python's text, and the names in it."""

    text: str
    names: dict[str, Any] = {}  # noqa: RUF012  # nobody changes it


def _conditions(types: Mapping[ParameterKey, ColumnType | None]) -> Iterable[Condition]:
    """That parameters are of these types."""
    for number, (key, type_) in enumerate(types.items()):
        value = f"parameters[{key!r}]"
        same = f"type_of({value}) == t{number}"
        if type_ == INT:
            low, high = INTEGERS[type_.name]
            same = f"(type({value}) is int and {low} <= {value} <= {high} or {same})"
        elif type_ is None:
            same = f"(type({value}) is str or {value} is None or {same})"
        yield Condition(same, {f"t{number}": type_})


def _check(conditions: Iterable[Condition]) -> Check:
    """Conditions as one function of parameters."""
    names: dict[str, Any] = {"type_of": type_of_value}
    texts = []
    for condition in conditions:
        texts.append(condition.text)
        names.update(condition.names)
    check: Check = eval(f"lambda parameters: {' and '.join(texts) or 'True'}", names)
    return check
