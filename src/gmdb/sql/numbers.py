"""What numbers do at run time, as PostgreSQL has it.

A decimal carries its scale as PostgreSQL's numeric does: sums have the larger scale, products the sum of both, and
quotients, roots, powers and logarithms enough digits for 16 significant ones, but no fewer than what was given.
Doubles overflow and underflow with an error.  No function here takes None.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import (
    ROUND_CEILING,
    ROUND_DOWN,
    ROUND_FLOOR,
    ROUND_HALF_EVEN,
    ROUND_HALF_UP,
    Context,
    Decimal,
    DecimalException,
    Inexact,
    InvalidOperation,
    Overflow,
)
from functools import cache
from typing import Any, NoReturn

from gmdb.errors import DivisionByZero, UndefinedResult, ValueOutOfRange

DIGITS_MAX = 2000  # of a decimal within an expression
SCALE_MAX = 1000  # digits behind the point of a quotient
SIGNIFICANT_DIGITS = 16
DOUBLE_MAX = 1.7976931348623157e308

_EXACT = Context(prec=DIGITS_MAX, rounding=ROUND_HALF_UP, traps=[Inexact, InvalidOperation, Overflow])
_ROUNDING = Context(prec=DIGITS_MAX, rounding=ROUND_HALF_UP, traps=[InvalidOperation, Overflow])
_EVEN = Context(prec=15, rounding=ROUND_HALF_EVEN, traps=[InvalidOperation, Overflow])


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


def _exact(operation: Callable[[Any, Any], Decimal]) -> Callable[[Any, Any], Decimal]:
    def apply(a: Any, b: Any) -> Decimal:
        try:
            result = operation(a, b)
        except DecimalException:
            too_many_digits()
        return result if result else _EXACT.abs(result)

    return apply


add_decimals = _exact(_EXACT.add)
subtract_decimals = _exact(_EXACT.subtract)
multiply_decimals = _exact(_EXACT.multiply)


def negate_decimal(value: Decimal) -> Decimal:
    return value.copy_negate() if value else value


def decimal_scale(value: Decimal) -> int:
    """Digits behind the point."""
    return max(0, -value.as_tuple().exponent)  # type: ignore[operator]


def plain_decimal(value: Decimal) -> Decimal:
    """Without a positive exponent, and without a sign of zero: 1E+3 is 1000."""
    if value.as_tuple().exponent > 0:  # type: ignore[operator]
        return rescale(value, 0)
    return value if value else value.copy_abs()


@cache
def _unit(scale: int) -> Decimal:
    """One in the last place."""
    return Decimal(1).scaleb(-scale)


def rescale(value: Decimal, scale: int, rounding: str = ROUND_HALF_UP) -> Decimal:
    """With so many digits behind the point; a negative scale rounds before it."""
    try:
        result = value.quantize(_unit(scale), rounding, _ROUNDING)
        if scale < 0:
            result = result.quantize(Decimal(1), rounding, _ROUNDING)
    except DecimalException:
        too_many_digits()
    return result if result else result.copy_abs()


def _unscaled(value: Any) -> tuple[int, int]:
    """The digits as an integer without its sign, and the scale."""
    if isinstance(value, int):
        return abs(value), 0
    scale = decimal_scale(value)
    return abs(int(value.scaleb(scale, _ROUNDING))), scale


def _leading(digits: int, scale: int) -> tuple[int, int]:
    """Of a value in base 10000: the power of its first digit, and that digit."""
    if not digits:
        return 0, 0
    weight = (len(str(digits)) - scale - 1) // 4
    shift = scale + 4 * weight
    return weight, digits // 10**shift if shift >= 0 else digits * 10**-shift


def _scale_for(digits_before: int, *given: Decimal) -> int:
    """The scale that leaves 16 significant digits, and no fewer than the arguments'."""
    return min(SCALE_MAX, max(0, SIGNIFICANT_DIGITS - digits_before, *map(decimal_scale, given)))


def divide_decimals(a: Any, b: Any) -> Decimal:
    """To at least 16 significant digits: PostgreSQL's choice of the scale, digit for digit."""
    if not b:
        zero_divisor()
    (digits_a, scale_a), (digits_b, scale_b) = _unscaled(a), _unscaled(b)
    (weight_a, first_a), (weight_b, first_b) = _leading(digits_a, scale_a), _leading(digits_b, scale_b)
    weight = weight_a - weight_b - (first_a <= first_b)
    scale = min(SCALE_MAX, max(0, SIGNIFICANT_DIGITS - 4 * weight, scale_a, scale_b))
    dividend, divisor = digits_a * 10 ** (scale + scale_b), digits_b * 10**scale_a
    quotient = (2 * dividend + divisor) // (2 * divisor)  # rounds half up
    return Decimal(-quotient if (a < 0) != (b < 0) else quotient).scaleb(-scale, _ROUNDING)


def remainder_of_decimals(a: Any, b: Any) -> Decimal:
    """Has the dividend's sign and the larger scale."""
    if not b:
        zero_divisor()
    a, b = Decimal(a), Decimal(b)
    try:
        return rescale(_EXACT.remainder(a, b), max(decimal_scale(a), decimal_scale(b)))
    except DecimalException:
        too_many_digits()


