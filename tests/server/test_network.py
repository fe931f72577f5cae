"""A database served over TCP: the same sessions as on a Unix socket, behind TLS and a token."""

from __future__ import annotations

import asyncio
import io
import os
import random
import re
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import flight

import gmdb
from gmdb import aio
from gmdb.database.connection import Connection
from gmdb.errors import (
    InterfaceError,
    LockTimeout,
    NoServer,
    NotAServer,
    OwnerGone,
    ReadOnly,
    StatementInterrupted,
    TlsFailed,
    TokenRefused,
    Transient,
)
from gmdb.server import door as door_module
from gmdb.server.connect import parse_url
from gmdb.server.remote import RemoteConnection
from tests.integrity import assert_sound
from tests.server.peer import SOON, Peer
from tests.server.serving import TOKEN, Certificates, Serving, make_certificates
from tests.sessions import until

StartPeer = Callable[[], Peer]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("served") / "shop.gmdb"
    gmdb.connect(path).close()
    return path


@pytest.fixture(scope="module")
def secure(shared: Path, certificates: Certificates) -> Iterator[Serving]:
    """A server with TLS, for the tests of this file that leave it as it is."""
    serving = Serving(shared, "--token", TOKEN, *certificates.options)
    yield serving
    assert serving.end() == (0, "", "")
    assert_sound(shared)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """One without, on loopback."""
    path = tmp_path_factory.mktemp("plain") / "shop.gmdb"
    gmdb.connect(path).close()
    serving = Serving(path, "--token", TOKEN)
    yield serving
    assert serving.end() == (0, "", "")
    assert_sound(path)


@pytest.fixture
def db(secure: Serving, certificates: Certificates) -> Iterator[Connection]:
    """A connection to it, with a table of two rows."""
    with gmdb.connect(secure.url, token=TOKEN, tls_ca=certificates.ca, lock_timeout=20) as connection:
        connection.execute("drop table if exists t")
        connection.execute("create table t (i int not null, s varchar(10))")
        connection.executemany("insert into t values (?, ?)", [(1, "one"), (2, "two")])
        connection.commit()
        yield connection
        connection.rollback()


def opened(peer: Peer, serving: Serving, certificates: Certificates | None, options: str = "") -> Peer:
    """A process with a connection ``db`` to the server."""
    ca = None if certificates is None else str(certificates.ca)
    peer(f"db = gmdb.connect(url, token=token, tls_ca=ca{options})", url=serving.url, token=TOKEN, ca=ca)
    return peer


# ---- what goes through


def test_sql_scans_appends_and_large_objects_go_through_tls(db: Connection, shared: Path) -> None:
    assert isinstance(db, RemoteConnection)
    assert db.path == shared
    assert db.execute("select s from t where i = ?", (2,)).fetchall() == [("two",)]
    rows = pa.table({"i": pa.array(range(100_000), pa.int32()), "s": [str(n) for n in range(100_000)]})
    assert db.append("t", rows) == 100_000
    db.commit()
    got = db.arrow("t").read_all()
    assert got.num_rows == 100_002
    assert got.slice(2).equals(rows.cast(got.schema))
    value = random.Random(7).randbytes(3 << 20)
    db.execute("create table lobs (i int, b blob)")
    db.execute("insert into lobs values (1, ?)", (io.BytesIO(value),))
    db.commit()
    ((row_id, _),) = db.heap("lobs").rows()
    with db.open_lob("lobs", "b", row_id) as file:
        file.seek(1 << 20)
        assert file.read() == value[1 << 20 :]
    db.execute("drop table lobs")
    db.commit()


def test_clients_over_tcp_and_over_the_path_wait_for_each_other(db: Connection, shared: Path) -> None:
    with gmdb.connect(shared, lock_timeout=0.1) as beside:
        assert isinstance(beside, RemoteConnection)
        db.update("t", {"s": "mine"}, lambda row: row["i"] == 1)
        with pytest.raises(LockTimeout):
            beside.update("t", {"s": "yours"})
        db.commit()
        assert beside.update("t", {"s": "yours"}) == 2
    assert db.execute("select distinct s from t").fetchall() == [("yours",)]


