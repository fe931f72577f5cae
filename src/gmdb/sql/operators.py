"""Operators: arithmetic, comparison, concatenation, LIKE.  Each picks its types as PostgreSQL does.

The static type of a decimal result: sums have the larger scale and one digit more, products the sum of scales and
digits, quotients DECIMAL(38, s) with s the larger scale, but at least 16.  The values have the scales of PostgreSQL's
numeric.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from gmdb.format.columns import DECIMAL_DIGITS_MAX, ColumnType
from gmdb.sql import casts, numbers, texts, times
from gmdb.sql.code import Term, Writer, described, ill_typed
from gmdb.sql.functions import QUOTIENT_SCALE
from gmdb.sql.types import (
    BOOLEAN,
    BYTEA,
    DATE,
    DOUBLE,
    INT,
    INTEGERS,
    INTERVAL,
    NUMBERS,
    TEXT,
    TEXTS,
    TIMESTAMP,
    category,
    common_type,
    numeric,
)

SYMBOLS: dict[type[exp.Expr], str] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.Mod: "%",
}
BITWISE: dict[type[exp.Expr], str] = {
    exp.BitwiseAnd: "&",
    exp.BitwiseOr: "|",
    exp.BitwiseXor: "#",
    exp.BitwiseLeftShift: "<<",
    exp.BitwiseRightShift: ">>",
}
COMPARISONS: dict[type[exp.Expr], str] = {
    exp.EQ: "==",
    exp.NEQ: "!=",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}
_DECIMAL_OPERATIONS = {
    "+": numbers.add_decimals,
    "-": numbers.subtract_decimals,
    "*": numbers.multiply_decimals,
    "/": numbers.divide_decimals,
    "%": numbers.remainder_of_decimals,
}
# The second operand's type is that of a parameter or literal beside the first.
_TIME_OPERATIONS: dict[tuple[str, str, str], tuple[ColumnType, Callable[..., object], bool]] = {
    # (operator, left, right): result, function, whether a DATE on the left is widened first
    ("+", "DATE", "INT"): (DATE, times.add_days, False),
    ("-", "DATE", "INT"): (DATE, times.subtract_days, False),
    ("-", "DATE", "DATE"): (INT, times.days_between, False),
    ("-", "TIMESTAMP", "TIMESTAMP"): (INTERVAL, times.interval_between, True),
    ("+", "TIMESTAMP", "INTERVAL"): (TIMESTAMP, times.add_interval, True),
    ("-", "TIMESTAMP", "INTERVAL"): (TIMESTAMP, times.subtract_interval, True),
    ("+", "INTERVAL", "INTERVAL"): (INTERVAL, times.Interval.plus, False),
    ("-", "INTERVAL", "INTERVAL"): (INTERVAL, lambda a, b: a.plus(b.negated()), False),
    ("*", "INTERVAL", "DOUBLE"): (INTERVAL, times.Interval.times, False),
}


def _refuse(symbol: str, left: Term, right: Term, node: exp.Expr, hint: str = "") -> None:
    hint = hint or "Cast one of them, such as CAST(... AS INT)"
    ill_typed(f"there is no {described(left)} {symbol} {described(right)}", node, hint)


# ---- arithmetic


def arithmetic(writer: Writer, symbol: str, left: Term, right: Term, node: exp.Expr) -> Term:
    """left + right, and the like."""
    if left.type is None and right.type is None:
        _refuse(symbol, left, right, node, "Say what a parameter is, such as CAST(? AS INT)")
    kinds = {term.type.name for term in (left, right) if term.type is not None}
    if kinds & {"DATE", "TIMESTAMP", "INTERVAL"}:
        return _time_arithmetic(writer, symbol, left, right, node)
    if not kinds <= set(NUMBERS):
        _refuse(symbol, left, right, node, "Texts are joined by ||" if kinds & set(TEXTS) and symbol == "+" else "")
    name = max(kinds, key=NUMBERS.index)
    left, right = (
        writer.typed(term, _beside(other)) if term.type is None else term
        for term, other in ((left, right), (right, left))
    )
    if name == "DOUBLE":
        return _double_arithmetic(writer, symbol, left, right, node)
    if name == "DECIMAL":
        return writer.call(_DECIMAL_OPERATIONS[symbol], [left, right], _decimal_type(symbol, left, right), node)
    return _integer_arithmetic(writer, symbol, name, left, right, node)


def _beside(other: Term) -> ColumnType:
    assert other.type is not None
    return _unbounded(other.type)


def _unbounded(type_: ColumnType) -> ColumnType:
    """The type that a literal or a parameter takes from its surroundings: no length comes with it."""
    if type_.name == "DECIMAL":
        return numeric(type_.scale)
    return {"VARCHAR": TEXT, "VARBINARY": BYTEA}.get(type_.name, type_)


def _integer_arithmetic(writer: Writer, symbol: str, name: str, left: Term, right: Term, node: exp.Expr) -> Term:
    low, high = INTEGERS[name]
    type_ = ColumnType(name)
    if symbol == "%":
        return writer.call(numbers.remainder_of_integers, [left, right], type_, node)
    made = f"{writer.bind(numbers.divide_integers)}({{0}}, {{1}})" if symbol == "/" else f"{{0}} {symbol} {{1}}"
    template = f'({{t}} if {low} <= ({{t}} := {made}) <= {high} else out_of_range("{name}"))'
    return writer.apply(template, [left, right], type_, node)


def _double_arithmetic(writer: Writer, symbol: str, left: Term, right: Term, node: exp.Expr) -> Term:
    if symbol == "%":
        _refuse(symbol, left, right, node, "Cast both to DECIMAL")
    left, right = writer.typed(left, DOUBLE), writer.typed(right, DOUBLE)
    if symbol == "*":
        return writer.call(numbers.multiply_doubles, [left, right], DOUBLE, node)
    if symbol == "/":
        return writer.call(numbers.divide_doubles, [left, right], DOUBLE, node)
    largest, check = numbers.DOUBLE_MAX, writer.bind(numbers.checked_double)
    made = f"{{t}} if -{largest!r} <= ({{t}} := {{0}} {symbol} {{1}}) <= {largest!r} else {check}({{t}}, {{0}}, {{1}})"
    return writer.apply(f"({made})", [left, right], DOUBLE, node)


def _digits(type_: ColumnType) -> tuple[int, int]:
    """Digits before and behind the point."""
    if type_.name == "DECIMAL":
        return type_.length - type_.scale, type_.scale
    return (10 if type_.name == "INT" else 19), 0


def _decimal_type(symbol: str, left: Term, right: Term) -> ColumnType:
    assert left.type is not None
    assert right.type is not None
    (before, scale), (other_before, other_scale) = _digits(left.type), _digits(right.type)
    larger = max(scale, other_scale)
    if symbol == "/":
        return numeric(max(QUOTIENT_SCALE, larger))
    if symbol == "*":
        larger, before = scale + other_scale, before + other_before
    elif symbol == "%":
        before = other_before
    else:
        before = max(before, other_before) + 1
    larger = min(larger, DECIMAL_DIGITS_MAX)
    return ColumnType("DECIMAL", max(1, min(before + larger, DECIMAL_DIGITS_MAX)), larger)


def _time_arithmetic(writer: Writer, symbol: str, left: Term, right: Term, node: exp.Expr) -> Term:
    if symbol in "+*" and _comes_second(left, right):
        left, right = right, left
    if left.type is None:
        guess = right.type if symbol == "-" or right.type == INTERVAL else None
        if guess is None:
            _refuse(symbol, left, right, node, "Say what a parameter is, such as CAST(? AS INT)")
        left = writer.typed(left, guess)  # type: ignore[arg-type]
    assert left.type is not None
    if right.type is None:
        if symbol == "+" and left.type == DATE:
            _refuse(symbol, left, right, node, "Cast it to INT for days, or to INTERVAL")
        right = writer.typed(right, INTERVAL if symbol == "+" else DOUBLE if symbol == "*" else left.type)
    assert right.type is not None
    first, second = left.type.name, right.type.name
    if first == "DATE" and second in ("INTERVAL", "TIMESTAMP"):
        first = "TIMESTAMP"
    elif (first, second) == ("TIMESTAMP", "DATE"):
        right, second = writer.typed(right, TIMESTAMP), "TIMESTAMP"
    if symbol == "*" and second in NUMBERS:
        right, second = writer.typed(right, DOUBLE), "DOUBLE"
    found = _TIME_OPERATIONS.get((symbol, first, second))
    if found is None:
        _refuse(symbol, left, right, node, "To a date add an INT of days, or an INTERVAL")
    type_, function, widen = found  # type: ignore[misc]
    return writer.call(function, [writer.typed(left, TIMESTAMP) if widen else left, right], type_, node)


def _comes_second(left: Term, right: Term) -> bool:
    """Whether + and * of these are defined the other way round."""
    kinds = (left.type.name if left.type else "", right.type.name if right.type else "")
    return kinds[1] in ("DATE", "TIMESTAMP") or (kinds[1] == "INTERVAL" and kinds[0] in ("", *NUMBERS))


def negated(writer: Writer, term: Term, node: exp.Expr) -> Term:
    """-x."""
    if term.type is None:
        ill_typed(f"there is no - {described(term)}", node, "Say what it is, such as CAST(? AS INT)")
    if term.type.name in INTEGERS:
        name, low = term.type.name, INTEGERS[term.type.name][0]
        return writer.apply(f'(-{{0}} if {{0}} != {low} else out_of_range("{name}"))', [term], term.type, node)
    if term.type.name == "DECIMAL":
        return writer.call(numbers.negate_decimal, [term], term.type, node)
    if term.type.name == "INTERVAL":
        return writer.apply("{0}.negated()", [term], INTERVAL, node)
    if term.type.name != "DOUBLE":
        ill_typed(f"there is no - {described(term)}", node, "Only numbers and intervals have a sign")
    return writer.apply("-{0}", [term], DOUBLE, node)


# ---- bits


def bitwise(writer: Writer, symbol: str, left: Term, right: Term, node: exp.Expr) -> Term:
    """&, |, # of integers, and shifts, whose count goes round at the number of bits."""
    if left.type is None and right.type is None:
        _refuse(symbol, left, right, node, "Say what a parameter is, such as CAST(? AS INT)")
    left, right = (
        writer.typed(term, _beside(other)) if term.type is None else term
        for term, other in ((left, right), (right, left))
    )
    names = [term.type.name for term in (left, right) if term.type is not None]
    if not set(names) <= set(INTEGERS):
        _refuse(symbol, left, right, node)
    if symbol in ("<<", ">>"):
        return writer.call(numbers.SHIFTS[symbol, names[0]], [left, right], ColumnType(names[0]), node)
    type_ = ColumnType("BIGINT" if "BIGINT" in names else "INT")
    return writer.apply(f"{{0}} {'^' if symbol == '#' else symbol} {{1}}", [left, right], type_, node)


