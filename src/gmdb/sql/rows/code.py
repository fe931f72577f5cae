"""Writing Python functions: lines with their depth, names for the objects that they use, functions within functions.

Invariants
 1. A term's code is an atom: a variable that is set already, or a constant.  It may be used more than once.
 2. A function within another one stands at that one's beginning; what it reads of the outer one's variables is what
    they are when it is called.
Not here: what the lines mean.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple, TypeVar

from gmdb.errors import InterfaceError, UnsupportedExpression
from gmdb.format.columns import ColumnType
from gmdb.format.json_text import key_of
from gmdb.sql.operations.operators import array_key_name
from gmdb.sql.operations.registry import NAMES
from gmdb.sql.tree import Call, Column, Expression, ParameterKey, columns_of
from gmdb.sql.types import FLOATS, TEXT

T = TypeVar("T")
Line = tuple[int, str]  # the depth, counted from the function's own, and the text


class Term(NamedTuple):
    """A value, as the function has it."""

    code: str
    nullable: bool = True


NULL = Term("None")


class _Function:
    """A function that is being written."""

    def __init__(self, signature: str, ending: str) -> None:
        self.signature = signature
        self.ending = ending  # the statement that ends it early
        self.head: list[Line] = []  # functions within it
        self.body: list[Line] = []
        self.depth = 1
        self.loops = 0  # that are open where the next line goes

    def text(self) -> list[Line]:
        return [(0, f"def {self.signature}:"), *self.head, *(self.body or [(1, "pass")])]


class Code:
    """Functions that are being written, the innermost of them last."""

    def __init__(self) -> None:
        self.names: dict[str, Any] = dict(NAMES)
        self.prologue: list[Line] = []  # what the outermost function begins with
        self._functions: list[_Function] = []
        self._bound: dict[int, str] = {}
        self._parameters: dict[ParameterKey, str] = {}
        self._count = 0

    # ---- names

    def fresh(self, letter: str = "v") -> str:
        self._count += 1
        return f"{letter}{self._count}"

    def bind(self, value: Any, letter: str = "k") -> str:
        """A name for an object that the function uses."""
        name = self._bound.get(id(value))
        if name is None:
            name = self._bound[id(value)] = self.fresh(letter)
            self.names[name] = value
        return name

    def literal(self, value: Any) -> str:
        """A constant: small ones are written out."""
        if value is None or value is True or value is False:
            return str(value)
        if type(value) is int and abs(value) < 1 << 63:
            return f"({value})"
        return self.bind(value)

    def parameter(self, key: ParameterKey) -> str:
        """The variable that holds a parameter's value as it was passed."""
        name = self._parameters.get(key)
        if name is None:
            name = self._parameters[key] = self.fresh("p")
        return name

    # ---- lines

    @property
    def function(self) -> _Function:
        return self._functions[-1]

    def emit(self, line: str) -> None:
        function = self.function
        function.body.append((function.depth, line))

    def emit_outermost(self, line: str) -> None:
        """Emit a line at the beginning of the outermost function, behind the functions that stand there."""
        self._functions[0].head.append((1, line))

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """What is emitted within stands under ``head``, without its colon."""
        function = self.function
        is_loop = head.startswith(("for ", "while "))
        self.emit(f"{head}:")
        function.depth += 1
        function.loops += is_loop
        size = len(function.body)
        yield
        if len(function.body) == size:
            self.emit("pass")
        function.loops -= is_loop
        function.depth -= 1

    def capture(self, write: Callable[[], T]) -> tuple[T, list[Line]]:
        """What ``write`` returns, and the lines that it emits, which are not placed yet."""
        function = self.function
        body, function.body = function.body, []
        try:
            return write(), function.body
        finally:
            function.body = body

    def place(self, lines: Sequence[Line], deeper: int = 0) -> None:
        """Emit lines that were captured at the depth that is reached less ``deeper``."""
        self.function.body += [(depth + deeper, text) for depth, text in lines]

    @contextmanager
    def define(self, signature: str, ending: str = "return", outermost: bool = False) -> Iterator[None]:
        """A function within the one at hand, or within the outermost; what is emitted within is its body."""
        inner = _Function(signature, ending)
        self._functions.append(inner)
        yield
        self._functions.pop()
        if self._functions:
            outer = self._functions[0 if outermost else -1]
            outer.head += [(depth + 1, text) for depth, text in inner.text()]
        else:
            inner.head[:0] = self._parameter_lines() + self.prologue
            self._text = inner.text()

    def _parameter_lines(self) -> list[Line]:
        if not self._parameters:
            return []
        lines: list[Line] = [(1, "try:")]
        lines += [(2, f"{name} = parameters[{key!r}]") for key, name in self._parameters.items()]
        lines.append((1, "except (IndexError, KeyError, TypeError):"))
        self.names["missing_parameter"] = missing_parameter
        lines.append((2, f"raise missing_parameter(parameters, {self.bind(tuple(self._parameters))}) from None"))
        return lines

    # ---- the whole

    @property
    def source(self) -> str:
        return "".join(f"{'    ' * depth}{text}\n" for depth, text in self._text)

    def compiled(self, name: str) -> Callable[..., Any]:
        """The outermost function."""
        try:
            exec(compile(self.source, "<statement>", "exec"), self.names)
        except (RecursionError, MemoryError, SyntaxError) as error:
            raise too_deep() from error
        function: Callable[..., Any] = self.names[name]
        return function


