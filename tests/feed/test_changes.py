"""What a feed gives out: every committed change once, in the order of the commits, and nothing else."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import gmdb
from gmdb.database.connection import Connection
from gmdb.database.feed import Change, ChangeFeed
from gmdb.errors import (
    InterfaceError,
    NoChangeFeed,
    NoSuchTable,
    NotSupportedError,
    PositionGone,
    StorageError,
    UniqueViolation,
)
from gmdb.storage.log.committed_changes import ChangeLog
from tests.arrow.staged import stage
from tests.sessions import Connect


def seen(feed: ChangeFeed) -> list[tuple[Any, ...]]:
    """What came since the last time, in short."""
    return [(c.operation, *(c.row.values() if c.row is not None else ())) for c in feed]


def test_inserts_updates_and_deletes_in_order(table: Connection) -> None:
    feed = table.changes()
    table.execute("insert into t values (1, 'one'), (2, 'two')")
    table.execute("update t set s = 'eins' where i = 1")
    table.execute("delete from t where i = 2")
    assert seen(feed) == []
    table.commit()
    assert seen(feed) == [("insert", 1, "one"), ("insert", 2, "two"), ("update", 1, "eins"), ("delete", 2, "two")]
    assert seen(feed) == []


def test_what_a_change_says(table: Connection) -> None:
    table.execute("insert into t values (1, 'one')")
    table.commit()
    feed = table.changes(tables=["t"], before=True)
    before = datetime.now().astimezone()
    table.execute("update t set s = 'eins' where i = 1")
    row_id = str(table.execute("select rowid from t").fetchone()[0])
    table.commit()
    [change] = list(feed)
    assert change[:4] == ("t", "update", {"i": 1, "s": "eins"}, {"i": 1, "s": "one"})
    assert (change.sequence, change.row_id) == (0, row_id)
    assert before <= change.commit_time <= datetime.now().astimezone()
    table.execute("update t set s = null where i = 1")
    table.commit()
    [after] = list(feed)
    assert (after.row, after.before) == ({"i": 1, "s": None}, {"i": 1, "s": "eins"})
    assert after.scn > change.scn


def test_commits_are_in_their_order_whoever_began_first(table: Connection, connect: Connect) -> None:
    feed = table.changes()
    first, second = connect(), connect()
    first.insert("t", (1, "a"))
    second.insert("t", (2, "b"))
    first.insert("t", (3, "c"))
    second.commit()
    assert seen(feed) == [("insert", 2, "b")]
    position = feed.position
    first.commit()
    assert seen(feed) == [("insert", 1, "a"), ("insert", 3, "c")]
    assert seen(table.changes(since=position)) == [("insert", 1, "a"), ("insert", 3, "c")]


def test_what_was_taken_back_never_happened(table: Connection) -> None:
    feed = table.changes()
    table.execute("insert into t values (1, 'one')")
    table.execute("savepoint a")
    table.execute("insert into t values (2, 'two'), (3, 'three')")
    table.execute("update t set s = 'eins' where i = 1")
    table.execute("delete from t where i = 2")
    table.execute("rollback to a")
    with pytest.raises(UniqueViolation):
        table.execute("insert into t values (4, 'four'), (1, 'again')")
    table.execute("insert into t values (5, 'five')")
    table.commit()
    table.execute("insert into t values (6, 'six')")
    table.rollback()
    assert seen(feed) == [("insert", 1, "one"), ("insert", 5, "five")]


def many(first: int, count: int) -> pa.Table:
    return pa.table({"i": pa.array(range(first, first + count), pa.int32()), "s": [f"row {n}" for n in range(count)]})


def test_bulk_appends(table: Connection) -> None:
    feed = table.changes()
    table.insert("t", (0, "first"))
    table.append("t", many(1, 5000))
    table.append("t", many(5001, 3000))
    table.execute("update t set s = 'changed' where i = 4000")
    table.commit()
    expected = [("insert", 0, "first")]
    expected += [("insert", n, f"row {n - 1}") for n in range(1, 5001)]
    expected += [("insert", n, f"row {n - 5001}") for n in range(5001, 8001)]
    assert seen(feed) == [*expected, ("update", 4000, "changed")]


def test_a_bulk_append_that_is_taken_back(table: Connection) -> None:
    feed = table.changes()
    table.insert("t", (0, "first"))
    table.commit()
    table.execute("savepoint a")
    table.append("t", many(1, 5000))
    table.execute("rollback to a")
    table.append("t", many(1, 1000))
    table.execute("savepoint b")
    with pytest.raises(UniqueViolation):
        table.append("t", many(900, 4000))
    table.commit()
    assert seen(feed) == [("insert", 0, "first"), *(("insert", n, f"row {n - 1}") for n in range(1, 1001))]


def test_rows_that_grow_and_move_keep_their_row_ids(table: Connection) -> None:
    table.append("t", many(0, 500))
    table.commit()
    feed = table.changes(before=True)
    ids = {i: str(rowid) for i, rowid in table.execute("select i, rowid from t").fetchall()}
    for length in (1500, 10, 1900):
        table.execute("update t set s = ? where i < 300", ("x" * length,))
    table.commit()
    table.gc()
    changes = list(feed)
    assert len(changes) == 900
    assert all(change.row_id == ids[change.row["i"]] for change in changes if change.row)
    assert [len(c.row["s"]) for c in changes if c.row and c.row["i"] == 7] == [1500, 10, 1900]
    assert [len(c.before["s"]) for c in changes if c.before and c.before["i"] == 7] == [5, 1500, 10]


def test_truncate_and_drop(table: Connection) -> None:
    table.insert("t", (1, "one"))
    table.commit()
    feed = table.changes()
    table.execute("truncate table t")
    table.insert("t", (2, "two"))
    table.commit()
    assert seen(feed) == [("truncate",), ("insert", 2, "two")]
    table.execute("savepoint a")
    table.execute("truncate table t")
    table.execute("rollback to a")
    table.execute("drop table t")
    table.commit()
    assert seen(feed) == [("drop",)]


def test_a_feed_begins_and_ends(db: Connection) -> None:
    db.execute("create table t (i int)")
    db.insert("t", (1,))
    db.commit()
    with pytest.raises(NoChangeFeed, match="change_feed = true"):
        db.changes(tables=["t"])
    with pytest.raises(NoSuchTable):
        db.changes(tables=["nothing"])
    feed = db.changes()
    db.execute("insert into t values (2)")
    db.execute("alter table t set (change_feed = true)")
    db.execute("insert into t values (3)")
    db.commit()
    db.execute("alter table t set (change_feed = false)")
    db.execute("insert into t values (4)")
    db.commit()
    assert seen(feed) == [("start",), ("insert", 3), ("stop",)]


def test_rows_are_read_by_the_definition_of_their_time(table: Connection) -> None:
    feed = table.changes(before=True)
    table.insert("t", (1, "one"))
    table.execute("alter table t add column d decimal(10, 2) default 1.5")
    table.insert("t", (2, "two", 2))
    table.execute("savepoint a")
    table.execute("alter table t add column e int")
    table.insert("t", (3, "three", 3, 3))
    table.execute("rollback to a")
    table.execute("alter table t rename column s to text")
    table.execute("alter table t rename to u")
    table.insert("u", (4, "four", 4))
    table.commit()
    changes = [(c.table, c.operation, c.row and {k: str(v) for k, v in c.row.items()}) for c in feed]
    assert changes == [
        ("t", "insert", {"i": "1", "s": "one"}),
        ("t", "truncate", None),  # a column with a value makes the rows anew
        ("t", "insert", {"i": "1", "s": "one", "d": "1.50"}),
        ("t", "insert", {"i": "2", "s": "two", "d": "2.00"}),
        ("u", "insert", {"i": "4", "text": "four", "d": "4.00"}),
    ]


def test_changes_of_several_tables_and_of_some(table: Connection) -> None:
    table.execute("create table u (n bigint) with (change_feed = true)")
    table.execute("create table v (n bigint)")
    table.commit()
    everything, of_u = table.changes(), table.changes(tables=["u"])
    for n in range(3):
        table.execute("insert into t values (?, 'x')", (n,))
        table.execute("insert into u values (?)", (n,))
        table.execute("insert into v values (?)", (n,))
    table.commit()
    assert [(c.table, c.sequence) for c in everything] == [(name, n) for n, name in enumerate("tututu")]
    assert seen(of_u) == [("insert", 0), ("insert", 1), ("insert", 2)]


def test_a_snapshot_comes_first_and_then_every_change(table: Connection, connect: Connect) -> None:
    table.append("t", many(0, 2000))
    table.commit()
    other = connect()
    other.insert("t", (5000, "open"))  # in flight when the snapshot is taken
    feed = table.changes(tables=["t"], snapshot=True)
    table.execute("delete from t where i < 10")
    table.commit()
    other.commit()
    changes = list(feed)
    assert [c.operation for c in changes].count("snapshot") == 2000
    rows: dict[int, str] = {}
    apply(rows, changes)
    assert rows == dict(table.execute("select i, s from t").fetchall())
    assert table.execute("select count(*) from sys_snapshots where pinned is not null").fetchall() == [(0,)]


def apply(rows: dict[int, str], changes: list[Change]) -> None:
    for change in changes:
        if change.operation == "truncate":
            rows.clear()
            continue
        assert change.row is not None
        if change.operation == "delete":
            del rows[change.row["i"]]
        else:
            assert change.operation == "update" or change.row["i"] not in rows
            rows[change.row["i"]] = change.row["s"]


def test_batches(table: Connection) -> None:
    feed = table.changes(before=True)
    table.append("t", many(0, 100))
    table.execute("update t set s = 'new' where i = 5")
    table.commit()
    [(name, batch)] = list(feed.batches())
    assert name == "t"
    assert batch.schema.names == [
        "i",
        "s",
        "_op",
        "_scn",
        "_sequence",
        "_commit_time",
        "_rowid",
        "_before_i",
        "_before_s",
    ]
    assert batch.num_rows == 101
    assert batch.slice(100).to_pylist()[0]["_before_s"] == "row 5"
    assert batch.slice(0, 1).to_pylist()[0]["_before_s"] is None


def test_large_objects_are_left_out_if_that_is_asked_for(db: Connection) -> None:
    db.execute("create table t (i int, c clob, s varchar(9)) with (change_feed = true)")
    db.commit()
    feeds = db.changes(without_lobs=True), db.changes(tables=["t"], snapshot=True, without_lobs=True)
    db.execute("insert into t values (1, ?, 'x')", ("y" * 100_000,))
    db.commit()
    for feed in feeds:
        assert seen(feed) == [("insert", 1, "x")]


def test_large_objects_are_not_left_out_without_a_word(table: Connection) -> None:
    said = r"table t: its changes cannot have column c, CLOB.*changes\(..., without_lobs=True\)"
    feed, named = table.changes(), table.changes(tables=["t"], reader="mine")
    table.execute("insert into t values (1, 'before')")
    table.execute("alter table t add column c clob")
    table.execute("insert into t values (2, 'behind', 'text')")
    table.commit()
    for one in (feed, named):
        with pytest.raises(NotSupportedError, match=said):
            list(one)
    for options in ({}, {"snapshot": True}, {"reader": "mine"}):
        with pytest.raises(NotSupportedError, match=said):
            table.changes(tables=["t"], **options)
    assert [c.row and c.row["i"] for c in table.changes(reader="mine", without_lobs=True)] == [1, 2]


KEY_CHANGES = [  # the table, a statement, what a feed has without the values before
    ("i int primary key, s varchar(9)", "update t set i = 3 where i = 1", [("delete", 1, "a"), ("insert", 3, "a")]),
    ("i int primary key, s varchar(9)", "update t set i = i, s = 'c' where i = 1", [("update", 1, "c")]),
    ("i int, s varchar(9), primary key (s, i)", "update t set s = 'c'", [("delete", 1, "a"), ("insert", 1, "c")]),
    ("i int, s varchar(9)", "update t set s = null", [("delete", 1, "a"), ("insert", 1, None)]),
    ("i int, s varchar(9)", "update t set s = 'a'", [("update", 1, "a")]),
]


@pytest.mark.parametrize(("columns", "statement", "expected"), KEY_CHANGES)
def test_an_update_that_changes_the_key_is_a_deletion_and_an_insertion(
    db: Connection, columns: str, statement: str, expected: list[tuple[Any, ...]]
) -> None:
    db.execute(f"create table t ({columns}) with (change_feed = true)")
    db.execute("insert into t values (1, 'a')")
    db.commit()
    feed, with_before = db.changes(), db.changes(before=True)
    db.execute(statement)
    db.execute("insert into t values (9, 'z')")
    db.commit()
    changes = list(feed)
    assert [(c.operation, *(c.row or {}).values()) for c in changes] == [*expected, ("insert", 9, "z")]
    assert len({c.row_id for c in changes[:-1]}) == 1
    update, insert = with_before
    assert (update.operation, update.before) == ("update", {"i": 1, "s": "a"})
    assert [c.sequence for c in (update, insert)] == [changes[0].sequence, changes[-1].sequence]
    assert len({c.sequence for c in changes}) == len(changes)


def test_the_key_is_the_one_that_the_table_had_at_the_time(table: Connection) -> None:
    table.execute("insert into t values (1, 'a')")
    table.commit()
    feed = table.changes()
    for statement in ("alter table t drop constraint t_pkey", "alter table t add primary key (s)"):
        table.execute("update t set i = i + 1, s = 'b'")
        table.execute("update t set s = 'a'")
        table.commit()
        table.execute(statement)
        table.commit()
    table.execute("update t set i = i + 1")
    table.commit()
    moved = ["delete", "insert"]
    assert [change.operation for change in feed] == [*moved, "update", *moved, *moved, "update"]


def test_a_loop_that_is_left_between_the_halves_of_an_update_goes_on_with_the_second(table: Connection) -> None:
    table.execute("insert into t values (1, 'a')")
    table.commit()
    feed = table.changes()
    before = feed.position
    table.execute("update t set i = 2")
    table.commit()
    first = next(iter(feed))
    assert (first.operation, feed.position) == ("delete", before)
    assert seen(table.changes(since=feed.position)) == [("delete", 1, "a"), ("insert", 2, "a")]
    assert seen(feed) == [("insert", 2, "a")]
    assert feed.position != before
    assert seen(table.changes(since=feed.position)) == []


def test_every_type_and_null(db: Connection) -> None:
    db.execute(
        "create table t (a int, b bigint, c double precision, d boolean, e date, f timestamp, g char(5), "
        "h varbinary(10), i decimal(30, 4), j decimal(5, 1)) with (change_feed = true)"
    )
    db.commit()
    feed = db.changes(before=True)
    values = (
        -5,
        2**60,
        0.25,
        True,
        datetime(2020, 2, 3).date(),
        datetime(2020, 2, 3, 4, 5, 6, 7),
        "ab",
        b"\0\1",
        12,
        3,
    )
    db.execute("insert into t values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", values)
    db.execute("insert into t values (null, null, null, null, null, null, null, null, null, null)")
    db.execute("update t set a = a, b = 1, i = null where a is not null")
    db.commit()
    stored = db.execute("select * from t where a is not null").fetchone()
    first, second, third = list(feed)
    assert third.row is not None
    assert tuple(third.row.values()) == stored
    assert third.before == first.row
    assert second.row is not None
    assert set(second.row.values()) == {None}


def test_following(table: Connection) -> None:
    feed = table.changes()
    table.insert("t", (1, "one"))
    table.commit()
    assert [c.row for c in feed.follow(patience=0.2)] == [{"i": 1, "s": "one"}]


def test_a_feed_outlives_the_database(path: Path) -> None:
    with gmdb.connect(path) as db:
        db.execute("create table t (i int) with (change_feed = true)")
        db.commit()
        feed = db.changes(reader="mine")
        db.insert("t", (1,))
        db.commit()
    assert seen(feed) == [("insert", 1)]
    with gmdb.connect(path) as db:
        db.insert("t", (2,))
    gmdb.connect(path).close()  # a log without anything in it leads from one to the next, too
    with gmdb.connect(path) as db:
        db.insert("t", (3,))
        db.commit()
        assert seen(feed) == [("insert", 2), ("insert", 3)]
        feed.acknowledge()
        db.insert("t", (4,))
        db.commit()
        assert seen(db.changes(reader="mine")) == [("insert", 4)]


def test_since_a_time(table: Connection) -> None:
    table.insert("t", (1, "a"))
    table.commit()
    feed = table.changes(reader="holds-the-log", since=None)
    table.insert("t", (2, "b"))
    table.commit()
    between = datetime.now() + timedelta(microseconds=1)
    table.insert("t", (3, "c"))
    table.commit()
    assert seen(table.changes(since=between)) == [("insert", 3, "c")]
    assert seen(feed) == [("insert", 2, "b"), ("insert", 3, "c")]


def test_a_closed_feed(table: Connection) -> None:
    with table.changes() as feed:
        pass
    with pytest.raises(InterfaceError, match="closed"):
        list(feed)
    with pytest.raises(InterfaceError, match="reader"):
        table.changes().acknowledge()


def test_what_was_not_given_out_comes_next(table: Connection) -> None:
    feed = table.changes(tables=["t"], snapshot=True)
    first = table.changes()
    for n in range(3):
        table.insert("t", (n, "x"))
        table.insert("t", (n + 10, "x"))
        table.commit()
    got = []
    for change in first:
        got.append(change.row["i"])  # type: ignore[index]
        if change.row["i"] == 1:  # type: ignore[index]
            break
    behind = table.changes(since=first.position)  # behind the first transaction, of which all was given out
    assert [c.row["i"] for c in behind] == [1, 11, 2, 12]  # type: ignore[index]
    got += [c.row["i"] for c in first]  # type: ignore[index]
    assert got == [0, 10, 1, 11, 2, 12]
    assert [c.row["i"] for c in feed] == got  # type: ignore[index]


def test_rows_of_a_snapshot_after_a_break_and_in_batches(table: Connection) -> None:
    table.append("t", many(0, 10))
    table.commit()
    feed, batches = (table.changes(tables=["t"], snapshot=True) for _ in range(2))
    next(iter(feed))
    assert len(list(feed)) == 9
    [(_, batch)] = list(batches.batches())
    assert batch.column("_op").to_pylist() == ["snapshot"] * 10
    unread = table.changes(tables=["t"], snapshot=True)
    unread.close()
    assert table.execute("select count(*) from sys_snapshots where pinned is not null").fetchall() == [(0,)]


def test_an_error_on_the_way_loses_nothing(table: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    feed = table.changes()
    table.insert("t", (1, "one"))
    table.commit()
    for broken in ("sync", "rows", "after_end"):
        with monkeypatch.context() as patch:
            patch.setattr(ChangeLog, broken, lambda *_: (_ for _ in ()).throw(StorageError("for once")))
            with pytest.raises(StorageError, match="for once"):
                list(feed)
    assert seen(feed) == [("insert", 1, "one")]


def test_a_feed_that_was_off_for_a_while(table: Connection) -> None:
    named, plain = table.changes(tables=["t"], reader="mine"), table.changes(tables=["t"])
    position = plain.position
    table.insert("t", (1, "logged"))
    table.execute("alter table t set (change_feed = false)")
    table.insert("t", (2, "not logged"))
    table.commit()
    assert seen(table.changes(tables=["t"], reader="mine")) == [("insert", 1, "logged"), ("stop",)]
    table.execute("alter table t set (change_feed = true)")
    table.insert("t", (3, "logged again"))
    table.commit()
    expected = [("insert", 1, "logged"), ("stop",), ("start",), ("insert", 3, "logged again")]
    assert seen(table.changes(tables=["t"], reader="mine")) == expected
    with pytest.raises(PositionGone, match="are logged since commit"):
        list(table.changes(tables=["t"], since=position))
    named.close()


def test_columns_that_are_called_like_the_feeds_own(db: Connection) -> None:
    db.execute('create table t ("_op" int, "_before_x" int, "_scn" int) with (change_feed = true)')
    db.commit()
    feed = db.changes(before=True)
    db.execute("insert into t values (1, 2, 3)")
    db.execute('update t set "_op" = 4')
    db.commit()
    assert [(c.operation, c.row and tuple(c.row.values()), c.before) for c in feed] == [
        ("insert", (1, 2, 3), None),
        ("update", (4, 2, 3), {"_op": 1, "_before_x": 2, "_scn": 3}),
    ]


def test_loads_and_what_takes_the_place_of_all_rows(table: Connection) -> None:
    feed = table.changes()
    table.append("t", many(0, 2000))
    table.commit()
    table._attach_load(stage(table, "t", many(5000, 3000), overwrite=True))
    table.insert("t", (1, "after"))
    table.commit()
    rows: dict[int, str] = {}
    apply(rows, list(feed))
    assert rows == dict(table.execute("select i, s from t").fetchall())
    assert len(rows) == 3001
