"""Functions of dates, timestamps and intervals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gmdb.format.columns import ColumnType
from gmdb.sql import decimals, time_formats, times
from gmdb.sql.operations.overloads import Constants, Overload, plain
from gmdb.sql.operations.registry import Operation
from gmdb.sql.types import DATE, DOUBLE, INT, INTERVAL, TEXT, TIMESTAMP, decimal_of, numeric

_SHORT = decimal_of(10, 0)
_FIELDS = {  # of times, with the DECIMAL that holds them
    **dict.fromkeys(times.FIELDS, _SHORT),
    "second": decimal_of(8, 6),
    "milliseconds": decimal_of(8, 3),
    "epoch": decimal_of(18, 6),
}
_DUCK_FIELDS = (*(field for field in times.DATE_FIELDS if field != "julian"), "hour", "minute", "microseconds")
_MICROSECONDS = {"second": 6, "milliseconds": 3}


def _field(constants: Constants) -> str:
    """The field that the first argument names, if it is a constant."""
    word = constants.get(0)
    return times.field_name(word) if isinstance(word, str) else ""


def _field_of_time(name: str, takes: tuple[ColumnType, ...], constants: Constants) -> Operation:
    field = _field(constants)
    known = field in (times.DATE_FIELDS if takes[1] == DATE else times.FIELDS)
    known = known and not (field == "julian" and takes[1] == TIMESTAMP)
    gives = _FIELDS[field] if known else numeric(6)
    if field == "epoch" and takes[1] == DATE:
        gives = decimal_of(12, 0)
    return Operation(
        name, takes, gives, _extracted(gives, times.extract), _duck_field(field, gives, known), fails=not known
    )


def _extracted(gives: ColumnType, extract: Callable[[str, Any], Any]) -> Callable[[str, Any], Any]:
    scale = gives.scale
    return lambda field, value: decimals.at_scale(extract(field, value), scale)


def _duck_field(field: str, gives: ColumnType, known: bool) -> str | None:
    if not known:
        return None
    if field in _DUCK_FIELDS:
        return f"CAST(extract({field} FROM {{1}}) AS {gives})"
    if field == "epoch" and not gives.scale:
        return f"CAST(epoch_us({{1}}) // 1000000 AS {gives})"
    if field in _MICROSECONDS or field == "epoch":
        digits = "epoch_us({1})" if field == "epoch" else "extract(microseconds FROM {1})"
        unit = f"CAST(0.{'0' * (gives.scale - 1)}1 AS DECIMAL({gives.scale},{gives.scale}))"
        return f"CAST(CAST({digits} AS DECIMAL(18,0)) * {unit} AS {gives})"
    return None


def _field_of_interval(name: str, takes: tuple[ColumnType, ...], constants: Constants) -> Operation:
    field = _field(constants)
    known = field in times.INTERVAL_FIELDS
    scale = {"second": 6, "epoch": 6, "milliseconds": 3}.get(field, 0) if known else 6
    gives = numeric(scale)
    return Operation(name, takes, gives, _extracted(gives, times.extract_of_interval), fails=not known)


def _part(name: str, takes: tuple[ColumnType, ...], constants: Constants) -> Operation:
    """date_part: a field as a DOUBLE."""
    field = _field(constants)
    duck = f"CAST(extract({field} FROM {{1}}) AS DOUBLE)" if field in _DUCK_FIELDS else None
    if field in ("second", "epoch"):
        duck = f"(CAST({'epoch_us({1})' if field == 'epoch' else 'extract(microseconds FROM {1})'} AS DOUBLE) / 1e6)"
    return Operation(name, takes, DOUBLE, times.date_part, duck, fails=duck is None)


def _truncation(name: str, takes: tuple[ColumnType, ...], constants: Constants) -> Operation:
    field = _field(constants)
    duck = None
    if field in ("microseconds", "milliseconds", "second", "minute", "hour", "day", "month", "quarter", "year"):
        duck = f"CAST(date_trunc('{field}', {{1}}) AS TIMESTAMP)"
    fails = duck is None
    if field in ("week", "decade"):
        duck = f"gm_timestamp(CAST(date_trunc('{field}', {{1}}) AS TIMESTAMP))"
    return Operation(name, takes, TIMESTAMP, times.truncate_timestamp, duck, fails=fails)


TIME_FUNCTIONS: dict[str, Sequence[Overload]] = {
    "extract": [
        Overload((TEXT, TIMESTAMP), _field_of_time),
        Overload((TEXT, DATE), _field_of_time),
        Overload((TEXT, INTERVAL), _field_of_interval),
    ],
    "date_part": [Overload((TEXT, TIMESTAMP), _part), plain((TEXT, INTERVAL), DOUBLE, times.interval_part, fails=True)],
    "date_trunc": [Overload((TEXT, TIMESTAMP), _truncation)],
    "make_date": [plain((INT, INT, INT), DATE, times.make_date, fails=True)],
    "make_timestamp": [plain((INT, INT, INT, INT, INT, DOUBLE), TIMESTAMP, times.make_timestamp, fails=True)],
    "to_char": [plain((TIMESTAMP, TEXT), TEXT, time_formats.formatted, fails=True)],
    "to_date": [plain((TEXT, TEXT), DATE, time_formats.date_in_format, fails=True)],
    "to_timestamp": [
        plain((TEXT, TEXT), TIMESTAMP, time_formats.timestamp_in_format, fails=True),
        plain((DOUBLE,), TIMESTAMP, times.timestamp_of_seconds, fails=True),
    ],
    "age": [plain((TIMESTAMP, TIMESTAMP), INTERVAL, times.age)],
}
