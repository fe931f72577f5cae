"""SELECT, clause by clause."""

from __future__ import annotations

from collections import ChainMap
from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp

from gmdb.errors import InvalidSyntax, StatementError, UnsupportedExpression
from gmdb.format.columns import ColumnType
from gmdb.sql.duck.aggregates import has_aggregate, ordered
from gmdb.sql.duck.casts import coerce
from gmdb.sql.duck.expressions import bind, condition
from gmdb.sql.duck.joins import from_clause
from gmdb.sql.duck.names import output_name
from gmdb.sql.duck.rownum import split_rownum, uses_rownum
from gmdb.sql.duck.scope import Grouping, Named, Relation, Scope, View, folded, spot
from gmdb.sql.duck.types import BIGINT, INTERVAL, TEXT, Bound, decimal, duck_type

if TYPE_CHECKING:
    from gmdb.sql.duck.query import Statement

_UNSUPPORTED = ("locks", "qualify", "sample", "pivots", "laterals", "cluster", "sort", "distribute", "connect", "into")


class Select:
    """One SELECT, clause by clause."""

    def __init__(
        self,
        statement: Statement,
        node: exp.Expr,
        parent: Scope | None,
        views: ChainMap[str, View],
        open_types: bool,
        final: bool,
    ) -> None:
        self.statement = statement
        self.node = node
        self.scope = Scope(parent, views)
        self.open_types = open_types
        self.final = final
        self.own = statement.name()
        self.columns: list[Named] = []
        self.listed: list[Bound] = []
        self.group_terms: list[str] = []
        for key in _UNSUPPORTED:
            if node.args.get(key):
                what = "FOR UPDATE" if key == "locks" else key.upper()
                raise UnsupportedExpression(f"{what} is not supported in this query", *spot(node))

    def relation(self) -> Relation:
        node, statement, scope = self.node, self.statement, self.scope
        source = from_clause(statement, node, scope)
        where = self._where(source)
        for window in node.args.get("windows") or []:
            scope.windows[folded(window.this)] = window
        self._group()
        self._project()
        having = node.args.get("having")
        having_sql = f" HAVING {condition(statement, having.this, scope)}" if having is not None else ""
        order = self._order()
        distinct = self._distinct()
        self._check_groups()
        statement.roots |= scope.references
        listed = ", ".join(
            f"{bound.sql} AS {column.bound.sql}" for bound, column in zip(self.listed, self.columns, strict=True)
        )
        group = f" GROUP BY {', '.join(self.group_terms)}" if self.group_terms else ""
        tail = limits(statement, node, Scope(scope.parent, scope.views))
        sql = f"SELECT {distinct}{listed}{where}{group}{having_sql}{order}{tail}"
        return Relation(sql, self.columns)

    def _where(self, source: str) -> str:
        """FROM and WHERE; when rownum is used, as a query of their own that numbers the rows."""
        where = self.node.args.get("where")
        start = f" FROM {source}" if source else ""
        if not uses_rownum(self.node, self.scope):
            if where is None:
                return start
            return f"{start} WHERE {condition(self.statement, where.this, self.scope)}"
        rest, limit = split_rownum(self.statement, where.this if where is not None else None, self.scope)
        inner = f"{start} WHERE {rest}" if rest else start
        own = self.statement.name()
        self.scope.rownum = f"{own}_rownum"
        row = f"row_number() OVER () AS {self.scope.rownum}"
        every = f"*, {row}" if source else row
        return f" FROM (SELECT {every} FROM (SELECT {'*' if source else '1'}{inner}{limit})) AS {own}"

    def _group(self) -> None:
        node, scope = self.node, self.scope
        group = node.args.get("group")
        parts = [*node.expressions, *(node.args[key] for key in ("having", "order") if node.args.get(key) is not None)]
        if group is None and node.args.get("having") is None and not any(has_aggregate(part) for part in parts):
            return
        allowed: set[str] = set()
        for item in group.expressions if group is not None else []:
            self.group_terms.append(self._group_term(item, allowed))
        scope.grouping = Grouping(allowed)

    def _group_term(self, item: exp.Expr, allowed: set[str]) -> str:
        if isinstance(item, exp.Rollup | exp.Cube | exp.GroupingSets):
            word = {exp.Rollup: "ROLLUP", exp.Cube: "CUBE"}.get(type(item), "GROUPING SETS")
            return f"{word} ({', '.join(self._group_term(part, allowed) for part in item.expressions)})"
        if isinstance(item, exp.Tuple):
            return f"({', '.join(self._group_term(part, allowed) for part in item.expressions)})"
        if isinstance(item, exp.Paren) and isinstance(item.parent, exp.GroupingSets):
            return f"({self._group_term(item.this, allowed)})"
        bound = bind(self.statement, self._group_expression(item), self.scope)
        if bound.type is None:
            bound = coerce(bound, TEXT, item)
        allowed.add(bound.sql)
        return f"CAST({bound.sql} AS BIGINT)" if bound.sql.isdecimal() else bound.sql

    def _group_expression(self, item: exp.Expr) -> exp.Expr:
        """What GROUP BY means: a column of the tables, then one of the list by its name or its number."""
        position = ordinal(item, len(self.node.expressions))
        if position is not None:
            return self.node.expressions[position].unalias()
        if isinstance(item, exp.Column) and item.args.get("table") is None:
            name = folded(item.this)
            if not any(column.name == name for column in self.scope.visible):
                for part in self.node.expressions:
                    if isinstance(part, exp.Alias) and folded(part.args["alias"]) == name:
                        return part.this
        return item

    def _project(self) -> None:
        for item in self.node.expressions:
            inner = item.this if isinstance(item, exp.Column) else item
            if isinstance(inner, exp.Star):
                if inner.args.get("except_") or inner.args.get("replace") or inner.args.get("rename"):
                    raise UnsupportedExpression("* takes no EXCEPT, REPLACE or RENAME", *spot(item))
                self._expand(item)
                continue
            outside, self.scope.references = self.scope.references, set()
            bound = bind(self.statement, item.unalias(), self.scope)
            self._add(output_name(item), bound, item, self.scope.references)
            self.scope.references = outside

    def _expand(self, item: exp.Expr) -> None:
        """* or table.*, in the order of the tables."""
        table = item.args.get("table") if isinstance(item, exp.Column) else None
        columns = self.scope.item(folded(table), item).columns if table is not None else self.scope.visible
        if not self.scope.items and table is None:
            raise StatementError("* needs a table in FROM", *spot(item))
        for column in columns:
            grouping = self.scope.grouping
            if grouping is not None and column.bound.sql not in grouping.allowed:
                grouping.strangers.append((column.name, item))
            self._add(column.name, column.bound, item, set(column.bound.references))

    def _add(self, name: str, bound: Bound, node: exp.Expr, references: set[str]) -> None:
        if self.final:
            bound = finish(bound, node)
        elif bound.type is None and not self.open_types:
            bound = coerce(bound, TEXT, node)
        own = f"{self.own}_c{len(self.columns)}"
        self.statement.outputs[own] = references
        self.listed.append(bound)
        column = Bound(own, bound.type, bound.declared, references=frozenset([own]))
        self.columns.append(Named(name, column))

    def _order(self) -> str:
        order, distinct = self.node.args.get("order"), self.node.args.get("distinct")
        plain_distinct = distinct is not None and distinct.args.get("on") is None
        terms = []
        for item in order.expressions if order is not None else []:
            bound = self._order_value(item.this)
            if plain_distinct and bound.sql not in {value.sql for value in self.listed}:
                raise StatementError("with DISTINCT, ORDER BY takes columns of the list only", *spot(item))
            terms.append(ordered(item, bound))
        return f" ORDER BY {', '.join(terms)}" if terms else ""

    def _order_value(self, node: exp.Expr) -> Bound:
        """What ORDER BY means: a column of the list by its number or its name, then an expression over the tables."""
        position = ordinal(node, len(self.columns))
        if position is None and isinstance(node, exp.Column) and node.args.get("table") is None:
            name = folded(node.this)
            found = [i for i, column in enumerate(self.columns) if column.name == name]
            if len({self.listed[i].sql for i in found}) > 1:
                raise StatementError(f"several columns of the list are called {name}", *spot(node))
            position = found[0] if found else None
        if position is None:
            bound = bind(self.statement, node, self.scope)
            return finish(bound, node) if self.final and self.node.args.get("distinct") is not None else bound
        self.scope.references.add(self.columns[position].bound.sql)
        return self.listed[position]

    def _distinct(self) -> str:
        distinct = self.node.args.get("distinct")
        if distinct is None:
            return ""
        self.scope.references.update(column.bound.sql for column in self.columns)
        on = distinct.args.get("on")
        if on is None:
            return "DISTINCT "
        items = on.expressions if isinstance(on, exp.Tuple) else [on.this if isinstance(on, exp.Paren) else on]
        chosen = [self._order_value(item).sql for item in items]
        order = self.node.args.get("order")
        for item in order.expressions[: len(set(chosen))] if order is not None else []:
            if self._order_value(item.this).sql not in chosen:
                raise StatementError("ORDER BY must begin with what DISTINCT ON has", *spot(item))
        return f"DISTINCT ON ({', '.join(chosen)}) "

    def _check_groups(self) -> None:
        grouping = self.scope.grouping
        if grouping is not None and grouping.strangers:
            node = grouping.strangers[0][1]
            raise StatementError(
                f"{node.sql(dialect='postgres')} is neither in GROUP BY nor within an aggregate", *spot(node)
            )


