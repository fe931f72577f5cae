"""A table with a change feed, and further sessions of the test's database."""

from __future__ import annotations

import pytest

from gmdb.database.connection import Connection
from tests.sessions import connect

__all__ = ["connect"]


@pytest.fixture
def table(db: Connection) -> Connection:
    db.execute("create table t (i int primary key, s varchar(2000)) with (change_feed = true)")
    db.commit()
    return db
