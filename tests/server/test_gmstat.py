"""``gmstat locks`` and ``gmstat transactions``: asked of an owner, or read from the undo log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import gmdb
from gmdb.cli import gmstat
from gmdb.database.connection import Connection
from tests.server.peer import Peer


def document(capsys: pytest.CaptureFixture[str], verb: str, path: Path) -> dict[str, Any]:
    assert gmstat([verb, str(path), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_locks_and_transactions_of_a_database_in_use_are_the_owners(
    db: Connection, owner: Peer, path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    owner("db.gc()")
    db.update("t", {"s": "mine"}, lambda row: row["i"] == 1)
    owner("db.select_for_update('t', lambda row: row['i'] == 2)")
    locks = document(capsys, "locks", path)
    assert locks["notes"] == []  # else they would be the files'
    assert [lock["lock_id"] for lock in locks["locks"]] == [lock["lock_id"] for lock in db.locks().to_pylist()]
    assert sorted(lock["action"] for lock in db.locks().to_pylist()) == ["UPDATE", "U_LOCK"]
    transactions = document(capsys, "transactions", path)
    assert transactions["transactions"] == db.transactions().to_pylist()
    assert gmstat(["locks", str(path)]) == 0
    drawn = capsys.readouterr().out
    assert "UPDATE" in drawn
    assert "4:2:0" in drawn
    assert gmstat(["transactions", str(path)]) == 0
    assert "active" in capsys.readouterr().out


def test_a_closed_database_has_no_locks_and_a_dump_shows_those_of_its_undo_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with gmdb.connect(tmp_path / "live.gmdb") as db:
        db.create_table("t", {"i": "INT"})
        db.commit()
        row_id = db.insert("t", (1,))
        db.commit()
        db.gc()
        db.update("t", {"i": 2})
        db.dump(tmp_path / "live.dump")
        db.rollback()
    for verb in ("locks", "transactions"):
        found = document(capsys, verb, tmp_path / "live.gmdb")
        assert (found[verb], found["notes"]) == ([], ["out of the undo log in the files"])
    (lock,) = document(capsys, "locks", tmp_path / "live.dump")["locks"]
    assert (lock["action"], lock["page_id"], lock["slot_id"]) == ("HEAP_UPDATE", *row_id)
    (transaction,) = document(capsys, "transactions", tmp_path / "live.dump")["transactions"]
    assert (transaction["state"], transaction["locks"]) == ("never ended", 1)
    assert gmstat(["locks", str(tmp_path / "live.dump")]) == 0
    assert str(row_id) in capsys.readouterr().out


def test_what_is_no_database_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for verb in ("locks", "transactions"):
        assert gmstat([verb, str(tmp_path / "nowhere")]) == 2
        assert "does not exist" in capsys.readouterr().err
