"""Operators: arithmetic and bits, comparisons, and what chooses among values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gmdb.format.columns import DECIMAL_DIGITS_MAX, JSONS, ColumnType
from gmdb.format.interval import Interval
from gmdb.format.json_text import key_of as json_key
from gmdb.sql import arrays, numbers, times, zones
from gmdb.sql.operations.registry import NAMES, Operation, named
from gmdb.sql.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOATS,
    INT,
    INTEGERS,
    INTERVAL,
    JSON,
    JSONB,
    MOMENTS,
    NUMBERS,
    QUOTIENT_SCALE,
    REAL,
    SMALLINT,
    TEXT,
    TIME,
    TIMESTAMP,
    TIMESTAMPTZ,
    as_decimal,
    beside,
    category,
    common_type,
    decimal_of,
    is_integer,
    is_moment,
    is_number,
)

# ---- Arithmetic: + - * / % of numbers and of times, signs, and bits.
#
# The digits of a DECIMAL result: + - % have the larger scale; a product has the sum of the scales, and if that is above
# 20 the larger one and at least 16; a quotient has the larger one and at least 16.  It has as many digits before the
# point as it can need, up to 38 in all.

PRODUCT_SCALE_MAX = 20
DUCK_NAMES = {"SMALLINT": "SMALLINT", "INT": "INTEGER", "BIGINT": "BIGINT"}
_NARROW = 18  # digits that DuckDB calculates with in 64 bits
_AT_ONCE = 8  # digits of a quotient that are computed at once in 128 bits
_AT_ONCE_MIN = 3  # and in 64 bits, where it is still quicker then
_DIVISOR_DIGITS = DECIMAL_DIGITS_MAX - _AT_ONCE
named(numbers.out_of_range, numbers.divide_integers, numbers.checked_double)


def arithmetic(
    symbol: str, left: ColumnType | None, right: ColumnType | None, constants: Mapping[int, Any]
) -> Operation | None:
    """left + right, and the like; None if there is no such operator."""
    if left is None and right is None:
        return None
    if any(side is not None and side.name in (*MOMENTS, "TIME", "INTERVAL") for side in (left, right)):
        return _of_times(symbol, left, right)
    texts = [one if isinstance(one := constants.get(n), str) else None for n in (0, 1)]
    a = left if left is not None else beside(right, texts[0])  # type: ignore[arg-type]
    b = right if right is not None else beside(left, texts[1])  # type: ignore[arg-type]
    if not is_number(a) or not is_number(b):
        return None
    name = max(a.name, b.name, key=NUMBERS.index)
    if name in FLOATS:
        return _of_reals(symbol) if a == b == REAL else _of_doubles(symbol)
    if name == "DECIMAL":
        return _of_decimals(symbol, a, b)
    return _of_integers(symbol, ColumnType(name))


# ---- integers


def _of_integers(symbol: str, type_: ColumnType) -> Operation:
    low, high = INTEGERS[type_.name]
    if symbol == "%":
        return Operation(symbol, (type_, type_), type_, numbers.remainder_of_integers, _remainder_of(type_))
    result = "divide_integers({0}, {1})" if symbol == "/" else f"{{0}} {symbol} {{1}}"
    python = f'({{t}} if {low} <= ({{t}} := {result}) <= {high} else out_of_range("{type_.name}"))'
    return Operation(symbol, (type_, type_), type_, python, f"({{0}} {'//' if symbol == '/' else symbol} {{1}})")


def _remainder_of(type_: ColumnType) -> str:
    """DuckDB does not divide the smallest integer by -1."""
    zero = f"CAST(0 * {{0}} AS {DUCK_NAMES[type_.name]})"
    return f"(CASE WHEN {{1}} = -1 THEN {zero} ELSE {{0}} % {{1}} END)"


# ---- doubles


def _of_doubles(symbol: str) -> Operation | None:
    if symbol == "%":
        return None
    takes = (DOUBLE, DOUBLE)
    if symbol == "*":
        return Operation(symbol, takes, DOUBLE, numbers.multiply_doubles, "gm_product({0} * {1}, {0}, {1})")
    if symbol == "/":
        return Operation(symbol, takes, DOUBLE, numbers.divide_doubles, "gm_quotient({0}, {1})")
    high = repr(numbers.DOUBLE_MAX)
    check = "checked_double({t}, {0}, {1})"
    python = f"({{t}} if -{high} <= ({{t}} := {{0}} {symbol} {{1}}) <= {high} else {check})"
    return Operation(symbol, takes, DOUBLE, python, f"gm_sum({{0}} {symbol} {{1}}, {{0}}, {{1}})")


_REALS: dict[str, Callable[[float, float], float]] = {
    "+": numbers.add_reals,
    "-": numbers.subtract_reals,
    "*": numbers.multiply_reals,
    "/": numbers.divide_reals,
}
_DUCK_REALS = {"+": "gm_sum({0} + {1}, {0}, {1})", "-": "gm_sum({0} - {1}, {0}, {1})"}
_DUCK_REALS |= {"*": "gm_product({0} * {1}, {0}, {1})", "/": "gm_quotient({0}, {1})"}


def _of_reals(symbol: str) -> Operation | None:
    """Only two REALs give a REAL; beside another number one is a DOUBLE."""
    if symbol == "%":
        return None
    return Operation(symbol, (REAL, REAL), REAL, _REALS[symbol], _DUCK_REALS[symbol])


# ---- decimals


def duck_decimal(sql: str, type_: ColumnType) -> str:
    """The SQL of an exact number as a DECIMAL."""
    return sql if type_.name == "DECIMAL" else f"CAST({sql} AS {as_decimal(type_)})"


def _of_decimals(symbol: str, left: ColumnType, right: ColumnType) -> Operation:
    a, b = as_decimal(left), as_decimal(right)
    if symbol == "/":
        return _quotient(left, right)
    if symbol == "*":
        return _product(left, right)
    scale = max(a.scale, b.scale)
    before = max(a.length - a.scale, b.length - b.scale)
    if symbol == "%":
        gives = decimal_of(before + scale, scale)
        sure = before + scale <= DECIMAL_DIGITS_MAX
        duck = f"({duck_decimal('{0}', left)} % {duck_decimal('{1}', right)})" if sure else None
        return Operation(symbol, (left, right), gives, numbers.remainder_to(scale), duck)
    sure = before + 1 + scale <= DECIMAL_DIGITS_MAX
    gives = decimal_of(before + 1 + scale, scale)
    python: Callable[..., Any]
    if sure:
        python = numbers.exact_sum if symbol == "+" else numbers.exact_difference
    else:
        python = numbers.add_decimals if symbol == "+" else numbers.subtract_decimals
    # An operand that does not fit at the result's scale would be an error in DuckDB before the sum is known.
    widest = all(one.length - one.scale + scale <= DECIMAL_DIGITS_MAX for one in (a, b))
    duck = f"({_widened('{0}', left, gives, b)} {symbol} {duck_decimal('{1}', right)})" if widest else None
    return Operation(symbol, (left, right), gives, python, duck, fails=not sure)


def _widened(sql: str, type_: ColumnType, gives: ColumnType, other: ColumnType) -> str:
    """An operand with more digits, if DuckDB would otherwise calculate in 64 bits what does not fit there."""
    operand = as_decimal(type_)
    if gives.length > _NARROW and operand.length <= _NARROW and other.length <= _NARROW:
        return f"CAST({sql} AS DECIMAL({_NARROW + 1},{operand.scale}))"
    return duck_decimal(sql, type_)


def _product(left: ColumnType, right: ColumnType) -> Operation:
    a, b = as_decimal(left), as_decimal(right)
    scale, length = a.scale + b.scale, a.length + b.length
    takes = (left, right)
    if scale > PRODUCT_SCALE_MAX:
        kept = max(a.scale, b.scale, QUOTIENT_SCALE)
        gives = decimal_of(length - scale + kept, kept)
        exact = f"({_widened('{0}', left, decimal_of(length, 0), b)} * {duck_decimal('{1}', right)})"
        duck = f"CAST({exact} AS {gives})" if length <= DECIMAL_DIGITS_MAX else None
        return Operation("*", takes, gives, numbers.multiply_to(kept), duck)
    gives = decimal_of(length, scale)
    sure = length <= DECIMAL_DIGITS_MAX
    duck = f"({_widened('{0}', left, gives, b)} * {duck_decimal('{1}', right)})"
    return Operation("*", takes, gives, numbers.multiply_decimals, duck, fails=not sure)


def _quotient(left: ColumnType, right: ColumnType) -> Operation:
    a, b = as_decimal(left), as_decimal(right)
    scale = max(a.scale, b.scale, QUOTIENT_SCALE)
    gives = decimal_of(DECIMAL_DIGITS_MAX, scale)
    duck = None
    if b.length <= _DIVISOR_DIGITS:
        duck = with_point(long_division("{0}", left, "{1}", right, scale + b.scale - a.scale), scale)
    return Operation("/", (left, right), gives, numbers.divide_to(scale), duck)


def _digits(sql: str, type_: ColumnType) -> str:
    """The SQL of a number's digits as an integer."""
    number = as_decimal(type_)
    integer = "BIGINT" if number.length <= _NARROW else "HUGEINT"
    if not number.scale:
        return f"CAST({sql} AS {integer})"
    if number.length + number.scale + 1 > DECIMAL_DIGITS_MAX:
        return f"gm_digits({sql})"
    unit = f"CAST({10**number.scale} AS DECIMAL({number.scale + 1},0))"
    widened = _widened(sql, type_, decimal_of(number.length + number.scale + 1, 0), decimal_of(number.scale + 1, 0))
    return f"CAST({widened} * {unit} AS {integer})"


