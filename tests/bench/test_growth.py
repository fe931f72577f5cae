from __future__ import annotations

import json
from pathlib import Path

import pytest
from bench.__main__ import main
from bench.growth import Curve, Point, growth_json, growth_table
from bench.harness import Benchmark, Contender, Measurement, Result, Summary
from bench.picture import draw_growth, draw_results
from bench.report import behind_first

from bench import growth, joins

ROWS = 1000


@pytest.fixture
def small(monkeypatch):
    """The same curves over little data."""
    monkeypatch.setattr(growth, "COLUMNS", (1, 3))
    monkeypatch.setattr(growth, "VALUES", 3 * ROWS)
    monkeypatch.setattr(growth, "THREADS", (1, 2))
    monkeypatch.setattr(growth, "COMMITS", 20)
    monkeypatch.setattr(growth, "STATEMENTS", 20)
    monkeypatch.setattr(growth, "VERSIONS", (0, 3))
    monkeypatch.setattr(growth, "VERSIONED_ROWS", 50)


@pytest.mark.usefixtures("small")
def test_one_command_measures_growth_and_writes_tables_measurements_and_pictures(tmp_path: Path, capsys):
    into = tmp_path / "figures"
    assert main(["--rows", str(ROWS), "--rounds", "1", "--only", "append-narrow", "--into", str(into)]) == 0
    assert {file.name for file in into.iterdir()} == {"engine.md", "engine.json", "engine.png", "growth.png"}
    text, figures = (into / "engine.md").read_text(), json.loads((into / "engine.json").read_text())
    assert f"append {ROWS:,} (int, varchar) rows" in text
    assert "versions a row" in text
    assert "versions a row" in capsys.readouterr().out
    assert [one["name"] for one in figures["benchmarks"]] == ["append-narrow"]
    drawn = figures["growth"]
    assert [curve["axis"] for curve in drawn] == [
        *(3 + len(joins.WORKS)) * ["rows"],
        *2 * ["columns"],
        "threads",
        "versions a row",
    ]
    sizes = [{name: [p["size"] for p in points] for name, points in curve["points"].items()} for curve in drawn]
    assert sizes[3 + len(joins.WORKS)] == {"gmdb": [1, 3], "DuckDB": [1, 3], "SQLite": [1, 3]}
    assert sizes[5 + len(joins.WORKS)] == {"gmdb": [1, 2], "SQLite": [1, 2]}
    points = [point for curve in drawn for found in curve["points"].values() for point in found]
    assert all(point["least"] <= point["median"] <= point["most"] for point in points)


def test_pictures_are_drawn(tmp_path: Path):
    result = _result("work", gmdb=1.0, SQLite=3.0, DuckDB=0.5)
    draw_results(tmp_path / "results.png", [result], "heading")
    curve = Curve("work", "rows", "ns a row", {"gmdb": [Point(0, 2.0, 1.0, 3.0), Point(10, 2.0, 1.0, 3.0)]})
    draw_growth(tmp_path / "growth.png", [curve] * 5, "heading")
    for file in tmp_path.iterdir():
        assert file.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_a_table_of_costs_has_a_line_for_every_point():
    curve = Curve("scan", "rows", "ns a row", {"gmdb": [Point(10_000, 123.4, 99.0, 150.0)]})
    *_, line = growth_table([curve]).splitlines()
    assert line == "| scan | gmdb | 10,000 rows | 123 ns a row | 99 – 150 |"
    assert growth_json([curve])[0]["points"] == {
        "gmdb": [{"size": 10_000, "median": 123.4, "least": 99.0, "most": 150.0}]
    }


def test_what_is_behind_a_peer_comes_first_then_what_misses_a_target():
    ahead = _result("ahead", gmdb=1.0, SQLite=3.0)
    missing = _result("missing", {"SQLite": 5.0}, gmdb=1.0, SQLite=2.0)
    behind = _result("behind", gmdb=1.0, SQLite=9.0, DuckDB=0.9)
    far_behind = _result("far behind", gmdb=1.0, SQLite=0.1)
    ordered = [result.benchmark.name for result in behind_first([ahead, missing, behind, far_behind])]
    assert ordered == ["far behind", "behind", "missing", "ahead"]


def _result(name: str, targets: dict[str, float] | None = None, **seconds: float) -> Result:
    contenders = [Contender(contender, Summary(1, 0), lambda _: None) for contender in seconds]
    measured = tuple(Measurement(contender, 1, (taken,)) for contender, taken in seconds.items())
    return Result(Benchmark(name, name, contenders, targets or {}), measured)
