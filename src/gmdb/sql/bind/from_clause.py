"""FROM: tables, views, functions and queries, and their joins.

A join's names are known to its own ON only, so every table of a comma's list has a scope of its own until it is
complete.  LATERAL queries and functions see what stands to the left of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from gmdb.errors import (
    AmbiguousColumn,
    IllTyped,
    InvalidSyntax,
    NoSuchColumn,
    StatementError,
    UnsupportedExpression,
)
from gmdb.process.late_dataclasses import dataclass
from gmdb.sql import operations, tree
from gmdb.sql.bind.arrays import SUBSCRIPTS, UNNEST, subscripts, unnest
from gmdb.sql.bind.coercion import coerce, comparison, same_type
from gmdb.sql.bind.expressions import bind, condition
from gmdb.sql.bind.scope import Item, Named, Scope, item_of, nearest, new_table, where
from gmdb.sql.bind.views import query_of, read_view
from gmdb.sql.dialect import GmdbSql, place
from gmdb.sql.syntax import Syntax, folded, reading, table_name
from gmdb.sql.tree import Coalesce, Column, Constant, Expression, Join, Reference, Relation
from gmdb.sql.types import BIGINT, INT
from gmdb.tables.catalog.names import PUBLIC
from gmdb.tables.catalog.view_definitions import ViewDefinition

if TYPE_CHECKING:
    from gmdb.sql.bind.binder import Binder
    from gmdb.sql.operations.registry import RowFunction

_SERIES = "generate_series"


@dataclass(frozen=True, slots=True)
class _Alias:
    """``AS name(column, …)``; the name is empty if there is none."""

    name: str
    columns: tuple[str, ...]
    node: exp.Expr

    def renamed(self, columns: Sequence[Named]) -> list[Named]:
        """The columns under the names that are listed; the rest keep theirs."""
        names, extra = self.columns, len(self.columns) - len(columns)
        if extra > 0:
            raise StatementError(f"{len(names)} names for {len(columns)} columns", *place(self.node))
        kept = [one.name for one in columns[len(names) :]]
        return [Named(name, one.value) for name, one in zip((*names, *kept), columns, strict=True)]


def from_clause(binder: Binder, node: exp.Expr | None, joins: Sequence[exp.Expr], scope: Scope) -> Relation:
    """FROM and the joins behind it; its tables become names of the scope."""
    if node is None:
        if joins:
            raise InvalidSyntax("syntax error: JOIN needs FROM", *place(joins[0]))
        return tree.One()
    with reading(node) as syntax:
        first = syntax.need("this", "a table")
    return beside(binder, None, [first, *joins], scope)


def beside(binder: Binder, relation: Relation | None, nodes: Sequence[exp.Expr], scope: Scope) -> Relation:
    """What is there already, and tables with their joins beside it, as commas list them."""
    tables = _TableList(binder, relation, scope, scope)
    for node in nodes:
        tables.add(node)
    return tables.end()


class _TableList:
    """Tables as commas list them, each with the joins behind it, whose ON knows no other table of the list.

    ``left``: what LATERAL sees beside those that are added to ``into``; the same, if there is no more.
    """

    def __init__(self, binder: Binder, relation: Relation | None, left: Scope, into: Scope) -> None:
        self._binder = binder
        self._relation = relation
        self._left = left
        self._into = into
        self._scope = Scope(into.parent, into.views)  # of the table that is not complete
        self._table: Relation | None = None

    def add(self, node: exp.Expr) -> None:
        """A table, or one behind a comma, or a join with what was added last."""
        if isinstance(node, exp.Join):
            with reading(node) as syntax:
                if not _is_comma(node):
                    assert self._table is not None
                    self._table = _join(self._binder, syntax, self._table, self.beside, self._scope)
                    return
                node = syntax.need("this", "a table")
        scope = self.open()
        self._table = _item(self._binder, node, self.beside, scope)

    def open(self) -> Scope:
        """The scope of a table that is to begin."""
        self._complete()
        return self._scope

    def begin(self, table: Relation) -> None:
        self._table = table

    @property
    def beside(self) -> Scope:
        return self._into if self._left is self._into else _lateral_scope(self._left, self._into)

    def end(self) -> Relation:
        self._complete()
        assert self._relation is not None
        return self._relation

    def _complete(self) -> None:
        if self._table is not None:
            self._into.absorb(self._scope)
            self._relation = self._table if self._relation is None else _paired(self._relation, self._table)
        self._scope, self._table = Scope(self._into.parent, self._into.views), None


def _is_comma(node: exp.Expr) -> bool:
    parts = ("on", "using", "kind", "side", "method")
    return isinstance(node, exp.Join) and not any(node.args.get(name) for name in parts)


def _paired(left: Relation, right: Relation) -> Relation:
    return Join("inner", left, right, None, _is_lateral(left, right))


def _is_lateral(left: Relation, right: Relation) -> bool:
    return not tree.outer_columns(right).isdisjoint(left.columns)


# ---- tables


def _item(binder: Binder, node: exp.Expr, left: Scope, into: Scope) -> Relation:
    """One item of FROM, added to ``into``."""
    if isinstance(node, exp.Paren):
        with reading(node) as syntax:
            return _item(binder, syntax.need("this", "a table"), left, into)
    if isinstance(node, exp.Values):
        return _derived(binder, node, _alias(Syntax(node)), Scope(into.parent, into.views), into)
    with reading(node) as syntax:
        joins = syntax.list("joins")
        if not joins:
            return _plain_item(binder, syntax, left, into)
        inner = Scope(into.parent, into.views)
        tables = _TableList(binder, None, left, inner)
        tables.begin(_plain_item(binder, syntax, left, tables.open()))
        for join in joins:
            tables.add(join)
        relation = tables.end()
        into.absorb(inner)
        return relation


def _lateral_scope(left: Scope, inner: Scope) -> Scope:
    """What LATERAL sees: the joined tables to its left, and what stands beside those."""
    scope = Scope(left, inner.views)
    scope.items, scope.visible = list(inner.items), list(inner.visible)
    return scope


def _plain_item(binder: Binder, syntax: Syntax, left: Scope, into: Scope) -> Relation:
    node = syntax.node
    if isinstance(node, exp.Table):
        return _table(binder, syntax, left, into)
    if isinstance(node, exp.Unnest):
        return _unnest(binder, syntax, _alias(syntax), _lateral_scope(left, into), into)
    if isinstance(node, exp.Lateral):
        syntax.ignore("view", "outer")  # of another dialect; not set
        inner = syntax.need("this", "a query")
        if isinstance(inner, exp.Unnest):
            with reading(inner) as part:
                return _unnest(binder, part, _alias(syntax), _lateral_scope(left, into), into)
        if isinstance(inner, exp.Anonymous):
            return _function(binder, inner, _alias(syntax), left, into)
        return _derived(binder, inner, _alias(syntax), Scope(_lateral_scope(left, into)), into)
    if isinstance(node, exp.Subquery):
        inner = syntax.need("this", "a query")
        if isinstance(inner, exp.Query | exp.Values) and not _is_tables(inner):
            return _derived(binder, inner, _alias(syntax), Scope(into.parent, into.views), into)
        if syntax.take("alias") is not None:
            raise UnsupportedExpression("joined tables take no alias", *place(node), "Write a query: (SELECT ...) AS x")
        for join in inner.args.get("joins") or []:
            if _is_comma(join):
                raise InvalidSyntax("syntax error: commas cannot stand between joined tables", *place(join))
        return _item(binder, inner, left, into)
    raise UnsupportedExpression(f"{node.sql(dialect=GmdbSql)[:80]} cannot stand in FROM", *place(node))


def _is_tables(node: exp.Expr) -> bool:
    """Whether parentheses hold tables that are joined, rather than a query."""
    while isinstance(node, exp.Subquery) and not node.args.get("alias"):
        if node.args.get("joins"):
            return True
        node = node.this
    return isinstance(node, exp.Table) or (isinstance(node, exp.Subquery) and bool(node.args.get("alias")))


def _alias(syntax: Syntax) -> _Alias:
    node = syntax.take("alias")
    if not isinstance(node, exp.TableAlias):
        return _Alias(folded(node) if node is not None else "", (), syntax.node)
    with reading(node) as part:
        name = part.take("this")
        columns = tuple(folded(column) for column in part.list("columns"))
    return _Alias(folded(name) if name is not None else "", columns, node)


def _table(binder: Binder, syntax: Syntax, left: Scope, into: Scope) -> Relation:
    node, alias = syntax.node, _alias(syntax)
    what = syntax.need("this", "a table")
    if isinstance(what, exp.Anonymous):
        return _function(binder, what, alias, _lateral_scope(left, into), into)
    if not isinstance(what, exp.Identifier):
        raise UnsupportedExpression(f"{node.sql(dialect=GmdbSql)[:80]} cannot stand in FROM", *place(node))
    syntax.ignore("only")  # no table inherits from another
    syntax.ignore("db")
    written = table_name(node)
    name = written.name
    view = into.views.get(name) if not written.schema else None
    if view is not None:
        return _view(binder, name, view, alias, node, into)
    if binder.catalog.is_view(name) and written.schema in ("", PUBLIC):
        return _listing(binder, name, (), {}, alias, node, into)
    found = binder.named(node, written, tuple(into.views))
    if isinstance(found, ViewDefinition):
        return (_stored_view if found.number else _standard_view)(binder, found, alias, into)
    table = new_table(found, alias.name or name)
    binder.declare(table.stored)
    item = item_of(table.alias, table.stored, table.row_id, table)
    item.columns = alias.renamed(binder.known(found.name, item.columns))
    item.full_name = "" if alias.name else found.name
    into.add(item)
    return table


def _stored_view(binder: Binder, view: ViewDefinition, alias: _Alias, into: Scope) -> Relation:
    """A view of the database: its query, which sees nothing of the statement around it."""
    bound = read_view(binder, view)
    pairs = zip(view.column_names(), bound.relation.columns, strict=True)
    named = binder.known(view.name, [Named(name, Reference(column.type, column)) for name, column in pairs])
    full = "" if alias.name else view.name
    into.add(Item(alias.name or view.own_name, alias.renamed(named), full_name=full))
    return bound.relation


def _standard_view(binder: Binder, view: ViewDefinition, alias: _Alias, into: Scope) -> Relation:
    with binder.inside(view):
        bound = binder.query(query_of(view))
    pairs = zip(bound.names, bound.relation.columns, strict=True)
    named = alias.renamed([Named(n, Reference(c.type, c)) for n, c in pairs])
    full = "" if alias.name else f"{view.schema}.{view.name}"
    into.add(Item(alias.name or view.name, named, full_name=full))
    return bound.relation


def _view(binder: Binder, name: str, view: Any, alias: _Alias, node: exp.Expr, into: Scope) -> Relation:
    """What a query of a WITH clause gives, read here once more."""
    if not view.columns:
        message = f"{name} in WITH returns nothing that could be read"
        raise UnsupportedExpression(message, *place(node), "Give it RETURNING")
    outputs = [binder.output(shown, Reference(column.type, column))[0] for shown, column in view.columns]
    named = [Named(shown, Reference(new.type, new)) for (shown, _), new in zip(view.columns, outputs, strict=True)]
    into.add(Item(alias.name or name, alias.renamed(named)))
    return tree.Reading(view.cell, tuple(outputs))


def _derived(binder: Binder, node: exp.Expr, alias: _Alias, outside: Scope, into: Scope) -> Relation:
    """A query in FROM; ``outside`` is what it sees."""
    bound = binder.query(node, outside)
    pairs = zip(bound.names, bound.relation.columns, strict=True)
    named = [Named(name, Reference(column.type, column)) for name, column in pairs]
    item = Item(alias.name, alias.renamed(named))
    if alias.name:
        into.add(item)
    else:  # its columns have no table's name before them
        into.visible.extend(item.columns)
    return bound.relation


# ---- functions


def _function(binder: Binder, node: exp.Anonymous, alias: _Alias, left: Scope, into: Scope) -> Relation:
    """A function in FROM: generate_series, or one of the inspector's."""
    with reading(node) as syntax:
        name = syntax.need("this", "a name")
        name = folded(name) if isinstance(name, exp.Identifier) else str(name).lower()
        arguments = syntax.list("expressions")
    if name in (_SERIES, SUBSCRIPTS):
        return _series(binder, node, name, arguments, alias, left, into)
    if name == UNNEST:
        return _unnested(binder, node, arguments, alias, False, left, into)
    function = operations.row_function(name)
    if function is not None:
        return _function_rows(binder, node, function, arguments, alias, left, into)
    values: list[Any] = []
    options: dict[str, Any] = {}
    for one in arguments:
        if not isinstance(one, exp.Kwarg):
            values.append(_written(one))
            continue
        with reading(one) as part:
            options[part.need("this", "a name").name.lower()] = _written(part.need("expression", "a value"))
    return _listing(binder, name, values, options, alias, node, into)


