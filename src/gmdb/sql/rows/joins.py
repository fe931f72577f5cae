"""Joins as loops.

The right side of a lateral join runs for each row of the left one.  Otherwise its rows are stored before the left side
begins: by their keys, if the condition has equalities of both sides, or in a list.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from gmdb.process.late_dataclasses import dataclass, replace
from gmdb.sql import tree
from gmdb.sql.rows import sources
from gmdb.sql.rows.code import Equality, Side, Term, equality_of
from gmdb.sql.tree import Column, Expression, Relation, columns_of

if TYPE_CHECKING:
    from gmdb.sql.rows.pipeline import Pipeline


# ---- Queries within expressions: a function for each, within the one that asks.
#
# A query that refers to no row around it is run once, when its value is first needed.


def _function(
    pipe: Pipeline, query: Relation, needed: set[Column], first: str, consume: Callable[[], None], ending: str
) -> str:
    """A call of a function that begins with a line, runs a query, and ends with a line."""
    name = pipe.code.fresh("q")
    is_free = not tree.outer_columns(query) and needed <= set(query.columns)
    with pipe.code.define(f"{name}()", ending, outermost=is_free), pipe.knowing_nothing(is_free):
        pipe.code.emit(first)
        pipe.produce(query, needed, consume, True)
        pipe.code.emit(ending)
    return f"{pipe.once(f'{name}()')}()" if is_free else f"{name}()"


def _scalar_query(pipe: Pipeline, expression: tree.ScalarQuery) -> Term:
    (column,) = expression.query.columns
    pipe.code.names["too_many_rows"] = sources.too_many_rows
    missing = pipe.code.bind(sources.MISSING)

    def take() -> None:
        pipe.code.emit(f"if value is not {missing}: too_many_rows()")
        pipe.code.emit(f"value = {pipe.value(column).code}")

    ending = f"return None if value is {missing} else value"
    return pipe.assign(_function(pipe, expression.query, {column}, f"value = {missing}", take, ending))


def _exists(pipe: Pipeline, expression: tree.Exists) -> Term:
    return pipe.assign(exists(pipe, expression.query, None), False)


def exists(pipe: Pipeline, query: Relation, condition: Expression | None) -> str:
    """A call that tells whether a query has a row that meets the condition."""
    needed = set() if condition is None else columns_of(condition)
    if condition is None:
        pipe.want_first_of(query)
        if not isinstance(query, tree.Filter):
            pipe.want_few(1)

    def matched() -> None:
        pipe.when(condition, lambda: pipe.code.emit("return True"))

    return _function(pipe, query, needed, "pass", matched, "return False")


def _query_comparison(pipe: Pipeline, expression: tree.QueryComparison) -> Term:
    query, test, needed = expression.query, expression.test, columns_of(expression.test)
    is_correlated = bool(tree.outer_columns(query))
    equality = None if expression.every or is_correlated else equality_of(test, set(query.columns))
    if equality is not None:
        return _in_set(pipe, query, equality)
    decided, other = ("False", "True") if expression.every else ("True", "False")
    first, last = f"result = {other}", "return result"

    def compare() -> None:
        term = pipe.term(test)
        pipe.code.emit(f"if {term.code} is {decided}: return {decided}")
        pipe.code.emit(f"if {term.code} is None: result = None")

    if is_correlated or needed <= set(query.columns):
        return pipe.assign(_function(pipe, query, needed, first, compare, last))
    columns = pipe.columns_in(query, needed)
    rows, name = pipe.kept_once(query, columns), pipe.code.fresh("q")
    with pipe.code.define(f"{name}()", last):
        pipe.code.emit(first)
        pipe.loop(pipe.unpack(columns, nullable=True), f"{rows}()", compare)
        pipe.code.emit(last)
    return pipe.assign(f"{name}()")


def _in_set(pipe: Pipeline, query: Relation, equality: Equality) -> Term:
    """``value IN (query)`` by a set of the query's values."""
    name, inner, outer = pipe.code.fresh("f"), equality.inner, equality.outer
    with pipe.code.define(f"{name}()", outermost=True), pipe.knowing_nothing():

        def give() -> None:
            pipe.code.emit(f"yield {inner.key(pipe.code, pipe.term(inner.value))}")

        pipe.produce(query, columns_of(inner.value), give, True)
        pipe.code.emit("yield from ()")
    pipe.code.names["is_in"] = sources.is_in
    key = outer.key(pipe.code, pipe.term(outer.value))
    return pipe.assign(f"is_in({key}, {pipe.once(f'set({name}())')}())")


