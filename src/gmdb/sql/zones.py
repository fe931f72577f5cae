"""Time zones: instants (TIMESTAMPTZ) as clocks show them, and back.

An instant is a datetime of UTC.  What depends on a zone is given its name: that of the session, by which a statement is
bound (``ZONE``), or one that the statement says.  Rules of zones are those of ``zoneinfo``.
A time that clocks skip is read as if they had not yet been moved, one that they show twice as the second of the two.
"""

from __future__ import annotations

import re
from contextvars import ContextVar
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from functools import lru_cache

from gmdb.errors import InvalidText, UndefinedResult, ValueOutOfRange
from gmdb.format.columns import UTC_EPOCH
from gmdb.format.interval import Interval
from gmdb.process.late_patterns import late_pattern
from gmdb.sql import times

ZONE: ContextVar[str] = ContextVar("the time zone by which statements are bound", default="UTC")
_UTC_NAMES = ("utc", "z", "zulu", "gmt", "uct")
_OFFSET = late_pattern(r"([+-])(\d{1,2})(?::?(\d{2})(?::?(\d{2}))?)?")
_HOURS = late_pattern(r"([+-]?\d{1,2}(?:\.\d+)?)")
_POSIX = late_pattern(r"(?:<[^>]*>|[a-z]{3,})?([+-]?)(\d{1,2})(?::?(\d{2})(?::?(\d{2}))?)?", re.I)
_ZONED = late_pattern(
    r"(.*\d:\d.*?)\s*([+-]\d{1,2}(?::?\d{2}(?::?\d{2})?)?|[a-z][\w/+-]*)|(.*\d)(?:\s+([a-z][\w/+-]*)|(z))", re.I
)
_HALVES = late_pattern(r".*\s*(?:am|pm)", re.I)
_MAX_OFFSET = timedelta(hours=15, minutes=59, seconds=59)


# ---- zones by their names


@lru_cache(maxsize=256)
def zone_named(name: str) -> tzinfo:
    """A zone: of the tz database, in any letters, or a distance from UTC.  As in POSIX that is counted to the west."""
    word = name.strip()
    if word.lower() in _UTC_NAMES:
        return UTC
    known = _of_database(word)
    if known is not None:
        return known
    match = _POSIX.fullmatch(word)
    if match is None or not (match[1] or word[:1] == "<"):
        raise ValueOutOfRange(f"time zone {name!r} is not known; write one such as 'Europe/Vienna' or 'UTC'")
    return _fixed("-" if match[1] != "-" else "+", match[2], match[3], match[4], name)


def _of_database(word: str) -> tzinfo | None:
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones  # few statements need it

    if not re.fullmatch(r"[A-Za-z][\w+/-]*", word):
        return None
    try:
        return ZoneInfo(word)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        by_letters = {one.lower(): one for one in available_timezones()}
        same = by_letters.get(word.lower())
        return ZoneInfo(same) if same else None


def _fixed(sign: str, hours: str, minutes: str | None, seconds: str | None, name: str) -> tzinfo:
    distance = timedelta(hours=int(hours), minutes=int(minutes or 0), seconds=int(seconds or 0))
    if distance > _MAX_OFFSET or int(minutes or 0) > 59 or int(seconds or 0) > 59:
        raise ValueOutOfRange(f"time zone displacement out of range: {name!r}")
    return timezone(-distance if sign == "-" else distance)


def zone_setting(value: str) -> str:
    """The name of the zone that SET is given: a number counts hours to the east."""
    match = _HOURS.fullmatch(value.strip())
    if match is not None:
        minutes = round(Decimal(match[1]) * 60)
        hours = f"{abs(minutes) // 60:02d}" + (f":{abs(minutes) % 60:02d}" if minutes % 60 else "")
        return f"<{'-' if minutes < 0 else '+'}{hours}>{'-' if minutes >= 0 else '+'}{hours}"
    zone = zone_named(value)
    return "UTC" if zone is UTC else str(zone) if hasattr(zone, "key") else value.strip()


def zone_of_interval(distance: Interval) -> str:
    """An interval as a zone: its time counts to the east."""
    if distance.months or distance.days:
        raise UndefinedResult("an interval that is a time zone has neither months nor days")
    seconds = round(distance.microseconds / 1_000_000)
    sign, seconds = ("-" if seconds >= 0 else "+"), abs(seconds)
    return f"{sign}{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"


# ---- instants and what clocks show


def _out_of_range() -> ValueOutOfRange:
    return ValueOutOfRange("timestamp out of range")


def local(value: datetime, zone: str) -> datetime:
    """What clocks of a zone show at an instant."""
    try:
        return value.astimezone(zone_named(zone)).replace(tzinfo=None)
    except (OverflowError, ValueError):
        raise _out_of_range() from None


def instant(value: datetime, zone: str) -> datetime:
    """The instant at which clocks of a zone show a time."""
    return _at(value, zone_named(zone))


