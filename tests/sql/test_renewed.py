"""DuckDB's own faults: statements do without it where they can, and the process goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gmdb.database.connection import Connection
from gmdb.errors import EngineFault
from gmdb.sql.duck import execution as running
from gmdb.sql.duck import instance as engine

FAULT = "INTERNAL Error: a column changed identity\n\nStack Trace:\n/some/where"
Break = Callable[[int], None]


@pytest.fixture
def duck(db: Connection) -> Connection:
    db.execute("create table t (i int)")
    db.execute("insert into t values (1), (2)")
    db._statements.executor = "duck"  # type: ignore[attr-defined]
    return db


@pytest.fixture
def break_duckdb(monkeypatch: pytest.MonkeyPatch) -> Break:
    """Has DuckDB fail so many times."""
    read = running.Execution._read

    def break_(count: int) -> None:
        def broken(execution: running.Execution) -> Any:
            nonlocal count
            count -= 1
            if count < 0:
                return read(execution)
            raise RuntimeError(FAULT)

        monkeypatch.setattr(running.Execution, "_read", broken)

    return break_


def test_a_query_at_which_duckdb_fails_is_run_by_rows(duck: Connection, break_duckdb: Break) -> None:
    break_duckdb(1)
    assert duck.execute("select sum(i) from t").fetchall() == [(3,)]
    assert duck.execute("select sum(i) from t").fetchall() == [(3,)]
    break_duckdb(1)
    duck.execute("insert into t select i + 10 from t where i = (select max(i) from t)")
    assert duck.execute("select i from t order by i").fetchall() == [(1,), (2,), (12,)]


def test_of_a_query_at_which_duckdb_fails_it_does_only_what_rows_cannot(duck: Connection, break_duckdb: Break) -> None:
    break_duckdb(1)
    query = "select a.i, sum(b.i) over (order by a.i) from t as a join t as b on a.i = b.i order by 1"
    assert duck.execute(query).fetchall() == [(1, 1), (2, 3)]


def test_a_fault_that_cannot_be_avoided_ends_one_statement_and_its_instance(
    duck: Connection, break_duckdb: Break
) -> None:
    window = "select rank() over (order by i) from t order by 1"
    assert duck.execute(window).fetchall() == [(1,), (2,)]
    instance = engine._instance
    break_duckdb(2)
    with pytest.raises(EngineFault, match=r"^DuckDB failed at the translated statement: [^\n]*identity$"):
        duck.execute(window).fetchall()
    assert duck.execute(window).fetchall() == [(1,), (2,)]
    assert engine._instance is not None
    assert engine._instance is not instance
