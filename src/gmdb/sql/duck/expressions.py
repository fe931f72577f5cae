"""Expressions: each node of sqlglot's tree becomes DuckDB's SQL and a type, or an error that names its place.

Only what is listed here gets through, so that an answer is PostgreSQL's or there is none.
Not here: functions (functions.py), aggregates and windows (aggregates.py), queries (query.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING

from sqlglot import exp

from gmdb.errors import IllTyped, InvalidSyntax, UndefinedResult, UnsupportedExpression
from gmdb.format.columns import ColumnType
from gmdb.sql.duck.arithmetic import arithmetic, bitwise, comparable, negate
from gmdb.sql.duck.casts import as_boolean, as_text, cast, coerce, decimal_literal
from gmdb.sql.duck.scope import Scope, folded, spot
from gmdb.sql.duck.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    INT,
    INTERVAL,
    TEXT,
    Bound,
    common_type,
    duck_type,
    is_binary,
    is_integer,
    is_text,
    text_literal,
    type_of_cast,
)

if TYPE_CHECKING:
    from gmdb.sql.duck.query import Statement

Handler = Callable[["Statement", exp.Expr, Scope], Bound]
HANDLERS: dict[type[exp.Expr], Handler] = {}
_ARITHMETIC: dict[type[exp.Expr], str] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%"}
_COMPARISONS: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}
_SMALLEST = {str(1 << 31): INT, str(1 << 63): BIGINT}
_BITWISE: dict[type[exp.Expr], str] = {
    exp.BitwiseAnd: "&",
    exp.BitwiseOr: "|",
    exp.BitwiseXor: "#",
    exp.BitwiseLeftShift: "<<",
    exp.BitwiseRightShift: ">>",
}


def handles(*kinds: type[exp.Expr]) -> Callable[[Handler], Handler]:
    def register(handler: Handler) -> Handler:
        for kind in kinds:
            HANDLERS[kind] = handler
        return handler

    return register


def bind(statement: Statement, node: exp.Expr, scope: Scope) -> Bound:
    """An expression within the names of a scope."""
    handler = HANDLERS.get(type(node))
    if handler is None:
        raise UnsupportedExpression(f"{node.sql(dialect='postgres')[:80]} is not supported here", *spot(node))
    grouping = scope.grouping
    if grouping is None or grouping.inside_aggregate:
        return _perhaps_not(handler(statement, node, scope), node)
    before = len(grouping.strangers)
    bound = _perhaps_not(handler(statement, node, scope), node)
    if bound.sql in grouping.allowed:
        del grouping.strangers[before:]
    return bound


def _perhaps_not(bound: Bound, node: exp.Expr) -> Bound:
    """sqlglot keeps the NOT of NOT LIKE and the like as a mark of the node."""
    if node.args.get("negate") and not isinstance(node, exp.Is):
        return Bound(f"(NOT {bound.sql})", BOOLEAN)
    return bound


def condition(statement: Statement, node: exp.Expr, scope: Scope) -> str:
    return as_boolean(bind(statement, node, scope), node).sql


def same_type(bounds: Sequence[Bound], node: exp.Expr, what: str) -> tuple[list[Bound], ColumnType]:
    """Values that take each other's place, as one type."""
    type_ = common_type([bound.type for bound in bounds], what, *spot(node)) or TEXT
    return [coerce(bound, type_, node) for bound in bounds], type_


@handles(exp.Column)
def _column(_statement: Statement, node: exp.Expr, scope: Scope) -> Bound:
    if isinstance(node.this, exp.Star):
        raise UnsupportedExpression("* cannot stand here", *spot(node))
    if node.args.get("db") is not None:
        raise UnsupportedExpression("there are no schemas: write table.column", *spot(node))
    table = node.args.get("table")
    return scope.resolve(folded(node.this), folded(table) if table is not None else None, node)


@handles(exp.Literal)
def _literal(_statement: Statement, node: exp.Expr, _scope: Scope) -> Bound:
    text = node.name
    if node.is_string:
        return Bound(text_literal(text), None, literal=text)
    if text.isdecimal():
        number = int(text)
        if number < 1 << 63:
            return Bound(str(number), INT if number < 1 << 31 else BIGINT)
    type_ = decimal_literal(text, node)
    return Bound(f"CAST('{format(Decimal(text), 'f')}' AS {duck_type(type_)})", type_)


