"""Disks for tests: one keeps a journal of all that was asked of it, one fails or damages what it is asked.

Both do the real work through ``super()``, so that a class of both records what a failing disk did:
``class Both(FaultyDisk, RecordingDisk)``.
Not here: what is left of a journal when power is cut (power_cut.py).
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from gmdb.storage.disk import Disk, DiskFile

# ---- the journal; ``file`` is a file's identity, which it keeps when it gets another name


@dataclass(frozen=True)
class Create:
    file: str
    name: str


@dataclass(frozen=True)
class Rename:
    file: str
    old: str
    new: str


@dataclass(frozen=True)
class Remove:
    file: str
    name: str


@dataclass(frozen=True)
class SyncDirectory:
    name: str


@dataclass(frozen=True)
class Write:
    file: str
    offset: int
    data: bytes


@dataclass(frozen=True)
class Allocate:
    """The file has at least this length, with blocks."""

    file: str
    length: int


@dataclass(frozen=True)
class Truncate:
    file: str
    length: int


@dataclass(frozen=True)
class Sync:
    file: str


@dataclass(frozen=True)
class Mark:
    """Something that the test wants to find again, as the moment in which a commit was acknowledged."""

    what: Any


Operation = Create | Rename | Remove | SyncDirectory | Write | Allocate | Truncate | Sync | Mark
Journal = list[Operation]


def marks(journal: Journal, upto: int) -> list[Any]:
    """What was marked within the first ``upto`` operations."""
    return [operation.what for operation in journal[:upto] if isinstance(operation, Mark)]


class RecordingDisk(Disk):
    """A disk that does what it is asked, and writes down what it did below ``root``, in order.

    A request and its line in the journal are one step for all threads; what failed is not written down.  A file that
    was there before has its name as identity, so that a copy of ``root`` from before has the files of the journal.
    """

    def __init__(self, root: Path) -> None:
        super().__init__()
        self.root = root.resolve()
        self.journal: Journal = []
        self._lock = threading.RLock()
        self._names: dict[str, str] = {}
        self._open_files: dict[int, str] = {}
        self._created = 0

    def mark(self, what: Any) -> None:
        with self._lock:
            self.journal.append(Mark(what))

    def _name(self, path: Path) -> str | None:
        """The path as it is written down: from the root on; None for what lies elsewhere."""
        whole = path.parent.resolve() / path.name
        return str(whole.relative_to(self.root)) if whole.is_relative_to(self.root) else None

    def _add(self, file: DiskFile, operation: Callable[..., Operation], *arguments: Any) -> None:
        identity = self._open_files.get(file.number)
        if identity is not None:
            self.journal.append(operation(identity, *arguments))

    def raw_open(self, path: Path, flags: int, create: bool, exclusive: bool) -> int:
        with self._lock:
            existed = path.exists()
            number = super().raw_open(path, flags, create, exclusive)
            self._open_files.pop(number, None)
            name = self._name(path)
            if name is None:
                return number
            if not existed:
                self._created += 1
                self._names[name] = f"{name}#{self._created}"
                self.journal.append(Create(self._names[name], name))
            self._open_files[number] = self._names.setdefault(name, name)
            return number

    def raw_write(self, file: DiskFile, data: memoryview, offset: int) -> int:
        with self._lock:
            taken = bytes(data)  # pages in memory may change while they are written: the disk and the journal agree
            count = super().raw_write(file, memoryview(taken), offset)
            self._add(file, Write, offset, taken[:count])
            return count

    def raw_write_pieces(self, *_: Any) -> int:
        return 0  # so that each piece is asked for on its own

    def raw_sync(self, file: DiskFile, everything: bool) -> None:
        with self._lock:
            super().raw_sync(file, everything)
            self._add(file, Sync)

    def raw_allocate(self, file: DiskFile, length: int) -> None:
        with self._lock:
            super().raw_allocate(file, length)
            self._add(file, Allocate, length)

    def raw_truncate(self, file: DiskFile, length: int) -> None:
        with self._lock:
            super().raw_truncate(file, length)
            self._add(file, Truncate, length)

    def raw_replace(self, old: Path, new: Path) -> None:
        with self._lock:
            super().raw_replace(old, new)
            old_name, new_name = self._name(old), self._name(new)
            if old_name is None and new_name is None:
                return
            assert old_name is not None, f"{old} came from outside of {self.root}"
            assert new_name is not None, f"{new} went out of {self.root}"
            identity = self._names.pop(old_name, old_name)
            self._names[new_name] = identity
            self.journal.append(Rename(identity, old_name, new_name))

    def raw_remove(self, path: Path) -> None:
        with self._lock:
            super().raw_remove(path)
            name = self._name(path)
            if name is not None:
                self.journal.append(Remove(self._names.pop(name, name), name))

    def raw_sync_directory(self, directory: Path) -> None:
        with self._lock:
            super().raw_sync_directory(directory)
            whole = directory.resolve()
            if whole.is_relative_to(self.root):
                self.journal.append(SyncDirectory(str(whole.relative_to(self.root))))


# ---- faults

REQUESTS = ("open", "read", "write", "sync", "allocate", "truncate", "replace", "remove", "sync_directory")
NO_DATA = memoryview(b"")


@dataclass
class _Fault:
    request: str
    left: int
    forever: bool
    files: str
    meet: Callable[[memoryview, int], tuple[memoryview, int]]

    def is_due(self, request: str, name: str) -> bool:
        if request != self.request or not fnmatch(name, self.files):
            return False
        self.left -= 1
        return self.left == 0 or (self.forever and self.left < 0)


class FaultyDisk(Disk):
    """A disk that fails, or damages what is written, when the test said so.

    ``nth`` counts the requests of one kind from the moment on in which the fault is set, the first is 1; ``files`` is
    a pattern that the file's name must match to count; ``forever`` repeats the fault at each request that follows.
    ``counts`` says how often each was asked, so that a test can let each of them fail in turn.
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.counts: Counter[str] = Counter()
        self._faults: list[_Fault] = []
        self._faults_lock = threading.Lock()

    def fail(self, request: str, nth: int, error: int, forever: bool = False, files: str = "*") -> None:
        """Refuse a request with an error of the operating system; nothing of it is done."""

        def refuse(_data: memoryview, _offset: int) -> tuple[memoryview, int]:
            raise OSError(error, os.strerror(error))

        assert request in REQUESTS, f"{request} is none of {', '.join(REQUESTS)}"
        self._set(_Fault(request, nth, forever, files, refuse))

    def flip(self, nth: int, bit: int, forever: bool = False, files: str = "*") -> None:
        """Write one bit wrong: number ``bit`` of the data, counted modulo its length."""

        def damage(data: memoryview, offset: int) -> tuple[memoryview, int]:
            damaged = bytearray(data)
            place = bit % (8 * len(damaged))
            damaged[place // 8] ^= 1 << place % 8
            return memoryview(damaged), offset

        self._set(_Fault("write", nth, forever, files, damage))

    def misdirect(self, nth: int, to: int, forever: bool = False, files: str = "*") -> None:
        """Write the data to another offset of the same file, and say that all is well."""
        self._set(_Fault("write", nth, forever, files, lambda data, _offset: (data, to)))

    def heal(self) -> None:
        """Forget all faults."""
        with self._faults_lock:
            self._faults.clear()

    def _set(self, fault: _Fault) -> None:
        with self._faults_lock:
            self._faults.append(fault)

    def _ask(self, request: str, path: Path, data: memoryview = NO_DATA, offset: int = 0) -> tuple[memoryview, int]:
        """Count a request and meet the faults that are due; answers what to write, and where."""
        with self._faults_lock:
            self.counts[request] += 1
            due = [fault for fault in self._faults if fault.is_due(request, path.name)]
        for fault in due:
            data, offset = fault.meet(data, offset)
        return data, offset

    def raw_open(self, path: Path, flags: int, create: bool, exclusive: bool) -> int:
        self._ask("open", path)
        return super().raw_open(path, flags, create, exclusive)

    def raw_read(self, file: DiskFile, length: int, offset: int) -> bytes:
        self._ask("read", file.path)
        return super().raw_read(file, length, offset)

    def raw_write(self, file: DiskFile, data: memoryview, offset: int) -> int:
        data, offset = self._ask("write", file.path, data, offset)
        return super().raw_write(file, data, offset)

    def raw_write_pieces(self, *_: Any) -> int:
        return 0  # so that each piece is asked for on its own

    def raw_sync(self, file: DiskFile, everything: bool) -> None:
        self._ask("sync", file.path)
        super().raw_sync(file, everything)

    def raw_allocate(self, file: DiskFile, length: int) -> None:
        self._ask("allocate", file.path)
        super().raw_allocate(file, length)

    def raw_truncate(self, file: DiskFile, length: int) -> None:
        self._ask("truncate", file.path)
        super().raw_truncate(file, length)

    def raw_replace(self, old: Path, new: Path) -> None:
        self._ask("replace", old)
        super().raw_replace(old, new)

    def raw_remove(self, path: Path) -> None:
        self._ask("remove", path)
        super().raw_remove(path)

    def raw_sync_directory(self, directory: Path) -> None:
        self._ask("sync_directory", directory)
        super().raw_sync_directory(directory)
