"""to_char, to_date and to_timestamp: times in a format that says, as PostgreSQL has it, where which part stands.

YYYY IYYY YYY YY Y, Q, MM MONTH Month month MON Mon mon, DD DDD D ID J, WW W IW CC, DAY Day day DY Dy dy, HH24 HH12 HH,
MI, SS, SSSS, MS, US, AM PM am pm A.M. P.M. a.m. p.m.; FM before a part leaves out its filling, and what stands between
double quotes, or means nothing else, stands for itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date, datetime, timedelta
from functools import lru_cache
from typing import NoReturn

from gmdb.errors import InvalidText, UndefinedResult, ValueOutOfRange

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
_PIECE = re.compile(rf'"([^"]*)"|(FM)?({_WORDS})|(.)', re.DOTALL | re.IGNORECASE)
_READ = ("YYYY", "YYY", "YY", "Y", "MM", "DD", "DDD", "HH24", "HH12", "HH", "MI", "SS", "MS", "US")


@lru_cache(maxsize=64)
def _pieces(form: str) -> tuple[tuple[str, str, bool], ...]:
    """What a format is made of: a part's name as it is written, or a text, and whether the part is not filled up."""
    pieces = []
    for match in _PIECE.finditer(form):
        if match[3] and match[3].upper() in _REFUSED:
            raise UndefinedResult(f"{form!r} is no format of a time: {match[3]} is not supported")
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
        rest = _read(part.upper(), rest, fields, text, form)
    return _from_fields(fields, text)


def _read(word: str, rest: str, fields: dict[str, int], text: str, form: str) -> str:
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
