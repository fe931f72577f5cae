"""Backups: a copy of a database at work, consistent to one instant, while writers and checkpoints go on.

Device files are copied page by page, at different moments, so the copy's pages are of different ages.  With them goes
the log, from where it counted when copying began up to one instant at the end.  Opening the copy replays it, as after
a crash: pages that are older than the instant catch up, and replaying what a page has seen already changes nothing.

Invariants
 1. Every page of the copy is whole, and has seen every change before the LSN at which the copied log begins.
 2. No page of the copy is newer than the LSN at which the copied log ends.
 3. The log that is being copied is held meanwhile, so that no checkpoint takes it away.
 4. A backup has its name only once all of it is on disk.
 5. A backup that was opened for writing is not a backup any more: its note goes before anything is changed.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

from gmdb.errors import Corruption, NotABackup, StorageError, TargetExists
from gmdb.format.address import page_id_of
from gmdb.format.redo import HEAD_SPACE
from gmdb.kernel.page.checkpoint import page_is_whole, seal_run
from gmdb.kernel.runtime.status import DONE
from gmdb.kernel.undo import check_page
from gmdb.process.late_dataclasses import asdict, dataclass
from gmdb.process.late_imports import numpy as np
from gmdb.storage import disk
from gmdb.storage.device import Device
from gmdb.storage.directory import (
    LOCK_NAME,
    device_path,
    dropped_numbers,
    make_beside,
    note_dropped,
    require_database,
    sync_directory,
    write_control,
)
from gmdb.storage.disk import DiskFile, read_plain
from gmdb.storage.documents import make, parse
from gmdb.storage.log.log_files import redo_path
from gmdb.storage.log.redo_buffer import RedoLog
from gmdb.storage.log.reports import BackupReport, Step
from gmdb.storage.store import PageStore

NOTE_NAME = "gmdb.backup"
CHUNK = 1 << 20
PATIENCE = 10.0  # seconds for a bulk load to write the pages whose places it has taken
INTERVAL = 0.005


# ---- the note that makes a directory a backup


@dataclass(frozen=True)
class Note:
    """A backup's description of itself."""

    database_id: str
    time: int  # its instant: microseconds since 1970
    start_lsn: int
    end_lsn: int


def write_note(directory: Path, note: Note) -> None:
    with disk.current.open(directory / NOTE_NAME, create=True, exclusive=True) as file:
        file.write(json.dumps(asdict(note)).encode(), 0)
        file.sync()


def is_backup(directory: Path) -> bool:
    return (directory / NOTE_NAME).is_file()


def read_note(directory: Path) -> Note:
    """A backup's note.  Raises NotADatabase or NotABackup."""
    require_database(directory)
    if not is_backup(directory):
        raise NotABackup(f"{directory} is not a backup, or was opened for writing since; gmdb backup makes one")
    try:
        return make(Note, parse(read_plain(directory / NOTE_NAME)))
    except (OSError, ValueError) as error:
        raise NotABackup(f"{directory / NOTE_NAME} cannot be read: {error}") from error


def forget_note(directory: Path) -> bool:
    """The directory is about to be changed, as a database of its own; returns whether it was a backup."""
    if not is_backup(directory):
        return False
    disk.current.remove(directory / NOTE_NAME)
    sync_directory(directory)
    return True


# ---- copies of whole databases


@contextmanager
def new_directory(target: Path) -> Iterator[Path]:
    """A directory to fill, which gets its name if nothing goes wrong; else nothing is left of it."""
    import shutil

    if os.path.lexists(target):
        raise TargetExists(f"{target} is there already; choose another path, or remove it first")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        unfinished = make_beside(target)
    except OSError as error:
        raise StorageError(f"{target}: {error.strerror}") from error
    try:
        yield unfinished
        sync_directory(unfinished)
        disk.current.replace(unfinished, target)
        sync_directory(target.parent)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def copy_file(source: Path, target: Path, length: int, size: int, allocate: bool) -> None:
    """Copy the first ``length`` bytes of a file; the rest of its ``size`` bytes are zeros."""
    with disk.current.open(source) as old, disk.current.open(target, create=True, exclusive=True) as new:
        if allocate:
            new.allocate(size)
        for at in range(0, length, CHUNK):
            new.write(old.read(min(CHUNK, length - at), at), at)
        if not allocate:
            new.truncate(size)
        new.sync()


