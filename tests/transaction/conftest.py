"""A table of numbers, and further sessions of the test's database."""

from __future__ import annotations

import pytest

from gmdb.database.connection import Connection
from gmdb.tables.access.heap import Heap
from tests.sessions import connect

__all__ = ["connect"]


@pytest.fixture
def heap(db: Connection) -> Heap:
    db.create_table("t", {"id": "INT", "value": "INT"})
    db.commit()
    return db.heap("t")
