"""What numbers do at run time, as PostgreSQL has it.

A decimal carries its scale as PostgreSQL's numeric does: sums have the larger scale, products the sum of both, and
quotients, roots, powers and logarithms enough digits for 16 significant ones, but no fewer than what was given.
Doubles overflow and underflow with an error.  No function here takes None.
"""

from __future__ import annotations

import decimal
import math
from collections.abc import Callable
from decimal import Context, Decimal, DecimalException
from typing import Any, NoReturn

from gmdb.errors import DivisionByZero, UndefinedResult, ValueOutOfRange

DIGITS_MAX = 2000  # of a decimal within an expression
SERIES_MAX = 100_000_000  # numbers that generate_series gives at most
DOUBLE_MAX = 1.7976931348623157e308

_TRAPS = [decimal.InvalidOperation, decimal.Overflow]
_EXACT = Context(prec=DIGITS_MAX, rounding=decimal.ROUND_HALF_UP, traps=[decimal.Inexact, *_TRAPS])
_ROUNDING = Context(prec=DIGITS_MAX, rounding=decimal.ROUND_HALF_UP, traps=_TRAPS)
_EVEN = Context(prec=15, rounding=decimal.ROUND_HALF_EVEN, traps=_TRAPS)


def out_of_range(type_name: str) -> NoReturn:
    """Refuse the result of integer arithmetic."""
    name = {"INT": "integer", "BIGINT": "bigint"}.get(type_name, type_name)
    hint = "; cast an operand to BIGINT" if type_name == "INT" else "; cast an operand to DECIMAL"
    raise ValueOutOfRange(f"{name} out of range{hint}")


def too_many_digits() -> NoReturn:
    raise ValueOutOfRange(f"value overflows numeric format: a decimal has at most {DIGITS_MAX} digits")


def zero_divisor() -> NoReturn:
    raise DivisionByZero("division by zero")


# ---- integers


def divide_integers(a: int, b: int) -> int:
    """Truncates towards zero."""
    if not b:
        zero_divisor()
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def remainder_of_integers(a: int, b: int) -> int:
    """Has the dividend's sign."""
    if not b:
        zero_divisor()
    remainder = abs(a) % abs(b)
    return remainder if a >= 0 else -remainder


# ---- decimals


def plain_decimal(value: Decimal) -> Decimal:
    """Without a positive exponent, and without a sign of zero: 1E+3 is 1000."""
    if value.as_tuple().exponent > 0:  # type: ignore[operator]
        try:
            value = value.quantize(Decimal(1), context=_ROUNDING)
        except DecimalException:
            too_many_digits()
    return value if value else value.copy_abs()


# ---- doubles


def checked_double(result: float, *operands: float) -> float:
    """An infinite result of finite operands is an overflow."""
    if math.isinf(result) and not any(map(math.isinf, operands)):
        raise ValueOutOfRange("value out of range: overflow")
    return result


def multiply_doubles(a: float, b: float) -> float:
    result = checked_double(a * b, a, b)
    if not result and a and b:
        raise ValueOutOfRange("value out of range: underflow")
    return result


def divide_doubles(a: float, b: float) -> float:
    if not b:
        if math.isnan(a):
            return a
        zero_divisor()
    result = checked_double(a / b, a)
    if not result and a and not math.isinf(b):
        raise ValueOutOfRange("value out of range: underflow")
    return result


def order_doubles(a: float, b: float) -> int:
    """-1, 0 or 1.  NaN equals itself and is larger than everything."""
    if a != a or b != b:
        return (a != a) - (b != b)
    return (a > b) - (a < b)


def _rounded_by(function: Callable[[float], int]) -> Callable[[float], float]:
    def apply(value: float) -> float:
        if not math.isfinite(value) or abs(value) >= 2.0**53:
            return value
        return math.copysign(abs(float(function(value))), value)

    return apply


ceil_double = _rounded_by(math.ceil)
round_double = _rounded_by(round)  # half to even
floor_double = _rounded_by(math.floor)
truncate_double = _rounded_by(math.trunc)


def sign_double(value: float) -> float:
    return float((value > 0) - (value < 0))


def sqrt_double(value: float) -> float:
    if value < 0:
        raise UndefinedResult("cannot take square root of a negative number")
    return math.sqrt(value)


def exp_double(value: float) -> float:
    try:
        result = math.exp(value)
    except OverflowError:
        raise ValueOutOfRange("value out of range: overflow") from None
    if not result and not math.isinf(value):
        raise ValueOutOfRange("value out of range: underflow")
    return result


