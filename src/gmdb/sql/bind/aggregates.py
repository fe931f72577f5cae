"""Aggregates and calls over windows: they become columns of the groups and windows of the query that they stand in.

Binding an expression gives a reference to such a column.  An aggregate's own arguments are expressions over the
rows, so while they are bound the scope does not know groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from gmdb.errors import IllTyped, InvalidSyntax, UnsupportedExpression
from gmdb.format.columns import ColumnType
from gmdb.process.late_dataclasses import dataclass, replace
from gmdb.sql import operations, tree
from gmdb.sql.bind.calls import no_function, special, value_or_row
from gmdb.sql.bind.coercion import apply, assign, coerce, convert, described, settled
from gmdb.sql.bind.equality import compared, require_equality
from gmdb.sql.bind.expressions import bind, condition, handles
from gmdb.sql.bind.scope import Scope, WindowCalls
from gmdb.sql.dialect import place
from gmdb.sql.operations.aggregates import AGGREGATES, DOCUMENTS, SORTED, WINDOW_ONLY
from gmdb.sql.syntax import Syntax, folded, reading
from gmdb.sql.tree import Expression, Frame, SortKey, WindowCall
from gmdb.sql.types import BIGINT, INTERVAL, JSONB, is_array, is_integer, is_moment, is_number, pg_name

if TYPE_CHECKING:
    from gmdb.sql.bind.binder import Binder
    from gmdb.sql.operations.registry import Aggregation

_UNITS = ("ROWS", "RANGE", "GROUPS")
_EXCLUSIONS = ("CURRENT ROW", "GROUP", "TIES", "NO OTHERS")
_CURRENT_ROW = "CURRENT ROW"
_UNBOUNDED = "UNBOUNDED"


@dataclass(frozen=True, slots=True)
class _Call:
    """A call as it is written, with what belongs to aggregates alone."""

    name: str
    node: exp.Expr
    arguments: tuple[exp.Expr, ...]
    is_star: bool = False
    distinct: bool = False
    order: tuple[exp.Expr, ...] = ()
    within: tuple[exp.Expr, ...] = ()  # WITHIN GROUP (ORDER BY …)
    condition: exp.Expr | None = None


def has_aggregate(node: exp.Expr) -> bool:
    """Whether an expression has an aggregate of its own query: not of one within it, not one over a window."""
    pending = [node]
    while pending:
        part = pending.pop()
        if isinstance(part, exp.Query):
            continue
        if isinstance(part, exp.Window):
            inner = part.this
            while isinstance(inner, exp.Filter | exp.WithinGroup | exp.IgnoreNulls | exp.RespectNulls):
                inner = inner.this
            pending += [child for child in part.iter_expressions() if child is not part.this]
            pending += list(inner.iter_expressions())
            continue
        if isinstance(part, exp.Anonymous) and _name(part.this) in AGGREGATES:
            return True
        pending += list(part.iter_expressions())
    return False


def _name(name: Any) -> str:
    return name.name if isinstance(name, exp.Identifier) else str(name).lower()


@special(*AGGREGATES)
def _plain(binder: Binder, syntax: Syntax, scope: Scope) -> Expression:
    return _aggregate(binder, _call(syntax), scope)


@handles(exp.Filter, exp.WithinGroup)
def _decorated(binder: Binder, syntax: Syntax, scope: Scope) -> Expression:
    call = _call(syntax)
    if call.name not in AGGREGATES:
        raise IllTyped(f"{call.name} is not an aggregate", *place(syntax.node), "FILTER and WITHIN GROUP are for those")
    return _aggregate(binder, call, scope)


@special(*WINDOW_ONLY)
def _misplaced(_binder: Binder, syntax: Syntax, _scope: Scope) -> Expression:
    raise IllTyped(f"{_name(syntax.take('this'))} needs OVER (...)", *place(syntax.node))


# ---- calls


def _call(syntax: Syntax) -> _Call:
    """A call, with FILTER and WITHIN GROUP around it."""
    node = syntax.node
    if isinstance(node, exp.Anonymous):
        return _arguments(syntax)
    if isinstance(node, exp.IgnoreNulls | exp.RespectNulls):
        raise UnsupportedExpression("IGNORE NULLS and RESPECT NULLS are not supported", *place(node))
    if not isinstance(node, exp.Filter | exp.WithinGroup):
        raise IllTyped("only a function's call can stand before OVER", *place(node))
    with reading(syntax.need("this", "an aggregate")) as part:
        call = _call(part)
    with reading(syntax.need("expression", "a condition or an order")) as part:
        if isinstance(node, exp.Filter):
            return replace(call, condition=part.need("this", "a condition"))
        return replace(call, within=tuple(part.list("expressions")))


def _arguments(syntax: Syntax) -> _Call:
    """The arguments of a call; DISTINCT and ORDER BY wrap the first and the last."""
    name, nodes = _name(syntax.take("this")), syntax.list("expressions")
    if len(nodes) == 1 and isinstance(nodes[0], exp.Star):
        with reading(nodes[0]):
            return _Call(name, syntax.node, (), is_star=True)
    order: Sequence[exp.Expr] = ()
    distinct = False
    if nodes and isinstance(nodes[-1], exp.Order):
        with reading(nodes[-1]) as part:
            nodes, order = [*nodes[:-1], part.need("this", "an argument")], part.list("expressions")
    if len(nodes) == 1 and isinstance(nodes[0], exp.Distinct):
        with reading(nodes[0]) as part:
            nodes, distinct = part.list("expressions"), True
    return _Call(name, syntax.node, tuple(nodes), False, distinct, tuple(order))


def _bound_call(
    binder: Binder, call: _Call, scope: Scope, is_window: bool
) -> tuple[Aggregation, tuple[Expression, ...], tuple[SortKey, ...]]:
    """The aggregation of a call, its arguments as that takes them, and their order."""
    order = tuple(sort_keys(binder, call.order, scope))
    values = [value_or_row(binder, one, scope) for one in call.arguments]
    if call.name in DOCUMENTS:
        values = _as_documents(call, values)
    elif call.distinct:
        require_equality(values, "DISTINCT", call.node)
        values = list(map(compared, values)) if call.name == "count" else values
    within = sort_keys(binder, call.within, scope)
    if len(within) > 1:
        raise UnsupportedExpression("WITHIN GROUP orders by one value", *place(call.within[1]))
    if within and any(tree.columns_of(one) or any(part.relations()) for one in values for part in one.walk()):
        message = f"{call.name} takes a number that is the same for all rows"
        raise UnsupportedExpression(message, *place(call.node), "Write it out, or give a parameter")
    values += [one.value for one in within]
    if call.is_star and call.name != "count":
        raise IllTyped(f"there is no {call.name}(*)", *place(call.node))
    aggregation = None
    if call.is_star or values or call.name != "count":
        descending = bool(within) and within[0].descending
        types = [one.type for one in values]
        is_sorted = call.distinct and not order and call.name == "array_agg"  # to find what is there twice
        aggregation = operations.aggregation(SORTED if is_sorted else call.name, types, is_window, descending)
    if aggregation is None or aggregation.ordered != bool(within):
        hint = "It takes WITHIN GROUP (ORDER BY ...)" if aggregation is not None and aggregation.ordered else ""
        types_ = ", ".join(map(described, values))
        raise IllTyped(f"there is no {call.name}({types_})", *place(call.node), hint or _hint(call, values))
    pairs = zip(values, aggregation.takes, strict=True)
    arguments = tuple(coerce(value, type_, call.node) for value, type_ in pairs)
    if aggregation.ordered:
        order = (replace(within[0], value=arguments[-1]),)
    if call.distinct and any(key.value not in arguments for key in order):
        raise IllTyped("with DISTINCT, an aggregate is ordered by its arguments only", *place(call.node))
    return aggregation, arguments, order


def _as_documents(call: _Call, values: Sequence[Expression]) -> list[Expression]:
    """The values that json_agg and the like join: JSON, and quoted names of members."""
    if len(values) != 1 + call.name.endswith("_object_agg"):
        raise IllTyped(f"{call.name} does not take {len(values)} values", *place(call.node))
    from gmdb.sql.operations.json_functions import member_naming

    if call.distinct:
        require_equality(values, "DISTINCT", call.node)
        if any(one.type == JSONB for one in values):
            hint = "Use a query with SELECT DISTINCT in FROM"
            raise UnsupportedExpression(f"DISTINCT of jsonb in {call.name} is not supported", *place(call.node), hint)
    function = "to_jsonb" if call.name == "jsonb_agg" else "to_json"
    document = apply(function, [settled(values[-1])], call.node)
    if len(values) == 1:
        return [document]
    name = settled(values[0])
    naming = member_naming(name.type)
    if naming is None:
        raise IllTyped(f"{described(name)} cannot name the members of an object", *place(call.node), "Cast it to text")
    return [tree.Call(naming.gives, naming, (name,)), document]


def _finished(call: _Call, value: Expression) -> Expression:
    """The value of an aggregate that was made as JSON."""
    return convert(value, JSONB, call.node) if call.name == "jsonb_object_agg" else value


def _hint(call: _Call, values: Sequence[Expression]) -> str:
    if call.name in ("min", "max") and len(values) > 1:
        return "Use greatest or least for several values"
    if values and values[0].type is None:
        return "Say what it is, such as CAST(? AS INT)"
    if call.name == "array_agg" and values and is_array(values[0].type):
        return "Arrays have one dimension"
    return "string_agg takes a text and a separator" if call.name == "string_agg" else ""


def _aggregate(binder: Binder, call: _Call, scope: Scope) -> Expression:
    """An aggregate over the groups of a query."""
    grouping = scope.grouping
    if grouping is None:
        raise IllTyped("an aggregate cannot stand here", *place(call.node), "Use HAVING, or a query in FROM")
    if grouping.is_inside:
        raise IllTyped("an aggregate cannot be within another", *place(call.node))
    grouping.is_inside = True
    try:
        aggregation, arguments, order = _bound_call(binder, call, scope, False)
        test = None if call.condition is None else condition(binder, call.condition, scope)
    finally:
        grouping.is_inside = False
    _require_own(scope, [*arguments, *([test] if test is not None else [])], call.node)
    aggregate = tree.Aggregate(aggregation.gives, aggregation, arguments, call.distinct, test, order)
    return _finished(call, grouping.aggregate(call.name, aggregate))


def _require_own(scope: Scope, values: Sequence[Expression], node: exp.Expr) -> None:
    """Refuse an aggregate over columns of a query around its own only: SQL has it belong there."""
    used = {column for value in values for column in tree.columns_of(value)}
    named = [*scope.visible, *(one for item in scope.items for one in (*item.columns, *item.hidden))]
    own = {column for one in named for column in tree.columns_of(one.value)}
    if used and scope.number not in used and used.isdisjoint(own):
        hint = "Work it out in the query around it"
        raise UnsupportedExpression("an aggregate of another query's columns is not supported", *place(node), hint)


# ---- order


def sort_keys(binder: Binder, items: Sequence[exp.Expr], scope: Scope) -> list[SortKey]:
    """The terms of an ORDER BY over the scope's columns."""
    keys = []
    for item in items:
        with reading(item) as part:
            keys.append(sort_key(part, settled(bind(binder, part.need("this", "a value"), scope))))
    return keys


