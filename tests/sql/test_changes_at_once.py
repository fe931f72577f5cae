"""Rows that keys lead to are changed at once in a transaction that is open; what cannot be has done nothing."""

from __future__ import annotations

from typing import Any

import pytest

from gmdb.errors import CheckViolation, DivisionByZero, LockTimeout, NullNotAllowed, UniqueViolation
from tests.sessions import Connect, answer, connect, in_thread, until  # noqa: F401

UPDATE = "update t set a = a + ? where g in (select i from p where i = ?)"
DELETE = "delete from t using p where t.g = p.i and p.i = ?"
ROWS, GROUPS = 60, 12


@pytest.fixture
def tables(db: Any) -> Any:
    """Twelve groups of five rows each; a transaction is open."""
    db.execute("create table t (i int primary key, g int, a int not null check (a < 1000), u int, s varchar(4000))")
    db.execute("create table p (i int primary key)")
    db.executemany("insert into p values (?)", [(n,) for n in range(GROUPS)])
    db.executemany("insert into t values (?, ?, ?, ?, ?)", [(n, n % GROUPS, n, n, f"s{n}") for n in range(ROWS)])
    db.execute("create index t_g on t (g)")
    db.execute("create unique index t_u on t (u)")
    db.commit()
    db.execute("insert into p values (100)")
    return db


def values(db: Any, group: int, column: str = "a") -> list[Any]:
    return [value for (value,) in db.execute(f"select {column} from t where g = ? order by i", (group,))]


def changes_at_once(db: Any, text: str, parameters: Any) -> int:
    """How many rows a statement changes, which must not take the long way."""
    for _ in range(2):
        db.savepoint("here")
        db.execute(text, parameters)
        db.rollback_to("here")
    ((_, statement),) = db._statements._cache[text].variants
    run = statement._run
    statement._run = None
    try:
        changed: int = db.execute(text, parameters).rowcount
        return changed
    finally:
        statement._run = run


def test_rows_that_a_query_finds_are_changed_at_once(tables: Any) -> None:
    assert changes_at_once(tables, UPDATE, (1, 3)) == 5
    assert values(tables, 3) == [4, 16, 28, 40, 52]
    assert changes_at_once(tables, DELETE, (3,)) == 5
    assert [values(tables, 3), len(values(tables, 4))] == [[], 5]
    assert changes_at_once(tables, UPDATE, (1, 3)) == 0
    tables.rollback()
    assert values(tables, 3) == [3, 15, 27, 39, 51]


def test_several_columns_and_rows_of_one_key_are_changed_at_once(tables: Any) -> None:
    assert changes_at_once(tables, "update t set s = s || ?, u = null, a = u where g = ?", ("!", 2)) == 5
    assert values(tables, 2, "s") == ["s2!", "s14!", "s26!", "s38!", "s50!"]
    assert [values(tables, 2, "u"), values(tables, 2)] == [[None] * 5, [2, 14, 26, 38, 50]]
    exists = "delete from t where i = ? and exists (select 1 from p where p.i = t.g)"
    assert changes_at_once(tables, exists, (14,)) == 1
    assert values(tables, 2) == [2, 26, 38, 50]


def test_a_row_that_is_joined_with_several_is_changed_once(tables: Any) -> None:
    assert changes_at_once(tables, "update t set a = t.a + 1 from t o where o.g = t.g and t.i = ?", (3,)) == 1
    assert values(tables, 3) == [4, 15, 27, 39, 51]
    assert changes_at_once(tables, "update t set a = t.a + 1 from t o where o.g = t.g and t.g = ?", (4,)) == 5
    assert values(tables, 4) == [5, 17, 29, 41, 53]