def long_division(dividend: str, left: ColumnType, divisor: str, right: ColumnType, digits: int) -> str:
    """The SQL of the dividend's digits * 10**digits / the divisor's, rounded half away from zero.

    Some digits at a time: DuckDB divides DECIMALs as DOUBLEs, and has no integer in which the product would always fit.
    As many at a time as remainders leave room for in 64 bits, since 128 bits are divided slowly; a divisor may have 30
    digits.
    """
    a, b = _digits(dividend, left), _digits(divisor, right)
    length = as_decimal(right).length
    narrow = length <= _NARROW - _AT_ONCE_MIN
    at_once = _NARROW - length if narrow else _AT_ONCE
    value, remainder = f"CAST({a} // {b} AS HUGEINT)", f"CAST({a} % {b} AS {'BIGINT' if narrow else 'HUGEINT'})"
    while digits > 0:
        step = min(digits, at_once)
        shifted = f"({remainder} * {10**step})"
        value, remainder = f"({value} * {10**step} + {shifted} // {b})", f"({shifted} % {b})"
        digits -= step
    half = f"CASE WHEN abs({remainder}) * 2 >= abs({b}) THEN sign({a}) * sign({b}) ELSE 0 END"
    return f"({value} + {half})"


def with_point(sql: str, scale: int) -> str:
    """The SQL of an integer as the digits of a DECIMAL."""
    return f"(CAST({sql} AS DECIMAL(38,0)) * CAST(0.{'0' * (scale - 1)}1 AS DECIMAL({scale},{scale})))"


