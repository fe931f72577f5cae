"""Arrays within expressions: their texts, how they compare, and what functions do with them.

Expressions have arrays as lists or tuples; constants are tuples, results lists.

Invariants
 1. An array is compared by its ``key``: element by element, then by length; NULL is equal to NULL and above the rest.
 2. There is one dimension, which begins at 1.
Not here: which functions there are, and for which types (operations/arrays.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from typing import Any

from gmdb.errors import InvalidText, NotSupportedError, UndefinedResult, ValueOutOfRange
from gmdb.process.late_patterns import late_pattern

Array = Sequence[Any]
Key = Callable[[Any], Any]
_SPACE = " \t\n\r\v\f"
_QUOTED = late_pattern(r'["\\{},\s]', re.ASCII)  # an element with one of these is written in quotes
_BOUNDS = late_pattern(r"\s*((?:\[\s*[+-]?\d+\s*(?::\s*[+-]?\d+\s*)?\]\s*)+)=", re.ASCII)
_ONE_DIMENSION = "arrays have one dimension"


# ---- texts


def array_text(values: Array, write: Callable[[Any], str]) -> str:
    """An array as PostgreSQL writes it: ``{1,NULL,"a b"}``."""
    return "{" + ",".join("NULL" if value is None else _element_text(write(value)) for value in values) + "}"


def _element_text(text: str) -> str:
    if text and not _QUOTED.search(text) and text.upper() != "NULL":
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def read_array(text: str, read: Callable[[str], Any]) -> tuple[Any, ...]:
    """The array that a text says."""
    return tuple(None if one is None else read(one) for one in elements_of(text))


def elements_of(text: str) -> list[str | None]:
    """The texts of an array's elements.  Raises InvalidText for what is no array, with the reason."""
    count, inner = None, text
    bounds = _BOUNDS.match(text)
    if bounds is not None:
        count, inner = _count_of(text, bounds[1]), text[bounds.end() :]
    inner = inner.strip(_SPACE)
    if not inner.startswith("{"):
        raise _malformed(text, "it must begin with {")
    elements = list(_elements(text, inner))
    if count is not None and count != len(elements):
        raise _malformed(text, "it has not as many elements as it says")
    return elements


def _malformed(text: str, why: str) -> InvalidText:
    return InvalidText(f"malformed array literal: {text[:100]!r}: {why}")


def _count_of(text: str, bounds: str) -> int:
    """How many elements there are by ``[1:3]``, which may stand before an array."""
    ends = [one.split(":") for one in re.findall(r"\[([^\]]*)\]", bounds)]
    if len(ends) > 1:
        raise NotSupportedError(f"{_ONE_DIMENSION}: {text[:100]!r} has {len(ends)}")
    low, high = (1, int(ends[0][0])) if len(ends[0]) == 1 else map(int, ends[0])
    if low != 1:
        raise NotSupportedError(f"arrays begin at 1, not at {low}: {text[:100]!r}")
    return high


def _elements(text: str, inner: str) -> Iterator[str | None]:
    """The elements between braces."""
    at, end = 1, len(inner)
    is_first = True
    while True:
        while at < end and inner[at] in _SPACE:
            at += 1
        if at >= end:
            raise _malformed(text, "it must end with }")
        if inner[at] == "}":
            if not is_first:
                raise _malformed(text, "an element is missing before }")
            at += 1
            break
        element, at = _element(text, inner, at)
        yield element
        if inner[at] == "}":
            at += 1
            break
        at += 1
        is_first = False
    if at != end:
        raise _malformed(text, "there is something behind }")


def _element(text: str, inner: str, at: int) -> tuple[str | None, int]:
    """The element that begins at a place, and where the sign behind it is: a comma or a brace."""
    if inner[at] == "{":
        raise NotSupportedError(f"{_ONE_DIMENSION}: {text[:100]!r} has more")
    letters: list[str] = []
    kept = 0  # letters that are not blanks at the end
    quoted, is_quoted = False, inner[at] == '"'
    end = len(inner)
    if is_quoted:
        at, quoted = at + 1, True
    while at < end:
        letter = inner[at]
        if letter == "\\":
            at += 1
            if at >= end:
                break
            letters.append(inner[at])
            kept = len(letters)
        elif quoted:
            if letter == '"':
                quoted = False
                kept = len(letters)
            else:
                letters.append(letter)
        elif letter in ",}":
            if not letters and not is_quoted:
                raise _malformed(text, f"an element is missing before {letter}")
            word = "".join(letters[:kept])
            return (None if not is_quoted and kept == len(word) and word.upper() == "NULL" else word), at
        elif letter in '"{' or (is_quoted and letter not in _SPACE):
            raise _malformed(text, f"{letter} cannot stand there")
        elif not is_quoted:
            letters.append(letter)
            if letter not in _SPACE:
                kept = len(letters)
        at += 1
    raise _malformed(text, "it must end with }")


