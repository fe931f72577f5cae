"""How many rows there will be, and how long it takes: by statistics if there are any, else by rules of thumb.

Times are microseconds, measured once on some machine; only their relation to each other matters.
Not here: what is done with them (paths.py, joins.py, physical.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Sequence
from typing import Any

from gmdb.process.late_dataclasses import dataclass, field
from gmdb.sql import tree
from gmdb.sql.plan.terms import COMPARISONS, is_call, negated
from gmdb.sql.tree import Column, Expression, Relation, SortKey
from gmdb.tables.access.indexes import IndexDefinition
from gmdb.tables.catalog.schema import TableDefinition
from gmdb.tables.catalog.system import KeyStatistics, TableStatistics

# ---- What planning a relation gives: for each executor, trees that can be run, and how long that takes.

ROWS, DUCK = "rows", "duck"  # the executors
Keys = Sequence[SortKey]


@dataclass(frozen=True, slots=True)
class Option:
    """A tree that can be run, and how long that takes: until the first row, and to the end."""

    tree: Relation
    total: float
    startup: float = 0.0


@dataclass(frozen=True, slots=True)
class Planned:
    """What can be done about a relation: perhaps several ways, of which some begin sooner."""

    rows: float
    by_rows: tuple[Option, ...]
    by_duck: Option | None

    def best(self, executor: str) -> Option | None:
        if executor == DUCK:
            return self.by_duck
        return cheapest(self.by_rows)


# ---- How many rows there will be, and how long it takes.

# Rows one by one
PROBE = 4.0  # finding a key
BY_KEY = 1.2  # a row found by a key
SCANNED = 1.0  # a row of a scan
EVALUATED = 0.15  # an expression for a row
HASHED = 0.6  # a row in or against a hash table
SORTED = 1.0
# DuckDB
DUCK_START = 1500.0
DUCK_STREAM = 250.0  # beginning to read a table
DUCK_SCANNED = 0.03
DUCK_BY_KEY = 0.3
DUCK_NODE = 20.0
DUCK_ROW = 0.01  # a row through a node
HANDED = 1.0  # a row from the rows executor to DuckDB
MATERIALIZE_START = 100.0

UNKNOWN_EQUAL, UNKNOWN_RANGE, UNKNOWN_END, UNKNOWN = 0.05, 0.005, 0.05, 0.33
PAGE_BYTES, ROW_BYTES = 8000.0, 16.0  # of rows on a page, and of a row beside its columns
TEXT_BYTES = 24
SIZES = {
    **{"SMALLINT": 4, "REAL": 4, "TIME": 8, "TIMESTAMPTZ": 8, "INTERVAL": 18, "UUID": 18},
    **{"INT": 4, "DATE": 4, "BOOLEAN": 4, "BIGINT": 8, "DOUBLE": 8, "TIMESTAMP": 8, "DECIMAL": 12},
    **dict.fromkeys(
        ("CHAR", "VARCHAR", "JSON", "JSONB", "BINARY", "VARBINARY", "BLOB", "CLOB"), 0
    ),  # that depends on their lengths
}
ROWS_MIN = 1000.0  # that a table is thought to have if it was never analyzed: it may grow

ELEMENTS = 10.0  # of an array that is not known
FEW_IN_RANGE = 500  # rows between two ends that are not known
FEW_OF_KEY = 20  # rows of a key that is not unique, and of a part of a key
FEW_OF_PART = 100


@dataclass
class Estimates:
    """What is known of tables: ``statistics`` of ANALYZE, and ``size``, their pages.

    ``held_scn``: the instant by which the whole transaction reads, if it does.
    """

    statistics: Callable[[TableDefinition], TableStatistics | None]
    size: Callable[[TableDefinition], float]
    held_scn: int | None = None
    _owners: dict[Column, tuple[TableDefinition, int]] = field(default_factory=dict)
    _rows: dict[int, float] = field(default_factory=dict)

    def learn(self, table: tree.Table) -> None:
        """Note whose columns these are."""
        for position, column in enumerate(table.stored):
            self._owners[column] = table.definition, position

    def alias(self, column: Column, expression: Expression) -> None:
        """Note that a column is another one by another name."""
        if isinstance(expression, tree.Reference) and expression.column in self._owners:
            self._owners.setdefault(column, self._owners[expression.column])

    def indexes(self, definition: TableDefinition) -> list[IndexDefinition]:
        """The indexes that lead to all rows that are seen: not those that are newer than the transaction's instant."""
        held = self.held_scn
        return [
            index
            for index in definition.indexes
            if not index.building and (held is None or held >= (index.since if index.since >= 0 else ~index.since))
        ]

    def rows(self, definition: TableDefinition) -> float:
        rows = self._rows.get(definition.number)
        if rows is None:
            known = self.statistics(definition)
            rows = max(float(known.rows), 1.0) if known is not None else self._rows_on_pages(definition)
            self._rows[definition.number] = rows
        return rows

    def _rows_on_pages(self, definition: TableDefinition) -> float:
        width = ROW_BYTES + sum(
            SIZES.get(column.type.name, 0) or min(column.type.length or TEXT_BYTES, TEXT_BYTES)
            for column in definition.columns
        )
        return max(self.size(definition) * PAGE_BYTES / width, ROWS_MIN)

    def of_key(self, definition: TableDefinition, positions: tuple[int, ...]) -> float:
        """How many rows of a table have the same values in some of its columns."""
        rows, known = self.rows(definition), self.statistics(definition)
        whole = [index for index in definition.indexes if not index.building and index.condition is None]
        unique = [set(index.key) for index in whole if index.unique]
        if any(key <= set(positions) for key in unique):
            return 1.0
        if known is not None and positions in known.keys:
            return max(known.rows_with(positions), 1.0)
        if known is not None:
            share = math.prod(1 / max(known.keys[(n,)].distinct, 1) for n in positions if (n,) in known.keys)
            rows *= min(share, 1.0) if share < 1 else 0.1
            return max(rows, 1.0)
        is_whole = any(positions in (index.positions, index.key) for index in definition.indexes)
        return max(min(rows / 10, FEW_OF_KEY if is_whole else FEW_OF_PART), 1.0)

    def distinct(self, column: Column) -> float | None:
        """How many values a column has; None if nothing tells."""
        owner = self._owners.get(column)
        if owner is None:
            return None
        definition, position = owner
        return max(self.rows(definition) / self.of_key(definition, (position,)), 1.0)

    def range_share(self, definition: TableDefinition, position: int, low: Any, high: Any) -> float:
        """The share of rows in a range; ``low`` and ``high``: (value if it is known, open), or None for no end."""
        known = self.statistics(definition)
        key = None if known is None else known.keys.get((position,), KeyStatistics(1))
        ends = [end for end in (low, high) if end is not None]
        if len(ends) == 2 and (key is None or any(end[0] is None for end in ends)):
            width = self._width(low[0], high[0])
            few = FEW_IN_RANGE if width is None else width
            rows = self.rows(definition)
            return min(UNKNOWN_RANGE if width is None else 1.0, few / rows)
        if any(end[0] is None for end in ends):
            return UNKNOWN_END
        if key is None:
            return UNKNOWN
        below = 0.0 if low is None else key.share_below(low[0], low[1])
        upto = 1.0 if high is None else key.share_below(high[0], not high[1])
        return max(upto - below, 0.0)

    @staticmethod
    def _width(low: Any, high: Any) -> float | None:
        """How many whole numbers lie between two ends, if they are some."""
        if type(low) is int and type(high) is int:
            return max(high - low + 1.0, 1.0)
        return None

    # ---- shares of rows that meet a condition

    def share(self, condition: Expression, own: Container[Column] | None = None) -> float:
        """``own``: the columns of the rows that are looked for; others are known by then."""
        if isinstance(condition, tree.Constant):
            return 1.0 if condition.value is True else 0.0
        if isinstance(condition, tree.Junction):
            shares = [self.share(part, own) for part in condition.parts]
            return min(sum(shares), 1.0) if condition.absorbing else math.prod(shares)
        inner = negated(condition)
        if inner is not None:
            return max(1.0 - self.share(inner, own), 0.05)
        if isinstance(condition, tree.Exists | tree.QueryComparison):
            return 0.5
        if is_call(condition, "is_null"):
            return UNKNOWN_EQUAL
        if isinstance(condition, tree.Call) and len(condition.arguments) == 2:
            return self._comparison(condition.operation.name, *condition.arguments, own)
        return UNKNOWN

    def _comparison(self, symbol: str, left: Expression, right: Expression, own: Container[Column] | None) -> float:
        if symbol == "<>":
            return 1.0 - UNKNOWN_EQUAL
        if symbol not in COMPARISONS:
            return 0.1 if "like" in symbol else UNKNOWN
        sides = [
            side
            for side in (plain(left), plain(right))
            if isinstance(side, tree.Reference) and (own is None or side.column in own)
        ]
        if symbol == "=":
            counts = [count for side in sides if (count := self.distinct(side.column)) is not None]
            return 1 / max(counts) if counts else UNKNOWN_EQUAL
        if len(sides) == 1 and sides[0].column in self._owners:
            mine, other = (left, right) if plain(left) is sides[0] else (right, left)
            symbol = symbol if mine is left else COMPARISONS[symbol]
            definition, position = self._owners[sides[0].column]
            end = known_value(other), symbol in ("<", ">")
            return self.range_share(definition, position, *((end, None) if symbol[0] == ">" else (None, end)))
        return UNKNOWN


def plain(expression: Expression) -> Expression:
    """An expression without the conversions around it."""
    while is_call(expression, "cast"):
        expression = expression.arguments[0]  # type: ignore[attr-defined]
    return expression


def known_value(expression: Expression) -> Any:
    """The value of an expression if it is known before the statement runs."""
    return expression.value if isinstance(expression, tree.Constant) else None


def cheapest(options: Iterable[Option]) -> Option | None:
    return min(options, key=lambda option: option.total, default=None)


def cut(total: float, startup: float, share: float) -> float:
    """The time for the first rows."""
    return startup + (total - startup) * min(share, 1.0)
