"""Changing trees in which queries are shared: what reads a query of WITH is changed to read the new one.

Nothing is changed in place, so that statements may have several trees that share a query.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gmdb.process.late_dataclasses import replace
from gmdb.sql import tree
from gmdb.sql.tree import Expression, Relation, rebuilt

ChangeExpression = Callable[[Expression], Expression]
ChangeRelation = Callable[[Relation], Relation]


def everywhere(expression: Expression, change: ChangeRelation) -> Expression:
    """The expression with all queries within it changed."""
    return rebuilt(rebuilt(expression, lambda part: everywhere(part, change)), change, Relation)


def with_sources(relation: Relation, change: ChangeRelation) -> Relation:
    """The relation with its sources changed, the shared queries of a WITH included."""
    if isinstance(relation, tree.With):
        return _with_shared(relation, change(relation.body), change)
    return rebuilt(relation, change, Relation) if any(True for _ in relation.sources()) else relation


def _with_shared(relation: tree.With, body: Relation, change: ChangeRelation) -> Relation:
    """A WITH whose queries are changed; what reads them is changed to read the new ones."""
    cells: dict[int, list[tree.Shared]] = {}
    news: list[tree.Shared] = []
    for shared in relation.shared:
        query = reading_others(change(shared.query), cells)
        cell = cells[id(shared)] = [shared]
        again = None if shared.again is None else reading_others(change(shared.again), cells)
        cell[0] = replace(shared, query=query, again=again)
        news.append(cell[0])
    return tree.With(tuple(news), reading_others(body, cells))


def reading_others(relation: Relation, cells: Mapping[int, list[tree.Shared]]) -> Relation:
    """The relation with the readings of some shared queries, by their identities, replaced by those of others."""
    if not cells:
        return relation

    def change(one: Relation) -> Relation:
        if isinstance(one, tree.Reading):
            cell = cells.get(id(one.cell[0]))
            return one if cell is None else replace(one, cell=cell)
        return rebuilt(with_sources(one, change), lambda part: everywhere(part, change))

    return change(relation)


def with_expressions(relation: Relation, change: ChangeExpression) -> Relation:
    """The relation with all expressions in it changed, all the way down."""
    relation = with_sources(relation, lambda source: with_expressions(source, change))
    return rebuilt(relation, change)
