"""A checkpoint is cut short while it writes one page to its place: the mirror has the page whole."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest

from gmdb.format.address import UNDO_DEVICE, page_id_of
from gmdb.format.device import SPACE_HEAD, SPACE_HEAD_AT
from gmdb.format.page import PAGE_HEAD, PageType
from gmdb.inspect.inspector import open_inspector
from gmdb.storage import disk
from gmdb.storage.device import Device
from gmdb.storage.directory import device_path
from tests.crash.faults import Journal, Sync, Write
from tests.crash.harness import QuickDisk, QuickRecordingDisk, connect, scratch, small_log
from tests.crash.power_cut import SECTOR
from tests.crash.workload import COLUMNS, SCHEMA, Tables, found
from tests.integrity import problems
from tests.searches import extent


class Recorded:
    """A database whose last checkpoint was recorded, and what is in it."""

    def __init__(self, place: Path) -> None:
        self.before = place / "before"  # as the files were when the checkpoint began
        self.contents: Tables = {}
        self.journal: Journal = []
        with small_log(), disk.use(QuickDisk()):
            self._make(place / "db")

    def _make(self, path: Path) -> None:
        db, other = connect(path), connect(path)
        db._database.transactions.stop()
        db.create_table("t", COLUMNS)
        db.create_table("emptied", COLUMNS)
        db.create_index("t_k", "t", ["k"], unique=True)
        db.create_index("t_hash", "t", ["k"], using="hash")
        db.commit()
        heap = db.heap("t")
        ids = [heap.insert((k, "x" * 100)) for k in range(200)]
        gone = [db.heap("emptied").insert((k, "y" * 2000)) for k in range(20)]
        db.commit()
        db.checkpoint()
        for k in range(0, 200, 7):
            heap.update(ids[k], {"s": "longer" * 300})  # rows that leave their pages, pages of undo
        for row_id in gone:
            db.heap("emptied").delete(row_id)
        db.append("t", pa.table([list(range(1000, 1300)), ["z" * 90] * 300], schema=SCHEMA))
        db.commit()
        db.gc()
        for k in range(1, 200, 11):
            heap.update(ids[k], {"s": "kept for rollback"})
        db.commit()
        self.contents = found(db)
        other.heap("t").update(ids[3], {"s": "never committed" * 100})
        with disk.use(QuickRecordingDisk(path)) as recording:
            assert isinstance(recording, QuickRecordingDisk)
            for file in [device._file for device in db._database.store.devices.values()]:
                file._disk = recording
                recording._open_files[file.number] = file.path.name
            mirror = db._database.durability._mirror._file  # type: ignore[union-attr]
            mirror._disk = recording
            recording._open_files[mirror.number] = mirror.path.name
            db._database.durability.redo.make_durable(db._database.durability.redo.end)  # type: ignore[union-attr]
            shutil.copytree(path, self.before)
            db.checkpoint()
            self.journal = list(recording.journal)
        other.close()
        db.close()


@pytest.fixture(autouse=True)
def small() -> Iterator[None]:
    with small_log():
        yield


@pytest.fixture(scope="module")
def recorded() -> Iterator[Recorded]:
    with scratch() as place:
        yield Recorded(place)


def in_place(recorded: Recorded) -> list[Write]:
    return [one for one in recorded.journal if isinstance(one, Write) and one.file.startswith("device-")]


def prepare(recorded: Recorded, target: Path) -> None:
    """The files as they were when the first page was about to be written: the mirror is whole."""
    shutil.copytree(recorded.before, target)
    for one in recorded.journal:
        if isinstance(one, Write) and one.file == "gmdb.mirror":
            write(target / one.file, one.offset, one.data)
        elif isinstance(one, Sync) and one.file == "gmdb.mirror":
            return
    raise AssertionError("the mirror was not synced")


def write(path: Path, offset: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


def check(
    recorded: Recorded, directory: Path, page_id: int, is_torn: bool, where: str, is_read_first: bool = True
) -> None:
    """Mended for whoever only reads, and for good by whoever writes."""
    with disk.use(QuickDisk()):
        for read_only in (True, False) if is_read_first else (False,):
            with connect(directory, read_only=read_only) as db:
                recovery = db._database.recovery
                assert recovery is not None
                assert (page_id in recovery.torn_pages) == is_torn, f"{where}, read_only={read_only}"
                assert found(db) == recorded.contents, f"{where}, read_only={read_only}"
    assert not problems(directory), where


def test_the_checkpoint_writes_pages_of_every_kind(recorded: Recorded) -> None:
    types = {PAGE_HEAD.at(page.data).page_type for page in in_place(recorded)}
    assert types >= {PageType.DEVICE_HEAD, PageType.SEGMENT_ENTRY, PageType.DATA, PageType.FREE, PageType.TRANSACTIONS}
    assert any(page.file.endswith(f"{UNDO_DEVICE:04d}") and len(page.data) == 32768 for page in in_place(recorded))
    assert len(in_place(recorded)) > 20


@pytest.mark.search
def test_every_page_that_is_torn_at_any_sector_is_mended(recorded: Recorded) -> None:
    """One state for each page and boundary; where many boundaries leave the same bytes, one of them will do.

    Who only reads looks at one state of each page.
    """
    pages, checked = in_place(recorded), 0
    with scratch() as place:
        prepare(recorded, place / "prepared")
        for number, page in enumerate(pages):
            path = place / "prepared" / page.file
            size = SPACE_HEAD.at(path.read_bytes()[:4096], SPACE_HEAD_AT).page_size
            page_id = page_id_of(int(page.file.removeprefix("device-")), page.offset // size)
            old = path.read_bytes()[page.offset : page.offset + size]
            at = boundaries(old, page.data, number)
            for boundary in at:
                torn = page.data[:boundary] + old[boundary:]
                directory = place / "state"
                shutil.copytree(place / "prepared", directory)
                write(directory / page.file, page.offset, torn)
                is_torn = torn not in (old, page.data)
                where, is_first = f"page {page_id} torn at {boundary}", boundary == at[0]
                check(recorded, directory, page_id, is_torn, where, is_read_first=is_first)
                shutil.rmtree(directory)
                checked += 1
    assert checked >= extent(60, 120)


def boundaries(old: bytes, new: bytes, number: int) -> list[int]:
    """Sector boundaries at which a torn page is neither the old nor the new one; for most pages, the two ends."""
    differ = [at for at in range(0, len(new), SECTOR) if old[at : at + SECTOR] != new[at : at + SECTOR]]
    every = [at for at in range(SECTOR, len(new), SECTOR) if differ and differ[0] < at <= differ[-1]]
    return every if number % extent(21, 7) == 0 else sorted({*every[:1], *every[-1:]})


def test_all_pages_torn_at_once_are_mended(recorded: Recorded) -> None:
    with scratch() as place:
        prepare(recorded, place / "state")
        for page in in_place(recorded):
            write(place / "state" / page.file, page.offset, page.data[: 3 * SECTOR])
        with disk.use(QuickDisk()):
            with connect(place / "state", read_only=True) as db:
                assert found(db) == recorded.contents
            with connect(place / "state") as db:
                assert db._database.recovery is not None
                assert len(db._database.recovery.torn_pages) > 20
                assert found(db) == recorded.contents
        assert not problems(place / "state")


def test_the_inspector_has_torn_pages_as_recovery_would_mend_them(recorded: Recorded) -> None:
    with scratch() as place:
        prepare(recorded, place / "whole")
        shutil.copytree(place / "whole", place / "torn")
        for page in in_place(recorded):
            write(place / "torn" / page.file, page.offset, page.data[: 3 * SECTOR])
        write(device_path(place / "torn", 4), 0, bytes(SECTOR))
        with open_inspector(place / "whole", "end") as whole, open_inspector(place / "torn", "end") as torn:
            assert torn.devices() == whole.devices()
            assert torn.rows("t").num_rows > 400
            assert torn.diff(whole).num_rows == 0
        (place / "torn" / "gmdb.mirror").unlink()
        with open_inspector(place / "torn", "end") as torn:
            assert torn.pages(pages="4:0").to_pylist()[0]["problem"]


def test_a_device_that_begins_with_a_torn_page_is_mended(recorded: Recorded) -> None:
    with scratch() as place:
        prepare(recorded, place / "state")
        path = device_path(place / "state", 4)
        write(path, 0, bytes(SECTOR))
        check(recorded, place / "state", page_id_of(4, 0), True, "page 0")


def test_a_file_that_had_grown_and_is_short_again_is_read_and_mended() -> None:
    """The mirror then has pages that lie behind the end of the file."""
    with scratch() as place, disk.use(QuickDisk()):
        path = place / "db"
        with connect(path) as db:
            db.create_table("t", COLUMNS)
            db.commit()
            db.checkpoint()
            length = device_path(path, 4).stat().st_size
            for k in range(400):
                db.insert("t", (k, "x" * 2900))
            db.commit()
            contents = found(db)
            write_pages, copied = Device.write_pages, place / "copy"

            def copy_first(self: Device, *arguments: Any) -> None:
                if not copied.exists():
                    shutil.copytree(path, copied)
                write_pages(self, *arguments)

            with patch.object(Device, "write_pages", copy_first):
                db.checkpoint()
        os.truncate(device_path(copied, 4), length)
        for read_only in (True, False):
            with connect(copied, read_only=read_only) as db:
                assert found(db) == contents
        assert not problems(copied)
