"""Overloads: one way to call a function, and what is built for just the types of a call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gmdb.format.columns import ColumnType
from gmdb.sql.operations.registry import Operation
from gmdb.sql.types import CHAR, NUMERIC, as_decimal, beside, turns_into

Types = Sequence[ColumnType | None]
Constants = Mapping[int, Any]
Build = Callable[[str, tuple[ColumnType, ...], Constants], Operation | None]


@dataclass(frozen=True)
class Overload:
    """``takes``: NUMERIC stands for every DECIMAL and CHAR for every CHAR.  ``build`` is given the types instead."""

    takes: tuple[ColumnType, ...]
    build: Build

    def matches(self, types: Types) -> int | None:
        """How many arguments are exactly of the types; None if it cannot be called with them."""
        if len(types) != len(self.takes) or not all(map(turns_into, types, self.takes)):
            return None
        return sum(g is not None and g.name == t.name for g, t in zip(types, self.takes, strict=True))

    def operation(self, name: str, types: Types, constants: Constants) -> Operation | None:
        taken = []
        for at, (given, wanted) in enumerate(zip(types, self.takes, strict=True)):
            if wanted == NUMERIC:
                text = constants.get(at)
                taken.append(
                    beside(NUMERIC, text if isinstance(text, str) else None) if given is None else as_decimal(given)
                )
            else:
                taken.append(given if wanted == CHAR and given is not None else wanted)
        return self.build(name, tuple(taken), constants)


def plain(
    takes: Sequence[ColumnType],
    gives: ColumnType,
    python: Callable[..., Any] | str,
    duck: str | None = None,
    fails: bool = False,
    volatile: bool = False,
) -> Overload:
    """An overload that is the same for all arguments.  ``fails``: see Operation."""

    def build(name: str, taken: tuple[ColumnType, ...], _: Constants) -> Operation:
        return Operation(name, taken, gives, python, duck, fails=fails, volatile=volatile)

    return Overload(tuple(takes), build)
