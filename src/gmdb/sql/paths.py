"""Ways to the rows of one table that a condition leaves over: row ids, an index, or all of them.

A condition is looked through for comparisons of a column with something that has no column of the table.  Those that an
index serves become a range of its keys; the whole condition is still asked of every row that is found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any

from sqlglot import exp

from gmdb.access.indexes import IndexDefinition, KeyRange
from gmdb.catalog.schema import TableDefinition
from gmdb.catalog.statistics import KeyStatistics, TableStatistics
from gmdb.errors import Error
from gmdb.format.address import RowId, parse_page_id
from gmdb.format.columns import Column
from gmdb.sql.dialect import NUMBER

Evaluate = Callable[[Any], Any]  # from what a run is given to a value
_MIRRORED: dict[type[exp.Expr], type[exp.Expr]] = {
    exp.EQ: exp.EQ,
    exp.LT: exp.GT,
    exp.LTE: exp.GTE,
    exp.GT: exp.LT,
    exp.GTE: exp.LTE,
}


@dataclass(frozen=True)
class Comparison:
    """A column compared with a value: EQ, LT, LTE, GT or GTE; or IN, with several."""

    column: str
    operator: type[exp.Expr]
    values: tuple[exp.Expr, ...]


def conjuncts(condition: exp.Expr | None) -> Iterator[exp.Expr]:
    """The parts of a condition that must all be true."""
    if condition is None:
        return
    if isinstance(condition, exp.Paren):
        yield from conjuncts(condition.this)
    elif isinstance(condition, exp.And):
        yield from conjuncts(condition.this)
        yield from conjuncts(condition.expression)
    else:
        yield condition


def comparisons(condition: exp.Expr | None, is_own: Callable[[exp.Column], bool]) -> list[Comparison]:
    """The comparisons of a column of the table, which ``is_own`` knows, that must all be true."""
    found: list[Comparison] = []
    for part in conjuncts(condition):
        if isinstance(part, exp.Between) and _is_column(part.this, is_own):
            for operator, name in ((exp.GTE, "low"), (exp.LTE, "high")):
                if _is_free(part.args[name]):
                    found.append(Comparison(part.this.name, operator, (part.args[name],)))
        elif isinstance(part, exp.In) and _is_column(part.this, is_own) and part.expressions:
            if all(_is_free(value) for value in part.expressions):
                found.append(Comparison(part.this.name, exp.In, tuple(part.expressions)))
        elif type(part) in _MIRRORED:
            left, right = part.this, part.expression
            if _is_column(left, is_own) and _is_free(right):
                found.append(Comparison(left.name, type(part), (right,)))
            elif _is_column(right, is_own) and _is_free(left):
                found.append(Comparison(right.name, _MIRRORED[type(part)], (left,)))
    return found


def _is_column(node: exp.Expr, is_own: Callable[[exp.Column], bool]) -> bool:
    return isinstance(node, exp.Column) and is_own(node)


def _is_free(node: exp.Expr) -> bool:
    """Whether a value can be worked out before any row is read."""
    return not any(isinstance(part, exp.Column | exp.Subquery | exp.Select) for part in node.walk())


class Unusable(Exception):
    """A value that is compared with a column is none of the column's type: an index does not find it."""


