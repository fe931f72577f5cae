"""Writing the Python function that an expression becomes: terms, blocks of lines, and folding of constants.

Invariants
 1. A term's code is an atom: a variable that is set already, or a constant.  It may be used more than once.
 2. What PostgreSQL evaluates on a condition only (branches of CASE, the right side of AND) is captured as a block of
    its own, and left out if the condition is a constant that excludes it.
 3. A constant that cannot be computed is an error of the whole expression, as in PostgreSQL, unless it is left out.
 4. What only a superfluous part needs is not computed: in NULL + x, that is x.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from decimal import Decimal
from functools import partial
from typing import Any, NoReturn

from sqlglot import exp

from gmdb.access.lob_source import is_file
from gmdb.errors import DataError, IllTyped, InterfaceError, UnsupportedExpression
from gmdb.format.columns import ColumnType
from gmdb.sql import casts, numbers, times
from gmdb.sql.dialect import NUMBER, place
from gmdb.sql.scope import Scope
from gmdb.sql.types import TEXT, TEXTS, pg_name, turns_into

Block = list[Any]  # of lines and of blocks, which are indented
Parameter = int | str  # the number of a ``?`` from 0, or the name of a ``:name``


@dataclass(frozen=True)
class Term:
    """A part of the expression, as the generated function has it.

    ``unknown`` says why a term has no type yet: it is a ``null``, a string ``literal`` or a ``parameter``.
    """

    code: str
    type: ColumnType | None
    node: exp.Expr
    nullable: bool = True
    constant: bool = False
    value: Any = None
    unknown: str = ""


@dataclass
class Captured:
    """A term with the lines that compute it, which are not placed yet."""

    term: Term
    block: Block = field(default_factory=list)
    failures: list[DataError] = field(default_factory=list)


@dataclass(frozen=True)
class EvaluationContext:
    """What an expression may ask for beside row and parameters; one for a statement."""

    now: datetime = field(default_factory=datetime.now)


def missing_parameter(given: Any, wanted: Sequence[Parameter]) -> InterfaceError:
    """The error for parameters that lack some that a statement names."""
    names = ", ".join(f":{key}" if isinstance(key, str) else f"? number {key + 1}" for key in wanted)
    kind = "a dict" if any(isinstance(key, str) for key in wanted) else "a tuple"
    return InterfaceError(f"the statement needs the parameters {names}, but was given {given!r}; pass {kind} of them")


def moment(context: EvaluationContext | None) -> datetime:
    if context is None:
        raise InterfaceError("the expression asks for the current time; evaluate it with an EvaluationContext")
    return context.now


_QUICK_CHECKS = {
    "INT": "type({0}) is int and -2147483648 <= {0} <= 2147483647",
    "BIGINT": "type({0}) is int and -9223372036854775808 <= {0} <= 9223372036854775807",
    "DECIMAL": "type({0}) is Decimal and {0}.is_finite()",
    "DOUBLE": "type({0}) is float",
    "BOOLEAN": "type({0}) is bool",
    "DATE": "type({0}) is date",
    "TIMESTAMP": "type({0}) is datetime and {0}.tzinfo is None",
    "CHAR": "type({0}) is str",
    "VARCHAR": "type({0}) is str",
    "BINARY": "type({0}) is bytes",
    "VARBINARY": "type({0}) is bytes",
    "INTERVAL": "{0} is None",
}
_GIVEN: dict[str, Any] = {
    "Decimal": Decimal,
    "date": date,
    "datetime": datetime,
    "moment": moment,
    "pending": object(),  # the value of a CASE whose branch is not found yet
    "missing_parameter": missing_parameter,
    "out_of_range": numbers.out_of_range,
    "order_doubles": numbers.order_doubles,
    "timestamp_of_date": times.timestamp_of_date,
    "double_of_decimal": numbers.double_of_decimal,
}
_WIDENED = {  # implicit conversions that change the value
    ("INT", "DECIMAL"): "Decimal({0})",
    ("BIGINT", "DECIMAL"): "Decimal({0})",
    ("INT", "DOUBLE"): "float({0})",
    ("BIGINT", "DOUBLE"): "float({0})",
    ("DECIMAL", "DOUBLE"): "double_of_decimal({0})",
    ("DATE", "TIMESTAMP"): "timestamp_of_date({0})",
    ("CHAR", "VARCHAR"): "{0}.rstrip(' ')",
}


def ill_typed(message: str, node: exp.Expr, hint: str = "") -> NoReturn:
    raise IllTyped(message, *place(node), hint)


def unsupported(message: str, node: exp.Expr, hint: str = "") -> NoReturn:
    raise UnsupportedExpression(message, *place(node), hint)


def described(term: Term) -> str:
    """A term's type, for messages."""
    return {"": pg_name(term.type), "literal": "a string"}.get(term.unknown, f"a {term.unknown} of unknown type")


