"""Functions: their names, what they take and give, and how sqlglot's nodes spell them.

A function is a list of overloads.  The one with the most arguments of exactly its types is called; among equals the
first, so those of PostgreSQL's preferred types (double, text) come first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from sqlglot import exp

from gmdb.format.columns import ColumnType
from gmdb.sql import numbers, texts, times
from gmdb.sql.types import (
    BIGINT,
    BYTEA,
    DATE,
    DOUBLE,
    INT,
    INTEGERS,
    INTERVAL,
    NUMERIC,
    TEXT,
    TIMESTAMP,
    numeric,
    turns_into,
)

CHAR = ColumnType("CHAR")
QUOTIENT_SCALE = 16  # the scale that quotients, roots and logarithms have as a rule

Given = Sequence[ColumnType | None]


@dataclass(frozen=True)
class Overload:
    """One way to call a function.  ``scale``: of a decimal result, out of the types of the arguments."""

    takes: tuple[ColumnType, ...]
    gives: ColumnType
    call: Callable[..., Any]
    scale: Callable[[Given], int] | None = None

    def result(self, given: Given) -> ColumnType:
        return numeric(self.scale(given)) if self.scale is not None else self.gives

    def matches(self, given: Given) -> int | None:
        """How many arguments are exactly of the types; None if it cannot be called with them."""
        if len(given) != len(self.takes) or not all(map(turns_into, given, self.takes)):
            return None
        return sum(g is not None and g.name == t.name for g, t in zip(given, self.takes, strict=True))


def choose(name: str, given: Given) -> Overload | None:
    """The overload that such arguments call."""
    scored = [(score, one) for one in FUNCTIONS[name] if (score := one.matches(given)) is not None]
    return max(scored, key=lambda pair: pair[0])[1] if scored else None


def _scale_of_first(given: Given) -> int:
    return given[0].scale if given[0] is not None else QUOTIENT_SCALE


def _largest_scale(given: Given) -> int:
    return max((type_.scale for type_ in given if type_ is not None), default=0)


def _irrational(given: Given) -> int:
    return max(QUOTIENT_SCALE, _largest_scale(given))


def _number(
    double: Callable[..., Any], decimal: Callable[..., Any], scale: Callable[[Given], int], count: int = 1
) -> list[Overload]:
    """A function of doubles, and of decimals."""
    return [
        Overload((DOUBLE,) * count, DOUBLE, double),
        Overload((NUMERIC,) * count, NUMERIC, decimal, scale),
    ]


def _absolute(name: str) -> Callable[[int], int]:
    high = INTEGERS[name][1]
    return lambda value: abs(value) if -value <= high else numbers.out_of_range(name)


def _integers(call: Callable[[int, int], int]) -> list[Overload]:
    """A function of two integers, whose result must be one of the same type."""

    def checked(name: str) -> Callable[[int, int], int]:
        high = INTEGERS[name][1]
        return lambda a, b: made if (made := call(a, b)) <= high else numbers.out_of_range(name)

    return [Overload((type_, type_), type_, checked(type_.name)) for type_ in (INT, BIGINT)]


def _text(call: Callable[..., Any], *more: ColumnType, gives: ColumnType = TEXT) -> list[Overload]:
    return [Overload((TEXT, *more), gives, call)]


def _blank_filled(text: str) -> int:
    return len(text.rstrip(" "))


def _no_scale(_: Given) -> int:
    return 0


FUNCTIONS: dict[str, list[Overload]] = {
    "abs": [
        Overload((DOUBLE,), DOUBLE, abs),
        Overload((NUMERIC,), NUMERIC, Decimal.copy_abs, _scale_of_first),
        Overload((INT,), INT, _absolute("INT")),
        Overload((BIGINT,), BIGINT, _absolute("BIGINT")),
    ],
    "ceil": _number(numbers.ceil_double, numbers.ceil_decimal, _no_scale),
    "floor": _number(numbers.floor_double, numbers.floor_decimal, _no_scale),
    "round": [
        *_number(numbers.round_double, numbers.round_decimal, _no_scale),
        Overload((NUMERIC, INT), NUMERIC, numbers.round_decimal, _scale_of_first),
    ],
    "trunc": [
        *_number(numbers.truncate_double, numbers.truncate_decimal, _no_scale),
        Overload((NUMERIC, INT), NUMERIC, numbers.truncate_decimal, _scale_of_first),
    ],
    "sign": _number(numbers.sign_double, numbers.sign_decimal, _no_scale),
    "sqrt": _number(numbers.sqrt_double, numbers.sqrt_decimal, _irrational),
    "cbrt": [Overload((DOUBLE,), DOUBLE, numbers.cbrt_double)],
    "exp": _number(numbers.exp_double, numbers.exp_decimal, _irrational),
    "ln": _number(numbers.ln_double, numbers.ln_decimal, _irrational),
    "log": [
        *_number(numbers.log_double, numbers.log10_decimal, _irrational),
        Overload((NUMERIC, NUMERIC), NUMERIC, numbers.log_decimal, _irrational),
    ],
    "log10": _number(numbers.log_double, numbers.log10_decimal, _irrational),
    "power": _number(numbers.power_double, numbers.power_decimal, _irrational, 2),
    "pi": [Overload((), DOUBLE, lambda: math.pi)],
    **{name: [Overload((DOUBLE,), DOUBLE, numbers.of_angle(name))] for name in numbers.ANGLES},
    "atan2": [Overload((DOUBLE, DOUBLE), DOUBLE, math.atan2)],
    "gcd": _integers(math.gcd),
    "lcm": _integers(math.lcm),
    "length": [
        Overload((TEXT,), INT, len),
        Overload((CHAR,), INT, _blank_filled),
        Overload((BYTEA,), INT, len),
    ],
    "octet_length": [
        Overload((TEXT,), INT, texts.octets),
        Overload((CHAR,), INT, texts.octets),
        Overload((BYTEA,), INT, len),
    ],
    "bit_length": [
        Overload((TEXT,), INT, lambda text: 8 * texts.octets(text)),
        Overload((BYTEA,), INT, lambda value: 8 * len(value)),
    ],
    "overlay": [*_text(texts.overlay, TEXT, INT), *_text(texts.overlay, TEXT, INT, INT)],
    "encode": [Overload((BYTEA, TEXT), TEXT, texts.encode)],
    "decode": [Overload((TEXT, TEXT), BYTEA, texts.decode)],
    "make_date": [Overload((INT, INT, INT), DATE, times.make_date)],
    "lower": _text(texts.lower),
    "upper": _text(texts.upper),
    "btrim": [*_text(texts.trim_both), *_text(texts.trim_both, TEXT)],
    "ltrim": [*_text(texts.trim_left), *_text(texts.trim_left, TEXT)],
    "rtrim": [*_text(texts.trim_right), *_text(texts.trim_right, TEXT)],
    "substring": [
        *_text(texts.substring, INT),
        *_text(texts.substring, INT, INT),
        Overload((BYTEA, INT), BYTEA, texts.substring),
        Overload((BYTEA, INT, INT), BYTEA, texts.substring),
    ],
    "strpos": [*_text(texts.position, TEXT, gives=INT), Overload((BYTEA, BYTEA), INT, texts.position)],
    "replace": _text(texts.replace, TEXT, TEXT),
    "translate": _text(texts.translate, TEXT, TEXT),
    "left": _text(texts.left, INT),
    "right": _text(texts.right, INT),
    "lpad": [*_text(texts.pad_left, INT), *_text(texts.pad_left, INT, TEXT)],
    "rpad": [*_text(texts.pad_right, INT), *_text(texts.pad_right, INT, TEXT)],
    "repeat": _text(texts.repeat, INT),
    "reverse": _text(lambda text: text[::-1]),
    "regexp_replace": [*_text(texts.replace_matches, TEXT, TEXT), *_text(texts.replace_matches, TEXT, TEXT, TEXT)],
    "split_part": _text(texts.split_part, TEXT, INT),
    "initcap": _text(texts.capitalize_words),
    "md5": [*_text(texts.md5), Overload((BYTEA,), TEXT, texts.md5)],
    "to_hex": [Overload((INT,), TEXT, texts.hexadecimal(32)), Overload((BIGINT,), TEXT, texts.hexadecimal(64))],
    "chr": [Overload((INT,), TEXT, texts.character)],
    "ascii": _text(texts.first_code, gives=INT),
    "starts_with": _text(str.startswith, TEXT, gives=ColumnType("BOOLEAN")),
    "extract": [
        Overload((TEXT, TIMESTAMP), NUMERIC, times.extract, lambda _: 6),
        Overload((TEXT, DATE), NUMERIC, times.extract, lambda _: 6),
        Overload((TEXT, INTERVAL), NUMERIC, times.extract_of_interval, lambda _: 6),
    ],
    "date_part": [Overload((TEXT, TIMESTAMP), DOUBLE, times.date_part)],
    "date_trunc": [Overload((TEXT, TIMESTAMP), TIMESTAMP, times.truncate_timestamp)],
}

ALIASES = {
    "ceiling": "ceil",
    "char_length": "length",
    "character_length": "length",
    "substr": "substring",
    "pow": "power",
    "position": "strpos",
    "trim": "btrim",
}
# Known to the compiler itself, since their arguments are not evaluated as those of functions are.
SPECIAL = ("coalesce", "nullif", "greatest", "least", "concat", "concat_ws", "pg_typeof", "mod", "now", "cast")
NAMES = (*FUNCTIONS, *ALIASES, *SPECIAL)

Spelling = tuple[str, list[exp.Expr]]


def _trim(node: exp.Trim) -> Spelling:
    name = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(str(node.args.get("position") or ""), "btrim")
    return name, _arguments(node, "this", "expression")


def _pad(node: exp.Pad) -> Spelling:
    return "lpad" if node.args["is_left"] else "rpad", _arguments(node, "this", "expression", "fill_pattern")


def _field(node: exp.Expr) -> exp.Expr:
    """The name of a field, which sqlglot may have taken for a word."""
    return node if isinstance(node, exp.Literal) else exp.Literal.string(node.name.lower())


def _arguments(node: exp.Expr, *keys: str) -> list[exp.Expr]:
    found: list[exp.Expr] = []
    for key in keys:
        value = node.args.get(key)
        found += value if isinstance(value, list) else [value] if value is not None else []
    return found


def _plain(name: str, *keys: str) -> Callable[[Any], Spelling]:
    return lambda node: (name, _arguments(node, *(keys or ("this",))))


SPELLINGS: dict[type[exp.Expr], Callable[[Any], Spelling]] = {
    exp.Abs: _plain("abs"),
    exp.Ceil: _plain("ceil", "this", "decimals"),
    exp.Floor: _plain("floor", "this", "decimals"),
    exp.Round: _plain("round", "this", "decimals"),
    exp.Trunc: _plain("trunc", "this", "decimals"),
    exp.Sign: _plain("sign"),
    exp.Sqrt: _plain("sqrt"),
    exp.Cbrt: _plain("cbrt"),
    exp.Exp: _plain("exp"),
    exp.Ln: _plain("ln"),
    exp.Log: _plain("log", "this", "expression"),
    exp.Pow: _plain("power", "this", "expression"),
    **{getattr(exp, name.capitalize()): _plain(name) for name in numbers.ANGLES},
    exp.Atan2: _plain("atan2", "this", "expression"),
    exp.BitLength: _plain("bit_length"),
    exp.Overlay: _plain("overlay", "this", "expression", "from_", "for_"),
    exp.Encode: _plain("encode", "this", "charset"),
    exp.Decode: _plain("decode", "this", "charset"),
    exp.Pi: lambda _: ("pi", []),
    exp.Length: _plain("length"),
    exp.Lower: _plain("lower"),
    exp.Upper: _plain("upper"),
    exp.Trim: _trim,
    exp.Substring: _plain("substring", "this", "start", "length"),
    exp.StrPosition: _plain("strpos", "this", "substr"),
    exp.Replace: _plain("replace", "this", "expression", "replacement"),
    exp.Translate: _plain("translate", "this", "from_", "to"),
    exp.Left: _plain("left", "this", "expression"),
    exp.Right: _plain("right", "this", "expression"),
    exp.Pad: _pad,
    exp.Repeat: _plain("repeat", "this", "times"),
    exp.Reverse: _plain("reverse"),
    exp.RegexpReplace: _plain("regexp_replace", "this", "expression", "replacement", "modifiers"),
    exp.SplitPart: _plain("split_part", "this", "delimiter", "part_index"),
    exp.Initcap: _plain("initcap"),
    exp.MD5: _plain("md5"),
    exp.Hex: _plain("to_hex"),
    exp.LowerHex: _plain("to_hex"),
    exp.Chr: _plain("chr", "expressions"),
    exp.Ascii: _plain("ascii"),
    exp.StartsWith: _plain("starts_with", "this", "expression"),
    exp.Extract: lambda node: ("extract", [_field(node.this), node.expression]),
    exp.TimestampTrunc: lambda node: ("date_trunc", [_field(node.args["unit"]), node.this]),
    exp.DateTrunc: lambda node: ("date_trunc", [_field(node.args["unit"]), node.this]),
}
