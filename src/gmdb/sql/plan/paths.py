"""Ways to the rows of one table that a condition leaves over: row ids, ranges of an index's keys, or all of them.

A path holds expressions; what they are in a run becomes keys as the columns store them.  Values of other types than the
column's are fitted: ``a = 1.0`` of an INT is the key 1, ``a = 1.5`` and ``a = 2 ** 40`` are none, ``a > 1.5`` begins
with 2.

Invariants
 1. The rows of a path are all those that its comparisons are true of, and perhaps others.
 2. The ranges of one run do not overlap and are in the order of their keys, so that no row comes twice.
Not here: who reads by it (rows/, duck/sources.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime, time
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from functools import partial
from typing import Any

from gmdb.errors import DataError, Error
from gmdb.format.address import RowId, parse_page_id
from gmdb.format.columns import Column as StoredColumn
from gmdb.format.columns import ColumnType, encode_text
from gmdb.process.late_dataclasses import dataclass
from gmdb.sql import tree
from gmdb.sql.tree import Column, Expression, Relation, columns_of
from gmdb.sql.types import FLOATS
from gmdb.tables.access.indexes import IndexDefinition, KeyRange

_INTEGERS = {"SMALLINT": 2**15, "INT": 2**31, "BIGINT": 2**63}
_EXACT = Context(prec=700)  # more digits than a double has: nothing is rounded
_WHOLE_DOUBLES = 2.0**53  # below it each whole number is a double of its own


@dataclass(frozen=True, slots=True)
class Bound:
    """An end of a range of the values of one column; ``open``: the value itself is left out."""

    value: Expression
    open: bool = False


@dataclass(frozen=True, slots=True)
class Span:
    """Keys whose first columns are equal to ``equal``, and the next one lies between ``low`` and ``high``."""

    equal: tuple[Expression, ...] = ()
    low: Bound | None = None
    high: Bound | None = None

    def expressions(self) -> tuple[Expression, ...]:
        """Those of ``equal``, then ``low``, then ``high``, as far as they are there."""
        ends = tuple(bound.value for bound in (self.low, self.high) if bound is not None)
        return (*self.equal, *ends)


@dataclass(frozen=True, slots=True)
class Path:
    """How to find rows: by ``index`` and ranges of its keys, by ``row_ids``, or all of them.

    ``columns``: those of the index's key, as they are stored.  ``estimate``: how many rows it leads to, for each time
    that it is taken.  ``ordered``: rows must come in the order of the keys, or ``backwards``; there is one span then.
    """

    index: IndexDefinition | None = None
    columns: tuple[StoredColumn, ...] = ()
    spans: tuple[Span, ...] = ()
    row_ids: tuple[Expression, ...] | None = None
    estimate: float | None = None
    ordered: bool = False
    backwards: bool = False

    @property
    def is_scan(self) -> bool:
        return self.index is None and self.row_ids is None

    @property
    def is_single(self) -> bool:
        """Whether it leads to one row at most: a whole key of a unique index."""
        return (
            self.index is not None
            and self.index.unique
            and len(self.spans) == 1
            and len(self.spans[0].equal) == len(self.columns)
        )

    def expressions(self) -> Iterator[Expression]:
        yield from self.row_ids or ()
        for span in self.spans:
            yield from span.expressions()

    def fits(self) -> tuple[Callable[[Any], Any] | None, ...]:
        """For a path of one span of equalities: how each value becomes the column's; None if it is one as it is."""
        (span,) = self.spans
        return tuple(fit_of(column.type, value.type) for column, value in zip(self.columns, span.equal, strict=False))

    def ranges(self, values: Sequence[Sequence[Any]]) -> list[KeyRange]:
        """The ranges of keys for a run; ``values``: what each span's ``expressions()`` are in it."""
        types = [column.type for column in self.columns]
        falls = [self.falls(n) for n in range(len(types))]
        ranges = [
            keys
            for span, own in zip(self.spans, values, strict=True)
            if (keys := _range(span, types, own, falls, self.backwards)) is not None
        ]
        return ranges if len(ranges) < 2 else _disjoint(ranges, falls)

    def falls(self, number: int) -> bool:
        """Whether greater values of a column of the key come first in the index."""
        return self.index is not None and self.index.direction(number).descending


