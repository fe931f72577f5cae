"""Calls of functions, and queries within expressions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING

from sqlglot import exp

from gmdb.errors import IllTyped, NoSuchFunction, UnsupportedExpression
from gmdb.sql import operations, tree
from gmdb.sql.bind.coercion import apply, assign, comparison_of_rows, convert, same_type
from gmdb.sql.bind.expressions import (
    COMPARISONS,
    ExistsQuery,
    Handler,
    InQuery,
    Quantified,
    bind,
    handles,
    now,
    quantifier,
    row,
)
from gmdb.sql.bind.scope import references
from gmdb.sql.bind.standard_views import CATALOG_NAME
from gmdb.sql.dialect import place
from gmdb.sql.syntax import Syntax, folded, reading
from gmdb.sql.tree import Coalesce, Constant, Exists, Expression, QueryComparison, Relation, ScalarQuery
from gmdb.sql.types import BIGINT, BOOLEAN, TEXT, TIMESTAMP, pg_name

if TYPE_CHECKING:
    from gmdb.sql.bind.binder import Binder
    from gmdb.sql.bind.scope import Scope


# ---- Functions: calls by name, and the syntaxes of their own that PostgreSQL has for some of them.
#
# A call is a name and arguments: which operation that is, their types say (operations/).  Known here are those whose
# arguments are not evaluated as those of functions are, and those that ask for the time.

SPECIAL: dict[str, Handler] = {}  # by name; given the call, of which the name is taken
_DIGITS_OF_TIME = "6"
_OF_CATALOG = (
    *("to_regclass", "pg_table_is_visible", "format_type", "pg_get_indexdef", "pg_get_constraintdef"),
    *("pg_get_viewdef", "pg_get_expr", "obj_description", "col_description"),
)
_TRIMS = {"LEADING": "ltrim", "TRAILING": "rtrim", "BOTH": "btrim", "": "btrim"}


def special(*names: str) -> Callable[[Handler], Handler]:
    """Register the handler of functions that are more than an operation."""

    def register(handler: Handler) -> Handler:
        SPECIAL.update(dict.fromkeys(names, handler))
        return handler

    return register


@handles(exp.Anonymous)
def _call(binder: Binder, syntax: Syntax, scope: Scope) -> Expression:
    name = syntax.need("this", "a name")
    name = name.name if isinstance(name, exp.Identifier) else str(name).lower()
    handler = SPECIAL.get(name)
    if handler is not None:
        return handler(binder, syntax, scope)
    if name not in _names():
        raise no_function(name, syntax.node)
    return apply(name, _arguments(binder, syntax, scope, "expressions"), syntax.node)


@special(*_OF_CATALOG)
def _of_catalog(binder: Binder, syntax: Syntax, scope: Scope) -> Expression:
    from gmdb.sql.bind.catalog_functions import function_of_catalog  # few ask for it

    return function_of_catalog(binder, syntax, scope)


@cache
def _names() -> frozenset[str]:
    return frozenset(operations.names())


def no_function(name: str, node: exp.Expr) -> NoSuchFunction:
    """The error for a function that there is not."""
    from difflib import get_close_matches

    if operations.row_function(name) is not None:
        hint = "Write FROM ..., or a query in the list: (SELECT ... FROM ...)"
        return NoSuchFunction(f"{name} gives rows, and stands in FROM", *place(node), hint)
    names = sorted(_names() | SPECIAL.keys())
    close = get_close_matches(name, names, 1)
    hint = f"Did you mean {close[0]}?" if close else f"The functions are {', '.join(names)}"
    return NoSuchFunction(f"there is no function {name}", *place(node), hint)


def _arguments(binder: Binder, syntax: Syntax, scope: Scope, *parts: str) -> list[Expression]:
    return [bind(binder, one, scope) for part in parts for one in syntax.list(part)]


# ---- functions that are more than an operation


@special("version", "current_schema", "current_database")
def _environment(binder: Binder, syntax: Syntax, _scope: Scope) -> Expression:
    """What clients ask about where they are."""
    name = syntax.node.name.lower()
    if syntax.list("expressions"):
        raise IllTyped(f"{name} takes no arguments", *place(syntax.node))
    if name == "version":
        from importlib.metadata import version  # few ask for it, and it takes long to import

        return Constant(TEXT, f"gmdb {version('gmdb')}")
    if name == "current_schema":
        return Constant(TEXT, binder.current_schema(syntax.node))
    return Constant(TEXT, CATALOG_NAME)


@special("merge_action")
def _merge_action(binder: Binder, syntax: Syntax, _scope: Scope) -> Expression:
    if binder.merge_action is None or syntax.list("expressions"):
        raise UnsupportedExpression(
            "merge_action() stands in RETURNING of MERGE, without arguments", *place(syntax.node)
        )
    return binder.merge_action


@special("coalesce")
def _coalesce(binder: Binder, syntax: Syntax, scope: Scope) -> Expression:
    arguments = _arguments(binder, syntax, scope, "expressions")
    if not arguments:
        raise IllTyped("coalesce takes at least one value", *place(syntax.node))
    values, type_ = same_type(arguments, "COALESCE", syntax.node)
    return Coalesce(type_, tuple(values))


@special("pg_typeof")
def _type_of(binder: Binder, syntax: Syntax, scope: Scope) -> Expression:
    arguments = _arguments(binder, syntax, scope, "expressions")
    if len(arguments) != 1:
        raise IllTyped("pg_typeof takes one value", *place(syntax.node))
    return Constant(TEXT, pg_name(arguments[0].type))


@special("now", "transaction_timestamp", "statement_timestamp", "current_timestamp", "localtimestamp")
def _now(binder: Binder, syntax: Syntax, _scope: Scope) -> Expression:
    digits = [one.name if isinstance(one, exp.Literal) else "?" for one in syntax.list("expressions")]
    if digits and (digits != [_DIGITS_OF_TIME] or syntax.node.name.lower() == "now"):
        raise UnsupportedExpression("the current time has six digits", *place(syntax.node), "Write it without a number")
    return convert(now(binder), TIMESTAMP, syntax.node) if syntax.node.name.lower() == "localtimestamp" else now(binder)


@special("to_json", "to_jsonb", "row_to_json")
def _as_document(binder: Binder, syntax: Syntax, scope: Scope) -> Expression:
    """A value as JSON; a table's name stands for its row, which row_to_json takes alone."""
    name, nodes = str(syntax.node.name).lower(), syntax.list("expressions")
    if name == "row_to_json":
        whole = whole_row(nodes[0], scope) if len(nodes) == 1 else None
        if whole is None:
            raise IllTyped("row_to_json takes the name of a table in FROM", *place(syntax.node))
        return whole
    values = [value_or_row(binder, one, scope) for one in nodes]
    return apply(name, values, syntax.node)