@dataclass(frozen=True)
class Path:
    """How to find rows: by ``index`` and the values of its first columns, by ``row_ids``, or all."""

    index: IndexDefinition | None = None
    equal: tuple[Evaluate, ...] = ()
    low: tuple[Evaluate, bool] | None = None  # of the next column, and whether it is left out
    high: tuple[Evaluate, bool] | None = None
    row_ids: tuple[Evaluate, ...] | None = None
    columns: tuple[Column, ...] = ()  # of the index
    nodes: tuple[exp.Expr, ...] = ()  # what the first columns must be equal to
    estimate: float | None = None  # of the number of rows, by statistics
    ordered: bool = False  # rows come as the statement wants them sorted
    backwards: bool = False

    @property
    def is_scan(self) -> bool:
        return self.index is None and self.row_ids is None

    @property
    def is_single(self) -> bool:
        """Whether it leads to one row at most."""
        return self.index is not None and self.index.unique and len(self.equal) == len(self.columns)

    def describe(self, table: str) -> str:
        """The path in words, for EXPLAIN."""
        about = f", about {max(round(self.estimate), 1)} rows" if self.estimate is not None else ""
        if self.row_ids is not None:
            return f"rows of {table} by row id"
        if self.index is None:
            return f"scan of {table}{about}"
        names = [column.name for column in self.columns]
        said = [f"{name} =" for name in names[: len(self.equal)]]
        if self.low or self.high:
            said.append(f"{names[len(self.equal)]} in a range")
        if self.ordered:
            said.append("in order, backwards" if self.backwards else "in order")
        if self.is_single:
            return f"one row of {table} by index {self.index.name} ({', '.join(said)})"
        return f"rows of {table} by index {self.index.name} ({', '.join(said)}){about}"

    def keys(self, given: Any) -> KeyRange | None:
        """The range of keys; None if a comparison with NULL makes it empty.  Raises Unusable."""
        equal = []
        for evaluate, column in zip(self.equal, self.columns, strict=False):
            equal.append(_key_value(column, evaluate(given)))
        low, high = list(equal), list(equal)
        low_open = high_open = False
        if self.low is not None:
            low.append(_key_value(self.columns[len(equal)], self.low[0](given)))
            low_open = self.low[1]
        if self.high is not None:
            high.append(_key_value(self.columns[len(equal)], self.high[0](given)))
            high_open = self.high[1]
        if None in low or None in high:
            return None
        return KeyRange(tuple(low), tuple(high), low_open, high_open, self.backwards)

    def is_usable(self, given: Any) -> bool:
        """Whether the values of this run are such that the path leads to its rows."""
        try:
            self.keys(given)
        except Unusable:
            return False
        return True

    def whole_key(self) -> Callable[[Any], tuple[Any, ...]]:
        """The key of a path to a single row, as a function of the parameters: as they are, for ``find`` to refuse."""
        if not all(isinstance(node, exp.Placeholder) for node in self.nodes):
            return lambda parameters: tuple([evaluate((parameters, None)) for evaluate in self.equal])
        names: list[Any] = [node.name if node.args.get("this") else node.meta[NUMBER] for node in self.nodes]
        if len(names) == 1:
            (only,) = names
            return lambda parameters: (parameters[only],)
        return itemgetter(*names)

    def found_row_ids(self, given: Any) -> list[RowId]:
        found = (parse_row_id(evaluate(given)) for evaluate in self.row_ids or ())
        return list(dict.fromkeys(row_id for row_id in found if row_id is not None))


def parse_row_id(value: Any) -> RowId | None:
    """A row id from the way SQL shows it: ``4:7:0``; None if it is none."""
    if isinstance(value, RowId):
        return value
    try:
        page, _, slot = str(value).rpartition(":")
        return RowId(parse_page_id(page), int(slot))
    except (Error, ValueError):
        return None


def _key_value(column: Column, value: Any) -> Any:
    """A value as the column stores it.  Raises Unusable if it is none of its type."""
    if value is None:
        return None
    try:
        column.type.encode(value)
    except Error:
        raise Unusable from None
    if column.type.name == "CHAR":
        raise Unusable  # blanks at the end do not count when CHARs are compared
    return value


Compile = Callable[[str, exp.Expr], Evaluate]
_End = tuple[Evaluate, bool, Any]
UNKNOWN_RANGE, UNKNOWN_END = 0.005, 0.05  # shares of rows in a range whose ends only parameters tell
SCAN_SHARE, SCAN_ROWS = 0.1, 100  # a scan is shorter than an index that leads to more of a table's rows


def choose(
    table: TableDefinition,
    found: Sequence[Comparison],
    compile_value: Compile,
    statistics: TableStatistics | None = None,
    order: Sequence[tuple[str, bool]] = (),
) -> Path:
    """The best path for some comparisons: by statistics if there are any, else by rule of thumb.

    ``order``: columns, and whether they descend, by which the first few rows are wanted.
    """
    by_column: dict[str, list[Comparison]] = {}
    for comparison in found:
        by_column.setdefault(comparison.column, []).append(comparison)
    for comparison in by_column.get("rowid", ()):
        if comparison.operator in (exp.EQ, exp.In) and not any(c.name == "rowid" for c in table.columns):
            return Path(row_ids=tuple(compile_value("rowid", value) for value in comparison.values))
    chooser = _Chooser(table, by_column, compile_value, statistics)
    paths = [path for index in table.indexes if not index.building and (path := chooser.by_index(index)) is not None]
    best = max(paths, key=_worth, default=Path())
    if order and not best.is_single:
        in_order = [path for index in table.indexes if (path := chooser.in_order(index, order)) is not None]
        if in_order:
            return max(in_order, key=_worth)
    if statistics is not None and not best.is_single:
        best = min(paths, key=lambda path: (path.estimate, [-n for n in _worth(path)]), default=Path())
        if best.estimate is None or best.estimate > statistics.rows * SCAN_SHARE + SCAN_ROWS:
            return Path(estimate=float(statistics.rows))
    return best


