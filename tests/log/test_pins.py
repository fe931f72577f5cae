"""Pins: an instant of a database stays readable from its files, whatever is done to it meanwhile."""

from __future__ import annotations

import os
import random
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import gmdb
from gmdb.database.connection import Connection
from gmdb.errors import InterfaceError, SchemaError, SnapshotExpired
from gmdb.format.address import FIRST_USER_DEVICE, device_of, offset_of
from gmdb.storage.directory import device_path
from gmdb.storage.documents import Holder
from gmdb.storage.log import pinning
from gmdb.storage.pinned_pages import FrozenStore
from gmdb.storage.pins import Pin, expires_at, folder_of, image_files, pin_path, read_images, read_pins
from tests.frozen import grow_older, read_rows
from tests.integrity import assert_sound
from tests.sessions import Connect, connect, until  # noqa: F401
from tests.storage.test_shrink import fill, keep_few, keys

COLUMNS = {"i": "INT", "s": "VARCHAR(2000)"}


def rows_of(db: Connection, name: str = "t") -> list[tuple[Any, ...]]:
    table = db.arrow(name).read_all()
    return sorted(zip(*(column.to_pylist() for column in table.columns), strict=True))


def make(db: Connection, count: int = 300) -> None:
    db.create_table("t", COLUMNS)
    for i in range(count):
        db.insert("t", (i, f"row {i}"))
    db.commit()


def change_all(db: Connection, value: str) -> None:
    """Have every page of the table rewritten in its file.

    What garbage collection changes is written as well, and not whenever it comes round to it: how many versions of
    pages there are is the same each time.
    """
    db.update("t", {"s": value})
    db.commit()
    db.gc()
    db.checkpoint()


def image_bytes(path: Path) -> int:
    return sum(file.stat().st_size for _, _, file in image_files(path))


def test_a_pin_shows_the_instant_and_not_what_came_later(db: Connection):
    make(db)
    pin = db.take_snapshot()
    before = rows_of(db)
    db.update("t", {"s": "x" * 1000}, lambda row: row["i"] % 3 == 0)
    db.delete("t", lambda row: row["i"] % 3 == 1)
    db.insert("t", (1000, "new"))
    db.commit()
    assert read_rows(db.path, pin, "t") == before
    db.checkpoint()
    db.gc()
    db.checkpoint()
    assert read_rows(db.path, pin, "t") == before
    assert rows_of(db) != before


def test_what_was_not_committed_is_resolved_from_undo(db: Connection, connect: Connect):  # noqa: F811
    make(db)
    before = rows_of(db)
    other = connect()
    for n in range(3):  # again and again, so that versions lie on several undo pages
        other.update("t", {"s": str(n) * 1900}, lambda row: row["i"] < 100)
    other.delete("t", lambda row: 100 <= row["i"] < 120)
    other.insert("t", (5000, "never"))
    other.append("t", pa.table({"i": pa.array(range(6000, 9000), pa.int32()), "s": ["never"] * 3000}))
    pin = db.take_snapshot()
    assert read_rows(db.path, pin, "t") == before
    other.commit()
    db.checkpoint()
    db.gc()
    db.checkpoint()
    assert read_rows(db.path, pin, "t") == before
    later = db.take_snapshot()
    assert read_rows(db.path, later, "t") == rows_of(db) != before


def test_large_objects_are_read_from_pages_of_all_levels(db: Connection):
    values = [bytes([n]) * size for n, size in enumerate((10, 1500, 9000, 70_000))]
    db.create_table("lobs", {"k": "INT", "b": "BLOB"})
    for n, value in enumerate(values):
        db.insert("lobs", (n, value))
    db.commit()
    pin = db.take_snapshot(lease=600)
    db.delete("lobs")
    db.commit()
    db.gc()
    assert read_rows(db.path, pin, "lobs") == list(enumerate(values))


def test_a_pin_taken_amid_a_rollback_does_not_see_half_of_it(db: Connection, connect: Connect):  # noqa: F811
    make(db)
    before = rows_of(db)
    other = connect()
    other.update("t", {"s": "z" * 1500})
    other.savepoint("half")
    other.update("t", {"s": "y" * 10})
    other.rollback_to("half")
    pin = db.take_snapshot()
    other.rollback()
    db.checkpoint()
    assert read_rows(db.path, pin, "t") == before