def _logarithm(function: Callable[[float], float]) -> Callable[[float], float]:
    def apply(value: float) -> float:
        if value <= 0:
            what = "zero" if not value else "a negative number"
            raise UndefinedResult(f"cannot take logarithm of {what}")
        return function(value)

    return apply


ln_double = _logarithm(math.log)
log_double = _logarithm(math.log10)


def power_double(base: float, exponent: float) -> float:
    if not base and exponent < 0:
        raise UndefinedResult("zero raised to a negative power is undefined")
    if base < 0 and math.isfinite(exponent) and math.floor(exponent) != exponent:
        raise UndefinedResult("a negative number raised to a non-integer power yields a complex result")
    try:
        result = math.pow(base, exponent)
    except OverflowError:
        raise ValueOutOfRange("value out of range: overflow") from None
    if not result and base and math.isfinite(base) and math.isfinite(exponent):
        raise ValueOutOfRange("value out of range: underflow")
    return result


# ---- from one to the other


def decimal_of_double(value: float) -> Decimal:
    """Fifteen significant digits, as PostgreSQL takes them."""
    if not math.isfinite(value):
        raise ValueOutOfRange(f"a decimal cannot be {double_text(value)}")
    result = _EVEN.create_decimal_from_float(value).normalize(_EVEN)
    return plain_decimal(result)


def double_of_decimal(value: Any) -> float:
    try:
        result = float(value)
    except OverflowError:
        result = math.inf
    if math.isinf(result):
        raise ValueOutOfRange(f"{value:.20E} is out of range for type double precision")
    return result


def integer_of_double(value: float, low: int, high: int, name: str) -> int:
    """Half to even."""
    if not math.isfinite(value):
        out_of_range(name)
    result = round(value)
    if not low <= result <= high:
        out_of_range(name)
    return result


def integer_of_decimal(value: Decimal, low: int, high: int, name: str) -> int:
    """Half away from zero."""
    result = int(value.to_integral_value(decimal.ROUND_HALF_UP))
    if not low <= result <= high:
        out_of_range(name)
    return result


def double_text(value: float) -> str:
    """The shortest text that reads as the same double, in PostgreSQL's notation."""
    if value != value:
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    sign, digits, exponent = Decimal(_shortest(value)).as_tuple()
    text = "".join(map(str, digits)).rstrip("0") or "0"
    power = len(digits) + int(exponent) - 1
    if not value:
        power = 0
    if not -5 < power < 15:
        point = f".{text[1:]}" if len(text) > 1 else ""
        shown = f"{text[0]}{point}e{'-' if power < 0 else '+'}{abs(power):02d}"
    elif power < 0:
        shown = f"0.{'0' * (-power - 1)}{text}"
    else:
        text = text.ljust(power + 1, "0")
        shown = f"{text[: power + 1]}.{text[power + 1 :]}".rstrip(".")
    return f"-{shown}" if sign or math.copysign(1, value) < 0 else shown


def _shortest(value: float) -> str:
    """Python's shortest text, unless it lies halfway to another double: PostgreSQL writes one digit more then."""
    if abs(value) < 2.0**53:
        return repr(value)
    neighbours = (math.nextafter(value, way) for way in (math.inf, -math.inf))
    halfway = [_EXACT.add(Decimal(value), Decimal(one)) for one in neighbours if math.isfinite(one)]
    for digits in range(1, 18):
        text = f"{value:.{digits - 1}e}"
        if float(text) == value and _EXACT.multiply(2, Decimal(text)) not in halfway:
            break
    return text


def decimal_text(value: Decimal) -> str:
    return f"{value:f}" if value else f"{value.copy_abs():f}"


# ---- bits


def _shift(bits: int, is_left: bool) -> Callable[[int, int], int]:
    half = 1 << bits - 1

    def shift(value: int, count: int) -> int:
        count %= bits
        return ((value << count) + half) % (half << 1) - half if is_left else value >> count

    return shift


SHIFTS = {
    (symbol, name): _shift(bits, symbol == "<<")
    for symbol in ("<<", ">>")
    for name, bits in (("INT", 32), ("BIGINT", 64))
}


ANGLES = ("sin", "cos", "tan", "asin", "acos", "atan", "degrees", "radians")


def of_angle(name: str) -> Callable[[float], float]:
    function = getattr(math, name)

    def of_angle(value: float) -> float:
        try:
            result = float(function(value))
            if (math.isinf(result) and not math.isinf(value)) or (not result and value and name == "radians"):
                raise ValueError
            return result
        except ValueError:
            raise ValueOutOfRange(f"{name} of {value}: input is out of range") from None

    return of_angle
