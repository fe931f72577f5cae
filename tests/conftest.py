"""Databases for tests: whatever a test does with one, it is sound when the test is over."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import gmdb
from gmdb.connection import Connection
from tests.integrity import assert_sound
from tests.server.peer import Peer


@pytest.hookimpl(tryfirst=True)  # before the names of groups are read
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that share something costly run in one process: those of a file, and all that need Spark."""
    for item in items:
        shared = "spark" if item.get_closest_marker("spark") else str(item.path)
        item.add_marker(pytest.mark.xdist_group(shared))


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
