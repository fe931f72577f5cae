"""``gmdb verify``: what it prints, its exit status, its progress bar."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import gmdb
from gmdb.cli import main, output
from gmdb.errors import DatabaseInUse
from gmdb.format.address import page_name
from gmdb.format.page import TAIL_SIZE
from gmdb.storage.directory import device_path
from gmdb.tables.catalog.schema import SYSTEM_TABLES
from gmdb.verify import verify
from tests.verify.build import Damage


def test_a_sound_database_is_one_line_and_status_0(sound_database: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(sound_database)]) == 0
    out, err = capsys.readouterr()
    [line] = out.splitlines()
    assert line.endswith("rows: nothing is wrong")
    assert err == ""


def test_a_finding_is_a_line_and_status_1(damage: Damage, capsys: pytest.CaptureFixture[str]) -> None:
    page_id = damage.pages("bulk")[7]
    damage.write(page_id, 7000, b"\1", sealed=False)
    os.truncate(device_path(damage.path, 5), 20 * 16384)
    assert main(["verify", str(damage.path)]) == 1
    first, second, last = capsys.readouterr().out.splitlines()
    assert first == "device-0005: the file ends after 20 of 32 pages"
    assert second.startswith(f"page {page_name(page_id)}, offset {8192 - TAIL_SIZE}: CRC ")
    assert last.endswith("2 findings")


def test_findings_as_one_json_document(damage: Damage, capsys: pytest.CaptureFixture[str]) -> None:
    page_id = damage.pages("bulk")[7]
    damage.write(page_id, 7000, b"\1", sealed=False)
    assert main(["verify", str(damage.path), "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    [finding] = document["findings"]
    assert document["clean"] is False
    assert document["tables"] == len(SYSTEM_TABLES) + 10
    assert finding.pop("message").startswith("CRC ")
    place = {"file": "device-0004", "page_id": page_id, "page": page_name(page_id), "offset": 8192 - TAIL_SIZE}
    assert finding == place


def test_a_sound_database_as_a_json_document(sound_database: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(sound_database), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["clean"], document["findings"]) == (True, [])
    assert document["bytes"] > document["pages"] * 8192


@pytest.mark.parametrize("kind", ["missing", "empty directory", "file"])
def test_what_is_no_database_is_status_2(tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "thing"
    if kind == "empty directory":
        path.mkdir()
    elif kind == "file":
        path.touch()
    assert main(["verify", str(path)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert str(path) in err


def test_a_database_that_is_open_is_status_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with gmdb.connect(tmp_path / "open.gmdb"):
        assert main(["verify", str(tmp_path / "open.gmdb")]) == 2
    assert "is open in process" in capsys.readouterr().err
    assert verify(tmp_path / "open.gmdb").clean


def test_nobody_can_open_a_database_while_it_is_verified(tmp_path: Path) -> None:
    path = tmp_path / "db.gmdb"
    gmdb.connect(path).close()
    refused = []

    class Opening:
        def __init__(self, total: int) -> None:
            assert total > 0

        def __enter__(self):
            with pytest.raises(DatabaseInUse):
                gmdb.connect(path)
            refused.append(True)
            return lambda count: refused.append(count > 0)

        def __exit__(self, *_: object) -> None:
            pass

    assert verify(path, Opening).clean
    assert refused[0]
    assert all(refused)


def test_a_device_that_is_a_directory_is_status_2(damage: Damage) -> None:
    device_path(damage.path, 5).unlink()
    device_path(damage.path, 5).mkdir()
    assert main(["verify", str(damage.path)]) == 2


def test_its_help_needs_no_compiled_code() -> None:
    code = "\n".join(
        (
            "import sys; from gmdb.cli import main",
            "try: main(['verify', '--help'])",
            "except SystemExit: print('numba' in sys.modules)",
        )
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert run.stdout.splitlines()[-1] == "False"
    assert "gmdb verify shop.gmdb --json" in run.stdout


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_bar_shows_on_a_terminal_once_it_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(n * 0.4 for n in range(100))
    monkeypatch.setattr(output.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    with output.progress("verify", 200) as step:
        step(40)
        step(40)
        assert sys.stderr.getvalue() == ""
        step(40)
        assert "verify [##################------------]  60%" in sys.stderr.getvalue()
    assert sys.stderr.getvalue().endswith("\r\x1b[K")


def test_no_bar_shows_where_no_terminal_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "QUIET_SECONDS", 0.0)
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with output.progress("verify", 10) as step:
        step(10)
    assert sys.stderr.getvalue() == ""
