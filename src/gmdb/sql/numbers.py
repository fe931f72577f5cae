"""Numbers at run time, with PostgreSQL's rules.

A decimal carries its scale as PostgreSQL's numeric does: sums have the larger scale, products the sum of both, and
quotients, roots, powers and logarithms enough digits for 16 significant ones, but no fewer than the operands have.
Doubles overflow and underflow with an error.  No function here takes None.
"""

from __future__ import annotations

import decimal
import math
import struct
from collections.abc import Callable
from decimal import Context, Decimal, DecimalException
from functools import cache
from typing import Any, NoReturn

from gmdb.errors import DivisionByZero, UndefinedResult, ValueOutOfRange
from gmdb.format.columns import DECIMAL_DIGITS_MAX

DIGITS_MAX = 2000  # of a decimal within an expression
SERIES_MAX = 100_000_000  # numbers that generate_series gives at most
DOUBLE_MAX = 1.7976931348623157e308

_TRAPS = [decimal.InvalidOperation, decimal.Overflow]
_EXACT = Context(prec=DIGITS_MAX, rounding=decimal.ROUND_HALF_UP, traps=[decimal.Inexact, *_TRAPS])
_ROUNDING = Context(prec=DIGITS_MAX, rounding=decimal.ROUND_HALF_UP, traps=_TRAPS)
_EVEN = Context(prec=15, rounding=decimal.ROUND_HALF_EVEN, traps=_TRAPS)
_EVEN_SHORT = Context(prec=6, rounding=decimal.ROUND_HALF_EVEN, traps=_TRAPS)


def out_of_range(type_name: str) -> NoReturn:
    """Refuse the result of integer arithmetic."""
    name = {"INT": "integer"}.get(type_name, type_name.lower())
    hint = "; cast an operand to BIGINT" if type_name in ("SMALLINT", "INT") else "; cast an operand to DECIMAL"
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


# ---- REAL: doubles of 24 bits.  What is calculated with 53 and rounded is what 24 bits would give.

_SINGLE = struct.Struct("<f")


def single(value: float) -> float:
    """A double as the nearest REAL."""
    try:
        return float(_SINGLE.unpack(_SINGLE.pack(value))[0])
    except OverflowError:
        raise ValueOutOfRange("value out of range: overflow") from None


def real_of_double(value: float) -> float:
    result = single(value)
    if not result and value:
        raise ValueOutOfRange("value out of range: underflow")
    return result


def real_of_number(value: Decimal | int) -> float:
    """The REAL nearest to an exact number, which the double next to it may lead past."""
    double = double_of_decimal(value)
    result = single(double)
    if value != double and single(math.nextafter(double, math.inf)) != single(math.nextafter(double, -math.inf)):
        result = single(math.nextafter(double, math.inf if value > Decimal(double) else -math.inf))
    if not result and value:
        raise ValueOutOfRange("value out of range: underflow")
    return result


def add_reals(a: float, b: float) -> float:
    return single(a + b)


def subtract_reals(a: float, b: float) -> float:
    return single(a - b)


def multiply_reals(a: float, b: float) -> float:
    result = single(a * b)
    if not result and a and b:
        raise ValueOutOfRange("value out of range: underflow")
    return result


def divide_reals(a: float, b: float) -> float:
    quotient = divide_doubles(a, b)
    return quotient if math.isinf(b) else real_of_double(quotient)


def decimal_of_real(value: float) -> Decimal:
    """Six significant digits, as PostgreSQL takes them."""
    if not math.isfinite(value):
        raise ValueOutOfRange(f"a decimal cannot be {double_text(value)}")
    return plain_decimal(_EVEN_SHORT.create_decimal_from_float(value).normalize(_EVEN_SHORT))


def real_text(value: float) -> str:
    """The shortest text that reads as the same REAL, in PostgreSQL's notation."""
    if not math.isfinite(value):
        return double_text(value)
    shown = next(text for digits in range(1, 10) if _reads_as(text := f"{value:.{digits - 1}e}", value))
    return _written(value, shown, 6)


def _reads_as(text: str, value: float) -> bool:
    try:
        return real_of_number(Decimal(text)) == value
    except ValueOutOfRange:
        return False


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
    return _written(value, _shortest(value), 15)


def _written(value: float, shown: str, plain_digits: int) -> str:
    """A number that is shown so, with an exponent if it has more digits before the point."""
    sign, digits, exponent = Decimal(shown).as_tuple()
    text = "".join(map(str, digits)).rstrip("0") or "0"
    power = len(digits) + int(exponent) - 1
    if not value:
        power = 0
    if not -5 < power < plain_digits:
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


def _shift(bits: int, width: int, is_left: bool) -> Callable[[int, int], int]:
    half = 1 << bits - 1

    def shift(value: int, count: int) -> int:
        count %= width
        return ((value << count) + half) % (half << 1) - half if is_left else value >> count

    return shift