@pytest.mark.parametrize("seed", range(4))
def test_random_changes_and_pins(db: Connection, connect: Connect, seed: int):  # noqa: F811
    """Many pins, taken and dropped in any order while two sessions change the table: each keeps its own instant."""
    chance = random.Random(seed)
    make(db, 120)
    sessions = [connect(), connect()]
    pins: list[tuple[Pin, list[tuple[Any, ...]]]] = []
    for _ in range(120):
        session = chance.choice(sessions)
        low = chance.randrange(150)
        action = chance.randrange(10)
        try:
            if action < 4:
                text = chance.choice("abc") * chance.randrange(1900)
                session.update("t", {"s": text}, lambda row, low=low: low <= row["i"] < low + 5)
            elif action == 4:
                session.delete("t", lambda row, low=low: low <= row["i"] < low + 3)
            elif action == 5:
                session.insert("t", (chance.randrange(150), "again"))
            elif action == 6:
                many = chance.randrange(400)
                data = {"i": pa.array(chance.choices(range(150), k=many), pa.int32()), "s": ["bulk"] * many}
                session.append("t", pa.table(data))
            elif action == 7:
                session.rollback()
            elif action == 8:
                session.commit()
            else:
                chance.choice((db.checkpoint, db.gc))()
        except gmdb.Error:
            session.rollback()
        if chance.random() < 0.15:
            reader = connect()
            pins.append((db.take_snapshot(), rows_of(reader)))
            reader.close()
        if len(pins) > 4 or (pins and chance.random() < 0.05):
            gone, _ = pins.pop(chance.randrange(len(pins)))
            db.drop_snapshot(gone.name)
        for pin, expected in chance.sample(pins, min(1, len(pins))):
            assert read_rows(db.path, pin, "t") == expected
    for pin, expected in pins:
        assert read_rows(db.path, pin, "t") == expected
    versions = kept_versions(db.path)
    assert len(set(versions)) == len(versions)  # each is kept once, whoever needs it


def test_writers_and_checkpoints_beside_many_reads(db: Connection):
    """Pages are overwritten while they are read: each read gets the page of its instant all the same."""
    make(db, 2000)
    stop = threading.Event()

    def transfer() -> None:
        with gmdb.connect(db.path) as writer:
            while not stop.is_set():
                writer.update("t", {"s": "w" * random.randrange(60)}, lambda row: row["i"] % 50 == random.randrange(50))
                writer.commit()
                writer.checkpoint()

    before = [i for i, _ in rows_of(db)]
    thread = threading.Thread(target=transfer)
    thread.start()
    try:
        for _ in range(15):
            pin = db.take_snapshot()
            first = read_rows(db.path, pin, "t")
            assert [i for i, _ in first] == before
            assert read_rows(db.path, pin, "t") == first
            db.drop_snapshot(pin.name)
    finally:
        stop.set()
        thread.join()


# ---- how long it lasts


def test_a_pin_outlives_the_owner_and_its_crash(path: Path):
    with gmdb.connect(path) as db:
        make(db)
        pin = db.take_snapshot(holder=Holder("elsewhere", "another boot", "another namespace", 1, 1))
        before = rows_of(db)
        db.update("t", {"s": "changed"})
        db.commit()
    assert read_rows(path, pin, "t") == before  # closing wrote the pages
    pid = os.fork()
    if pid == 0:
        try:
            crashing = gmdb.connect(path)
            crashing.update("t", {"s": "changed once more"})
            crashing.commit()
            crashing.checkpoint()
            crashing.update("t", {"s": "lost"})
        finally:
            os.kill(os.getpid(), 9)
    os.waitpid(pid, 0)
    assert read_rows(path, pin, "t") == before
    with gmdb.connect(path) as db:
        db.update("t", {"s": "and again"})
        db.commit()
        db.checkpoint()
        assert [one.name for one in read_pins(path)] == [pin.name]
        assert read_rows(path, pin, "t") == before
    assert_sound(path)


