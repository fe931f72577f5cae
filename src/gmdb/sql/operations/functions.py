"""Functions of numbers, of texts and bytes, and of dates, timestamps and intervals."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import uuid4

from gmdb.format.columns import DECIMAL_DIGITS_MAX, ColumnType
from gmdb.format.interval import Interval
from gmdb.sql import numbers, texts, times, zones
from gmdb.sql.operations.conversions import cast
from gmdb.sql.operations.registry import Constants, Operation, Overload, Types, function_of, named, plain
from gmdb.sql.types import (
    BIGINT,
    BOOLEAN,
    BYTEA,
    CHAR,
    DATE,
    DOUBLE,
    INT,
    INTEGERS,
    INTERVAL,
    NUMERIC,
    QUOTIENT_SCALE,
    REAL,
    SMALLINT,
    TEXT,
    TIME,
    TIMESTAMP,
    TIMESTAMPTZ,
    UUID,
    category,
    decimal_of,
    is_text,
    numeric,
)

# ---- Functions of numbers.
#
# A DECIMAL result has a fixed number of digits behind the point: none for ceil, floor and sign, that of round's and
# trunc's second argument, at least 16 for roots, powers and logarithms.

named(numbers.out_of_range, abs)


def _absolute(type_: ColumnType) -> Overload:
    low = INTEGERS[type_.name][0]
    python = f'(abs({{0}}) if {{0}} != {low} else out_of_range("{type_.name}"))'
    return plain((type_,), type_, python, "abs({0})", fails=True)


def _absolute_decimal(name: str, takes: tuple[ColumnType, ...], _: Constants) -> Operation:
    return Operation(name, takes, takes[0], Decimal.copy_abs, "abs({0})", fails=False)


def _to_whole(python: Callable[[Decimal], Decimal], duck: str) -> Overload:
    """ceil and floor."""

    def build(name: str, takes: tuple[ColumnType, ...], _: Constants) -> Operation:
        before = takes[0].length - takes[0].scale
        gives = decimal_of(before + 1, 0)
        return Operation(name, takes, gives, python, f"CAST({duck} AS {gives})", fails=False)

    return Overload((NUMERIC,), build)


def _sign(name: str, takes: tuple[ColumnType, ...], _: Constants) -> Operation:
    return Operation(
        name, takes, decimal_of(1, 0), numbers.sign_decimal, "CAST(sign({0}) AS DECIMAL(1,0))", fails=False
    )


def _rounding(to_scale: Callable[[int], Callable[..., Decimal]]) -> list[Overload]:
    """round and trunc of DECIMALs."""

    def build(name: str, takes: tuple[ColumnType, ...], constants: Constants) -> Operation:
        before, scale = takes[0].length - takes[0].scale, takes[0].scale
        value = constants.get(1, "unknown") if len(takes) > 1 else 0
        digits = value if isinstance(value, int) else int(value) if _is_integer(value) else None
        kept = scale if digits is None else max(0, min(digits, DECIMAL_DIGITS_MAX))
        more = digits is None or digits < scale  # it may be rounded up to one more digit before the point
        gives = decimal_of(max(before, 1 - digits if digits is not None and digits < 0 else 0) + more + kept, kept)
        sure = before + more + kept <= DECIMAL_DIGITS_MAX and digits is not None and digits >= 0
        duck = None
        if digits is not None and digits >= scale:
            duck = f"CAST({{0}} AS {gives})"
        elif digits is not None and digits >= 0 and sure:
            wide = decimal_of(takes[0].length + 1, scale)
            duck = f"CAST({name}(CAST({{0}} AS {wide}), {kept}) AS {gives})"
        return Operation(name, takes, gives, to_scale(kept), duck, fails=not sure)

    return [Overload((NUMERIC,), build), Overload((NUMERIC, INT), build)]


def _is_integer(value: Any) -> bool:
    return isinstance(value, str) and value.strip().lstrip("+-").isdecimal()


def _irrational(to_scale: Callable[[int], Callable[..., Decimal]], count: int = 1) -> Overload:
    """A function of DECIMALs that has at least 16 digits behind the point."""

    def build(name: str, takes: tuple[ColumnType, ...], _: Constants) -> Operation:
        scale = max(QUOTIENT_SCALE, *(type_.scale for type_ in takes))
        return Operation(name, takes, numeric(scale), to_scale(scale))

    return Overload((NUMERIC,) * count, build)


def _integers(call: Callable[[int, int], int]) -> list[Overload]:
    """gcd and lcm, whose result must be an integer of the same type."""

    def checked(type_: ColumnType) -> Callable[[int, int], int]:
        high = INTEGERS[type_.name][1]
        return lambda a, b: result if (result := call(a, b)) <= high else numbers.out_of_range(type_.name)

    return [plain((type_, type_), type_, checked(type_), fails=True) for type_ in (INT, BIGINT)]


def _double(python: Callable[..., Any], duck: str | None = None, fails: bool = False, count: int = 1) -> Overload:
    return plain((DOUBLE,) * count, DOUBLE, python, duck, fails)


def _real(python: Callable[..., Any], duck: str) -> Overload:
    return plain((REAL,), REAL, python, duck)


def _div(name: str, takes: tuple[ColumnType, ...], _: Constants) -> Operation:
    a, b = takes
    gives = decimal_of(a.length - a.scale + b.scale, 0)
    return Operation(name, takes, gives, numbers.whole_quotient)


NUMBER_FUNCTIONS: dict[str, Sequence[Overload]] = {
    "abs": [
        _double(abs, "abs({0})"),
        Overload((NUMERIC,), _absolute_decimal),
        *map(_absolute, (SMALLINT, INT, BIGINT)),
        _real(abs, "abs({0})"),
    ],
    "ceil": [_double(numbers.ceil_double, "ceil({0})"), _to_whole(numbers.ceil_decimal, "ceil({0})")],
    "floor": [_double(numbers.floor_double, "floor({0})"), _to_whole(numbers.floor_decimal, "floor({0})")],
    "round": [_double(numbers.round_double, "round_even({0}, 0)"), *_rounding(numbers.round_to)],
    "trunc": [_double(numbers.truncate_double, "trunc({0})"), *_rounding(numbers.truncate_to)],
    "sign": [_double(numbers.sign_double, "CAST(sign({0}) AS DOUBLE)"), Overload((NUMERIC,), _sign)],
    "sqrt": [_double(numbers.sqrt_double, "gm_sqrt({0})", fails=True), _irrational(numbers.sqrt_to)],
    "cbrt": [_double(math.cbrt)],
    "exp": [_double(numbers.exp_double, fails=True), _irrational(numbers.exp_to)],
    "ln": [_double(numbers.ln_double, fails=True), _irrational(numbers.ln_to)],
    "log": [_double(numbers.log_double, fails=True), _irrational(numbers.log10_to), _irrational(numbers.log_to, 2)],
    "log10": [_double(numbers.log_double, fails=True), _irrational(numbers.log10_to)],
    "power": [_double(numbers.power_double, fails=True, count=2), _irrational(numbers.power_to, 2)],
    "pi": [plain((), DOUBLE, lambda: math.pi, "pi()")],
    "random": [plain((), DOUBLE, random.random, "random()", volatile=True)],
    **{name: [_double(numbers.of_angle(name), fails=True)] for name in numbers.ANGLES},
    "atan2": [_double(math.atan2, count=2)],
    "gcd": _integers(math.gcd),
    "lcm": _integers(math.lcm),
    "div": [Overload((NUMERIC, NUMERIC), _div)],
}


# ---- Functions and operators of texts and bytes.
#
# Lengths and positions count characters, and bytes of bytes.  What is cheap for ASCII and intricate for other
# characters is left to DuckDB for ASCII only.

named(texts.octets, texts.like, texts.ilike)


def _places(count: int) -> str:
    return ", ".join(f"{{{n}}}" for n in range(count))


def _ascii_only(duck: str, count: int = 1) -> str:
    """A template that leaves texts with other characters to Python."""
    return f"CASE WHEN strlen({{0}}) = length({{0}}) THEN {duck} ELSE {{python}}({_places(count)}) END"


def _text(
    python: Callable[..., Any] | str, duck: str | None, *more: ColumnType, gives: ColumnType = TEXT, fails: bool = False
) -> Overload:
    return plain((TEXT, *more), gives, python, duck, fails)


def _size(duck: str) -> str:
    return f"CAST({duck} AS INTEGER)"


def _trims(method: str, duck: str) -> list[Overload]:
    chosen = _text(f"({{0}}.{method}({{1}}) if {{1}} else {{0}})", f"{duck}({{0}}, {{1}})", TEXT)
    return [_text(f"{{0}}.{method}(' ')", f"{duck}({{0}}, ' ')"), chosen]


# ---- patterns


def _likes(ignore_case: bool, escapes: bool) -> list[Overload]:
    python = f"{'ilike' if ignore_case else 'like'}({_places(3 if escapes else 2)})"

    def build(name: str, takes: tuple[ColumnType, ...], constants: Constants) -> Operation:
        pattern = constants.get(1)
        escape = constants.get(2) if escapes else "\\"
        duck, fails = None, True
        if isinstance(pattern, str) and isinstance(escape, str) and len(escape) < 2:
            fails = _ends_early(pattern, escape)
            word = "ILIKE" if ignore_case else "LIKE"
            suffix = f" ESCAPE '{escape.replace(chr(39), chr(39) * 2)}'" if escape and escape in pattern else ""
            if not fails:
                duck = f"({{0}} {word} {{1}}{suffix})"
            if ignore_case and duck is not None:
                duck = _ascii_only(duck, len(takes)) if pattern.isascii() else None
        return Operation(name, takes, BOOLEAN, python, duck, fails=fails)

    more = (TEXT, TEXT) if escapes else (TEXT,)
    return [Overload((TEXT, *more), build), Overload((CHAR, *more), build)]


def _ends_early(pattern: str, escape: str) -> bool:
    """Whether the last character of a pattern escapes nothing."""
    at = 0
    while at < len(pattern):
        if pattern[at] == escape:
            at += 1
            if at == len(pattern):
                return True
        at += 1
    return False


def regular_match(symbol: str, left: ColumnType | None, right: ColumnType | None) -> Operation | None:
    """~ and ~*: whether a regular expression matches within a text."""
    if not all(type_ is None or is_text(type_) for type_ in (left, right)):
        return None
    python = texts.matches if symbol == "~" else texts.matches_ignoring_case
    return Operation(symbol, (TEXT, TEXT), BOOLEAN, python)


# ---- joining


def shown(left: ColumnType | None, right: ColumnType | None) -> Operation | None:
    """left || right: of bytes, of texts, or of a text and anything."""
    kinds = [category(type_) if type_ is not None else "" for type_ in (left, right)]
    if "bytes" in kinds and set(kinds) <= {"bytes", ""}:
        return Operation("||", (BYTEA, BYTEA), BYTEA, "({0} + {1})", "({0} || {1})", fails=False)
    if ("text" not in kinds and "" not in kinds) or TIMESTAMPTZ in (left, right):
        return None
    return _joined("||", [left, right], "({0} + {1})", "({0} || {1})", _as_text)


def _joined(
    name: str,
    types: Types,
    python: str | Callable[..., Any],
    duck: str,
    form: Callable[[ColumnType], tuple[Callable[[Any], str] | None, str | None]],
    strict: bool = True,
) -> Operation:
    """An operation on values that are written as texts first: none of them an instant."""
    takes = tuple(TEXT if type_ is None or type_.name == "VARCHAR" else type_ for type_ in types)
    forms = [form(type_) for type_ in takes]
    writers = [write for write, _ in forms]
    function = function_of(Operation(name, takes, TEXT, python)) if isinstance(python, str) else python
    called: Callable[..., Any] | str = python
    if any(writers):

        def written(*values: Any) -> Any:
            return function(
                *(
                    write(value) if write is not None and value is not None else value
                    for write, value in zip(writers, values, strict=True)
                )
            )

        called = written
    sqls = [sql.format(f"{{{n}}}") if sql is not None else None for n, (_, sql) in enumerate(forms)]
    template = duck.format(*sqls) if None not in sqls else None
    return Operation(name, takes, TEXT, called, template, strict=strict, fails=False)


def _as_text(type_: ColumnType) -> tuple[Callable[[Any], str] | None, str | None]:
    """How a value becomes text: in Python, None if it is one, and in DuckDB, None if Python must do it."""
    if type_ == TEXT:
        return None, "{0}"
    conversion = cast(type_, TEXT)
    assert conversion is not None
    return function_of(conversion), conversion.duck


def _as_output(type_: ColumnType) -> tuple[Callable[[Any], str] | None, str | None]:
    """How concat shows a value: a CHAR with its blanks, t for true."""
    if type_ == BOOLEAN:
        return (lambda value: "t" if value else "f"), "CASE WHEN {0} THEN 't' WHEN NOT {0} THEN 'f' END"
    return (None, "{0}") if type_.name == "CHAR" else _as_text(type_)


def concatenation(types: Types) -> Operation | None:
    """concat(...): NULLs are left out."""
    if TIMESTAMPTZ in types:
        return None
    return _joined("concat", types, texts.concatenate, f"concat({_places(len(types))})", _as_output, strict=False)


def join_operation(types: Types) -> Operation | None:
    """concat_ws(separator, ...): the separator is a text, without the blanks of a CHAR."""
    if len(types) < 2 or not (types[0] is None or is_text(types[0])) or TIMESTAMPTZ in types:
        return None
    types = [TEXT, *types[1:]]
    return _joined("concat_ws", types, texts.join, f"concat_ws({_places(len(types))})", _as_output, strict=False)


_PARTS = [
    _text(texts.substring, "substring({0}, CASE WHEN {1} < 1 THEN 1 ELSE {1} END)", INT),
    _text(texts.substring, "gm_substring({0}, {1}, {2})", INT, INT, fails=True),
    plain((BYTEA, INT), BYTEA, texts.substring),
    plain((BYTEA, INT, INT), BYTEA, texts.substring, fails=True),
]
TEXT_FUNCTIONS: dict[str, Sequence[Overload]] = {
    "like": _likes(False, False),
    "ilike": _likes(True, False),
    "like_escape": _likes(False, True),
    "ilike_escape": _likes(True, True),
    "similar": [_text(texts.similar, None, TEXT, gives=BOOLEAN, fails=True)],
    "similar_escape": [_text(texts.similar, None, TEXT, TEXT, gives=BOOLEAN, fails=True)],
    "length": [
        _text("len({0})", _size("length({0})"), gives=INT),
        plain((CHAR,), INT, "len({0}.rstrip(' '))", _size("length(rtrim({0}, ' '))")),
        plain((BYTEA,), INT, "len({0})", _size("octet_length({0})")),
    ],
    "octet_length": [
        _text(texts.octets, _size("strlen({0})"), gives=INT),
        plain((CHAR,), INT, texts.octets, _size("strlen({0})")),
        plain((BYTEA,), INT, "len({0})", _size("octet_length({0})")),
    ],
    "bit_length": [
        _text("(8 * octets({0}))", _size("8 * strlen({0})"), gives=INT),
        plain((BYTEA,), INT, "(8 * len({0}))", _size("8 * octet_length({0})")),
    ],
    "lower": [_text(texts.lower, _ascii_only("lower({0})"))],
    "upper": [_text(texts.upper, _ascii_only("upper({0})"))],
    "initcap": [_text(texts.capitalize_words, None)],
    "btrim": _trims("strip", "trim"),
    "ltrim": _trims("lstrip", "ltrim"),
    "rtrim": _trims("rstrip", "rtrim"),
    "substr": _PARTS,
    "substring": [_text(texts.matching_part, None, TEXT, fails=True), *_PARTS],
    "strpos": [
        _text("({0}.find({1}) + 1)", _size("strpos({0}, {1})"), TEXT, gives=INT),
        plain((BYTEA, BYTEA), INT, "({0}.find({1}) + 1)"),
    ],
    "replace": [_text("({0}.replace({1}, {2}) if {1} else {0})", "replace({0}, {1}, {2})", TEXT, TEXT)],
    "translate": [_text(texts.translate, None, TEXT, TEXT)],
    "left": [_text("{0}[:{1}]", "left({0}, {1})", INT)],
    "right": [_text(texts.right, "right({0}, {1})", INT)],
    "lpad": [_text(texts.pad_left, None, INT, fails=True), _text(texts.pad_left, None, INT, TEXT, fails=True)],
    "rpad": [_text(texts.pad_right, None, INT, fails=True), _text(texts.pad_right, None, INT, TEXT, fails=True)],
    "repeat": [_text(texts.repeat, None, INT, fails=True)],
    "reverse": [_text("{0}[::-1]", _ascii_only("reverse({0})"))],
    "overlay": [
        _text(texts.overlay, None, TEXT, INT, fails=True),
        _text(texts.overlay, None, TEXT, INT, INT, fails=True),
    ],
    "regexp_replace": [
        _text(texts.replace_matches, None, TEXT, TEXT, fails=True),
        _text(texts.replace_matches, None, TEXT, TEXT, TEXT, fails=True),
    ],
    "split_part": [_text(texts.split_part, "gm_split({0}, {1}, {2})", TEXT, INT, fails=True)],
    "md5": [_text(texts.md5, "md5({0})"), plain((BYTEA,), TEXT, texts.md5)],
    "to_hex": [plain((INT,), TEXT, texts.hexadecimal(32)), plain((BIGINT,), TEXT, texts.hexadecimal(64))],
    "chr": [plain((INT,), TEXT, texts.character, fails=True)],
    "ascii": [
        _text(
            "(ord({0}[0]) if {0} else 0)", "CASE WHEN {0} = '' THEN 0 ELSE CAST(unicode({0}) AS INTEGER) END", gives=INT
        )
    ],
    "starts_with": [_text(str.startswith, "starts_with({0}, {1})", TEXT, gives=BOOLEAN)],
    "encode": [plain((BYTEA, TEXT), TEXT, texts.encode, fails=True)],
    "decode": [plain((TEXT, TEXT), BYTEA, texts.decode, fails=True)],
}


# ---- Functions of dates, timestamps and intervals.

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
    return lambda field, value: numbers.at_scale(extract(field, value), scale)


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


def _field_of_time_of_day(name: str, takes: tuple[ColumnType, ...], constants: Constants) -> Operation:
    field = _field(constants)
    known = field in times.OF_TIME
    gives = _FIELDS[field] if known else numeric(6)
    return Operation(name, takes, gives, _extracted(gives, times.extract_of_time), fails=not known)


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


def _field_of_instant(name: str, takes: tuple[ColumnType, ...], constants: Constants) -> Operation:
    field = _field(constants)
    known = field in zones.FIELDS and field != "julian"
    gives = _FIELDS.get(field, _SHORT) if known else numeric(6)
    scale = gives.scale

    def extract(field: str, value: Any, zone: str) -> Decimal:
        return numbers.at_scale(zones.extract(field, value, zone), scale)

    return Operation(name, (*takes, TEXT), gives, extract, zoned=True)


def _truncation_by_zone(name: str, takes: tuple[ColumnType, ...], constants: Constants) -> Operation:
    duck = _truncation(name, takes, constants).duck
    duck = f"CASE WHEN {{2}} = 'UTC' THEN {duck} ELSE {{python}}({{0}}, {{1}}, {{2}}) END" if duck else None
    return Operation(name, (*takes, TEXT), TIMESTAMPTZ, zones.truncate, duck, zoned=True)


def _shifted(value: str) -> str:
    return f"CASE WHEN {{0}} = 'UTC' THEN {value} ELSE {{python}}({{0}}, {{1}}) END"


def _shown_at(zone: str, value: datetime) -> datetime:
    """AT TIME ZONE, of an instant."""
    return zones.local(value, zone)


def _instant_at(zone: str, value: datetime) -> datetime:
    """AT TIME ZONE, of what clocks show."""
    return zones.instant(value, zone)


def _shown_there(distance: Interval, value: datetime) -> datetime:
    return zones.local(value, zones.zone_of_interval(distance))


def _instant_there(distance: Interval, value: datetime) -> datetime:
    return zones.instant(value, zones.zone_of_interval(distance))


def _formatted_by_zone(value: datetime, form: str, zone: str) -> str | None:
    return zones.formatted(value, form, zone)


TIME_FUNCTIONS: dict[str, Sequence[Overload]] = {
    "extract": [
        Overload((TEXT, TIMESTAMPTZ), _field_of_instant),
        Overload((TEXT, TIMESTAMP), _field_of_time),
        Overload((TEXT, DATE), _field_of_time),
        Overload((TEXT, TIME), _field_of_time_of_day),
        Overload((TEXT, INTERVAL), _field_of_interval),
    ],
    "date_part": [
        Overload((TEXT, TIMESTAMP), _part),
        plain((TEXT, TIMESTAMPTZ), DOUBLE, zones.part, fails=True, zoned=True),
        plain((TEXT, TIME), DOUBLE, times.time_part, fails=True),
        plain((TEXT, INTERVAL), DOUBLE, times.interval_part, fails=True),
    ],
    "date_trunc": [
        Overload((TEXT, TIMESTAMPTZ), _truncation_by_zone),
        Overload((TEXT, TIMESTAMP), _truncation),
        plain((TEXT, TIMESTAMPTZ, TEXT), TIMESTAMPTZ, zones.truncate, fails=True),
    ],
    "make_date": [plain((INT, INT, INT), DATE, times.make_date, fails=True)],
    "make_time": [plain((INT, INT, DOUBLE), TIME, times.make_time, fails=True)],
    "make_timestamp": [plain((INT, INT, INT, INT, INT, DOUBLE), TIMESTAMP, times.make_timestamp, fails=True)],
    "make_timestamptz": [
        plain((INT, INT, INT, INT, INT, DOUBLE), TIMESTAMPTZ, zones.make, fails=True, zoned=True),
        plain((INT, INT, INT, INT, INT, DOUBLE, TEXT), TIMESTAMPTZ, zones.make, fails=True),
    ],
    "timezone": [
        plain((TEXT, TIMESTAMPTZ), TIMESTAMP, _shown_at, _shifted("{1}"), fails=True),
        plain((TEXT, TIMESTAMP), TIMESTAMPTZ, _instant_at, _shifted("{1}"), fails=True),
        plain((INTERVAL, TIMESTAMPTZ), TIMESTAMP, _shown_there, fails=True),
        plain((INTERVAL, TIMESTAMP), TIMESTAMPTZ, _instant_there, fails=True),
    ],
    "to_char": [
        plain((TIMESTAMPTZ, TEXT), TEXT, _formatted_by_zone, fails=True, zoned=True),
        plain((TIMESTAMP, TEXT), TEXT, times.formatted, fails=True),
    ],
    "to_date": [plain((TEXT, TEXT), DATE, times.date_in_format, fails=True)],
    "to_timestamp": [
        plain((TEXT, TEXT), TIMESTAMPTZ, zones.in_format, fails=True, zoned=True),
        plain((DOUBLE,), TIMESTAMPTZ, zones.of_seconds, fails=True),
    ],
    "age": [
        plain((TIMESTAMPTZ, TIMESTAMPTZ), INTERVAL, zones.age, fails=True, zoned=True),
        plain((TIMESTAMP, TIMESTAMP), INTERVAL, times.age),
    ],
}


# ---- UUIDs.

UUID_FUNCTIONS: dict[str, Sequence[Overload]] = {
    "gen_random_uuid": [plain((), UUID, uuid4, "uuid()", volatile=True)],
}
