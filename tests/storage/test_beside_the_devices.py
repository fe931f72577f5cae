"""Files that lie beside the devices, missing or damaged: pins, their locks and images, readers, folders of loads."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import gmdb
from gmdb.database.connection import Connection
from gmdb.errors import (
    Corruption,
    DatabaseInUse,
    InterfaceError,
    NoSuchFeedReader,
    NotADatabase,
    PositionUnknown,
    SnapshotExpired,
    StorageError,
)
from gmdb.format.address import FIRST_USER_DEVICE, page_id_of
from gmdb.storage import feeds, loads
from gmdb.storage.directory import DirectoryLock, device_path, is_database, read_control
from gmdb.storage.disk import Disk
from gmdb.storage.documents import Holder
from gmdb.storage.pinned_pages import FrozenStore, read_locks
from gmdb.storage.pins import (
    ImageIndex,
    Pin,
    drop_closed,
    expires_at,
    image_files,
    locks_path,
    pin_path,
    read_pin,
    read_pins,
    renew,
)
from gmdb.storage.store import Segment
from tests.frozen import read_rows


@pytest.fixture
def filled(db: Connection) -> Connection:
    db.create_table("t", {"i": "INT", "s": "VARCHAR(2000)"})
    for i in range(20):
        db.insert("t", (i, "x" * 1500))
    db.commit()
    return db


# ---- pins


def test_a_pin_file_that_says_nothing_is_damage_and_no_pin_in_the_list(filled: Connection) -> None:
    pin, other = filled.take_snapshot(), filled.take_snapshot()
    file = pin_path(filled.path, pin.name)
    for content in (b"{", b"{}", b'{"holder": {}, "devices": []}', b"[1]"):
        file.write_bytes(content)
        with pytest.raises(Corruption, match=r"is damaged.*gmdb snapshots drop"):
            read_pin(filled.path, pin.name)
        assert [found.name for found in read_pins(filled.path)] == [other.name]
    file.unlink()
    file.mkdir()
    with pytest.raises(StorageError, match="not a regular file"):
        read_pin(filled.path, pin.name)
    file.rmdir()


def test_a_pin_that_is_gone_is_neither_renewed_nor_read(filled: Connection) -> None:
    pin = filled.take_snapshot()
    assert expires_at(filled.path, pin) > 0
    filled.drop_snapshot(pin.name)
    assert expires_at(filled.path, pin) == 0.0
    for touch in (renew, read_pin):
        with pytest.raises(SnapshotExpired, match=f"no snapshot {pin.name} any more"):
            touch(filled.path, pin.name)
    with pytest.raises(SnapshotExpired):
        FrozenStore(filled.path, pin)


def test_a_lease_that_cannot_be_renewed_is_left_to_others(filled: Connection) -> None:
    """A name that is too long stands for any answer of the system but that the file is gone."""
    filled.take_snapshot()
    renew(filled.path, "x" * 300)


def test_a_pin_of_a_closed_database_is_dropped_without_opening_it(path: Path) -> None:
    with gmdb.connect(path) as db:
        pin = db.take_snapshot(holder=Holder.nobody())
    drop_closed(path, pin.name)
    assert read_pins(path) == []
    with pytest.raises(SnapshotExpired):
        drop_closed(path, pin.name)


def test_locks_that_were_cut_short_are_damage(filled: Connection) -> None:
    filled.update("t", {"s": "open"}, lambda row: row["i"] < 5)
    pin = filled.take_snapshot()
    file = locks_path(filled.path, pin.name)
    whole = file.read_bytes()
    assert len(read_locks(file)[1]) >= 5
    for part in (whole[:10], whole[:-1], whole + b"\0", np.array([-1, 0], "<i8").tobytes()):
        file.write_bytes(part)
        with pytest.raises(Corruption, match="is damaged; load again"):
            read_locks(file)
    file.write_bytes(whole)
    filled.rollback()


def test_images_are_read_as_far_as_they_are_whole(filled: Connection) -> None:
    pin = filled.take_snapshot()
    expected = read_rows(filled.path, pin, "t")
    for text in ("first", "second"):
        filled.update("t", {"s": text})
        filled.commit()
        filled.checkpoint()
    ((_, _, file),) = image_files(filled.path)
    (filled.path / "snapshots" / "strange-name.images").write_bytes(b"no images")
    found = ImageIndex(filled.path, pin)
    found.refresh()
    known = dict(found.newest)
    assert known
    found.close()
    with file.open("r+b") as stream:  # as if a batch were being written: its head is there, its list is not
        stream.seek(0, os.SEEK_END)
        end = stream.tell()
        stream.seek(0)
        head = stream.read(64)
        stream.seek(end)
        stream.write(head + bytes(8))
    again = ImageIndex(filled.path, pin)
    assert {page: image.offset for page, image in again.newest.items()} == {p: i.offset for p, i in known.items()}
    again.close()
    assert read_rows(filled.path, pin, "t") == expected


# ---- reading by a pin


def store_of(db: Connection, **changes: object) -> FrozenStore:
    return FrozenStore(db.path, replace(db.take_snapshot(), **changes))  # type: ignore[arg-type]


def test_a_frozen_store_refuses_devices_that_are_not_as_the_pin_says(filled: Connection) -> None:
    pin = filled.take_snapshot()
    with pytest.raises(StorageError, match="No such file"):
        FrozenStore(filled.path, replace(pin, devices={**pin.devices, 77: 3}))
    device_path(filled.path, 78).write_bytes(b"no device head")
    with pytest.raises(Corruption, match="does not begin with a device head"):
        FrozenStore(filled.path, replace(pin, devices={**pin.devices, 78: 3}))
    device_path(filled.path, 78).unlink()
    reach = {**pin.devices, FIRST_USER_DEVICE: pin.devices[FIRST_USER_DEVICE] + 1}
    with pytest.raises(Corruption, match="its head is not as the snapshot says"):
        FrozenStore(filled.path, replace(pin, devices=reach))


def test_a_page_that_no_pin_reaches_does_not_exist(filled: Connection) -> None:
    pin = filled.take_snapshot()
    store = FrozenStore(filled.path, pin)
    for page_id in (page_id_of(FIRST_USER_DEVICE, pin.devices[FIRST_USER_DEVICE]), page_id_of(99, 0)):
        with pytest.raises(Corruption, match="does not exist"):
            store.read_pages(np.array([page_id], np.uint32))
    store.close()


def test_a_pin_that_is_kept_by_nobody_holds_until_the_database_changes(path: Path) -> None:
    with gmdb.connect(path) as db:
        db.create_table("t", {"i": "INT"})
        db.insert("t", (1,))
        db.commit()
        pin = db.take_snapshot(holder=Holder.nobody())
    with gmdb.connect(path) as db:
        db.drop_snapshot(pin.name)
    control = read_control(path)
    held = replace(pin, is_kept=False, scn=control["scn"], ckpt_id=control["ckpt_id"])
    assert read_rows(path, held, "t") == [(1,)]
    with gmdb.connect(path) as db:
        db.insert("t", (2,))
    with pytest.raises(SnapshotExpired, match="changed since load"):
        read_rows(path, held, "t")


# ---- readers of changes


def reader(name: str, **changes: object) -> feeds.Reader:
    return replace(feeds.Reader(name, "id", "position", 100, feeds.KEEP_MIN, 0.0, {}), **changes)  # type: ignore[arg-type]


def test_readers_that_cannot_be_read_keep_all_of_the_log(path: Path) -> None:
    path.mkdir()
    feeds.write_reader(path, reader("one"))
    feeds.write_reader(path, reader("two", needs=50))
    feeds.write_reader(path, reader("foreign", database_id="another", needs=1))
    feeds.write_reader(path, reader("behind", needs=0, keep=10))
    assert feeds.log_needed(path, "id", 1000) == 50
    (path / "feeds" / "no name!.reader").write_text("{}")
    assert feeds.log_needed(path, "id", 1000) == 50
    assert [found.name for found in feeds.read_readers(path)] == ["behind", "foreign", "one", "two"]
    for content in ("{", "{}", "[]"):
        (path / "feeds" / "damaged.reader").write_text(content)
        assert feeds.log_needed(path, "id", 1000) == 0
        with pytest.raises(Corruption, match=r"is damaged.*gmdb feeds drop"):
            feeds.read_reader(path, "damaged")
    assert len(feeds.read_readers(path)) == 4
    feeds.remove_reader(path, "damaged")
    (path / "feeds" / "folder.reader").mkdir()
    with pytest.raises(StorageError, match="not a regular file"):
        feeds.read_reader(path, "folder")


def test_a_reader_that_is_not_there_is_named_with_those_that_are(path: Path) -> None:
    path.mkdir()
    assert feeds.read_reader(path, "nobody") is None
    with pytest.raises(NoSuchFeedReader, match="there are: none"):
        feeds.remove_reader(path, "nobody")
    feeds.write_reader(path, reader("one"))
    with pytest.raises(NoSuchFeedReader, match="there are: one"):
        feeds.remove_reader(path, "nobody")


def test_names_limits_and_positions_of_readers_are_checked() -> None:
    with pytest.raises(InterfaceError, match="not a name for a reader"):
        feeds.require_reader_name("a b")
    with pytest.raises(InterfaceError, match="too few"):
        feeds.require_keep(feeds.KEEP_MIN - 1)
    position = feeds.LogPosition(1, 2, 3, 4)
    assert feeds.LogPosition.from_text(position.to_text("0123456789"), "01234567ab") == position
    with pytest.raises(PositionUnknown, match="not a position"):
        feeds.LogPosition.from_text("1-2", "01234567")
    with pytest.raises(PositionUnknown, match="another database"):
        feeds.LogPosition.from_text(position.to_text("0123456789"), "76543210")


def test_definitions_that_are_missing_or_damaged_are_named(path: Path) -> None:
    path.mkdir()
    feeds.keep_definition(path, 7, {"name": "t"})
    feeds.keep_definition(path, 7, {"name": "another"})
    assert feeds.read_definition(path, 7) == {"name": "t"}
    (path / "feeds" / "definitions" / "odd.json").write_text("{}")
    assert feeds.definition_numbers(path) == [7]
    with pytest.raises(StorageError, match="cannot be read"):
        feeds.read_definition(path, 8)
    (path / "feeds" / "definitions" / "7.json").write_text("{")
    with pytest.raises(Corruption, match="is damaged"):
        feeds.read_definition(path, 7)


def test_a_folder_that_cannot_be_made_is_a_storage_error(path: Path) -> None:
    path.mkdir()
    (path / "feeds").write_text("a file")
    with pytest.raises(StorageError, match="feeds"):
        feeds.write_reader(path, reader("one"))
    (path / "loads").write_text("a file")
    with pytest.raises(StorageError, match="loads"):
        loads.new_load(path, Holder.this_process())


# ---- loads


def test_loads_of_one_stream_go_together_and_those_of_others_stay(path: Path) -> None:
    path.mkdir()
    me, other = Holder.this_process(), replace(Holder.this_process(), pid=1)
    mine, kin, foreign = (
        loads.new_load(path, me, "a-"),
        loads.new_load(path, me, "b-"),
        loads.new_load(path, other, "b-"),
    )
    loads.remove_kin(path, me, "b-")
    assert {file.name for file in (path / "loads").iterdir()} == {mine, foreign}
    assert not loads.load_path(path, kin).exists()


def test_a_database_without_loads_has_no_litter(path: Path) -> None:
    path.mkdir()
    assert loads.remove_litter(path) == []


def test_pins_are_what_their_files_say(filled: Connection) -> None:
    pin = filled.take_snapshot()
    assert Pin.from_json(pin.to_json()) == pin
    assert str(pin.holder).startswith("process ")


def test_names_of_loads_lead_nowhere_else(path: Path) -> None:
    with pytest.raises(InterfaceError, match="not a name of a load"):
        loads.load_path(path, os.path.join(os.pardir, "other"))
    with pytest.raises(InterfaceError, match="not a name of a staging file"):
        loads.staged_path(path, "load", os.path.join(os.pardir, "file"))
    assert loads.staged_path(path, "load", "part") == path / "loads" / "load" / "part"


# ---- the rest of the directory, and who holds it


def test_what_is_no_database_is_called_what_it_is(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no directory")
    for name, what in (("file", "is a file"), ("", "without gmdb.control"), ("none", "does not exist")):
        with pytest.raises(NotADatabase, match=what):
            read_control(tmp_path / name)
    with pytest.raises(StorageError, match="too long"):
        is_database(tmp_path / ("x" * 300))


def test_a_lock_is_let_go_once(path: Path) -> None:
    gmdb.connect(path).close()
    lock = DirectoryLock(path, exclusive=True)
    with pytest.raises(DatabaseInUse, match=f"process {os.getpid()}"):
        DirectoryLock(path, exclusive=False)
    lock.release()
    lock.release()
    DirectoryLock(path, exclusive=False).release()


def test_a_disk_that_takes_nothing_is_a_failure_and_the_end_of_a_file_is_none(tmp_path: Path) -> None:
    class Stubborn(Disk):
        def raw_write(self, *_: object) -> int:
            return 0

    (tmp_path / "file").write_bytes(b"12345")
    with Stubborn().open(tmp_path / "file", writable=True) as file:
        with pytest.raises(StorageError, match="only 0 of 3 bytes were written"):
            file.write(b"abc", 0)
        buffer = np.zeros(8, np.uint8)
        assert file.read_into(buffer, 2) == 3
    assert bytes(buffer) == b"345" + bytes(5)


def test_a_process_that_works_for_java_belongs_to_it() -> None:
    """Spark's driver is known by its name; here it is this process itself."""
    comm = Path(f"/proc/{os.getpid()}/comm")
    before = comm.read_text().strip()
    assert Holder.driver() == Holder.this_process()
    comm.write_text("java")
    try:
        found = Holder.driver()
    finally:
        comm.write_text(before)
    assert found == Holder.this_process()
    assert not found.is_gone


