from __future__ import annotations

from pathlib import Path

import pytest

from tests.inspect.build import build_database
from tests.spark.conftest import spark

__all__ = ["database", "spark"]


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """A database of its own for every test: tests damage it."""
    return build_database(tmp_path / "built.gmdb")