def negation(type_: ColumnType) -> Operation | None:
    """-x."""
    if type_.name in INTEGERS:
        python = f'(-{{0}} if {{0}} != {INTEGERS[type_.name][0]} else out_of_range("{type_.name}"))'
        duck = "(CAST(0 AS SMALLINT) - {0})" if type_ == SMALLINT else "(- {0})"  # of which DuckDB overlooks the least
        return Operation("neg", (type_,), type_, python, duck)
    if type_.name == "DECIMAL":
        return Operation("neg", (type_,), type_, numbers.negate_decimal, "(- {0})", fails=False)
    if type_.name in FLOATS:
        return Operation("neg", (type_,), type_, "(-{0})", "(- {0})", fails=False)
    if type_ == INTERVAL:
        return Operation("neg", (type_,), type_, Interval.negated, "(- {0})")
    return None


# ---- bits


def bitwise(symbol: str, left: ColumnType | None, right: ColumnType | None) -> Operation | None:
    """&, |, # of integers, and shifts, whose count is taken modulo the number of bits."""
    a, b = left or right, right or left
    if not is_integer(a) or not is_integer(b):
        return None
    assert a is not None
    assert b is not None
    if symbol in ("<<", ">>"):
        return Operation(symbol, (a, INT), a, numbers.SHIFTS[symbol, a.name], _shift(symbol, a), fails=False)
    type_ = max(a, b, key=lambda one: NUMBERS.index(one.name))
    python = f"({{0}} {'^' if symbol == '#' else symbol} {{1}})"
    duck = "xor({0}, {1})" if symbol == "#" else f"({{0}} {symbol} {{1}})"
    return Operation(symbol, (type_, type_), type_, python, duck, fails=False)


