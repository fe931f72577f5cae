"""Hypothesis strategies for columns of every type and for their values."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Context, Decimal
from typing import Any

from hypothesis import strategies as st

from gmdb.format.columns import Column, ColumnType

_WIDE = Context(prec=80)
_SHORT = 60  # bytes of values of a TEXT or BYTEA


def types() -> st.SearchStrategy[ColumnType]:
    names = ["INT", "BIGINT", "DOUBLE", "BOOLEAN", "DATE", "TIMESTAMP", "VARCHAR", "VARBINARY"]
    plain = st.sampled_from(names).map(ColumnType)
    sized = st.builds(ColumnType, st.sampled_from(["CHAR", "VARCHAR", "BINARY", "VARBINARY"]), st.integers(1, 60))
    decimals = st.integers(1, 38).flatmap(
        lambda p: st.builds(ColumnType, st.just("DECIMAL"), st.just(p), st.integers(0, p))
    )
    return st.one_of(plain, sized, decimals)


def _text(length: int) -> st.SearchStrategy[str]:
    fits = st.text(st.characters(exclude_categories=["Cs"]), max_size=length)
    return fits.filter(lambda text: len(text.encode()) <= length)


def values_of(type_: ColumnType) -> st.SearchStrategy[Any]:
    """Values that a column of the type stores and gives back unchanged, but for padding."""
    match type_.name:
        case "INT":
            return st.integers(-(2**31), 2**31 - 1)
        case "BIGINT":
            return st.integers(-(2**63), 2**63 - 1)
        case "DOUBLE":
            return st.floats(allow_nan=False)
        case "BOOLEAN":
            return st.booleans()
        case "DATE":
            return st.dates(date(1, 1, 1), date(9999, 12, 31))
        case "TIMESTAMP":
            return st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31))
        case "DECIMAL":
            limit = 10**type_.length - 1
            return st.integers(-limit, limit).map(lambda digits: Decimal(digits).scaleb(-type_.scale, _WIDE))
        case "CHAR" | "VARCHAR":
            return _text(type_.length or _SHORT)
        case _:
            return st.binary(max_size=type_.length or _SHORT)


def stored(column: Column, value: Any) -> Any:
    """What comes back: CHAR and BINARY filled up."""
    if value is None or not column.type.padding:
        return value
    if isinstance(value, str):
        return value.encode().ljust(column.type.length, b" ").decode()
    return value.ljust(column.type.length, b"\0")


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[Column], list[tuple[Any, ...]]]:
    """Columns, and rows of them with NULLs among the values."""
    count = draw(st.one_of(st.integers(1, 6), st.integers(15, 40)))
    columns = [Column(f"c{n}", draw(types())) for n in range(count)]
    row = st.tuples(*[st.one_of(st.none(), values_of(column.type)) for column in columns])
    return columns, draw(st.lists(row, max_size=12))