def test_a_pin_falls_when_its_lease_runs_out_and_reading_renews_it(db: Connection):
    make(db)
    pin = db.take_snapshot(lease=600.0)
    grow_older(db.path, pin, 500)
    assert expires_at(db.path, pin) < time.time() + 200
    assert read_rows(db.path, pin, "t")
    assert expires_at(db.path, pin) > time.time() + 200
    grow_older(db.path, pin, 700)
    until(lambda: not any(folder_of(db.path).iterdir()))  # the pin goes first, then its images
    with pytest.raises(SnapshotExpired, match="load again"):
        read_rows(db.path, pin, "t")


def test_a_pin_falls_when_the_process_that_it_is_for_ends(db: Connection, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pinning, "EXPIRY_INTERVAL", 0.0)
    make(db)
    pid = os.fork()
    if pid == 0:
        time.sleep(60)
        os._exit(0)
    pin = db.take_snapshot(holder=Holder.of(pid))
    db._database.durability.pins.expire()  # as the background does, all the time
    assert pin_path(db.path, pin.name).exists()
    os.kill(pid, 9)
    until(lambda: not pin_path(db.path, pin.name).exists())
    os.waitpid(pid, 0)


def test_dropping_pins_gives_their_images_back(db: Connection):
    make(db, 3000)
    pins = []
    for n in range(3):
        pins.append(db.take_snapshot())
        db.update("t", {"s": f"round {n}"})
        db.commit()
        db.checkpoint()
    full = image_bytes(db.path)
    db.drop_snapshot(pins[0].name)
    assert 0 < image_bytes(db.path) < full
    assert len(read_rows(db.path, pins[1], "t")) == 3000
    for pin in pins[1:]:
        db.drop_snapshot(pin.name)
    assert image_bytes(db.path) == 0
    with pytest.raises(SnapshotExpired):
        db.drop_snapshot(pins[0].name)


def test_a_page_that_changes_often_is_kept_once(db: Connection):
    make(db, 100)
    db.checkpoint()
    pin = db.take_snapshot()
    for n in range(20):
        db.update("t", {"s": f"round {n}"})
        db.commit()
        db.checkpoint()
    pages = sum(pin.devices.values())
    assert image_bytes(db.path) < pages * 40_000
    once = image_bytes(db.path)
    db.update("t", {"s": "one more"})
    db.commit()
    db.checkpoint()
    assert image_bytes(db.path) == once


def kept_versions(path: Path) -> list[tuple[int, int]]:
    """Page and checkpoint of every image that is kept."""
    return [(page_id, image.ckpt_id) for _, _, file in image_files(path) for page_id, image in read_images(file)]


def test_pins_share_the_images_of_pages_that_have_not_changed_between_them(db: Connection):
    make(db, 3000)
    db.update("t", {"s": "x" * 1000})  # in memory, and in no file yet
    db.commit()
    pins, expected = [db.take_snapshot()], [rows_of(db)]
    once = image_bytes(db.path)
    for n in range(12):
        db.update("t", {"s": f"changed {n}"}, lambda row, n=n: row["i"] == 200 * n)
        db.commit()
        pins.append(db.take_snapshot())
        expected.append(rows_of(db))
    assert image_bytes(db.path) < 3 * once
    for n in (0, 0, 4, 2):  # whoever goes, the others keep what they share
        db.drop_snapshot(pins.pop(n).name)
        del expected[n]
        db.update("t", {"s": f"later {n}"})
        db.commit()
        db.checkpoint()
        assert [read_rows(db.path, pin, "t") for pin in pins] == expected
    versions = kept_versions(db.path)
    assert len(set(versions)) == len(versions)


def test_a_pin_that_goes_takes_the_images_along_that_it_alone_needs(db: Connection):
    make(db, 3000)
    db.gc()
    db.checkpoint()
    pins, sizes = [], []
    for n in range(3):
        pins.append(db.take_snapshot())
        change_all(db, f"round {n}")
        sizes.append(image_bytes(db.path))
    db.drop_snapshot(pins[1].name)  # an older one stays
    assert image_bytes(db.path) < sizes[1] + (sizes[1] - sizes[0]) // 2
    assert {s for _, s in read_rows(db.path, pins[2], "t")} == {"round 1"}
    assert len({s for _, s in read_rows(db.path, pins[0], "t")}) == 3000


