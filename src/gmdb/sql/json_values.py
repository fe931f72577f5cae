"""What SQL's functions and operators of JSON mean, over texts as format/json_text.py has them.

A text of JSON is taken apart as it was written, one of JSONB is in normal form; what takes either gives what it was
given.  A path is an array of texts: names of members, and numbers of elements from 0, or from the end below 0.
None is NULL, and the text ``null`` the value null of JSON.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from decimal import ROUND_HALF_UP, Decimal
from typing import Any, NoReturn

from gmdb.errors import InvalidText, UndefinedResult
from gmdb.format.json_text import (
    Number,
    elements,
    elements_text,
    kind_of,
    members,
    members_text,
    parse,
    quoted,
    require_characters,
    string_of,
)
from gmdb.process.late_patterns import late_pattern

_INDEX = late_pattern(r"\s*[+-]?\d{1,10}", re.ASCII)
_INDEX_LIMIT = 1 << 31
_INDENTATION = "    "

Path = Sequence[str | None]


# ---- parts


def _require_texts(value: str) -> None:
    """Refuse escapes in a text of JSON that no text can hold; JSONB has none."""
    if "\\u" in value:
        require_characters(parse(value))


def member(value: str, name: str) -> str | None:
    """value -> name: of several members of a name the last one."""
    _require_texts(value)
    if kind_of(value) != "object":
        return None
    return next((one for own, one in reversed(members(value)) if own == name), None)


def element(value: str, number: int) -> str | None:
    """value -> number, of JSON."""
    _require_texts(value)
    return _at(elements(value), number) if kind_of(value) == "array" else None


def element_or_scalar(value: str, number: int) -> str | None:
    """value -> number, of JSONB: what is no array and no object is like an array of it alone."""
    kind = kind_of(value)
    if kind == "object":
        return None
    return _at(elements(value) if kind == "array" else [value], number)


def _at(parts: Sequence[str], number: int) -> str | None:
    return parts[number] if -len(parts) <= number < len(parts) else None


def shown(value: str | None) -> str | None:
    """A value as text, as ->> has it: a string without quotes, null as NULL."""
    if value is None:
        return None
    kind = kind_of(value)
    return None if kind == "null" else string_of(value) if kind == "string" else value


def member_text(value: str, name: str) -> str | None:
    return shown(member(value, name))


def element_text(value: str, number: int) -> str | None:
    return shown(element(value, number))


def element_or_scalar_text(value: str, number: int) -> str | None:
    return shown(element_or_scalar(value, number))


def at_path(value: str, path: Path) -> str | None:
    """value #> path."""
    _require_texts(value)
    if None in path:
        return None
    here: str | None = value.strip()
    for step in path:
        assert step is not None
        if here is None:
            return None
        kind = kind_of(here)
        if kind == "object":
            here = member(here, step)
        elif kind == "array" and (number := _index(step)) is not None:
            here = _at(elements(here), number)
        else:
            return None
    return here


def text_at_path(value: str, path: Path) -> str | None:
    """value #>> path."""
    return shown(at_path(value, path))


def extract(value: str, *path: str) -> str | None:
    """jsonb_extract_path(value, …)."""
    return at_path(value, path)


def extract_text(value: str, *path: str) -> str | None:
    return text_at_path(value, path)


def _index(step: str) -> int | None:
    """The number of an element; None if it is written otherwise, or is no INT."""
    match = _INDEX.fullmatch(step)
    number = int(step) if match is not None else _INDEX_LIMIT
    return number if -_INDEX_LIMIT <= number < _INDEX_LIMIT else None


def array_length(value: str) -> int:
    kind = kind_of(value)
    if kind != "array":
        raise UndefinedResult(f"cannot get the length of {_named(kind)}: it is no array of JSON")
    return len(elements(value))


def _named(kind: str) -> str:
    return kind if kind == "null" else f"an {kind}" if kind[0] in "ao" else f"a {kind}"


# ---- what a value contains


def exists(value: str, name: str) -> bool:
    """value ?? name: whether it is a member's name, or a string among an array's elements, or that string."""
    kind = kind_of(value)
    if kind == "object":
        return any(own == name for own, _ in members(value))
    parts = elements(value) if kind == "array" else [value]
    return quoted(name) in parts


def exists_any(value: str, names: Path) -> bool:
    return any(exists(value, name) for name in names if name is not None)


def exists_all(value: str, names: Path) -> bool:
    return all(exists(value, name) for name in names if name is not None)


