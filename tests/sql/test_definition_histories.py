"""Definitions and changes in random order do what they do in PostgreSQL."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.postgres import available, server

from tests.searches import extent
from tests.sql.definition_histories import search

pytestmark = pytest.mark.skipif(not available(), reason="needs PostgreSQL's programs")


@pytest.mark.search
def test_a_history_of_definitions_goes_as_in_postgresql(tmp_path: Path) -> None:
    count = extent(3, 60)
    with server() as postgres:
        found, counts = search(postgres, tmp_path, 1, count)
    assert not found, "\n\n".join(found)
    assert counts.total() > 50 * count
    assert counts["alter"] > 5 * count
