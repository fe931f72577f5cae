"""``describe`` is one document in every format that programs read."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import gmdb


@pytest.fixture
def shop(path: Path) -> Path:
    with gmdb.connect(path) as db:
        db.execute("create table t (id int primary key, s varchar(10) default 'x', check (id > 0))")
        db.execute("create index t_s on t (s)")
    return path


def described(shop: Path, *options: str) -> str:
    command = [sys.executable, "-m", "gmdb.cli", "sql", str(shop), "-c", "describe t", *options]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_describe_in_each_format(shop: Path, tmp_path: Path) -> None:
    rows = json.loads(described(shop, "--output", "json"))
    assert [row["column"] for row in rows if row["column"]] == ["id", "s"]
    assert {row["index"] for row in rows if row["index"]} >= {"t_s"}
    assert any(row["constraint"] for row in rows)
    lines = list(csv.DictReader(io.StringIO(described(shop, "--output", "csv"))))
    assert len(lines) == len(rows)
    assert all(None not in line for line in lines)
    described(shop, "--output", "parquet", "--to", str(tmp_path / "t.parquet"))
    assert pq.read_table(tmp_path / "t.parquet").num_rows == len(rows)
    assert "INDEX" in described(shop)
