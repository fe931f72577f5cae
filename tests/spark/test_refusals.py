"""What Spark is told when a read cannot be right: gmdb's error, readable in Spark's."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

import gmdb
import gmdb.spark
from gmdb.cli import main
from gmdb.format.address import offset_of, page_name
from gmdb.format.control import COPY_DISTANCE
from gmdb.storage.directory import CONTROL_NAME, device_path
from gmdb.storage.pins import read_pins

pytestmark = pytest.mark.spark


@pytest.fixture
def table(path: Path) -> Path:
    """A closed database whose table ``tbl`` has a hundred rows."""
    with gmdb.connect(path) as db:
        db.create_table("tbl", {"i": "INT", "s": "VARCHAR(10)"})
        db.append("tbl", pa.table({"i": range(100), "s": ["hello"] * 100}))
    return path


def damage(database: Path, page_id: int) -> None:
    with device_path(database, 4).open("r+b") as file:
        file.seek(offset_of(page_id) * 8192 + 1000)
        file.write(b"\xee")


def refusal(action) -> str:
    with pytest.raises(PySparkException) as caught:
        action()
    return str(caught.value)


def test_a_dataframe_stays_as_it_is_whatever_becomes_of_the_database(table, load):
    frame = load("tbl")
    assert frame.count() == 100
    with gmdb.connect(table) as db:
        db.append("tbl", pa.table({"i": [100], "s": ["new"]}))
        db.commit()
        assert (frame.count(), load("tbl").count()) == (100, 101)
    assert (frame.count(), load("tbl").count()) == (100, 101)


def test_a_dataframe_whose_instant_is_gone_is_refused(table, load):
    frame = load("tbl")
    assert frame.count() == 100
    assert main(["snapshots", "drop", str(table), "--all"]) == 0
    said = refusal(frame.count)
    assert "gmdb.errors.SnapshotExpired" in said
    assert "load again" in said


def test_a_database_that_cannot_be_pinned_is_read_until_it_changes(table, load):
    (table / "snapshots").write_text("a file where the folder would be")
    frame = load("tbl")
    assert frame.count() == 100
    (table / "snapshots").unlink()
    with gmdb.connect(table) as db:
        db.insert("tbl", (100, "new"))
        db.commit()
    assert "could not be pinned; load again" in refusal(frame.count)


def test_a_database_of_a_newer_format_is_refused(table, load):
    control = bytearray((table / CONTROL_NAME).read_bytes())
    for at in (0, COPY_DISTANCE):
        control[at + 8] = 99
    (table / CONTROL_NAME).write_bytes(control)
    assert "use a newer gmdb" in refusal(lambda: load("tbl"))


def test_a_directory_that_may_not_be_read_is_refused(table, load):
    if os.geteuid() == 0:
        shutil.rmtree(table)
        table.symlink_to("/proc/1/nothing/here")  # who may read everything finds nothing there
    else:
        table.chmod(0)
    said = refusal(lambda: load("tbl"))
    assert "gmdb.errors." in said
    assert str(table) in said


def test_damage_can_be_skipped_and_is_counted(spark, table):
    with gmdb.connect(table) as db:
        db.append("tbl", pa.table({"i": pa.array(range(100, 5000), pa.int32()), "s": ["more"] * 4900}))
        db.commit()
        page_id = int(db.heap("tbl").segment.page_ids()[3])
    damage(table, page_id)
    with gmdb.spark.snapshot(spark, table) as instant:
        assert page_name(page_id) in refusal(instant.read_table("tbl").count)
        left = instant.read_table("tbl", onCorruption="skip").count()
        assert 4000 < left < 5000
        (skipped,) = instant.skipped()
        assert skipped.startswith(page_name(page_id))


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
    damage(table, page_id)
    said = refusal(load("tbl").count)
    assert "gmdb.errors.Corruption" in said
    assert f"page {page_name(page_id)}" in said


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"table": "tbi"}, "NoSuchTable: "),
        ({"table": "tbl", "columns": "i,j"}, "NoSuchColumn: table tbl has no column j; its columns are i, s"),
        ({"table": "tbl", "columns": "i,I"}, "SchemaMismatch: table tbl: column i is asked for twice"),
        ({"table": "tbl", "columns": "i,"}, "InterfaceError: columns: 'i,' is not a list of columns"),
        ({"table": "tbl", "were": "i<5"}, "InterfaceError: gmdb knows no option were; its options are path, table"),
        ({"table": "tbl", "lease": "soon"}, "InterfaceError: lease: 'soon' is not a time"),
        ({"table": "tbl", "lease": "0.1s"}, "InterfaceError: a lease of 0.1 seconds is too short"),
        ({"table": "tbl", "snapshot": "0000000001-00000000"}, "SnapshotExpired: "),
        ({"table": "tbl", "onCorruption": "ignore"}, "InterfaceError: onCorruption: 'ignore' is not one of fail, skip"),
        ({"table": "tbl", "view": "row"}, "InterfaceError: view: 'row' is not one of rows, pages"),
        ({"table": "tbl", "token": "x"}, "InterfaceError: token and tlsCa belong to an owner"),
        ({"table": "tbl", "maxPartitionBytes": "lots"}, "InterfaceError: maxPartitionBytes: 'lots' is not a size"),
        ({}, "InterfaceError: say which table"),
    ],
)
def test_a_wrong_option_is_named(spark, table, options, message):
    assert message in refusal(lambda: spark.read.format("gmdb").options(**options).load(str(table)))


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("i <", "InvalidSyntax: where: 'i <' is not a condition"),
        ("i < 5 order by i", "more than a condition"),
        ("i < 5; drop table tbl", "InvalidSyntax"),
        ("i in (select i from tbl)", "no subqueries"),
        ("count(*) > 1", "an aggregate cannot stand here"),
        ("j = 1", "column j"),
        ("i = 'x'", "i"),
        ("now() > timestamp '2020-01-01'", "the time, which is another on every worker"),
    ],
)
def test_a_wrong_condition_is_refused_before_anything_is_read(table, load, where, message):
    assert table.exists()
    said = refusal(load("tbl", where=where).count)
    assert message in said
    assert "gmdb.errors." in said
    assert read_pins(table) == []  # nobody will read by it


def test_a_view_that_cannot_be_planned_leaves_no_pin(spark, table):
    frame = spark.read.format("gmdb").option("view", "pages").option("table", "tbl").load(str(table))
    with gmdb.connect(table) as db:
        db.drop_table("tbl")
    assert "NoSuchTable" in refusal(frame.count)
    assert read_pins(table) == []


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
