"""Arithmetic with PostgreSQL's types: integers stay integers, decimals exact, and nothing is divided by zero.

DuckDB keeps products and sums of DECIMALs of up to 18 digits in 18 digits, and raises when they overflow.  Where the
digits of the operands say that this can happen, one of them is widened first.
"""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from gmdb.errors import IllTyped
from gmdb.format.columns import ColumnType
from gmdb.sql.duck.casts import coerce, decimal_literal
from gmdb.sql.duck.macros import quotient
from gmdb.sql.duck.scope import spot
from gmdb.sql.duck.types import (
    BIGINT,
    DATE,
    INT,
    INTERVAL,
    PRODUCT_SCALE_MAX,
    QUOTIENT_SCALE,
    TEXT,
    TIMESTAMP,
    Bound,
    as_decimal,
    common_type,
    decimal,
    duck_type,
    is_integer,
    is_number,
    is_text,
)

_NARROW = 18  # digits that DuckDB calculates with in 64 bits
_TEXT_MAX = 160  # longer operands of a division are evaluated once


def arithmetic(operator: str, left: Bound, right: Bound, node: exp.Expr) -> Bound:
    if INTERVAL in (left.type, right.type) or _has_moment(left) or _has_moment(right):
        return _moments(operator, left, right, node)
    if left.type is None and right.type is None:
        raise IllTyped(f"the types of both sides of {operator} are unknown", *spot(node), "Cast one of them")
    if left.type is None and right.type is not None:
        left = coerce(left, _loose(left, right.type, node), node)
    elif right.type is None and left.type is not None:
        right = coerce(right, _loose(right, left.type, node), node)
    if left.type is None or right.type is None or not is_number(left.type) or not is_number(right.type):
        raise _no_operator(operator, left, right, node)
    type_ = common_type([left.type, right.type], operator)
    assert type_ is not None
    if type_.name == "DECIMAL":
        return _decimals(operator, left, right, node)
    left, right = coerce(left, type_, node), coerce(right, type_, node)
    if operator in ("/", "%"):
        slash = "//" if operator == "/" and is_integer(type_) else operator
        if operator == "%" and not is_integer(type_):
            raise _no_operator(operator, left, right, node)
        return Bound(f"({left.sql} {slash} {_divisor(right.sql)})", type_)
    return Bound(f"({left.sql} {operator} {right.sql})", type_)


def _loose(bound: Bound, other: ColumnType, node: exp.Expr) -> ColumnType:
    """What an open operand becomes beside a number: the same type, with room for its own digits."""
    return _loose_for(bound, other, node) if other.name == "DECIMAL" else other


def _has_moment(bound: Bound) -> bool:
    return bound.type in (DATE, TIMESTAMP)


def _no_operator(operator: str, left: Bound, right: Bound, node: exp.Expr) -> IllTyped:
    names = [side.type.name if side.type else "unknown" for side in (left, right)]
    return IllTyped(f"there is no {names[0]} {operator} {names[1]}", *spot(node), "Cast one of them")


def _divisor(sql: str) -> str:
    """A divisor that is checked when it is evaluated, unless it can be seen not to be zero."""
    if sql.isdecimal() and int(sql) != 0:
        return sql
    return f"gm_divisor({sql})"


def _decimals(operator: str, left: Bound, right: Bound, node: exp.Expr) -> Bound:
    assert left.type is not None
    assert right.type is not None
    left, right = coerce(left, as_decimal(left.type), node), coerce(right, as_decimal(right.type), node)
    a, b = left.type, right.type
    assert a is not None
    assert b is not None
    if operator == "/":
        return divide(left, right, node)
    if operator == "*" and a.scale + b.scale > PRODUCT_SCALE_MAX:
        return _long_product(left, right)
    if operator == "*":
        type_ = decimal(a.length + b.length, a.scale + b.scale)
    else:
        scale = max(a.scale, b.scale)
        type_ = decimal(max(a.length - a.scale, b.length - b.scale) + scale + 1, scale)
    if type_.length > _NARROW and a.length <= _NARROW and b.length <= _NARROW:
        left = _widen(left, a)
    if operator == "%":
        return Bound(f"({left.sql} % {_divisor(right.sql)})", decimal(38, max(a.scale, b.scale)))
    return Bound(f"({left.sql} {operator} {right.sql})", type_)


