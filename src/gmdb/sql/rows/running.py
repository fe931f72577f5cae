"""What generated functions call while they run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from gmdb.errors import SubqueryTooManyRows, ValueOutOfRange
from gmdb.sql.numbers import SERIES_MAX

MISSING = object()  # the value of a scalar subquery that has found no row yet


class Once:
    """A value that is worked out when it is first asked for, and kept."""

    __slots__ = ("_value", "_work")

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work = work
        self._value: Any = MISSING

    def __call__(self) -> Any:
        if self._value is MISSING:
            self._value = self._work()
        return self._value


def limits(limit: int | None, offset: int | None) -> tuple[int, int]:
    """How many rows are wanted, less than 0 for all, and how many are passed over before."""
    for name, value in (("LIMIT", limit), ("OFFSET", offset)):
        if value is not None and value < 0:
            raise ValueOutOfRange(f"{name} must not be negative, and is {value}")
    return -1 if limit is None else limit, offset or 0


def series(start: int | None, stop: int | None, step: int | None) -> Iterable[int]:
    if start is None or stop is None or step is None:
        return ()
    if step == 0:
        raise ValueOutOfRange("step size cannot equal zero")
    numbers = range(start, stop + (1 if step > 0 else -1), step)
    if (stop - start) // step >= SERIES_MAX:
        raise ValueOutOfRange(f"a series has at most {SERIES_MAX} numbers")
    return numbers


def points(*keys: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """Each key once, without those of which a part is NULL or no value of its column."""
    return [key for key in dict.fromkeys(keys) if None not in key]


def too_many_rows() -> NoReturn:
    raise SubqueryTooManyRows("more than one row returned by a subquery used as an expression")


def is_in(key: Any, keys: set[Any]) -> bool | None:
    """``key IN (…)``; None is NULL."""
    if not keys:
        return False
    if key is None:
        return None
    return True if key in keys else None if None in keys else False
