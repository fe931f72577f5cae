"""Groups and aggregates as steps over rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gmdb.process.late_dataclasses import fields
from gmdb.sql.operations.registry import Fold
from gmdb.sql.rows.code import Term, hash_key, sort_key, sorter
from gmdb.sql.tree import Aggregate, Column, Group, columns_used

if TYPE_CHECKING:
    from gmdb.sql.rows.pipeline import Pipeline

Consume = Callable[[], None]
_AS_IT_IS = next(one.default for one in fields(Fold) if one.name == "finish")


class _State:
    """What an aggregate keeps of the rows of a group: in ``slots``, one value each."""

    def __init__(self, pipe: Pipeline, aggregate: Aggregate) -> None:
        assert aggregate.aggregation.fold is not None
        self._pipe, self._aggregate, self._fold = pipe, aggregate, aggregate.aggregation.fold
        self._is_count = aggregate.aggregation.name == "count"
        self.starts = ["[]" if aggregate.order else "0" if self._is_count else f"{pipe.code.bind(self._fold.start)}()"]
        if aggregate.distinct:
            self.starts.append("set()")

    def step(self, slots: list[str]) -> None:
        """Write how a row is taken into account."""
        self._pipe.when(self._aggregate.condition, lambda: self._take(slots))

    def _take(self, slots: list[str]) -> None:
        pipe, aggregate = self._pipe, self._aggregate
        terms = [pipe.term(argument) for argument in aggregate.arguments]
        tests = []
        if not self._fold.takes_nulls:
            tests = [f"{term.code} is not None" for term in terms if term.nullable]
        if aggregate.distinct:
            keys = [hash_key(pipe.code, t, a.type) for t, a in zip(terms, aggregate.arguments, strict=True)]
            key = pipe.code.fresh("k")
            tests.append(f"({key} := {pipe.tuple_of(keys)}) not in {slots[1]}")

        def note() -> None:
            if aggregate.distinct:
                pipe.code.emit(f"{slots[1]}.add({key})")
            values = [term.code for term in terms]
            if aggregate.order:
                keys = [
                    sort_key(pipe.code, pipe.term(k.value), k.value.type, k.nulls_first == k.descending)
                    for k in aggregate.order
                ]
                pipe.code.emit(f"{slots[0]}.append({pipe.tuple_of([*values, *keys])})")
            elif self._is_count:
                pipe.code.emit(f"{slots[0]} += 1")
            else:
                pipe.code.emit(f"{slots[0]} = {pipe.code.bind(self._fold.step)}({', '.join([slots[0], *values])})")

        pipe.on(tests, note)

    def finish(self, slots: list[str]) -> Term:
        """Write how the aggregate's value comes out."""
        pipe, aggregate, fold = self._pipe, self._aggregate, self._fold
        state = slots[0]
        if aggregate.order:
            order = sorter(len(aggregate.arguments), [key.descending for key in aggregate.order])
            state = f"{pipe.code.bind(_in_order(fold, order, len(aggregate.arguments)))}({state})"
        if fold.finish is not _AS_IT_IS:
            state = f"{pipe.code.bind(fold.finish)}({state})"
        return pipe.assign(state)


def _in_order(fold: Fold, sort: Callable[[list[Any]], None], count: int) -> Callable[[list[Any]], Any]:
    """The state after rows that were collected first, to be sorted."""

    def run(rows: list[Any]) -> Any:
        sort(rows)
        state = fold.start()
        for row in rows:
            state = fold.step(state, *row[:count])
        return state

    return run


def produce_group(pipe: Pipeline, group: Group, needed: set[Column], consume: Consume) -> None:
    code = pipe.code
    aggregates = [(column, one) for column, one in group.aggregates if column in needed]
    states = [(column, _State(pipe, one)) for column, one in aggregates]
    inner = columns_used(one for _, one in (*group.keys, *aggregates))
    if not group.keys:
        _all_rows(pipe, group, states, inner, consume)
        return
    groups, entry, key = code.fresh("g"), code.fresh("e"), code.fresh("k")
    code.emit(f"{groups} = {{}}")
    slots, at = [], len(group.keys)
    for _, state in states:
        slots.append([f"{entry}[{at + n}]" for n in range(len(state.starts))])
        at += len(state.starts)

    def take() -> None:
        terms = [pipe.term(expression) for _, expression in group.keys]
        keys = [hash_key(code, term, one.type) for term, (_, one) in zip(terms, group.keys, strict=True)]
        code.emit(f"{key} = {pipe.tuple_of(keys)}")
        code.emit(f"{entry} = {groups}.get({key})")
        with code.block(f"if {entry} is None"):
            starts = [start for _, state in states for start in state.starts]
            code.emit(f"{groups}[{key}] = {entry} = [{', '.join([*(term.code for term in terms), *starts])}]")
        for (_, state), own in zip(states, slots, strict=True):
            state.step(own)

    def give() -> None:
        for n, (column, _) in enumerate(group.keys):
            pipe.terms[column] = Term(f"{entry}[{n}]")
        for (column, state), own in zip(states, slots, strict=True):
            pipe.terms[column] = state.finish(own)
        consume()

    pipe.produce(group.source, inner, take)
    pipe.loop(entry, f"{groups}.values()", give)


def _all_rows(
    pipe: Pipeline, group: Group, states: list[tuple[Column, _State]], inner: set[Column], consume: Consume
) -> None:
    """One group, of all rows, which is there without any, too."""
    slots = []
    for _, state in states:
        own = [pipe.code.fresh("a") for _ in state.starts]
        for name, start in zip(own, state.starts, strict=True):
            pipe.code.emit(f"{name} = {start}")
        slots.append(own)

    def take() -> None:
        for (_, state), own in zip(states, slots, strict=True):
            state.step(own)

    pipe.produce(group.source, inner, take)
    for (column, state), own in zip(states, slots, strict=True):
        pipe.terms[column] = state.finish(own)
    consume()
