"""Indexes beside transactions: what they find, what they refuse, who waits for whom."""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow as pa
import pytest

import gmdb
from gmdb.database.connection import Connection
from gmdb.errors import (
    LockTimeout,
    NoSuchIndex,
    NoSuchTable,
    SchemaError,
    SnapshotTooOld,
    UniqueViolation,
    ValueTooLong,
)
from gmdb.format.address import RowId
from gmdb.format.redo import REDO_GROUP
from gmdb.kernel.change.index_upkeep import INDEXES_MAX
from tests.integrity import assert_sound
from tests.model.checks import check_indexes

COLUMNS = {"k": "INT", "s": "VARCHAR(3000)"}


@pytest.fixture
def table(db: Connection) -> Connection:
    db.create_table("t", COLUMNS)
    db.create_index("t_k", "t", ["k"], unique=True)
    db.commit()
    return db


def keys(db: Connection, index: str = "t_k") -> list[int]:
    return [values[0] for _, values in db.heap("t").by(index).range()]


def test_an_index_of_a_table_with_rows_has_them(db: Connection) -> None:
    db.create_table("t", COLUMNS)
    db.commit()
    db.append("t", pa.table({"k": pa.array(range(999, -1, -1), pa.int32()), "s": ["x"] * 1000}))
    db.commit()
    db.create_index("t_k", "t", ["k"], unique=True)
    db.commit()
    assert keys(db) == list(range(1000))
    db.commit()
    check_indexes(db, "t")


def test_a_key_is_found_once_its_row_is_committed_and_not_after_it_is_gone(table: Connection, path: Path) -> None:
    other = gmdb.connect(path)
    row_id = table.insert("t", (1, "a"))
    assert other.heap("t").by("t_k").find((1,)) == []
    assert table.heap("t").by("t_k").find((1,)) == [(row_id, (1, "a"))]
    table.commit()
    assert other.heap("t").by("t_k").find((1,)) == [(row_id, (1, "a"))]
    table.heap("t").update(row_id, {"k": 2})
    assert other.heap("t").by("t_k").find((1,)) == [(row_id, (1, "a"))]
    assert other.heap("t").by("t_k").find((2,)) == []
    table.commit()
    assert other.heap("t").by("t_k").find((1,)) == []
    table.heap("t").delete(row_id)
    table.commit()
    assert other.heap("t").by("t_k").find((2,)) == []
    other.close()
    table.gc()
    check_indexes(table, "t")


def test_a_duplicate_is_refused_and_the_statement_leaves_no_trace(table: Connection) -> None:
    row_id = table.insert("t", (1, "a"))
    table.insert("t", (2, "b"))
    table.commit()
    with pytest.raises(UniqueViolation, match=rf"table t, index t_k \(k\): row {row_id} has the same key already"):
        table.insert("t", (1, "again"))
    with pytest.raises(UniqueViolation):
        table.update("t", {"k": 1}, lambda row: row["k"] == 2)
    with pytest.raises(UniqueViolation):
        table.append("t", pa.table({"k": pa.array([7, 8, 2], pa.int32()), "s": ["x"] * 3}))
    assert keys(table) == [1, 2]
    table.commit()
    table.gc()
    check_indexes(table, "t")


def test_nulls_are_no_duplicates_and_sort_last(table: Connection) -> None:
    for value in (None, 5, None, 3):
        table.insert("t", (value, "x"))
    assert keys(table) == [3, 5, None, None]


def test_a_key_that_another_transaction_may_give_up_is_waited_for(table: Connection, path: Path) -> None:
    other = gmdb.connect(path, lock_timeout=10)
    table.insert("t", (1, "a"))
    outcome: list[object] = []

    def insert() -> None:
        try:
            outcome.append(other.insert("t", (1, "b")))
            other.commit()
        except UniqueViolation as error:
            outcome.append(error)
            other.rollback()

    for end, expected in ((table.rollback, RowId), (table.commit, UniqueViolation)):
        outcome.clear()
        if expected is UniqueViolation:
            other.delete("t")
            other.commit()
            table.insert("t", (1, "a"))
        waiting = threading.Thread(target=insert)
        waiting.start()
        waiting.join(0.3)
        assert not outcome, "it did not wait"
        end()
        waiting.join(10)
        assert isinstance(outcome[0], expected)
    impatient = gmdb.connect(path, lock_timeout=0.1)
    table.insert("t", (9, "a"))
    with pytest.raises(LockTimeout, match="row 4:"):
        impatient.insert("t", (9, "b"))
    impatient.close()
    other.close()


def test_a_deleted_key_can_be_used_again_before_garbage_is_collected(table: Connection) -> None:
    for n in range(5):
        row_id = table.insert("t", (1, f"{n}"))
        table.commit()
        table.heap("t").delete(row_id)
    table.insert("t", (1, "last"))
    table.commit()
    assert [values for _, values in table.heap("t").by("t_k").find((1,))] == [(1, "last")]
    table.commit()
    table.gc()
    check_indexes(table, "t")