def _written(node: exp.Expr) -> Any:
    """The value of a literal."""
    if not isinstance(node, exp.Literal):
        shown = node.sql(dialect=GmdbSql)[:80]
        message = f"{shown}: table functions of the inspector take texts and numbers, written out"
        raise UnsupportedExpression(message, *place(node))
    with reading(node) as syntax:
        text = syntax.take("this") or ""
        return text if syntax.flag("is_string") or not text.isdecimal() else int(text)


def _listing(
    binder: Binder,
    name: str,
    values: Sequence[Any],
    options: dict[str, Any],
    alias: _Alias,
    node: exp.Expr,
    into: Scope,
) -> Relation:
    """A system view, or a function of the inspector."""
    columns = tuple(binder.listing(node, name, values, options))
    binder.declare(columns)
    item = item_of(alias.name or name, columns)
    item.columns = alias.renamed(binder.known(name, item.columns))
    into.add(item)
    return tree.Listing(name, columns, tuple(values), tuple(options.items()), binder.catalog.is_view(name))


def _unnest(binder: Binder, syntax: Syntax, alias: _Alias, left: Scope, into: Scope) -> Relation:
    """unnest(...), of which the parser takes the last of the names for that of WITH ORDINALITY."""
    number = syntax.take("offset")
    if isinstance(number, exp.Identifier):
        alias = _Alias(alias.name, (*alias.columns, folded(number)), alias.node)
    return _unnested(binder, syntax.node, syntax.list("expressions"), alias, number is not None, left, into)


