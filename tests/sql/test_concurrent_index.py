"""``create index concurrently``: refused, it leaves nothing, and the connection is as it was."""

from __future__ import annotations

from pathlib import Path

import pytest

import gmdb
from gmdb.errors import UniqueViolation


def test_one_that_is_refused_leaves_nothing(path: Path) -> None:
    with gmdb.connect(path) as db:
        db.execute("create table t (i int)")
        db.executemany("insert into t values (?)", [(1,), (1,)])
        db.commit()
        with pytest.raises(UniqueViolation):
            db.execute("create unique index concurrently t_i on t (i)")
        assert (db.autocommit, db.in_transaction) == (False, False)
        assert db.table("t").indexes == ()
        db.execute("create index concurrently t_i on t (i)")
        assert [index.name for index in db.table("t").indexes] == ["t_i"]
