"""Expressions of the bound tree as DuckDB's SQL.

Invariants
 1. The SQL of an expression has the DuckDB type of the expression's type, also that of NULL.
 2. What may fail is not evaluated where AND, OR, CASE, COALESCE or FILTER exclude it: DuckDB evaluates all parts of a
    junction, so such a one is written as CASE.
Not here: queries (text.py), which class ``Values`` leaves to its subclass.
"""

from __future__ import annotations

import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from gmdb.errors import InternalError
from gmdb.format.columns import JSONS, ColumnType, encode_text
from gmdb.format.interval import Interval
from gmdb.process.late_dataclasses import replace
from gmdb.sql import tree
from gmdb.sql.operations.json_functions import KEY
from gmdb.sql.operations.registry import Operation, RowFunction, function_of, written
from gmdb.sql.plan.terms import is_one_row, negation_of_null
from gmdb.sql.tree import Column, Expression, Relation, SortKey, columns_of, everything, rebuilt
from gmdb.sql.types import FLOATS

if TYPE_CHECKING:
    import duckdb


# ---- Operations that DuckDB calls in Python: what their values are there and here.
#
# DuckDB hands over an interval without its months, and takes a NaN for NULL.  So intervals pass as lists of months,
# days and microseconds, and DOUBLEs and REALs come back as text; a macro of the operation's own name makes values of
# them again.  Instants are TIMESTAMPs of UTC there: DuckDB's own type goes by a zone of its own.
#
# Invariants
#  1. An operation has one name in this process, whichever instance of DuckDB it is made known to.
#  2. What an operation raises reaches ``failures`` by the name of its class.

_NAMES = {
    "INT": "INTEGER",
    "REAL": "FLOAT",
    "TIMESTAMPTZ": "TIMESTAMP",
    "CHAR": "VARCHAR",
    "VARCHAR": "VARCHAR",
    "CLOB": "VARCHAR",
    **dict.fromkeys(JSONS, "VARCHAR"),
}
_BYTES = ("BINARY", "VARBINARY", "BLOB")
_PARTS = "BIGINT[]"  # of an interval: months, days and microseconds
_names: dict[Operation | RowFunction, str] = {}
_guard = threading.Lock()


def duck_type(type_: ColumnType) -> str:
    """What DuckDB calls a type."""
    if type_.is_array:
        return f"{duck_type(type_.element)}[]"
    if type_.name == "DECIMAL":
        return f"DECIMAL({type_.length},{type_.scale})"
    return "BLOB" if type_.name in _BYTES else _NAMES.get(type_.name, type_.name)


def function_name(operation: Operation | RowFunction) -> str:
    """What DuckDB calls an operation that Python does."""
    with _guard:
        return _names.setdefault(operation, f"gm_python_{len(_names)}")


class Functions:
    """The operations that an instance of DuckDB knows."""

    def __init__(self, instance: duckdb.DuckDBPyConnection) -> None:
        self._instance = instance
        self._known: set[Operation | RowFunction] = set()

    def require(self, operations: Iterable[Operation | RowFunction]) -> None:
        """Make operations known; by one thread at a time."""
        for operation in operations:
            if operation not in self._known:
                if isinstance(operation, Operation):
                    self._create(operation)
                else:
                    self._create_rows(operation)
                self._known.add(operation)

    def _create_rows(self, function: RowFunction) -> None:
        """A function that gives a list of rows, whose fields are c0, c1, …"""
        fields = ", ".join(f"c{n} {_passed(type_)}" for n, type_ in enumerate(function.gives))
        self._instance.create_function(
            function_name(function),
            _listing(function),
            [_passed(type_) for type_ in function.takes],
            f"STRUCT({fields})[]",
            null_handling=_special(),
        )

    def _create(self, operation: Operation) -> None:
        name = function_name(operation)
        names = [f"a{n}" for n in range(len(operation.takes))]
        arguments = ", ".join(
            f"gm_interval_parts({one})" if type_.name == "INTERVAL" else one
            for one, type_ in zip(names, operation.takes, strict=True)
        )
        call = f"{name}_in_python({arguments})"
        gives = operation.gives
        value = f"gm_interval({call})" if gives.name == "INTERVAL" else call
        if _comes_as_text(gives):
            value = f"CAST({call} AS {duck_type(gives)})"
        self._instance.create_function(
            f"{name}_in_python",
            as_function(operation),
            [_passed(type_) for type_ in operation.takes],
            ("VARCHAR[]" if gives.is_array else "VARCHAR") if _comes_as_text(gives) else _passed(gives),
            null_handling=_special(),
            side_effects=operation.volatile,
        )
        self._instance.execute(f"CREATE MACRO {name}({', '.join(names)}) AS {value}")


