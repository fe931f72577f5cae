"""The parts of a statement that stand in its WITH: those that change rows, and queries that several of them read.

    with gone as (delete from a where i < 9 returning *) insert into b select * from gone

Invariants
 1. Every part that changes rows runs once: before the first part that reads what it returns, else behind the statement
    itself, the last one first, as in PostgreSQL.  A query runs once, if somebody reads it.
 2. What a part returns is worked out when it runs; others read these rows (``tree.Input``).
Not here: snapshots, starting over, rows that several parts want to change (course.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from gmdb.errors import UnsupportedExpression
from gmdb.process.late_dataclasses import dataclass, replace
from gmdb.sql import tree
from gmdb.sql.bind.binder import Binder, Bound
from gmdb.sql.bind.coercion import fold_relation
from gmdb.sql.bind.scope import Scope, references
from gmdb.sql.dialect import place
from gmdb.sql.plan.planner import Plan
from gmdb.sql.prepared import Statement
from gmdb.sql.statements.course import Course
from gmdb.sql.syntax import changes_rows

if TYPE_CHECKING:
    from gmdb.sql.statements.changing import Changing

_KINDS: dict[type, tuple[str, str]] = {
    exp.Insert: ("insert", "Insert"),
    exp.Update: ("update", "Update"),
    exp.Delete: ("update", "Delete"),
    exp.Merge: ("merge", "Merge"),
}


@dataclass(frozen=True, slots=True)
class Within:
    """Where a part stands: what binds the whole statement, and the queries of WITH in front of it."""

    binder: Binder
    scope: Scope
    shared: tuple[tree.Shared, ...]
    parts: Parts


@dataclass(frozen=True, slots=True)
class _Part:
    """A part, and the key of the input that its rows are.  ``work``: a statement, or the plan of a query.  ``reads``:
    the keys of other parts' rows."""

    key: int
    work: Changing | Plan
    reads: frozenset[int]


class Parts:
    """The parts of one statement."""

    def __init__(self, statement: Statement, binder: Binder) -> None:
        node = statement.parsed.statement
        assert isinstance(node, exp.Expr)
        self._statement, self._node, self._binder = statement, node, binder
        self._change_rows = changes_rows(node)
        self._parts: dict[int, _Part] = {}
        binder.parts = self

    def __bool__(self) -> bool:
        return bool(self._parts)

    @property
    def changes(self) -> list[Changing]:
        return [part.work for part in self._parts.values() if not isinstance(part.work, Plan)]

    # ---- binding

    def are_of(self, node: exp.Expr) -> bool:
        """Whether a query of WITH is to be a part: all that change rows are, and those that several could read."""
        with_ = node.parent
        if not self._change_rows or with_ is None or with_.parent is not self._node:
            return False
        name = node.args["alias"].name.lower()
        mentions = sum(1 for table in self._node.find_all(exp.Table) if table.name.lower() == name)
        return isinstance(node.this, exp.DML) or mentions > 1

    def take(self, node: exp.Expr, name: str, scope: Scope, before: tuple[tree.Shared, ...]) -> Bound | None:
        if isinstance(node, exp.DML):
            return self._take_change(node, name, Within(self._binder, scope, before, self))
        bound = self._binder.query(node, scope)
        relation = fold_relation(tree.With(before, bound.relation) if before else bound.relation)
        work = self._statement.plan_alone(relation)
        return self._added(name, work, tree.inputs_of(relation), bound.relation.columns, bound.names)

    def _take_change(self, node: exp.Expr, name: str, within: Within) -> Bound | None:
        module, kind = next((known for type_, known in _KINDS.items() if isinstance(node, type_)), ("", ""))
        if not kind:
            raise UnsupportedExpression(f"{type(node).__name__.upper()} cannot stand in WITH", *place(node))
        prepare: Any = getattr(import_module(f"gmdb.sql.statements.{module}"), kind)
        statement = self._statement
        work: Changing = prepare(
            statement.connection, replace(statement.parsed, statement=node), statement.types, within
        )
        columns = work.returned
        return self._added(name, work, work.inputs_read, columns, [column.name for column in columns])

    def _added(
        self,
        name: str,
        work: Changing | Plan,
        reads: set[int],
        columns: Sequence[tree.Column],
        names: Sequence[str],
    ) -> Bound | None:
        own = [self._binder.output(column.name, tree.Reference(column.type, column))[0] for column in columns]
        rows = tree.Input(name, tuple(own))
        self._parts[rows.key] = _Part(rows.key, work, frozenset(reads))
        return Bound(rows, tuple(names), references(rows)) if columns else None

    # ---- running

    def run_for(self, reads: Sequence[int] | set[int] | frozenset[int], course: Course) -> None:
        """Run the parts that return these rows, if they have not run yet."""
        for key in sorted(reads):
            if key in self._parts and key not in course.inputs:
                self._run(self._parts[key], course)

    def run_rest(self, course: Course) -> None:
        """Run the other parts that change rows."""
        for key, part in reversed(self._parts.items()):
            if key not in course.inputs and not isinstance(part.work, Plan):
                self._run(part, course)

    def _run(self, part: _Part, course: Course) -> None:
        self.run_for(part.reads, course)
        if isinstance(part.work, Plan):
            course.inputs[part.key] = self._statement.rows_in_course(part.work, course)
        else:
            course.inputs[part.key] = list(part.work.change(course).rows or ())

    def explain_of(self, statement: Statement) -> list[str]:
        """What the parts do, if this is the statement that they are parts of."""
        works = [part.work for part in self._parts.values()] if statement is self._statement else []
        return [line for work in works for line in work.explain()]
