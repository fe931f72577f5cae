"""Processes that share a database: one that owns it and one that comes second, and the test's own."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import gmdb
from gmdb.database.connection import Connection
from gmdb.format.address import FIRST_USER_DEVICE
from gmdb.storage.directory import device_path
from tests.integrity import assert_sound
from tests.server.peer import Peer
from tests.server.serving import Certificates, make_certificates

SPARES = 3  # processes that are being started while a test runs, for the next


@pytest.fixture(scope="package", autouse=True)
def runtime_directory() -> Iterator[None]:
    """Where sockets are: what killed owners leave there goes when the tests are over."""
    with tempfile.TemporaryDirectory() as made, pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", made)
        yield


@pytest.fixture(scope="package")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="package")
def spares() -> Iterator[list[Peer]]:
    waiting = [Peer("import gmdb.database.connection") for _ in range(SPARES)]
    yield waiting
    for peer in waiting:
        peer.end()


@pytest.fixture
def start_peer(spares: list[Peer]) -> Iterator[Callable[[], Peer]]:
    """Gives a test processes that it may kill."""
    given: list[Peer] = []

    def start() -> Peer:
        spares.append(Peer("import gmdb.database.connection"))
        given.append(spares.pop(0))
        return given[-1]

    yield start
    for peer in given:
        peer.end()


@pytest.fixture(scope="package")
def owner_process() -> Iterator[Peer]:
    peer = Peer()
    yield peer
    peer.end()


@pytest.fixture(scope="package")
def second_process() -> Iterator[Peer]:
    peer = Peer()
    yield peer
    peer.end()


@pytest.fixture
def owner(owner_process: Peer, path: Path) -> Iterator[Peer]:
    """A process that has the test's database open as ``db``, with a table of two rows."""
    owner_process("db = gmdb.connect(path)", path=str(path))
    owner_process("db.create_table('t', {'i': 'INT NOT NULL', 's': 'VARCHAR(10)'})")
    owner_process("rows = [db.insert('t', (1, 'one')), db.insert('t', (2, 'two'))]; db.commit()")
    yield owner_process
    owner_process("db.rollback(); db.close()")
    if device_path(path, FIRST_USER_DEVICE + 1).exists():
        return  # a test of many bytes, which take long to check
    assert_sound(path)


@pytest.fixture
def db(owner: Peer, path: Path) -> Iterator[Connection]:
    """The test's own connection, through the owner."""
    del owner
    connection = gmdb.connect(path, lock_timeout=20)
    yield connection
    connection.close()


@pytest.fixture
def second(owner: Peer, second_process: Peer, path: Path) -> Iterator[Peer]:
    """Another process that goes through the owner; its connection is ``db``, too."""
    del owner
    second_process("db = gmdb.connect(path, lock_timeout=20)", path=str(path))
    yield second_process
    second_process("db.close()")
