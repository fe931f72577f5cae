"""What text and bytes do at run time, as PostgreSQL has it: lengths in characters, positions from 1, C collation.

No function here takes None, except where it says so.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from itertools import cycle, islice
from typing import Any

from gmdb.errors import InvalidText, UndefinedResult, ValueOutOfRange, ValueTooLong
from gmdb.format.columns import encode_text
from gmdb.process.late_patterns import late_pattern

CHARACTERS_MAX = 1 << 24  # of a function's result: larger ones are taken for mistakes


def substring(text: Any, start: int, length: int | None = None) -> Any:
    """Of text or bytes; positions before the first count, but hold nothing."""
    if length is None:
        return text[max(0, start - 1) :]
    if length < 0:
        raise UndefinedResult("negative substring length not allowed")
    return text[max(0, start - 1) : max(0, start - 1 + length)]


def right(text: str, count: int) -> str:
    """The last characters; with a negative count, all but the first."""
    return text[-count:] if count else ""


def pad_left(text: str, length: int, filling: str = " ") -> str:
    kept = text[: max(0, length)]
    return _filling(filling, length - len(kept)) + kept if filling else kept


def pad_right(text: str, length: int, filling: str = " ") -> str:
    kept = text[: max(0, length)]
    return kept + _filling(filling, length - len(kept)) if filling else kept


def _filling(filling: str, count: int) -> str:
    _check_size(count)
    return "".join(islice(cycle(filling), max(0, count)))


def repeat(text: str, count: int) -> str:
    _check_size(len(text) * count)
    return text * max(0, count)


def _check_size(count: int) -> None:
    if count > CHARACTERS_MAX:
        raise ValueTooLong(f"the requested text has {count} characters; at most {CHARACTERS_MAX} are made")


def split_part(text: str, delimiter: str, number: int) -> str:
    """A field; a negative number counts from the end."""
    if not number:
        raise UndefinedResult("field position must not be zero")
    fields = text.split(delimiter) if delimiter and text else [text]
    at = number - 1 if number > 0 else len(fields) + number
    return fields[at] if 0 <= at < len(fields) else ""


def capitalize_words(text: str) -> str:
    """A word is a run of letters and digits."""
    return re.sub(r"[^\W_]+", lambda match: upper(match[0][0]) + lower(match[0][1:]), text)


def upper(text: str) -> str:
    """Character by character: one never becomes two."""
    upper_ = text.upper()
    return upper_ if len(upper_) == len(text) else "".join(c.upper() if len(c.upper()) == 1 else c for c in text)


def lower(text: str) -> str:
    lower_ = text.lower()
    return lower_ if len(lower_) == len(text) else "".join(c.lower()[0] for c in text)


def md5(value: Any) -> str:
    import hashlib

    return hashlib.md5(encode_text(value) if isinstance(value, str) else value, usedforsecurity=False).hexdigest()


def hexadecimal(bits: int) -> Callable[[int], str]:
    """Of an integer as its bits are: negative ones as two's complement."""
    return lambda value: f"{value & (1 << bits) - 1:x}"


def character(code: int) -> str:
    if code == 0:
        raise ValueOutOfRange("null character not permitted")
    if not 0 < code <= 0x10FFFF or 0xD800 <= code < 0xE000:
        raise ValueOutOfRange(f"requested character {code} is not valid: there is no such character")
    return chr(code)


def octets(value: Any) -> int:
    return len(encode_text(value)) if isinstance(value, str) else len(value)


def translate(text: str, source: str, target: str) -> str:
    pairs: dict[int, str | None] = {}
    for at, c in enumerate(source):
        pairs.setdefault(ord(c), target[at] if at < len(target) else None)
    return text.translate(pairs)


def concatenate(*values: str | None) -> str:
    """NULLs are left out."""
    return "".join([value for value in values if value is not None])


def join(separator: str | None, *values: str | None) -> str | None:
    """NULLs are left out; without a separator there is no text."""
    return None if separator is None else separator.join([value for value in values if value is not None])


def encode(value: bytes, form: str) -> str:
    import base64

    if form not in ("hex", "base64"):
        raise UndefinedResult(f"unrecognized encoding {form!r}: write hex or base64")
    return value.hex() if form == "hex" else base64.b64encode(value).decode()


def decode(text: str, form: str) -> bytes:
    import base64

    if form not in ("hex", "base64"):
        raise UndefinedResult(f"unrecognized encoding {form!r}: write hex or base64")
    try:
        return bytes.fromhex(text) if form == "hex" else base64.b64decode(text, validate=True)
    except ValueError:
        raise InvalidText(f"invalid {form} data: {text[:60]!r}") from None


def overlay(text: str, new: str, start: int, count: int | None = None) -> str:
    """The text with some of its characters replaced, as many as there are new ones unless a count is given."""
    if start <= 0:
        raise UndefinedResult("negative substring length not allowed")
    end = start + (len(new) if count is None else count)
    if end >= 1 << 31:
        raise ValueOutOfRange("integer out of range")
    return text[: start - 1] + new + text[max(0, end - 1) :]


