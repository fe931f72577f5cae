"""Every operation over odd values: DuckDB's template gives what Python gives, errors included."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, time
from decimal import Context, Decimal
from typing import Any
from uuid import UUID

import duckdb
import pytest

from gmdb import errors
from gmdb.errors import DataError
from gmdb.format.columns import ColumnType, array_of, json_of
from gmdb.format.interval import Interval
from gmdb.sql import operations
from gmdb.sql.duck.instance import translated
from gmdb.sql.duck.values import Functions, duck_type, function_name
from gmdb.sql.operations import Operation, arrays, macros
from gmdb.sql.operations.resolution import functions_by_name
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
    JSON,
    JSONB,
    NUMERIC,
    REAL,
    SMALLINT,
    TEXT,
    TIME,
    TIMESTAMP,
    TIMESTAMPTZ,
    decimal_of,
)
from gmdb.sql.types import UUID as UUID_TYPE
from tests.searches import extent

pytestmark = pytest.mark.search
WIDE = Context(prec=60)
ROWS_MAX = extent(100, 2000)  # of one operation
FAILURES_MAX = 12  # of one operation, each in a query of its own
CHAR3, CHAR5, VARCHAR3 = ColumnType("CHAR", 3), ColumnType("CHAR", 5), ColumnType("VARCHAR", 3)
BINARY4, VARBINARY2 = ColumnType("BINARY", 4), ColumnType("VARBINARY", 2)
DECIMALS = [decimal_of(*digits) for digits in ((4, 2), (9, 0), (18, 6), (19, 2), (30, 10), (38, 0), (38, 16), (38, 38))]
ZONES = ("UTC", "America/New_York")


# ---- odd values


def integers(name: str) -> list[int]:
    low, high = INTEGERS[name]
    near = [0, 1, -1, 2, 3, -3, 5, 7, 10, 31, 32, 33, 63, 64, 100, -100, 1000, 4001]
    more = [low, low + 1, high, high - 1, high // 2, 46341, -46341, 182, -182]
    return [n for n in (*near, *more) if low <= n <= high]


def decimals_of(type_: ColumnType) -> list[Decimal]:
    top = 10**type_.length - 1
    one = 10**type_.scale
    digits = [
        0,
        1,
        -1,
        5,
        -5,
        49,
        50,
        51,
        one,
        -one,
        2 * one,
        3 * one,
        one // 2,
        -(one // 2),
        one + one // 2,
        top,
        -top,
    ]
    digits += [top // 2, top // 3, top // 7, -(top // 3), one * 5 // 2, one // 3, top - 1, 15 * one // 10, 25]
    return [Decimal(n).scaleb(-type_.scale, WIDE) for n in dict.fromkeys(digits) if abs(n) <= top]


TEXTS = [
    "",
    "a",
    "A",
    "ab",
    "Ab c",
    "  x ",
    "x  ",
    "ÄÖß",
    "İı",
    "e\u0301a",
    "a%b_c\\d",
    "12",
    "-3.5",
    "\U0001f600ab",
    "\t\n",
]
TEXTS += ["zZ" * 10, "a,b,,c", "true", "2024-02-29", "ab\nab", "ﬁ", "Σς", "\u200d👨‍👩‍👧"]
DOUBLES = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    1.5,
    2.5,
    -2.5,
    0.1,
    1 / 3,
    1e15,
    1e16,
    2.0**53,
    1e22,
    1e300,
    -1e300,
    5e-324,
    1e-300,
]
DOUBLES += [
    1.7976931348623157e308,
    float("inf"),
    float("-inf"),
    float("nan"),
    2147483647.5,
    9.2e18,
    2147483648.0,
    12345.678,
]
DATES = [date(1, 1, 1), date(9999, 12, 31), date(1970, 1, 1), date(2024, 2, 29), date(1900, 3, 1), date(2000, 12, 31)]
DATES += [date(1999, 1, 3), date(2001, 1, 1), date(2010, 1, 4), date(100, 12, 31), date(1000, 1, 1), date(4, 2, 29)]
TIMESTAMPS = [datetime(d.year, d.month, d.day) for d in DATES]
TIMESTAMPS += [datetime(9999, 12, 31, 23, 59, 59, 999999), datetime(2024, 2, 29, 12, 34, 56, 789000)]
TIMESTAMPS += [
    datetime(1969, 12, 31, 23, 59, 59, 999999),
    datetime(1, 1, 1, 0, 0, 0, 1),
    datetime(1500, 6, 15, 1, 2, 3, 4),
]
INTERVALS = [
    Interval(0, 0, 0),
    Interval(1, 0, 0),
    Interval(-1, 0, 0),
    Interval(0, 30, 0),
    Interval(0, 0, 86_400_000_000),
]
INTERVALS += [Interval(12, -3, 4_000_001), Interval(119_999, 0, 0), Interval(-25, 400, -1), Interval(0, -800_000, 0)]
INTERVALS += [Interval(2**31 - 1, 0, 0), Interval(0, 2**31 - 1, 0), Interval(13, 0, 0), Interval(1, -40, 0)]
INTERVALS += [Interval(-(2**31), 0, 0)]
TIMES = [time(), time(12), time(23, 59, 59, 999_999), time(1, 2, 3, 400_000), time(0, 0, 0, 1), time(12, 34, 56)]
INSTANTS = [one.replace(tzinfo=UTC) for one in (*TIMESTAMPS, datetime(2024, 3, 10, 7), datetime(2024, 11, 3, 5, 30))]
REALS = [0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, -2.5, 13421773 * 2.0**-27, 2.0**-149, 2.0**24, (2 - 2.0**-23) * 2.0**127]
REALS += [float("inf"), float("-inf"), float("nan"), 32767.5, -32768.0, 2147483648.0, 9999.99609375, 2.0**-126]
UUIDS = [UUID(int=0), UUID(int=(1 << 128) - 1), UUID(int=1 << 127), UUID("7fffffff-ffff-4fff-bfff-0123456789ab")]
DOCUMENTS = [
    "{}",
    "[]",
    "null",
    "true",
    '"a"',
    '"12"',
    "0",
    "1.50",
    "-2147483648.5",
    "1e30",
    "[1, 2, 3]",
    '{"a": null}',
]
DOCUMENTS += [
    '{"a": {"b": [1, "x"]}, "ab": 2}',
    '["a", {"a": 1}, null]',
    '{"a": "ÄÖ\\n", "": 1}',
    "9223372036854775808",
]
BYTES = [b"", b"a", b"\x00\xff", b"abc", b"\\x61", b"1234", "ä".encode()]


def odd_values(type_: ColumnType) -> list[Any]:
    name = type_.name
    if type_.is_array:
        some = odd_values(type_.element)
        few = [(one,) for one in some[:3]]
        return [(), (None,), *few, tuple(some[:3]), (*some[:2], None, some[0]), (None, *some[::-1]), tuple(some)]
    if name in INTEGERS:
        return list(integers(name))
    if name == "DECIMAL":
        return list(decimals_of(type_))
    if name == "CHAR":
        fitting = [text for text in TEXTS if len(text.encode()) <= type_.length]
        return [text + " " * (type_.length - len(text.encode())) for text in fitting]
    if name == "VARCHAR":
        return [text for text in TEXTS if len(text.encode()) <= type_.length]
    if name == "BINARY":
        return [value.ljust(type_.length, b"\0") for value in BYTES if len(value) <= type_.length]
    if name == "VARBINARY":
        return [value for value in BYTES if len(value) <= type_.length]
    if type_.is_json:
        return [json_of(type_, text) for text in DOCUMENTS]
    others: dict[str, list[Any]] = {"DOUBLE": DOUBLES, "BOOLEAN": [True, False], "DATE": DATES, "TIMESTAMP": TIMESTAMPS}
    others |= {"REAL": REALS, "TIME": TIMES, "TIMESTAMPTZ": INSTANTS, "UUID": UUIDS, "INTERVAL": INTERVALS}
    return others[name]


def rows_of(types: Sequence[ColumnType], constants: dict[int, Any], seed: int = 7) -> list[tuple[Any, ...]]:
    """Combinations of odd values, NULL among them."""
    columns = [[constants[n]] if n in constants else [*odd_values(type_), None] for n, type_ in enumerate(types)]
    size = 1
    for column in columns:
        size *= len(column)
    if size <= ROWS_MAX:
        return list(itertools.product(*columns))
    chance = random.Random(seed)
    return [tuple(chance.choice(column) for column in columns) for _ in range(ROWS_MAX)]


# ---- DuckDB


def literal(value: Any, type_: ColumnType) -> str:
    if value is None:
        return f"CAST(NULL AS {duck_type(type_)})"
    if type_.is_array:
        return f"CAST([{', '.join(literal(one, type_.element) for one in value)}] AS {duck_type(type_)})"
    if isinstance(value, Interval):
        parts = f"to_months({value.months}) + to_days({value.days})"
        return f"({parts} + to_microseconds({value.microseconds}))"
    if isinstance(value, bytes):
        return f"unhex('{value.hex()}')"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, datetime):
        value = value.replace(tzinfo=None)
    text = format(value, "f") if isinstance(value, Decimal) else str(value)
    return f"CAST('{text}' AS {duck_type(type_)})"


class Duck:
    """A connection with the macros, in which operations are run over rows."""

    def __init__(self) -> None:
        self.connection = duckdb.connect(config={"threads": 1})
        self.connection.execute("SET TimeZone = 'UTC'")
        for macro in macros.MACROS:
            self.connection.execute(f"CREATE MACRO {macro}")
        self.functions = Functions(self.connection)

    def function(self, operation: Operation) -> str:
        """The operation's Python as a function of DuckDB's."""
        self.functions.require([operation])
        return function_name(operation)

    def values(self, operation: Operation, rows: Sequence[tuple[Any, ...]], constants: dict[int, Any]) -> list[Any]:
        """The template's values for the rows.  Raises gmdb's error for what DuckDB raises."""
        assert operation.duck is not None
        function = self.function(operation) if "{python}" in operation.duck else ""
        names = [f"a{n}" for n in range(len(operation.takes))]
        arguments = [
            literal(constants[n], type_) if n in constants else names[n] for n, type_ in enumerate(operation.takes)
        ]
        lines = []
        for n, row in enumerate(rows):
            values = (literal(value, type_) for value, type_ in zip(row, operation.takes, strict=True))
            lines.append(f"({', '.join([str(n), *values])})")
        table = f"(VALUES {', '.join(lines)}) AS t({', '.join(['n', *names])})"
        sql = operations.written(operation.duck, arguments, function)
        if operation.gives == INTERVAL:
            parts = "date_part(['year', 'month', 'day', 'hour', 'minute', 'microseconds'], v)"
            sql = f"SELECT {parts} FROM (SELECT n, {sql} AS v FROM {table}) ORDER BY n"
        else:
            sql = f"SELECT {sql} FROM {table} ORDER BY n"
        try:
            results = self.connection.execute(sql).fetchall()
        except duckdb.Error as error:
            raise error_of(error) from error
        if operation.gives == TIMESTAMPTZ:
            return [one[0] and one[0].replace(tzinfo=UTC) for one in results]
        return [_interval(one[0]) if operation.gives == INTERVAL else one[0] for one in results]


def error_of(error: duckdb.Error) -> Exception:
    own = re.search(r"gmdb (\w+): ([^'\"]*)", str(error))
    if "Division by zero" in str(error):
        return errors.DivisionByZero("division by zero")
    if "not in timestamp range" in str(error):
        return errors.ValueOutOfRange(str(error))
    return getattr(errors, own[1])(own[2]) if own else translated(error)


def _interval(parts: dict[str, int] | None) -> Interval | None:
    if parts is None:
        return None
    microseconds = (parts["hour"] * 60 + parts["minute"]) * 60_000_000 + parts["microseconds"]
    return Interval(parts["year"] * 12 + parts["month"], parts["day"], microseconds)


def same(a: Any, b: Any) -> bool:
    """Of one type, equal to the last digit; NaN equals itself, and 0 is -0 (no one can tell in SQL but by text)."""
    if isinstance(a, tuple | list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, float) and isinstance(b, float) and a != a:
        return b != b
    if isinstance(a, Decimal) and isinstance(b, Decimal):
        return a == b and a.as_tuple().exponent == b.as_tuple().exponent
    return (isinstance(a, str) and a == b) or (type(a) is type(b) and a == b)


def mismatches(
    duck: Duck, operation: Operation, rows: Sequence[tuple[Any, ...]], constants: dict[int, Any]
) -> Iterator[str]:
    """What is wrong with an operation, in words."""
    good: list[tuple[tuple[Any, ...], Any]] = []
    bad: list[tuple[tuple[Any, ...], DataError]] = []
    for row in rows:
        try:
            good.append((row, operations.apply(operation, *row)))
        except DataError as error:
            bad.append((row, error))
    if bad and not operation.fails:
        yield f"fails, but does not say so: {bad[0]}"
    for row, value in good:
        if operation.gives.name == "DECIMAL" and value is not None:
            digits = value.as_tuple()
            if -digits.exponent != operation.gives.scale or len(digits.digits) > max(
                operation.gives.length, operation.gives.scale
            ):
                yield f"{row}: {value!r} is no {operation.gives}"
    if operation.duck is None:
        return
    if good:
        try:
            results = duck.values(operation, [row for row, _ in good], constants)
        except Exception as error:
            yield f"raises {type(error).__name__}: {error}"
            for row, value in good:
                try:
                    duck.values(operation, [row], constants)
                except Exception as error_of_row:
                    yield f"  {row}: raises {error_of_row}, not {value!r}"
            results = []
        for (row, value), result in zip(good, results, strict=False):
            if not same(value, result):
                yield f"{row}: {result!r}, not {value!r}"
    for row, error in bad[:: max(1, len(bad) // FAILURES_MAX)]:
        try:
            result = duck.values(operation, [row], constants)[0]
        except DataError as other:
            if type(other) is not type(error):
                yield f"{row}: {type(other).__name__} ({other}), not {type(error).__name__} ({error})"
        except Exception as other:
            yield f"{row}: {type(other).__name__} ({other}), not {type(error).__name__}"
        else:
            yield f"{row}: {result!r}, not {type(error).__name__} ({error})"


# ---- which operations

TYPES = [
    SMALLINT,
    INT,
    BIGINT,
    *DECIMALS,
    REAL,
    DOUBLE,
    BOOLEAN,
    DATE,
    TIME,
    TIMESTAMP,
    TIMESTAMPTZ,
    INTERVAL,
    UUID_TYPE,
    TEXT,
    VARCHAR3,
    CHAR3,
    CHAR5,
    BYTEA,
    BINARY4,
    VARBINARY2,
    JSON,
    JSONB,
]
Case = tuple[Operation, dict[int, Any]]


def operator_cases(symbols: Sequence[str]) -> Iterator[Case]:
    for symbol in symbols:
        for left, right in itertools.product(TYPES, TYPES):
            operation = operations.operator(symbol, left, right)
            if operation is not None:
                yield operation, {}


def cast_cases() -> Iterator[Case]:
    for source, target in itertools.product(TYPES, TYPES):
        for operation in (
            operations.cast(source, target),
            operations.cast(source, target, limited=False),
            operations.widen(source, target),
            operations.assignment(source, target),
        ):
            if operation is not None:
                yield operation, {}


_CONSTANTS: dict[str, list[dict[int, Any]]] = {
    "round": [{1: n} for n in (0, 1, 2, 6, 20, 38, -1, -3)],
    "trunc": [{1: n} for n in (0, 1, 2, 6, 20, 38, -1, -3)],
    "extract": [
        {0: field}
        for field in (
            "year",
            "month",
            "day",
            "quarter",
            "week",
            "isoyear",
            "dow",
            "isodow",
            "doy",
            "decade",
            "century",
            "millennium",
            "julian",
            "epoch",
            "hour",
            "minute",
            "second",
            "milliseconds",
            "microseconds",
        )
    ],
    "date_trunc": [
        {0: field}
        for field in (
            "microseconds",
            "milliseconds",
            "second",
            "minute",
            "hour",
            "day",
            "week",
            "month",
            "quarter",
            "year",
            "decade",
            "century",
            "millennium",
        )
    ],
    "like": [{1: pattern} for pattern in ("a%", "%b", "%", "_", "a\\%b%", "", "%Ö_", "a\\", "_ab", "%a_b%")],
    "to_char": [{1: form} for form in ("YYYY-MM-DD HH24:MI:SS", "Month Mon day", "YYYY", "US")],
}
_CONSTANTS["date_part"] = _CONSTANTS["extract"]
_CONSTANTS["ilike"] = _CONSTANTS["like"]
_CONSTANTS["like_escape"] = _CONSTANTS["ilike_escape"] = [
    {1: "a!%b%", 2: "!"},
    {1: "a%", 2: ""},
    {1: "%'%%", 2: "'"},
    {1: "a!", 2: "!"},
    {1: "a%", 2: "!!"},
    {1: "\\%", 2: ""},
]


def function_cases(name: str) -> Iterator[Case]:
    for overload in functions_by_name()[name]:
        choices = [DECIMALS if one == NUMERIC else [CHAR3] if one == CHAR else [one] for one in overload.takes]
        for types in itertools.product(*choices):
            for constants in ({}, *_CONSTANTS.get(name, ())):
                if all(n < len(types) for n in constants):
                    operation = operations.resolve(name, types, constants)
                    assert operation is not None
                    yield operation, constants


def variadic_cases() -> Iterator[Case]:
    for name in ("greatest", "least", "concat", "concat_ws", "nullif"):
        for types in [*itertools.product(TYPES, TYPES), (TEXT, TEXT, CHAR3), (INT, BIGINT, DOUBLE), (TEXT,)]:
            operation = operations.resolve(name, types)
            if operation is not None:
                yield operation, {}


def unary_cases() -> Iterator[Case]:
    for name in ("neg", "bitnot", "not", "is_null", "is_true", "is_false"):
        for type_ in TYPES:
            operation = operations.unary(name, type_)
            if operation is not None:
                yield operation, {}


ARRAYS = [array_of(type_) for type_ in (INT, DECIMALS[0], DECIMALS[2], DOUBLE, BOOLEAN, TIMESTAMP, TEXT, BYTEA)]


def array_cases() -> Iterator[Case]:
    for type_, other in itertools.product(ARRAYS, ARRAYS):
        makers = (operations.cast, operations.widen, operations.assignment)
        chosen = [make(type_, other) for make in makers]
        for symbol in ("=", "<", "IS DISTINCT FROM", "||", "@>", "<@", "&&"):
            chosen += [operations.operator(symbol, *sides) for sides in ((type_, other), (type_, other.element))]
        for symbol, every in itertools.product(("=", "<>", "<", ">="), (False, True)):
            chosen.append(arrays.quantified(symbol, every, type_.element, other, {}))
        chosen += [operations.resolve(name, (type_, other)) for name in ("nullif", "greatest", "least")]
        yield from ((one, {}) for one in chosen if one is not None)
    for type_ in ARRAYS:
        element = type_.element
        yield from ((one, {}) for one in (arrays.subscript(type_), arrays.part(type_), arrays.constructor(element, 2)))
        for name in arrays.FUNCTIONS:
            for takes in ((type_,), (type_, INT), (type_, element), (element, type_), (type_, element, element)):
                operation = operations.resolve(name, takes)
                if operation is not None:
                    yield operation, {}


def by_zones(cases: Iterator[Case]) -> Iterator[Case]:
    """What depends on a time zone in several, whose names are the last arguments."""
    for operation, constants in cases:
        last = len(operation.takes) - 1
        if operation.zoned:
            yield from ((operation, {**constants, last: zone}) for zone in ZONES)
        elif operation.name == "timezone" and operation.takes[0] == TEXT:
            yield from ((operation, {0: zone}) for zone in ZONES)
        elif operation.name in ("date_trunc", "make_timestamptz") and operation.takes[1:][-1:] == (TEXT,):
            yield from ((operation, {**constants, last: zone}) for zone in ZONES)
        else:
            yield operation, constants


@pytest.fixture(scope="module")
def duck() -> Duck:
    return Duck()


def check(duck: Duck, cases: Iterator[Case]) -> None:
    wrong = []
    for operation, constants in by_zones(cases):
        rows = rows_of(operation.takes, constants)
        findings = list(itertools.islice(mismatches(duck, operation, rows, constants), 4))
        if findings:
            takes = ", ".join(map(str, operation.takes))
            wrong.append(f"{operation.name}({takes}) {constants}: {operation.duck}\n    " + "\n    ".join(findings))
    if wrong:
        pytest.fail(f"{len(wrong)} operations:\n" + "\n".join(wrong[:40]), pytrace=False)


@pytest.mark.parametrize("symbol", ["+", "-", "*", "/", "%", "&", "|", "#", "<<", ">>", "||", "^"])
def test_an_operator_gives_the_same_in_duckdb(duck: Duck, symbol: str) -> None:
    check(duck, operator_cases([symbol]))


@pytest.mark.parametrize("symbol", ["=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM"])
def test_a_comparison_gives_the_same_in_duckdb(duck: Duck, symbol: str) -> None:
    check(duck, operator_cases([symbol]))


def test_a_cast_gives_the_same_in_duckdb(duck: Duck) -> None:
    check(duck, cast_cases())


@pytest.mark.parametrize("name", sorted(set(functions_by_name()) - {"random", "gen_random_uuid"}))
def test_a_function_gives_the_same_in_duckdb(duck: Duck, name: str) -> None:
    check(duck, function_cases(name))


def test_a_function_of_any_number_of_arguments_gives_the_same_in_duckdb(duck: Duck) -> None:
    check(duck, variadic_cases())


def test_what_arrays_have_gives_the_same_in_duckdb(duck: Duck) -> None:
    check(duck, array_cases())


def test_signs_and_truths_give_the_same_in_duckdb(duck: Duck) -> None:
    check(duck, unary_cases())
