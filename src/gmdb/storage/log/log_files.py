"""The redo log's files: bytes by their LSN.

Invariants
 1. Every file of the log is allocated whole before a byte of the stream goes there: writing cannot fail for want of
    space.
 2. The log goes on in a new file each time that the database is opened.
 3. A file that is held (``hold``) is neither removed nor moved.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from gmdb.errors import Corruption, RestoreError, StorageError
from gmdb.format.redo import HEAD_SPACE, REDO_GROUP, pack_file_head, payload, read_file_head
from gmdb.process.hooks import Hook
from gmdb.storage import disk
from gmdb.storage.disk import DiskFile

PREFIX = "redo-"
ARCHIVE = "archive"
NOWHERE = 1 << 62  # an LSN behind all there will be


def redo_path(directory: Path, number: int) -> Path:
    return directory / f"{PREFIX}{number:010d}"


def redo_numbers(directory: Path) -> list[int]:
    """The numbers of the redo files that the directory has."""
    suffixes = (path.name.removeprefix(PREFIX) for path in directory.glob(f"{PREFIX}*"))
    return sorted(int(suffix) for suffix in suffixes if suffix.isdecimal())


def open_if_there(path: Path) -> DiskFile | None:
    """A file; None if it does not exist, or not any more: the owner of the database may move or remove it."""
    try:
        return disk.current.open(path)
    except StorageError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return None
        raise


class RedoFiles:
    """The files that the log is written to, the newest of them open."""

    def __init__(self, directory: Path, database_id: bytes, file_size: int, archiving: bool) -> None:
        self._directory = directory
        self._database_id = database_id
        self._file_size = file_size
        self.archiving = archiving
        self._open: dict[int, DiskFile] = {}
        self._unsynced: set[int] = set()
        self._held: list[int] = []  # LSNs from which on the files are held
        self._keeping = threading.Lock()  # who holds files, and which of them go
        self.needed = Hook(_nobody)  # from where on readers need the log that ends at an LSN

    @property
    def file_size(self) -> int:
        return self._file_size

    @property
    def payload(self) -> int:
        return payload(self._file_size)

    def start(self, number: int, follows: int) -> int:
        """Begin a new file after the log ended at ``follows``; returns the LSN at which it starts."""
        for litter in redo_numbers(self._directory):
            if litter >= number:
                disk.current.remove(redo_path(self._directory, litter))
        self._create(number, follows)
        return number * self.payload

    def _create(self, number: int, follows: int) -> None:
        path = redo_path(self._directory, number)
        file = disk.current.open(path, create=True, exclusive=True)
        try:
            file.allocate(self._file_size)
            file.write(pack_file_head(self._database_id, number, follows, self._file_size), 0)
            file.sync()
            disk.current.sync_directory(self._directory)
        except BaseException:
            file.close()
            with contextlib.suppress(StorageError):  # the user must see the first error
                disk.current.remove(path)
            raise
        self._open[number] = file

    def room(self, lsn: int) -> int:
        """Bytes that can be written from ``lsn`` on without making a file."""
        return (max(self._open) + 1) * self.payload - lsn

    def extend(self) -> None:
        """Make one more file, for later."""
        number = max(self._open) + 1
        self._create(number, number * self.payload)

    def write(self, lsn: int, data: memoryview) -> None:
        """Write bytes of the stream, which goes on in the next file where one ends."""
        while len(data):
            number, offset = divmod(lsn, self.payload)
            part = data[: self.payload - offset]
            if number not in self._open:
                self.extend()
            self._open[number].write(part, HEAD_SPACE + offset)
            self._unsynced.add(number)
            lsn, data = lsn + len(part), data[len(part) :]

    def sync(self, writing: threading.RLock) -> None:
        """Make all that was written last; others may hold ``writing``, and write, meanwhile."""
        with writing:
            numbers, self._unsynced = self._unsynced, set()
        try:
            for number in sorted(numbers):
                self._open[number].sync()
        except BaseException:  # an interrupt, perhaps: then the next one syncs them
            with writing:
                self._unsynced |= numbers
            raise

    # ---- files that are not needed any more

    def hold(self, lsn: int) -> None:
        """Hold the files from ``lsn`` on, until ``release``."""
        with self._keeping:
            self._held.append(lsn)

    def release(self, lsn: int) -> None:
        with self._keeping:
            self._held.remove(lsn)

    def oldest_held(self) -> int:
        """The LSN from which on the log is held, whatever checkpoints need."""
        with self._keeping:
            return min(self._held, default=NOWHERE)

    def forget(self, lsn: int, end: int) -> None:
        """Remove the files, or move them to the archive, that have nothing from ``lsn`` on; ``end``: of the log."""
        needed = self.needed(end)
        with self._keeping:
            first = min([lsn, *self._held, *([] if needed is None else [needed])]) // self.payload
            for number in redo_numbers(self._directory):
                if number < first:
                    self._retire(number)

    def forget_all(self, end: int) -> None:
        """The log ended at ``end`` and pages need nothing of it: remove its files, those made for later too."""
        needed = self.needed(end)
        with self._keeping:
            for number in redo_numbers(self._directory):
                if needed is None or not needed // self.payload <= number <= end // self.payload:
                    self._retire(number, worth_keeping=number * self.payload < end)

    def _retire(self, number: int, worth_keeping: bool = True) -> None:
        file = self._open.pop(number, None)
        is_archived = self.archiving and worth_keeping
        if file is not None:
            if is_archived:
                file.sync()  # under sync="off" it was not synced, but the archive must be whole
            file.close()
        path = redo_path(self._directory, number)
        if is_archived:
            archive = self._directory / ARCHIVE
            archive.mkdir(exist_ok=True)
            disk.current.replace(path, archive / path.name)
            disk.current.sync_directory(archive)
            disk.current.sync_directory(self._directory)
        else:
            disk.current.remove(path)

    def close(self) -> None:
        for file in self._open.values():
            file.close()
        self._open = {}


def _nobody(_: int, /) -> int | None:
    """No reader needs the log."""


class LogFile(NamedTuple):
    """A file of the log, and the LSN at which the log before it ended."""

    path: Path
    follows: int


class RedoReader:
    """The log's bytes from an LSN on, as long as one file leads to the next."""

    def __init__(self, folders: list[Path], database_id: bytes, file_size: int) -> None:
        self._folders = folders
        self._database_id = database_id.hex()
        self._file_size = file_size

    def _find(self, number: int) -> LogFile | None:
        """A file of this log whose head is whole."""
        for folder in self._folders:
            path = redo_path(folder, number)
            file = open_if_there(path)
            if file is None:
                continue
            with file:
                head = read_file_head(file.read(HEAD_SPACE, 0))
            if head and head["database_id"] == self._database_id and head["number"] == number:
                return LogFile(path, head["follows"])
        return None

    def has(self, lsn: int) -> bool:
        """Whether the log is there at ``lsn``, or ends there."""
        number, offset = divmod(lsn, payload(self._file_size))
        return self._find(number) is not None or (offset == 0 and number > 0 and self._find(number - 1) is not None)

    def require(self, lsn: int) -> None:
        """Raise Corruption if the file that holds ``lsn`` is not there: without it nothing can be replayed."""
        number = lsn // payload(self._file_size)
        if self._find(number) is None:
            path = redo_path(self._folders[0], number)
            raise Corruption(f"{path} is missing or damaged, and the database was not closed; restore it from a backup")

    def read(self, lsn: int, length: int, start: int) -> bytes:
        """Up to ``length`` bytes from ``lsn`` on, of one file; none where the log does not go on.

        ``start`` is where reading began: there the file need not follow the one before.
        """
        number, offset = divmod(lsn, payload(self._file_size))
        while True:
            log_file = self._find(number)
            if log_file is None or (offset == 0 and lsn != start and log_file.follows != lsn):
                return b""
            file = open_if_there(log_file.path)
            if file is not None:  # else it was moved to the archive meanwhile, or removed
                with file:
                    return file.read(min(length, payload(self._file_size) - offset), HEAD_SPACE + offset)

    def after_end(self, lsn: int) -> int | None:
        """Where the log goes on that ended at ``lsn`` in the middle of a file: the database was reopened then."""
        number = lsn // payload(self._file_size) + 1
        log_file = self._find(number)
        return number * payload(self._file_size) if log_file is not None and log_file.follows == lsn else None

    def is_used(self, number: int) -> bool:
        """Whether a file is there that log was written to."""
        log_file = self._find(number)
        file = open_if_there(log_file.path) if log_file is not None else None
        if file is None:
            return False
        with file:
            return any(file.read(REDO_GROUP.size, HEAD_SPACE))

    def is_left_behind(self, lsn: int) -> bool:
        """Whether the log goes on from before ``lsn``, as after a recovery up to an earlier time."""
        log_file = self._find(lsn // payload(self._file_size) + 1)
        return log_file is not None and log_file.follows < lsn

    def end_of(self, number: int) -> int:
        """The LSN before which all groups of a file begin: the next file's head says where the log left it."""
        log_file = self._find(number + 1)
        return (number + 1) * payload(self._file_size) if log_file is None else log_file.follows

    def refuse_a_gap(self, lsn: int) -> None:
        """The log seems to end at ``lsn``.  Raise RestoreError if there is more of it further on: files are missing."""
        size = payload(self._file_size)
        for number in sorted({n for folder in self._folders for n in redo_numbers(folder)}):
            log_file = self._find(number) if number * size > lsn else None
            if log_file is None:
                continue
            if self.is_used(number):
                missing = redo_path(log_file.path.parent, log_file.follows // size)
                raise RestoreError(
                    f"the log is missing between LSN {lsn} and {log_file.path}, which follows LSN {log_file.follows}: "
                    f"{missing.name}, or a file before it, is not in {log_file.path.parent}, or is damaged"
                )

    def behind(self, lsn: int, length: int) -> Iterator[tuple[int, bytes]]:
        """All bytes that the files have from ``lsn`` on, with their LSNs, also where no file's head leads there."""
        size = payload(self._file_size)
        for path, number in [(redo_path(folder, n), n) for folder in self._folders for n in redo_numbers(folder)]:
            start = max(number * size, lsn)
            with disk.current.open(path) as file:
                head = read_file_head(file.read(HEAD_SPACE, 0))
                if head and head["database_id"] != self._database_id:
                    continue
                while start < (number + 1) * size:
                    data = file.read(min(length, (number + 1) * size - start), HEAD_SPACE + start - number * size)
                    if not data:
                        break
                    yield start, data
                    start += len(data)

    def length_from(self, lsn: int) -> int:
        """About how many bytes there may be from ``lsn`` on."""
        numbers = {n for folder in self._folders for n in redo_numbers(folder)}
        return (max(numbers, default=0) + 1) * payload(self._file_size) - lsn

    def number_of(self, lsn: int) -> int:
        """Which file holds the LSN."""
        return lsn // payload(self._file_size)

    def describe(self, lsn: int) -> str:
        number, offset = divmod(lsn, payload(self._file_size))
        return f"{redo_path(self._folders[0], number).name}, offset {HEAD_SPACE + offset}"
