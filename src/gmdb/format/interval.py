"""Intervals: months, days and microseconds apart, since a month has no fixed number of days, nor a day of hours.

Stored as Arrow has them: months and days in 4 bytes each, then nanoseconds in 8, which are whole microseconds.
Not here: what is added to times, and how an interval is read (sql/times.py).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from gmdb.errors import DivisionByZero, ValueOutOfRange
from gmdb.process.late_dataclasses import dataclass

DAY = 86_400_000_000  # microseconds
DAYS_A_MONTH = 30  # where intervals are compared
_STORED = struct.Struct("<iiq")
_PART_MIN, _PART_MAX = -(1 << 31), (1 << 31) - 1
_MICROSECONDS_MAX = ((1 << 63) - 1) // 1000  # which are nanoseconds in a column


@dataclass(frozen=True, eq=False)
class Interval:
    """A duration.  They compare as SQL compares them: a month is as long as 30 days."""

    months: int = 0
    days: int = 0
    microseconds: int = 0

    @classmethod
    def of(cls, value: Any) -> Interval:
        """Of a timedelta, or of what Arrow has."""
        if isinstance(value, timedelta):
            return checked(0, value.days, value.seconds * 1_000_000 + value.microseconds)
        months, days, nanoseconds = value
        return checked(months, days, nanoseconds // 1000)

    @classmethod
    def of_stored(cls, raw: bytes) -> Interval:
        months, days, nanoseconds = _STORED.unpack(raw)
        return cls(months, days, nanoseconds // 1000)

    @property
    def stored(self) -> bytes:
        checked(self.months, self.days, self.microseconds)
        return _STORED.pack(self.months, self.days, self.microseconds * 1000)

    @property
    def timedelta(self) -> timedelta:
        """As long as this, a month having 30 days.  Raises OverflowError if there is none."""
        return timedelta(days=self.months * DAYS_A_MONTH + self.days, microseconds=self.microseconds)

    def length(self) -> int:
        """Microseconds, for comparing."""
        return (self.months * DAYS_A_MONTH + self.days) * DAY + self.microseconds

    def __str__(self) -> str:
        """As PostgreSQL writes it: ``1 year 2 mons -3 days 04:05:06.7``."""
        years, months = int(self.months / 12), self.months - 12 * int(self.months / 12)
        parts: list[str] = []
        for amount, word in ((years, "year"), (months, "mon"), (self.days, "day")):
            if amount:
                sign = "+" if amount > 0 and parts and parts[-1].startswith("-") else ""
                parts.append(f"{sign}{amount} {word}{'' if amount == 1 else 's'}")
        if self.microseconds or not parts:
            seconds, fraction = divmod(abs(self.microseconds), 1_000_000)
            sign = "-" if self.microseconds < 0 else "+" if parts and parts[-1].startswith("-") else ""
            tail = f".{fraction:06d}".rstrip("0") if fraction else ""
            parts.append(f"{sign}{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{tail}")
        return " ".join(parts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Interval) and self.length() == other.length()

    def __hash__(self) -> int:
        return hash(self.length())

    def __lt__(self, other: Interval) -> bool:
        return self.length() < other.length()

    def __le__(self, other: Interval) -> bool:
        return self.length() <= other.length()

    def __gt__(self, other: Interval) -> bool:
        return self.length() > other.length()

    def __ge__(self, other: Interval) -> bool:
        return self.length() >= other.length()

    def negated(self) -> Interval:
        return checked(-self.months, -self.days, -self.microseconds)

    def times(self, factor: float) -> Interval:
        return self._scaled(lambda part: part * factor)

    def divided(self, divisor: float) -> Interval:
        if not divisor:
            raise DivisionByZero("division by zero")
        return self._scaled(lambda part: part / divisor)

    def _scaled(self, scaled: Callable[[int], float]) -> Interval:
        """Parts of a month become days (30 a month), and parts of a day time."""
        try:
            months, days = scaled(self.months), scaled(self.days)
            whole_months, whole_days = int(months), int(days)
            spill = round((months - whole_months) * DAYS_A_MONTH, 6)
            more_days = int(spill)
            seconds = round((days - whole_days + (spill - more_days)) * 86400, 6)
            if abs(seconds) >= 86400:
                whole_days += int(seconds / 86400)
                seconds -= int(seconds / 86400) * 86400
            microseconds = round(scaled(self.microseconds) + seconds * 1_000_000)
        except (OverflowError, ValueError):
            raise ValueOutOfRange("interval out of range") from None
        return checked(whole_months, whole_days + more_days, microseconds)

    def plus(self, other: Interval) -> Interval:
        return checked(self.months + other.months, self.days + other.days, self.microseconds + other.microseconds)

    def minus(self, other: Interval) -> Interval:
        return checked(self.months - other.months, self.days - other.days, self.microseconds - other.microseconds)


def checked(months: int, days: int, microseconds: int) -> Interval:
    """An interval, if its parts are not too large."""
    if min(months, days) < _PART_MIN or max(months, days) > _PART_MAX or abs(microseconds) > _MICROSECONDS_MAX:
        raise ValueOutOfRange("interval out of range")
    return Interval(months, days, microseconds)
