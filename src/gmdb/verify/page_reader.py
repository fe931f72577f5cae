"""The files that the checks read pages from.

A database with a damaged control file can still be read page by page, so the checks go on.
A subclass that takes some pages from elsewhere overrides ``page``, ``read_run`` and ``mapped``.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from gmdb.errors import NotADatabase, UnsupportedVersion
from gmdb.format.address import DEVICES, PAGES_PER_DEVICE, RowId
from gmdb.format.page import PAGE_HEAD
from gmdb.kernel.checks.index_checks import MAPPED_DEVICE
from gmdb.kernel.checks.page_checks import has_right_crc
from gmdb.storage.directory import LOCK_NAME, DirectoryLock, device_numbers, device_path, read_control, require_database
from gmdb.storage.disk import open_plain
from gmdb.tables.catalog.schema import TableDefinition
from gmdb.tables.files.database_files import DatabaseFiles
from gmdb.tables.files.device_file import DeviceFile


class VerifiedFiles(DatabaseFiles):
    """A database's files, in whatever state they are."""

    def __init__(self, path: Path) -> None:
        require_database(path)
        self.path = path
        self.control: dict[str, Any] = _control(path)
        self.devices: dict[int, DeviceFile] = {}
        self._runs: dict[int, int] = {}
        self._rows: dict[int, list[tuple[RowId, tuple[Any, ...]]]] = {}
        try:
            known = self.control.get("next_device", 0) or DEVICES
            for number in device_numbers(path):
                if number < known:  # others are litter: their tablespace was never finished
                    device = self.devices[number] = DeviceFile(device_path(path, number), number)
                    self._runs[number] = open_plain(device.path)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> VerifiedFiles:
        return self

    def close(self) -> None:
        super().close()
        for file in self._runs.values():
            os.close(file)
        self._runs = {}

    def sound_page(self, page_id: int) -> bytes:
        page = self.page(page_id)
        memory = np.frombuffer(page, np.uint8)
        if PAGE_HEAD.at(page).page_id == page_id and has_right_crc(memory.ctypes.data, len(page)):
            return page
        return super().sound_page(page_id)  # which says what is wrong

    def rows(self, table: TableDefinition) -> Iterator[tuple[RowId, tuple[Any, ...]]]:
        """The rows of a system table, cached, since several checks read them."""
        if table.entry_page not in self._rows:
            self._rows[table.entry_page] = list(super().rows(table))
        return iter(self._rows[table.entry_page])

    @property
    def is_settled(self) -> bool:
        """Whether the database was closed, so that no transaction has left anything behind.  A dump was not."""
        return not self.control.get("purpose", 0)

    def pages_in_use(self, device: int) -> int:
        """Pages below the high-water mark, as far as the file reaches."""
        file = self.devices[device]
        return min(file.hwm, file.file_pages, PAGES_PER_DEVICE)

    def mapped(self, device: int) -> np.ndarray:
        """The bytes of all pages in use; the operating system reads them on access."""
        size = self.pages_in_use(device) * self.devices[device].page_size
        if not size:
            return np.empty(0, np.uint8)
        return np.frombuffer(mmap.mmap(self._runs[device], size, prot=mmap.PROT_READ), np.uint8)

    def read_run(self, device: int, first: int, memory: memoryview) -> int:
        """Fill the memory with neighbouring pages; returns the number of bytes read.  Raises OSError."""
        done = 0
        at = first * self.devices[device].page_size
        while done < len(memory):
            read = os.preadv(self._runs[device], [memory[done:]], at + done)
            if read == 0:
                break
            done += read
        return done


def _control(path: Path) -> dict[str, Any]:
    """The control record; an empty one if both copies are damaged, which check_control finds too."""
    try:
        return read_control(path)
    except UnsupportedVersion:
        raise
    except NotADatabase:
        return {}


@contextmanager
def hold(directory: Path) -> Iterator[None]:
    """Keep owners out while the files are read.  A dump has no lock file, and no owner."""
    if not (directory / LOCK_NAME).exists():
        yield
        return
    lock = DirectoryLock(directory, exclusive=False)
    try:
        yield
    finally:
        lock.release()


# ---- The pages of all devices in memory, for checks that go from page to page.


class MappedPages:
    """Must be kept alive while ``address`` is in use.  ``verdicts``: by device, a byte for each page in use."""

    def __init__(self, files: VerifiedFiles, verdicts: Mapping[int, np.ndarray]) -> None:
        self._view = np.zeros(DEVICES, MAPPED_DEVICE)
        self._memory = []
        self.seen: dict[int, np.ndarray] = {}  # by device: which pages a tree has led to
        for device, device_verdicts in verdicts.items():
            pages, known = files.mapped(device), np.ascontiguousarray(device_verdicts)
            seen = self.seen[device] = np.zeros(len(known), np.uint8)
            self._memory.append((pages, known))
            size = files.devices[device].page_size
            addresses = (memory.ctypes.data for memory in (known, seen))
            self._view[device] = (pages.ctypes.data, size, len(known), *addresses)
        self.address: int = self._view.ctypes.data

    def forget_walks(self) -> None:
        """Forget which pages were reached, so that a walk through an index can begin again."""
        for seen in self.seen.values():
            seen.fill(0)