def bitwise_not(writer: Writer, term: Term, node: exp.Expr) -> Term:
    """~x."""
    if term.type is None or term.type.name not in INTEGERS:
        ill_typed(f"there is no ~ {described(term)}", node, "Only integers have bits")
    return writer.apply("~{0}", [term], term.type, node)


# ---- comparison


def comparable(writer: Writer, left: Term, right: Term, symbol: str, node: exp.Expr) -> tuple[Term, Term]:
    """Both sides as values that Python compares as PostgreSQL does; doubles may still be NaN."""
    if left.type is None and right.type is None:
        left, right = writer.typed(left, TEXT), writer.typed(right, TEXT)
    elif left.type is None:
        left = writer.typed(left, _beside(right))
    elif right.type is None:
        right = writer.typed(right, _beside(left))
    assert left.type is not None
    assert right.type is not None
    if category(left.type) != category(right.type):
        shown = {"==": "=", "!=": "<>"}.get(symbol, symbol)
        _refuse(shown, left, right, node)
    kinds = {left.type.name, right.type.name}
    if "CHAR" in kinds:
        # Blanks at the end do not count, except in a text that is compared with a CHAR.
        both = TEXT not in (left.type, right.type)
        return tuple(  # type: ignore[return-value]
            writer.apply("{0}.rstrip(' ')", [term], TEXT, node) if both or term.type.name == "CHAR" else term  # type: ignore[union-attr]
            for term in (left, right)
        )
    if "DOUBLE" in kinds:
        return writer.typed(left, DOUBLE), writer.typed(right, DOUBLE)
    if kinds == {"DATE", "TIMESTAMP"}:
        return writer.typed(left, TIMESTAMP), writer.typed(right, TIMESTAMP)
    if kinds == {"INTERVAL"}:
        return writer.apply("{0}.length()", [left], INTERVAL, node), writer.apply(
            "{0}.length()", [right], INTERVAL, node
        )
    return left, right


