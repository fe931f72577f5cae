"""``gmdb backup``, ``gmdb archive``, ``gmdb restore``, and ``gmdb verify`` of what was not closed."""

from __future__ import annotations

import io
import json
import shutil
import sys
import time
from datetime import datetime, timedelta
from pathlib import Path

import pytest

import gmdb
from gmdb.cli import main, output
from gmdb.cli.upkeep import parse_time
from gmdb.errors import InterfaceError
from gmdb.storage.log.backup import is_backup

Output = pytest.CaptureFixture[str]


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    with gmdb.connect(tmp_path / "shop.gmdb") as db:
        db.create_table("t", {"i": "INT"})
        db.commit()
        db.insert("t", (1,))
    return tmp_path / "shop.gmdb"


def add(path: Path, value: int) -> None:
    with gmdb.connect(path) as db:
        db.insert("t", (value,))


def values(path: Path) -> list[int]:
    with gmdb.connect(path) as db:
        return [i for _, (i,) in db.heap("t").rows()]


def crashed(path: Path) -> Path:
    """A copy of a database's files while it was open, with a committed row more, and one that is not."""
    with gmdb.connect(path) as db, gmdb.connect(path) as other:
        other.insert("t", (3,))
        db.insert("t", (2,))
        db.commit()
        copy = Path(shutil.copytree(path, path.with_name("crashed.gmdb")))
        other.rollback()
    return copy


# ---- backup, archive, restore


def test_a_closed_database_is_backed_up_and_restored(shop: Path, capsys: Output) -> None:
    backup, new = str(shop.with_name("backup")), shop.with_name("new.gmdb")
    assert main(["backup", str(shop), backup]) == 0
    out, err = capsys.readouterr()
    assert out.startswith(f"{backup}: 0.3 MiB of pages")
    assert err == ""
    assert main(["restore", backup, str(new)]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("recovered in ")
    assert second.startswith(f"{new}: no commit was replayed")
    assert values(new) == [1]


def test_a_database_is_brought_to_a_time(shop: Path, capsys: Output) -> None:
    assert main(["archive", str(shop), "on"]) == 0
    assert main(["backup", str(shop), str(shop.with_name("backup"))]) == 0
    add(shop, 2)
    time.sleep(0.002)
    noon = datetime.now()
    time.sleep(0.002)
    add(shop, 3)
    capsys.readouterr()
    for name, to, expected in (("noon", noon, [1, 2]), ("later", noon + timedelta(hours=1), [1, 2, 3])):
        target, archive = str(shop.with_name(name)), str(shop / "archive")
        assert main(["restore", str(shop.with_name("backup")), target, "--archive", archive, "--to", f"{to}"]) == 0
        assert values(Path(target)) == expected
    assert "the log ends before" in capsys.readouterr().out.splitlines()[-1]
    assert main(["archive", str(shop), "off"]) == 0


def test_reports_as_json_documents(shop: Path, capsys: Output) -> None:
    backup, new = str(shop.with_name("backup")), str(shop.with_name("new.gmdb"))
    assert main(["backup", str(shop), backup, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["path"], document["redo_bytes"]) == (backup, 0)
    assert main(["restore", backup, new, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["database"] == new
    assert document["recovery"]["rolled_back"] == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["backup", "nothing", "there"], "nothing does not exist"),
        (["backup", "shop.gmdb", "shop.gmdb"], "is there already"),
        (["archive", "nothing", "on"], "nothing does not exist"),
        (["restore", "nothing", "there"], "nothing does not exist"),
        (["restore", "shop.gmdb", "there"], "is not a backup"),
        (["restore", "shop.gmdb", "there", "--to", "noon"], "'noon' is not a time"),
    ],
)
def test_bad_input_is_status_2(
    shop: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(shop.parent)
    assert main(arguments) == 2
    assert message in capsys.readouterr().err
    assert not (shop.parent / "nothing").exists()
    assert not (shop.parent / "there").exists()


def test_a_backup_is_not_backed_up(shop: Path, capsys: Output) -> None:
    backup = shop.with_name("backup")
    main(["backup", str(shop), str(backup)])
    assert main(["backup", str(backup), str(shop.with_name("second"))]) == 2
    assert "is a backup itself" in capsys.readouterr().err
    assert is_backup(backup)


def test_times_are_local_or_have_a_zone() -> None:
    assert parse_time("2026-11-15 12:00:00") == datetime(2026, 11, 15, 12).astimezone()
    assert parse_time("2026-11-15T12:00:00+02:00") == parse_time("2026-11-15T10:00:00Z")
    with pytest.raises(InterfaceError, match="is not a time"):
        parse_time("2026-13-15")


# ---- verify


def test_a_crashed_database_is_recovered_and_then_verified(shop: Path, capsys: Output) -> None:
    copy = crashed(shop)
    assert main(["verify", str(copy)]) == 0
    out, err = capsys.readouterr()
    first, second = out.splitlines()
    assert first.startswith("recovered in ")
    assert "1 transactions rolled back" in first
    assert second.endswith("nothing is wrong")
    assert err == ""
    assert values(copy) == [1, 2]
    assert main(["verify", str(copy)]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1


def test_what_recovery_did_is_in_the_json_document(shop: Path, capsys: Output) -> None:
    copy = crashed(shop)
    for expected in (1, None):
        assert main(["verify", str(copy), "--json"]) == 0
        document = json.loads(capsys.readouterr().out)
        recovery = document["recovery"]
        assert (recovery and recovery["rolled_back"]) == expected
        assert (document["clean"], document["findings"]) == (True, [])


def test_a_backup_is_verified_and_stays_one(shop: Path, capsys: Output) -> None:
    backup = shop.with_name("backup")
    main(["backup", str(shop), str(backup)])
    before = {path.name: path.read_bytes() for path in backup.iterdir()}
    assert main(["verify", str(backup)]) == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith("nothing is wrong")
    assert {path.name: path.read_bytes() for path in backup.iterdir()} == before


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_bar_shows_each_step_that_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "QUIET_SECONDS", 0.0)
    monkeypatch.setattr(output, "REDRAW_SECONDS", 0.0)
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    with output.progress_of_steps() as step:
        step("replaying redo", 30, 60)
        step("rolling back", 1, 10)
        shown = sys.stderr.getvalue()
    assert "replaying redo [###############---------------]  50%" in shown
    assert "rolling back [###" in shown
    assert sys.stderr.getvalue().endswith("\r\x1b[K")
