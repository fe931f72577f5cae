"""A database is a directory: which files it has, and who may have it open.

Invariants
 1. A directory is a database if, and only if, it has a control file.
 2. One process at a time holds the lock file exclusively and may change the database; readers share it.
Not here: what is in the files (format/), mapping them (device.py).
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Any

from gmdb.errors import Corruption, DatabaseInUse, NotADatabase, StorageError
from gmdb.format.control import CONTROL_SIZE, COPY_DISTANCE, newest_control, pack_control
from gmdb.storage import disk

CONTROL_NAME = "gmdb.control"
LOCK_NAME = "gmdb.lock"
DEVICE_PREFIX = "device-"
DROPPED_PREFIX = "dropped-"  # an empty file says that a device is gone and not lost


def device_path(directory: Path, device: int) -> Path:
    return directory / f"{DEVICE_PREFIX}{device:04d}"


def device_numbers(directory: Path) -> list[int]:
    """The devices that the directory has files for."""
    return _numbers(directory, DEVICE_PREFIX)


def dropped_numbers(directory: Path) -> list[int]:
    """The devices whose tablespaces were dropped."""
    return _numbers(directory, DROPPED_PREFIX)


def _numbers(directory: Path, prefix: str) -> list[int]:
    suffixes = (path.name.removeprefix(prefix) for path in directory.glob(f"{prefix}*"))
    return sorted(int(suffix) for suffix in suffixes if suffix.isdecimal())


def note_dropped(directory: Path, device: int) -> None:
    """Note that a device was dropped."""
    disk.current.open(directory / f"{DROPPED_PREFIX}{device:04d}", create=True).close()
    sync_directory(directory)


def make_beside(target: Path) -> Path:
    """A new folder beside ``target``, under a name of its own: it gets the target's name once it is whole.

    Its mode is as the user's umask says, and never lets others write.
    """
    unfinished = target.parent / f".{target.name}.new-{os.urandom(8).hex()}"
    os.mkdir(unfinished, 0o755)
    return unfinished


def is_database(directory: Path) -> bool:
    try:
        return (directory / CONTROL_NAME).is_file()
    except OSError as error:  # a directory that this user may not look into
        raise disk.storage_error(directory, error) from error


def require_database(directory: Path) -> None:
    """Raise NotADatabase, saying what the path is instead."""
    if is_database(directory):
        return
    if directory.is_file():
        raise NotADatabase(f"{directory} is a file; a gmdb database is a directory")
    if directory.is_dir():
        raise NotADatabase(f"{directory} is a directory without {CONTROL_NAME}, so it is not a gmdb database")
    raise NotADatabase(f"{directory} does not exist")


def refuse_links(directory: Path) -> None:
    """Raise StorageError if anything in the directory is a link: files would be written elsewhere."""
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.is_symlink():
                raise StorageError(f"{entry.path} is a link; a database has none, for it could lead to any file")


def read_control(directory: Path) -> dict[str, Any]:
    require_database(directory)
    try:
        with disk.current.open(directory / CONTROL_NAME) as file:
            return newest_control(file.read(CONTROL_SIZE, 0))
    except NotADatabase as error:
        raise NotADatabase(f"{directory / CONTROL_NAME}: {error}") from None


def write_control(directory: Path, fields: dict[str, Any]) -> dict[str, Any]:
    """Write the copy that is not the newest, and make it last; returns the fields with their new sequence."""
    fields = {**fields, "sequence": fields.get("sequence", 0) + 1}
    with disk.current.open(directory / CONTROL_NAME, create=True) as file:
        if file.size() < CONTROL_SIZE:
            file.truncate(CONTROL_SIZE)
        file.write(pack_control(**fields), COPY_DISTANCE * (fields["sequence"] % 2))
        file.sync()
    return fields


def sync_directory(directory: Path) -> None:
    """Make the directory's list of files last."""
    disk.current.sync_directory(directory)


def check_devices_present(directory: Path, required: tuple[int, ...]) -> None:
    present = device_numbers(directory)
    for device in required:
        if device not in present:
            raise Corruption(f"{device_path(directory, device)} is missing; restore it from a backup")


class DirectoryLock:
    """A lock on a database's directory, until ``release``; exclusive for owners, shared for readers."""

    def __init__(self, directory: Path, exclusive: bool) -> None:
        flags = os.O_RDWR | os.O_CREAT if exclusive else os.O_RDONLY
        try:
            self._file = disk.open_plain(directory / LOCK_NAME, flags)
        except OSError as error:
            raise disk.storage_error(directory / LOCK_NAME, error) from error
        try:
            fcntl.flock(self._file, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(self._file, 20, 0).decode("ascii", "replace").strip("\0\n ")
            os.close(self._file)
            who = f"process {owner}" if exclusive is False or owner else "another process"
            raise DatabaseInUse(f"{directory} is open in {who}; close it there first") from None
        if exclusive:
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
