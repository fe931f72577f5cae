"""The owner dies: another process takes over, and the programs of the others notice only what they must."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import gmdb
from gmdb.database.connection import Connection
from gmdb.database.operations import Again
from gmdb.errors import (
    InterfaceError,
    LostWithOwner,
    NoSuchTable,
    OutcomeUnknown,
    ReadOnlyTransaction,
    StatementInterrupted,
    Transient,
    UniqueViolation,
)
from gmdb.server.entrance import find_place
from gmdb.server.link import again_of
from gmdb.server.remote import RemoteConnection
from tests.integrity import assert_sound
from tests.searches import extent
from tests.server import takeover
from tests.server.peer import Peer
from tests.server.serving import TOKEN, Serving
from tests.sessions import answer, in_thread, until

StartPeer = Callable[[], Peer]
WORKERS, REQUESTS = 4, 40


def own(peer: Peer, path: Path) -> Peer:
    peer("db = gmdb.connect(path, autocommit=True)", path=str(path))
    return peer


@pytest.fixture
def owner(start_peer: StartPeer, path: Path) -> Iterator[Peer]:
    """A process that a test may kill, and what comes after it is checked."""
    peer = own(start_peer(), path)
    peer("_ = db.execute('create table t (i int primary key, s varchar(10), b blob)')")
    peer("_ = db.execute(\"insert into t values (1, 'one', null)\")")
    yield peer
    peer.end()
    gmdb.connect(path).close()  # if nobody has come after it
    assert_sound(path)


@pytest.fixture
def db(owner: Peer, path: Path) -> Iterator[Connection]:
    """A connection through it, each of whose statements commits."""
    del owner
    with gmdb.connect(path, autocommit=True) as connection:
        assert isinstance(connection, RemoteConnection)
        yield connection


def in_flight(owner: Peer, db: Connection, ask: Callable[[], Any]) -> Future[Any]:
    """Ask for something of an owner that is killed before it can answer."""
    os.kill(owner.pid, signal.SIGSTOP)
    before = db._link._number  # type: ignore[attr-defined]
    asked = in_thread(ask)
    until(lambda: db._link._number > before)  # type: ignore[attr-defined]
    owner.kill()
    return asked


def numbers(db: Connection) -> list[int]:
    return [i for (i,) in db.execute("select i from t order by i").fetchall()]


# ---- what a program does not notice


def test_a_connection_and_all_that_it_gave_out_goes_on_in_its_own_process(owner: Peer, db: Connection) -> None:
    db.autocommit = False
    db.isolation = "repeatable read"
    heap, cursor = db.heap("t"), db.cursor()
    keyed, selected = heap.by("t_pkey"), db.select("t", ["i"])
    db.commit()
    owner.kill()
    cursor.execute("insert into t values (2, 'two', null)")
    assert (db.autocommit, db.isolation, db.in_transaction) == (False, "repeatable read", True)
    assert db.recovery is not None  # it is this process that has the database open
    row_id = heap.insert((3, "three", b"3"))
    heap.update(row_id, {"s": "drei"})
    heap.lock(row_id)
    assert heap.fetch(row_id) == (3, "drei", b"3")
    assert heap.open_lob("b", row_id).read_at(0, 1) == b"3"
    assert [row[0] for _, row in keyed.range((2,))] == [2, 3]
    assert heap.append(pa.table({"i": [4, 5], "s": ["x", "y"], "b": [None, None]})) == 2
    assert sorted(selected.arrow().read_all()["i"].to_pylist()) == [1, 2, 3, 4, 5]
    with db.one_snapshot() as reading:
        assert db.select("t", ["i"]).read_by(reading).read_all().num_rows == 5
        assert selected.read_by(reading).read_all().num_rows == 5
    with pytest.raises(UniqueViolation):
        heap.insert((1, "", None))
    db.update("t", {"s": "z"}, lambda row: row["i"] == 4)
    db.delete("t", lambda row: row["i"] == 5)
    heap.delete(row_id)
    assert len(list(heap.rows())) == 3
    db.commit()
    assert numbers(db) == [1, 2, 4]


def test_one_of_several_becomes_the_owner_and_the_others_find_it(
    start_peer: StartPeer, owner: Peer, path: Path
) -> None:
    others = [own(start_peer(), path) for _ in range(3)]
    owner.kill()
    for n, other in enumerate(others):
        other.start(f"_ = db.execute('insert into t values ({10 + n}, null, null)')")
    for other in others:
        other.finish()
    assert sorted(other("db._link.local is None") for other in others) == [False, True, True]
    assert others[0]("db.execute('select i from t order by i').fetchall()") == [(1,), (10,), (11,), (12,)]
    for other in others:
        other("db.close()")


def test_what_surely_lasts_not_is_asked_for_again(owner: Peer, db: Connection) -> None:
    db.autocommit = False
    asked = in_flight(owner, db, lambda: db.execute("insert into t values (2, 'two', null)"))
    assert answer(asked).rowcount == 1
    db.commit()
    assert numbers(db) == [1, 2]


def test_a_transaction_that_was_begun_and_has_done_nothing_is_begun_again(owner: Peer, db: Connection) -> None:
    db.begin()
    assert numbers(db) == [1]
    owner.kill()
    db.execute("insert into t values (2, 'two', null)")
    db.rollback()
    assert numbers(db) == [1]
    assert db.autocommit


def test_what_is_set_for_all_transactions_holds_and_what_is_set_for_one_is_missed(owner: Peer, db: Connection) -> None:
    db.execute("set session characteristics as transaction isolation level repeatable read, read only")
    db.execute("set lock_timeout = 1234")
    db.execute("begin isolation level read committed")
    assert numbers(db) == [1]
    owner.kill()
    with pytest.raises(LostWithOwner):
        db.execute("set lock_timeout = 5")
    with pytest.raises(LostWithOwner):
        numbers(db)
    db.rollback()
    assert db.isolation == "repeatable read"
    assert db.execute("show lock_timeout").fetchall() == [("1234ms",)]
    with pytest.raises(ReadOnlyTransaction):
        db.execute("delete from t")


@pytest.mark.parametrize("begin", ["begin read only", "begin; set constraints all deferred"])
def test_a_transaction_of_which_something_was_said_is_lost(owner: Peer, db: Connection, begin: str) -> None:
    db.executescript(begin)
    owner.kill()
    with pytest.raises(LostWithOwner):
        db.execute("delete from t")
    db.execute("rollback")
    assert numbers(db) == [1]


@pytest.mark.parametrize("isolation", ["read committed", "repeatable read"])
def test_a_transaction_that_has_only_read_is_lost_if_its_instant_is(owner: Peer, path: Path, isolation: Any) -> None:
    with gmdb.connect(path, isolation=isolation) as db:
        assert numbers(db) == [1]
        owner.kill()
        if isolation == "repeatable read":
            with pytest.raises(LostWithOwner):
                numbers(db)
            db.rollback()
        assert numbers(db) == [1]


def test_a_read_of_which_nothing_was_given_out_is_made_again(owner: Peer, db: Connection) -> None:
    earlier, unread = db.arrow("t"), db.execute("select i from t")
    owner.kill()
    assert unread.fetchall() == [(1,)]
    with pytest.raises(LostWithOwner):  # by now it would be another instant
        earlier.read_all()


def test_a_read_in_flight_is_made_again(owner: Peer, db: Connection) -> None:
    assert answer(in_flight(owner, db, lambda: numbers(db))) == [1]


def test_a_heap_whose_table_is_another_by_now_says_so(start_peer: StartPeer, owner: Peer, path: Path) -> None:
    db, other = gmdb.connect(path, autocommit=True), own(start_peer(), path)
    heap = db.heap("t")
    owner.kill()
    other("_ = db.execute('drop table t')")
    other("_ = db.execute('create table t (i int primary key, s varchar(10), b blob)')")
    with pytest.raises(NoSuchTable):
        heap.insert((1, "", None))
    db.close()
    other("db.close()")


def test_threads_that_share_a_connection_go_on(owner: Peer, db: Connection) -> None:
    owner.kill()
    asked = [in_thread(lambda n=n: db.execute("insert into t values (?, null, null)", (n,))) for n in range(2, 10)]
    for one in asked:
        answer(one)
    assert numbers(db) == list(range(1, 10))


def test_threads_that_connect_at_once_load_what_they_need_once(path: Path) -> None:
    gmdb.connect(path).close()
    fresh = Peer("from concurrent.futures import ThreadPoolExecutor")
    try:
        fresh("together = threading.Barrier(8)")
        fresh("pool = ThreadPoolExecutor(8)")
        connect = "pool.map(lambda n: (together.wait(), gmdb.connect(path))[1], range(8))"
        assert fresh(f"len(list({connect}))", path=str(path)) == 8
    finally:
        fresh.end()


# ---- what it must know


def test_a_transaction_is_lost_until_it_is_rolled_back(owner: Peer, db: Connection) -> None:
    db.autocommit = False
    db.execute("insert into t values (2, 'two', null)")
    owner.kill()
    for _ in range(2):  # else a program that goes on would do half of it
        with pytest.raises(LostWithOwner, match="rolled back") as raised:
            db.execute("insert into t values (3, 'three', null)")
        assert isinstance(raised.value, Transient)
    db.rollback()
    assert numbers(db) == [1]


@pytest.mark.parametrize(
    "commit",
    [lambda db: db.commit(), lambda db: db.execute("commit"), lambda db: setattr(db, "autocommit", False)],
)
def test_a_commit_says_that_its_transaction_was_lost(
    owner: Peer, db: Connection, commit: Callable[[Connection], Any]
) -> None:
    db.begin()
    db.execute("insert into t values (2, 'two', null)")
    owner.kill()
    with pytest.raises(LostWithOwner, match="rolled back"):
        commit(db)
    assert numbers(db) == [1]
    assert db.autocommit


def test_a_rollback_needs_no_owner(owner: Peer, db: Connection, path: Path) -> None:
    db.begin()
    db.execute("insert into t values (2, 'two', null)")
    owner.kill()
    db.rollback()
    left = find_place(path)
    assert left is not None
    assert left.pid == owner.pid  # nobody has opened the database since
    assert numbers(db) == [1]


@pytest.mark.parametrize("what", ["commit", "statement", "update"])
def test_what_may_have_been_done_is_not_done_again(owner: Peer, db: Connection, what: str) -> None:
    ask: dict[str, Callable[[], Any]] = {
        "commit": db.commit,
        "statement": lambda: db.execute("insert into t values (2, null, null)"),
        "update": lambda: db.execute("update t set i = i + 1"),
    }
    if what == "commit":
        db.begin()
        db.execute("insert into t values (2, null, null)")
    asked = in_flight(owner, db, ask[what])
    with pytest.raises(OutcomeUnknown, match="look before you do it again") as raised:
        answer(asked)
    assert not isinstance(raised.value, Transient)
    assert not db.in_transaction
    assert numbers(db) == [1]
    ask["statement"]()
    assert numbers(db) == [1, 2]


def test_what_was_appended_belongs_to_the_transaction_that_is_lost(owner: Peer, db: Connection) -> None:
    db.begin()
    db.append("t", pa.table({"i": [2], "s": ["x"], "b": [None]}))
    owner.kill()
    with pytest.raises(LostWithOwner):
        db.commit()
    assert numbers(db) == [1]


def test_an_append_whose_owner_dies_is_lost_as_a_whole(owner: Peer, db: Connection) -> None:
    schema = pa.schema([("i", pa.int32()), ("s", pa.string()), ("b", pa.large_binary())])

    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch([[2], ["x"], [None]], schema=schema)
        owner.kill()
        yield pa.record_batch([[3], ["x"], [None]], schema=schema)

    with pytest.raises(LostWithOwner, match="try again"):
        db.append("t", pa.RecordBatchReader.from_batches(schema, batches()))
    assert numbers(db) == [1]


def test_a_block_is_lost_as_a_whole(owner: Peer, db: Connection) -> None:
    def within() -> None:
        with db.all_or_nothing():
            db.execute("insert into t values (2, null, null)")
            owner.kill()
            for n in (3, 4):
                with pytest.raises(LostWithOwner):
                    db.execute("insert into t values (?, null, null)", (n,))

    with pytest.raises(LostWithOwner):
        within()
    assert numbers(db) == [1]


def test_rows_that_are_locked_are_missed_before_they_are_read(owner: Peer, db: Connection) -> None:
    db.autocommit = False
    db.execute("select i from t for update")
    owner.kill()
    with pytest.raises(LostWithOwner):
        db.execute("update t set s = 'mine'")
    db.rollback()


def test_a_value_that_was_sent_ahead_is_lost_with_its_owner(owner: Peer, db: Connection) -> None:
    class Killing:
        """A file that is half read when the owner dies."""

        def read(self, size: int) -> bytes:
            if owner.process.poll() is None:
                owner.kill()
                return b"x" * size
            return b""

    with pytest.raises(LostWithOwner, match="try again"):
        db.execute("insert into t values (2, 'lob', ?)", (Killing(),))
    assert numbers(db) == [1]


def test_a_session_for_reading_only_waits_for_another_owner(start_peer: StartPeer, owner: Peer, path: Path) -> None:
    with gmdb.connect(path, autocommit=True, read_only=True) as db:
        owner.kill()
        asked = in_thread(lambda: numbers(db))
        with pytest.raises(TimeoutError):
            asked.result(0.2)
        other = own(start_peer(), path)  # which a reader with the files open would keep out
        assert answer(asked) == [1]
        other("db.close()")


def test_who_waits_for_an_owner_can_be_interrupted_and_closed(owner: Peer, path: Path) -> None:
    for end, error in ((Connection.interrupt, StatementInterrupted), (Connection.close, InterfaceError)):
        db = gmdb.connect(path, autocommit=True, read_only=True)
        if owner.process.poll() is None:
            second = gmdb.connect(path, autocommit=True, read_only=True)
            owner.kill()
        else:
            db = second
        asked = in_thread(lambda db=db: numbers(db))
        until(lambda db=db: db._link._is_finding)  # type: ignore[attr-defined]
        end(db)
        with pytest.raises(error):
            answer(asked)
        db.close()


# ---- servers


def test_a_client_goes_on_with_a_server_that_was_started_again(path: Path) -> None:
    gmdb.connect(path).close()
    serving = Serving(path, "--token", TOKEN)
    with gmdb.connect(serving.url, token=TOKEN, autocommit=True, lock_timeout=300) as db:
        db.execute("create table t (i int)")
        db.begin()
        db.execute("insert into t values (1)")
        serving.kill()
        with pytest.raises(LostWithOwner):
            db.commit()
        asked = in_thread(lambda: db.execute("insert into t values (2)"))
        with pytest.raises(TimeoutError):
            asked.result(0.2)
        again = Serving(path, "--token", TOKEN, "--port", str(serving.port))
        assert answer(asked).rowcount == 1
        assert numbers(db) == [2]
        again.kill()


def test_a_server_that_does_not_come_back_is_waited_for_no_longer_than_for_a_lock(path: Path) -> None:
    gmdb.connect(path).close()
    serving = Serving(path, "--token", TOKEN)
    with gmdb.connect(serving.url, token=TOKEN, autocommit=True, lock_timeout=0.2) as db:
        serving.kill()
        for _ in range(2):
            began = time.monotonic()
            with pytest.raises(LostWithOwner, match="nobody has opened it since: nothing answers at"):
                db.execute("create table t (i int)")
            assert time.monotonic() - began >= 0.2
    gmdb.connect(path).close()


# ---- what may be asked for again


@pytest.mark.parametrize(
    ("text", "again"),
    [
        ("select 1", Again.ALWAYS),
        ("  -- a comment\n /* and\nanother */ ( SELECT 1)", Again.ALWAYS),
        ("insert into t values (1)", Again.UNCOMMITTED),
        ("with a as (select 1) insert into t select * from a", Again.UNCOMMITTED),
        ("explain analyze insert into t values (1)", Again.UNCOMMITTED),
        ("create table t (i int)", Again.UNCOMMITTED),
        ("comment on table t is 'x'", Again.UNCOMMITTED),
        ("create tablespace s", Again.NEVER),
        ("drop tablespace s", Again.NEVER),
        ("commit", Again.COMMITS),
        ("set autocommit on", Again.COMMITS),
        ("set lock_timeout = 5", Again.ALWAYS),
        ("rollback", Again.ROLLS_BACK),
        ("rollback to savepoint a", Again.UNCOMMITTED),
        ("selection", Again.NEVER),
        ("", Again.NEVER),
    ],
)
def test_the_first_words_of_a_statement_say_whether_it_can_be_made_again(text: str, again: Again) -> None:
    assert again_of("execute", (text, ())) is again


# ---- all of it together, under load


def kill_owner(path: Path, peers: dict[int, Peer]) -> None:
    place = find_place(path)
    assert place is not None
    peers.pop(place.pid).kill()


@pytest.mark.search
def test_workers_go_on_when_their_owner_is_killed_and_nothing_is_lost_or_done_twice(
    start_peer: StartPeer, path: Path, tmp_path: Path
) -> None:
    kills, stop = extent(2, 30), tmp_path / "stop"
    takeover.create(path, WORKERS + kills)
    peers: dict[int, Peer] = {}
    logs: list[Path] = []

    def start() -> None:
        logs.append(tmp_path / f"log{len(logs)}")
        peer = start_peer()
        peer("from tests.server.takeover import Worker")
        peer("worker = Worker(path, number, log)", path=str(path), number=len(logs) - 1, log=str(logs[-1]))
        peer.start("worker.run(stop)", stop=str(stop))
        peers[peer.pid] = peer

    for _ in range(WORKERS):
        start()
    for kill in range(kills):
        sizes = {log: log.stat().st_size for log in logs}
        until(lambda sizes=sizes: sum(log.stat().st_size - sizes[log] > 50 * REQUESTS for log in logs) >= len(peers))
        kill_owner(path, peers)
        if kill < kills - 1 or kills > 2:
            start()
    sizes = {log: log.stat().st_size for log in logs}
    until(lambda: sum(log.stat().st_size > sizes[log] for log in logs) >= len(peers))
    stop.touch()
    for peer in peers.values():
        peer.finish()
    seconds = takeover.check(path, logs)
    print(len(seconds), "requests; the longest took", ", ".join(f"{one:.2f} s" for one in sorted(seconds)[-5:]))
    assert_sound(path)
