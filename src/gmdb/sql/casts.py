"""CAST: from every type to every other that PostgreSQL converts, and reading a value from its text.

Invariants
 1. What a literal becomes (``read_text``) is what the same text becomes by a cast.
 2. Lengths are bytes of UTF-8, as in columns; an explicit cast cuts after the last whole character that fits.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from functools import partial
from typing import Any

from gmdb.errors import InvalidText, TypeMismatch, ValueOutOfRange
from gmdb.format import json_text
from gmdb.format.columns import ColumnType, encode_text, is_uuid, json_of
from gmdb.format.interval import Interval
from gmdb.process.late_patterns import late_pattern
from gmdb.sql import arrays, numbers, times, zones
from gmdb.sql.types import BYTEA, BYTES, FLOATS, INTEGERS, JSON, JSONB, TEXT, TEXTS, pg_name

Cast = Callable[[Any], Any]
_INTEGER = late_pattern(r"\s*[+-]?\d+\s*", re.ASCII)
_DECIMAL = late_pattern(r"\s*[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?\s*", re.ASCII | re.I)
_SPECIAL_DOUBLES = {"nan": float("nan"), "infinity": float("inf"), "inf": float("inf")}
_TRUTHS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
_UUID = late_pattern(r"[0-9a-f]{4}(-?[0-9a-f]{4}){7}", re.I)
_ESCAPED_BYTE = late_pattern(rb"\\(\\|[0-3][0-7][0-7]|.?)", re.DOTALL)


# ---- reading text


def _unreadable(type_: ColumnType, text: str) -> InvalidText:
    return InvalidText(f"invalid input syntax for type {pg_name(type_)}: {text!r}")


def _read_integer(type_: ColumnType) -> Cast:
    low, high = INTEGERS[type_.name]

    def read(text: str) -> int:
        if not _INTEGER.fullmatch(text):
            raise _unreadable(type_, text)
        digits = text.strip().lstrip("+-0")
        value = int(digits or 0) if len(digits) < 20 else 1 << 64
        value = -value if "-" in text else value
        if not low <= value <= high:
            raise ValueOutOfRange(f"value {text.strip()[:40]!r} is out of range for type {pg_name(type_)}")
        return value

    return read


def _read_floating(type_: ColumnType) -> Cast:
    def read(text: str) -> float:
        word = text.strip().lower()
        if word.lstrip("+-") in _SPECIAL_DOUBLES and word[1:2].isalpha():
            return float(word)
        if not _DECIMAL.fullmatch(text):
            raise _unreadable(type_, text)
        value = float(text)
        try:
            value = numbers.real_of_number(Decimal(text.strip())) if type_.name == "REAL" and value else value
        except ValueOutOfRange:
            value = math.inf
        if math.isinf(value) or (not value and re.search(r"[1-9]", word.partition("e")[0])):
            raise ValueOutOfRange(f"{text.strip()!r} is out of range for type {pg_name(type_)}")
        return value

    return read


def read_decimal(text: str, type_: ColumnType) -> Decimal:
    """Of any number of digits."""
    if not _DECIMAL.fullmatch(text):
        raise _unreadable(type_, text)
    try:
        value = Decimal(text.strip())
        if abs(value.adjusted()) > numbers.DIGITS_MAX or int(value.as_tuple().exponent) < -numbers.DIGITS_MAX:
            numbers.too_many_digits()
    except InvalidOperation:
        raise _unreadable(type_, text) from None
    return numbers.plain_decimal(value)


def _read_boolean(text: str) -> bool:
    """Words may be cut as long as they are clear."""
    word = text.strip().lower()
    truths = {truth for name, truth in _TRUTHS.items() if word and name.startswith(word)} if word != "o" else set()
    if len(truths) != 1:
        raise InvalidText(f"invalid input syntax for type boolean: {text!r}; write true or false")
    return truths.pop()


def read_bytes(text: str) -> bytes:
    r"""``\x`` and hexadecimal digits, or text with ``\\`` and ``\ooo`` for what it cannot hold."""
    if text.startswith("\\x"):
        try:
            return bytes.fromhex(text[2:])
        except ValueError:
            raise InvalidText(f"invalid hexadecimal data: {text!r}") from None

    def byte(match: re.Match[bytes]) -> bytes:
        if match[1] == b"\\":
            return b"\\"
        if len(match[1]) != 3:
            raise InvalidText(f"invalid input syntax for type bytea: {text!r}")
        return bytes([int(match[1], 8)])

    return _ESCAPED_BYTE.sub(byte, encode_text(text))


def read_uuid(text: str) -> Any:
    """32 hexadecimal digits, in groups of four or not, also in braces."""
    from uuid import UUID

    word = text.strip()
    word = word[1:-1] if word[:1] == "{" and word[-1:] == "}" else word
    if not _UUID.fullmatch(word):
        raise InvalidText(f"invalid input syntax for type uuid: {text!r}")
    return UUID(word.replace("-", ""))


def read_text(type_: ColumnType) -> Cast:
    """The function that reads a literal or a text as a value of the type."""
    name = type_.name
    if type_.is_array:
        read_element = read_text(type_.element)
        return lambda text: arrays.read_array(text, read_element)
    if name in INTEGERS:
        return _read_integer(type_)
    if name in FLOATS:
        return _read_floating(type_)
    if name == "DECIMAL":
        fit = numbers.fit_to(type_)
        return lambda text: fit(read_decimal(text, type_))
    if name in BYTES:
        return lambda text: fit_bytes(type_)(read_bytes(text))
    if name in TEXTS:
        return fit_text(type_)
    others: dict[str, Cast] = {
        "BOOLEAN": _read_boolean,
        "DATE": times.read_date,
        "TIME": times.read_time,
        "UUID": read_uuid,
        "TIMESTAMP": times.read_timestamp,
        "TIMESTAMPTZ": partial(zones.read_instant, zone=zones.ZONE.get()),
        "INTERVAL": times.read_interval,
        "JSON": json_text.check,
        "JSONB": json_text.normal,
    }
    return others[name]


# ---- writing text


def bytes_text(value: bytes) -> str:
    return "\\x" + value.hex()


def write_text(type_: ColumnType) -> Cast:
    """The function that writes a value as text; of CHAR without the blanks that fill it up."""
    if type_.is_array:
        write = write_element(type_.element)
        return lambda values: arrays.array_text(values, write)
    writers: dict[str, Cast] = {
        **dict.fromkeys(("SMALLINT", "INT", "BIGINT", "UUID"), str),
        "REAL": numbers.real_text,
        "TIME": times.time_text,
        "DOUBLE": numbers.double_text,
        "DECIMAL": numbers.decimal_text,
        "BOOLEAN": lambda value: "true" if value else "false",
        "DATE": times.date_text,
        "TIMESTAMP": times.timestamp_text,
        "TIMESTAMPTZ": partial(zones.instant_text, zone=zones.ZONE.get()),
        "INTERVAL": str,
        "CHAR": lambda value: value.rstrip(" "),
        "VARCHAR": str,
        "JSON": str,
        "JSONB": str,
        "BINARY": bytes_text,
        "VARBINARY": bytes_text,
    }
    return writers[type_.name]


def write_element(type_: ColumnType) -> Cast:
    """The function that writes an element of an array as text."""
    return (lambda value: "t" if value else "f") if type_.name == "BOOLEAN" else write_text(type_)


# ---- fitting a value into a type's length


def fit_text(type_: ColumnType) -> Cast:
    """The function that cuts a text to the type's length, and fills up a CHAR."""
    limit, fill = type_.length, type_.name == "CHAR"
    if type_ == TEXT:  # of any length; a column that is shorter refuses what is too long
        return lambda text: text

    def fit(text: str) -> str:
        size = len(text) if text.isascii() else len(encode_text(text))
        if size > limit:
            text = encode_text(text)[:limit].decode(errors="ignore")
            size = len(text.encode())
        return text + " " * (limit - size) if fill else text

    return fit


