"""DuckDB's errors as gmdb's: by what went wrong, without DuckDB's own talk around it."""

from __future__ import annotations

import re

from gmdb import errors
from gmdb.errors import (
    DatabaseError,
    DivisionByZero,
    EngineFault,
    InternalError,
    InvalidText,
    OperationalError,
    StatementInterrupted,
    SubqueryTooManyRows,
    UndefinedResult,
    ValueOutOfRange,
)
from gmdb.sql.operations.macros import FAILURE

_KIND = re.compile(r"(?:.*?: )?(\w[\w -]*?) Error: (.*)", re.DOTALL)
_OWN = re.compile(rf"convert string ['\"]{FAILURE}(\w+): (.*)['\"] to INT32", re.DOTALL)  # of gm_fail
_PYTHON = re.compile(r"executing the UDF: (?:[\w.]+\.)?(\w+): (.*)", re.DOTALL)
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
_FAULTS = ("INTERNAL", "FATAL")  # of DuckDB's own; others are mistakes in what it was asked
_NO_FRAME = UndefinedResult, "the offset of a frame must be neither negative nor NULL"
_BY_TEXT: tuple[tuple[str, tuple[type[DatabaseError], str]], ...] = (
    ("Division by zero in expression", (DivisionByZero, "division by zero")),
    (
        "More than one row returned by a subquery",
        (SubqueryTooManyRows, "more than one row returned by a subquery used as an expression"),
    ),
    ("PERCENTILEs can only take", (ValueOutOfRange, "a percentile is a number between 0 and 1")),
    ("LIMIT/OFFSET cannot be negative", (ValueOutOfRange, "LIMIT and OFFSET cannot be negative")),
    ("PRECEDING expression cannot be", _NO_FRAME),
    ("FOLLOWING expression cannot be", _NO_FRAME),
)


def translated(error: BaseException) -> DatabaseError:
    """gmdb's error for one that DuckDB raised, directly or through an Arrow stream."""
    text = str(error)
    if type(error).__name__ == "InterruptException" or "INTERRUPT Error" in text:
        return StatementInterrupted("the statement was interrupted")
    own = _PYTHON.search(text) or _OWN.search(text)
    if own is not None:
        class_ = getattr(errors, own[1], None)
        if isinstance(class_, type) and issubclass(class_, DatabaseError):
            return class_(own[2])
        return InternalError(f"a function failed: {own[1]}: {own[2]}")
    for part, (class_, message) in _BY_TEXT:
        if part in text:
            return class_(message)
    match = _KIND.match(text)
    kind, message = (match[1], match[2]) if match is not None else ("", text)
    message = _plain(message)
    if kind == "Conversion" and _OUT_OF_RANGE.search(message):
        return ValueOutOfRange(message)
    if kind in _BY_KIND:
        return _BY_KIND[kind](message)
    fault = EngineFault if kind in _FAULTS else InternalError
    return fault(f"DuckDB failed at the translated statement: {text.strip().splitlines()[0]}")


def _plain(message: str) -> str:
    """The first line, without DuckDB's advice on its own settings and its names for our columns."""
    line = message.strip().split("\n")[0]
    return re.split(r" You might want| Use TRY_CAST|\. Consider| when casting from source column", line)[0].rstrip(
        "!. "
    )
