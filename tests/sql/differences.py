"""Comparing an answer of gmdb's with PostgreSQL's."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

from bench.postgres import Rows

from gmdb.format.columns import ColumnType
from gmdb.format.interval import Interval
from gmdb.sql.arrays import elements_of
from gmdb.sql.casts import read_text
from gmdb.sql.types import FLOATS, INTEGERS

TYPE_NAMES = {
    "SMALLINT": {"smallint"},
    "INT": {"integer"},
    "BIGINT": {"bigint"},
    "REAL": {"real"},
    "DOUBLE": {"double precision"},
    "BOOLEAN": {"boolean"},
    "DATE": {"date"},
    "TIME": {"time without time zone"},
    "TIMESTAMP": {"timestamp without time zone"},
    "TIMESTAMPTZ": {"timestamp with time zone"},
    "INTERVAL": {"interval"},
    "UUID": {"uuid"},
    "DECIMAL": {"numeric"},
    "CHAR": {"character"},
    "VARCHAR": {"text", "character varying", "unknown"},
    "BINARY": {"bytea"},
    "VARBINARY": {"bytea"},
}
DIGITS = 11  # of a number that must agree: quotients have 16 decimal places here and a varying number there


def difference(types: list[ColumnType], rows: list[tuple[Any, ...]], theirs: Rows, ordered: bool) -> str:
    """What differs, or nothing."""
    if len(types) != len(theirs.types):
        return f"{len(types)} columns and {len(theirs.types)}"
    for type_, name in zip(types, theirs.types, strict=True):
        if name not in _names(type_):
            return f"type {type_} and {name}"
    mine = list(rows)
    others = [tuple(_theirs(value, type_) for value, type_ in zip(row, types, strict=True)) for row in theirs.rows]
    if len(mine) != len(others):
        return f"{len(mine)} rows and {len(others)}: {mine[:5]} {others[:5]}"
    if not ordered:
        mine, others = sorted(mine, key=row_key), sorted(others, key=row_key)
    for a, b in zip(mine, others, strict=True):
        if not all(is_equal(x, y) for x, y in zip(a, b, strict=True)):
            return f"{a} and {b}"
    return ""


def _names(type_: ColumnType) -> set[str]:
    return {f"{name}[]" for name in _names(type_.element)} if type_.is_array else TYPE_NAMES[type_.name]


def _theirs(text: str | None, type_: ColumnType) -> Any:
    if text is None:
        return None
    if type_.is_array:
        return [_theirs(one, type_.element) for one in elements_of(text)]
    if type_.name in INTEGERS:
        return int(text)
    if type_.name == "DECIMAL":
        return Decimal(text)
    if type_.name in FLOATS:  # of a REAL, PostgreSQL writes only as many digits as tell which it is
        return read_text(type_)(text)
    if type_.name == "BOOLEAN":
        return text == "t"
    if type_.name == "DATE":
        return date.fromisoformat(text)
    if type_.name in ("TIME", "TIMESTAMP", "TIMESTAMPTZ", "INTERVAL", "UUID"):
        return read_text(type_)(text)
    if type_.name in ("BINARY", "VARBINARY"):
        return bytes.fromhex(text[2:])
    return text


def is_equal(mine: Any, theirs: Any, exact: bool = False) -> bool:
    """Whether two values are the same; ``exact``: a decimal to its last digit, as both are gmdb's."""
    if mine is None or theirs is None:
        return mine is theirs
    if isinstance(mine, list):
        return len(mine) == len(theirs) and all(is_equal(a, b, exact) for a, b in zip(mine, theirs, strict=True))
    if isinstance(mine, Decimal):
        if exact:
            return mine == theirs and _scale(mine) == _scale(theirs)
        if mine == theirs:
            return True
        last_place = Decimal(1).scaleb(-min(_scale(mine), _scale(theirs)))
        slack = max(abs(theirs).scaleb(-DIGITS), Decimal(1).scaleb(-DIGITS), last_place)
        return _scale(mine) > 6 and abs(mine - theirs) <= slack
    if isinstance(mine, Interval):
        return str(mine) == str(theirs)
    if isinstance(mine, float):
        if mine != mine or theirs != theirs:  # NaN
            return mine != mine and theirs != theirs
        return mine == theirs or abs(mine - theirs) <= 1e-11 * max(1e-3, abs(theirs))
    return bool(mine == theirs)


def _scale(value: Decimal) -> int:
    exponent = value.as_tuple().exponent
    return -exponent if isinstance(exponent, int) else 0


def row_key(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple((value is None, _rounded(value)) for value in row)


def _rounded(value: Any) -> Any:
    if isinstance(value, Decimal | float):
        return f"{float(value):.11e}" if value else "0"
    return "" if value is None else str(value)