def _at(value: datetime, zone: tzinfo) -> datetime:
    try:
        offsets = [value.replace(tzinfo=zone, fold=fold).utcoffset() or timedelta(0) for fold in (0, 1)]
        return (value.replace(fold=0) - min(offsets)).replace(tzinfo=UTC)
    except (OverflowError, ValueError):
        raise _out_of_range() from None


def in_utc(value: datetime) -> datetime:
    """An aware datetime as an instant."""
    try:
        return value.astimezone(UTC)
    except (OverflowError, ValueError):
        raise _out_of_range() from None


def instant_of_date(value: date, zone: str) -> datetime:
    return instant(times.timestamp_of_date(value), zone)


def date_of_instant(value: datetime, zone: str) -> date:
    return local(value, zone).date()


def time_of_instant(value: datetime, zone: str) -> time:
    return local(value, zone).time()


# ---- texts


def read_instant(text: str, zone: str) -> datetime:
    """A time with a zone behind it, or else of the given one."""
    word = text.strip()
    match = None if _HALVES.fullmatch(word) else _ZONED.fullmatch(word)
    if match is None:
        return instant(times.read_timestamp(word), zone)
    shown, name = times.read_timestamp(match[1] or match[3]), match[2] or match[4] or match[5]
    offset = _OFFSET.fullmatch(name)
    if offset is not None:
        return _at(shown, _fixed(offset[1], offset[2], offset[3], offset[4], name))
    try:
        return instant(shown, name)
    except ValueOutOfRange:
        raise InvalidText(f"invalid input syntax for type timestamp with time zone: {text!r}") from None


def instant_text(value: datetime, zone: str) -> str:
    try:
        shown = value.astimezone(zone_named(zone))
    except (OverflowError, ValueError):
        raise _out_of_range() from None
    return times.timestamp_text(shown) + offset_text(shown.utcoffset() or timedelta(0))


def offset_text(offset: timedelta) -> str:
    seconds = round(offset.total_seconds())
    sign, seconds = ("-" if seconds < 0 else "+"), abs(seconds)
    text = f"{sign}{seconds // 3600:02d}"
    if seconds % 3600:
        text += f":{seconds // 60 % 60:02d}"
    return text + (f":{seconds % 60:02d}" if seconds % 60 else "")


# ---- arithmetic: months and days go by the clocks of a zone, hours by time that passes


def add_interval(value: datetime, interval: Interval, zone: str) -> datetime:
    if interval.months or interval.days:
        shown = times.add_interval(local(value, zone), Interval(interval.months, interval.days, 0))
        value = instant(shown, zone)
    try:
        return value + timedelta(microseconds=interval.microseconds)
    except OverflowError:
        raise _out_of_range() from None


def subtract_interval(value: datetime, interval: Interval, zone: str) -> datetime:
    return add_interval(value, interval.negated(), zone)


def age(later: datetime, earlier: datetime, zone: str) -> Interval:
    return times.age(local(later, zone), local(earlier, zone))


# ---- fields

_OF_ZONES = ("timezone", "timezone_hour", "timezone_minute")
FIELDS = (*times.FIELDS, *_OF_ZONES)
_WITHIN_HOURS = ("hour", "minute", "second", "milliseconds", "microseconds")


def extract(field: str, value: datetime, zone: str) -> Decimal:
    """A field of what clocks show, or the instant itself."""
    name = times.field_name(field)
    if name == "epoch":
        return Decimal((value - UTC_EPOCH) // timedelta(microseconds=1)).scaleb(-6)
    if name in _OF_ZONES:
        offset = value.astimezone(zone_named(zone)).utcoffset() or timedelta(0)
        seconds = round(offset.total_seconds())
        hours, minutes = int(seconds / 3600), int(seconds / 60) - int(seconds / 3600) * 60
        return Decimal({"timezone": seconds, "timezone_hour": hours, "timezone_minute": minutes}[name])
    return times.extract(field, local(value, zone))


def part(field: str, value: datetime, zone: str) -> float:
    return float(extract(field, value, zone))


def truncate(field: str, value: datetime, zone: str) -> datetime:
    """To an hour or less it stays at its distance from UTC, also where clocks show a time twice."""
    shown = local(value, zone)
    cut = times.truncate_timestamp(field, shown)
    if times.field_name(field) in _WITHIN_HOURS:
        try:
            return value - (shown - cut)
        except OverflowError:
            raise _out_of_range() from None
    return instant(cut, zone)


def formatted(value: datetime, form: str, zone: str) -> str | None:
    return times.formatted(local(value, zone), form)


def in_format(text: str, form: str, zone: str) -> datetime:
    return instant(times.timestamp_in_format(text, form), zone)


def make(year: int, month: int, day: int, hour: int, minute: int, seconds: float, zone: str) -> datetime:
    return instant(times.make_timestamp(year, month, day, hour, minute, seconds), zone)


def of_seconds(seconds: float) -> datetime:
    """The instant so many seconds after 1970 began."""
    return times.timestamp_of_seconds(seconds).replace(tzinfo=UTC)
