"""What an operation is: a function, operator or cast of given types, and how each executor does it.

An operation is declared once.  ``python`` is its meaning: the rows executor calls it, constants are computed by it, and
DuckDB calls it too, as a function of its own, unless ``duck`` says in DuckDB's SQL what gives the same value for every
argument, NULL and errors included.

Invariants
 1. ``name``, ``takes`` and ``gives`` say which function ``python`` is: it holds no constants of its own.
 2. A DECIMAL that ``python`` gives has the digits of ``gives`` behind the point, and at most 38 in all.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from gmdb.format.columns import ColumnType
from gmdb.process.late_dataclasses import dataclass, field
from gmdb.sql.types import CHAR, NUMERIC, TEXT, as_decimal, beside, turns_into

NAMES: dict[str, Any] = {}  # what operations that are Python text refer to
TEXT_MAX = 100  # of an argument's SQL that stands in a template several times


@dataclass(frozen=True, slots=True)
class Operation:
    """One overload, for arguments of just these types.

    ``python``: a function of the arguments, or Python with ``{0}`` for the first one (each may stand in it several
    times, and ``{t}`` is a variable of its own) and with the names of ``NAMES``.  ``duck``: DuckDB's SQL with ``{0}``;
    ``{python}`` is the name of the function there that ``python`` is.  ``strict``: NULL if an argument is, and then not
    called; otherwise it gets None.  ``fails``: some arguments raise an error, so that it is evaluated only where the
    query says so.  ``volatile``: equal calls give different values.
    """

    name: str
    takes: tuple[ColumnType, ...]
    gives: ColumnType
    python: Callable[..., Any] | str = field(compare=False)
    duck: str | None = field(compare=False, default=None)
    strict: bool = field(compare=False, default=True)
    fails: bool = field(compare=False, default=True)
    volatile: bool = field(compare=False, default=False)
    zoned: bool = False  # the last argument is the session's time zone, which whoever binds the call adds
    by_rows: bool = False  # it belongs to a connection, and is done by rows alone


@dataclass(frozen=True, slots=True)
class RowFunction:
    """A function in FROM, for arguments of just these types: ``python`` gives rows as tuples, none if one is NULL.

    ``names``: of its columns; without one, the only column is called as the function is, or by its alias.
    """

    name: str
    takes: tuple[ColumnType, ...]
    gives: tuple[ColumnType, ...]
    python: Callable[..., Iterable[tuple[Any, ...]]] = field(compare=False)
    names: tuple[str, ...] = field(compare=False, default=())


@dataclass(frozen=True, slots=True)
class Fold:
    """An aggregate in Python: ``step(state, *arguments)`` gives the next state, ``finish(state)`` the value.

    Rows with a NULL argument are left out before unless ``takes_nulls``.
    """

    start: Callable[[], Any]
    step: Callable[..., Any]
    finish: Callable[[Any], Any] = lambda state: state
    takes_nulls: bool = False


@dataclass(frozen=True, slots=True)
class Aggregation:
    """An aggregate or a window function, for arguments of just these types.

    ``duck``: DuckDB's SQL with ``{call}`` where a call is complete but for DISTINCT, FILTER, ORDER BY and OVER, written
    as ``{call:sum({0})}``; several calls may stand in it.  ``fold`` None: DuckDB alone does it.
    """

    name: str
    takes: tuple[ColumnType, ...]
    gives: ColumnType
    duck: str = field(compare=False)
    fold: Fold | None = field(compare=False, default=None)
    ordered: bool = field(compare=False, default=False)  # WITHIN GROUP (ORDER BY …) gives its argument


def named(*functions: Callable[..., Any]) -> None:
    """Make functions known to operations that are Python text."""
    NAMES.update({one.__name__: one for one in functions})


def function_of(operation: Operation) -> Callable[..., Any]:
    """The operation as a function of its arguments.  It propagates no NULL: see ``strict``."""
    if not isinstance(operation.python, str):
        return operation.python
    names = [f"a{n}" for n in range(len(operation.takes))]
    text = f"lambda {', '.join(names)}: {operation.python.format(*names, t='t')}"
    function: Callable[..., Any] = eval(text, NAMES)
    return function


def apply(operation: Operation, *values: Any) -> Any:
    """The operation's value for these arguments, NULL included."""
    return None if operation.strict and None in values else function_of(operation)(*values)


_ARGUMENT = re.compile(r"\{(\d+|python)\}")


def written(template: str, arguments: Sequence[str], function: str = "", is_apart: bool = False) -> str:
    """A template of DuckDB's SQL with its arguments; long ones that stand there several times are evaluated once, and
    with ``is_apart`` all are before."""
    uses = [int(one) for one in _ARGUMENT.findall(template) if one != "python"]
    again = is_apart or any(len(argument) > TEXT_MAX and uses.count(n) > 1 for n, argument in enumerate(arguments))
    values = [f"q.a{n}" for n in range(len(arguments))] if again else arguments
    sql = _ARGUMENT.sub(lambda match: function if match[1] == "python" else values[int(match[1])], template)
    if not again:
        return sql
    pairs = ", ".join(f"'a{n}': {arguments[n]}" for n in sorted(set(uses)))
    return f"list_extract(list_transform([{{{pairs}}}], lambda q: {sql}), 1)"


# ---- Overloads: one way to call a function, and what is built for just the types of a call.

Types = Sequence[ColumnType | None]
Constants = Mapping[int, Any]
Build = Callable[[str, tuple[ColumnType, ...], Constants], Operation | None]


@dataclass(frozen=True)
class Overload:
    """``takes``: NUMERIC stands for every DECIMAL and CHAR for every CHAR.  ``build`` is given the types instead."""

    takes: tuple[ColumnType, ...]
    build: Build

    def matches(self, types: Types) -> int | None:
        """How many arguments are exactly of the types; None if it cannot be called with them."""
        if len(types) != len(self.takes) or not all(map(turns_into, types, self.takes)):
            return None
        return sum(g is not None and g.name == t.name for g, t in zip(types, self.takes, strict=True))

    def operation(self, name: str, types: Types, constants: Constants) -> Operation | None:
        taken = []
        for at, (type_, parameter) in enumerate(zip(types, self.takes, strict=True)):
            if parameter == NUMERIC:
                text = constants.get(at)
                taken.append(
                    beside(NUMERIC, text if isinstance(text, str) else None) if type_ is None else as_decimal(type_)
                )
            else:
                taken.append(type_ if parameter == CHAR and type_ is not None else parameter)
        return self.build(name, tuple(taken), constants)


def plain(
    takes: Sequence[ColumnType],
    gives: ColumnType,
    python: Callable[..., Any] | str,
    duck: str | None = None,
    fails: bool = False,
    volatile: bool = False,
    zoned: bool = False,
) -> Overload:
    """An overload that is the same for all arguments.  ``fails``, ``zoned``: see Operation."""

    def build(name: str, taken: tuple[ColumnType, ...], _: Constants) -> Operation:
        more = (*taken, TEXT) if zoned else taken
        return Operation(name, more, gives, python, duck, fails=fails, volatile=volatile, zoned=zoned)

    return Overload(tuple(takes), build)
