"""What is done with a copy of a whole database: bringing a backup back, to any time since, and verifying one.

Invariants
 1. A backup that is restored or verified is only read.
 2. A restored database has its name once it is whole and closed, and an id of its own.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gmdb.database.engine import Database
from gmdb.errors import InterfaceError, RestoreError, StorageError
from gmdb.format.redo import HEAD_SPACE, read_file_head
from gmdb.process.late_dataclasses import replace
from gmdb.storage import disk
from gmdb.storage.directory import (
    CONTROL_NAME,
    DirectoryLock,
    device_numbers,
    device_path,
    dropped_numbers,
    note_dropped,
)
from gmdb.storage.log.backup import Note, copy_file, new_directory, read_note, write_note
from gmdb.storage.log.log_files import ARCHIVE, redo_numbers, redo_path
from gmdb.storage.log.reports import Progress, Recovery, Step, finish
from gmdb.storage.store import renew_identity

if TYPE_CHECKING:
    from gmdb.verify import Report

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


# ---- restoring


def restore(
    backup: Any, target: Any, *, archive: Any = None, to: datetime | None = None, progress: Progress | None = None
) -> Recovery:
    """Make a database at ``target`` out of a backup, as it was at the backup's instant.

    With ``archive``, a folder that archived log went to, it is brought to the last commit found there, or to the last
    one up to the time ``to`` (without a zone: local time).  Returns what was replayed.
    """
    source, goal = Path(backup).absolute(), Path(target).absolute()
    note = read_note(source)
    folder = None if archive is None else _require_archive(Path(archive).absolute())
    stop_time = _stop_time(source, note, folder, to)
    with new_directory(goal) as directory:
        lock = DirectoryLock(source, exclusive=False)
        try:
            finish(_copy_backup(source, directory, folder, note), progress)
        finally:
            lock.release()
        database = Database(directory, progress=progress, stop_time=stop_time, archive=folder)
        database.close()
        recovery = database.recovery
        if recovery is None or recovery.end_lsn < note.end_lsn:
            raise RestoreError(f"the log that was found ends before the instant of {source}: it is of another history")
        renew_identity(directory)
    return recovery


def _require_archive(folder: Path) -> Path:
    if not folder.is_dir():
        raise RestoreError(f"{folder}, which should hold archived log, is not a directory")
    if not redo_numbers(folder) and not redo_numbers(folder / ARCHIVE):
        raise RestoreError(f"{folder} holds no archived log; the folder {ARCHIVE} of a database does")
    return folder


def _stop_time(source: Path, note: Note, archive: Path | None, to: datetime | None) -> int:
    if to is None:
        return 0
    if archive is None:
        raise InterfaceError("a backup can be brought to another time only with the archived log of its database")
    stop_time = (to.astimezone() - _EPOCH) // (datetime.resolution)
    if stop_time < note.time:
        raise RestoreError(
            f"{source} is of {local_time(note.time)}, later than {to}: choose an older backup, or a later time"
        )
    return stop_time


def local_time(microseconds: int) -> str:
    """A time as text, in the local zone."""
    return datetime.fromtimestamp(microseconds / 1e6).isoformat(" ", "microseconds")


def _copy_backup(source: Path, target: Path, archive: Path | None, note: Note) -> Generator[Step, None, None]:
    """Copy a backup's files; not the log that the archive has, for there it goes on where the backup's ends."""
    numbers = redo_numbers(source)
    if archive is not None:
        folders = (archive / ARCHIVE, archive)
        numbers = [n for n in numbers if not any(_has_redo(folder, n, note.database_id) for folder in folders)]
    names = [CONTROL_NAME, *(device_path(Path(), n).name for n in device_numbers(source))]
    names += [redo_path(Path(), n).name for n in numbers]
    sizes = {name: (source / name).stat().st_size for name in names}
    done = 0
    for name, size in sizes.items():
        copy_file(source / name, target / name, size, size, allocate=True)
        done += size
        yield "copying the backup", done, sum(sizes.values())
    for number in dropped_numbers(source):
        note_dropped(target, number)
    write_note(target, note)  # until it is opened it is the backup that it is a copy of


def _has_redo(folder: Path, number: int, database_id: str) -> bool:
    path = redo_path(folder, number)
    if not path.is_file():
        return False
    with disk.current.open(path) as file:
        head = read_file_head(file.read(HEAD_SPACE, 0))
    return head is not None and head["database_id"] == database_id and head["number"] == number


# ---- verifying


def verify_copy(database: Database) -> Generator[Step, None, Report]:
    """Verify an open database as it is at one instant: a backup of it, which is recovered, verified, and removed."""
    directory = database.store.directory
    with _scratch(directory) as folder:
        yield from database.backup(folder / directory.name)
        report = yield from _verify_recovered(folder / directory.name)
    return replace(report, directory=directory)


def verify_backup(directory: Path) -> Generator[Step, None, Report]:
    """Verify a backup, which stays as it is: opening it would make it a database of its own."""
    note = read_note(directory)
    with _scratch(directory) as folder:
        copy = folder / directory.name
        copy.mkdir()
        yield from _copy_backup(directory, copy, None, note)
        report = yield from _verify_recovered(copy)
    return replace(report, directory=directory)


def _verify_recovered(copy: Path) -> Generator[Step, None, Report]:
    from gmdb.verify import verify  # more compiled code, which few connections need

    yield "recovering the copy", 0, 1
    database = Database(copy)
    database.close()
    yield "verifying the copy", 0, 1
    return replace(verify(copy), recovery=database.recovery)


@contextmanager
def _scratch(directory: Path) -> Any:
    """A folder beside the database, on its file system; it is gone afterwards."""
    try:
        folder = Path(tempfile.mkdtemp(prefix=f".{directory.name}.verify-", dir=directory.parent))
    except OSError as error:
        raise StorageError(f"{directory.parent}: {error.strerror}; a copy to be verified needs a place") from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