def test_a_session_for_reading_changes_nothing(db: Connection, secure: Serving, certificates: Certificates) -> None:
    del db
    with gmdb.connect(secure.url, token=TOKEN, tls_ca=certificates.ca, read_only=True) as reader:
        assert len(reader.execute("select * from t").fetchall()) == 2
        with pytest.raises(ReadOnly):
            reader.execute("delete from t")


def test_a_statement_over_tls_is_interrupted(db: Connection, secure: Serving, certificates: Certificates) -> None:
    db.update("t", {"s": "held"})
    with gmdb.connect(secure.url, token=TOKEN, tls_ca=certificates.ca, lock_timeout=500) as waiting:
        timer = threading.Timer(0.3, waiting.interrupt)
        timer.start()
        with pytest.raises(StatementInterrupted):
            waiting.update("t", {"s": "mine"})
        timer.join()
        assert waiting.execute("select count(*) from t").fetchall() == [(2,)]


def test_a_task_whose_time_is_up_ends_its_statement_over_tls(
    db: Connection, secure: Serving, certificates: Certificates
) -> None:
    async def work() -> None:
        async with aio.connect(secure.url, token=TOKEN, tls_ca=certificates.ca, lock_timeout=500) as waiting:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(waiting.execute("update t set s = 'mine'"), 0.3)
            assert await (await waiting.execute("select count(*) from t")).fetchall() == [(2,)]

    db.update("t", {"s": "held"})
    asyncio.run(work())