def _shift(symbol: str, type_: ColumnType) -> str | None:
    """Bits shifted out on the left are dropped; DuckDB refuses that."""
    if type_ == SMALLINT:  # is shifted as an INT, of which the low bits stay
        return None if symbol == "<<" else "CAST((CAST({0} AS INTEGER) >> ({1} & 31)) AS SMALLINT)"
    bits, wide = (64, "HUGEINT") if type_ == BIGINT else (32, "BIGINT")
    count = f"({{1}} & {bits - 1})"
    if symbol == ">>":
        return f"CAST(({{0}} >> {count}) AS {DUCK_NAMES[type_.name]})"
    product = f"(CAST({{0}} AS {wide}) * (CAST(1 AS {wide}) << {count}))"
    kept, sign = f"({product} & {(1 << bits) - 1}::{wide})", f"{1 << bits - 1}::{wide}"
    return f"CAST(xor({kept}, {sign}) - {sign} AS {DUCK_NAMES[type_.name]})"


def bit_inversion(type_: ColumnType) -> Operation | None:
    """~x."""
    return Operation("bitnot", (type_,), type_, "(~{0})", "(~{0})", fails=False) if is_integer(type_) else None


# ---- times


def _of_times(symbol: str, left: ColumnType | None, right: ColumnType | None) -> Operation | None:
    turned = symbol in ("+", "*") and _comes_second(left, right)
    first, second = (right, left) if turned else (left, right)
    if first is None:
        if symbol != "-" and second != INTERVAL:
            return None
        first = second
    if second is None:
        if symbol == "+" and first == DATE:
            return None
        second = DOUBLE if symbol in ("*", "/") else INTERVAL if symbol == "+" else first
    assert first is not None
    assert second is not None
    operation = _of_ordered_times(symbol, first, second)
    if operation is None or not turned:
        return operation
    python, duck = operation.python, operation.duck
    assert callable(python)
    if operation.zoned:
        with_zone = (operation.takes[1], operation.takes[0], TEXT)
        return Operation(symbol, with_zone, operation.gives, lambda a, b, zone: python(b, a, zone), zoned=True)
    duck = duck.format("{1}", "{0}") if duck is not None else None
    takes = operation.takes[::-1]
    return Operation(symbol, takes, operation.gives, lambda a, b: python(b, a), duck, fails=operation.fails)


def _comes_second(left: ColumnType | None, right: ColumnType | None) -> bool:
    """Whether + and * of these are defined the other way round."""
    if right == TIME or left == TIME:
        return (right == TIME and left in (None, INTERVAL)) or (left == TIME and is_moment(right))
    return is_moment(right) or (right == INTERVAL and (left is None or is_number(left)))


