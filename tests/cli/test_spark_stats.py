"""``gmdb spark stats``: what it says of columns and of segments, and its picture."""

from __future__ import annotations

import json
import sys
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest

import gmdb
from gmdb.cli import main

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]
ROWS = 1000


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("stats") / "shop.gmdb"
    types = {
        "i": "INT NOT NULL", "few": "INT", "x": "DOUBLE", "p": "DECIMAL(10,2)", "ok": "BOOLEAN", "day": "DATE",
        "at": "TIMESTAMP", "s": "VARCHAR(20)", "b": "VARBINARY(4)", "big": "CLOB", "`odd name": "BIGINT",
    }  # fmt: skip
    start = datetime(2024, 1, 1)
    with gmdb.connect(path) as db:
        db.create_table("tbl", types)
        db.create_table("none", {"i": "INT", "s": "VARCHAR(5)"})
        for n in range(ROWS):
            values = (
                n, n % 4 if n % 10 else None, float("nan") if n == 5 else n / 8, Decimal(n) / 100, n % 3 == 0,
                date(2024, 1, 1) + timedelta(days=n % 366), start + timedelta(minutes=n), "abc"[min(n % 8, 2)] * 3,
                bytes([n % 256]), "text" * 10, 1 << 60,
            )  # fmt: skip
            db.insert("tbl", values)
        db.commit()
        db.delete("tbl", where=lambda row: row["i"] >= ROWS - 100)
        db.create_index("tbl_i", "tbl", ["i"], unique=True)
    return path


def document(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict:
    assert main(["spark", "stats", *map(str, arguments), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_columns_are_counted_exactly(shop: Path, capsys) -> None:
    found = document(capsys, shop, "--table", "tbl", "--exact")
    [table] = found["tables"]
    assert (table["rows"], table["distinct_is_exact"], table["left_out"]) == (900, True, ["big"])
    columns = {column["name"]: column for column in table["columns"]}
    assert [columns[n]["nulls"] for n in ("i", "few", "s")] == [0, 90, 0]
    assert [columns[n]["distinct"] for n in ("i", "few", "ok", "day", "s", "b", "`odd name")] == [
        900, 4, 2, 366, 3, 256, 1,
    ]  # fmt: skip
    ends = {name: (columns[name]["min"], columns[name]["max"]) for name in columns}
    assert ends["i"] == (0, 899)
    assert ends["x"] == (0.0, 899 / 8)
    assert ends["p"] == ("0.00", "8.99")
    assert ends["day"] == ("2024-01-01", "2024-12-31")
    assert ends["at"] == ("2024-01-01 00:00:00", "2024-01-01 14:59:00")
    assert ends["b"] == ("00", "ff")
    assert columns["s"]["most_frequent"][0] == {"value": "ccc", "count": 674}
    assert {v["value"]: v["count"] for v in columns["ok"]["most_frequent"]} == {False: 600, True: 300}


def test_histograms_have_parts_of_equal_width_that_hold_all_values(shop: Path, capsys) -> None:
    [table] = document(capsys, shop, "--table", "tbl")["tables"]
    columns = {column["name"]: column for column in table["columns"]}
    parts = {name: columns[name]["histogram"]["counts"] for name in ("i", "few", "x", "p", "day", "at", "`odd name")}
    assert parts["i"] == [45] * 20
    assert parts["few"] == np.bincount([n % 4 for n in range(900) if n % 10]).tolist()
    assert columns["few"]["histogram"]["edges"] == [0, 1, 2, 3, 4]
    assert sum(parts["x"]) == 899  # one is no number
    assert parts["x"] == np.histogram([n / 8 for n in range(900) if n != 5], 20)[0].tolist()
    assert sum(parts["p"]) == sum(parts["day"]) == sum(parts["at"]) == 900
    assert columns["day"]["histogram"]["edges"][:2] == ["2024-01-01", "2024-01-20"]
    assert parts["`odd name"] == [900]
    estimate = columns["i"]["distinct"]
    assert 800 < estimate < 1000


def test_segments_say_how_full_and_how_dead_they_are(shop: Path, capsys) -> None:
    found = document(capsys, shop, "--table", "none")
    [table] = found["tables"]
    assert table["rows"] == 0
    assert [(c["nulls"], c["min"], c["histogram"]) for c in table["columns"]] == [(0, None, None)] * 2
    segments = {(one["object"], one["type"]): one for one in found["segments"]}
    heap = segments["tbl", "table"]
    assert heap["bytes"] == 8192 * heap["pages"] > 0
    assert 0.5 < heap["fill"] < 1
    assert segments["tbl_i", "btree index"]["pages"] > 0
    assert segments["none", "table"]["pages"] == 0


def test_the_table_on_the_terminal(shop: Path, capsys) -> None:
    assert main(["spark", "stats", str(shop), "--table", "tbl", "--columns", "i,few,s,big", "--no-segments"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "table tbl: 900 rows"
    assert lines[1].split() == ["column", "type", "nulls", "distinct", "min", "max", "spread"]
    assert lines[3].startswith("i       INT              0  ~")
    assert lines[3].split()[4:] == ["0", "899", "█" * 20]
    assert lines[4].split()[:4] == ["few", "INT", "90", "~4"]
    assert "  ccc ×674, " in lines[5]
    assert lines[6].startswith("big     CLOB             0  ~1")
    assert lines[-1].startswith(f"{shop}: 900 rows in ")


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_a_picture_is_drawn(shop: Path, tmp_path: Path, capsys, ending: str) -> None:
    file = tmp_path / f"shop.{ending}"
    document(capsys, shop, "--plot", file)
    head = file.read_bytes()[:400]
    assert head.startswith(b"\x89PNG") if ending == "png" else b"<svg" in head or b"<?xml" in head


def test_what_cannot_be_described_is_named(shop: Path, tmp_path: Path, capsys, monkeypatch) -> None:
    def refused(*arguments: object) -> str:
        assert main(["spark", "stats", *map(str, arguments)]) == 2
        return capsys.readouterr().err

    assert "no table nope" in refused(shop, "--table", "nope")
    assert "nope" in refused(shop, "--table", "tbl", "--columns", "i,nope")
    assert "--columns is about one table" in refused(shop, "--columns", "i")
    assert "a picture's name ends in .png or .svg" in refused(shop, "--plot", tmp_path / "a.gif")
    assert "there is no directory" in refused(shop, "--plot", tmp_path / "none" / "a.png")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert "pip install 'gmdb[plot]'" in refused(shop, "--plot", tmp_path / "a.png")