@handles(exp.Null)
def _null(_statement: Statement, _node: exp.Expr, _scope: Scope) -> Bound:
    return Bound("NULL", None)


@handles(exp.Boolean)
def _boolean(_statement: Statement, node: exp.Expr, _scope: Scope) -> Bound:
    return Bound("TRUE" if node.this else "FALSE", BOOLEAN)


@handles(exp.HexString)
def _hex(_statement: Statement, node: exp.Expr, _scope: Scope) -> Bound:
    return Bound(f"unhex('{node.name}')", BYTES)


@handles(exp.ByteString)
def _escaped_text(_statement: Statement, node: exp.Expr, _scope: Scope) -> Bound:
    return Bound(text_literal(node.name), None, literal=node.name)


@handles(exp.Placeholder, exp.Parameter)
def _parameter(statement: Statement, node: exp.Expr, _scope: Scope) -> Bound:
    return statement.parameter(node)


@handles(exp.Paren)
def _paren(statement: Statement, node: exp.Expr, scope: Scope) -> Bound:
    return bind(statement, node.this, scope)


@handles(exp.Interval)
def _interval(_statement: Statement, node: exp.Expr, _scope: Scope) -> Bound:
    if not isinstance(node.this, exp.Literal):
        raise UnsupportedExpression("an interval must be written as a literal, such as interval '1 day'", *spot(node))
    unit = node.args.get("unit")
    text = f"{node.this.name} {unit.name}" if unit is not None else node.this.name
    return Bound(f"CAST({text_literal(text)} AS INTERVAL)", INTERVAL)


@handles(*_ARITHMETIC)
def _arithmetic(statement: Statement, node: exp.Expr, scope: Scope) -> Bound:
    left, right = bind(statement, node.this, scope), bind(statement, node.expression, scope)
    return arithmetic(_ARITHMETIC[type(node)], left, right, node)


@handles(*_BITWISE)
def _bitwise(statement: Statement, node: exp.Expr, scope: Scope) -> Bound:
    left, right = bind(statement, node.this, scope), bind(statement, node.expression, scope)
    return bitwise(_BITWISE[type(node)], left, right, node)


@handles(exp.BitwiseNot)
def _bitwise_not(statement: Statement, node: exp.Expr, scope: Scope) -> Bound:
    value = bind(statement, node.this, scope)
    if not is_integer(value.type):
        raise IllTyped("~ takes an integer", *spot(node))
    return Bound(f"(~{value.sql})", value.type)


@handles(exp.Neg)
def _neg(statement: Statement, node: exp.Expr, scope: Scope) -> Bound:
    if isinstance(node.this, exp.Literal) and node.this.name in _SMALLEST:  # its sign belongs to it
        type_ = _SMALLEST[node.this.name]
        return Bound(f"CAST('-{node.this.name}' AS {duck_type(type_)})", type_)
    return negate(bind(statement, node.this, scope), node)


@handles(exp.DPipe)
def _concatenate(statement: Statement, node: exp.Expr, scope: Scope) -> Bound:
    left, right = bind(statement, node.this, scope), bind(statement, node.expression, scope)
    if is_binary(left.type) or is_binary(right.type):
        left, right = coerce(left, BYTES, node), coerce(right, BYTES, node)
        return Bound(f"({left.sql} || {right.sql})", BYTES)
    if not any(side.type is None or is_text(side.type) for side in (left, right)):
        raise IllTyped("|| needs a text on one side", *spot(node), "Cast one of them")
    return Bound(f"({as_text(left, node).sql} || {as_text(right, node).sql})", TEXT)


@handles(exp.Cast)
def _cast(statement: Statement, node: exp.Expr, scope: Scope) -> Bound:
    value = bind(statement, node.this, scope)
    if isinstance(node.this, exp.IntDiv):  # sqlglot's reading of div(a, b)
        return replace(value, declared=False)
    return cast(value, type_of_cast(node.args["to"], *spot(node)), node)


@handles(exp.Collate)
def _collate(statement: Statement, node: exp.Expr, scope: Scope) -> Bound:
    if node.expression.name.upper() not in ("C", "POSIX", "UCS_BASIC", "DEFAULT"):
        raise UnsupportedExpression('texts are compared by code points only: COLLATE "C"', *spot(node))
    return bind(statement, node.this, scope)


