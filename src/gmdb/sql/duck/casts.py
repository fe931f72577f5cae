"""Casts: from any type to any other, with PostgreSQL's answers and errors.

Texts are read more strictly than DuckDB reads them, and written as PostgreSQL writes them.
"""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal, InvalidOperation
from typing import Any

from sqlglot import exp

from gmdb.errors import DataError, IllTyped, ValueOutOfRange
from gmdb.format.columns import ColumnType
from gmdb.sql.casts import read_text
from gmdb.sql.duck.scope import spot
from gmdb.sql.duck.types import (
    BOOLEAN,
    INTERVAL,
    QUOTIENT_SCALE,
    TEXT,
    Bound,
    decimal,
    duck_type,
    is_binary,
    is_integer,
    is_moment,
    is_number,
    is_text,
    text_literal,
)

_TYPE_WORDS = {"INT": "integer", "DOUBLE": "double precision", "DECIMAL": "numeric", "TIMESTAMP": "timestamp"}


def coerce(bound: Bound, target: ColumnType, node: exp.Expr) -> Bound:
    """A value where one of the target's type is needed and the types are akin."""
    if bound.type == target:
        return bound
    if bound.type is None:
        return _typed_literal(bound, target, node)
    if bound.type.name == "CHAR" and is_text(target):
        return replace(bound, sql=f"rtrim({bound.sql}, ' ')", type=TEXT, declared=False)
    if is_text(bound.type) and is_text(target):
        return replace(bound, type=target, declared=False)
    if is_binary(bound.type) and is_binary(target):
        return replace(bound, type=target, declared=False)
    return replace(bound, sql=f"CAST({bound.sql} AS {duck_type(target)})", type=target, declared=False)


def as_text(bound: Bound, node: exp.Expr) -> Bound:
    """A value as PostgreSQL writes it."""
    type_ = bound.type
    if type_ is None:
        return _typed_literal(bound, TEXT, node)
    if is_text(type_):
        return coerce(bound, TEXT, node)
    sql = f"CAST({bound.sql} AS VARCHAR)"
    if is_binary(type_):
        sql = f"('\\x' || lower(hex({bound.sql})))"
    elif type_.name == "DOUBLE":
        sql = f"gm_double_text({bound.sql})"
    return replace(bound, sql=sql, type=TEXT, declared=False)


def cast(bound: Bound, target: ColumnType | None, node: exp.Expr) -> Bound:
    """What ``CAST(... AS target)`` gives; no target is a DECIMAL without digits."""
    if target is None:
        return _to_any_decimal(bound, node)
    if bound.type is None:
        if is_text(target):
            return _cut(_typed_literal(bound, TEXT, node), target)
        return replace(_typed_literal(bound, target, node), declared=True)
    if is_text(target):
        return _cut(as_text(bound, node), target)
    source = bound.type
    if source.name == target.name == "DECIMAL" and source != target:
        return replace(bound, sql=f"CAST({bound.sql} AS {duck_type(target)})", type=target, declared=True)
    if source.name == target.name or (is_binary(source) and is_binary(target)):
        return replace(bound, type=target, declared=True)
    if is_text(source):
        return _from_text(coerce(bound, TEXT, node), target)
    if source.name == "DOUBLE" and target.name == "DECIMAL":
        sql = f"CAST(printf('%.15g', {bound.sql}) AS {duck_type(target)})"
        return replace(bound, sql=sql, type=target, declared=True)
    akin = (
        (is_number(source) and is_number(target))
        or (is_moment(source) and is_moment(target))
        or {source.name, target.name} == {"INT", "BOOLEAN"}
    )
    if not akin:
        raise IllTyped(f"a {source.name} cannot be cast to {target.name}", *spot(node))
    return replace(bound, sql=f"CAST({bound.sql} AS {duck_type(target)})", type=target, declared=True)


def _to_any_decimal(bound: Bound, node: exp.Expr) -> Bound:
    """A cast to DECIMAL without digits keeps those that the value has, as far as they are known beforehand."""
    type_ = bound.type
    if type_ is not None and type_.name == "DECIMAL":
        return replace(bound, declared=False)
    if is_integer(type_):
        return replace(cast(bound, decimal(38, 0), node), declared=False)
    scale = QUOTIENT_SCALE
    if bound.literal is not None:
        scale = decimal_literal(bound.literal, node).scale
    return replace(cast(bound, decimal(38, scale), node), declared=False)


def decimal_literal(text: str, node: exp.Expr) -> ColumnType:
    """The DECIMAL that a number has as it is written."""
    try:
        _, digits, exponent = Decimal(text.strip()).as_tuple()
    except InvalidOperation:
        _, digits, exponent = _read(text, decimal(38, 0), node).as_tuple()
    if not isinstance(exponent, int):
        raise ValueOutOfRange(f"{text.strip()} is no DECIMAL")
    scale = max(-exponent, 0)
    precision = max(len(digits) + max(exponent, 0), scale, 1)
    if precision > 38:
        raise ValueOutOfRange(f"{text} has more than 38 digits")
    return decimal(precision, scale)


def _typed_literal(bound: Bound, target: ColumnType, node: exp.Expr) -> Bound:
    """An open value that gets its type: what a literal says is checked here, the rest when it is known."""
    if bound.literal is None:
        sql = f"CAST({bound.sql} AS {duck_type(target)})"
        return replace(bound, sql=sql, type=target)
    text = bound.literal
    if is_text(target):
        return Bound(text_literal(text), target)
    if target == INTERVAL:
        return Bound(f"CAST({text_literal(text)} AS INTERVAL)", target)
    value = _read(text, target, node)
    if is_binary(target):
        return Bound(f"unhex('{value.hex()}')", target)
    written = format(value, "f") if target.name == "DECIMAL" else str(value)
    return Bound(f"CAST('{written}' AS {duck_type(target)})", target)


def _read(text: str, target: ColumnType, node: exp.Expr) -> Any:
    """What a literal says, read as everywhere else."""
    try:
        return read_text(target)(text)
    except DataError as error:
        line, column = spot(node)
        raise type(error)(f"line {line}, column {column}: {error}" if line else str(error)) from None


def _cut(bound: Bound, target: ColumnType) -> Bound:
    """A text brought to the length of its type, silently, as a cast does."""
    if target == TEXT:
        return bound
    sql = f"left({bound.sql}, {target.length})"
    if target.name == "CHAR":
        sql = f"rpad({sql}, {target.length}, ' ')"
    return replace(bound, sql=sql, type=target, declared=True)


def _from_text(bound: Bound, target: ColumnType) -> Bound:
    name = duck_type(target)
    if is_integer(target):
        sql = f"CAST(gm_integer_text({bound.sql}, '{_TYPE_WORDS.get(target.name, 'bigint')}') AS {name})"
    elif target.name == "DECIMAL":
        sql = f"CAST(gm_number_text({bound.sql}, 'numeric') AS {name})"
    elif target.name == "BOOLEAN":
        sql = f"gm_boolean_text({bound.sql})"
    elif is_binary(target):
        sql = f"gm_binary_text({bound.sql})"
    else:
        sql = f"CAST({bound.sql} AS {name})"
    return replace(bound, sql=sql, type=target, declared=True)


def as_boolean(bound: Bound, node: exp.Expr) -> Bound:
    """A condition.  Raises IllTyped for anything that is neither true nor false."""
    if bound.type is None or bound.type == BOOLEAN:
        return coerce(bound, BOOLEAN, node)
    raise IllTyped(f"a condition must be BOOLEAN, not {bound.type.name}", *spot(node))
