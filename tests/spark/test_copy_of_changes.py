"""A copy that is kept by a table's key is equal to the table after every batch of changes, also when keys change.

The parts that Spark would run in its processes run here, one after the other: what plans a batch, what reads it, what
stages it, what takes it in.
"""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

import gmdb
import gmdb.spark
from gmdb.database.connection import Connection
from gmdb.database.feed import ChangeFeed
from gmdb.errors import InterfaceError, SchemaMismatch, UniqueViolation
from gmdb.spark.change_reader import ChangeReader, change_schema
from gmdb.spark.loading import StagedRows, TableLoad
from gmdb.spark.options import parse_change_options, parse_write_options
from gmdb.storage.loads import staged_path
from tests.spark.streaming import write_all

COLUMNS = "create table t (a int not null, b char(4) not null, s varchar(40), n bigint"
ROUNDS, TRANSACTIONS, STATEMENTS, KEYS = int(os.environ.get("GMDB_COPY_ROUNDS", "12")), 3, 6, 9


class SparkCopy:
    """A second database that gets the changes as Spark would bring them."""

    def __init__(self, source: Connection, path: Path, key: str, **options: str) -> None:
        self._path, self._db = path, gmdb.connect(path, sync="off")
        self._db.execute(f"{COLUMNS}, primary key ({key}))")
        self._db.commit()
        given = parse_change_options({"path": str(source.path), "table": "t", **options})
        self._schema = change_schema(given, source.table("t"))
        self._reader = ChangeReader(given, self._schema)
        self._offset = self._reader.initialOffset()

    def catch_up(self) -> None:
        limit = self._reader.getDefaultReadLimit()
        while (end := self._reader.latestOffset(self._offset, limit)) != self._offset:
            options = {"path": str(self._path), "table": "t", "apply": "changes", "onExisting": "upsert"}
            load, staged = TableLoad(parse_write_options(options), self._schema, overwrite=False), []
            for number, part in enumerate(self._reader.partitions(self._offset, end)):
                name = f"part-{number}"
                count = load._maker.stage(staged_path(self._path, load._load_id, name), self._reader.read(part))
                staged.append(StagedRows(number, name, count, load._load_id, None))
            load.take_in(staged, None)
            self._offset = end

    def rows(self) -> list[tuple[Any, ...]]:
        self._db.rollback()
        return sorted(self._db.execute("select * from t").fetchall())

    def __enter__(self) -> SparkCopy:
        return self

    def __exit__(self, *_: object) -> None:
        self._db.close()


class PythonCopy:
    """Rows by their keys, as a program keeps them that iterates over the changes."""

    def __init__(self, feed: ChangeFeed, key: str) -> None:
        self._feed, self._key = feed, key.split(", ")
        self._kept: dict[Any, tuple[Any, ...]] = {}

    def catch_up(self) -> None:
        for change in self._feed:
            assert change.row is not None
            key = tuple(change.row[name] for name in self._key)
            if change.operation == "delete":
                assert self._kept.pop(key) == tuple(change.row.values())
            else:
                assert (change.operation == "update") == (key in self._kept)
                self._kept[key] = tuple(change.row.values())

    def rows(self) -> list[tuple[Any, ...]]:
        return sorted(self._kept.values())


def change(db: Connection, dice: random.Random) -> None:
    """Something that changes rows; keys change, are exchanged through a third one, move on by one, come back."""
    one, other = dice.sample(range(KEYS), 2)
    letter, third, text = dice.choice("xyz"), KEYS + dice.randrange(3), "v" * dice.randrange(40)
    statements = dice.choice(
        [
            [f"insert into t values ({one}, '{letter}', '{text}', {other})"],
            [f"update t set s = '{text}' where a = {one}"],
            [f"update t set a = {other} where a = {one}"],
            [f"update t set a = {other}, b = '{letter}', s = null where a = {one}"],
            [f"update t set b = '{letter}' where a = {one}"],
            [f"update t set a = {third} where a = {one}"],
            [f"update t set a = {a} where a = {b}" for a, b in ((third, one), (one, other), (other, third))],
            [f"update t set a = a - 1 where a >= {one}"],
            [f"update t set a = a, n = n + 1 where a = {one}"],
            [f"delete from t where a = {one}", f"insert into t values ({one}, '{letter}', 'again', 1)"],
            [f"delete from t where a = {one}"],
            ["savepoint here", f"update t set a = {third} where a = {one}", "rollback to here"],
        ]
    )
    db.execute("savepoint whole")
    try:
        for statement in statements:
            db.execute(statement)
    except UniqueViolation:
        db.execute("rollback to whole")


