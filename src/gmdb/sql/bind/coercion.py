"""Types of bound expressions: giving them to what is open, bringing values to one type, and applying operations.

What is *open* has no type yet: NULL, a quoted literal, a parameter given as text.  Its surroundings give it one by
``coerce`` and ``same_type``; ``settled`` makes it TEXT where nothing does.

Invariants
 1. An operation gets values of the types that it takes, but for lengths, which are limits of columns and casts only.
 2. An expression whose types do not fit is refused with its place in the text.
Not here: which operations there are and what types they take (operations/); sqlglot's nodes (expressions.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from gmdb.errors import DataError, IllTyped, ValueOutOfRange
from gmdb.format.columns import DECIMAL_DIGITS_MAX, ColumnType, array_of
from gmdb.process.late_dataclasses import replace
from gmdb.sql import operations, tree, types
from gmdb.sql.dialect import INSTANT, place
from gmdb.sql.operations import Operation
from gmdb.sql.sharing import with_sources
from gmdb.sql.syntax import reading
from gmdb.sql.tree import Call, Constant, Expression, Junction, Parameter
from gmdb.sql.types import BOOLEAN, BYTEA, BYTES, DOUBLE, INTEGERS, JSON, JSONB, TEXT, TEXTS, TIMESTAMPTZ
from gmdb.sql.zones import ZONE, instant_text

if TYPE_CHECKING:
    pass


# ---- Constants are computed once, while a statement is bound, by the function that would compute them for a row.
#
# Invariants
#  1. A constant that cannot be computed is an error of the whole statement, as in PostgreSQL, unless constants exclude
#     the branch that it stands in: ``case when false then 1 / 0 end``, ``false and …``, ``coalesce(1, …)``.
#  2. What is NULL whatever its other arguments are is not computed for rows: ``null + x``.
#  3. Types stay as they are; so do columns, which are the same objects afterwards.

_BOTH = (tree.Expression, tree.Relation)


def fold(expression: tree.Expression) -> tree.Expression:
    """The expression with its constants computed, those of queries within it too."""
    if isinstance(expression, tree.Junction):
        return _junction(expression)
    if isinstance(expression, tree.Case):
        return _case(expression)
    if isinstance(expression, tree.Coalesce):
        return _coalesce(expression)
    if isinstance(expression, tree.Call):
        return _call(expression)
    return tree.rebuilt(expression, _folded, _BOTH)


def fold_relation(relation: tree.Relation) -> tree.Relation:
    """A relation with the constants of all its expressions computed, all the way down."""
    if isinstance(relation, tree.With):
        return with_sources(relation, fold_relation)
    return tree.rebuilt(relation, _folded, _BOTH)


def _folded(part: tree.Expression | tree.Relation) -> tree.Expression | tree.Relation:
    return fold(part) if isinstance(part, tree.Expression) else fold_relation(part)


def _call(call: tree.Call) -> tree.Expression:
    operation = call.operation
    arguments, constants = [], []
    for argument in call.arguments:
        one = fold(argument)
        arguments.append(one)
        if isinstance(one, tree.Constant):
            constants.append(one.value)
    if operation.strict and any(value is None for value in constants):
        return tree.Constant(call.type, None)
    if operation.volatile or len(constants) < len(arguments):
        return tree.Call(call.type, operation, tuple(arguments))
    return tree.Constant(call.type, operations.apply(operation, *constants))


def _junction(junction: tree.Junction) -> tree.Expression:
    absorbing = junction.absorbing
    parts: list[tree.Expression] = []
    for part in junction.parts:
        one = fold(part)
        if not isinstance(one, tree.Constant):
            parts.append(one)
        elif one.value is absorbing:
            return one
        elif one.value is None:
            parts.append(one)
    if all(isinstance(one, tree.Constant) for one in parts):
        return tree.Constant(junction.type, None if parts else not absorbing)
    return parts[0] if len(parts) == 1 else replace(junction, parts=tuple(parts))


def _case(case: tree.Case) -> tree.Expression:
    branches: list[tuple[tree.Expression, tree.Expression]] = []
    default = None
    for condition, result in case.branches:
        test = fold(condition)
        if not isinstance(test, tree.Constant):
            branches.append((test, fold(result)))
        elif test.value is True:
            default = fold(result)
            break
    if default is None:
        default = fold(case.default)
    return tree.Case(case.type, tuple(branches), default) if branches else _as(default, case)


def _coalesce(coalesce: tree.Coalesce) -> tree.Expression:
    parts: list[tree.Expression] = []
    for part in coalesce.parts:
        one = fold(part)
        if not isinstance(one, tree.Constant):
            parts.append(one)
        elif one.value is not None:
            parts.append(one)
            break
    if not parts:
        return tree.Constant(coalesce.type, None)
    return _as(parts[0], coalesce) if len(parts) == 1 else tree.Coalesce(coalesce.type, tuple(parts))


def _as(expression: tree.Expression, whole: tree.Expression) -> tree.Expression:
    """The part that is left of an expression, in its place."""
    if isinstance(expression, tree.Constant):
        return tree.Constant(whole.type, expression.value)
    return expression


# ---- Types of bound expressions.


def unwrapped(node: exp.Expr) -> exp.Expr:
    """A node without the parentheses around it."""
    while isinstance(node, exp.Paren):
        with reading(node) as syntax:
            node = syntax.need("this", "an expression")
    return node


class Open(Constant):
    """A quoted literal, or NULL, which has no type yet; it knows where it is written."""

    node: exp.Expr

    def __init__(self, text: str | None, node: exp.Expr) -> None:
        super().__init__(None, text)  # type: ignore[arg-type]
        object.__setattr__(self, "node", node)


class LongNumber(Open):
    """A number with more digits than a DECIMAL has.  It can become a DOUBLE only."""

    def beside(self, type_: ColumnType | None) -> Constant:
        """The number as a value of the type.  Raises ValueOutOfRange if that is not DOUBLE."""
        if type_ != DOUBLE:
            raise placed(ValueOutOfRange(f"{self.value[:40]} has more than {DECIMAL_DIGITS_MAX} digits"), self.node)
        return Constant(DOUBLE, _read(self.value, DOUBLE, self.node))


def is_open(expression: Expression) -> bool:
    """Whether its surroundings still have to give it a type."""
    return expression.type is None


def described(expression: Expression) -> str:
    """An expression's type, for messages."""
    if expression.type is not None:
        return types.pg_name(expression.type)
    if isinstance(expression, Parameter):
        return "a parameter of unknown type"
    if isinstance(expression, LongNumber):
        return "a long number"
    return "a string" if isinstance(expression, Constant) and expression.value is not None else "a null"


