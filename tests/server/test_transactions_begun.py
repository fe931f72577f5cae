"""BEGIN under autocommit: a transaction until it ends, then each statement is one again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import gmdb
from tests.server.peer import Peer


@pytest.mark.parametrize("place", ["local", "remote"])
def test_a_transaction_that_was_begun_is_one_until_it_ends(
    path: Path, place: str, start_peer: Callable[[], Peer]
) -> None:
    if place == "remote":
        start_peer()("db = gmdb.connect(path)", path=str(path))
    db, other = gmdb.connect(path, autocommit=True), gmdb.connect(path)
    db.execute("create table t (i int)")
    for end, rows in (("rollback", 0), ("commit", 2)):
        db.execute("begin")
        assert (db.in_transaction, db.autocommit) == (True, True)
        db.execute("insert into t values (1)")
        db.execute("insert into t values (2)")
        assert other.execute("select count(*) from t").fetchall() == [(0,)]
        other.commit()
        db.execute(end)
        assert other.execute("select count(*) from t").fetchall() == [(rows,)]
        other.commit()
    db.execute("insert into t values (3)")
    assert not db.in_transaction
    assert other.execute("select count(*) from t").fetchall() == [(3,)]
    db.execute("set autocommit off")
    assert db.autocommit is False
    other.close()
    db.close()