@handles(exp.And, exp.Or)
def _junction(statement: Statement, node: exp.Expr, scope: Scope) -> Bound:
    kind, word = (exp.And, " AND ") if isinstance(node, exp.And) else (exp.Or, " OR ")
    terms: list[exp.Expr] = []
    rest: list[exp.Expr] = [node]
    while rest:  # a long chain leans to the left: no recursion along it
        term = rest.pop()
        if isinstance(term, kind):
            rest += [term.expression, term.this]
        else:
            terms.append(term)
    return Bound(f"({word.join(condition(statement, term, scope) for term in terms)})", BOOLEAN)


@handles(exp.Not)
def _not(statement: Statement, node: exp.Expr, scope: Scope) -> Bound:
    return Bound(f"(NOT {condition(statement, node.this, scope)})", BOOLEAN)


@handles(*_COMPARISONS)
def _comparison(statement: Statement, node: exp.Expr, scope: Scope) -> Bound:
    operator = _COMPARISONS[type(node)]
    if isinstance(node.expression, exp.Any | exp.All):
        return _quantified(statement, node, scope, operator)
    left, right = node.this.unnest(), node.expression.unnest()
    if isinstance(left, exp.Tuple) and isinstance(right, exp.Tuple):
        return _row_comparison(statement, node, scope, operator, left.expressions, right.expressions)
    return compare(operator, bind(statement, left, scope), bind(statement, right, scope), node)


def compare(operator: str, left: Bound, right: Bound, node: exp.Expr) -> Bound:
    left, right = comparable(left, right, node, operator)
    return Bound(f"({left.sql} {operator} {right.sql})", BOOLEAN)


def _row_comparison(
    statement: Statement,
    node: exp.Expr,
    scope: Scope,
    operator: str,
    left: Sequence[exp.Expr],
    right: Sequence[exp.Expr],
) -> Bound:
    """(a, b) < (c, d): from the left, the first pair that differs decides."""
    if len(left) != len(right):
        raise IllTyped(f"rows of {len(left)} and {len(right)} values cannot be compared", *spot(node))
    pairs = [(bind(statement, a, scope), bind(statement, b, scope)) for a, b in zip(left, right, strict=True)]
    if operator in ("=", "<>"):
        word = " AND " if operator == "=" else " OR "
        return Bound(f"({word.join(compare(operator, a, b, node).sql for a, b in pairs)})", BOOLEAN)
    sql = compare(operator, *pairs[-1], node).sql
    for a, b in reversed(pairs[:-1]):
        sql = f"({compare(operator[0], a, b, node).sql} OR ({compare('=', a, b, node).sql} AND {sql}))"
    return Bound(sql, BOOLEAN)


def _quantified(statement: Statement, node: exp.Expr, scope: Scope, operator: str) -> Bound:
    word = "ANY" if isinstance(node.expression, exp.Any) else "ALL"
    query = node.expression.this.unnest()
    if not isinstance(query, exp.Query):
        raise UnsupportedExpression(f"{word} needs a query; for values write IN (...)", *spot(node))
    left = bind(statement, node.this, scope)
    value, subquery = _against_query(statement, left, query, scope, operator, node)
    return Bound(f"({value} {operator} {word} ({subquery}))", BOOLEAN)


def _against_query(
    statement: Statement, left: Bound, query: exp.Expr, scope: Scope, operator: str, node: exp.Expr
) -> tuple[str, str]:
    """A value and the only column of a query, brought to one type."""
    relation = statement.subquery(query, scope)
    if len(relation.columns) != 1:
        raise IllTyped(f"the query must have one column, not {len(relation.columns)}", *spot(query))
    column = relation.columns[0].bound
    value, other = comparable(left, column, node, operator)
    return value.sql, f"SELECT {other.sql} FROM ({relation.sql}) AS {statement.name()}"


