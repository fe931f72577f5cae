"""Normalising: the same rows out of a tree in which conditions stand as far down as they can.

Conditions go to the tables and into the joins that they are about, subqueries in conditions become semi and anti joins,
outer joins become inner ones where a condition rejects their rows of NULLs, and shared queries that are read once
stand where they are read.

Invariants
 1. No condition that can fail is evaluated for a row that it was not evaluated for before: it stays above joins, but
    for equalities that joins go by.  Of the conditions of a row, those that cannot fail come first.
 2. A relation keeps its columns, in any order; a caller that takes them by position gets the old order.
Not here: costs, paths, the order of joins (joins.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gmdb.process.late_dataclasses import replace
from gmdb.sql import operations, sharing, tree
from gmdb.sql.plan import terms
from gmdb.sql.tree import Column, Expression, Relation, columns_of, conjunction, conjuncts, is_volatile, rebuilt
from gmdb.sql.types import BIGINT, BOOLEAN

Parts = list[Expression]


def normalized(relation: Relation) -> Relation:
    """The whole tree, with the same columns in the same order."""
    return terms.with_columns_of(_pushed(relation, []), relation)


def with_conditions(relation: Relation, parts: Sequence[Expression]) -> Relation:
    """A normalised relation, with further conditions that neither fail nor vary pushed into it."""
    return _pushed(relation, list(parts))


def _pushed(relation: Relation, parts: Parts) -> Relation:
    """The rows of a relation that meet conditions, which have been normalised and go as far down as they can."""
    if isinstance(relation, tree.Filter):
        return _filter(relation, parts)
    if isinstance(relation, tree.Join):
        return _join(relation, parts)
    if isinstance(relation, tree.Project):
        down, up = _split(parts, relation.outputs)
        project = tree.Project(_pushed(relation.source, down), relation.outputs)
        return terms.filtered(rebuilt(project, _expression), up)
    if isinstance(relation, tree.Group):
        return _group(relation, parts)
    if isinstance(relation, tree.Window):
        return _window(relation, parts)
    if isinstance(relation, tree.Sort) or (isinstance(relation, tree.Distinct) and relation.on is None):
        down = [part for part in parts if not is_volatile(part)]
        source = _pushed(relation.source, down)
        if isinstance(relation, tree.Distinct):
            source = terms.with_columns_of(source, relation.source)
        sorted_ = rebuilt(replace(relation, source=source), _expression)
        return terms.filtered(sorted_, [part for part in parts if is_volatile(part)])
    if isinstance(relation, tree.SetOperation):
        return _set_operation(relation, parts)
    if isinstance(relation, tree.With):
        return _with(relation, parts)
    changed = sharing.with_sources(relation, lambda source: terms.with_columns_of(_pushed(source, []), source))
    return terms.filtered(rebuilt(changed, _expression), parts)


def _expression(expression: Expression) -> Expression:
    """An expression whose queries are normalised."""
    return sharing.everywhere(expression, normalized)


# ---- conditions


def _filter(relation: tree.Filter, parts: Parts) -> Relation:
    source = relation.source
    own = [factor for part in conjuncts(relation.condition) for factor in terms.factored(_plain(part))]
    if any(isinstance(part, tree.Constant) and part.value is not True for part in own):
        return tree.Limit(_pushed(source, []), tree.Constant(BIGINT, 0))
    rest: Parts = []
    for part in own:
        if isinstance(part, tree.Constant):
            continue
        joined = _semi_join(source, part)
        if joined is not None:
            source = joined
        else:
            rest.append(_expression(part))
    return _pushed(source, [*rest, *parts])


def _plain(part: Expression) -> Expression:
    """NOT of NOT left out."""
    inner = terms.negated(part)
    again = None if inner is None else terms.negated(inner)
    return part if again is None else _plain(again)


def _semi_join(source: Relation, part: Expression) -> Relation | None:
    """The rows for which EXISTS, IN or their negation is true, as a join; None if the condition is another one."""
    inner = terms.negated(part)
    kind, query = ("semi", part) if inner is None else ("anti", inner)
    if isinstance(query, tree.Exists):
        right, tests = query.query, []
    elif isinstance(query, tree.Call) and query.operation.name == "= any":
        return None if inner is not None else _among_elements(source, query)
    elif isinstance(query, tree.QueryComparison) and not query.every:
        right, tests = query.query, conjuncts(query.test)
        if not all(terms.is_movable(test) for test in tests):
            return None
    else:
        return None
    own = set(source.columns)
    alone, pulled = _uncorrelated(right)
    if alone is None or not (pulled or tests) or tree.outer_columns(alone) & own:
        return None
    right = alone
    if isinstance(query, tree.QueryComparison):
        while isinstance(right, tree.Project):
            values = dict(right.outputs)
            tests = [terms.substituted(test, values) for test in tests]
            pulled = [terms.substituted(part, values) for part in pulled]
            right = right.source
        if kind == "anti":
            nulls = terms.null_columns(source) | terms.null_columns(right)
            if any(_may_be_unknown(test, own | set(right.columns), nulls) for test in tests):
                return None
    return tree.Join(kind, source, right, conjunction([*pulled, *tests]))


def _among_elements(source: Relation, part: tree.Call) -> Relation | None:
    """The rows for which ``value = ANY (array)`` is true, as a join with an array that is the same for all rows."""
    value, array = part.arguments
    if not columns_of(value) or columns_of(array) or not all(map(terms.is_movable, part.arguments)):
        return None
    if isinstance(source, tree.One) or tree.has_queries(array):
        return None
    element = Column("element", part.operation.takes[1].element)
    equal = operations.operator("=", part.operation.takes[0], element.type)
    assert equal is not None
    test = tree.Call(BOOLEAN, equal, (value, tree.Reference(element.type, element)))
    return tree.Join("semi", source, tree.Unnest((array,), (element,)), test)


def _may_be_unknown(test: Expression, known: set[Column], nulls: set[Column]) -> bool:
    return terms.may_be_null(test, nulls | (columns_of(test) - known))


def _uncorrelated(query: Relation) -> tuple[Relation | None, Parts]:
    """The query without those of its conditions that refer to columns around it, and these; None: it keeps some."""
    outer = tree.outer_columns(query)
    if not outer:
        return query, []
    if isinstance(query, tree.Project):
        source, pulled = _uncorrelated(query.source)
        if source is None or any(columns_of(value) & outer for _, value in query.outputs):
            return None, []
        shown = {column for column, _ in query.outputs}
        used = {column for part in pulled for column in columns_of(part)} - shown
        more = tuple((column, tree.Reference(column.type, column)) for column in source.columns if column in used)
        return tree.Project(source, (*query.outputs, *more)), pulled
    if not isinstance(query, tree.Filter):
        return None, []
    inner: Parts = []
    own: Parts = []
    for part in conjuncts(query.condition):  # what can fail is for the join, after its equalities
        (own if columns_of(part) & outer or not terms.is_movable(part) else inner).append(part)
    source, pulled = _uncorrelated(query.source)
    return (None, []) if source is None else (terms.filtered(source, inner), [*pulled, *own])


def _split(parts: Parts, outputs: Sequence[tuple[Column, Expression]]) -> tuple[Parts, Parts]:
    """Conditions on outputs as conditions on what they are made of; and those that must stay above."""
    values = dict(outputs)
    down: Parts = []
    up: Parts = []
    for part in parts:
        used = [values[column] for column in columns_of(part) if column in values]
        if not any(map(is_volatile, [part, *used])):
            down.append(terms.substituted(part, values))
        else:
            up.append(part)
    return down, up


# ---- relations


def _group(relation: tree.Group, parts: Parts) -> Relation:
    down: Parts = []
    up = parts
    if relation.keys and relation.sets is None:
        keys = {column for column, _ in relation.keys}
        results = {column for column, _ in relation.aggregates}
        may = [part for part in parts if columns_of(part) & keys and not columns_of(part) & results]
        down, stay = _split(may, relation.keys)
        up = [part for part in parts if part not in may or part in stay]
    changed = replace(relation, source=_pushed(relation.source, down))
    return terms.filtered(rebuilt(changed, _expression), up)


def _window(relation: tree.Window, parts: Parts) -> Relation:
    """Rows of other partitions may be left out before; a condition on what partitions go by leaves out whole ones."""
    shared = None
    for _, call in relation.calls:
        keys = {key.column for key in call.partition if isinstance(key, tree.Reference)}
        shared = keys if shared is None else shared & keys
    own = set(relation.columns)
    down = [part for part in parts if not is_volatile(part) and columns_of(part) & own <= (shared or set())]
    changed = replace(relation, source=_pushed(relation.source, down))
    return terms.filtered(rebuilt(changed, _expression), [part for part in parts if part not in down])


def _set_operation(relation: tree.SetOperation, parts: Parts) -> Relation:
    down = [part for part in parts if not is_volatile(part)] if relation.kind == "union" else []
    sides = []
    for side in (relation.left, relation.right):
        values = {
            column: tree.Reference(own.type, own) for column, own in zip(relation.columns, side.columns, strict=True)
        }
        sides.append(terms.with_columns_of(_pushed(side, [terms.substituted(part, values) for part in down]), side))
    changed = replace(relation, left=sides[0], right=sides[1])
    return terms.filtered(changed, [part for part in parts if part not in down])


def _with(relation: tree.With, parts: Parts) -> Relation:
    """Shared queries that are read once stand where they are read; those that are not read are left out."""
    body = relation.body
    remaining: list[tree.Shared] = []
    rest = list(relation.shared)
    while rest:
        shared = rest.pop(0)
        behind = [query for later in rest for query in (later.query, later.again) if query is not None]
        count = sum(
            1
            for query in (body, *behind)
            for one in tree.everything(query)
            if isinstance(one, tree.Reading) and one.cell[0] is shared
        )
        if count > 1 or (count and shared.again is not None):
            remaining.append(shared)
            continue
        cells: dict[int, list[tree.Shared]] = {}
        for n, later in enumerate(rest):
            again = None if later.again is None else sharing.reading_others(_inlined(later.again, shared), cells)
            new = replace(later, query=sharing.reading_others(_inlined(later.query, shared), cells), again=again)
            cells[id(later)] = [new]
            rest[n] = new
            if new.again is not None:
                new = replace(new, again=sharing.reading_others(new.again, cells))
                cells[id(later)][0] = rest[n] = new
        body = sharing.reading_others(_inlined(body, shared), cells)
    if not remaining:
        return _pushed(body, parts)
    changed = sharing.with_sources(
        tree.With(tuple(remaining), body), lambda query: query if query is body else normalized(query)
    )
    assert isinstance(changed, tree.With)
    return replace(changed, body=_pushed(changed.body, parts))


def _inlined(relation: Relation, shared: tree.Shared) -> Relation:
    """The relation with the query itself where a shared one is read."""

    def change(one: Relation) -> Relation:
        if isinstance(one, tree.Reading) and one.cell[0] is shared:
            columns = shared.columns or shared.query.columns
            outputs = zip(one.columns, columns, strict=True)
            return tree.Project(
                shared.query, tuple((own, tree.Reference(column.type, column)) for own, column in outputs)
            )
        return rebuilt(sharing.with_sources(one, change), lambda part: sharing.everywhere(part, change))

    return change(relation)


# ---- joins


def _join(relation: tree.Join, parts: Parts) -> Relation:
    """A join, to whose sides conditions go down."""
    kind, left, right = relation.kind, relation.left, relation.right
    if kind == "right" and not relation.lateral:
        kind, left, right = "left", right, left
    lefts, rights = set(left.columns), set(right.columns)
    rejecting = [part for part in parts if terms.is_movable(part)]
    if kind == "full":
        keeps_left = any(terms.rejects_nulls(part, lefts) for part in rejecting)
        keeps_right = any(terms.rejects_nulls(part, rights) for part in rejecting)
        if keeps_left or keeps_right:
            kind = "inner" if keeps_left and keeps_right else "left" if keeps_left else "right"
            return _join(tree.Join(kind, left, right, relation.condition, relation.lateral), parts)
    if kind == "left" and any(terms.rejects_nulls(part, rights) for part in rejecting):
        kind = "inner"
    on = [_expression(factor) for part in conjuncts(relation.condition) for factor in terms.factored(part)]
    to_left, to_right, here, above = _shares(kind, on, parts, left, right)
    joined = tree.Join(kind, _pushed(left, to_left), _pushed(right, to_right), conjunction(here), relation.lateral)
    guards = [part for part in parts if terms.is_movable(part) and not tree.has_queries(part) and part not in above]
    return terms.filtered(joined, [_guarded(part, guards) for part in above])


def _guarded(part: Expression, guards: Parts) -> Expression:
    """A condition that can fail, for rows that meet the others; an executor may then evaluate it before the joins."""
    condition = conjunction(guards)
    if condition is None or terms.is_movable(part):
        return part
    return tree.Case(part.type, ((condition, part),), tree.Constant(part.type, False))


def _shares(kind: str, on: Parts, parts: Parts, left: Relation, right: Relation) -> tuple[Parts, Parts, Parts, Parts]:
    """Which conditions go to the left side, to the right one, into the join, and above it."""
    lefts, rights = set(left.columns), set(right.columns)
    to_left: Parts = []
    to_right: Parts = []
    here: Parts = []
    above: Parts = []
    for part in on:
        uses_left, uses_right = terms.columns_of_both(part, lefts, rights)
        movable = terms.is_movable(part)
        if not uses_right and kind in ("inner", "semi") and (movable or _links(part, kind, left, right)):
            to_left.append(part)
        elif movable and uses_right and not uses_left and kind != "full":
            to_right.append(part)
        else:
            here.append(part)
    for part in parts:
        uses_left, uses_right = terms.columns_of_both(part, lefts, rights)
        if kind == "full" or not (terms.is_movable(part) or _links(part, kind, left, right)):
            above.append(part)
        elif not uses_right:
            to_left.append(part)
        elif kind == "inner":
            (here if uses_left else to_right).append(part)
        else:
            above.append(part)
    if kind == "inner":  # what can fail comes last
        here.sort(key=lambda part: not terms.is_movable(part))
    return to_left, to_right, here, above


def _links(part: Expression, kind: str, left: Relation, right: Relation) -> bool:
    """Whether an equality that can fail is what this join, or an inner one within its left side, goes by."""
    if not terms.is_link(part):
        return False
    sides = [columns_of(side) for side in part.children()]
    for own, other in (sides, sides[::-1]):
        if kind == "inner" and own & set(left.columns) and other & set(right.columns):
            return not own & set(right.columns) and not other & set(left.columns)
    while isinstance(left, tree.Filter):
        left = left.source
    if not isinstance(left, tree.Join) or left.lateral or left.kind in ("right", "full"):
        return False
    return not columns_of(part) & set(right.columns) and _links(part, left.kind, left.left, left.right)


# ---- Pruning: outputs that are not used are left out of a tree, so that they are neither computed nor read.


def used_columns(relation: Relation) -> set[Column]:
    """The columns that are used: as results, in expressions, and where whole rows are compared."""
    used: set[Column] = set(relation.columns)
    for one in tree.everything(relation):
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
        if isinstance(part, tree.QueryComparison):
            continue
        yield from query.columns[:1]


def _asked(relation: Relation) -> Iterable[Column]:
    """The columns of its sources that a relation takes by their positions."""
    if isinstance(relation, tree.SetOperation):
        return {*relation.left.columns, *relation.right.columns}
    if isinstance(relation, tree.Distinct):
        return relation.source.columns
    if isinstance(relation, tree.With):
        return {column for shared in relation.shared for column in _of_shared(shared)}
    return ()


def _of_shared(shared: tree.Shared) -> set[Column]:
    queries = [query for query in (shared.query, shared.again) if query is not None]
    return {column for query in queries for column in query.columns} | set(shared.columns)


def pruned(relation: Relation) -> Relation:
    """The tree without outputs, aggregates and window calls that are not used."""
    while True:
        used = used_columns(relation)
        if not any(_is_needless(one, used) for one in tree.everything(relation)):
            return relation
        relation = _without(relation, used)


def _is_needless(relation: Relation, used: set[Column]) -> bool:
    return _kept(relation, used) is not relation


def _kept(relation: Relation, used: set[Column]) -> Relation:
    if isinstance(relation, tree.Project):
        outputs = tuple(output for output in relation.outputs if output[0] in used)
        return relation if len(outputs) == len(relation.outputs) else replace(relation, outputs=outputs)
    if isinstance(relation, tree.Group):
        aggregates = tuple(one for one in relation.aggregates if one[0] in used)
        if not aggregates and not relation.keys and relation.sets is None:
            return tree.One()
        return relation if len(aggregates) == len(relation.aggregates) else replace(relation, aggregates=aggregates)
    if isinstance(relation, tree.Window):
        calls = tuple(one for one in relation.calls if one[0] in used)
        if len(calls) == len(relation.calls):
            return relation
        return replace(relation, calls=calls) if calls else relation.source
    return relation


def _without(relation: Relation, used: set[Column]) -> Relation:
    def change(one: Relation) -> Relation:
        if isinstance(one, tree.Table):
            return one
        one = rebuilt(sharing.with_sources(one, change), lambda part: sharing.everywhere(part, change))
        return _kept(one, used)

    return change(relation)
