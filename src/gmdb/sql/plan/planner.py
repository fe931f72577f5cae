"""The plan of a relation: which executor runs what tree.

Not here: how trees are found (normal.py, physical.py), what they look like to people (explain.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from functools import cached_property
from typing import TYPE_CHECKING, Any

from gmdb.catalog.schema import TableDefinition
from gmdb.catalog.statistics import TableStatistics
from gmdb.dbapi import rows_of
from gmdb.sql import rows
from gmdb.sql.plan import explain
from gmdb.sql.plan.columns import pruned, used_columns
from gmdb.sql.plan.estimates import DUCK_START, Estimates
from gmdb.sql.plan.normal import normalized
from gmdb.sql.plan.options import DUCK, ROWS, Option
from gmdb.sql.plan.physical import Planner
from gmdb.sql.run import Run
from gmdb.sql.tree import Relation, Table, everything

if TYPE_CHECKING:
    from gmdb.sql.duck.answer import Answer

Row = tuple[Any, ...]
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
    ) -> None:
        """``estimates``: of rows, by the nodes' identities.  ``scanned``: tables that are read whole, and pages."""
        self.tree = tree
        self.executor = executor
        self.estimates = estimates
        self._scanned = scanned
        self._row_ids = row_ids

    def of(self, tree: Relation) -> Plan:
        """The plan with another top."""
        return Plan(tree, self.executor, self.estimates, self._scanned, self._row_ids)

    @cached_property
    def program(self) -> rows.Program:
        return rows.compile(self.tree, self._row_ids)

    @cached_property
    def written(self) -> Any:
        from gmdb.sql.duck import text  # it takes a while to import

        return text.write(self.tree)

    def run(self, run: Run, watch: Callable[[Any], None] | None = None) -> Iterator[Row] | Answer:
        """The rows, one by one or as DuckDB's answer."""
        if self.executor == ROWS:
            return self.program.rows(run)
        from gmdb.sql.duck import text

        answer: Answer = text.run(self.written, run, watch)
        return answer

    def rows(self, run: Run, watch: Callable[[Any], None] | None = None) -> Iterator[Row]:
        """The rows, one by one."""
        found = self.run(run, watch)
        if self.executor == ROWS:
            return found  # type: ignore[return-value]
        return _rows_in(found)  # type: ignore[arg-type]

    def explain(self) -> list[str]:
        """The plan, a line for each node."""
        return explain.lines(self.tree, self.executor, self.estimates)

    def analyze(self, run: Run, watch: Callable[[Any], None] | None = None) -> list[str]:
        """Run the plan to its end; what it did, a line for each node."""
        return explain.analyzed(self, run, watch)

    def has_outgrown(self, size: Size) -> bool:
        """Whether a table that it reads whole has become much larger since."""
        return any(size(definition) > GROWTH * pages for definition, pages in self._scanned)


def _rows_in(answer: Answer) -> Iterator[Row]:
    try:
        yield from rows_of(answer.reader)
    finally:
        answer.close()


def plan(
    relation: Relation,
    statistics: Callable[[TableDefinition], TableStatistics | None],
    size: Size,
    row_ids: bool = False,
    held_scn: int | None = None,
) -> Plan:
    """The best plan for a relation, with its columns.  ``size``: how many pages a table has."""
    tree = normalized(pruned(relation))
    planner = Planner(Estimates(statistics, size, held_scn), used_columns(tree))
    planned = planner.plan(tree)
    by_rows = planned.best(ROWS)
    option, executor = _chosen(by_rows if by_rows and rows.supports(by_rows.tree) else None, planned.by_duck)
    tables = {one.definition.number: one.definition for one in everything(option.tree) if isinstance(one, Table)}
    scanned = [(definition, max(float(size(definition)), 1.0)) for definition in tables.values()]
    return Plan(option.tree, executor, planner.rows, scanned, row_ids)


def _chosen(by_rows: Option | None, by_duck: Option | None) -> tuple[Option, str]:
    wanted = EXECUTOR.get()
    if by_duck is None or (by_rows is not None and wanted == ROWS):
        assert by_rows is not None
        return by_rows, ROWS
    if by_rows is None or wanted == DUCK:
        return by_duck, DUCK
    return (by_rows, ROWS) if by_rows.total <= by_duck.total + DUCK_START else (by_duck, DUCK)