class Writer:
    """Collects the lines of a function ``evaluate(row, parameters, context)``."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.failures: list[DataError] = []
        self.parameter_types: dict[Parameter, ColumnType | None] = {}
        self.columns: set[int] = set()
        self._names: dict[str, Any] = dict(_GIVEN)
        self._bound: dict[int, str] = {}
        self._block: Block = []
        self._checks: dict[str, str] = {}  # variable of a parameter -> the expression that checks it
        self._uses_time = False
        self._count = 0

    # -- lines

    def emit(self, line: str) -> None:
        self._block.append(line)

    def fresh(self) -> str:
        self._count += 1
        return f"v{self._count}"

    def bind(self, value: Any) -> str:
        """A name for an object that the function uses."""
        if id(value) not in self._bound:
            name = f"k{len(self._bound)}"
            self._bound[id(value)], self._names[name] = name, value
        return self._bound[id(value)]

    def capture(self, compute: Callable[[], Term]) -> Captured:
        """Have a term computed without placing its lines."""
        block, failures = self._block, self.failures
        self._block, self.failures = [], []
        try:
            term = compute()
            return Captured(term, self._block, self.failures)
        finally:
            self._block, self.failures = block, failures

    def place(self, captured: Captured) -> Term:
        self._block.extend(captured.block)
        self.failures.extend(captured.failures)
        return captured.term

    def when(self, condition: str, compute: Callable[[], None]) -> None:
        """Lines that run on a condition."""
        outer = self._block
        inner: Block = []
        self._block = inner
        compute()
        self._block = outer
        outer += [f"if {condition}:", inner]

    # -- terms

    def constant(self, value: Any, type_: ColumnType | None, node: exp.Expr, unknown: str = "") -> Term:
        plain = value is None or isinstance(value, bool | int)
        code = f"({value})" if plain else self.bind(value)
        return Term(code, type_, node, value is None, True, value, unknown)

    def apply(
        self, template: str, arguments: Sequence[Term], type_: ColumnType, node: exp.Expr, strict: bool = True
    ) -> Term:
        """An operation, given as Python with ``{0}`` for the first argument and ``{t}`` for a variable of its own.

        If ``strict``, it is NULL if an argument is.  Otherwise it gets None for NULL.
        """
        if strict and any(argument.constant and argument.value is None for argument in arguments):
            return self.constant(None, type_, node)
        if all(argument.constant for argument in arguments):
            names = [f"a{n}" for n in range(len(arguments))]
            values = dict(zip(names, (argument.value for argument in arguments), strict=True))
            try:
                return self.constant(eval(template.format(*names, t="t"), self._names, values), type_, node)
            except DataError as error:
                self.failures.append(error)
        if not strict:  # constants have names, since Python warns of ``5 is None``
            codes = [self.bind(argument.value) if argument.constant else argument.code for argument in arguments]
            return self.assign(template.format(*codes, t=self.fresh()), type_, node)
        code = template.format(*(argument.code for argument in arguments), t=self.fresh())
        nullable = any(argument.nullable for argument in arguments)
        return self.assign(self._guarded(code, arguments), type_, node, nullable)

    def call(
        self,
        function: Callable[..., Any],
        arguments: Sequence[Term],
        type_: ColumnType,
        node: exp.Expr,
        strict: bool = True,
    ) -> Term:
        places = ", ".join(f"{{{n}}}" for n in range(len(arguments)))
        return self.apply(f"{self.bind(function)}({places})", arguments, type_, node, strict)

    def assign(self, code: str, type_: ColumnType | None, node: exp.Expr, nullable: bool = True) -> Term:
        name = self.fresh()
        self.emit(f"{name} = {code}")
        return Term(name, type_, node, nullable)

    @staticmethod
    def _guarded(code: str, arguments: Sequence[Term]) -> str:
        conditions = dict.fromkeys(f"{argument.code} is None" for argument in arguments if argument.nullable)
        return f"None if {' or '.join(conditions)} else {code}" if conditions else code

    # -- what an expression is made of

    def column(self, position: int, type_: ColumnType, node: exp.Expr) -> Term:
        self.columns.add(position)
        return Term(f"c{position}", type_, node)

    def now(self, node: exp.Expr) -> Term:
        self._uses_time = True
        return Term("now", ColumnType("TIMESTAMP"), node, nullable=False)

    def parameter(self, node: exp.Placeholder) -> Term:
        """A parameter without a type; ``typed`` gives it one."""
        key: Parameter | None = node.this or node.meta.get(NUMBER)
        if key is None:
            raise InterfaceError("a ? has no number: parse statements with gmdb.sql.dialect")
        self.parameter_types.setdefault(key, None)
        number = list(self.parameter_types).index(key)
        return Term(f"p{number}", None, node, unknown="parameter", value=key)

    def _checked_parameter(self, term: Term, type_: ColumnType, check: Callable[[Any], Any], suffix: str) -> Term:
        code = f"{term.code}_{suffix}"
        self.parameter_types[term.value] = type_
        if code not in self._checks:
            quick = _QUICK_CHECKS[type_.name].format(term.code) if suffix == type_.name else f"{term.code} is None"
            self._checks[code] = f"{term.code} if {quick} else {self.bind(check)}({term.code})"
        return Term(code, type_, term.node)

    # -- types

    def value_or_file(self, term: Term, type_: ColumnType) -> Term:
        """A parameter that a large object is set to: a value of the type, or a file to read it from."""
        accept = casts.accept_parameter(type_, self._label(term))
        return self._checked_parameter(
            term, type_, lambda value: value if is_file(value) else accept(value), f"file_{type_.name}"
        )

    def typed(self, term: Term, type_: ColumnType) -> Term:
        """The term as a value of the type: literals are read, parameters checked, values widened."""
        if term.unknown == "null":
            return self.constant(None, type_, term.node)
        if term.unknown == "literal":
            return self.read(term, type_, str if type_.name in TEXTS else casts.read_text(type_, limited=False))
        if term.unknown == "parameter":
            check = casts.accept_parameter(_unlimited(type_), self._label(term))
            return self._checked_parameter(term, _unlimited(type_), check, type_.name)
        assert term.type is not None
        if not turns_into(term.type, type_):
            ill_typed(f"{described(term)} is no {pg_name(type_)}", term.node, f"Write CAST(... AS {type_})")
        template = _WIDENED.get((term.type.name, type_.name))
        if template is None:
            return replace(term, type=type_)
        return self.apply(template, [term], type_, term.node)

    def cast(self, term: Term, type_: ColumnType, limited: bool, node: exp.Expr) -> Term:
        """An explicit conversion."""
        if term.unknown == "null":
            return self.constant(None, type_, node)
        if term.unknown == "literal":
            return self.read(term, type_, casts.read_text(type_, limited))
        if term.unknown == "parameter":
            check = casts.cast_parameter(type_, limited, self._label(term))
            return self._checked_parameter(term, type_, check, f"as_{self.bind(check)}")
        assert term.type is not None
        function = casts.cast_between(term.type, type_, limited)
        if function is None:
            ill_typed(f"cannot cast {described(term)} to {pg_name(type_)}", node)
        if term.type == type_ and type_.name != "DECIMAL":
            return replace(term, node=node)
        return self.call(function, [term], type_, node)

    def read(self, term: Term, type_: ColumnType, read: Callable[[str], Any]) -> Term:
        """What a literal becomes when its text is read."""
        try:
            return self.constant(read(term.value), type_, term.node)
        except DataError as error:
            line, column = place(term.node)
            raise type(error)(f"line {line}, column {column}: {error}" if line else str(error)) from None

    @staticmethod
    def _label(term: Term) -> str:
        return f":{term.value}" if isinstance(term.value, str) else f"number {term.value + 1}"

    # -- the function

    def function(self, result: Term) -> tuple[Callable[..., Any], str]:
        """The function that answers this term, and its text."""
        if result.constant:
            return partial(_answer, result.value), f"return {result.value!r}"
        lines = ["def evaluate(row, parameters=(), context=None):"]
        if self.parameter_types:
            lines.append("    try:")
            lines += [f"        p{n} = parameters[{key!r}]" for n, key in enumerate(self.parameter_types)]
            wanted = self.bind(tuple(self.parameter_types))
            lines.append("    except (IndexError, KeyError, TypeError):")
            lines.append(f"        raise missing_parameter(parameters, {wanted}) from None")
        lines += [f"    {name} = {check}" for name, check in self._checks.items()]
        lines += [f"    c{position} = row[{position}]" for position in sorted(self.columns)]
        lines += ["    now = moment(context)"] if self._uses_time else []
        lines += _rendered(_needed(self._block, {result.code}), 1)
        lines.append(f"    return {result.code}")
        text = "\n".join(lines) + "\n"
        try:
            exec(compile(text, "<expression>", "exec"), self._names)
        except (RecursionError, MemoryError, IndentationError):
            unsupported("the expression is nested too deeply", result.node)
        return self._names["evaluate"], text


def _unlimited(type_: ColumnType) -> ColumnType:
    """The type without a length: what a literal or a parameter beside such a value has."""
    return TEXT if type_.name == "VARCHAR" else type_


def _answer(value: Any, *_: Any) -> Any:
    return value


_VARIABLE = re.compile(r"\bv\d+\b")
_TARGET = re.compile(r"(?:(?:el)?if .*: )?(v\d+) = ")


def _needed(block: Block, used: set[str]) -> Block:
    """The lines that the variables in use depend on; others belong to what a constant has made superfluous."""
    kept: Block = []
    for at in range(len(block) - 1, -1, -1):
        part = block[at]
        if not isinstance(part, str):
            continue  # comes with its condition
        inner = _needed(block[at + 1], used) if part.endswith(":") else []
        target = _TARGET.match(part)
        if inner or (target and target[1] in used):
            used.update(_VARIABLE.findall(part))
            kept += [inner, part] if inner else [part]
    return kept[::-1]


def _rendered(block: Block, depth: int) -> list[str]:
    lines: list[str] = []
    for part in block:
        lines += [f"{'    ' * depth}{part}"] if isinstance(part, str) else _rendered(part, depth + 1)
    return lines
