"""gmstat's listings: text, JSON, CSV and Arrow files, filters and ranges; in any state."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import gmdb
from gmdb.cli import gmstat
from gmdb.cli.stat import VERBS
from tests.inspect.states import ALL_DAMAGE, build, damaged

ASKED = {
    "maps": ["t"], "freelists": ["t"], "fill": ["t"], "rows": ["t"], "row": ["4:7:3"], "page": ["4:7"], "hex": ["4:7"],
    "find": ["t", "i < 5"], "index": ["t_i"], "hash": ["t_h"], "history": ["4:7"], "diff": ["4:7", "4:1"],
}  # fmt: skip
NAMES = [verb.NAME for verb in VERBS if verb.NAME != "salvage"]  # which writes
GMSTAT = "import sys; from gmdb.cli import gmstat; sys.exit(gmstat())"


@pytest.fixture(scope="module")
def states(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return build(tmp_path_factory.mktemp("states"))


def shown(capsys: pytest.CaptureFixture[str], *arguments: object, status: int = 0) -> str:
    assert gmstat([str(argument) for argument in arguments]) == status
    captured = capsys.readouterr()
    assert (captured.err == "") == (status != 2)
    return captured.out


@pytest.mark.parametrize("name", NAMES)
def test_every_verb_prints_text_json_csv_and_arrow(
    states: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    asked = [name, states["closed"], *ASKED.get(name, [])]
    assert shown(capsys, *asked)
    assert json.loads(shown(capsys, *asked, "--json"))
    lines = list(csv.reader(io.StringIO(shown(capsys, *asked, "--csv"))))
    shown(capsys, *asked, "--arrow", tmp_path / "made.arrow")
    with pa.ipc.open_file(tmp_path / "made.arrow") as reader:
        table = reader.read_all()
    assert table.schema.names == lines[0]
    assert table.num_rows == len(lines) - 1
    first = table.schema.names[0]
    assert (
        len(shown(capsys, *asked, "--where", f'"{first}" is null', "--csv").splitlines()) - 1 == table[first].null_count
    )


@pytest.mark.parametrize("kind", ALL_DAMAGE)
def test_damage_never_ends_in_a_traceback(
    states: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    place = damaged(states["closed"], tmp_path / "db", kind)
    statuses = set()
    for name in NAMES:
        statuses.add(gmstat([name, str(place), *ASKED.get(name, [])]))
        captured = capsys.readouterr()
        assert "\033" not in captured.out
        assert captured.err.count("\n") <= 1
    assert statuses <= {0, 1, 2}
    assert 1 in statuses


def test_a_filter_and_a_range_of_pages_choose(states: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(shown(capsys, "find", states["closed"], "t", "i between 50 and 52", "--json"))["rows"]
    assert sorted(row["i"] for row in found) == [50, 51, 52]
    page = found[0]["_rowid"].rpartition(":")[0]
    both = ["--pages", page, "--where", "i > 51", "--json"]
    rows = json.loads(shown(capsys, "rows", states["closed"], "t", *both))["rows"]
    assert all(row["i"] > 51 and row["_rowid"].startswith(f"{page}:") for row in rows)
    assert gmstat(["rows", str(states["closed"]), "t", "--where", "nothing > 5"]) == 2
    assert "nothing" in capsys.readouterr().err
    assert gmstat(["rows", str(states["closed"]), "t", "--where", "i > 5 order by i"]) == 2
    assert "is more than a condition" in capsys.readouterr().err
    assert gmstat(["rows", str(states["closed"]), "t", "--pages", "4:9..4:7"]) == 2
    assert "it ends before it begins" in capsys.readouterr().err
    assert gmstat(["rows", str(states["closed"]), "tt"]) == 2
    assert "has no segment tt" in capsys.readouterr().err
    assert gmstat(["rows", str(states["closed"]), "t_i"]) == 2
    assert "t_i is not a table" in capsys.readouterr().err


def test_fill_is_a_histogram(states: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(capsys, "fill", states["closed"], "t").splitlines()
    assert lines[0].startswith("  0 …  10 %")
    assert max(line.count("█") for line in lines) == 50
    assert "data pages" in lines[10]


def test_hex_names_what_begins_on_a_line(states: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    page = json.loads(shown(capsys, "rows", states["closed"], "t", "--json"))["rows"][0]["_rowid"].rpartition(":")[0]
    lines = shown(capsys, "hex", states["closed"], page).splitlines()
    assert lines[0].startswith("     0  00 00 00 00")
    assert "head.latch.spinlock" in lines[0]
    assert lines[-1].endswith("tail.crc reserved")
    assert any("lines more like it" in line for line in lines)
    assert len(shown(capsys, "hex", states["closed"], page, "--full").splitlines()) == 512


def test_history_lists_steps_and_draws_the_page_at_one(
    states: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    redo = json.loads(shown(capsys, "redo", states["crashed"], "--json", "--where", "object = 't' and kind = 'BYTES'"))
    page = redo["redo"][-1]["page"]
    steps = json.loads(shown(capsys, "history", states["crashed"], page, "--json"))["history"]
    assert [step["step"] for step in steps] == list(range(1, len(steps) + 1))
    assert steps[-1]["fields"]
    drawn = json.loads(shown(capsys, "history", states["crashed"], page, "--step", len(steps), "--json"))
    replayed = json.loads(shown(capsys, "page", states["crashed"], page, "--at", "end", "--json"))
    assert drawn == replayed
    assert gmstat(["history", str(states["crashed"]), page, "--step", "99999"]) == 2
    assert "there is no step 99999" in capsys.readouterr().err


def test_a_live_database_is_asked(tmp_path: Path) -> None:
    path = tmp_path / "live.gmdb"

    def run(*arguments: str) -> str:
        command = [sys.executable, "-c", GMSTAT, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    with gmdb.connect(path) as db:
        db.execute("create table t (i int, s varchar(10))")
        db.commit()
        db.execute("insert into t values (1, 'here')")
        assert "here" in run("rows", str(path), "t", "--live")
        page = json.loads(run("rows", str(path), "t", "--live", "--json"))["rows"][0]["_rowid"].rpartition(":")[0]
        assert "here" in run("page", str(path), page, "--live")
        assert "here" in run("hex", str(path), page, "--live")
        assert json.loads(run("locks", str(path), "--json"))["locks"]
        assert json.loads(run("transactions", str(path), "--json"))["transactions"][0]["state"] == "active"
        assert json.loads(run("waits", str(path), "--json"))["waits"] == []
        db.commit()
    assert gmstat(["rows", str(path), "t", "--live"]) == 2


def test_the_log_is_followed_as_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "live.gmdb"
    with gmdb.connect(path) as db:
        db.execute("create table t (i int)")
        db.commit()
        command = [sys.executable, "-u", "-c", GMSTAT, "redo", str(path), "--follow", "--csv"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            names = process.stdout.readline().strip().split(",")
            kind, scn = names.index("kind"), names.index("scn")
            db.execute("insert into t values (1)")
            db.commit()
            (newest,) = db.execute("select max(scn) from gm_redo()").fetchone()
            try:
                for line in process.stdout:
                    fields = line.split(",")
                    if fields[kind] == "COMMIT" and int(fields[scn]) == newest:
                        break
                else:
                    pytest.fail("the commit was never shown")
            finally:
                process.terminate()