def test_an_index_made_by_one_session_is_kept_by_the_heaps_of_others(db: Connection, path: Path) -> None:
    db.create_table("t", COLUMNS)
    db.commit()
    other = gmdb.connect(path)
    heap = other.heap("t")
    heap.insert((1, "a"))
    other.commit()
    db.create_index("t_k", "t", ["k"])
    db.commit()
    heap.insert((2, "b"))
    other.commit()
    assert keys(db) == [1, 2]
    db.drop_index("t_k")
    db.commit()
    heap.insert((3, "c"))
    with pytest.raises(NoSuchIndex, match="table t has no index t_k; its indexes are: none yet"):
        heap.by("t_k")
    other.close()


def test_a_snapshot_from_before_an_index_does_not_go_by_it(db: Connection, path: Path) -> None:
    db.create_table("t", COLUMNS)
    db.create_table("other", {"i": "INT"})
    db.commit()
    row_id = db.insert("t", (1, "a"))
    db.commit()
    reader = gmdb.connect(path, isolation="repeatable read")
    assert list(reader.heap("other").rows()) == []  # its snapshot is taken
    db.heap("t").update(row_id, {"k": 2})
    db.commit()
    db.create_index("t_k", "t", ["k"])
    db.commit()
    for read in (lambda by: by.find((1,)), lambda by: list(by.range())):
        with pytest.raises(SnapshotTooOld, match="index t_k is newer than this transaction's snapshot"):
            read(reader.heap("t").by("t_k"))
    reader.commit()
    assert reader.heap("t").by("t_k").find((2,)) == [(row_id, (2, "a"))]
    reader.close()


def test_a_key_longer_than_any_entry_is_not_found(table: Connection) -> None:
    table.create_index("t_s", "t", ["s", "k"])
    table.commit()
    table.insert("t", (1, "x"))
    assert table.heap("t").by("t_s").find(("x" * 3000, 1)) == []


def test_an_index_that_cannot_be_made_leaves_the_table_to_others(db: Connection, path: Path) -> None:
    db.create_table("t", COLUMNS)
    db.commit()
    db.insert("t", (1, "a"))
    db.insert("t", (1, "b"))
    db.commit()
    with pytest.raises(UniqueViolation):
        db.create_index("t_k", "t", ["k"], unique=True)
    db.commit()
    with gmdb.connect(path, lock_timeout=0) as other:
        other.insert("t", (2, "c"))
    db.create_index("t_k", "t", ["k"])
    db.commit()
    assert keys(db) == [1, 1, 2]


def test_an_index_that_cannot_be_named_leaves_the_transaction_as_it_is(table: Connection) -> None:
    table.insert("t", (1, "open"))
    with pytest.raises(NoSuchTable):
        table.create_index("n", "nowhere", ["k"])
    with pytest.raises(NoSuchIndex):
        table.drop_index("nothing")
    table.rollback()
    assert keys(table) == []


def test_whoever_kept_an_index_that_was_dropped_is_told_so(table: Connection, path: Path) -> None:
    with gmdb.connect(path) as other:
        kept = other.heap("t").by("t_k")
        assert kept.find((1,)) == []
        other.commit()
        table.create_index("more", "t", ["s"])
        table.commit()
        assert kept.find((1,)) == []  # another index has come; this one is still there
        other.commit()
        table.drop_index("t_k")
        table.commit()
        for read in (lambda: kept.find((1,)), lambda: list(kept.range())):
            with pytest.raises(NoSuchIndex, match="table t has no index t_k; its indexes are: more"):
                read()
        other.commit()
        table.create_index("t_k", "t", ["k"])
        table.commit()
        assert kept.find((1,)) == []  # another one, which has the name
        assert other.heap("t").by("t_k").find((1,)) == []


def test_a_walk_whose_snapshot_was_given_up_says_so_though_its_index_is_gone(table: Connection, path: Path) -> None:
    table._database.transactions.stop()
    for n in range(500):
        table.insert("t", (n, "x"))
    table.commit()
    with gmdb.connect(path) as reader:
        walk = reader.heap("t").by("t_k").range()
        next(walk)
        reader.commit()  # the table is not held any more; the cursor keeps its snapshot
        table.drop_index("t_k")
        table.commit()
        assert table._database.transactions.snapshots.cancel_oldest()
        table.gc()
        table.create_table("u", {"s": "VARCHAR(3000)"})
        table.commit()
        for _ in range(100):
            table.insert("u", ("y" * 3000,))
        table.commit()
        with pytest.raises(SnapshotTooOld):
            list(walk)


