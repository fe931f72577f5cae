"""Aggregates and window functions.

count                      BIGINT
sum of INT                 BIGINT; of BIGINT and DECIMAL a DECIMAL; of DOUBLE a DOUBLE
avg, stddev, variance      DECIMAL, or DOUBLE of a DOUBLE
rank and the like          BIGINT; ntile INT; percent_rank and cume_dist DOUBLE
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from sqlglot import exp

from gmdb.errors import IllTyped, NoSuchFunction, UnsupportedExpression
from gmdb.sql.duck.arithmetic import divide
from gmdb.sql.duck.casts import as_boolean, as_text, coerce
from gmdb.sql.duck.expressions import HANDLERS, bind, condition, handles, same_type
from gmdb.sql.duck.functions import integer
from gmdb.sql.duck.scope import Scope, folded, spot
from gmdb.sql.duck.types import (
    BIGINT,
    BOOLEAN,
    DOUBLE,
    INT,
    QUOTIENT_SCALE,
    TEXT,
    Bound,
    decimal,
    is_integer,
    is_number,
)

if TYPE_CHECKING:
    from gmdb.sql.duck.query import Statement

_SPREADS: dict[type[exp.Expr], str] = {
    exp.Stddev: "stddev_samp",
    exp.StddevSamp: "stddev_samp",
    exp.StddevPop: "stddev_pop",
    exp.Variance: "var_samp",
    exp.VariancePop: "var_pop",
}
_PAIRS: dict[type[exp.Expr], str] = {exp.Corr: "corr", exp.CovarPop: "covar_pop", exp.CovarSamp: "covar_samp"}
_BITS: dict[type[exp.Expr], str] = {
    exp.BitwiseAndAgg: "bit_and",
    exp.BitwiseOrAgg: "bit_or",
    exp.BitwiseXorAgg: "bit_xor",
}
_TRUTHS: dict[type[exp.Expr], str] = {exp.LogicalAnd: "bool_and", exp.LogicalOr: "bool_or"}
_EXTREMES: dict[type[exp.Expr], str] = {exp.Min: "min", exp.Max: "max", exp.AnyValue: "any_value"}
_RANKS: dict[type[exp.Expr], str] = {exp.RowNumber: "row_number", exp.Rank: "rank", exp.DenseRank: "dense_rank"}
_SHARES: dict[type[exp.Expr], str] = {exp.PercentRank: "percent_rank", exp.CumeDist: "cume_dist"}
_NEIGHBOURS: dict[type[exp.Expr], str] = {exp.Lag: "lag", exp.Lead: "lead"}
_PICKS: dict[type[exp.Expr], str] = {
    exp.FirstValue: "first_value",
    exp.LastValue: "last_value",
    exp.NthValue: "nth_value",
}
_EVERY = "every"
_SQUARE_SCALE = 8  # of the variance of BIGINTs, which may have 30 digits before the point
WINDOW_ONLY: tuple[type[exp.Expr], ...] = (*_RANKS, *_SHARES, *_NEIGHBOURS, *_PICKS, exp.Ntile)
AGGREGATES: tuple[type[exp.Expr], ...] = (
    exp.Count,
    exp.Sum,
    exp.Avg,
    exp.GroupConcat,
    exp.WithinGroup,
    *_SPREADS,
    *_PAIRS,
    *_BITS,
    *_TRUTHS,
    *_EXTREMES,
)


def is_aggregate(node: exp.Expr) -> bool:
    return isinstance(node, AGGREGATES) or (isinstance(node, exp.Anonymous) and str(node.this).lower() == _EVERY)


def has_aggregate(node: exp.Expr) -> bool:
    """Whether an expression has an aggregate of its own query: not of a subquery, not one over a window."""
    pending = [node]
    while pending:
        part = pending.pop()
        if isinstance(part, exp.Query) and part is not node:
            continue
        if isinstance(part, exp.Window):
            inner = part.this
            while isinstance(inner, exp.Filter | exp.IgnoreNulls | exp.RespectNulls):
                inner = inner.this
            pending += [child for child in part.iter_expressions() if child is not part.this]
            pending += list(inner.iter_expressions())
            continue
        if is_aggregate(part):
            return True
        pending += list(part.iter_expressions())
    return False


@handles(*AGGREGATES, exp.Filter)
def _aggregate(statement: Statement, node: exp.Expr, scope: Scope) -> Bound:
    """An aggregate over the groups of a query."""
    grouping = scope.grouping
    if grouping is None:
        raise IllTyped("an aggregate cannot stand here", *spot(node), "Use HAVING, or a query in FROM")
    if grouping.inside_aggregate:
        raise IllTyped("an aggregate cannot be within another", *spot(node))
    grouping.inside_aggregate = True
    try:
        return _calculate(statement, node, scope, "")
    finally:
        grouping.inside_aggregate = False


_scalar_anonymous = HANDLERS[exp.Anonymous]


@handles(exp.Anonymous)
def _anonymous(statement: Statement, node: exp.Expr, scope: Scope) -> Bound:
    handler = _aggregate if is_aggregate(node) else _scalar_anonymous
    return handler(statement, node, scope)


def _calculate(statement: Statement, node: exp.Expr, scope: Scope, over: str) -> Bound:
    """An aggregate's SQL; ``over`` follows every call that it is made of."""
    if isinstance(node, exp.Filter):
        only = f" FILTER (WHERE {condition(statement, node.expression.this, scope)})"
        return _calculate(statement, node.this, scope, only + over)
    if isinstance(node, exp.WithinGroup):
        return _within_group(statement, node, scope, over)
    if isinstance(node, exp.GroupConcat):
        return _string_agg(statement, node, scope, over)
    if isinstance(node, exp.Count) and (node.this is None or isinstance(node.this, exp.Star)):
        return Bound(f"count(*){over}", BIGINT)
    argument = node.expressions[0] if isinstance(node, exp.Anonymous) else node.this
    distinct = ""
    if isinstance(argument, exp.Distinct):
        if len(argument.expressions) != 1:
            raise UnsupportedExpression("DISTINCT within an aggregate takes one expression", *spot(node))
        distinct, argument = "DISTINCT ", argument.expressions[0]
    value = bind(statement, argument, scope)

    def call(name: str, sql: str = value.sql) -> str:
        return f"{name}({distinct}{sql}){over}"

    if isinstance(node, exp.Count):
        value = value if value.type is not None else coerce(value, TEXT, node)
        return Bound(call("count", value.sql), BIGINT)
    if isinstance(node, exp.Sum | exp.Avg) or type(node) in _SPREADS:
        return _numeric(node, value, call)
    if type(node) in _PAIRS:
        other = bind(statement, node.expression, scope)
        sides = ", ".join(f"CAST({side.sql} AS DOUBLE)" for side in (value, other))
        return Bound(call(_PAIRS[type(node)], sides), DOUBLE)
    if type(node) in _EXTREMES:
        if node.expressions:
            raise IllTyped(f"{_EXTREMES[type(node)]} takes one value", *spot(node), "Use greatest or least for several")
        if value.type in (None, BOOLEAN):
            value = coerce(value, TEXT, node) if value.type is None else _no_aggregate(node, value)
        return Bound(call(_EXTREMES[type(node)], value.sql), value.type)
    if type(node) in _BITS:
        if not is_integer(value.type):
            _no_aggregate(node, value)
        return Bound(call(_BITS[type(node)]), value.type)
    return Bound(call(_TRUTHS.get(type(node), "bool_and"), as_boolean(value, node).sql), BOOLEAN)


