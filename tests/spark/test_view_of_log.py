"""The view of the log: every commit in order, and what recovery replays."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

import gmdb
from gmdb.database import engine
from gmdb.format.redo import REDO_GROUP, REDO_ITEM
from tests.spark.test_views import read_view, rows_of


def test_the_log_has_every_commit_in_order(path: Path):
    with gmdb.connect(path) as db:
        db.execute("create table t (i int)")
        db.commit()
        seen = rows_of(path, "redo")
        for i in range(20):
            db.execute("insert into t values (?)", (i,))
            db.commit()
        rows = rows_of(path, "redo")
        places = [(row["lsn"], row["item"]) for row in rows]
        assert places == sorted(set(places))
        assert rows[: len(seen)] == seen
        commits = [row for row in rows[len(seen) :] if row["kind"] == "COMMIT"]
        assert len(commits) == 20
        scns = [row["scn"] for row in commits]
        assert scns == list(range(scns[0], scns[0] + 20))
        assert all(row["page_id"] is None and row["time"] is not None and row["transaction"] for row in commits)
        changes = [row for row in rows if row["kind"] != "COMMIT"]
        assert all(len(row["bytes"]) == row["length"] and row["page_id"] is not None for row in changes)
    assert rows_of(path, "redo") == []  # it was closed


def test_the_log_is_what_recovery_replays_over_several_files(path: Path, tmp_path: Path, monkeypatch: Any):
    monkeypatch.setattr(engine, "REDO_FILE_SIZE", 1 << 20)
    copy = tmp_path / "copy"
    with gmdb.connect(path) as db:
        db.execute("create table t (i int, s varchar(1000))")
        for i in range(3000):
            db.insert("t", (i, f"{i:0900d}"))
        db.commit()
        db.insert("t", (3000, "the last"))
        db.commit()
        shutil.copytree(path, copy)
    found = read_view(copy, "redo", columns="lsn,kind,file,length")
    assert len(pc.unique(found["file"])) > 2
    sizes: Counter[int] = Counter()
    for lsn, length in zip(found["lsn"].to_pylist(), found["length"].to_pylist(), strict=True):
        sizes[lsn] += REDO_ITEM.size + length
    ends = [lsn + (REDO_GROUP.size + size + 7 & ~7) for lsn, size in sizes.items()]
    assert ends[:-1] == list(sizes)[1:]  # one group behind the other, and nothing of any left out
    with gmdb.connect(copy) as db:
        assert db.recovery is not None
        assert len(pc.unique(found["lsn"])) == db.recovery.groups
        assert ends[-1] == db.recovery.end_lsn
        assert pc.sum(pc.equal(found["kind"], "COMMIT")).as_py() == db.recovery.commits


def test_the_log_ends_before_a_group_that_is_not_whole(path: Path, tmp_path: Path):
    copy = tmp_path / "copy"
    with gmdb.connect(path) as db:
        db.execute("create table t (i int)")
        for i in range(50):
            db.insert("t", (i,))
            db.commit()
        shutil.copytree(path, copy)
    rows = rows_of(copy, "redo")
    broken = rows[len(rows) // 2]
    log = copy / f"redo-{broken['file']:010d}"
    data = bytearray(log.read_bytes())
    data[broken["file_offset"] + 40] ^= 1
    log.write_bytes(data)
    assert rows_of(copy, "redo") == [row for row in rows if row["lsn"] < broken["lsn"]]
