"""Indexes on expressions: every way to a row keeps them, and every way of writing the expression uses them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import gmdb
import sqlalchemy as sa
from gmdb.database.connection import Connection
from gmdb.database.copies import restore
from gmdb.errors import (
    InvalidSyntax,
    SchemaError,
    SerializationFailure,
    UniqueViolation,
    UnsupportedExpression,
    ValueTooLong,
)
from tests.server.peer import Peer
from tests.sql.test_planning import plan

INDEXES = """create index t_lower on t (lower(name)); create unique index t_sum on t ((a + b) desc, lower(name));
    create index t_hash on t using hash (upper(name)) where a > 5; create index t_half on t ((x / 2), a)"""


@pytest.fixture(params=["here", "through an owner"])
def made(request: pytest.FixtureRequest, path: Path, peer: Peer) -> Iterator[Connection]:
    """A table with indexes on expressions, which are compared with its rows in the end."""
    if request.param != "here":
        peer("db = gmdb.connect(path)", path=str(path))
    with gmdb.connect(path) as db:
        db.execute("create table t (id int primary key, a int, b int, name varchar(20), x double precision, s text)")
        db.executemany("insert into t values (?, ?, 1, ?, ?, '')", [(n, n, f"Name{n % 30}", n / 4) for n in range(90)])
        db.executescript(INDEXES)
        db.commit()
        yield db
        db.rollback()
        require_right(db)
        db.commit()
    if request.param != "here":
        peer("db.close()")


def require_right(db: Connection) -> None:
    """Rows by each index are those that the table has, in its order; and pages are sound."""
    rows = db.execute("select id, a, b, name, x from t").fetchall()
    heap = db.heap("t")
    lower = [None if row[3] is None else row[3].lower() for row in rows]
    half = [None if row[4] is None else row[4] / 2 for row in rows]
    for name, expected in (("t_lower", lower), ("t_half", half)):
        own = dict(zip(rows, expected, strict=True))
        found = [own[values[:5]] for _, values in heap.by(name).range()]
        assert found == sorted(expected, key=lambda key: (key is None, key))
    assert not db.verify().findings


def ids(db: Connection, condition: str, *values: Any) -> list[int]:
    return sorted(row[0] for row in db.execute(f"select id from t where {condition}", values))


def test_rows_come_and_change_by_every_way(made: Connection) -> None:
    made.execute("insert into t values (100, 1, 5, 'Zed', 3, 'q'), (101, 6, 5, null, null, 'q')")
    made.execute("update t set name = name || 'X' where id = 100")
    made.execute("update t set a = a + 100 where id < 10")
    made.execute("update t set b = 7, name = 'Many' || id")
    heap = made.heap("t")
    row_id = heap.insert((102, 1, 1, "Heap", None, ""))
    heap.update(row_id, {"name": "Heap2", "a": 9})
    heap.update(row_id, (102, 9, 9, "HEAP3", 2.0, ""))
    made.append(
        "t",
        pa.table(
            {
                name: pa.array([n, n + 1], type_)
                for n, (name, type_) in zip(
                    (200, 3, 4), (("id", pa.int32()), ("a", pa.int32()), ("b", pa.int32())), strict=True
                )
            }
            | {"name": ["PA", None], "x": [1.0, None], "s": ["", None]}
        ),
    )
    made.executemany("insert into t values (?, ?, 2, ?, 1, '')", [(n, n, f"Bulk{n}") for n in range(1000, 2500)])
    made.execute("insert into t select id + 5000, a, b, 'Copy' || id, x, s from t where id > 1500")
    made.execute("delete from t where id % 7 = 0")
    assert ids(made, "lower(name) = 'heap3'") == [102]
    assert ids(made, "upper(name) = 'BULK1501' and a > 5") == [1501]
    assert ids(made, "a + b = 1503 and lower(name) = 'bulk1501'") == [1501]
    assert ids(made, "lower(name) = 'pa'") == [200]
    assert heap.by("t_lower").find(("heap3",)) == [(row_id, (102, 9, 9, "HEAP3", 2.0, ""))]
    assert made.arrow("t").schema.names == ["id", "a", "b", "name", "x", "s"]
    made.commit()


def test_what_is_taken_back_leaves_no_entry(made: Connection) -> None:
    made.savepoint("s")
    made.execute("update t set name = 'gone'")
    made.rollback_to("s")
    with pytest.raises(UniqueViolation):
        made.execute("update t set name = 'same', a = 1, b = 2")
    assert ids(made, "lower(name) = 'gone'") == []
    made.execute("create index t_more on t ((a * b))")
    made.execute("insert into t values (300, 3, 3, 'New', 1, '')")
    made.rollback()
    assert all(index.name != "t_more" for index in made.table("t").indexes)


@pytest.mark.parametrize(
    ("condition", "index"),
    [
        ("lower(name) = 'name7'", "t_lower (LOWER(name) = 'name7')"),
        ("'name7' = lower(q.name)", "t_lower (LOWER(name) = 'name7')"),
        ("lower(name) >= 'name7' and lower(name) < 'name8'", "t_lower (LOWER(name) >= 'name7', LOWER(name) < 'name8')"),
        ("lower(name) like 'name7%'", "t_lower (LOWER(name) >= 'name7'"),
        ("lower(name) in ('name7', 'name8')", "t_lower (2 ranges of LOWER(name))"),
        ("(((a + q.b))) = 12 and lower(name) = 'name11'", "t_sum (a + b = 12, LOWER(name) = 'name11')"),
        ("a > 7 and upper(name) = 'NAME8'", "t_hash (UPPER(name) = 'NAME8', where a > 5)"),
        ("x / 2 = 2", "t_half (x / 2 = 2.0)"),
    ],
)
def test_a_condition_uses_them_however_it_is_written(db: Connection, condition: str, index: str) -> None:
    db.execute("create table t (id int primary key, a int, b int, name varchar(20), x double precision, s text)")
    db.executemany("insert into t values (?, ?, 1, ?, ?, '')", [(n, n, f"Name{n}", n / 4) for n in range(3000)])
    without = db.execute(f"select id from t as q where {condition} order by id").fetchall()
    db.executescript(INDEXES)
    assert without
    assert index in plan(db, f"select id from t as q where {condition}")
    assert db.execute(f"select id from t as q where {condition} order by id").fetchall() == without


def test_rows_come_sorted_and_joined_by_them(db: Connection) -> None:
    db.execute("create table t (id int primary key, name varchar(20))")
    db.executemany("insert into t values (?, ?)", [(n, f"Name{n:04}") for n in range(3000)])
    db.execute("create index t_lower on t (lower(name) desc)")
    query = "select id, lower(name) as low from t order by lower(name) desc nulls first limit 2"
    assert "in order" in plan(db, query)
    assert db.execute(query).fetchall() == [(2999, "name2999"), (2998, "name2998")]
    join = (
        "select t.id from (values ('NAME0007'), ('name0009')) as v (k) join t on lower(t.name) = lower(v.k) order by 1"
    )
    assert "t_lower" in plan(db, join)
    assert db.execute(join).fetchall() == [(7,), (9,)]


def test_on_conflict_goes_by_an_expression(db: Connection) -> None:
    db.execute("create table t (id int, name varchar(20), n int default 0)")
    db.execute("create unique index on t (lower(name))")
    db.execute("insert into t values (1, 'Ann')")
    db.execute("insert into t values (2, 'ANN') on conflict (lower(t.name)) do update set n = t.n + excluded.id")
    db.execute("insert into t values (3, 'aNN') on conflict do nothing")
    assert db.execute("select * from t").fetchall() == [(1, "Ann", 2)]
    with pytest.raises(SchemaError, match="no unique index"):
        db.execute("insert into t values (3, 'aNN') on conflict (upper(name)) do nothing")


def test_merge_changes_and_shows_rows(db: Connection) -> None:
    db.execute("create table t (id int primary key, name varchar(20), c clob)")
    db.execute("create unique index on t (lower(name))")
    db.execute("insert into t values (1, 'Ann', 'x'), (2, 'Bob', 'y'), (3, 'Cat', 'z')")
    source = "(values (1, 'EVE'), (2, null), (4, 'Dan')) as v (i, n)"
    merged = db.execute(
        f"merge into t using {source} on v.i = t.id when matched and n is null then delete"
        " when matched then update set name = n when not matched then insert (id, name) values (i, n)"
        " returning merge_action(), t.*, v.n"
    )
    assert sorted((row[0], *row[1:3], row[-1]) for row in merged) == [
        ("DELETE", 2, "Bob", None),
        ("INSERT", 4, "Dan", "Dan"),
        ("UPDATE", 1, "EVE", "EVE"),
    ]
    assert ids(db, "lower(name) = 'eve'") == [1]
    with pytest.raises(UniqueViolation, match="cat"):
        db.execute("merge into t using t as v on v.id = t.id when matched and t.id = 1 then update set name = 'CAT'")


def test_errors_tell_of_columns_alone(made: Connection) -> None:
    made.execute("create index on t (lower(s))")
    heap = made.heap("t")
    row_id = next(row_id for row_id, _ in heap.rows())
    for wrong, message in (
        (lambda: made.insert("t", (1, 2)), "^2 values for 6 columns$"),
        (lambda: heap.update(row_id, (1, 2)), "^2 values for 6 columns$"),
        (lambda: heap.update(row_id, {"no": 1}), "no column no; its columns are id, a, b, name, x, s$"),
        (lambda: made.execute("update t set s = ? where id = 5", ("k" * 5000,)), r"index on LOWER\(s\): a key has at"),
    ):
        with pytest.raises(gmdb.Error, match=message):
            wrong()


def test_a_table_with_such_indexes_is_altered(made: Connection) -> None:
    made.execute("alter table t add column c int default 4, add column d int")
    made.execute("alter table t rename column name to called")
    made.execute("alter table t alter column called type varchar(60)")
    made.execute("insert into t (id, a, b, called) values (400, 4, 4, 'Later')")
    assert ids(made, "lower(called) = 'later'") == [400]
    made.execute("drop index t_half")
    made.execute("update t set x = 1")
    made.append("t", made.execute("select id + 500 as id, a + 600 as a, b, called, x, s, c, d from t").arrow())
    made.execute("alter table t drop column x")
    assert ids(made, "lower(called) = 'later'") == [400, 900]
    made.execute("alter table t drop column b")
    assert sorted(index.name for index in made.table("t").indexes) == ["t_hash", "t_lower", "t_pkey"]
    made.execute("truncate t")
    made.execute("insert into t (id, a, called) values (1, 1, 'First')")
    assert ids(made, "lower(called) = 'first'") == [1]


@pytest.mark.parametrize(
    "statement",
    [
        "create index on t (now())",
        "create index on t (random())",
        "create index on t ((z::date))",
        "alter table t add column g date generated always as (z::date) stored",
        "create index on t ((select 1))",
        "create index on t ((1))",
        "create index on t ((a + b), (b / 0 + nothing))",
        "create index concurrently on t ((a + 1))",
        "create index on t (a + b)",
    ],
)
def test_what_cannot_be_indexed_is_refused(db: Connection, statement: str) -> None:
    db.execute("create table t (a int, b int, z timestamptz)")
    with pytest.raises((UnsupportedExpression, InvalidSyntax, gmdb.ProgrammingError)):
        db.execute(statement)
    assert not db.table("t").indexes


def test_an_expression_that_is_a_column_is_that_column(db: Connection) -> None:
    db.execute("create table c (name text, i int)")
    db.execute('create index c_name on c ((i), name collate "C" desc)')
    assert db.execute("select name, columns from sys_index_definitions").fetchall() == [("c_name", "i, name desc")]


def test_an_expression_that_fails_refuses_rows_only_as_long_as_the_index_is_there(db: Connection) -> None:
    db.execute("create table t (a int, s text)")
    db.execute("insert into t values (1, 'x')")
    db.execute("create index i on t ((10 / a), lower(s))")
    for row in ("(0, 'x')", "(1, repeat('x', 5000))"):
        with pytest.raises(gmdb.DataError):
            db.execute(f"insert into t values {row}")
    db.execute("drop index i")
    db.execute("insert into t values (0, repeat('x', 5000))")
    with pytest.raises(gmdb.DataError):
        db.execute("create index i on t ((10 / a))")
    with pytest.raises(ValueTooLong, match="an index on LOWER"):
        db.execute("create index i on t (lower(s))")
    assert db.execute("select count(*) from t").fetchall() == [(2,)]


def test_serializable_transactions_meet_by_expressions(path: Path) -> None:
    with gmdb.connect(path) as one, gmdb.connect(path) as other:
        one.execute("create table t (id int primary key, name varchar(20))")
        one.execute("create unique index i on t (lower(name))")
        one.execute("insert into t values (1, 'A'), (2, 'B')")
        one.commit()
        one.isolation = other.isolation = "serializable"
        assert ids(one, "lower(name) = 'c'") == ids(other, "lower(name) = 'd'") == []
        one.execute("insert into t values (3, 'D')")
        other.execute("insert into t values (4, 'C')")
        one.commit()
        with pytest.raises(SerializationFailure):
            other.commit()
        other.rollback()


def test_a_feed_a_backup_and_the_catalog_know_them(db: Connection, tmp_path: Path) -> None:
    db.execute("create table t (id int primary key, name text) with (change_feed = true)")
    db.execute("create unique index i on t (lower(name) desc)")
    db.commit()
    feed = db.changes()
    db.execute("insert into t values (1, 'Ann')")
    db.commit()
    assert [change.row for change in feed] == [{"id": 1, "name": "Ann"}]
    db.backup(tmp_path / "copy")
    restore(tmp_path / "copy", tmp_path / "restored.gmdb")
    with gmdb.connect(tmp_path / "restored.gmdb") as restored, pytest.raises(UniqueViolation, match="LOWER"):
        restored.execute("insert into t values (2, 'ANN')")
    text = "CREATE UNIQUE INDEX i ON public.t USING btree ((LOWER(name)) DESC)"
    assert db.execute("select indexdef from pg_catalog.pg_indexes where indexname = 'i'").fetchall() == [(text,)]
    assert db.execute("select columns from sys_index_definitions where name = 'i'").fetchall() == [
        ("LOWER(name) desc",)
    ]
    db.execute("drop index i")
    db.execute(text)
    (row,) = db.inspect("rows", "t").to_pylist()
    assert (row["id"], row["name"], row["_problem"]) == (1, "Ann", None)


def test_sqlalchemy_makes_and_reflects_them(path: Path) -> None:
    engine = sa.create_engine(f"gmdb:///{path}")
    meta = sa.MetaData()
    table = sa.Table("t", meta, sa.Column("a", sa.Integer), sa.Column("name", sa.String(20)))
    sa.Index("i", sa.func.lower(table.c.name), table.c.a.desc(), unique=True)
    meta.create_all(engine)
    (found,) = sa.inspect(engine).get_indexes("t")
    assert (found["column_names"], found["expressions"]) == ([None, "a"], ["LOWER(name)", "a"])
    engine.dispose()
