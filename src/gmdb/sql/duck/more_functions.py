"""Further scalar functions: codes of bytes, patterns of SIMILAR TO, times out of texts and numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from gmdb.errors import IllTyped, UnsupportedExpression
from gmdb.sql.duck.casts import coerce
from gmdb.sql.duck.expressions import bind, handles
from gmdb.sql.duck.functions import FUNCTIONS, TIME_FORMAT, function, integer, text, wrong_arguments
from gmdb.sql.duck.scope import Scope, spot
from gmdb.sql.duck.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    INT,
    TEXT,
    TIMESTAMP,
    Bound,
    is_integer,
    text_literal,
)
from gmdb.sql.texts import similar_regex

if TYPE_CHECKING:
    from gmdb.sql.duck.query import Statement


@handles(exp.Initcap)
def _initcap(statement: Statement, node: exp.Expr, scope: Scope) -> Bound:
    value = text("initcap", bind(statement, node.this, scope), node)
    return Bound(f"gm_initcap({value})", TEXT)


@handles(exp.Overlay)
def _overlay(statement: Statement, node: exp.Expr, scope: Scope) -> Bound:
    value, new = (text("overlay", bind(statement, node.args[key], scope), node) for key in ("this", "expression"))
    start = integer("overlay", bind(statement, node.args["from_"], scope), node)
    last = node.args.get("for_")
    count = f"length({new})" if last is None else integer("overlay", bind(statement, last, scope), node)
    return Bound(f"gm_overlay({value}, {new}, {start}, {count})", TEXT)


@handles(exp.Hex, exp.LowerHex)
def _to_hex(statement: Statement, node: exp.Expr, scope: Scope) -> Bound:
    value = bind(statement, node.this, scope)
    sql = integer("to_hex", value, node)
    bits = f"CAST({sql} AS BIGINT)" if value.type == BIGINT else f"(CAST({sql} AS BIGINT) & {(1 << 32) - 1})"
    return Bound(f"lower(to_hex({bits}))", TEXT)


@handles(exp.BitLength)
def _bit_length(statement: Statement, node: exp.Expr, scope: Scope) -> Bound:
    octets = FUNCTIONS["octet_length"]([bind(statement, node.this, scope)], node)
    return Bound(f"({octets.sql} * 8)", INT)


@handles(exp.Decode)
def _decode(statement: Statement, node: exp.Expr, scope: Scope) -> Bound:
    value, form = bind(statement, node.this, scope), node.args["charset"].name
    if form not in ("hex", "base64"):
        raise UnsupportedExpression("decode knows 'hex' and 'base64'", *spot(node))
    sql = text("decode", value, node)
    return Bound(f"unhex({sql})" if form == "hex" else f"from_base64({sql})", BYTES)


@handles(exp.SimilarTo)
def _similar(statement: Statement, node: exp.Expr, scope: Scope) -> Bound:
    pattern = bind(statement, node.expression, scope)
    if pattern.literal is None:
        raise UnsupportedExpression("the pattern of SIMILAR TO must be a literal", *spot(node))
    value = text("similar to", bind(statement, node.this, scope), node)
    return Bound(f"regexp_full_match({value}, {text_literal(similar_regex(pattern.literal))}, 's')", BOOLEAN)


@handles(exp.BitwiseNot)
def _bitwise_not(statement: Statement, node: exp.Expr, scope: Scope) -> Bound:
    value = bind(statement, node.this, scope)
    if not is_integer(value.type):
        raise IllTyped(f"there is no ~ {value.type.name if value.type else 'unknown'}", *spot(node))
    return Bound(f"(~ {value.sql})", value.type)


@function("gcd", "lcm")
def _common(arguments: list[Bound], node: exp.Expr) -> Bound:
    name = str(node.this).lower()
    if len(arguments) != 2:
        raise wrong_arguments(name, arguments, node)
    type_ = BIGINT if any(argument.type == BIGINT for argument in arguments) else INT
    values = ", ".join(f"CAST({integer(name, argument, node)} AS BIGINT)" for argument in arguments)
    return Bound(f"CAST({name}({values}) AS {'BIGINT' if type_ == BIGINT else 'INTEGER'})", type_)


@handles(exp.Atan2)
def _atan2(statement: Statement, node: exp.Expr, scope: Scope) -> Bound:
    values = [coerce(bind(statement, side, scope), DOUBLE, node).sql for side in (node.this, node.expression)]
    return Bound(f"atan2({', '.join(values)})", DOUBLE)


@handles(exp.TimestampFromParts)
def _make_timestamp(statement: Statement, node: exp.Expr, scope: Scope) -> Bound:
    keys = ("year", "month", "day", "hour", "min", "sec")
    if any(node.args.get(key) is None for key in keys):
        raise IllTyped("make_timestamp takes year, month, day, hour, minute and second", *spot(node))
    *whole, last = (bind(statement, node.args[key], scope) for key in keys)
    numbers = [f"CAST({integer('make_timestamp', value, node)} AS BIGINT)" for value in whole]
    return Bound(f"make_timestamp({', '.join(numbers)}, {coerce(last, DOUBLE, node).sql})", TIMESTAMP)


@handles(exp.StrToDate, exp.StrToTime)
def _time_out_of_text(statement: Statement, node: exp.Expr, scope: Scope) -> Bound:
    """to_date and to_timestamp, with the formats that to_char knows."""
    form, type_ = node.args["format"], DATE if isinstance(node, exp.StrToDate) else TIMESTAMP
    if not isinstance(form, exp.Literal) or not TIME_FORMAT.fullmatch(form.name):
        raise UnsupportedExpression("a time is read with YYYY, MM, DD, HH24, MI, SS", *spot(node))
    value = text("to_date", bind(statement, node.this, scope), node)
    return Bound(f"CAST(strptime({value}, {text_literal(form.name)}) AS {type_.name})", type_)