def _unnested(
    binder: Binder,
    node: exp.Expr,
    arguments: Sequence[exp.Expr],
    alias: _Alias,
    with_number: bool,
    left: Scope,
    into: Scope,
) -> Relation:
    relation = unnest(binder, node, arguments, alias.columns, alias.name or UNNEST, left, with_number)
    into.add(item_of(alias.name or UNNEST, relation.columns))
    return relation


def _series(
    binder: Binder,
    node: exp.Expr,
    name: str,
    arguments: Sequence[exp.Expr],
    alias: _Alias,
    left: Scope,
    into: Scope,
) -> Relation:
    """generate_series of integers, or those of an array's subscripts."""
    if name == _SERIES and len(arguments) not in (2, 3):
        raise IllTyped(f"{_SERIES} takes a first number, a last one and perhaps a step", *place(node))
    if name == _SERIES:
        bounds = [bind(binder, one, left) for one in arguments]
    else:
        bounds = list(subscripts(binder, node, arguments, left))
    type_ = BIGINT if any(one.type == BIGINT for one in bounds) else INT
    start, stop, *step = (coerce(one, type_, node) for one in bounds)
    if len(alias.columns) > 1:
        raise StatementError(f"{len(alias.columns)} names for 1 columns", *place(node))
    column = Column((*alias.columns, alias.name or name)[0], type_)
    into.add(item_of(alias.name or name, [column]))
    return tree.Series(start, stop, step[0] if step else Constant(type_, 1), column)


