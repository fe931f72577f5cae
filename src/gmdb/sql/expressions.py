"""Scalar expressions: from sqlglot's tree to a Python function, once; then only that function runs.

``compile_expression(node, scope)`` answers a Compiled, whose ``evaluate(row, parameters, context)`` gives PostgreSQL's
value of PostgreSQL's type, or raises an error of gmdb.  What has neither columns nor parameters is computed once.

Invariants
 1. An expression whose types do not fit is refused when it is compiled, with the place in the text.
 2. At run time only DataErrors are raised (and InterfaceError for parameters that were not given).
Not here: aggregates, window functions and subqueries (``is_aggregate``, ``has_subquery`` tell them); statements.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from difflib import get_close_matches
from typing import Any

from sqlglot import exp

from gmdb.errors import NoSuchFunction
from gmdb.format.columns import ColumnType
from gmdb.sql import conditions, functions, operators, texts, times
from gmdb.sql.code import (
    Captured,
    EvaluationContext,
    Parameter,
    Term,
    Writer,
    described,
    ill_typed,
    unsupported,
)
from gmdb.sql.dialect import place
from gmdb.sql.numbers import plain_decimal
from gmdb.sql.scope import Scope, folded
from gmdb.sql.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    INT,
    INTEGERS,
    INTERVAL,
    NUMBERS,
    TEXT,
    TEXTS,
    category,
    numeric,
    pg_name,
    turns_into,
    type_from,
    within,
)

LITERAL_DIGITS_MAX = 1000

__all__ = [
    "Compiled",
    "EvaluationContext",
    "compile_assignment",
    "compile_condition",
    "compile_expression",
    "has_subquery",
    "is_aggregate",
]


@dataclass(frozen=True)
class Compiled:
    """An expression that is ready to be evaluated.

    ``type`` is None for NULL and for a parameter whose type nothing tells.  ``constant``: it needs neither row nor
    parameters nor the time, and its value is ``value``.  ``source``: the text of the function.
    """

    type: ColumnType | None
    evaluate: Callable[..., Any]  # (row, parameters, context)
    columns: frozenset[int]
    parameters: Mapping[Parameter, ColumnType | None]
    constant: bool
    value: Any
    source: str


def compile_expression(node: exp.Expr, scope: Scope) -> Compiled:
    """The function that an expression is."""
    writer = Writer(scope)
    term = compute(writer, node)
    if term.unknown == "literal":
        term = writer.typed(term, TEXT)
    return _finished(writer, term, node)


def compile_condition(node: exp.Expr, scope: Scope) -> Compiled:
    """The function that an expression is which must be true, false or unknown."""
    compiled = compile_expression(node, scope)
    if compiled.type not in (None, BOOLEAN):
        ill_typed(f"a condition must be boolean, not {pg_name(compiled.type)}", node, "Compare it with something")
    return compiled


def compile_assignment(node: exp.Expr, scope: Scope, target: ColumnType) -> Compiled:
    """The function that computes what a column of this type is set to.

    As in PostgreSQL, numbers are rounded to the column's type and everything becomes text, but text becomes nothing
    else; a text that is too long is left to be refused by the column.
    """
    writer = Writer(scope)
    term = compute(writer, node)
    if target.is_lob:
        if term.unknown == "parameter":
            return _finished(writer, writer.value_or_file(term, within(target)), node)
        target = within(target)
    if term.type is None:
        rounded = target.name == "DECIMAL" or (term.unknown == "literal" and target.name not in TEXTS)
        term = writer.cast(term, target, True, node) if rounded else writer.typed(term, target)
        return _finished(writer, term, node)
    source = term.type
    if target.name in TEXTS:
        term = operators.as_text(writer, term)
    elif not _assignable(source, target):
        hint = f"Write CAST(... AS {target})"
        ill_typed(f"a column of type {pg_name(target)} cannot be set to {described(term)}", node, hint)
    elif source != target:
        term = writer.cast(term, target, True, node)
    return _finished(writer, term, node)


def _assignable(source: ColumnType, target: ColumnType) -> bool:
    both_numbers = source.name in NUMBERS and target.name in NUMBERS
    return turns_into(source, target) or both_numbers or category(source) == category(target) == "time"


def _finished(writer: Writer, term: Term, node: exp.Expr) -> Compiled:
    if writer.failures:
        raise writer.failures[0]
    if term.type == INTERVAL:
        ill_typed("an interval is no value of its own here", node, "Add it to a DATE or TIMESTAMP")
    function, source = writer.function(term)
    return Compiled(
        term.type,
        function,
        frozenset(writer.columns),
        dict(writer.parameter_types),
        term.constant,
        term.value if term.constant else None,
        source,
    )


# ---- what is not for this compiler


def is_aggregate(node: exp.Expr) -> bool:
    """Whether the expression needs more than one row: aggregates and window functions."""
    return any(isinstance(one, exp.AggFunc | exp.Window) for one in _own_nodes(node))


def has_subquery(node: exp.Expr) -> bool:
    """Whether a query stands within the expression."""
    return node.find(exp.Query, exp.Exists) is not None


def _own_nodes(node: exp.Expr) -> Any:
    return node.walk(prune=lambda one: isinstance(one, exp.Query))


# ---- nodes

Compile = Callable[[Writer, Any], Term]


def compute(writer: Writer, node: exp.Expr) -> Term:
    """The term of a node, with its lines placed."""
    compile_node = _NODES.get(type(node))
    if compile_node is not None:
        return compile_node(writer, node)
    spelling = functions.SPELLINGS.get(type(node))
    if spelling is not None:
        return _function(writer, *spelling(node), node)
    if isinstance(node, exp.Query | exp.Exists):
        unsupported("a query cannot stand within this expression", node)
    if isinstance(node, exp.AggFunc | exp.Window):
        unsupported(f"{node.sql('postgres')} needs more than one row", node, "It can stand in a SELECT only")
    if isinstance(node, exp.Func) and not isinstance(node, exp.Binary):
        name = node.name if isinstance(node, exp.Anonymous) else node.sql_name()
        _no_function(name.lower(), node)
    return unsupported(f"{node.sql('postgres')!r} is not known here", node)


def _no_function(name: str, node: exp.Expr) -> Term:
    close = get_close_matches(name, functions.NAMES, 1)
    hint = f"Did you mean {close[0]}?" if close else f"The functions are {', '.join(sorted(functions.NAMES))}"
    raise NoSuchFunction(f"there is no function {name}", *place(node), hint)


def _thunk(writer: Writer, node: exp.Expr) -> Callable[[], Term]:
    return lambda: compute(writer, node)


def _literal(writer: Writer, node: exp.Literal) -> Term:
    if node.is_string:
        return writer.constant(node.this, None, node, "literal")
    return _number(writer, node.this, node)


def _number(writer: Writer, text: str, node: exp.Expr) -> Term:
    """An integer is of the first type that holds it; what has a point or an exponent is a decimal."""
    try:
        value = Decimal(text)
    except ArithmeticError:
        ill_typed(f"{text} is no number", node)
    if abs(value.adjusted()) > LITERAL_DIGITS_MAX or len(text) > LITERAL_DIGITS_MAX:
        ill_typed(f"{text[:20]}... has too many digits", node, f"At most {LITERAL_DIGITS_MAX} are read")
    if text.lstrip("-").isdigit():
        for type_ in (INT, BIGINT):
            low, high = INTEGERS[type_.name]
            if low <= int(text) <= high:
                return writer.constant(int(text), type_, node)
    value = plain_decimal(value)
    scale = -int(value.as_tuple().exponent)
    digits = max(len(value.as_tuple().digits), scale, 1)
    return writer.constant(value, ColumnType("DECIMAL", digits, scale) if digits <= 38 else numeric(scale), node)


def _text(writer: Writer, node: exp.Expr) -> Term:
    return writer.constant(node.name, None, node, "literal")


def _column(writer: Writer, node: exp.Column) -> Term:
    if isinstance(node.this, exp.Star):
        unsupported("* is no value", node)
    table = node.args.get("table")
    position, type_ = writer.scope.column(folded(node.this), folded(table) if table is not None else None, node)
    return writer.column(position, type_, node)


def _negation(writer: Writer, node: exp.Neg) -> Term:
    """The sign of a literal belongs to it: -2147483648 is an INT."""
    inner, signs = node.unnest(), 0
    while isinstance(inner, exp.Neg):
        inner, signs = inner.this.unnest(), signs + 1
    if isinstance(inner, exp.Literal) and not inner.is_string:
        return _number(writer, "-" * (signs % 2) + inner.this, node)
    return operators.negated(writer, compute(writer, node.this), node)


def _arithmetic(writer: Writer, node: exp.Binary) -> Term:
    left, right = compute(writer, node.this), compute(writer, node.expression)
    return operators.arithmetic(writer, operators.SYMBOLS[type(node)], left, right, node)


def _bitwise(writer: Writer, node: exp.Binary) -> Term:
    left, right = compute(writer, node.this), compute(writer, node.expression)
    return operators.bitwise(writer, operators.BITWISE[type(node)], left, right, node)


def _comparison(writer: Writer, node: exp.Binary) -> Term:
    symbol, left, right = operators.COMPARISONS[type(node)], node.this.unnest(), node.expression.unnest()
    if isinstance(left, exp.Tuple) and isinstance(right, exp.Tuple):
        return conditions.compare_rows(writer, symbol, _row(writer, left), _row(writer, right), node)
    return operators.compare(writer, symbol, compute(writer, left), compute(writer, right), node)


def _row(writer: Writer, node: exp.Expr) -> list[Term]:
    """The values of (a, b)."""
    return [compute(writer, one) for one in (node.expressions if isinstance(node, exp.Tuple) else [node])]


def _distinct(negate: bool) -> Compile:
    return lambda writer, node: operators.distinct(
        writer, compute(writer, node.this), compute(writer, node.expression), negate, node
    )


def _connection(absorbing: bool) -> Compile:
    def compile_node(writer: Writer, node: exp.Connector) -> Term:
        parts = [_thunk(writer, part) for part in _flattened(node, type(node))]
        return conditions.connect(writer, parts, absorbing, node)

    return compile_node


def _flattened(node: exp.Expr, kind: type[exp.Expr]) -> list[exp.Expr]:
    """The parts of a AND b AND c, without recursion: generated conditions may have thousands."""
    parts, rest = [], [node]
    while rest:
        one = rest.pop()
        if type(one) is kind:
            rest += [one.expression, one.this]
        else:
            parts.append(one)
    return parts


def _is(writer: Writer, node: exp.Is) -> Term:
    term, negate = compute(writer, node.this), bool(node.args.get("negate"))
    if isinstance(node.expression, exp.Null):
        return conditions.is_null(writer, term, negate, node)
    if not isinstance(node.expression, exp.Boolean):
        unsupported("IS takes NULL, TRUE, FALSE, UNKNOWN or DISTINCT FROM", node)
    made = conditions.is_truth(writer, term, node.expression.this, node)
    return conditions.inverted(writer, made, node) if negate else made


def _between(writer: Writer, node: exp.Between) -> Term:
    low, high = (_thunk(writer, node.args[key]) for key in ("low", "high"))
    return conditions.between(writer, compute(writer, node.this), low, high, bool(node.args.get("symmetric")), node)


def _in(writer: Writer, node: exp.In) -> Term:
    if node.args.get("query") is not None or not node.expressions:
        unsupported("IN takes a list of values here", node)
    if isinstance(node.this.unnest(), exp.Tuple):
        row = _row(writer, node.this.unnest())
        same = [
            lambda one=one: conditions.compare_rows(writer, "==", row, _row(writer, one.unnest()), node)
            for one in node.expressions
        ]
        return conditions.connect(writer, same, True, node)
    return conditions.in_list(writer, compute(writer, node.this), [_thunk(writer, n) for n in node.expressions], node)


def _like(writer: Writer, node: exp.Expr) -> Term:
    """LIKE and ILIKE, with ESCAPE around them if there is one."""
    escape = None
    inner = node
    if isinstance(node, exp.Escape):
        inner, escape = node.this, node.expression
    negate = bool(inner.args.get("negate"))
    text, pattern = compute(writer, inner.this), compute(writer, inner.expression)
    sign = compute(writer, escape) if escape is not None else None
    made = operators.like(writer, text, pattern, sign, isinstance(inner, exp.ILike), node)
    return conditions.inverted(writer, made, node) if negate else made


def _regexp(ignore_case: bool) -> Compile:
    return lambda writer, node: operators.matches(
        writer, compute(writer, node.this), compute(writer, node.expression), ignore_case, node
    )


def _case(writer: Writer, node: exp.Case) -> Term:
    subject = compute(writer, node.this) if node.this is not None else None
    if subject is not None and subject.unknown == "literal":
        subject = writer.typed(subject, TEXT)
    branches = [(_thunk(writer, one.this), _thunk(writer, one.args["true"])) for one in node.args["ifs"]]
    default = node.args.get("default") or exp.Null()
    return conditions.case(writer, subject, branches, _thunk(writer, default), node)


def _coalesce(writer: Writer, node: exp.Coalesce) -> Term:
    return conditions.coalesce(writer, [_thunk(writer, one) for one in (node.this, *node.expressions)], node)


def _extreme(largest: bool) -> Compile:
    def compile_node(writer: Writer, node: exp.Expr) -> Term:
        terms = [compute(writer, one) for one in (node.this, *node.expressions)]
        return conditions.extreme(writer, terms, largest, node)

    return compile_node


def _cast(writer: Writer, node: exp.Cast) -> Term:
    type_, limited = type_from(node.to)
    type_ = within(type_)
    term = compute(writer, node.this)
    if not limited and term.type is not None:
        type_ = numeric(term.type.scale if term.type.name != "DOUBLE" else functions.QUOTIENT_SCALE)
    elif not limited:
        type_ = numeric(functions.QUOTIENT_SCALE)
    return writer.cast(term, type_, limited, node)


def _interval(writer: Writer, node: exp.Interval) -> Term:
    unit = node.args.get("unit")
    if not isinstance(node.this, exp.Literal):
        unsupported("an interval is written as INTERVAL '1 day'", node)
    name = unit.name if unit is not None else None
    return writer.read(compute(writer, node.this), INTERVAL, lambda text: times.read_interval(text, name))


def _current_date(writer: Writer, node: exp.Expr) -> Term:
    return writer.apply("{0}.date()", [writer.now(node)], DATE, node)


def _now(writer: Writer, node: exp.Expr) -> Term:
    if node.this is not None and node.this.name != "6":
        unsupported("the current time has six digits", node, "Write it without a number")
    return writer.now(node)


def _concat(writer: Writer, node: exp.Concat) -> Term:
    if "safe" not in node.args and all(isinstance(one, exp.Literal) for one in node.expressions):
        joined = "".join(one.this for one in node.expressions)  # adjacent literals are one
        return writer.constant(joined, None, node, "literal")
    terms = [operators.as_output(writer, compute(writer, one)) for one in node.expressions]
    return writer.call(texts.concatenate, terms, TEXT, node, strict=False)


def _concat_ws(writer: Writer, node: exp.ConcatWs) -> Term:
    separator, *terms = (compute(writer, one) for one in node.expressions)
    arguments = [writer.typed(separator, TEXT), *(operators.as_output(writer, term) for term in terms)]
    return writer.call(texts.join, arguments, TEXT, node, strict=False)


def _typeof(writer: Writer, node: exp.Expr) -> Term:
    captured: Captured = writer.capture(_thunk(writer, node.expressions[0]))
    return writer.constant(pg_name(captured.term.type), TEXT, node)


def _anonymous(writer: Writer, node: exp.Anonymous) -> Term:
    name = node.name.lower()
    if name == "pg_typeof" and len(node.expressions) == 1:
        return _typeof(writer, node)
    name = functions.ALIASES.get(name, name)
    if name not in functions.FUNCTIONS:
        return _no_function(name, node)
    return _function(writer, name, node.expressions, node)


def _function(writer: Writer, name: str, arguments: list[exp.Expr], node: exp.Expr) -> Term:
    terms = [compute(writer, one) for one in arguments]
    given = [term.type for term in terms]
    overload = functions.choose(name, given)
    if overload is None:
        ways = ", ".join(
            f"{name}({', '.join(pg_name(type_) for type_ in one.takes)})" for one in functions.FUNCTIONS[name]
        )
        ill_typed(f"there is no {name}({', '.join(map(described, terms))})", node, f"There is {ways}")
    values = [writer.typed(term, type_) for term, type_ in zip(terms, overload.takes, strict=True)]
    return writer.call(overload.call, values, overload.result(given), node)


_NODES: dict[type[exp.Expr], Compile] = {
    exp.Literal: _literal,
    exp.ByteString: _text,
    exp.RawString: _text,
    exp.National: _text,
    exp.Boolean: lambda writer, node: writer.constant(bool(node.this), BOOLEAN, node),
    exp.Null: lambda writer, node: writer.constant(None, None, node, "null"),
    exp.Placeholder: lambda writer, node: writer.parameter(node),
    exp.Column: _column,
    exp.Paren: lambda writer, node: compute(writer, node.this),
    exp.Neg: _negation,
    **dict.fromkeys(operators.SYMBOLS, _arithmetic),
    **dict.fromkeys(operators.BITWISE, _bitwise),
    exp.BitwiseNot: lambda writer, node: operators.bitwise_not(writer, compute(writer, node.this), node),
    **dict.fromkeys(operators.COMPARISONS, _comparison),
    exp.DPipe: lambda writer, node: operators.concatenation(
        writer, compute(writer, node.this), compute(writer, node.expression), node
    ),
    exp.NullSafeEQ: _distinct(True),
    exp.NullSafeNEQ: _distinct(False),
    exp.And: _connection(False),
    exp.Or: _connection(True),
    exp.Not: lambda writer, node: conditions.inverted(writer, compute(writer, node.this), node),
    exp.Is: _is,
    exp.Between: _between,
    exp.In: _in,
    exp.Like: _like,
    exp.ILike: _like,
    exp.Escape: _like,
    exp.RegexpLike: _regexp(False),
    exp.RegexpILike: _regexp(True),
    exp.Case: _case,
    exp.Coalesce: _coalesce,
    exp.Nullif: lambda writer, node: conditions.nullif(
        writer, compute(writer, node.this), compute(writer, node.expression), node
    ),
    exp.Greatest: _extreme(True),
    exp.Least: _extreme(False),
    exp.Cast: _cast,
    exp.Interval: _interval,
    exp.CurrentDate: _current_date,
    exp.CurrentTimestamp: _now,
    exp.Localtimestamp: _now,
    exp.Concat: _concat,
    exp.ConcatWs: _concat_ws,
    exp.Anonymous: _anonymous,
}
