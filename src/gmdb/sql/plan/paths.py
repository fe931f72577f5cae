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
from itertools import product
from typing import Any

from gmdb.errors import DataError, Error
from gmdb.format.address import RowId, parse_page_id
from gmdb.format.columns import Column as StoredColumn
from gmdb.format.columns import ColumnType
from gmdb.process.late_dataclasses import dataclass, replace
from gmdb.sql import tree
from gmdb.sql.plan.estimates import Estimates, known_value
from gmdb.sql.plan.terms import COMPARISONS, is_call, is_movable, negated
from gmdb.sql.tree import Column, Expression, Relation, SortKey, columns_of, conjuncts, has_queries, is_volatile
from gmdb.sql.types import BOOLEAN
from gmdb.tables.access.indexes import IndexDefinition, KeyRange

_INTEGERS = {"INT": 2**31, "BIGINT": 2**63}
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

    ``columns``: the index's, as they are stored.  ``estimate``: how many rows it leads to, for each time that it is
    taken.  ``ordered``: rows must come in the order of the keys, or ``backwards``; there is one span then.
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
        ranges = [
            keys
            for span, own in zip(self.spans, values, strict=True)
            if (keys := _range(span, types, own, self.backwards)) is not None
        ]
        return ranges if len(ranges) < 2 else _disjoint(ranges)


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
    return value.name != "DOUBLE" or column.name in ("DOUBLE", "INT")


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
    return value, open_ and column.name != "BINARY"


def _char_end(column: ColumnType, value: str, is_low: bool) -> str | None:
    """An end of a range of texts to which blanks at their end do not count."""
    if is_low:
        value += "\x01" * (column.length - len(value.encode()))  # rows with what sorts before a blank count, too
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


def _range(span: Span, types: Sequence[ColumnType], values: Sequence[Any], backwards: bool) -> KeyRange | None:
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
    return KeyRange(tuple(low), tuple(high), low_open, high_open, backwards)


def _disjoint(ranges: Sequence[KeyRange]) -> list[KeyRange]:
    """The same keys, each in one range, in their order."""
    points = {one.low for one in ranges if one.low == one.high}
    if len({len(point) for point in points}) == 1 and all(one.low == one.high for one in ranges):
        return [KeyRange(point, point) for point in sorted(points, key=tuple)]
    merged: list[KeyRange] = []
    for one in sorted(ranges, key=lambda keys: _Edge(keys.low, keys.low_open)):
        last = merged[-1] if merged else None
        if last is None or _Edge(last.high, not last.high_open) < _Edge(one.low, one.low_open):
            merged.append(one)
        elif _Edge(last.high, not last.high_open) < _Edge(one.high, not one.high_open):
            merged[-1] = KeyRange(last.low, one.high, last.low_open, one.high_open)
    return merged


class _Edge:
    """A place between keys: before those that begin with some values, or ``behind`` them."""

    __slots__ = ("_behind", "_key")

    def __init__(self, key: Sequence[Any], behind: bool) -> None:
        self._key, self._behind = key, behind

    def __lt__(self, other: _Edge) -> bool:
        for own, theirs in zip(self._key, other._key, strict=False):
            if own != theirs:
                return bool(own < theirs)
        if len(self._key) == len(other._key):
            return other._behind and not self._behind
        return not self._behind if len(self._key) < len(other._key) else other._behind


# ---- Choosing the path to the rows of one table that some conditions leave over.
#
# A condition is looked through for comparisons of a column with something that has no column of the table.  Those that
# an index serves become ranges of its keys.
# Not here: joins (joins.py).

SPANS_MAX = 1000
_EXACT_NUMBERS = ("INT", "BIGINT", "DECIMAL")
_EXACT_TIMES = ("DATE", "TIMESTAMP")
_WIDER = {  # conversions that keep the order of values, and give no two values the same
    "INT": ("BIGINT", "DECIMAL", "DOUBLE"),
    "BIGINT": ("DECIMAL", "DOUBLE"),
    "DECIMAL": ("DECIMAL", "DOUBLE"),
    "DATE": ("TIMESTAMP",),
    "VARCHAR": ("VARCHAR",),
    "CHAR": ("CHAR", "VARCHAR"),
}