def _no_aggregate(node: exp.Expr, value: Bound) -> Bound:
    name = value.type.name if value.type else "unknown"
    raise IllTyped(f"there is no {node.sql_name().lower()}({name})", *spot(node))  # type: ignore[attr-defined]


def _numeric(node: exp.Expr, value: Bound, call: Callable[..., str]) -> Bound:
    """sum, avg, stddev and variance."""
    if not is_number(value.type):
        _no_aggregate(node, value)
    type_ = value.type
    assert type_ is not None
    exact = type_ != DOUBLE
    if isinstance(node, exp.Sum):
        if not exact:
            return Bound(call("sum"), DOUBLE)
        gives = BIGINT if type_ == INT else decimal(38, type_.scale)
        return Bound(f"CAST({call('sum')} AS {'BIGINT' if type_ == INT else f'DECIMAL(38,{type_.scale})'})", gives)
    if isinstance(node, exp.Avg):
        if not exact:
            return Bound(call("avg"), DOUBLE)
        total = Bound(call("sum"), decimal(38, type_.scale) if type_.name == "DECIMAL" else BIGINT)
        number = f"nullif({call('count')}, 0)"
        return divide(total, Bound(number, BIGINT), node, known_divisor=True)
    sql = call(_SPREADS[type(node)], f"CAST({value.sql} AS DOUBLE)")
    if not exact:
        return Bound(sql, DOUBLE)
    scale = _SQUARE_SCALE if type_ == BIGINT and _SPREADS[type(node)].startswith("var") else QUOTIENT_SCALE
    return Bound(f"CAST(printf('%.15g', {sql}) AS DECIMAL(38,{scale}))", decimal(38, scale))


