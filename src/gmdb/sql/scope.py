"""Scope: which columns the names of an expression mean, and where a row has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from sqlglot import exp

from gmdb.errors import AmbiguousColumn, InvalidSyntax, NoSuchColumn, NoSuchTable, NotSupportedError
from gmdb.format.columns import Column, ColumnType
from gmdb.sql.dialect import place
from gmdb.sql.types import within

Found = tuple[int, ColumnType]


@dataclass(frozen=True)
class ScopeTable:
    """A table, or what stands for one, by the name that the expression calls it.

    Its columns lie in the row from ``offset`` on.  ``hidden``: pseudo-columns such as rowid, which have a name and a
    position but give way to columns.
    """

    name: str
    columns: Sequence[Column]
    offset: int = 0
    hidden: Mapping[str, Found] | None = None

    def find(self, name: str) -> Found | None:
        for at, column in enumerate(self.columns):
            if column.name == name:
                return self.offset + at, within(column.type)
        return self.hidden.get(name) if self.hidden else None


class Scope:
    """Tables side by side."""

    def __init__(self, tables: Sequence[ScopeTable] = ()) -> None:
        self.tables = tuple(tables)

    @classmethod
    def of(cls, name: str, columns: Sequence[Column], hidden: Mapping[str, Found] | None = None) -> Scope:
        """One table, under its name or alias."""
        return cls([ScopeTable(name, columns, 0, hidden)])

    @classmethod
    def side_by_side(cls, *tables: tuple[str, Sequence[Column]]) -> Scope:
        """Several tables, whose rows are put together in this order."""
        placed, offset = [], 0
        for name, columns in tables:
            placed.append(ScopeTable(name, columns, offset))
            offset += len(columns)
        return cls(placed)

    def column(self, name: str, table: str | None, node: exp.Expr) -> Found:
        """Position and type of a column; the names are folded already.

        Raises NoSuchColumn or NoSuchTable with the nearest name, AmbiguousColumn if several tables have the column.
        """
        tables = [one for one in self.tables if table is None or one.name == table]
        if table is not None and not tables:
            hint = _nearest(table, [one.name for one in self.tables])
            raise NoSuchTable(f"{_where(node)}there is no table {table} in this statement{hint}")
        found = [position for one in tables if (position := one.find(name)) is not None]
        if len(found) > 1:
            owners = ", ".join(f"{one.name}.{name}" for one in tables if one.find(name) is not None)
            raise AmbiguousColumn(f"column {name} is ambiguous", *place(node), f"Write one of {owners}")
        if not found:
            names = [column.name for one in tables for column in one.columns]
            owner = f" of {table}" if table is not None else ""
            raise NoSuchColumn(f"{_where(node)}there is no column {name}{owner}{_nearest(name, names)}")
        return found[0]


def folded(identifier: Any) -> str:
    """A name as the catalog has it: what is not quoted is in lower case.  Raises InvalidSyntax for what is no name."""
    if not isinstance(identifier, exp.Identifier):
        if not isinstance(identifier, exp.Expr):
            raise InvalidSyntax("syntax error: a name is missing")
        raise InvalidSyntax(f"syntax error: {identifier.sql()} is no name", *place(identifier))
    return identifier.name if identifier.quoted else identifier.name.lower()


def table_name(node: exp.Expr) -> str:
    """The name of a table as the catalog has it."""
    if not isinstance(node, exp.Table) or not isinstance(node.this, exp.Identifier):
        raise NotSupportedError(f"{node.sql()} is no table")
    if node.args.get("db") is not None:
        raise NotSupportedError(f"{_where(node)}there are no schemas: write {node.name} for {node.sql()}")
    return folded(node.this)


def names_of(nodes: Sequence[Any]) -> list[str]:
    """The columns that a list names, whatever sqlglot has wrapped them in."""
    found = []
    for whole in nodes:
        node = whole
        while not isinstance(node, exp.Identifier):
            if not isinstance(node, exp.Expr) or isinstance(node, exp.Func | exp.Literal | exp.Binary):
                raise InvalidSyntax(f"{whole.sql('postgres')} is no name of a column", *place(whole))
            node = node.this
        found.append(folded(node))
    return found


def _where(node: exp.Expr) -> str:
    line, column = place(node)
    return f"line {line}, column {column}: " if line is not None else ""


def _nearest(name: str, names: Sequence[str]) -> str:
    same = [one for one in names if one.lower() == name.lower()]
    if same:
        return f'; names in upper case must be quoted: "{same[0]}"'
    close = get_close_matches(name, names, 1)
    if close:
        return f"; did you mean {close[0]}?"
    return f"; there are {', '.join(names)}" if 0 < len(names) <= 12 else ""