def contains(value: str, part: str) -> bool:
    """value @> part."""
    whole, inner = parse(value), parse(part)
    if isinstance(whole, list) and not isinstance(inner, list | dict):
        inner = [inner]  # an array may contain what is alone, at the top
    return _contains(whole, inner)


def contained(part: str, value: str) -> bool:
    return contains(value, part)


def _contains(whole: Any, part: Any) -> bool:
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(
            name in whole and _contains(whole[name], one) for name, one in part.items()
        )
    if isinstance(part, list):
        return isinstance(whole, list) and all(any(_contains(own, one) for own in whole) for one in part)
    if part.__class__ is Number:
        return whole.__class__ is Number and Decimal(whole) == Decimal(part)
    return whole.__class__ is part.__class__ and bool(whole == part)


# ---- changes


def concatenate(left: str, right: str) -> str:
    """left || right: the members of two objects, or the elements of two arrays; all else is like an array of itself."""
    if kind_of(left) == kind_of(right) == "object":
        return members_text(dict(members(left)) | dict(members(right)))
    return elements_text([*_as_elements(left), *_as_elements(right)])


def _as_elements(value: str) -> list[str]:
    return elements(value) if kind_of(value) == "array" else [value]


def without_name(value: str, name: str) -> str:
    """value - name."""
    return without_names(value, (name,))


def without_names(value: str, names: Path) -> str:
    """The object without these members, or the array without these strings."""
    kind = kind_of(value)
    if kind == "object":
        return members_text({own: one for own, one in members(value) if own not in names})
    if kind != "array":
        _refuse_scalar("delete from", kind)
    texts = {quoted(name) for name in names if name is not None}
    return elements_text(one for one in elements(value) if one not in texts)


def without_element(value: str, number: int) -> str:
    """value - number."""
    kind = kind_of(value)
    if kind == "object":
        raise UndefinedResult("cannot delete from an object using an integer index")
    if kind != "array":
        _refuse_scalar("delete from", kind)
    parts = elements(value)
    if -len(parts) <= number < len(parts):
        del parts[number]
    return elements_text(parts)


def _refuse_scalar(what: str, kind: str) -> NoReturn:
    raise UndefinedResult(f"cannot {what} {_named(kind)}: it is neither an object nor an array of JSON")


Change = Callable[[str | None], list[str]]  # what takes the place of an element or member; of None, of one to be


def without_path(value: str, path: Path) -> str:
    """value #- path."""
    return _changed_at(value, path, "delete a path in", False, lambda _: [])


def set_at(value: str, path: Path, new: str, create: bool = True) -> str:
    """jsonb_set."""
    return _changed_at(value, path, "set a path in", create, lambda _: [new])


def insert_at(value: str, path: Path, new: str, after: bool = False) -> str:
    """jsonb_insert: before or behind an element, or as a new member."""

    def change(old: str | None) -> list[str]:
        return [new] if old is None else [old, new] if after else [new, old]

    return _changed_at(value, path, "set a path in", True, change)


def _changed_at(value: str, path: Path, what: str, create: bool, change: Change) -> str:
    kind = kind_of(value)
    if kind not in ("object", "array"):
        _refuse_scalar(what, kind)
    is_vain = not path or (not create and len(value) == len("{}"))
    return value if is_vain else _changed(value, path, 0, create, change)


def _changed(value: str, path: Path, level: int, create: bool, change: Change) -> str:
    kind = kind_of(value)
    step, is_last = path[level], level == len(path) - 1
    if step is None:
        raise UndefinedResult(f"path element at position {level + 1} is null")
    if kind not in ("object", "array"):
        return value
    if kind == "array":
        return _changed_array(elements(value), path, level, create, change)
    parts = dict(members(value))
    if step in parts:
        if not is_last:
            parts[step] = _changed(parts[step], path, level + 1, create, change)
            return members_text(parts)
        after = change(parts.pop(step))
        if len(after) > 1:
            raise UndefinedResult("cannot replace an existing key: jsonb_set does")
        if after:
            parts[step] = after[0]
    elif is_last and create:
        parts[step] = change(None)[0]
    return members_text(parts)


