"""Giving the free pages at the end of devices back to the operating system.

Bulk loads write to pages above the high-water mark straight away, so that mark comes down only when nothing above it
can still turn up: no private copy, no page of a checkpoint under way, no redo.  In this order:

 1. The pages are gathered at the end of the list of free pages, and measured.
 2. A checkpoint: it has the pages in the file, and redo of them lies before where the log counts from.
 3. If the pages have not changed since they were measured, the list is cut, and high-water mark and page count
    come down, in one group of redo.  From here on the places may be used again.
 4. A checkpoint: the device head in the file asks for no more pages than there will be.
 5. The file is cut off behind the page count, whatever that is by then.

A crash after any step leaves a sound database, at worst with a file that is longer than its pages.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from gmdb.errors import SchemaError, StorageError
from gmdb.format.address import FIRST_USER_DEVICE
from gmdb.format.device import SPACE_HEAD, SPACE_HEAD_AT
from gmdb.format.page import PAGE_HEAD, PageType
from gmdb.kernel.change.shrink import MORE, MOVES_MAX, TAIL, cut_tail, gather_free, measure_tail, survey_free
from gmdb.process.hooks import Hook
from gmdb.process.late_dataclasses import dataclass, field
from gmdb.process.late_imports import numpy as np
from gmdb.storage.device import GROWTH_MIN, Device
from gmdb.storage.log.checkpoint import Checkpoints
from gmdb.storage.log.redo_buffer import RedoLog
from gmdb.storage.store import PageStore, Tablespace

# ---- Removing a tablespace that nothing lies in any more.
#
#  1. A checkpoint: whatever the log says of its pages lies before where the log counts from.
#  2. If nothing has been taken from or given back to it since, its devices are closed and their files removed, the
#     first one last: that is the one by which the tablespace is found.
#
# A crash leaves the tablespace, or some of its devices, empty as it was; dropping it again finishes the work.


class Dropping:
    def __init__(
        self, store: PageStore, redo: RedoLog, checkpoints: Checkpoints, is_pinned: Callable[[], bool]
    ) -> None:
        self._store = store
        self._redo = redo
        self._checkpoints = checkpoints
        self._is_pinned = is_pinned

    def run(self, name: str) -> None:
        """Remove a tablespace.  The caller makes sure that no file is made shorter meanwhile."""
        with self._store.guard:
            space = self._store.space(name)
            if space.space_id <= FIRST_USER_DEVICE:
                raise SchemaError(f"tablespace {name} is the database's own; it cannot be dropped")
            if self._is_pinned():
                raise SchemaError(
                    f"tablespace {name} may be read by snapshots: wait until they are over, or drop them "
                    "(gmdb snapshots list, gmdb snapshots drop)"
                )
            self._require_empty(space)
            before, redo_end = _changes(space), self._redo.end
        self._checkpoints.run()
        with self._checkpoints.none_running(), self._store.guard:
            self._require_empty(space)
            if _changes(space) != before or self._redo.files.oldest_held() <= redo_end:
                raise SchemaError(f"tablespace {name} is in use, or a backup is being made; try again")
            self._store.remove_tablespace(space)

    @staticmethod
    def _require_empty(space: Tablespace) -> None:
        segments = SPACE_HEAD.at(space.devices[0].memory(0), SPACE_HEAD_AT).seg_num
        if segments:
            raise SchemaError(
                f"tablespace {space.name} has {segments} segments: drop its tables first; "
                "dropped tables stay for as long as a reader may need them"
            )


def _changes(space: Tablespace) -> list[int]:
    """Numbers that change whenever a page of the tablespace is taken or given back."""
    return [int(PAGE_HEAD.at(device.memory(0)).chg_num) for device in space.devices]


# ---- Giving the free pages at the end of devices back to the operating system.

SHARE = 4  # by itself a device is made shorter if a quarter of it would go,
SIZE_MIN = 4 << 20  # and so many bytes
ATTEMPTS = 3  # beside writers, who may take a page that is about to go


@dataclass
class Cut:
    """A device's pages from ``target`` on, which are free."""

    device: Device
    target: int
    redo_end: int = 0  # all redo of them lies before
    measured: np.ndarray = field(default_factory=lambda: np.zeros(1, TAIL))