@dataclass(frozen=True, slots=True)
class Comparison:
    """``column`` compared with a value that is known before the row is: ``=``, ``<``, ``<=``, ``>`` or ``>=``.

    ``exact``: the keys that are in a range of an index for it are those that it is true of.
    """

    column: Column
    symbol: str
    value: Expression
    exact: bool


@dataclass(frozen=True, slots=True)
class Choice:
    """A path, and those of the conditions that it decides: they are not checked again."""

    path: Path
    decided: frozenset[int]  # identities of conditions


class Chooser:
    """The paths to the rows of one table that meet all of some conditions."""

    def __init__(
        self, table: tree.Table, parts: Sequence[Expression], estimates: Estimates, alone: bool = False
    ) -> None:
        """``alone``: keys must consist of parameters and constants."""
        self._table, self._parts, self._estimates, self._alone = table, parts, estimates, alone
        self._own = set(table.columns)
        self._plain: dict[int, list[Comparison]] = {}  # by conditions' identities
        self._choices: dict[int, list[list[Comparison]]] = {}
        self._is_guarded = False  # by a condition without columns, which may prevent that what follows is evaluated
        for part in parts:
            alternatives = self._alternatives(part)
            self._is_guarded = self._is_guarded or not columns_of(part)
            if alternatives is not None and len(alternatives) == 1:
                self._plain[id(part)] = alternatives[0]
            elif alternatives is not None:
                self._choices[id(part)] = alternatives
        self.rows = estimates.rows(table.definition)
        for part in parts:
            self.rows *= estimates.share(part, self._own)
        self.rows = max(self.rows, 0.01)

    # ---- conditions as comparisons

    def _alternatives(self, part: Expression) -> list[list[Comparison]] | None:
        """A condition as comparisons, all of one of the lists being true; None if it is none of that."""
        if isinstance(part, tree.Junction) and part.absorbing:
            lists: list[list[Comparison]] = []
            for branch in part.parts:
                inner = self._alternatives(branch)
                if inner is None:
                    return None
                lists += inner
            return lists if len(lists) <= SPANS_MAX else None
        known: list[Comparison] = []
        decides = True
        for one in conjuncts(part):
            comparisons = self._comparisons(one)
            decides = decides and bool(comparisons)
            known += comparisons
        if not known:
            return None
        return [known if decides else [replace(comparison, exact=False) for comparison in known]]

    def _comparisons(self, part: Expression) -> list[Comparison]:
        if isinstance(part, tree.Reference) and part.column in self._own and part.type == BOOLEAN:
            return [Comparison(part.column, "=", tree.Constant(BOOLEAN, True), True)]
        inner = negated(part)
        if isinstance(inner, tree.Reference) and inner.column in self._own:
            return [Comparison(inner.column, "=", tree.Constant(BOOLEAN, False), True)]
        if isinstance(part, tree.Junction) or not isinstance(part, tree.Call):
            return []
        if is_call(part, "like") and len(part.arguments) == 2:
            return self._prefix(*part.arguments)
        if part.operation.name not in COMPARISONS or len(part.arguments) != 2:
            return []
        left, right = part.arguments
        for own, value, symbol in (
            (left, right, part.operation.name),
            (right, left, COMPARISONS[part.operation.name]),
        ):
            column = self._column(own)
            if column is not None and self._is_free(value):
                return self._of_column(column, symbol, value)
        return []

    def _column(self, expression: Expression) -> Column | None:
        """The column of the table that an expression is, conversions apart that keep its order."""
        while is_call(expression, "cast"):
            (inner,) = expression.arguments  # type: ignore[attr-defined]
            source, target = inner.type, expression.type
            is_wider = target.name in _WIDER.get(source.name, ()) and (
                target.name not in ("DECIMAL", "VARCHAR", "CHAR")
                or source.name not in ("DECIMAL", "VARCHAR", "CHAR")
                or (target.length >= source.length and target.scale >= source.scale)
            )
            if not is_wider:
                return None
            expression = inner
        if isinstance(expression, tree.Reference) and expression.column in self._own:
            return expression.column
        return None

    def _is_free(self, value: Expression) -> bool:
        """Whether a value can be computed before any row is read."""
        columns = columns_of(value)
        if columns & self._own or (self._alone and (columns or has_queries(value))):
            return False
        return is_movable(value) or not (self._is_guarded or is_volatile(value))

    def _of_column(self, column: Column, symbol: str, value: Expression) -> list[Comparison]:
        own, other = column.type, value.type
        if own.name == "VARCHAR" and other.name == "CHAR":
            return []  # blanks at the end do not count then, and an index goes by them
        exact = _is_exact(own, other)
        if symbol == "=" and not is_equal_to_one(own, other):
            return [Comparison(column, ">=", value, False), Comparison(column, "<=", value, False)]
        if symbol != "=":
            exact = exact and own.name != "VARCHAR"
        return [Comparison(column, symbol, value, exact)]

    def _prefix(self, text: Expression, pattern: Expression) -> list[Comparison]:
        """``text like 'abc%'``: texts from ``abc`` to before ``abd``."""
        column = self._column(text)
        if (
            column is None
            or column.type.name != "VARCHAR"
            or not isinstance(pattern, tree.Constant)
            or not pattern.value
        ):
            return []
        prefix = ""
        for letter in pattern.value:
            if letter in "%_\\":
                break
            prefix += letter
        if not prefix or ord(prefix[-1]) >= 0xD7FF:
            return []
        behind = prefix[:-1] + chr(ord(prefix[-1]) + 1)
        ends = [tree.Constant(pattern.type, prefix), tree.Constant(pattern.type, behind)]
        return [Comparison(column, ">=", ends[0], False), Comparison(column, "<", ends[1], False)]

    # ---- paths

    def choices(self) -> Iterator[Choice]:
        """The paths that are not a scan."""
        by_id = self._by_row_id()
        if by_id is not None:
            yield by_id
        for index in self._estimates.indexes(self._table.definition):
            choice = self.by_index(index)
            if choice is not None:
                yield choice

    def _by_row_id(self) -> Choice | None:
        for comparisons in (*([one] for one in self._plain.values()), *self._choices.values()):
            values = [c.value for one in comparisons for c in one if c.column is self._table.row_id and c.symbol == "="]
            if len(values) == len(comparisons):
                return Choice(Path(row_ids=tuple(values), estimate=float(len(values))), frozenset())
        return None

    def by_index(self, index: IndexDefinition, needed: bool = True) -> Choice | None:
        """The path by an index; None if its first column is not compared.  Unless ``needed``: all of its keys then."""
        columns = tuple(self._table.stored[n] for n in index.positions)
        plain = [(key, c) for key, comparisons in self._plain.items() for c in comparisons]
        best = self._spans(index, columns, [plain])
        if best is None and needed and not self._choices:
            return None
        for key, alternatives in self._choices.items() if index.using == "btree" or best is None else ():
            sets = [[(key, c) for c in alternative] for alternative in alternatives]
            before = [plain] if best is None else best[2]
            both = [[*one, *other] for one, other in product(before, sets)]
            longer = self._spans(index, columns, both) if len(both) <= SPANS_MAX else None
            if longer is not None and (best is None or _uses_more(longer[0], best[0])):
                best = longer
        if best is None:
            if needed or index.using != "btree":
                return None
            best = [Span()], frozenset(), [[]]
        spans, decided, _ = best
        stored = tuple(self._table.definition.columns[n] for n in index.positions)
        return Choice(Path(index, stored, tuple(spans), estimate=self._count(index, spans)), decided)

    def _spans(
        self, index: IndexDefinition, columns: tuple[Column, ...], sets: list[list[tuple[int, Comparison]]]
    ) -> tuple[list[Span], frozenset[int], list[list[tuple[int, Comparison]]]] | None:
        """A span for each set of comparisons, and the conditions that they decide together."""
        spans, used = [], []
        for one in sets:
            span = _span(columns, one)
            if span is None or (index.using != "btree" and len(span[0].equal) < len(columns)):
                return None
            spans.append(span[0])
            used.append(span[1])
        conditions = {id(part) for part in self._parts}
        decided = {
            key
            for key in conditions
            if all(
                all(n in own for n, (k, _) in enumerate(one) if k == key) for one, own in zip(sets, used, strict=True)
            )
            and all(any(k == key for k, _ in one) for one in sets)
        }
        return spans, frozenset(decided), sets

    def in_order(self, keys: Sequence[SortKey]) -> Iterator[Choice]:
        """Paths by which rows come sorted."""
        for index in self._estimates.indexes(self._table.definition):
            if index.using != "btree":
                continue
            choice = self.by_index(index, needed=False)
            if choice is None:
                continue
            if len(choice.path.spans) > 1:
                whole = tuple([Span()])
                choice = Choice(replace(choice.path, spans=whole, estimate=None), frozenset())
            backwards = self._direction(index, choice.path.spans[0], keys)
            if backwards is not None:
                yield replace(choice, path=replace(choice.path, ordered=True, backwards=backwards))

    def _direction(self, index: IndexDefinition, span: Span, keys: Sequence[SortKey]) -> bool | None:
        """Whether rows must be read backwards to come sorted; None if neither way has them sorted."""
        columns = [self._table.stored[n] for n in index.positions]
        fixed = set(columns[: len(span.equal)])
        rest = columns[len(span.equal) :]
        directions = set()
        for key in keys:
            column = key.value.column if isinstance(key.value, tree.Reference) else None
            if column in fixed:
                continue
            if not rest:
                if index.unique and not any(one.nullable for one in columns):
                    break  # no two rows have the same key
                return None
            if column is not rest[0] or rest[0].type.name == "CHAR":
                return None
            if rest[0].nullable and key.nulls_first != key.descending:
                return None
            directions.add(key.descending)
            fixed.add(rest.pop(0))
        return None if len(directions) > 1 else True in directions

    def _count(self, index: IndexDefinition, spans: Sequence[Span]) -> float:
        """How many rows a path leads to."""
        definition = self._table.definition
        total = 0.0
        for span in spans:
            equal = index.positions[: len(span.equal)]
            rows = self._estimates.of_key(definition, equal) if equal else self._estimates.rows(definition)
            if span.low is not None or span.high is not None:
                low, high = (
                    None if end is None else (known_value(end.value), end.open) for end in (span.low, span.high)
                )
                rows *= self._estimates.range_share(definition, index.positions[len(equal)], low, high)
            total += max(rows, 0.01)
        return min(total, self._estimates.rows(definition))