def test_the_url_may_say_it_all_but_the_token(
    db: Connection, secure: Serving, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    del db
    monkeypatch.setenv("GMDB_TOKEN", TOKEN)
    for url in (
        f"gmdb://localhost:{secure.port}?tls_ca={certificates.ca}",
        f"gmdb+tls://127.0.0.1:{secure.port}/?tls_ca={certificates.ca}",
    ):
        with gmdb.connect(url) as connection:
            assert connection.tables() == ["t"]


def test_proxies_for_the_web_are_passed_by(plain: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "grpc_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    with gmdb.connect(plain.url, token=TOKEN) as db:
        assert db.execute("select 1").fetchall() == [(1,)]


def test_the_shell_and_sqlalchemy_take_the_url(db: Connection, secure: Serving, certificates: Certificates) -> None:
    del db
    url = f"{secure.url}?tls_ca={certificates.ca}"
    environment = {**os.environ, "GMDB_TOKEN": TOKEN}
    command = [sys.executable, "-m", "gmdb.cli", "sql", url, "--output", "csv", "-c", "select s from t order by i"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == ["s", "one", "two"]
    sqlalchemy = pytest.importorskip("sqlalchemy")
    import gmdb.sqlalchemy  # noqa: F401  (the dialect, of sources that are not installed)

    made = f"gmdb://:{TOKEN}@localhost:{secure.port}/?tls_ca={certificates.ca}"
    engine = sqlalchemy.create_engine(made)
    with engine.connect() as connection:
        assert connection.exec_driver_sql("select s from t where i = 1").scalar() == "one"
    engine.dispose()
    assert TOKEN not in str(engine.url)


# ---- those who go


@pytest.mark.parametrize("security", ["tls", "plain"])
def test_a_client_that_is_killed_is_rolled_back(
    request: pytest.FixtureRequest, certificates: Certificates, start_peer: StartPeer, security: str
) -> None:
    serving: Serving = request.getfixturevalue("secure" if security == "tls" else "plain")
    ca = certificates if security == "tls" else None
    client = opened(start_peer(), serving, ca)
    client("db.create_table('k', {'i': 'INT'}); db.insert('k', (1,)); db.commit()")
    client("db.update('k', {'i': 2}); reader = db.arrow('k'); reader.read_next_batch()")
    with gmdb.connect(serving.url, token=TOKEN, tls_ca=ca and ca.ca, lock_timeout=500) as db:
        client.kill()
        began = time.monotonic()
        assert db.update("k", {"i": 3}, lambda row: row["i"] == 1) == 1
        assert time.monotonic() - began < SOON
        db.drop_table("k")


@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_server_that_is_told_to_end_closes_the_database(
    path: Path, certificates: Certificates, start_peer: StartPeer, by: signal.Signals
) -> None:
    gmdb.connect(path).close()
    serving = Serving(path, "--token", TOKEN, *certificates.options)
    writer, waiter = opened(start_peer(), serving, certificates), opened(start_peer(), serving, certificates)
    writer("db.create_table('t', {'i': 'INT'}); db.insert('t', (1,)); db.commit()")
    writer("db.update('t', {'i': 2}); reader = db.arrow('t'); reader.read_next_batch(); unread = db.arrow('t')")
    waiter.start("gmdb.connect(url, token=token, tls_ca=ca, lock_timeout=500).update('t', {'i': 3})")
    assert not waiter.has_answered(0.3)
    assert serving.end(by) == (0, "", "")
    with pytest.raises(OwnerGone, match=f"the server at {re.escape(serving.url)}, which had {path} open") as raised:
        writer("db.commit()")
    assert isinstance(raised.value, Transient)
    with pytest.raises(OwnerGone):
        waiter.finish()
    for peer in (writer, waiter):
        assert peer.leave() == (0, "")
    assert not (path / "gmdb.endpoint").exists()
    with gmdb.connect(path) as db:
        assert db.recovery is None  # nothing was left to do
        assert db.execute("select i from t").fetchall() == [(1,)]
    assert_sound(path)


def test_a_server_that_is_killed_leaves_what_was_committed(path: Path, start_peer: StartPeer) -> None:
    gmdb.connect(path).close()
    serving = Serving(path, "--token", TOKEN)
    client = opened(start_peer(), serving, None)
    client("db.create_table('t', {'i': 'INT'}); db.insert('t', (1,)); db.commit(); db.insert('t', (2,))")
    serving.kill()
    with pytest.raises(OwnerGone):
        client("db.commit()")
    with pytest.raises(NoServer):
        gmdb.connect(serving.url, token=TOKEN)
    with gmdb.connect(path) as db:
        assert db.execute("select i from t").fetchall() == [(1,)]
    assert_sound(path)


def test_clients_that_come_and_go_leave_nothing_behind(secure: Serving, certificates: Certificates) -> None:
    def opened_now() -> tuple[int, int]:
        process = Path(f"/proc/{secure.process.pid}")
        return len(list((process / "fd").iterdir())), len(list((process / "task").iterdir()))

    def visit() -> None:
        with gmdb.connect(secure.url, token=TOKEN, tls_ca=certificates.ca) as db:
            db.execute("select 1").fetchall()

    for _ in range(5):
        visit()
    files, threads = opened_now()
    for _ in range(30):
        visit()
    until(lambda: opened_now()[0] < files + 10 and opened_now()[1] < threads + 10)


def keepalive_timers(port: int) -> list[str]:
    """The timers of the connections to a port of this machine, as the system lists them; 02 is keepalive."""
    found = []
    for name in ("tcp", "tcp6"):
        for line in Path("/proc/net", name).read_text().splitlines()[1:]:
            _, local, _, state, _, timer, *_ = line.split()
            if state == "01" and int(local.rpartition(":")[2], 16) == port:
                found.append(timer.partition(":")[0])
    return found


def test_a_machine_that_is_gone_is_noticed(db: Connection, secure: Serving) -> None:
    flight_port = db._link.route.end[1]
    for port in (secure.port, flight_port):
        until(lambda port=port: set(keepalive_timers(port)) == {"02"})


def test_a_forked_child_of_a_client_does_not_hide_that_it_died(
    db: Connection, secure: Serving, certificates: Certificates, start_peer: StartPeer
) -> None:
    client = opened(start_peer(), secure, certificates)
    client("db.update('t', {'s': 'mine'})")
    client("import os; child = os.fork(); child or (time.sleep(100), os._exit(0))")
    child = client("child")
    try:
        client.kill()
        assert db.update("t", {"s": "yours"}) == 2
    finally:
        os.kill(child, signal.SIGKILL)


# ---- who is refused


def test_a_wrong_token_is_refused(secure: Serving, plain: Serving, certificates: Certificates) -> None:
    for url, ca in ((secure.url, certificates.ca), (plain.url, None)):
        for token in ("0" * 32, TOKEN + "0", "x"):
            with pytest.raises(TokenRefused, match="does not take this token"):
                gmdb.connect(url, token=token, tls_ca=ca)
        with pytest.raises(TokenRefused, match="wants a token: give token=, or set GMDB_TOKEN"):
            gmdb.connect(url, tls_ca=ca)
        with pytest.raises(TokenRefused, match="is none"):
            gmdb.connect(url, token=TOKEN + "\n" + TOKEN, tls_ca=ca)


def test_flight_refuses_a_wrong_token_as_well(db: Connection, plain: Serving) -> None:
    del db
    with gmdb.connect(plain.url, token=TOKEN) as connection:
        client = flight.connect(f"grpc://127.0.0.1:{connection._link.route.end[1]}")
        for headers in ([], [(b"gmdb-token", b"0" * 32)]):
            with pytest.raises(flight.FlightUnauthenticatedError):
                list(client.list_actions(flight.FlightCallOptions(headers=headers)))
        client.close()


def test_a_client_without_tls_is_told_to_use_it(secure: Serving) -> None:
    with pytest.raises(TlsFailed, match=r"wants TLS: use gmdb\+tls://"):
        gmdb.connect(f"gmdb://localhost:{secure.port}", token=TOKEN)


def test_a_client_with_tls_is_told_that_the_server_has_none(plain: Serving, certificates: Certificates) -> None:
    with pytest.raises(TlsFailed, match="does not speak TLS"):
        gmdb.connect(f"gmdb+tls://localhost:{plain.port}", token=TOKEN, tls_ca=certificates.ca)


def test_a_certificate_of_another_ca_does_not_hold(secure: Serving, certificates: Certificates) -> None:
    with pytest.raises(TlsFailed, match=r"certificate of .* does not hold"):
        gmdb.connect(secure.url, token=TOKEN, tls_ca=certificates.other_ca)
    with pytest.raises(TlsFailed, match=r"certificate of .* does not hold"):
        gmdb.connect(secure.url, token=TOKEN)


def test_a_certificate_for_another_host_does_not_hold(path: Path, tmp_path: Path) -> None:
    gmdb.connect(path).close()
    certificates = make_certificates(tmp_path, "DNS:localhost")
    serving = Serving(path, "--token", TOKEN, *certificates.options)
    try:
        with pytest.raises(TlsFailed, match=r"not valid for .127\.0\.0\.1"):
            gmdb.connect(f"gmdb+tls://127.0.0.1:{serving.port}", token=TOKEN, tls_ca=certificates.ca)
        with gmdb.connect(f"gmdb+tls://localhost:{serving.port}", token=TOKEN, tls_ca=certificates.ca) as db:
            assert db.tables() == []
        assert serving.end() == (0, "", "")
    finally:
        serving.kill()


def test_a_file_that_is_no_certificate_is_refused(secure: Serving, tmp_path: Path) -> None:
    (tmp_path / "noise").write_bytes(b"\0noise")
    for file in (tmp_path / "noise", tmp_path / "none"):
        with pytest.raises(TlsFailed, match="has no certificate"):
            gmdb.connect(secure.url, token=TOKEN, tls_ca=file)


def test_nobody_there_is_an_error_of_its_own() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(NoServer, match=r"nothing answers at gmdb://127\.0\.0\.1.*gmdb serve") as raised:
            gmdb.connect(f"gmdb://127.0.0.1:{taken.getsockname()[1]}", token=TOKEN)
        assert isinstance(raised.value, Transient)
    with pytest.raises(NoServer, match="nothing answers at gmdb://no-such-host"):
        gmdb.connect("gmdb://no-such-host.invalid", token=TOKEN)


@pytest.mark.parametrize("says", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"SSH-2.0-x\r\n", b"[1]\n", b"x" * 9000])
def test_something_else_at_the_port_gets_no_token(says: bytes) -> None:
    heard = b""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def speak() -> None:
            nonlocal heard
            visitor, _ = listener.accept()
            with visitor:
                heard += visitor.recv(100)
                visitor.sendall(says)
                visitor.shutdown(socket.SHUT_WR)
                while part := visitor.recv(100):
                    heard += part

        speaker = threading.Thread(target=speak)
        speaker.start()
        with pytest.raises(NotAServer, match="is not a gmdb server"):
            gmdb.connect(f"gmdb://127.0.0.1:{listener.getsockname()[1]}", token=TOKEN)
        speaker.join()
    assert heard == door_module.HELLO


def test_who_does_not_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gmdb.server.connect.PATIENCE", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        for scheme in ("gmdb", "gmdb+tls"):
            with pytest.raises(NoServer, match="does not answer"):
                gmdb.connect(f"{scheme}://127.0.0.1:{silent.getsockname()[1]}", token=TOKEN)


def test_a_token_does_not_leave_the_machine_without_tls() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as found:
        try:
            found.connect(("198.51.100.1", 9))  # sends nothing, but chooses the address from which it would
        except OSError:
            pytest.skip("this machine has no address but loopback")
        address = found.getsockname()[0]
    with socket.create_server((address, 0)) as listener:
        with pytest.raises(TlsFailed, match="nothing may be said there without TLS"):
            gmdb.connect(f"gmdb://{address}:{listener.getsockname()[1]}", token=TOKEN)
        visitor, _ = listener.accept()
        with visitor:
            assert visitor.recv(100) == b""


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("gmdb://", "is not a server"),
        ("gmdb://host:99999", "is gmdb://"),
        ("gmdb://host:x", "is gmdb://"),
        ("gmdb://host:0", "is not a server"),
        ("gmdb://host/shop.gmdb", "one database, which it was started with"),
        ("gmdb://host?tls=1", "takes .tls_ca=FILE, and no tls=1"),
        ("gmdb://host?tls_ca=", "takes .tls_ca=FILE"),
        ("gmdb://me:secret@host", "a token is not part of a URL"),
        ("gmdb://[::1", "is gmdb://"),
    ],
)
def test_a_url_that_makes_no_sense_is_refused(url: str, why: str) -> None:
    with pytest.raises(InterfaceError, match=why) as raised:
        gmdb.connect(url, token=TOKEN)
    assert "secret" not in str(raised.value)
    assert TOKEN not in str(raised.value)


