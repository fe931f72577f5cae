"""A device: one file of pages, mapped privately into memory in chunks.

Reads come from the file as they are needed.  Changes stay in private copies of the pages until a checkpoint writes
them, so that the file changes at no other time, but for pages above the high-water mark that ``write_new`` fills.

Invariants
 1. The file is at least as long as the device head says, and its blocks are allocated: writing pages cannot fail
    for want of space.
 2. A chunk, once mapped, stays where it is until the device is closed.  Where the file was cut off there are zeros,
    for a reader of a page that is not in use any more.
 3. A page that ``write_new`` writes has no private copy.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from gmdb.errors import Corruption, SpaceFull, StorageError
from gmdb.format.address import NO_PAGE, PAGES_PER_DEVICE, device_of, offset_of, page_id_of
from gmdb.format.anatomy import check
from gmdb.format.checksum import page_crc
from gmdb.format.device import DEVICE_HEAD, DEVICE_HEAD_AT, DEVICE_PAGE_END, SPACE_HEAD, SPACE_HEAD_AT
from gmdb.format.page import PAGE_HEAD, PAGE_SIZES, PAGE_TAIL, TAIL_SIZE, PageType
from gmdb.kernel.page.allocation import set_page_count
from gmdb.kernel.page.area import AREA, DEVICE_STATE, DEVICES_AT, RELEASED, STATE
from gmdb.kernel.page.checkpoint import page_is_whole, seal_run
from gmdb.storage import disk
from gmdb.storage.directory import device_path
from gmdb.storage.memory import address_of, untouched, zeros

Mended = Mapping[int, bytes]
CHUNK_SIZE = 16 << 20
GROWTH_MIN, GROWTH_MAX = 512 << 10, 64 << 20
OVERRUN = 256 << 10  # readable zeros behind each chunk: how far a scan may stray on a page that changes under it
_PROT_READ, _PROT_WRITE, _MADV_RANDOM, _MADV_DONTNEED = 1, 2, 1, 4
_SYSTEM_PAGE = 4096
_MAP_PRIVATE, _MAP_FIXED, _MAP_ANONYMOUS, _MAP_NORESERVE = 0x02, 0x10, 0x20, 0x4000

_libc = ctypes.PyDLL(None, use_errno=True)  # keeps the GIL: these calls are short, getting it back may not be
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def _mmap(address: int, length: int, protection: int, flags: int, file: int, offset: int) -> int:
    """Map some memory; 0 if that fails."""
    mapped = _libc.mmap(address or None, length, protection, flags, file, offset)
    return 0 if mapped in (None, ctypes.c_void_p(-1).value) else int(mapped)


def new_area() -> memoryview:
    """An empty global area.  It must live as long as anything that was opened in it."""
    area = zeros(AREA.itemsize // 8, "q")
    for name in ("dirty_first", "dirty_last"):
        area[STATE.offset(name) // 8] = NO_PAGE
    return area


def device_state(area: memoryview, number: int) -> Any:
    """A device's record in the global area."""
    return DEVICE_STATE.at(area, DEVICES_AT + number * DEVICE_STATE.itemsize)


def device_page(device: int, space_id: int, name: str, page_size: int, page_count: int, pages_max: int) -> bytes:
    """Page 0 of a new device."""
    head = PAGE_HEAD.pack(
        page_id=page_id_of(device, 0),
        page_type=PageType.DEVICE_HEAD,
        page_create_no=1,
        chg_num=1,
        map_page_id=NO_PAGE,
        mirror_page=NO_PAGE,
        next_ckpt_page=NO_PAGE,
        data_begin=PAGE_HEAD.size,
        free_begin=DEVICE_PAGE_END,
        free_end=page_size - TAIL_SIZE,
    )
    head += DEVICE_HEAD.pack(page_count=page_count, hwm=1, first_free_page=NO_PAGE, pages_max=pages_max)
    head += SPACE_HEAD.pack(space_id=space_id, page_size=page_size, name=name.encode())
    page = head.ljust(page_size, b"\0")
    return page[:-TAIL_SIZE] + PAGE_TAIL.pack(crc=page_crc(page))


