"""Expressions of the bound tree as Python.

``compile_expression`` gives a function of a row, which other parts of the package use; pipelines (pipeline.py) have the
lines placed within their loops.

Invariants
 1. What is evaluated on a condition only (branches of CASE, the later parts of AND, OR and COALESCE) stands in lines
    that run on that condition.
 2. At run time only DataErrors are raised, and InterfaceError for parameters that are missing.
Not here: queries within expressions, which a pipeline knows how to run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from gmdb.errors import UnsupportedExpression
from gmdb.format.columns import ColumnType
from gmdb.sql import operations, tree
from gmdb.sql.casts import accept_parameter, receive_parameter
from gmdb.sql.rows.code import Code, Line, Term, moment, too_deep
from gmdb.sql.types import TEXTS

_Branch = tuple[str, set[str], list[Line], tree.Expression]  # of CASE: test, what it implies, its lines, the value
_PENDING = object()  # the value of a CASE whose branch is not reached yet


class ExpressionWriter:
    """Writes the lines that compute expressions.

    ``terms``: what each column's value is at the place that is reached.
    """

    def __init__(self) -> None:
        self.code = Code()
        self.terms: dict[tree.Column, Term] = {}
        self._not_null: set[str] = set()  # codes that the conditions around have shown not to be NULL
        self._handlers: dict[type[tree.Expression], Callable[[Any], Term]] = {
            tree.Constant: lambda one: Term(self.code.literal(one.value), one.value is None),
            tree.Parameter: self._parameter,
            tree.Reference: self._reference,
            tree.Call: self._call,
            tree.Junction: self._junction,
            tree.Case: self._case,
            tree.Coalesce: self._coalesce,
            tree.Now: self._now,
        }
        self._read_parameters: dict[tuple[Any, ColumnType], Term] = {}

    # ---- values

    def term(self, expression: tree.Expression) -> Term:
        """The value of an expression, its lines placed."""
        handler = self._handlers.get(type(expression))
        if handler is None:
            raise UnsupportedExpression(f"{type(expression).__name__} cannot be computed from one row")
        term = handler(expression)
        return Term(term.code, False) if term.code in self._not_null else term

    def assign(self, code: str, nullable: bool = True) -> Term:
        name = self.code.fresh()
        self.code.emit(f"{name} = {code}")
        return Term(name, nullable)

    def tuple_of(self, codes: Sequence[str]) -> str:
        return f"({', '.join(codes)},)" if codes else "()"

    def _reference(self, expression: tree.Reference) -> Term:
        return self.terms[expression.column]

    def _now(self, _: tree.Now) -> Term:
        if "moment" not in self.code.names:
            self.code.names["moment"] = moment
            self.code.prologue.append((1, "instant = moment(now)"))
        return Term("instant", False)

    def _parameter(self, expression: tree.Parameter) -> Term:
        """A parameter's value, read once, when the function begins."""
        type_ = expression.type
        term = self._read_parameters.get((expression.key, type_))
        if term is not None:
            return term
        code = self.code.parameter(expression.key)
        receive = receive_parameter(expression.value_type) if expression.value_type is not None else None
        if receive is not None:
            code = self._prologue(f"None if {code} is None else {self.code.bind(receive)}({code})")
        if expression.value_type is None and type_.name not in TEXTS:
            label = f":{expression.key}" if isinstance(expression.key, str) else f"number {expression.key + 1}"
            code = self._prologue(f"{self.code.bind(accept_parameter(type_, label))}({code})")
        term = self._read_parameters[expression.key, type_] = Term(code)
        return term

    def _prologue(self, code: str) -> str:
        name = self.code.fresh()
        self.code.prologue.append((1, f"{name} = {code}"))
        return name

    def _applied(self, operation: operations.Operation, codes: Sequence[str]) -> str:
        """An operation, of arguments that it does take."""
        if callable(operation.python):
            return f"{self.code.bind(operation.python)}({', '.join(codes)})"
        return f"({operation.python.format(*codes, t=self.code.fresh())})"

    def _operation(self, expression: tree.Call) -> tuple[str, list[str], bool]:
        """A call's code, for when none of some codes is NULL; and whether it may be NULL by itself then."""
        operation = expression.operation
        arguments = [self.term(argument) for argument in expression.arguments]
        if not operation.strict:  # constants have names, since Python warns of ``5 is None``
            codes = [self._named(argument.code) for argument in arguments]
            return self._applied(operation, codes), [], True
        nullable = list(dict.fromkeys(argument.code for argument in arguments if argument.nullable))
        may_be_null = operation.name[:1].isalpha()  # operators are not
        return self._applied(operation, [argument.code for argument in arguments]), nullable, may_be_null

    def _named(self, code: str) -> str:
        return self.code.bind(int(code[1:-1])) if code.startswith("(") else code

    def _call(self, expression: tree.Call) -> Term:
        code, nullable, may_be_null = self._operation(expression)
        may_be_null = may_be_null or bool(nullable)
        if "None" in nullable:
            return Term("None")
        if nullable:
            code = f"None if {' or '.join(f'{one} is None' for one in nullable)} else {code}"
        return self.assign(code, may_be_null)

    # ---- what is evaluated on a condition

    def _junction(self, expression: tree.Junction) -> Term:
        decided, other = ("True", "False") if expression.absorbing else ("False", "True")
        result = self.code.fresh()
        self.code.emit(f"{result} = {self.term(expression.parts[0]).code}")
        for part in expression.parts[1:]:
            with self.code.block(f"if {result} is not {decided}"), self.knowing():
                term = self.term(part)
                self.code.emit(f"if {term.code} is not {other}: {result} = {term.code}")
        return Term(result)

    def _coalesce(self, expression: tree.Coalesce) -> Term:
        first = self.term(expression.parts[0])
        if not first.nullable:
            return first
        result = self.code.fresh()
        self.code.emit(f"{result} = {first.code}")
        for part in expression.parts[1:]:
            with self.code.block(f"if {result} is None"), self.knowing():
                self.code.emit(f"{result} = {self.term(part).code}")
        return Term(result)

    def _case(self, expression: tree.Case) -> Term:
        result = self.code.fresh()
        branches = []
        for condition, value in expression.branches:
            with self.knowing():
                (test, implied), lines = self.code.capture(partial(self._test, condition))
                branches.append((test, implied, lines, value))
        if any(lines for _, _, lines, _ in branches[1:]):
            return self._case_in_steps(branches, expression.default, result)
        self.code.place(branches[0][2])
        for n, (test, implied, _, value) in enumerate(branches):
            with self.code.block(f"{'elif' if n else 'if'} {test}"), self.knowing(implied):
                self.code.emit(f"{result} = {self.term(value).code}")
        with self.code.block("else"), self.knowing():
            self.code.emit(f"{result} = {self.term(expression.default).code}")
        return Term(result)

    def _case_in_steps(self, branches: Sequence[_Branch], default: tree.Expression, result: str) -> Term:
        """A CASE whose conditions need lines: each branch asks whether one before it was taken."""
        pending = self.code.bind(_PENDING)
        self.code.emit(f"{result} = {pending}")
        for test, implied, lines, value in branches:
            with self.code.block(f"if {result} is {pending}"):
                self.code.place(lines, 1)
                with self.code.block(f"if {test}"), self.knowing(implied):
                    self.code.emit(f"{result} = {self.term(value).code}")
        with self.code.block(f"if {result} is {pending}"), self.knowing():
            self.code.emit(f"{result} = {self.term(default).code}")
        return Term(result)

    # ---- conditions

    def condition(self, expression: tree.Expression) -> str:
        """Code that is true if the expression is, and not if it is false or NULL; its lines are placed."""
        return self._test(expression)[0]

    @contextmanager
    def knowing(self, implied: set[str] | None = None) -> Iterator[None]:
        """Within, more codes are known not to be NULL."""
        known = self._not_null
        self._not_null = known | (implied or set())
        yield
        self._not_null = known

    @contextmanager
    def knowing_nothing(self, is_so: bool = True) -> Iterator[None]:
        """Within, nothing is known of the conditions around: another function is written, which may run elsewhere."""
        known = self._not_null
        if is_so:
            self._not_null = set()
        yield
        self._not_null = known

    def on(self, tests: Sequence[str], write: Callable[[], None]) -> None:
        """Emit lines that run if all tests are true."""
        if not tests:
            write()
            return
        with self.code.block(f"if {' and '.join(tests)}"):
            write()

    def when(self, condition: tree.Expression | None, write: Callable[[], None]) -> None:
        """Emit lines that run if the condition is true."""
        self._when(tree.conjuncts(condition), 0, write)

    def _when(self, parts: Sequence[tree.Expression], at: int, write: Callable[[], None]) -> None:
        tests: list[str] = []
        known: set[str] = set()
        with self.knowing():
            while at < len(parts):
                self._not_null = self._not_null | known
                (test, implied), lines = self.code.capture(partial(self._test, parts[at]))
                if lines and tests:
                    break
                self.code.place(lines)
                tests.append(test)
                known |= implied
                at += 1
        tests = [test for test in tests if test != "True"]
        if not tests:
            return write() if at == len(parts) else self._when(parts, at, write)
        with self.code.block(f"if {' and '.join(tests)}"), self.knowing(known):
            if at == len(parts):
                write()
            else:
                self._when(parts, at, write)
        return None

    def _test(self, expression: tree.Expression) -> tuple[str, set[str]]:
        """``condition``, and what is not NULL if it is true."""
        if isinstance(expression, tree.Call):
            code, nullable, _ = self._operation(expression)
            if "None" in nullable:
                return "False", set()
            tests = [*(f"{one} is not None" for one in nullable), code]
            return (f"({' and '.join(tests)})" if len(tests) > 1 else code), set(nullable)
        if isinstance(expression, tree.Junction):
            parts: list[str] = []
            inner: list[list[Line]] = []
            known: set[str] = set()
            for part in expression.parts:
                with self.knowing(set() if expression.absorbing else known):
                    (test, implied), lines = self.code.capture(partial(self._test, part))
                inner.append(lines)
                parts.append(test)
                known = set() if expression.absorbing else known | implied
            if not any(inner[1:]):
                self.code.place(inner[0])
                return f"({(' or ' if expression.absorbing else ' and ').join(parts)})", known
        return self.term(expression).code, set()


