"""Scopes: which expression a column's name means, where it stands.

A scope is the FROM of one query, with the scopes of the queries around it behind it.  While a query is bound its scope
also collects what takes more than one row: aggregates, calls over windows, and whether rows have to be numbered.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from gmdb.errors import (
    AmbiguousColumn,
    NoSuchColumn,
    NoSuchTable,
    ProgrammingError,
    StatementError,
    UnsupportedExpression,
)
from gmdb.format.columns import ColumnType
from gmdb.process.late_dataclasses import dataclass, field
from gmdb.sql import tree
from gmdb.sql.dialect import place
from gmdb.sql.syntax import folded
from gmdb.sql.tree import Column, Expression, Reference, Relation, Shared
from gmdb.sql.types import BIGINT, within

if TYPE_CHECKING:
    from gmdb.tables.catalog.schema import TableDefinition


# ---- What PostgreSQL calls a column of a query that has no name.

NAMELESS = "?column?"
_CALLED: dict[type, str] = {exp.Exists: "exists", exp.StrPosition: "position", exp.Tuple: "row"}
_TRIMS = {"LEADING": "ltrim", "TRAILING": "rtrim"}
_TYPE_NAMES = {
    **{"INT": "int4", "SMALLINT": "int2", "BIGINT": "int8", "DECIMAL": "numeric", "FLOAT": "float4"},
    **{"DOUBLE": "float8", "BOOLEAN": "bool", "CHAR": "bpchar", "NCHAR": "bpchar", "NVARCHAR": "varchar"},
    **{"VARBINARY": "bytea", "BINARY": "bytea", "TIMESTAMPNTZ": "timestamp", "LONGTEXT": "clob"},
}
_TRANSPARENT = (exp.Paren, exp.Filter, exp.Window, exp.WithinGroup, exp.IgnoreNulls, exp.RespectNulls, exp.Collate)


def output_name(node: exp.Expr) -> str:
    """What a query calls the column that an item of its select list is."""
    return folded(node.args["alias"]) if isinstance(node, exp.Alias) else _figured(node)[0]


def _figured(node: exp.Expr) -> tuple[str, bool]:
    """A name, and whether it is a good one: a cast or CASE around it keeps it then."""
    if isinstance(node, exp.Column | exp.Dot):
        name = node.this if isinstance(node, exp.Column) else node.expression
        return (folded(name), True) if isinstance(name, exp.Identifier) else (NAMELESS, False)
    if isinstance(node, _TRANSPARENT):
        return _figured(node.this)
    if isinstance(node, exp.Cast):
        name, is_good = _figured(node.this)
        return (name, True) if is_good else (_type_name(node.args["to"]), False)
    if isinstance(node, exp.Subquery):
        query = node.unnest()
        return _of_query(query)
    if isinstance(node, exp.Case):
        default = node.args.get("default")
        name, is_good = _figured(default) if default is not None else (NAMELESS, False)
        return (name, True) if is_good else ("case", False)
    if isinstance(node, exp.Trim):
        return _TRIMS.get(str(node.args.get("position") or "").upper(), "btrim"), True
    if isinstance(node, exp.Anonymous):
        name = node.this
        return (name.name if isinstance(name, exp.Identifier) else str(name).lower()), True
    if isinstance(node, exp.Interval):
        return "interval", False
    if type(node) in _CALLED:
        return _CALLED[type(node)], True
    if isinstance(node, exp.Func) and not isinstance(node, exp.Binary | exp.Concat | exp.StartsWith):
        return node.sql_name().lower(), True
    return NAMELESS, False


def _of_query(query: Any) -> tuple[str, bool]:
    """A query that stands for a value is called as its only column."""
    while isinstance(query, exp.SetOperation | exp.Subquery):
        query = query.this
    if isinstance(query, exp.Select) and query.expressions:
        return output_name(query.expressions[0]), True
    return NAMELESS, False


def _type_name(node: exp.Expr) -> str:
    kind = node.this
    name = kind.value if isinstance(kind, exp.DType) else "interval" if isinstance(kind, exp.Interval) else str(kind)
    return _TYPE_NAMES.get(name, name.lower())


# ---- Scopes.

ROWNUM = "rownum"
ROWID = "rowid"
ROW_ID_TYPE = ColumnType("VARCHAR", 40)


@dataclass(frozen=True, slots=True)
class Named:
    """A column as a FROM clause offers it; after USING, it may stand for those of both sides."""

    name: str
    value: Expression


@dataclass(slots=True)
class Item:
    """One table of a FROM clause, under the name that it has there.  ``hidden``: columns that are no part of ``*``."""

    name: str
    columns: Sequence[Named]
    hidden: Sequence[Named] = ()
    table: tree.Table | None = None  # if it is one, and not what a query gives
    full_name: str = ""  # of a table or view that has no other name here

    def find(self, name: str) -> list[Named]:
        return [one for one in self.columns if one.name == name] or [one for one in self.hidden if one.name == name]


@dataclass(frozen=True, slots=True)
class View:
    """A query of a WITH clause, which is not finished while it is recursive."""

    cell: list[Shared]
    columns: Sequence[tuple[str, Column]]


Views = ChainMap[str, View]


@dataclass(slots=True)
class Grouping:
    """The groups of a query: what may be used of them outside of aggregates, and the aggregates that are asked for."""

    keys: list[tree.Output] = field(default_factory=list)
    aggregates: list[tuple[Column, tree.Aggregate]] = field(default_factory=list)
    is_inside: bool = False  # an aggregate: there, columns are those of the rows
    mentions: dict[Column, exp.Expr] = field(default_factory=dict)

    def key(self, value: Expression) -> Expression | None:
        """The key that is equal to an expression over the rows."""
        return next((Reference(value.type, column) for column, one in self.keys if one == value), None)

    def aggregate(self, name: str, aggregate: tree.Aggregate) -> Expression:
        """The value of an aggregate; of equal ones, the same."""
        for column, one in self.aggregates:
            if one == aggregate:
                return Reference(one.type, column)
        column = Column(name, aggregate.type)
        self.aggregates.append((column, aggregate))
        return Reference(aggregate.type, column)

    def not_grouped(self, value: Expression, node: exp.Expr) -> StatementError:
        """The error for a column of the rows where only the groups' are known."""
        place_ = next((self.mentions[one] for one in tree.columns_of(value) if one in self.mentions), node)
        name = place_.sql(dialect="postgres")
        return StatementError(f"{name} is neither in GROUP BY nor within an aggregate", *place(place_))


