"""Sessions of several processes: what they see of each other, and how they wait."""

from __future__ import annotations

import time
from pathlib import Path

import pyarrow as pa
import pytest

import gmdb
from gmdb.database.connection import Connection
from gmdb.errors import Deadlock, LockTimeout, ReadOnly, RowLocked, ValueTooLong, WriteConflict
from tests.server.peer import SOON, Peer


def values(db: Connection) -> list[str]:
    return sorted(row["s"] for row in db.arrow("t").read_all().to_pylist())


def test_nobody_sees_a_change_before_it_is_committed(db: Connection, owner: Peer, second: Peer) -> None:
    db.update("t", {"s": "new"}, lambda row: row["i"] == 1)
    for other in (owner, second):
        assert other("sorted(db.arrow('t').read_all()['s'].to_pylist())") == ["one", "two"]
    assert values(db) == ["new", "two"]
    db.commit()
    for other in (owner, second):
        assert other("sorted(db.arrow('t').read_all()['s'].to_pylist())") == ["new", "two"]


def test_a_client_keeps_its_snapshot_under_repeatable_read(owner: Peer, path: Path) -> None:
    with gmdb.connect(path, isolation="repeatable read") as db:
        row_id = db.select_for_update("t")[0][0]
        db.rollback()
        assert values(db) == ["one", "two"]
        owner("db.update('t', {'s': 'x'}); db.commit()")
        assert values(db) == ["one", "two"]
        assert db.heap("t").fetch(row_id) == (1, "one")
        with pytest.raises(WriteConflict):
            db.heap("t").update(row_id, {"s": "mine"})
        db.rollback()
        assert values(db) == ["x", "x"]


def test_a_wait_for_another_process_ends_when_it_commits(db: Connection, owner: Peer, second: Peer) -> None:
    db.update("t", lambda row: {"i": row["i"] + 10}, lambda row: row["i"] == 1)
    second.start("db.update('t', lambda row: {'i': row['i'] + 100})")
    assert not second.has_answered(0.2)
    assert owner("len(db._database.transactions.waits.waiting())") == 1
    db.commit()
    assert second.finish() == 2
    second("db.commit()")
    assert sorted(db.arrow("t").read_all()["i"].to_pylist()) == [102, 111]


def test_an_owner_waits_for_a_client_too(db: Connection, owner: Peer) -> None:
    db.update("t", {"s": "mine"})
    owner.start("db.update('t', {'s': 'yours'})")
    assert not owner.has_answered(0.2)
    db.commit()
    assert owner.finish() == 2
    owner("db.commit()")
    assert values(db) == ["yours", "yours"]


def test_a_wait_ends_with_a_timeout(db: Connection, second: Peer, path: Path) -> None:
    db.update("t", {"s": "mine"})
    second("short = gmdb.connect(path, lock_timeout=0.2)", path=str(path))
    began = time.monotonic()
    with pytest.raises(LockTimeout, match=r"for over 0.2 s \(lock_timeout\)"):
        second("short.update('t', {'s': 'yours'})")
    assert time.monotonic() - began < SOON
    with pytest.raises(RowLocked):
        second("short.select_for_update('t', nowait=True)")
    assert second("short.select_for_update('t', skip_locked=True)") == []
    second("short.close()")


def test_two_processes_that_wait_for_each_other_are_told(db: Connection, second: Peer) -> None:
    db.update("t", {"s": "a"}, lambda row: row["i"] == 1)
    second("db.update('t', {'s': 'b'}, lambda row: row['i'] == 2)")
    second.start("db.update('t', {'s': 'b'}, lambda row: row['i'] == 1)")
    assert not second.has_answered(0.2)
    with pytest.raises(Deadlock, match="roll back and try again"):
        db.update("t", {"s": "a"}, lambda row: row["i"] == 2)
    db.rollback()
    assert second.finish() == 1
    second("db.commit()")
    assert values(db) == ["b", "b"]


