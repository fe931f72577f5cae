"""What finding a row by its key costs in tables of different sizes: it should grow with the index's levels at most."""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bench.harness import Attempt, Benchmark, Contender, Summary, run_benchmark
from bench.indexes import INDEX, HashedGmdb, Indexed, IndexedGmdb, KeyedSqlite, random_keys
from bench.memory import generated_batches
from bench.tables import narrow_table
from gmdb.format.address import NO_PAGE, device_of, offset_of
from gmdb.format.btree import BTREE_NODE, NODE_AT
from gmdb.format.hash import is_directory, slot_pages

SIZES = (10_000, 100_000, 1_000_000)
DEFAULT_ROWS = 10_000_000
LOOKUPS = 5_000  # a round, each time of other rows
WARM_STEP = 16  # finding one row of so many touches about every page, which is checked at its first touch
PEERS: dict[str, type[Indexed]] = {"B-tree": IndexedGmdb, "hash": HashedGmdb, "SQLite": KeyedSqlite}


@dataclass(frozen=True)
class LookupCost:
    """What a lookup costs in a table of so many rows; SQLite's levels are not known."""

    by: str
    rows: int
    levels: int | None
    rounds: tuple[float, ...]  # microseconds a lookup in each of them

    @property
    def microseconds(self) -> float:
        return statistics.median(self.rounds)

    def growth(self, smallest: LookupCost) -> float:
        return self.microseconds / smallest.microseconds

    def growth_allowed(self, smallest: LookupCost) -> float | None:
        """How many times as many levels there are."""
        return None if self.levels is None or smallest.levels is None else self.levels / smallest.levels

    def met(self, smallest: LookupCost) -> bool | None:
        """Whether the cost grew no faster than the levels did; None if those are not known."""
        allowed = self.growth_allowed(smallest)
        return None if allowed is None else self.growth(smallest) <= allowed


def table_sizes(rows_max: int) -> list[int]:
    return [*(size for size in SIZES if size < rows_max), rows_max]


def measure(directory: Path, rows: int, rounds: int) -> list[LookupCost]:
    """Make tables of so many rows, and find some of them."""
    place = directory / str(rows)
    with ExitStack() as stack:
        opened = {name: stack.enter_context(closing(_loaded(peer, place / name, rows))) for name, peer in PEERS.items()}
        expected = Summary(min(LOOKUPS, rows), 0)
        contenders = [Contender(name, expected, partial(_finding, peer, _keys(rows))) for name, peer in opened.items()]
        result = run_benchmark(Benchmark(f"lookups in {rows:,} rows", "", contenders), place, rounds)
        costs = [
            LookupCost(m.contender, rows, levels(opened[m.contender]), tuple(1e6 * s / m.rows for s in m.seconds))
            for m in result.measurements
        ]
    shutil.rmtree(place)
    return costs


def _loaded(peer: type[Indexed], directory: Path, rows: int) -> Indexed:
    """A database whose pages have been touched before."""
    directory.mkdir(parents=True)
    opened = peer(directory, narrow_table(rows))
    opened.load(generated_batches(rows))
    opened.find(range(0, rows, WARM_STEP))
    return opened


def _keys(rows: int) -> Iterator[list[int]]:
    """The keys of one round after the other."""
    generator = np.random.default_rng(20_000_101)
    while True:
        yield random_keys(generator, rows, LOOKUPS)


@contextmanager
def _finding(peer: Indexed, keys_by_round: Iterator[list[int]], _: Path) -> Iterator[Attempt]:
    """Every round asks for other keys, so what counts is how far off the rows are that it finds."""
    keys = next(keys_by_round)

    def summarize(found: list) -> Summary:
        rows = peer.rows_found(found)
        return Summary(len(rows), sum(abs(row[0] - key) for row, key in zip(rows, keys, strict=False)))

    yield Attempt(partial(peer.find, keys), summarize)


# ---- levels


def levels(peer: Indexed) -> int | None:
    """How many pages of the index a lookup goes through, at most; None if the peer does not tell."""
    if not isinstance(peer, IndexedGmdb):
        return None
    store = peer.db._database.store
    root = peer.db.heap(peer.table.name).by(INDEX).tree.root

    def page(page_id: int) -> Any:
        return store.devices[device_of(page_id)].memory(offset_of(page_id))

    with store.guard:
        if peer.using == "btree":
            return int(BTREE_NODE.at(page(root), NODE_AT).level) + 1
        count, pages = 0, {root}
        while pages:
            count += 1
            directories = [page(page_id) for page_id in pages if is_directory(page(page_id))]
            pages = {child for directory in directories for child in slot_pages(directory)} - {NO_PAGE}
        return count


# ---- the report


def lookups_table(costs: Sequence[LookupCost]) -> str:
    """A line for each size of each peer's table; the smallest is what others are compared with."""
    lines = ["| by | rows | levels | µs a lookup | growth | of levels | |", "|---|---:|---:|---:|---:|---:|---|"]
    smallest: dict[str, LookupCost] = {}
    for cost in sorted(costs, key=lambda cost: (list(PEERS).index(cost.by), cost.rows)):
        first = smallest.setdefault(cost.by, cost)
        compared = _comparison(cost, first) if cost is not first else ("", "", "")
        cells = (cost.by, f"{cost.rows:,}", str(cost.levels or ""), f"{cost.microseconds:.2f}", *compared)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _comparison(cost: LookupCost, smallest: LookupCost) -> tuple[str, str, str]:
    growth, allowed = f"{cost.growth(smallest):.2f}×", cost.growth_allowed(smallest)
    if allowed is None:
        return growth, "", ""
    return growth, f"{allowed:.2f}×", "met" if cost.met(smallest) else "**missed**"