@dataclass(slots=True)
class WindowCalls:
    """The calls over windows that a query asks for, and the windows that its WINDOW clause names."""

    named: dict[str, exp.Expr] = field(default_factory=dict)
    calls: list[tuple[Column, tree.WindowCall]] = field(default_factory=list)
    is_inside: bool = False

    def value(self, name: str, call: tree.WindowCall) -> Expression:
        column = Column(name, call.type)
        self.calls.append((column, call))
        return Reference(call.type, column)


class Scope:
    """The tables that a query's expressions can name, with those of the queries around it."""

    def __init__(self, parent: Scope | None = None, views: Views | None = None) -> None:
        self.parent = parent
        self.views: Views = views if views is not None else parent.views if parent is not None else ChainMap()
        self.items: list[Item] = []
        self.visible: list[Named] = []  # what * means, and what a bare name is looked up in
        self.grouping: Grouping | None = None
        self.windows: WindowCalls | None = None  # None: they cannot stand where an expression is bound now
        self.numbers_rows = False  # whether rownum may be used now
        self.number: Column | None = None  # rownum, once it was used

    @classmethod
    def of_table(cls, name: str, columns: Sequence[Column], row_id: Column | None = None) -> Scope:
        """The columns of one table: for CHECK, RETURNING and the like."""
        return cls.of_tables([(name, columns, row_id)])

    @classmethod
    def of_tables(cls, tables: Iterable[tuple[str, Sequence[Column], Column | None]]) -> Scope:
        """Tables side by side; the first that has a name has it, for ``excluded`` has the same columns."""
        scope = cls()
        for name, columns, row_id in tables:
            scope.add(item_of(name, columns, row_id))
        return scope

    # ---- tables

    def add(self, item: Item) -> None:
        if any(item.name == other.name and not _are_of_two_schemas(item, other) for other in self.items):
            raise ProgrammingError(f"the name {item.name} stands for two tables in the same FROM; give one an alias")
        self.items.append(item)
        self.visible.extend(item.columns)

    def absorb(self, other: Scope) -> None:
        """Take over what the other side of a join offers."""
        visible = [*self.visible, *other.visible]
        for item in other.items:
            self.add(item)
        self.visible = visible

    def chain(self) -> Iterator[Scope]:
        scope: Scope | None = self
        while scope is not None:
            yield scope
            scope = scope.parent

    def item(self, name: str, node: exp.Expr, full: str = "") -> Item:
        """The table of a name, in this FROM or one around it; ``full``: the full name that it must have."""
        for scope in self.chain():
            item = scope._own_item(name, node, full)
            if item is not None:
                return item
        names = [item.name for scope in self.chain() for item in scope.items]
        raise NoSuchTable(f"{where(node)}there is no table {full or name} in this statement{nearest(name, names)}")

    def _own_item(self, name: str, node: exp.Expr, full: str = "") -> Item | None:
        """The table of a name in this FROM."""
        items = [item for item in self.items if item.name == name and full in ("", item.full_name)]
        if len(items) > 1:
            hint = f"Write one of {', '.join(item.full_name for item in items)}, or give one an alias"
            raise AmbiguousColumn(f"{name} is two tables in this FROM", *place(node), hint)
        return items[0] if items else None

    # ---- columns

    def resolve(self, name: str, table: str | None, node: exp.Expr, full: str = "") -> Expression:
        """What a column's name means; the names are folded already, and ``full`` is the full name of its table.

        Raises NoSuchColumn or NoSuchTable with the nearest name, AmbiguousColumn if several tables have the column.
        """
        for scope in self.chain():
            value = scope._find(name, table, node, full)
            if value is not None:
                return scope._used(value, node, scope is not self)
        if name == ROWNUM and table is None:
            return self._row_number(node)
        raise self._unknown(name, table, node, full)

    def has(self, name: str) -> bool:
        """Whether a table of this FROM has a column of this name."""
        return any(one.name == name for one in self.visible)

    def _find(self, name: str, table: str | None, node: exp.Expr, full: str) -> Expression | None:
        if table is None:
            columns = [one for one in self.visible if one.name == name]
            columns = columns or [one for item in self.items for one in item.hidden if one.name == name]
        else:
            item = self._own_item(table, node, full)
            if item is None:
                return None
            columns = item.find(name)
            if not columns:
                raise self._unknown(name, table, node, full)
        if len(columns) > 1:
            owners = [f"{item.name}.{name}" for item in self.items if item.find(name)]
            hint = f"Write one of {', '.join(owners)}" if len(owners) > 1 else "Give one an alias"
            raise AmbiguousColumn(f"column {name} is ambiguous", *place(node), hint)
        return columns[0].value if columns else None

    def _used(self, value: Expression, node: exp.Expr, from_within: bool) -> Expression:
        """A column as the scope that names it sees it: a query within one with groups sees those."""
        grouping = self.grouping
        if grouping is None or grouping.is_inside:
            return value
        for column in tree.columns_of(value):
            grouping.mentions.setdefault(column, node)
        if not from_within:
            return value  # perhaps a part of a key; Select replaces whole keys
        key = grouping.key(value)
        if key is None:
            raise grouping.not_grouped(value, node)
        return key

    def _row_number(self, node: exp.Expr) -> Expression:
        scope = next((one for one in self.chain() if one.numbers_rows), None)
        if scope is None:
            raise UnsupportedExpression("rownum cannot stand here", *place(node), "Use it in a query in FROM")
        if scope.number is None:
            scope.number = Column(ROWNUM, BIGINT, nullable=False)
        return scope._used(Reference(BIGINT, scope.number), node, scope is not self)

    def _unknown(self, name: str, table: str | None, node: exp.Expr, full: str = "") -> ProgrammingError:
        if table is not None:
            columns = [one.name for one in self.item(table, node, full).columns]
            return NoSuchColumn(f"{where(node)}there is no column {name} of {table}{nearest(name, columns)}")
        columns = [one.name for scope in self.chain() for one in scope.visible]
        return NoSuchColumn(f"{where(node)}there is no column {name}{nearest(name, columns)}")