def _listing(function: RowFunction) -> Callable[..., Any]:
    """A function of rows as DuckDB calls it: with as many parameters as it takes."""
    names = [f"a{n}" for n in range(len(function.takes))]
    fields = ", ".join(f"'c{n}': row[{n}]" for n in range(len(function.gives)))
    nothing = " or ".join(f"{one} is None" for one in names)
    text = f"lambda {', '.join(names)}: None if {nothing} else [{{{fields}}} for row in rows({', '.join(names)})]"
    listing: Callable[..., Any] = eval(text, {"rows": function.python})
    return listing


def _special() -> Any:
    """What lets a function have NULLs as arguments."""
    from duckdb.func import SPECIAL

    return SPECIAL


def _passed(type_: ColumnType) -> str:
    return _PARTS if type_.name == "INTERVAL" else duck_type(type_)


def as_function(operation: Operation) -> Callable[..., Any]:
    """An operation as DuckDB calls it: with as many parameters as it takes, and NULLs among them."""
    names = [f"a{n}" for n in range(len(operation.takes))]
    pairs = zip(names, operation.takes, strict=True)
    values = [f"{type_.name}({one})" if type_.name in _RECEIVED else one for one, type_ in pairs]
    value = f"function({', '.join(values)})"
    passed = _passing(operation.gives)
    if passed is not None:
        value = f"passed({value})"
    nothing = " or ".join(f"{one} is None" for one in names)
    text = f"lambda {', '.join(names)}: " + (f"None if {nothing} else {value}" if operation.strict and names else value)
    function: Callable[..., Any] = eval(text, {"function": function_of(operation), "passed": passed, **_RECEIVED})
    return function


def _comes_as_text(type_: ColumnType) -> bool:
    """Whether Python gives floating-point numbers, by themselves or in an array."""
    return type_.name.removesuffix("[]") in FLOATS


def _passing(type_: ColumnType) -> Callable[[Any], Any] | None:
    """What makes a value of a type one that DuckDB takes; None: it does as it is."""
    if type_.is_array:
        return partial(_passed_list, _passing(type_.element))
    return _PASSED.get(type_.name)


def _passed_list(one: Callable[[Any], Any] | None, values: Sequence[Any] | None) -> list[Any] | None:
    return None if values is None else list(values if one is None else map(one, values))


def _interval(parts: Sequence[int] | None) -> Interval | None:
    return None if parts is None else Interval(*parts)


def _interval_parts(value: Interval | None) -> list[int] | None:
    return None if value is None else [value.months, value.days, value.microseconds]


def _double_text(value: float | None) -> str | None:
    return None if value is None else repr(value)


def _instant(value: datetime | None) -> datetime | None:
    return None if value is None else value.replace(tzinfo=UTC)


def _without_zone(value: datetime | None) -> datetime | None:
    return None if value is None else value.replace(tzinfo=None)


_RECEIVED = {"INTERVAL": _interval, "TIMESTAMPTZ": _instant}
_PASSED: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(FLOATS, _double_text),
    "INTERVAL": _interval_parts,
    "TIMESTAMPTZ": _without_zone,
}


def interval_literal(value: Interval) -> str:
    return f"gm_interval([{value.months}, {value.days}, {value.microseconds}]::{_PARTS})"


