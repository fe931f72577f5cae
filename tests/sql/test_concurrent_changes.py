"""Updates whose rows a query finds, in several sessions at once: none is lost."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

import gmdb

THREADS, TIMES = 4, 15
STATEMENTS = {
    "a scan": "update t set n = n + 1 where s = 'name500'",
    "a subquery": "update t set n = n + (select 1) where i in (select i from u)",
    "another table": "update t set n = t.n + u.one from u where u.i = t.i",
    "merge": "merge into t using u on t.i = u.i when matched then update set n = t.n + u.one",
    "with": """with x as (update t set n = n + 1 where i = (select min(i) from u) returning i)
        update u set one = 1 where i in (select i from x)""",
}


@pytest.mark.parametrize("executor", ["rows", "duck"])
@pytest.mark.parametrize("statement", STATEMENTS.values(), ids=list(STATEMENTS))
def test_no_increment_is_lost(path: Path, statement: str, executor: str) -> None:
    with gmdb.connect(path) as db:
        db.execute("create table t (i int, s varchar(20), n int)")
        db.execute("create table u (i int, one int)")
        db.executemany("insert into t values (?, ?, 0)", [(i, f"name{i}") for i in range(20_000)])
        db.execute("insert into u values (500, 1)")
        db.commit()
        db.commit()
        failures: list[BaseException] = []

        def increment() -> None:
            try:
                with gmdb.connect(path) as other:
                    other._statements.executor = executor  # type: ignore[attr-defined]
                    for _ in range(TIMES):
                        assert other.execute(statement).rowcount == 1
                        other.commit()
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=increment) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        assert db.execute("select n from t where i = 500").fetchall() == [(THREADS * TIMES,)]
        assert db.execute("select sum(n) from t").fetchall() == [(THREADS * TIMES,)]


def test_a_table_that_goes_while_all_are_analyzed_is_left_out(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with gmdb.connect(path) as db, gmdb.connect(path) as other:
        for name in ("t", "gone", "u"):
            db.execute(f"create table {name} (i int primary key)")
        db.commit()
        tables = db.tables

        def list_and_drop() -> list[str]:
            listed = tables()
            other.execute("drop table gone")
            other.commit()
            return listed

        monkeypatch.setattr(db, "tables", list_and_drop)
        db.execute("analyze")
        assert [db.statistics(name) is not None for name in ("t", "u")] == [True, True]
