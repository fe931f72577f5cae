"""Queries: SELECT, VALUES and set operations become DuckDB's SQL, and tell which columns of which tables they use.

Invariants
 1. Every column in DuckDB's text has a name that no other column of the statement has.
 2. ``Statement.outputs`` says for a column of a subquery which columns its value is made of; ``Statement.roots`` has
    those that count whatever a subquery's columns are used for.  What cannot be reached from the roots is not read.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sqlglot import exp

from gmdb.errors import IllTyped, InterfaceError, TableExists, UnsupportedExpression
from gmdb.format.columns import ColumnType
from gmdb.sql.duck import more_functions  # noqa: F401 - it registers what it knows
from gmdb.sql.duck.aggregates import ordered
from gmdb.sql.duck.casts import cast, coerce
from gmdb.sql.duck.expressions import bind
from gmdb.sql.duck.scope import Named, Relation, Scope, TableUse, View, folded, rename, spot
from gmdb.sql.duck.select import Select, finish, limits, ordinal, shown_type
from gmdb.sql.duck.types import TEXT, Bound, common_type, duck_type

PARAMETER_NUMBER = "gmdb_number"  # where the parser notes which ``?`` a node is


class Statement:
    """What is known of a whole statement while it is translated."""

    def __init__(self, tables: Mapping[str, Any], parameters: Mapping[str, ColumnType | None]) -> None:
        self.tables = tables
        self.parameters = parameters
        self.uses: list[TableUse] = []
        self.outputs: dict[str, set[str]] = {}
        self.roots: set[str] = set()
        self.used_parameters: set[str] = set()
        self.uses_now = False
        self._count = 0
        self.numbers: dict[int, str] = {}

    def name(self) -> str:
        self._count += 1
        return f"r{self._count}"

    def now(self) -> str:
        self.uses_now = True
        return "$now"

    def parameter(self, node: exp.Expr) -> Bound:
        key = self.numbers.get(id(node))
        if key is None:
            key = f"n_{node.name}"
        if key not in self.parameters:
            what = f":{node.name}" if key.startswith("n_") else f"number {int(key[2:]) + 1}"
            raise InterfaceError(f"no value was given for the parameter {what}")
        self.used_parameters.add(key)
        type_ = self.parameters[key]
        if type_ is None:
            return Bound(f"${key}", None)
        return Bound(f"CAST(${key} AS {duck_type(type_)})", type_)

    def query(self, node: exp.Expr, parent: Scope | None, views: ChainMap[str, View]) -> Relation:
        return query(self, node, parent, views)

    def subquery(self, node: exp.Expr, scope: Scope, existence: bool = False) -> Relation:
        """A query within an expression; all its columns count, unless only its rows do."""
        relation = query(self, node, scope, scope.views)
        if not existence:
            self.roots.update(column.bound.sql for column in relation.columns)
        return relation

    def live(self) -> set[str]:
        """Every column that the statement's answer may depend on."""
        found: set[str] = set()
        pending = list(self.roots)
        while pending:
            name = pending.pop()
            if name not in found:
                found.add(name)
                pending += self.outputs.get(name, ())
        return found

    def mentioned(self) -> set[str]:
        return self.roots.union(*self.outputs.values())


def query(
    statement: Statement,
    node: exp.Expr,
    parent: Scope | None,
    views: ChainMap[str, View],
    open_types: bool = False,
    final: bool = False,
) -> Relation:
    """Any query.  ``open_types``: untyped literals stay so.  ``final``: columns get the types that are shown."""
    if isinstance(node, exp.Subquery):
        return _parenthesized(statement, node, parent, views, open_types, final)
    with_ = node.args.get("with_")
    prefix = ""
    if with_ is not None:
        views = views.new_child()
        prefix = _with(statement, with_, parent, views)
    if isinstance(node, exp.Select):
        relation = Select(statement, node, parent, views, open_types, final).relation()
    elif isinstance(node, exp.SetOperation):
        relation = _set_operation(statement, node, parent, views, final)
    elif isinstance(node, exp.Values):
        relation = values(statement, node, parent, views, final)
    else:
        raise UnsupportedExpression(f"{type(node).__name__} is no query", *spot(node))
    return Relation(prefix + relation.sql, relation.columns)


