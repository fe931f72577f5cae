"""What Spark writes is in the table, as SQL reads it; or nothing is, and no file is left."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import gmdb
from gmdb.database.connection import Connection
from gmdb.format.columns import Column
from gmdb.spark.spark_types import spark_schema
from gmdb.storage.loads import LOADS_NAME
from tests.arrow.test_roundtrip import new_table, shared  # noqa: F401
from tests.arrow.values import stored, tables
from tests.integrity import assert_sound

pytestmark = pytest.mark.spark
Save = Callable[..., None]


@pytest.fixture
def save(path: Path) -> Save:
    """Write a DataFrame to the test's database: ``save(frame, "tbl", "append", createTable="true")``."""

    def write(frame: DataFrame, table: str, mode: str = "append", **options: Any) -> None:
        frame.write.format("gmdb").options(table=table, **options).mode(mode).save(str(path))

    return write


@pytest.fixture
def table(db: Connection) -> Connection:
    """A database that is open here, with a table tbl of ten rows and a unique index."""
    db.execute("create table tbl (i int primary key, s varchar(20))")
    db.append("tbl", pa.table({"i": range(10), "s": [f"text {n}" for n in range(10)]}))
    db.commit()
    return db


def numbers(spark: SparkSession, first: int, count: int, partitions: int = 2) -> DataFrame:
    frame = spark.range(first, first + count, numPartitions=partitions)
    return frame.selectExpr("cast(id as int) i", "concat('text ', id) s")


def content(db: Connection) -> list[tuple[Any, ...]]:
    found = db.execute("select i, s from tbl order by i").fetchall()
    db.commit()  # else the table would be held, and could not be overwritten
    return found


def expected(count: int, first: int = 0) -> list[tuple[int, str]]:
    return [(n, f"text {n}") for n in range(first, first + count)]


def refusal(action: Callable[[], Any]) -> str:
    with pytest.raises(PySparkException) as caught:
        action()
    return str(caught.value)


def assert_untouched(db: Connection) -> None:
    assert content(db) == expected(10)
    assert not (db.path / LOADS_NAME).exists()


# ---- what is written


@given(table=tables())
@settings(max_examples=8, deadline=None, phases=[Phase.generate])  # a write takes too long to look for smaller ones
def test_any_rows_of_any_types_are_what_sql_reads(spark, shared, table):  # noqa: F811
    columns, rows = table
    new_table(shared, columns)
    frame = spark.createDataFrame(rows, spark_schema(columns)).repartition(3)
    frame.write.format("gmdb").option("table", "t").mode("append").save(str(shared.path))
    found = shared.execute("select * from t").fetchall()
    as_stored = [tuple(plain(stored(c, v)) for c, v in zip(columns, row, strict=True)) for row in rows]
    assert sorted(map(repr, found)) == sorted(map(repr, as_stored))


def plain(value: Any) -> Any:
    """A value as it looks when it comes back: a time has no fold."""
    return value.replace(fold=0) if isinstance(value, datetime) else value


def test_rows_go_to_those_that_are_there(spark, table, save):
    save(numbers(spark, 10, 500, partitions=20), "tbl")
    assert content(table) == expected(510)
    assert table.execute("select s from tbl where i = 300").fetchall() == [("text 300",)]
    assert not (table.path / LOADS_NAME).exists()


def test_a_database_that_nobody_has_open_is_written_to(spark, path, save):
    with gmdb.connect(path) as db:
        db.create_table("tbl", {"i": "INT", "s": "VARCHAR(20)"})
    save(numbers(spark, 0, 50), "tbl")
    with gmdb.connect(path) as db:
        assert content(db) == expected(50)
    assert_sound(path)


def test_overwriting_takes_the_place_of_all_rows(spark, table, save):
    save(numbers(spark, 5, 300), "tbl", "overwrite")
    assert content(table) == expected(300, 5)
    save(numbers(spark, 0, 0), "tbl", "overwrite")
    assert content(table) == []


def test_a_dataframe_without_rows_changes_nothing(spark, table, save):
    save(numbers(spark, 0, 0), "tbl")
    save(spark.createDataFrame([], "i int, s string"), "tbl")
    assert_untouched(table)