def sort_key(syntax: Syntax, value: Expression) -> SortKey:
    """A term of ORDER BY.  NULLs come last going up and first going down, unless it says so."""
    require_equality([value], "ORDER BY", syntax.node)
    return SortKey(value, syntax.flag("desc"), syntax.flag("nulls_first"))


# ---- windows


@handles(exp.Window)
def _window(binder: Binder, syntax: Syntax, scope: Scope) -> Expression:
    windows, grouping = scope.windows, scope.grouping
    if windows is None or windows.is_inside or (grouping is not None and grouping.is_inside):
        raise IllTyped("a window function cannot stand here", *place(syntax.node), "Use a query in FROM")
    syntax.ignore("over")  # the word
    with reading(syntax.need("this", "a function")) as part:
        call = _call(part)
    if call.name not in (*AGGREGATES, *WINDOW_ONLY):
        if call.name not in operations.names():
            raise no_function(call.name, syntax.node)
        raise IllTyped(f"{call.name} is not a window function", *place(syntax.node))
    if call.name in WINDOW_ONLY and (call.condition is not None or call.distinct or call.order):
        raise IllTyped(f"{call.name} takes no FILTER, DISTINCT or ORDER BY", *place(syntax.node))
    windows.is_inside = True
    try:
        aggregation, arguments, order_ = _bound_call(binder, call, scope, True)
        test = None if call.condition is None else condition(binder, call.condition, scope)
        partition, order, frame = _over(binder, syntax, scope, windows, set())
    finally:
        windows.is_inside = False
    if order_:
        raise UnsupportedExpression("ORDER BY belongs to the window here", *place(syntax.node))
    value = WindowCall(aggregation.gives, aggregation, arguments, partition, order, frame, call.distinct, test)
    return _finished(call, windows.value(call.name, value))


