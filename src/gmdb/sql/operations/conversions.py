"""Conversions: explicit casts, implicit conversions, and the assignments of INSERT and UPDATE.

Invariants
 1. Where PostgreSQL has no cast, there is none here.
 2. What a literal becomes (``read_literal``) is what the same text becomes by a cast.
 3. Lengths are bytes of UTF-8, as in columns; an explicit cast cuts after the last whole character that fits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import lru_cache, partial
from typing import Any

from gmdb.errors import ValueTooLong
from gmdb.format.columns import DECIMAL_DIGITS_MAX, JSONS, ColumnType, encode_text
from gmdb.sql import casts, numbers, times, zones
from gmdb.sql.operations.operators import DUCK_NAMES
from gmdb.sql.operations.registry import Operation, function_of, named, written
from gmdb.sql.types import (
    DOUBLE,
    FLOATS,
    INTEGERS,
    NUMBERS,
    REAL,
    TEXT,
    TURNING,
    as_decimal,
    category,
    is_array,
    is_binary,
    is_integer,
    is_number,
    is_text,
    numeric,
    turns_into,
    within,
)

CAST = "cast"
WIDEN = "widen"  # of texts and bytes, which an implicit conversion does not cut
STORE = "store"  # of texts, which an assignment does not cut
_DOUBLE_SCALE = 16  # of a DOUBLE or a text that becomes numeric without digits
named(Decimal, numbers.double_of_decimal, times.timestamp_of_date, times.date_of_timestamp)


@lru_cache(maxsize=4096)
def cast(source: ColumnType, target: ColumnType, limited: bool = True) -> Operation | None:
    """The conversion of CAST; None if there is none.

    ``limited``: whether a DECIMAL's digits hold.  A cast to plain ``numeric`` keeps a decimal's scale, has none for
    integers and 16 digits behind the point for the rest.  A value of the target's type stays as it is.
    """
    if target.name == "DECIMAL" and not limited:
        target = _plain_numeric(source)
    if source == target or (source == within(source) and within(target) == source):
        return _unchanged(source, target)
    if target.name in ("CLOB", "BLOB"):
        target = within(target)
    return _explicit(source, target)


def _plain_numeric(source: ColumnType) -> ColumnType:
    return as_decimal(source) if is_integer(source) or source.name == "DECIMAL" else numeric(_DOUBLE_SCALE)


def _unchanged(source: ColumnType, target: ColumnType) -> Operation | None:
    return Operation(CAST, (source,), source, "{0}", "{0}", fails=False) if source == within(target) else None


def _of(
    source: ColumnType,
    target: ColumnType,
    python: Callable[..., Any] | str,
    duck: str | None = None,
    fails: bool = False,
) -> Operation:
    return Operation(CAST, (source,), target, python, duck, fails=fails)


def _explicit(source: ColumnType, target: ColumnType) -> Operation | None:
    if is_array(source) and is_array(target):
        return _of_elements(source, target, cast(source.element, target.element))
    if "TIMESTAMPTZ" in (source.name, target.name):
        return _by_zone(source, target)
    if is_text(target):
        return _to_text(source, target)
    if source.name in JSONS or (target.name in JSONS and not is_text(source)):
        return _of_document(source, target)
    if is_text(source):
        read = casts.read_text(target)
        is_filled = source.name == "CHAR" and not is_binary(target) and target.name != "JSON"  # which keeps blanks
        return _of(source, target, (lambda text: read(text.rstrip(" "))) if is_filled else read, fails=True)
    if is_binary(source) and is_binary(target):
        return _of_bytes(source, target)
    if target.name == "DECIMAL":
        return _to_decimal(source, target)
    if is_integer(target):
        return _to_integer(source, target)
    pair = (source.name, target.name)
    if pair in TURNING or (is_number(source) and target == DOUBLE):
        return widen(source, target)
    if pair == ("INT", "BOOLEAN"):
        return _of(source, target, "({0} != 0)", "({0} <> 0)")
    if target == REAL and is_number(source):
        return _to_real(source)
    if pair == ("TIMESTAMP", "TIME"):
        return _of(source, target, times.time_of_timestamp, "CAST({0} AS TIME)")
    if pair == ("INTERVAL", "TIME"):
        return _of(source, target, times.time_of_interval)
    if pair == ("TIMESTAMP", "DATE"):
        return _of(source, target, "date_of_timestamp({0})", "CAST({0} AS DATE)")
    return None


# ---- arrays


def _of_elements(source: ColumnType, target: ColumnType, inner: Operation | None, name: str = CAST) -> Operation | None:
    """The conversion of an array by that of its elements."""
    if inner is None:
        return (
            Operation(name, (source,), target, "{0}", "{0}", fails=False) if source.element == target.element else None
        )
    convert = function_of(inner)

    def convert_all(values: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(None if value is None else convert(value) for value in values)

    duck = None
    if inner.duck is not None and "{python}" not in inner.duck:
        duck = f"list_transform({{0}}, lambda e: {written(inner.duck, ['e'])})"
    return Operation(name, (source,), target, convert_all, duck, fails=inner.fails)


# ---- times with a zone


_IN_UTC = "CASE WHEN {{1}} = 'UTC' THEN {} ELSE {{python}}({{0}}, {{1}}) END"


def _by_zone(source: ColumnType, target: ColumnType) -> Operation | None:
    """Conversions that go by the session's time zone."""
    if target.name == "TIMESTAMPTZ":
        if is_text(source):
            return _zoned(source, target, zones.read_instant, None, fails=True)
        if source.name == "TIMESTAMP":
            return _zoned(source, target, zones.instant, _IN_UTC.format("{0}"), fails=True)
        if source.name == "DATE":
            return _zoned(source, target, zones.instant_of_date, _IN_UTC.format("CAST({0} AS TIMESTAMP)"), fails=True)
        return None
    if is_text(target):
        fit = casts.fit_text(target)
        return _zoned(source, target, lambda value, zone: fit(zones.instant_text(value, zone)), None, fails=True)
    ways: dict[str, tuple[Callable[..., Any], str]] = {
        "TIMESTAMP": (zones.local, "{0}"),
        "DATE": (zones.date_of_instant, "CAST({0} AS DATE)"),
        "TIME": (zones.time_of_instant, "CAST({0} AS TIME)"),
    }
    if target.name not in ways:
        return None
    python, duck = ways[target.name]
    return _zoned(source, target, python, _IN_UTC.format(duck), fails=True)