def ill_typed(message: str, node: exp.Expr, hint: str = "") -> IllTyped:
    return IllTyped(message, *place(node), hint)


def coerce(expression: Expression, type_: ColumnType, node: exp.Expr) -> Expression:
    """The expression, converted to a type implicitly.  Raises IllTyped if there is no such conversion."""
    source = expression.type
    if source is None:
        return _given_a_type(expression, type_, node)
    if _is_alike(source, type_):
        return expression
    if isinstance(expression, Parameter) and source.is_array and type_.is_json:  # a list may be either
        return Parameter(type_, expression.key)
    operation = operations.widen(source, type_)
    if operation is None:
        message = f"{described(expression)} is not of type {types.pg_name(type_)}"
        raise ill_typed(message, node, f"Write CAST(... AS {type_})")
    return _applied(operation, (expression,))


def _applied(operation: Operation, arguments: Sequence[Expression]) -> Call:
    """A call; of what depends on the session's time zone by that in which the statement is bound."""
    zone = (Constant(TEXT, ZONE.get()),) if operation.zoned else ()
    return Call(operation.gives, operation, (*arguments, *zone))


def _is_alike(source: ColumnType, type_: ColumnType) -> bool:
    """Whether a value of one type is a value of the other as it is; lengths are limits of columns and casts only."""
    if source.name == type_.name:
        return source.name not in ("DECIMAL", "DECIMAL[]") or source.scale == type_.scale
    return source.name in BYTES and type_.name in BYTES


def _given_a_type(expression: Expression, type_: ColumnType, node: exp.Expr) -> Expression:
    """An open expression as a value of a type: a literal is read, a parameter will be."""
    if isinstance(expression, Parameter):
        return Parameter(type_, expression.key)
    if isinstance(expression, LongNumber):
        return expression.beside(type_)
    assert isinstance(expression, Constant)
    if expression.value is None or type_.name in TEXTS:
        return Constant(type_, expression.value)
    return Constant(type_, _read(expression.value, type_, expression.node if isinstance(expression, Open) else node))


def _read(text: str, type_: ColumnType, node: exp.Expr) -> Any:
    try:
        value = operations.read_literal(text, type_)
    except DataError as error:
        raise placed(error, node) from None
    if type_.name == TIMESTAMPTZ.name and isinstance(node, exp.Literal):
        node.meta[INSTANT] = instant_text(value, "UTC")
    return value


def placed(error: DataError, node: exp.Expr) -> DataError:
    """An error about a value, with the place where the value is written."""
    line, column = place(node)
    return type(error)(f"line {line}, column {column}: {error}") if line is not None else error