def _parenthesized(
    statement: Statement,
    node: exp.Expr,
    parent: Scope | None,
    views: ChainMap[str, View],
    open_types: bool,
    final: bool,
) -> Relation:
    """(query), perhaps with an ORDER BY or a LIMIT behind it."""
    tail = any(node.args.get(key) is not None for key in ("order", "limit", "offset"))
    inner = query(statement, node.this, parent, views, open_types, final)
    return _tail(statement, node, inner, f"({inner.sql})", parent, views) if tail else inner


def _with(statement: Statement, node: exp.Expr, parent: Scope | None, views: ChainMap[str, View]) -> str:
    parts = []
    recursive = bool(node.args.get("recursive"))
    names: set[str] = set()
    for view in node.expressions:
        name = folded(view.args["alias"].this)
        if name in names:
            raise TableExists(f"WITH has {name} twice")
        names.add(name)
        columns = [folded(column) for column in view.args["alias"].args.get("columns") or []]
        own = statement.name()
        if recursive and isinstance(view.this, exp.SetOperation) and _mentions(view.this, name):
            relation = _recursive(statement, view.this, parent, views, name, columns, own)
        else:
            relation = query(statement, view.this, parent, views)
        named = rename(relation.columns, columns, view)
        views[name] = View(own, named)
        listed = ", ".join(column.bound.sql for column in relation.columns)
        parts.append(f"{own}({listed}) AS ({relation.sql})")
    return f"WITH {'RECURSIVE ' if recursive else ''}{', '.join(parts)} "


def _mentions(node: exp.Expr, name: str) -> bool:
    return any(folded(table.this) == name for table in node.find_all(exp.Table) if table.this is not None)


def _recursive(
    statement: Statement,
    node: exp.Expr,
    parent: Scope | None,
    views: ChainMap[str, View],
    name: str,
    columns: list[str],
    own: str,
) -> Relation:
    """WITH RECURSIVE: the first part gives the columns and types that the second one sees."""
    if not isinstance(node, exp.Union):
        raise UnsupportedExpression("a recursive query is a UNION of two queries", *spot(node))
    first = query(statement, node.this, parent, views)
    inner = views.new_child()
    inner[name] = View(own, rename(first.columns, columns, node))
    second = query(statement, node.expression, parent, inner, open_types=True)
    if len(first.columns) != len(second.columns):
        raise _uneven(first, second, node)
    casts = ", ".join(
        f"CAST({cast(b.bound, a.bound.type, node).sql} AS {duck_type(a.bound.type or TEXT)})"
        for a, b in zip(first.columns, second.columns, strict=True)
    )
    statement.roots.update(column.bound.sql for column in [*first.columns, *second.columns])
    word = "UNION" if node.args.get("distinct") else "UNION ALL"
    return Relation(f"{first.sql} {word} SELECT {casts} FROM ({second.sql}) AS {statement.name()}", first.columns)


def values(
    statement: Statement, node: exp.Expr, parent: Scope | None, views: ChainMap[str, View], final: bool = False
) -> Relation:
    scope = Scope(parent, views)
    rows = [[bind(statement, item, scope) for item in _row(row)] for row in node.expressions]
    statement.roots |= scope.references
    if len({len(row) for row in rows}) != 1:
        raise IllTyped("the rows of VALUES must have equally many values", *spot(node))
    own = statement.name()
    columns = []
    for position in range(len(rows[0])):
        type_ = common_type([row[position].type for row in rows], "VALUES", *spot(node)) or TEXT
        for row in rows:
            row[position] = coerce(row[position], type_, node)
        name = f"{own}_c{position}"
        bound = Bound(name, shown_type(Bound("", type_), node) if final else type_, references=frozenset([name]))
        columns.append(Named(f"column{position + 1}", bound))
    listed = ", ".join(f"({', '.join(_exact(value) for value in row)})" for row in rows)
    names = ", ".join(column.bound.sql for column in columns)
    relation = Relation(f"SELECT {names} FROM (VALUES {listed}) AS {own}({names})", columns)
    if final:
        casts = ", ".join(f"{_exact(column.bound)} AS {column.bound.sql}" for column in columns)
        relation.sql = f"SELECT {casts} FROM (VALUES {listed}) AS {own}({names})"
    if any(node.args.get(key) is not None for key in ("order", "limit", "offset")):
        return _tail(statement, node, relation, f"({relation.sql})", parent, views)
    return relation