# ---- comparisons


def array_key(element_key: Key | None) -> Callable[[Array], tuple[Any, ...]]:
    """What compares as arrays do, whose elements compare as ``element_key`` of them does."""
    if element_key is None:
        return lambda values: tuple((True, 0) if value is None else (False, value) for value in values)
    return lambda values: tuple((True, 0) if value is None else (False, element_key(value)) for value in values)


def holds(test: Callable[[Any, Any], Any], value: Any, values: Array | None, every: bool) -> bool | None:
    """``value = ANY (values)`` or, with ``every``, ``ALL``; ``test`` compares two values that are not NULL."""
    if values is None:
        return None
    if not values:
        return every
    if value is None:
        return None
    unknown = False
    for one in values:
        if one is None:
            unknown = True
        elif bool(test(value, one)) is not every:
            return not every
    return None if unknown else every


def contains(key: Key, whole: Array, part: Array) -> bool:
    """Whether each element of a part is in the whole; NULL is in none."""
    known = {key(one) for one in whole if one is not None}
    return all(one is not None and key(one) in known for one in part)


def overlap(key: Key, one: Array, other: Array) -> bool:
    known = {key(value) for value in one if value is not None}
    return any(value is not None and key(value) in known for value in other)


# ---- parts and elements


def element_at(values: Array, number: int) -> Any:
    return values[number - 1] if 0 < number <= len(values) else None


def part_of(values: Array, first: int, last: int) -> Array:
    return values[max(first, 1) - 1 : max(last, 0)]


def length(values: Array, dimension: int) -> int | None:
    return len(values) if dimension == 1 and len(values) else None


def lower(values: Array, dimension: int) -> int | None:
    return 1 if dimension == 1 and len(values) else None


def dimensions(values: Array) -> int | None:
    return 1 if len(values) else None


def extent(values: Array) -> str | None:
    return f"[1:{len(values)}]" if len(values) else None


def joined(one: Array | None, other: Array | None) -> Array | None:
    if one is None or other is None:
        return other if one is None else one
    return (*one, *other)


def appended(values: Array | None, value: Any) -> Array:
    return (*(values or ()), value)


def prepended(value: Any, values: Array | None) -> Array:
    return (value, *(values or ()))


def _is(key: Key, value: Any) -> Callable[[Any], bool]:
    """Whether an element is a value; NULL is NULL."""
    if value is None:
        return lambda one: one is None
    wanted = key(value)
    return lambda one: one is not None and key(one) == wanted


def removed(key: Key, values: Array | None, value: Any) -> Array | None:
    is_it = _is(key, value)
    return None if values is None else tuple(one for one in values if not is_it(one))


def replaced(key: Key, values: Array | None, value: Any, new: Any) -> Array | None:
    is_it = _is(key, value)
    return None if values is None else tuple(new if is_it(one) else one for one in values)


def position(key: Key, values: Array | None, value: Any, first: int | None = 1) -> int | None:
    if values is None:
        return None
    if first is None:
        raise UndefinedResult("initial position must not be null")
    is_it = _is(key, value)
    start = max(first, 1)
    return next((n for n, one in enumerate(values[start - 1 :], start) if is_it(one)), None)


def positions(key: Key, values: Array | None, value: Any) -> Array | None:
    is_it = _is(key, value)
    return None if values is None else tuple(n for n, one in enumerate(values, 1) if is_it(one))


def trimmed(values: Array, count: int) -> Array:
    if not 0 <= count <= len(values):
        raise ValueOutOfRange(f"number of elements to trim must be between 0 and {len(values)}")
    return values[: len(values) - count]


def split(text: str | None, separator: str | None, null: str | None = None) -> Array | None:
    """string_to_array: NULL splits between all letters; parts that are ``null`` become NULL."""
    if text is None:
        return None
    if not text:
        return ()
    parts = list(text) if separator is None else text.split(separator) if separator else [text]
    return tuple(None if part == null else part for part in parts)


def join(write: Callable[[Any], str], values: Array | None, separator: str | None, null: str | None) -> str | None:
    """array_to_string: NULLs are left out, or stand as ``null``."""
    if values is None or separator is None:
        return None
    return separator.join(
        null if value is None else write(value)  # type: ignore[misc]
        for value in values
        if value is not None or null is not None
    )


# ---- rows


def unnested(*arrays: Array | None) -> Iterator[tuple[Any, ...]]:
    """A row for each place, and its number behind the elements there; shorter arrays have NULL."""
    for n, row in enumerate(zip_longest(*(values or () for values in arrays)), 1):
        yield (*row, n)
