"""What INSERT, UPDATE and DELETE change: a table, as it is or through views.

A view is *updatable* if it is over one table, or another such view, and shows its rows as they are: no groups, no
DISTINCT, no LIMIT, no windows.  Its columns that are columns of the table can be given values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from sqlglot import exp

from gmdb.errors import NotSupportedError, SchemaError, UnsupportedExpression
from gmdb.process.late_dataclasses import dataclass
from gmdb.sql import tree
from gmdb.sql.bind.aggregates import has_aggregate
from gmdb.sql.bind.expressions import condition
from gmdb.sql.bind.names import SYSTEM_SCHEMAS
from gmdb.sql.bind.scope import ROWNUM, Item, Named, Scope, item_of, new_table
from gmdb.sql.bind.select import names_rownum
from gmdb.sql.bind.views import query_of
from gmdb.sql.dialect import place
from gmdb.sql.syntax import Written, folded, reading, table_name
from gmdb.sql.tree import Expression, Reference, Relation
from gmdb.tables.catalog.view_definitions import ViewDefinition

if TYPE_CHECKING:
    from gmdb.sql.bind.binder import Binder

Test = tuple[str, Expression]  # a condition of a view's, with its name


@dataclass(frozen=True, slots=True)
class Target:
    """What a statement changes rows of: a table, as it is or through views.

    ``relation``: the table's rows that can be changed.  ``item``: what expressions see of such a row.  ``positions``:
    which columns of the table can be given values, by the names that they have here.  ``tests``: the conditions of the
    views, and ``checks``: those that new rows must meet.
    """

    name: str
    table: tree.Table
    relation: Relation
    item: Item
    positions: Mapping[str, int]
    tests: tuple[Test, ...] = ()
    checks: tuple[Test, ...] = ()

    def position(self, name: str, scope: Scope, node: exp.Expr) -> int:
        """The column of the table that is to get a value."""
        position = self.positions.get(name)
        if position is None:
            scope.resolve(name, None, node)  # says which columns there are
            message = f"column {name} of view {self.name} is computed, and cannot be given a value"
            raise UnsupportedExpression(message, *place(node))
        return position


def change_target(binder: Binder, node: exp.Expr, name: Written, called: str) -> Target:
    """The table or view of a name, for its rows to be changed; ``called``: its alias, if it has one."""
    found = binder.named(node, name)
    if isinstance(found, ViewDefinition):
        if not found.number:
            raise UnsupportedExpression(f"what is in {found.schema} cannot be changed: {name}", *place(node))
        return view_target(binder, found, node, called)
    table = new_table(found, called or name.name)
    binder.declare(table.stored)
    item = item_of(table.alias, table.stored, table.row_id, table)
    item.columns = binder.known(found.name, item.columns)
    item.full_name = "" if called else found.name
    positions = {column.name: n for n, column in enumerate(found.columns)}
    return Target(found.name, table, table, item, {one.name: positions[one.name] for one in item.columns})


def view_target(binder: Binder, view: ViewDefinition, node: exp.Expr, called: str = "") -> Target:
    """The rows that can be changed through a view."""
    try:
        with binder.inside(view):
            below, outputs, test = _parts(binder, view)
    except _NotUpdatable as error:
        message = f"rows cannot be changed through view {view.name}: {error}"
        raise UnsupportedExpression(message, *place(node), "Change the tables themselves") from None
    names = view.column_names()
    if len(names) != len(outputs):
        raise SchemaError(f"view {view.name} has other columns than its query: drop the view and create it anew")
    stored = {column: n for n, column in enumerate(below.table.stored)}
    writable = set(below.positions.values())
    positions = {
        name: stored[value.column]
        for name, value in zip(names, outputs, strict=True)
        if isinstance(value, Reference) and stored.get(value.column) in writable
    }
    own = () if test is None else ((view.name, test),)
    tests = (*own, *below.tests)
    checks = {"cascaded": tests, "local": own}.get(view.check_option, ())
    _require_checkable(view, below.table, checks)
    relation = below.relation if test is None else tree.Filter(below.relation, test)
    shown = [Named(name, value) for name, value in zip(names, outputs, strict=True)]
    item = Item(called or view.own_name, shown, full_name="" if called else view.name)
    checks = tuple(dict.fromkeys((*checks, *below.checks)))
    return Target(view.name, below.table, relation, item, positions, tests, checks)


class _NotUpdatable(Exception):
    """Why rows cannot be changed through a view."""


def _parts(binder: Binder, view: ViewDefinition) -> tuple[Target, list[Expression], Expression | None]:
    """What an updatable view is over, with its columns and its condition."""
    query = query_of(view)
    if not isinstance(query, exp.Select):
        raise _NotUpdatable("it is not one SELECT")
    for clause, what in _OBSTACLES.items():
        if query.args.get(clause):
            raise _NotUpdatable(f"it has {what}")
    nodes: list[exp.Expr] = query.expressions
    if any(map(has_aggregate, nodes)) or any(node.find(exp.Window) for node in nodes):
        raise _NotUpdatable("it has aggregates or windows")
    source = query.args.get("from_")
    table = None if source is None else source.this
    if not isinstance(table, exp.Table) or not isinstance(table.this, exp.Identifier):
        raise _NotUpdatable("it is not over one table")
    with reading(query) as syntax, reading(table) as part:
        syntax.ignore("from_", "expressions", "where", "order")
        part.ignore("only")
        part.ignore("this", "db")
        name, alias, called = table_name(table), part.take("alias"), ""
        if part.list("joins"):
            raise _NotUpdatable("it is not over one table")
        if alias is not None:
            if alias.args.get("columns"):
                raise _NotUpdatable("it gives a table's columns other names in FROM")
            called = folded(alias.this)
    if binder.catalog.is_view(name.name) or name.schema in SYSTEM_SCHEMAS:
        raise _NotUpdatable(f"it is over {name}, which the system has")
    below = change_target(binder, table, name, called)
    below.item.columns = binder.known(below.name, below.item.columns)
    scope = Scope()
    scope.add(below.item)
    outputs = [value for _, value in binder.select_list(nodes, scope)]
    where = query.args.get("where")
    if where is None:
        return below, outputs, None
    if names_rownum(where.this) and not scope.has(ROWNUM):
        raise _NotUpdatable("it has rownum")
    return below, outputs, condition(binder, where.this, scope)


_OBSTACLES = {
    "with_": "WITH",
    "distinct": "DISTINCT",
    "group": "GROUP BY",
    "having": "HAVING",
    "limit": "LIMIT",
    "offset": "OFFSET",
    "joins": "joins",
    "windows": "windows",
    "laterals": "LATERAL",
}


def _require_checkable(view: ViewDefinition, table: tree.Table, tests: Sequence[Test]) -> None:
    """Refuse WITH CHECK OPTION where it takes more than a row to know whether it is one of the view."""
    for _, test in tests:
        if tree.has_queries(test) or not tree.columns_of(test) <= set(table.stored):
            raise NotSupportedError(
                f"view {view.name}: WITH CHECK OPTION needs conditions on columns of the table, without queries"
            )
