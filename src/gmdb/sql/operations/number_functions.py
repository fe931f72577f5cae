"""Functions of numbers.

A DECIMAL result has a fixed number of digits behind the point: none for ceil, floor and sign, that of round's and
trunc's second argument, at least 16 for roots, powers and logarithms.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

from gmdb.format.columns import DECIMAL_DIGITS_MAX, ColumnType
from gmdb.sql import decimals, numbers
from gmdb.sql.operations.overloads import Constants, Overload, plain
from gmdb.sql.operations.registry import Operation, named
from gmdb.sql.types import BIGINT, DOUBLE, INT, INTEGERS, NUMERIC, QUOTIENT_SCALE, decimal_of, numeric

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
        name, takes, decimal_of(1, 0), decimals.sign_decimal, "CAST(sign({0}) AS DECIMAL(1,0))", fails=False
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


def _div(name: str, takes: tuple[ColumnType, ...], _: Constants) -> Operation:
    a, b = takes
    gives = decimal_of(a.length - a.scale + b.scale, 0)
    return Operation(name, takes, gives, decimals.whole_quotient)


NUMBER_FUNCTIONS: dict[str, Sequence[Overload]] = {
    "abs": [_double(abs, "abs({0})"), Overload((NUMERIC,), _absolute_decimal), _absolute(INT), _absolute(BIGINT)],
    "ceil": [_double(numbers.ceil_double, "ceil({0})"), _to_whole(decimals.ceil_decimal, "ceil({0})")],
    "floor": [_double(numbers.floor_double, "floor({0})"), _to_whole(decimals.floor_decimal, "floor({0})")],
    "round": [_double(numbers.round_double, "round_even({0}, 0)"), *_rounding(decimals.round_to)],
    "trunc": [_double(numbers.truncate_double, "trunc({0})"), *_rounding(decimals.truncate_to)],
    "sign": [_double(numbers.sign_double, "CAST(sign({0}) AS DOUBLE)"), Overload((NUMERIC,), _sign)],
    "sqrt": [_double(numbers.sqrt_double, "gm_sqrt({0})", fails=True), _irrational(decimals.sqrt_to)],
    "cbrt": [_double(math.cbrt)],
    "exp": [_double(numbers.exp_double, fails=True), _irrational(decimals.exp_to)],
    "ln": [_double(numbers.ln_double, fails=True), _irrational(decimals.ln_to)],
    "log": [_double(numbers.log_double, fails=True), _irrational(decimals.log10_to), _irrational(decimals.log_to, 2)],
    "log10": [_double(numbers.log_double, fails=True), _irrational(decimals.log10_to)],
    "power": [_double(numbers.power_double, fails=True, count=2), _irrational(decimals.power_to, 2)],
    "pi": [plain((), DOUBLE, lambda: math.pi, "pi()")],
    "random": [plain((), DOUBLE, random.random, "random()", volatile=True)],
    **{name: [_double(numbers.of_angle(name), fails=True)] for name in numbers.ANGLES},
    "atan2": [_double(math.atan2, count=2)],
    "gcd": _integers(math.gcd),
    "lcm": _integers(math.lcm),
    "div": [Overload((NUMERIC, NUMERIC), _div)],
}
