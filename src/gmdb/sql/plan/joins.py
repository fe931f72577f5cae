"""The order of joins: which relation comes first, and whether the next one is looked up by keys or hashed.

A region is what inner joins connect, with the left, semi and anti joins of its rows.  One relation is the first; then
the one that costs least comes next, until all have come; of the orders that begin with each, the shortest is taken.

Invariants
 1. The right side of a left, semi or anti join comes after the columns that its condition refers to.
 2. Conditions on columns of a left join's right side are evaluated after it; those that can fail, after all joins.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gmdb.process.late_dataclasses import dataclass, field, replace
from gmdb.sql import tree
from gmdb.sql.plan import estimates as cost
from gmdb.sql.plan.estimates import DUCK, ROWS, Keys, Option, Planned
from gmdb.sql.plan.normal import with_conditions
from gmdb.sql.plan.terms import filtered, is_call, is_link, is_movable
from gmdb.sql.tree import Column, Expression, Relation, columns_of, conjunction, conjuncts, has_queries

if TYPE_CHECKING:
    from gmdb.sql.plan.physical import Planner

STARTS_MAX = 8  # relations that are tried as the first one


@dataclass(eq=False)
class Leaf:
    """A relation of the region.  ``parts``: of a left, semi or anti join, its condition; else they are the region's."""

    relation: Relation
    kind: str = "inner"
    parts: tuple[Expression, ...] = ()
    needs: set[Column] = field(default_factory=set)  # of others, for ``parts``

    def __post_init__(self) -> None:
        self.columns = set(self.relation.columns)


@dataclass(frozen=True)
class State:
    """Some leaves that are joined."""

    tree: Relation
    rows: float
    total: float
    startup: float
    columns: frozenset[Column]
    waiting: tuple[Leaf, ...]
    parts: tuple[Expression, ...]  # that are not evaluated yet


