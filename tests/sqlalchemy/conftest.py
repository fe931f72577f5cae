"""Engines for tests; the suites of SQLAlchemy and Alembic are run by test_suites.py, in processes of their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import gmdb.sqlalchemy  # noqa: F401 (an installation that has no entry point yet knows the dialect by this)
from sqlalchemy import Engine, create_engine
from tests.integrity import assert_sound

collect_ignore = ["suite", "alembic_suite"]


@pytest.fixture(params=["local", "remote"])
def engine(request: pytest.FixtureRequest, path: Path) -> Iterator[Engine]:
    """An engine over a new database, which this process has open, or another one."""
    is_remote = request.param == "remote"
    if is_remote:
        request.getfixturevalue("peer")("own = gmdb.connect(path)", path=str(path))
    made = create_engine(f"gmdb:///{path}")
    try:
        yield made
    finally:
        made.dispose()
        if is_remote:
            request.getfixturevalue("peer")("own.close()")
    assert_sound(path)