def _string_agg(statement: Statement, node: exp.Expr, scope: Scope, over: str) -> Bound:
    argument, order, distinct = node.this, "", ""
    if isinstance(argument, exp.Order):
        order = f" ORDER BY {order_by(statement, argument.expressions, scope)}"
        argument = argument.this
    if isinstance(argument, exp.Distinct):
        distinct, argument = "DISTINCT ", argument.expressions[0]
    value = as_text(bind(statement, argument, scope), node)
    separator = node.args.get("separator")
    if separator is None:
        raise IllTyped("string_agg needs a separator", *spot(node))
    between = as_text(bind(statement, separator, scope), node)
    return Bound(f"string_agg({distinct}{value.sql}, {between.sql}{order}){over}", TEXT)


def _within_group(statement: Statement, node: exp.Expr, scope: Scope, over: str) -> Bound:
    order = node.expression.expressions
    value = bind(statement, order[0].this, scope)
    if isinstance(node.this, exp.Mode):
        return Bound(f"mode({value.sql}){over}", value.type)
    continuous = isinstance(node.this, exp.PercentileCont)
    if not continuous and not isinstance(node.this, exp.PercentileDisc):
        raise UnsupportedExpression("WITHIN GROUP takes percentile_cont, percentile_disc and mode", *spot(node))
    share = f"CAST({bind(statement, node.this.this, scope).sql} AS DOUBLE)"
    if order[0].args.get("desc"):
        share = f"(1 - {share})"
    if continuous:
        return Bound(f"quantile_cont(CAST({value.sql} AS DOUBLE), {share}){over}", DOUBLE)
    return Bound(f"quantile_disc({value.sql}, {share}){over}", value.type)


def order_by(statement: Statement, items: list[exp.Expr], scope: Scope) -> str:
    """The terms of an ORDER BY over the scope's columns."""
    return ", ".join(ordered(item, bind(statement, item.this, scope)) for item in items)


def ordered(item: exp.Expr, value: Bound) -> str:
    """One term; NULLs come last going up and first going down, and blanks at the end of a CHAR do not count."""
    if value.type is None:
        value = coerce(value, TEXT, item)
    sql = f"rtrim({value.sql}, ' ')" if value.type is not None and value.type.name == "CHAR" else value.sql
    if sql.isdecimal():
        sql = f"CAST({sql} AS BIGINT)"  # a bare number would be that of a column
    elif sql.startswith("'"):
        sql = f"CAST({sql} AS VARCHAR)"
    descending = bool(item.args.get("desc"))
    nulls = item.args.get("nulls_first")
    nulls_first = descending if nulls is None else bool(nulls)
    return f"{sql} {'DESC' if descending else 'ASC'} NULLS {'FIRST' if nulls_first else 'LAST'}"


@handles(*WINDOW_ONLY)
def _misplaced(_statement: Statement, node: exp.Expr, _scope: Scope) -> Bound:
    raise IllTyped(f"{node.sql_name().lower()} needs OVER (...)", *spot(node))  # type: ignore[attr-defined]


