"""Backups, archiving and verifying through the process that has the database open."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import gmdb
from gmdb.cli import main
from gmdb.database.connection import Connection
from gmdb.errors import TargetExists
from gmdb.storage.directory import read_control
from tests.integrity import assert_sound
from tests.server.peer import Peer
from tests.sessions import until


def rows(path: Path) -> list[tuple[int, str]]:
    with gmdb.connect(path) as db:
        return [values for _, values in db.heap("t").rows()]


def test_a_client_has_the_owner_make_a_backup(
    db: Connection, owner: Peer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    owner("db.insert('t', (3, 'open'))")
    steps: list[str] = []
    report = db.backup("backup", lambda what, _done, _total: steps.append(what))
    assert report.path == str(tmp_path / "backup")
    assert rows(tmp_path / "backup") == [(1, "one"), (2, "two")]
    assert_sound(tmp_path / "backup")
    with pytest.raises(TargetExists):
        db.backup(tmp_path / "backup")
    assert db.tables() == ["t"]


def test_a_client_has_the_owner_verify(db: Connection, owner: Peer, path: Path) -> None:
    owner("db.insert('t', (3, 'open'))")
    report = db.verify()
    assert (report.clean, report.directory) == (True, path)
    assert db.recovery is None


def test_a_client_switches_archiving(db: Connection, path: Path) -> None:
    db.set_archiving(True)
    assert read_control(path)["archiving"] == 1
    db.set_archiving(False)
    assert read_control(path)["archiving"] == 0


def test_commands_go_through_the_owner(
    owner: Peer, path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    owner("db.insert('t', (3, 'open'))")
    assert main(["verify", str(path)]) == 0
    assert capsys.readouterr().out.endswith("nothing is wrong\n")
    assert main(["backup", str(path), str(tmp_path / "backup")]) == 0
    assert main(["restore", str(tmp_path / "backup"), str(tmp_path / "new")]) == 0
    assert rows(tmp_path / "new") == [(1, "one"), (2, "two")]


def test_a_backup_of_a_client_that_dies_is_given_up(
    owner: Peer, path: Path, tmp_path: Path, start_peer: Callable[[], Peer]
) -> None:
    client = start_peer()
    client("db = gmdb.connect(path)", path=str(path))
    client("db._link.ask('_backup', target)", target=tmp_path / "backup")
    client("db._link.ask('work', 1)")
    client.kill()
    until(lambda: owner("db._database.durability.redo.files.oldest_held()") >= 1 << 60)
    left = [entry.name for entry in tmp_path.iterdir() if entry.name.startswith(".")]
    assert left == []
