"""Operations over odd values: Python gives what PostgreSQL gives, but for the digits that gmdb's types limit."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, tzinfo
from decimal import Decimal
from typing import Any

import pytest
from bench.postgres import Connection, PostgresError, available, server

from gmdb.errors import DataError, ValueOutOfRange
from gmdb.format.columns import ColumnType
from gmdb.format.interval import Interval
from gmdb.sql import casts, operations, times, zones
from gmdb.sql.operations import Operation
from gmdb.sql.operations.resolution import functions_by_name
from gmdb.sql.types import INTERVAL, TIMESTAMPTZ
from tests.searches import extent
from tests.sql.test_operations import (
    CHAR3,
    CHAR5,
    VARCHAR3,
    Case,
    by_zones,
    cast_cases,
    function_cases,
    operator_cases,
    rows_of,
    unary_cases,
    variadic_cases,
)

pytestmark = [pytest.mark.search, pytest.mark.skipif(not available(), reason="needs PostgreSQL")]
ROWS_MAX = extent(40, 2000)
NAMES = {
    "INT": "integer",
    "DOUBLE": "double precision",
    "TIMESTAMP": "timestamp",
    "TIME": "time",
    "VARCHAR": "text",
    "BINARY": "bytea",
    "VARBINARY": "bytea",
}
SPELLED = {
    "extract": "extract({1}, {0})",
    "like": "({0} LIKE {1})",
    "ilike": "({0} ILIKE {1})",
    "like_escape": "({0} LIKE {1} ESCAPE {2})",
    "ilike_escape": "({0} ILIKE {1} ESCAPE {2})",
    "similar": "({0} SIMILAR TO {1})",
    "similar_escape": "({0} SIMILAR TO {1} ESCAPE {2})",
    **{
        name: f"{name}({{0}}, ({{1}})::text[])"
        for name in ("jsonb_exists_any", "jsonb_exists_all", "jsonb_delete_path")
    },
    "jsonb_set": "jsonb_set({0}, ({1})::text[], {2}, {3})",
    "jsonb_insert": "jsonb_insert({0}, ({1})::text[], {2}, {3})",
    "neg": "(- {0})",
    "bitnot": "(~ {0})",
    "not": "(NOT {0})",
    "is_null": "({0} IS NULL)",
    "is_true": "({0} IS TRUE)",
    "is_false": "({0} IS FALSE)",
}
# gmdb's own: not in PostgreSQL 15, of another type there, or with regular expressions of Python's.
OWN = {"random", "log10", "regexp_replace", "to_timestamp", "to_date", "similar", "similar_escape"}
OWN |= {"gen_random_uuid"}
# Where PostgreSQL differs for reasons of its own: it escapes before it looks at NULL, negates the smallest integer.
QUIRKS: dict[str, Callable[[tuple[Any, ...]], bool]] = {
    "like_escape": lambda row: row[0] is None,
    "ilike_escape": lambda row: row[0] is None,
    "repeat": lambda row: (row[1] or 0) > 10_000,  # not in vain
    "right": lambda row: row[1] == -(2**31),
    "extract": lambda row: row[0] in (None, "julian") or row[0] not in times.FIELDS,
    "date_part": lambda row: row[0] == "julian",
    "strpos": lambda row: isinstance(row[0] or row[1], bytes | None),
}


def postgres_name(type_: ColumnType) -> str:
    if type_.name == "DECIMAL":
        return f"numeric({type_.length},{type_.scale})"
    if type_ == VARCHAR3:
        return "varchar(3)"
    return f"character({type_.length})" if type_.name == "CHAR" else NAMES.get(type_.name, type_.name)


def literal(value: Any, type_: ColumnType) -> str:
    if value is None:
        return f"CAST(NULL AS {postgres_name(type_)})"
    if isinstance(value, Interval):
        return f"make_interval(months => {value.months}, days => {value.days}) + interval '{value.microseconds} us'"
    text = casts.write_text(type_)(value) if type_.name != "CHAR" else value  # instants as UTC has them
    return f"CAST('{text.replace(chr(39), chr(39) * 2)}' AS {postgres_name(type_)})"


def expression(operation: Operation, arguments: Sequence[str]) -> str:
    name = operation.name
    if name == "cast":
        return f"CAST({arguments[0]} AS {postgres_name(operation.gives)})"
    if name == "extract":
        field = arguments[0].split("'")[1] if "'" in arguments[0] else "nothing"
        return f"extract({field} FROM {arguments[1]})"
    if name in SPELLED:
        default = "true" if name == "jsonb_set" else "false"  # of an argument that may be left out
        return SPELLED[name].format(*arguments, default)
    if name[0].isalpha() and not name.startswith("IS "):
        return f"{name}({', '.join(arguments)})"
    return f"({arguments[0]} {name} {arguments[1]})"


def _shows_no_year(operation: Operation, row: Sequence[Any]) -> bool:
    """Whether clocks of the zone show, at an instant of the row, a year that gmdb has not: one before the first."""
    if not operation.zoned:
        return False
    shown = zones.zone_named(row[-1])
    return any(isinstance(value, datetime) and value.tzinfo and not _within_years(value, shown) for value in row[:-1])


def _within_years(value: datetime, zone: tzinfo) -> bool:
    try:
        value.astimezone(zone)
    except (OverflowError, ValueError):
        return False
    return True


def value_of(text: str | None, type_: ColumnType) -> Any:
    if text is None or type_.is_text:
        return text
    if type_.name == "BOOLEAN":
        return text == "t"
    if type_ == INTERVAL:
        return text
    if type_ == TIMESTAMPTZ:
        return zones.read_instant(text, "UTC")
    if type_.name == "DECIMAL":
        return Decimal(text)
    return casts.read_text(type_)(text)


def alike(ours: Any, theirs: Any) -> bool:
    if isinstance(ours, Interval):
        return str(ours) == theirs
    if isinstance(ours, float) and isinstance(theirs, float):
        return ours == theirs or (ours != ours and theirs != theirs) or math.isclose(ours, theirs, rel_tol=1e-13)
    if isinstance(ours, Decimal) and isinstance(theirs, Decimal):
        if not theirs.is_finite():
            return False
        kept = max(int(ours.as_tuple().exponent), int(theirs.as_tuple().exponent))
        return abs(ours - theirs) <= Decimal(1).scaleb(kept)
    return isinstance(theirs, type(ours) if not isinstance(ours, str) else str) and bool(ours == theirs)


def _counts_differently(operation: Operation, row: Sequence[Any]) -> bool:
    """Whether a text's length is limited, which counts bytes here and characters in PostgreSQL."""
    limited = any(type_.name == "CHAR" for type_ in operation.takes) or operation.gives in (VARCHAR3, CHAR3, CHAR5)
    return limited and any(isinstance(value, str) and not value.isascii() for value in row)


