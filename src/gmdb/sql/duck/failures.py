"""DuckDB's errors as gmdb's: by what went wrong, without DuckDB's own talk around it."""

from __future__ import annotations

import re

from gmdb.errors import (
    DatabaseError,
    DivisionByZero,
    InternalError,
    InvalidText,
    OperationalError,
    StatementInterrupted,
    SubqueryTooManyRows,
    UndefinedResult,
    UnsupportedExpression,
    ValueOutOfRange,
    ValueTooLong,
)
from gmdb.sql.duck.macros import FAILURE

_KIND = re.compile(r"(?:.*?: )?(\w[\w -]*?) Error: (.*)", re.DOTALL)
_OWN = re.compile(rf"convert string ['\"]{FAILURE}(.*)['\"] to INT32", re.DOTALL)
_OUT_OF_RANGE = re.compile(
    "out of range|overflow|can't be cast because|too large|to DECIMAL|negative|cast decimal value", re.IGNORECASE
)
_BY_KIND: dict[str, type[DatabaseError]] = {
    "Conversion": InvalidText,
    "Out of Range": ValueOutOfRange,
    "Invalid Input": ValueOutOfRange,
    "Out of Memory": OperationalError,
    "IO": OperationalError,
}
_OWN_KINDS: tuple[tuple[str, type[DatabaseError]], ...] = (
    ("invalid text: ", InvalidText),
    ("undefined: ", UndefinedResult),
    ("out of range: ", ValueOutOfRange),
    ("too long: ", ValueTooLong),
    ("", DivisionByZero),
)


def translated(error: BaseException) -> DatabaseError:
    """gmdb's error for one that DuckDB raised, directly or through an Arrow stream."""
    text = str(error)
    if type(error).__name__ == "InterruptException" or "INTERRUPT Error" in text:
        return StatementInterrupted("the statement was interrupted")
    own = _OWN.search(text)
    if own is not None:
        mark, type_ = next((mark, type_) for mark, type_ in _OWN_KINDS if own[1].startswith(mark))
        return type_(own[1].removeprefix(mark))
    if "More than one row returned by a subquery" in text:
        return SubqueryTooManyRows("a query that stands for a value gave more than one row")
    match = _KIND.match(text)
    kind, message = (match[1], match[2]) if match is not None else ("", text)
    message = _plain(message)
    if kind == "Conversion" and _OUT_OF_RANGE.search(message):
        return ValueOutOfRange(message)
    if "must appear in the GROUP BY clause" in message:
        return UnsupportedExpression("an aggregate over columns of an outer query is not supported")
    if "pattern must not end with escape character" in message:
        return UndefinedResult(message)
    if "LIMIT/OFFSET cannot be negative" in message:
        return ValueOutOfRange("LIMIT and OFFSET cannot be negative")
    if kind in _BY_KIND:
        return _BY_KIND[kind](message)
    return InternalError(f"DuckDB did not take the translated statement: {text.strip()}")


def _plain(message: str) -> str:
    """The first line, without DuckDB's advice on its own settings and its names for our columns."""
    line = message.strip().split("\n")[0]
    return re.split(r" You might want| Use TRY_CAST|\. Consider| when casting from source column", line)[0].rstrip(
        "!. "
    )