def _function_rows(
    binder: Binder,
    node: exp.Expr,
    function: RowFunction,
    arguments: Sequence[exp.Expr],
    alias: _Alias,
    left: Scope,
    into: Scope,
) -> Relation:
    """A function that gives rows."""
    values = [bind(binder, one, left) for one in arguments]
    if len(values) != len(function.takes):
        raise IllTyped(f"{function.name} takes {len(function.takes)} values, not {len(values)}", *place(node))
    taken = tuple(coerce(value, type_, node) for value, type_ in zip(values, function.takes, strict=True))
    name = alias.name or function.name
    columns = tuple(map(Column, function.names or (name,), function.gives))
    item = item_of(name, columns)
    item.columns = alias.renamed(item.columns)
    if len(columns) == 1:  # the function's alias means its only column, too
        item.hidden = [Named(name, Reference(columns[0].type, columns[0]))]
    into.add(item)
    return tree.FunctionRows(function, taken, columns)


# ---- joins


def _join(binder: Binder, syntax: Syntax, left: Relation, outside: Scope, into: Scope) -> Relation:
    """What is joined so far, and one more table."""
    side = syntax.word("side", "LEFT", "RIGHT", "FULL")
    kind = syntax.word("kind", "INNER", "CROSS", "OUTER")
    natural = bool(syntax.word("method", "NATURAL"))
    if (kind == "OUTER") != bool(side) and kind:
        raise InvalidSyntax(f"syntax error: {f'{side} {kind}'.strip()} JOIN is not a join", *place(syntax.node))
    inner = Scope(into.parent, into.views)
    right = _item(binder, syntax.need("this", "a table"), _lateral_scope(outside, into), inner)
    on, names = syntax.take("on"), [folded(one) for one in syntax.list("using")]
    lefts, rights = list(into.visible), list(inner.visible)
    if sum((natural, kind == "CROSS", on is not None, bool(names))) > 1:
        raise InvalidSyntax("syntax error: a join is CROSS, NATURAL, or has ON or USING", *place(syntax.node))
    if natural:
        known = {one.name for one in rights}
        names = list(dict.fromkeys(one.name for one in lefts if one.name in known))
    is_lateral = _is_lateral(left, right)
    if is_lateral and side in ("RIGHT", "FULL"):
        hint = "Only INNER and LEFT JOIN may have it on their right"
        raise UnsupportedExpression(f"LATERAL cannot depend on the left side of {side} JOIN", *place(syntax.node), hint)
    into.absorb(inner)
    test: Expression | None = None
    if names:
        test, merged = _merge(names, lefts, rights, side, syntax.node)
        into.visible = [*merged, *(one for one in (*lefts, *rights) if one.name not in names)]
    elif on is not None:
        test = condition(binder, on, into)
    elif not natural and kind != "CROSS":
        raise InvalidSyntax("syntax error: JOIN needs ON or USING", *place(syntax.node))
    return Join(side.lower() or "inner", left, right, test, is_lateral)