def too_deep() -> UnsupportedExpression:
    return UnsupportedExpression("the expression is nested too deeply")


def missing_parameter(values: Any, keys: Sequence[ParameterKey]) -> InterfaceError:
    """The error for parameters that lack some that a statement names."""
    names = ", ".join(f":{key}" if isinstance(key, str) else f"? number {key + 1}" for key in keys)
    kind = "a dict" if any(isinstance(key, str) for key in keys) else "a tuple"
    return InterfaceError(f"the statement needs the parameters {names}, but got {values!r}; pass {kind} of them")


def moment(now: datetime | None) -> datetime:
    if now is None:
        raise InterfaceError("the expression asks for the current time; evaluate it with the statement's instant")
    return now


# ---- Values as keys: for hashing, so that equal values have equal keys, and for sorting.
#
# Invariants
#  1. NaN is equal to itself and sorts above all numbers; blanks at the end of a CHAR count neither way; JSONB has
#     keys of its own.

NAN = float("nan")  # this object stands for all: tuples and dicts take an object to be equal to itself


def hash_key(code: Code, term: Term, type_: ColumnType, is_stripped: bool | None = None) -> str:
    """Code that is equal for equal values; NULL stays None."""
    key = term.code
    if type_.name in FLOATS:
        code.names["NAN"] = NAN
        key = f"({key} if {key} == {key} else NAN)"  # of None, too
    elif type_.is_array:
        key = unless_null(term, f"{array_key_name(type_.element)}({key})")
    elif type_.name == "INTERVAL":
        key = unless_null(term, f"{key}.length()")
    elif type_.name == "CHAR" if is_stripped is None else is_stripped:
        key = unless_null(term, f"{key}.rstrip(' ')")
    return key


class Side(NamedTuple):
    """One side of an equality, as ``=`` takes it."""

    value: Expression
    type: ColumnType
    is_stripped: bool

    def key(self, code: Code, term: Term) -> str:
        """What is equal for equal sides; ``term``: the value."""
        return hash_key(code, term, self.type, self.is_stripped)


class Equality(NamedTuple):
    """A condition ``inner = outer``, of which the inner side refers to columns of a relation, and the outer one not."""

    inner: Side
    outer: Side


def equality_of(condition: Expression, columns: set[Column]) -> Equality | None:
    """The condition, if it is such an equality; ``columns``: those of the relation."""
    if not isinstance(condition, Call) or condition.operation.name != "=":
        return None
    takes = condition.operation.takes
    both = "CHAR" in (one.name for one in takes) and TEXT not in takes
    sides = [
        Side(value, type_, both or type_.name == "CHAR")
        for value, type_ in zip(condition.arguments, takes, strict=True)
    ]
    own = [columns_of(side.value) for side in sides]
    for inner, outer in ((0, 1), (1, 0)):
        if own[inner] and own[inner] <= columns and not own[outer] & columns:
            return Equality(sides[inner], sides[outer])
    return None


def sort_key(code: Code, term: Term, type_: ColumnType, nulls_last: bool) -> str:
    """Code that sorts as the value does; ``nulls_last``: NULL above all values."""
    key = term.code
    if type_.name in FLOATS:
        key = f"({key} != {key}, {key})"
    elif type_.is_array:
        key = f"{array_key_name(type_.element)}({key})"
    elif type_.name == "INTERVAL":
        key = f"{key}.length()"
    elif type_.name == "CHAR":
        key = f"{key}.rstrip(' ')"
    elif type_.name == "JSONB":
        code.names["json_key"] = key_of
        key = f"json_key({key})"
    if not term.nullable:
        return key
    return f"(({not nulls_last}, {key}) if {term.code} is not None else ({nulls_last},))"


def new_list(code: str) -> str:
    """Code for a new list of an array's elements."""
    return f"(None if {code} is None else [*{code}])" if code != "None" else code


def unless_null(term: Term, code: str) -> str:
    return f"(None if {term.code} is None else {code})" if term.nullable else code


def sort_rows(rows: list[Any], first: int, descending: Sequence[bool]) -> None:
    """Sort rows by their fields from ``first`` on, each of which may descend."""
    if len(set(descending)) == 1:
        count = len(descending)
        key: Any = itemgetter(first) if count == 1 else itemgetter(slice(first, first + count))
        rows.sort(key=key, reverse=descending[0])
        return
    for n in range(len(descending) - 1, -1, -1):
        rows.sort(key=itemgetter(first + n), reverse=descending[n])


def sorter(first: int, descending: Sequence[bool]) -> Any:
    return partial(sort_rows, first=first, descending=tuple(descending))
