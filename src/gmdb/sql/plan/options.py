"""What planning a relation gives: for each executor, trees that can be run, and how long that takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gmdb.sql.tree import Relation, SortKey

ROWS, DUCK = "rows", "duck"  # the executors
Keys = Sequence[SortKey]


@dataclass(frozen=True, slots=True)
class Option:
    """A tree that can be run, and how long that takes: until the first row, and to the end."""

    tree: Relation
    total: float
    startup: float = 0.0


@dataclass(frozen=True, slots=True)
class Planned:
    """What can be done about a relation: perhaps several ways, of which some begin sooner."""

    rows: float
    by_rows: tuple[Option, ...]
    by_duck: Option | None

    def best(self, executor: str) -> Option | None:
        if executor == DUCK:
            return self.by_duck
        return min(self.by_rows, key=lambda option: option.total, default=None)