QUERIES: dict[type[Expression], Callable[[Pipeline, Any], Term]] = {
    tree.ScalarQuery: _scalar_query,
    tree.Exists: _exists,
    tree.QueryComparison: _query_comparison,
}


# ---- Joins as loops.

Consume = Callable[[], None]
_SPINE_MAX = 8  # joins in one function, each of which is a loop within that of its left side


def produce_join(pipe: Pipeline, join: tree.Join, needed: set[tree.Column], consume: Consume) -> None:
    if join.kind == "right":
        join = replace(join, kind="left", left=join.right, right=join.left)
    if join.condition is not None:
        needed = needed | tree.columns_of(join.condition)
    if _spine(join.left) % _SPINE_MAX == _SPINE_MAX - 1:
        join = replace(join, left=OwnFunction(join.left))
    if join.lateral:
        _lateral(pipe, join, needed, consume)
    elif join.kind == "full":
        _full(pipe, join, needed, consume)
    elif join.kind in ("semi", "anti"):
        _semi(pipe, join, needed, consume)
    else:
        _inner_or_left(pipe, join, needed, consume)


@dataclass(frozen=True, slots=True, eq=False)
class OwnFunction(tree.Passing):
    """A relation that gets a function of its own, since Python's loops nest only so deep."""


def _spine(relation: tree.Relation) -> int:
    """How many joins there are one on the left of the other."""
    joins = 0
    while isinstance(relation, tree.Join | tree.Filter | tree.Project | tree.Number | tree.Distinct):
        if isinstance(relation, tree.Join):
            joins += 1
            relation = relation.right if relation.kind == "right" else relation.left
        else:
            relation = relation.source
    return joins


def _split(join: tree.Join) -> tuple[list[Equality], tree.Expression | None]:
    """The equalities of both sides, and the rest of the condition."""
    right = set(join.right.columns)
    equalities, rest = [], []
    for part in tree.conjuncts(join.condition):
        equality = equality_of(part, right)
        if equality is not None and tree.columns_of(equality.outer.value):
            equalities.append(equality)
        else:
            rest.append(part)
    return equalities, tree.conjunction(rest)


def _key(pipe: Pipeline, sides: Sequence[Side]) -> tuple[str, list[str]]:
    """A row's key, and what must be true for it to have one: NULL equals nothing."""
    keys, tests = [], []
    for side in sides:
        term = pipe.term(side.value)
        keys.append(side.key(pipe.code, term))
        if term.nullable:
            tests.append(f"{term.code} is not None")
    return (keys[0] if len(keys) == 1 else pipe.tuple_of(keys)), tests


class _BuildSide:
    """The right side's rows, in a list or a dict by their keys."""

    def __init__(self, pipe: Pipeline, join: tree.Join, needed: set[tree.Column], only_keys: bool = False) -> None:
        """``only_keys``: if nothing but whether there is a row matters, and the condition is all equalities."""
        self._pipe = pipe
        self.equalities, self.rest = _split(join)
        self.is_set = only_keys and bool(self.equalities) and self.rest is None
        inner = needed | tree.columns_used(one.inner.value for one in self.equalities)
        if not self.equalities:
            self._name, self.columns = pipe.list_of(join.right, inner)
            return
        self.columns = pipe.columns_in(join.right, needed)
        self._name = pipe.code.fresh("h")
        pipe.code.emit(f"{self._name} = {'set()' if self.is_set else '{}'}")
        pipe.produce(join.right, inner, self._keep)

    def _keep(self) -> None:
        pipe = self._pipe
        key, tests = _key(pipe, [one.inner for one in self.equalities])
        keep = f"setdefault({key}, []).append({pipe.row_of(self.columns)})"
        pipe.on(tests, lambda: pipe.code.emit(f"{self._name}.{f'add({key})' if self.is_set else keep}"))

    def rows(self) -> str:
        """Code for those that equal the left side's row at hand."""
        if not self.equalities:
            return self._name
        return f"{self._name}.get({_key(self._pipe, [one.outer for one in self.equalities])[0]}, ())"

    def has_key(self) -> str:
        return f"{_key(self._pipe, [one.outer for one in self.equalities])[0]} in {self._name}"


def _nulls(pipe: Pipeline, columns: Sequence[tree.Column]) -> str:
    return pipe.code.bind([(None,) * len(columns)])


def _inner_or_left(pipe: Pipeline, join: tree.Join, needed: set[tree.Column], consume: Consume) -> None:
    build = _BuildSide(pipe, join, needed)
    is_left = join.kind == "left"

    def match() -> None:
        rows = build.rows()
        if not is_left:
            pipe.loop(pipe.unpack(build.columns), rows, lambda: pipe.when(build.rest, consume))
            return
        if build.rest is not None:
            rows = _matching(pipe, build, rows)
        pipe.loop(pipe.unpack(build.columns, nullable=True), f"{rows} or {_nulls(pipe, build.columns)}", consume)

    pipe.produce(join.left, needed | tree.columns_used(one.outer.value for one in build.equalities), match)


