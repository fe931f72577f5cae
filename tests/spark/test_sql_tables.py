"""Databases in Spark's SQL: tables of its catalog, views, and CHAR columns, which compare as they do in gmdb."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (as Spark's own pages have it)

import gmdb

pytestmark = pytest.mark.spark
ROWS = [(1, "a", "a"), (2, "b", "x"), (3, "ab", "ab"), (4, "é", "é"), (5, None, None)]


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("char") / "shop.gmdb"
    with gmdb.connect(path) as db:
        for table in ("tbl", "copy"):
            db.execute(f"create table {table} (i int, ch char(5), v varchar(9))")
        db.execute("create table short (ch char(2))")
        db.executemany("insert into tbl values (?, ?, ?)", ROWS)
        db.executemany("insert into short values (?)", [("a",), ("ab",), ("é",)])
        db.commit()
    return path


@pytest.fixture(scope="module")
def frame(spark: SparkSession, database: Path) -> DataFrame:
    return spark.read.format("gmdb").option("table", "tbl").load(str(database))


CONDITIONS = [
    "ch = 'a'",
    "ch = 'a  '",
    "ch = 'a       '",
    "ch <> 'a'",
    "ch in ('a', 'b', 'é')",
    "ch < 'b'",
    "ch >= 'a' and ch <= 'ab'",
    "ch = 'é'",
    "'ab' = ch",
    "ch like 'a'",
    "ch like 'a%'",
    "ch is null",
    "ch = 'a' or v = 'x'",
]


def test_a_condition_on_char_finds_the_same_rows_in_spark_and_in_gmdb(
    spark: SparkSession, database: Path, frame: DataFrame
) -> None:
    with gmdb.connect(database) as db:
        wanted = [[i for (i,) in db.execute(f"select i from tbl where {c} order by i").fetchall()] for c in CONDITIONS]
    kept = spark.conf.get("spark.sql.readSideCharPadding")
    for padding in ("true", "false"):
        spark.conf.set("spark.sql.readSideCharPadding", padding)
        try:
            # one job for all conditions
            counts = [F.collect_list(F.when(F.expr(c), F.col("i"))) for c in CONDITIONS]
            by_spark = [sorted(found) for found in frame.agg(*counts).first() or ()]
        finally:
            spark.conf.set("spark.sql.readSideCharPadding", kept or "true")
        assert dict(zip(CONDITIONS, by_spark, strict=True)) == dict(zip(CONDITIONS, wanted, strict=True))
    reader = spark.read.format("gmdb").option("table", "tbl").option("where", "ch = 'é'")
    assert [row.i for row in reader.load(str(database)).collect()] == [4]
    assert [row.i for row in frame.where("ch = 'é'").collect()] == [4]


def test_char_columns_of_several_lengths_are_joined_and_grouped(
    spark: SparkSession, database: Path, frame: DataFrame
) -> None:
    short = spark.read.format("gmdb").option("table", "short").load(str(database))
    assert sorted(row.i for row in frame.join(short, frame.ch == short.ch).collect()) == [1, 3, 4]
    assert frame.groupBy("ch").count().where("count > 1").count() == 0
    assert {row.ch for row in frame.collect()} == {"a    ", "b    ", "ab   ", "é    ", None}
    assert sorted(row.i for row in frame.where("rtrim(ch) = v").collect()) == [1, 3, 4]


def test_what_was_read_of_a_char_column_can_be_written_to_one(database: Path, frame: DataFrame) -> None:
    """Spark has as many characters as gmdb has bytes: blanks that are too many say nothing."""
    frame.write.format("gmdb").option("table", "copy").mode("append").save(str(database))
    with gmdb.connect(database) as db:
        rows = [db.execute(f"select * from {table} order by i").fetchall() for table in ("tbl", "copy")]
    assert rows[0] == rows[1]


# ---- Spark's catalog


@pytest.fixture
def sql(spark: SparkSession) -> Iterator[Any]:
    names: list[str] = []

    def run(statement: str) -> list[tuple[Any, ...]]:
        found = re.match(r"create (table) (\w+)", statement)
        names.extend([found.group(2)] if found else [])
        return [tuple(row) for row in spark.sql(statement).collect()]

    yield run
    for name in names:
        spark.sql(f"drop table if exists {name}")


def test_a_table_of_sparks_catalog_is_read_and_written(sql: Any, path: Path) -> None:
    with gmdb.connect(path) as db:
        db.execute("create table tbl (i int, ch char(5))")
        db.execute("insert into tbl values (1, 'a'), (2, 'b')")
    sql(f"create table one using gmdb options (table 'tbl') comment 'x' tblproperties ('k' = 'v') location '{path}'")
    assert sql("select i from one where ch = 'a'") == [(1,)]
    sql("insert into one values (3, 'c')")
    sql(f"create table two using gmdb options (path '{path}', table 'tbl', where 'i > 1')")
    assert sorted(sql("select i from two")) == [(2,), (3,)]
    sql("drop table one")
    with gmdb.connect(path) as db:
        assert db.execute("select count(*) from tbl").fetchall() == [(3,)]


def test_a_table_of_sparks_catalog_whose_columns_were_named_is_refused_with_advice(sql: Any, database: Path) -> None:
    sql(f"create table three (i int) using gmdb options (table 'tbl') location '{database}'")
    with pytest.raises(PySparkException, match="CREATE TABLE t USING gmdb OPTIONS"):
        sql("select * from three")


def test_an_option_that_gmdb_does_not_know_is_refused_in_sql_too(sql: Any, database: Path) -> None:
    with pytest.raises(PySparkException, match="gmdb knows no option tabel"):
        sql(f"create table four using gmdb options (path '{database}', tabel 'tbl')")
