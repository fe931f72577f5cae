"""Arrays in Python: lists as values and parameters, and what goes by an index.  What they mean: slt/arrays.slt."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet

from gmdb.cli import main
from gmdb.database.connection import Connection
from gmdb.errors import IllTyped, TypeMismatch, ValueOutOfRange, ValueTooLong


@pytest.fixture
def table(db: Connection) -> Connection:
    db.execute("create table t (id int primary key, n bigint, s text, a int[])")
    db.execute("create index t_n on t (n)")
    rows = [(i, i % 100, str(i), [i, None]) for i in range(2000)]
    db.executemany("insert into t values (?, ?, ?, ?)", rows)
    db.commit()
    return db


@pytest.mark.parametrize("executor", ["rows", "duck", None])
def test_any_of_a_list_finds_what_in_finds(table: Connection, executor: str | None) -> None:
    table._statements.executor = executor  # type: ignore[attr-defined]

    def found(condition: str, values: list[Any]) -> list[int]:
        return [row[0] for row in table.execute(f"select id from t where {condition} order by id", (values,))]

    assert found("id = any(?)", [3, 1, 3, None, 5000]) == [1, 3]
    assert found("id = any(?) and n > 1", [3, 1]) == [3]
    assert found("id = any(?) or id = 7", [3]) == [3, 7]
    assert found("n = any(?) and id < 300", [5, 2**40]) == [5, 105, 205]
    assert found("s = any(?)", ["17", "x"]) == [17]
    assert found("id = any(?)", []) == []
    assert found("id = any(?)", [None]) == []
    assert found("id <> all(?) and id < 4", [1, 2]) == [0, 3]
    assert found("id <> all(?) and id < 4", [1, None]) == []
    assert found("id <> all(?) and id < 2", []) == [0, 1]
    assert found("? = a", [9, None]) == [9]
    assert found("a @> ?", [12]) == [12]
    assert found("id = any(?)", list(range(500))) == list(range(500))


def test_any_of_a_list_goes_by_an_index(table: Connection) -> None:
    def plan(text: str) -> str:
        return "\n".join(row[0] for row in table.execute(f"explain {text}", ([1, 2],)))

    for text, index in (
        ("select * from t where id = any(?)", "t_pkey"),
        ("select * from t where n = any(?)", "t_n"),
        ("delete from t where id = any(?)", "t_pkey"),
        ("update t set s = '' where id = any(?)", "t_pkey"),
    ):
        assert f"of t by index {index}" in plan(text), text
    table.execute("delete from t where id = any(?)", ([1, 2, 3],))
    assert table.execute("select count(*) from t where id < 6").fetchone() == (3,)


def test_one_plan_serves_lists_of_every_length(table: Connection) -> None:
    text = "select count(*) from t where id = any(?)"
    for values in ([1], [1, 2], list(range(50)), [None, 3]):
        table.execute(text, (values,)).fetchall()
    assert len(table._statements._cache[text].variants) == 1  # type: ignore[attr-defined]


def test_a_list_is_of_the_type_of_its_elements(db: Connection) -> None:
    day, moment = date(2024, 2, 29), datetime(2024, 2, 29, 12)
    for values, type_ in (
        ([1, None], "integer[]"),
        ([1, 2**40], "bigint[]"),
        ([1, Decimal("1.50")], "numeric[]"),
        ([1, 1.5], "double precision[]"),
        (["a", None], "text[]"),
        ([True], "boolean[]"),
        ([b"\xff"], "bytea[]"),
        ([day], "date[]"),
        ([moment, None], "timestamp without time zone[]"),
    ):
        row = db.execute("select pg_typeof(?), ?, cardinality(?)", (values,) * 3).fetchone()
        assert row == (type_, values, len(values))
    assert db.execute("select ?", ([day, moment],)).fetchone() == ([datetime(2024, 2, 29), moment],)
    assert db.execute("select cardinality(?), array_length(?, 1)", ([], [])).fetchone() == (0, None)


@pytest.mark.parametrize(
    ("values", "error", "said"),
    [
        ([[object()]], TypeMismatch, "cannot be"),
        ([object()], TypeMismatch, "cannot be"),
        ({1}, TypeMismatch, "cannot be"),
    ],
)
def test_a_list_that_is_no_array_is_refused(db: Connection, values: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        db.execute("select ?", (values,))


def test_what_a_column_cannot_have_is_refused(db: Connection) -> None:
    db.execute("create table t (id int primary key, a int[], v varchar(3)[], n numeric(4,1)[])")
    insert = "insert into t (id, {}) values (1, ?)"
    with pytest.raises(TypeMismatch):
        db.execute(insert.format("a"), (5,))
    with pytest.raises(TypeMismatch):
        db.execute(insert.format("a"), ([1.5],))
    with pytest.raises(ValueOutOfRange):
        db.execute(insert.format("a"), ([2**31],))
    with pytest.raises(ValueTooLong):
        db.execute(insert.format("v"), (["abcd"],))
    with pytest.raises(ValueTooLong):
        db.execute("insert into t (id, v) values (1, '{abcd}')")
    with pytest.raises(ValueOutOfRange):
        db.execute(insert.format("n"), ([Decimal("1234.5")],))
    with pytest.raises(IllTyped):
        db.execute("insert into t (id, a) values (1, array['1'])")
    db.execute("insert into t values (1, ?, ?, ?)", ("{1,NULL}", ("abc",), [1, Decimal("2.25"), 0.5]))
    assert db.execute("select a, v, n from t").fetchone() == (
        [1, None],
        ["abc"],
        [Decimal("1.0"), Decimal("2.3"), Decimal("0.5")],
    )


@pytest.mark.parametrize("executor", ["rows", "duck"])
def test_each_row_has_a_list_of_its_own(table: Connection, executor: str) -> None:
    table._statements.executor = executor  # type: ignore[attr-defined]
    for text in (
        "select '{1,2}'::int[] from t where id < 2",
        "select q.a from t, (select a from t where id = 1) as q where id < 2",
        "select array_agg(n) over (order by id) from t where id < 2",
    ):
        first, second = table.execute(text).fetchall()
        assert type(first[0]) is list
        first[0].append(7)
        assert second[0] != first[0]
        assert table.execute(text).fetchone() != first
    row = table.execute("update t set s = 'x' where id = 1 returning a, array[1]").fetchone()
    assert row == ([1, None], [1])


def test_tools_show_arrays(db: Connection, path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    db.execute("create table t (i int, a text[], n numeric(8,2)[])")
    db.execute("insert into t values (1, '{x,NULL,\"a b\"}', '{1.50}'), (2, '{}', null)")
    db.commit()
    asked = ["sql", str(path), "-c", "select a, n from t order by i", "--output"]
    for output, expected in (
        ("json", '{"a": ["x", null, "a b"], "n": [1.50]}'),
        ("csv", '"{x,NULL,""a b""}",{1.50}'),
        ("table", '{x,NULL,"a b"} {1.50}'),
    ):
        assert main([*asked, output]) == 0
        assert expected in capsys.readouterr().out
    db.checkpoint()
    assert main(["stat", "rows", str(path), "t"]) == 0
    assert "['x', None, 'a b']  [Decimal('1.50')]" in capsys.readouterr().out
    parquet.write_table(db.execute("select * from t").arrow(), tmp_path / "again.parquet")
    db.commit()
    assert main(["import", str(tmp_path / "again.parquet"), "--into", str(path)]) == 0
    types = "select column_name, data_type, udt_name from information_schema.columns where table_name = 'again'"
    assert db.execute(f"{types} order by 1").fetchall() == [
        ("a", "ARRAY", "_varchar"),
        ("i", "integer", "int4"),
        ("n", "ARRAY", "_numeric"),
    ]
    assert (
        db.execute("select * from again order by i").fetchall() == db.execute("select * from t order by i").fetchall()
    )


def test_an_array_of_any_length_is_kept(db: Connection) -> None:
    db.execute("create table t (id int primary key, a bigint[], s text[])")
    long, texts = list(range(100_000)), ["ü" * 3000, None] * 20
    db.execute("insert into t values (1, ?, ?)", (long, texts))
    db.execute("insert into t select 2, a || 7::bigint, s[1:3] from t")
    assert db.execute("select a, s from t where id = 1").fetchone() == (long, texts)
    assert db.execute("select a[100001], cardinality(s), s[3] = s[1] from t where id = 2").fetchone() == (7, 3, True)
    assert db.execute("select sum(x) from t, unnest(a) as x where id = 1").fetchone() == (sum(long),)
    db.execute("update t set a = a[1:2]")
    assert db.execute("select distinct a from t").fetchall() == [([0, 1],)]