def fit_bytes(type_: ColumnType) -> Cast:
    limit, fill = type_.length, type_.name == "BINARY"
    if type_ == BYTEA:
        return lambda value: value
    return lambda value: value[:limit].ljust(limit, b"\0") if fill else value[:limit]


# ---- parameters


def receive_parameter(type_: ColumnType) -> Cast | None:
    """The function that converts a parameter's value of a type to one that expressions use; None: none is needed."""
    if type_.is_array:
        return partial(_receive_array, type_.element)
    if type_.name == "DECIMAL":
        return lambda value: _all_digits(value, type_.scale)
    if type_.name == "VARBINARY":
        return bytes
    if type_.name == "TIMESTAMPTZ":
        return zones.in_utc
    if type_ == JSONB:
        return lambda value: json_of(JSONB, value)
    return _interval if type_.name == "INTERVAL" else None


def _receive_array(element: ColumnType, values: Sequence[Any]) -> tuple[Any, ...]:
    """A list as an array of just this type, to whose elements it came by its own ones."""
    take, receive = TAKEN[element.name], receive_parameter(element)
    if element.name in TEXTS:
        return tuple(values)
    taken = (None if value is None else take(value) for value in values)
    return tuple(taken) if receive is None else tuple(None if one is None else receive(one) for one in taken)