def _matching(pipe: Pipeline, build: _BuildSide, rows: str) -> str:
    """A list of the rows that meet the rest of the condition."""
    name = pipe.code.fresh("l")
    pipe.code.emit(f"{name} = []")
    target = pipe.unpack(build.columns)
    row = pipe.row_of(build.columns)
    pipe.loop(target, rows, lambda: pipe.when(build.rest, lambda: pipe.code.emit(f"{name}.append({row})")))
    return name


def _semi(pipe: Pipeline, join: tree.Join, needed: set[tree.Column], consume: Consume) -> None:
    build = _BuildSide(pipe, join, needed - set(join.left.columns), only_keys=True)
    negated = "not " if join.kind == "anti" else ""

    def match() -> None:
        if build.is_set:
            test = build.has_key()
        else:
            rows, test = build.rows(), pipe.code.fresh("m")
            pipe.code.emit(f"{test} = False")

            def matched() -> None:
                pipe.code.emit(f"{test} = True")
                pipe.code.emit("break")

            pipe.loop(pipe.unpack(build.columns), rows, lambda: pipe.when(build.rest, matched))
        with pipe.code.block(f"if {negated}({test})"):
            consume()

    pipe.produce(join.left, needed | tree.columns_used(one.outer.value for one in build.equalities), match)


def _lateral(pipe: Pipeline, join: tree.Join, needed: set[tree.Column], consume: Consume) -> None:
    right, condition = join.right, join.condition

    def match() -> None:
        if join.kind in ("semi", "anti"):
            with pipe.code.block(f"if {'not ' if join.kind == 'anti' else ''}{exists(pipe, right, condition)}"):
                consume()
        elif join.kind == "inner":
            pipe.produce(right, needed, lambda: pipe.when(condition, consume))
        else:
            name, columns = pipe.list_of(right, needed, condition)
            pipe.loop(pipe.unpack(columns, nullable=True), f"{name} or {_nulls(pipe, columns)}", consume)

    pipe.produce(join.left, needed | tree.outer_columns(right), match)


def _full(pipe: Pipeline, join: tree.Join, needed: set[tree.Column], consume: Consume) -> None:
    """Rows of both sides, by a function of its own; each row of the right side has a last field: whether it matched."""
    code, (equalities, rest) = pipe.code, _split(join)
    left, right = pipe.columns_in(join.left, needed), pipe.columns_in(join.right, needed)
    name, rows, by_key = code.fresh("f"), code.fresh("l"), code.fresh("h")
    entry, is_matched = code.fresh("e"), code.fresh("m")

    def keep() -> None:
        code.emit(f"{entry} = [{', '.join([*(pipe.raw(column) for column in right), 'False'])}]")
        code.emit(f"{rows}.append({entry})")
        if equalities:
            key, tests = _key(pipe, [one.inner for one in equalities])
            pipe.on(tests, lambda: code.emit(f"{by_key}.setdefault({key}, []).append({entry})"))

    def match() -> None:
        code.emit(f"{is_matched} = False")
        candidates = rows
        if equalities:
            candidates = f"{by_key}.get({_key(pipe, [one.outer for one in equalities])[0]}, ())"

        def test() -> None:
            code.emit(f"{pipe.unpack(right, more=1)} = {entry}")
            pipe.when(rest, matched)

        def matched() -> None:
            code.emit(f"{entry}[-1] = {is_matched} = True")
            code.emit(f"yield {pipe.row_of((*left, *right))}")

        pipe.loop(entry, candidates, test)
        alone = pipe.tuple_of([*(pipe.raw(column) for column in left), *["None"] * len(right)])
        code.emit(f"if not {is_matched}: yield {alone}")

    with code.define(f"{name}()"):
        code.emit(f"{rows} = []")
        code.emit(f"{by_key} = {{}}")
        outer = needed | tree.columns_used(one.outer.value for one in equalities)
        pipe.produce(join.right, needed | tree.columns_used(one.inner.value for one in equalities), keep)
        pipe.produce(join.left, outer, match)
        others = pipe.tuple_of([*["None"] * len(left), f"*{entry}[:-1]"])
        pipe.loop(entry, rows, lambda: code.emit(f"if not {entry}[-1]: yield {others}"))
    pipe.loop(pipe.unpack((*left, *right), nullable=True), f"{name}()", consume)
