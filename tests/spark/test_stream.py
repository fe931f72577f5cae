"""A table's changes in Structured Streaming: every one once, in order, whatever stops and starts in between."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession

import gmdb
import gmdb.spark
from gmdb.database.connection import Connection
from gmdb.storage.feeds import read_readers, remove_reader
from gmdb.storage.pins import read_pins

pytestmark = pytest.mark.spark


@pytest.fixture
def table(path: Path) -> Iterator[Connection]:
    with gmdb.connect(path) as db:
        db.execute("create table t (i int primary key, s varchar(2000)) with (change_feed = true)")
        db.commit()
        yield db


class Query:
    """A stream into files of Parquet, which stops when it has all that there is, and may go on from there."""

    def __init__(self, folder: Path, spark: SparkSession) -> None:
        self._folder, self._spark = folder, spark

    def run(self, frame: DataFrame) -> list[int]:
        """Answers how many rows its batches had."""
        writing = frame.writeStream.format("parquet").option("checkpointLocation", str(self._folder / "checkpoint"))
        query = writing.trigger(availableNow=True).start(str(self._folder / "out"))
        query.awaitTermination()
        return [progress["numInputRows"] for progress in query.recentProgress]

    def rows(self) -> list[Row]:
        return self._spark.read.parquet(str(self._folder / "out")).orderBy("_scn", "_sequence").collect()


@pytest.fixture
def query(tmp_path: Path, spark: SparkSession) -> Query:
    return Query(tmp_path / "query", spark)


@pytest.fixture
def changes(spark: SparkSession, path: Path) -> Callable[..., DataFrame]:
    def read(**options: Any) -> DataFrame:
        return gmdb.spark.read_changes(spark, path, "t", **options)

    return read


def rows_of(first: int, count: int) -> pa.Table:
    return pa.table({"i": pa.array(range(first, first + count), pa.int32()), "s": [f"row {n}" for n in range(count)]})


def copied(rows: list[Row]) -> dict[int, str]:
    """What the changes make of an empty table; each must be new, and fit what is there."""
    made: dict[int, str] = {}
    seen = set()
    for row in rows:
        assert (row["_scn"], row["_sequence"]) not in seen or row["_op"] == "snapshot"
        seen.add((row["_scn"], row["_sequence"]))
        if row["_op"] == "truncate":
            made.clear()
        elif row["_op"] == "delete":
            assert made.pop(row["i"]) == row["s"]
        else:
            assert (row["i"] in made) == (row["_op"] == "update")
            made[row["i"]] = row["s"]
    return made


def content(db: Connection) -> dict[int, str]:
    return dict(db.execute("select i, s from t").fetchall())


def test_a_snapshot_first_then_every_change(table: Connection, changes: Any, query: Query, path: Path) -> None:
    table.append("t", rows_of(0, 3000))
    table.commit()
    with gmdb.connect(path) as other:
        other.execute("update t set s = 'in flight' where i < 5")
        stream = changes(maxRowsPerBatch=1000, reader="mine")
        batches = query.run(stream)
        assert sum(batches) == 3000
        assert max(batches) <= 1000
        other.commit()
    dice = random.Random(1)
    for _ in range(2):
        for _ in range(40):
            key = dice.randrange(4000)
            table.execute("delete from t where i = ?", (key,))
            table.execute("insert into t values (?, 'new')", (key,))
            table.execute("update t set s = 'changed' where i between ? and ?", (key + 1, key + 3))
            table.commit() if dice.random() < 0.7 else table.rollback()
        table.commit()
        assert max(query.run(changes(maxRowsPerBatch=40, reader="mine"))) <= 40
        assert copied(query.rows()) == content(table)
    table.execute("truncate table t")
    table.append("t", rows_of(10_000, 40_000))
    table.commit()
    query.run(stream)
    assert copied(query.rows()) == content(table)
    assert read_pins(path) == []
    assert [reader.name for reader in read_readers(path)] == ["mine"]


def test_where_a_stream_begins(table: Connection, changes: Any, tmp_path: Path, spark: SparkSession) -> None:
    holding = table.changes(reader="holds-the-log")
    positions = []
    for n in range(3):
        table.insert("t", (n, "x"))
        table.commit()
        list(holding)
        positions.append(holding.position)
    commits = [c.commit_time for c in table.changes(since=positions[0])]
    at_time, at_position, now = (Query(tmp_path / name, spark) for name in "abc")
    at_time.run(changes(since=commits[0].isoformat()))
    assert [row["i"] for row in at_time.rows()] == [1, 2]
    at_position.run(changes(since=positions[1], columns="s", beforeImages="true"))
    [row] = at_position.rows()
    assert row.asDict().keys() == {"s", "_op", "_scn", "_sequence", "_commit_time", "_rowid", "_before_s"}
    now.run(changes(since="now"))
    table.insert("t", (3, "x"))
    table.execute("update t set s = 'y' where i = 3")
    table.commit()
    now.run(changes(since="now"))
    assert [(row["_op"], row["i"]) for row in now.rows()] == [("insert", 3), ("update", 3)]
    at_position.run(changes(since=positions[1], columns="s", beforeImages="true"))
    assert [(row["s"], row["_before_s"]) for row in at_position.rows()] == [("x", None), ("x", None), ("y", "x")]


def test_owners_come_and_go(changes: Any, query: Query, path: Path, peer: Any) -> None:
    with gmdb.connect(path) as db:
        db.execute("create table t (i int primary key, s varchar(2000)) with (change_feed = true)")
        db.append("t", rows_of(0, 10))
    query.run(changes(reader="mine"))  # nobody has it open
    peer("db = gmdb.connect(path)", path=path)
    peer("db.execute(\"insert into t values (100, 'x')\"); db.commit()")
    query.run(changes(reader="mine"))
    peer("db.execute(\"insert into t values (101, 'x')\"); db.commit(); db.close()")
    with gmdb.connect(path) as db:
        db.execute("delete from t where i = 100")
    query.run(changes(reader="mine"))
    with gmdb.connect(path) as db:
        assert copied(query.rows()) == content(db)


def refusal(action: Callable[[], Any]) -> str:
    with pytest.raises(PySparkException) as caught:
        action()
    return str(caught.value)


def test_columns_that_change(
    table: Connection, changes: Any, query: Query, tmp_path: Path, spark: SparkSession
) -> None:
    other = Query(tmp_path / "other", spark)
    stream, following = changes(reader="a"), changes(reader="b", schemaChange="follow")
    for one, frame in ((query, stream), (other, following)):
        one.run(frame)
    table.insert("t", (1, "one"))
    table.commit()
    table.execute("alter table t add column d int")
    table.execute("alter table t rename column s to text")
    table.execute("insert into t values (2, 'two', 2)")
    table.commit()
    said = refusal(lambda: query.run(stream))
    assert "gmdb.errors.TableChanged: table t has other columns" in said
    assert "schemaChange" in said
    assert [row["i"] for row in query.rows()] == [1]  # what was before it was handed out
    other.run(following)
    assert [(row["i"], row["s"]) for row in other.rows()] == [(1, "one"), (2, "two")]
    query.run(changes(reader="a"))  # as the table is now
    rows = spark.read.option("mergeSchema", "true").parquet(str(tmp_path / "query" / "out")).orderBy("i").collect()
    assert [(row["i"], row["s"], row["text"], row["d"]) for row in rows] == [
        (1, "one", None, None),
        (2, None, "two", 2),
    ]


def test_a_stream_follows_a_table_whose_columns_go_and_get_other_types(
    table: Connection, changes: Any, query: Query, spark: SparkSession, path: Path
) -> None:
    table.execute("alter table t add column d varchar(10)")
    table.commit()
    following = changes(schemaChange="follow", since="now")
    query.run(following)
    table.execute("insert into t values (1, 'one', '10'), (2, 'two', '20')")
    table.commit()
    table.execute("alter table t drop column s, alter d type bigint using d::bigint * 2")
    table.execute("insert into t values (3, 60)")
    table.commit()
    query.run(following)
    assert [(row["_op"], row["i"], row["s"], row["d"]) for row in query.rows()] == [
        *[("insert", 1, "one", "10"), ("insert", 2, "two", "20"), ("truncate", None, None, None)],
        *[("insert", 1, None, "20"), ("insert", 2, None, "40"), ("insert", 3, None, "60")],
    ]
    frame = spark.read.format("gmdb").option("table", "t").load(str(path))
    assert frame.dtypes == [("i", "int"), ("d", "bigint")]
    assert sorted(map(tuple, frame.collect())) == [(1, 20), (2, 40), (3, 60)]
    frame.filter("i = 3").selectExpr("i + 1 as i", "d").write.format("gmdb").mode("append").option("table", "t").save(
        str(path)
    )
    assert table.execute("select * from t where i = 4").fetchall() == [(4, 60)]


def test_a_table_that_goes(table: Connection, changes: Any, query: Query, tmp_path: Path, spark: SparkSession) -> None:
    other, stream = Query(tmp_path / "other", spark), changes()
    query.run(stream)
    other.run(stream)
    table.insert("t", (1, "one"))
    table.commit()
    table.execute("alter table t set (change_feed = false)")
    table.commit()
    assert "TableChanged: table t has no change feed any more" in refusal(lambda: query.run(stream))
    assert [row["i"] for row in query.rows()] == [1]
    table.execute("drop table t")
    table.execute("create table t (i int primary key, s varchar(2000)) with (change_feed = true)")
    table.commit()
    assert "TableChanged: table t has no change feed any more" in refusal(lambda: other.run(stream))
    assert [row["i"] for row in other.rows()] == [1]  # and nothing of the table that took its name


def test_a_table_that_goes_under_a_running_stream(table: Connection, changes: Any, tmp_path: Path) -> None:
    writing = changes(reader="mine").writeStream.format("noop").option("checkpointLocation", str(tmp_path / "c"))
    query = writing.trigger(processingTime="200 milliseconds").start()
    try:
        table.insert("t", (1, "one"))
        table.commit()
        query.processAllAvailable()
        table.execute("drop table t")
        table.commit()
        said = refusal(lambda: query.awaitTermination(60))
    finally:
        query.stop()
    assert "gmdb.errors.TableChanged: table t was dropped: its stream of changes ends" in said


def test_a_reader_that_was_dropped(table: Connection, changes: Any, query: Query) -> None:
    stream = changes(reader="mine")
    query.run(stream)
    remove_reader(table.path, "mine")
    said = refusal(lambda: query.run(stream))
    assert "gmdb.errors.PositionGone" in said
    assert "reader mine was dropped" in said


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"since": "1-2-3"}, "PositionUnknown: '1-2-3' is not a position"),
        ({"maxRowsPerBatch": "0"}, "InterfaceError: maxRowsPerBatch: '0'"),
        ({"schemaChange": "perhaps"}, "InterfaceError: schemaChange: 'perhaps' is not one of fail, follow"),
        ({"reader": "a/b"}, "InterfaceError: 'a/b' is not a name for a reader"),
        ({"keep": "12"}, "too few"),
        ({"beforeImages": "some"}, "beforeImages: 'some' is neither true nor false"),
        ({"columns": "i,nothing"}, "NoSuchColumn"),
        ({"columns": "i,_rowid"}, "_rowid is in a stream anyway"),
        ({"where": "i < 5"}, "gmdb knows no option where"),
    ],
)
def test_a_wrong_option_is_named(
    table: Connection, changes: Any, query: Query, options: dict[str, str], message: str
) -> None:
    assert table.tables() == ["t"]
    said = refusal(lambda: query.run(changes(**options)))
    assert message in said
    assert read_readers(table.path) == []
    assert read_pins(table.path) == []


def test_what_is_no_stream(table: Connection, spark: SparkSession, path: Path, query: Query) -> None:
    stream = spark.readStream.format("gmdb").option("table", "t").load(str(path))
    assert '.option("view", "changes")' in refusal(lambda: query.run(stream))
    assert "spark.readStream" in refusal(
        lambda: spark.read.format("gmdb").option("table", "t").option("view", "changes").load(str(path)).collect()
    )
    table.execute("create table u (i int)")
    table.commit()
    stream = spark.readStream.format("gmdb").option("table", "u").option("view", "changes").load(str(path))
    said = refusal(lambda: query.run(stream))
    assert "NoChangeFeed" in said
    assert "ALTER TABLE u SET (change_feed = true)" in said
