"""States of log, checkpoints and pins that come about seldom, made certain."""

from __future__ import annotations

import errno
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import gmdb
from gmdb.database.connection import Connection
from gmdb.errors import Corruption, DiskFull, NotADatabase, PositionGone, ReadOnly, SchemaError, StorageError
from gmdb.format.address import FIRST_USER_DEVICE
from gmdb.storage import disk
from gmdb.storage.directory import device_path, dropped_numbers, read_control
from gmdb.storage.documents import Holder
from gmdb.storage.log import durability, pinning
from gmdb.storage.log.committed_changes import ChangeLog
from gmdb.storage.log.log_files import open_if_there, redo_numbers, redo_path
from gmdb.storage.pins import read_pins, write_pin
from tests.crash.faults import FaultyDisk
from tests.frozen import read_rows
from tests.integrity import assert_sound
from tests.sessions import answer, in_thread, until


@pytest.fixture
def faulty() -> Iterator[FaultyDisk]:
    with disk.use(FaultyDisk()) as found:
        yield found


def make(db: Connection, count: int = 40, name: str = "t", space: str = "main") -> None:
    db.create_table(name, {"i": "INT", "s": "VARCHAR(2000)"}, tablespace=space)
    for i in range(count):
        db.insert(name, (i, "x" * 1000))
    db.commit()


def kill(path: Path) -> Path:
    """The directory as a crash would leave it now."""
    left = path.with_name("left.gmdb")
    shutil.copytree(path, left)
    return left


# ---- checkpoints


