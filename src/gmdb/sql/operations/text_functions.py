"""Functions and operators of texts and bytes.

Lengths and positions count characters, and bytes of bytes.  What is cheap for ASCII and intricate for other characters
is left to DuckDB for ASCII only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gmdb.format.columns import ColumnType
from gmdb.sql import texts
from gmdb.sql.operations.conversions import cast
from gmdb.sql.operations.overloads import Constants, Overload, Types, plain
from gmdb.sql.operations.registry import Operation, function_of, named
from gmdb.sql.types import BIGINT, BOOLEAN, BYTEA, CHAR, INT, TEXT, category, is_text

named(texts.octets, texts.like, texts.ilike)


def _places(count: int) -> str:
    return ", ".join(f"{{{n}}}" for n in range(count))


def _ascii_only(duck: str, count: int = 1) -> str:
    """A template that leaves texts with other characters to Python."""
    return f"CASE WHEN strlen({{0}}) = length({{0}}) THEN {duck} ELSE {{python}}({_places(count)}) END"


def _text(
    python: Callable[..., Any] | str, duck: str | None, *more: ColumnType, gives: ColumnType = TEXT, fails: bool = False
) -> Overload:
    return plain((TEXT, *more), gives, python, duck, fails)


def _size(duck: str) -> str:
    return f"CAST({duck} AS INTEGER)"


def _trims(method: str, duck: str) -> list[Overload]:
    chosen = _text(f"({{0}}.{method}({{1}}) if {{1}} else {{0}})", f"{duck}({{0}}, {{1}})", TEXT)
    return [_text(f"{{0}}.{method}(' ')", f"{duck}({{0}}, ' ')"), chosen]


# ---- patterns


def _likes(ignore_case: bool, escapes: bool) -> list[Overload]:
    python = f"{'ilike' if ignore_case else 'like'}({_places(3 if escapes else 2)})"

    def build(name: str, takes: tuple[ColumnType, ...], constants: Constants) -> Operation:
        pattern = constants.get(1)
        escape = constants.get(2) if escapes else "\\"
        duck, fails = None, True
        if isinstance(pattern, str) and isinstance(escape, str) and len(escape) < 2:
            fails = _ends_early(pattern, escape)
            word = "ILIKE" if ignore_case else "LIKE"
            suffix = f" ESCAPE '{escape.replace(chr(39), chr(39) * 2)}'" if escape and escape in pattern else ""
            if not fails:
                duck = f"({{0}} {word} {{1}}{suffix})"
            if ignore_case and duck is not None:
                duck = _ascii_only(duck, len(takes)) if pattern.isascii() else None
        return Operation(name, takes, BOOLEAN, python, duck, fails=fails)

    more = (TEXT, TEXT) if escapes else (TEXT,)
    return [Overload((TEXT, *more), build), Overload((CHAR, *more), build)]


def _ends_early(pattern: str, escape: str) -> bool:
    """Whether the last character of a pattern escapes nothing."""
    at = 0
    while at < len(pattern):
        if pattern[at] == escape:
            at += 1
            if at == len(pattern):
                return True
        at += 1
    return False


def regular_match(symbol: str, left: ColumnType | None, right: ColumnType | None) -> Operation | None:
    """~ and ~*: whether a regular expression is found in a text."""
    if not all(type_ is None or is_text(type_) for type_ in (left, right)):
        return None
    python = texts.matches if symbol == "~" else texts.matches_ignoring_case
    return Operation(symbol, (TEXT, TEXT), BOOLEAN, python)


# ---- joining


def shown(left: ColumnType | None, right: ColumnType | None) -> Operation | None:
    """left || right: of bytes, of texts, or of a text and anything."""
    kinds = [category(type_) if type_ is not None else "" for type_ in (left, right)]
    if "bytes" in kinds and set(kinds) <= {"bytes", ""}:
        return Operation("||", (BYTEA, BYTEA), BYTEA, "({0} + {1})", "({0} || {1})", fails=False)
    if "text" not in kinds and "" not in kinds:
        return None
    return _joined("||", [left, right], "({0} + {1})", "({0} || {1})", _as_text)


def _joined(
    name: str,
    types: Types,
    python: str | Callable[..., Any],
    duck: str,
    form: Callable[[ColumnType], tuple[Callable[[Any], str] | None, str | None]],
    strict: bool = True,
) -> Operation:
    """An operation on values that are written as texts first."""
    takes = tuple(TEXT if type_ is None or type_.name == "VARCHAR" else type_ for type_ in types)
    forms = [form(type_) for type_ in takes]
    writers = [write for write, _ in forms]
    function = function_of(Operation(name, takes, TEXT, python)) if isinstance(python, str) else python
    called: Callable[..., Any] | str = python
    if any(writers):

        def written(*values: Any) -> Any:
            return function(
                *(
                    write(value) if write is not None and value is not None else value
                    for write, value in zip(writers, values, strict=True)
                )
            )

        called = written
    sqls = [sql.format(f"{{{n}}}") if sql is not None else None for n, (_, sql) in enumerate(forms)]
    template = duck.format(*sqls) if None not in sqls else None
    return Operation(name, takes, TEXT, called, template, strict=strict, fails=False)


def _as_text(type_: ColumnType) -> tuple[Callable[[Any], str] | None, str | None]:
    """How a value becomes text: in Python, None if it is one, and in DuckDB, None if Python must do it."""
    if type_ == TEXT:
        return None, "{0}"
    conversion = cast(type_, TEXT)
    assert conversion is not None
    return function_of(conversion), conversion.duck


def _as_output(type_: ColumnType) -> tuple[Callable[[Any], str] | None, str | None]:
    """How concat shows a value: a CHAR with its blanks, t for true."""
    if type_ == BOOLEAN:
        return (lambda value: "t" if value else "f"), "CASE WHEN {0} THEN 't' WHEN NOT {0} THEN 'f' END"
    return (None, "{0}") if type_.name == "CHAR" else _as_text(type_)


def concatenation(types: Types) -> Operation:
    """concat(...): NULLs are left out."""
    return _joined("concat", types, texts.concatenate, f"concat({_places(len(types))})", _as_output, strict=False)


def join_operation(types: Types) -> Operation | None:
    """concat_ws(separator, ...): the separator is a text, without the blanks of a CHAR."""
    if len(types) < 2 or not (types[0] is None or is_text(types[0])):
        return None
    types = [TEXT, *types[1:]]
    return _joined("concat_ws", types, texts.join, f"concat_ws({_places(len(types))})", _as_output, strict=False)


_PARTS = [
    _text(texts.substring, "substring({0}, CASE WHEN {1} < 1 THEN 1 ELSE {1} END)", INT),
    _text(texts.substring, "gm_substring({0}, {1}, {2})", INT, INT, fails=True),
    plain((BYTEA, INT), BYTEA, texts.substring),
    plain((BYTEA, INT, INT), BYTEA, texts.substring, fails=True),
]
TEXT_FUNCTIONS: dict[str, Sequence[Overload]] = {
    "like": _likes(False, False),
    "ilike": _likes(True, False),
    "like_escape": _likes(False, True),
    "ilike_escape": _likes(True, True),
    "similar": [_text(texts.similar, None, TEXT, gives=BOOLEAN, fails=True)],
    "similar_escape": [_text(texts.similar, None, TEXT, TEXT, gives=BOOLEAN, fails=True)],
    "length": [
        _text("len({0})", _size("length({0})"), gives=INT),
        plain((CHAR,), INT, "len({0}.rstrip(' '))", _size("length(rtrim({0}, ' '))")),
        plain((BYTEA,), INT, "len({0})", _size("octet_length({0})")),
    ],
    "octet_length": [
        _text(texts.octets, _size("strlen({0})"), gives=INT),
        plain((CHAR,), INT, texts.octets, _size("strlen({0})")),
        plain((BYTEA,), INT, "len({0})", _size("octet_length({0})")),
    ],
    "bit_length": [
        _text("(8 * octets({0}))", _size("8 * strlen({0})"), gives=INT),
        plain((BYTEA,), INT, "(8 * len({0}))", _size("8 * octet_length({0})")),
    ],
    "lower": [_text(texts.lower, _ascii_only("lower({0})"))],
    "upper": [_text(texts.upper, _ascii_only("upper({0})"))],
    "initcap": [_text(texts.capitalize_words, None)],
    "btrim": _trims("strip", "trim"),
    "ltrim": _trims("lstrip", "ltrim"),
    "rtrim": _trims("rstrip", "rtrim"),
    "substr": _PARTS,
    "substring": [_text(texts.matching_part, None, TEXT, fails=True), *_PARTS],
    "strpos": [
        _text("({0}.find({1}) + 1)", _size("strpos({0}, {1})"), TEXT, gives=INT),
        plain((BYTEA, BYTEA), INT, "({0}.find({1}) + 1)"),
    ],
    "replace": [_text("({0}.replace({1}, {2}) if {1} else {0})", "replace({0}, {1}, {2})", TEXT, TEXT)],
    "translate": [_text(texts.translate, None, TEXT, TEXT)],
    "left": [_text("{0}[:{1}]", "left({0}, {1})", INT)],
    "right": [_text(texts.right, "right({0}, {1})", INT)],
    "lpad": [_text(texts.pad_left, None, INT, fails=True), _text(texts.pad_left, None, INT, TEXT, fails=True)],
    "rpad": [_text(texts.pad_right, None, INT, fails=True), _text(texts.pad_right, None, INT, TEXT, fails=True)],
    "repeat": [_text(texts.repeat, None, INT, fails=True)],
    "reverse": [_text("{0}[::-1]", _ascii_only("reverse({0})"))],
    "overlay": [
        _text(texts.overlay, None, TEXT, INT, fails=True),
        _text(texts.overlay, None, TEXT, INT, INT, fails=True),
    ],
    "regexp_replace": [
        _text(texts.replace_matches, None, TEXT, TEXT, fails=True),
        _text(texts.replace_matches, None, TEXT, TEXT, TEXT, fails=True),
    ],
    "split_part": [_text(texts.split_part, "gm_split({0}, {1}, {2})", TEXT, INT, fails=True)],
    "md5": [_text(texts.md5, "md5({0})"), plain((BYTEA,), TEXT, texts.md5)],
    "to_hex": [plain((INT,), TEXT, texts.hexadecimal(32)), plain((BIGINT,), TEXT, texts.hexadecimal(64))],
    "chr": [plain((INT,), TEXT, texts.character, fails=True)],
    "ascii": [
        _text(
            "(ord({0}[0]) if {0} else 0)", "CASE WHEN {0} = '' THEN 0 ELSE CAST(unicode({0}) AS INTEGER) END", gives=INT
        )
    ],
    "starts_with": [_text(str.startswith, "starts_with({0}, {1})", TEXT, gives=BOOLEAN)],
    "encode": [plain((BYTEA, TEXT), TEXT, texts.encode, fails=True)],
    "decode": [plain((TEXT, TEXT), BYTEA, texts.decode, fails=True)],
}
