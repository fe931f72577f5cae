"""JSON texts: checked, in normal form, taken apart, and as keys that order them.

A JSON value is kept as its text.  JSON keeps it as it was written; JSONB has the *normal form*, which is PostgreSQL's
output: the members of an object by the length of their names in bytes, then by the bytes, each name once and with its
last value; numbers without exponents, their digits as they were written; one blank behind each colon and comma.

Invariants
 1. A part of a text in normal form is in normal form.
 2. ``key_of`` gives equal bytes for equal values, and bytes that are ordered as PostgreSQL orders them.
 3. No text has more than DEPTH_MAX arrays and objects within each other, so that whatever walks through it can recurse.
Not here: what SQL's functions do with them (sql/json_values.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from json import JSONDecodeError, JSONDecoder
from json.decoder import scanstring  # type: ignore[attr-defined]
from json.encoder import encode_basestring
from typing import Any, NoReturn

from gmdb.errors import DataError, InvalidText, TypeMismatch, ValueOutOfRange
from gmdb.process.late_patterns import late_pattern

DEPTH_MAX = 200
_DIGITS_BEFORE_MAX, _DIGITS_BEHIND_MAX = 131_072, 16_383  # of a number, as PostgreSQL's numeric has them
_SHOWN = 40  # characters of a bad text in a message
_STRING = late_pattern(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_NO_BRACKET = late_pattern(r"[^\[\]{}]+")
_SPACE = late_pattern(r"[ \t\n\r]*")
_PLAIN_NUMBER = late_pattern(r"(?:0|-?[1-9]\d{0,99})(?:\.\d{1,99})?|0\.\d{1,99}", re.ASCII)
_ZERO, _NEGATIVE, _POSITIVE = b"\1", b"\0", b"\2"  # of a number's key
_COMPLEMENT = bytes(255 - n for n in range(256))


class Number(str):
    """A number within a parsed text, as it is written."""

    __slots__ = ()


class JsonText(str):
    """A text that is JSON."""

    __slots__ = ()


class JsonbText(str):
    """A text of JSON in normal form."""

    __slots__ = ()


def _no_constant(word: str) -> NoReturn:
    raise InvalidText(f"invalid input syntax for type json: {word} is no value of JSON")


_decode = JSONDecoder(parse_float=Number, parse_int=Number, parse_constant=_no_constant).decode
_scan: Callable[[str, int], tuple[Any, int]] = JSONDecoder(parse_float=Number, parse_int=Number).scan_once  # type: ignore[attr-defined]


# ---- reading


def parse(text: str, type_name: str = "json") -> Any:
    """The value of a text: dict, list, str, Number, bool, None.  Raises InvalidText with the place of what is wrong."""
    try:
        _require_shallow(text)
        return _decode(text)
    except JSONDecodeError as error:
        line = "" if error.lineno == 1 else f"line {error.lineno}, "
        near = f", near {text[error.pos : error.pos + _SHOWN]!r}" if error.pos < len(text) else ", at its end"
        place = f"{line}character {error.colno}{near}"
        raise InvalidText(f"invalid input syntax for type {type_name}: {_reason(error)} at {place}") from None


def _reason(error: JSONDecodeError) -> str:
    reason = error.msg.removesuffix(" at").removesuffix(" starting at")
    return {
        "Expecting value": "a value is expected",
        "Extra data": "there is more behind the value",
        "Expecting property name enclosed in double quotes": "a name in double quotes is expected",
        "Expecting ':' delimiter": "a colon is expected",
        "Expecting ',' delimiter": "a comma or the end is expected",
        "Unterminated string": "a string has no end",
        "Invalid control character": "a control character in a string is not escaped",
        "Invalid \\escape": "there is no such escape",
        "Invalid \\escape: ": "there is no such escape",
        "Invalid \\uXXXX escape": "\\u needs four hexadecimal digits",
    }.get(reason, reason)


def _require_shallow(text: str) -> None:
    """Refuse a text with too many arrays and objects within each other, right or not."""
    if text.count("[") + text.count("{") <= DEPTH_MAX:
        return
    depth = 0
    for bracket in _NO_BRACKET.sub("", _STRING.sub("", text)):
        depth += 1 if bracket in "[{" else -1
        if depth > DEPTH_MAX:
            raise InvalidText(f"JSON has at most {DEPTH_MAX} arrays and objects within each other")


def check(text: str) -> JsonText:
    """The text, if it is JSON."""
    parse(text)
    return JsonText(text)


def normal(text: str) -> JsonbText:
    """The text in normal form."""
    value = parse(text, "jsonb")
    if "\\u" in text:
        require_characters(value)
    return JsonbText(write(value))


def require_characters(value: Any) -> None:
    """Refuse strings that no text can hold: with NUL, or with half a surrogate pair."""
    if isinstance(value, Mapping):
        for name, one in value.items():
            require_characters(name)
            require_characters(one)
    elif isinstance(value, list):
        for one in value:
            require_characters(one)
    elif isinstance(value, str):
        if "\0" in value:
            raise InvalidText("unsupported Unicode escape sequence: \\u0000 cannot be a character of a text")
        try:
            value.encode()
        except UnicodeEncodeError as error:
            code = f"\\u{ord(value[error.start]):04x}"
            raise InvalidText(f"unsupported Unicode escape sequence: {code} is half a surrogate pair") from None


# ---- writing


quoted: Callable[[str], str] = encode_basestring


def write(value: Any) -> str:
    """The normal form of a parsed value, whose numbers may be as they were written."""
    if value.__class__ is Number:
        return normal_number(value)
    if value.__class__ is str:
        return quoted(value)
    if isinstance(value, dict):
        return members_text({name: write(one) for name, one in value.items()})
    if isinstance(value, list):
        return elements_text(map(write, value))
    return "null" if value is None else "true" if value else "false"


def _by_length(name: str) -> tuple[int, bytes]:
    raw = name.encode()
    return len(raw), raw


def members_text(members: Mapping[str, str]) -> str:
    """An object in normal form; the members' values are texts in normal form."""
    return "{" + ", ".join([f"{quoted(name)}: {members[name]}" for name in sorted(members, key=_by_length)]) + "}"


