"""Dates, timestamps and intervals at run time: how they are written, their fields, and what is added to them.

A timestamp has no zone.  An interval is months, days and microseconds apart, as in PostgreSQL: a month has no fixed
number of days.  No function here takes None.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import NoReturn

from gmdb.errors import InvalidText, UndefinedResult, ValueOutOfRange
from gmdb.format.columns import EPOCH, EPOCH_DATE, MICROSECOND, microseconds_of, time_of
from gmdb.format.interval import DAY, Interval
from gmdb.process.late_patterns import late_pattern

_DAYS_OF_400_YEARS = 146_097  # after which the calendar repeats
_DATE = late_pattern(r"(\d{4,})[-/.](\d{1,2})[-/.](\d{1,2})|(\d{4})(\d{2})(\d{2})|(\d{1,2})/(\d{1,2})/(\d{4})")
_TIME = late_pattern(r"(\d{1,2}):(\d{1,2})(?::(\d{1,2})(\.\d*)?)?(?:\s*(am|pm))?", re.I)
_STAMP = late_pattern(r"(\S+?)(?:(?:\s+|T)(\d{1,2}:.*?)\s*(?:Z|utc|[+-]\d{1,2}(?::?\d{2})?)?)?", re.I)
_TIME_ALONE = late_pattern(r"T?(\d{1,2}:.*?)\s*(?:Z|utc|[+-]\d{1,2}(?::?\d{2})?)?", re.I)
_PIECE = late_pattern(r"([+-]?)(\d+):(\d{1,2})(?::(\d{1,2}(?:\.\d*)?))?|([+-]?(?:\d+\.?\d*|\.\d+))\s*([a-z]+)?", re.I)
_UNITS = {
    "year": (12, 0, 0),
    "decade": (120, 0, 0),
    "century": (1200, 0, 0),
    "month": (1, 0, 0),
    "week": (0, 7, 0),
    "day": (0, 1, 0),
    "hour": (0, 0, 3_600_000_000),
    "minute": (0, 0, 60_000_000),
    "second": (0, 0, 1_000_000),
    "millisecond": (0, 0, 1000),
    "microsecond": (0, 0, 1),
}
_CLOCK = {"hour", "minute", "second", "millisecond", "microsecond"}  # what a time of day sets
_SHORT_UNITS = {
    **{"y": "year", "yr": "year", "mon": "month", "w": "week", "d": "day", "h": "hour", "hr": "hour", "m": "minute"},
    **{"min": "minute", "s": "second", "sec": "second", "ms": "millisecond", "us": "microsecond"},
    "centurie": "century",
}


# ---- reading


def read_date(text: str) -> date:
    """ISO 8601, or month/day/year; a time behind it is checked and dropped."""
    return _read(text, "date")[0].date()


def read_timestamp(text: str) -> datetime:
    """A date, and a time of day if there is one; a zone behind it is dropped, as PostgreSQL does."""
    return _at(*_read(text, "timestamp"), text)


def read_time(text: str) -> time:
    """A time of day; a date before it, and an offset behind it, are dropped, as PostgreSQL does."""
    word = text.strip()
    match = _TIME_ALONE.fullmatch(word)
    if match is None:
        return time_of_timestamp(_at(*_read(text, "time"), text))
    try:
        since_midnight = _time_of(match[1], text)
    except (ValueError, OverflowError):
        raise ValueOutOfRange(f"date/time field value out of range: {text!r}") from None
    if since_midnight >= timedelta(days=1):
        raise ValueOutOfRange(f"a TIME is before 24:00:00: {text!r}")
    return (EPOCH + since_midnight).time()


def _at(day: datetime, time_of_day: timedelta, text: str) -> datetime:
    try:
        return day + time_of_day
    except OverflowError:
        raise ValueOutOfRange(f"date/time field value out of range: {text!r}") from None


def _read(text: str, name: str) -> tuple[datetime, timedelta]:
    match = _STAMP.fullmatch(text.strip())
    day = _DATE.fullmatch(match[1]) if match else None
    if match is None or day is None:
        raise InvalidText(f"invalid input syntax for type {name}: {text!r}; write it as 2024-12-31 or with 23:59:59")
    year, month, dom = (int(part) for part in _date_parts(day))
    try:
        return datetime(year, month, dom), _time_of(match[2], text) if match[2] else timedelta(0)
    except (ValueError, OverflowError):
        raise ValueOutOfRange(f"date/time field value out of range: {text!r}") from None


def _date_parts(match: re.Match[str]) -> tuple[str, str, str]:
    if match[1]:
        return match[1], match[2], match[3]
    return (match[4], match[5], match[6]) if match[4] else (match[9], match[7], match[8])


def _time_of(text: str, whole: str) -> timedelta:
    match = _TIME.fullmatch(text)
    if match is None:
        raise InvalidText(f"invalid input syntax for type timestamp: {whole!r}; write the time as 23:59:59.999999")
    hour, minute, second = int(match[1]), int(match[2]), int(match[3] or 0)
    if match[5]:
        if not 1 <= hour <= 12:
            raise ValueError
        hour = hour % 12 + 12 * (match[5].lower() == "pm")
    microseconds = round(Decimal("0" + (match[4] or "")) * 1_000_000) if match[4] not in (None, ".") else 0
    result = timedelta(hours=hour, minutes=minute, seconds=second, microseconds=microseconds)
    if minute > 59 or second > 60 or result > timedelta(days=1):
        raise ValueError
    return result


def read_interval(text: str, unit: str | None = None) -> Interval:
    """Quantities with units and a time of day: ``1 year 2 months -3 days 04:05:06.7``."""
    rest = text.strip()
    ago = rest.lower().endswith(" ago")
    rest = rest[:-4].rstrip() if ago else rest
    if not rest:
        _no_interval(text)
    total, seen = Interval(0, 0, 0), set[str]()
    while rest:
        match = _PIECE.match(rest)
        if match is None:
            _no_interval(text)
        rest = rest[match.end() :].lstrip()
        if match[2] is not None:
            seconds = Decimal(match[4] or 0) + 60 * int(match[3]) + 3600 * int(match[2])
            piece = Interval(0, 0, round(seconds * (-1_000_000 if match[1] == "-" else 1_000_000)))
            names = _CLOCK
        else:
            # A number alone is days before a time of day, and seconds otherwise.
            word = match[6] or unit or ("day" if _TIME.match(rest.lstrip("+-")) else "second")
            names = {_unit_of(word)}
            parts = _UNITS.get(_unit_of(word))
            if parts is None:
                _no_interval(text)
            piece = _quantity(Decimal(match[5]), *parts)
        if names & seen:
            _no_interval(text)
        seen |= names
        total = total.plus(piece)
    return total.negated() if ago else total


def _quantity(amount: Decimal, months: int, days: int, microseconds: int) -> Interval:
    """Parts of years become months, none of less; parts of a month days, and parts of a day time."""
    if months > 1:
        return Interval(round(amount * months), 0, 0)
    whole_months = int(amount * months)
    all_days = amount * days + (amount * months - whole_months) * 30
    whole_days = int(all_days)
    return Interval(whole_months, whole_days, round(amount * microseconds + (all_days - whole_days) * DAY))


def _no_interval(text: str) -> NoReturn:
    raise InvalidText(f"invalid input syntax for type interval: {text!r}; write it as 1 year 2 months 3 days 04:05:06")


def _unit_of(word: str) -> str:
    word = word.lower()
    single = word[:-1] if len(word) > 2 and word.endswith("s") and word != "ms" else word
    return _SHORT_UNITS.get(single, single)


# ---- writing


def date_text(value: date) -> str:
    return f"{value.year:04d}-{value.month:02d}-{value.day:02d}"


def time_text(value: time | datetime) -> str:
    fraction = f".{value.microsecond:06d}".rstrip("0") if value.microsecond else ""
    return f"{value.hour:02d}:{value.minute:02d}:{value.second:02d}{fraction}"


def timestamp_text(value: datetime) -> str:
    return f"{date_text(value)} {time_text(value)}"


# ---- arithmetic


def timestamp_of_date(value: date) -> datetime:
    return datetime(value.year, value.month, value.day)


def date_of_timestamp(value: datetime) -> date:
    return value.date()


def time_of_timestamp(value: datetime) -> time:
    return value.time()


def time_of_interval(value: Interval) -> time:
    """Its time of day: whole days do not count."""
    return time_of(value.microseconds % DAY)


def interval_of_time(value: time) -> Interval:
    return Interval(0, 0, microseconds_of(value))


def add_to_time(value: time, interval: Interval) -> time:
    """A day has no end: 23:00 and two hours are 01:00; months and days do not count."""
    return time_of((microseconds_of(value) + interval.microseconds) % DAY)


def subtract_from_time(value: time, interval: Interval) -> time:
    return time_of((microseconds_of(value) - interval.microseconds) % DAY)


def time_between(later: time, earlier: time) -> Interval:
    return Interval(0, 0, microseconds_of(later) - microseconds_of(earlier))


def timestamp_of_both(day: date, time_of_day: time) -> datetime:
    return datetime.combine(day, time_of_day)


def extract_of_time(field: str, value: time) -> Decimal:
    """A field of a time of day."""
    name = field_name(field)
    if name == "epoch":
        return Decimal(microseconds_of(value)).scaleb(-6)
    if name in _TIME_FIELDS:
        return Decimal(_TIME_FIELDS[name](datetime.combine(EPOCH_DATE, value)))
    raise UndefinedResult(f"{field} is not a field of a time; the fields are {', '.join(OF_TIME)}")


def time_part(field: str, value: time) -> float:
    return float(extract_of_time(field, value))


def make_time(hour: int, minute: int, seconds: float) -> time:
    microseconds = round(seconds * 1_000_000) if 0 <= seconds <= 60 else -1
    whole = (hour * 60 + minute) * 60_000_000 + microseconds
    if not (0 <= hour <= 24 and 0 <= minute < 60 and microseconds >= 0 and whole < DAY):
        raise ValueOutOfRange(f"time field value out of range: {hour}:{minute:02}:{seconds}")
    return time_of(whole)


def add_days(value: date, days: int) -> date:
    try:
        return value + timedelta(days=days)
    except OverflowError:
        raise ValueOutOfRange("date out of range") from None


def subtract_days(value: date, days: int) -> date:
    return add_days(value, -days)


def days_between(later: date, earlier: date) -> int:
    return (later - earlier).days


def interval_between(later: datetime, earlier: datetime) -> Interval:
    microseconds = (later - earlier) // MICROSECOND
    days = int(microseconds / DAY) if abs(microseconds) < 1 << 53 else _toward_zero(microseconds, DAY)
    return Interval(0, days, microseconds - days * DAY)


def _toward_zero(a: int, b: int) -> int:
    return a // b if a >= 0 else -(-a // b)


def _days_in(year: int, month: int) -> int:
    if month == 2:
        return 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    return 30 + (month + month // 8) % 2


def add_interval(value: datetime, interval: Interval) -> datetime:
    """Months first, then days and time; only the end must be a timestamp, not what lies on the way."""
    turns = 0
    try:
        if interval.months:
            months = value.year * 12 + value.month - 1 + interval.months
            turns, year, month = (months // 12 - 2000) // 400, (months // 12) % 400 + 2000, months % 12 + 1
            value = value.replace(year=year, month=month, day=min(value.day, _days_in(year, month)))
        days = interval.days + turns * _DAYS_OF_400_YEARS
        return value + timedelta(days=days, microseconds=interval.microseconds)
    except (OverflowError, ValueError):
        raise ValueOutOfRange("timestamp out of range") from None


def subtract_interval(value: datetime, interval: Interval) -> datetime:
    return add_interval(value, interval.negated())


# ---- fields


def _seconds(value: datetime) -> Decimal:
    return Decimal(value.second * 1_000_000 + value.microsecond).scaleb(-6)


DATE_FIELDS: dict[str, Callable[[date], int]] = {
    "year": lambda value: value.year,
    "month": lambda value: value.month,
    "day": lambda value: value.day,
    "quarter": lambda value: (value.month + 2) // 3,
    "week": lambda value: value.isocalendar()[1],
    "isoyear": lambda value: value.isocalendar()[0],
    "dow": lambda value: value.isoweekday() % 7,
    "isodow": lambda value: value.isoweekday(),
    "doy": lambda value: value.timetuple().tm_yday,
    "decade": lambda value: value.year // 10,
    "century": lambda value: (value.year + 99) // 100,
    "millennium": lambda value: (value.year + 999) // 1000,
    "julian": lambda value: value.toordinal() + 1721425,
}
_TIME_FIELDS: dict[str, Callable[[datetime], Decimal | int]] = {
    "hour": lambda value: value.hour,
    "minute": lambda value: value.minute,
    "second": _seconds,
    "milliseconds": lambda value: Decimal(value.second * 1_000_000 + value.microsecond).scaleb(-3),
    "microseconds": lambda value: value.second * 1_000_000 + value.microsecond,
}
FIELDS = (*DATE_FIELDS, *_TIME_FIELDS, "epoch")
OF_TIME = (*_TIME_FIELDS, "epoch")
_SYNONYMS = {"years": "year", "months": "month", "days": "day", "hours": "hour", "minutes": "minute", "mon": "month"}
_SYNONYMS |= {"seconds": "second", "sec": "second", "millisecond": "milliseconds", "microsecond": "microseconds"}
_SYNONYMS |= {"weeks": "week", "y": "year", "d": "day", "h": "hour", "min": "minute", "decades": "decade"}


def field_name(word: str) -> str:
    """A field's usual name."""
    return _SYNONYMS.get(word.lower(), word.lower())


