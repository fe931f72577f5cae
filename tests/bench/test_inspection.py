from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from bench.__main__ import main
from bench.explorer import MapOpening, has_browser, map_line
from bench.harness import WrongResultError
from bench.inspection import TARGET, Speed, measure, speed_lines

from gmdb.verify import verifier


def test_all_pages_of_the_database_count_for_verify_and_those_of_the_table_for_fill(tmp_path: Path):
    verified, filled = measure(tmp_path, 20_000, rounds=1)
    files = sum(path.stat().st_size for path in tmp_path.rglob("device-*"))
    assert 20_000 * 12 < filled.size < verified.size <= files


def test_a_database_with_something_wrong_is_found_out(tmp_path: Path, monkeypatch):
    def damaged(survey, *_):
        survey.findings.on_page(0, 0, "wrong")

    monkeypatch.setattr(verifier, "check_spaces", damaged)
    with pytest.raises(WrongResultError, match="1 findings"):
        measure(tmp_path, 100, rounds=1)


@pytest.mark.parametrize(("rate", "outcome"), [(TARGET, "met"), (TARGET * 0.99, "missed")])
def test_the_line_says_whether_the_target_is_met(rate: float, outcome: str):
    (line,) = speed_lines([Speed("gmdb verify", int(rate * 1e9), 1.0)])
    assert line.startswith("gmdb verify")
    assert outcome in line


@pytest.mark.parametrize(("seconds", "outcome"), [(1.9, "met"), (2.1, "missed")])
def test_the_line_of_the_map_says_whether_the_target_is_met(seconds: float, outcome: str):
    assert outcome in map_line(MapOpening(10 << 30, 4000, seconds))


def test_the_program_measures_looking_through_a_database_and_leaves_no_files(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert main(["inspect", "--rows", "1000", "--rounds", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    told = ["gmdb verify", "gmstat fill narrow", *(["the explorer's map of 10 GiB"] if has_browser() else [])]
    assert [line.split(",")[0] for line in lines] == told
    assert list(tmp_path.iterdir()) == []