class Shrinking:
    def __init__(self, store: PageStore, redo: RedoLog, checkpoint: Callable[[], object]) -> None:
        self._store = store
        self._redo = redo
        self._checkpoint = checkpoint
        self._running = threading.Lock()
        self.before = Hook(_nothing)  # gives pages back that hold nothing
        self.is_pinned = Hook(_never)  # whether a snapshot needs files as long as they are

    @contextmanager
    def none_running(self) -> Iterator[None]:
        """While this lasts no file gets shorter."""
        with self._running:
            yield

    def run(self, only_if_worth_it: bool = False) -> int:
        """Make every device as short as its last page in use allows; returns how many bytes that gave back.

        ``only_if_worth_it``: for the background thread, which must not wait: others may wait for it.
        """
        if self.is_pinned():
            return 0
        if only_if_worth_it and not any(_may_be_worth_it(device) for device in list(self._store.devices.values())):
            return 0
        if not self._running.acquire(blocking=not only_if_worth_it):
            return 0
        try:
            if self.is_pinned():  # since it was asked
                return 0
            self.before()
            freed = 0
            for _ in range(ATTEMPTS):
                wanted = [cut for device in list(self._store.devices.values()) for cut in self._plan(device)]
                chosen = [cut for cut in wanted if not only_if_worth_it or is_worth_it(cut.device, cut.target)]
                if not chosen:
                    break
                ready = [cut for cut in chosen if self.gather(cut)]
                if ready:
                    self._checkpoint()
                done = [cut for cut in ready if self.lower(cut)]
                if done:
                    self._checkpoint()
                    freed += sum(self._cut_file(cut.device) for cut in done)
                if len(done) == len(chosen):
                    break
            return freed
        finally:
            self._running.release()

    def _plan(self, device: Device) -> list[Cut]:
        """What could go at the end of a device; most of that is looked at without the guard."""
        with self._store.guard:
            head = device.head
            page_count, hwm = head.page_count, head.hwm
            last_is_free = PAGE_HEAD.at(device.memory(hwm - 1)).page_type == PageType.FREE
        target = hwm
        if last_is_free:
            marks = np.zeros(hwm, np.uint8)
            survey_free(self._store.area, device.number, marks.ctypes.data, hwm)
            target = int(np.flatnonzero(marks == 0)[-1]) + 1
        return [Cut(device, target)] if max(target, _least(device)) < page_count else []

    def gather(self, cut: Cut) -> bool:
        """Step 1; False if a page that was to go is in use."""
        store, number = self._store, cut.device.number
        for _ in range(cut.device.head.hwm // MOVES_MAX + 2):  # a list that leads round in a circle has no end
            with store.guard:
                if store.call(gather_free, 0, number, cut.target) != MORE:
                    break
        with store.guard:
            cut.redo_end = self._redo.end
            store.call(measure_tail, 0, number, cut.target, cut.measured.ctypes.data)
            return bool(cut.measured["count"][0] == cut.device.head.hwm - cut.target)

    def lower(self, cut: Cut) -> bool:
        """Step 3; False if the pages have changed, or their redo is still needed."""
        store, now = self._store, np.zeros(1, TAIL)
        address, number = now.ctypes.data, cut.device.number
        with store.guard:
            store.call(measure_tail, 0, number, cut.target, address)
            same = all(now[name] == cut.measured[name] for name in ("count", "changes", "formats"))
            whole = now["count"][0] == cut.device.head.hwm - cut.target and now["dirty"][0] == 0
            if not same or not whole or self._redo.files.oldest_held() < cut.redo_end:
                return False
            page_count = max(cut.target, min(_least(cut.device), cut.device.head.page_count))
            before = cut.device.head.hwm
            store.call(cut_tail, 0, number, cut.target, page_count, address)
            cut.device.reuse(cut.target, before)
            return True

    def _cut_file(self, device: Device) -> int:
        """Step 5."""
        try:
            return device.cut()
        except StorageError as error:
            with self._store.guard:
                self._store.failure = self._store.failure or error
            raise


def _least(device: Device) -> int:
    """Pages that a device has from the beginning."""
    return GROWTH_MIN // device.page_size


def _never() -> bool:
    return False


def _nothing() -> None:
    pass


def _may_be_worth_it(device: Device) -> bool:
    head = device.head
    return is_worth_it(device, head.hwm - head.free_page_count)


def is_worth_it(device: Device, target: int) -> bool:
    """Whether freeing the pages from ``target`` on is worth it in the background."""
    page_count = device.head.page_count
    pages = page_count - max(target, _least(device))
    return pages * SHARE >= page_count and pages * device.page_size >= SIZE_MIN
