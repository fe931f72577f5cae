"""A database's pages as a pin has them, for kernels: read from the files, with the locks of that instant."""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from gmdb.errors import Corruption, SnapshotExpired, StorageError
from gmdb.format.address import DEVICES, OFFSET_BITS, PAGES_PER_DEVICE, device_of, offset_of, page_id_of, page_name
from gmdb.format.anatomy import check
from gmdb.format.device import DEVICE_HEAD, DEVICE_HEAD_AT, DEVICE_PAGE_END, SPACE_HEAD, SPACE_HEAD_AT
from gmdb.format.page import PAGE_HEAD, PAGE_SIZES
from gmdb.format.row import NO_LOCK
from gmdb.kernel.indexes.index_head import SCRATCH_SIZE
from gmdb.kernel.locks import LOAD, LOCK, LOCKS_MAX, TRANSACTION
from gmdb.kernel.page.area import STATE
from gmdb.kernel.read.pinned_pages import check_loaded, touch_chains
from gmdb.kernel.read.visibility import ROW_BUFFER
from gmdb.kernel.runtime.status import DAMAGED
from gmdb.process.late_imports import numpy as np
from gmdb.storage.device import OVERRUN, device_state, new_area
from gmdb.storage.directory import device_path, read_control
from gmdb.storage.disk import open_plain, read_plain, storage_error
from gmdb.storage.memory import address_of
from gmdb.storage.pins import ImageIndex, Pin, locks_path, read_pin, renew, require_seen

# ---- The locks of transactions that had not committed at a pin's instant, as bytes: for readers of it.
#
# A lock id that is not among them means no lock: its transaction had committed.  Which transaction it was does not
# matter to a reader, so all of them share one place in the table of transactions, where they never commit.

IN_FLIGHT = 1  # the place of all of them
_COUNTS = "<i8"


def pack_locks(ids: np.ndarray, locks: np.ndarray, loads: np.ndarray) -> bytes:
    """Locks under their ids, and bulk loads; nothing if there are none."""
    if not len(ids) and not len(loads):
        return b""
    locks, loads = locks.copy(), loads.copy()
    locks["transaction"] = loads["transaction"] = IN_FLIGHT
    counts = np.array([len(ids), len(loads)], _COUNTS)
    return counts.tobytes() + ids.astype("<u4").tobytes() + locks.tobytes() + loads.tobytes()


