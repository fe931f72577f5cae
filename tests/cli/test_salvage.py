"""``gmstat salvage``: what it gets out of a database of which pages are lost, and what it says of the rest."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from random import Random
from typing import Any

import pyarrow.parquet as pq
import pytest

import gmdb
import gmdb.inspect
from gmdb.cli import gmstat
from gmdb.storage.directory import device_path
from tests.inspect.states import ALL_DAMAGE, build, damaged


@pytest.fixture(scope="module")
def states(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return build(tmp_path_factory.mktemp("states"))


def salvaged(place: Path, out: Path, *more: str, status: int) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    assert gmstat(["salvage", str(place), str(out), *more]) == status
    rows = pq.read_table(out / "t.parquet").to_pylist() if (out / "t.parquet").exists() else []
    return rows, json.loads((out / "report.json").read_text())


def wiped(source: Path, target: Path, share: float, seed: int, devices: tuple[int, ...] = (4,)) -> set[int]:
    """A copy without some of its pages; answers which."""
    shutil.copytree(source, target)
    random = Random(seed)
    lost = set()
    for number in devices:
        path, size = device_path(target, number), 32768 if number == 1 else 8192
        data = bytearray(path.read_bytes())
        for n in range(1, len(data) // size):
            if random.random() < share:
                data[n * size : (n + 1) * size] = random.randbytes(size)
                lost.add(number << 22 | n)
        path.write_bytes(data)
    return lost


def test_all_rows_of_a_sound_database(states: dict[str, Path], tmp_path: Path) -> None:
    rows, report = salvaged(states["closed"], tmp_path / "out", status=0)
    with gmdb.connect(states["closed"], read_only=True) as db:
        expected = db.execute("select rowid, i, s, c from t order by i").fetchall()
    assert sorted(((r["_rowid"], r["i"], r["s"], r["c"]) for r in rows), key=lambda r: r[1]) == expected
    assert report["problems"] == []
    (told,) = report["salvaged"]
    assert (told["table"], told["file"], told["rows"], told["lost_rows"]) == ("t", "t.parquet", len(rows), 0)


@pytest.mark.parametrize("seed", range(6))
def test_every_row_of_the_pages_that_are_left(states: dict[str, Path], tmp_path: Path, seed: int) -> None:
    lost = wiped(states["closed"], tmp_path / "db", 0.05 if seed < 4 else 0.5, seed)
    assert lost
    rows, report = salvaged(tmp_path / "db", tmp_path / "out", status=1)
    with gmdb.inspect.open(states["closed"]) as inspector:
        there = [row for row in inspector.rows("t").to_pylist() if row["_page_id"] not in lost]
    expected = sorted((row["i"], row["s"]) for row in there if row["_flags"] in (None, "LINK"))
    assert sorted((row["i"], row["s"]) for row in rows) == expected
    named = " ".join(report["problems"])
    with gmdb.inspect.open(states["closed"]) as inspector:
        used = inspector.devices().to_pylist()[-1]["hwm"]
    assert all(f"4:{page_id & 0x3FFFFF}," in named for page_id in lost if page_id & 0x3FFFFF < used)


def test_rows_of_a_table_whose_definition_is_lost_are_bytes(states: dict[str, Path], tmp_path: Path) -> None:
    wiped(states["closed"], tmp_path / "db", 1.0, 0, devices=(0,))
    assert gmstat(["salvage", str(tmp_path / "db"), str(tmp_path / "out")]) == 1
    (found,) = (tmp_path / "out").glob("object-*.parquet")
    rows = pq.read_table(found).to_pylist()
    with gmdb.connect(states["closed"], read_only=True) as db:
        assert len(rows) == db.execute("select count(*) from t").fetchone()[0]
    assert any(b"yyyy" in row["_bytes"] for row in rows)


def test_deleted_and_uncommitted_rows_are_marked(states: dict[str, Path], tmp_path: Path) -> None:
    rows, _ = salvaged(states["checkpointed"], tmp_path / "out", "--deleted", status=0)
    by_key = {row["i"]: row for row in rows}
    assert by_key[35]["_deleted"]
    assert by_key[100]["_uncommitted"]
    assert not by_key[101]["_deleted"]  # whoever deleted it never committed
    assert not by_key[50]["_deleted"]
    without, _ = salvaged(states["checkpointed"], tmp_path / "other", status=0)
    assert {row["i"] for row in without} == {row["i"] for row in rows if not row["_deleted"]}
    at_end, _ = salvaged(states["crashed"], tmp_path / "end", "--at", "end", status=0)
    assert {1000} <= {row["i"] for row in at_end}


@pytest.mark.parametrize("kind", ALL_DAMAGE)
def test_damage_of_every_kind_is_reported(states: dict[str, Path], tmp_path: Path, kind: str) -> None:
    place = damaged(states["closed"], tmp_path / "db", kind)
    assert gmstat(["salvage", str(place), str(tmp_path / "out"), "--deleted"]) in (0, 1)
    assert json.loads((tmp_path / "out" / "report.json").read_text())["problems"] or kind == "lost"


def test_a_folder_that_is_there_is_not_touched(
    states: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert gmstat(["salvage", str(states["closed"]), str(tmp_path)]) == 2
    assert "name a folder that does not exist yet" in capsys.readouterr().err
