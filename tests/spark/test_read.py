"""What Spark reads is what is in the table."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import gmdb
from gmdb.spark import read_table
from tests.integrity import assert_sound

pytestmark = pytest.mark.spark

ALL_TYPES = {
    "i": "INT",
    "b": "BIGINT NOT NULL",
    "d": "DOUBLE",
    "t": "BOOLEAN",
    "day": "DATE",
    "at": "TIMESTAMP",
    "d9": "DECIMAL(9,2)",
    "d18": "DECIMAL(18,0)",
    "d38": "DECIMAL(38,10)",
    "c": "CHAR(5)",
    "v": "VARCHAR(20)",
    "x": "BINARY(3)",
    "y": "VARBINARY(9)",
}
FULL_ROW = (
    -(2**31),
    2**63 - 1,
    -0.1,
    True,
    date(1969, 12, 31),
    datetime(2024, 2, 29, 23, 59, 59, 999_999),
    Decimal("-1234567.89"),
    Decimal(10**18 - 1),
    Decimal("-1234567890123456789012345678.0123456789"),
    "ab",
    "žluťoučký 🐎",
    b"\1",
    b"\0\xff",
)


def test_the_reference_table_has_the_rows_and_the_sum_that_it_was_given(path, load):
    with gmdb.connect(path) as db:
        db.create_table("tbl", {"i": "INT", "s": "VARCHAR(10)"})
        numbers = pa.array([1, 2, *range(150_000)], pa.int32())
        db.append("tbl", pa.table({"i": numbers, "s": ["2", "3", *["hello"] * 150_000]}))
    frame = load("tbl", maxPartitionBytes="1m")
    assert frame.rdd.getNumPartitions() == 6
    totals = frame.selectExpr("count(*)", "sum(i)", "sum(length(s))").first()
    assert tuple(totals) == (150_002, 3 + sum(range(150_000)), 2 + 5 * 150_000)


def test_every_type_with_and_without_nulls_reads_as_arrow_reads_it(path, load):
    nulls = tuple(0 if name == "b" else None for name in ALL_TYPES)
    with gmdb.connect(path) as db:
        db.create_table("t", ALL_TYPES)
        heap = db.heap("t")
        for row in (FULL_ROW, nulls, FULL_ROW):
            heap.insert(row)
        expected = db.arrow("t").read_all()
    frame = load("t")
    assert [field.dataType.simpleString() for field in frame.schema] == [
        *("int", "bigint", "double", "boolean", "date", "timestamp_ntz"),
        *("decimal(9,2)", "decimal(18,0)", "decimal(38,10)", "string", "string", "binary", "binary"),
    ]
    assert [field.name for field in frame.schema if not field.nullable] == ["b"]
    assert [tuple(row) for row in frame.collect()] == [tuple(row.values()) for row in expected.to_pylist()]
    assert expected.num_rows == 3


def test_some_columns_come_in_the_order_they_are_asked_for(spark, path, load):
    with gmdb.connect(path) as db:
        db.create_table("t", {"a": "INT", "b": "VARCHAR(5)", "c": "BIGINT", "d": "BOOLEAN"})
        db.append("t", pa.table({"a": [1, 2], "b": ["x", None], "c": [10, 20], "d": [True, None]}))
    frame = load("t", columns="c, B")
    assert frame.columns == ["c", "b"]
    assert [tuple(row) for row in frame.collect()] == [(10, "x"), (20, None)]
    assert [tuple(row) for row in read_table(spark, path, "T", ["d"]).collect()] == [(True,), (None,)]


def test_a_schema_with_fewer_columns_reads_those(spark, path):
    with gmdb.connect(path) as db:
        db.create_table("t", {"a": "INT NOT NULL", "b": "VARCHAR(5)", "c": "BIGINT"})
        db.append("t", pa.table({"a": [1, 2], "b": ["x", "y"], "c": [10, 20]}))
    reader = spark.read.format("gmdb").option("table", "t")
    frame = reader.schema("C bigint, a int").load(str(path))
    assert frame.columns == ["C", "a"]
    assert [tuple(row) for row in frame.collect()] == [(10, 1), (20, 2)]


def test_partitions_over_several_devices_make_up_the_table_in_page_order(path, load):
    rows = 5_000
    with gmdb.connect(path) as db:
        db.create_tablespace("wide", page_size=16384, devices=3, device_pages_max=40)
        db.create_table("t", {"i": "INT", "s": "VARCHAR(200)"}, tablespace="wide")
        db.append("t", pa.table({"i": range(rows), "s": [f"{n:0200}" for n in range(rows)]}))
        pages = db.heap("t").segment.page_ids()
    assert len({page >> 22 for page in pages.tolist()}) == 3
    frame = load("t", maxPartitionBytes="256KiB")
    assert frame.rdd.getNumPartitions() == -(-len(pages) // 16)
    assert [tuple(row) for row in frame.collect()] == [(n, f"{n:0200}") for n in range(rows)]


def test_rows_that_moved_are_read_once_and_deleted_ones_not_at_all(path, load):
    with gmdb.connect(path) as db:
        db.create_table("t", {"i": "INT", "s": "VARCHAR(3000)"})
        heap = db.heap("t")
        row_ids = [heap.insert((n, "short")) for n in range(600)]
        for n in (0, 100, 599):
            heap.update(row_ids[n], (n, "long" * 600))
        for n in (1, 599):
            heap.delete(row_ids[n])
    assert_sound(path)
    frame = load("t", maxPartitionBytes=8192)
    assert frame.rdd.getNumPartitions() > 2
    expected = {n: "long" * 600 if n in (0, 100) else "short" for n in range(600) if n not in (1, 599)}
    assert sorted(tuple(row) for row in frame.collect()) == sorted(expected.items())


@pytest.mark.parametrize("pushdown", ["false", "true"])
def test_a_dataframe_that_was_filtered_still_has_all_its_rows(spark, path, load, pushdown):
    with gmdb.connect(path) as db:
        db.create_table("t", {"i": "INT"})
        db.append("t", pa.table({"i": range(100)}))
    setting = "spark.sql.python.filterPushdown.enabled"
    spark.conf.set(setting, pushdown)
    try:
        frame = load("t")
        assert frame.filter("i < 5").count() == 5
        assert frame.count() == 100
        assert frame.filter("i < 5").union(frame).count() == 105
    finally:
        spark.conf.unset(setting)


def test_a_table_without_rows_gives_a_dataframe_without_rows(path, load):
    with gmdb.connect(path) as db:
        db.create_table("t", {"i": "INT", "s": "VARCHAR(10)"})
    frame = load("t")
    assert frame.columns == ["i", "s"]
    assert frame.collect() == []


def test_a_table_of_1024_columns_is_read_whole(path, load):
    names = [f"c{n}" for n in range(1024)]
    with gmdb.connect(path) as db:
        db.create_table("t", [(name, "VARCHAR(9)" if n % 4 == 3 else "INT") for n, name in enumerate(names)])
        made = {n: [f"{n}", None] if n % 4 == 3 else [n, -n] for n in range(1024)}
        db.append("t", pa.table({names[n]: values for n, values in made.items()}))
    rows = load("t").collect()
    assert [tuple(row) for row in rows] == [tuple(values[k] for values in made.values()) for k in (0, 1)]
    assert tuple(load("t", columns="c1023,c0").first()) == ("1023", 0)


def test_sql_reads_a_table_through_a_view(spark: SparkSession, path: Path):
    with gmdb.connect(path) as db:
        db.create_table("t", {"i": "INT"})
        db.append("t", pa.table({"i": range(10)}))
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW v USING gmdb OPTIONS (path 'file://{path}', table 't')")
    assert spark.sql("SELECT max(i) FROM v").first()[0] == 9