def _row(node: exp.Expr) -> list[exp.Expr]:
    return node.expressions if isinstance(node, exp.Tuple) else [node.this if isinstance(node, exp.Paren) else node]


def _exact(bound: Bound) -> str:
    return f"CAST({bound.sql} AS {duck_type(bound.type or TEXT)})"


def _uneven(left: Relation, right: Relation, node: exp.Expr) -> IllTyped:
    return IllTyped(
        f"both sides of {type(node).__name__.upper()} must have equally many columns, "
        f"not {len(left.columns)} and {len(right.columns)}",
        *spot(node),
    )


def _set_operation(
    statement: Statement, node: exp.Expr, parent: Scope | None, views: ChainMap[str, View], final: bool
) -> Relation:
    left = query(statement, node.this, parent, views, open_types=True)
    right = query(statement, node.expression, parent, views, open_types=True)
    if len(left.columns) != len(right.columns):
        raise _uneven(left, right, node)
    statement.roots.update(column.bound.sql for column in [*left.columns, *right.columns])
    own = statement.name()
    columns, first, second = [], [], []
    for position, (a, b) in enumerate(zip(left.columns, right.columns, strict=True)):
        type_ = common_type([a.bound.type, b.bound.type], type(node).__name__.upper(), *spot(node)) or TEXT
        name = f"{own}_c{position}"
        first.append(f"{_exact(coerce(a.bound, type_, node))} AS {name}")
        second.append(_exact(coerce(b.bound, type_, node)))
        declared = a.bound.declared and b.bound.declared and a.bound.type == b.bound.type
        columns.append(Named(a.name, Bound(name, type_, declared, references=frozenset([name]))))
    word = type(node).__name__.upper() + ("" if node.args.get("distinct") else " ALL")
    sql = (
        f"(SELECT {', '.join(first)} FROM ({left.sql}) AS {statement.name()} {word} "
        f"SELECT {', '.join(second)} FROM ({right.sql}) AS {statement.name()})"
    )
    return _tail(statement, node, Relation(sql, columns), sql, parent, views, final)


def _tail(
    statement: Statement,
    node: exp.Expr,
    relation: Relation,
    source: str,
    parent: Scope | None,
    views: ChainMap[str, View],
    final: bool = False,
) -> Relation:
    """ORDER BY, LIMIT and OFFSET over the columns of a finished query."""
    scope = Scope(None, views)
    scope.visible = list(relation.columns)
    order = node.args.get("order")
    terms = []
    for item in order.expressions if order is not None else []:
        position = ordinal(item.this, len(relation.columns))
        bound = relation.columns[position].bound if position is not None else bind(statement, item.this, scope)
        terms.append(ordered(item, bound))
    statement.roots |= scope.references
    own = statement.name()
    columns, listed = [], []
    for position, column in enumerate(relation.columns):
        name = f"{own}_c{position}"
        bound = finish(column.bound, node) if final else column.bound
        listed.append(f"{bound.sql} AS {name}")
        statement.outputs[name] = {column.bound.sql}
        columns.append(Named(column.name, replace(bound, sql=name, references=frozenset([name]))))
    sql = f"SELECT {', '.join(listed)} FROM {source} AS {own}"
    if terms:
        sql += f" ORDER BY {', '.join(terms)}"
    return Relation(sql + limits(statement, node, Scope(parent, views)), columns)