def test_a_segment_whose_entry_page_no_device_has_is_damage(filled: Connection) -> None:
    store = filled._database.store
    for page_id in (page_id_of(900, 1), page_id_of(FIRST_USER_DEVICE, 1 << 20)):
        with pytest.raises(Corruption, match="does not exist"):
            _ = Segment(store, store.spaces[FIRST_USER_DEVICE], page_id).head


def test_pages_that_a_file_has_lost_are_named_or_skipped(path: Path) -> None:
    with gmdb.connect(path) as db:
        db.create_table("t", {"i": "INT", "s": "VARCHAR(2000)"})
        for i in range(20):
            db.insert("t", (i, "x" * 1500))
        db.commit()
        pin = db.take_snapshot(holder=Holder.nobody())
    last = pin.devices[FIRST_USER_DEVICE] - 1
    store = FrozenStore(path, pin)
    ids = np.arange(page_id_of(FIRST_USER_DEVICE, 1), page_id_of(FIRST_USER_DEVICE, last + 1)).astype(np.uint32)
    assert store.read_pages(ids).tolist() == ids.tolist()
    starts = store.page_starts(ids, 16)
    assert [bytes(start) for start in starts] == [bytes(store.page(page_id)[:16]) for page_id in ids.tolist()]
    with device_path(path, FIRST_USER_DEVICE).open("r+b") as file:
        file.truncate(last * 8192)
    store._images.newest.pop(int(ids[-1]), None)
    with pytest.raises(Corruption, match="only zeros, or the file ends before it"):
        store.read_pages(ids)
    skipped: list[int] = []
    store.skip = lambda page_id, _: skipped.append(page_id)
    assert store.read_pages(ids).tolist() == ids[:-1].tolist()
    assert skipped == [ids[-1]]
    store.close()


def test_a_reader_that_ends_just_now_needs_no_log(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.mkdir()
    for name in ("one", "gone"):
        feeds.write_reader(path, reader(name))
    read = feeds.read_plain

    def read_unless_gone(file: Path) -> bytes:
        if file.stem == "gone":
            file.unlink(missing_ok=True)
        return read(file)

    monkeypatch.setattr(feeds, "read_plain", read_unless_gone)
    assert feeds.log_needed(path, "id", 1000) == 100
    assert [found.name for found in feeds.read_readers(path)] == ["one"]