def _widen(bound: Bound, type_: ColumnType) -> Bound:
    wide = decimal(_NARROW + 1, type_.scale)
    return replace(bound, sql=f"CAST({bound.sql} AS {duck_type(wide)})", type=wide)


def divide(left: Bound, right: Bound, node: exp.Expr, known_divisor: bool = False) -> Bound:
    """left / right for DECIMALs and integers, rounded to the scale of quotients."""
    assert left.type is not None
    assert right.type is not None
    a, b = as_decimal(left.type), as_decimal(right.type)
    scale = max(a.scale, b.scale, QUOTIENT_SCALE)
    dividend, divisor = _digits(left), _digits(right)
    digits = scale + b.scale - a.scale
    checked = divisor if known_divisor else _divisor(divisor)
    # DuckDB takes no lambda in HAVING, and finds equal aggregates by itself.
    if len(dividend) + len(checked) > _TEXT_MAX and not known_divisor and node.find_ancestor(exp.Having) is None:
        pair = f"{{'a': {dividend}, 'b': {checked}}}"
        sql = f"list_extract(list_transform([{pair}], lambda q: {quotient('q.a', 'q.b', digits)}), 1)"
    else:
        sql = quotient(dividend, checked, digits)
    return Bound(scaled(sql, scale), decimal(38, scale))


def scaled(sql: str, scale: int) -> str:
    """An integer as the digits of a DECIMAL."""
    unit = f"CAST(0.{'0' * (scale - 1)}1 AS DECIMAL({scale},{scale}))"
    return f"(CAST({sql} AS DECIMAL(38,0)) * {unit})"


def _digits(bound: Bound) -> str:
    if bound.type is not None and bound.type.name == "DECIMAL":
        return f"gm_digits({bound.sql})"
    return f"CAST({bound.sql} AS HUGEINT)"


def _long_product(left: Bound, right: Bound) -> Bound:
    """A product with more digits than fit: whole and broken parts by themselves, each rounded to the result's scale."""
    assert left.type is not None
    assert right.type is not None
    scale = max(left.type.scale, right.type.scale, QUOTIENT_SCALE)
    target = f"DECIMAL(38,{scale})"
    parts = []
    for side in (left, right):
        type_ = side.type
        assert type_ is not None
        whole = f"CAST(trunc({side.sql}) AS DECIMAL(38,0))"
        broken = f"CAST({side.sql} - trunc({side.sql}) AS DECIMAL({max(type_.scale, 1)},{type_.scale}))"
        parts.append((whole, broken))
    (a, x), (b, y) = parts
    products = (f"CAST({one} * {other} AS {target})" for one in (a, x) for other in (b, y))
    return Bound(f"({' + '.join(products)})", decimal(38, scale))


def _moments(operator: str, left: Bound, right: Bound, node: exp.Expr) -> Bound:
    """Dates, timestamps and intervals."""
    if left.type is None:
        left = coerce(left, _partner(operator, right, node), node)
    if right.type is None:
        right = coerce(right, _partner(operator, left, node), node)
    a, b = left.type, right.type
    if operator == "+" and (is_integer(a) or a == INTERVAL):
        left, right, a, b = right, left, b, a
    if operator in ("+", "-") and a in (DATE, TIMESTAMP) and b == INTERVAL:
        moment = coerce(left, TIMESTAMP, node)
        return Bound(f"({moment.sql} {operator} {right.sql})", TIMESTAMP)
    if operator in ("+", "-") and a == DATE and is_integer(b):
        return Bound(f"({left.sql} {operator} CAST({right.sql} AS INTEGER))", DATE)
    if operator == "-" and a == b == DATE:
        return Bound(f"CAST(({left.sql} - {right.sql}) AS INTEGER)", INT)
    if operator == "-" and a in (DATE, TIMESTAMP) and b in (DATE, TIMESTAMP):
        first, second = coerce(left, TIMESTAMP, node), coerce(right, TIMESTAMP, node)
        return Bound(f"({first.sql} - {second.sql})", INTERVAL)
    if operator in ("+", "-") and a == b == INTERVAL:
        return Bound(f"({left.sql} {operator} {right.sql})", INTERVAL)
    if operator in ("*", "/") and INTERVAL in (a, b) and is_number(b if a == INTERVAL else a):
        number = right if a == INTERVAL else left
        interval = left if a == INTERVAL else right
        if operator == "*" or a == INTERVAL:
            value = number.sql if operator == "*" else _divisor(number.sql)
            return Bound(f"({interval.sql} {operator} {value})", INTERVAL)
    raise _no_operator(operator, left, right, node)