def _of_ordered_times(symbol: str, left: ColumnType, right: ColumnType) -> Operation | None:
    is_sum = symbol == "+"
    if TIME in (left, right):
        return _of_times_of_day(symbol, left, right)
    if symbol in ("+", "-"):
        if left == DATE and right == SMALLINT:
            right = INT
        if left == DATE and right == INT:
            # Far beyond the range of dates DuckDB wraps around, without an error.
            days = "CASE WHEN {1} > 9999999 THEN 9999999 WHEN {1} < -9999999 THEN -9999999 ELSE {1} END"
            by_days = times.add_days if is_sum else times.subtract_days
            return Operation(symbol, (DATE, INT), DATE, by_days, f"gm_date({{0}} {symbol} {days})")
        if left == TIMESTAMPTZ and right == INTERVAL:
            by_zone = zones.add_interval if is_sum else zones.subtract_interval
            in_utc = f"gm_timestamp({{0}} {symbol} {{1}})"
            duck = f"CASE WHEN {{2}} = 'UTC' THEN {in_utc} ELSE {{python}}({{0}}, {{1}}, {{2}}) END"
            return Operation(symbol, (TIMESTAMPTZ, INTERVAL, TEXT), TIMESTAMPTZ, by_zone, duck, zoned=True)
        if is_moment(left) and right == INTERVAL:
            by_interval = times.add_interval if is_sum else times.subtract_interval
            takes = (TIMESTAMP, INTERVAL)
            return Operation(symbol, takes, TIMESTAMP, by_interval, f"gm_timestamp({{0}} {symbol} {{1}})")
        if left == right == INTERVAL:
            joined = Interval.plus if is_sum else Interval.minus
            return Operation(symbol, (INTERVAL, INTERVAL), INTERVAL, joined, f"({{0}} {symbol} {{1}})")
    if symbol == "-" and left == right == DATE:
        duck = "CAST(({0} - {1}) AS INTEGER)"
        return Operation(symbol, (DATE, DATE), INT, times.days_between, duck, fails=False)
    if symbol == "-" and is_moment(left) and is_moment(right):
        both = TIMESTAMPTZ if TIMESTAMPTZ in (left, right) else TIMESTAMP
        return Operation(symbol, (both,) * 2, INTERVAL, times.interval_between, "({0} - {1})", fails=False)
    if symbol in ("*", "/") and left == INTERVAL and is_number(right):
        scaled = Interval.times if symbol == "*" else Interval.divided
        return Operation(symbol, (INTERVAL, DOUBLE), INTERVAL, scaled)
    return None


def _of_times_of_day(symbol: str, left: ColumnType, right: ColumnType) -> Operation | None:
    if symbol == "+" and is_moment(left):
        if left != DATE:
            return _of_ordered_times(symbol, left, INTERVAL)
        return Operation(symbol, (DATE, TIME), TIMESTAMP, times.timestamp_of_both, "({0} + {1})", fails=False)
    if symbol in ("+", "-") and right == INTERVAL:
        function = times.add_to_time if symbol == "+" else times.subtract_from_time
        return Operation(symbol, (TIME, INTERVAL), TIME, function, f"({{0}} {symbol} {{1}})", fails=False)
    if symbol == "-" and left == right == TIME:
        return Operation(symbol, (TIME, TIME), INTERVAL, times.time_between, fails=False)
    return None


# ---- Comparisons, tests of truth and NULL, and what chooses among values: NULLIF, GREATEST, LEAST.
#
# Numbers are compared by value, whatever their types; texts by code points; CHAR without the blanks at its end, except
# beside a text of no given length, which keeps its own.  NaN equals itself and is above all other numbers.

SYMBOLS = {"=": "==", "<>": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
DISTINCT, SAME = "IS DISTINCT FROM", "IS NOT DISTINCT FROM"
named(numbers.order_doubles)

# What compares as arrays do, by their elements' types: see array_key_name.
ELEMENT_KEYS: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(
        ("DOUBLE", "REAL"),
        lambda value: (False, value) if value == value else (True, 0.0),  # NaN equals itself
    ),
}
NAMES.update({f"array_key_{name}": arrays.array_key(ELEMENT_KEYS.get(name)) for name in ("plain", *ELEMENT_KEYS)})


def array_key_name(element: ColumnType) -> str:
    """The name of the function that gives what arrays of such elements are compared, hashed and sorted by."""
    return f"array_key_{element.name if element.name in ELEMENT_KEYS else 'plain'}"


def element_key(element: ColumnType) -> Callable[[Any], Any]:
    """What elements are compared by."""
    return ELEMENT_KEYS.get(element.name, lambda value: value)


def comparison(
    symbol: str, left: ColumnType | None, right: ColumnType | None, constants: Mapping[int, Any]
) -> Operation | None:
    """left = right, and the like; None if values of these types cannot be compared."""
    sides = comparable(left, right, constants)
    if sides is None or sides[0].name in JSONS:  # of JSONB its keys are compared (bind/coercion.py)
        return None
    if sides[0].is_array and sides[0].element.name == "DECIMAL" and sides[0] != sides[1]:
        sides = _of_one_scale(*sides)
    python, duck = _template(SYMBOLS.get(symbol, "!="), symbol, *sides)
    if symbol in SYMBOLS:
        return Operation(symbol, sides, BOOLEAN, f"({python})", f"({duck})", fails=False)
    nulls = "({0} is not {1}) if {0} is None or {1} is None else "
    python = f"({nulls}{python})" if symbol == DISTINCT else f"(not ({nulls}{python}))"
    return Operation(symbol, sides, BOOLEAN, python, f"({duck})", strict=False, fails=False)