def _writer(columns: Sequence[tree.Column], expressions: Sequence[tree.Expression]) -> ExpressionWriter:
    """A writer for a function of a row."""
    writer = ExpressionWriter()
    used = {one.column for expression in expressions for one in expression.walk() if isinstance(one, tree.Reference)}
    for n, column in enumerate(columns):
        if column in used:
            writer.code.prologue.append((1, f"c{n} = row[{n}]"))
            writer.terms[column] = Term(f"c{n}", column.nullable)
    return writer


def is_taken(parameter: tree.Parameter) -> bool:
    """Whether a parameter's value is used without conversion."""
    if parameter.value_type is None:
        return parameter.type.name in TEXTS
    return receive_parameter(parameter.value_type) is None


def compile_row(
    expressions: Sequence[tree.Expression], columns: Sequence[tree.Column]
) -> Callable[..., tuple[Any, ...]]:
    """A function ``evaluate(row, parameters=(), now=None)`` that gives the expressions' values."""
    return _compile(expressions, columns, lambda codes: f"({', '.join(codes)},)" if codes else "()")


def compile_expression(expression: tree.Expression, columns: Sequence[tree.Column]) -> Callable[..., Any]:
    """A function ``evaluate(row, parameters=(), now=None)`` that gives the expression's value."""
    return _compile([expression], columns, lambda codes: codes[0])


def _compile(
    expressions: Sequence[tree.Expression], columns: Sequence[tree.Column], result: Callable[[Sequence[str]], str]
) -> Callable[..., Any]:
    try:
        writer = _writer(columns, expressions)
        with writer.code.define("evaluate(row, parameters=(), now=None)"):
            writer.code.emit(f"return {result([writer.term(one).code for one in expressions])}")
        return writer.code.compiled("evaluate")
    except RecursionError:
        raise too_deep() from None
