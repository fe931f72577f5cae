"""``gmdb snapshots``: what is pinned, listed and dropped."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import gmdb
from gmdb.cli import main
from gmdb.storage.pins import read_pins
from tests.server.peer import Peer


@pytest.fixture
def table(path: Path) -> Path:
    with gmdb.connect(path) as db:
        db.create_table("t", {"i": "INT"})
    return path


def test_of_an_open_database(table: Path, peer: Peer, capsys: pytest.CaptureFixture[str]) -> None:
    peer("db = gmdb.connect(path)", path=table)
    with gmdb.connect(table) as db:
        first, second = db.take_snapshot(), db.take_snapshot()
        assert main(["snapshots", "list", str(table), "--json"]) == 0
        listed = json.loads(capsys.readouterr().out)["snapshots"]
        assert [one["name"] for one in listed] == [first.name, second.name]
        assert main(["snapshots", "drop", str(table), first.name]) == 0
        assert f"dropped {first.name}" in capsys.readouterr().out
        assert [pin.name for pin in read_pins(table)] == [second.name]
        assert db.execute("select pinned from sys_snapshots where pinned is not null").fetchall() == [(second.name,)]
        assert main(["snapshots", "drop", str(table), "--all"]) == 0
        assert read_pins(table) == []
    peer("db.close()")


def test_what_there_is_not(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["snapshots", "drop", str(table)]) == 2
    assert "or use --all" in capsys.readouterr().err
    assert main(["snapshots", "drop", str(table), "0000000001-00000000"]) == 2
    assert "no snapshot 0000000001-00000000" in capsys.readouterr().err
    assert main(["snapshots", "list", str(table.parent / "nothing")]) == 2
    assert "nothing" in capsys.readouterr().err