@handles(exp.Window)
def _window(statement: Statement, node: exp.Expr, scope: Scope) -> Bound:
    above = node.find_ancestor(exp.Query, exp.Where, exp.Having, exp.Group, exp.Join, exp.AggFunc, exp.Window)
    if above is not None and not isinstance(above, exp.Query):
        raise IllTyped("a window function cannot stand here", *spot(node), "Use a query in FROM")
    over = f" OVER ({_window_clause(statement, node, scope)})"
    target = node.this
    if isinstance(target, exp.IgnoreNulls | exp.RespectNulls):
        raise UnsupportedExpression("IGNORE NULLS and RESPECT NULLS are not supported", *spot(node))
    kind = type(target)
    if kind in _RANKS:
        return Bound(f"{_RANKS[kind]}(){over}", BIGINT)
    if kind in _SHARES:
        return Bound(f"{_SHARES[kind]}(){over}", DOUBLE)
    if kind is exp.Ntile:
        parts = integer("ntile", bind(statement, target.this, scope), node)
        return Bound(f"CAST(ntile({parts}){over} AS INTEGER)", INT)
    if kind in _NEIGHBOURS:
        return _neighbour(statement, target, scope, over)
    if kind in _PICKS:
        value = bind(statement, target.this, scope)
        value = value if value.type is not None else coerce(value, TEXT, node)
        place = target.args.get("offset")
        which = f", {integer('nth_value', bind(statement, place, scope), node)}" if place is not None else ""
        return Bound(f"{_PICKS[kind]}({value.sql}{which}){over}", value.type)
    inner = target.this if isinstance(target, exp.Filter) else target
    if not is_aggregate(inner):
        raise NoSuchFunction(f"{target.sql(dialect='postgres')} is no window function", *spot(node))
    return _calculate(statement, target, scope, over)


def _neighbour(statement: Statement, node: exp.Expr, scope: Scope, over: str) -> Bound:
    value = bind(statement, node.this, scope)
    offset, default = node.args.get("offset"), node.args.get("default")
    distance = integer("lag", bind(statement, offset, scope), node) if offset is not None else "1"
    name = _NEIGHBOURS[type(node)]
    if default is None:
        value = value if value.type is not None else coerce(value, TEXT, node)
        return Bound(f"{name}({value.sql}, {distance}){over}", value.type)
    (value, other), type_ = same_type([value, bind(statement, default, scope)], node, name)
    return Bound(f"{name}({value.sql}, {distance}, {other.sql}){over}", type_)


def _window_clause(statement: Statement, node: exp.Expr, scope: Scope) -> str:
    """What stands between OVER's parentheses, with a named window written out."""
    parts = []
    alias = node.args.get("alias")
    base = None
    if alias is not None:
        base = scope.windows.get(folded(alias))
        if base is None:
            raise IllTyped(f"there is no window {alias.name}", *spot(node))
        inherited = _window_clause(statement, base, scope)
        if inherited:
            parts.append(inherited)
    partition = node.args.get("partition_by")
    if partition:
        keys = [_partition_key(bind(statement, item, scope), item) for item in partition]
        parts.append(f"PARTITION BY {', '.join(keys)}")
    order = node.args.get("order")
    if order is not None:
        parts.append(f"ORDER BY {order_by(statement, order.expressions, scope)}")
    spec = node.args.get("spec")
    if spec is not None:
        parts.append(_frame(statement, spec, scope))
    return " ".join(parts)


def _partition_key(bound: Bound, node: exp.Expr) -> str:
    return (coerce(bound, TEXT, node) if bound.type is None else bound).sql


def _frame(statement: Statement, spec: exp.Expr, scope: Scope) -> str:
    def edge(value: object, side: object, otherwise: str) -> str:
        if value is None:
            return otherwise
        if isinstance(value, exp.Expr):
            return f"{bind(statement, value, scope).sql} {str(side).upper()}"
        return f"{str(value).upper()} {str(side).upper()}" if side else str(value).upper()

    start = edge(spec.args.get("start"), spec.args.get("start_side"), "UNBOUNDED PRECEDING")
    end = edge(spec.args.get("end"), spec.args.get("end_side"), "CURRENT ROW")
    exclude = spec.args.get("exclude")
    last = f" EXCLUDE {exclude.name if isinstance(exclude, exp.Expr) else exclude}" if exclude else ""
    return f"{str(spec.args['kind']).upper()} BETWEEN {start} AND {end}{last}"
