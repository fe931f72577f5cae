"""Definitions that a transaction has changed: its own until it commits, and taken back with what it did.

What a definition is, the catalog knows; here it is an object by the number of its table, None once that is dropped.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Changes = Mapping[int, Any]


class ChangedDefinitions:
    def __init__(self) -> None:
        self.now: Changes = {}
        self._before: list[tuple[int, Changes]] = []  # undo records when it was changed, what was changed until then

    def change(self, changes: Changes, undo_count: int) -> None:
        """Note definitions whose changes have left undo records, of which there are ``undo_count`` by now."""
        self._before.append((undo_count, self.now))
        self.now = {**self.now, **changes}

    def take_back_to(self, undo_count: int) -> set[int]:
        """Forget the changes of which undo records are gone; answers the tables that are as they were again."""
        reached = self.now
        while self._before and self._before[-1][0] > undo_count:
            _, self.now = self._before.pop()
        return {number for number in reached if reached[number] is not self.now.get(number, self)}