@handles(exp.In)
def _in(statement: Statement, node: exp.Expr, scope: Scope) -> Bound:
    query = node.args.get("query")
    left = node.this.unnest()
    if query is not None:
        if isinstance(left, exp.Tuple):
            return _row_in_query(statement, node, scope, left.expressions, query.unnest())
        value, subquery = _against_query(statement, bind(statement, left, scope), query.unnest(), scope, "=", node)
        return Bound(f"({value} IN ({subquery}))", BOOLEAN)
    if isinstance(left, exp.Tuple):
        rows = [row.unnest() for row in node.expressions]
        matches = [_row_comparison(statement, node, scope, "=", left.expressions, row.expressions) for row in rows]
        return Bound(f"({' OR '.join(match.sql for match in matches)})", BOOLEAN)
    if not node.expressions:
        raise InvalidSyntax("IN needs at least one value", *spot(node))
    needle = bind(statement, left, scope)
    pairs = [comparable(needle, bind(statement, item, scope), item, "IN") for item in node.expressions]
    if len({side.sql for side, _ in pairs}) == 1:
        return Bound(f"({pairs[0][0].sql} IN ({', '.join(item.sql for _, item in pairs)}))", BOOLEAN)
    return Bound(f"({' OR '.join(f'{side.sql} = {item.sql}' for side, item in pairs)})", BOOLEAN)


def _row_in_query(
    statement: Statement,
    node: exp.Expr,
    scope: Scope,
    left: Sequence[exp.Expr],
    query: exp.Expr,
) -> Bound:
    """(a, b) IN (query): true, unknown or false by the best of all rows' comparisons."""
    relation = statement.subquery(query, scope)
    if len(relation.columns) != len(left):
        raise IllTyped(f"the query must have {len(left)} columns, not {len(relation.columns)}", *spot(query))
    sides = [bind(statement, item, scope) for item in left]
    matches = [compare("=", a, b.bound, node).sql for a, b in zip(sides, relation.columns, strict=True)]
    best = "CASE WHEN bool_or(m) THEN TRUE WHEN count(m) < count(*) THEN NULL ELSE FALSE END"
    sql = f"SELECT {best} FROM (SELECT ({' AND '.join(matches)}) AS m FROM ({relation.sql}) AS {statement.name()})"
    return Bound(f"({sql})", BOOLEAN)


@handles(exp.Exists)
def _exists(statement: Statement, node: exp.Expr, scope: Scope) -> Bound:
    relation = statement.subquery(node.this.unnest(), scope, existence=True)
    return Bound(f"EXISTS ({relation.sql})", BOOLEAN)


@handles(exp.Subquery, exp.Select, exp.Union, exp.Intersect, exp.Except)
def _scalar_query(statement: Statement, node: exp.Expr, scope: Scope) -> Bound:
    relation = statement.subquery(node.unnest() if isinstance(node, exp.Subquery) else node, scope)
    if len(relation.columns) != 1:
        raise IllTyped(f"a query used as a value must have one column, not {len(relation.columns)}", *spot(node))
    column = relation.columns[0].bound
    return Bound(f"({relation.sql})", column.type, column.declared)


@handles(exp.Between)
def _between(statement: Statement, node: exp.Expr, scope: Scope) -> Bound:
    value = bind(statement, node.this, scope)
    low, high = bind(statement, node.args["low"], scope), bind(statement, node.args["high"], scope)
    within = f"({compare('>=', value, low, node).sql} AND {compare('<=', value, high, node).sql})"
    if node.args.get("symmetric"):
        turned = f"({compare('>=', value, high, node).sql} AND {compare('<=', value, low, node).sql})"
        return Bound(f"({within} OR {turned})", BOOLEAN)
    return Bound(within, BOOLEAN)


@handles(exp.NullSafeEQ, exp.NullSafeNEQ)
def _distinct_from(statement: Statement, node: exp.Expr, scope: Scope) -> Bound:
    word = "IS NOT DISTINCT FROM" if isinstance(node, exp.NullSafeEQ) else "IS DISTINCT FROM"
    return compare(word, bind(statement, node.this, scope), bind(statement, node.expression, scope), node)


@handles(exp.Is)
def _is(statement: Statement, node: exp.Expr, scope: Scope) -> Bound:
    value = bind(statement, node.this, scope)
    word = "IS NOT" if node.args.get("negate") else "IS"
    if isinstance(node.expression, exp.Null):
        sql = value.sql if value.type is not None else coerce(value, TEXT, node).sql
        return Bound(f"({sql} {word} NULL)", BOOLEAN)
    if isinstance(node.expression, exp.Boolean):
        distinct = "IS DISTINCT FROM" if node.args.get("negate") else "IS NOT DISTINCT FROM"
        truth = "TRUE" if node.expression.this else "FALSE"
        return Bound(f"({as_boolean(value, node).sql} {distinct} {truth})", BOOLEAN)
    raise UnsupportedExpression(f"{node.sql(dialect='postgres')} is not supported", *spot(node))


