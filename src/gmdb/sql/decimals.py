"""Decimals of a fixed scale at run time: what arithmetic, roots and logarithms of SQL's DECIMALs do.

Invariants
 1. Every function that takes a ``scale`` gives a decimal with just so many digits behind the point.
 2. No result has more than 38 digits in all: ValueOutOfRange is raised instead.
 3. Zero has no sign.
Results are rounded once, half away from zero.  No function here takes None.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable
from decimal import Context, Decimal, DecimalException
from functools import cache
from typing import Any, NoReturn

from gmdb.errors import UndefinedResult, ValueOutOfRange
from gmdb.format.columns import DECIMAL_DIGITS_MAX
from gmdb.sql.numbers import zero_divisor

_TRAPS = [decimal.InvalidOperation, decimal.Overflow]
_CHECKED = Context(DECIMAL_DIGITS_MAX, decimal.ROUND_HALF_UP, traps=[decimal.Rounded, *_TRAPS])
_FITTING = Context(DECIMAL_DIGITS_MAX, decimal.ROUND_HALF_UP, traps=_TRAPS)
_WIDE = Context(200, decimal.ROUND_HALF_UP, Emin=-999999, Emax=999999, traps=_TRAPS)
_GUARD = 8  # digits that roots and the like are calculated with beyond those that are kept
_TENFOLD_MAX = DECIMAL_DIGITS_MAX + 2  # of the power of ten that a result may have before it is calculated


def too_many_digits() -> NoReturn:
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
        too_many_digits()
    return result if result else result.copy_abs()


# ---- sums and products


exact_sum = _CHECKED.add  # of values whose sum surely has no more than 38 digits
exact_difference = _CHECKED.subtract


def _checked(calculate: Callable[[Any, Any], Decimal]) -> Callable[[Any, Any], Decimal]:
    def checked(a: Any, b: Any) -> Decimal:
        try:
            result = calculate(a, b)
        except DecimalException:
            too_many_digits()
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
        too_many_digits()
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
            too_many_digits()
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
            too_many_digits()
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
