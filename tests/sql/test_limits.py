"""Statements that are too much: refused with errors of gmdb's, after which the transaction goes on."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import gmdb
from gmdb.errors import DataError, InvalidSyntax, ProgrammingError

DEEP = 3000


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Any]:
    with gmdb.connect(tmp_path / "d.gmdb") as connection:
        connection.execute("create table t (i int primary key, n int)")
        connection.execute("insert into t values (1, 1)")
        yield connection


@pytest.mark.parametrize(
    "text",
    [
        f"select {'(' * DEEP}1{')' * DEEP}",
        f"select {'not ' * DEEP}true",
        f"select {' + '.join(['1'] * DEEP)}",
        f"select {'(select ' * DEEP}1{')' * DEEP}",
        f"update t set n = {' + '.join(['1'] * DEEP)}",
        f"update t set n = {'coalesce(' * DEEP}n{')' * DEEP}",
        f"delete from t where {'not ' * DEEP}true",
    ],
    ids=lambda text: text[:25],
)
def test_deep_nesting_is_refused(db: Any, text: str) -> None:
    with pytest.raises(InvalidSyntax, match="nested too deeply"):
        db.execute(text)
    assert db.execute("select * from t").fetchall() == [(1, 1)]


@pytest.mark.parametrize("parameters", [7, object(), "a", b"a"])
def test_parameters_that_are_neither_sequence_nor_mapping_are_refused(db: Any, parameters: Any) -> None:
    with pytest.raises(ProgrammingError, match="parameters are a sequence"):
        db.execute("select n from t where i = ?", parameters)


def test_a_long_list_is_no_deep_one(db: Any) -> None:
    numbers = ", ".join(map(str, range(DEEP)))
    assert db.execute(f"select n from t where i in ({numbers})").fetchall() == [(1,)]


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "sNaN"])
def test_decimals_that_are_no_numbers_are_refused(db: Any, number: str) -> None:
    db.execute("create table money (i int primary key, d decimal(10, 2))")
    db.execute("insert into money values (1, 1)")
    for text in ("update money set d = ?", "insert into money values (2, ?)", "select * from money where d = ?"):
        with pytest.raises(DataError):
            db.execute(text, (Decimal(number),)).fetchall()
    with pytest.raises(DataError):
        db.execute("select d + ? from money where i = 1", (Decimal(number),)).fetchall()
    assert db.execute("select * from money").fetchall() == [(1, Decimal("1.00"))]
