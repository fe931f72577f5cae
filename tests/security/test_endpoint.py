"""Whoever has no token can do nothing at an owner's sockets, and a file leads no client to somebody else's."""

from __future__ import annotations

import json
import os
import socket
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import flight

import gmdb
from gmdb.server.door import introduce
from gmdb.server.entrance import ENDPOINT_NAME, find_place
from tests.security.users import NOBODY, as_user, root_only
from tests.server.serving import TOKEN, Serving


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    path = tmp_path_factory.mktemp("served") / "shop.gmdb"
    with gmdb.connect(path) as db:
        db.execute("create table t (i int)")
        db.execute("insert into t values (1)")
        db.commit()
    made = Serving(path, "--token", TOKEN)
    yield made
    assert made.end() == (0, "", "")


@pytest.fixture(scope="module")
def flight_port(serving: Serving) -> Iterator[int]:
    """Flight's port, which the door tells those who have the token."""
    with socket.create_connection(("127.0.0.1", serving.port), 10) as door:
        yield int(introduce(door, TOKEN)["flight"])


DESCRIPTOR = flight.FlightDescriptor.for_command(b'{"kind": "session", "key": "0"}')


def _put(client: flight.FlightClient, options: flight.FlightCallOptions) -> None:
    writer, reader = client.do_put(DESCRIPTOR, pa.schema([("i", pa.int32())]), options)
    with writer:
        writer.write_batch(pa.record_batch({"i": pa.array([1], pa.int32())}))
        writer.done_writing()
        reader.read()


def _exchange(client: flight.FlightClient, options: flight.FlightCallOptions) -> None:
    _, reader = client.do_exchange(DESCRIPTOR, options)
    reader.read_chunk()


METHODS: dict[str, Callable[[flight.FlightClient, flight.FlightCallOptions], Any]] = {
    "list_flights": lambda client, options: list(client.list_flights(options=options)),
    "list_actions": lambda client, options: list(client.list_actions(options)),
    "get_flight_info": lambda client, options: client.get_flight_info(DESCRIPTOR, options),
    "get_schema": lambda client, options: client.get_schema(DESCRIPTOR, options),
    "do_action": lambda client, options: list(client.do_action(flight.Action("x", b""), options)),
    "do_get": lambda client, options: client.do_get(flight.Ticket(b"t"), options).read_all(),
    "do_put": _put,
    "do_exchange": _exchange,
    "handshake": lambda client, options: client.authenticate_basic_token("user", "password", options),
}

HEADERS: dict[str, list[tuple[bytes, bytes]]] = {
    "none": [],
    "empty": [(b"gmdb-token", b"")],
    "wrong": [(b"gmdb-token", b"0" * 32)],
    "nearly": [(b"gmdb-token", TOKEN[:-1].encode())],
    "longer": [(b"gmdb-token", TOKEN.encode() + b"0")],
    "elsewhere": [(b"authorization", f"Bearer {TOKEN}".encode())],
    "second": [(b"gmdb-token", b"x"), (b"gmdb-token", TOKEN.encode())],
}


@pytest.mark.parametrize("token", HEADERS)
@pytest.mark.parametrize("method", METHODS)
def test_flight_answers_nothing_without_the_token(flight_port: int, method: str, token: str) -> None:
    options = flight.FlightCallOptions(headers=HEADERS[token], timeout=20)
    with flight.connect(f"grpc://127.0.0.1:{flight_port}") as client:
        with pytest.raises((flight.FlightUnauthenticatedError, OSError), match="does not carry the token") as caught:
            METHODS[method](client, options)
        assert TOKEN not in str(caught.value)


@pytest.mark.parametrize("method", METHODS)
def test_the_token_alone_is_not_enough_for_flight(flight_port: int, method: str) -> None:
    """A session is the door's to give: without its key there is nothing to be asked."""
    options = flight.FlightCallOptions(headers=[(b"gmdb-token", TOKEN.encode())], timeout=20)
    with (
        flight.connect(f"grpc://127.0.0.1:{flight_port}") as client,
        pytest.raises((flight.FlightError, NotImplementedError, StopIteration)),
    ):
        METHODS[method](client, options)


def test_what_was_tried_without_a_token_has_changed_nothing(serving: Serving) -> None:
    with gmdb.connect(serving.url, token=TOKEN) as db:
        assert db.tables() == ["t"]
        assert db.execute("select * from t").fetchall() == [(1,)]


# ---- the same machine


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "shop.gmdb"


def test_an_owners_sockets_and_its_file_are_its_users_alone(path: Path) -> None:
    before = os.umask(0)
    try:
        with gmdb.connect(path):
            place = find_place(path)
            assert place is not None
            assert stat.S_IMODE(os.stat(path / ENDPOINT_NAME).st_mode) == 0o600
            assert stat.S_IMODE(os.stat(place.folder).st_mode) == 0o700
            assert stat.S_IMODE(os.stat(place.door).st_mode) == 0o600
    finally:
        os.umask(before)


@root_only
def test_another_user_gets_nowhere() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as made:
        os.chmod(made, 0o755)
        path = Path(made) / "shop.gmdb"
        with gmdb.connect(path) as db:
            db.execute("create table t (i int)")
            db.commit()
            place = find_place(path)
            assert place is not None
            assert as_user(lambda: _attempts(path, place.folder)) == ["PermissionError"] * 4