def _zoned(
    source: ColumnType, target: ColumnType, python: Callable[..., Any], duck: str | None, fails: bool
) -> Operation:
    return Operation(CAST, (source, TEXT), target, python, duck, fails=fails, zoned=True)


def _of_document(source: ColumnType, target: ColumnType) -> Operation | None:
    from gmdb.sql.operations.json_functions import cast_of  # few statements have one

    cast_ = cast_of(source, target)
    return None if cast_ is None else _of(source, target, cast_[0], fails=cast_[1])


# ---- texts and bytes


_DUCK_TEXTS = {
    **dict.fromkeys((*INTEGERS, "DECIMAL", "BOOLEAN"), "CAST({0} AS VARCHAR)"),
    **dict.fromkeys(("DATE", "TIME", "TIMESTAMP", "UUID"), "CAST({0} AS VARCHAR)"),
    "CHAR": "rtrim({0}, ' ')",
    "VARCHAR": "{0}",
    "JSON": "{0}",
    "JSONB": "{0}",
    "BINARY": "('\\x' || lower(hex({0})))",
    "VARBINARY": "('\\x' || lower(hex({0})))",
}


def _to_text(source: ColumnType, target: ColumnType) -> Operation | None:
    if not is_array(source) and source.name not in _DUCK_TEXTS and source.name not in (*FLOATS, "INTERVAL"):
        return None
    written = _DUCK_TEXTS.get(source.name)
    if source.name == "DECIMAL" and source.length == source.scale:  # DuckDB would write no 0 before the point
        wide = f"DECIMAL({source.length + 1},{source.scale})"
        written = f"CAST(CAST({{0}} AS {wide}) AS VARCHAR)" if source.length < DECIMAL_DIGITS_MAX else None
    write, fit = casts.write_text(source), casts.fit_text(target)
    if target == TEXT:
        return _of(source, target, write, written)
    function = fit if source.name == "VARCHAR" else lambda value: fit(write(value))
    if target.name == "VARCHAR" and is_text(source) and source.bytes_max <= target.bytes_max:
        return _of(source, target, function, written)
    if written is None:
        return _of(source, target, function)
    filling = f" || repeat(' ', {target.length} - strlen({written}))" if target.name == "CHAR" else ""
    fits = f"strlen({written}) <= {target.length}"
    return _of(source, target, function, f"CASE WHEN {fits} THEN {written}{filling} ELSE {{python}}({{0}}) END")