class Region:
    """Joins whose order is free."""

    def __init__(self, planner: Planner, relation: Relation) -> None:
        self._planner = planner
        self._leaves: list[Leaf] = []
        self._parts: list[Expression] = []
        self._late: list[Expression] = []
        self._looked_up: dict[tuple[int, tuple[int, ...]], Planned] = {}
        self._firsts: dict[int, tuple[Leaf, tuple[Expression, ...]]] = {}
        self._flatten(relation)
        columns = {column for leaf in self._leaves for column in leaf.columns}
        for leaf in self._leaves:
            leaf.needs = {c for part in leaf.parts for c in columns_of(part)} & (columns - leaf.columns)

    @staticmethod
    def is_one(relation: Relation) -> bool:
        while isinstance(relation, tree.Filter):
            relation = relation.source
        return isinstance(relation, tree.Join) and relation.kind != "full" and not relation.lateral

    def _flatten(self, relation: Relation) -> None:
        if not self.is_one(relation):
            self._leaves.append(Leaf(relation))
        elif isinstance(relation, tree.Filter):
            self._flatten(relation.source)
            self._add_condition(relation.condition)
        elif isinstance(relation, tree.Join) and relation.kind == "inner":
            self._flatten(relation.left)
            self._flatten(relation.right)
            self._add_condition(relation.condition)
        elif isinstance(relation, tree.Join):
            self._flatten(relation.left)
            self._leaves.append(Leaf(relation.right, relation.kind, tuple(conjuncts(relation.condition))))

    def _add_condition(self, condition: Expression | None) -> None:
        for part in conjuncts(condition):
            is_early = (is_movable(part) and not has_queries(part)) or self._joins(part)
            (self._parts if is_early else self._late).append(part)

    def _joins(self, part: Expression) -> bool:
        """Whether it is an equality between the columns of two relations."""
        if not is_link(part):
            return False
        sides = [columns_of(side) for side in part.children()]
        owners = [[leaf for leaf in self._leaves if side & leaf.columns] for side in sides]
        return len(owners[0]) == len(owners[1]) == 1 and owners[0] != owners[1]

    # ---- orders

    def planned(self, keys: Keys | None) -> Planned:
        if keys is not None:
            option = self._in_order(keys)
            return Planned(0.0 if option is None else option[1], () if option is None else (option[0],), None)
        by_rows = self._shortest(ROWS, False)
        sooner = self._shortest(ROWS, True) if by_rows is not None else None
        by_duck = self._shortest(DUCK, False)
        rows = min(state.rows for state in (by_rows, by_duck) if state is not None)
        ways = [by_rows] if sooner is None or by_rows is None or sooner.tree is by_rows.tree else [by_rows, sooner]
        options = tuple(_option(state) for state in ways if state is not None)
        planned = Planned(rows, options, None if by_duck is None else _option(by_duck))
        return self._planner.filtered(planned, self._late)

    def _shortest(self, executor: str, soon: bool) -> State | None:
        best: State | None = None
        firsts = [leaf for leaf in self._leaves if leaf.kind == "inner"]
        others = [leaf for leaf in self._leaves if leaf.kind == "semi" and self._distinct(leaf) is not None]
        firsts.sort(key=lambda leaf: self._planner.plan(leaf.relation).rows)
        for leaf in [*firsts[:STARTS_MAX], *others]:
            state = self._begun(leaf, executor)
            state = None if state is None else self._completed(state, executor, soon, best)
            if state is not None and (best is None or _length(state, soon) < _length(best, soon)):
                best = state
        return best

    def _begun(self, leaf: Leaf, executor: str, keys: Keys | None = None) -> State | None:
        waiting = tuple(other for other in self._leaves if other is not leaf)
        parts = tuple(self._parts)
        if leaf.kind == "semi":
            distinct = self._distinct(leaf)
            assert distinct is not None
            leaf, parts = distinct[0], (*parts, *distinct[1])
        planned = self._planner.plan(leaf.relation, keys)
        option = planned.best(executor)
        if option is None:
            return None
        here, later = _ready(parts, leaf.columns, self._others(leaf, waiting))
        state = State(
            option.tree, planned.rows, option.total, option.startup, frozenset(leaf.columns), waiting, tuple(later)
        )
        return self._filtered(state, here)

    @staticmethod
    def _others(leaf: Leaf, waiting: Sequence[Leaf]) -> set[Column]:
        return {column for other in waiting for column in other.columns} - leaf.columns

    def _completed(self, state: State, executor: str, soon: bool, best: State | None) -> State | None:
        while state.waiting:
            ready = [leaf for leaf in state.waiting if leaf.needs <= state.columns]
            inner_wait = any(leaf.kind in ("inner", "semi") for leaf in state.waiting)
            ready = [
                leaf
                for leaf in ready
                if not inner_wait or leaf.kind in ("inner", "semi") or all(map(is_movable, leaf.parts))
            ]
            linked = [leaf for leaf in ready if leaf.kind != "inner" or self._is_linked(state, leaf)]
            if not any(leaf.kind == "inner" for leaf in linked) and not any(leaf.kind != "inner" for leaf in linked):
                linked = ready
            steps = [step for leaf in linked if (step := self._joined(state, leaf, executor, soon)) is not None]
            if not steps:
                return None
            state = min(steps, key=lambda step: _length(step, soon) + step.rows)
            if best is not None and _length(state, soon) >= _length(best, soon):
                return None
        return state

    def _is_linked(self, state: State, leaf: Leaf) -> bool:
        return any((used := columns_of(part)) & state.columns and used & leaf.columns for part in state.parts)

    def _in_order(self, keys: Keys) -> tuple[Option, float] | None:
        """The joins begun with the relation by whose columns rows are sorted; they keep its order."""
        used = {key.value.column for key in keys if isinstance(key.value, tree.Reference)}
        for leaf in self._leaves:
            if leaf.kind == "inner" and used <= leaf.columns and len(used) == len(keys):
                state = self._begun(leaf, ROWS, keys)
                state = None if state is None else self._completed(state, ROWS, True, None)
                if state is not None:
                    planned = self._planned_alone(state)
                    option = planned.best(ROWS)
                    return None if option is None else (option, planned.rows)
        return None

    def _planned_alone(self, state: State) -> Planned:
        return self._planner.filtered(Planned(state.rows, (_option(state),), None), self._late)

    # ---- one step

    def _joined(self, state: State, leaf: Leaf, executor: str, soon: bool) -> State | None:
        """The state with one more leaf, in the shortest way."""
        waiting = tuple(other for other in state.waiting if other is not leaf)
        columns = state.columns | (leaf.columns if leaf.kind in ("inner", "left") else set())
        here, later = _ready(state.parts, columns, {c for other in waiting for c in other.columns})
        parts = here if leaf.kind == "inner" else list(leaf.parts)
        right = self._planner.plan(leaf.relation)
        rows = self._rows(state.rows, right.rows, leaf.kind, parts)
        ways = [self._hashed(state, leaf, executor, parts, right, rows)]
        if executor == ROWS and parts:
            ways.append(self._by_keys(state, leaf, parts, rows))
        known = [way for way in ways if way is not None]
        if not known:
            return None
        best = min(known, key=lambda way: _length(way, soon))
        best = replace(best, columns=frozenset(columns), waiting=waiting, parts=tuple(later))
        return best if leaf.kind == "inner" else self._filtered(best, here)

    def _rows(self, left: float, right: float, kind: str, parts: Sequence[Expression]) -> float:
        matches = right
        for part in parts:
            matches *= self._planner.estimates.share(part)
        if kind == "inner":
            return max(left * matches, 0.01)
        if kind == "left":
            return left * max(matches, 1.0)
        share = min(matches, 1.0)
        return max(left * (share if kind == "semi" else max(1.0 - share, 0.1)), 0.01)

    def _hashed(
        self, state: State, leaf: Leaf, executor: str, parts: list[Expression], right: Planned, rows: float
    ) -> State | None:
        option = right.best(executor)
        if option is None or any(map(has_queries, parts)):
            return None
        pairs = state.rows * right.rows
        is_equal = any(_is_link(part, state.columns, leaf.columns) for part in parts)
        if executor == ROWS:
            spent = cost.HASHED * (state.rows + right.rows) if is_equal else cost.EVALUATED * pairs
        else:
            spent = cost.DUCK_NODE + cost.DUCK_ROW * ((state.rows + right.rows + rows) if is_equal else pairs)
        node = self._planner.note(tree.Join(leaf.kind, state.tree, option.tree, conjunction(parts)), rows)
        startup = state.startup + option.total + (cost.HASHED * right.rows if executor == ROWS else 0.0)
        return replace(state, tree=node, rows=rows, total=state.total + option.total + spent, startup=startup)

    def _by_keys(self, state: State, leaf: Leaf, parts: list[Expression], rows: float) -> State | None:
        """The leaf looked up for each row."""
        down = [part for part in parts if (is_movable(part) or is_link(part)) and not has_queries(part)]
        rest = [part for part in parts if not any(part is one for one in down)]
        key = id(leaf), tuple(map(id, down))
        planned = self._looked_up.get(key)
        if planned is None:
            planned = self._planner.plan(with_conditions(leaf.relation, down))
            self._looked_up[key] = planned
        planned = self._planner.filtered(planned, rest)
        option = planned.best(ROWS)
        if option is None:
            return None
        each = option.startup + 0.5 * (option.total - option.startup) if leaf.kind == "semi" else option.total
        node = self._planner.note(tree.Join(leaf.kind, state.tree, option.tree, None, lateral=True), rows)
        return replace(state, tree=node, rows=rows, total=state.total + each * max(state.rows, 1.0))

    def _filtered(self, state: State, parts: Sequence[Expression]) -> State:
        """The state with conditions on its rows."""
        if not parts:
            return state
        rows = state.rows
        for part in parts:
            rows *= self._planner.estimates.share(part)
        node = self._planner.note(filtered(state.tree, list(parts)), rows)
        return replace(state, tree=node, rows=max(rows, 0.01))

    def _distinct(self, leaf: Leaf) -> tuple[Leaf, tuple[Expression, ...]] | None:
        """A semi join's right side as a relation that is joined like others, and by what; None if it cannot be one.

        Of rows that are equal in what the join goes by, it has one: each row of the other side meets one at most.
        """
        if id(leaf) in self._firsts:
            return self._firsts[id(leaf)]
        outputs: list[tuple[Column, Expression]] = []
        links: list[Expression] = []
        for part in leaf.parts:
            sides = _sides(part, leaf.columns)
            if sides is None or not is_movable(part):
                return None
            own, other = sides
            column = Column("key", own.type)
            outputs.append((column, own))
            self._planner.used.add(column)
            assert isinstance(part, tree.Call)
            new = tree.Reference(own.type, column)
            arguments = (new, other) if part.arguments[0] is own else (other, new)
            links.append(replace(part, arguments=arguments))
        relation = tree.Distinct(tree.Project(leaf.relation, tuple(outputs)))
        first = self._firsts[id(leaf)] = Leaf(relation), tuple(links)
        return first