def window_values(binder: Binder, windows: WindowCalls, scope: Scope) -> list[Expression]:
    """What the windows that have names are about, whether or not they are used."""
    values: list[Expression] = []
    for name, node in windows.named.items():
        with reading(node) as part:
            part.ignore("this")  # its name
            partition, order, _ = _over(binder, part, scope, windows, {name})
        values += [*partition, *(key.value for key in order)]
    return values


Over = tuple[tuple[Expression, ...], tuple[SortKey, ...], Frame | None]


def _over(binder: Binder, syntax: Syntax, scope: Scope, windows: WindowCalls, seen: set[str]) -> Over:
    """What stands between OVER's parentheses, with what the window that it names has."""
    partition: tuple[Expression, ...] = ()
    order: tuple[SortKey, ...] = ()
    frame: Frame | None = None
    alias, keys = syntax.take("alias"), syntax.list("partition_by")
    order_node, spec = syntax.take("order"), syntax.take("spec")
    if alias is not None:
        name = folded(alias)
        if name not in windows.named or name in seen:
            raise IllTyped(f"there is no window {name}", *place(syntax.node))
        with reading(windows.named[name]) as part:
            part.ignore("this")  # its name
            partition, order, frame = _over(binder, part, scope, windows, seen | {name})
        is_changed = bool(keys) or order_node is not None or spec is not None
        if keys or (order_node is not None and order) or (is_changed and frame is not None):
            message = f"window {name} cannot be given another PARTITION BY, ORDER BY or frame"
            raise IllTyped(message, *place(syntax.node))
    if keys:
        values = [settled(bind(binder, one, scope)) for one in keys]
        require_equality(values, "PARTITION BY", keys[0])
        partition = tuple(map(compared, values))
    if order_node is not None:
        with reading(order_node) as part:
            order = tuple(sort_keys(binder, part.list("expressions"), scope))
    if spec is not None:
        with reading(spec) as part:
            frame = _frame(binder, part, order)
    return partition, order, frame