def test_images_take_no_more_than_their_share_and_the_oldest_pin_falls(db: Connection, monkeypatch: pytest.MonkeyPatch):
    make(db, 3000)
    db.gc()
    db.checkpoint()
    pins = [db.take_snapshot()]
    change_all(db, "first")
    monkeypatch.setattr(pinning, "SHARE_MIN", 5 * image_bytes(db.path) // 2)
    monkeypatch.setattr(pinning, "SHARE", 0)
    for n in range(6):
        pins.append(db.take_snapshot())
        before = rows_of(db)
        change_all(db, f"round {n}")
        assert image_bytes(db.path) <= pinning.SHARE_MIN
        assert read_rows(db.path, pins[-1], "t") == before
    assert [pin.name for pin in read_pins(db.path)] == [pin.name for pin in pins[-2:]]
    for pin in pins[:-2]:
        with pytest.raises(SnapshotExpired, match=r"it was given up, for the pages kept .* hold fewer at a time"):
            read_rows(db.path, pin, "t")


def test_shared_images_are_found_again_when_the_database_is_opened(path: Path):
    kept = Holder.nobody()
    with gmdb.connect(path) as db:
        make(db, 1000)
        first = db.take_snapshot(holder=kept)
        db.update("t", {"s": "changed"}, lambda row: row["i"] == 7)
        db.commit()
        second, before = db.take_snapshot(holder=kept), rows_of(db)
    with gmdb.connect(path) as db:
        db.drop_snapshot(first.name)
        db.update("t", {"s": "later"})
        db.commit()
        third, then = db.take_snapshot(holder=kept), rows_of(db)
        db.checkpoint()
    assert read_rows(path, second, "t") == before
    assert read_rows(path, third, "t") == then
    with gmdb.connect(path) as db:
        db.delete("t")
        db.commit()
    assert read_rows(path, second, "t") == before
    assert read_rows(path, third, "t") == then


def test_a_full_disk_takes_the_oldest_pin_and_no_writer(db: Connection, monkeypatch: pytest.MonkeyPatch):
    make(db, 1000)
    db.checkpoint()
    first, second = db.take_snapshot(), db.take_snapshot()
    found = os.statvfs(db.path)
    monkeypatch.setattr(pinning, "DISK_RESERVE", found.f_bavail * found.f_frsize * 2)
    db.update("t", {"s": "whatever happens"})
    db.commit()
    db.checkpoint()
    assert read_pins(db.path) == []
    for pin in (first, second):
        with pytest.raises(SnapshotExpired):
            read_rows(db.path, pin, "t")
    db.update("t", {"s": "changed again"})
    db.commit()
    with pytest.raises(gmdb.Error, match="space"):
        db.take_snapshot()


# ---- other things that change files


def test_no_file_gets_shorter_under_a_pin(db: Connection):
    fill(db)
    before = keys(db)
    pin = db.take_snapshot()
    keep_few(db)
    assert db.shrink() == 0
    assert [i for i, _ in read_rows(db.path, pin, "t")] == before
    db.drop_snapshot(pin.name)
    assert db.shrink() > 0


def test_a_tablespace_that_a_pin_may_need_is_not_dropped(db: Connection):
    db.create_tablespace("side")
    db.create_table("t", COLUMNS, tablespace="side")
    db.insert("t", (1, "a"))
    db.commit()
    pin = db.take_snapshot()
    db.drop_table("t")
    db.commit()
    with pytest.raises(SchemaError, match="snapshots"):
        db.drop_tablespace("side")
    assert read_rows(db.path, pin, "t") == [(1, "a")]
    db.drop_snapshot(pin.name)
    db.drop_tablespace("side")


def test_a_table_that_was_dropped_or_truncated_is_still_there_for_a_pin(db: Connection):
    make(db)
    before = rows_of(db)
    pin = db.take_snapshot()
    db.truncate_table("t")
    db.append("t", pa.table({"i": pa.array(range(50_000), pa.int32()), "s": ["new"] * 50_000}))
    db.commit()
    db.gc()
    db.checkpoint()
    db.drop_table("t")
    db.commit()
    db.gc()
    db.create_table("other", COLUMNS)
    db.append("other", pa.table({"i": pa.array(range(50_000), pa.int32()), "s": ["other"] * 50_000}))
    db.commit()
    db.checkpoint()
    assert read_rows(db.path, pin, "t") == before


# ---- damage and refusals


def test_damage_is_named_or_skipped(db: Connection):
    fill(db)
    db.checkpoint()
    pin = db.take_snapshot()
    pages = db.heap("t").segment.page_ids()
    page_id = int(pages[len(pages) // 2])
    whole = len(read_rows(db.path, pin, "t"))
    file = device_path(db.path, FIRST_USER_DEVICE)
    at = offset_of(page_id) * 8192 + 4000
    good = file.read_bytes()[at : at + 16]
    with file.open("r+b") as opened:
        opened.seek(at)
        opened.write(bytes(byte ^ 0xFF for byte in good))
    with pytest.raises(gmdb.errors.Corruption) as raised:
        read_rows(db.path, pin, "t")
    assert raised.value.page_id == page_id
    assert str(file) in str(raised.value)
    assert f"{device_of(page_id)}:{offset_of(page_id)}" in str(raised.value)
    left = read_rows(db.path, pin, "t", skips_damage=True)
    assert whole - 400 < len(left) < whole
    with file.open("r+b") as opened:
        opened.seek(at)
        opened.write(good)


def test_a_lease_that_is_none_is_refused(db: Connection):
    for lease in (0, -1, 0.5):
        with pytest.raises(InterfaceError, match="lease"):
            db.take_snapshot(lease=lease)


def test_pins_are_listed(db: Connection):
    make(db)
    pin = db.take_snapshot(lease=300)
    listed = db.system_view("sys_snapshots").to_pylist()
    (found,) = [row for row in listed if row["pinned"]]
    assert found["pinned"] == pin.name
    assert found["scn"] == pin.scn
    assert 290 < (found["expires"] - found["taken"]).total_seconds() <= 301
    assert db.execute("select pinned from sys_snapshots where pinned is not null").fetchall() == [(pin.name,)]


def test_a_pin_of_a_closed_database_holds_when_it_is_opened_again(path: Path):
    from gmdb.spark.pinned_snapshots import drop_pin, take_pin

    with gmdb.connect(path) as db:
        make(db)
        before = rows_of(db)
    pin = take_pin(path, 600.0)
    assert read_rows(path, pin, "t") == before
    with gmdb.connect(path) as db:
        db.delete("t")
        db.commit()
        db.gc()
        db.checkpoint()
    assert read_rows(path, pin, "t") == before
    drop_pin(path, pin.name)
    with gmdb.connect(path):
        pass
    assert list(folder_of(path).iterdir()) == []


def test_a_condition_is_asked_of_every_row(db: Connection):
    db.create_table("n", {"i": "INT", "d": "DECIMAL(10,2)", "s": "VARCHAR(20)"})
    count = 5000
    values = np.arange(count)
    decimals = pa.array([f"{n / 4:.2f}" for n in values]).cast(pa.decimal128(10, 2))
    texts = [None if n % 7 == 0 else f"t{n % 13}" for n in values]
    db.append("n", pa.table({"i": pa.array(values, pa.int32()), "d": decimals, "s": texts}))
    db.commit()
    pin = db.take_snapshot()
    for where in ("i between 10 and 20", "s is null and d > 100.5", "s like 't1_' or i % 1000 = 3", "false"):
        expected = db.execute(f"select * from n where {where}").fetchall()
        assert read_rows_with_nulls(db.path, pin, where) == sorted(expected, key=repr)


def read_rows_with_nulls(path: Path, pin: Pin, where: str) -> list[tuple[Any, ...]]:
    from tests.frozen import read_table

    columns = [column.to_pylist() for column in read_table(path, pin, "n", where).columns]
    return sorted(zip(*columns, strict=True), key=repr)


def test_a_snapshot_that_has_expired_leaves_no_file_open(db: Connection) -> None:
    make(db, 10)
    pin = db.take_snapshot()
    db.drop_snapshot(pin.name)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        with pytest.raises(SnapshotExpired):
            FrozenStore(db.path, pin)
    assert len(os.listdir("/proc/self/fd")) == before