def truth(expression: Expression, what: str, node: exp.Expr) -> Expression:
    """An expression as a BOOLEAN, which it must be already."""
    if expression.type not in (None, BOOLEAN):
        raise ill_typed(f"{what} must be boolean, not {described(expression)}", node, "Compare it with something")
    return coerce(expression, BOOLEAN, node)


def settled(expression: Expression) -> Expression:
    """The expression; as TEXT, if nothing has given it a type."""
    if isinstance(expression, Parameter) and expression.type is None:
        return Parameter(TEXT, expression.key)
    if isinstance(expression, LongNumber):
        return expression.beside(None)
    if isinstance(expression, Constant) and expression.type is None:
        return Constant(TEXT, expression.value)
    return expression


def same_type(expressions: Sequence[Expression], what: str, node: exp.Expr) -> tuple[list[Expression], ColumnType]:
    """Values that take each other's place, as values of the type that they share."""
    known = [one.type for one in expressions if one.type is not None]
    try:
        type_ = types.common_type(known) or TEXT
        opened = [types.beside(type_, _text(one)) for one in expressions if _takes_room(one)]
        type_ = types.common_type([*known, *opened]) or TEXT
    except ValueError as error:
        raise ill_typed(f"{what} mixes {error}", node, "Cast them to one type") from None
    return [coerce(one, type_, node) for one in expressions], type_


def _takes_room(expression: Expression) -> bool:
    """Whether an open expression may have more digits or letters than its surroundings: NULL has none."""
    return expression.type is None and (isinstance(expression, Parameter) or _text(expression) is not None)


def _text(expression: Expression) -> str | None:
    """The text of an open literal."""
    return expression.value if isinstance(expression, Constant) and expression.type is None else None


# ---- operations


def constants_of(arguments: Sequence[Expression]) -> Mapping[int, Any]:
    """The values of those arguments that are constants, of open literals their texts."""
    constants = {}
    for number, argument in enumerate(arguments):
        one = argument
        if isinstance(argument, Call) and all(isinstance(part, Constant | Call) for part in argument.walk()):
            try:
                one = fold(argument)
            except DataError:
                continue
        if isinstance(one, Constant) and one.value is not None:
            constants[number] = one.value
    return constants


def call(operation: Operation, arguments: Sequence[Expression], node: exp.Expr) -> Expression:
    """An operation, applied to arguments that it takes."""
    takes = operation.takes[:-1] if operation.zoned else operation.takes
    return _applied(operation, [coerce(one, type_, node) for one, type_ in zip(arguments, takes, strict=True)])


def apply(name: str, arguments: Sequence[Expression], node: exp.Expr) -> Expression:
    """The function or special form of a name, applied to arguments."""
    arguments = [one.beside(None) if isinstance(one, LongNumber) else one for one in arguments]
    if name in ("concat", "concat_ws"):
        arguments = [_as_text_by_zone(one, node) for one in arguments]
    operation = operations.resolve(name, [one.type for one in arguments], constants_of(arguments))
    if operation is None:
        listed = ", ".join(map(described, arguments))
        ways = operations.overloads(name)
        raise ill_typed(f"there is no {name}({listed})", node, f"There is {ways}" if ways else "")
    return call(operation, arguments, node)


def operator(symbol: str, left: Expression, right: Expression, node: exp.Expr) -> Expression:
    """left + right, and the like."""
    left = left.beside(right.type) if isinstance(left, LongNumber) else left
    right = right.beside(left.type) if isinstance(right, LongNumber) else right
    if symbol == "||":
        left, right = _as_text_by_zone(left, node), _as_text_by_zone(right, node)
    if JSONB in (left.type, right.type) and symbol in operations.COMPARISONS:
        left, right = (json_key(coerce(one, JSONB, node)) for one in (left, right))
    operation = operations.operator(symbol, left.type, right.type, constants_of((left, right)))
    if operation is None:
        raise _no_operator(symbol, left, right, node)
    return call(operation, (left, right), node)


def _as_text_by_zone(expression: Expression, node: exp.Expr) -> Expression:
    """What is joined with texts, if its text depends on the time zone, as that text."""
    return convert(expression, TEXT, node) if expression.type == TIMESTAMPTZ else expression


def json_key(value: Expression) -> Expression:
    """What a value of JSONB is compared by."""
    from gmdb.sql.operations.json_functions import KEY

    return Call(KEY.gives, KEY, (value,))