def _frame(binder: Binder, syntax: Syntax, order: Sequence[SortKey]) -> Frame:
    unit = syntax.word("kind", *_UNITS)
    start = _edge(binder, syntax, "start", unit, order)
    end = _edge(binder, syntax, "end", unit, order)
    if unit == "GROUPS" and not order:
        raise IllTyped("GROUPS needs ORDER BY in the window", *place(syntax.node))
    sides = ("PRECEDING", "", "FOLLOWING")
    is_backwards = sides.index(start[1]) > sides.index(end[1])
    if is_backwards or start == (None, "FOLLOWING") or end == (None, "PRECEDING"):
        raise InvalidSyntax("the frame's start must come before its end", *place(syntax.node))
    exclude = syntax.word("exclude", *_EXCLUSIONS)
    return Frame(unit, start, end, "" if exclude == "NO OTHERS" else exclude)


def _edge(
    binder: Binder, syntax: Syntax, name: str, unit: str, order: Sequence[SortKey]
) -> tuple[Expression | None, str]:
    """One edge of a frame; the end is the current row if nothing is said."""
    value = syntax.take(name)
    side = syntax.word(f"{name}_side", "PRECEDING", "FOLLOWING")
    if not isinstance(value, exp.Expr):
        word = _CURRENT_ROW if value is None else str(value).upper()
        return None, side if word == _UNBOUNDED else ""
    distance = bind(binder, value, Scope())
    if unit != "RANGE":
        return assign(distance, BIGINT, value), side
    return coerce(distance, _range_type(distance, order, value), value), side


def _range_type(distance: Expression, order: Sequence[SortKey], node: exp.Expr) -> ColumnType:
    """The type of a distance between values of the order's only key."""
    if len(order) != 1:
        raise IllTyped("RANGE with a distance needs ORDER BY of one value in the window", *place(node))
    type_ = order[0].value.type
    if is_moment(type_):
        return INTERVAL
    if not is_number(type_):
        raise IllTyped(f"RANGE takes no distance between values of {pg_name(type_)}", *place(node))
    is_exact = distance.type is not None and distance.type.name == "DECIMAL"
    return distance.type if is_exact and type_.name == "DECIMAL" else BIGINT if is_integer(type_) else type_