def _changed_array(parts: list[str], path: Path, level: int, create: bool, change: Change) -> str:
    step, is_last = path[level], level == len(path) - 1
    assert step is not None
    number = _index(step)
    if number is None:
        raise InvalidText(f"path element at position {level + 1} is not an integer: {step!r}")
    at = number + len(parts) if number < 0 else number
    if 0 <= at < len(parts):
        parts[at : at + 1] = change(parts[at]) if is_last else [_changed(parts[at], path, level + 1, create, change)]
    elif is_last and create:
        parts = [*change(None), *parts] if at < 0 else [*parts, *change(None)]
    return elements_text(parts)


# ---- other forms


def without_nulls(value: str) -> str:
    """jsonb_strip_nulls: without members whose value is null, at all depths."""
    kind = kind_of(value)
    if kind == "array":
        return elements_text(map(without_nulls, elements(value)))
    if kind != "object":
        return value
    return members_text({name: without_nulls(one) for name, one in members(value) if kind_of(one) != "null"})


def without_nulls_as_written(value: str) -> str:
    """json_strip_nulls: members stay in their order, and blanks are left out."""
    _require_texts(value)
    kind = kind_of(value)
    if kind == "array":
        return "[" + ",".join(map(without_nulls_as_written, elements(value))) + "]"
    if kind == "object":
        kept = [(name, one) for name, one in members(value) if kind_of(one) != "null"]
        return "{" + ",".join(f"{quoted(name)}:{without_nulls_as_written(one)}" for name, one in kept) + "}"
    return quoted(string_of(value)) if kind == "string" else value.strip()


def pretty(value: str) -> str:
    """jsonb_pretty: a line for each member and element."""
    return _pretty(value, "\n")


def _pretty(value: str, line: str) -> str:
    kind, inner = kind_of(value), line + _INDENTATION
    if kind == "array":
        parts, ends = [_pretty(one, inner) for one in elements(value)], "[]"
    elif kind == "object":
        parts, ends = [f"{quoted(name)}: {_pretty(one, inner)}" for name, one in members(value)], "{}"
    else:
        return value
    body = ",".join(inner + part for part in parts)
    return f"{ends[0]}{body}{line}{ends[1]}"


# ---- rows


def each(value: str) -> Iterator[tuple[str, str]]:
    """jsonb_each: names and values."""
    _require_texts(value)
    return iter(members(_of_kind("object", value)))


def each_text(value: str) -> Iterator[tuple[str, str | None]]:
    return ((name, shown(one)) for name, one in each(value))


def names(value: str) -> Iterator[tuple[str]]:
    """jsonb_object_keys."""
    return ((name,) for name, _ in each(value))


def array_elements(value: str) -> Iterator[tuple[str]]:
    _require_texts(value)
    return ((one,) for one in elements(_of_kind("array", value)))


def array_elements_text(value: str) -> Iterator[tuple[str | None]]:
    return ((shown(one),) for (one,) in array_elements(value))


def _of_kind(kind: str, value: str) -> str:
    own = kind_of(value)
    if own != kind:
        raise UndefinedResult(f"{_named(kind)} of JSON is expected, not {_named(own)}")
    return value


# ---- as other values


def to_number(value: str, type_name: str) -> Decimal:
    """The number that a value is."""
    if kind_of(value) != "number":
        _no_cast(value, type_name)
    return Decimal(value)


def to_boolean(value: str) -> bool:
    if kind_of(value) != "boolean":
        _no_cast(value, "boolean")
    return value == "true"


def _no_cast(value: str, type_name: str) -> NoReturn:
    raise UndefinedResult(f"cannot cast jsonb {kind_of(value)} to type {type_name}")


def to_integer(value: str, low: int, high: int, type_name: str) -> int | None:
    """The number rounded half away from zero; None if it is out of range."""
    number = to_number(value, type_name)
    if number.adjusted() > len(str(high)):
        return None
    whole = int(number.to_integral_value(ROUND_HALF_UP))
    return whole if low <= whole <= high else None


# ---- building


def object_of(names_: Sequence[str], values: Sequence[str]) -> str:
    """json_build_object."""
    return "{" + ", ".join(f"{quoted(name)} : {one}" for name, one in zip(names_, values, strict=True)) + "}"


def aggregated_object(names_: Sequence[str], values: Sequence[str]) -> str:
    """json_object_agg."""
    return "{ " + ", ".join(f"{quoted(name)} : {one}" for name, one in zip(names_, values, strict=True)) + " }"


def row_text(names_: Sequence[str], values: Sequence[str]) -> str:
    """row_to_json."""
    return "{" + ",".join(f"{quoted(name)}:{one}" for name, one in zip(names_, values, strict=True)) + "}"
