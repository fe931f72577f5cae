"""Operations that DuckDB calls in Python: what their values are there and here.

DuckDB hands over an interval without its months, and takes a NaN for NULL.  So intervals pass as lists of months, days
and microseconds, and DOUBLEs come back as text; a macro of the operation's own name makes values of them again.

Invariants
 1. An operation has one name in this process, whichever instance of DuckDB it is made known to.
 2. What an operation raises reaches ``failures`` by the name of its class.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from gmdb.format.columns import ColumnType
from gmdb.sql.operations.registry import Operation, function_of
from gmdb.sql.times import Interval

if TYPE_CHECKING:
    import duckdb

_NAMES = {"INT": "INTEGER", "CHAR": "VARCHAR", "VARCHAR": "VARCHAR", "CLOB": "VARCHAR"}
_BYTES = ("BINARY", "VARBINARY", "BLOB")
_PARTS = "BIGINT[]"  # of an interval: months, days and microseconds
_names: dict[Operation, str] = {}
_guard = threading.Lock()


def duck_type(type_: ColumnType) -> str:
    """What DuckDB calls a type."""
    if type_.name == "DECIMAL":
        return f"DECIMAL({type_.length},{type_.scale})"
    return "BLOB" if type_.name in _BYTES else _NAMES.get(type_.name, type_.name)


def function_name(operation: Operation) -> str:
    """What DuckDB calls an operation that Python does."""
    with _guard:
        return _names.setdefault(operation, f"gm_python_{len(_names)}")


class Functions:
    """The operations that an instance of DuckDB knows."""

    def __init__(self, instance: duckdb.DuckDBPyConnection) -> None:
        self._instance = instance
        self._known: set[Operation] = set()

    def require(self, operations: Iterable[Operation]) -> None:
        """Make operations known; by one thread at a time."""
        for operation in operations:
            if operation not in self._known:
                self._create(operation)
                self._known.add(operation)

    def _create(self, operation: Operation) -> None:
        name = function_name(operation)
        names = [f"a{n}" for n in range(len(operation.takes))]
        arguments = ", ".join(
            f"gm_interval_parts({one})" if type_.name == "INTERVAL" else one
            for one, type_ in zip(names, operation.takes, strict=True)
        )
        call = f"{name}_in_python({arguments})"
        value = {"DOUBLE": f"CAST({call} AS DOUBLE)", "INTERVAL": f"gm_interval({call})"}.get(
            operation.gives.name, call
        )
        self._instance.create_function(
            f"{name}_in_python",
            as_function(operation),
            [_passed(type_) for type_ in operation.takes],
            "VARCHAR" if operation.gives.name == "DOUBLE" else _passed(operation.gives),
            null_handling=_special(),
            side_effects=operation.volatile,
        )
        self._instance.execute(f"CREATE MACRO {name}({', '.join(names)}) AS {value}")


def _special() -> Any:
    """What lets a function have NULLs as arguments."""
    from duckdb.func import SPECIAL

    return SPECIAL


def _passed(type_: ColumnType) -> str:
    return _PARTS if type_.name == "INTERVAL" else duck_type(type_)


def as_function(operation: Operation) -> Callable[..., Any]:
    """An operation as DuckDB calls it: with as many parameters as it takes, and NULLs among them."""
    names = [f"a{n}" for n in range(len(operation.takes))]
    values = [f"interval({one})" if type_.name == "INTERVAL" else one for one, type_ in _pairs(names, operation.takes)]
    value = f"function({', '.join(values)})"
    if operation.gives.name in ("DOUBLE", "INTERVAL"):
        value = f"passed({value})"
    nothing = " or ".join(f"{one} is None" for one in names)
    text = f"lambda {', '.join(names)}: " + (f"None if {nothing} else {value}" if operation.strict and names else value)
    passed = _double_text if operation.gives.name == "DOUBLE" else _interval_parts
    function: Callable[..., Any] = eval(
        text, {"function": function_of(operation), "interval": _interval, "passed": passed}
    )
    return function


def _pairs(names: Sequence[str], types: Sequence[ColumnType]) -> Iterable[tuple[str, ColumnType]]:
    return zip(names, types, strict=True)


def _interval(parts: Sequence[int] | None) -> Interval | None:
    return None if parts is None else Interval(*parts)


def _interval_parts(value: Interval | None) -> list[int] | None:
    return None if value is None else [value.months, value.days, value.microseconds]


def _double_text(value: float | None) -> str | None:
    return None if value is None else repr(value)


def interval_literal(value: Interval) -> str:
    return f"gm_interval([{value.months}, {value.days}, {value.microseconds}]::{_PARTS})"


def parameter_value(value: Any) -> Any:
    """A value as a parameter of DuckDB's; one that it could misread as text, to be cast."""
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, Interval):
        return _interval_parts(value)
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    if isinstance(value, int | str | bytes | None):
        return value
    return format(value, "f") if hasattr(value, "as_tuple") else value


def parameter_sql(name: str, type_: ColumnType) -> str:
    if type_.name == "INTERVAL":
        return f"gm_interval(CAST(${name} AS {_PARTS}))"
    return f"CAST(${name} AS {duck_type(type_)})"
