"""Databases for tests: whatever a test does with one, it is sound when the test is over."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import gmdb
from gmdb.connection import Connection
from tests import speed
from tests.integrity import assert_sound
from tests.server.peer import Peer

speed.hurry()
LONG = (  # files that take long, beside Spark's
    "tests/cli/test_shell_in_tmux", "tests/crash/", "tests/inspect/test_mutations", "tests/model/",
    "tests/sql/test_fuzz", "tests/sqlalchemy/test_suite", "tests/verify/test_fuzz",
)  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes longest: of two processes, none has nothing to do while the other ends such a file."""
    items.sort(key=lambda item: item.get_closest_marker("spark") is None and not item.nodeid.startswith(LONG))


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