def _attempts(path: Path, folder: str) -> list[str]:
    """What becomes of each thing that another user might try."""
    tries: list[Callable[[], Any]] = [
        (path / ENDPOINT_NAME).read_bytes,
        lambda: os.listdir(folder),
        lambda: socket.socket(socket.AF_UNIX).connect(f"{folder}/door"),
        lambda: (path / "gmdb.control").open("r+b"),
    ]
    said = []
    for attempt in tries:
        try:
            attempt()
            said.append("done")
        except OSError as error:
            said.append(type(error).__name__)
    return said


# ---- a file that lies


def leave_file(path: Path, **fields: Any) -> None:
    told = {"pid": 1, "folder": "/nowhere", "token": "t" * 32, "inode": path.stat().st_ino, **fields}
    file = path / ENDPOINT_NAME
    file.write_text(json.dumps(told))
    file.chmod(0o600)


class Listener:
    """Somebody who waits at a socket for clients to come and show their tokens."""

    def __init__(self, folder: Path, mode: int) -> None:
        folder.mkdir()
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(folder / "door"))
        self._socket.listen()
        self._socket.setblocking(False)
        folder.chmod(mode)

    def heard_anything(self) -> bool:
        try:
            self._socket.accept()
            return True
        except BlockingIOError:
            return False
        finally:
            self._socket.close()


@pytest.fixture
def short() -> Iterator[Path]:
    """Paths of sockets must be short."""
    with tempfile.TemporaryDirectory(dir="/tmp") as made:
        yield Path(made)


@pytest.fixture
def closed(path: Path) -> Path:
    gmdb.connect(path).close()
    return path


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o777])
def test_a_client_knocks_at_no_socket_that_others_could_have_put_there(closed: Path, short: Path, mode: int) -> None:
    listener = Listener(short / "gmdb-x", mode)
    leave_file(closed, folder=str(short / "gmdb-x"))
    with gmdb.connect(closed, read_only=True) as db:
        assert db.tables() == []
    assert not listener.heard_anything()


def test_a_client_knocks_at_no_socket_behind_a_link(closed: Path, short: Path) -> None:
    listener = Listener(short / "real", 0o700)
    (short / "gmdb-x").symlink_to(short / "real")
    leave_file(closed, folder=str(short / "gmdb-x"))
    gmdb.connect(closed, read_only=True).close()
    assert not listener.heard_anything()


def test_a_file_that_others_may_write_is_not_believed(closed: Path, short: Path) -> None:
    listener = Listener(short / "gmdb-x", 0o700)
    leave_file(closed, folder=str(short / "gmdb-x"))
    (closed / ENDPOINT_NAME).chmod(0o666)
    gmdb.connect(closed, read_only=True).close()
    assert not listener.heard_anything()


@root_only
def test_a_folder_of_another_user_is_not_believed(closed: Path, short: Path) -> None:
    listener = Listener(short / "gmdb-x", 0o700)
    os.chown(short / "gmdb-x", NOBODY, NOBODY)
    leave_file(closed, folder=str(short / "gmdb-x"))
    gmdb.connect(closed, read_only=True).close()
    assert not listener.heard_anything()


@pytest.mark.parametrize("mode", [0o770, 0o777])
def test_a_client_knocks_at_no_socket_that_others_can_put_aside(closed: Path, short: Path, mode: int) -> None:
    """Between the look at a folder and the call, others may rename it who can write the one above it."""
    (short / "above").mkdir()
    listener = Listener(short / "above" / "gmdb-x", 0o700)
    (short / "above").chmod(mode)
    leave_file(closed, folder=str(short / "above" / "gmdb-x"))
    gmdb.connect(closed, read_only=True).close()
    assert not listener.heard_anything()


@pytest.mark.parametrize("mode", [0o770, 0o777, pytest.param(None, marks=root_only)])
def test_an_owner_listens_where_nobody_else_can_put_its_folder_aside(
    path: Path, short: Path, mode: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The runtime directory may be another user's: su leaves the variable as it is."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(short))
    with gmdb.connect(path):
        assert (place := find_place(path)) is not None
        assert Path(place.folder).parent == short
    short.chmod(mode or 0o700)
    if mode is None:
        os.chown(short, NOBODY, NOBODY)
    with gmdb.connect(path):
        assert (place := find_place(path)) is not None
        assert Path(place.folder).parent != short


@pytest.mark.parametrize("what", ["pipe", "link", "huge", "deep", "noise", "numbers", "folder"])
def test_nonsense_in_its_place_keeps_nobody_waiting(closed: Path, what: str) -> None:
    file = closed / ENDPOINT_NAME
    if what == "pipe":
        os.mkfifo(file, 0o600)
    elif what == "link":
        file.symlink_to("/dev/zero")
    elif what == "folder":
        file.mkdir()
    else:
        texts = {"huge": " " * 10_000_000, "deep": "[" * 4000, "noise": "\0\xff{", "numbers": "1"}
        file.write_text(texts[what])
        file.chmod(0o600)
    assert find_place(closed) is None
    if what != "link":  # which the database is not opened with
        gmdb.connect(closed, read_only=True).close()
