"""Which transactions must come before which, by the versions that they have read and written; and circles of that.

A version of an item is what one transaction has left of it; they come in the order of commits.  A read is by a
condition, on the snapshot of its transaction.  T1 comes before T2 if T2 has replaced a version of T1's (ww), if T2 has
read what T1 wrote (wr), or if T2 was the first to change what a condition of T1's finds (rw).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

Row = tuple[int, int]  # the values of an item, but for its key
Condition = Callable[[int, Row | None], bool]  # whether an item's version is among what was asked for


class Version(NamedTuple):
    writer: int  # a transaction; 0 brought what was there in the beginning
    row: Row | None  # None: the item is not there


@dataclass
class Played:
    """A transaction that has committed."""

    number: int
    seen: int  # how many commits its snapshot sees
    reads: list[tuple[Condition, frozenset[int]]] = field(default_factory=list)  # with what it had written by then
    writes: dict[int, Row | None] = field(default_factory=dict)


Edges = dict[int, dict[int, str]]  # from, to: why


def edges_of(beginning: Mapping[int, Row], history: Iterable[Played]) -> Edges:
    """``history``: in the order of commits."""
    committed = list(history)
    order = {one.number: at + 1 for at, one in enumerate(committed)}
    versions = {item: [Version(0, row)] for item, row in beginning.items()}
    for one in committed:
        for item, row in one.writes.items():
            versions.setdefault(item, [Version(0, None)]).append(Version(one.number, row))
    edges: Edges = {one.number: {} for one in committed}

    def add(first: int, second: int, why: str) -> None:
        if first != second and first:
            edges[first].setdefault(second, why)

    for known in versions.values():
        for before, after in itertools.pairwise(known):
            add(before.writer, after.writer, "ww")
    for one in committed:
        for condition, own in one.reads:
            for item, known in versions.items():
                if item not in own:
                    _read(one, condition, item, known, order, add)
    return edges


def _read(
    one: Played,
    condition: Condition,
    item: int,
    known: list[Version],
    order: Mapping[int, int],
    add: Callable[[int, int, str], None],
) -> None:
    at = max(n for n, version in enumerate(known) if order.get(version.writer, 0) <= one.seen)
    if condition(item, known[at].row) or (at and condition(item, known[at - 1].row)):
        add(known[at].writer, one.number, "wr")
    for before, after in zip(known[at:], known[at + 1 :], strict=False):
        if condition(item, before.row) or condition(item, after.row):
            add(one.number, after.writer, "rw")
            return


def circle_in(edges: Mapping[int, Mapping[int, str]], without: frozenset[int] = frozenset()) -> list[int]:
    """Transactions each of which must come before the next, and the last before the first; empty if there are none."""
    done: set[int] = set()
    for start in edges:
        path, todo = [], [(start, iter(edges[start]))]
        on_path = {start}
        if start in done or start in without:
            continue
        path.append(start)
        while todo:
            node, following = todo[-1]
            step = next((one for one in following if one not in without and one not in done), None)
            if step is None:
                done.add(node)
                on_path.discard(node)
                path.pop()
                todo.pop()
            elif step in on_path:
                return path[path.index(step) :]
            else:
                on_path.add(step)
                path.append(step)
                todo.append((step, iter(edges[step])))
    return []


def explain(circle: list[int], edges: Mapping[int, Mapping[int, str]]) -> str:
    steps = [f"T{a} -{edges[a][b]}-> " for a, b in zip(circle, [*circle[1:], circle[0]], strict=True)]
    return "".join(steps) + f"T{circle[0]}"
