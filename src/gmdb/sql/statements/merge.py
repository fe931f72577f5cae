"""MERGE: a plan joins the table that is changed with a source, and says of each pair what becomes of it.

The plan gives a row's id, or NULL where the source has no row of the table, the number of the WHEN clause that applies,
0 if none does, and what the clauses need.  What a clause makes of it is computed for its own rows only.

Invariants
 1. A row of the table is changed once; if it is to be changed again, the statement is refused.
 2. Rows are deleted first, then others changed, then new ones inserted; RETURNING has them as they were found.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from gmdb.database.dbapi import Result
from gmdb.errors import InvalidSyntax, ProgrammingError, UniqueViolation, UnsupportedExpression
from gmdb.format.address import RowId
from gmdb.format.columns import has_cells
from gmdb.process.late_dataclasses import dataclass, field
from gmdb.sql import tree
from gmdb.sql.bind.binder import Binder
from gmdb.sql.bind.coercion import apply, comparison, fold, fold_relation
from gmdb.sql.bind.expressions import condition
from gmdb.sql.bind.from_clause import beside
from gmdb.sql.bind.scope import Scope
from gmdb.sql.bind.targets import Target, change_target
from gmdb.sql.dialect import place
from gmdb.sql.parser import Parsed
from gmdb.sql.prepared import ParameterTypes
from gmdb.sql.rows.expressions import compile_row
from gmdb.sql.run import Parameters
from gmdb.sql.statements import assignment
from gmdb.sql.statements.assignment import Checks, Defaults, Returning, Sets
from gmdb.sql.statements.changing import Changing
from gmdb.sql.statements.course import Course
from gmdb.sql.statements.new_rows import OVERRIDING, NewRows, put
from gmdb.sql.statements.parts import Within
from gmdb.sql.statements.update import row_id_of
from gmdb.sql.syntax import Syntax, column_name, folded, reading, table_name
from gmdb.sql.tree import Case, Column, Constant, Expression, Junction, Reference
from gmdb.sql.types import BOOLEAN, INT, TEXT
from gmdb.tables.access.heap import Heap
from gmdb.tables.access.indexes import name_key
from gmdb.tables.access.lob_files import is_file
from gmdb.tables.access.statements import Steps
from gmdb.transaction.interrupts import operation

if TYPE_CHECKING:
    from gmdb.database.connection import Connection

Row = tuple[Any, ...]
MATCHED, BY_TARGET, BY_SOURCE = range(
    3
)  # what a pair is: both sides, a row of the source alone, one of the table alone
_DO_NOTHING, _DELETE, _UPDATE, _INSERT = "DO NOTHING", "DELETE", "UPDATE", "INSERT"


@dataclass(slots=True)
class _Clause:
    """A WHEN clause.  ``values``: what columns get, by their positions; those with queries are columns of the plan.
    ``positions``: of an UPDATE, the columns that are others then, with those that are generated."""

    number: int
    kind: int
    test: Expression | None
    action: str
    values: dict[int, Expression] = field(default_factory=dict)
    positions: tuple[int, ...] = ()
    sets: Sets = field(default_factory=Sets)
    checks: Checks | None = None
    make: Callable[..., Sequence[Any]] | None = None
    finish: Callable[[Sequence[Any], datetime | None], list[Any]] | None = None
    numbers_at: tuple[int, ...] = ()  # where the plan's rows have the numbers of ``sets``


@dataclass(slots=True)
class _Done:
    """What has become of a pair: the row of the table as it is, or was before it was deleted."""

    found: Row
    action: str
    row_id: RowId
    values: Sequence[Any]


class Merge(Changing):
    def __init__(
        self, connection: Connection, parsed: Parsed, types: ParameterTypes, within: Within | None = None
    ) -> None:
        super().__init__(connection, parsed, types, within)
        binder = self.binder
        with reading(parsed.statement) as syntax:  # type: ignore[arg-type]
            names, shared = binder.with_clause(syntax.take("with_"), self._around)
            self._shared = (*self._shared_around, *shared)
            self._take_tables(syntax, binder, names)
            on = condition(binder, syntax.need("on", "ON"), self._both)
            with reading(syntax.need("whens", "WHEN")) as whens:
                nodes = whens.list("expressions")
            self._clauses = [self._clause(binder, node, n) for n, node in enumerate(nodes, 1)]
            self._require_reachable(nodes)
            returning = syntax.take("returning")
        self._action = Column("merge_action", TEXT)
        if returning is not None:
            binder.merge_action = Reference(TEXT, self._action)
            scope = Scope(names, names.views)  # the source's columns come first
            scope.absorb(self._source_scope)
            scope.add(self._target.item)
            self._returning = Returning(self, binder, returning, scope)
            binder.merge_action = None
        self._plan_pairs(on, nodes[0])
        rules = (clause.checks for clause in self._clauses)
        self.needs_time = binder.uses_time or self._defaults.use_time or any(one and one.use_time for one in rules)
        self.depend_on(binder)
        self.typed_parameters = frozenset(binder.used_parameters)

    # ---- binding

    def _take_tables(self, syntax: Syntax, binder: Binder, names: Scope) -> None:
        """The table that is changed, the source, and what each kind of clause sees."""
        node, called = syntax.need("this", "a table"), ""
        with reading(node) as part:
            part.ignore("this", "db", "only")  # no table inherits from another
            alias = part.take("alias")
        if alias is not None:
            with reading(alias) as part:
                called = folded(part.need("this", "a name"))
        self._target: Target = change_target(binder, node, table_name(node), called)
        self.definition = assignment.require_changeable(self._target.table.definition)
        self._defaults = Defaults(self.definition)
        using = syntax.need("using", "a source")
        if using.args.get("joins"):
            hint = "Join in a query: (SELECT ...)"
            raise UnsupportedExpression("the source is one table or query", *place(using), hint)
        self._source_scope, self._both = Scope(names, names.views), Scope(names, names.views)
        self._source = beside(binder, None, [using], self._source_scope)
        self._both.add(self._target.item)
        self._both.absorb(self._source_scope)
        self._target_scope = Scope(names, names.views)
        self._target_scope.add(self._target.item)

    def _clause(self, binder: Binder, node: exp.Expr, number: int) -> _Clause:
        with reading(node) as syntax:
            kind = MATCHED if syntax.flag("matched") else BY_TARGET
            if syntax.flag("source"):
                kind = BY_SOURCE
            test, then = syntax.take("condition"), syntax.need("then", "an action")
        scope = (self._both, self._source_scope, self._target_scope)[kind]
        tested = None if test is None else fold(condition(binder, test, scope))
        if isinstance(then, exp.Var):
            clause = _Clause(number, kind, tested, then.name)
        elif isinstance(then, exp.Update):
            clause = self._update(binder, then, _Clause(number, kind, tested, _UPDATE), scope)
        else:
            clause = self._insert(binder, then, _Clause(number, kind, tested, _INSERT), scope)
        if clause.action != _DO_NOTHING and (clause.action == _INSERT) != (kind == BY_TARGET):
            takes = "INSERT" if kind == BY_TARGET else "UPDATE and DELETE"
            raise InvalidSyntax(f"syntax error: this WHEN takes {takes}, and DO NOTHING", *place(node))
        return clause

    def _update(self, binder: Binder, node: exp.Expr, clause: _Clause, scope: Scope) -> _Clause:
        with reading(node) as syntax:
            sets = assignment.assignments(binder, syntax.list("expressions"), scope, self._target, self._defaults)
        clause.sets, clause.values = sets, dict(sets.values)
        clause.checks = Checks(self.definition, self._target).after(sets.values)
        clause.positions = (*sets.values, *clause.checks.generated.positions)
        return clause

    def _insert(self, binder: Binder, node: exp.Expr, clause: _Clause, scope: Scope) -> _Clause:
        clause.checks = Checks(self.definition, self._target)
        with reading(node) as syntax:
            columns, row = syntax.take("this"), syntax.take("expression")
            overriding = syntax.word("settings", *OVERRIDING)
            syntax.ignore("default")  # no row of values
        new = NewRows(self.connection, self._target, self._defaults, clause.checks, overriding)
        names = None if columns is None else [column_name(one) for one in assignment.listed(columns)]
        new.name_columns(names, self._target_scope, node)
        assigned = {} if row is None else new.values(binder, assignment.listed(row), scope, node)
        clause.values = dict(enumerate(new.complete(assigned)))
        clause.finish = new.finisher(assigned)
        return clause

    def _require_reachable(self, nodes: Sequence[exp.Expr]) -> None:
        always: set[int] = set()
        for clause, node in zip(self._clauses, nodes, strict=True):
            if clause.kind in always:
                raise InvalidSyntax("syntax error: a WHEN before this one applies in any case", *place(node))
            if clause.test is None:
                always.add(clause.kind)

    # ---- the plan

    def _plan_pairs(self, on: Expression, node: exp.Expr) -> None:
        """Plan the pairs: row id, number of the clause, ``self._columns``."""
        table, kinds = self._target.table, {clause.kind for clause in self._clauses}
        marker = Column("", BOOLEAN)
        source = tree.Project(
            self._source,
            (*((one, Reference(one.type, one)) for one in self._source.columns), (marker, Constant(BOOLEAN, True))),
        )
        kind = {True: {True: "full", False: "left"}, False: {True: "right", False: "inner"}}
        joined: tree.Relation = tree.Join(
            kind[BY_TARGET in kinds][BY_SOURCE in kinds], source, self._target.relation, on
        )
        number = Column("", INT)
        chosen = self._chosen(table.row_id, marker, kinds, node)
        passed = [(one, Reference(one.type, one)) for one in joined.columns]
        pairs: tree.Relation = tree.Project(joined, (*passed, (number, chosen)))
        computed: list[tree.Output] = []
        for clause in self._clauses:
            is_chosen = comparison("=", Reference(INT, number), Constant(INT, clause.number), node)
            pairs = clause.sets.beside(pairs, is_chosen)
            for position, value in clause.values.items():
                if tree.has_queries(value):
                    only = Case(value.type, ((is_chosen, value),), Constant(value.type, None))
                    computed.append((Column("", value.type), only))
                    clause.values[position] = Reference(value.type, computed[-1][0])
        self._plan_columns(pairs, number, computed)

    def _chosen(self, row_id: Column, marker: Column, kinds: set[int], node: exp.Expr) -> Expression:
        """The number of the clause that applies to a pair; 0: none."""
        no_row = apply("is_null", [Reference(row_id.type, row_id)], node)
        no_source = apply("is_null", [Reference(BOOLEAN, marker)], node)
        what = [(no_row, Constant(INT, BY_TARGET))] if BY_TARGET in kinds else []
        what += [(no_source, Constant(INT, BY_SOURCE))] if BY_SOURCE in kinds else []
        kind: Expression = Case(INT, tuple(what), Constant(INT, MATCHED)) if what else Constant(INT, MATCHED)
        branches = []
        for clause in self._clauses:
            test = comparison("=", kind, Constant(INT, clause.kind), node)
            test = test if clause.test is None else Junction(BOOLEAN, False, (test, clause.test))
            branches.append((test, Constant(INT, clause.number)))
        return Case(INT, tuple(branches), Constant(INT, 0))

    def _plan_columns(self, pairs: tree.Relation, number: Column, computed: list[tree.Output]) -> None:
        """Plan what is needed of the pairs: stored values, the source's, and those of queries."""
        table, returning = self._target.table, self._returning
        used = {column for clause in self._clauses for column in tree.columns_used(clause.values.values())}
        needs = used - {column for column, _ in computed}
        if returning is not None:
            needs |= returning.needs
        for clause in self._clauses:
            if clause.action == _UPDATE and clause.checks is not None:
                needs |= clause.checks.needs
        numbers = [column for clause in self._clauses for column in clause.sets.numbers]
        self._stored_positions = [n for n, column in enumerate(table.stored) if column in needs]
        stored = [table.stored[n] for n in self._stored_positions]
        others = sorted(needs - set(table.columns) - {self._action}, key=lambda column: column.number)
        inner = (table.row_id, number, *stored, *others, *numbers)
        outputs = [(Column(one.name, one.type), Reference(one.type, one)) for one in inner]
        relation: tree.Relation = tree.Project(pairs, (*outputs, *computed))
        relation = tree.With(self._shared, relation) if self._shared else relation
        self._plan = self.planned(fold_relation(relation), row_ids=True)
        self._columns = (*stored, *others, *numbers, *(column for column, _ in computed))
        self._others_at = 2 + len(stored), 2 + len(stored) + len(others)
        every = (table.row_id, number, *self._columns)
        for clause in self._clauses:
            clause.make = compile_row(list(clause.values.values()), every)
            clause.numbers_at = tuple(every.index(one) for one in clause.sets.numbers)
        if returning is not None:
            returning.plan((*table.stored, table.row_id, *others, self._action), self._shared)

    # ---- running

    def run(self, parameters: Parameters) -> Result:
        return self._run(parameters)

    @operation
    def _run(self, parameters: Parameters) -> Result:
        return self.course(parameters)

    def change(self, course: Course) -> Result:
        heap, steps = self.heap_and_steps(course)
        found = self._found(course)
        taken = [row[0] for row in found if row[0] is not None]
        if len(set(taken)) < len(taken) or any(course.has_changed(self.definition, one) for one in taken):
            message = f"table {self.definition.name}: MERGE cannot change a row twice"
            raise ProgrammingError(f"{message}: let each row of the table meet one row of the source at most")
        course.lock_first(steps, taken)
        done = [self._prepared(row, course) for row in found]
        steps.delete(one.row_id for one in done if one.action == _DELETE)
        self._change_rows(heap, steps, done)
        for one in done:
            if one.action == _INSERT:
                one.row_id = put(heap, list(one.values))
        course.note(self.definition, (one.row_id for one in done))
        if self._returning is None:
            return Result(rowcount=len(done))
        shown = self._returning.rows(course, [self._shown(heap, one) for one in done])
        return Result(self._returning.names, self._returning.types, len(done), shown)

    def _found(self, course: Course) -> list[Row]:
        """The pairs to which something happens."""
        found, pages = [], dict[str, int]()
        for row in self.rows_in_course(self._plan, course):
            if row[1] and self._clauses[row[1] - 1].action != _DO_NOTHING:
                clause, row_id = self._clauses[row[1] - 1], row[0]
                if clause.numbers_at:  # before a pair is there twice because of them
                    clause.sets.counted([tuple(row[at] for at in clause.numbers_at)])
                if row_id is not None and not isinstance(row_id, RowId):
                    row_id = row_id_of(row_id, pages)
                found.append((row_id, *row[1:]))
        return found

    def _prepared(self, found: Row, course: Course) -> _Done:
        """What a pair becomes, checked; nothing has changed yet."""
        clause = self._clauses[found[1] - 1]
        stored: list[Any] = [None] * len(self.definition.stored)
        for n, value in zip(self._stored_positions, found[2:], strict=False):
            stored[n] = value
        if clause.action == _DELETE:
            return _Done(found, _DELETE, found[0], stored)
        assert clause.make is not None
        made = clause.make(found, course.parameters, course.now)
        new = [str(value) if isinstance(value, RowId) else value for value in made]
        if clause.finish is not None:
            return _Done(found, _INSERT, RowId(0, 0), clause.finish(new, course.now))
        for position, value in zip(clause.values, new, strict=True):
            stored[position] = value
        assert clause.checks is not None
        if clause.checks.concern(clause.values):
            clause.checks.complete(stored, course.now)
        return _Done(found, _UPDATE, found[0], stored)

    def _change_rows(self, heap: Heap, steps: Steps, done: Sequence[_Done]) -> None:
        """Give rows their new values."""
        updates = [one for one in done if one.action == _UPDATE]
        names: dict[int, list[str]] = {}
        for clause in self._clauses:
            names[clause.number] = [self.definition.stored[n].name for n in clause.positions]

        def new(one: _Done) -> list[Any]:
            return [one.values[n] for n in self._clauses[one.found[1] - 1].positions]

        try:
            if has_cells(heap.columns):
                steps.update((one.row_id, dict(zip(names[one.found[1]], new(one), strict=True))) for one in updates)
            else:
                encode = {number: heap.patch_keeper(some) for number, some in names.items() if some}
                steps.change_all((one.row_id, encode[one.found[1]](new(one))) for one in updates)
        except UniqueViolation as violation:
            one = updates[steps.done]
            row = list(heap.wanting(()).fetch(one.row_id))
            row += [None] * (len(self.definition.stored) - len(row))
            for n in self._clauses[one.found[1] - 1].positions:
                row[n] = one.values[n]
            raise name_key(violation, self.definition.index(violation.index), row) from None

    def _shown(self, heap: Heap, one: _Done) -> Row:
        """The row of the table and the source's values, as RETURNING asks for them."""
        values = heap.fetch(one.row_id) if any(map(is_file, one.values)) else one.values
        start, end = self._others_at
        count = len(self._target.table.stored)  # behind which rows have what indexes are on
        return (*values[:count], str(one.row_id), *one.found[start:end], one.action)

    def explain(self) -> list[str]:
        title = f"merge into {self.definition.name}"
        return [title, *("  " + line for line in self._plan.explain()), *self.parts.explain_of(self)]
