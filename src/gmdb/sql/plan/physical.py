"""From a normalised tree to the trees that run: the cheapest for each executor, by estimates.

Every relation is planned for both executors.  The rows executor uses indexes and starts at once; DuckDB takes a while
to start, and then is fast.  Within a plan for DuckDB, what the rows executor does sooner is ``Materialized``.
Not here: order of joins (joins.py), paths (paths.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from gmdb.process.late_dataclasses import replace
from gmdb.sql import tree
from gmdb.sql.plan import estimates as cost
from gmdb.sql.plan.choosing import Choice, Chooser
from gmdb.sql.plan.estimates import DUCK, ROWS, Estimates, Keys, Option, Planned
from gmdb.sql.plan.joins import Region
from gmdb.sql.plan.paths import Access, Materialized, Path, Span
from gmdb.sql.plan.terms import filtered, negation_of_null, substituted
from gmdb.sql.sharing import everywhere
from gmdb.sql.tree import (
    Column,
    Expression,
    Relation,
    SortKey,
    conjuncts,
    everything,
    has_queries,
    outer_columns,
    rebuilt,
)
from gmdb.sql.types import BIGINT

_FEW = 100.0  # rows of what nothing is known of


class Planner:
    """Plans one statement.  ``rows``: how many rows each node of its trees is thought to give, by identity."""

    def __init__(self, estimates: Estimates, used: set[Column], without_duckdb: bool = False) -> None:
        """``used``: the columns whose values are needed.  ``without_duckdb``: it is to do only what cannot be done by
        rows, whatever that takes."""
        self._without_duckdb = without_duckdb
        self.estimates = estimates
        self.rows: dict[int, float] = {}
        self.used = used
        self.has_limit = False
        self._is_conditional = False  # what is planned stands in a branch that perhaps no row takes
        self._trees: list[Relation] = []  # which keep identities what they are
        self._plans: dict[int, tuple[Relation, Planned]] = {}
        self._cells: dict[int, dict[str, tuple[list[tree.Shared], float]]] = {}

    def plan(self, relation: Relation, keys: Keys | None = None) -> Planned:
        """``keys``: only ways by which rows come sorted."""
        if keys is not None:
            return self._dispatch(relation, keys)
        known = self._plans.get(id(relation))
        if known is None:
            known = self._plans[id(relation)] = relation, self._dispatch(relation, None)
        return known[1]

    def note(self, node: Relation, rows: float) -> Relation:
        self.rows[id(node)] = rows
        self._trees.append(node)
        return node

    def _dispatch(self, relation: Relation, keys: Keys | None) -> Planned:
        source = relation.source if isinstance(relation, tree.Filter) else relation
        if isinstance(source, tree.Table):
            parts = conjuncts(relation.condition) if isinstance(relation, tree.Filter) else []
            return self._table(source, parts, keys)
        if Region.is_one(relation):
            return self.with_handover(Region(self, relation).planned(keys))
        if isinstance(relation, tree.Filter):
            return self.filtered(self.plan(relation.source, keys), conjuncts(relation.condition))
        if isinstance(relation, tree.Project):
            for column, value in relation.outputs:
                self.estimates.alias(column, value)
            inner = None if keys is None else _below(keys, relation)
            if keys is not None and inner is None:
                return Planned(0.0, (), None)
            return self._over(relation, self.plan(relation.source, inner))
        if keys is not None:
            return Planned(0.0, (), None)
        return self._unordered(relation)

    def _unordered(self, relation: Relation) -> Planned:
        if isinstance(relation, tree.Group):
            return self.with_handover(self._group(relation))
        if isinstance(relation, tree.Sort):
            return self._sort(relation)
        if isinstance(relation, tree.Limit):
            return self.with_handover(self._limit(relation))
        if isinstance(relation, tree.Distinct):
            source = self.plan(relation.source)
            return self.with_handover(self._over(relation, source, self._groups(source.rows, relation), cost.HASHED))
        if isinstance(relation, tree.Window):
            source = self.plan(relation.source)
            return self._over(relation, replace(source, by_rows=()))
        if isinstance(relation, tree.SetOperation):
            return self._set_operation(relation)
        if isinstance(relation, tree.With):
            return self._with(relation)
        if isinstance(relation, tree.Reading):
            return self._reading(relation)
        if isinstance(relation, tree.Join):
            return self._lateral(relation)
        sources = list(relation.sources())
        if sources:
            return self._over(relation, self.plan(sources[0]))
        rows = _count(relation)
        return self._both(rows, lambda executor: self._own(relation, executor, rows))

    # ---- expressions

    def _own(self, relation: Relation, executor: str, times: float) -> Option | None:
        """A node with the queries in its expressions planned, and what it takes to evaluate them so many times."""
        spent, startup, count, is_fit = 0.0, 0.0, 0, True

        def change(query: Relation) -> Relation:
            nonlocal spent, startup, is_fit
            option = self.plan(query).best(executor)
            if option is None:
                is_fit = False
                return query
            is_correlated = executor == ROWS and bool(outer_columns(query))
            spent += option.total * (max(times, 1.0) if is_correlated else 1.0)
            startup += 0.0 if is_correlated else option.total
            return option.tree

        def changed(expression: Expression) -> Expression:
            nonlocal count
            count += 1
            if not has_queries(expression):
                return expression
            before = self._is_conditional
            self._is_conditional |= any(isinstance(part, tree.Case | tree.Coalesce) for part in expression.walk())
            new = everywhere(expression, change)
            self._is_conditional = before
            return new

        node = rebuilt(relation, changed)
        each = cost.EVALUATED * count if executor == ROWS else cost.DUCK_ROW
        fixed = 0.0 if executor == ROWS else cost.DUCK_NODE
        return Option(node, fixed + each * times + spent, startup) if is_fit else None

    def _both(self, rows: float, make: Callable[[str], Option | None]) -> Planned:
        by_rows, by_duck = make(ROWS), make(DUCK)
        for option in (by_rows, by_duck):
            if option is not None:
                self.note(option.tree, rows)
        return Planned(rows, () if by_rows is None else (by_rows,), by_duck)

    def _over(self, relation: Relation, source: Planned, rows: float | None = None, each: float = 0.0) -> Planned:
        """A node with one source; ``each``: what a row of the source takes beside expressions."""
        rows = source.rows if rows is None else rows
        own = {executor: self._own(relation, executor, source.rows) for executor in (ROWS, DUCK)}

        def over(option: Option, executor: str, each: float) -> Iterable[Option]:
            top = own[executor]
            if top is not None:
                node = self.note(replace(top.tree, source=option.tree), rows)  # type: ignore[call-arg]
                spent = top.total + each * source.rows
                yield Option(node, option.total + spent, option.startup + top.startup)

        by_rows = [new for option in source.by_rows for new in over(option, ROWS, each)]
        by_duck = [] if source.by_duck is None else list(over(source.by_duck, DUCK, 0.0))
        return Planned(rows, tuple(by_rows), by_duck[0] if by_duck else None)

    def filtered(self, source: Planned, parts: Sequence[Expression]) -> Planned:
        if not parts:
            return source
        rows = source.rows
        for part in parts:
            rows *= self.estimates.share(part)
        return self._over(filtered(Relation(), parts), source, max(rows, 0.01))

    def with_handover(self, planned: Planned) -> Planned:
        """The plan, in which DuckDB is handed the rows if the rows executor has them sooner."""
        option, duck = planned.best(ROWS), planned.by_duck
        if option is None or duck is None:
            return planned
        if self._is_conditional and _can_fail(option.tree):  # it would be computed even if no row takes the branch
            return planned
        total = option.total + cost.MATERIALIZE_START + cost.HANDED * planned.rows
        columns = option.tree.columns
        if (
            (total >= duck.total and not self._without_duckdb)
            or not columns
            or outer_columns(option.tree)
            or _reads_others(option.tree)
        ):
            return planned
        used = tuple(column for column in columns if column in self.used) or columns[:1]
        node = Materialized(option.tree, used)
        return replace(planned, by_duck=Option(self.note(node, planned.rows), total, total))

    # ---- tables

    def _table(self, table: tree.Table, parts: list[Expression], keys: Keys | None) -> Planned:
        self.estimates.learn(table)
        chooser = Chooser(table, parts, self.estimates)
        whole = self.estimates.rows(table.definition)
        if keys is not None:
            options = [self._by_path(table, parts, choice, chooser.rows) for choice in chooser.in_order(keys)]
            return Planned(chooser.rows, tuple(one for one in options if one is not None), None)
        scan = Choice(Path(estimate=whole), frozenset())
        choices = [scan, *chooser.choices()]
        rows = min([chooser.rows, *(c.path.estimate for c in choices if c.path.estimate is not None)])
        rows = max(rows, 0.01)
        by_rows = [one for c in choices if (one := self._by_path(table, parts, c, rows)) is not None]
        best = cost.cheapest(by_rows)
        alone = [scan, *Chooser(table, parts, self.estimates, alone=True).choices()]
        by_duck = [one for c in alone if (one := self._by_stream(table, parts, c, rows)) is not None]
        duck = cost.cheapest(by_duck)
        planned = Planned(rows, () if best is None else (best,), duck)
        return self.with_handover(planned) if len(alone) < len(choices) else planned

    def _by_path(self, table: tree.Table, parts: list[Expression], choice: Choice, rows: float) -> Option | None:
        path, visited = choice.path, choice.path.estimate or self.estimates.rows(table.definition)
        if path.is_scan:
            spent = cost.SCANNED * visited
        else:
            each = cost.BY_KEY * (0.6 if self._covers(table, path) else 1.0)
            spent = cost.PROBE * max(len(path.spans), 1) + each * visited
        holder = self._own(Access(table, path), ROWS, 1.0) if path.spans or path.row_ids else Option(table, 0.0)
        if holder is None:
            return None
        node: Relation = table if path.is_scan else self._with_planned_keys(table, path)
        option = Option(self.note(node, visited), spent + holder.startup, 0.0)
        rest = [part for part in parts if id(part) not in choice.decided]
        source = Planned(visited, (option,), None)
        (only,) = self.filtered(source, rest).by_rows or (None,)
        if only is not None:
            self.note(only.tree, rows)
        return only

    def _with_planned_keys(self, table: tree.Table, path: Path) -> Access:
        def change(value: Expression) -> Expression:
            return everywhere(value, self._tree_by_rows) if has_queries(value) else value

        spans = tuple(_changed_span(span, change) for span in path.spans)
        row_ids = None if path.row_ids is None else tuple(map(change, path.row_ids))
        return Access(table, replace(path, spans=spans, row_ids=row_ids))

    def _tree_by_rows(self, query: Relation) -> Relation:
        option = self.plan(query).best(ROWS)
        return query if option is None else option.tree

    def _by_stream(self, table: tree.Table, parts: list[Expression], choice: Choice, rows: float) -> Option | None:
        path, visited = choice.path, choice.path.estimate or self.estimates.rows(table.definition)
        each = cost.DUCK_SCANNED if path.is_scan else cost.DUCK_BY_KEY
        node: Relation = table if path.is_scan else Access(table, path)
        option = Option(self.note(node, visited), cost.DUCK_STREAM + each * visited)
        rest = [part for part in parts if id(part) not in choice.decided]
        planned = self.filtered(Planned(visited, (), option), rest).by_duck
        if planned is not None:
            self.note(planned.tree, rows)
        return planned

    def _covers(self, table: tree.Table, path: Path) -> bool:
        if path.index is None:
            return False
        own = {table.stored[n] for n in path.index.positions if n < len(table.stored)}
        return all(column in own or column not in self.used for column in table.columns)

    # ---- what needs all rows of a source, or only the first ones

    def _sort(self, relation: tree.Sort) -> Planned:
        source = self.plan(relation.source)
        count = max(source.rows, 2.0)
        planned = self._over(relation, source, source.rows, cost.SORTED * math.log2(count) / 10)
        by_rows = tuple(replace(option, startup=option.total) for option in planned.by_rows)
        by_duck = planned.by_duck and replace(planned.by_duck, startup=planned.by_duck.total)
        sorted_by_index = self.plan(relation.source, relation.keys).by_rows
        return Planned(source.rows, (*sorted_by_index, *by_rows), by_duck)

    def _limit(self, relation: tree.Limit) -> Planned:
        self.has_limit = True
        source = self.plan(relation.source)
        count = _number(relation.count, 20.0) + _number(relation.offset, 0.0)
        rows = min(count, source.rows)
        share = rows / max(source.rows, 0.01)

        def first(option: Option | None) -> Option | None:
            return option and replace(option, total=cost.cut(option.total, option.startup, share))

        by_rows = [one for option in source.by_rows if (one := first(option)) is not None]
        best = cost.cheapest(by_rows)
        cheaper = Planned(rows, () if best is None else (best,), first(source.by_duck))
        return self._over(relation, cheaper, rows)

    def _groups(self, rows: float, relation: tree.Group | tree.Distinct) -> float:
        """How many groups of equal values there are among so many rows."""
        if isinstance(relation, tree.Group):
            values: Iterable[Expression] = [value for _, value in relation.keys]
        else:
            values = [tree.Reference(column.type, column) for column in relation.columns]
        groups = 1.0
        for value in values:
            known = self.estimates.distinct(value.column) if isinstance(value, tree.Reference) else None
            groups *= max(rows / 10, 1.0) if known is None else known
        return min(groups, rows)

    def _group(self, relation: tree.Group) -> Planned:
        source = self.plan(relation.source)
        rows = self._groups(source.rows, relation) if relation.keys else 1.0
        planned = self._over(relation, source, rows, cost.HASHED)
        by_rows = tuple(replace(option, startup=option.total) for option in planned.by_rows)
        if relation.sets is not None or any(call.aggregation.fold is None for _, call in relation.aggregates):
            by_rows = ()
        ends = self._ends(relation)
        return replace(planned, by_rows=(*by_rows, *ends))

    def _ends(self, relation: tree.Group) -> tuple[Option, ...]:
        """min and max are the first row and the last one of an index."""
        source = relation.source
        table = source.source if isinstance(source, tree.Filter) else source
        if relation.keys or relation.sets is not None or not relation.aggregates or not isinstance(table, tree.Table):
            return ()
        parts = conjuncts(source.condition) if isinstance(source, tree.Filter) else []
        joined: Option | None = None
        for column, call in relation.aggregates:
            option = self._end(table, parts, column, call)
            if option is None:
                return ()
            node = option.tree if joined is None else tree.Join("inner", joined.tree, option.tree)
            total = option.total + (0.0 if joined is None else joined.total)
            joined = Option(self.note(node, 1.0), total, total)
        return () if joined is None else (joined,)

    def _end(self, table: tree.Table, parts: list[Expression], column: Column, call: tree.Aggregate) -> Option | None:
        name = call.aggregation.name
        if (
            name not in ("min", "max")
            or call.condition is not None
            or not isinstance(call.arguments[0], tree.Reference)
        ):
            return None
        value = call.arguments[0]
        descends = name == "max"
        if descends and value.column.nullable:
            parts = [*parts, negation_of_null(value)]
        planned = self._table(table, parts, [SortKey(value, descends, descends)])
        best = cost.cheapest(planned.by_rows)
        if best is None:
            return None
        total = cost.cut(best.total, best.startup, 1 / max(planned.rows, 1.0))
        first = self.note(tree.Limit(best.tree, tree.Constant(BIGINT, 1)), 1.0)
        return Option(self.note(tree.Group(first, (), ((column, call),)), 1.0), total, total)

    # ---- several sources

    def _set_operation(self, relation: tree.SetOperation) -> Planned:
        left, right = self.plan(relation.left), self.plan(relation.right)
        rows = left.rows + right.rows if relation.kind == "union" else left.rows

        def make(executor: str) -> Option | None:
            sides = [one.best(executor) for one in (left, right)]
            if sides[0] is None or sides[1] is None:
                return None
            each = cost.HASHED if executor == ROWS else cost.DUCK_ROW
            spent = 0.0 if relation.every and relation.kind == "union" else each * (left.rows + right.rows)
            node = replace(relation, left=sides[0].tree, right=sides[1].tree)
            return Option(node, sides[0].total + sides[1].total + spent, sides[0].startup)

        return self._both(rows, make)

    def _lateral(self, relation: tree.Join) -> Planned:
        """A join whose right side refers to the left one, or in which neither side's rows may be left out."""
        left, right = self.plan(relation.left), self.plan(relation.right)
        rows = left.rows * right.rows
        for part in conjuncts(relation.condition):
            rows *= self.estimates.share(part)
        rows = max(rows, left.rows, right.rows) if relation.kind == "full" else max(rows, 0.01)

        def make(executor: str) -> Option | None:
            sides, top = [one.best(executor) for one in (left, right)], self._own(relation, executor, rows)
            if sides[0] is None or sides[1] is None or top is None:
                return None
            each = cost.HASHED if executor == ROWS else cost.DUCK_ROW
            times = left.rows if relation.lateral and executor == ROWS else 1.0
            spent = top.total + sides[0].total + sides[1].total * times + each * (left.rows + right.rows)
            node = replace(top.tree, left=sides[0].tree, right=sides[1].tree)  # type: ignore[call-arg]
            return Option(node, spent, sides[0].startup if relation.lateral else spent)

        planned = self._both(rows, make)
        return self.with_handover(planned) if self._without_duckdb else planned

    def _with(self, relation: tree.With) -> Planned:
        spent = {ROWS: 0.0, DUCK: 0.0}
        news: dict[str, list[tree.Shared]] = {ROWS: [], DUCK: []}
        is_fit = {ROWS: True, DUCK: True}
        for shared in relation.shared:
            query = self.plan(shared.query)
            cells = {executor: ([shared], query.rows) for executor in (ROWS, DUCK)}
            self._cells[id(shared)] = cells
            again = None if shared.again is None else self.plan(shared.again)
            for executor in (ROWS, DUCK):
                option = query.best(executor)
                step = None if again is None else again.best(executor)
                if option is None or (again is not None and (step is None or executor == ROWS)):
                    is_fit[executor] = False
                    continue
                node = None if step is None else step.tree
                new = replace(shared, query=option.tree, again=node)
                cells[executor][0][0] = new
                news[executor].append(new)
                spent[executor] += option.total + (0.0 if step is None else 10 * step.total)
        body = self.plan(relation.body)

        def make(executor: str) -> Option | None:
            option = body.best(executor)
            if option is None or not is_fit[executor]:
                return None
            node = tree.With(tuple(news[executor]), option.tree)
            return Option(node, option.total + spent[executor], option.startup + spent[executor])

        return self._both(body.rows, make)

    def _reading(self, relation: tree.Reading) -> Planned:
        cells = self._cells[id(relation.cell[0])]
        rows = cells[ROWS][1]

        def make(executor: str) -> Option:
            each = cost.EVALUATED if executor == ROWS else cost.DUCK_ROW
            return Option(replace(relation, cell=cells[executor][0]), each * rows)

        return self._both(rows, make)