def _of_bytes(source: ColumnType, target: ColumnType) -> Operation:
    grows = target.name == "VARBINARY" and source.bytes_max <= target.bytes_max
    return _of(source, target, casts.fit_bytes(target), "{0}" if grows else None)


# ---- numbers


def _to_decimal(source: ColumnType, target: ColumnType) -> Operation | None:
    if is_integer(source) or source.name == "DECIMAL":
        exact = as_decimal(source)
        before = exact.length - exact.scale
        sure = target.length - target.scale >= before + (exact.scale > target.scale)
        fit = numbers.fit_to(target)
        duck = f"CAST({{0}} AS {target})"
        if source.name == "DECIMAL":
            return _of(source, target, fit, duck, fails=not sure)
        if sure and not target.scale:
            return _of(source, target, "Decimal({0})", duck)
        return _of(source, target, lambda value: fit(Decimal(value)), duck, fails=not sure)
    if source.name in FLOATS:
        fit_double, exactly = numbers.fit_to(target), numbers.decimal_of_double
        exactly = numbers.decimal_of_real if source == REAL else exactly
        return _of(source, target, lambda value: fit_double(exactly(value)), fails=True)
    return None


def _to_real(source: ColumnType) -> Operation:
    if source == DOUBLE:
        return _of(source, REAL, numbers.real_of_double, "gm_real({0})", fails=True)
    duck = "CAST({0} AS FLOAT)" if is_integer(source) else None
    return _of(source, REAL, numbers.real_of_number, duck, fails=source.name == "DECIMAL")


def _to_integer(source: ColumnType, target: ColumnType) -> Operation | None:
    (low, high), name = INTEGERS[target.name], target.name
    duck = f"CAST({{0}} AS {DUCK_NAMES[name]})"
    if source.name == "BOOLEAN":
        return _of(source, target, "int({0})", duck) if name == "INT" else None
    if not is_number(source):
        return None
    if is_integer(source):
        if NUMBERS.index(source.name) < NUMBERS.index(name):
            return _of(source, target, "{0}", duck)
        return _of(source, target, f'({{0}} if {low} <= {{0}} <= {high} else out_of_range("{name}"))', duck, fails=True)
    is_exact = source.name == "DECIMAL"
    convert: Callable[..., int] = numbers.integer_of_decimal if is_exact else numbers.integer_of_double
    python = partial(convert, low=low, high=high, name=name)
    return _of(source, target, python, duck if is_exact else None, fails=True)


# ---- implicit conversions


