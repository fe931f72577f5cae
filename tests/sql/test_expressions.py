"""Expressions have the values, types and errors that PostgreSQL gives them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import gmdb
from bench import postgres
from gmdb import errors
from gmdb.database.connection import Connection
from gmdb.format.columns import ColumnType
from gmdb.sql.casts import write_text
from gmdb.sql.types import pg_name
from tests.sql.differences import is_equal

ANSWERS = Path(__file__).with_name("postgres_answers.tsv")
SAME_TYPES = {"character varying": "text", "unknown": "text", "regtype": "text"}
LARGE = Decimal(10) ** 22  # from here on there may not be room for 16 digits behind the point
TOO_LONG = ("ln(1e50)",)  # with numbers of more than 38 digits
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


def shown(type_: ColumnType, value: Any) -> str | None:
    """A value as PostgreSQL shows it."""
    if value is None:
        return None
    if type_.name == "BOOLEAN":
        return "t" if value else "f"
    return str(value) if type_.name == "CHAR" else write_text(type_)(value)


@pytest.fixture(scope="module")
def connection(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connection]:
    with gmdb.connect(tmp_path_factory.mktemp("expressions") / "d.gmdb") as opened:
        opened.execute("create table one (i int)")
        opened.execute("insert into one values (1)")
        yield opened


def evaluated(connection: Connection, text: str) -> tuple[str, str | None]:
    """Type and value, or ``error`` and the error's class."""
    try:
        cursor = connection.execute(text)
        ((value,),) = cursor.fetchall()
        (type_,) = cursor._result.types
    except errors.Error as error:
        return "error", type(error).__name__
    assert type_ is not None
    return SAME_TYPES.get(pg_name(type_), pg_name(type_)), shown(type_, value)


@pytest.mark.parametrize("source", ["", " from one"], ids=["alone", "for a row"])
@pytest.mark.parametrize(("text", "type_", "value"), answers(), ids=[text for text, _, _ in answers()])
def test_expression_has_postgresqls_value_and_type(
    connection: Connection, text: str, type_: str, value: str | None, source: str
):
    found = evaluated(connection, f"select {text}{source}")
    if type_ == "error":
        assert found in [("error", one.__name__) for one in ERRORS[str(value)]]
    elif type_ == "numeric" and value is not None:
        assert is_number(found, Decimal(value)) or text in TOO_LONG, (found, value)
    else:
        assert found == (SAME_TYPES.get(type_, type_), value)


def is_number(found: tuple[str, str | None], expected: Decimal) -> bool:
    """Whether a numeric is the same: it has as many digits as its type says, 38 at most, where PostgreSQL chooses."""
    if found == ("error", errors.ValueOutOfRange.__name__):
        return abs(expected) >= LARGE
    return found[0] == "numeric" and found[1] is not None and is_equal(Decimal(found[1]), expected)


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