def _comparison_template(symbol: str, left: Term) -> str:
    if left.type != DOUBLE:
        return f"{{0}} {symbol} {{1}}"
    ordered = f"order_doubles({{0}}, {{1}}) {symbol} 0"
    return f"({{0}} {symbol} {{1}} if {{0}} == {{0}} and {{1}} == {{1}} else {ordered})"


def compare(writer: Writer, symbol: str, left: Term, right: Term, node: exp.Expr) -> Term:
    left, right = comparable(writer, left, right, symbol, node)
    return writer.apply(_comparison_template(symbol, left), [left, right], BOOLEAN, node)


def distinct(writer: Writer, left: Term, right: Term, negate: bool, node: exp.Expr) -> Term:
    """IS [NOT] DISTINCT FROM: NULL is a value like others."""
    left, right = comparable(writer, left, right, "==", node)
    different = _comparison_template("!=", left)
    nulls = "({0} is not {1}) if {0} is None or {1} is None else "
    template = f"not ({nulls}{different})" if negate else f"({nulls}{different})"
    term = writer.apply(template, [left, right], BOOLEAN, node, strict=False)
    return Term(term.code, BOOLEAN, node, False, term.constant, term.value)


# ---- text


def concatenation(writer: Writer, left: Term, right: Term, node: exp.Expr) -> Term:
    """left || right: of texts, or of one text and anything; of bytes."""
    kinds = [category(term.type) if term.type is not None else "" for term in (left, right)]
    if "bytes" in kinds and set(kinds) <= {"bytes", ""}:
        return writer.apply("{0} + {1}", [writer.typed(left, BYTEA), writer.typed(right, BYTEA)], BYTEA, node)
    if "text" not in kinds and "" not in kinds:
        _refuse("||", left, right, node, "Cast one of them to TEXT")
    return writer.apply("{0} + {1}", [as_text(writer, left), as_text(writer, right)], TEXT, node)