def shown_type(bound: Bound, node: exp.Expr) -> ColumnType:
    """The type that a result's column has."""
    type_ = bound.type or TEXT
    if type_ == INTERVAL:
        raise UnsupportedExpression("a result has no column of type interval", *spot(node), "Use extract or cast it")
    if type_.name == "DECIMAL" and not bound.declared:
        return decimal(38, type_.scale)
    return type_


def finish(bound: Bound, node: exp.Expr) -> Bound:
    """A column of the statement's result, in the type that is shown."""
    type_ = shown_type(bound, node)
    value = coerce(bound, type_, node)
    if value.type == bound.type and bound.declared:
        return value
    return replace(value, sql=f"CAST({value.sql} AS {duck_type(type_)})", type=type_, declared=True)


def limits(statement: Statement, node: exp.Expr, scope: Scope) -> str:
    sql = ""
    for key in ("limit", "offset"):
        clause = node.args.get(key)
        if clause is None:
            continue
        amount = clause.args.get("count") if isinstance(clause, exp.Fetch) else clause.expression
        options = clause.args.get("limit_options") if isinstance(clause, exp.Fetch) else None
        if options is not None and (options.args.get("with_ties") or options.args.get("percent")):
            raise UnsupportedExpression("WITH TIES and PERCENT are not supported", *spot(node))
        value = coerce(bind(statement, amount, scope), BIGINT, node) if amount is not None else Bound("1", BIGINT)
        sql += f" {key.upper()} {value.sql}"
    return sql


def ordinal(node: exp.Expr, count: int) -> int | None:
    """The column that a bare number in ORDER BY or GROUP BY means."""
    is_negative = isinstance(node, exp.Neg) and isinstance(node.this, exp.Literal)
    if isinstance(node, exp.Boolean | exp.Null) or is_negative:
        raise InvalidSyntax("a constant cannot be ordered or grouped by", *spot(node))
    if not isinstance(node, exp.Literal):
        return None
    if node.is_string or not node.name.isdecimal():
        raise InvalidSyntax("a constant cannot be ordered or grouped by", *spot(node))
    if not 1 <= int(node.name) <= count:
        raise StatementError(f"there is no column {node.name} in the list", *spot(node))
    return int(node.name) - 1