SHAPES = {  # the source's key, the copy's, options of the stream
    "a key": ("a", "a", {}),
    "a key of two columns": ("b, a", "a, b", {}),
    "a key of the copy alone": ("", "a, b", {}),
    "another key in the copy": ("a", "a, b", {"beforeImages": "true"}),
    "values before": ("a", "a", {"beforeImages": "true"}),
    "small batches": ("a", "a", {"maxRowsPerBatch": "2"}),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_copy_is_equal_after_every_batch(tmp_path: Path, shape: str) -> None:
    dice = random.Random(shape)
    key, copied_key, options = SHAPES[shape]
    with gmdb.connect(tmp_path / "source.gmdb", sync="off") as db:
        db.execute(f"{COLUMNS}{f', primary key ({key})' if key else ''}) with (change_feed = true)")
        if not key:
            db.execute("create unique index only_one on t (a, b)")
        db.executemany("insert into t values (?, ?, ?, ?)", [(n, "x", "first", n) for n in range(0, KEYS, 2)])
        db.commit()
        of_python = PythonCopy(db.changes(tables=["t"], snapshot=True), key or copied_key)
        with SparkCopy(db, tmp_path / "copy.gmdb", copied_key, **options) as of_spark:
            for _ in range(ROUNDS):
                for copy in (of_python, of_spark):
                    copy.catch_up()
                    assert copy.rows() == sorted(db.execute("select * from t").fetchall())
                for _ in range(TRANSACTIONS):
                    for _ in range(dice.randint(1, STATEMENTS)):
                        change(db, dice)
                    db.commit() if dice.random() < 0.8 else db.rollback()


def test_a_copy_with_another_key_needs_the_values_before(tmp_path: Path) -> None:
    with gmdb.connect(tmp_path / "source.gmdb", sync="off") as db:
        db.execute(f"{COLUMNS}, primary key (a)) with (change_feed = true)")
        db.commit()
        with SparkCopy(db, tmp_path / "copy.gmdb", "a, b") as copy, pytest.raises(SchemaMismatch, match="beforeImages"):
            copy.catch_up()


def test_a_stream_leaves_no_large_object_out_without_a_word(path: Path) -> None:
    with gmdb.connect(path) as db:
        db.execute("create table t (a int primary key, c clob, s varchar(9)) with (change_feed = true)")
        table = db.table("t")
    with pytest.raises(InterfaceError, match=r'cannot have column c, CLOB.*option\("columns", "a,s"\)'):
        change_schema(parse_change_options({"path": str(path), "table": "t"}), table)
    narrow = change_schema(parse_change_options({"path": str(path), "table": "t", "columns": "a,s"}), table)
    assert narrow.fieldNames()[:2] == ["a", "s"]


@pytest.mark.spark
def test_a_stream_of_spark_tells_of_keys_that_change(spark: SparkSession, tmp_path: Path) -> None:
    source, copy, checkpoint = tmp_path / "source.gmdb", tmp_path / "copy.gmdb", tmp_path / "checkpoint"
    with gmdb.connect(source) as db, gmdb.connect(copy) as target:
        db.execute("create table tbl (id int primary key, ch char(4)) with (change_feed = true)")
        db.execute("insert into tbl values (1, 'a'), (2, 'é'), (3, 'c')")
        db.commit()
        target.execute("create table tbl (id int primary key, ch char(4))")
        target.execute("create table other (ch char(4) primary key, id int)")
        target.commit()
        for statement in ("select 1", "update tbl set id = 100 where id = 3", "update tbl set id = id - 1"):
            db.execute(statement)
            db.commit()
            write_all(gmdb.spark.read_changes(spark, source, "tbl", reader="copy"), copy, checkpoint, apply="changes")
            target.rollback()
            query = "select * from tbl order by id"
            assert target.execute(query).fetchall() == db.execute(query).fetchall()
        changes = gmdb.spark.read_changes(spark, source, "tbl")
        with pytest.raises(StreamingQueryException, match="a row under an old key would stay"):
            write_all(changes, copy, tmp_path / "another", table="other", apply="changes")
