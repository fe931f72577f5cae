"""What Spark is told when a read cannot be right: gmdb's error, readable in Spark's."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

import gmdb
from gmdb.format.address import offset_of, page_name
from gmdb.storage.directory import device_path

pytestmark = pytest.mark.spark


@pytest.fixture
def table(path: Path) -> Path:
    """A closed database whose table ``tbl`` has a hundred rows."""
    with gmdb.connect(path) as db:
        db.create_table("tbl", {"i": "INT", "s": "VARCHAR(10)"})
        db.append("tbl", pa.table({"i": range(100), "s": ["hello"] * 100}))
    return path


def refusal(action) -> str:
    with pytest.raises(PySparkException) as caught:
        action()
    return str(caught.value)


def test_a_database_that_is_open_for_writing_cannot_be_loaded(table, load):
    with gmdb.connect(table):
        said = refusal(lambda: load("tbl"))
    assert "gmdb.errors.DatabaseInUse" in said
    assert "close it there first" in said


def test_a_task_finds_the_database_opened_since_the_read_was_planned(table, load):
    frame = load("tbl")
    assert frame.count() == 100
    with gmdb.connect(table):
        assert "gmdb.errors.DatabaseInUse" in refusal(frame.count)
    assert frame.count() == 100


def test_a_dataframe_is_not_read_from_a_database_that_has_changed(table, load):
    frame = load("tbl")
    assert frame.count() == 100
    with gmdb.connect(table) as db:
        db.append("tbl", pa.table({"i": [100], "s": ["new"]}))
    said = refusal(frame.count)
    assert "gmdb.errors.SnapshotExpired" in said
    assert "changed since load(); load again" in said
    assert load("tbl").count() == 101


def test_a_dataframe_whose_table_has_other_columns_by_now_is_refused(table, load):
    frame = load("tbl")
    with gmdb.connect(table) as db:
        db.drop_table("tbl")
        db.create_table("tbl", {"i": "DOUBLE", "s": "VARCHAR(10)"})
    said = refusal(frame.count)
    assert "SchemaMismatch: table tbl, column i: it is DOUBLE, in Spark double" in said
    assert "schema says int" in said


def test_a_damaged_page_is_named(table, load):
    with gmdb.connect(table, read_only=True) as db:
        page_id = int(db.heap("tbl").segment.page_ids()[0])
    with device_path(table, 4).open("r+b") as file:
        file.seek(offset_of(page_id) * 8192 + 1000)
        file.write(b"\xee")
    said = refusal(load("tbl").count)
    assert "gmdb.errors.Corruption" in said
    assert f"page {page_name(page_id)}" in said


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"table": "tbi"}, "NoSuchTable: "),
        ({"table": "tbl", "columns": "i,j"}, "NoSuchColumn: table tbl has no column j; its columns are i, s"),
        ({"table": "tbl", "columns": "i,I"}, "SchemaMismatch: table tbl: column i is asked for twice"),
        ({"table": "tbl", "columns": "i,"}, "InterfaceError: columns: 'i,' is no list of columns"),
        ({"table": "tbl", "where": "i<5"}, "InterfaceError: gmdb knows no option where; its options are path, table"),
        ({"table": "tbl", "maxPartitionBytes": "lots"}, "InterfaceError: maxPartitionBytes: 'lots' is no size"),
        ({}, "InterfaceError: say which table"),
    ],
)
def test_a_wrong_option_is_named(spark, table, options, message):
    assert message in refusal(lambda: spark.read.format("gmdb").options(**options).load(str(table)))


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("i BIGINT", "SchemaMismatch: table tbl, column i: it is INT, in Spark int"),
        ("i INT NOT NULL", "SchemaMismatch: table tbl, column i may be NULL"),
        ("i INT, j INT", "NoSuchColumn: table tbl has no column j"),
    ],
)
def test_a_schema_that_is_not_the_tables_is_refused(spark, table, schema, message):
    frame = spark.read.format("gmdb").option("table", "tbl").schema(schema).load(str(table))
    assert message in refusal(frame.count)


def test_a_schema_and_columns_that_differ_are_refused(spark, table):
    reader = spark.read.format("gmdb").options(table="tbl", columns="s").schema("i INT")
    assert "option columns asks for s, the schema for i" in refusal(reader.load(str(table)).count)


@pytest.mark.parametrize("where", ["missing.gmdb", "hdfs://host/shop.gmdb"])
def test_a_path_that_is_no_database_is_refused(spark, tmp_path, where):
    target = where if "://" in where else str(tmp_path / where)
    said = refusal(lambda: spark.read.format("gmdb").option("table", "t").load(target))
    assert "gmdb.errors." in said
    assert where in said


def test_several_databases_in_one_load_are_refused(spark, table):
    said = refusal(lambda: spark.read.format("gmdb").option("table", "tbl").load([str(table), str(table)]))
    assert "load() takes one database" in said