def comparable(
    left: ColumnType | None, right: ColumnType | None, constants: Mapping[int, Any]
) -> tuple[ColumnType, ColumnType] | None:
    """The types that both sides are brought to."""
    texts = [one if isinstance(one := constants.get(n), str) else None for n in (0, 1)]
    if left is None and right is None:
        return TEXT, TEXT
    a = left if left is not None else beside(right, texts[0])  # type: ignore[arg-type]
    b = right if right is not None else beside(left, texts[1])  # type: ignore[arg-type]
    if category(a) != category(b) or (a.is_array and a.name != b.name):
        return None
    if a.name in FLOATS or b.name in FLOATS:
        return (REAL, REAL) if a == b == REAL else (DOUBLE, DOUBLE)
    if a.name != b.name and is_moment(a):
        latest = max(a, b, key=lambda one: MOMENTS.index(one.name))
        return latest, latest
    return a, b


def _of_one_scale(*sides: ColumnType) -> tuple[ColumnType, ColumnType]:
    """Arrays of decimals with as many digits behind the point, since DuckDB compares them as they are."""
    shared = common_type(sides)
    assert shared is not None
    return shared, shared


def _template(python: str, duck: str, left: ColumnType, right: ColumnType) -> tuple[str, str]:
    """The comparison of two values that are not NULL in Python, and of two values in DuckDB."""
    if left.name in FLOATS:
        ordered = f"order_doubles({{0}}, {{1}}) {python} 0"
        return f"{{0}} {python} {{1}} if {{0}} == {{0}} and {{1}} == {{1}} else {ordered}", f"{{0}} {duck} {{1}}"
    if left.is_array:
        key = array_key_name(left.element)
        return f"{key}({{0}}) {python} {key}({{1}})", f"{{0}} {duck} {{1}}"
    if left == INTERVAL:
        return f"{{0}}.length() {python} {{1}}.length()", f"{{0}} {duck} {{1}}"
    if "CHAR" in (left.name, right.name):
        both = TEXT not in (left, right)
        codes, sqls = [], []
        for place, side in (("{0}", left), ("{1}", right)):
            stripped = both or side.name == "CHAR"
            codes.append(f"{place}.rstrip(' ')" if stripped else place)
            sqls.append(f"rtrim({place}, ' ')" if stripped else place)
        return f"{codes[0]} {python} {codes[1]}", f"{sqls[0]} {duck} {sqls[1]}"
    if "DECIMAL" in (left.name, right.name):
        return f"{{0}} {python} {{1}}", _comparison_of_decimals(duck, left, right)
    return f"{{0}} {python} {{1}}", f"{{0}} {duck} {{1}}"


def _comparison_of_decimals(symbol: str, left: ColumnType, right: ColumnType) -> str:
    """DuckDB brings both to the larger scale, which is an error for values that have too many digits for that."""
    a, b = as_decimal(left), as_decimal(right)
    sql = [duck_decimal("{0}", left), duck_decimal("{1}", right)]
    scale = max(a.scale, b.scale)
    before = max(a.length - a.scale, b.length - b.scale)
    if before + scale <= DECIMAL_DIGITS_MAX:
        return f"{sql[0]} {symbol} {sql[1]}"
    target = f"DECIMAL({DECIMAL_DIGITS_MAX},{scale})"
    plain = f"TRY_CAST({{0}} AS {target}) {symbol} TRY_CAST({{1}} AS {target})"
    # One that has no place there is larger than all of the other type, or smaller.
    at = 0 if a.scale < b.scale else 1
    order = "sign({0})" if at == 0 else "-sign({1})"
    large = f"{{{at}}} IS NOT NULL AND TRY_CAST({{{at}}} AS {target}) IS NULL"
    if symbol in SYMBOLS:
        return f"CASE WHEN {{{1 - at}}} IS NOT NULL AND {large} THEN {order} {symbol} 0 ELSE {plain} END"
    return f"CASE WHEN {large} THEN {'TRUE' if symbol == DISTINCT else 'FALSE'} ELSE {plain} END"