@lru_cache(maxsize=4096)
def widen(source: ColumnType, target: ColumnType) -> Operation | None:
    """The implicit conversion to a type.

    None if none is needed, or if there is none: ``turns_into`` distinguishes these.
    """
    target = within(target)
    if source == target or not turns_into(source, target):
        return None
    name = target.name
    if is_array(target):
        return _of_elements(source, target, widen(source.element, target.element))
    if name == "TIMESTAMPTZ":
        return _by_zone(source, target)
    if source.name == "CHAR" and name == "VARCHAR":
        return Operation(WIDEN, (source,), target, "{0}.rstrip(' ')", "rtrim({0}, ' ')", fails=False)
    if is_text(target) or is_binary(target):
        return Operation(WIDEN, (source,), target, "{0}", "{0}", fails=False)
    if name == "DECIMAL":
        return _to_decimal(source, target)
    if name in INTEGERS:
        return _of(source, target, "{0}", f"CAST({{0}} AS {DUCK_NAMES[name]})")
    if name == "REAL":
        return _to_real(source)
    if name == "INTERVAL":
        return _of(source, target, times.interval_of_time)
    if name == "DOUBLE":
        if source.name == "DECIMAL":
            return _of(source, target, "double_of_decimal({0})", _double_of_decimal(source))
        return _of(source, target, "{0}" if source == REAL else "float({0})", "CAST({0} AS DOUBLE)")
    return _of(source, target, "timestamp_of_date({0})", "CAST({0} AS TIMESTAMP)")


def _double_of_decimal(source: ColumnType) -> str | None:
    """DuckDB divides the digits as a DOUBLE by a power of ten, which is exact while both are."""
    return "CAST({0} AS DOUBLE)" if source.length <= 15 and source.scale <= 22 else None


_ASSIGNED = (("TIMESTAMP", "TIME"), ("TIMESTAMPTZ", "TIME"), ("INTERVAL", "TIME"), ("TIME", "INTERVAL"))


@lru_cache(maxsize=4096)
def assignment(source: ColumnType, target: ColumnType) -> Operation | None:
    """What a column of the target's type is set to: numbers are rounded, everything becomes text, but text becomes
    nothing else, and is refused if it is too long, unless only blanks are.  None if it cannot be set to that."""
    stored = within(target)
    if source == stored:
        return _unchanged(source, stored)
    if is_array(source) and is_array(stored):
        return _of_elements(source, stored, assignment(source.element, stored.element), STORE)
    if is_text(stored):
        return _stored_text(source, stored)
    if is_binary(stored):
        return Operation(WIDEN, (source,), stored, "{0}", "{0}", fails=False) if is_binary(source) else None
    if source.name in JSONS:
        return cast(source, stored) if stored.name in JSONS else None
    both_numbers = source.name in NUMBERS and stored.name in NUMBERS
    if both_numbers or category(source) == category(stored) or (source.name, stored.name) in _ASSIGNED:
        return cast(source, stored)
    return None


def _stored_text(source: ColumnType, target: ColumnType) -> Operation | None:
    if source.name == "TIMESTAMPTZ":
        limited = _limited(target) if target != TEXT else str
        return Operation(
            STORE, (source, TEXT), target, lambda value, zone: limited(zones.instant_text(value, zone)), zoned=True
        )
    as_text = _to_text(source, TEXT)
    if as_text is None or target == TEXT:
        return as_text
    write, limit = casts.write_text(source), _limited(target)
    python = limit if source.name == "VARCHAR" else lambda value: limit(write(value))
    return Operation(STORE, (source,), target, python)


def _limited(target: ColumnType) -> Callable[[str], str]:
    """The function that checks a text's length in bytes, and fills up a CHAR."""
    limit, fill = target.length, target.name == "CHAR"

    def check(text: str) -> str:
        size = len(text) if text.isascii() else len(encode_text(text))
        if size > limit:
            surplus = size - limit
            if not text.endswith(" " * surplus):
                raise ValueTooLong(f"value too long for type {target}: {text[:60]!r} has {size} bytes")
            return text[:-surplus]
        return text + " " * (limit - size) if fill else text

    return check


def read_literal(text: str, type_: ColumnType) -> Any:
    """The value of a quoted literal, in the type."""
    return casts.read_text(within(type_))(text)