def test_columns_go_by_their_names_and_take_smaller_types(spark, db, save):
    db.create_table("t", {"B": "BIGINT", "d": "DOUBLE", "m": "DECIMAL(12,2)", "at": "TIMESTAMP", "n": "INT"})
    db.commit()
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        at = "timestamp '2024-07-01 08:00:00'"
        save(spark.sql(f"select {at} as AT, 5 as m, 7Y as b, float(0.5) as D, null as N"), "t")
    finally:
        spark.conf.unset("spark.sql.session.timeZone")
    assert db.execute("select * from t").fetchall() == [(7, 0.5, Decimal("5.00"), datetime(2024, 7, 1, 12), None)]


def test_columns_that_are_missing_get_defaults_numbers_or_null(spark, db, save):
    db.execute(
        "create table t (id bigint generated always as identity, i int, s varchar(5) not null default 'none',"
        " at timestamp default current_timestamp, n int)"
    )
    db.commit()
    before = datetime.now()
    save(spark.range(1000).selectExpr("cast(id as int) i"), "t")
    query = "select count(*), count(distinct id), sum(i), min(s), max(s), count(n), count(distinct at), min(at) from t"
    *found, at = db.execute(query).fetchall()[0]
    assert found == [1000, 1000, 499500, "none", "none", 0, 1]
    assert before <= at <= datetime.now()


def test_large_objects_are_written(spark, db, save):
    db.create_table("t", {"i": "INT", "c": "CLOB", "b": "BLOB"})
    db.commit()
    save(spark.sql("select 1 as i, repeat('žluť', 20000) as c, binary(repeat('b', 30000)) as b"), "t")
    assert db.execute("select c, b from t").fetchall() == [("žluť" * 20000, b"b" * 30000)]


# ---- tables that are made


def test_a_table_is_made_out_of_the_schema(spark, path, save):
    frame = spark.sql(
        "select 1Y as y, 2S as s, 3 as i, 4L as l, float(5) as f, double(6) as d, true as t, date'2024-02-29' as day,"
        " timestamp_ntz'2024-02-29 01:02:03' as ntz, 7.89BD as m, 'text' as v, binary('x') as b, cast(null as int) as n"
    )
    save(frame, "made", createTable="true")
    save(frame, "made", createTable="true", stringLength="10")
    with gmdb.connect(path) as db:
        columns = db.table("made").columns
        assert [str(column.type) for column in columns] == [
            *("SMALLINT", "SMALLINT", "INT", "BIGINT", "REAL", "DOUBLE", "BOOLEAN", "DATE", "TIMESTAMP"),
            *("DECIMAL(3,2)", "VARCHAR(4000)", "VARBINARY(4000)", "INT"),
        ]
        assert [column.name for column in columns if column.nullable] == ["n"]
        row = (1, 2, 3, 4, 5.0, 6.0, True, date(2024, 2, 29), datetime(2024, 2, 29, 1, 2, 3), Decimal("7.89"))
        assert db.execute("select * from made").fetchall() == [(*row, "text", b"x", None)] * 2


def test_a_new_table_lies_and_keeps_strings_as_it_is_told(spark, db, save):
    db.create_tablespace("wide", page_size=32768)
    save(
        spark.sql("select repeat('x', 9000) as s"),
        "t",
        "overwrite",
        createTable="TRUE",
        stringLength="lob",
        tablespace="wide",
    )
    table = db.table("t")
    assert table.columns == (Column("s", table.columns[0].type, False),)
    assert str(table.columns[0].type) == "CLOB"
    assert db._page_format("t").page_size == 32768
    save(spark.sql("select 'abc' as s"), "u", createTable="true", stringLength="3")
    assert "too long for VARCHAR(3)" in refusal(lambda: save(spark.sql("select 'abcd' as s"), "u"))


def test_a_table_whose_rows_cannot_be_loaded_is_not_made(spark, db, save):
    frame = spark.sql("select 'abcd' as s")
    assert "too long" in refusal(lambda: save(frame, "t", createTable="true", stringLength="3"))
    assert db.tables() == []


# ---- what is refused


def test_a_key_that_is_there_fails_the_whole_load_and_is_named(spark, table, save):
    said = refusal(lambda: save(numbers(spark, 7, 100), "tbl"))
    assert "gmdb.errors.UniqueViolation: table tbl, index tbl_pkey (i)" in said
    assert "has the same key already: " in said
    assert_untouched(table)
    twice = numbers(spark, 10, 5).union(numbers(spark, 14, 5))
    assert "has the same key already: 14" in refusal(lambda: save(twice, "tbl"))
    assert_untouched(table)


