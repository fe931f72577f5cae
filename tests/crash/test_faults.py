"""The recording disk writes down what was done; the faulty disk does harm when it should, and only then."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import gmdb
from gmdb.errors import Corruption, DiskFull, StorageError
from gmdb.storage import disk
from tests.crash.faults import (
    Allocate,
    Create,
    FaultyDisk,
    Mark,
    RecordingDisk,
    Remove,
    Rename,
    Sync,
    SyncDirectory,
    Truncate,
    Write,
    marks,
)
from tests.integrity import assert_sound


class FaultyRecordingDisk(FaultyDisk, RecordingDisk):
    pass


# ---- recording


def test_the_journal_has_every_change_in_order(tmp_path: Path) -> None:
    recorder = RecordingDisk(tmp_path)
    with recorder.open(tmp_path / "a", create=True) as file:
        file.allocate(1024)
        file.write(b"hello", 7)
        file.read(5, 7)
        recorder.mark("written")
        file.sync()
        file.truncate(3)
        recorder.replace(tmp_path / "a", tmp_path / "b")
        file.write(b"x", 0)
    recorder.sync_directory(tmp_path)
    recorder.remove(tmp_path / "b")
    assert recorder.journal == [
        Create("a#1", "a"),
        Allocate("a#1", 1024),
        Write("a#1", 7, b"hello"),
        Mark("written"),
        Sync("a#1"),
        Truncate("a#1", 3),
        Rename("a#1", "a", "b"),
        Write("a#1", 0, b"x"),
        SyncDirectory("."),
        Remove("a#1", "b"),
    ]
    assert list(tmp_path.iterdir()) == []


def test_a_file_from_before_has_its_name_as_identity_whatever_it_is_called_later(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"old")
    recorder = RecordingDisk(tmp_path)
    recorder.replace(tmp_path / "a", tmp_path / "b")
    for name in "ab":
        with recorder.open(tmp_path / name, create=True) as file:
            file.write(b"new", 0)
    assert recorder.journal == [
        Rename("a", "a", "b"),
        Create("a#1", "a"),
        Write("a#1", 0, b"new"),
        Write("a", 0, b"new"),
    ]


def test_what_lies_elsewhere_is_done_and_not_written_down(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    recorder = RecordingDisk(tmp_path / "root")
    with recorder.open(tmp_path / "other", create=True) as file:
        file.write(b"x", 0)
        file.sync()
    recorder.sync_directory(tmp_path)
    recorder.replace(tmp_path / "other", tmp_path / "third")
    recorder.remove(tmp_path / "third")
    assert recorder.journal == []


def test_marks_are_found_up_to_a_moment(tmp_path: Path) -> None:
    recorder = RecordingDisk(tmp_path)
    for number in range(3):
        recorder.mark(number)
        recorder.sync_directory(tmp_path)
    assert [marks(recorder.journal, upto) for upto in (0, 1, 4, 6)] == [[], [0], [0, 1], [0, 1, 2]]


def test_the_engine_runs_on_a_recording_disk(path: Path) -> None:
    gmdb.connect(path).close()
    before = {name: (path / name).read_bytes() for name in ("device-0004", "gmdb.control")}
    recorder = RecordingDisk(path)
    with disk.use(recorder), gmdb.connect(path) as db:
        db.create_table("t", {"i": "INT"})
        db.commit()
        db.append("t", pa.table({"i": pa.array(range(1000), pa.int32())}))
    assert_sound(path)
    for name, data in before.items():
        image = bytearray(data.ljust((path / name).stat().st_size, b"\0"))
        for operation in recorder.journal:
            if isinstance(operation, Write) and operation.file.split("#")[0] == name:
                image[operation.offset : operation.offset + len(operation.data)] = operation.data
        assert image == (path / name).read_bytes()


# ---- failing


@pytest.mark.parametrize(("error", "kind"), [(errno.EIO, StorageError), (errno.ENOSPC, DiskFull)])
@pytest.mark.parametrize("request_name", ["write", "sync", "allocate", "truncate"])
def test_the_nth_request_fails_and_the_next_does_not(
    tmp_path: Path, request_name: str, error: int, kind: type[StorageError]
) -> None:
    faulty = FaultyDisk()
    faulty.fail(request_name, nth=2, error=error)
    with faulty.open(tmp_path / "file", create=True) as file:
        attempts: dict[str, Callable[[], None]] = {
            "write": lambda: file.write(b"x", 0),
            "sync": file.sync,
            "allocate": lambda: file.allocate(512),
            "truncate": lambda: file.truncate(512),
        }
        for name, attempt in attempts.items():
            attempt()
            if name == request_name:
                with pytest.raises(kind, match="file: ") as raised:
                    attempt()
                assert type(raised.value) is kind
            attempt()
    assert faulty.counts[request_name] == 3


def test_requests_of_directories_fail_too(tmp_path: Path) -> None:
    faulty = FaultyDisk()
    attempts: dict[str, Callable[[], None]] = {
        "open": lambda: faulty.open(tmp_path / "file", create=True).close(),
        "replace": lambda: faulty.replace(tmp_path / "file", tmp_path / "other"),
        "remove": lambda: faulty.remove(tmp_path / "other"),
        "sync_directory": lambda: faulty.sync_directory(tmp_path),
    }
    for name, attempt in attempts.items():
        faulty.fail(name, nth=1, error=errno.EIO)
        with pytest.raises(StorageError, match="Input/output error"):
            attempt()
        attempt()
    assert list(tmp_path.iterdir()) == []


def test_a_fault_that_is_there_for_good_stays_until_the_disk_is_healed(tmp_path: Path) -> None:
    faulty = FaultyDisk()
    faulty.fail("write", nth=2, error=errno.EIO, forever=True)
    with faulty.open(tmp_path / "file", create=True) as file:
        file.write(b"x", 0)
        for _ in range(3):
            with pytest.raises(StorageError):
                file.write(b"y", 0)
        faulty.heal()
        file.write(b"z", 1)
    assert (tmp_path / "file").read_bytes() == b"xz"


def test_only_requests_of_the_files_that_are_meant_count(tmp_path: Path) -> None:
    faulty = FaultyDisk()
    faulty.fail("write", nth=2, error=errno.EIO, files="log-*")
    with faulty.open(tmp_path / "device", create=True) as device, faulty.open(tmp_path / "log-1", create=True) as log:
        device.write(b"x", 0)
        log.write(b"x", 0)
        device.write(b"x", 0)
        with pytest.raises(StorageError, match="log-1: Input/output error"):
            log.write(b"x", 0)


def test_a_device_that_finds_no_space_is_not_left_behind(path: Path) -> None:
    with disk.use(FaultyDisk()) as faulty, gmdb.connect(path) as db:
        assert isinstance(faulty, FaultyDisk)
        before = sorted(path.iterdir())
        faulty.fail("allocate", nth=1, error=errno.ENOSPC)
        with pytest.raises(DiskFull, match="No space left on device; nothing was changed"):
            db.create_tablespace("other")
        assert sorted(path.iterdir()) == before
    assert_sound(path)


# ---- damaging


def test_a_flipped_bit_is_the_only_one_that_is_wrong(tmp_path: Path) -> None:
    faulty = FaultyDisk()
    faulty.flip(nth=2, bit=8 * 5 + 3)
    with faulty.open(tmp_path / "file", create=True) as file:
        for number in range(3):
            file.write(bytes(16), 16 * number)
    assert (tmp_path / "file").read_bytes() == bytes(16 + 5) + bytes([1 << 3]) + bytes(10 + 16)


def test_a_misdirected_write_lands_elsewhere_and_nobody_is_told(tmp_path: Path) -> None:
    faulty = FaultyDisk()
    faulty.misdirect(nth=1, to=8)
    with faulty.open(tmp_path / "file", create=True) as file:
        file.allocate(16)
        file.write(b"lost", 0)
        file.write(b"here", 4)
    assert (tmp_path / "file").read_bytes() == b"\0\0\0\0herelost\0\0\0\0"


def test_a_page_that_was_written_wrong_is_found_when_it_is_read(path: Path) -> None:
    rows = pa.table({"i": pa.array(range(5000), pa.int32())})
    with disk.use(FaultyDisk()) as faulty, gmdb.connect(path) as db:
        assert isinstance(faulty, FaultyDisk)
        db.create_table("t", {"i": "INT"})
        db.commit()
        faulty.flip(nth=1, bit=8 * 4000, files="device-0004")
        db.append("t", rows)
        db.commit()
    with gmdb.connect(path) as db, pytest.raises(Corruption):
        db.arrow("t").read_all()


def test_the_journal_of_a_faulty_disk_says_what_it_did_and_not_what_it_was_asked(tmp_path: Path) -> None:
    faulty = FaultyRecordingDisk(tmp_path)
    faulty.flip(nth=1, bit=0)
    faulty.misdirect(nth=2, to=10)
    faulty.fail("sync", nth=1, error=errno.EIO)
    with faulty.open(tmp_path / "file", create=True) as file:
        file.write(b"a", 0)
        file.write(b"b", 1)
        with pytest.raises(StorageError):
            file.sync()
    assert faulty.journal == [Create("file#1", "file"), Write("file#1", 0, b"`"), Write("file#1", 10, b"b")]