@handles(exp.Like, exp.ILike, exp.Escape)
def _like(statement: Statement, node: exp.Expr, scope: Scope) -> Bound:
    """LIKE, whose escape is a backslash unless another one is given.  A CHAR keeps its blanks here."""
    escape = "\\"
    if isinstance(node, exp.Escape):
        if not isinstance(node.expression, exp.Literal):
            raise UnsupportedExpression("ESCAPE needs a literal of one character", *spot(node))
        if len(node.expression.name) > 1:
            raise UndefinedResult(f"invalid escape string {node.expression.name!r}: it must be empty or one character")
        like = node.this
        like_not, escape = bool(like.args.get("negate")), node.expression.name
        bound = _like_with(statement, like, scope, escape)
        return replace(bound, sql=f"(NOT {bound.sql})") if like_not else bound
    return _like_with(statement, node, scope, escape)


def _like_with(statement: Statement, node: exp.Expr, scope: Scope, escape: str) -> Bound:
    value, pattern = bind(statement, node.this, scope), bind(statement, node.expression, scope)
    for side in (value, pattern):
        if side.type is not None and not is_text(side.type):
            raise IllTyped(f"LIKE compares texts, not {side.type.name}", *spot(node))
    left = value if value.type is not None else coerce(value, TEXT, node)
    right = coerce(pattern, TEXT, node)
    word = "ILIKE" if isinstance(node, exp.ILike) else "LIKE"
    plain = not escape or (pattern.literal is not None and escape not in pattern.literal)
    suffix = "" if plain else f" ESCAPE {text_literal(escape)}"
    return Bound(f"({left.sql} {word} {right.sql}{suffix})", BOOLEAN)


@handles(exp.RegexpLike, exp.RegexpILike)
def _regexp(statement: Statement, node: exp.Expr, scope: Scope) -> Bound:
    value = as_text(bind(statement, node.this, scope), node)
    pattern = as_text(bind(statement, node.expression, scope), node)
    options = ", 'is'" if isinstance(node, exp.RegexpILike) else ", 'cs'"
    return Bound(f"regexp_matches({value.sql}, {pattern.sql}{options})", BOOLEAN)


@handles(exp.Case)
def _case(statement: Statement, node: exp.Expr, scope: Scope) -> Bound:
    subject = bind(statement, node.this, scope) if node.this is not None else None
    whens = []
    values = []
    for branch in node.args["ifs"]:
        if subject is None:
            whens.append(condition(statement, branch.this, scope))
        else:
            whens.append(compare("=", subject, bind(statement, branch.this, scope), branch).sql)
        values.append(bind(statement, branch.args["true"], scope))
    default = node.args.get("default")
    values.append(bind(statement, default, scope) if default is not None else Bound("NULL", None))
    values, type_ = same_type(values, node, "CASE")
    branches = " ".join(f"WHEN {when} THEN {value.sql}" for when, value in zip(whens, values, strict=False))
    return Bound(f"CASE {branches} ELSE {values[-1].sql} END", type_)


@handles(exp.Coalesce, exp.Greatest, exp.Least)
def _one_of(statement: Statement, node: exp.Expr, scope: Scope) -> Bound:
    word = type(node).__name__.lower()
    values = [bind(statement, item, scope) for item in [node.this, *node.expressions]]
    values, type_ = same_type(values, node, word)
    return Bound(f"{word}({', '.join(value.sql for value in values)})", type_)


@handles(exp.Nullif)
def _nullif(statement: Statement, node: exp.Expr, scope: Scope) -> Bound:
    left, right = bind(statement, node.this, scope), bind(statement, node.expression, scope)
    equal = compare("=", left, right, node).sql
    value = left if left.type is not None else coerce(left, TEXT, node)
    return Bound(f"CASE WHEN {equal} THEN NULL ELSE {value.sql} END", value.type)


@handles(exp.Tuple)
def _tuple(_statement: Statement, node: exp.Expr, _scope: Scope) -> Bound:
    raise UnsupportedExpression("a row of values can only be compared", *spot(node))