# ---- truth


def is_null(type_: ColumnType) -> Operation:
    return Operation("is_null", (type_,), BOOLEAN, "({0} is None)", "({0} IS NULL)", strict=False, fails=False)


TRUTHS = {
    "not": Operation("not", (BOOLEAN,), BOOLEAN, "(not {0})", "(NOT {0})", fails=False),
    "is_true": Operation(
        "is_true", (BOOLEAN,), BOOLEAN, "({0} is True)", "({0} IS NOT DISTINCT FROM TRUE)", strict=False, fails=False
    ),
    "is_false": Operation(
        "is_false", (BOOLEAN,), BOOLEAN, "({0} is False)", "({0} IS NOT DISTINCT FROM FALSE)", strict=False, fails=False
    ),
}


# ---- choices


def nullif(types: Sequence[ColumnType | None], constants: Mapping[int, Any]) -> Operation | None:
    """The first value, or NULL if it equals the second.  Its type is that of the first as = takes it."""
    left, right = types
    if JSONB in types and {left, right} <= {JSONB, None}:
        return Operation("nullif", (JSONB, JSONB), JSONB, _null_if_equal, strict=False, fails=False)
    equal = comparison("=", left, right, constants)
    if equal is None:
        return None
    a, b = equal.takes
    if a.name != "DECIMAL" and b.name == "DECIMAL":
        a = as_decimal(a)
    elif left is not None and right is not None and "CHAR" in (left.name, right.name) and left.name != right.name:
        a = TEXT if TEXT in (left, right) else common_type([left, right]) or TEXT
    equal = comparison("=", a, b, constants)
    assert equal is not None
    gives = TEXT if a.name == "VARCHAR" else a
    assert isinstance(equal.python, str)
    python = f"({{0}} if {{0}} is None or {{1}} is None or not {equal.python} else None)"
    duck = f"CASE WHEN {equal.duck} THEN NULL ELSE {{0}} END"
    return Operation("nullif", (a, b), gives, python, duck, strict=False, fails=False)


def _null_if_equal(value: str | None, other: str | None) -> str | None:
    """NULLIF of JSONB."""
    is_equal = value is not None and other is not None and json_key(value) == json_key(other)
    return None if is_equal else value


def extreme(name: str, types: Sequence[ColumnType | None], constants: Mapping[int, Any]) -> Operation | None:
    """greatest and least: NULLs do not take part."""
    known = [type_ for type_ in types if type_ is not None]
    opened = [beside(known[0], _text(constants.get(n))) for n, one in enumerate(types) if one is None and known]
    try:
        type_ = common_type([*known, *opened]) or TEXT
    except ValueError:
        return None
    if type_ == JSON:
        return None
    if type_.is_array:
        function, native = _extreme(name == "greatest", key_of(type_)), False
    else:
        function, native = _EXTREMES[name == "greatest", type_.name if type_.name in KEYS else ""], True
    arguments = ", ".join(f"{{{n}}}" for n in range(len(types)))
    duck = f"{name}({arguments})" if native and type_.name not in ("CHAR", *FLOATS, "INTERVAL", "JSONB") else None
    return Operation(name, (type_,) * len(types), type_, function, duck, strict=False, fails=False)


def key_of(type_: ColumnType) -> Callable[[Any], Any] | None:
    """What values of a type are compared by; None: by themselves."""
    return NAMES[array_key_name(type_.element)] if type_.is_array else KEYS.get(type_.name)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _extreme(largest: bool, key: Callable[[Any], Any] | None) -> Callable[..., Any]:
    choose: Any = max if largest else min
    return lambda *values: choose([value for value in values if value is not None], default=None, key=key)


KEYS: dict[str, Callable[[Any], Any] | None] = {
    "": None,
    **dict.fromkeys(FLOATS, lambda value: (value != value, value)),
    "CHAR": lambda value: value.rstrip(" "),
    "INTERVAL": lambda value: value.length(),
    "JSONB": json_key,
}
_EXTREMES = {(largest, kind): _extreme(largest, key) for largest in (True, False) for kind, key in KEYS.items()}