def parameter_value(value: Any) -> Any:
    """A value as a parameter of DuckDB's; one that it could misread as text, to be cast."""
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, Interval):
        return _interval_parts(value)
    if isinstance(value, list | tuple):
        return [parameter_value(one) for one in value]
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    if isinstance(value, int | str | bytes | None):
        return value
    if isinstance(value, datetime):
        return value.replace(tzinfo=None)  # of UTC, if there is one
    return format(value, "f") if hasattr(value, "as_tuple") else value


def parameter_sql(name: str, type_: ColumnType) -> str:
    if type_.name == "INTERVAL":
        return f"gm_interval(CAST(${name} AS {_PARTS}))"
    return f"CAST(${name} AS {duck_type(type_)})"


# ---- Expressions of the bound tree as DuckDB's SQL.

_ARGUMENT = re.compile(r"\{(\d+)\}")
_TRUE, _FALSE = (tree.Constant(ColumnType("BOOLEAN"), value) for value in (True, False))
_MIRRORED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def can_fail(expression: Expression) -> bool:
    """Whether there are rows for which evaluating it raises an error."""
    for part in expression.walk():
        if isinstance(part, tree.Call) and part.operation.fails:
            return True
        if isinstance(part, tree.ScalarQuery) and not is_one_row(part.query):
            return True
        for query in part.relations():
            if any(can_fail(one) for relation in everything(query) for one in relation.expressions()):
                return True
    return False


def _guarded_by(value: Expression, tests: Sequence[tuple[Expression, Expression]], default: Expression) -> Expression:
    """A value whose queries find no rows unless a CASE of these tests is true.

    DuckDB evaluates a query for all rows, also for those whose branch of a CASE is another one; without rows it does
    not fail.
    """
    queries = [query for part in value.walk() for query in part.relations()]
    if not (queries and tests) or not can_fail(value) or any(map(tree.is_volatile, (test for test, _ in tests))):
        return value
    test = tree.Case(default.type, tuple(tests), default)

    def change(part: Expression) -> Expression:
        changed = rebuilt(part, change)
        return rebuilt(changed, lambda query: _filtered(query, test), Relation)

    return change(value)


def _filtered(query: Relation, test: Expression) -> Relation:
    """The query over none of the rows that it reads, unless the test is true."""
    if isinstance(query, tree.With):
        return replace(query, body=_filtered(query.body, test))
    if isinstance(query, tree.Join) and query.kind != "full":
        both = query.kind in ("inner", "right") and not query.lateral
        right = _filtered(query.right, test) if both else query.right
        return replace(query, left=_filtered(query.left, test), right=right)
    if isinstance(query, tree.SetOperation):
        return replace(query, left=_filtered(query.left, test), right=_filtered(query.right, test))
    if isinstance(query, tree.Passing | tree.Project | tree.Group | tree.Window | tree.Number):
        return replace(query, source=_filtered(query.source, test))
    return tree.Filter(query, test)


def quoted(text: str) -> str:
    if "\0" in text:
        return f"decode(unhex('{encode_text(text).hex()}'))"
    return "'" + text.replace("'", "''") + "'::VARCHAR"


def literal(value: Any, type_: ColumnType) -> str:
    name = duck_type(type_)
    if value is None:
        return f"NULL::{name}"
    if type_.is_array:
        return f"[{', '.join(literal(one, type_.element) for one in value)}]::{name}"
    if isinstance(value, bool):
        return f"{value}::{name}"  # bare ones are refused in ORDER BY
    if type_.name == "INTERVAL":
        return interval_literal(value)
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, bytes):
        return f"unhex('{value.hex()}')"
    if isinstance(value, int):
        return f"{value}::{name}" if value >= 0 else f"({value})::{name}"
    if isinstance(value, float):
        return f"'{value!r}'::{name}"
    if isinstance(value, datetime):
        return f"'{value.replace(tzinfo=None).isoformat(' ')}'::{name}"
    if type_.name == "UUID":
        return f"'{value}'::{name}"
    return f"'{format(value, 'f') if type_.name == 'DECIMAL' else value.isoformat()}'::{name}"