class Backup:
    """One backup of an open store."""

    def __init__(self, store: PageStore, redo: RedoLog, target: Path) -> None:
        self._store = store
        self._redo = redo
        self._target = target
        self._done = self._total = 0

    def steps(self) -> Generator[Step, None, BackupReport]:
        """Make it, step by step, so that the caller can report progress, or give it up."""
        files = self._redo.files
        files.hold(0)  # so that the file which the control record names is still there when it is held
        try:
            start = self._store.control["redo_lsn"]
            files.hold(start)
        finally:
            files.release(0)
        try:
            with new_directory(self._target) as unfinished:
                return (yield from self._make(unfinished, start))
        finally:
            files.release(start)
            if self._store.devices:
                files.forget(self._store.control["redo_lsn"], self._redo.end)

    def _make(self, unfinished: Path, start: int) -> Generator[Step, None, BackupReport]:
        began = time.monotonic()
        copied: set[int] = set()
        while True:
            for device in self._devices_but(copied):
                for size in self._copy_pages(device, unfinished):
                    self._done += size
                    yield "copying pages", self._done, max(self._total, self._done)
                copied.add(device.number)
            with self._store.guard:
                self._store.require_open()
                if copied.issuperset(self._store.devices):  # else a tablespace was made meanwhile
                    end, now = self._redo.end, time.time_ns() // 1000
                    fields = self._store.control_fields()
                    sizes = {n: d.head.page_count * d.page_size for n, d in self._store.devices.items()}
                    break
        self._redo.write_through(end)
        for number, size in sizes.items():
            with disk.current.open(device_path(unfinished, number), writable=True) as file:
                file.allocate(size)  # as long as it is at the end: so it can be opened for reading only, too
                file.sync()
        yield "copying redo", 0, end - start
        self._copy_redo(unfinished, start, end)
        fields |= {"redo_lsn": start, "clean": 0, "archiving": 0, "redo_file_size": self._redo.files.file_size}
        for number in dropped_numbers(self._store.directory):
            note_dropped(unfinished, number)
        write_control(unfinished, write_control(unfinished, fields))  # both copies
        disk.current.open(unfinished / LOCK_NAME, create=True).close()
        write_note(unfinished, Note(self._store.control["database_id"], now, start, end))
        return BackupReport(str(self._target), self._done, end - start, now, time.monotonic() - began)

    # ---- pages

    def _devices_but(self, copied: set[int]) -> list[Device]:
        with self._store.guard:
            self._store.require_open()
            devices = [device for number, device in sorted(self._store.devices.items()) if number not in copied]
            self._total += sum(device.head.hwm * device.page_size for device in devices)
            return devices

    def _copy_pages(self, device: Device, unfinished: Path) -> Iterator[int]:
        """Copy what lies below the high-water mark.  Pages that are taken later are in the log as a whole."""
        size = device.page_size
        with self._store.guard:
            self._store.require_open()
            hwm = device.head.hwm
        path = device_path(unfinished, device.number)
        with disk.current.open(device.path) as source, disk.current.open(path, create=True, exclusive=True) as copy:
            for first in range(0, hwm, CHUNK // size):
                count = min(CHUNK // size, hwm - first)
                data = bytearray(source.read(count * size, first * size).ljust(count * size, b"\0"))
                pages = np.frombuffer(data, np.uint8)
                for n in range(count):
                    if not page_is_whole(pages.ctypes.data + n * size, page_id_of(device.number, first + n), size):
                        data[n * size : (n + 1) * size] = self._whole_page(device, source, first + n)
                copy.write(data, first * size)
                yield len(data)
            copy.sync()

    def _whole_page(self, device: Device, source: DiskFile, offset: int) -> bytes:
        """A page that was not whole: a checkpoint or a load was writing it, or it has never been written yet."""
        page_id, size = page_id_of(device.number, offset), device.page_size
        deadline = time.monotonic() + PATIENCE
        while True:
            page = np.frombuffer(bytearray(source.read(size, offset * size).ljust(size, b"\0")), np.uint8)
            if page_is_whole(page.ctypes.data, page_id, size):
                return page.tobytes()
            with self._store.guard:
                self._store.require_open()
                if offset >= device.head.hwm:
                    return bytes(size)
                if check_page(self._store.area, page_id) == DONE:
                    page[:] = np.frombuffer(device.memory(offset), np.uint8)
                    seal_run(page.ctypes.data, 1, size, self._store.control["ckpt_id"] + 1)
                    return page.tobytes()
                if not self._store.loads_run() or time.monotonic() > deadline:
                    damage = self._store.damage_of(page_id)
                    raise Corruption(f"{device.path}: {damage}; no backup was made", page_id, damage.offset)
            time.sleep(INTERVAL)  # a load has taken the place, and is about to write the page

    # ---- log

    def _copy_redo(self, unfinished: Path, start: int, end: int) -> None:
        """Copy the log up to the instant; what comes after it is not part of the backup."""
        payload, file_size = self._redo.files.payload, self._redo.files.file_size
        for number in range(start // payload, max(end - 1, start) // payload + 1):
            length = HEAD_SPACE + min(end - number * payload, payload)
            source = redo_path(self._store.directory, number)
            copy_file(source, redo_path(unfinished, number), length, file_size, allocate=False)