def _worth(path: Path) -> tuple[bool, bool, int, int]:
    """Single rows come first, then whole keys, then the more columns are given, then ranges with both ends."""
    ends = (path.low is not None) + (path.high is not None)
    return path.is_single, len(path.equal) == len(path.columns), len(path.equal), ends


class _Chooser:
    """Makes the paths by the indexes of a table that some comparisons allow."""

    def __init__(
        self,
        table: TableDefinition,
        by_column: Mapping[str, list[Comparison]],
        compile_value: Compile,
        statistics: TableStatistics | None,
    ) -> None:
        self._table = table
        self._by_column = by_column
        self._compile = compile_value
        self._statistics = statistics

    def in_order(self, index: IndexDefinition, order: Sequence[tuple[str, bool]]) -> Path | None:
        """A path by an index that gives out rows in an order, so that the first few need not be looked for."""
        if index.building or index.using != "btree" or len({descends for _, descends in order}) > 1:
            return None
        columns = tuple(self._table.columns[n] for n in index.positions)
        path = self.by_index(index) or Path(index, columns=columns)
        rest = [column.name for column in columns[len(path.equal) :]]
        if rest[: len(order)] != [name for name, _ in order]:
            return None
        return replace(path, ordered=True, backwards=order[0][1], estimate=None)

    def by_index(self, index: IndexDefinition) -> Path | None:
        columns = tuple(self._table.columns[n] for n in index.positions)
        nodes: list[exp.Expr] = []
        for column in columns:
            same = [c for c in self._by_column.get(column.name, ()) if c.operator is exp.EQ]
            if not same:
                break
            nodes.append(same[0].values[0])
        equal = tuple(self._compile(column.name, node) for column, node in zip(columns, nodes, strict=False))
        if index.using != "btree" and len(equal) < len(columns):
            return None
        low = high = None
        if len(equal) < len(columns):
            low, high = self._ends(columns[len(equal)].name)
        if not equal and low is None and high is None:
            return None
        estimate = self._estimate(index, len(equal), low, high)
        return Path(
            index,
            equal,
            None if low is None else low[:2],
            None if high is None else high[:2],
            columns=columns,
            nodes=tuple(nodes),
            estimate=estimate,
        )

    def _ends(self, column: str) -> tuple[_End | None, _End | None]:
        """The ends of the range of a column: a value, whether it is left out, and the value if it is known."""
        low = high = None
        for comparison in self._by_column.get(column, ()):
            if comparison.operator in (exp.EQ, exp.In):
                continue
            node = comparison.values[0]
            evaluate = self._compile(column, node)
            end = evaluate, comparison.operator in (exp.GT, exp.LT), _known(node, evaluate)
            if comparison.operator in (exp.GT, exp.GTE):
                low = end
            else:
                high = end
        return low, high

    def _estimate(self, index: IndexDefinition, equal: int, low: _End | None, high: _End | None) -> float | None:
        """The number of rows that a path leads to."""
        statistics = self._statistics
        if statistics is None:
            return None
        rows = statistics.rows_with(tuple(index.positions[:equal])) if equal else float(statistics.rows)
        if low is None and high is None:
            return rows
        key = statistics.keys.get((index.positions[equal],), KeyStatistics(1))
        below = 0.0 if low is None else key.share_below(low[2], low[1])
        upto = 1.0 if high is None else key.share_below(high[2], not high[1])
        if (low is not None and low[2] is None) or (high is not None and high[2] is None):
            return rows * (UNKNOWN_RANGE if low is not None and high is not None else UNKNOWN_END)
        return rows * max(upto - below, 0.0)


def _known(node: exp.Expr, evaluate: Evaluate) -> Any:
    """The value of an expression without parameters; None if it is not known before the statement runs."""
    if node.find(exp.Placeholder, exp.CurrentDate, exp.CurrentTimestamp, exp.Func) is not None:
        return None
    try:
        return evaluate(((), None))
    except Error:
        return None