def value_or_row(binder: Binder, node: exp.Expr, scope: Scope) -> Expression:
    """A value; the name of a table that is no column's stands for its row, as JSON."""
    return whole_row(node, scope) or bind(binder, node, scope)


def whole_row(node: exp.Expr, scope: Scope) -> Expression | None:
    """The row of a table in FROM, as JSON, if a node is its name."""
    if not isinstance(node, exp.Column) or node.args.get("table") is not None:
        return None
    if not isinstance(node.this, exp.Identifier):
        return None
    name = folded(node.this)
    for one in scope.chain():
        if one.has(name):
            return None
        item = next((item for item in one.items if item.name == name), None)
        if item is not None:
            if any(hidden.name == name for hidden in item.hidden):
                return None
            from gmdb.sql.operations.json_functions import row_of

            values = [scope.resolve(shown.name, name, node) for shown in item.columns]
            operation = row_of([shown.name for shown in item.columns], [value.type for value in values])
            with reading(node) as syntax:
                syntax.ignore("this")
            return tree.Call(operation.gives, operation, tuple(values))
    return None


_SEQUENCE_FUNCTIONS = {"nextval": (TEXT,), "currval": (TEXT,), "lastval": (), "setval": (TEXT, BIGINT, BOOLEAN)}


@special(*_SEQUENCE_FUNCTIONS)
def _of_sequence(binder: Binder, syntax: Syntax, scope: Scope) -> Expression:
    name = str(syntax.node.name).lower()
    arguments = []
    for one in syntax.list("expressions"):
        inner = one
        if isinstance(one, exp.Cast) and one.to.sql().lower() == "regclass":
            inner = one.this
        arguments.append(bind(binder, inner, scope))
    takes = _SEQUENCE_FUNCTIONS[name][: len(arguments) if name == "setval" and len(arguments) == 2 else None]
    if len(arguments) != len(takes):
        raise IllTyped(f"{name} does not take {len(arguments)} arguments", *place(syntax.node))
    values = tuple(assign(one, type_, syntax.node) for one, type_ in zip(arguments, takes, strict=True))
    function = binder.catalog.sequence_function(name, syntax.node)
    return tree.Call(BIGINT, operations.Operation(name, takes, BIGINT, function, volatile=True, by_rows=True), values)


# ---- syntaxes of their own


@handles(exp.Extract)
def _extract(binder: Binder, syntax: Syntax, scope: Scope) -> Expression:
    field = syntax.need("this", "a field")
    if not isinstance(field, exp.Var | exp.Literal | exp.Column):
        raise UnsupportedExpression("extract takes the name of a field, such as year", *place(field))
    value = bind(binder, syntax.need("expression", "a time"), scope)
    return apply("extract", [Constant(TEXT, field.name.lower()), value], syntax.node)