SHIFTS = {
    (symbol, name): _shift(bits, width, symbol == "<<")
    for symbol in ("<<", ">>")
    for name, bits, width in (("SMALLINT", 16, 32), ("INT", 32, 32), ("BIGINT", 64, 64))
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


# ---- Decimals of a fixed scale at run time: what arithmetic, roots and logarithms of SQL's DECIMALs do.
#
# Invariants
#  1. Every function that takes a ``scale`` gives a decimal with just so many digits behind the point.
#  2. No result has more than 38 digits in all: ValueOutOfRange is raised instead.
#  3. Zero has no sign.
# Results are rounded once, half away from zero.  No function here takes None.

_CHECKED = Context(DECIMAL_DIGITS_MAX, decimal.ROUND_HALF_UP, traps=[decimal.Rounded, *_TRAPS])
_FITTING = Context(DECIMAL_DIGITS_MAX, decimal.ROUND_HALF_UP, traps=_TRAPS)
_WIDE = Context(200, decimal.ROUND_HALF_UP, Emin=-999999, Emax=999999, traps=_TRAPS)
_GUARD = 8  # digits that roots and the like are calculated with beyond those that are kept
_TENFOLD_MAX = DECIMAL_DIGITS_MAX + 2  # of the power of ten that a result may have before it is calculated


def too_many_decimal_digits() -> NoReturn:
    raise ValueOutOfRange(f"value overflows numeric format: a DECIMAL has at most {DECIMAL_DIGITS_MAX} digits")


@cache
def _unit(scale: int) -> Decimal:
    """One in the last place."""
    return Decimal(1).scaleb(-scale)


def at_scale(value: Decimal, scale: int, rounding: str = decimal.ROUND_HALF_UP) -> Decimal:
    """With so many digits behind the point."""
    try:
        result = value.quantize(_unit(scale), rounding, _FITTING)
    except DecimalException:
        too_many_decimal_digits()
    return result if result else result.copy_abs()


# ---- sums and products


exact_sum = _CHECKED.add  # of values whose sum surely has no more than 38 digits
exact_difference = _CHECKED.subtract


def _checked(calculate: Callable[[Any, Any], Decimal]) -> Callable[[Any, Any], Decimal]:
    def checked(a: Any, b: Any) -> Decimal:
        try:
            result = calculate(a, b)
        except DecimalException:
            too_many_decimal_digits()
        return result if result else result.copy_abs()

    return checked


add_decimals, subtract_decimals = _checked(_CHECKED.add), _checked(_CHECKED.subtract)
multiply_decimals = _checked(_CHECKED.multiply)


def multiply_to(scale: int) -> Callable[[Any, Any], Decimal]:
    """The product at a scale that is smaller than the sum of the factors' scales."""
    return lambda a, b: at_scale(_WIDE.multiply(a, b), scale)


def wide_sum(a: Any, b: Any) -> Any:
    """A sum on the way to one that may have no more than 38 digits in the end."""
    return _WIDE.add(a, b) if isinstance(a, Decimal) else a + b


def negate_decimal(value: Decimal) -> Decimal:
    return value.copy_negate() if value else value


# ---- division


def divide_to(scale: int) -> Callable[[Any, Any], Decimal]:
    def divide(a: Any, b: Any) -> Decimal:
        if not b:
            zero_divisor()
        (dividend, scale_a), (divisor, scale_b) = _unscaled(a), _unscaled(b)
        dividend, divisor = dividend * 10 ** (scale + scale_b), divisor * 10**scale_a
        quotient = (2 * dividend + divisor) // (2 * divisor)
        return of_digits(-quotient if (a < 0) != (b < 0) else quotient, scale)

    return divide


def _unscaled(value: Any) -> tuple[int, int]:
    """The digits as an integer without its sign, and the scale."""
    if isinstance(value, int):
        return abs(value), 0
    scale = max(0, -int(value.as_tuple().exponent))
    return abs(int(_WIDE.scaleb(value, scale))), scale


_LIMIT = 10**DECIMAL_DIGITS_MAX


def of_digits(digits: int, scale: int) -> Decimal:
    if not -_LIMIT < digits < _LIMIT:
        too_many_decimal_digits()
    return Decimal(digits).scaleb(-scale, _WIDE)


def remainder_to(scale: int) -> Callable[[Any, Any], Decimal]:
    """Has the dividend's sign."""

    def remainder(a: Any, b: Any) -> Decimal:
        if not b:
            zero_divisor()
        return at_scale(_WIDE.remainder(Decimal(a), Decimal(b)), scale)

    return remainder


def whole_quotient(a: Any, b: Any) -> Decimal:
    """div(a, b): the quotient without its fraction."""
    if not b:
        zero_divisor()
    (dividend, scale_a), (divisor, scale_b) = _unscaled(a), _unscaled(b)
    quotient = dividend * 10**scale_b // (divisor * 10**scale_a)
    return of_digits(-quotient if (a < 0) != (b < 0) else quotient, 0)


# ---- rounding


def _rounded(value: Decimal, digits: int, scale: int, rounding: str) -> Decimal:
    """At ``digits`` behind the point, or before it if negative, shown with ``scale`` digits."""
    digits = max(-DECIMAL_DIGITS_MAX - 1, min(digits, DECIMAL_DIGITS_MAX))
    return at_scale(value.quantize(_unit(digits), rounding, _WIDE), scale)


def round_to(scale: int) -> Callable[..., Decimal]:
    return lambda value, digits=0: _rounded(value, digits, scale, decimal.ROUND_HALF_UP)


def truncate_to(scale: int) -> Callable[..., Decimal]:
    return lambda value, digits=0: _rounded(value, digits, scale, decimal.ROUND_DOWN)


def ceil_decimal(value: Decimal) -> Decimal:
    return at_scale(value, 0, decimal.ROUND_CEILING)


def floor_decimal(value: Decimal) -> Decimal:
    return at_scale(value, 0, decimal.ROUND_FLOOR)


def sign_decimal(value: Decimal) -> Decimal:
    return Decimal((value > 0) - (value < 0))


# ---- roots, powers, logarithms


def sqrt_to(scale: int) -> Callable[[Decimal], Decimal]:
    def sqrt(value: Decimal) -> Decimal:
        if value < 0:
            raise UndefinedResult("cannot take square root of a negative number")
        return at_scale(Context(2 * DECIMAL_DIGITS_MAX + _GUARD).sqrt(value), scale)

    return sqrt


def exp_to(scale: int) -> Callable[[Decimal], Decimal]:
    def exp(value: Decimal) -> Decimal:
        tenfold = float(value) * 0.434294481903252
        if tenfold > _TENFOLD_MAX:
            too_many_decimal_digits()
        return at_scale(_precise(tenfold, scale).exp(value), scale) if tenfold > -scale - 2 else of_digits(0, scale)

    return exp


def _precise(tenfold: float, scale: int) -> Context:
    """A context for a result that has about so many digits before the point."""
    return Context(max(1, int(tenfold) + 1) + scale + _GUARD, decimal.ROUND_HALF_EVEN, Emin=-999999, Emax=999999)


def ln_to(scale: int) -> Callable[[Decimal], Decimal]:
    return lambda value: at_scale(_ln(_positive(value), scale), scale)


def log_to(scale: int) -> Callable[[Decimal, Decimal], Decimal]:
    """log(base, value)."""

    def log(base: Decimal, value: Decimal) -> Decimal:
        divisor = _ln(_positive(base), 3 * DECIMAL_DIGITS_MAX)
        dividend = _ln(_positive(value), 3 * DECIMAL_DIGITS_MAX)
        if not divisor:
            zero_divisor()
        return at_scale(_WIDE.divide(dividend, divisor), scale)

    return log


def log10_to(scale: int) -> Callable[[Decimal], Decimal]:
    return lambda value: at_scale(Context(scale + 2 * _GUARD + 4).log10(_positive(value)), scale)


def _ln(value: Decimal, scale: int) -> Decimal:
    return Context(scale + 2 * _GUARD + 4).ln(value)


def _positive(value: Decimal) -> Decimal:
    if value <= 0:
        what = "zero" if not value else "a negative number"
        raise UndefinedResult(f"cannot take logarithm of {what}")
    return value


def power_to(scale: int) -> Callable[[Decimal, Decimal], Decimal]:
    def power(base: Decimal, exponent: Decimal) -> Decimal:
        is_whole = exponent == exponent.to_integral_value()
        if not base and exponent < 0:
            raise UndefinedResult("zero raised to a negative power is undefined")
        if base < 0 and not is_whole:
            raise UndefinedResult("a negative number raised to a non-integer power yields a complex result")
        if not base or not exponent:
            return at_scale(Decimal(0 if exponent else 1), scale)
        tenfold = float(exponent) * float(Context(25).log10(base.copy_abs()))
        if tenfold > _TENFOLD_MAX:
            too_many_decimal_digits()
        if tenfold < -scale - 2:
            return of_digits(0, scale)
        return at_scale(_precise(tenfold, scale).power(base, exponent), scale)

    return power


# ---- conversions


def fit_to(type_: Any) -> Callable[[Decimal], Decimal]:
    """The function that brings a decimal to the digits of a DECIMAL(p, s)."""
    unit, limit = _unit(type_.scale), Decimal(10) ** (type_.length - type_.scale)

    def fit(value: Decimal) -> Decimal:
        try:
            result = value.quantize(unit, decimal.ROUND_HALF_UP, _FITTING)
            if result.copy_abs() < limit:
                return result if result else result.copy_abs()
        except DecimalException:
            pass
        raise ValueOutOfRange(f"numeric field overflow: {value:.40g} does not fit {type_}")

    return fit
