"""Replaying the log after a crash: from where the control file says to the end of the last whole group."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from gmdb.errors import Corruption
from gmdb.format.address import OFFSET_BITS, device_of, page_name
from gmdb.format.device import DEVICE_HEAD, DEVICE_HEAD_AT, DEVICE_PAGE_END, SPACE_HEAD, SPACE_HEAD_AT
from gmdb.format.page import PAGE_SIZES
from gmdb.format.redo import REDO_GROUP, REDO_ITEM, RedoItem
from gmdb.kernel.page.redo import MORE, REPLAY, STOPPED, check_replayed, find_group_after, replay_groups
from gmdb.kernel.runtime.status import DAMAGED, NEED_SPACE
from gmdb.process import signals
from gmdb.storage.device import create_device
from gmdb.storage.directory import sync_directory
from gmdb.storage.log.checkpoint import torn_pages, write_torn
from gmdb.storage.log.log_files import ARCHIVE, RedoReader
from gmdb.storage.log.reports import Progress, Recovery
from gmdb.storage.memory import address_of, zeros
from gmdb.storage.store import PageStore

CHUNK = 8 << 20


def mend(store: PageStore, recovery: Recovery) -> dict[int, bytes] | None:
    """Find torn pages; if the database may be written, put them right.  None: the database was closed properly."""
    if store.control["clean"]:
        return None
    torn = torn_pages(store.directory, database_id(store), store.control["ckpt_id"] + 1)
    recovery.torn_pages = sorted(torn)
    if torn and not store.read_only:
        write_torn(store.directory, torn)
        return {}
    return torn


def database_id(store: PageStore) -> bytes:
    return bytes.fromhex(store.control["database_id"])


class Replayer:
    def __init__(self, store: PageStore, recovery: Recovery, archive: Path | None = None) -> None:
        """``archive``: a folder with more of the log, or a database that has one."""
        folders = [store.directory, store.directory / ARCHIVE]
        if archive is not None:
            folders += [archive / ARCHIVE, archive]
        self._goes_on = archive is not None
        self._store = store
        self._recovery = recovery
        self._reader = RedoReader(folders, database_id(store), store.control["redo_file_size"])
        self._memory = zeros(REPLAY.itemsize)
        self._state = REPLAY.at(self._memory)

    def run(self, stop_time: int = 0, progress: Progress | None = None) -> None:
        """Replay all there is, or up to the last commit before ``stop_time`` (microseconds since 1970)."""
        started = time.monotonic()
        lsn = self._store.control["redo_lsn"]
        self._reader.require(lsn)
        state = self._state
        state.lsn, state.stop_time, state.scn = lsn, stop_time, self._store.control["scn"]
        total = self._reader.length_from(lsn)
        start = lsn
        data = b""
        while True:
            signals.check()  # the next process that opens the database replays the log again
            more = self._reader.read(lsn + len(data), CHUNK, start)
            data += more
            status = self._apply(data)
            done = state.lsn - lsn
            data, lsn = data[done:], state.lsn
            self._recovery.redo_bytes += done
            if progress is not None:
                progress("replaying redo", self._recovery.redo_bytes, total)
            if status == STOPPED:
                self._recovery.stopped = True
                break
            if status == MORE and more:
                continue
            following = self._reader.after_end(lsn)
            if following is None:
                self._refuse_a_hole(lsn)
                if self._goes_on:
                    self._reader.refuse_a_gap(lsn)
                break
            start, lsn, data = following, following, b""
            state.lsn = lsn
        self._check()
        self._report(lsn, time.monotonic() - started)

    def _apply(self, data: bytes) -> int:
        """Replay the whole groups of some bytes."""
        memory = bytearray(data) + bytes(64)
        state = self._state
        state.buffer, state.length, state.at = address_of(memory), len(data), 0
        while (status := replay_groups(self._store.area, address_of(self._memory))) == NEED_SPACE:
            page_id = state.page_id
            device = self._store.devices.get(page_id >> OFFSET_BITS)
            has_room = device.cover() if device is not None else self._make_device(data[state.at :], page_id)
            if not has_room:
                raise Corruption(f"the redo log changes page {page_name(page_id)}, which no device has", page_id)
        if status == DAMAGED:
            self._store.raise_damage()
        return status

    def _check(self) -> None:
        """Check that the pages are sound with all that was written to them, and as many as their devices say."""
        for device in self._store.devices.values():
            device.cover()  # it may have grown without a page being used yet
        if check_replayed(self._store.area) == DAMAGED:
            page_id = self._store.damaged_page()
            raise Corruption(f"with the redo log replayed, page {page_name(page_id)} is not as pages are", page_id)

    def _make_device(self, group: bytes, page_id: int) -> bool:
        """Make a device that the copy is too old to have, from its head in the log; False: it is not there."""
        head = next((page for at, page in _images(group) if at == page_id), b"")
        if len(head) < DEVICE_PAGE_END or self._store.read_only:
            return False
        number, pages_max = device_of(page_id), DEVICE_HEAD.at(head, DEVICE_HEAD_AT).pages_max
        space = SPACE_HEAD.at(head, SPACE_HEAD_AT)
        first = self._store.devices.get(space.space_id)
        size = space.page_size if first is None else first.page_size
        if space.page_size not in PAGE_SIZES or space.page_size != size or space.space_id > number or number < 1:
            raise Corruption(f"the redo log makes device {number} as no device can be", page_id)
        name = space.name.decode(errors="replace")
        create_device(self._store.directory, number, space.space_id, name, space.page_size, pages_max)
        sync_directory(self._store.directory)
        self._store.write_control(next_device=max(number + 1, self._store.control["next_device"]))
        self._store.adopt_device(number)
        return True

    def _refuse_a_hole(self, lsn: int) -> None:
        """The log seems to end at ``lsn``.  Bytes behind it that say that it went on mean that it was damaged."""
        for start, data in self._reader.behind(lsn, CHUNK):
            memory = bytearray(data)
            if find_group_after(address_of(memory), len(data), start, lsn):
                if self._goes_on and self._reader.number_of(start) != self._reader.number_of(lsn):
                    self._reader.refuse_a_gap(lsn)  # it knows which file to ask for
                raise Corruption(
                    f"the redo log is damaged at {self._reader.describe(lsn)}: commits behind it were on disk; "
                    "restore the file from the archive or a backup"
                )

    def _report(self, lsn: int, seconds: float) -> None:
        state, recovery = self._state, self._recovery
        recovery.end_lsn = lsn
        recovery.groups, recovery.items = state.groups, state.items
        recovery.commits = state.commits
        recovery.scn = state.scn
        recovery.last_commit = state.time
        recovery.next_transaction = max(state.transaction + 1, self._store.control["next_transaction"])
        recovery.seconds += seconds


def _images(group: bytes) -> Iterator[tuple[int, bytes]]:
    """The pages that a whole group has images of."""
    at, end = REDO_GROUP.size, REDO_GROUP.at(group).length
    while at + REDO_ITEM.size <= end:
        item = REDO_ITEM.at(group, at)
        at += REDO_ITEM.size + item.length
        if at > end:
            return
        if item.offset == RedoItem.IMAGE:
            yield item.page_id, group[at - item.length : at]
