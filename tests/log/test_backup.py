"""Backups of a database at work: each is the database as it was at one instant."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import pyarrow as pa
import pytest

import gmdb
from gmdb.database.connection import Connection
from gmdb.database.copies import restore, verify_backup
from gmdb.errors import Corruption, DatabaseClosed, ReadOnly, TargetExists
from gmdb.format.address import device_of, offset_of
from gmdb.storage.directory import device_path
from gmdb.storage.log import backup as backup_module
from gmdb.storage.log.backup import is_backup
from gmdb.storage.log.log_files import redo_numbers
from gmdb.storage.log.reports import finish
from gmdb.transaction.gc import Collector
from tests.integrity import assert_sound
from tests.log.bank import TOTAL, Tellers, balances, open_bank, total_of


def test_backups_beside_writers_and_checkpoints_hold_one_instant_each(tmp_path: Path) -> None:
    db = open_bank(tmp_path / "db")
    ended = threading.Event()

    def make_checkpoints() -> None:
        with gmdb.connect(tmp_path / "db") as mine:
            while not ended.wait(0.005):
                mine.checkpoint()

    maker = threading.Thread(target=make_checkpoints)
    with Tellers(tmp_path / "db") as tellers:
        maker.start()
        done = []
        for n in range(8):
            db.backup(tmp_path / f"backup{n}")
            done.append(tellers.transfers)
        ended.set()
        maker.join()
    assert done[-1] > done[0]
    db.close()
    for n in range(8):
        assert total_of(tmp_path / f"backup{n}", read_only=True) == TOTAL
        assert is_backup(tmp_path / f"backup{n}")
        assert total_of(tmp_path / f"backup{n}") == TOTAL
        assert_sound(tmp_path / f"backup{n}")


def test_a_backup_beside_bulk_loads_has_all_rows_of_a_load_or_none(tmp_path: Path) -> None:
    batch = pa.table({"i": pa.array(range(30_000), pa.int32()), "s": ["some text"] * 30_000})
    with gmdb.connect(tmp_path / "db") as db:
        db.create_table("t", {"i": "INT", "s": "VARCHAR(20)"})
        db.commit()
        ended = threading.Event()

        def load() -> None:
            with gmdb.connect(tmp_path / "db") as mine:
                while not ended.is_set():
                    mine.append("t", batch)
                    mine.commit()

        loader = threading.Thread(target=load)
        loader.start()
        for n in range(4):
            db.backup(tmp_path / f"backup{n}")
        ended.set()
        loader.join()
    counts = []
    for n in range(4):
        with gmdb.connect(tmp_path / f"backup{n}") as copy:
            counts.append(copy.arrow("t").read_all().num_rows)
        assert_sound(tmp_path / f"backup{n}")
    assert [count % 30_000 for count in counts] == [0] * 4
    assert counts == sorted(counts)


def test_a_backup_has_nothing_of_open_transactions(tmp_path: Path) -> None:
    with open_bank(tmp_path / "db") as db, gmdb.connect(tmp_path / "db") as other:
        before = balances(db)
        other.update("accounts", {"money": 0}, where=lambda row: row["i"] < 10)
        other.delete("accounts", where=lambda row: row["i"] == 30)
        other.insert("accounts", (999, 1, None))
        report = db.backup(tmp_path / "backup")
        assert report.path == str(tmp_path / "backup")
        other.commit()
    with gmdb.connect(tmp_path / "backup") as copy:
        assert balances(copy) == before
        assert copy.recovery is not None
        assert copy.recovery.rolled_back == 1
    assert_sound(tmp_path / "backup")


def test_rows_of_a_column_that_was_never_committed_are_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with gmdb.connect(tmp_path / "db") as db:
        db.execute("create table t (i int)")
        db.executemany("insert into t values (?)", [(n,) for n in range(10)])
        db.commit()
        db.execute("create index t_i on t (i)")
        db.commit()
        db.execute("alter table t add column n int default 5")
        for n in range(100):  # one by one: what is loaded in bulk goes by pages
            db.insert("t", (n, n))
        monkeypatch.setattr(Collector, "_tidy", lambda *_: None)  # pages are tidied a while after a rollback, or never
        db.rollback()
        db.backup(tmp_path / "backup")
        restore(tmp_path / "backup", tmp_path / "restored")
        monkeypatch.undo()
    assert_sound(tmp_path / "restored")
    with gmdb.connect(tmp_path / "restored") as db:
        assert sorted(db.execute("select * from t").fetchall()) == [(n,) for n in range(10)]
        db.execute("alter table t add column s varchar(10) default 'new'")
        assert sorted(db.execute("select * from t").fetchall()) == [(n, "new") for n in range(10)]
        db.commit()
    assert_sound(tmp_path / "restored")


def test_a_tablespace_that_is_made_during_a_backup_is_in_it(tmp_path: Path) -> None:
    with open_bank(tmp_path / "db") as db, gmdb.connect(tmp_path / "db") as other:
        steps = db._database.backup(tmp_path / "backup")
        next(steps)
        other.create_tablespace("late", page_size=16384, devices=2)
        other.create_table("t", {"i": "INT"}, tablespace="late")
        other.commit()
        other.insert("t", (7,))
        other.commit()
        finish(steps)
    with gmdb.connect(tmp_path / "backup") as copy:
        assert [values for _, values in copy.heap("t").rows()] == [(7,)]
    assert_sound(tmp_path / "backup")


def test_devices_that_grow_during_a_backup_are_long_enough_in_it(tmp_path: Path) -> None:
    rows = pa.table({"i": pa.array(range(60_000), pa.int32()), "s": ["some more text"] * 60_000})
    with open_bank(tmp_path / "db") as db, gmdb.connect(tmp_path / "db") as other:
        other.create_table("t", {"i": "INT", "s": "VARCHAR(20)"})
        other.commit()
        steps = db._database.backup(tmp_path / "backup")
        next(steps)
        other.append("t", rows)
        other.commit()
        for _ in range(2_000):
            other.insert("t", (1, "one by one"))
        other.commit()
        other.checkpoint()
        finish(steps)
    with gmdb.connect(tmp_path / "backup", read_only=True) as copy:
        assert copy.arrow("t").read_all().num_rows == 62_000
    with gmdb.connect(tmp_path / "backup") as copy:
        assert copy.arrow("t").read_all().num_rows == 62_000
    assert_sound(tmp_path / "backup")


def test_the_log_that_a_backup_needs_is_kept_until_it_is_done(tmp_path: Path) -> None:
    with open_bank(tmp_path / "db") as db:
        steps = db._database.backup(tmp_path / "backup")
        next(steps)
        first = redo_numbers(tmp_path / "db")[0]
        _fill_log(db)
        assert redo_numbers(tmp_path / "db")[0] == first
        finish(steps)
        assert redo_numbers(tmp_path / "db")[0] > first
    assert total_of(tmp_path / "backup") == TOTAL


def _fill_log(db: Connection) -> None:
    """Some files of log, and a checkpoint after which none of them is needed."""
    db.create_table("filler", {"s": "VARCHAR(3000)"})
    db.commit()
    db.append("filler", pa.table({"s": ["x" * 3000] * 12_000}))
    db.commit()
    db.checkpoint()


def test_a_backup_that_is_given_up_leaves_nothing(tmp_path: Path) -> None:
    with open_bank(tmp_path / "db") as db:
        steps = db._database.backup(tmp_path / "backup")
        next(steps)
        steps.close()
        assert sorted(path.name for path in tmp_path.iterdir()) == ["db"]
        assert db._database.durability.redo.files.oldest_held() > 1 << 60


@pytest.mark.parametrize("kind", ["directory", "file", "dangling link"])
def test_a_target_that_is_there_is_left_alone(tmp_path: Path, kind: str) -> None:
    target = tmp_path / "taken"
    if kind == "directory":
        target.mkdir()
    elif kind == "file":
        target.write_text("mine")
    else:
        target.symlink_to(tmp_path / "nowhere")
    with open_bank(tmp_path / "db") as db, pytest.raises(TargetExists, match="is there already"):
        db.backup(target)
    assert target.is_symlink() or target.exists()


def test_a_page_that_is_damaged_is_not_backed_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backup_module, "PATIENCE", 0.05)
    with open_bank(tmp_path / "db") as db:
        page_id = int(db.heap("accounts").segment.page_ids()[0])
    damage(tmp_path / "db", page_id)
    with gmdb.connect(tmp_path / "db") as db:
        with pytest.raises(Corruption, match="no backup was made") as caught:
            db.backup(tmp_path / "backup")
        assert caught.value.page_id == page_id
    assert not (tmp_path / "backup").exists()


def test_a_page_that_is_damaged_in_the_file_is_backed_up_as_memory_has_it(tmp_path: Path) -> None:
    with open_bank(tmp_path / "db") as db:
        db.checkpoint()
        db.update("accounts", {"money": 1}, where=lambda row: row["i"] == 0)  # now memory has a page of its own
        db.rollback()
        before = balances(db)
        damage(tmp_path / "db", int(db.heap("accounts").segment.page_ids()[0]))
        db.backup(tmp_path / "backup")
    with gmdb.connect(tmp_path / "backup") as copy:
        assert balances(copy) == before
    assert_sound(tmp_path / "backup")


def damage(path: Path, page_id: int) -> None:
    with open(device_path(path, device_of(page_id)), "r+b") as file:
        file.seek(offset_of(page_id) * 8192 + 4000)
        file.write(b"\xff\x01\xff")


def test_a_database_that_is_read_only_or_closed_cannot_be_backed_up(tmp_path: Path) -> None:
    db = open_bank(tmp_path / "db")
    steps = db._database.backup(tmp_path / "backup")
    next(steps)
    db.close()
    with pytest.raises(DatabaseClosed):
        finish(steps)
    with gmdb.connect(tmp_path / "db", read_only=True) as reader, pytest.raises(ReadOnly):
        reader.backup(tmp_path / "backup")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["db"]


# ---- verifying


def test_an_open_database_is_verified_as_it_is_at_one_instant(tmp_path: Path) -> None:
    with open_bank(tmp_path / "db") as db, Tellers(tmp_path / "db"):
        steps: list[str] = []
        report = db.verify(lambda what, _done, _total: steps.append(what))
        assert report.findings == []
        assert report.directory == tmp_path / "db"
        assert report.rows > 60
        assert {"copying pages", "recovering the copy", "verifying the copy"} <= set(steps)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["db"]


def test_a_backup_that_is_verified_stays_a_backup(tmp_path: Path) -> None:
    with open_bank(tmp_path / "db") as db:
        db.backup(tmp_path / "backup")
    before = {path.name: path.read_bytes() for path in (tmp_path / "backup").iterdir()}
    report = finish(verify_backup(tmp_path / "backup"))
    assert (report.findings, report.directory) == ([], tmp_path / "backup")
    assert {path.name: path.read_bytes() for path in (tmp_path / "backup").iterdir()} == before
    shutil.rmtree(tmp_path / "db")