class Values(ABC):
    """Writes expressions, and notes what they need beside the text."""

    def __init__(self) -> None:
        self.names: dict[Column, str] = {}
        self.parameters: dict[tree.Parameter, str] = {}
        self.operations: dict[Operation | RowFunction, None] = {}
        self.uses_now = False
        self._handlers: dict[type[Expression], Any] = {
            tree.Constant: lambda one: literal(one.value, one.type),
            tree.Parameter: self._parameter,
            tree.Reference: lambda one: self.name(one.column),
            tree.Call: self._call,
            tree.Junction: self._junction,
            tree.Case: self._case,
            tree.Coalesce: self._coalesce,
            tree.Now: self._now,
            tree.ScalarQuery: lambda one: f"({self.query(one.query, one.query.columns)})",
            tree.Exists: lambda one: f"EXISTS ({self.query(one.query, ())})",
            tree.QueryComparison: self._query_comparison,
        }

    @abstractmethod
    def query(self, relation: Relation, columns: Sequence[Column]) -> str:
        """A query that gives just these columns of a relation, in this order."""

    def name(self, column: Column) -> str:
        name = self.names.get(column)
        if name is None:
            name = self.names[column] = f"c{len(self.names) + 1}"
        return name

    def value(self, expression: Expression) -> str:
        handler = self._handlers.get(type(expression))
        if handler is None:
            raise InternalError(f"{type(expression).__name__} cannot stand in an expression")
        sql: str = handler(expression)
        return sql

    def listed(self, expressions: Sequence[Expression]) -> str:
        return ", ".join(self.value(one) for one in expressions)

    def typed(self, expression: Expression, type_: ColumnType) -> str:
        """A value in a type that differs from its own in nothing but digits: by those DuckDB knows how to calculate."""
        value, name = self.value(expression), duck_type(type_)
        return value if duck_type(expression.type) == name else f"CAST({value} AS {name})"

    def condition(self, expression: Expression) -> str:
        """A condition of which only matters whether it is true."""
        if isinstance(expression, tree.Junction):
            return self.junction(expression.absorbing, expression.parts, True)
        return self.value(expression)

    def conditions(self, parts: Sequence[Expression]) -> str:
        """Conditions that must all be true, of which DuckDB sees those that it can use for joins."""
        parts = _flat(False, parts)
        first = _first_apart(parts, True)
        whole = self.junction(False, parts, True)
        if first == len(parts) or can_fail(parts[0]):
            return whole
        return f"{' AND '.join(map(self.condition, parts[:first]))} AND {whole}"

    def junction(self, absorbing: bool, parts: Sequence[Expression], only_true: bool) -> str:
        """AND or OR.  ``only_true``: unknown is as good as false, and DuckDB may change the order."""
        parts = _flat(absorbing, parts)
        word = " OR " if absorbing else " AND "
        first = _first_apart(parts, only_true)
        head = word.join(self.condition(one) if only_true else self.value(one) for one in parts[:first])
        head = f"({head})" if first > 1 else head
        if first == len(parts):
            return head
        rest = self.junction(absorbing, parts[first:], only_true)
        if only_true:
            then, otherwise = ("TRUE", rest) if absorbing else (rest, "FALSE")
            return f"CASE WHEN {head} THEN {then} ELSE {otherwise} END"
        sure, excluded = (head, "TRUE") if absorbing else (f"NOT {head}", "FALSE")
        return f"CASE WHEN {sure} THEN {excluded} ELSE ({head}{word}{rest}) END"

    def _junction(self, one: tree.Junction) -> str:
        return self.junction(one.absorbing, one.parts, False)

    def _case(self, one: tree.Case) -> str:
        branches = []
        before: list[tuple[Expression, Expression]] = []
        for test, value in one.branches:
            guarded = _guarded_by(value, [*before, (test, _TRUE)], _FALSE)
            branches.append(f"WHEN {self.condition(test)} THEN {self.typed(guarded, one.type)}")
            before.append((test, _FALSE))
        default = _guarded_by(one.default, before, _TRUE)
        return f"CASE {' '.join(branches)} ELSE {self.typed(default, one.type)} END"

    def _coalesce(self, one: tree.Coalesce) -> str:
        """What stands behind a value is not to be evaluated where that is there: DuckDB may take parts of it out."""
        before: list[tuple[Expression, Expression]] = []
        parts = []
        for part in one.parts:
            parts.append(self.typed(_guarded_by(part, before, _TRUE), one.type))
            before.append((negation_of_null(part), _FALSE))
        if not any(map(can_fail, one.parts[1:])):
            return f"coalesce({', '.join(parts)})"
        branches = " ".join(f"WHEN {part} IS NOT NULL THEN {part}" for part in parts[:-1])
        return f"CASE {branches} ELSE {parts[-1]} END"

    def _parameter(self, one: tree.Parameter) -> str:
        name = self.parameters.setdefault(one, f"v{len(self.parameters) + 1}")
        return parameter_sql(name, one.type)

    def _now(self, _: tree.Now) -> str:
        self.uses_now = True
        return "CAST($now AS TIMESTAMP)"

    def _call(self, one: tree.Call) -> str:
        operation = one.operation
        arguments = [self.value(argument) for argument in one.arguments]
        template, function = operation.duck, ""
        if template is None or "{python}" in template:
            self.operations[operation] = None
            function = function_name(operation)
        if template is None:
            return f"{function}({', '.join(arguments)})"
        is_apart = "lambda" in template and any(map(tree.has_queries, one.arguments))  # DuckDB takes none in there
        return f"({written(template, arguments, function, is_apart)})"

    # ---- comparisons with all rows of a query

    def _query_comparison(self, one: tree.QueryComparison) -> str:
        sides = self._sides(one)
        if sides is not None:
            left, symbol, right = sides
            rows = f"SELECT {right} FROM ({self.query(one.query, one.query.columns)})"
            if symbol == "=" and not one.every:
                return f"({left} IN ({rows}))"
            return f"({left} {symbol} {'ALL' if one.every else 'ANY'} ({rows}))"
        rows = f"SELECT {self.value(one.test)} AS m FROM ({self.query(one.query, one.query.columns)})"
        decided, otherwise = ("bool_or(NOT m) THEN FALSE", "TRUE") if one.every else ("bool_or(m) THEN TRUE", "FALSE")
        return f"(SELECT CASE WHEN {decided} WHEN count(m) = count(*) THEN {otherwise} END FROM ({rows}))"

    def _sides(self, one: tree.QueryComparison) -> tuple[str, str, str] | None:
        """The value, the symbol and the query's column, if the test compares no more than these."""
        test, own = one.test, set(one.query.columns)
        if not isinstance(test, tree.Call) or test.operation.name not in _MIRRORED or can_fail(test):
            return None
        symbol, template = test.operation.name, test.operation.duck or ""
        parts = template[1:-1].split(f" {symbol} ")
        if len(parts) != 2 or "{1}" in parts[0] or "{0}" in parts[1] or not template.startswith("("):
            return None
        values = [self.value(argument) for argument in test.arguments]
        left, right = parts[0].replace("{0}", values[0]), parts[1].replace("{1}", values[1])
        is_own = [not own.isdisjoint(columns_of(argument)) for argument in test.arguments]
        if is_own == [False, True]:
            return left, symbol, right
        return (right, _MIRRORED[symbol], left) if is_own == [True, False] else None

    # ---- what needs more than one row

    def sort_key(self, key: SortKey) -> str:
        """One term of an order; blanks at the end of a CHAR do not count, and JSONB has keys."""
        value = self.value(key.value)
        if key.value.type.name == "CHAR":
            value = f"rtrim({value}, ' ')"
        elif key.value.type.name == "JSONB":
            self.operations[KEY] = None
            value = f"{function_name(KEY)}({value})"
        return f"{value} {'DESC' if key.descending else 'ASC'} NULLS {'FIRST' if key.nulls_first else 'LAST'}"

    def order(self, keys: Sequence[SortKey]) -> str:
        return f"ORDER BY {', '.join(self.sort_key(key) for key in keys)}"

    def aggregate(self, one: tree.Aggregate | tree.WindowCall, parts: dict[str, Column]) -> str:
        """An aggregate or a window function; FILTER, which DuckDB evaluates after the arguments, is before them.

        If it consists of several calls of DuckDB's, columns stand for these; they are added to ``parts``.
        """
        over = ""
        arguments = list(one.arguments)
        if one.condition is not None:
            condition = self.condition(one.condition)
            over = f" FILTER (WHERE {condition})"
            values = [
                f"CASE WHEN {condition} THEN {self.value(argument)} END" if can_fail(argument) else self.value(argument)
                for argument in arguments
            ]
        else:
            values = [self.value(argument) for argument in arguments]
        order = ""
        if isinstance(one, tree.WindowCall):
            over += f" OVER ({self._over(one)})"
        elif one.order and not one.aggregation.ordered:
            order = f" {self.order(one.order)}"
        distinct = "DISTINCT " if one.distinct else ""

        def call(name: str, arguments: str) -> str:
            text = f"{name}({distinct}{_filled(arguments, values)}{order}){over}"
            if not is_formula(one):
                return text
            return self.name(parts.setdefault(text, Column("part", one.type)))

        return f"({_with_calls(one.aggregation.duck, call, values)})"

    def _over(self, one: tree.WindowCall) -> str:
        parts = []
        if one.partition:
            parts.append(f"PARTITION BY {self.listed(one.partition)}")
        if one.order:
            parts.append(self.order(one.order))
        if one.frame is not None:
            parts.append(self._frame(one.frame))
        return " ".join(parts)

    def _frame(self, frame: tree.Frame) -> str:
        exclude = f" EXCLUDE {frame.exclude}" if frame.exclude else ""
        return f"{frame.unit} BETWEEN {self._edge(*frame.start)} AND {self._edge(*frame.end)}{exclude}"

    def _edge(self, distance: Expression | None, side: str) -> str:
        if not side:
            return "CURRENT ROW"
        return f"{'UNBOUNDED' if distance is None else self.value(distance)} {side}"