def create_device(directory: Path, device: int, space_id: int, name: str, page_size: int, pages_max: int = 0) -> None:
    """Make a device's file.  It belongs to the database once it is opened and the control file is written."""
    page_count = min(GROWTH_MIN // page_size, pages_max or PAGES_PER_DEVICE)
    path = device_path(directory, device)
    with disk.current.open(path, create=True, exclusive=True) as file:
        try:
            file.allocate(page_count * page_size)
            file.write(device_page(device, space_id, name, page_size, page_count, pages_max), 0)
            file.sync()
        except StorageError:
            with suppress(StorageError):  # the user must see the first error
                disk.current.remove(path)
            raise


class Device:
    """One open device file, entered into the global area."""

    def __init__(
        self, area: memoryview, directory: Path, number: int, read_only: bool = False, mended: Mended | None = None
    ) -> None:
        """Open a device.  ``mended``: the database was not closed; pages whose bytes in the file are torn."""
        self.number = number
        self.path = device_path(directory, number)
        self._chunks: list[int] = []
        self._length = threading.Lock()  # of the file; taken with or without the guard, which is not asked for then
        self._backed = 0  # pages from here on, of those that can be read, are zeros instead of the file's
        self.unsynced = True  # what a process before wrote may not have reached the disk
        self._read_only = read_only
        self._area = address_of(area)
        self._file = disk.current.open(self.path, writable=not read_only)
        try:
            page = self._read_head_page(mended)
            space = SPACE_HEAD.at(page, SPACE_HEAD_AT)
            self.space_id, self.space_name = space.space_id, space.name.decode(errors="replace")
            self.page_size = space.page_size
            self.pages_per_chunk = CHUNK_SIZE // self.page_size
            self._dirty = untouched(PAGES_PER_DEVICE)
            self._verified = untouched(PAGES_PER_DEVICE)
            self._versions = untouched(PAGES_PER_DEVICE, "I")
            self._chunk_table = zeros(PAGES_PER_DEVICE // self.pages_per_chunk, "q")
            self._enter(area, DEVICE_HEAD.at(page, DEVICE_HEAD_AT).page_count)
            for page_id, data in (mended or {}).items():
                if device_of(page_id) == number and offset_of(page_id) < self.page_count:
                    self.memory(offset_of(page_id))[:] = data  # a page behind those is in the log as a whole
        except BaseException:
            self.close()
            raise

    def _read_head_page(self, mended: Mended | None) -> bytes:
        """Page 0, checked in full before anything is mapped."""
        length = self._file.size()
        whole = (mended or {}).get(page_id_of(self.number, 0), b"")
        start = whole[:DEVICE_PAGE_END] or self._file.read(DEVICE_PAGE_END, 0)
        page_size = SPACE_HEAD.at(start, SPACE_HEAD_AT).page_size if len(start) == DEVICE_PAGE_END else 0
        page_id = page_id_of(self.number, 0)
        if page_size not in PAGE_SIZES:
            raise Corruption(f"{self.path} does not begin with a device head", page_id, 0)
        page = whole or self._file.read(page_size, 0)
        memory = bytearray(page)
        findings = check(page, page_id, bool(page_is_whole(address_of(memory), page_id, page_size)))
        if findings or PAGE_HEAD.at(page).page_type != PageType.DEVICE_HEAD:
            where, what = findings[0] if findings else (0, "it is not a device head")
            raise Corruption(f"{self.path}: page 0, offset {where}: {what}", page_id, where)
        page_count = DEVICE_HEAD.at(page, DEVICE_HEAD_AT).page_count
        if not 0 < page_count <= PAGES_PER_DEVICE:
            raise Corruption(f"{self.path}: its head says {page_count} pages; it cannot have as many", page_id, 0)
        if mended is not None and not self._read_only:
            self._file.allocate(page_count * page_size)  # it may have grown, and a crash taken the new length back
        elif length < page_count * page_size and mended is None:
            lost = page_count - length // page_size
            raise Corruption(
                f"{self.path} was cut short: {length} bytes, but {page_count} pages need {page_count * page_size}; "
                f"{lost} pages are lost, restore the file from a backup",
                page_id_of(self.number, length // page_size),
            )
        return page

    def _enter(self, area: memoryview, page_count: int) -> None:
        self._state = state = device_state(area, self.number)
        state.chunks = address_of(self._chunk_table)
        state.dirty = address_of(self._dirty)
        state.verified = address_of(self._verified)
        state.versions = address_of(self._versions)
        state.page_size = self.page_size
        state.page_shift = self.page_size.bit_length() - 1
        state.chunk_shift = self.pages_per_chunk.bit_length() - 1
        self._map(page_count)
        state.page_count = page_count
        self._verified[0] = 1

    def _map(self, page_count: int) -> None:
        """Have memory for ``page_count`` pages of the file.  What lies past the file's end is never touched."""
        if self._backed < min(page_count, self.page_count):
            whole = page_count >= self.page_count
            self._lay(self._backed, len(self._chunks) * self.pages_per_chunk if whole else page_count, True)
        while len(self._chunks) * self.pages_per_chunk < page_count:
            zone = _mmap(0, CHUNK_SIZE + OVERRUN, _PROT_READ, _MAP_PRIVATE | _MAP_ANONYMOUS | _MAP_NORESERVE, -1, 0)
            if not zone:
                raise self._no_memory()
            self._chunk_table[len(self._chunks)] = zone
            self._chunks.append(zone)
            self._lay((len(self._chunks) - 1) * self.pages_per_chunk, len(self._chunks) * self.pages_per_chunk, True)
        self._backed = max(self._backed, page_count)

    def _lay(self, first: int, end: int, file: bool) -> None:
        """Put the file's pages, or zeros, where pages from ``first`` to before ``end`` lie in memory."""
        while first < end:
            count = min(end - first, self.pages_per_chunk - first % self.pages_per_chunk)
            address, length, at = self.address(first), count * self.page_size, first * self.page_size
            if file:
                kind, protection = _MAP_PRIVATE | _MAP_FIXED, _PROT_READ | _PROT_WRITE
                mapped = _mmap(address, length, protection, kind, self._file.number, at)
                mapped = mapped and self._lay_beyond_the_end(address, length, at)
            else:
                kind = _MAP_PRIVATE | _MAP_FIXED | _MAP_ANONYMOUS | _MAP_NORESERVE
                mapped = _mmap(address, length, _PROT_READ, kind, -1, 0)
            if not mapped:
                raise self._no_memory()
            # Reading ahead is for scans to ask for: a page that is about to be filled needs no neighbours.
            _libc.madvise(address, length, _MADV_RANDOM)
            first += count

    def _lay_beyond_the_end(self, address: int, length: int, at: int) -> int:
        """For a reader after a crash: memory where the file is too short, for pages that only the log has."""
        end = -(-self._file.size() // _SYSTEM_PAGE) * _SYSTEM_PAGE if self._read_only else at + length
        missing = at + length - max(end, at)
        if missing <= 0:
            return address
        kind = _MAP_PRIVATE | _MAP_FIXED | _MAP_ANONYMOUS | _MAP_NORESERVE
        return _mmap(address + length - missing, missing, _PROT_READ | _PROT_WRITE, kind, -1, 0)

    def _no_memory(self) -> StorageError:
        return StorageError(f"{self.path}: cannot map it into memory: {os.strerror(ctypes.get_errno())}")

    @property
    def head(self) -> Any:
        """The device head, in page 0 as it is in memory."""
        return DEVICE_HEAD.at(self.memory(0), DEVICE_HEAD_AT)

    @property
    def page_count(self) -> int:
        """Pages that can be read; the file may have fewer, see ``head``."""
        return int(self._state.page_count)

    def link(self, following: Device | None) -> None:
        """Name the next device of the same tablespace."""
        self._state.next_device = following.number if following else 0

    def address(self, offset: int) -> int:
        """Where a page lies in memory."""
        chunk, place = divmod(offset, self.pages_per_chunk)
        return self._chunks[chunk] + place * self.page_size

    def memory(self, offset: int, count: int = 1) -> memoryview:
        """Pages as they are in memory; ``count`` of them must not cross a chunk."""
        return memoryview((ctypes.c_char * (count * self.page_size)).from_address(self.address(offset))).cast("B")

    def is_verified(self, offset: int) -> bool:
        """Whether a page was found whole when it was read; then memory has what it is."""
        return bool(self._verified[offset])

    def grow(self, pages: int) -> None:
        """Make room for at least ``pages`` more, and for some more than that.  The guard is held."""
        head = self.head
        count, limit = head.page_count, head.pages_max or PAGES_PER_DEVICE - 1
        if count + pages > limit:
            raise SpaceFull(f"{self.path} cannot have more than {limit} pages: add a device to {self.space_name}")
        step = min(max(count * self.page_size // 4, GROWTH_MIN), GROWTH_MAX) // self.page_size
        target = min(count + max(pages, step), limit)
        with self._length:
            if not self._read_only:  # else it is memory alone, to roll back what a crash has left
                self._file.allocate(target * self.page_size)
            self._map(target)
            self._state.page_count = max(target, self.page_count)
            set_page_count(self._area, self.number, target)

    def reuse(self, first: int, end: int) -> None:
        """Allow pages above a high-water mark that came down to be used again.  The guard is held."""
        self._verified[first:end] = bytes((RELEASED,)) * (end - first)

    def cut(self) -> int:
        """Cut the file off behind the pages that the device head says it has; returns by how many bytes.

        No redo of the pages behind may be needed any more, and no checkpoint may have them.
        """
        with self._length:
            count = self.head.page_count
            length, size = self._file.size(), count * self.page_size
            if length <= size:
                return 0
            self._lay(count, self.page_count, False)
            self._backed = count
            self._file.truncate(size)
            self.unsynced = True
        self.sync()
        return length - size

    def cover(self) -> bool:
        """Have room for as many pages as the device head says, once redo was replayed on it; False: it had that."""
        target = self.head.page_count
        if target <= self.page_count:
            return False
        if target >= PAGES_PER_DEVICE:
            page_id = page_id_of(self.number, 0)
            raise Corruption(f"{self.path}: its head says {target} pages; it cannot have as many", page_id)
        if not self._read_only:
            self._file.allocate(target * self.page_size)
        self._map(target)
        self._state.page_count = target
        return True

    def read_from_file(self, offset: int) -> bytes:
        """A page as the file has it, whatever was changed in memory."""
        return self._file.read(self.page_size, offset * self.page_size)

    def write_new(self, offset: int, data: Any) -> None:
        """Write sealed pages above the high-water mark straight to the file."""
        count = len(data) // self.page_size
        self._file.write(data, offset * self.page_size)
        self._verified[offset : offset + count] = bytes(count)
        self.unsynced = True

    def read_ahead(self, first: int, count: int) -> None:
        """Have the file's pages brought into the system's cache, unless they were touched before."""
        if not self._verified[first]:
            os.posix_fadvise(self._file.number, first * self.page_size, count * self.page_size, os.POSIX_FADV_WILLNEED)

    def write_pages(self, offsets: list[int], memory: memoryview, starts: list[int]) -> None:
        """Write sealed pages, which begin at ``starts`` in some memory, to their places.  ``sync`` makes it last."""
        self._file.write_pieces(memory, starts, self.page_size, [offset * self.page_size for offset in offsets])
        self.unsynced = True

    def dump(self, directory: Path, ckpt_id: int) -> None:
        """Write a copy of the file as it would be if it were written back now."""
        with disk.current.open(device_path(directory, self.number), create=True, exclusive=True) as file:
            for offset in range(self.head.hwm):
                page = bytearray(self.memory(offset))
                if self._verified[offset]:
                    seal_run(address_of(page), 1, self.page_size, ckpt_id)
                file.write(page, offset * self.page_size)
            file.truncate(self.head.page_count * self.page_size)

    def sync(self) -> None:
        """Make what was written last, if anything was."""
        if self.unsynced:
            self.unsynced = False
            try:
                self._file.sync()
            except BaseException:
                self.unsynced = True
                raise

    def give_back(self, first: int, count: int) -> None:
        """Give up the private copies of neighbouring pages: the file has the same bytes.  The guard is held.

        Page 0 is kept: kernels read it without asking whether it was checked.
        """
        if first == 0:
            first, count = 1, count - 1
        while count > 0:
            within = min(count, self.pages_per_chunk - first % self.pages_per_chunk)
            _libc.madvise(self.address(first), within * self.page_size, _MADV_DONTNEED)
            self._verified[first : first + within] = bytes(within)  # checked again, as at the first touch
            first, count = first + within, count - within

    def close(self) -> None:
        """Unmap the file; private copies that were not written are gone."""
        if hasattr(self, "_state"):
            self._state.page_count = 0
        for address in self._chunks:
            _libc.munmap(address, CHUNK_SIZE + OVERRUN)
        self._chunks = []
        self._file.close()
