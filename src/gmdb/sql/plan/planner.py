"""The plan of a relation: which executor runs what tree.

Not here: how trees are built (normal.py, physical.py), how they are shown (explain.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar

from gmdb.database.dbapi import rows_of
from gmdb.errors import EngineFault
from gmdb.sql import rows
from gmdb.sql.plan.estimates import DUCK, DUCK_START, ROWS, Estimates, Option
from gmdb.sql.plan.normal import normalized, pruned, used_columns
from gmdb.sql.plan.physical import Planner
from gmdb.sql.run import Run
from gmdb.sql.tree import Relation, Table, everything
from gmdb.tables.catalog.schema import TableDefinition
from gmdb.tables.catalog.system import TableStatistics

if TYPE_CHECKING:
    from gmdb.sql.duck.execution import DuckResult

Row = tuple[Any, ...]
Watch = Callable[[Any], None] | None
Result = TypeVar("Result")
Size = Callable[[TableDefinition], float]
GROWTH = 4  # how much larger a table that is scanned may become until another plan is looked for
EXECUTOR: ContextVar[str | None] = ContextVar("executor", default=None)  # that plans are to be for, if they can


class Plan:
    """A tree, and the executor that it is for: ``rows`` or ``duck``."""

    def __init__(
        self,
        tree: Relation,
        executor: str,
        estimates: Mapping[int, float],
        scanned: Sequence[tuple[TableDefinition, float]] = (),
        row_ids: bool = False,
        without_duckdb: Callable[[], Plan] | None = None,
    ) -> None:
        """``estimates``: of rows, by the nodes' identities.  ``scanned``: tables that are read whole, and pages.
        ``without_duckdb``: makes the plan that has DuckDB do as little as can be."""
        self.tree = tree
        self.executor = executor
        self.estimates = estimates
        self._scanned = scanned
        self._row_ids = row_ids
        self._without_duckdb = without_duckdb

    def of(self, tree: Relation) -> Plan:
        """The plan with another top."""
        return Plan(tree, self.executor, self.estimates, self._scanned, self._row_ids)

    @cached_property
    def program(self) -> rows.Program:
        return rows.Program(self.tree, self._row_ids)

    @cached_property
    def written(self) -> Any:
        from gmdb.sql.duck import text  # it takes a while to import

        return text.write(self.tree)

    def in_duckdb(self, run: Run, watch: Watch = None) -> DuckResult | None:
        """DuckDB's result; None if the rows executor runs the plan.

        Where DuckDB fails by a fault of its own before it gives a row, the plan becomes one that avoids it.
        """
        return self._with_retry(self._in_duckdb, run, watch)

    def _in_duckdb(self, run: Run, watch: Watch) -> DuckResult | None:
        if self.executor == ROWS:
            return None
        from gmdb.sql.duck import text

        return text.run_written(self.written, run, watch)

    def _with_retry(self, work: Callable[[Run, Watch], Result], run: Run, watch: Watch) -> Result:
        try:
            return work(run, watch)
        except EngineFault:
            if self._without_duckdb is None:
                raise
            other, self._without_duckdb = self._without_duckdb(), None
            for name in ("program", "written"):
                self.__dict__.pop(name, None)
            self.tree, self.executor, self.estimates = other.tree, other.executor, other.estimates
        return work(run, watch)

    def rows(self, run: Run, watch: Watch = None) -> Iterator[Row]:
        """The rows, one by one."""
        result = self.in_duckdb(run, watch)
        return self.program.rows(run) if result is None else _rows_in(result)

    def explain(self) -> list[str]:
        """The plan, a line for each node."""
        from gmdb.sql.plan import explain

        return explain.lines(self.tree, self.executor, self.estimates)

    def analyze(self, run: Run, watch: Watch = None) -> list[str]:
        """Run the plan to its end; what it did, a line for each node."""
        from gmdb.sql.plan import explain

        return self._with_retry(lambda run, watch: explain.analyzed(self, run, watch), run, watch)

    def has_outgrown(self, size: Size) -> bool:
        """Whether a table that it reads whole has become much larger since."""
        return any(size(definition) > GROWTH * pages for definition, pages in self._scanned)


def _rows_in(result: DuckResult) -> Iterator[Row]:
    try:
        yield from rows_of(result.reader)
    finally:
        result.close()


def plan(
    relation: Relation,
    statistics: Callable[[TableDefinition], TableStatistics | None],
    size: Size,
    row_ids: bool = False,
    held_scn: int | None = None,
    without_duckdb: bool = False,
) -> Plan:
    """The best plan for a relation, with its columns.  ``size``: how many pages a table has.

    ``without_duckdb``: it is to do only what cannot be done by rows.
    """
    tree = normalized(pruned(relation))
    planner = Planner(Estimates(statistics, size, held_scn), used_columns(tree), without_duckdb)
    planned = planner.plan(tree)
    by_rows = planned.best(ROWS)
    if by_rows is not None and not rows.supports(by_rows.tree):
        by_rows = None
    option, executor = _chosen(by_rows, None if without_duckdb and by_rows is not None else planned.by_duck)
    tables = {one.definition.number: one.definition for one in everything(option.tree) if isinstance(one, Table)}
    scanned = [(definition, max(float(size(definition)), 1.0)) for definition in tables.values()]
    other = None
    if executor == DUCK and not without_duckdb:
        other = partial(plan, relation, statistics, size, row_ids, held_scn, without_duckdb=True)
    return Plan(option.tree, executor, planner.rows, scanned, row_ids, other)


def _chosen(by_rows: Option | None, by_duck: Option | None) -> tuple[Option, str]:
    forced = EXECUTOR.get()
    if by_duck is None or (by_rows is not None and forced == ROWS):
        assert by_rows is not None
        return by_rows, ROWS
    if by_rows is None or forced == DUCK:
        return by_duck, DUCK
    return (by_rows, ROWS) if by_rows.total <= by_duck.total + DUCK_START else (by_duck, DUCK)
