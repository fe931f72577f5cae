"""Streams into a table: each batch counts once, and the table is what a model says."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import _parse_datatype_string

import gmdb
from gmdb.database.connection import Connection
from gmdb.errors import Error
from gmdb.spark.source import TableSource
from gmdb.storage.loads import LOADS_NAME
from tests.integrity import assert_sound
from tests.server.peer import Peer
from tests.server.serving import TOKEN, Serving, make_certificates
from tests.spark.streaming import add_files, forget_commits, read_files, write_all

pytestmark = pytest.mark.spark
ROW = "i int, s string"
FEED = "i int, s string, _op string, _scn bigint, _sequence bigint, _before_i int, _before_s string"


@pytest.fixture
def table(db: Connection) -> Connection:
    """A database that is open here, with a table tbl of ten rows and a second unique index."""
    db.execute("create table tbl (i int primary key, s varchar(30) unique, n int default 5)")
    db.executemany("insert into tbl (i, s) values (?, ?)", [(n, f"text {n}") for n in range(10)])
    db.commit()
    return db


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "files"


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return tmp_path / "checkpoint"


def numbers(first: int, count: int) -> pa.Table:
    ids = range(first, first + count)
    return pa.table({"i": pa.array(ids, pa.int32()), "s": [f"text {n}" for n in ids]})


def content(db: Connection) -> dict[int, str]:
    found = dict(db.execute("select i, s from tbl").fetchall())
    db.commit()
    return found


def expected(count: int) -> dict[int, str]:
    return {n: f"text {n}" for n in range(count)}


def streams(db: Connection) -> list[tuple[Any, ...]]:
    found = db.execute("select name, table_name, batch_id, row_count from sys_streams").fetchall()
    db.commit()
    return found


def refusal(action: Callable[[], Any]) -> str:
    with pytest.raises(PySparkException) as caught:
        action()
    return str(caught.value)


def assert_no_litter(path: Path) -> None:
    assert not (path / LOADS_NAME).exists()


# ---- append


def test_rows_are_added_once_whatever_spark_remembers(spark, table, folder, checkpoint):
    add_files(folder, [numbers(10, 100), numbers(110, 50), numbers(160, 40)])
    frame = read_files(spark, folder, ROW).repartition(3)
    query = write_all(frame, table.path, checkpoint)
    assert content(table) == expected(200)
    assert streams(table) == [(query, "tbl", 2, 190)]
    forget_commits(checkpoint, 2)  # the driver died when the batch was here, and Spark had not noted it
    assert write_all(frame, table.path, checkpoint) == query
    assert content(table) == expected(200)
    add_files(folder, [numbers(200, 7)])
    write_all(frame, table.path, checkpoint)
    assert content(table) == expected(207)
    assert streams(table) == [(query, "tbl", 3, 197)]
    assert_no_litter(table.path)


def test_a_new_checkpoint_under_an_old_name_is_refused(spark, table, folder, checkpoint, tmp_path):
    add_files(folder, [numbers(10, 5)])
    frame = read_files(spark, folder, ROW)
    write_all(frame, table.path, checkpoint, stream="orders")
    said = refusal(lambda: write_all(frame, table.path, tmp_path / "another", stream="orders"))
    assert "gmdb.errors.StreamConflict: stream orders is query" in said
    assert content(table) == expected(15)
    assert streams(table) == [("orders", "tbl", 0, 5)]
    assert_no_litter(table.path)


def test_a_table_is_made_by_the_first_batch(spark, path, folder, checkpoint):
    add_files(folder, [numbers(0, 5), numbers(5, 5)])
    write_all(read_files(spark, folder, ROW), path, checkpoint, createTable="true")
    with gmdb.connect(path) as db:
        assert content(db) == expected(10)
    assert_sound(path)
    assert_no_litter(path)


def test_a_batch_with_a_key_that_is_there_fails_and_leaves_nothing(spark, table, folder, checkpoint):
    add_files(folder, [numbers(10, 5), numbers(14, 5)])
    frame = read_files(spark, folder, ROW)
    said = refusal(lambda: write_all(frame, table.path, checkpoint))
    assert "UniqueViolation: table tbl, index tbl_pkey (i)" in said
    assert "has the same key already: 14" in said
    assert content(table) == expected(15)
    assert streams(table)[0][2:] == (0, 5)
    assert_no_litter(table.path)
    table.execute("delete from tbl where i = 14")
    table.commit()
    write_all(frame, table.path, checkpoint)  # the same batch again, now that it fits
    assert content(table) == expected(19)


def test_a_task_that_fails_leaves_nothing(spark, table, folder, checkpoint):
    add_files(folder, [numbers(10, 5), pa.table({"i": pa.array([None], pa.int32()), "s": ["none"]})])
    said = refusal(lambda: write_all(read_files(spark, folder, ROW), table.path, checkpoint))
    assert "NullNotAllowed: partition 0: table tbl, column i: row 0 has no value" in said
    assert content(table) == expected(15)
    assert_no_litter(table.path)


# ---- upsert


def test_upserts_leave_the_last_row_of_each_key(spark, table, folder, checkpoint):
    chance, model, batches = random.Random(1), content(table), []
    for number in range(4):
        given = [(chance.randrange(60), f"batch {number} row {n}", n) for n in range(80)]
        model |= {i: s for i, s, _ in given}
        chance.shuffle(given)
        i, s, at = zip(*given, strict=True)
        batches.append(pa.table({"i": pa.array(i, pa.int32()), "s": s, "at": pa.array(at, pa.int64())}))
    add_files(folder, batches)
    frame = read_files(spark, folder, f"{ROW}, at bigint").repartition(3)
    write_all(frame, table.path, checkpoint, apply="upsert", orderBy="at")
    assert content(table) == model
    assert table.execute("select min(n), max(n), count(*) from tbl").fetchall() == [(5, 5, len(model))]
    forget_commits(checkpoint, 3)
    table.execute("update tbl set s = 'changed since' where i = 1")
    table.commit()
    write_all(frame, table.path, checkpoint, apply="upsert", orderBy="at")
    assert content(table) == model | {1: "changed since"}
    assert_no_litter(table.path)


def test_a_key_that_comes_twice_in_a_batch_is_named(spark, table, folder, checkpoint):
    add_files(folder, [pa.concat_tables([numbers(3, 2), numbers(3, 1)])])
    frame = read_files(spark, folder, ROW).repartition(2)
    said = refusal(lambda: write_all(frame, table.path, checkpoint, apply="upsert"))
    assert "UniqueViolation: table tbl, key (i): 3: it comes twice in the batch" in said
    assert content(table) == expected(10)
    assert_no_litter(table.path)


def test_a_row_of_an_upsert_that_breaks_a_check_is_named(spark, table, folder, checkpoint):
    table.execute("alter table tbl add constraint small check (i < 100)")
    table.commit()
    add_files(folder, [numbers(98, 5)])
    said = refusal(lambda: write_all(read_files(spark, folder, ROW), table.path, checkpoint, apply="upsert"))
    assert "CheckViolation: partition 0: table tbl, constraint small: the row (100, 'text 100', 5)" in said
    table.execute("alter table tbl add constraint limits check (n < 100 or i < 5)")
    table.commit()
    said = refusal(lambda: write_all(read_files(spark, folder, ROW), table.path, checkpoint, apply="upsert"))
    assert "a check asks for column n, which rows that are there have and the DataFrame has not" in said
    assert content(table) == expected(10)


def test_updates_of_an_aggregation_come_by_foreach_batch(spark, db, folder, checkpoint):
    db.execute("create table tbl (s varchar(30) primary key, n bigint)")
    db.commit()
    add_files(folder, [numbers(n, 10) for n in (0, 5, 8)])
    counted = read_files(spark, folder, ROW).groupBy("s").count().withColumnRenamed("count", "n")
    said = refusal(lambda: write_all(counted, db.path, checkpoint, "update", apply="upsert"))
    assert "does not support Update mode" in said

    def upsert(batch: DataFrame, number: int) -> None:
        batch.sparkSession.createDataFrame([(1,)], "i int")  # so that Spark knows of data sources in this thread
        writer = batch.write.format("gmdb").options(table="tbl", apply="upsert", stream="counts", batchId=number)
        for _ in range(2):  # the second time does nothing
            writer.mode("append").save(str(db.path))

    query = counted.writeStream.foreachBatch(upsert).outputMode("update").trigger(availableNow=True)
    query.option("checkpointLocation", str(checkpoint.with_name("other"))).start().awaitTermination()
    model: dict[str, int] = {}
    for first in (0, 5, 8):
        for n in range(first, first + 10):
            model[f"text {n}"] = model.get(f"text {n}", 0) + 1
    assert dict(db.execute("select s, n from tbl").fetchall()) == model
    assert streams(db)[0][:3] == ("counts", "tbl", 2)
    assert_no_litter(db.path)


# ---- complete


def test_complete_mode_lets_the_table_have_the_last_result(spark, db, folder, checkpoint):
    db.execute("create table tbl (s varchar(30) primary key, n bigint)")
    db.execute("insert into tbl values ('before', 1)")
    db.commit()
    add_files(folder, [numbers(0, 10), numbers(5, 10)])
    counted = read_files(spark, folder, ROW).groupBy("s").count().withColumnRenamed("count", "n")
    write_all(counted, db.path, checkpoint, "complete")
    found = dict(db.execute("select s, n from tbl").fetchall())
    db.commit()
    assert found == {f"text {n}": 1 + (5 <= n < 10) for n in range(15)}
    another = checkpoint.with_name("another")
    said = refusal(lambda: write_all(counted, db.path, another, "complete", apply="upsert"))
    assert "apply=upsert changes some rows" in said
    assert_no_litter(db.path)


# ---- changes


def feed_table(rows: list[tuple[Any, ...]]) -> pa.Table:
    """Rows of a feed, in the columns of FEED."""
    types = [pa.int32(), pa.string(), pa.string(), pa.int64(), pa.int64(), pa.int32(), pa.string()]
    names = [part.split()[0] for part in FEED.split(", ")]
    columns = zip(*rows, strict=True) if rows else [()] * len(names)
    return pa.table([pa.array(c, t) for c, t in zip(columns, types, strict=True)], names=names)


class Source:
    """A table that changes, and what its feed would say of it."""

    def __init__(self, seed: int, rows: dict[int, str]) -> None:
        self.rows = dict(rows)
        self._chance = random.Random(seed)
        self._scn = 100

    def snapshot(self) -> pa.Table:
        return feed_table([(i, s, "snapshot", self._scn, 0, None, None) for i, s in self.rows.items()])

    def changes(self, count: int) -> pa.Table:
        made = []
        for place in range(count):
            if place % 4 == 0:
                self._scn += 1
            made.append((*self._change(place), self._scn, place))
        self._chance.shuffle(made)
        return feed_table([(i, s, op, scn, place, *before) for i, s, op, before, scn, place in made])

    def _change(self, place: int) -> tuple[Any, ...]:
        chance, rows, text = self._chance, self.rows, f"text {self._scn} {place}"
        kind, key = chance.random(), chance.randrange(50)
        if kind < 0.01:
            rows.clear()
            return None, None, "truncate", (None, None)
        if key not in rows:
            rows[key] = text
            return key, text, "insert", (None, None)
        before = (key, rows[key])
        if kind < 0.3:
            return key, rows.pop(key), "delete", before
        if kind < 0.5:
            new = chance.choice([n for n in range(60) if n not in rows])
            rows[new] = rows.pop(key)
            return new, rows[new], "update", before
        rows[key] = text
        return key, text, "update", before


@pytest.mark.parametrize("seed", range(2))
def test_a_feed_makes_the_table_equal_to_its_source(spark, table, folder, checkpoint, seed):
    source = Source(seed, expected(30))
    add_files(folder, [source.snapshot(), *(source.changes(n) for n in (1, 300, 40))])
    frame = read_files(spark, folder, FEED).repartition(3)
    said = refusal(lambda: write_all(frame, table.path, checkpoint, apply="changes"))
    assert "TableNotEmpty: table tbl has rows, but the changes begin with a snapshot" in said
    assert content(table) == expected(10)
    table.execute("insert into tbl (i, s) values (1000, 'not in the source')")
    table.commit()
    write_all(frame, table.path, checkpoint, apply="changes", onExisting="replace")
    assert content(table) == source.rows
    add_files(folder, [source.changes(100)])
    write_all(frame, table.path, checkpoint, apply="changes", onExisting="replace")
    assert content(table) == source.rows
    forget_commits(checkpoint, 4)
    write_all(frame, table.path, checkpoint, apply="changes")
    assert content(table) == source.rows
    assert_no_litter(table.path)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ((1, "x", "merge", 1, 1, 1, "x"), "row 0: _op is 'merge', which is not one of insert, update"),
        ((1, "x", "update", None, 1, 1, "x"), "row 0: _scn is NULL"),
        ((None, "x", "delete", 1, 1, 1, "x"), "table tbl, column i: row 0 has no value"),
    ],
)
def test_a_row_that_is_none_of_a_feed_is_refused(spark, table, folder, checkpoint, row, message):
    add_files(folder, [feed_table([row])])
    said = refusal(lambda: write_all(read_files(spark, folder, FEED), table.path, checkpoint, apply="changes"))
    assert f"partition 0: {message}" in said
    assert content(table) == expected(10)
    assert_no_litter(table.path)


# ---- what is refused before any row is looked at


def plan(path: Path, schema: str, **options: str) -> None:
    """What Spark does first for a batch."""
    given = {"path": str(path), "checkpointLocation": "/x", **{"table": "tbl", **options}}
    TableSource(given).streamWriter(_parse_datatype_string(schema), False)


@pytest.mark.usefixtures("spark")  # which reads the schema
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"apply": "merge"}, "apply: 'merge' is not one of append, upsert, changes"),
        ({"orderBy": "i"}, "orderBy is for apply=upsert, not for apply=append"),
        ({"apply": "upsert", "orderBy": "at"}, "orderBy names column at, which the DataFrame has not"),
        ({"apply": "upsert", "onExisting": "upsert"}, "onExisting is for apply=changes"),
        ({"apply": "changes", "onExisting": "keep"}, "onExisting: 'keep' is not one of refuse, upsert, replace"),
        ({"apply": "upsert", "createTable": "true"}, "which createTable does not make"),
        ({"apply": "upsert", "table": "plain"}, "table plain has no primary key"),
        ({"batchId": "1"}, "gmdb knows no option batchid"),
        ({"table": "tbi", "apply": "upsert"}, "there is no table tbi"),
    ],
)
def test_a_wrong_option_of_a_stream_is_named(table, options, message):
    table.execute("create table plain (i int, s varchar(30))")
    table.commit()
    with pytest.raises(Error, match=re.escape(message)):
        plan(table.path, ROW, **options)
    assert_no_litter(table.path)


@pytest.mark.usefixtures("spark")  # which reads the schema
@pytest.mark.parametrize(
    ("apply", "schema", "message"),
    [
        ("changes", ROW, "apply=changes needs the columns of a change feed: _op of string, but there is none"),
        ("changes", f"{ROW}, _op string, _scn string", "_scn of bigint, but there is one of string"),
        ("changes", "s string, _op string", "the DataFrame has no column i, of the primary key"),
        ("changes", f"{FEED}, more int", "table tbl has no column more"),
        ("upsert", FEED, "table tbl has no column _op"),
        ("upsert", "i bigint, s string", "column i: it is INT, which does not take every bigint"),
    ],
)
def test_a_schema_that_a_stream_cannot_apply_is_refused(table, apply, schema, message):
    with pytest.raises(Error, match=re.escape(message)):
        plan(table.path, schema, apply=apply)
    assert_no_litter(table.path)


def test_a_batch_write_says_which_batch_of_which_stream_it_is(spark, table):
    frame = spark.createDataFrame([(10, "text 10")], ROW)

    def save(**options: Any) -> None:
        frame.write.format("gmdb").options(table="tbl", **options).mode("append").save(str(table.path))

    assert "stream and batchId belong together" in refusal(lambda: save(stream="s"))
    assert "batchId: '-1' is not the number of a batch" in refusal(lambda: save(stream="s", batchId="-1"))
    for _ in range(2):
        save(stream="s", batchId=3)
    assert content(table) == expected(11)
    assert streams(table) == [("s", "tbl", 3, 1)]


# ---- whoever has the database open


@pytest.fixture
def closed(path: Path) -> Path:
    with gmdb.connect(path) as db:
        db.execute("create table tbl (i int primary key, s varchar(30))")
    return path


def test_a_database_that_nobody_or_another_process_has_open(spark, closed, folder, checkpoint):
    add_files(folder, [numbers(0, 10), numbers(5, 10)])
    frame = read_files(spark, folder, ROW)
    write_all(frame, closed, checkpoint, apply="upsert")
    add_files(folder, [numbers(10, 10)])
    owner = Peer()
    owner(f"db = gmdb.connect({str(closed)!r})")
    write_all(frame, closed, checkpoint, apply="upsert")
    assert owner("db.execute('select count(*) from tbl').fetchall()") == [(20,)]
    owner("db.commit()")
    owner.leave()
    with gmdb.connect(closed) as db:
        assert content(db) == expected(20)
        assert streams(db)[0][2:] == (2, 30)
    assert_sound(closed)


def test_a_server_takes_the_batches(spark: SparkSession, closed, folder, checkpoint, serving):
    add_files(folder, [numbers(0, 10), numbers(5, 10)])
    write_all(read_files(spark, folder, ROW), closed, checkpoint, apply="upsert", **serving)
    with gmdb.connect(closed) as db:
        assert content(db) == expected(15)
    assert_no_litter(closed)


@pytest.fixture
def serving(closed: Path, tmp_path: Path) -> Iterator[dict[str, str]]:
    """The options by which a server that has the database open is reached."""
    certificates = make_certificates(tmp_path)
    token = tmp_path / "token"
    token.write_text(TOKEN)
    server = Serving(closed, *certificates.options, "--token-file", str(token))
    yield {"owner": server.url, "token": TOKEN, "tlsCa": str(certificates.ca)}
    assert server.end()[0] == 0