def elements_text(elements: Iterable[str]) -> str:
    return "[" + ", ".join(elements) + "]"


def normal_number(text: str) -> str:
    """A number without an exponent, with all digits that it was written with."""
    if _PLAIN_NUMBER.fullmatch(text):
        return str(text)
    number = Decimal(text)
    exponent = number.as_tuple().exponent
    assert isinstance(exponent, int)
    if (number and number.adjusted() >= _DIGITS_BEFORE_MAX) or -exponent > _DIGITS_BEHIND_MAX:
        raise ValueOutOfRange(f"value overflows numeric format: {text[:_SHOWN]}")
    if not number:
        return "0." + "0" * -exponent if exponent < 0 else "0"
    return format(number, "f")


# ---- parts, as texts


def kind_of(text: str) -> str:
    """array, object, string, number, boolean or null."""
    first = text[_start(text)]
    return {"[": "array", "{": "object", '"': "string", "t": "boolean", "f": "boolean", "n": "null"}.get(
        first, "number"
    )


def _start(text: str, at: int = 0) -> int:
    match = _SPACE.match(text, at)
    assert match is not None
    return match.end()


def members(text: str) -> list[tuple[str, str]]:
    """The members of an object, in their order; of values that are texts, what stands there."""
    pairs: list[tuple[str, str]] = []
    at = _start(text, _start(text) + 1)
    while text[at] != "}":
        name, at = scanstring(text, at + 1, True)
        at = _start(text, _start(text, at) + 1)
        end = _scan(text, at)[1]
        pairs.append((name, text[at:end]))
        at = _start(text, end)
        if text[at] == ",":
            at = _start(text, at + 1)
    return pairs