def test_a_url_is_text_and_a_token_is_for_servers(path: Path) -> None:
    with pytest.raises(InterfaceError, match="as text"):
        gmdb.connect(Path("gmdb://127.0.0.1:7433"), token=TOKEN)
    with pytest.raises(InterfaceError, match="is a directory"):
        gmdb.connect(path, token=TOKEN)
    assert not path.exists()
    assert TOKEN not in repr(parse_url("gmdb://[::1]:1", TOKEN))
    assert parse_url("gmdb://[::1]", TOKEN).url == "gmdb://[::1]:7433"


def test_a_path_for_the_server_is_a_whole_one(db: Connection, tmp_path: Path) -> None:
    with pytest.raises(InterfaceError, match="on the server's machine"):
        db.backup("copy.gmdb")
    db.backup(tmp_path / "copy.gmdb")
    assert (tmp_path / "copy.gmdb").is_dir()


def test_a_server_of_another_version_is_told_of(plain: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door_module, "HELLO", b"gmdb 2\n")
    with pytest.raises(NotAServer, match="another version of gmdb"):
        gmdb.connect(plain.url, token=TOKEN)


def test_the_generated_token_is_the_users_alone(path: Path) -> None:
    gmdb.connect(path).close()
    for _ in range(2):
        serving = Serving(path)
        file = path / "gmdb.token"
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        token = file.read_text().strip()
        assert str(file) in serving.line
        assert token not in serving.line
        with gmdb.connect(serving.url, token=token) as db:
            assert db.tables() == []
        assert serving.end() == (0, "", "")
        assert file.read_text().strip() == token
