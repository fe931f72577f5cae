"""Databases of older versions are opened and brought up to date; those of newer versions are left alone."""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random

import numpy as np
import pytest

import gmdb
from gmdb.errors import UnsupportedVersion
from gmdb.format.address import NO_PAGE, UNDO_DEVICE
from gmdb.format.checksum import crc32c
from gmdb.format.control import CONTROL, CONTROL_1, CONTROL_SIZE, COPY_DISTANCE, FORMAT_VERSION, MAGIC
from gmdb.format.page import PAGE_HEAD
from gmdb.format.segment import SEGMENT_HEAD, SEGMENT_HEAD_AT
from gmdb.format.undo import UNDO_ENTRY
from gmdb.kernel.page.checkpoint import seal_run
from gmdb.storage import disk
from gmdb.storage.directory import CONTROL_NAME, device_path, read_control
from tests.crash.harness import Cuts, QuickRecordingDisk, connect, points_of, scratch, small_log, spread
from tests.crash.workload import found
from tests.integrity import assert_sound


def make_old(path: Path) -> None:
    """A database as version 1 left it: a short control record, and undo without a table of transactions."""
    with gmdb.connect(path) as db:
        db.create_table("t", {"k": "INT NOT NULL", "s": "VARCHAR(100)"})
        db.commit()
        for k in range(100):
            db.insert("t", (k, "old"))
    control = read_control(path)
    names = ("ckpt_id", "sequence", "next_obj_id", "next_transaction", "purpose")
    fields = {name: control[name] for name in names}
    fields["database_id"] = list(bytes.fromhex(control["database_id"]))
    raw = CONTROL_1.pack(magic=MAGIC, format_version=1, **fields)[:-4]
    data = bytearray(CONTROL_SIZE)
    at = COPY_DISTANCE * (control["sequence"] % 2)
    data[at : at + CONTROL_1.size] = raw + crc32c(raw).to_bytes(4, "little")
    (path / CONTROL_NAME).write_bytes(data)
    forget_the_table(path, control["ckpt_id"])


def forget_the_table(path: Path, ckpt_id: int) -> None:
    """Take the segment of the table of transactions away, and its pages with it: it was made last, at the end."""
    file = device_path(path, UNDO_DEVICE)
    data = np.frombuffer(bytearray(file.read_bytes()), np.uint8)
    size, entry = 32768, (UNDO_ENTRY & 0x3FFFFF) * 32768
    assert PAGE_HEAD.at(data[entry:]).page_id == UNDO_ENTRY
    head_at = entry + SEGMENT_HEAD_AT + SEGMENT_HEAD.offset("child_seg")
    data[head_at : head_at + 4] = np.frombuffer(NO_PAGE.to_bytes(4, "little"), np.uint8)
    rewrite_device_head(data)
    data[2 * size :] = 0  # pages above the high-water mark hold nothing
    for at in (0, entry):
        seal_run(data[at:].ctypes.data, 1, size, ckpt_id)
    file.write_bytes(data.tobytes())


def rewrite_device_head(data: np.ndarray) -> None:
    """Let the device have two pages in use: its own head, and the undo segment's entry."""
    from gmdb.format.device import DEVICE_HEAD, DEVICE_HEAD_AT, SPACE_HEAD, SPACE_HEAD_AT

    def put(layout: object, at: int, name: str, value: int) -> None:
        place = at + layout.offset(name)  # type: ignore[attr-defined]
        data[place : place + 4] = np.frombuffer(value.to_bytes(4, "little"), np.uint8)

    put(DEVICE_HEAD, DEVICE_HEAD_AT, "hwm", 2)
    put(DEVICE_HEAD, DEVICE_HEAD_AT, "first_free_page", NO_PAGE)
    put(DEVICE_HEAD, DEVICE_HEAD_AT, "free_page_count", 0)
    put(SPACE_HEAD, SPACE_HEAD_AT, "free_pages", 0)
    put(SPACE_HEAD, SPACE_HEAD_AT, "seg_num", 1)


def test_a_database_of_version_1_is_read_as_it_is_and_upgraded_by_the_first_writer(path: Path) -> None:
    make_old(path)
    before = {file.name: file.read_bytes() for file in path.iterdir()}
    with gmdb.connect(path, read_only=True) as db:
        assert len(found(db)["t"]) == 100
    assert {file.name: file.read_bytes() for file in path.iterdir()} == before
    with gmdb.connect(path) as db:
        db.insert("t", (100, "new"))
    assert read_control(path)["format_version"] == FORMAT_VERSION
    with gmdb.connect(path) as db:
        assert found(db)["t"] == {**dict.fromkeys(range(100), "old"), 100: "new"}
        db.create_tablespace("more")
        db.create_table("u", {"k": "INT"}, tablespace="more")
    assert_sound(path)


def test_power_may_be_cut_while_a_database_is_upgraded() -> None:
    with scratch() as place, small_log():
        path, base = place / "db", place / "base"
        make_old(path)
        shutil.copytree(path, base)
        recording = QuickRecordingDisk(path)
        contents = {"t": dict.fromkeys(range(100), "old")}
        recording.mark(("done", contents))
        with disk.use(recording):
            connect(path).close()
        cuts = Cuts(recording.journal, base, place / "states", Random(1))
        cuts.check_at(spread(points_of(recording.journal), 60))


def test_a_database_of_a_newer_version_is_refused_and_left_as_it_is(path: Path) -> None:
    gmdb.connect(path).close()
    file = path / CONTROL_NAME
    data = bytearray(file.read_bytes())
    for at in (0, COPY_DISTANCE):
        place = at + CONTROL.offset("format_version")
        data[place : place + 4] = (FORMAT_VERSION + 1).to_bytes(4, "little")
        raw = bytes(data[at : at + CONTROL.size - 4])
        data[at + CONTROL.size - 4 : at + CONTROL.size] = crc32c(raw).to_bytes(4, "little")
    file.write_bytes(data)
    before = {one.name: one.read_bytes() for one in path.iterdir()}
    message = f"format version {FORMAT_VERSION + 1}; this gmdb knows up to {FORMAT_VERSION}: use a newer gmdb"
    for read_only in (False, True):
        with pytest.raises(UnsupportedVersion, match=message):
            gmdb.connect(path, read_only=read_only)
    assert {one.name: one.read_bytes() for one in path.iterdir()} == before
