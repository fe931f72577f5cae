"""Ways to the rows of one table that a condition leaves over: row ids, an index, or all of them.

A condition is looked through for comparisons of a column with something that has no column of the table.  Those that an
index serves become a range of its keys; the whole condition is still asked of every row that is found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from sqlglot import exp

from gmdb.access.indexes import IndexDefinition, KeyRange
from gmdb.catalog.schema import TableDefinition
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

    @property
    def is_scan(self) -> bool:
        return self.index is None and self.row_ids is None

    @property
    def is_single(self) -> bool:
        """Whether it leads to one row at most."""
        return self.index is not None and self.index.unique and len(self.equal) == len(self.columns)

    def describe(self, table: str) -> str:
        """The path in words, for EXPLAIN."""
        if self.row_ids is not None:
            return f"rows of {table} by row id"
        if self.index is None:
            return f"scan of {table}"
        names = [column.name for column in self.columns]
        said = [f"{name} =" for name in names[: len(self.equal)]]
        if self.low or self.high:
            said.append(f"{names[len(self.equal)]} in a range")
        return f"{'one row' if self.is_single else 'rows'} of {table} by index {self.index.name} ({', '.join(said)})"

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
        return KeyRange(tuple(low), tuple(high), low_open, high_open)

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


def choose(table: TableDefinition, found: Sequence[Comparison], compile_value: Compile) -> Path:
    """The best path for some comparisons."""
    by_column: dict[str, list[Comparison]] = {}
    for comparison in found:
        by_column.setdefault(comparison.column, []).append(comparison)
    for comparison in by_column.get("rowid", ()):
        if comparison.operator in (exp.EQ, exp.In) and not any(c.name == "rowid" for c in table.columns):
            return Path(row_ids=tuple(compile_value("rowid", value) for value in comparison.values))
    paths = [_by_index(table, index, by_column, compile_value) for index in table.indexes if not index.building]
    return max((path for path in paths if path is not None), key=_worth, default=Path())


def _worth(path: Path) -> tuple[bool, bool, int, int]:
    """Single rows come first, then whole keys, then the more columns are given, then ranges with both ends."""
    ends = (path.low is not None) + (path.high is not None)
    return path.is_single, len(path.equal) == len(path.columns), len(path.equal), ends


def _by_index(
    table: TableDefinition, index: IndexDefinition, by_column: dict[str, list[Comparison]], compile_value: Compile
) -> Path | None:
    columns = tuple(table.columns[n] for n in index.positions)
    nodes: list[exp.Expr] = []
    for column in columns:
        same = [c for c in by_column.get(column.name, ()) if c.operator is exp.EQ]
        if not same:
            break
        nodes.append(same[0].values[0])
    equal = tuple(compile_value(column.name, node) for column, node in zip(columns, nodes, strict=False))
    if index.using != "btree":
        return Path(index, equal, columns=columns, nodes=tuple(nodes)) if len(equal) == len(columns) else None
    low = high = None
    if len(equal) < len(columns):
        for comparison in by_column.get(columns[len(equal)].name, ()):
            end = compile_value(comparison.column, comparison.values[0]), comparison.operator in (exp.GT, exp.LT)
            if comparison.operator in (exp.GT, exp.GTE):
                low = end
            elif comparison.operator in (exp.LT, exp.LTE):
                high = end
    if not equal and low is None and high is None:
        return None
    return Path(index, equal, low, high, columns=columns, nodes=tuple(nodes))
