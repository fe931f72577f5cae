"""Scalar expressions: from sqlglot's nodes to expressions of the bound tree, with PostgreSQL's types.

A handler takes the parts of one kind of node and gives an expression.  What is *open* has no type yet: NULL, a quoted
literal, a parameter given as text.  Its surroundings give it one by ``coerce`` and ``same_type``; ``settled`` makes it
TEXT where nothing does.

Invariants
 1. A node gets through only if there is a handler for its kind, and if that took every part of the node.
 2. An expression whose types do not fit is refused with its place in the text.
 3. Nothing is evaluated here: see ``coercion.fold``.
Not here: what types operations take (operations/), aggregates, windows and queries, which register handlers of their
own.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING

from sqlglot import exp

from gmdb.errors import DataError, InterfaceError, InvalidSyntax, TypeMismatch, UnsupportedExpression
from gmdb.format.columns import DECIMAL_DIGITS_MAX, ColumnType
from gmdb.sql import operations, times, tree, types
from gmdb.sql.bind import coercion
from gmdb.sql.dialect import NUMBER, GmdbSql, Symbol, place
from gmdb.sql.numbers import plain_decimal
from gmdb.sql.syntax import Syntax, Written, folded, reading
from gmdb.sql.tree import Call, Case, Constant, Expression, Now, Parameter, ParameterKey
from gmdb.sql.types import BIGINT, BOOLEAN, BYTEA, DATE, FILE, INT, INTEGERS, INTERVAL, TIME, TIMESTAMP, TIMESTAMPTZ

if TYPE_CHECKING:
    from gmdb.sql.bind.binder import Binder
    from gmdb.sql.bind.scope import Scope

Handler = Callable[["Binder", Syntax, "Scope"], Expression]
HANDLERS: dict[type, Handler] = {}

OPERATORS: dict[type, str] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.Mod: "%",
    exp.Pow: "^",
    exp.BitwiseAnd: "&",
    exp.BitwiseOr: "|",
    exp.BitwiseXor: "#",
    exp.BitwiseLeftShift: "<<",
    exp.BitwiseRightShift: ">>",
    exp.DPipe: "||",
    exp.RegexpLike: "~",
    exp.RegexpILike: "~*",
}
COMPARISONS: dict[type, str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.NullSafeEQ: "IS NOT DISTINCT FROM",
    exp.NullSafeNEQ: "IS DISTINCT FROM",
}
_COLLATIONS = ("C", "POSIX", "UCS_BASIC", "DEFAULT")  # all by code points
_NUMBER_LENGTH_MAX = 1000
UNKNOWN = "unknown"  # in the meta of a Null that was written so


class InQuery:
    """Stands among the kinds of nodes for IN with a query, VALUES included."""


class ExistsQuery:
    """Stands among the kinds of nodes for EXISTS of what sqlglot's parser takes for a function's argument."""


class Quantified:
    """Stands among the kinds of nodes for a comparison with ANY or ALL."""


def handles(*kinds: type) -> Callable[[Handler], Handler]:
    """Register the handler for kinds of nodes."""

    def register(handler: Handler) -> Handler:
        HANDLERS.update(dict.fromkeys(kinds, handler))
        return handler

    return register


def bind(binder: Binder, node: exp.Expr, scope: Scope) -> Expression:
    """The expression that a node is; its type may be open."""
    handler = HANDLERS.get(_kind(node))
    if handler is None:
        raise UnsupportedExpression(f"{node.sql(dialect=GmdbSql)[:80]} is not supported here", *place(node))
    with reading(node) as syntax:
        return handler(binder, syntax, scope)


def _kind(node: exp.Expr) -> type:
    if isinstance(node, exp.In):
        items = node.expressions
        is_query = node.args.get("query") is not None or (len(items) == 1 and isinstance(items[0], exp.Values))
        return InQuery if is_query else exp.In
    if isinstance(node, exp.Anonymous) and node.name.lower() == "exists" and len(node.expressions) == 1:
        is_query = isinstance(node.expressions[0].unnest(), exp.Query | exp.Values)
        return ExistsQuery if is_query else exp.Anonymous
    if type(node) in COMPARISONS and quantifier(node.expression) is not None:
        return Quantified
    return type(node)


def quantifier(node: exp.Expr) -> str | None:
    """``any`` or ``all``, if a side of a comparison is that of a query or an array; the parser has several nodes."""
    if isinstance(node, exp.Any | exp.All):
        return "all" if isinstance(node, exp.All) else "any"
    name = node.name.lower() if isinstance(node, exp.Anonymous) and len(node.expressions) == 1 else ""
    return {"any": "any", "some": "any", "all": "all"}.get(name)


def condition(binder: Binder, node: exp.Expr, scope: Scope) -> Expression:
    """An expression that must be true, false or unknown."""
    return coercion.truth(bind(binder, node, scope), "a condition", node)


def bind_assigned(binder: Binder, node: exp.Expr, scope: Scope, target: ColumnType) -> Expression:
    """What a column is set to by a node.  The type of a parameter alone does not matter."""
    whole = coercion.unwrapped(node)
    if isinstance(whole, exp.Placeholder):
        with reading(whole) as syntax:
            return Parameter(types.within(target), _parameter_key(binder, syntax))
    return coercion.assign(bind(binder, whole, scope), target, node)


# ---- values


@handles(exp.Literal)
def _literal(_binder: Binder, syntax: Syntax, _scope: Scope) -> Expression:
    text = syntax.take("this") or ""
    return coercion.Open(text, syntax.node) if syntax.flag("is_string") else _number(text, syntax.node)


def _number(text: str, node: exp.Expr) -> Constant:
    """An integer is of the first type that holds it; what has a point or an exponent is a decimal."""
    try:
        value = Decimal(text)
    except ArithmeticError:
        raise InvalidSyntax(f"{text} is not a number", *place(node)) from None
    if len(text) > _NUMBER_LENGTH_MAX or abs(value.adjusted()) > _NUMBER_LENGTH_MAX:
        return coercion.LongNumber(text, node)
    if text.lstrip("-").isdigit():
        for type_ in (INT, BIGINT):
            low, high = INTEGERS[type_.name]
            if low <= int(text) <= high:
                return Constant(type_, int(text))
    value = plain_decimal(value)
    _, digits, exponent = value.as_tuple()
    scale = -int(exponent)
    length = max(len(digits), scale, 1)
    if length > DECIMAL_DIGITS_MAX:
        return coercion.LongNumber(text, node)
    return Constant(ColumnType("DECIMAL", length, scale), value)


@handles(exp.ByteString, exp.RawString, exp.National)
def _text_literal(_binder: Binder, syntax: Syntax, _scope: Scope) -> Expression:
    return coercion.Open(syntax.take("this") or "", syntax.node)


@handles(exp.HexString)
def _bytes_literal(_binder: Binder, syntax: Syntax, _scope: Scope) -> Expression:
    text = syntax.take("this") or ""
    try:
        return Constant(BYTEA, bytes.fromhex(text))
    except ValueError:
        raise InvalidSyntax(f"x'{text}' is not a hexadecimal number of bytes", *place(syntax.node)) from None


@handles(exp.Null)
def _null(_binder: Binder, syntax: Syntax, _scope: Scope) -> Expression:
    return coercion.Open(None, syntax.node)


@handles(exp.Boolean)
def _boolean(_binder: Binder, syntax: Syntax, _scope: Scope) -> Expression:
    return Constant(BOOLEAN, bool(syntax.take("this")))


@handles(exp.Concat)
def _adjacent_literals(_binder: Binder, syntax: Syntax, _scope: Scope) -> Expression:
    """Literals side by side are one."""
    syntax.ignore("coalesce", "safe")
    texts = []
    for one in syntax.list("expressions"):
        with reading(one) as part:
            if not isinstance(one, exp.Literal) or not part.flag("is_string"):
                raise UnsupportedExpression("only literals stand side by side", *place(one))
            texts.append(part.take("this") or "")
    return coercion.Open("".join(texts), syntax.node)


@handles(exp.Placeholder)
def _placeholder(binder: Binder, syntax: Syntax, _scope: Scope) -> Expression:
    key = _parameter_key(binder, syntax)
    binder.used_parameters.add(key)
    type_ = binder.parameters[key]
    if type_ == FILE:
        raise TypeMismatch("a file is for a column of large objects alone; give the value whole")
    return Parameter(type_, key, type_)  # type: ignore[arg-type]


def _parameter_key(binder: Binder, syntax: Syntax) -> ParameterKey:
    syntax.ignore("jdbc")  # a question mark
    key = syntax.take("this")
    if key is None:
        key = syntax.node.meta.get(NUMBER)
    if not isinstance(key, int | str):
        raise InvalidSyntax("a parameter is written as ?, $1 or :name", *place(syntax.node))
    if key not in binder.parameters:
        name = f":{key}" if isinstance(key, str) else f"? number {key + 1}"
        kind = "a dict" if isinstance(key, str) else "a tuple"
        raise InterfaceError(f"the statement needs the parameter {name}; pass {kind} that has it")
    return key


@handles(exp.Column)
def _column(binder: Binder, syntax: Syntax, scope: Scope) -> Expression:
    name = syntax.need("this", "a name")
    if isinstance(name, exp.Star):
        raise UnsupportedExpression("* cannot stand here", *place(syntax.node))
    table = syntax.take("table")
    schema = syntax.take("db")
    full = "" if schema is None else binder.catalog.column_of(Written(folded(table), folded(schema)), syntax.node)
    return scope.resolve(folded(name), folded(table) if table is not None else None, syntax.node, full)


@handles(exp.Paren)
def _parentheses(binder: Binder, syntax: Syntax, scope: Scope) -> Expression:
    return bind(binder, syntax.need("this", "an expression"), scope)


@handles(exp.Tuple)
def _row(_binder: Binder, syntax: Syntax, _scope: Scope) -> Expression:
    raise UnsupportedExpression("a row of values can only be compared", *place(syntax.node))


@handles(exp.Interval)
def _interval(_binder: Binder, syntax: Syntax, _scope: Scope) -> Expression:
    literal, unit = syntax.need("this", "the text of an interval"), syntax.take("unit")
    if not isinstance(literal, exp.Literal) or not isinstance(unit, exp.Var | None):
        raise UnsupportedExpression("an interval is written as INTERVAL '1 day'", *place(syntax.node))
    with reading(literal) as part:
        part.flag("is_string")
        text = part.take("this") or ""
    try:
        return Constant(INTERVAL, times.read_interval(text, unit.name if unit is not None else None))
    except DataError as error:
        raise coercion.placed(error, syntax.node) from None


@handles(exp.CurrentDate)
def _current_date(binder: Binder, syntax: Syntax, _scope: Scope) -> Expression:
    return coercion.convert(now(binder), DATE, syntax.node)


@handles(exp.CurrentTimestamp)
def _current_timestamp(binder: Binder, _syntax: Syntax, _scope: Scope) -> Expression:
    return now(binder)


@handles(exp.Localtimestamp)
def _local_timestamp(binder: Binder, syntax: Syntax, _scope: Scope) -> Expression:
    return coercion.convert(now(binder), TIMESTAMP, syntax.node)


@handles(exp.Localtime)
def _local_time(binder: Binder, syntax: Syntax, _scope: Scope) -> Expression:
    return coercion.convert(now(binder), TIME, syntax.node)


def now(binder: Binder) -> Expression:
    """The instant at which the statement began."""
    binder.uses_time = True
    return Now(TIMESTAMPTZ)


@handles(exp.AtTimeZone)
def _at_time_zone(binder: Binder, syntax: Syntax, scope: Scope) -> Expression:
    value, zone = syntax.need("this", "a time"), syntax.need("zone", "a time zone")
    return coercion.apply("timezone", [bind(binder, zone, scope), bind(binder, value, scope)], syntax.node)


# ---- operators


@handles(*OPERATORS)
def _operator(binder: Binder, syntax: Syntax, scope: Scope) -> Expression:
    """a + b + c leans to the left: there is no recursion along it."""
    left, right = _sides(syntax)
    spine = [(syntax.node, right)]
    while type(left) in OPERATORS:
        node = left
        with reading(node) as part:
            left, right = _sides(part)
        spine.append((node, right))
    value = bind(binder, left, scope)
    for node, right in reversed(spine):
        value = coercion.operator(OPERATORS[type(node)], value, bind(binder, right, scope), node)
    return value


def _sides(syntax: Syntax) -> tuple[exp.Expr, exp.Expr]:
    """The nodes on both sides of an operator."""
    syntax.ignore("typed", "safe")  # whose division and concatenation it is: the dialect's
    return syntax.need("this", "the left side"), syntax.need("expression", "the right side")


@handles(Symbol)
def _symbol(binder: Binder, syntax: Syntax, scope: Scope) -> Expression:
    """The operators of documents and arrays; there may be many side by side, too."""
    left, right = syntax.need("this", "the left side"), syntax.need("expression", "the right side")
    symbol = syntax.take("symbol")
    return coercion.operator(symbol, bind(binder, left, scope), bind(binder, right, scope), syntax.node)


@handles(exp.Neg)
def _negative(binder: Binder, syntax: Syntax, scope: Scope) -> Expression:
    """The sign of a literal belongs to it: -2147483648 is an INT."""
    inner, signs = coercion.unwrapped(syntax.need("this", "a number")), 1
    operand = inner
    while isinstance(inner, exp.Neg):
        with reading(inner) as part:
            inner, signs = coercion.unwrapped(part.need("this", "a number")), signs + 1
    if isinstance(inner, exp.Literal) and not inner.is_string:
        with reading(inner) as part:
            part.ignore("is_string")
            return _number("-" * (signs % 2) + part.need("this", "a number"), syntax.node)
    return _unary("neg", "-", bind(binder, operand, scope), syntax.node)


@handles(exp.BitwiseNot)
def _bitwise_not(binder: Binder, syntax: Syntax, scope: Scope) -> Expression:
    return _unary("bitnot", "~", bind(binder, syntax.need("this", "an integer"), scope), syntax.node)


def _unary(name: str, symbol: str, operand: Expression, node: exp.Expr) -> Expression:
    operation = operations.unary(name, operand.type) if operand.type is not None else None
    if operation is None:
        hint = "Say what it is, such as CAST(? AS INT)" if operand.type is None else "Cast it to a number"
        raise coercion.ill_typed(f"there is no {symbol} {coercion.described(operand)}", node, hint)
    return coercion.call(operation, [operand], node)


@handles(*COMPARISONS)
def _comparison(binder: Binder, syntax: Syntax, scope: Scope) -> Expression:
    symbol = COMPARISONS[type(syntax.node)]
    left, right = map(coercion.unwrapped, _sides(syntax))
    if isinstance(left, exp.Tuple) and isinstance(right, exp.Tuple):
        first, second = row(binder, left, scope), row(binder, right, scope)
        return coercion.comparison_of_rows(symbol, first, second, syntax.node)
    return coercion.comparison(symbol, bind(binder, left, scope), bind(binder, right, scope), syntax.node)


def row(binder: Binder, node: exp.Expr, scope: Scope) -> list[Expression]:
    """The values of (a, b); of anything else, itself."""
    whole = coercion.unwrapped(node)
    if not isinstance(whole, exp.Tuple):
        return [bind(binder, whole, scope)]
    with reading(whole) as syntax:
        return [bind(binder, one, scope) for one in syntax.list("expressions")]


# ---- conditions


@handles(exp.And, exp.Or)
def _junction(binder: Binder, syntax: Syntax, scope: Scope) -> Expression:
    """a AND b AND c is one; generated ones may have thousands of parts, so there is no recursion along them."""
    kind = type(syntax.node)
    parts: list[Expression] = []
    rest = [*_sides(syntax)[::-1]]
    while rest:
        one = rest.pop()
        if type(one) is kind:
            with reading(one) as part:
                rest += _sides(part)[::-1]
        else:
            parts.append(coercion.truth(bind(binder, one, scope), f"what {kind.__name__.upper()} joins", one))
    return coercion.junction(kind is exp.Or, parts)


@handles(exp.Not)
def _not(binder: Binder, syntax: Syntax, scope: Scope) -> Expression:
    return coercion.negation(bind(binder, syntax.need("this", "a condition"), scope), syntax.node)


@handles(exp.Is)
def _is(binder: Binder, syntax: Syntax, scope: Scope) -> Expression:
    value = bind(binder, syntax.need("this", "a value"), scope)
    what, negate = syntax.need("expression", "NULL, TRUE or FALSE"), syntax.flag("negate")
    if isinstance(what, exp.Null) and not what.meta.get(UNKNOWN):
        result = coercion.apply("is_null", [coercion.settled(value)], syntax.node)
    elif isinstance(what, exp.Null | exp.Boolean):
        with reading(what) as part:
            name = "is_null" if isinstance(what, exp.Null) else "is_true" if part.take("this") else "is_false"
        result = coercion.apply(name, [coercion.truth(value, "what IS TRUE asks about", syntax.node)], syntax.node)
    else:
        raise UnsupportedExpression("IS takes NULL, TRUE, FALSE, UNKNOWN or DISTINCT FROM", *place(what))
    return coercion.negation(result, syntax.node) if negate else result


@handles(exp.Between)
def _between(binder: Binder, syntax: Syntax, scope: Scope) -> Expression:
    node = syntax.node
    value, low, high = (bind(binder, syntax.need(key, "a value"), scope) for key in ("this", "low", "high"))

    def inside(first: Expression, last: Expression) -> Expression:
        lower = coercion.comparison(">=", value, first, node)
        return coercion.junction(False, [lower, coercion.comparison("<=", value, last, node)])

    if not syntax.flag("symmetric"):
        return inside(low, high)
    return coercion.junction(True, [inside(low, high), inside(high, low)])


@handles(exp.In)
def _in(binder: Binder, syntax: Syntax, scope: Scope) -> Expression:
    """Each item is compared with the value as the types of both say; what is open gets the type that all share."""
    node = syntax.node
    left, items = coercion.unwrapped(syntax.need("this", "a value")), syntax.list("expressions")
    if not items:
        raise InvalidSyntax("IN needs at least one value", *place(node))
    if isinstance(left, exp.Tuple):
        values = row(binder, left, scope)
        rows = [row(binder, one, scope) for one in items]
        return coercion.junction(True, [coercion.comparison_of_rows("=", values, one, node) for one in rows])
    value, *others = (bind(binder, one, scope) for one in (left, *items))
    _refuse_volatile(value, "the value before IN", node)
    if any(map(coercion.is_open, (value, *others))) and not all(map(coercion.is_open, (value, *others))):
        typed, _ = coercion.same_type([value, *others], "IN", node)
        pairs = zip((value, *others), typed, strict=True)
        value, *others = (new if coercion.is_open(old) else old for old, new in pairs)
    if value.type == types.REAL:
        others = _as_single_precision(others, node)
    return coercion.junction(True, [coercion.comparison("=", value, one, node) for one in others])


def _as_single_precision(items: list[Expression], node: exp.Expr) -> list[Expression]:
    """What a REAL is looked for among: several constants are a list of REAL if it has place for their types, while one
    alone is compared as a DOUBLE."""
    listed = [one for one in items if one.type is not None and not tree.columns_of(one)]
    if len(listed) < 2 or any(one.type.name not in types.NUMBERS or one.type.name == "DOUBLE" for one in listed):
        return items
    return [coercion.coerce(one, types.REAL, node) if one in listed else one for one in items]


def _refuse_volatile(expression: Expression, what: str, node: exp.Expr) -> None:
    """Refuse what would be evaluated several times with several values."""
    if any(isinstance(one, Call) and one.operation.volatile for one in expression.walk()):
        raise UnsupportedExpression(f"{what} must not be random", *place(node))


_PATTERNS: dict[type, str] = {exp.Like: "like", exp.ILike: "ilike", exp.SimilarTo: "similar"}


@handles(*_PATTERNS)
def _like(binder: Binder, syntax: Syntax, scope: Scope) -> Expression:
    return _like_with(binder, syntax, scope, None)


@handles(exp.Escape)
def _escape(binder: Binder, syntax: Syntax, scope: Scope) -> Expression:
    inner, sign = syntax.need("this", "LIKE"), syntax.need("expression", "the character")
    if type(inner) not in _PATTERNS:
        raise UnsupportedExpression("ESCAPE belongs to LIKE, ILIKE and SIMILAR TO", *place(syntax.node))
    with reading(inner) as part:
        return _like_with(binder, part, scope, bind(binder, sign, scope))


def _like_with(binder: Binder, syntax: Syntax, scope: Scope, escape: Expression | None) -> Expression:
    name = _PATTERNS[type(syntax.node)]
    sides, negate = _sides(syntax), syntax.flag("negate")
    if escape is None and quantifier(sides[1]) is not None:
        from gmdb.sql.bind.arrays import like_each

        return like_each(binder, name, sides[0], sides[1], negate, syntax.node, scope)
    arguments = [bind(binder, one, scope) for one in sides]
    if escape is not None:
        arguments, name = [*arguments, escape], f"{name}_escape"
    for one in arguments:
        if one.type is not None and not types.is_text(one.type):
            raise coercion.ill_typed(f"LIKE takes texts, not {coercion.described(one)}", syntax.node, "Cast it to TEXT")
    result = coercion.apply(name, arguments, syntax.node)
    return coercion.negation(result, syntax.node) if negate else result


@handles(exp.Case)
def _case(binder: Binder, syntax: Syntax, scope: Scope) -> Expression:
    subject, node = syntax.take("this"), syntax.node
    value = coercion.settled(bind(binder, subject, scope)) if subject is not None else None
    if value is not None:
        _refuse_volatile(value, "the value that CASE compares", node)
    tests: list[Expression] = []
    results: list[Expression] = []
    for branch in syntax.list("ifs"):
        with reading(branch) as part:
            test = bind(binder, part.need("this", "a condition"), scope)
            if value is None:
                tests.append(coercion.truth(test, "what CASE WHEN tests", branch))
            else:
                tests.append(coercion.comparison("=", value, test, branch))
            results.append(bind(binder, part.need("true", "a result"), scope))
    default = syntax.take("default")
    # PostgreSQL looks at the default first.
    last = bind(binder, default, scope) if default is not None else coercion.Open(None, node)
    (last, *results), type_ = coercion.same_type([last, *results], "CASE", node)
    return Case(type_, tuple(zip(tests, results, strict=True)), last)


# ---- casts


@handles(exp.Cast)
def _cast(binder: Binder, syntax: Syntax, scope: Scope) -> Expression:
    inner, to = syntax.need("this", "a value"), syntax.need("to", "a type")
    if isinstance(to, exp.ObjectIdentifier):
        from gmdb.sql.bind.catalog_functions import object_cast  # few ask for it

        return object_cast(binder, bind(binder, inner, scope), to, syntax.node)
    type_, limited = named_type(to)
    if type_.is_array and isinstance(inner, exp.Array) and not inner.expressions:  # which has no type of its own
        return Constant(type_, ())
    value = bind(binder, inner, scope)
    if _is_regclass(inner) and value.type == INT and types.within(type_).name == "VARCHAR":
        from gmdb.sql.bind.catalog_functions import as_name

        value = as_name(binder, value, syntax.node)
    return coercion.convert(value, types.within(type_), syntax.node, limited)


def _is_regclass(node: exp.Expr) -> bool:
    return isinstance(node, exp.Cast) and isinstance(node.args.get("to"), exp.ObjectIdentifier)


def named_type(node: exp.Expr) -> tuple[ColumnType, bool]:
    """The type that is written in a statement, and whether a DECIMAL's digits were given with it."""
    if not isinstance(node, exp.DataType):
        raise UnsupportedExpression(f"there is no type {node.sql(dialect=GmdbSql)}", *place(node))
    with reading(node) as syntax:
        syntax.take("this")
        syntax.ignore("nested", "values")  # of an array, about which type_from asks
        for one in syntax.list("expressions"):
            if isinstance(one, exp.DataType):
                named_type(one)
            if isinstance(one, exp.DataTypeParam):
                with reading(one) as part:
                    part.take("this")
        return types.type_from(node)


@handles(exp.Collate)
def _collate(binder: Binder, syntax: Syntax, scope: Scope) -> Expression:
    value = coercion.settled(bind(binder, syntax.need("this", "a text"), scope))
    name = syntax.need("expression", "a collation")
    if name.name.upper() not in _COLLATIONS:
        raise UnsupportedExpression('texts are compared by code points only: COLLATE "C"', *place(syntax.node))
    if not types.is_text(value.type):
        raise coercion.ill_typed(f"COLLATE takes a text, not {coercion.described(value)}", syntax.node)
    return value
