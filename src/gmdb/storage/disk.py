"""The disk: all requests of the engine to the operating system's files, in one place.

The engine opens, renames and removes files through ``current``, and writes through the ``DiskFile`` it was given.
Each request ends in one ``raw_`` method of the disk that opened the file, so that a test can put a disk in its place
that records, fails or tears requests, while the engine runs unchanged.

Invariants
 1. Every failure of the operating system leaves as StorageError, or DiskFull, and names the path.
 2. A write that returns has handed over all its bytes; only ``sync`` makes them, and the file's length, last.
 3. That a file is there, or has a new name, lasts only after ``sync_directory``.
 4. A file stays with the disk that opened it, whatever is current later.
Not here: locks between processes (directory.py), mapping files into memory (device.py).
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gmdb.errors import DiskFull, StorageError
from gmdb.storage.memory import address_of, numbers

MODE = 0o644  # less what the user's umask takes away
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# A link could lead out of the database, and opening a pipe would wait for its other end.
_PLAIN = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def storage_error(path: Path, error: OSError) -> StorageError:
    """The error for a user, from one of the operating system's."""
    if error.errno in _FULL:
        return DiskFull(f"{path}: {error.strerror}; nothing was changed, free some space and try again")
    if error.errno == errno.ELOOP:
        return StorageError(f"{path} is a link; a database has none, for it could lead to any file")
    return StorageError(f"{path}: {error.strerror}")


def open_plain(path: Path, flags: int = os.O_RDONLY) -> int:
    """A descriptor of a file of a database, which is a regular one; OSError if it is a link, a pipe or a directory."""
    number = os.open(path, flags | _PLAIN, MODE)
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    return number


def read_plain(path: Path) -> bytes:
    """All bytes of such a file."""
    with os.fdopen(open_plain(path), "rb") as file:
        return file.read()


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise storage_error(path, error) from error