@pytest.mark.parametrize(
    ("text", "error", "said"),
    [
        ("update t set u = 33 where g = ?", UniqueViolation, r"t_u \(u\).*: 33"),
        ("update t set u = 7 + i / 13 where g = ?", UniqueViolation, r"same key already: 7"),
        ("update t set a = a * 25 where g = ?", CheckViolation, "a < 1000"),
        ("update t set a = case when i < 30 then a end where g = ?", NullNotAllowed, "column a is NOT NULL"),
        ("update t set a = 10 / (i - 27) where g = ?", DivisionByZero, "zero"),
    ],
)
def test_a_statement_that_breaks_anything_has_changed_nothing(tables: Any, text: str, error: Any, said: str) -> None:
    tables.execute("update t set a = a + 1 where g = 3")
    before = tables.execute("select * from t order by i").fetchall()
    for _ in range(3):
        with pytest.raises(error, match=said):
            tables.execute(text, (3,))
        assert tables.execute("select * from t order by i").fetchall() == before
    tables.execute("update t set a = 0 where i = 3")
    tables.commit()
    assert values(tables, 3) == [0, 16, 28, 40, 52]


def test_a_row_that_another_session_holds_takes_back_what_was_changed_before_it(
    tables: Any,
    connect: Connect,  # noqa: F811
) -> None:
    assert changes_at_once(tables, UPDATE, (1, 3)) == 5
    tables.session.lock_timeout = 0.01
    other = connect()
    other.execute("select * from t where i = 40 for update").fetchall()
    with pytest.raises(LockTimeout):
        tables.execute(UPDATE, (1, 4))
    assert values(tables, 4) == [4, 16, 28, 40, 52]
    other.rollback()
    assert tables.execute(UPDATE, (1, 4)).rowcount == 5
    tables.commit()
    assert [values(tables, 3), values(tables, 4)] == [[4, 16, 28, 40, 52], [5, 17, 29, 41, 53]]


def test_a_row_that_changes_while_it_is_waited_for_is_looked_at_again(
    tables: Any,
    connect: Connect,  # noqa: F811
) -> None:
    tables.session.lock_timeout = 300.0
    other = connect()
    other.execute("update t set g = 5, a = 100 where i = 40")
    changing = in_thread(lambda: tables.execute("update t set a = a + 1 where g = 4").rowcount)
    until(lambda: tables.session.hub.waits.is_waiting(tables.session))
    other.commit()
    assert answer(changing) == 4
    assert [values(tables, 4), values(tables, 5)] == [[5, 17, 29, 53], [5, 17, 29, 100, 41, 53]]


def test_many_and_wide_rows_are_changed_in_batches(tables: Any) -> None:
    tables.execute("delete from t")
    rows = [(n, 77, n % 100, n, "x" * (n % 7 * 500)) for n in range(1000)]
    tables.executemany("insert into t values (?, ?, ?, ?, ?)", rows)
    for n in range(1, 6):
        assert tables.execute("update t set a = a + 1, s = s || ? where g = ?", (str(n), 77)).rowcount == 1000
    expected = [(n, a + 5, s + "12345") for n, _, a, _, s in rows]
    assert tables.execute("select i, a, s from t order by i").fetchall() == expected
    assert tables.execute("delete from t where g = ? and i <> 500", (77,)).rowcount == 999
    assert tables.execute("select i from t").fetchall() == [(500,)]


def test_what_others_have_defined_anew_is_changed_as_it_is_now(
    tables: Any,
    connect: Connect,  # noqa: F811
) -> None:
    text = "update t set a = a + 1 where g = ?"
    assert changes_at_once(tables, text, (3,)) == 5
    tables.commit()
    other = connect(lock_timeout=300.0)
    other.execute("alter table t add column more int default 5")
    other.execute("drop index t_g")
    other.commit()
    for n in range(2, 5):
        assert tables.execute(text, (3,)).rowcount == 5
        assert values(tables, 3) == [a + n for a in (3, 15, 27, 39, 51)]
    assert tables.execute("select more from t where i = 3").fetchall() == [(5,)]