def test_a_row_that_breaks_a_constraint_is_named(spark, table, save):
    table.execute("alter table tbl add constraint small check (i < 100)")
    table.commit()
    said = refusal(lambda: save(numbers(spark, 95, 10), "tbl"))
    assert "gmdb.errors.CheckViolation: partition 1: table tbl, constraint small: the row (100, 'text 100')" in said
    said = refusal(lambda: save(spark.sql("select cast(null as int) as i, 'x' as s"), "tbl"))
    assert "NullNotAllowed: partition 0: table tbl, column i: row 0 has no value" in said
    said = refusal(lambda: save(spark.sql("select 50 as i, repeat('x', 21) as s"), "tbl"))
    assert "partition 0: table tbl, column s, row 0: a value of 21 bytes is too long for VARCHAR(20)" in said
    assert_untouched(table)
    save(numbers(spark, 10, 90), "tbl")
    assert content(table) == expected(100)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("select 1L as i, 's' as s", "column i: it is INT, which does not take every bigint; cast it to int"),
        ("select 1 as i, 2 as s", "column s: it is VARCHAR(20), which does not take every int; cast it to string"),
        ("select 1 as i, 's' as s, 1 as t", "NoSuchColumn: table tbl has no column t; its columns are i, s"),
        ("select 's' as s", "the DataFrame has no column i, which is NOT NULL without a default"),
        ("select 1 as i, array(1) as s", "which does not take every array<int>"),
    ],
)
def test_a_schema_that_does_not_fit_is_refused(spark, table, save, query, message):
    assert message in refusal(lambda: save(spark.sql(query), "tbl"))
    assert_untouched(table)


def test_a_number_that_the_table_gives_is_not_taken(spark, db, save):
    db.execute("create table t (id int generated always as identity, i int)")
    db.execute("create table u (id int generated by default as identity, i int, check (id < 5))")
    db.commit()
    assert "it is generated always" in refusal(lambda: save(spark.sql("select 1 as id, 2 as i"), "t"))
    assert "a check asks for column id" in refusal(lambda: save(spark.sql("select 2 as i"), "u"))
    save(spark.sql("select 1 as id, 2 as i"), "u")
    assert db.execute("select * from u").fetchall() == [(1, 2)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "InterfaceError: say which table"),
        ({"table": "tbi"}, "NoSuchTable: there is no table tbi"),
        ({"table": "tbl", "columns": "i"}, "gmdb knows no option columns; its options are path, table, createTable"),
        ({"table": "tbl", "createTable": "yes"}, "createTable: 'yes' is neither true nor false"),
        ({"table": "tbl", "tablespace": "main"}, "tablespace is for new tables: it needs createTable=true"),
        ({"table": "t", "createTable": "true", "stringLength": "0"}, "stringLength: '0' is neither a number"),
        ({"table": "t", "createTable": "true", "tablespace": "no"}, "NoSuchTablespace"),
    ],
)
def test_a_wrong_option_is_named(spark, table, options, message):
    writer = numbers(spark, 10, 1).write.format("gmdb").options(**options).mode("append")
    assert message in refusal(lambda: writer.save(str(table.path)))
    assert_untouched(table)


def test_only_append_and_overwrite_are_modes(spark, table, save):
    for mode in ("errorifexists", "ignore"):
        said = refusal(lambda mode=mode: save(numbers(spark, 9, 1), "tbl", mode))
        assert 'Please use either the "Append" or "Overwrite" mode instead' in said
    assert_untouched(table)


def test_a_path_that_is_no_database_is_refused(spark, tmp_path):
    writer = numbers(spark, 0, 1).write.format("gmdb").option("table", "t").mode("append")
    assert "NotADatabase" in refusal(lambda: writer.save(str(tmp_path / "missing.gmdb")))
    assert not (tmp_path / "missing.gmdb").exists()


def test_a_task_that_fails_midway_leaves_nothing(spark, table, save):
    def fail_late(batches):
        for n, batch in enumerate(batches):
            yield batch
            if n == 3:
                raise ValueError("the source broke")

    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", 100)
    try:
        frame = numbers(spark, 10, 2000).mapInArrow(fail_late, "i int, s string")
        assert "the source broke" in refusal(lambda: save(frame, "tbl"))
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert_untouched(table)


# ---- at the same time


def test_two_loads_of_one_table_at_once_both_count(spark, table, save):
    def load(first: int) -> None:  # in a thread of its own, Spark knows of data sources only after createDataFrame
        save(spark.createDataFrame(expected(400, first), "i int, s string").repartition(2), "tbl")

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(load, (10, 410)))
    assert content(table) == expected(810)