def test_the_number_of_an_index_that_only_the_log_knows_is_not_given_again(table: Connection) -> None:
    database = table._database
    [index] = table.table("t").indexes
    assert index.obj_id > table.table("t").obj_id
    database.store.control["next_obj_id"] = index.obj_id  # as in a copy that is older than the index
    assert database._numbers_given() == {"next_obj_id": index.obj_id + 1}
    database.store.control["next_obj_id"] = index.obj_id + 1
    assert database._numbers_given() == {}


def test_no_group_of_redo_is_too_long_however_many_keys_are_entered(
    db: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many indexes as a table can have, and all of their pages split at the same rows."""
    db.create_table("t", {"s": "VARCHAR(300)"})
    db.commit()
    for n in range(INDEXES_MAX):
        db.create_index(f"t_{n}", "t", ["s"])
        db.commit()
    redo = db._database.durability.redo  # type: ignore[union-attr]
    write_out, lengths = redo._write_out, []

    def note() -> int:
        data, at = bytes(redo._buffer[: redo._get("log_end")]), 0
        while at < len(data):
            lengths.append(REDO_GROUP.at(data, at).length)
            at += lengths[-1]
        return write_out()

    monkeypatch.setattr(redo, "_write_out", note)
    db.append("t", pa.table({"s": [f"{n * 7919 % 1000:04d}" * 50 for n in range(400)]}))
    db.commit()
    assert 60_000 < max(lengths) < 250_000
    check_indexes(db, "t")


def test_names_and_keys_that_cannot_be_are_refused(table: Connection) -> None:
    with pytest.raises(SchemaError, match="there is an index T_K already"):
        table.create_index("T_K", "t", ["s"])
    with pytest.raises(SchemaError, match="has no column nope"):
        table.create_index("n", "t", ["nope"])
    with pytest.raises(SchemaError, match="named twice"):
        table.create_index("n", "t", ["k", "k"])
    with pytest.raises(NoSuchTable):
        table.create_index("n", "nowhere", ["k"])
    with pytest.raises(NoSuchIndex):
        table.drop_index("nothing")
    table.create_index("t_s", "t", ["s"])
    table.commit()
    with pytest.raises(ValueTooLong, match=r"index t_s \(s\): a key has at most 2000 bytes"):
        table.insert("t", (1, "x" * 2500))
    table.insert("t", (1, "x"))
    table.insert("t", (2, "x"))
    table.commit()
    with pytest.raises(UniqueViolation, match=r"table t, index .*: two rows have the same key \(s\)"):
        table.create_index("u", "t", ["s"], unique=True)
    assert [index.name for index in table.table("t").indexes] == ["t_k", "t_s"]


def test_indexes_are_there_after_the_database_was_closed(path: Path) -> None:
    with gmdb.connect(path) as db:
        db.create_table("t", COLUMNS)
        db.create_index("t_s", "t", ["s", "k"])
        db.commit()
        for n in range(2000):
            db.insert("t", (n, f"{n % 7}"))
    with gmdb.connect(path) as db:
        expected = sorted(((n, f"{n % 7}") for n in range(2000)), key=lambda row: (row[1], row[0]))
        assert [values for _, values in db.heap("t").by("t_s").range()] == expected
        assert [values for _, values in db.heap("t").by("t_s").range(("3",), ("3",), backwards=True)] == [
            row for row in expected[::-1] if row[1] == "3"
        ]


def test_an_entry_gets_back_no_lock_that_was_cleaned_up_meanwhile(path: Path) -> None:
    with gmdb.connect(path) as db:
        db._database.transactions.stop()
        db.create_table("t", COLUMNS)
        db.create_index("t_k", "t", ["k"], unique=True)
        db.commit()
        row_id = db.insert("t", (1, "a"))
        db.commit()
        db.heap("t").delete(row_id)
        db.gc()
        db.rollback()
    assert_sound(path)


def test_a_mark_whose_maker_is_cleaned_up_does_not_come_back_beneath_another_change(path: Path) -> None:
    with gmdb.connect(path) as db, gmdb.connect(path, isolation="repeatable read") as reader:
        db._database.transactions.stop()
        db.create_table("t", COLUMNS)
        db.create_index("t_k", "t", ["k"], unique=True)
        db.commit()
        row_id = db.insert("t", (1, "a"))
        db.commit()
        db.gc()
        db.heap("t").update(row_id, {"k": 2})  # marks the entry of 1
        db.commit()
        assert reader.heap("t").by("t_k").find((2,)) == [(row_id, (2, "a"))]
        db.heap("t").update(row_id, {"s": "b"})
        db.commit()
        db.heap("t").update(row_id, {"k": 1})  # takes the mark off
        db.gc()  # the first change is cleaned up; the second is kept for the reader
        db.rollback()
        reader.rollback()
    assert_sound(path)