def as_text(writer: Writer, term: Term) -> Term:
    """The term as CAST(... AS TEXT) would have it, of any length."""
    if term.type is None or term.type.name in TEXTS:
        return writer.typed(term, TEXT)
    return writer.call(casts.write_text(term.type), [term], TEXT, term.node)


def as_output(writer: Writer, term: Term) -> Term:
    """The term as it is shown, which is how concat takes its arguments: a CHAR with its blanks, t for true."""
    if term.type is not None and term.type.name == "BOOLEAN":
        return writer.apply("'t' if {0} else 'f'", [term], TEXT, term.node)
    if term.type is not None and term.type.name == "CHAR":
        return term
    return as_text(writer, term)


def like(writer: Writer, text: Term, pattern: Term, escape: Term | None, ignore_case: bool, node: exp.Expr) -> Term:
    """LIKE and ILIKE; a CHAR is taken with its blanks."""
    for term in (text, pattern, escape):
        if term is not None and term.type is not None and category(term.type) != "text":
            ill_typed(f"LIKE takes texts, not {described(term)}", term.node, "Cast it to TEXT")
    if text.type is None or text.type.name != "CHAR":
        text = writer.typed(text, TEXT)
    pattern = writer.typed(pattern, TEXT)
    escape = writer.typed(escape, TEXT) if escape is not None else None
    fixed = pattern.constant and isinstance(pattern.value, str) and (escape is None or isinstance(escape.value, str))
    if fixed and (escape is None or escape.constant):
        matcher = texts.like_matcher(pattern.value, escape.value if escape is not None else "\\", ignore_case)
        return writer.apply(f"({writer.bind(matcher)}({{0}}) is not None)", [text], BOOLEAN, node)
    if escape is None:
        return writer.call(texts.ilike if ignore_case else texts.like, [text, pattern], BOOLEAN, node)
    function = texts.ilike_with_escape if ignore_case else texts.like_with_escape
    return writer.call(function, [text, pattern, escape], BOOLEAN, node)


def matches(writer: Writer, text: Term, pattern: Term, ignore_case: bool, node: exp.Expr) -> Term:
    """~ and ~*: whether a regular expression is found in a text."""
    for term in (text, pattern):
        if term.type is not None and category(term.type) != "text":
            ill_typed(f"~ takes texts, not {described(term)}", term.node, "Cast it to TEXT")
    given = [writer.typed(text, TEXT), writer.typed(pattern, TEXT)]
    return writer.call(texts.matches_ignoring_case if ignore_case else texts.matches, given, BOOLEAN, node)


def common(terms: list[Term], what: str, node: exp.Expr) -> ColumnType | None:
    """The type that several terms share."""
    try:
        type_ = common_type([term.type for term in terms])
        if type_ is not None and any(term.type is None and term.unknown != "null" for term in terms):
            return _unbounded(type_)
        return type_
    except ValueError as error:
        ill_typed(f"{what} mixes {error}", node, "Cast them to one type")
