"""Names: which column of which table an expression means, and where in the text it stands.

Every column that a query can see has a name in DuckDB's text that is its own in the whole statement (``r3_c1``), so
that no name of a user's ever reaches DuckDB: neither its folding of cases nor its own rules for aliases matter.
"""

from __future__ import annotations

import difflib
from collections import ChainMap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from gmdb.errors import AmbiguousColumn, NoSuchColumn, NoSuchTable, ProgrammingError, StatementError
from gmdb.format.columns import Column
from gmdb.sql.duck.types import BIGINT, Bound

ROWNUM = "rownum"


@dataclass(slots=True)
class Named:
    """A column as a FROM clause offers it."""

    name: str
    bound: Bound


@dataclass(slots=True)
class Item:
    """One table of a FROM clause, under the name that it has there."""

    name: str
    columns: list[Named]
    hidden: list[Named] = field(default_factory=list)

    def find(self, name: str) -> list[Named]:
        found = [column for column in self.columns if column.name == name]
        return found or [column for column in self.hidden if column.name == name]


@dataclass(slots=True)
class View:
    """A query of a WITH clause: what DuckDB calls it, and its columns."""

    sql: str
    columns: list[Named]


@dataclass(slots=True)
class Relation:
    """A query in DuckDB's SQL, and its columns."""

    sql: str
    columns: list[Named]


@dataclass(slots=True)
class TableUse:
    """A table as one FROM clause names it: what DuckDB calls it, and its columns' names there by position."""

    alias: str
    table: str
    columns: Sequence[Column]
    names: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Grouping:
    """What a grouped query may use outside of aggregates, and what it used that it may not."""

    allowed: set[str]
    inside_aggregate: bool = False
    strangers: list[tuple[str, exp.Expr]] = field(default_factory=list)


class Scope:
    """The tables that a query's expressions can name, with those of the queries around it."""

    def __init__(self, parent: Scope | None, views: ChainMap[str, View]) -> None:
        self.parent = parent
        self.views = views
        self.items: list[Item] = []
        self.visible: list[Named] = []  # what * means and a bare name is looked up in
        self.grouping: Grouping | None = None
        self.references: set[str] = set()
        self.rownum: str | None = None  # the text that stands for rownum, where it may be used
        self.windows: dict[str, exp.Window] = {}

    def add(self, item: Item) -> None:
        if any(item.name == other.name for other in self.items):
            raise ProgrammingError(f"the name {item.name} stands for two tables in the same FROM; give one an alias")
        self.items.append(item)
        self.visible.extend(item.columns)

    def absorb(self, other: Scope) -> None:
        """Take over what a join's other side offers."""
        for item in other.items:
            if any(item.name == mine.name for mine in self.items):
                raise ProgrammingError(
                    f"the name {item.name} stands for two tables in the same FROM; give one an alias"
                )
            self.items.append(item)
        self.visible.extend(other.visible)

    def chain(self) -> Iterator[Scope]:
        scope: Scope | None = self
        while scope is not None:
            yield scope
            scope = scope.parent

    def resolve(self, name: str, table: str | None, node: exp.Expr) -> Bound:
        for scope in self.chain():
            found = scope._find(name, table, node)
            if found is not None:
                return scope._use(found, node)
        raise self._unknown(name, table, node)

    def item(self, name: str, node: exp.Expr) -> Item:
        for scope in self.chain():
            for item in scope.items:
                if item.name == name:
                    return item
        names = [item.name for scope in self.chain() for item in scope.items]
        raise NoSuchTable(f"{place(node)}no table {name} in FROM{nearest(name, names)}")

    def _find(self, name: str, table: str | None, node: exp.Expr) -> Bound | None:
        if table is None:
            found = [column for column in self.visible if column.name == name]
            found = found or [column for item in self.items for column in item.hidden if column.name == name]
            if not found and name == ROWNUM and self.rownum is not None:
                return Bound(self.rownum, BIGINT)
        else:
            items = [item for item in self.items if item.name == table]
            if not items:
                return None
            found = items[0].find(name)
            if not found:
                raise self._unknown(name, table, node)
        if len(found) > 1:
            owners = " or ".join(item.name for item in self.items if item.find(name))
            raise AmbiguousColumn(f"column {name} could be that of {owners}; write table.{name}", *spot(node))
        return found[0].bound if found else None

    def _use(self, bound: Bound, node: exp.Expr) -> Bound:
        self.references.update(bound.references)
        grouping = self.grouping
        if grouping is not None and not grouping.inside_aggregate and bound.sql not in grouping.allowed:
            grouping.strangers.append((bound.sql, node))
        return bound

    def _unknown(self, name: str, table: str | None, node: exp.Expr) -> ProgrammingError:
        if table is not None:
            columns = [column.name for column in self.item(table, node).columns]
            return NoSuchColumn(f"{place(node)}table {table} has no column {name}{nearest(name, columns)}")
        columns = [column.name for scope in self.chain() for column in scope.visible]
        return NoSuchColumn(f"{place(node)}there is no column {name}{nearest(name, columns)}")


def rename(columns: list[Named], names: list[str], node: exp.Expr) -> list[Named]:
    """Columns under the names that an alias lists; the rest keep theirs."""
    if len(names) > len(columns):
        raise StatementError(f"{len(names)} names for {len(columns)} columns", *spot(node))
    kept = [column.name for column in columns[len(names) :]]
    return [Named(name, column.bound) for name, column in zip([*names, *kept], columns, strict=True)]


def folded(identifier: exp.Expr | str) -> str:
    """An identifier's name: lower case, unless it was quoted."""
    if isinstance(identifier, str):
        return identifier.lower()
    quoted = isinstance(identifier, exp.Identifier) and identifier.args.get("quoted")
    return identifier.name if quoted else identifier.name.lower()


def spot(node: exp.Expr) -> tuple[int | None, int | None]:
    """Line and column of a part of a statement, both from 1."""
    metas = [part.meta for part in node.walk() if part.meta.get("line") is not None]
    if not metas:
        return (None, None) if node.parent is None or isinstance(node, exp.Query) else spot(node.parent)
    first = min(metas, key=lambda meta: (meta["line"], meta["col"]))
    return first["line"], max(1, first["col"] - (first["end"] - first["start"]))


def place(node: exp.Expr) -> str:
    """Where a part of a statement stands, for the front of a message."""
    line, column = spot(node)
    return "" if line is None else f"line {line}, column {column}: "


def nearest(name: str, names: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(dict.fromkeys(names)), 1)
    return f"; did you mean {close[0]}?" if close else ""