def test_writers_who_outrun_checkpoints_wait_for_them(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with gmdb.connect(path) as db:
        make(db)
        before = read_control(path)["ckpt_id"]
        monkeypatch.setattr(durability, "REDO_LIMIT", 1 << 12)
        work = db._database.durability
        assert work is not None
        for i in range(20):
            db.insert("t", (100 + i, "y" * 1000))
            db.commit()
            assert work._load() < 2 * durability.PATIENCE
        until(lambda: read_control(path)["ckpt_id"] > before)
    assert_sound(path)


def test_whoever_changes_many_pages_has_them_written_on_the_way(path: Path) -> None:
    with gmdb.connect(path) as db:
        make(db)
        work, before = db._database.durability, read_control(path)["ckpt_id"]
        assert work is not None
        work.limit_dirty(1 << 40)
        assert read_control(path)["ckpt_id"] == before
        work.limit_dirty(8192)
        assert read_control(path)["ckpt_id"] == before + 1


def test_a_checkpoint_that_fails_in_the_background_lets_nobody_wait(
    path: Path, faulty: FaultyDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = gmdb.connect(path)
    make(db)
    faulty.fail("write", 1, errno.EIO, forever=True, files="device-*")
    monkeypatch.setattr(durability, "REDO_LIMIT", 1)
    until(lambda: db._database.store.failure is not None)
    assert db._database.durability is not None
    db._database.durability.wait_if_behind()  # comes back, though nobody makes checkpoints any more
    with pytest.raises(ReadOnly, match="takes no more changes"):
        db.insert("t", (1, "z"))
    db.close()
    faulty.heal()
    monkeypatch.undo()
    with gmdb.connect(path) as again:
        assert len(list(again.heap("t").rows())) == 40
    assert_sound(path)


# ---- pins


def test_much_that_has_changed_is_written_before_it_is_pinned(db: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    make(db)
    monkeypatch.setattr(pinning, "COPY_MAX", 0)
    before = read_control(db.path)["ckpt_id"]
    pin = db.take_snapshot()
    assert pin.ckpt_id == before + 3
    assert len(read_rows(db.path, pin, "t")) == 40


def test_pins_of_another_database_go_when_this_one_is_opened(path: Path) -> None:
    with gmdb.connect(path) as db:
        mine = db.take_snapshot(holder=Holder.nobody())
        write_pin(path, replace(mine, name="0000000001-copied", database_id="another"), b"")
        write_pin(path, replace(mine, name="0000000002-newer", ckpt_id=mine.ckpt_id + 1000), b"")
    assert len(read_pins(path)) == 3
    with gmdb.connect(path):
        assert [pin.name for pin in read_pins(path)] == [mine.name]


def test_a_disk_that_is_full_when_images_are_synced_takes_the_oldest_pin(path: Path, faulty: FaultyDisk) -> None:
    with gmdb.connect(path) as db:
        make(db)
        db.checkpoint()
        pins = [db.take_snapshot(), db.take_snapshot()]
        faulty.fail("sync", 1, errno.ENOSPC, files="*.images")
        db.update("t", {"s": "new"})
        db.commit()
        db.checkpoint()
        assert [pin.name for pin in read_pins(path)] == [pins[1].name]
        faulty.fail("sync", 1, errno.ENOSPC, forever=True, files="*.images")
        db.update("t", {"s": "newer"})
        db.commit()
        with pytest.raises(DiskFull):
            db.take_snapshot()
        faulty.heal()
        assert db.take_snapshot().name in {found.name for found in read_pins(path)}
    assert_sound(path)


def test_files_are_not_made_shorter_in_the_background_while_somebody_sees_to_that(db: Connection) -> None:
    make(db, 1000)
    db.drop_table("t")
    db.commit()
    db.gc()
    assert db._database.durability is not None
    shrinking = db._database.durability.shrinking
    with shrinking.none_running():
        assert answer(in_thread(lambda: shrinking.run(only_if_worth_it=True))) == 0
    assert shrinking.run() > 0
    assert shrinking.run(only_if_worth_it=True) == 0


# ---- the log


def test_a_device_that_is_lost_is_made_again_from_the_log_but_not_by_a_reader(path: Path) -> None:
    with gmdb.connect(path) as db:
        db.create_tablespace("fast", page_size=16384)
        make(db, space="fast")
        left = kill(path)
    device_path(left, FIRST_USER_DEVICE + 1).unlink()
    with pytest.raises(Corruption, match="which no device has"):
        gmdb.connect(left, read_only=True)
    with gmdb.connect(left) as db:
        assert len(list(db.heap("t").rows())) == 40
    assert_sound(left)


def test_a_page_that_the_log_changes_and_the_disk_has_damaged_is_named(path: Path) -> None:
    with gmdb.connect(path) as db:
        make(db)
        db.checkpoint()
        page_id = db.heap("t").segment.page_ids().tolist()[0]
        db.update("t", {"s": "changed"})
        db.commit()
        left = kill(path)
    with device_path(left, FIRST_USER_DEVICE).open("r+b") as file:
        file.seek((page_id & 0x3FFFFF) * 8192 + 500)
        file.write(b"noise" * 100)
    with pytest.raises(Corruption, match="page 4:"):
        gmdb.connect(left)


def test_a_file_of_the_log_that_cannot_be_opened_is_not_taken_for_missing(tmp_path: Path) -> None:
    assert open_if_there(tmp_path / "none") is None
    with pytest.raises(StorageError, match="too long"):
        open_if_there(tmp_path / ("x" * 300))


def test_times_before_the_log_have_no_position_and_those_behind_it_have_the_last(path: Path) -> None:
    with gmdb.connect(path) as db:
        db.create_table("t", {"i": "INT"})
        db.commit()
        db.set_change_feed("t", True)
        db.insert("t", (1,))
        db.commit()
        log = ChangeLog(path)
        with pytest.raises(PositionGone, match="the log before"):
            log.position_at(1)
        position = log.position_at(1 << 60)
        assert position.scn == db._database.feed_position().scn
        log.require(position)
        with pytest.raises(PositionGone):
            log.require(replace(position, needs=1 << 50))
        db.set_change_feed("t", False)
    for number in redo_numbers(path):
        redo_path(path, number).unlink()
    with pytest.raises(PositionGone, match="has no log"):
        ChangeLog(path).position_at(1)


# ---- the store


def test_a_dump_is_looked_at_and_not_opened(db: Connection, tmp_path: Path) -> None:
    make(db)
    db.dump(tmp_path / "dump")
    with pytest.raises(NotADatabase, match="is a dump"):
        gmdb.connect(tmp_path / "dump")
    with pytest.raises(StorageError, match="exists"):
        db.dump(tmp_path / "dump")


def test_a_device_that_was_never_finished_goes_when_the_database_is_opened(path: Path) -> None:
    gmdb.connect(path).close()
    number = read_control(path)["next_device"]
    shutil.copy(device_path(path, FIRST_USER_DEVICE), device_path(path, number))
    gmdb.connect(path, read_only=True).close()
    assert device_path(path, number).exists()
    gmdb.connect(path).close()
    assert not device_path(path, number).exists()


def test_tablespaces_have_limits(db: Connection) -> None:
    with pytest.raises(SchemaError, match="a database has at most"):
        db.create_tablespace("many", devices=2000)
    with pytest.raises(SchemaError, match="a database has at most"):
        db.create_tablespace("none", devices=0)


def test_a_thread_of_checkpoints_is_ended_once(path: Path) -> None:
    with gmdb.connect(path) as db:
        work = db._database.durability
        assert work is not None
        work.stop()
        work.stop()
        make(db)  # the last checkpoint is made by whoever closes
    assert_sound(path)


def test_memory_that_the_system_refuses_is_a_storage_error(path: Path) -> None:
    """In a process that may have no more than it has: whatever is opened first finds that out."""
    with gmdb.connect(path) as db:
        make(db)
    script = (
        "import resource, sys, pathlib\n"
        "from gmdb.errors import StorageError\n"
        "from gmdb.storage.device import Device, new_area\n"
        "area = new_area()\n"
        "used = int(pathlib.Path('/proc/self/statm').read_text().split()[0]) * resource.getpagesize()\n"
        "resource.setrlimit(resource.RLIMIT_AS, (used + (30 << 20), resource.RLIM_INFINITY))\n"
        "try:\n"
        "    Device(area, pathlib.Path(sys.argv[1]), 4)\n"
        "except StorageError as error:\n"
        "    print(error)\n"
    )
    ended = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=False)
    assert "cannot map it into memory" in ended.stdout, ended.stderr


def test_a_dump_knows_which_devices_were_dropped(db: Connection, tmp_path: Path) -> None:
    db.create_tablespace("fast")
    db.drop_tablespace("fast")
    db.dump(tmp_path / "dump")
    assert dropped_numbers(tmp_path / "dump") == [FIRST_USER_DEVICE + 1]


def test_a_reader_by_a_snapshot_that_another_holds_sees_the_same(db: Connection) -> None:
    make(db)
    with db.session.cursor() as (held, _):
        db.update("t", {"s": "newer"})
        db.commit()
        with db.session.cursor(held.scn) as (snapshot, _):
            assert snapshot.scn == held.scn < db._database.transactions.memory.scn