def _all_digits(value: Decimal | int, scale: int) -> Decimal:
    result = numbers.at_scale(Decimal(value), scale)
    return result if result == value else numbers.too_many_decimal_digits()


def accept_parameter(type_: ColumnType, label: str) -> Cast:
    """The function that checks a parameter's value, or turns it into the type that its surroundings need.

    A str is read as a literal would be; whole numbers serve as decimals and doubles, and dates where
    timestamps are; where a time zone matters, it is that of the statement.  A decimal is rounded to the type's digits.
    """
    read, zone = read_text(type_), zones.ZONE.get()
    name = type_.name
    if type_.is_array:
        return _accept_array(type_, label, read)
    taking = _by_zone(_BY_ZONE[name], zone) if name in _BY_ZONE else TAKEN[name]
    fit = numbers.fit_to(type_) if name == "DECIMAL" else None

    def accept(value: Any) -> Any:
        if value is None:
            return None
        if isinstance(value, str):
            return value if name in TEXTS else read(value)
        taken = taking(value)
        if taken is None:
            hint = f"Write CAST(? AS ...) if it is to have another type than {pg_name(type_)}"
            raise TypeMismatch(f"parameter {label} is {value!r}, but the statement needs a {type_.name}. {hint}")
        if fit is not None:
            return fit(taken)
        if name in INTEGERS and not INTEGERS[name][0] <= taken <= INTEGERS[name][1]:
            raise ValueOutOfRange(f"parameter {label} is {value!r}, which is out of range for type {pg_name(type_)}")
        return taken

    return accept


def _accept_array(type_: ColumnType, label: str, read: Cast) -> Cast:
    accept_element = accept_parameter(type_.element, f"{label}, an element,")

    def accept(value: Any) -> Any:
        if isinstance(value, list | tuple):
            return tuple(map(accept_element, value))
        if value is None or isinstance(value, str):
            return None if value is None else read(value)
        raise TypeMismatch(f"parameter {label} is {value!r}, but the statement needs a list: {pg_name(type_)}")

    return accept


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _decimal(value: Any) -> Decimal | None:
    if isinstance(value, Decimal):
        return numbers.plain_decimal(value) if value.is_finite() else None
    if isinstance(value, float):
        return numbers.plain_decimal(Decimal(repr(value))) if value - value == 0 else None
    return None if _whole(value) is None else Decimal(value)


def _double(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return None
    return value if isinstance(value, float) else numbers.double_of_decimal(value)


def _real(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return None
    return numbers.real_of_double(value) if isinstance(value, float) else numbers.real_of_number(value)


def _interval(value: Any) -> Interval | None:
    if isinstance(value, Interval):
        return value
    return Interval.of(value) if isinstance(value, timedelta) else None


def _instant(value: Any, zone: str) -> datetime | None:
    """A time without a zone is one of the session's."""
    if isinstance(value, datetime) and value.tzinfo is not None:
        return zones.in_utc(value)
    shown = _timestamp(value, zone)
    return None if shown is None else zones.instant(shown, zone)


def _timestamp(value: Any, zone: str) -> datetime | None:
    if isinstance(value, datetime):
        return value if value.tzinfo is None else zones.local(value, zone)
    return times.timestamp_of_date(value) if isinstance(value, date) else None


def _by_zone(take: Callable[[Any, str], Any], zone: str) -> Callable[[Any], Any]:
    return lambda value: take(value, zone)


_BY_ZONE: dict[str, Callable[[Any, str], Any]] = {"TIMESTAMP": _timestamp, "TIMESTAMPTZ": _instant}
TAKEN: dict[str, Callable[[Any], Any]] = {
    "SMALLINT": _whole,
    "INT": _whole,
    "BIGINT": _whole,
    "DECIMAL": _decimal,
    "REAL": _real,
    "DOUBLE": _double,
    "BOOLEAN": lambda value: value if isinstance(value, bool) else None,
    "DATE": lambda value: value if type(value) is date else None,
    "TIME": lambda value: value if isinstance(value, time) and value.tzinfo is None else None,
    **{name: _by_zone(take, "UTC") for name, take in _BY_ZONE.items()},
    "UUID": lambda value: value if is_uuid(value) else None,
    "CHAR": lambda _: None,
    "VARCHAR": lambda _: None,
    "BINARY": lambda value: bytes(value) if isinstance(value, bytes | bytearray | memoryview) else None,
    "VARBINARY": lambda value: bytes(value) if isinstance(value, bytes | bytearray | memoryview) else None,
    "INTERVAL": _interval,
    "JSON": lambda value: json_of(JSON, value) if isinstance(value, dict | list) else None,
    "JSONB": lambda value: json_of(JSONB, value) if isinstance(value, dict | list) else None,
}