def _no_operator(symbol: str, left: Expression, right: Expression, node: exp.Expr) -> IllTyped:
    hint = "Cast one of them, such as CAST(... AS INT)"
    if left.type is None and right.type is None:
        hint = "Say what a parameter is, such as CAST(? AS INT)"
    elif symbol == "+" and (types.is_text(left.type) or types.is_text(right.type)):
        hint = "Texts are joined by ||"
    elif JSON in (left.type, right.type):
        hint = "json is not compared or changed, as in PostgreSQL: cast it to jsonb"
    elif symbol == "||":
        hint = "Cast one of them to TEXT"
    elif types.is_moment(left.type) or types.is_moment(right.type):
        hint = "To a date add an INT of days, or an INTERVAL"
    return ill_typed(f"there is no {described(left)} {symbol} {described(right)}", node, hint)


comparison = operator  # also IS [NOT] DISTINCT FROM


def comparison_of_rows(
    symbol: str, left: Sequence[Expression], right: Sequence[Expression], node: exp.Expr
) -> Expression:
    """(a, b) < (c, d): from the left, the first pair that differs decides."""
    if len(left) != len(right):
        raise ill_typed(f"rows of {len(left)} and {len(right)} values cannot be compared", node)
    pairs = list(zip(left, right, strict=True))
    if symbol[0] not in "<>" or symbol == "<>":
        parts = [comparison(symbol, a, b, node) for a, b in pairs]
        return junction(symbol in ("<>", "IS DISTINCT FROM"), parts)
    result = comparison(symbol, *pairs[-1], node)
    for a, b in reversed(pairs[:-1]):
        equal = junction(False, [comparison("=", a, b, node), result])
        result = junction(True, [comparison(symbol[0], a, b, node), equal])
    return result


def junction(absorbing: bool, parts: Sequence[Expression]) -> Expression:
    """AND, or OR if absorbing."""
    return parts[0] if len(parts) == 1 else Junction(BOOLEAN, absorbing, tuple(parts))


def negation(expression: Expression, node: exp.Expr) -> Expression:
    """NOT of a boolean."""
    return apply("not", [truth(expression, "what NOT stands before", node)], node)


def convert(expression: Expression, type_: ColumnType, node: exp.Expr, limited: bool = True) -> Expression:
    """CAST(expression AS type).  ``limited``: the digits of a DECIMAL were given with it."""
    if not limited:
        type_ = _decimal_without_digits(expression, type_)
    if expression.type is None:
        if not _is_cut(expression, type_):
            return _given_a_type(expression, type_, node)
        expression = settled(expression)
    if expression.type == type_:
        return expression
    if isinstance(expression, Parameter) and type_.is_json:
        return coerce(expression, type_, node) if expression.type.is_array else Parameter(type_, expression.key)
    operation = operations.cast(expression.type, type_, limited)
    if operation is None:
        raise ill_typed(f"cannot cast {described(expression)} to {types.pg_name(type_)}", node)
    return call(operation, [expression], node)


def _is_cut(expression: Expression, type_: ColumnType) -> bool:
    """Whether a cast of an open expression may change what its text says."""
    if type_ in (TEXT, BYTEA):
        return False
    return type_.name in (*TEXTS, *BYTES) or (isinstance(expression, Parameter) and type_.name == "DECIMAL")


def _decimal_without_digits(expression: Expression, target: ColumnType) -> ColumnType:
    """The type that a cast to ``numeric`` gives: that of the value, as far as it is known beforehand."""
    source = expression.type
    if target.is_array:
        if source is not None and source.is_array and source.element.name in (*INTEGERS, "DECIMAL"):
            return array_of(types.as_decimal(source.element))
        return types.beside(target, _text(expression))
    if source is not None and (source.name == "DECIMAL" or source.name in INTEGERS):
        return types.as_decimal(source)
    return types.numeric(types.scale_of_text(_text(expression)))


def _uncut(target: ColumnType) -> ColumnType:
    return types.unlimited(target) if target.is_array else TEXT


def assign(expression: Expression, target: ColumnType, node: exp.Expr) -> Expression:
    """The expression as what a column is set to.

    As in PostgreSQL, numbers are rounded to the column's type and everything becomes text, but text becomes nothing
    else, and is refused if it is too long.  A parameter alone is read as the column's type, whatever it comes with.
    """
    target = types.within(target)
    if isinstance(expression, Parameter) and isinstance(unwrapped(node), exp.Placeholder):
        return Parameter(target, expression.key)
    if expression.type is None:
        is_cut = target.is_array or target.name in TEXTS  # by reading, but an assignment refuses what is too long
        expression = _given_a_type(expression, _uncut(target) if is_cut else target, node)
    if expression.type == target:
        return expression
    operation = operations.assignment(expression.type, target)
    if operation is None:
        message = f"a column of type {types.pg_name(target)} cannot be set to {described(expression)}"
        raise ill_typed(message, node, f"Write CAST(... AS {target})")
    return call(operation, [expression], node)
