"""What a definition has beyond the columns of its row in a system table: its *options*, as a JSON object.

A field of a definition that is declared with ``option`` is kept there whenever it is not as usual, so that a new
property of columns, indexes, constraints or tables needs no new column in the catalog.
"""

from __future__ import annotations

import json
from typing import Any, TypeVar

from gmdb.errors import SchemaError
from gmdb.process.late_dataclasses import field, fields, replace

OPTIONS_MAX = 4000  # bytes of a definition's options
_KEY = "gmdb option"
T = TypeVar("T")


def option(usual: Any) -> Any:
    """A field of a definition that is an option: true or false, a number, a text or None, or a tuple of these."""
    return field(default=usual, metadata={_KEY: True})


def options_of(definition: Any) -> dict[str, Any]:
    """The options that are not as usual."""
    given = {
        one.name: (getattr(definition, one.name), one.default) for one in fields(definition) if _KEY in one.metadata
    }
    return {name: value for name, (value, usual) in given.items() if value != usual}


def options_text(definition: Any) -> str | None:
    """``options_of`` as the catalog keeps it; None if there are none."""
    options = options_of(definition)
    if not options:
        return None
    text = json.dumps(options, separators=(",", ":"), ensure_ascii=False)
    if len(text.encode()) > OPTIONS_MAX:
        size = len(text.encode())
        raise SchemaError(f"{definition.name}: the catalog keeps {OPTIONS_MAX} bytes of options, and these have {size}")
    return text


def with_options(definition: T, text: str | None) -> T:
    """A definition with the options that the catalog keeps of it."""
    if text is None:
        return definition
    try:
        options = json.loads(text)
    except (ValueError, RecursionError):
        raise SchemaError(f"options that are not JSON: {text[:100]}") from None
    return with_option_values(definition, options)


def with_option_values(definition: T, options: Any) -> T:
    """A definition with ``options_of`` another one, as JSON gives them; SchemaError if it has no such options."""
    known = {one.name for one in fields(definition) if _KEY in one.metadata}  # type: ignore[arg-type]
    if not isinstance(options, dict) or not options.keys() <= known:
        raise SchemaError(f"options that a {type(definition).__name__} does not have: {str(options)[:100]}")
    return replace(definition, **{name: _frozen(value) for name, value in options.items()})  # type: ignore[type-var]


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value
