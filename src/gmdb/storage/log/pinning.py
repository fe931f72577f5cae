"""Pinning instants of a database that is in use, for readers in other processes, and releasing them.

Taking a pin: if much has changed, a checkpoint first.  Then, while the guard is held, the pages that are changed in
memory are copied there, and the locks of transactions under way are noted; nothing is written meanwhile.  From then on
files and copies hold the instant: the copies become its first images, and before any page is overwritten in its file,
the page is kept.  Writers, garbage collection and checkpoints go on as ever.

Invariants
 1. Checkpoints after the pin have higher numbers than it, and those before it lower ones, whatever crashes.
 2. A pin exists once its file does; by then all of its images are on disk, and so is the log up to it.
 3. While there are pins no device file gets shorter, and none is removed.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from gmdb.errors import DiskFull, StorageError
from gmdb.format.address import OFFSET_BITS, PAGES_PER_DEVICE
from gmdb.format.images import pack_batch_head
from gmdb.format.page import PAGE_HEAD, PAGE_TAIL
from gmdb.kernel.page.area import STATE
from gmdb.kernel.page.checkpoint import copy_changed, page_is_whole, seal_copies
from gmdb.process.hooks import Hook
from gmdb.process.late_dataclasses import dataclass
from gmdb.process.late_imports import numpy as np
from gmdb.storage import disk
from gmdb.storage.disk import DiskFile
from gmdb.storage.documents import Holder
from gmdb.storage.log.checkpoint import Checkpoints
from gmdb.storage.log.redo_buffer import RedoLog
from gmdb.storage.log.shrink import Shrinking
from gmdb.storage.memory import address_of, zeros
from gmdb.storage.pins import (
    KeptPage,
    Pin,
    expires_at,
    image_files,
    image_path,
    make_folder,
    new_name,
    note_given_up,
    pin_path,
    read_images,
    read_pin,
    read_pins,
    remove_pin,
    require_lease,
    write_pin,
)
from gmdb.storage.store import PageStore

# ---- Keeping old pages for pins: before a page is overwritten in its file, its old version is kept here.
#
# Invariants
#  1. A page that a pin may need is overwritten only after its image was synced.
#  2. A version of a page is kept once, for all pins that need it, and only while one does.  A pin needs the newest
#     version that is not newer than it, be it an image or what the file has.
#  3. What pins still need of a file is in another one, and synced, before the file is removed.
#  4. If the disk gets full, or images would take more than their share, the oldest pin is given up; no writer fails.

DISK_RESERVE = 64 << 20  # bytes of the disk that images leave to writers
# Images may take SHARE times the bytes of the database, or SHARE_MIN.  The newest pin stays all the same: it needs no
# more than the database has, and of every file at least half is needed.
SHARE, SHARE_MIN = 4, 1 << 30
BATCH_PAGES = 128
_CKPT_AT = PAGE_HEAD.offset("ckpt_id")
_logger = logging.getLogger("gmdb")


def _nothing_to_give_up(_: str, /) -> bool:
    return False


class Images:
    """The image files of an open database.  ``give_up_oldest`` gives up the oldest pin, if any, and logs why."""

    def __init__(self, store: PageStore) -> None:
        self._store = store
        self.lock = threading.RLock()  # of pins and their images
        self._file: DiskFile | None = None
        self._end = 0
        self._newest = -1  # the checkpoint of the newest pin; -1: there is none
        self._reach: dict[int, int] = {}  # how far each device is pinned
        self._kept: dict[int, np.ndarray] = {}  # by device, whether a page was kept or rewritten since the newest pin
        self._pins: list[int] = []  # the checkpoints of all pins, in order
        self._beginning: Pin | None = None  # a pin that is being taken, and is not listed yet
        self._images: dict[int, list[KeptPage]] = defaultdict(list)  # by page id, the oldest first
        self._sizes: dict[Path, int] = {}  # of the files
        self.give_up_oldest = Hook(_nothing_to_give_up)
        self._next_number = 0
        for _, number, path in image_files(store.directory):
            self._next_number = max(self._next_number, number + 1)
            with suppress(OSError):  # what cannot be read is not used
                self._sizes[path] = path.stat().st_size
                for page_id, image in read_images(path):
                    insort(self._images[page_id], image)

    # ---- what pins need

    def follow(self, pins: list[Pin], kept: np.ndarray | None = None) -> None:
        """Use these pins from now on; ``kept`` are pages of which the newest pin needs no image any more."""
        with self.lock:
            if self._beginning is not None:
                pins = [*pins, self._beginning]
            before, self._pins = self._pins, sorted(pin.ckpt_id for pin in pins)
            newest = max(self._pins, default=-1)
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
            if not pins or set(before) - set(self._pins) or not before:
                self._tidy()

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

    def keep(self, ids: Sequence[int] | np.ndarray) -> None:
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
        pages, page_ids, ckpt_ids = [], [], []
        for page_id in ids.tolist():
            page = self._store.devices[page_id >> OFFSET_BITS].read_from_file(page_id & (PAGES_PER_DEVICE - 1))
            ckpt_id = int.from_bytes(page[_CKPT_AT : _CKPT_AT + 4], "little")
            if self._is_wanted(page_id, ckpt_id) and _is_whole(page, page_id):
                pages.append(page)
                page_ids.append(page_id)
                ckpt_ids.append(ckpt_id)
        if pages:
            sizes = np.array([len(page) for page in pages])
            self.append(np.array(page_ids), np.array(ckpt_ids), sizes, b"".join(pages))

    def append(self, ids: np.ndarray, ckpt_ids: np.ndarray, sizes: np.ndarray, pages: bytes | memoryview) -> None:
        """Add a batch.  ``sync`` makes it last."""
        head = pack_batch_head(ids, ckpt_ids, sizes)
        size = len(head) + len(pages)
        while self._newest >= 0:
            if sum(self._sizes.values()) + size > self._share() and len(self._pins) > 1:
                share = f"the pages kept for snapshots would have taken more than {self._share() >> 20} MiB"
                if self.give_up_oldest(f"{share}: hold fewer at a time, or let them go sooner"):
                    continue
            try:
                self._require_space(size)
                self._write(head, pages, ids, ckpt_ids, sizes)
            except DiskFull:
                if not self.give_up_oldest("the disk is full"):
                    raise
                continue
            return

    def _share(self) -> int:
        """How many bytes images may take."""
        devices = self._store.devices.values()
        return max(SHARE_MIN, SHARE * sum(device.page_count * device.page_size for device in devices))

    def _write(
        self, head: bytes, pages: bytes | memoryview, ids: np.ndarray, ckpt_ids: np.ndarray, sizes: np.ndarray
    ) -> None:
        """Put a batch behind those of the newest file."""
        file = self._open_file()
        file.write(pages, self._end + len(head))
        file.write(head, self._end)
        at = self._end + len(head)
        for page_id, ckpt_id, size in zip(ids.tolist(), ckpt_ids.tolist(), sizes.tolist(), strict=True):
            insort(self._images[page_id], KeptPage(ckpt_id, self._path, at, size))
            at += size
        self._end = self._sizes[self._path] = at

    def _require_space(self, size: int) -> None:
        disk_space = os.statvfs(self._store.directory)
        if disk_space.f_bavail * disk_space.f_frsize < size + DISK_RESERVE:
            raise DiskFull(f"{self._store.directory}: little space is left on the disk")

    def _open_file(self) -> DiskFile:
        """The file that batches go to: a new one for each newest pin, and each time that the database is opened."""
        if self._file is None:
            directory = self._store.directory
            path = image_path(directory, self._newest, self._next_number)
            self._next_number += 1  # no name is used twice: a reader may have the older file open
            self._file = disk.current.open(path, create=True, exclusive=True)
            disk.current.sync_directory(path.parent)
            self._end, self._path = 0, path
        return self._file

    def _sync(self) -> None:
        while self._file is not None:
            try:
                self._file.sync()
                return
            except DiskFull:
                if not self.give_up_oldest("the disk is full"):
                    raise

    def begin(self, pin: Pin, pins: list[Pin], ids: np.ndarray, sizes: np.ndarray, pages: memoryview) -> None:
        """Have the images of pages that were changed in memory when a pin was taken; it is the newest from now on."""
        with self.lock:
            self._beginning = pin
            try:
                self.follow(pins, ids if not pins else None)
                ends = np.cumsum(sizes)
                places = [(int(end - size), int(end)) for end, size in zip(ends, sizes, strict=True)]
                new = [n for n, (at, end) in enumerate(places) if not self._is_kept(int(ids[n]), pages[at:end])]
                for first in range(0, len(new), BATCH_PAGES):
                    part = np.array(new[first : first + BATCH_PAGES])
                    data = b"".join(pages[slice(*places[n])] for n in part.tolist())
                    self.append(ids[part], np.full(len(part), pin.ckpt_id), sizes[part], data)
                if new:
                    self._sync()
            finally:
                self._beginning = None

    def _is_kept(self, page_id: int, page: memoryview) -> bool:
        """Whether a page that was changed in memory is still as an older pin found it: then its image serves both."""
        images = self._images.get(page_id)
        if not images or images[-1].size != len(page) or self._in_file(page_id) > images[-1].ckpt_id:
            return False
        with images[-1].path.open("rb") as file:
            return _content(os.pread(file.fileno(), len(page), images[-1].offset)) == _content(bytes(page))

    # ---- what is needed

    def _in_file(self, page_id: int) -> int:
        """The checkpoint that wrote what a page's file has now."""
        device = self._store.devices.get(page_id >> OFFSET_BITS)
        if device is None or page_id & (PAGES_PER_DEVICE - 1) >= device.page_count:
            return 0
        page = device.read_from_file(page_id & (PAGES_PER_DEVICE - 1))
        return int.from_bytes(page[_CKPT_AT : _CKPT_AT + 4], "little")

    def _first_pin(self, page_id: int, ckpt_id: int) -> int | None:
        """The oldest of the pins for which this version of a page is the newest of those that are kept."""
        at = bisect_left(self._pins, ckpt_id)
        if at == len(self._pins):
            return None
        pin = self._pins[at]
        return None if any(ckpt_id < image.ckpt_id <= pin for image in self._images.get(page_id, ())) else pin

    def _is_wanted(self, page_id: int, ckpt_id: int) -> bool:
        """Whether a pin needs what the file has of a page, and it was not kept yet."""
        if any(image.ckpt_id == ckpt_id for image in self._images.get(page_id, ())):
            return False
        return self._first_pin(page_id, ckpt_id) is not None

    def _is_needed(self, page_id: int, image: KeptPage) -> bool:
        pin = self._first_pin(page_id, image.ckpt_id)
        return pin is not None and not image.ckpt_id < self._in_file(page_id) <= pin

    def _tidy(self) -> None:
        """Remove files most of whose images no pin needs; images that are still needed move to the newest file."""
        needed: dict[Path, list[tuple[int, KeptPage]]] = defaultdict(list)
        for page_id, images in list(self._images.items()):
            of_each = {image.ckpt_id: image for image in images}  # after a crash there may be two of one version
            needed_images = [image for image in of_each.values() if self._is_needed(page_id, image)]
            for image in needed_images:
                needed[image.path].append((page_id, image))
            if needed_images:
                self._images[page_id] = needed_images
            else:
                del self._images[page_id]
        sizes = {path: sum(image.size for _, image in needed[path]) for path in self._sizes}
        sparse = [path for path, size in self._sizes.items() if 2 * sizes[path] <= size]
        try:
            if sparse and self._file is not None:
                self._file.sync()
                self._close_file()  # what is needed of them goes to a new one
        except DiskFull:
            return
        for path in sparse:
            if self._move(needed[path], path):
                del self._sizes[path]
                disk.current.remove(path)

    def _move(self, images: list[tuple[int, KeptPage]], path: Path) -> bool:
        """Copy images of a file to the newest one; returns whether there was room for them."""
        if not images:
            return True
        try:
            self._require_space(sum(image.size for _, image in images))
            with path.open("rb") as file:
                for first in range(0, len(images), BATCH_PAGES):
                    part = images[first : first + BATCH_PAGES]
                    pages = b"".join(os.pread(file.fileno(), image.size, image.offset) for _, image in part)
                    ids, ckpt_ids, sizes = np.array([(n, image.ckpt_id, image.size) for n, image in part]).T
                    for page_id, image in part:
                        self._images[page_id].remove(image)
                    self._write(pack_batch_head(ids, ckpt_ids, sizes), pages, ids, ckpt_ids, sizes)
            assert self._file is not None
            self._file.sync()
            return True
        except DiskFull:
            return False

    # ---- the end

    def size(self) -> int:
        """Bytes of all image files."""
        return sum(self._sizes.values())

    def _close_file(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def close(self) -> None:
        with self.lock:
            self._close_file()


def _content(page: bytes) -> bytes:
    """A page without what says when it was written."""
    return page[:_CKPT_AT] + page[_CKPT_AT + 4 : -PAGE_TAIL.size]


def _is_whole(page: bytes, page_id: int) -> bool:
    array = np.frombuffer(page, np.uint8)
    return bool(page_is_whole(array.ctypes.data, page_id, len(page)))


# ---- Pinning instants of a database that is in use, for readers in other processes, and releasing them.

COPY_MAX = 16 << 20  # bytes of changed pages that are copied while writers wait; if there are more, a checkpoint first
SLACK = 8 << 20  # for what is changed until they wait
EXPIRY_INTERVAL = 1.0
_DIRTY_AT = STATE.offset("dirty_bytes") // 8


@dataclass
class Instant:
    """The transactions' part of an instant: the newest commit, the locks of those under way, the tables."""

    scn: int
    locks: bytes
    tables: list[Any]
    log_from: int


class Pins:
    """The pins of an open database."""

    def __init__(self, store: PageStore, redo: RedoLog, checkpoints: Checkpoints, shrinking: Shrinking) -> None:
        self._store = store
        self._redo = redo
        self._checkpoints = checkpoints
        self._shrinking = shrinking
        self._buffer = zeros(0)
        self._checked = 0.0
        self.images = Images(store)
        self._lock = self.images.lock
        self.images.give_up_oldest.connect(self._give_up_oldest)
        checkpoints.keep.connect(self.images.keep)
        store.keep_images.connect(self.images.keep)
        self._pins = self._read_pins()
        shrinking.is_pinned.connect(lambda: bool(self._pins))
        self.images.follow(self._pins)

    def _read_pins(self) -> list[Pin]:
        """The pins that an owner before has left; those of another database, or that are over, are removed."""
        pins, mine = [], self._store.control["database_id"]
        for pin in read_pins(self._store.directory):
            if pin.database_id == mine and pin.ckpt_id <= self._store.control["ckpt_id"] and not self._is_over(pin):
                pins.append(pin)
            else:
                remove_pin(self._store.directory, pin.name)
        return pins

    # ---- taking

    def take(self, capture: Callable[[], Instant], lease: float | None, holder: Holder) -> Pin:
        """Pin the instant of now.  ``capture`` is called while the guard is held."""
        lease = require_lease(lease)
        with self._shrinking.none_running():
            if self._store.state[_DIRTY_AT] > COPY_MAX:
                self._checkpoints.run()
            with self._checkpoints.none_running():
                return self._take(capture, lease, holder)

    def _take(self, capture: Callable[[], Instant], lease: float, holder: Holder) -> Pin:
        store = self._store
        store.require_healthy()
        while True:
            self._make_buffer(store.state[_DIRTY_AT] + SLACK)
            ids = np.zeros(len(self._buffer) >> 13, np.uint32)
            with store.guard:
                count = copy_changed(store.area, address_of(self._buffer), len(self._buffer), ids.ctypes.data)
                if count >= 0:
                    instant, end = capture(), self._redo.end
                    devices = {number: int(device.head.hwm) for number, device in store.devices.items()}
                    break
        ckpt_id = store.control["ckpt_id"] + 2  # bulk loads stamp their pages with the number in between
        store.write_control(ckpt_id=ckpt_id)
        pages = ids[:count].astype(np.int64)
        sizes = np.array([store.devices[number].page_size for number in (pages >> OFFSET_BITS).tolist()], np.int64)
        seal_copies(address_of(self._buffer), sizes.ctypes.data, count, ckpt_id)
        self._redo.write_through(end)
        pin = Pin(
            new_name(ckpt_id),
            store.control["database_id"],
            ckpt_id,
            instant.scn,
            time.time(),
            lease,
            holder,
            devices,
            instant.tables,
            log_from=instant.log_from,
        )
        make_folder(store.directory)
        with self._lock:
            try:
                self.images.begin(pin, self._pins, pages, sizes, self._buffer)
                write_pin(store.directory, pin, instant.locks)
            except BaseException:
                remove_pin(store.directory, pin.name)
                self.images.follow(self._pins)
                raise
            self._pins = [*self._pins, pin]
        return pin

    def _make_buffer(self, size: int) -> None:
        """Memory for copies that is there: touching it for the first time takes longer than copying."""
        if len(self._buffer) < size:
            self._buffer = zeros(size + (-size & 0x1FFF))

    # ---- releasing

    def listed(self) -> list[tuple[Pin, float]]:
        """Every pin, and when its lease runs out."""
        return [(pin, expires_at(self._store.directory, pin)) for pin in self._pins]

    def drop(self, name: str) -> None:
        """Remove a pin; its readers get SnapshotExpired."""
        read_pin(self._store.directory, name)
        self._drop([pin for pin in self._pins if pin.name == name])

    def _drop(self, gone: list[Pin]) -> None:
        with self._lock:
            names = {pin.name for pin in gone}
            for name in names:
                remove_pin(self._store.directory, name)
            self._pins = [pin for pin in self._pins if pin.name not in names]
            self.images.follow(self._pins)

    def _give_up_oldest(self, why: str) -> bool:
        """Give up the oldest pin: there is no room for its pages."""
        with self._lock:
            if not self._pins:
                return False
            oldest = self._pins[0]
            _logger.warning("%s: snapshot %s is given up: %s", self._store.directory, oldest.name, why)
            note_given_up(self._store.directory, oldest.name, why)
            self._drop([oldest])
            return True

    def _is_over(self, pin: Pin) -> bool:
        over = pin.holder.is_gone or expires_at(self._store.directory, pin) < time.time()
        return over or not pin_path(self._store.directory, pin.name).exists()

    def expire(self) -> None:
        """Remove pins whose lease or holder is gone; called now and then."""
        if not self._pins or time.monotonic() - self._checked < EXPIRY_INTERVAL:
            return
        self._checked = time.monotonic()
        gone = [pin for pin in self._pins if self._is_over(pin)]
        if gone:
            try:
                self._drop(gone)
            except StorageError as error:
                _logger.error("%s: a snapshot cannot be removed: %s", self._store.directory, error)

    def close(self) -> None:
        self.images.close()
