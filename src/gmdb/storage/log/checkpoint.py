"""Checkpoints: changed pages go to the device files, so that the log before them is not needed any more.

A checkpoint takes over the chain of changed pages and works through it in rounds: copy some pages under the guard, seal
the copies, make the log durable up to where they stand, keep them in the mirror, write them to their places.  At the
end the control file says from where on the log counts.  Writers go on all the while.

Invariants
 1. A page is written only when the log is on disk up to its last change.
 2. The control file moves only when all pages of the checkpoint are on disk in their places.
 3. What a pin needs of a page is kept before the page is overwritten (pinning.py).
 4. A private copy is given up only if the page has not changed since it was copied, after its place was synced.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate, groupby
from pathlib import Path

from gmdb.errors import StorageError
from gmdb.format.address import NO_PAGE, OFFSET_BITS, PAGES_PER_DEVICE, device_of, offset_of
from gmdb.format.mirror import MIRROR_SIZE, PAGES_AT, ROUND_SIZE, pack_mirror_head, read_mirror_head
from gmdb.format.page import PAGE_SIZES
from gmdb.kernel.page.checkpoint import copy_chain, detach_chain, is_unchanged, page_is_whole, seal_copies
from gmdb.process.hooks import Hook
from gmdb.storage import disk
from gmdb.storage.directory import device_path
from gmdb.storage.log.redo_buffer import RedoLog
from gmdb.storage.log.reports import CheckpointReport
from gmdb.storage.memory import address_of, numbers, untouched
from gmdb.storage.store import PageStore

# ---- Writing rounds of pages to the mirror file, and taking torn pages out of it.
#
# Invariants
#  1. A page goes to its place only after a sync of the mirror that holds it.
#  2. Pages are taken from the mirror only for the checkpoint that was interrupted: older rounds hold older pages.

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

    def write(self, ckpt_id: int, ids: Sequence[tuple[int, int]], pages: memoryview) -> None:
        """Keep a copy of a round of pages, in case they are torn in their places."""
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
    memory = bytearray(page)
    return bool(page_is_whole(address_of(memory), page_id, size))


def torn_pages(directory: Path, database_id: bytes, ckpt_id: int) -> dict[int, bytes]:
    """The pages that an interrupted checkpoint left torn in their places, as they were meant to be."""
    path = directory / NAME
    if not path.is_file():
        return {}
    with disk.current.open(path) as file:
        mirrored = read_mirror_head(file.read(PAGES_AT, 0))
        if mirrored is None:
            return {}
        head, pages = mirrored
        if head["database_id"] != database_id.hex() or head["ckpt_id"] != ckpt_id:
            return {}
        rest = file.read(MIRROR_SIZE - PAGES_AT, PAGES_AT)
    torn: dict[int, bytes] = {}
    at = 0
    with contextlib.ExitStack() as opened:
        numbers = {device_of(page_id) for page_id, _ in pages}
        files = {n: opened.enter_context(disk.current.open(device_path(directory, n))) for n in numbers}
        for page_id, size in pages:
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


# ---- Checkpoints.

BATCH = 64  # pages that are copied while the guard is held
ROUND_BYTES = 1 << 20  # are written at once; a commit meanwhile may have to wait until the disk has got through them
_ROUND_PAGES = ROUND_SIZE // PAGE_SIZES[0]
assert ROUND_BYTES <= ROUND_SIZE


class Checkpoints:
    """Makes checkpoints, one at a time.  ``counters`` returns what else belongs into the control file."""

    def __init__(self, store: PageStore, redo: RedoLog, mirror: Mirror) -> None:
        self._store = store
        self._redo = redo
        self._mirror = mirror
        self._running = threading.Lock()
        self._buffer = untouched(ROUND_SIZE)
        self._copies = untouched(2 * _ROUND_PAGES, "I")  # id and version of each copy
        self.counters = Hook(_no_counters)
        self.keep = Hook(_keep_nothing)  # old pages, before they are overwritten

    @contextmanager
    def none_running(self) -> Iterator[None]:
        """While this lasts no page is written to its place."""
        with self._running:
            yield

    def run(self, **control: int) -> CheckpointReport:
        """Write every page that has changed by now; ``control``: further fields of the control file."""
        with self._running:
            self._store.require_healthy()
            try:
                return self._run(control)
            except BaseException as error:
                # Pages that it has taken over are on no chain any more: no later checkpoint would write them.
                stopped = StorageError(f"a checkpoint was interrupted: {error!r}")
                self._store.failure = self._store.failure or (error if isinstance(error, StorageError) else stopped)
                raise

    def _run(self, control: dict[str, int]) -> CheckpointReport:
        started = time.monotonic()
        ckpt_id = self._store.control["ckpt_id"] + 1
        with self._store.guard:
            redo_lsn = self._redo.end
            following = detach_chain(self._store.area)
        if redo_lsn == self._store.control["redo_lsn"] and following == NO_PAGE and not control:
            return CheckpointReport(ckpt_id - 1, 0, 0, 0.0)  # nothing has changed since the last one
        pages = size = 0
        while following != NO_PAGE:
            count, following, length = self._round(ckpt_id, following)
            pages, size = pages + count, size + length
        for device in list(self._store.devices.values()):
            device.sync()
        self._redo.write_through(redo_lsn)
        with self._store.guard:
            fields = {**self.counters(), "ckpt_id": ckpt_id, "redo_lsn": redo_lsn, **control}
        self._store.write_control(**fields)
        self._redo.files.forget(redo_lsn, self._redo.end)
        return CheckpointReport(ckpt_id, pages, size, time.monotonic() - started)

    def _round(self, ckpt_id: int, first: int) -> tuple[int, int, int]:
        """Copy and write as many pages as the buffer takes; returns their number, the next page, their bytes."""
        count, following, length, end = self._copy(first)
        ids = self._copies[: 2 * count : 2].tolist()
        sizes = numbers(map(self._size, ids))
        seal_copies(address_of(self._buffer), address_of(sizes), count, ckpt_id)
        self._redo.write_through(end)
        self.keep(ids)
        self._mirror.write(ckpt_id, list(zip(ids, sizes, strict=True)), self._buffer[:length])
        self._write(ids, sizes)
        self._give_back(count)
        return count, following, length

    def _copy(self, first: int) -> tuple[int, int, int, int]:
        count = length = end = 0
        following = first
        while following != NO_PAGE and count < _ROUND_PAGES and length + PAGE_SIZES[-1] <= ROUND_BYTES:
            with self._store.guard:
                room, some = ROUND_BYTES - length, min(BATCH, _ROUND_PAGES - count)
                at, pages = address_of(self._buffer) + length, address_of(self._copies) + 8 * count
                result = copy_chain(self._store.area, following, at, room, pages, some)
                end = self._redo.end
            copied, following = result >> 32, result & 0xFFFF_FFFF
            length += sum(map(self._size, self._copies[2 * count : 2 * (count + copied) : 2]))
            count += copied
            if copied == 0:
                break
        return count, following, length, end

    def _size(self, page_id: int) -> int:
        return self._store.devices[page_id >> OFFSET_BITS].page_size

    def _write(self, ids: list[int], sizes: Iterable[int]) -> None:
        """Write the copies to their places, device by device, in the order of the file."""
        copies = sorted(zip(ids, accumulate(sizes, initial=0), strict=False))  # page ids are in that order
        for number, mine in groupby(copies, key=lambda copy: copy[0] >> OFFSET_BITS):
            device = self._store.devices[number]
            places, starts = zip(*mine, strict=True)
            offsets = [page_id & (PAGES_PER_DEVICE - 1) for page_id in places]
            device.write_pages(offsets, self._buffer, list(starts))
            device.sync()

    def _give_back(self, count: int) -> None:
        """Give up the private copies of pages that have not changed since, so that the file's are used again."""
        for start in range(0, count, BATCH):
            with self._store.guard:
                some = self._copies[2 * start : 2 * min(start + BATCH, count)].tolist()
                for page_id, version in zip(some[::2], some[1::2], strict=True):
                    if is_unchanged(self._store.area, page_id, version):
                        self._store.devices[page_id >> OFFSET_BITS].give_back(page_id & (PAGES_PER_DEVICE - 1), 1)


def _no_counters() -> dict[str, int]:
    return {}


def _keep_nothing(_: Sequence[int], /) -> None:
    pass
