"""Batches of streams: each is in the table once, however often it is brought, and by whomever."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import gmdb
from gmdb.database.connection import Connection
from gmdb.errors import InterfaceError, NoSuchStream, ReadOnly, StreamConflict, UniqueViolation
from gmdb.tables.catalog import schema
from gmdb.tables.catalog.system import StreamBatch
from tests.arrow.staged import stage, stage_changes
from tests.integrity import assert_sound
from tests.server.peer import Peer


@pytest.fixture
def table(db: Connection) -> Connection:
    db.execute("create table tbl (i int primary key, s varchar(20))")
    db.commit()
    return db


def numbers(first: int, count: int) -> pa.Table:
    ids = range(first, first + count)
    return pa.table({"i": pa.array(ids, pa.int32()), "s": [f"text {n}" for n in ids]})


def count(db: Connection) -> int:
    found: int = db.execute("select count(*) from tbl").fetchone()[0]
    db.commit()
    return found


def listed(db: Connection) -> list[tuple[Any, ...]]:
    found = db.execute("select name, query_id, table_name, batch_id, row_count from sys_streams").fetchall()
    db.commit()
    return found


def test_a_batch_that_is_brought_again_changes_nothing(table):
    load = stage(table, "tbl", numbers(0, 100))
    assert table._take_batch(load, StreamBatch("s", "q", 0, 100)) == 100
    assert table._take_batch(load, StreamBatch("s", "q", 0, 100)) is None
    assert table._take_batch(stage(table, "tbl", numbers(100, 5)), StreamBatch("s", "q", 1, 5)) == 5
    assert count(table) == 105
    assert listed(table) == [("s", "q", "tbl", 1, 105)]
    assert table.execute("select batch_time is null from sys_streams").fetchall() == [(False,)]


def test_streams_do_not_know_of_each_other(table):
    table._take_batch(stage(table, "tbl", numbers(0, 10)), StreamBatch("s", "q", 7, 10))
    table._take_batch(stage(table, "tbl", numbers(10, 10)), StreamBatch("t", None, 0, 10))
    assert listed(table) == [("s", "q", "tbl", 7, 10), ("t", None, "tbl", 0, 10)]


def test_another_query_under_the_same_name_is_refused(table):
    table._take_batch(stage(table, "tbl", numbers(0, 10)), StreamBatch("s", "q", 0, 10))
    load = stage(table, "tbl", numbers(10, 10))
    with pytest.raises(StreamConflict, match=r"stream s is query q's.*batch 0 of query r.*another name"):
        table._take_batch(load, StreamBatch("s", "r", 0, 10))
    assert count(table) == 10
    with pytest.raises(NoSuchStream, match="no stream x; the streams are: s"):
        table.forget_stream("x")
    table.forget_stream("s")
    table.commit()
    assert listed(table) == []
    assert table._take_batch(load, StreamBatch("s", "r", 0, 10)) == 10
    assert listed(table) == [("s", "r", "tbl", 0, 10)]


def test_batches_that_come_from_an_older_checkpoint_or_behind_a_gap_are_refused(table):
    table._take_batch(stage(table, "tbl", numbers(0, 10)), StreamBatch("s", "q", 6, 10, True))
    load = stage(table, "tbl", numbers(10, 10))
    with pytest.raises(StreamConflict, match=r"batch 5 comes, but the last one here is 6; the checkpoint is an older"):
        table._take_batch(load, StreamBatch("s", "q", 5, 10))
    with pytest.raises(StreamConflict, match=r"batch 8 comes, but the last one here is 6; those between are missing"):
        table._take_batch(load, StreamBatch("s", "q", 8, 10, True))
    assert count(table) == 10
    assert table._take_batch(load, StreamBatch("s", "q", 8, 10)) == 10  # of a query whose batches do not all come
    assert listed(table) == [("s", "q", "tbl", 8, 20)]


def test_a_batch_that_is_refused_is_not_noted(table):
    table._take_batch(stage(table, "tbl", numbers(0, 10)), StreamBatch("s", "q", 0, 10))
    with pytest.raises(UniqueViolation, match=r": 9$"):
        table._take_batch(stage(table, "tbl", numbers(20, 5), numbers(9, 1)), StreamBatch("s", "q", 1, 6))
    assert not table.in_transaction
    assert count(table) == 10
    assert table._take_batch(stage(table, "tbl", numbers(20, 5)), StreamBatch("s", "q", 1, 5)) == 5
    assert listed(table) == [("s", "q", "tbl", 1, 15)]


def test_a_batch_is_a_transaction_of_its_own(table):
    table.execute("insert into tbl values (-1, 'x')")
    with pytest.raises(InterfaceError, match="commit or roll back first"):
        table._take_batch(stage(table, "tbl", numbers(0, 10)), StreamBatch("s", "q", 0, 10))
    table.rollback()
    table.autocommit = True
    table._take_batch(stage(table, "tbl", numbers(0, 10)), StreamBatch("s", "q", 0, 10))
    assert not table.in_transaction
    with pytest.raises(InterfaceError, match="not a name of a stream"):
        StreamBatch("", None, 0, 0)


def test_two_who_bring_the_same_batch_come_one_after_the_other(table, path):
    loads = [stage(table, "tbl", numbers(0, 3000)) for _ in range(4)]
    connections = [gmdb.connect(path, lock_timeout=60) for _ in loads]
    batch = StreamBatch("s", "q", 0, 3000)
    with ThreadPoolExecutor(4) as pool:
        taken = list(pool.map(lambda c, load: c._take_batch(load, batch), connections, loads))
    assert sorted(taken, key=str) == [3000, None, None, None]
    for connection in connections:
        connection.close()
    assert count(table) == 3000
    assert listed(table) == [("s", "q", "tbl", 0, 3000)]


def test_a_snapshot_of_several_batches_meets_the_rows_of_the_first(table):
    first, second = (numbers(n, 10).append_column("#operation", pa.array([4] * 10, pa.int8())) for n in (0, 10))
    order = pa.array([0] * 10, pa.int64())
    for number, part in enumerate((first, second)):
        part = part.append_column("scn", order).append_column("place", order)
        load = stage_changes(table, "tbl", part, order=["scn", "place"])
        assert table._take_batch(load, StreamBatch("s", "q", number, 10)) == 10
    assert count(table) == 20


def test_a_client_brings_batches_to_the_owner(table, path, peer: Peer):
    peer(f"db = gmdb.connect({str(path)!r})")
    peer("from gmdb.tables.catalog.system import StreamBatch")
    load = stage(table, "tbl", numbers(0, 10))
    assert peer("db._take_batch(load, StreamBatch('s', 'q', 0, 10))", load=load) == 10
    assert peer("db._take_batch(load, StreamBatch('s', 'q', 0, 10))", load=load) is None
    changed = stage_changes(table, "tbl", numbers(5, 10))
    assert peer("db._take_batch(load, StreamBatch('s', 'q', 1, 10))", load=changed) == 10
    assert peer("db.execute('select batch_id from sys_streams').fetchall()") == [(1,)]
    with pytest.raises(StreamConflict):
        peer("db._take_batch(load, StreamBatch('s', 'r', 2, 10))", load=load)
    peer("db.forget_stream('s')")
    peer("db.commit()")
    peer("db.close()")
    assert listed(table) == []
    assert count(table) == 15


def test_a_crash_leaves_the_batch_and_its_note_or_neither(path: Path):
    with gmdb.connect(path) as db:
        db.execute("create table tbl (i int primary key, s varchar(20))")
    for number, commits in enumerate([True, False, True]):
        loader = Peer("from tests.arrow.staged import stage\nfrom gmdb.tables.catalog.system import StreamBatch\n")
        loader(f"db = gmdb.connect({str(path)!r})")
        loader("load = stage(db, 'tbl', rows)", rows=numbers(100 * number, 100))
        if not commits:
            loader("import os, signal")
            loader("db.session.commit = lambda: os.kill(os.getpid(), signal.SIGKILL)")
            loader.start("db._take_batch(load, StreamBatch('s', 'q', number, 100))", number=number)
            loader.process.wait(60)
        else:
            loader("db._take_batch(load, StreamBatch('s', 'q', number, 100))", number=number)
            os.kill(loader.pid, signal.SIGKILL)
            loader.process.wait(60)
        loader.end()
    with gmdb.connect(path) as db:
        assert count(db) == 200
        assert listed(db) == [("s", "q", "tbl", 2, 200)]
    assert_sound(path)


def test_a_database_from_before_there_were_streams_gets_them(path: Path, monkeypatch: pytest.MonkeyPatch):
    with monkeypatch.context() as older:
        older.delitem(schema.SYSTEM_TABLES, "sys_streams")
        with gmdb.connect(path) as db:
            db.execute("create table tbl (i int primary key, s varchar(20))")
    with gmdb.connect(path, read_only=True) as db:
        assert listed(db) == []
        with pytest.raises(ReadOnly):
            db._take_batch(gmdb.tables.arrow.attach.Load("tbl", "x", ()), StreamBatch("s", "q", 0, 0))
    with gmdb.connect(path) as db:
        assert listed(db) == []
        db._take_batch(stage(db, "tbl", numbers(0, 10)), StreamBatch("s", "q", 0, 10))
        assert listed(db) == [("s", "q", "tbl", 0, 10)]
    assert_sound(path)
