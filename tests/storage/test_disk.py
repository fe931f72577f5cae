"""The seam to the operating system: what it promises of files, and how a test takes its place."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from gmdb.errors import DiskFull, StorageError
from gmdb.storage import disk
from gmdb.storage.disk import Disk, DiskFile


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    with Disk().open(tmp_path / "file", create=True) as file:
        file.allocate(8192)
        file.write(b"hello", 4096)
        file.sync()
        assert file.size() == 8192
        assert file.read(7, 4095) == b"\0hello\0"
        file.truncate(4098)
        assert file.read(100, 4096) == b"he"
    assert (tmp_path / "file").read_bytes() == bytes(4096) + b"he"


def test_a_file_is_closed_once_however_often_it_is_asked_to(tmp_path: Path) -> None:
    file = Disk().open(tmp_path / "file", create=True)
    number = file.number
    file.close()
    file.close()
    assert file.number < 0
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(number)


def test_a_file_that_must_be_new_is_not_opened_if_it_is_there(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    with pytest.raises(StorageError, match="file: File exists"):
        Disk().open(tmp_path / "file", create=True, exclusive=True)
    with Disk().open(tmp_path / "file", create=True) as file:
        assert file.read(10, 0) == b"x"


def test_renaming_and_removing_change_the_directory(tmp_path: Path) -> None:
    (tmp_path / "old").write_bytes(b"x")
    Disk().replace(tmp_path / "old", tmp_path / "new")
    Disk().sync_directory(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["new"]
    Disk().remove(tmp_path / "new")
    assert list(tmp_path.iterdir()) == []


def test_every_failure_names_the_path(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    for attempt in (Disk().open, Disk().remove, Disk().sync_directory, lambda path: Disk().replace(path, tmp_path)):
        with pytest.raises(StorageError, match="missing: No such file or directory"):
            attempt(missing)


def test_a_disk_that_takes_a_part_is_asked_to_take_the_rest(tmp_path: Path) -> None:
    class Slow(Disk):
        def raw_write(self, file: DiskFile, data: memoryview, offset: int) -> int:
            return super().raw_write(file, data[:3], offset)

    with Slow().open(tmp_path / "file", create=True) as file:
        file.write(b"0123456789", 2)
    assert (tmp_path / "file").read_bytes() == b"\0\x000123456789"


def test_a_disk_that_fills_up_in_the_middle_of_a_write_is_full(tmp_path: Path) -> None:
    class Small(Disk):
        def raw_write(self, file: DiskFile, data: memoryview, offset: int) -> int:
            if offset >= 4:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return super().raw_write(file, data[: 4 - offset], offset)

    with Small().open(tmp_path / "file", create=True) as file, pytest.raises(DiskFull, match="file: No space left"):
        file.write(b"0123456789", 0)


def test_a_length_that_changed_is_synced_with_everything_until_that_succeeds(tmp_path: Path) -> None:
    class Watching(Disk):
        asked: tuple[bool, ...] = ()
        broken = False

        def raw_sync(self, file: DiskFile, everything: bool) -> None:
            self.asked += (everything,)
            if self.broken:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            super().raw_sync(file, everything)

    watching = Watching()
    with watching.open(tmp_path / "file", create=True) as file:
        file.sync()
        file.sync()
        file.allocate(4096)
        watching.broken = True
        with pytest.raises(StorageError, match="file: Input/output error"):
            file.sync()
        watching.broken = False
        file.sync()
        file.sync()
    assert watching.asked == (True, False, True, True, False)


def test_another_disk_is_current_only_within_its_block_and_keeps_its_files(tmp_path: Path) -> None:
    class Counting(Disk):
        writes = 0

        def raw_write(self, file: DiskFile, data: memoryview, offset: int) -> int:
            self.writes += 1
            return super().raw_write(file, data, offset)

    before, counting = disk.current, Counting()
    with disk.use(counting):
        assert disk.current is counting
        file = disk.current.open(tmp_path / "file", create=True)
    assert disk.current is before
    with file:
        file.write(b"x", 0)
    assert counting.writes == 1