def elements(text: str) -> list[str]:
    """The elements of an array, as they stand there."""
    parts: list[str] = []
    at = _start(text, _start(text) + 1)
    while text[at] != "]":
        end = _scan(text, at)[1]
        parts.append(text[at:end])
        at = _start(text, end)
        if text[at] == ",":
            at = _start(text, at + 1)
    return parts


def string_of(text: str) -> str:
    """The characters of a string."""
    characters: str = scanstring(text, _start(text) + 1, True)[0]
    return characters


# ---- Keys: bytes that are ordered as PostgreSQL orders values of jsonb.

_NULL, _TEXT, _NUMBER, _FALSE, _TRUE, _ARRAY, _OBJECT = (bytes([n]) for n in range(2, 9))
_EMPTY = b"\1"  # an array without elements that is no part of another value comes before all


def key_of(text: str) -> bytes:
    """Equal for equal values, and ordered as they are: the key of a text in normal form."""
    value = _decode(text)
    return _EMPTY if value == [] else _key(value)


def _key(value: Any) -> bytes:
    if value.__class__ is Number:
        return _NUMBER + _number_key(value)
    if value.__class__ is str:
        return _text_key(value)
    if isinstance(value, dict):
        parts = [part for name, one in value.items() for part in (_text_key(name), _key(one))]
        return b"".join([_OBJECT, len(value).to_bytes(4, "big"), *parts])
    if isinstance(value, list):
        return b"".join([_ARRAY, len(value).to_bytes(4, "big"), *map(_key, value)])
    return _NULL if value is None else _TRUE if value else _FALSE


def _text_key(text: str) -> bytes:
    return _TEXT + text.encode() + b"\0"


def _number_key(text: str) -> bytes:
    number = Decimal(text)
    if not number:
        return _ZERO
    sign, digits, _ = number.as_tuple()
    size = number.adjusted() + (1 << 31)
    raw = size.to_bytes(4, "big") + "".join(map(str, digits)).rstrip("0").encode() + b"\0"
    return _NEGATIVE + raw.translate(_COMPLEMENT) if sign else _POSITIVE + raw


# ---- Python's values


def text_of_value(value: Any) -> str:
    """The text of a value of Python's: what json.dumps takes, decimals too.  Raises TypeMismatch for others."""
    if value is None or isinstance(value, bool):
        return "null" if value is None else "true" if value else "false"
    if isinstance(value, str):
        return _encodable(quoted(value))
    if isinstance(value, int):
        return str(Decimal(value)) if abs(value).bit_length() > 10_000 else str(int(value))
    if isinstance(value, float | Decimal):
        if not _is_finite(value):
            raise TypeMismatch(f"{value!r} is no number of JSON")
        return repr(float(value)) if isinstance(value, float) else format(value, "f")
    if isinstance(value, dict):
        for name in value:
            if not isinstance(name, str):
                raise TypeMismatch(f"{name!r} cannot name a member of a JSON object: it is not a str")
        return "{" + ", ".join([f"{text_of_value(name)}: {text_of_value(one)}" for name, one in value.items()]) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(text_of_value, value)) + "]"
    raise TypeMismatch(f"{value!r} is no value of JSON: it has dict, list, str, int, float, Decimal, bool and None")


def _is_finite(value: float | Decimal) -> bool:
    return value.is_finite() if isinstance(value, Decimal) else value - value == 0


def _encodable(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise TypeMismatch(f"{text[:_SHOWN]} is not a text: it cannot be written as UTF-8") from None
    return text


def written(value: dict[str, Any] | Sequence[Any]) -> str:
    """``text_of_value``, of what is nested deeply too."""
    try:
        return text_of_value(value)
    except RecursionError:
        raise TypeMismatch(f"JSON has at most {DEPTH_MAX} arrays and objects within each other") from None


_loads = JSONDecoder().decode


def value_of_text(text: str) -> Any:
    """The value as json.loads has it."""
    try:
        return _loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"Python cannot have this JSON as a value: {error}. Cast it to TEXT") from None
