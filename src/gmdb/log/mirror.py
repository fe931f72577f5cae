"""Writing rounds of pages to the mirror file, and taking torn pages out of it.

Invariants
 1. A page goes to its place only after a sync of the mirror that holds it.
 2. The mirror is asked only about the checkpoint that was interrupted: older rounds hold older pages.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

import numpy as np

from gmdb.errors import StorageError
from gmdb.format.address import device_of, offset_of
from gmdb.format.mirror import MIRROR_SIZE, PAGES_AT, pack_mirror_head, read_mirror_head
from gmdb.format.page import PAGE_SIZES
from gmdb.kernel.checkpoint import page_is_whole
from gmdb.storage import disk
from gmdb.storage.directory import device_path

NAME = "gmdb.mirror"


class Mirror:
    """The mirror file of a database that is open for writing; its space is allocated."""

    def __init__(self, directory: Path, database_id: bytes) -> None:
        self._path = directory / NAME
        self._database_id = database_id
        self._file = disk.current.open(self._path, create=True)
        try:
            self._file.allocate(MIRROR_SIZE)
        except StorageError:
            self._file.close()
            raise

    def write(self, ckpt_id: int, ids: np.ndarray, pages: memoryview) -> None:
        """Keep a round of pages, whatever happens to them in their places."""
        self._file.write(pages, PAGES_AT)
        self._file.write(pack_mirror_head(self._database_id, ckpt_id, ids), 0)
        self._file.sync()

    def close(self) -> None:
        self._file.close()

    def remove(self) -> None:
        """The database is closed: nothing is being written."""
        self.close()
        with contextlib.suppress(StorageError):
            disk.current.remove(self._path)


def _is_whole(page: bytes, page_id: int, size: int) -> bool:
    if len(page) != size or size not in PAGE_SIZES:
        return False
    array = np.frombuffer(page, np.uint8)
    return bool(page_is_whole(array.ctypes.data, page_id, size))


def torn_pages(directory: Path, database_id: bytes, ckpt_id: int) -> dict[int, bytes]:
    """The pages that an interrupted checkpoint left torn in their places, as they were meant to be."""
    path = directory / NAME
    if not path.is_file():
        return {}
    with disk.current.open(path) as file:
        found = read_mirror_head(file.read(PAGES_AT, 0))
        if found is None or found[0]["database_id"] != database_id.hex() or found[0]["ckpt_id"] != ckpt_id:
            return {}
        rest = file.read(MIRROR_SIZE - PAGES_AT, PAGES_AT)
    torn: dict[int, bytes] = {}
    at = 0
    with contextlib.ExitStack() as opened:
        numbers = {device_of(page_id) for page_id, _ in found[1]}
        files = {n: opened.enter_context(disk.current.open(device_path(directory, n))) for n in numbers}
        for page_id, size in found[1]:
            copy, at = rest[at : at + size], at + size
            here = files[device_of(page_id)].read(size, offset_of(page_id) * size)
            if not _is_whole(here, page_id, size) and _is_whole(copy, page_id, size):
                torn[page_id] = copy
    return torn


def write_torn(directory: Path, torn: dict[int, bytes]) -> None:
    """Put torn pages right in their places, before the mirror is written again."""
    for number in {device_of(page_id) for page_id in torn}:
        with disk.current.open(device_path(directory, number), writable=True) as file:
            for page_id, page in torn.items():
                if device_of(page_id) == number:
                    file.write(page, offset_of(page_id) * len(page))
            file.sync()
