"""Pruning: outputs that nobody asks for are left out of a tree, so that nobody computes or reads them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from gmdb.sql.plan.terms import everywhere, with_own_expressions, with_sources
from gmdb.sql.tree import (
    Column,
    Distinct,
    Expression,
    Group,
    One,
    Project,
    QueryComparison,
    Relation,
    SetOperation,
    Shared,
    Table,
    Window,
    With,
    everything,
)


def used_columns(relation: Relation) -> set[Column]:
    """The columns that somebody asks for: whoever runs it, expressions, and what compares whole rows."""
    used: set[Column] = set(relation.columns)
    for one in everything(relation):
        used.update(_asked(one))
        for expression in one.expressions():
            for part in expression.walk():
                used.update(_mentioned(part))
    return used


def _mentioned(part: Expression) -> Iterable[Column]:
    column = getattr(part, "column", None)
    if isinstance(column, Column):
        yield column
    for query in part.relations():
        if isinstance(part, QueryComparison):
            continue
        yield from query.columns[:1]


def _asked(relation: Relation) -> Iterable[Column]:
    """The columns of its sources that a relation takes by their positions."""
    if isinstance(relation, SetOperation):
        return {*relation.left.columns, *relation.right.columns}
    if isinstance(relation, Distinct):
        return relation.source.columns
    if isinstance(relation, With):
        return {column for shared in relation.shared for column in _of_shared(shared)}
    return ()


def _of_shared(shared: Shared) -> set[Column]:
    queries = [query for query in (shared.query, shared.again) if query is not None]
    return {column for query in queries for column in query.columns} | set(shared.columns)


def pruned(relation: Relation) -> Relation:
    """The tree without outputs, aggregates and window calls that nobody asks for."""
    while True:
        used = used_columns(relation)
        if not any(_is_needless(one, used) for one in everything(relation)):
            return relation
        relation = _without(relation, used)


def _is_needless(relation: Relation, used: set[Column]) -> bool:
    return _kept(relation, used) is not relation


def _kept(relation: Relation, used: set[Column]) -> Relation:
    if isinstance(relation, Project):
        outputs = tuple(output for output in relation.outputs if output[0] in used)
        return relation if len(outputs) == len(relation.outputs) else replace(relation, outputs=outputs)
    if isinstance(relation, Group):
        aggregates = tuple(one for one in relation.aggregates if one[0] in used)
        if not aggregates and not relation.keys and relation.sets is None:
            return One()
        return relation if len(aggregates) == len(relation.aggregates) else replace(relation, aggregates=aggregates)
    if isinstance(relation, Window):
        calls = tuple(one for one in relation.calls if one[0] in used)
        if len(calls) == len(relation.calls):
            return relation
        return replace(relation, calls=calls) if calls else relation.source
    return relation


def _without(relation: Relation, used: set[Column]) -> Relation:
    def change(one: Relation) -> Relation:
        if isinstance(one, Table):
            return one
        one = with_own_expressions(with_sources(one, change), lambda part: everywhere(part, change))
        return _kept(one, used)

    return change(relation)