def test_a_table_in_use_by_another_process_is_dropped_when_that_is_done(db: Connection, second: Peer) -> None:
    db.select_for_update("t")
    second.start("db.drop_table('t')\ndb.commit()")
    assert not second.has_answered(0.2)
    db.commit()
    second.finish()
    assert db.tables() == []


def test_increments_of_three_processes_all_count(db: Connection, owner: Peer, second: Peer) -> None:
    loop = "for _ in range(40):\n    db.update('t', lambda row: {'i': row['i'] + 1}, lambda row: row['s'] == 'one')\n"
    for other in (owner, second):
        other.start(loop + "    db.commit()")
    for _ in range(40):
        db.update("t", lambda row: {"i": row["i"] + 1}, lambda row: row["s"] == "one")
        db.commit()
    owner.finish()
    second.finish()
    assert sorted(db.arrow("t").read_all()["i"].to_pylist()) == [2, 121]


def test_a_client_for_reading_changes_nothing(owner: Peer, path: Path) -> None:
    with gmdb.connect(path, read_only=True) as reader:
        assert values(reader) == ["one", "two"]
        heap = reader.heap("t")
        row_id = next(heap.rows())[0]
        message = f"{path} is open for reading only"
        for change in (
            lambda: heap.insert((3, "three")),
            lambda: heap.update(row_id, {"s": "x"}),
            lambda: heap.delete(row_id),
            lambda: heap.lock(row_id),
            lambda: reader.delete("t"),
            lambda: reader.append("t", pa.table({"i": [1], "s": ["x"]})),
            lambda: reader.create_table("u", {"i": "INT"}),
            lambda: reader.create_tablespace("u"),
            lambda: reader.drop_table("t"),
            reader.checkpoint,
        ):
            with pytest.raises(ReadOnly, match=message):
                change()
        owner("db.update('t', {'s': 'x'}); db.commit()")
        assert values(reader) == ["x", "x"]


def test_a_reader_gets_one_instant_while_others_write(owner: Peer, path: Path) -> None:
    del owner
    with gmdb.connect(path) as db, gmdb.connect(path) as other:
        db.create_tablespace("wide", page_size=32768)
        db.create_table("many", {"i": "INT", "v": "VARBINARY(15000)"}, tablespace="wide")
        db.commit()
        db.append("many", pa.table({"i": range(1200), "v": [b"x" * 15000] * 1200}))
        db.commit()
        reader = db.arrow("many", ["i"])
        first = reader.read_next_batch()["i"].to_pylist()
        assert len(first) < 1200
        other.update("many", {"i": 0}, lambda row: row["i"] > 1000)
        other.delete("many", lambda row: row["i"] == 0)
        other.commit()
        assert first + reader.read_all()["i"].to_pylist() == list(range(1200))
        assert db.arrow("many", ["i"]).read_all().num_rows == 1000
        db.drop_table("many")


def test_many_connections_of_one_process_share_the_owner(owner: Peer, path: Path) -> None:
    del owner
    opened = [gmdb.connect(path) for _ in range(30)]
    for number, connection in enumerate(opened):
        connection.insert("t", (100 + number, "x"))
    for connection in opened:
        assert connection.arrow("t").read_all().num_rows == 3
        connection.rollback()
    for connection in opened:
        connection.close()


def test_batches_that_are_refused_while_more_are_being_sent_are_refused_by_their_own_error(db: Connection) -> None:
    """The owner answers before the client has sent everything; the answer must not be lost."""
    good = pa.record_batch({"i": pa.array(range(1000), pa.int32()), "s": ["x"] * 1000})
    bad = pa.record_batch({"i": pa.array([1], pa.int32()), "s": ["x" * 11]})
    for _ in range(5):
        with pytest.raises(ValueTooLong, match="column s, row 1000"):
            db.append("t", iter([good, bad, *[good] * 300]))
    assert db.append("t", good) == 1000
    db.rollback()