# ---- patterns


def _similar_regex(pattern: str, escape: str) -> str:
    """The regular expression for a pattern of SIMILAR TO: %, _, a character that escapes, and | * + ? {} () []."""
    regex, at, in_class = "", 0, False
    while at < len(pattern):
        c = pattern[at]
        at += 1
        if c == escape:
            regex += re.escape(pattern[at : at + 1])
            at += 1
        elif in_class:
            in_class = c != "]"
            regex += c
        elif c in "%_":
            regex += ".*" if c == "%" else "."
        else:
            in_class = c == "["
            regex += c if c in "|*+?{}()[]" or c.isalnum() else "," if c == "," else re.escape(c)
    return f"(?:{regex})"


@lru_cache(maxsize=256)
def _similar_expression(pattern: str, escape: str) -> re.Pattern[str]:
    if len(escape) > 1:
        raise UndefinedResult(f"invalid escape string {escape!r}: it must be empty or one character")
    try:
        return re.compile(_similar_regex(pattern, escape), re.DOTALL)
    except re.error as error:
        raise UndefinedResult(f"invalid regular expression {pattern!r}: {error}") from None


def similar(text: str, pattern: str, escape: str = "\\") -> bool:
    """SIMILAR TO."""
    return _similar_expression(pattern, escape).fullmatch(text) is not None


@lru_cache(maxsize=256)
def like_matcher(pattern: str, escape: str, ignore_case: bool = False) -> Callable[[str], Any]:
    """A function that returns something true for texts that match."""
    if len(escape) > 1:
        raise UndefinedResult(f"invalid escape string {escape!r}: it must be empty or one character")
    runs, at, ends_early = [""], 0, False
    while at < len(pattern):
        c = pattern[at]
        at += 1
        if c == escape:
            ends_early = at == len(pattern)
            runs[-1] += re.escape(pattern[at : at + 1])
            at += 1
        elif c == "%":
            runs.append("")
        else:
            runs[-1] += "." if c == "_" else re.escape(c)
    # What lies between two % is taken where it occurs first: nothing is gained by trying later places.
    middle = "".join(f"(?>.*?{run})" for run in runs[1:-1] if run)
    ending = f".*{runs[-1]}" if len(runs) > 1 else ""
    flags = re.DOTALL | (re.IGNORECASE if ignore_case else 0)
    if not ends_early:
        return re.compile(runs[0] + middle + ending, flags).fullmatch
    return _never(re.compile(runs[0] + middle + ending + ".", flags).match, pattern)


def _never(reaches_end: Callable[[str], Any], pattern: str) -> Callable[[str], Any]:
    """For a pattern whose last character escapes nothing: an error for texts that are compared so far."""

    def match(text: str) -> None:
        if reaches_end(text):
            raise UndefinedResult(f"LIKE pattern {pattern!r} must not end with escape character")

    return match


def like(text: str, pattern: str, escape: str = "\\") -> bool:
    return like_matcher(pattern, escape)(text) is not None


def ilike(text: str, pattern: str, escape: str = "\\") -> bool:
    return like_matcher(pattern, escape, True)(text) is not None


# ---- regular expressions


_DOLLAR = late_pattern(r"(\\.|\[\^?\]?[^\]]*\])|\$", re.DOTALL)  # as a sign of its own: not escaped, not in brackets


@lru_cache(maxsize=256)
def _expression(pattern: str, ignore_case: bool) -> re.Pattern[str]:
    try:
        pattern = _DOLLAR.sub(lambda match: match[1] or r"\Z", pattern)  # Python's $ allows a newline behind it
        return re.compile(pattern, re.DOTALL | (re.IGNORECASE if ignore_case else 0))
    except re.error as error:
        raise ValueOutOfRange(f"invalid regular expression {pattern!r}: {error}") from None


def matches(text: str, pattern: str) -> bool:
    return _expression(pattern, False).search(text) is not None


def matches_ignoring_case(text: str, pattern: str) -> bool:
    return _expression(pattern, True).search(text) is not None


def replace_matches(text: str, pattern: str, by: str, flags: str = "") -> str:
    """The first match, or with g all of them; in what comes instead \\1 is a group and \\& the match."""
    if set(flags) - set("gic"):
        raise UndefinedResult(f"invalid regular expression option {flags!r}: there are g, i and c")

    def replacement_of(match: re.Match[str]) -> str:
        def part(one: re.Match[str]) -> str:
            sign = one[1]
            if sign in "&0":
                return match[0]
            if sign.isdigit():
                return (match[int(sign)] or "") if int(sign) <= match.re.groups else ""
            return sign if sign == "\\" else one[0]

        return re.sub(r"\\(.)", part, by, flags=re.DOTALL)

    return _expression(pattern, "i" in flags).sub(replacement_of, text, 0 if "g" in flags else 1)


def matching_part(text: str, pattern: str) -> str | None:
    """What a regular expression matches first, or its first group if it has one; None if there is no match."""
    match = _expression(pattern, False).search(text)
    return None if match is None else match[1] if match.re.groups else match[0]
