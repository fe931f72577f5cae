"""``gmdb spark verify`` and ``stats`` of many databases: a table of their health."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

import gmdb
from gmdb.cli import main, output, spark_verbs
from gmdb.verify import verify
from tests.server.peer import Peer
from tests.spark.fleets import cut_short, flip_bytes, lose_control, make_fleet

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]
ROWS = 1000


@pytest.fixture
def fleet(tmp_path: Path) -> list[Path]:
    return make_fleet(tmp_path / "fleet", 5, ROWS)


def lines_of(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().out.splitlines()


def test_a_fleet_that_is_well_is_a_table(fleet: list[Path], capsys) -> None:
    assert main(["spark", "verify", str(fleet[0].parent / "*")]) == 0
    head, rule, *rows, _, last = lines_of(capsys)
    assert head.split() == ["database", "tables", "rows", "pages", "MiB", "status", "first", "problem"]
    assert set(rule) == {"-", " "}
    assert [row.split()[0] for row in rows] == [str(path) for path in fleet]
    report = verify(fleet[0])
    for row in rows:
        assert row.split()[1:4] == [str(report.tables), f"{report.rows:,}", f"{report.pages:,}"]
        assert row.endswith("ok")
    assert re.fullmatch(r"5 databases: 5 ok; [\d,]+ rows, [\d.]+ MiB in [\d.]+ s", last)


def test_what_is_wrong_is_said_of_each_and_the_others_are_checked(fleet: list[Path], capsys, monkeypatch) -> None:
    monkeypatch.setattr(spark_verbs, "SHOWN", 2)
    pattern = str(fleet[0].parent / "*")
    flipped = flip_bytes(fleet[1])
    assert main(["spark", "verify", pattern]) == 1
    *_, last = lines_of(capsys)
    assert last.startswith("5 databases: 4 ok, 1 with problems; ")
    lose_control(fleet[2])
    cut_short(fleet[3])
    assert main(["spark", "verify", pattern]) == 2
    out = capsys.readouterr().out
    table, rest = out.splitlines()[2:7], out.splitlines()[8:]
    assert [" ok" in row for row in table] == [True, False, False, False, True]
    assert re.search(r"\d problems?  page", table[1])
    assert "unreadable  is a directory without gmdb.control" in table[2]
    assert re.search(r"\d+ problems", table[3])
    assert any(line.startswith(f"{fleet[1]}: {flipped.strip()}") for line in rest)
    assert any(re.fullmatch(rf"{fleet[3]}: 2 more; gmdb verify .* has them all", line) for line in rest)
    assert rest[-1].startswith("5 databases: 2 ok, 2 with problems, 1 unreadable; ")


def test_json_has_all_findings(fleet: list[Path], capsys) -> None:
    cut_short(fleet[3])
    lose_control(fleet[2])
    assert main(["spark", "verify", str(fleet[0].parent / "*"), "--json"]) == 2
    found = json.loads(capsys.readouterr().out)["databases"]
    assert [one["database"] for one in found] == [str(path) for path in fleet]
    assert [one["clean"] for one in found] == [True, True, False, False, True]
    assert "without gmdb.control" in found[2]["error"]
    expected = verify(fleet[3]).document()
    assert found[3] == {**expected, "status": f"{len(expected['findings'])} problems"}


def test_databases_that_are_open_and_that_were_not_closed_are_checked(fleet: list[Path], peer: Peer, capsys) -> None:
    owner = Peer()
    owner("db = gmdb.connect(path)", path=str(fleet[2]))
    owner("db.execute('update tbl set i = 1 where i = 2'); db.commit()")
    owner.kill()
    peer("db = gmdb.connect(path); db.execute('delete from tbl')", path=str(fleet[1]))
    try:
        status = main(["spark", "verify", str(fleet[0].parent / "*")])
    finally:
        peer("db.rollback(); db.close()")
    out, err = capsys.readouterr()
    assert (status, err) == (0, ""), out
    assert any(line.startswith(f"{fleet[2]}: ") for line in out.splitlines())


def test_no_match_is_an_error(tmp_path: Path, capsys) -> None:
    assert main(["spark", "verify", str(tmp_path / "*.gmdb")]) == 2
    assert "no database is there" in capsys.readouterr().err


def test_stats_are_of_each_database_and_of_all(fleet: list[Path], capsys) -> None:
    lose_control(fleet[1])
    with gmdb.connect(fleet[4]) as db:
        db.execute("delete from tbl where i >= 600")
        db.commit()
    assert main(["spark", "stats", str(fleet[0].parent / "*"), "--table", "tbl", "--exact"]) == 2
    lines = lines_of(capsys)
    assert lines[0] == "table tbl: 3,600 rows"
    assert lines[3].split()[:6] == ["i", "INT", "0", "1000", "0", "999"]
    at = next(n for n, line in enumerate(lines) if line.startswith("database"))
    assert [line.split()[:3] for line in lines[at + 2 : at + 6]] == [
        [str(fleet[0]), "1", "1,000"], [str(fleet[2]), "1", "1,000"],
        [str(fleet[3]), "1", "1,000"], [str(fleet[4]), "1", "600"],
    ]  # fmt: skip
    assert lines[-2].startswith(f"left out: {fleet[1]}: ")
    assert re.fullmatch(r".*\*: 4 databases, 3,600 rows, [\d.]+ KiB in [\d.]+ s", lines[-1])


def test_on_a_terminal_a_row_is_a_line(monkeypatch, capsys) -> None:
    rows = [("/a/very/long/path/to/some/databases/shop.gmdb", "1", "10", "ok", ""), ("b", "", "", "bad", "long " * 30)]
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setattr(output.shutil, "get_terminal_size", lambda *_, **__: os.terminal_size((80, 24)))
    output.print_fleet(("database", "tables", "rows", "status", "first problem"), rows)
    lines = lines_of(capsys)
    assert max(map(len, lines)) <= 80
    assert re.match(r"….*/shop.gmdb  ", lines[2])
    assert lines[3].endswith("…")
