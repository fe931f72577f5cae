"""Documents: small JSON files beside the pages.  Anybody may have written them, so nothing in them is taken on trust.

What one says becomes a dataclass, whose fields have the types that they are declared with, and nothing that arithmetic,
paths or Arrow could not have.  Everything else is a ValueError, for whoever reads the file to name the file in.
Not here: reading and writing the files.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields
from typing import Any, TypeVar

NUMBER_MAX = (1 << 63) - 1
SECONDS_MAX = 1e11  # as times since 1970, some three thousand years

Made = TypeVar("Made")


def parse(raw: str | bytes) -> Any:
    """What a document says; ValueError if it is no JSON, or nested too deeply."""
    try:
        return json.loads(raw)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def is_number(value: Any) -> bool:
    """Whether it is one that counts something: neither below 0, nor too large for 8 bytes, nor a truth value."""
    return type(value) is int and 0 <= value <= NUMBER_MAX


def is_text(value: Any) -> bool:
    """Whether it is a text that can be written; JSON has others."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_seconds(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value <= SECONDS_MAX


_FITS: dict[str, Callable[[Any], bool]] = {
    "int": is_number,
    "float": _is_seconds,
    "str": is_text,
    "bool": lambda value: isinstance(value, bool),
    "list[Any]": lambda value: isinstance(value, list),
    "dict[str, int]": lambda value: isinstance(value, dict) and all(map(is_number, value.values())),
    "dict[int, int]": lambda value: isinstance(value, dict) and all(map(is_number, value.values())),
}


def make(kind: type[Made], plain: Any, **made: Any) -> Made:
    """A dataclass out of a document's mapping; ``made`` are values that the caller has made of what it says."""
    if not isinstance(plain, dict):
        raise ValueError(f"it says {str(plain)[:40]!r} instead of what {kind.__name__} is")
    for field in fields(kind):  # type: ignore[arg-type]
        fits = _FITS.get(str(field.type))
        value = made.get(field.name, plain.get(field.name))
        if fits is not None and (field.name in plain or field.name in made) and not fits(value):
            raise ValueError(f"{field.name} is {str(value)[:40]!r}")
    try:
        return kind(**{**plain, **made})
    except TypeError as error:
        raise ValueError(str(error)) from None