_SYNTAXES: dict[type, tuple[str, ...]] = {  # the function's name, and the parts that are its arguments
    exp.StrPosition: ("strpos", "this", "substr"),
    exp.Substring: ("substring", "this", "start", "length"),
    exp.Overlay: ("overlay", "this", "expression", "from_", "for_"),
    exp.StartsWith: ("starts_with", "this", "expression"),  # text ^@ start
}


@handles(*_SYNTAXES)
def _with_syntax(binder: Binder, syntax: Syntax, scope: Scope) -> Expression:
    name, *parts = _SYNTAXES[type(syntax.node)]
    return apply(name, _arguments(binder, syntax, scope, *parts), syntax.node)


@handles(exp.Trim)
def _trim(binder: Binder, syntax: Syntax, scope: Scope) -> Expression:
    name = _TRIMS[syntax.word("position", "LEADING", "TRAILING", "BOTH")]
    return apply(name, _arguments(binder, syntax, scope, "this", "expression"), syntax.node)


# ---- Queries within expressions: as a value, EXISTS, IN and comparisons with ANY and ALL.


@handles(exp.Subquery, exp.Select, exp.Union, exp.Intersect, exp.Except, exp.Values)
def _value(binder: Binder, syntax: Syntax, scope: Scope) -> Expression:
    """A query that stands for a value.  The binder opens the node itself."""
    node = syntax.node
    syntax.ignore(*node.args)
    relation = binder.query(node, scope).relation
    _require_columns(relation, 1, node)
    return ScalarQuery(relation.columns[0].type, relation)


def _require_columns(relation: Relation, count: int, node: exp.Expr) -> None:
    if len(relation.columns) != count:
        wanted = "one column" if count == 1 else f"{count} columns"
        raise IllTyped(f"the query must have {wanted} here, not {len(relation.columns)}", *place(node))


@handles(exp.Exists)
def _exists(binder: Binder, syntax: Syntax, scope: Scope) -> Expression:
    return _exists_of(binder, syntax.need("this", "a query"), scope)


@handles(ExistsQuery)
def _exists_in_more_parentheses(binder: Binder, syntax: Syntax, scope: Scope) -> Expression:
    syntax.ignore("this")  # the word itself
    (query,) = syntax.list("expressions")
    return _exists_of(binder, query, scope)


def _exists_of(binder: Binder, node: exp.Expr, scope: Scope) -> Expression:
    return Exists(BOOLEAN, _without_rows_use(binder.query(node, scope).relation))


def _without_rows_use(query: Relation) -> Relation:
    """A query of which only matters whether it gives a row: its columns are not computed."""
    while True:
        is_plain = isinstance(query, tree.Project | tree.Sort) or (isinstance(query, tree.Distinct) and not query.on)
        is_more = isinstance(query, tree.Limit) and query.offset is None and _is_some(query.count)
        if not (is_plain or is_more):
            return query
        (query,) = query.sources()


def _is_some(count: Expression | None) -> bool:
    return count is None or (isinstance(count, tree.Constant) and count.value is not None and count.value > 0)


@handles(InQuery)
def _in(binder: Binder, syntax: Syntax, scope: Scope) -> Expression:
    left = syntax.need("this", "a value")
    query = syntax.take("query") or syntax.list("expressions")[0]
    return _compared(binder, row(binder, left, scope), "=", query, False, syntax.node, scope)


@handles(Quantified)
def _quantified(binder: Binder, syntax: Syntax, scope: Scope) -> Expression:
    """a < ANY (query), a < ALL (array)."""
    values = row(binder, syntax.need("this", "a value"), scope)
    side = syntax.need("expression", "a query")
    every = quantifier(side) == "all"
    with reading(side) as part:
        query = part.need("this", "a query")
        if isinstance(side, exp.Anonymous):
            (query,) = part.list("expressions")
    symbol = COMPARISONS[type(syntax.node)]
    while isinstance(query, exp.Paren):
        with reading(query) as part:
            query = part.need("this", "a query")
    if isinstance(query, exp.Query | exp.Values):
        return _compared(binder, values, symbol, query, every, syntax.node, scope)
    from gmdb.sql.bind.arrays import quantified

    if len(values) != 1:
        raise UnsupportedExpression("a row of values is compared with a query", *place(side))
    return quantified(binder, symbol, every, values[0], query, syntax.node, scope)


def _compared(
    binder: Binder,
    values: Sequence[Expression],
    symbol: str,
    query: exp.Expr,
    every: bool,
    node: exp.Expr,
    scope: Scope,
) -> Expression:
    relation = binder.query(query, scope).relation
    _require_columns(relation, len(values), query)
    if any(map(tree.is_volatile, values)):
        raise UnsupportedExpression("what a query's rows are compared with must not be random", *place(node))
    test = comparison_of_rows(symbol, values, references(relation), node)
    return QueryComparison(BOOLEAN, relation, test, every)