def _is_exact(own: ColumnType, other: ColumnType) -> bool:
    if own.name in _EXACT_NUMBERS:
        return other.name in _EXACT_NUMBERS
    if own.name in _EXACT_TIMES:
        return other.name in _EXACT_TIMES
    return own.name == other.name and own.name in ("VARCHAR", "BOOLEAN")


def _span(columns: Sequence[Column], comparisons: list[tuple[int, Comparison]]) -> tuple[Span, set[int]] | None:
    """Keys that some comparisons lead to, and the numbers of those that they decide; None if there is none for it."""
    equal: list[Expression] = []
    decided: set[int] = set()
    low = high = None
    for column in columns:
        own = [(n, c) for n, (_, c) in enumerate(comparisons) if c.column is column]
        same = next(((n, c) for n, c in own if c.symbol == "="), None)
        if same is not None:
            equal.append(same[1].value)
            decided |= {n for n, c in own if c.exact and c.symbol == "=" and c.value == same[1].value}
            continue
        ends: dict[str, tuple[int, Comparison]] = {}
        for n, c in own:
            ends.setdefault(c.symbol[0], (n, c))
        low, high = (
            Bound(ends[sign][1].value, ends[sign][1].symbol == sign) if sign in ends else None for sign in "><"
        )
        if "<" in ends and ends["<"][1].exact:
            decided.add(ends["<"][0])
        if ">" in ends and ends[">"][1].exact and (high is not None or not column.nullable):
            decided.add(ends[">"][0])
        break
    if not equal and low is None and high is None:
        return None
    return Span(tuple(equal), low, high), decided


def _uses_more(new: Sequence[Span], old: Sequence[Span]) -> bool:
    """Whether each of some ranges goes by more of a key than the one before it."""

    def depth(span: Span) -> tuple[int, int]:
        return len(span.equal), (span.low is not None) + (span.high is not None)

    return min(map(depth, new)) > max(map(depth, old))
