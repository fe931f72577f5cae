"""Comparisons, tests of truth and NULL, and what chooses among values: NULLIF, GREATEST, LEAST.

Numbers are compared by value, whatever their types; texts by code points; CHAR without the blanks at its end, except
beside a text of no given length, which keeps its own.  NaN equals itself and is above all other numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gmdb.format.columns import DECIMAL_DIGITS_MAX, ColumnType
from gmdb.sql import numbers
from gmdb.sql.operations.arithmetic import duck_decimal
from gmdb.sql.operations.registry import Operation, named
from gmdb.sql.types import BOOLEAN, DOUBLE, INTERVAL, TEXT, TIMESTAMP, as_decimal, beside, category, common_type

SYMBOLS = {"=": "==", "<>": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
DISTINCT, SAME = "IS DISTINCT FROM", "IS NOT DISTINCT FROM"
named(numbers.order_doubles)


def comparison(
    symbol: str, left: ColumnType | None, right: ColumnType | None, constants: Mapping[int, Any]
) -> Operation | None:
    """left = right, and the like; None if values of these types cannot be compared."""
    sides = comparable(left, right, constants)
    if sides is None:
        return None
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
    if category(a) != category(b):
        return None
    if DOUBLE in (a, b):
        return DOUBLE, DOUBLE
    return (TIMESTAMP, TIMESTAMP) if {a.name, b.name} == {"DATE", "TIMESTAMP"} else (a, b)


def _template(python: str, duck: str, left: ColumnType, right: ColumnType) -> tuple[str, str]:
    """The comparison of two values that are not NULL in Python, and of two values in DuckDB."""
    if left == DOUBLE:
        ordered = f"order_doubles({{0}}, {{1}}) {python} 0"
        return f"{{0}} {python} {{1}} if {{0}} == {{0}} and {{1}} == {{1}} else {ordered}", f"{{0}} {duck} {{1}}"
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
        return f"{{0}} {python} {{1}}", _of_decimals(duck, left, right)
    return f"{{0}} {python} {{1}}", f"{{0}} {duck} {{1}}"


def _of_decimals(symbol: str, left: ColumnType, right: ColumnType) -> str:
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


def extreme(name: str, types: Sequence[ColumnType | None], constants: Mapping[int, Any]) -> Operation | None:
    """greatest and least: NULLs do not take part."""
    known = [type_ for type_ in types if type_ is not None]
    opened = [beside(known[0], _text(constants.get(n))) for n, one in enumerate(types) if one is None and known]
    try:
        type_ = common_type([*known, *opened]) or TEXT
    except ValueError:
        return None
    function = _EXTREMES[name == "greatest", type_.name if type_.name in KEYS else ""]
    arguments = ", ".join(f"{{{n}}}" for n in range(len(types)))
    duck = f"{name}({arguments})" if type_.name not in ("CHAR", "DOUBLE", "INTERVAL") else None
    return Operation(name, (type_,) * len(types), type_, function, duck, strict=False, fails=False)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _extreme(largest: bool, key: Callable[[Any], Any] | None) -> Callable[..., Any]:
    choose: Any = max if largest else min
    return lambda *values: choose([value for value in values if value is not None], default=None, key=key)


KEYS: dict[str, Callable[[Any], Any] | None] = {
    "": None,
    "DOUBLE": lambda value: (value != value, value),
    "CHAR": lambda value: value.rstrip(" "),
    "INTERVAL": lambda value: value.length(),
}
_EXTREMES = {(largest, kind): _extreme(largest, key) for largest in (True, False) for kind, key in KEYS.items()}
