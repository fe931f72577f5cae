"""Processes that come, go and die: who becomes the owner, and what happens to the sessions of others."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyarrow import flight

import gmdb
from gmdb.database.connection import Connection
from gmdb.errors import DatabaseInUse, OperationalError, OwnerGone, Transient
from gmdb.server.connect import OWNER_PATIENCE, open_here
from gmdb.server.door import knock
from gmdb.server.entrance import SOCKET_PATH_MAX, Place, find_place
from gmdb.server.remote import RemoteConnection
from gmdb.storage.directory import LOCK_NAME
from tests.integrity import assert_sound
from tests.server.peer import SOON, Peer
from tests.sessions import until

StartPeer = Callable[[], Peer]
CREATE = "db.create_table('t', {'i': 'INT', 's': 'VARCHAR(10)'}); db.insert('t', (1, 'one')); db.commit()"


def opened(peer: Peer, path: Path, options: str = "") -> Peer:
    peer(f"db = gmdb.connect(path{options})", path=str(path))
    return peer


# ---- clients that die


def test_a_client_that_is_killed_lets_go_of_its_rows(owner: Peer, start_peer: StartPeer, path: Path) -> None:
    client = opened(start_peer(), path)
    client("db.update('t', {'s': 'mine'})")
    owner.start("gmdb.connect(path, lock_timeout=500, autocommit=True).update('t', {'s': 'yours'})", path=str(path))
    assert not owner.has_answered(0.2)
    client.kill()
    assert owner.has_answered(SOON)
    assert owner.finish() == 2


def test_a_client_that_is_killed_while_it_waits_lets_go_of_its_rows(
    owner: Peer, start_peer: StartPeer, path: Path
) -> None:
    owner("db.update('t', {'s': 'held'}, lambda row: row['i'] == 2)")
    client = opened(start_peer(), path, ", lock_timeout=500")
    client("db.update('t', {'s': 'mine'}, lambda row: row['i'] == 1)")
    client.start("db.update('t', {'s': 'mine'}, lambda row: row['i'] == 2)")
    until(lambda: owner("len(db._database.transactions.waits.waiting())") == 1)
    client.kill()
    with gmdb.connect(path, lock_timeout=3) as db:
        assert db.update("t", {"s": "yours"}, lambda row: row["i"] == 1) == 1
        assert owner("len(db._database.transactions.waits.queues)") == 0
    owner("db.commit()")


def test_a_client_that_is_killed_while_it_waits_for_a_table_leaves_the_line(
    owner: Peer, start_peer: StartPeer, path: Path
) -> None:
    owner("db.update('t', {'s': 'held'})")
    client = opened(start_peer(), path, ", lock_timeout=500")
    client.start("db.drop_table('t')")
    until(lambda: owner("len(db._database.transactions.waits.waiting())") == 1)
    client.kill()
    until(lambda: owner("len(db._database.transactions.waits.queues)") == 0)
    owner("db.commit()")
    with gmdb.connect(path, lock_timeout=2) as db:
        assert db.delete("t") == 2


@pytest.mark.parametrize("doing", ["reading", "appending", "in a statement"])
def test_a_client_that_is_killed_in_the_middle_leaves_nothing(
    owner: Peer, start_peer: StartPeer, path: Path, doing: str
) -> None:
    client = opened(start_peer(), path)
    if doing == "reading":
        client("reader = db.arrow('t'); rows = db.heap('t').rows(); next(rows); unread = db.arrow('t')")
        client("reader.read_next_batch()")
    elif doing == "appending":
        client.start("db.append('t', (time.sleep(n * 100) or pa.table({'i': [1], 's': ['x']}) for n in range(2)))")
    else:
        client.start("db.update('t', {'s': 'mine'}, lambda row: row['i'] == 1 or time.sleep(100))")
    until(lambda: owner("len(db._database.transactions.snapshots.held())") > 0)
    if doing == "appending":
        until(lambda: owner("len(db._database.transactions.active)") == 1)
    client.kill()
    until(lambda: owner("len(db._database.transactions.snapshots.held())") == 0)
    assert owner("len(db._database.transactions.active), db.arrow('t').read_all().num_rows") == (0, 2)


def test_clients_that_come_and_go_leave_nothing_behind(owner: Peer, path: Path) -> None:
    def files() -> int:
        return owner("len(__import__('os').listdir('/proc/self/fd'))")

    for _ in range(3):
        gmdb.connect(path).close()
    before = files()
    for _ in range(30):
        with gmdb.connect(path) as db:
            db.arrow("t").read_all()
    until(lambda: owner("len(db._database.before_close[0].__self__._clients)") == 0)
    until(lambda: files() < before + 10)


# ---- owners that go


def test_a_client_is_told_that_its_owner_was_killed_and_takes_over(start_peer: StartPeer, path: Path) -> None:
    owner = opened(start_peer(), path)
    owner(CREATE)
    owner("db.checkpoint()")
    db = gmdb.connect(path)
    heap, reader = db.heap("t"), db.arrow("t")
    db.update("t", {"s": "lost"})
    left = find_place(path)
    assert left is not None
    owner.kill()
    for use in (lambda: heap.insert((2, "x")), db.tables, reader.read_all, lambda: db.arrow("t"), db.commit):
        with pytest.raises(OwnerGone, match=f"process {owner.pid}, which had {path} open, is gone") as raised:
            use()
        assert isinstance(raised.value, OperationalError)
        assert isinstance(raised.value, Transient)
    heap.insert((2, "x"))  # commit has ended what was lost
    assert db.arrow("t").read_all()["s"].to_pylist() == ["one", "x"]
    assert repr(db) == f"<gmdb.Connection to {path}, open in this process>"
    place = find_place(path)
    assert place is not None
    assert place.pid == os.getpid()
    assert not Path(left.folder).exists()
    db.commit()
    db.close()
    assert find_place(path) is None
    assert_sound(path)


def test_a_client_that_waits_is_told_that_its_owner_was_killed(start_peer: StartPeer, path: Path) -> None:
    owner, client = opened(start_peer(), path), start_peer()
    owner(CREATE)
    owner("db.update('t', {'s': 'held'})")
    opened(client, path, ", lock_timeout=500")
    client.start("db.update('t', {'s': 'mine'})")
    assert not client.has_answered(0.2)
    owner.kill()
    with pytest.raises(OwnerGone):
        client.finish()


def test_an_owner_that_closes_waits_for_nobody(start_peer: StartPeer, path: Path) -> None:
    owner, client, stopped = opened(start_peer(), path), opened(start_peer(), path), opened(start_peer(), path)
    owner(CREATE)
    stopped("db.insert('t', (2, 'lost')); reader = db.arrow('t')")
    os.kill(stopped.pid, signal.SIGSTOP)
    db = gmdb.connect(path, lock_timeout=500)
    db.update("t", {"s": "lost"}, lambda row: row["i"] == 1)
    client.start("gmdb.connect(path, lock_timeout=500).update('t', {'s': 'lost'})", path=str(path))
    assert not client.has_answered(0.2)
    owner.start("db.close()")
    assert owner.has_answered(SOON)
    owner.finish()
    with pytest.raises(OwnerGone):
        db.commit()
    with pytest.raises(OwnerGone):
        client.finish()
    os.kill(stopped.pid, signal.SIGCONT)
    with pytest.raises(OwnerGone):
        stopped("db.commit()")
    db.close()
    assert_sound(path)
    opened(client, path)
    with gmdb.connect(path) as db:
        assert isinstance(db, RemoteConnection)
        assert db.arrow("t").read_all().to_pylist() == [{"i": 1, "s": "one"}]


def test_who_comes_while_an_owner_closes_becomes_the_next(start_peer: StartPeer, path: Path) -> None:
    owner = opened(start_peer(), path)
    owner(CREATE)
    came_next = 0
    for _ in range(100):
        owner.start("db.close()")
        db = gmdb.connect(path)
        if not isinstance(db, RemoteConnection):  # else it came before the owner began to close
            assert db.tables() == ["t"]
            came_next += 1
        owner.finish()
        db.close()
        owner("db = gmdb.connect(path); db.tables()")
        if came_next == 10:
            return
    raise AssertionError("nobody became the next")


def test_an_owner_that_lets_go_between_two_looks_is_not_taken_for_readers(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gmdb.connect(path).close()
    lock = os.open(path / LOCK_NAME, os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)
    seen: list[Path] = []

    def slowly(directory: Path, **options: Any) -> Any:
        try:
            return open_here(directory, **options)
        except DatabaseInUse:
            if not seen:
                time.sleep(0.5)
                os.close(lock)
            seen.append(directory)
            raise

    monkeypatch.setattr("gmdb.server.connect.open_here", slowly)
    gmdb.connect(path).close()
    assert len(seen) == 1


@pytest.mark.parametrize("exists", [True, False])
def test_processes_that_start_at_the_same_time_share_the_database(
    start_peer: StartPeer, path: Path, exists: bool
) -> None:
    if exists:
        gmdb.connect(path).close()
    peers = [start_peer() for _ in range(4)]
    for peer in peers:
        peer("None")
    at = time.time() + 0.3
    for number, peer in enumerate(peers):
        peer.start(
            "while time.time() < at: pass\ndb = gmdb.connect(path)\ndb.create_table(name, {'i': 'INT'}); db.commit()",
            at=at,
            path=str(path),
            name=f"t{number}",
        )
    for peer in peers:
        peer.finish()
    assert sorted(peer("type(db).__name__") for peer in peers) == ["Connection"] + ["RemoteConnection"] * 3
    assert peers[0]("db.tables()") == ["t0", "t1", "t2", "t3"]


def test_readers_have_no_endpoint_and_keep_writers_out(start_peer: StartPeer, path: Path) -> None:
    gmdb.connect(path).close()
    opened(start_peer(), path, ", read_only=True")
    assert find_place(path) is None
    began = time.monotonic()
    with pytest.raises(DatabaseInUse):
        gmdb.connect(path)
    assert time.monotonic() - began < OWNER_PATIENCE  # there is no owner to wait for
    gmdb.connect(path, read_only=True).close()


@pytest.mark.parametrize("ending", ["", "import os; os._exit(0)"])
def test_processes_end_in_silence(start_peer: StartPeer, path: Path, ending: str) -> None:
    owner, client = opened(start_peer(), path), opened(start_peer(), path)
    owner(CREATE)
    client("db.update('t', {'s': 'x'}); reader = db.arrow('t'); reader.read_next_batch(); other = db.arrow('t')")
    for peer in (client, owner):
        if ending:
            peer.start(ending)
        assert peer.leave() == (0, "")


def test_an_owner_ends_in_silence_with_clients_at_work(start_peer: StartPeer, path: Path) -> None:
    owner, client = opened(start_peer(), path), opened(start_peer(), path)
    owner(CREATE)
    owner("db.commit()")
    client("db.update('t', {'s': 'x'}); reader = db.arrow('t'); reader.read_next_batch(); other = db.arrow('t')")
    client.start("gmdb.connect(path, lock_timeout=100).update('t', {'s': 'y'})", path=str(path))
    assert not client.has_answered(0.2)
    assert owner.leave() == (0, "")
    with pytest.raises(OwnerGone):
        client.finish()
    assert client.leave() == (0, "")
    assert_sound(path)


# ---- where the sockets are, and who may come in


def test_only_the_user_can_reach_the_sockets(db: Connection, owner: Peer, path: Path) -> None:
    del db
    place = find_place(path)
    assert place is not None
    assert place.pid == owner.pid
    assert stat.S_IMODE(os.stat(path / "gmdb.endpoint").st_mode) == 0o600
    assert stat.S_IMODE(os.stat(place.folder).st_mode) == 0o700
    assert len(place.token) == 32


def test_the_endpoint_is_gone_when_the_owner_has_closed(start_peer: StartPeer, path: Path) -> None:
    owner = opened(start_peer(), path)
    place = find_place(path)
    assert place is not None
    with gmdb.connect(path) as db:
        assert isinstance(db, RemoteConnection)
    owner("db.close()")
    assert not Path(place.folder).exists()
    assert not (path / "gmdb.endpoint").exists()


def test_a_copy_of_a_database_that_is_open_does_not_lead_to_its_owner(
    owner: Peer, start_peer: StartPeer, path: Path, tmp_path: Path
) -> None:
    owner("db.close()")
    copy = tmp_path / "copy.gmdb"
    shutil.copytree(path, copy)
    opened(owner, path)
    shutil.copy(path / "gmdb.endpoint", copy)
    assert find_place(copy) is None
    opened(start_peer(), copy)("db.insert('t', (3, 'copied')); db.commit(); db.close()")
    place = find_place(path)
    assert place is not None
    assert Path(place.door).exists()
    with gmdb.connect(path) as db, gmdb.connect(copy) as other:
        assert isinstance(db, RemoteConnection)
        assert [len(database.execute("select * from t").fetchall()) for database in (db, other)] == [2, 3]


def is_refused(client: flight.FlightClient, command: bytes, options: flight.FlightCallOptions) -> bool:
    """Whether an exchange with the owner fails for want of a right to it."""
    try:
        _, reader = client.do_exchange(flight.FlightDescriptor.for_command(command), options)
        reader.read_chunk()
    except flight.FlightUnauthenticatedError:
        return True
    return False


def test_a_wrong_token_is_refused_at_the_door_and_by_flight(db: Connection, path: Path) -> None:
    place = find_place(path)
    assert place is not None
    assert knock(Place(place.pid, place.folder, "0" * 32), 5) is None
    assert knock(Place(place.pid, place.folder, ""), 5) is None
    client = flight.connect(f"grpc+unix://{place.flight}")
    command = json.dumps({"kind": "session", "key": db._link._channel._key}).encode()
    for headers in ([], [(b"gmdb-token", b"0" * 32)], [(b"gmdb-token", b"")]):
        options = flight.FlightCallOptions(headers=headers)
        with pytest.raises(flight.FlightUnauthenticatedError):
            list(client.list_actions(options))
        assert is_refused(client, command, options)
    options = flight.FlightCallOptions(headers=[(b"gmdb-token", place.token.encode())])
    assert is_refused(client, json.dumps({"kind": "session", "key": "0" * 16}).encode(), options)
    client.close()
    assert db.tables() == ["t"]


def test_noise_at_the_door_does_no_harm(db: Connection, path: Path) -> None:
    place = find_place(path)
    assert place is not None
    visitors = []
    for noise in (b"", b"\n", b"\0" * 10_000, b"x" * 10_000, b"\xff\n" * 10):
        visitor = socket.socket(socket.AF_UNIX)
        visitor.connect(place.door)
        visitor.sendall(noise)
        visitors.append(visitor)
    assert db.tables() == ["t"]
    with gmdb.connect(path) as other:
        assert other.tables() == ["t"]
    for visitor in visitors:
        visitor.close()
    assert db.tables() == ["t"]


def test_a_message_that_makes_no_sense_is_an_error(db: Connection) -> None:
    link = db._link
    for op, *arguments in (("nothing",), ("fetch",), ("commit", 1), ("fetch", 99, [1]), ("__init__",), ("execute", {})):
        with pytest.raises((gmdb.Error, TypeError, LookupError)):
            link.ask(op, *arguments)
    with pytest.raises(gmdb.Error):
        link.ask("insert", db.heap("t")._table, b"not a row at all")
    assert db.tables() == ["t"]


def test_a_database_with_a_long_path_is_shared(start_peer: StartPeer, tmp_path: Path) -> None:
    path = tmp_path / ("a" * 100) / ("b" * 100) / "täst db.gmdb"
    assert len(str(path)) > SOCKET_PATH_MAX
    opened(start_peer(), path)(CREATE)
    with gmdb.connect(path) as db:
        assert isinstance(db, RemoteConnection)
        assert db.tables() == ["t"]


def test_a_runtime_directory_that_will_not_do_is_passed_over(
    tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unfit = tmp_path / ("long" * 30)
    unfit.mkdir()
    for name in ("XDG_RUNTIME_DIR", "TMPDIR"):
        monkeypatch.setenv(name, str(unfit))
    with gmdb.connect(path):
        place = find_place(path)
        assert place is not None
        assert len(place.flight) <= SOCKET_PATH_MAX
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    if len(str(tmp_path)) < 70:
        with gmdb.connect(path):
            place = find_place(path)
            assert place is not None
            assert Path(place.folder).parent == tmp_path


def test_a_file_of_noise_for_an_endpoint_is_replaced(path: Path) -> None:
    gmdb.connect(path).close()
    (path / "gmdb.endpoint").write_bytes(b"\0noise")
    with gmdb.connect(path):
        place = find_place(path)
        assert place is not None
        assert place.pid == os.getpid()


def test_an_owner_that_nobody_visits_loads_no_flight(path: Path) -> None:
    code = (
        "import sys, gmdb; db = gmdb.connect(sys.argv[1]); db.create_table('t', {'i': 'INT'}); db.close()\n"
        "sys.exit('pyarrow._flight' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code, str(path)], check=True, timeout=60)
