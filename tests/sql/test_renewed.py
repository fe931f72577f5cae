"""DuckDB's own faults: a statement meets one, and the process goes on."""

from __future__ import annotations

from typing import Any

import pytest

from gmdb.connection import Connection
from gmdb.errors import InternalError
from gmdb.sql.duck import answer, engine


def test_a_fault_of_duckdbs_own_ends_one_statement_and_its_instance(
    db: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    db.execute("create table t (i int)")
    db.execute("insert into t values (1), (2)")
    db._statements.executor = "duck"  # type: ignore[attr-defined]
    assert db.execute("select sum(i) from t").fetchall() == [(3,)]
    instance = engine._instance
    read = answer.Execution._read

    def broken(_: answer.Execution) -> Any:
        raise RuntimeError("INTERNAL Error: a column changed identity\n\nStack Trace:\n/some/where")

    monkeypatch.setattr(answer.Execution, "_read", broken)
    with pytest.raises(InternalError, match=r"^DuckDB failed at the translated statement: [^\n]*identity$"):
        db.execute("select sum(i) from t").fetchall()
    monkeypatch.setattr(answer.Execution, "_read", read)
    assert db.execute("select sum(i) from t").fetchall() == [(3,)]
    assert engine._instance is not None
    assert engine._instance is not instance
