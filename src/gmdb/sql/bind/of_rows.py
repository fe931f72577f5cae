"""Expressions that the catalog keeps as texts: about a table's rows alone, so that no query and no parameter may be
part of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any

from sqlglot import exp

from gmdb.errors import NoSuchTable, SchemaError, UnsupportedExpression
from gmdb.format.columns import VARCHAR_MAX, ColumnType, parse_column
from gmdb.format.columns import Column as StoredColumn
from gmdb.sql import tree
from gmdb.sql.bind.binder import Binder, Catalog
from gmdb.sql.bind.coercion import fold, settled
from gmdb.sql.bind.expressions import bind, condition
from gmdb.sql.bind.scope import Scope
from gmdb.sql.dialect import parse_expression, place
from gmdb.sql.syntax import Written
from gmdb.sql.tree import Expression
from gmdb.sql.types import within
from gmdb.tables.catalog.schema import TableDefinition


class NoConnection(Catalog):
    """For what is bound without a connection, and so names no tables."""

    def __init__(self) -> None:
        """There is nothing to know."""

    def find(self, written: Written, in_view: bool, passed: set[str]) -> TableDefinition | None:
        del written, in_view, passed
        return None

    def no_such_table(self, written: Written, node: exp.Expr, others: Sequence[str] = ()) -> Exception:
        del node, others
        return NoSuchTable(f"there is no table {written}")

    def column_of(self, table: Written, node: exp.Expr) -> str:
        raise UnsupportedExpression(f"no schema stands before {table.name} here", *place(node), "Write the column")

    def current_schema(self, node: exp.Expr) -> str | None:
        raise UnsupportedExpression("current_schema() cannot stand here: it is another one for others", *place(node))

    def postgres_function(self, name: str, node: exp.Expr) -> Callable[..., Any]:
        raise UnsupportedExpression(f"{name} cannot stand here: it asks for definitions", *place(node))

    def sequence_function(self, name: str, node: exp.Expr) -> Callable[..., Any]:
        raise UnsupportedExpression(f"{name} can only stand alone here, as a column's default", *place(node))


def alone(node: exp.Expr, what: str) -> Binder:
    """What binds an expression that no query and no parameter may be part of."""
    for part, name in ((node.find(exp.Query, exp.Exists), "a query"), (node.find(exp.Placeholder), "a parameter")):
        if part is not None:
            raise UnsupportedExpression(f"{name} cannot stand in {what}", *place(part))
    return Binder(NoConnection(), {})


def bind_condition(node: exp.Expr, scope: Scope, what: str) -> Expression:
    """A condition of a table's rows; ``what`` it is, for a message."""
    return fold(condition(alone(node, what), node, scope))


def columns_of(columns: Iterable[StoredColumn]) -> list[tree.Column]:
    """Columns of a table, as expressions know them."""
    return [tree.Column(column.name, within(column.type), column.nullable) for column in columns]


@lru_cache(256)
def kept_condition(
    table: str, columns: Sequence[StoredColumn], text: str
) -> tuple[tuple[tree.Column, ...], Expression]:
    """A condition that the catalog keeps, and the columns of which it speaks: one for each of the table's."""
    own = columns_of(columns)
    return tuple(own), bind_condition(parse_expression(text), Scope.of_table(table, own), "a condition")


# ---- Expressions that indexes are on.


def bind_indexed(node: exp.Expr, table: str, columns: Sequence[StoredColumn], own: Sequence[tree.Column]) -> Expression:
    """An expression that an index is on; ``own``: the table's columns as it is to know them."""
    what = "an expression of an index"
    value = settled(bind(alone(node, what), node, Scope.of_table(table, own)))
    require_immutable(value, what, node)
    value = fold(value)
    numbers = {one: n for n, one in enumerate(own)}
    for base in (columns[numbers[one]] for one in tree.columns_of(value)):
        if base.type.is_lob:
            raise UnsupportedExpression(f"an index on an expression of {base.type} {base.name}", *place(node))
    return value


def indexed_type(value: Expression, node: exp.Expr) -> ColumnType:
    """The type that rows keep what an index is on in: as the expression's, but with texts and bytes in the row."""
    type_ = value.type
    if not type_.may_be_key:
        raise UnsupportedExpression(f"an index cannot be on a value of type {type_}", *place(node))
    if type_.may_be_apart:
        name = "VARCHAR" if type_.is_text else "VARBINARY"
        return ColumnType(name, VARCHAR_MAX)
    try:
        return parse_column("c", str(type_)).type
    except SchemaError:
        raise UnsupportedExpression(f"an index cannot be on a value of type {type_}", *place(node)) from None


def require_immutable(value: Expression, what: str, node: exp.Expr) -> None:
    """Refuse an expression that may give something else for the same row at another time."""
    by_zone = any(isinstance(part, tree.Call) and part.operation.zoned for part in value.walk())
    if by_zone or tree.is_volatile(value) or any(isinstance(part, tree.Now) for part in value.walk()):
        raise UnsupportedExpression(f"{what} must give the same at any time", *place(node))