def read_locks(path: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A lock area with the locks in their places, their ids, and the bulk loads.

    What is not touched of the area takes no memory.
    """
    try:
        raw = read_plain(path)
    except (FileNotFoundError, NotADirectoryError):
        return np.zeros(LOCKS_MAX, LOCK), np.zeros(0, np.uint32), np.zeros(0, LOAD)
    counts = np.frombuffer(raw[:16], _COUNTS).tolist() if len(raw) >= 16 else [-1, -1]
    if min(counts) < 0 or len(raw) != 16 + counts[0] * (4 + LOCK.itemsize) + counts[1] * LOAD.itemsize:
        raise Corruption(f"{path} is damaged; load again")
    ids = np.frombuffer(raw, "<u4", counts[0], 16)
    locks = np.frombuffer(raw, LOCK, counts[0], 16 + 4 * counts[0])
    loads = np.frombuffer(raw, LOAD, counts[1], 16 + counts[0] * (4 + LOCK.itemsize)).copy()
    is_damaged = (ids >= LOCKS_MAX) | (locks["previous"] >= LOCKS_MAX) | (locks["transaction"] != IN_FLIGHT)
    if is_damaged.any() or (loads["transaction"] != IN_FLIGHT).any():
        raise Corruption(f"{path} is damaged; load again")
    area = np.zeros(LOCKS_MAX, LOCK)
    area[ids] = locks
    return area, ids, loads


# ---- A database's pages as a pin has them, for kernels: read from the files while others change them.
#
# Pages are read when they are asked for, checked together, and taken from the images if the file's are newer than the
# pin, or were being written.  A kernel returns DAMAGED for a page that was not read, as for one that does not exist;
# the page is read then, and the kernel called again.
#
# Invariants
#  1. No kernel sees a page that is newer than the pin, or not whole.
#  2. Memory is bounded by the pages that one range needs: those of the range before are forgotten.
#  3. A page that is in neither place is damage if the pin is still there, and an expired snapshot if it is not.

CHUNK_SIZE = 1 << 20
CHUNKS_KEPT = 16  # stay in memory from one range to the next: memory that was touched before is quicker
RENEWAL = 5.0  # seconds between renewals of the lease, while pages are read


class _Memory:
    """Chunks to read pages into."""

    def __init__(self) -> None:
        self._zones: list[np.ndarray] = []
        self._used = 0
        self.nothing = np.zeros(CHUNK_SIZE + OVERRUN, np.uint8)

    def take(self) -> int:
        if self._used == len(self._zones):
            self._zones.append(np.zeros(CHUNK_SIZE + OVERRUN, np.uint8))
        self._used += 1
        return int(self._zones[self._used - 1].ctypes.data)

    def release(self) -> None:
        self._used = 0
        del self._zones[CHUNKS_KEPT:]


class _FrozenDevice:
    """A device's file, and where its pages lie in memory."""

    def __init__(self, area: memoryview, directory: Path, number: int, hwm: int, memory: _Memory) -> None:
        self.number, self.hwm = number, hwm
        self.path = device_path(directory, number)
        if not (0 <= number < DEVICES and 0 < hwm <= PAGES_PER_DEVICE):
            raise Corruption(f"{directory}: a snapshot of {hwm} pages of device {number} cannot be; load again")
        self._memory = memory
        try:
            self.file = open_plain(self.path)
        except OSError as error:
            raise storage_error(self.path, error) from error
        start = os.pread(self.file, DEVICE_PAGE_END, 0)
        self.page_size = SPACE_HEAD.at(start, SPACE_HEAD_AT).page_size if len(start) == DEVICE_PAGE_END else 0
        if self.page_size not in PAGE_SIZES:
            raise Corruption(f"{self.path} does not begin with a device head", page_id_of(number, 0), 0)
        self.per_chunk = CHUNK_SIZE // self.page_size
        self.verified = np.zeros(hwm, np.uint8)
        self._versions = np.zeros(hwm, np.uint32)
        self._chunks = np.full(-(-hwm // self.per_chunk), memory.nothing.ctypes.data, np.int64)
        self._in_use: list[int] = []
        self._head = b""
        state = device_state(area, number)
        state.chunks, state.verified = self._chunks.ctypes.data, self.verified.ctypes.data
        state.versions, state.dirty = self._versions.ctypes.data, self.verified.ctypes.data
        state.page_size, state.page_shift = self.page_size, self.page_size.bit_length() - 1
        state.chunk_shift = self.per_chunk.bit_length() - 1
        state.page_count = hwm

    def address(self, offset: int) -> int:
        """Where a page is, or goes."""
        chunk, place = divmod(offset, self.per_chunk)
        if self._chunks[chunk] == self._memory.nothing.ctypes.data:
            self._chunks[chunk] = self._memory.take()
            self._in_use.append(chunk)
            if chunk == 0 and self._head:
                ctypes.memmove(int(self._chunks[0]), self._head, self.page_size)  # kernels read it unchecked
        return int(self._chunks[chunk]) + place * self.page_size

    def bytes_at(self, offset: int, count: int) -> memoryview:
        """Memory of neighbouring pages of one chunk."""
        size = count * self.page_size
        return memoryview((ctypes.c_char * size).from_address(self.address(offset))).cast("B")

    def keep_head(self) -> None:
        self._head = bytes(self.bytes_at(0, 1))

    def read(self, first: int, count: int) -> None:
        """Read neighbouring pages from the file, to be checked; zeros where the file ends."""
        self.verified[first : first + count] = 0
        while count:
            part = min(count, self.per_chunk - first % self.per_chunk)
            memory = self.bytes_at(first, part)
            try:
                done = os.preadv(self.file, [memory], first * self.page_size)
            except OSError as error:
                raise StorageError(f"{self.path}, at byte {first * self.page_size}: {error.strerror}") from error
            if done < len(memory):
                memory[done:] = bytes(len(memory) - done)
            first, count = first + part, count - part

    def forget(self) -> None:
        """Release the chunks for other pages; page 0 is put back later (``restore_head``)."""
        for chunk in self._in_use:
            self._chunks[chunk] = self._memory.nothing.ctypes.data
            self.verified[chunk * self.per_chunk : (chunk + 1) * self.per_chunk] = 0
        self._in_use = []

    def restore_head(self) -> None:
        self.address(0)
        self.verified[0] = 1

    def close(self) -> None:
        os.close(self.file)


class FrozenStore:
    """The part of a store that a scan needs, over the pages of a pin.

    ``skip`` is called with damaged pages, which are left out then; without it they raise Corruption.
    """

    def __init__(self, directory: Path, pin: Pin) -> None:
        self.directory = directory
        self.pin = pin
        self.skip: Callable[[int, str], None] | None = None
        self.guard = threading.RLock()
        self.scans = 0
        self._renewed = 0.0
        self.devices: dict[int, _FrozenDevice] = {}
        self._images = ImageIndex(directory, pin)
        self._area = new_area()
        self.area = address_of(self._area)
        self._state = STATE.at(self._area)
        self._memory = _Memory()
        try:
            self.require_pin()  # with the images open: if the pin is dropped now, they stay readable
            self._set_locks()
            for number, hwm in pin.devices.items():
                self.devices[number] = _FrozenDevice(self._area, directory, number, hwm, self._memory)
            for number, device in self.devices.items():
                self._load(np.array([page_id_of(number, 0)], np.uint32))
                if DEVICE_HEAD.at(device.bytes_at(0, 1), DEVICE_HEAD_AT).hwm != device.hwm:
                    raise Corruption(f"{device.path}: its head is not as the snapshot says", page_id_of(number, 0))
                device.keep_head()
        except BaseException:
            self.close()
            raise

    def _set_locks(self) -> None:
        self._locks, self._lock_ids, self._loads = read_locks(locks_path(self.directory, self.pin.name))
        self._transactions = np.zeros(IN_FLIGHT + 1, TRANSACTION)
        self._scratch, self._index_scratch = np.zeros(3 * ROW_BUFFER, np.uint8), np.zeros(SCRATCH_SIZE, np.uint8)
        fields = {"locks": self._locks, "loads": self._loads, "transactions": self._transactions}
        fields |= {"scratch": self._scratch, "index_scratch": self._index_scratch}
        for name, memory in fields.items():
            setattr(self._state, name, memory.ctypes.data)
        self._state.load_count = len(self._loads)
        self._state.lock_limit = self._state.lock_free = NO_LOCK
        self._state.scn = self._state.oldest = self.pin.scn

    # ---- the pin

    def require_pin(self) -> None:
        """Start the lease over; SnapshotExpired if the pin is gone."""
        if not self.pin.is_kept:
            require_seen(self.directory, self.pin.database_id)
            control = read_control(self.directory)
            if (control["database_id"], control["scn"]) != (self.pin.database_id, self.pin.scn) or not control["clean"]:
                raise SnapshotExpired(f"{self.directory} changed since load(), and could not be pinned; load again")
            return
        try:
            renew(self.directory, self.pin.name)
        except SnapshotExpired:
            require_seen(self.directory, self.pin.database_id)
            raise
        self._renewed = time.monotonic()

    def _renew(self) -> None:
        if time.monotonic() - self._renewed > min(RENEWAL, self.pin.lease / 3):
            self.require_pin()

    def size(self) -> int:
        """Bytes of all pages."""
        return sum(device.hwm * device.page_size for device in self.devices.values())

    def require_open(self) -> None:
        """A frozen store is always open."""

    # ---- pages

    def read_ahead(self, page_ids: np.ndarray) -> np.ndarray:
        """Have these pages and the undo of their rows in memory, and no others; returns those that can be scanned."""
        ids = self.read_pages(page_ids)
        self._load_undo(np.flatnonzero(np.isin(self._locks["row_page"][self._lock_ids], ids)))
        return ids

    def read_pages(self, page_ids: np.ndarray) -> np.ndarray:
        """Load these pages into memory, and no others; returns those that are whole."""
        self._renew()
        self.forget()
        for device in self.devices.values():
            device.restore_head()
        return self._load(page_ids)

    def page(self, page_id: int) -> memoryview:
        """A page that was read, whole or not, in memory that is used again for others."""
        return self.devices[device_of(page_id)].bytes_at(offset_of(page_id), 1)

    def page_starts(self, page_ids: np.ndarray, size: int) -> np.ndarray:
        """The first ``size`` bytes of each of some pages that were read, one row each."""
        starts = np.empty((len(page_ids), size), np.uint8)
        done = 0
        while done < len(page_ids):
            first = int(page_ids[done])
            device = self.devices[device_of(first)]
            most = device.per_chunk - offset_of(first) % device.per_chunk
            ahead = page_ids[done : done + most].astype(np.int64)
            count = int(np.argmin(np.append(ahead - ahead[0] == np.arange(len(ahead)), False)))
            memory = np.frombuffer(device.bytes_at(offset_of(first), count), np.uint8)
            starts[done : done + count] = memory.reshape(count, -1)[:, :size]
            done += count
        return starts

    def forget(self) -> None:
        """Release all pages."""
        for device in self.devices.values():
            device.forget()
        self._memory.release()

    def load_all_undo(self) -> None:
        """Have the undo of every transaction under way in memory: for reads that are not by ranges of pages."""
        self._load_undo(np.arange(len(self._lock_ids)))

    def _load_undo(self, chosen: np.ndarray) -> None:
        """Have the undo records of some locks in memory: kernels take a record that is not there for a changed row."""
        ids = np.ascontiguousarray(self._lock_ids[chosen], np.uint32)
        done = 0
        while done < len(ids):
            reached = touch_chains(self.area, ids.ctypes.data, done, len(ids))
            if reached < len(ids):
                self._load_missing(-1)
            done = reached

    def _load(self, page_ids: np.ndarray) -> np.ndarray:
        ids = np.ascontiguousarray(page_ids, np.uint32)
        self._require_known(ids)
        breaks = np.flatnonzero(np.diff(ids.astype(np.int64)) != 1) + 1
        for run in np.split(ids, breaks):
            if len(run):
                self.devices[device_of(int(run[0]))].read(offset_of(int(run[0])), len(run))
        refused = self._check(ids)
        newer = self._images.newest
        bad = set(refused)
        behind = [n for n in ids.tolist() if n in newer and n not in bad] if newer else []
        changed = [n for n in behind if newer[n].ckpt_id > PAGE_HEAD.at(self.page(n)).ckpt_id]
        if not refused and not changed:
            return ids
        lost = self._take_images(refused, changed)
        return ids[~np.isin(ids, lost)] if lost else ids

    def _require_known(self, ids: np.ndarray) -> None:
        for number in np.unique(ids >> OFFSET_BITS).tolist():
            device = self.devices.get(number)
            last = int((ids[ids >> OFFSET_BITS == number] & (PAGES_PER_DEVICE - 1)).max())
            if device is None or last >= device.hwm:
                page_id = page_id_of(number, last)
                raise Corruption(f"page {page_name(page_id)} does not exist, though another page refers to it", page_id)

    def _check(self, ids: np.ndarray) -> list[int]:
        refused = np.zeros(len(ids), np.uint32)
        count = check_loaded(self.area, ids.ctypes.data, len(ids), self.pin.ckpt_id, refused.ctypes.data)
        return refused[:count].tolist()

    def _take_images(self, refused: list[int], changed: list[int]) -> list[int]:
        """Put images where the file's pages are not those of the pin; returns pages that are lost and to be skipped."""
        if refused:
            self._images.refresh()
        lost = []
        for page_id in [*refused, *changed]:
            image = self._images.newest.get(page_id)
            memory = self.page(page_id)
            if image is not None and image.size == len(memory):
                os.preadv(image.file, [memory], image.offset)
                self.devices[device_of(page_id)].verified[offset_of(page_id)] = 0
                if not self._check(np.array([page_id], np.uint32)):
                    continue
            lost.append(page_id)
        for page_id in lost:
            self._refuse(page_id)
        return lost

    def _refuse(self, page_id: int) -> None:
        """Refuse a page that neither the file nor an image has as the pin needs it."""
        if self.pin.is_kept:
            read_pin(self.directory, self.pin.name)
        else:
            self.require_pin()
        device, page = self.devices[device_of(page_id)], bytes(self.page(page_id))
        findings = check(page, page_id)
        where = f"page {page_name(page_id)} of {device.path}"
        otherwise = "it is newer than the snapshot" if any(page) else "it has only zeros, or the file ends before it"
        what = f"offset {findings[0][0]}: {findings[0][1]}" if findings else otherwise
        if self.skip is None:
            raise Corruption(f"{where}, {what}; see gmstat page", page_id, findings[0][0] if findings else None)
        self.skip(page_id, f"{where}, {what}")

    # ---- calling kernels

    def call(self, kernel: Callable[..., int], space_id: int, *arguments: int) -> int:
        """Run a kernel that only reads."""
        del space_id
        missing = -1
        while (result := kernel(self.area, *arguments)) == DAMAGED:
            missing = self._load_missing(missing)
        return result

    def _load_missing(self, before: int) -> int:
        """Read the page for which a kernel returned DAMAGED; ``before`` is the one of the last time."""
        page_id = self._state.damaged_page
        device = self.devices.get(device_of(page_id))
        is_here = device is not None and offset_of(page_id) < device.hwm and device.verified[offset_of(page_id)]
        if page_id == before or is_here:
            raise Corruption(
                f"page {page_name(page_id)} is whole, but what it holds is not what the catalog says of it", page_id
            )
        self._load(np.array([page_id], np.uint32))
        return page_id

    def close(self) -> None:
        for device in self.devices.values():
            device.close()
        self.devices = {}
        self._images.close()