def _partner(operator: str, other: Bound, node: exp.Expr) -> ColumnType:
    """The type of an open operand beside a moment or an interval."""
    assert other.type is not None
    if other.type == INTERVAL or operator == "+":
        return INTERVAL
    if operator == "-":
        return other.type
    raise IllTyped(f"there is no {other.type.name} {operator} unknown", *spot(node))


def negate(bound: Bound, node: exp.Expr) -> Bound:
    if not is_number(bound.type) and bound.type != INTERVAL:
        raise IllTyped(f"there is no - {bound.type.name if bound.type else 'unknown'}", *spot(node))
    return replace(bound, sql=f"(- {bound.sql})", declared=False, literal=None)


def bitwise(operator: str, left: Bound, right: Bound, node: exp.Expr) -> Bound:
    if not is_integer(left.type) or not is_integer(right.type):
        raise _no_operator(operator, left, right, node)
    before = left.type
    type_ = BIGINT if BIGINT in (left.type, right.type) else INT
    left, right = coerce(left, type_, node), coerce(right, type_, node)
    if operator == "#":
        return Bound(f"xor({left.sql}, {right.sql})", type_)
    if operator in ("<<", ">>"):
        return _shift(operator, left, right, before)
    return Bound(f"({left.sql} {operator} {right.sql})", type_)


def _shift(operator: str, left: Bound, right: Bound, type_: ColumnType | None) -> Bound:
    """The count goes round at the number of bits, and bits that leave on the left are gone; DuckDB refuses both."""
    bits, wide = (64, "HUGEINT") if type_ == BIGINT else (32, "BIGINT")
    count = f"({right.sql} & {bits - 1})"
    if operator == ">>":
        return Bound(f"CAST(({left.sql} >> {count}) AS {duck_type(type_ or INT)})", type_)
    product = f"(CAST({left.sql} AS {wide}) * (CAST(1 AS {wide}) << {count}))"
    kept, sign = f"({product} & {(1 << bits) - 1}::{wide})", f"{1 << bits - 1}::{wide}"
    return Bound(f"CAST(xor({kept}, {sign}) - {sign} AS {duck_type(type_ or INT)})", type_)


def comparable(left: Bound, right: Bound, node: exp.Expr, what: str) -> tuple[Bound, Bound]:
    """Both sides of a comparison as values of one type; blanks at the end of a CHAR do not count."""
    if left.type is not None and left.type.name == "CHAR":
        right = _without_blanks(right, node)
    elif right.type is not None and right.type.name == "CHAR":
        left = _without_blanks(left, node)
    type_ = common_type([left.type, right.type], what, *spot(node)) or TEXT
    if is_text(type_):
        type_ = TEXT
    if type_.name == "DECIMAL" and (left.type is None or right.type is None):
        type_ = _loose_for(left if left.type is None else right, type_, node)
    return coerce(left, type_, node), coerce(right, type_, node)


def _without_blanks(bound: Bound, node: exp.Expr) -> Bound:
    if bound.literal is not None:
        return replace(bound, literal=bound.literal.rstrip(" "))
    if bound.type is None:
        return replace(bound, sql=f"rtrim({coerce(bound, TEXT, node).sql}, ' ')", type=TEXT)
    return bound


def _loose_for(bound: Bound, type_: ColumnType, node: exp.Expr) -> ColumnType:
    """Room for the digits that an open operand has, or may have, beside a DECIMAL."""
    scale = QUOTIENT_SCALE if bound.literal is None else decimal_literal(bound.literal, node).scale
    return decimal(38, scale) if scale > type_.scale else type_
