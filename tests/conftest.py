"""Databases for tests: whatever a test does with one, it is sound when the test is over."""

from __future__ import annotations

import gc
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import gmdb
from gmdb.database.connection import Connection
from tests import speed
from tests.integrity import assert_sound
from tests.server.peer import Peer

HAS_FAILED = pytest.StashKey[bool]()
speed.hurry()
LONG = (  # files that take long, beside Spark's
    "tests/cli/test_shell_in_tmux", "tests/crash/", "tests/inspect/test_mutations", "tests/model/", "tests/server/",
    "tests/sql/test_fuzz", "tests/sqlalchemy/test_suite", "tests/storage/test_shrink", "tests/verify/test_fuzz",
)  # fmt: skip


def pytest_configure() -> None:
    """Ctrl-C is heard, also in the background of a shell, which starts programs there with SIGINT ignored."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes longest: of two processes, none has nothing to do while the other ends such a file."""
    items.sort(key=lambda item: item.get_closest_marker("spark") is None and not item.nodeid.startswith(LONG))


def pytest_exception_interact(node: pytest.Item | pytest.Collector) -> None:
    node.stash[HAS_FAILED] = True


@pytest.fixture(scope="session", autouse=True)
def removed_at_the_end(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """All that tests have left, which may lie in memory, unless one has failed."""
    yield
    gc.collect()
    if not request.session.testsfailed:
        shutil.rmtree(tmp_path_factory.getbasetemp(), ignore_errors=True)


@pytest.fixture(scope="module")
def done_with() -> Iterator[list[Path]]:
    """Directories of a file's tests: what they left open is closed in them before they are removed."""
    found: list[Path] = []
    yield found
    gc.collect()
    for directory in found:
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path: Path, done_with: list[Path]) -> Iterator[Path]:
    """A directory for a test; that of one that has failed stays."""
    yield tmp_path
    if not request.node.stash.get(HAS_FAILED, False):
        done_with.append(tmp_path)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "test.gmdb"


@pytest.fixture(scope="session")
def peer() -> Iterator[Peer]:
    """Another process, which opens databases for this one to reach through it."""
    made = Peer()
    yield made
    made.end()


@pytest.fixture
def db(path: Path) -> Iterator[Connection]:
    database = gmdb.connect(path)
    yield database
    database.commit()
    database.close()
    assert_sound(path)
