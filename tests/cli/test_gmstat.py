"""The commands: what they print, how they fail, what they import."""

from __future__ import annotations

import json
import os
import pty
import random
import subprocess
import sys
from pathlib import Path

import pytest

import gmdb
from gmdb.cli import gmstat, main
from gmdb.format.address import page_id_of
from tests.inspect.build import TBL_ENTRY, TBL_FIRST, change_page

RUN_GMSTAT = "import sys; from gmdb.cli import gmstat; sys.exit(gmstat())"


def run_process(*arguments, **options):
    command = [sys.executable, "-c", RUN_GMSTAT, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, **options)


def test_spaces_are_listed(database, capsys):
    assert gmstat(["spaces", str(database)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["space", "name", "page_size", "devices", "pages", "hwm", "free", "segments"]
    assert lines[4].split() == ["4", "users", "8192", "4", "11", "11", "5", "2"]


def test_spaces_are_one_json_document(database, capsys):
    assert gmstat(["spaces", str(database), "--json"]) == 0
    spaces = json.loads(capsys.readouterr().out)["spaces"]
    assert [space["name"] for space in spaces] == ["system", "undo", "users"]
    assert spaces[1]["page_size"] == 32768
    assert spaces[2]["devices"] == "4"


def test_devices_are_listed(database, capsys):
    assert gmstat(["devices", str(database), "--json"]) == 0
    devices = json.loads(capsys.readouterr().out)["devices"]
    assert [(one["device"], one["file"], one["pages"]) for one in devices][2] == (4, "device-0004", 11)


def test_segments_are_listed(database, capsys):
    assert gmstat(["segments", str(database)]) == 0
    out = capsys.readouterr().out
    row = next(line for line in out.splitlines() if line.startswith("4:6"))
    assert row.split() == ["4:6", "heap", "tbl", "16", "4", "2", "1", "25", "4:7", "4:8", "-"]


def test_segments_are_one_json_document(database, capsys):
    change_page(database, TBL_ENTRY, 652 + 4, b"\x03", sealed=True)
    assert gmstat(["segments", str(database), "--json"]) == 0
    segments = {segment["object"]: segment for segment in json.loads(capsys.readouterr().out)["segments"]}
    tbl = segments["tbl"]
    assert (tbl["entry_page"], tbl["first"], tbl["last"]) == (TBL_ENTRY, "4:7", "4:8")
    assert tbl["free_lists"] == "3:1"
    assert (tbl["data_pages"], tbl["map_pages"], tbl["pct_free"]) == (2, 1, 25)


@pytest.mark.parametrize("page", ["4:7", "16777223", "0x1000007"])
def test_a_page_is_drawn_by_either_spelling_of_its_id(database, capsys, page):
    assert gmstat(["page", str(database), page]) == 0
    assert capsys.readouterr().out.startswith("page 4:7 (16777223): heap page of table tbl")


def test_gmdb_stat_is_gmstat(database, capsys):
    assert main(["stat", "page", str(database), "4:7", "--json"]) == 0
    by_gmdb = capsys.readouterr().out
    assert gmstat(["page", str(database), "4:7", "--json"]) == 0
    assert capsys.readouterr().out == by_gmdb
    assert json.loads(by_gmdb)["head"]["free_begin"] == 5688


@pytest.mark.parametrize("damage", [(5000, b"\xff"), (0, random.Random(3).randbytes(8192)), (0, bytes(8192))])
def test_a_damaged_page_is_drawn_and_the_status_is_1(database, capsys, damage):
    change_page(database, TBL_FIRST, *damage)
    assert gmstat(["page", str(database), "4:7"]) == 1
    captured = capsys.readouterr()
    assert captured.out.splitlines()[1].startswith("damaged: ")
    assert "problem" in captured.out.splitlines()[1]
    assert captured.err == ""
    assert gmstat(["page", str(database), "4:7", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["problems"]


def test_a_page_in_the_wrong_place_is_shown_with_both_places(database, capsys):
    data = (database / "device-0004").read_bytes()
    change_page(database, TBL_FIRST, 0, data[8 * 8192 : 9 * 8192])
    assert gmstat(["page", str(database), "4:7"]) == 1
    assert "this is page 4:7, but its head says 4:8" in capsys.readouterr().out


def test_damaged_segments_are_listed_with_what_is_wrong(database, capsys):
    change_page(database, TBL_ENTRY, 2000, b"\xff")
    assert gmstat(["segments", str(database)]) == 1
    assert "damaged: 4:6: page 4:6 is damaged: its CRC" in capsys.readouterr().out


def test_a_segment_that_miscounts_its_pages_is_damaged(database, capsys):
    change_page(database, TBL_ENTRY, 180, b"\x09", sealed=True)
    assert gmstat(["segments", str(database)]) == 1
    assert "counts 9 data pages, its map lists 2" in capsys.readouterr().out


def test_a_device_without_its_head_is_listed_with_what_is_wrong(database, capsys):
    change_page(database, page_id_of(1, 0), 0, bytes(32768))
    assert gmstat(["spaces", str(database)]) == 1
    assert "device 1: the device head is damaged; taken for pages of 32768 bytes" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("path", "page", "said"),
    [
        ("", "4:99", "there is no page 4:99"),
        ("", "9:0", "has no device 9"),
        ("", "four", "is not a page id"),
        ("device-0004", "4:7", "is a file; a gmdb database is a directory"),
        ("nowhere", "4:7", "does not exist"),
        ("..", "4:7", "without gmdb.control"),
    ],
)
def test_an_error_is_one_line_and_the_status_is_2(database, capsys, path, page, said):
    assert gmstat(["page", str(database / path), page]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("gmstat: ")
    assert said in captured.err
    assert captured.err.count("\n") == 1


def test_a_page_that_the_file_was_cut_before_is_an_error(database, capsys):
    os.truncate(database / "device-0004", 7 * 8192 + 10)
    assert gmstat(["page", str(database), "4:7"]) == 2
    assert "page 4:7 is cut short" in capsys.readouterr().err


def test_noise_for_a_control_file_is_an_error(database, capsys):
    (database / "gmdb.control").write_bytes(random.Random(1).randbytes(8192))
    assert gmstat(["spaces", str(database)]) == 2
    assert "does not begin as one" in capsys.readouterr().err


@pytest.mark.parametrize("verb", [["spaces"], ["segments"], ["page"]])
def test_every_verb_explains_itself_with_an_example(capsys, verb):
    with pytest.raises(SystemExit) as raised:
        gmstat([*verb, "--help"])
    assert raised.value.code == 0
    assert f"gmstat {verb[0]} shop.gmdb" in capsys.readouterr().out


def test_the_version_is_printed(capsys):
    with pytest.raises(SystemExit) as raised:
        main(["--version"])
    assert raised.value.code == 0
    assert capsys.readouterr().out.startswith("gmdb 0.")


def test_the_commands_import_nothing_that_is_slow_to_load(database):
    code = (
        "import sys; from gmdb.cli import gmstat\n"
        f"gmstat(['page', {str(database)!r}, '4:7']); gmstat(['segments', {str(database)!r}])\n"
        "slow = {'numba', 'pyarrow', 'pyspark', 'duckdb', 'pandas'} & set(sys.modules)\n"
        "sys.exit(str(slow) if slow else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_reader_that_goes_away_is_no_error(database):
    command = [sys.executable, "-c", RUN_GMSTAT, "page", str(database), "4:7"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode in (0, 141)


@pytest.mark.parametrize(("no_color", "coloured"), [("", True), ("1", False)])
def test_colour_is_for_terminals_and_can_be_turned_off(database, no_color, coloured):
    environment = {**os.environ, "NO_COLOR": no_color, "TERM": "xterm"}
    master, terminal = pty.openpty()
    command = [sys.executable, "-c", RUN_GMSTAT, "page", str(database), "4:1"]
    with subprocess.Popen(command, stdout=terminal, env=environment) as process:
        os.close(terminal)
        text = b""
        while True:
            try:
                part = os.read(master, 4096)
            except OSError:
                break
            if not part:
                break
            text += part
    os.close(master)
    assert process.returncode == 0
    assert (b"\033[" in text) is coloured


def test_an_output_that_is_not_utf_8_still_gets_its_drawing(database):
    done = run_process("page", database, "4:7", env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert (done.returncode, done.stderr) == (0, "")
    assert "slots 2 \\u2026 0" in done.stdout


def test_a_damaged_name_cannot_steer_the_terminal(database, capsys):
    change_page(database, TBL_ENTRY, 88, b"t\033[2Jbl", sealed=True)
    for arguments in (["segments", str(database), "--all"], ["page", str(database), "4:6"]):
        gmstat(arguments)
        out = capsys.readouterr().out
        assert "\033" not in out
        assert "t·[2Jbl" in out


def test_nothing_is_coloured_in_a_pipe(database):
    assert "\033" not in run_process("page", database, "4:7").stdout


def test_undo_shows_the_references_record_of_a_row_that_is_being_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with gmdb.connect(tmp_path / "live.gmdb") as db:
        db.create_table("tbl", {"i": "INT", "s": "VARCHAR(10)"})
        db.commit()
        row_id = db.heap("tbl").insert((0, "hello"))
        db.commit()
        db.gc()
        db.heap("tbl").update(row_id, {"s": "hello1"})
        db.dump(tmp_path / "live.dump")
        db.rollback()
    assert gmstat(["undo", str(tmp_path / "live.dump"), "--json"]) == 0
    (listed,) = json.loads(capsys.readouterr().out)["undo"]
    assert (listed["size"], listed["operation"], listed["row"]) == (48, "HEAP_UPDATE_INC", str(row_id))
    assert (listed["state"], listed["before"], listed["object"]) == ("in flight", '{"s": "hello"}', "tbl")
    assert listed["image"].startswith("ffffffff")
    assert gmstat(["page", str(tmp_path / "live.dump"), listed["page"], "--json"]) == 0
    (record,) = json.loads(capsys.readouterr().out)["records"]
    assert (record["offset"], record["size"], record["op_type"]) == (84, 48, 2)
    assert record["row_id"] == {"page_id": row_id.page_id, "slot_id": row_id.slot_id, "sid_reserve": 65535}
    image = record["image"]
    assert (image["offset"], image["size"], image["col_count"], image["bit_array"]) == (108, 20, 1, 3)
    assert image["bytes"] == "060068656c6c6f00"
    assert record["changed_columns"] == [1]
    assert gmstat(["undo", str(tmp_path / "live.dump")]) == 0
    assert "HEAP_UPDATE_INC" in capsys.readouterr().out