@dataclass(frozen=True, slots=True, eq=False)
class Access(Relation):
    """The rows of a table that a path leads to.

    Its expressions may refer to columns of an outer relation: the join above it is lateral then.
    """

    table: tree.Table
    path: Path

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.table.columns

    def sources(self) -> Iterator[Relation]:
        return iter(())

    def expressions(self) -> Iterator[Expression]:
        return self.path.expressions()

    @property
    def is_lateral(self) -> bool:
        return any(columns_of(expression) for expression in self.path.expressions())


@dataclass(frozen=True, slots=True, eq=False)
class Materialized(Relation):
    """The rows of a relation that the rows executor computes, within a plan that DuckDB runs.

    It refers to no column of a relation around it.
    """

    source: Relation
    used: tuple[Column, ...] | None = None  # of the source's columns, those that are used; None: all

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.source.columns if self.used is None else self.used


def parse_row_id(value: Any) -> RowId | None:
    """A row id from the way SQL shows it: ``4:7:0``; None if it is none."""
    if isinstance(value, RowId):
        return value
    try:
        page, _, slot = str(value).rpartition(":")
        row_id = RowId(parse_page_id(page), int(slot))
    except (Error, ValueError):
        return None
    return row_id if str(row_id) == value else None


# ---- the values of keys


def fit_of(column: ColumnType, value: ColumnType) -> Callable[[Any], Any] | None:
    """How a value of one type becomes the key of a column that is equal to it.

    The function gives None for NULL and for a value that no row can have.  None: any value is a key as it is.
    """
    if column == value and column.name not in ("CHAR", "BINARY"):
        return None
    return partial(equal_key, column)


def is_equal_to_one(column: ColumnType, value: ColumnType) -> bool:
    """Whether at most one value of the column is equal to a value of a type: large integers are equal to one double."""
    return value.name not in FLOATS or column.name in (*FLOATS, "SMALLINT", "INT")


def equal_key(column: ColumnType, value: Any) -> Any:
    """The column's value that is equal to a value; None if there is none."""
    low = low_end(column, value, False)
    if low is None or low[1]:
        return None
    key = low[0]
    if column.name in ("CHAR", "BINARY", "VARCHAR", "VARBINARY"):
        return _text_key(column, value)
    if column.name == "DATE":
        return key if _as_time(key) == _as_time(value) else None
    return key if key == value or key != key else None


def _text_key(column: ColumnType, value: Any) -> Any:
    key = value.rstrip(" ") if column.name == "CHAR" else value
    return key if _is_stored(column, key) else None


def low_end(column: ColumnType, value: Any, open_: bool) -> tuple[Any, bool] | None:
    """Where a range begins that is above a value: a key of the column, and whether it is left out.

    None: no row is above it.  The key None: any row may be.
    """
    return _end(column, value, open_, True)


def high_end(column: ColumnType, value: Any, open_: bool) -> tuple[Any, bool] | None:
    """Where a range ends that is below a value; as ``low_end``."""
    return _end(column, value, open_, False)


def _end(column: ColumnType, value: Any, open_: bool, is_low: bool) -> tuple[Any, bool] | None:
    if value is None:
        return None
    if column.name in _INTEGERS or column.name == "DECIMAL":
        return _number_end(column, value, open_, is_low)
    if column.name == "DATE":
        return _date_end(value, open_, is_low)
    if column.name == "CHAR":
        return _char_end(column, value.rstrip(" "), is_low), False
    if not _is_stored(column, value):
        return None, False
    if column.name == "REAL" and column.decode(column.encode(value)) != value:
        return value, False  # its key is another number, on either side
    return value, open_ and column.name != "BINARY"


def _char_end(column: ColumnType, value: str, is_low: bool) -> str | None:
    """An end of a range of texts to which blanks at their end do not count."""
    if is_low:
        value += "\x01" * (column.length - len(encode_text(value)))  # rows with what sorts before a blank count, too
    elif any(letter < " " for letter in value):
        return None
    return value if _is_stored(column, value) else None


def _is_stored(column: ColumnType, value: Any) -> bool:
    try:
        column.encode(value)
    except DataError:
        return False
    return True