class DiskFile:
    """An open file.  ``number`` is its descriptor, for mapping it; negative once the file is closed."""

    def __init__(self, disk: Disk, path: Path, number: int, is_new: bool) -> None:
        self.path = path
        self.number = number
        self._disk = disk
        self._length_changed = is_new

    def size(self) -> int:
        with _naming(self.path):
            return self._disk.raw_size(self)

    def read(self, length: int, offset: int) -> bytes:
        """Some bytes; fewer than asked for only where the file ends."""
        with _naming(self.path):
            return self._disk.raw_read(self, length, offset)

    def read_into(self, buffer: Any, offset: int) -> int:
        """Fill a buffer of bytes; returns how many, fewer than it takes only where the file ends."""
        done = 0
        with _naming(self.path):
            while done < len(buffer):
                count = self._disk.raw_read_into(self, buffer[done:], offset + done)
                if count == 0:
                    break
                done += count
        return done

    def write(self, data: Any, offset: int) -> None:
        """Write all bytes of a buffer.  The system may take them in parts: a full disk shows at the second one."""
        whole, written = memoryview(data).cast("B"), 0
        with _naming(self.path):
            while written < len(whole):
                count = self._disk.raw_write(self, whole[written:], offset + written)
                if count <= 0:
                    raise StorageError(f"{self.path}: only {written} of {len(whole)} bytes were written")
                written += count

    def write_pieces(self, memory: memoryview, starts: list[int], size: int, offsets: list[int]) -> None:
        """Write pieces of ``size`` bytes that begin at ``starts`` in some memory, each to an offset of its own."""
        with _naming(self.path):
            done = self._disk.raw_write_pieces(self, memory, starts, size, offsets)
        for start, offset in zip(starts[done:], offsets[done:], strict=True):
            self.write(memory[start : start + size], offset)  # for what the system did not take: this reports why

    def sync(self) -> None:
        """Make all that was written last, and the length.

        Times need not last, so that a file of constant length is synced without a write of its inode.  A new length
        is data enough for POSIX, but file systems have got that wrong: it is synced with everything.
        """
        everything, self._length_changed = self._length_changed, False
        try:
            with _naming(self.path):
                self._disk.raw_sync(self, everything)
        except BaseException:
            self._length_changed = True
            raise

    def allocate(self, length: int) -> None:
        """Have blocks for the first ``length`` bytes, so that writing them cannot fail for want of space."""
        self._length_changed = True
        with _naming(self.path):
            self._disk.raw_allocate(self, length)

    def truncate(self, length: int) -> None:
        """Make the file this long: cut off, or filled up with zeros that have no blocks yet."""
        self._length_changed = True
        with _naming(self.path):
            self._disk.raw_truncate(self, length)

    def close(self) -> None:
        """Close the file; a second time does nothing."""
        if self.number >= 0:
            number, self.number = self.number, -1
            os.close(number)

    def __enter__(self) -> DiskFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Disk:
    """The operating system's files.  Below, what the engine calls; further below, what tests override."""

    def open(self, path: Path, writable: bool = False, create: bool = False, exclusive: bool = False) -> DiskFile:
        """Open a file.  ``create`` makes it if it is missing; with ``exclusive`` it must be missing."""
        flags = os.O_RDWR if writable or create else os.O_RDONLY
        with _naming(path):
            is_new = create and not path.exists()
            return DiskFile(self, path, self.raw_open(path, flags, create, exclusive), is_new)

    def replace(self, old: Path, new: Path) -> None:
        """Give a file a new name, at once, in place of the file that had it."""
        with _naming(old):
            self.raw_replace(old, new)

    def remove(self, path: Path) -> None:
        with _naming(path):
            self.raw_remove(path)

    def sync_directory(self, directory: Path) -> None:
        """Make the directory's list of files last."""
        with _naming(directory):
            self.raw_sync_directory(directory)

    # ---- one request each; they raise OSError

    def raw_open(self, path: Path, flags: int, create: bool, exclusive: bool) -> int:
        flags |= (os.O_CREAT if create else 0) | (os.O_EXCL if create and exclusive else 0)
        return open_plain(path, flags)

    def raw_size(self, file: DiskFile) -> int:
        return os.fstat(file.number).st_size

    def raw_read(self, file: DiskFile, length: int, offset: int) -> bytes:
        return os.pread(file.number, length, offset)

    def raw_read_into(self, file: DiskFile, buffer: Any, offset: int) -> int:
        """Returns how many bytes there were."""
        return os.preadv(file.number, [buffer], offset)

    def raw_write(self, file: DiskFile, data: memoryview, offset: int) -> int:
        """Returns how many bytes were taken."""
        return os.pwrite(file.number, data, offset)

    def raw_write_pieces(
        self, file: DiskFile, memory: memoryview, starts: list[int], size: int, offsets: list[int]
    ) -> int:
        """Returns how many pieces were taken, from the first on."""
        from gmdb.kernel.page.scatter import (
            write_pieces,  # brings compiled kernels, which readers of files can do without
        )

        base, to = address_of(memory), numbers(offsets)
        addresses = numbers(base + start for start in starts)
        return write_pieces(file.number, address_of(addresses), address_of(to), len(to), size)

    def raw_sync(self, file: DiskFile, everything: bool) -> None:
        """``everything``: the inode too, not only what reading the data back needs."""
        if everything:
            os.fsync(file.number)
        else:
            os.fdatasync(file.number)

    def raw_allocate(self, file: DiskFile, length: int) -> None:
        os.posix_fallocate(file.number, 0, length)

    def raw_truncate(self, file: DiskFile, length: int) -> None:
        os.ftruncate(file.number, length)

    def raw_replace(self, old: Path, new: Path) -> None:
        os.replace(old, new)

    def raw_remove(self, path: Path) -> None:
        os.unlink(path)

    def raw_sync_directory(self, directory: Path) -> None:
        number = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


current = Disk()


@contextmanager
def use(other: Disk) -> Iterator[Disk]:
    """Open files by another disk meanwhile, in any thread."""
    global current
    before, current = current, other
    try:
        yield other
    finally:
        current = before
