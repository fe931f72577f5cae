"""A relation that is ready to be run row by row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from gmdb.kernel.runtime.call import LATEST, SCN
from gmdb.sql import tree
from gmdb.sql.plan.paths import Access, Materialized
from gmdb.sql.rows.pipeline import Pipeline, Written
from gmdb.sql.rows.sources import newest
from gmdb.sql.tree import Column, Relation
from gmdb.tables.access.keyed import Unread
from gmdb.transaction.interrupts import operation

if TYPE_CHECKING:
    from gmdb.database.connection import Connection
    from gmdb.sql.run import Parameters, Run

Row = tuple[Any, ...]
_PLAIN = (
    tree.One, tree.Table, Access, Materialized, tree.Listing, tree.Input, tree.Values, tree.Series, tree.Unnest,
    tree.FunctionRows,
    tree.Filter, tree.Project, tree.Join, tree.Distinct, tree.Sort, tree.Limit, tree.Number, tree.SetOperation,
    tree.Reading,
)  # fmt: skip
FAILURES_MAX = 3  # quick runs in a row that gave up: after these they are not tried again


class Program:
    """``relation`` as a function.

    ``row_ids``: output columns that are row ids come as such, not as text.  ``measures``: see plan.explain.Measure, by
    the ``id`` of the node that is measured.
    """

    def __init__(self, relation: Relation, row_ids: bool = False, measures: Mapping[int, Any] | None = None) -> None:
        self.columns: tuple[Column, ...] = relation.columns
        self._relation, self._row_ids, self._measures = relation, row_ids, measures

    @cached_property
    def _lazy(self) -> Written:
        return Pipeline(self._relation, self._row_ids, False, self._measures).written

    @cached_property
    def _at_once(self) -> Written:
        return Pipeline(self._relation, self._row_ids, True).written

    def rows(self, run: Run) -> Iterator[Row]:
        """The rows, by the run's snapshot, which is held as long as they are read."""
        written = self._lazy
        ending: list[Callable[[], None]] = []
        sources = [source.begin(run, ending) for source in written.sources]
        session, reading = run.connection.session, run.reading

        def check() -> None:
            session.check_interrupted()
            reading.check()

        rows: Iterator[Row] = written.function(run.parameters, run.now, sources, check, ending)
        return rows

    def quick(self, connection: Connection) -> Quick | None:
        """The program as a fast path; None if it has none."""
        sources = self._at_once.sources
        if not all(source.is_by_key for source in sources):
            return None
        if tree.asks_connection(self._relation):  # which is not to be asked while the guard is held
            return None
        return Quick(connection, self._at_once)


class Quick:
    """The fast path of a program on one connection: runs under the guard, by the newest commit, or under repeatable
    read by the transaction's snapshot.

    ``run`` returns None if the rows must be read by a snapshot of their own.  ``work`` is for a caller that holds the
    guard; it raises Unread, and returns None if ``prepare`` must be called first.
    """

    def __init__(self, connection: Connection, written: Written) -> None:
        self.session = connection.session
        self._connection, self._written = connection, written
        self._definitions = {source.table.definition for source in written.sources}
        self._sources: list[Any] = []
        self._changes: object = None  # of definitions: those by which a transaction's snapshot sees the same tables
        self.work = self._make_work()
        self.run = self._make_run()

    def _make_work(self) -> Callable[[Parameters, datetime | None], list[Row] | None]:
        session, function, sources = self.session, self._written.function, self._sources
        devices, call, memory = session.hub.store.devices, session.call, session.hub.memory
        tables, count = [(one.number, one) for one in self._definitions], len(self._written.sources)

        def work(parameters: Parameters, now: datetime | None) -> list[Row] | None:
            """The rows, while the guard is held; None if ``prepare`` must be called first."""
            if not devices or len(sources) < count:
                return None
            if call[LATEST]:
                seen = session.tables_seen
                for number, definition in tables:
                    if seen.get(number) is not definition:
                        return None
                call[SCN] = memory.scn
            else:
                if session.is_serializable:
                    return None  # what is read must be noted
                session.prepare()
                held = session.tables_held  # by their newest definitions
                if session.definitions.now is not self._changes:
                    return None
                for number, definition in tables:
                    if held.get(number, definition) is not definition:
                        return None
            session.has_read = True
            rows: list[Row] = function(parameters, now, sources, give_up, ())
            return rows

        return work

    def _make_run(self) -> Callable[..., list[Row] | None]:
        session, under_guard, work = self.session, self.session.hub.store.under_guard, self.work
        busy, failures = session.busy, 0

        def run(parameters: Parameters, now: datetime | None = None) -> list[Row] | None:
            nonlocal failures
            if failures > FAILURES_MAX:
                return None
            try:
                rows = under_guard(busy, work, parameters, now)
                if rows is None:
                    rows = self._run_with_patience(parameters, now)
            except Unread:
                failures += 1
                return None
            failures = 0
            return rows

        return run

    @operation
    def _run_with_patience(self, parameters: Parameters, now: datetime | None) -> list[Row] | None:
        session = self.session
        return session.hub.store.under_guard(session.busy, self.work, parameters, now) if self.prepare() else None

    @operation
    def prepare(self) -> bool:
        """Look up the tables; returns whether they still are those that the program was compiled for."""
        session, store = self.session, self.session.hub.store
        if session.is_serializable:
            return False
        for definition in self._definitions:
            heap = self._connection.heap(definition.name)
            if heap.definition is not definition:
                return False
            with store.guard:
                heap.look()
            if heap.definition is not definition:
                return False
        if not self._sources:
            self._sources += [newest(self._connection, source) for source in self._written.sources]
        if not session.call[LATEST]:
            if not self._has_seen_indexes(session.held_scn):
                return False
            self._changes = session.definitions.now  # an object that no other transaction has
        return True

    def _has_seen_indexes(self, scn: int | None) -> bool:
        """Whether no index is newer than the transaction's snapshot, if it has one already."""
        indexes = (source.table.definition.index(source.index_name) for source in self._written.sources)
        return scn is None or all(max(index.since, ~index.since) <= scn for index in indexes)


def give_up() -> None:
    raise Unread


def supports(relation: Relation) -> bool:
    """Whether a relation, with all that is within it, can be run row by row."""
    return all(map(_is_supported, tree.everything(relation)))


def _is_supported(relation: Relation) -> bool:
    if isinstance(relation, tree.Group):
        return relation.sets is None and all(_has_fold(one) for _, one in relation.aggregates)
    if isinstance(relation, tree.With):
        return all(one.again is None and not tree.outer_columns(one.query) for one in relation.shared)
    return isinstance(relation, _PLAIN)


def _has_fold(aggregate: tree.Aggregate) -> bool:
    return aggregate.aggregation.fold is not None and not aggregate.aggregation.ordered