def _changed_span(span: Span, change: Callable[[Expression], Expression]) -> Span:
    low, high = (end and replace(end, value=change(end.value)) for end in (span.low, span.high))
    return Span(tuple(map(change, span.equal)), low, high)


def _below(keys: Keys, relation: tree.Project) -> Keys | None:
    """What rows are sorted by, as what the outputs are made of."""
    values = dict(relation.outputs)
    below = [replace(key, value=substituted(key.value, values)) for key in keys]
    return below if all(tree.columns_of(key.value) and not tree.is_volatile(key.value) for key in below) else None


def _count(relation: Relation) -> float:
    """How many rows a relation without sources has."""
    if isinstance(relation, tree.Values):
        return float(len(relation.rows))
    if isinstance(relation, tree.Series):
        start, stop, step = _number(relation.start, 0.0), _number(relation.stop, _FEW), _number(relation.step, 1.0)
        return max((stop - start) / max(step, 1.0), 1.0)
    if isinstance(relation, tree.Unnest):
        known = [len(one.value or ()) for one in relation.arrays if isinstance(one, tree.Constant)]
        return float(max(known, default=cost.ELEMENTS))
    return _FEW if relation.columns else 1.0


def _number(expression: Expression | None, otherwise: float) -> float:
    if isinstance(expression, tree.Constant) and isinstance(expression.value, int):
        return float(max(expression.value, 0))
    return 0.0 if expression is None and otherwise == 0.0 else otherwise if expression is not None else math.inf


def _can_fail(node: Relation) -> bool:
    values = (value for one in everything(node) for value in one.expressions())
    return any(isinstance(part, tree.Call) and part.operation.fails for value in values for part in value.walk())


def _reads_others(node: Relation) -> bool:
    """Whether it reads a shared query that is not its own."""
    nodes = list(everything(node))
    own = {id(shared) for one in nodes if isinstance(one, tree.With) for shared in one.shared}
    return any(isinstance(one, tree.Reading) and id(one.cell[0]) not in own for one in nodes)
