"""What a query or RETURNING makes of a row: columns with names and types."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from typing import Any

from sqlglot import exp

from gmdb.errors import InvalidSyntax, NoSuchColumn
from gmdb.format.columns import ColumnType
from gmdb.sql.dialect import place
from gmdb.sql.expressions import Compiled, compile_expression
from gmdb.sql.scope import Scope, folded
from gmdb.sql.statement import Given, RowScope


def output_name(node: exp.Expr) -> str:
    """What PostgreSQL calls a column that was given no name."""
    if isinstance(node, exp.Alias):
        return folded(node.args["alias"])
    if isinstance(node, exp.Column):
        return folded(node.this)
    if isinstance(node, exp.Cast | exp.Paren):
        inner = output_name(node.this)
        return inner if inner != "?column?" or isinstance(node, exp.Paren) else node.to.this.value.lower()
    if isinstance(node, exp.Case):
        return "case"
    if isinstance(node, exp.Anonymous):
        return str(node.this).lower()
    if isinstance(node, exp.Func) and not isinstance(node, exp.And | exp.Or):
        return node.sql_name().lower()
    return "?column?"


class Projection:
    """The expressions of a select list over one table's rows."""

    def __init__(self, nodes: Sequence[exp.Expr], scope: Scope) -> None:
        self._scope = scope
        self.columns: list[Compiled] = []
        names: list[str] = []
        for node in nodes:
            for name, compiled in self._compile(node):
                names.append(name)
                self.columns.append(compiled)
        self.names = tuple(names)
        self.types: tuple[ColumnType | None, ...] = tuple(compiled.type for compiled in self.columns)
        self._evaluates = [compiled.evaluate for compiled in self.columns]
        self.make: Callable[[tuple[Any, ...], Given], tuple[Any, ...]] = self._picking(nodes) or self._make

    def _compile(self, node: exp.Expr) -> Iterator[tuple[str, Compiled]]:
        if isinstance(node, exp.Star) or (isinstance(node, exp.Column) and isinstance(node.this, exp.Star)):
            qualifier, scope = node.args.get("table"), self._scope
            if not isinstance(scope, RowScope) or not scope.is_own(qualifier):
                raise InvalidSyntax("there is no such table here for *", *place(node))
            for column in scope.columns:
                yield column.name, compile_expression(exp.column(exp.to_identifier(column.name, True)), self._scope)
            return
        inner = node.this if isinstance(node, exp.Alias) else node
        yield output_name(node), compile_expression(inner, self._scope)

    def _picking(self, nodes: Sequence[exp.Expr]) -> Callable[[tuple[Any, ...], Given], tuple[Any, ...]] | None:
        """What makes a row of the result, if it is nothing but columns."""
        if len(nodes) == 1 and isinstance(nodes[0], exp.Star):
            size = len(self.columns)
            return lambda row, _: row if len(row) == size else row[:size]
        plain = [node.this if isinstance(node, exp.Alias) else node for node in nodes]
        if not all(isinstance(node, exp.Column) and not isinstance(node.this, exp.Star) for node in plain):
            return None
        places = [self._scope.column(folded(node.this), None, node)[0] for node in plain]
        if len(places) == 1:
            (only,) = places
            return lambda row, _: (row[only],)
        pick = itemgetter(*places)
        return lambda row, _: pick(row)

    def _make(self, row: tuple[Any, ...], given: Given) -> tuple[Any, ...]:
        """A row of the result."""
        parameters, context = given
        return tuple([evaluate(row, parameters, context) for evaluate in self._evaluates])

    def chosen_by(self, node: exp.Expr) -> Compiled | None:
        """The column that ORDER BY means: by its number, or by its name if no column of the table has it."""
        if isinstance(node, exp.Literal) and not node.is_string:
            number = int(node.this)
            if not 1 <= number <= len(self.columns):
                raise NoSuchColumn(f"order by {number}: there are {len(self.columns)} columns")
            return self.columns[number - 1]
        if isinstance(node, exp.Column) and not node.args.get("table"):
            name = folded(node.this)
            return self.columns[self.names.index(name)] if name in self.names else None
        return None