def round_decimal(value: Decimal, scale: int = 0) -> Decimal:
    return _at_scale(value, scale, ROUND_HALF_UP)


def truncate_decimal(value: Decimal, scale: int = 0) -> Decimal:
    return _at_scale(value, scale, ROUND_DOWN)


def _at_scale(value: Decimal, scale: int, rounding: str) -> Decimal:
    scale = max(-DIGITS_MAX // 2, min(DIGITS_MAX // 2, scale))
    return rescale(value, scale, rounding)


def ceil_decimal(value: Decimal) -> Decimal:
    return rescale(value, 0, ROUND_CEILING)


def floor_decimal(value: Decimal) -> Decimal:
    return rescale(value, 0, ROUND_FLOOR)


def sign_decimal(value: Decimal) -> Decimal:
    return Decimal((value > 0) - (value < 0))


def sqrt_decimal(value: Decimal) -> Decimal:
    if value < 0:
        raise UndefinedResult("cannot take square root of a negative number")
    weight = value.adjusted() // 4 if value else 0
    scale = _scale_for((weight + 1) * 4 // 2 - 1 if weight >= -1 else -((-(weight + 1) * 4) // 2) - 1, value)
    return rescale(Context(prec=scale + abs(value.adjusted()) + 20).sqrt(value), scale)


def exp_decimal(value: Decimal) -> Decimal:
    tenfold = max(-2000.0, min(2000.0, float(value) * 0.434294481903252))
    scale = _scale_for(int(tenfold), value)
    if tenfold >= DIGITS_MAX:
        too_many_digits()
    return rescale(Context(prec=max(1, scale + int(tenfold)) + 20).exp(value), scale)


def ln_decimal(value: Decimal) -> Decimal:
    scale = _scale_for(_digits_of_ln(_positive(value)), value)
    return rescale(_ln(value, scale + 30), scale)


def log_decimal(base: Decimal, value: Decimal) -> Decimal:
    _positive(base)
    digits = _digits_of_ln(_positive(value)) - _digits_of_ln(base)
    scale = _scale_for(digits, base, value)
    divisor = _ln(base, scale + 60)
    if not divisor:
        zero_divisor()
    return rescale(Context(prec=scale + 60).divide(_ln(value, scale + 60), divisor), scale)


def log10_decimal(value: Decimal) -> Decimal:
    return log_decimal(Decimal(10), value)


def _ln(value: Decimal, precision: int) -> Decimal:
    return Context(prec=precision).ln(value)


def _positive(value: Decimal) -> Decimal:
    if value <= 0:
        what = "zero" if not value else "a negative number"
        raise UndefinedResult(f"cannot take logarithm of {what}")
    return value


def _digits_of_ln(value: Decimal) -> int:
    """How many digits the logarithm has before the point, minus one; negative if it starts behind the point."""
    if Decimal("0.9") <= value <= Decimal("1.1"):
        distance = _EXACT.subtract(value, 1)
        return distance.adjusted() if distance else 0
    logarithm = abs(float(_ln(value, 20)))
    return int(math.log10(logarithm))


def power_decimal(base: Decimal, exponent: Decimal) -> Decimal:
    is_integer = exponent == exponent.to_integral_value()
    if not base and exponent < 0:
        raise UndefinedResult("zero raised to a negative power is undefined")
    if base < 0 and not is_integer:
        raise UndefinedResult("a negative number raised to a non-integer power yields a complex result")
    if not base:
        return rescale(Decimal(0 if exponent else 1), _scale_for(0, base, exponent))
    tenfold = float(exponent) * float(_ln(base.copy_abs(), 25)) * 0.434294481903252
    if tenfold >= DIGITS_MAX // 2:
        too_many_digits()
    scale = _scale_for(0 if is_integer else int(max(tenfold, -2.0 * SCALE_MAX)), base, exponent)
    precision = max(1, scale + int(tenfold)) + 30
    return rescale(Context(prec=precision, rounding=ROUND_HALF_EVEN).power(base, exponent), scale)


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


def round_double(value: float) -> float:
    """Half to even."""
    return float(round(value)) if math.isfinite(value) and abs(value) < 2.0**53 and round(value) else _whole(value)


def _whole(value: float) -> float:
    """Values without a fraction as they are; those that round to zero keep their sign."""
    return value if not math.isfinite(value) or abs(value) >= 2.0**53 else math.copysign(0.0, value)


def _rounded_by(function: Callable[[float], int]) -> Callable[[float], float]:
    def apply(value: float) -> float:
        if not math.isfinite(value) or abs(value) >= 2.0**53:
            return value
        return math.copysign(abs(float(function(value))), value)

    return apply


ceil_double = _rounded_by(math.ceil)
floor_double = _rounded_by(math.floor)
truncate_double = _rounded_by(math.trunc)


def sign_double(value: float) -> float:
    return float((value > 0) - (value < 0))


def sqrt_double(value: float) -> float:
    if value < 0:
        raise UndefinedResult("cannot take square root of a negative number")
    return math.sqrt(value)


def cbrt_double(value: float) -> float:
    return math.cbrt(value)


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
    result = int(rescale(value, 0))
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
            return float(function(value))
        except ValueError:
            raise ValueOutOfRange(f"{name} of {value}: input is out of range") from None

    return of_angle