def _number_end(column: ColumnType, value: Any, open_: bool, is_low: bool) -> tuple[Any, bool] | None:
    """An end of a range of integers, or of decimals, which are integers of their smallest unit."""
    scale = column.scale
    limit = 10**column.length if column.name == "DECIMAL" else _INTEGERS[column.name]
    if isinstance(value, float):
        if math.isnan(value) or math.isinf(value):
            is_above = value != value or value > 0
            return None if is_above == is_low else (None, False)
        if scale or column.name == "DECIMAL" or abs(value) >= _WHOLE_DOUBLES:
            value = math.nextafter(value, -math.inf if is_low else math.inf)  # several keys may be equal to it
            open_ = False
            if math.isinf(value):
                return None, False
    exact = Decimal(value).scaleb(scale, _EXACT)
    units = int(exact.to_integral_value(ROUND_CEILING if is_low else ROUND_FLOOR))
    if units != exact:
        open_ = False
    lowest = -limit if column.name != "DECIMAL" else 1 - limit
    if (units > limit - 1) if is_low else (units < lowest):
        return None
    if not lowest <= units < limit:  # NULL is behind the highest key
        units, open_ = (lowest, False) if is_low else (limit - 1, False)
    return (Decimal(units).scaleb(-scale, _EXACT) if column.name == "DECIMAL" else units), open_


def _as_time(value: date) -> datetime:
    return value if isinstance(value, datetime) else datetime.combine(value, time())


def _date_end(value: date, open_: bool, is_low: bool) -> tuple[Any, bool]:
    if not isinstance(value, datetime):
        return value, open_
    day = value.date()
    return (day, open_) if value.time() == time() else (day, is_low)  # a day begins before any time within it


def _range(
    span: Span, types: Sequence[ColumnType], values: Sequence[Any], falls: Sequence[bool], backwards: bool
) -> KeyRange | None:
    """The keys of one span; None if there are none."""
    count = len(span.equal)
    equal: list[Any] = []
    for type_, value in zip(types, values[:count], strict=False):
        key = value if value is None else equal_key(type_, value)
        if key is None:
            return None
        equal.append(key)
    ends = iter(values[count:])
    sides = [(equal, False), (equal, False)]
    for side, (bound, end_of) in enumerate(((span.low, low_end), (span.high, high_end))):
        if bound is not None:
            end = end_of(types[count], next(ends), bound.open)
            if end is None:
                return None
            if end[0] is not None:
                sides[side] = [*equal, end[0]], end[1]
    (low, low_open), (high, high_open) = sides
    if len(low) == len(high) > count and (low[-1] > high[-1] or (low[-1] == high[-1] and (low_open or high_open))):
        return None
    if count < len(falls) and falls[count]:
        low, low_open, high, high_open = high, high_open, low, low_open
    return KeyRange(tuple(low), tuple(high), low_open, high_open, backwards)


def _disjoint(ranges: Sequence[KeyRange], falls: Sequence[bool]) -> list[KeyRange]:
    """The same keys, each in one range, in their order."""
    points = {one.low for one in ranges if one.low == one.high}
    if len({len(point) for point in points}) == 1 and all(one.low == one.high for one in ranges):
        in_order = sorted(points, key=(lambda point: _Edge(point, False, falls)) if any(falls) else tuple)
        return [KeyRange(point, point) for point in in_order]

    def begin(keys: KeyRange) -> _Edge:
        return _Edge(keys.low, keys.low_open, falls)

    def end(keys: KeyRange) -> _Edge:
        return _Edge(keys.high, not keys.high_open, falls)

    merged: list[KeyRange] = []
    for one in sorted(ranges, key=begin):
        last = merged[-1] if merged else None
        if last is None or end(last) < begin(one):
            merged.append(one)
        elif end(last) < end(one):
            merged[-1] = KeyRange(last.low, one.high, last.low_open, one.high_open)
    return merged


class _Edge:
    """A place between keys: before those that begin with some values, or ``behind`` them.

    ``falls``: of each column, whether greater values come first.
    """

    __slots__ = ("_behind", "_falls", "_key")

    def __init__(self, key: Sequence[Any], behind: bool, falls: Sequence[bool]) -> None:
        self._key, self._behind, self._falls = key, behind, falls

    def __lt__(self, other: _Edge) -> bool:
        for own, theirs, falls in zip(self._key, other._key, self._falls, strict=False):
            if own != theirs:
                return bool(own > theirs) if falls else bool(own < theirs)
        if len(self._key) == len(other._key):
            return other._behind and not self._behind
        return not self._behind if len(self._key) < len(other._key) else other._behind