def _option(state: State) -> Option:
    return Option(state.tree, state.total, state.startup)


def _length(state: State, soon: bool) -> float:
    """How long it takes; or until the first rows come."""
    return state.startup + 0.05 * state.total if soon else state.total


def _ready(
    parts: Sequence[Expression], columns: set[Column] | frozenset[Column], others: set[Column]
) -> tuple[list[Expression], list[Expression]]:
    """The conditions that can be evaluated over some columns, and those that wait for others."""
    here: list[Expression] = []
    later: list[Expression] = []
    for part in parts:
        (later if columns_of(part) & (others - columns) else here).append(part)
    return here, later


def _sides(part: Expression, columns: set[Column]) -> tuple[Expression, Expression] | None:
    """An equality's side with these columns, and the one without; None if it is none of both."""
    if not is_call(part, "=") or not isinstance(part, tree.Call):
        return None
    left, right = part.arguments
    used = [columns_of(left), columns_of(right)]
    if used[0] and used[0] <= columns and not used[1] & columns:
        return left, right
    if used[1] and used[1] <= columns and not used[0] & columns:
        return right, left
    return None


def _is_link(part: Expression, lefts: frozenset[Column], rights: set[Column]) -> bool:
    sides = _sides(part, rights)
    return sides is not None and bool(columns_of(sides[1]) & lefts)
