from __future__ import annotations

from pathlib import Path

import pytest

from tests.inspect.build import build_database
from tests.sessions import connect

__all__ = ["connect", "database"]


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """A database of its own for every test: tests damage it."""
    return build_database(tmp_path / "built.gmdb")