def extract(field: str, value: date) -> Decimal:
    """A field of a date or timestamp, as ``extract`` gives it."""
    name = field_name(field)
    is_timestamp = isinstance(value, datetime)
    if name in DATE_FIELDS and not (name == "julian" and is_timestamp):
        return Decimal(DATE_FIELDS[name](value))
    if name == "epoch":
        if isinstance(value, datetime):
            return Decimal((value - EPOCH) // MICROSECOND).scaleb(-6)
        return Decimal((value - EPOCH_DATE).days * 86400)
    if name in _TIME_FIELDS and isinstance(value, datetime):
        return Decimal(_TIME_FIELDS[name](value))
    what = "timestamp" if is_timestamp else "date"
    known = [name for name in FIELDS if name != "julian"] if is_timestamp else [*DATE_FIELDS, "epoch"]
    raise UndefinedResult(f"{field} is not a field of a {what}; the fields are {', '.join(known)}")


_WHOLE_PARTS = ("year", "month", "day", "hour", "minute", "quarter", "decade", "century", "millennium")
INTERVAL_FIELDS = (*_WHOLE_PARTS, "second", "milliseconds", "microseconds", "epoch")


def extract_of_interval(field: str, value: Interval) -> Decimal:
    """A field of an interval; its years have 365.25 days."""
    name = field_name(field)
    seconds = Decimal(value.microseconds).scaleb(-6)
    if name == "epoch":
        years, months = divmod(abs(value.months), 12)
        whole = (years * 1461 * 21600 + months * 30 * 86400) * (1 if value.months > 0 else -1)
        return whole + value.days * 86400 + seconds
    hours = int(seconds / 3600)
    minutes = int(seconds / 60) - hours * 60
    rest = seconds - hours * 3600 - minutes * 60
    years = int(Decimal(value.months) / 12)
    fields = {"year": years, "month": value.months - years * 12, "day": value.days, "hour": hours, "minute": minutes}
    fields |= {"quarter": int((value.months - years * 12) / 3) + 1, "decade": int(Decimal(years) / 10)}
    fields |= {"century": int(Decimal(years) / 100), "millennium": int(Decimal(years) / 1000)}
    if name in fields:
        return Decimal(fields[name])
    parts = {"second": rest, "milliseconds": rest * 1000, "microseconds": rest * 1_000_000}
    if name in parts:
        return parts[name]
    raise UndefinedResult(f"{field} is not a field of an interval; it has {', '.join((*fields, *parts))}, epoch")


def make_date(year: int, month: int, day: int) -> date:
    try:
        return date(year, month, day)
    except ValueError:
        raise ValueOutOfRange(f"date field value out of range: {year}-{month:02}-{day:02}") from None


def make_timestamp(year: int, month: int, day: int, hour: int, minute: int, seconds: float) -> datetime:
    microseconds = round(seconds * 1_000_000) if 0 <= seconds <= 60 else -1
    whole = (hour * 60 + minute) * 60_000_000 + microseconds
    if not (0 <= hour <= 24 and 0 <= minute < 60 and microseconds >= 0 and whole <= DAY):
        raise ValueOutOfRange(f"time field value out of range: {hour}:{minute:02}:{seconds}")
    try:
        return timestamp_of_date(make_date(year, month, day)) + timedelta(microseconds=whole)
    except OverflowError:
        raise ValueOutOfRange("timestamp out of range") from None


def timestamp_of_seconds(seconds: float) -> datetime:
    """The instant so many seconds after 1970 began."""
    try:
        return EPOCH + timedelta(microseconds=round(seconds * 1_000_000))
    except (OverflowError, ValueError):
        raise ValueOutOfRange(f"timestamp out of range: {seconds}") from None


def age(later: datetime, earlier: datetime) -> Interval:
    """The time between, as years, months, days and time of day."""
    if later < earlier:
        return age(earlier, later).negated()
    months = (later.year - earlier.year) * 12 + later.month - earlier.month
    days = later.day - earlier.day
    microseconds = (later - timestamp_of_date(later.date())) // MICROSECOND
    microseconds -= (earlier - timestamp_of_date(earlier.date())) // MICROSECOND
    if microseconds < 0:
        days, microseconds = days - 1, microseconds + DAY
    if days < 0:
        months, days = months - 1, days + _days_in(earlier.year, earlier.month)
    return Interval(months, days, microseconds)


def interval_part(field: str, value: Interval) -> float:
    return float(extract_of_interval(field, value))


def date_part(field: str, value: datetime) -> float:
    return float(extract(field, value))


_TRUNCATED: dict[str, Callable[[datetime], datetime]] = {
    "microseconds": lambda value: value,
    "milliseconds": lambda value: value.replace(microsecond=value.microsecond // 1000 * 1000),
    "second": lambda value: value.replace(microsecond=0),
    "minute": lambda value: value.replace(second=0, microsecond=0),
    "hour": lambda value: value.replace(minute=0, second=0, microsecond=0),
    "day": lambda value: datetime.combine(value, time()),
    "week": lambda value: datetime.combine(value - timedelta(days=value.weekday()), time()),
    "month": lambda value: datetime(value.year, value.month, 1),
    "quarter": lambda value: datetime(value.year, (value.month - 1) // 3 * 3 + 1, 1),
    "year": lambda value: datetime(value.year, 1, 1),
    "decade": lambda value: datetime(value.year // 10 * 10, 1, 1),
    "century": lambda value: datetime((value.year - 1) // 100 * 100 + 1, 1, 1),
    "millennium": lambda value: datetime((value.year - 1) // 1000 * 1000 + 1, 1, 1),
}


def truncate_timestamp(field: str, value: datetime) -> datetime:
    name = field_name(field)
    if name not in _TRUNCATED:
        raise UndefinedResult(f"a timestamp is not truncated to {field}, but to {', '.join(_TRUNCATED)}")
    try:
        return _TRUNCATED[name](value)
    except (ValueError, OverflowError):
        raise ValueOutOfRange("timestamp out of range") from None


# ---- to_char, to_date and to_timestamp: times in a format that says, as PostgreSQL has it, where which part stands.
#
# YYYY IYYY YYY YY Y, Q, MM MONTH Month month MON Mon mon, DD DDD D ID J, WW W IW CC, DAY Day day DY Dy dy, HH24 HH12
# HH, MI, SS, SSSS, MS, US, AM PM am pm A.M. P.M. a.m. p.m.; FM before a part leaves out its padding, and what stands
# between double quotes, or means nothing else, stands for itself.

_MONTHS = ["January", "February", "March", "April", "May", "June", "July", "August"]
_MONTHS += ["September", "October", "November", "December"]
_DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
_NAME_WIDTH = 9
_HALVES = ("A.M.", "P.M.", "AM", "PM")
_NUMBERS: dict[str, tuple[int, Callable[[datetime], int]]] = {
    "YYYY": (4, lambda t: t.year),
    "IYYY": (4, lambda t: t.isocalendar()[0]),
    "YYY": (3, lambda t: t.year % 1000),
    "YY": (2, lambda t: t.year % 100),
    "Y": (1, lambda t: t.year % 10),
    "Q": (1, lambda t: (t.month + 2) // 3),
    "MM": (2, lambda t: t.month),
    "DDD": (3, lambda t: t.timetuple().tm_yday),
    "DD": (2, lambda t: t.day),
    "ID": (1, lambda t: t.isoweekday()),
    "D": (1, lambda t: t.isoweekday() % 7 + 1),
    "J": (1, lambda t: t.toordinal() + 1721425),
    "WW": (2, lambda t: (t.timetuple().tm_yday + 6) // 7),
    "W": (1, lambda t: (t.day + 6) // 7),
    "IW": (2, lambda t: t.isocalendar()[1]),
    "CC": (2, lambda t: (t.year + 99) // 100),
    "HH24": (2, lambda t: t.hour),
    "HH12": (2, lambda t: (t.hour + 11) % 12 + 1),
    "HH": (2, lambda t: (t.hour + 11) % 12 + 1),
    "MI": (2, lambda t: t.minute),
    "SSSS": (1, lambda t: t.hour * 3600 + t.minute * 60 + t.second),
    "SS": (2, lambda t: t.second),
    "MS": (3, lambda t: t.microsecond // 1000),
    "US": (6, lambda t: t.microsecond),
}
_NAMES: dict[str, tuple[list[str], bool]] = {  # whether they are cut to three letters
    "MONTH": (_MONTHS, False),
    "MON": (_MONTHS, True),
    "DAY": (_DAYS, False),
    "DY": (_DAYS, True),
}
_REFUSED = ["SSSSS", "Y,YYY", "IYY", "IY", "I", "IDDD", "TZH", "TZM", "TZ", "TH", "SP", "TM", "OF", "RM"]
_REFUSED += ["FX", "BC", "AD", "B.C.", "A.D.", *(f"FF{n}" for n in range(1, 7))]  # what PostgreSQL knows beside
_WORDS = "|".join(map(re.escape, sorted({*_NUMBERS, *_NAMES, *_HALVES, *_REFUSED}, key=len, reverse=True)))
_FORMAT_PIECE = late_pattern(rf'"([^"]*)"|(FM)?({_WORDS})|(.)', re.DOTALL | re.IGNORECASE)
_READ = ("YYYY", "YYY", "YY", "Y", "MM", "DD", "DDD", "HH24", "HH12", "HH", "MI", "SS", "MS", "US")


@lru_cache(maxsize=64)
def _pieces(form: str) -> tuple[tuple[str, str, bool], ...]:
    """The parts of a format: each a part's name as it is written, or a text, and whether the part is not padded."""
    pieces = []
    for match in _FORMAT_PIECE.finditer(form):
        if match[3] and match[3].upper() in _REFUSED:
            raise UndefinedResult(f"{form!r} is not a format of a time: {match[3]} is not supported")
        if match[3]:
            pieces.append((match[3], "", bool(match[2])))
        else:
            pieces.append(("", match[1] if match[4] is None else match[4], False))
    return tuple(pieces)


def formatted(value: datetime, form: str) -> str | None:
    """to_char.  No format gives NULL."""
    if not form:
        return None
    result = []
    for part, text, bare in _pieces(form):
        word = part.upper()
        if word in _NUMBERS:
            width, number = _NUMBERS[word]
            result.append(str(number(value)).zfill(0 if bare else width))
        elif word in _NAMES:
            result.append(_name(part, value, bare))
        elif word in _HALVES:
            half = "AM" if value.hour < 12 else "PM"
            half = f"{half[0]}.M." if "." in word else half
            result.append(half.lower() if part[0].islower() else half)
        else:
            result.append(text)
    return "".join(result)


def _name(part: str, value: datetime, bare: bool) -> str:
    names, short = _NAMES[part.upper()]
    name = names[value.month - 1 if names is _MONTHS else value.weekday()]
    name = name[:3] if short else name
    name = name.upper() if part[:2].isupper() else name if part[0].isupper() else name.lower()
    return name if bare or short else name.ljust(_NAME_WIDTH)


# ---- reading


def date_in_format(text: str, form: str) -> date:
    """to_date."""
    return timestamp_in_format(text, form).date()


def timestamp_in_format(text: str, form: str) -> datetime:
    """to_timestamp.  What the format does not name is the first there is: the year 1, January, midnight."""
    fields: dict[str, int] = {}
    rest = text
    for part, literal, _ in _pieces(form):
        rest = rest.lstrip()
        if not part:
            if rest and not rest[0].isalnum() and not literal.isspace():
                rest = rest[1:]
            elif literal.isalnum() and rest[: len(literal)] == literal:
                rest = rest[len(literal) :]
            continue
        rest = _read_part(part.upper(), rest, fields, text, form)
    return _from_fields(fields, text)


def _read_part(word: str, rest: str, fields: dict[str, int], text: str, form: str) -> str:
    """Read one part from the beginning of the rest."""
    if word in _NAMES:
        names, short = _NAMES[word]
        for number, name in enumerate(names, 1):
            shown = name[:3] if short else name
            if rest[: len(shown)].lower() == shown.lower():
                if names is _MONTHS:
                    fields["MM"] = number
                return rest[len(shown) :]
        _unreadable(text, form)
    if word in _HALVES:
        half = rest[: len(word)].upper()
        if half not in _HALVES:
            _unreadable(text, form)
        fields["PM"] = int(half[0] == "P")
        return rest[len(word) :]
    if word not in _READ:
        raise UndefinedResult(f"{word} is written by to_char, but not read")
    width = 6 if word == "US" else _NUMBERS[word][0]
    match = re.match(rf"[0-9]{{1,{width}}}", rest)
    if match is None:
        if not rest:
            return rest
        _unreadable(text, form)
    value = int(match[0])
    if word == "MS":
        value = int(match[0].ljust(3, "0")) * 1000
    elif word == "US":
        value = int(match[0].ljust(6, "0"))
    elif word in ("YY", "Y", "YYY"):
        value += 2000 if value < 70 else 1900 if value < 100 else 1000 if value >= 520 else 2000
    fields[{"YYY": "YYYY", "YY": "YYYY", "Y": "YYYY", "HH": "HH12", "MS": "US"}.get(word, word)] = value
    return rest[match.end() :]


def _unreadable(text: str, form: str) -> NoReturn:
    raise InvalidText(f"{text!r} is not written as {form!r}")


def _from_fields(fields: dict[str, int], text: str) -> datetime:
    hour = fields.get("HH24", 0)
    if "HH12" in fields:
        if not 1 <= fields["HH12"] <= 12:
            raise ValueOutOfRange(f"hour {fields['HH12']} is invalid for the 12-hour clock: {text!r}")
        hour = fields["HH12"] % 12 + 12 * fields.get("PM", 0)
    year = fields.get("YYYY", 1)
    try:
        if "DDD" in fields:
            day = datetime(year, 1, 1) + timedelta(days=fields["DDD"] - 1)
            if day.year != year:
                raise ValueError
        else:
            day = datetime(year, fields.get("MM", 1), fields.get("DD", 1))
        return day.replace(
            hour=hour, minute=fields.get("MI", 0), second=fields.get("SS", 0), microsecond=fields.get("US", 0)
        )
    except (ValueError, OverflowError):
        raise ValueOutOfRange(f"date/time field value out of range: {text!r}") from None