def _flat(absorbing: bool, parts: Sequence[Expression]) -> list[Expression]:
    flat: list[Expression] = []
    for part in parts:
        if isinstance(part, tree.Junction) and part.absorbing == absorbing:
            flat += _flat(absorbing, part.parts)
        else:
            flat.append(part)
    return flat


def _first_apart(parts: Sequence[Expression], is_ordered: bool) -> int:
    """The first part that must not be evaluated before, or with, those in front of it."""
    if is_ordered and can_fail(parts[0]):
        return 1
    return next((n for n, part in enumerate(parts) if n and can_fail(part)), len(parts))


def is_formula(one: tree.Aggregate | tree.WindowCall) -> bool:
    """Whether an aggregate consists of several of DuckDB's."""
    return one.aggregation.duck.count("{call:") > 1


def _with_calls(template: str, call: Callable[[str, str], str], values: Sequence[str]) -> str:
    """An aggregate's template with its ``{call:name(arguments)}`` written, and with values elsewhere."""
    sql = ""
    while "{call:" in template:
        before, _, rest = template.partition("{call:")
        depth = 1
        end = next(n for n, letter in enumerate(rest) if (depth := depth + (letter == "{") - (letter == "}")) == 0)
        name, arguments = rest[:end].split("(", 1)
        sql += _filled(before, values) + call(name, arguments[:-1])
        template = rest[end + 1 :]
    return sql + _filled(template, values)


def _filled(template: str, values: Sequence[str]) -> str:
    return _ARGUMENT.sub(lambda match: values[int(match[1])], template)
