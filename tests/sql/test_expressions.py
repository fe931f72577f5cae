"""Expressions have the values, types and errors that PostgreSQL gives them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from bench import postgres
from gmdb import errors
from gmdb.sql.casts import write_text
from gmdb.sql.dialect import parse_expression
from gmdb.sql.expressions import Compiled, compile_expression
from gmdb.sql.scope import Scope
from gmdb.sql.types import pg_name
from tests.sql import differential

ANSWERS = Path(__file__).with_name("postgres_answers.tsv")
SAME_TYPES = {"character varying": "text", "unknown": "text", "regtype": "text"}
ERRORS: dict[str, tuple[type[errors.Error], ...]] = {
    "22001": (errors.ValueTooLong,),
    "22003": (errors.ValueOutOfRange,),
    "22007": (errors.InvalidText,),
    "22008": (errors.ValueOutOfRange,),
    "22011": (errors.UndefinedResult,),
    "22012": (errors.DivisionByZero,),
    "22019": (errors.UndefinedResult,),
    "2201E": (errors.UndefinedResult,),
    "2201F": (errors.UndefinedResult,),
    "22023": (errors.UndefinedResult, errors.ValueOutOfRange),
    "22025": (errors.UndefinedResult,),
    "22P02": (errors.InvalidText,),
    "0A000": (errors.UndefinedResult,),
    "42601": (errors.InvalidSyntax,),
    "42725": (errors.IllTyped,),
    "42804": (errors.IllTyped,),
    "42846": (errors.IllTyped,),
    "42883": (errors.IllTyped, errors.NoSuchFunction),
    "54000": (errors.ValueOutOfRange,),
}


def answers() -> list[tuple[str, str, str | None]]:
    lines = [line for line in ANSWERS.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    parts = (line.split("\t") for line in lines)
    return [(text, type_, None if value == "NULL" else _unescaped(value)) for text, type_, value in parts]


def _unescaped(value: str) -> str:
    quote = '"' if "'" in value else "'"
    return ast.literal_eval(f"{quote}{value}{quote}")


def shown(compiled: Compiled, value: Any) -> str | None:
    """A value as PostgreSQL shows it."""
    if value is None:
        return None
    assert compiled.type is not None
    if compiled.type.name == "BOOLEAN":
        return "t" if value else "f"
    return value if compiled.type.name == "CHAR" else write_text(compiled.type)(value)


def evaluated(text: str, scope: Scope, row: tuple[Any, ...] = ()) -> tuple[str, str | None]:
    """Type and value, or ``error`` and the error's class."""
    try:
        compiled = compile_expression(parse_expression(text), scope)
        value = compiled.evaluate(row)
    except errors.Error as error:
        return "error", type(error).__name__
    return SAME_TYPES.get(pg_name(compiled.type), pg_name(compiled.type)), shown(compiled, value)


@pytest.mark.parametrize(("text", "type_", "value"), answers(), ids=[text for text, _, _ in answers()])
def test_expression_has_postgresqls_value_and_type(text: str, type_: str, value: str | None):
    found = evaluated(text, Scope())
    if type_ == "error":
        assert found in [("error", one.__name__) for one in ERRORS[str(value)]]
    else:
        assert found == (SAME_TYPES.get(type_, type_), value)


# ---- beside a real server


@pytest.fixture(scope="module")
def server() -> Iterator[postgres.Connection]:
    if not postgres.available():
        pytest.skip("no PostgreSQL is installed to compare with")
    with postgres.server() as connection:
        yield connection


def asked(server: postgres.Connection, query: str) -> tuple[str, str | None]:
    try:
        answer = server.ask(query)
    except postgres.PostgresError as error:
        return "error", error.state
    return SAME_TYPES.get(answer.types[0], answer.types[0]), answer.rows[0][0]


def test_answers_are_those_of_the_installed_postgresql(server: postgres.Connection):
    wrong = [
        (text, type_, value, found)
        for text, type_, value in answers()
        if (found := asked(server, f"SELECT {text}")) != (SAME_TYPES.get(type_, type_), value)
    ]
    assert wrong == []


@settings(max_examples=500, deadline=None, suppress_health_check=list(HealthCheck))
@given(text=differential.EXPRESSIONS, row=differential.ROWS)
def test_random_expression_over_a_random_row_is_what_postgresql_makes_of_it(
    text: str, row: tuple[Any, ...], server: postgres.Connection
):
    ours = evaluated(text, Scope.of("r", differential.columns()), row)
    # OFFSET keeps the values from being folded into the expression: an error is to depend on the row.
    theirs = asked(server, f"SELECT {text} FROM (SELECT {differential.row_literals(row)} OFFSET 0) r")
    if theirs[0] == "error":
        assert ours[0] == "error", theirs
    else:
        assert ours == theirs