class Comparison:
    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def ask(self, operation: Operation, rows: Sequence[tuple[Any, ...]], constants: dict[int, Any]) -> list[Any]:
        names = [f"a{n}" for n in range(len(operation.takes))]
        arguments = [
            literal(constants[n], one) if n in constants else names[n] for n, one in enumerate(operation.takes)
        ]
        lines = []
        for n, row in enumerate(rows):
            values = (literal(value, type_) for value, type_ in zip(row, operation.takes, strict=True))
            lines.append(f"({', '.join([str(n), *values])})")
        table = f"(VALUES {', '.join(lines)}) AS t({', '.join(['n', *names])})"
        if operation.zoned:
            zone = constants[len(names) - 1]
            arguments.pop()
            self.connection.ask(f"SET TIME ZONE '{zone}'")
        answer = self.connection.ask(f"SELECT {expression(operation, arguments)} FROM {table} ORDER BY n")
        return [value_of(row[0], operation.gives) for row in answer.rows]

    def findings(self, operation: Operation, constants: dict[int, Any]) -> Iterator[str]:
        rows = rows_of(operation.takes, constants, seed=11)[:ROWS_MAX]
        for row in rows:
            if _counts_differently(operation, row):
                continue
            if operation.name in QUIRKS and QUIRKS[operation.name](row):
                continue
            try:
                ours = operations.apply(operation, *row)
            except DataError as error:
                ours = error
            try:
                theirs = self.ask(operation, [row], constants)[0]
            except PostgresError as error:
                theirs = error
            except DataError:
                continue  # a value that gmdb's types do not have
            if isinstance(ours, ValueOutOfRange) and operation.gives.name in (
                "DECIMAL",
                "DATE",
                "TIMESTAMP",
                "TIMESTAMPTZ",
            ):
                continue
            if isinstance(ours, ValueOutOfRange) and _shows_no_year(operation, row):
                continue
            if isinstance(ours, DataError) and isinstance(theirs, PostgresError):
                continue
            if isinstance(theirs, PostgresError) or isinstance(ours, DataError) or not alike(ours, theirs):
                yield f"{row}: {ours!r}, in PostgreSQL {theirs!r}"


@pytest.fixture(scope="module")
def comparison() -> Iterator[Comparison]:
    with server() as connection:
        yield Comparison(connection)


def check(comparison: Comparison, cases: Iterator[Case]) -> None:
    wrong = []
    for operation, constants in by_zones(cases):
        findings = list(itertools.islice(comparison.findings(operation, constants), 4))
        if findings:
            takes = ", ".join(map(str, operation.takes))
            head = f"{operation.name}({takes}) {constants} -> {operation.gives}"
            wrong.append(f"{head}\n    " + "\n    ".join(findings))
    if wrong:
        pytest.fail(f"{len(wrong)} operations:\n" + "\n".join(wrong[:40]), pytrace=False)


@pytest.mark.parametrize("symbol", ["+", "-", "*", "/", "%", "&", "|", "#", "<<", ">>", "||"])
def test_an_operator_gives_what_postgresql_gives(comparison: Comparison, symbol: str) -> None:
    check(comparison, operator_cases([symbol]))


@pytest.mark.parametrize("symbol", ["=", "<", "IS DISTINCT FROM"])
def test_a_comparison_gives_what_postgresql_gives(comparison: Comparison, symbol: str) -> None:
    check(comparison, operator_cases([symbol]))


def test_a_cast_gives_what_postgresql_gives(comparison: Comparison) -> None:
    check(comparison, (case for case in cast_cases() if case[0].name == "cast"))


@pytest.mark.parametrize("name", sorted(set(functions_by_name()) - OWN))
def test_a_function_gives_what_postgresql_gives(comparison: Comparison, name: str) -> None:
    check(comparison, function_cases(name))


def test_a_function_of_any_number_of_arguments_gives_what_postgresql_gives(comparison: Comparison) -> None:
    check(comparison, variadic_cases())


def test_signs_and_truths_give_what_postgresql_gives(comparison: Comparison) -> None:
    check(comparison, unary_cases())