def new_table(definition: TableDefinition, alias: str = "") -> tree.Table:
    """A table of a statement, with columns of its own."""
    stored = tuple(Column(one.name, within(one.type), one.nullable) for one in definition.columns)
    return tree.Table(definition, stored, Column(ROWID, ROW_ID_TYPE, nullable=False), alias or definition.name)


def _are_of_two_schemas(a: Item, b: Item) -> bool:
    """Whether two tables of one name can be told apart by their schemas."""
    return bool(a.full_name and b.full_name) and a.full_name != b.full_name


def item_of(
    name: str, columns: Sequence[Column], row_id: Column | None = None, table: tree.Table | None = None
) -> Item:
    """A table for a scope; ``rowid`` gives way to a column of that name."""
    shown = [Named(one.name, Reference(one.type, one)) for one in columns]
    is_hidden = row_id is not None and all(one.name != ROWID for one in columns)
    hidden = [Named(ROWID, Reference(row_id.type, row_id))] if row_id is not None and is_hidden else []
    return Item(name, shown, hidden, table)


def references(relation: Relation) -> tuple[Expression, ...]:
    return tuple(Reference(one.type, one) for one in relation.columns)


def where(node: exp.Expr) -> str:
    """Where a part of a statement stands, for the front of a message."""
    line, column = place(node)
    return "" if line is None else f"line {line}, column {column}: "


def nearest(name: str, names: Iterable[str]) -> str:
    """The hint for a name that is not there."""
    known = list(dict.fromkeys(names))
    same = [one for one in known if one.lower() == name.lower()]
    if same:
        return f'; names in upper case must be quoted: "{same[0]}"'
    from difflib import get_close_matches

    close = get_close_matches(name, known, 1)
    if close:
        return f"; did you mean {close[0]}?"
    return f"; there are {', '.join(known)}" if 0 < len(known) <= 12 else ""
