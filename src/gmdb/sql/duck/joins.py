"""FROM: tables, subqueries and their joins, as DuckDB's SQL and as names in a scope."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from gmdb.errors import AmbiguousColumn, NoSuchColumn, NoSuchTable, UnsupportedExpression
from gmdb.sql.duck.arithmetic import comparable
from gmdb.sql.duck.expressions import bind, condition, same_type
from gmdb.sql.duck.functions import integer
from gmdb.sql.duck.names import is_listing, listing_name
from gmdb.sql.duck.scope import Item, Named, Scope, TableUse, folded, nearest, place, rename, spot
from gmdb.sql.duck.types import BIGINT, INT, Bound, duck_type, within

if TYPE_CHECKING:
    from gmdb.sql.duck.query import Statement


def from_clause(statement: Statement, node: exp.Expr, scope: Scope) -> str:
    """The FROM of a SELECT; its tables become names in the scope."""
    from_ = node.args.get("from_")
    if from_ is None:
        return ""
    sql = _item(statement, from_.this, scope, scope)
    for join in node.args.get("joins") or []:
        sql = _join(statement, sql, join, scope)
    return sql


def _item(statement: Statement, node: exp.Expr, scope: Scope, into: Scope) -> str:
    """One table or subquery, added to ``into``; ``scope`` is what a LATERAL one sees."""
    joins = node.args.get("joins")
    if joins:
        inner = Scope(into.parent, into.views)
        sql = _plain_item(statement, node, scope, inner)
        for join in joins:
            sql = _join(statement, sql, join, inner)
        into.absorb(inner)
        into.references |= inner.references
        return f"({sql})"
    return _plain_item(statement, node, scope, into)


def _plain_item(statement: Statement, node: exp.Expr, scope: Scope, into: Scope) -> str:
    if isinstance(node, exp.Table):
        if isinstance(node.this, exp.ExplodingGenerateSeries | exp.GenerateSeries):
            return _series(statement, node, scope, into)
        return _table(statement, node, into)
    if isinstance(node, exp.Lateral):
        return "LATERAL " + _derived(statement, node.this.unnest(), node, scope, into)
    if (
        isinstance(node, exp.Subquery)
        and isinstance(node.this, exp.Table | exp.Subquery)
        and not node.args.get("alias")
    ):
        return _item(statement, node.this, scope, into)
    if isinstance(node, exp.Subquery):
        return _derived(statement, node.this, node, into.parent, into)
    if isinstance(node, exp.Values):
        return _derived(statement, node, node, into.parent, into)
    if isinstance(node, exp.Paren):
        return _item(statement, node.this, scope, into)
    raise UnsupportedExpression(f"{node.sql(dialect='postgres')[:80]} cannot stand in FROM", *spot(node))


def _alias(node: exp.Expr, otherwise: str) -> tuple[str, list[str]]:
    alias = node.args.get("alias")
    if alias is None:
        return otherwise, []
    columns = alias.args.get("columns") if isinstance(alias, exp.TableAlias) else None
    name = alias.this if isinstance(alias, exp.TableAlias) else alias
    return folded(name) if name is not None else otherwise, [folded(column) for column in columns or []]


def _table(statement: Statement, node: exp.Expr, into: Scope) -> str:
    if not isinstance(node.this, exp.Identifier) and not is_listing(node.this):
        raise UnsupportedExpression(f"{node.sql(dialect='postgres')[:80]} cannot stand in FROM", *spot(node))
    if node.args.get("sample") is not None:
        raise UnsupportedExpression("TABLESAMPLE is not supported", *spot(node))
    name = listing_name(node.this) if is_listing(node.this) else folded(node.this)
    alias, names = _alias(node, name.partition("(")[0] if is_listing(node.this) else name)
    own = statement.name()
    view = into.views.get(name) if node.args.get("db") is None else None
    if view is not None:
        columns = []
        for position, column in enumerate(view.columns):
            new = f"{own}_c{position}"
            statement.outputs[new] = {column.bound.sql}
            bound = Bound(new, column.bound.type, column.bound.declared, references=frozenset([new]))
            columns.append(Named(column.name, bound))
        into.add(Item(alias, rename(columns, names, node)))
        return f"{view.sql} AS {own}({', '.join(column.bound.sql for column in columns)})"
    source = statement.tables.get(name)
    if source is None:
        known = [*statement.tables, *into.views]
        raise NoSuchTable(f"{place(node)}there is no table {name}{nearest(name, known)}")
    shown = list(source.columns)
    hidden = list(getattr(source, "hidden", ()))
    use = TableUse(own, name, [*shown, *hidden])
    columns = []
    for position, stored in enumerate(use.columns):
        new = f"{own}_c{position}"
        use.names.append(new)
        columns.append(
            Named(stored.name, Bound(new, within(stored.type), not stored.type.is_lob, references=frozenset([new])))
        )
    statement.uses.append(use)
    into.add(Item(alias, rename(columns[: len(shown)], names, node), columns[len(shown) :]))
    return own


def _derived(statement: Statement, query_node: exp.Expr, node: exp.Expr, parent: Scope | None, into: Scope) -> str:
    """A query in FROM; only a LATERAL one sees the tables to its left."""
    own = statement.name()
    alias, names = _alias(node, own)
    relation = statement.query(query_node, parent, into.views)
    into.add(Item(alias, rename(relation.columns, names, node)))
    return f"({relation.sql}) AS {own}"


def _series(statement: Statement, node: exp.Expr, scope: Scope, into: Scope) -> str:
    """generate_series of integers."""
    call = node.this
    bounds = [bind(statement, call.args[key], scope) for key in ("start", "end", "step") if call.args.get(key)]
    type_ = BIGINT if any(bound.type == BIGINT for bound in bounds) else INT
    start, end, *step = (integer("generate_series", bound, node) for bound in bounds)
    numbers = ", ".join([start, f"gm_last({start}, {end}, {step[0] if step else 1})", *step])
    own = statement.name()
    alias, names = _alias(node, "generate_series")
    name = names[0] if names else alias
    column = f"{own}_c0"
    into.add(Item(alias, [Named(name, Bound(column, type_, references=frozenset([column])))]))
    inner = f"SELECT CAST(g AS {duck_type(type_)}) AS {column} FROM generate_series({numbers}) AS s(g)"
    return f"({inner}) AS {own}"


def _join(statement: Statement, left: str, join: exp.Expr, scope: Scope) -> str:
    side = (join.args.get("side") or "").upper()
    kind = (join.args.get("kind") or "").upper()
    natural = (join.args.get("method") or "").upper() == "NATURAL"
    if kind not in ("", "INNER", "CROSS", "OUTER") or (join.args.get("method") and not natural):
        raise UnsupportedExpression(f"{kind or join.args['method']} JOIN is not supported", *spot(join))
    right_scope = Scope(scope.parent, scope.views)
    right = _item(statement, join.this, scope, right_scope)
    on, using = join.args.get("on"), [folded(column) for column in join.args.get("using") or []]
    if natural:
        names = {column.name for column in right_scope.visible}
        using = [column.name for column in scope.visible if column.name in names]
    left_visible, right_visible = list(scope.visible), list(right_scope.visible)
    scope.absorb(right_scope)
    scope.references |= right_scope.references
    if using:
        terms, merged = _merge(using, left_visible, right_visible, side, join, scope)
        rest = [c for c in [*left_visible, *right_visible] if c.name not in using]
        scope.visible = [*merged, *rest]
        clause = f" ON {' AND '.join(terms)}"
    elif on is not None:
        clause = f" ON {condition(statement, on, scope)}"
    elif side:
        clause = " ON TRUE"
    else:
        return f"{left} CROSS JOIN {right}"
    return f"{left} {side or 'INNER'} JOIN {right}{clause}"


def _merge(
    using: list[str],
    left: list[Named],
    right: list[Named],
    side: str,
    node: exp.Expr,
    scope: Scope,
) -> tuple[list[str], list[Named]]:
    """USING: the conditions, and the columns that stand for both sides'."""
    terms, merged = [], []
    for name in using:
        a, b = _only(name, left, node), _only(name, right, node)
        scope.references |= a.references | b.references
        one, other = comparable(a, b, node, "USING")
        terms.append(f"({one.sql} = {other.sql})")
        if side == "FULL":
            pair, type_ = same_type([a, b], node, "USING")
            bound = Bound(f"coalesce({pair[0].sql}, {pair[1].sql})", type_, references=a.references | b.references)
        else:
            bound = b if side == "RIGHT" else a
        merged.append(Named(name, bound))
    return terms, merged


def _only(name: str, columns: list[Named], node: exp.Expr) -> Bound:
    found = [column.bound for column in columns if column.name == name]
    if not found:
        near = nearest(name, [column.name for column in columns])
        raise NoSuchColumn(f"{place(node)}there is no column {name} on one side of the join{near}")
    if len(found) > 1:
        raise AmbiguousColumn(f"column {name} is there twice on one side of the join", *spot(node))
    return found[0]