def test_a_load_leaves_those_alone_who_work_in_other_tables(spark, table, save):
    table.execute("create table account (id int primary key, amount bigint)")
    table.append("account", pa.table({"id": range(10), "amount": [100] * 10}))
    table.commit()
    done, made = threading.Event(), []

    def transfer() -> None:
        with gmdb.connect(table.path) as db:
            while not done.is_set():
                db.execute("update account set amount = amount - 1 where id = ?", (len(made) % 10,))
                db.execute("update account set amount = amount + 1 where id = ?", ((len(made) + 3) % 10,))
                db.commit()
                made.append(1)

    thread = threading.Thread(target=transfer)
    thread.start()
    try:
        save(numbers(spark, 10, 5000), "tbl")
        save(numbers(spark, 0, 5000), "tbl", "overwrite")
    finally:
        done.set()
        thread.join(30)
    assert len(made) > 10
    assert content(table) == expected(5000)
    assert table.execute("select sum(amount) from account").fetchall() == [(1000,)]


GENERATED = """create table {} (id int {}, a int, s varchar(10), g int generated always as (a * 2) stored not null,
    u varchar(10) generated always as (upper(s)) stored, n bigint generated always as (id + a) stored)"""


def test_generated_columns_are_computed_by_tasks_and_by_the_owner(
    spark: SparkSession, db: Connection, save: Save
) -> None:
    db.execute(GENERATED.format("keyed", "primary key"))
    db.execute(GENERATED.format("numbered", "generated always as identity primary key"))
    db.commit()
    frame = spark.range(100, numPartitions=3).selectExpr("cast(id as int) id", "cast(id + 1 as int) a", "'x' || id s")
    save(frame, "keyed")
    save(frame.drop("id"), "numbered")
    wrong = "select count(*) from {} where g <> a * 2 or u is distinct from upper(s) or n <> id + a"
    for name in ("keyed", "numbered"):
        assert db.execute(wrong.format(name)).fetchall() == [(0,)]
    db.commit()
    changed = frame.filter("id > 90").unionAll(frame.filter("id < 5").selectExpr("id + 1000", "a", "s"))
    save(changed.selectExpr("id", "a + 7 a"), "keyed", apply="upsert")
    assert db.execute(wrong.format("keyed")).fetchall() == [(0,)]
    assert db.execute("select count(*), max(a) from keyed").fetchall() == [(105, 107)]
    db.commit()
    save(changed.selectExpr("id + 2000 id", "a", "s", "a * 2 g"), "keyed")  # the right values may be there
    with pytest.raises(PySparkException, match="is generated as"):
        save(changed.selectExpr("id + 3000 id", "a", "s", "a * 2 + 1 g"), "keyed")
    assert db.execute("select count(*) from keyed where id >= 2000").fetchall() == [(14,)]
    db.commit()


def test_a_table_of_a_schema_is_written_and_read_by_its_full_name(spark, table, save, path):
    table.execute("create schema s")
    table.commit()
    save(numbers(spark, 0, 5), "s.tbl", createTable="true")
    save(numbers(spark, 5, 5), "s.tbl")
    table.execute("create temp table mine as select 1 as i")
    table.commit()
    read = spark.read.format("gmdb")
    assert read.option("table", "s.tbl").load(str(path)).count() == 10
    assert read.option("table", "s.tbl").option("where", "i = 7").load(str(path)).count() == 1
    assert table.execute("select count(*), max(i) from s.tbl").fetchone() == (10, 9)
    assert "no table" in refusal(lambda: read.option("table", "pg_temp.mine").load(str(path)).count())


def test_rows_get_what_indexes_on_expressions_need(spark: SparkSession, db: Connection, save: Save) -> None:
    db.execute("create table tbl (i int primary key, s varchar(20))")
    db.execute("create unique index low on tbl (lower(s))")
    db.commit()
    save(numbers(spark, 0, 2000), "tbl")
    save(numbers(spark, 10, 2).selectExpr("i", "upper('New ' || i) s"), "tbl", apply="upsert")
    with pytest.raises(PySparkException, match="has the same key already"):
        save(numbers(spark, 5000, 1).selectExpr("i", "'TEXT 7' s"), "tbl")
    assert db.execute("select i from tbl where lower(s) in ('new 10', 'text 9', 'text 10') order by i").fetchall() == [
        (9,),
        (10,),
    ]
    frame = spark.read.format("gmdb").options(table="tbl").load(str(db.path))
    assert frame.columns == ["i", "s"]
    assert frame.filter("i = 10").collect() == [(10, "NEW 10")]
    db.commit()
