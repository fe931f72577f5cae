"""Named readers: the log is kept for them, up to a limit; positions that are gone or unknown are told apart."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import gmdb
from gmdb.cli.program import main
from gmdb.database.connection import Connection
from gmdb.errors import Corruption, InterfaceError, NoSuchFeedReader, PositionGone, PositionUnknown
from gmdb.storage.disk import DiskFile
from gmdb.storage.feeds import KEEP_MIN, read_readers
from gmdb.storage.log.log_files import redo_numbers, redo_path
from tests.feed.test_changes import seen


def fill(db: Connection, size: int, first: int) -> int:
    """Log that many bytes at least; answers the next key."""
    for n in range(first, first + size // 4000):
        db.insert("t", (n, "x" * 2000))
        db.commit()
    return first + size // 4000


@pytest.fixture
def small(path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Connection]:
    """A database whose log is in files of a MiB, which are removed as soon as they can be."""
    monkeypatch.setattr("gmdb.database.engine.REDO_FILE_SIZE", 1 << 20)
    with gmdb.connect(path, sync="off") as db:
        db.execute("create table t (i int, s varchar(2000)) with (change_feed = true)")
        db.commit()
        yield db


def test_the_log_is_kept_for_a_reader_and_goes_when_it_has_acknowledged(small: Connection) -> None:
    feed, first = small.changes(reader="mine"), min(redo_numbers(small.path))
    fill(small, 4 << 20, 0)
    small.checkpoint()
    assert min(redo_numbers(small.path)) == first
    assert len(list(feed)) == (4 << 20) // 4000
    feed.acknowledge()
    fill(small, 1 << 16, 10_000)
    small.checkpoint()
    assert min(redo_numbers(small.path)) >= first + 4


def test_a_reader_that_falls_behind_is_told_so(small: Connection) -> None:
    feed = small.changes(reader="slow", keep=2 << 20)
    position, key = feed.position, 0
    for _ in range(5):
        key = fill(small, 1 << 20, key)
        small.checkpoint()
    with pytest.raises(PositionGone, match="not kept any more"):
        list(feed)
    with pytest.raises(PositionGone, match="start again from a snapshot"):
        small.changes(since=position)
    with pytest.raises(PositionGone):
        small.changes(reader="slow")
    again = small.changes(tables=["t"], reader="slow", snapshot=True)
    assert len(list(again)) == key


def test_a_transaction_that_is_open_for_long_is_whole_in_the_feed(small: Connection, path: Path) -> None:
    with gmdb.connect(path) as other:
        other.insert("t", (-1, "early"))
        fill(small, 3 << 20, 0)
        small.checkpoint()
        feed = small.changes(reader="late")
        other.insert("t", (-2, "late"))
        other.commit()
        assert seen(feed) == [("insert", -1, "early"), ("insert", -2, "late")]


def test_what_is_no_position(table: Connection, tmp_path: Path) -> None:
    for text in ("", "1-2", "nonsense"):
        with pytest.raises(PositionUnknown, match="not a position"):
            table.changes(since=text)
    with gmdb.connect(tmp_path / "other.gmdb") as other:
        position = other.changes().position
    with pytest.raises(PositionUnknown, match="another database"):
        table.changes(since=position)
    here = table.changes().position.split("-")
    with pytest.raises(PositionGone):
        list(table.changes(since="-".join([here[0], "1", "0", str(1 << 40), "0"])))
    table.insert("t", (1, "x"))
    table.commit()
    feed = table.changes(since="-".join([here[0], "1", here[3], here[3], "0"]))
    with pytest.raises(PositionUnknown, match="another way"):
        list(feed)


def test_names_and_limits(table: Connection) -> None:
    for name in ("", "a/b", "..", "x" * 101):
        with pytest.raises(InterfaceError, match="not a name for a reader"):
            table.changes(reader=name)
    with pytest.raises(InterfaceError, match="too few"):
        table.changes(reader="a", keep=KEEP_MIN - 1)
    with pytest.raises(InterfaceError, match="needs its tables"):
        table.changes(snapshot=True)


def test_readers_are_listed_and_dropped(table: Connection, capsys: pytest.CaptureFixture[str]) -> None:
    table.insert("t", (1, "x"))
    table.commit()
    feed = table.changes(reader="mine")
    [(name, scn)] = table.execute("select name, scn from sys_feed_readers").fetchall()
    assert (name, scn) == ("mine", int(feed.position.split("-")[1]))
    assert main(["feeds", "list", str(table.path)]) == 0
    assert "mine" in capsys.readouterr().out
    assert main(["feeds", "list", str(table.path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["readers"][0]["name"] == "mine"
    assert main(["feeds", "drop", str(table.path)]) == 2
    assert main(["feeds", "drop", str(table.path), "other"]) == 2
    assert "there are: mine" in capsys.readouterr().err
    assert main(["feeds", "drop", str(table.path), "mine"]) == 0
    assert read_readers(table.path) == []
    with pytest.raises(PositionGone, match="was dropped"):
        feed.acknowledge()
    with pytest.raises(NoSuchFeedReader):
        gmdb.storage.feeds.remove_reader(table.path, "mine")


def test_a_place_that_is_gone_leaves_the_reader_as_it_was(small: Connection) -> None:
    gone, key = small.changes(), 0
    for _ in range(2):
        key = fill(small, 2 << 20, key)
        small.checkpoint()
    before = small.changes(reader="mine", keep=64 << 20).position
    with pytest.raises(PositionGone):
        small.changes(reader="mine", since=gone.position)
    assert [(reader.position, reader.keep) for reader in read_readers(small.path)] == [(before, 64 << 20)]
    assert small.changes(reader="mine").position == before
    assert [reader.keep for reader in read_readers(small.path)] == [64 << 20]


def test_opening_and_closing_without_a_change_costs_a_reader_nothing(path: Path) -> None:
    with gmdb.connect(path) as db:
        db.execute("create table t (i int) with (change_feed = true)")
        db.commit()
        feed = db.changes(reader="mine")
    files = redo_numbers(path)
    for _ in range(5):
        gmdb.connect(path).close()
    assert redo_numbers(path) == files
    with gmdb.connect(path) as db:
        db.insert("t", (1,))
        db.commit()
        assert seen(feed) == [("insert", 1)]


def test_damage_in_the_log_is_told(small: Connection, path: Path) -> None:
    feed = small.changes(reader="mine")
    fill(small, 3 << 20, 0)
    with redo_path(path, min(redo_numbers(path)) + 1).open("r+b") as file:
        file.seek(300_000)
        file.write(b"\xee" * 8)
    fresh = small.changes(since=feed.position)
    with pytest.raises(Corruption, match=r"the log is damaged at redo-\d+, offset \d+"):
        list(fresh)


def test_all_log_that_recovery_needs_is_synced(small: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    feed, synced = small.changes(), []
    sync = DiskFile.sync
    monkeypatch.setattr(DiskFile, "sync", lambda file: (synced.append(file.path.name), sync(file)))
    for n in range(1000):
        small.insert("t", (n, "x" * 2000))
    small.commit()
    synced.clear()
    assert len(list(feed)) == 1000
    written = {redo_path(small.path, n).name for n in redo_numbers(small.path) if n <= feed._scan.lsn // (1 << 20)}  # type: ignore[union-attr]
    assert len(written & set(synced)) >= 3


WRITER = """
import sys, gmdb
db = gmdb.connect(sys.argv[1])
n = int(sys.argv[2])
while True:
    db.execute("insert into t values (?, 'x')", (n,))
    db.execute("insert into t values (?, 'y')", (n + 1,))
    db.commit()
    print(n, flush=True)
    n += 2
"""


def test_a_crash_of_the_owner_loses_and_doubles_nothing(path: Path) -> None:
    with gmdb.connect(path) as db:
        db.execute("create table t (i int primary key, s varchar(10)) with (change_feed = true)")
        db.commit()
        feed = db.changes(reader="mine")
    got: list[int] = []
    start = 0
    for _ in range(3):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), str(start)], stdout=subprocess.PIPE, env=os.environ
        )
        assert writer.stdout is not None
        writer.stdout.readline()
        got += [c.row["i"] for c in feed if c.row]
        time.sleep(0.3)
        writer.kill()
        writer.communicate()
        got += [c.row["i"] for c in feed if c.row]  # of a database that was not closed
        with gmdb.connect(path) as db:
            start = int(db.execute("select max(i) from t").fetchone()[0]) + 1
            assert got == list(range(start))
            assert len(list(db.execute("select i from t"))) == start
