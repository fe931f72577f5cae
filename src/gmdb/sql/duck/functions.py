"""Scalar functions: which ones there are, what they take, what they give.

A function of PostgreSQL's that is not here raises NoSuchFunction.  Powers, roots and logarithms of DECIMALs are
calculated as DOUBLEs and have 15 digits.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from sqlglot import exp

from gmdb.errors import IllTyped, NoSuchFunction, UndefinedResult, UnsupportedExpression
from gmdb.sql.duck.arithmetic import arithmetic
from gmdb.sql.duck.casts import as_text, cast, coerce
from gmdb.sql.duck.expressions import bind, handles
from gmdb.sql.duck.scope import Scope, nearest, spot
from gmdb.sql.duck.types import (
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    INT,
    INTERVAL,
    QUOTIENT_SCALE,
    TEXT,
    TIMESTAMP,
    Bound,
    common_type,
    decimal,
    is_binary,
    is_integer,
    is_moment,
    is_number,
    is_text,
)

if TYPE_CHECKING:
    from gmdb.sql.duck.query import Statement

Function = Callable[[list[Bound], exp.Expr], Bound]
FUNCTIONS: dict[str, Function] = {}
_FIELDS = ["year", "month", "day", "hour", "minute", "dow", "doy", "isodow", "isoyear", "week", "quarter"]
_FIELDS += ["century", "decade", "millennium"]
_TRUNCATIONS = (*_FIELDS[:5], "second", "week", "quarter", "century", "decade", "millennium", "milliseconds")
TIME_FORMAT = re.compile(r"(%[YmdHMSjyB%]|[^%])*")


def function(*names: str) -> Callable[[Function], Function]:
    def register(handler: Function) -> Function:
        for name in names:
            FUNCTIONS[name] = handler
        return handler

    return register


def texts(name: str, *kinds: str, gives: str = "text", duck: str | None = None) -> None:
    """A function of texts (t) and integers (i); the kinds behind a "?" may be left out."""

    def handler(arguments: list[Bound], node: exp.Expr) -> Bound:
        needed = kinds.index("?") if "?" in kinds else len(kinds)
        all_kinds = [kind for kind in kinds if kind != "?"]
        if not needed <= len(arguments) <= len(all_kinds):
            raise wrong_arguments(name, arguments, node)
        values = []
        for kind, argument in zip(all_kinds, arguments, strict=False):
            if kind == "t":
                values.append(text(name, argument, node))
            else:
                values.append(f"CAST({integer(name, argument, node)} AS BIGINT)")
        sql = f"{duck or name}({', '.join(values)})"
        if gives == "int":
            return Bound(f"CAST({sql} AS INTEGER)", INT)
        return Bound(sql, BOOLEAN if gives == "boolean" else TEXT)

    FUNCTIONS[name] = handler


texts("upper", "t")
texts("lower", "t")
texts("reverse", "t")
texts("md5", "t")
texts("left", "t", "i")
texts("right", "t", "i")
texts("repeat", "t", "i", duck="gm_repeat")
texts("replace", "t", "t", "t")
texts("translate", "t", "t", "t")
texts("split_part", "t", "t", "i", duck="gm_split")
texts("strpos", "t", "t", gives="int")
texts("starts_with", "t", "t", gives="boolean")


def text(name: str, argument: Bound, node: exp.Expr) -> str:
    if argument.type is not None and not is_text(argument.type):
        raise IllTyped(f"{name} takes a text, not {argument.type.name}", *spot(node), "Cast it to text")
    return as_text(argument, node).sql


def integer(name: str, argument: Bound, node: exp.Expr) -> str:
    if argument.type is not None and not is_integer(argument.type):
        raise IllTyped(f"{name} takes an integer, not {argument.type.name}", *spot(node))
    return coerce(argument, argument.type or INT, node).sql


def wrong_arguments(name: str, arguments: Sequence[Bound], node: exp.Expr) -> IllTyped:
    kinds = ", ".join(argument.type.name if argument.type else "unknown" for argument in arguments)
    return IllTyped(f"there is no {name}({kinds})", *spot(node))


def _number(name: str, arguments: list[Bound], node: exp.Expr) -> Bound:
    argument = arguments[0] if arguments else Bound("NULL", BOOLEAN)
    if argument.type is None:
        argument = coerce(argument, DOUBLE, node)
    if not is_number(argument.type):
        raise wrong_arguments(name, arguments, node)
    return argument


@function("length", "char_length", "character_length")
def _length(arguments: list[Bound], node: exp.Expr) -> Bound:
    if arguments and is_binary(arguments[0].type):
        return _octet_length(arguments, node)
    return Bound(f"CAST(length({text('length', arguments[0], node)}) AS INTEGER)", INT)


@function("octet_length")
def _octet_length(arguments: list[Bound], node: exp.Expr) -> Bound:
    value = arguments[0]
    if value.type is not None and not is_binary(value.type) and not is_text(value.type):
        raise wrong_arguments("octet_length", arguments, node)
    sql = value.sql if is_binary(value.type) else f"encode({value.sql if value.type else as_text(value, node).sql})"
    return Bound(f"CAST(octet_length({sql}) AS INTEGER)", INT)


@function("ascii")
def _ascii(arguments: list[Bound], node: exp.Expr) -> Bound:
    value = text("ascii", arguments[0], node)
    return Bound(f"CASE WHEN {value} = '' THEN 0 ELSE CAST(unicode({value}) AS INTEGER) END", INT)


@function("chr")
def _chr(arguments: list[Bound], node: exp.Expr) -> Bound:
    return Bound(f"gm_chr(CAST({integer('chr', arguments[0], node)} AS INTEGER))", TEXT)


@function("lpad", "rpad")
def _pad(arguments: list[Bound], node: exp.Expr) -> Bound:
    name = "lpad" if node.args.get("is_left") else "rpad"
    value, length = text(name, arguments[0], node), integer(name, arguments[1], node)
    fill = text(name, arguments[2], node) if len(arguments) > 2 else "' '"
    return Bound(f"gm_{name}({value}, {length}, {fill})", TEXT)


@function("concat")
def _concat(arguments: list[Bound], node: exp.Expr) -> Bound:
    return Bound(f"concat({', '.join(_shown(argument, node) for argument in arguments)})", TEXT)


@function("concat_ws")
def _concat_ws(arguments: list[Bound], node: exp.Expr) -> Bound:
    values = [text("concat_ws", arguments[0], node), *(_shown(argument, node) for argument in arguments[1:])]
    return Bound(f"concat_ws({', '.join(values)})", TEXT)


def _shown(bound: Bound, node: exp.Expr) -> str:
    """A value as the concat functions show it: booleans as t and f."""
    if bound.type == BOOLEAN:
        return f"CASE WHEN {bound.sql} THEN 't' WHEN NOT {bound.sql} THEN 'f' END"
    return as_text(bound, node).sql


@function("abs")
def _abs(arguments: list[Bound], node: exp.Expr) -> Bound:
    value = _number("abs", arguments, node)
    return Bound(f"abs({value.sql})", value.type)


@function("sign")
def _sign(arguments: list[Bound], node: exp.Expr) -> Bound:
    value = _number("sign", arguments, node)
    if value.type is not None and value.type.name == "DECIMAL":
        return Bound(f"CAST(sign({value.sql}) AS DECIMAL(38,0))", decimal(38, 0))
    return Bound(f"CAST(sign({value.sql}) AS DOUBLE)", DOUBLE)


@function("ceil", "ceiling", "floor")
def _to_whole(arguments: list[Bound], node: exp.Expr) -> Bound:
    name = "floor" if isinstance(node, exp.Floor) else "ceil"
    value = _number(name, arguments[:1], node)
    if value.type is not None and value.type.name == "DECIMAL":
        return Bound(f"CAST({name}({value.sql}) AS DECIMAL(38,0))", decimal(38, 0))
    return Bound(f"{name}(CAST({value.sql} AS DOUBLE))", DOUBLE)


@function("round", "trunc")
def _round(arguments: list[Bound], node: exp.Expr) -> Bound:
    """DECIMALs are rounded half away from zero, DOUBLEs half to even; integers with digits count as DECIMALs."""
    name = "round" if isinstance(node, exp.Round) else "trunc"
    value = _number(name, arguments[:1], node)
    assert value.type is not None
    if len(arguments) == 1:
        if value.type.name == "DECIMAL":
            return Bound(f"CAST({name}({value.sql}) AS DECIMAL(38,0))", decimal(38, 0))
        sql = f"CAST({value.sql} AS DOUBLE)"
        return Bound(f"round_even({sql}, 0)" if name == "round" else f"trunc({sql})", DOUBLE)
    if value.type == DOUBLE:
        raise IllTyped(f"{name} to digits takes a DECIMAL, not DOUBLE", *spot(node), "Cast it to numeric")
    exact = coerce(value, decimal(38, value.type.scale), node)
    digits = re.fullmatch(r"\(?(- )?(\d+)\)?", arguments[1].sql)
    if digits is None:
        raise UnsupportedExpression(f"the digits of {name} must be a literal", *spot(node))
    count = int(digits[2]) * (-1 if digits[1] else 1)
    scale = min(max(count, 0), 38)
    if count >= value.type.scale:
        return Bound(f"CAST({exact.sql} AS DECIMAL(38,{scale}))", decimal(38, scale))
    if count >= 0:
        return Bound(f"CAST({name}({exact.sql}, {count}) AS DECIMAL(38,{scale}))", decimal(38, scale))
    unit = f"CAST({10**-count} AS DECIMAL({1 - count},0))"
    over = arithmetic("/", exact, Bound(unit, decimal(1 - count, 0)), node)
    return Bound(f"(CAST({name}({over.sql}) AS DECIMAL({38 + count},0)) * {unit})", decimal(38, 0))


@function("sqrt", "exp", "ln", "cbrt", "log")
def _real(arguments: list[Bound], node: exp.Expr) -> Bound:
    name = type(node).__name__.lower()
    if len(arguments) == 2:
        base, value = (_number(name, [argument], node) for argument in arguments)
        return _real_result(f"(gm_ln({_double(value)}) / gm_divisor(gm_ln({_double(base)})))", [decimal(38, 0)])
    value = _number(name, arguments, node)
    duck = {"sqrt": "gm_root", "ln": "gm_ln", "log": "gm_log10"}.get(name, name)
    sql = f"{duck}({_double(value)})"
    return _real_result(f"gm_finite({sql})" if name == "exp" else sql, [value.type])


@function("power", "pow")
def _power(arguments: list[Bound], node: exp.Expr) -> Bound:
    values = [_number("power", [argument], node) for argument in arguments]
    return _real_result(f"gm_power({_double(values[0])}, {_double(values[1])})", [value.type for value in values])


def _double(bound: Bound) -> str:
    return f"CAST({bound.sql} AS DOUBLE)"


def _real_result(sql: str, types: Sequence[object]) -> Bound:
    """A DOUBLE, or a DECIMAL when a DECIMAL and no DOUBLE went in."""
    if common_type(list(types), "power").name != "DECIMAL":  # type: ignore[union-attr,arg-type]
        return Bound(sql, DOUBLE)
    return Bound(f"CAST(printf('%.15g', {sql}) AS DECIMAL(38,{QUOTIENT_SCALE}))", decimal(38, QUOTIENT_SCALE))


@function("degrees", "radians", "sin", "cos", "tan", "asin", "acos", "atan")
def _angle(arguments: list[Bound], node: exp.Expr) -> Bound:
    name = type(node).__name__.lower()
    return Bound(f"{name}({_double(_number(name, arguments, node))})", DOUBLE)


@function("div")
def _div(arguments: list[Bound], node: exp.Expr) -> Bound:
    values = [coerce(value, decimal(38, value.type.scale if value.type else 0), node) for value in arguments]
    whole = arithmetic("/", values[0], values[1], node)
    return Bound(f"CAST(trunc({whole.sql}) AS DECIMAL(38,0))", decimal(38, 0))


@function("pi")
def _pi(_arguments: list[Bound], _node: exp.Expr) -> Bound:
    return Bound("pi()", DOUBLE)


@function("random")
def _random(_arguments: list[Bound], _node: exp.Expr) -> Bound:
    return Bound("random()", DOUBLE)


@function("encode")
def _encode(arguments: list[Bound], node: exp.Expr) -> Bound:
    value, form = coerce(arguments[0], BYTES, node), arguments[1].literal
    if form not in ("hex", "base64"):
        raise UnsupportedExpression("encode knows 'hex' and 'base64'", *spot(node))
    return Bound(f"lower(hex({value.sql}))" if form == "hex" else f"base64({value.sql})", TEXT)


@function("make_date")
def _make_date(arguments: list[Bound], node: exp.Expr) -> Bound:
    numbers = ", ".join(f"CAST({integer('make_date', argument, node)} AS BIGINT)" for argument in arguments)
    return Bound(f"make_date({numbers})", DATE)


@function("date_part")
def _date_part(arguments: list[Bound], node: exp.Expr) -> Bound:
    field = arguments[0].literal
    if field is None or len(arguments) != 2:
        raise UnsupportedExpression("date_part needs its field as a literal", *spot(node))
    return cast(_field(field.lower(), arguments[1], node), DOUBLE, node)


def _field(field: str, moment: Bound, node: exp.Expr) -> Bound:
    if moment.type is None:
        raise IllTyped("the type of what to extract from is unknown", *spot(node), "Cast it")
    if not is_moment(moment.type) and moment.type != INTERVAL:
        raise IllTyped(f"extract takes a DATE, a TIMESTAMP or an interval, not {moment.type.name}", *spot(node))
    if field in ("second", "milliseconds", "microseconds", "epoch"):
        micros = f"epoch_us({moment.sql})" if field == "epoch" else f"extract(microseconds FROM {moment.sql})"
        scale = {"milliseconds": 3, "microseconds": 0}.get(field, 6)
        unit = f" * CAST(0.{'0' * (scale - 1)}1 AS DECIMAL({scale},{scale}))" if scale else ""
        return Bound(f"(CAST({micros} AS DECIMAL(32,0)){unit})", decimal(38, scale))
    if field not in _FIELDS:
        raise UndefinedResult(f"there is no field {field}{nearest(field, _FIELDS)}")
    return Bound(f"CAST(extract({field} FROM {moment.sql}) AS DECIMAL(38,0))", decimal(38, 0))


@handles(exp.Extract)
def _extract(statement: Statement, node: exp.Expr, scope: Scope) -> Bound:
    return _field(node.this.name.lower(), bind(statement, node.expression, scope), node)


@handles(exp.TimestampTrunc, exp.DateTrunc)
def _date_trunc(statement: Statement, node: exp.Expr, scope: Scope) -> Bound:
    unit = node.args["unit"].name.lower()
    if unit not in _TRUNCATIONS:
        raise UndefinedResult(f"date_trunc knows no {unit}{nearest(unit, _TRUNCATIONS)}")
    moment = coerce(bind(statement, node.this, scope), TIMESTAMP, node)
    return Bound(f"CAST(date_trunc('{unit}', {moment.sql}) AS TIMESTAMP)", TIMESTAMP)


@handles(exp.TimeToStr)
def _to_char(statement: Statement, node: exp.Expr, scope: Scope) -> Bound:
    moment = bind(statement, node.this, scope)
    form = node.args["format"]
    if not is_moment(moment.type) or not isinstance(form, exp.Literal) or not TIME_FORMAT.fullmatch(form.name):
        raise UnsupportedExpression("to_char knows dates and timestamps with YYYY, MM, DD, HH24, MI, SS", *spot(node))
    literal = form.name.replace("'", "''")
    return Bound(f"strftime({moment.sql}, '{literal}')", TEXT)


@handles(exp.CurrentDate)
def _current_date(statement: Statement, _node: exp.Expr, _scope: Scope) -> Bound:
    return Bound(f"CAST({statement.now()} AS DATE)", DATE)


@handles(exp.CurrentTimestamp, exp.Localtimestamp)
def _now(statement: Statement, _node: exp.Expr, _scope: Scope) -> Bound:
    return Bound(f"CAST({statement.now()} AS TIMESTAMP)", TIMESTAMP)


@handles(exp.Substring)
def _substring(statement: Statement, node: exp.Expr, scope: Scope) -> Bound:
    value = bind(statement, node.this, scope)
    sql = value.sql if is_binary(value.type) else text("substring", value, node)
    gives = BYTES if is_binary(value.type) else TEXT
    first = node.args.get("start")
    start = integer("substring", bind(statement, first, scope), node) if first is not None else "1"
    if node.args.get("length") is None:
        return Bound(f"substring({sql}, greatest({start}, 1))", gives)
    count = integer("substring", bind(statement, node.args["length"], scope), node)
    if start.isdecimal() and count.isdecimal():
        return Bound(f"substring({sql}, {start}, {count})", gives)
    return Bound(f"gm_substring({sql}, {start}, {count})", gives)


@handles(exp.Trim)
def _trim(statement: Statement, node: exp.Expr, scope: Scope) -> Bound:
    name = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get((node.args.get("position") or "").upper(), "trim")
    value = text(name, bind(statement, node.this, scope), node)
    characters = node.args.get("expression")
    kind = text(name, bind(statement, characters, scope), node) if characters is not None else "' '"
    return Bound(f"{name}({value}, {kind})", TEXT)


@handles(exp.RegexpReplace)
def _regexp_replace(statement: Statement, node: exp.Expr, scope: Scope) -> Bound:
    parts = [node.this, node.expression, node.args.get("replacement")]
    if None in parts:
        raise IllTyped("regexp_replace takes a text, a pattern and what replaces it", *spot(node))
    values = [text("regexp_replace", bind(statement, part, scope), node) for part in parts]
    values[2] = f"replace({values[2]}, '\\&', '\\0')"  # the whole match
    flags = node.args.get("modifiers")
    if flags is not None:
        values.append(text("regexp_replace", bind(statement, flags, scope), node))
    return Bound(f"regexp_replace({', '.join(values)})", TEXT)


_ARGUMENTS: dict[type[exp.Expr], tuple[str, tuple[str, ...]]] = {
    exp.Upper: ("upper", ("this",)),
    exp.Lower: ("lower", ("this",)),
    exp.Reverse: ("reverse", ("this",)),
    exp.MD5: ("md5", ("this",)),
    exp.Left: ("left", ("this", "expression")),
    exp.Right: ("right", ("this", "expression")),
    exp.Repeat: ("repeat", ("this", "times")),
    exp.Replace: ("replace", ("this", "expression", "replacement")),
    exp.Translate: ("translate", ("this", "from_", "to")),
    exp.SplitPart: ("split_part", ("this", "delimiter", "part_index")),
    exp.StrPosition: ("strpos", ("this", "substr")),
    exp.StartsWith: ("starts_with", ("this", "expression")),
    exp.Length: ("length", ("this",)),
    exp.Ascii: ("ascii", ("this",)),
    exp.Chr: ("chr", ("expressions",)),
    exp.Pad: ("lpad", ("this", "expression", "fill_pattern")),
    exp.Concat: ("concat", ("expressions",)),
    exp.ConcatWs: ("concat_ws", ("expressions",)),
    exp.Abs: ("abs", ("this",)),
    exp.Sign: ("sign", ("this",)),
    exp.Ceil: ("ceil", ("this",)),
    exp.Floor: ("floor", ("this",)),
    exp.Round: ("round", ("this", "decimals")),
    exp.Trunc: ("trunc", ("this", "decimals")),
    exp.Sqrt: ("sqrt", ("this",)),
    exp.Cbrt: ("cbrt", ("this",)),
    exp.Exp: ("exp", ("this",)),
    exp.Ln: ("ln", ("this",)),
    exp.Log: ("log", ("this", "expression")),
    exp.Pow: ("power", ("this", "expression")),
    exp.Degrees: ("degrees", ("this",)),
    exp.Radians: ("radians", ("this",)),
    exp.Sin: ("sin", ("this",)),
    exp.Cos: ("cos", ("this",)),
    exp.Tan: ("tan", ("this",)),
    exp.Asin: ("asin", ("this",)),
    exp.Acos: ("acos", ("this",)),
    exp.Atan: ("atan", ("this",)),
    exp.IntDiv: ("div", ("this", "expression")),
    exp.Pi: ("pi", ()),
    exp.Rand: ("random", ()),
    exp.Encode: ("encode", ("this", "charset")),
}


@handles(*_ARGUMENTS)
def _known(statement: Statement, node: exp.Expr, scope: Scope) -> Bound:
    name, fields = _ARGUMENTS[type(node)]
    arguments: list[Bound] = []
    for field in fields:
        value = node.args.get(field)
        for item in value if isinstance(value, list) else [value]:
            if item is not None:
                arguments.append(bind(statement, item, scope))
    return FUNCTIONS[name](arguments, node)


@handles(exp.Anonymous)
def _anonymous(statement: Statement, node: exp.Expr, scope: Scope) -> Bound:
    name = str(node.this).lower()
    if name not in FUNCTIONS:
        raise NoSuchFunction(f"there is no function {name}{nearest(name, FUNCTIONS)}", *spot(node))
    return FUNCTIONS[name]([bind(statement, item, scope) for item in node.expressions], node)