def _merge(
    names: Sequence[str], lefts: Sequence[Named], rights: Sequence[Named], side: str, node: exp.Expr
) -> tuple[Expression | None, list[Named]]:
    """USING: the condition, and the columns that stand for those of both sides."""
    tests, merged = [], []
    for name in dict.fromkeys(names):
        a, b = _only(name, lefts, node), _only(name, rights, node)
        tests.append(comparison("=", a, b, node))
        pair, type_ = same_type([a, b], "USING", node)
        if side == "FULL":
            value: Expression = Coalesce(type_, tuple(pair))
        elif a.type.name == b.type.name:
            value = b if side == "RIGHT" else a
        else:  # of inner joins, the side that has the type of both
            value = pair[1] if side == "RIGHT" or (not side and pair[1] is b) else pair[0]
        merged.append(Named(name, value))
    return tree.conjunction(tests), merged


def _only(name: str, columns: Sequence[Named], node: exp.Expr) -> Expression:
    values = [one.value for one in columns if one.name == name]
    if not values:
        hint = nearest(name, [one.name for one in columns])
        raise NoSuchColumn(f"{where(node)}there is no column {name} on one side of the join{hint}")
    if len(values) > 1:
        raise AmbiguousColumn(f"column {name} is there twice on one side of the join", *place(node))
    return values[0]
