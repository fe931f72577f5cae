"""Keeping old pages for pins: whoever is about to overwrite a page in its file has it kept here first.

Invariants
 1. A page that a pin may need is overwritten only after its image was synced.
 2. A page is kept once for all pins that need it, whatever number of times it changes after the newest of them.
 3. If the disk gets full the oldest pin falls, and never a writer fails.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable

import numpy as np

from gmdb.errors import DiskFull
from gmdb.format.address import OFFSET_BITS, PAGES_PER_DEVICE
from gmdb.format.images import pack_batch_head
from gmdb.format.page import PAGE_HEAD
from gmdb.kernel.checkpoint import page_is_whole
from gmdb.storage import disk
from gmdb.storage.disk import DiskFile
from gmdb.storage.images import image_files, image_path, remove_unneeded
from gmdb.storage.pins import Pin
from gmdb.storage.store import PageStore

DISK_RESERVE = 64 << 20  # bytes of the disk that images leave to writers
BATCH_PAGES = 128
_CKPT_AT = PAGE_HEAD.offset("ckpt_id")
_logger = logging.getLogger("gmdb")


class Images:
    """The image files of an open database.  ``give_up_oldest`` lets the oldest pin fall, if there is one."""

    def __init__(self, store: PageStore) -> None:
        self._store = store
        self.lock = threading.RLock()  # of pins and their images
        self._file: DiskFile | None = None
        self._end = 0
        self._newest = -1  # the checkpoint of the newest pin; -1: there is none
        self._reach: dict[int, int] = {}  # how far each device is pinned
        self._kept: dict[int, np.ndarray] = {}  # by device, whether a page was kept or rewritten since the newest pin
        self.give_up_oldest: Callable[[], bool] = lambda: False

    # ---- what pins need

    def follow(self, pins: list[Pin], kept: np.ndarray | None = None) -> None:
        """Go by these pins from now on; pages ``kept`` are those whose images the newest needs no more."""
        with self.lock:
            newest = max((pin.ckpt_id for pin in pins), default=-1)
            if newest != self._newest:
                self._close_file()
                self._kept = {}
            self._newest = newest
            self._reach = {}
            for pin in pins:
                for device, hwm in pin.devices.items():
                    self._reach[device] = max(hwm, self._reach.get(device, 0))
            if kept is not None:
                self._note(kept)
            remove_unneeded(self._store.directory, pins)

    def _note(self, ids: np.ndarray) -> None:
        """The pages are done with, for the pins that there are."""
        devices, offsets = ids >> OFFSET_BITS, ids & (PAGES_PER_DEVICE - 1)
        for device in np.unique(devices).tolist():
            reach = self._reach.get(device, 0)
            flags = self._kept.setdefault(device, np.zeros(reach, np.bool_))
            mine = offsets[devices == device]
            flags[mine[mine < len(flags)]] = True

    def _wanted(self, ids: np.ndarray) -> np.ndarray:
        """Those of some pages that lie where a pin reaches, and were not kept yet."""
        devices, offsets = ids >> OFFSET_BITS, ids & (PAGES_PER_DEVICE - 1)
        wanted = np.zeros(len(ids), np.bool_)
        for device in np.unique(devices).tolist():
            mine = devices == device
            flags = self._kept.get(device)
            within = offsets[mine] < self._reach.get(device, 0)
            if flags is not None:
                within[within] = ~flags[offsets[mine][within]]
            wanted[mine] = within
        return ids[wanted]

    # ---- keeping

    def keep(self, ids: np.ndarray) -> None:
        """Keep what the files have of some pages, as far as pins need it, before they are overwritten."""
        if self._newest < 0:
            return
        with self.lock:
            ids = self._wanted(np.asarray(ids, np.int64))
            for first in range(0, len(ids), BATCH_PAGES):
                self._keep_some(ids[first : first + BATCH_PAGES])
            if len(ids) and self._file is not None:
                self._sync()
            self._note(ids)

    def _keep_some(self, ids: np.ndarray) -> None:
        pages, found, ckpt_ids = [], [], []
        for page_id in ids.tolist():
            page = self._store.devices[page_id >> OFFSET_BITS].read_from_file(page_id & (PAGES_PER_DEVICE - 1))
            ckpt_id = int.from_bytes(page[_CKPT_AT : _CKPT_AT + 4], "little")
            if ckpt_id <= self._newest and _is_whole(page, page_id):
                pages.append(page)
                found.append(page_id)
                ckpt_ids.append(ckpt_id)
        if pages:
            self.append(np.array(found), np.array(ckpt_ids), np.array([len(page) for page in pages]), b"".join(pages))

    def append(self, ids: np.ndarray, ckpt_ids: np.ndarray, sizes: np.ndarray, pages: bytes | memoryview) -> None:
        """Add a batch.  ``sync`` makes it last."""
        head = pack_batch_head(ids, ckpt_ids, sizes)
        while self._newest >= 0:
            try:
                self._require_space(len(head) + len(pages))
                file = self._open_file()
                file.write(pages, self._end + len(head))
                file.write(head, self._end)
            except DiskFull:
                if not self.give_up_oldest():
                    raise
                continue
            self._end += len(head) + len(pages)
            return

    def _require_space(self, size: int) -> None:
        found = os.statvfs(self._store.directory)
        if found.f_bavail * found.f_frsize < size + DISK_RESERVE:
            raise DiskFull(f"{self._store.directory}: little space is left on the disk")

    def _open_file(self) -> DiskFile:
        """The file that batches go to: a new one for each newest pin, and each time that the database is opened."""
        if self._file is None:
            directory = self._store.directory
            numbers = [number for ckpt_id, number, _ in image_files(directory) if ckpt_id == self._newest]
            path = image_path(directory, self._newest, max(numbers, default=-1) + 1)
            self._file = disk.current.open(path, create=True, exclusive=True)
            disk.current.sync_directory(path.parent)
            self._end = 0
        return self._file

    def _sync(self) -> None:
        while self._file is not None:
            try:
                self._file.sync()
                return
            except DiskFull:
                if not self.give_up_oldest():
                    raise

    def begin(self, pin: Pin, pins: list[Pin], ids: np.ndarray, sizes: np.ndarray, pages: memoryview) -> None:
        """Have the images of pages that were changed in memory when a pin was taken; it is the newest from now on."""
        with self.lock:
            self.follow([*pins, pin], ids if not pins else None)
            ckpt_ids = np.full(len(ids), pin.ckpt_id)
            ends = np.concatenate(([0], np.cumsum(sizes)))
            for first in range(0, len(ids), BATCH_PAGES):
                part = slice(first, min(first + BATCH_PAGES, len(ids)))
                data = pages[int(ends[part.start]) : int(ends[part.stop])]
                self.append(ids[part], ckpt_ids[part], sizes[part], data)
            if len(ids):
                self._sync()

    # ---- the end

    def size(self) -> int:
        """Bytes of all image files."""
        return sum(path.stat().st_size for _, _, path in image_files(self._store.directory))

    def _close_file(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def close(self) -> None:
        with self.lock:
            self._close_file()


def _is_whole(page: bytes, page_id: int) -> bool:
    array = np.frombuffer(page, np.uint8)
    return bool(page_is_whole(array.ctypes.data, page_id, len(page)))
