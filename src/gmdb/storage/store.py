"""The page store: a database directory, open, with its devices in one global area.

Invariants
 1. While a store is open for writing, no other process has the directory open.
 2. A store by itself writes no page but new ones above the high-water marks: checkpoints do (storage/log/).
 3. A kernel's NEED_SPACE, LOG_FULL and DAMAGED never reach a caller: devices are grown, the log is written out,
    damage is raised as Corruption.
 4. After a write or sync of the log or a checkpoint failed, no change is accepted any more: ``failure`` says why.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TypeVar

from gmdb.errors import (
    Corruption,
    DatabaseClosed,
    InterfaceError,
    NoSuchTablespace,
    NotADatabase,
    ReadOnly,
    SchemaError,
    SpaceFull,
    StorageError,
)
from gmdb.format.address import (
    DEVICES,
    FIRST_USER_DEVICE,
    MAIN_PAGE_SIZE,
    MAIN_SPACE,
    SYSTEM_DEVICE,
    UNDO_DEVICE,
    device_of,
    offset_of,
    page_id_of,
    page_name,
)
from gmdb.format.anatomy import check
from gmdb.format.control import Purpose
from gmdb.format.page import PAGE_SIZES, SegmentType
from gmdb.format.segment import SEGMENT_HEAD, SEGMENT_HEAD_AT
from gmdb.kernel.change.bulk import log_pages
from gmdb.kernel.page.area import IS_CLOSED, IS_WORKING, STATE
from gmdb.kernel.page.segment import NAME_SIZE, read_map
from gmdb.kernel.runtime.status import DAMAGED, LOG_FULL, NEED_SPACE
from gmdb.kernel.undo import check_page, create_segment
from gmdb.process.finalizers import Living
from gmdb.process.hooks import Hook
from gmdb.process.late_imports import numpy as np
from gmdb.storage import directory as files
from gmdb.storage import disk
from gmdb.storage.device import Device, Mended, create_device, new_area
from gmdb.storage.memory import address_of, zeros

# ---- Tablespaces: named groups of devices with one page size.
#
# A tablespace has the number of its first device.  Its devices are filled in order; the last that may still grow
# does so when all are full.


class Tablespace:
    def __init__(self, devices: list[Device]) -> None:
        self.devices = devices
        for device, following in zip(devices, [*devices[1:], None], strict=True):
            device.link(following)

    @property
    def space_id(self) -> int:
        return self.devices[0].number

    @property
    def name(self) -> str:
        return self.devices[0].space_name

    @property
    def page_size(self) -> int:
        return self.devices[0].page_size

    def grow(self, pages: int) -> Device:
        """Make room for ``pages`` adjacent pages; returns the device that has it."""
        full: SpaceFull | None = None
        for device in self.devices:
            head = device.head
            if head.page_count - head.hwm >= pages:
                return device
            try:
                device.grow(pages - (head.page_count - head.hwm))
                return device
            except SpaceFull as error:
                full = error
        assert full is not None
        raise full


def group_devices(devices: list[Device]) -> dict[int, Tablespace]:
    """Open devices by tablespace."""
    members: dict[int, list[Device]] = {}
    for device in sorted(devices, key=lambda d: d.number):
        members.setdefault(device.space_id, []).append(device)
    return {space_id: Tablespace(group) for space_id, group in members.items()}


# ---- The page store.

SYSTEM_PAGE_SIZE, UNDO_PAGE_SIZE = 8192, 32768
ATTEMPTS = 1000
TURNS = 32
PAGES_MIN, PAGES_MAX = 2, 1024  # a kernel call takes few pages, or many if it splits pages of many indexes
T = TypeVar("T")
NOT_CARRIED = ("magic", "format_version", "database_id", "reserved", "crc")


def create_store(directory: Path, next_obj_id: int, redo_file_size: int) -> None:
    """Make the files of an empty database in an empty directory."""
    create_device(directory, SYSTEM_DEVICE, SYSTEM_DEVICE, "system", SYSTEM_PAGE_SIZE)
    create_device(directory, UNDO_DEVICE, UNDO_DEVICE, "undo", UNDO_PAGE_SIZE)
    create_device(directory, FIRST_USER_DEVICE, FIRST_USER_DEVICE, MAIN_SPACE, MAIN_PAGE_SIZE)
    fields = {"database_id": list(os.urandom(16)), "next_obj_id": next_obj_id, "next_transaction": 1, "scn": 1}
    fields |= {"next_device": FIRST_USER_DEVICE + 1, "redo_file_size": redo_file_size, "clean": 1}
    files.write_control(directory, fields)
    files.sync_directory(directory)


def _carried(control: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in control.items() if name not in NOT_CARRIED}


def renew_identity(directory: Path) -> None:
    """Give a closed database a new id: log that was written under its old id does not count as its own."""
    fields = {**_carried(files.read_control(directory)), "database_id": list(os.urandom(16))}
    files.write_control(directory, files.write_control(directory, fields))  # both copies


def _no_log(_: bool, /) -> None:
    raise AssertionError("pages are logged, but no log is open")


def _nothing() -> None:
    pass


def _any_number(_: int, /) -> None:
    """Without checkpoints changed pages stay in memory."""


def _no_pins(_: Sequence[int] | np.ndarray, /) -> None:
    pass


_open_stores: Living[PageStore] = Living()


def _close_in_child() -> None:
    """In a forked child the database is the parent's: the child closes it without writing."""
    for store in list(_open_stores):
        store.close()


os.register_at_fork(after_in_child=_close_in_child)


_DAMAGED_PAGE, _LOAD_COUNT = (STATE.offset(name) // 8 for name in ("damaged_page", "load_count"))


class PageStore:
    """Pages by their id.

    ``guard`` is held while pages are changed, and by readers that must not see them change.
    """

    def __init__(
        self, directory: Path, read_only: bool = False, mend: Callable[[PageStore], Mended | None] | None = None
    ) -> None:
        """Open a directory.  ``mend`` is called before any device is opened, for pages that a crash has torn."""
        self.directory = directory
        self.read_only = read_only
        self.control = files.read_control(directory)
        if self.control["purpose"] == Purpose.DUMP:
            raise NotADatabase(f"{directory} is a dump of a database's pages; look at it with gmstat")
        files.refuse_links(directory)
        self._lock = files.DirectoryLock(directory, exclusive=not read_only)
        self._area = new_area()
        self.area = address_of(self._area)
        self.state = self._area[: STATE.itemsize // 8]
        self.devices: dict[int, Device] = {}
        self.guard = threading.RLock()
        self._acquire, self._release = self.guard.acquire, self.guard.release
        self._control_lock = threading.Lock()
        self.failure: StorageError | None = None
        self.make_log_room = Hook(_no_log)
        self.throttle = Hook(_nothing)
        self.limit_dirty = Hook(_any_number)
        self.keep_images = Hook(_no_pins)  # before pages are overwritten in their files
        self.scans = 0  # scans that are being decoded
        self._turns = 0
        _open_stores.add(self)
        try:
            self.control = files.read_control(directory)
            files.check_devices_present(directory, (SYSTEM_DEVICE, UNDO_DEVICE, FIRST_USER_DEVICE))
            self._open_devices(None if mend is None else mend(self))
            self._check_spaces()
        except BaseException:
            self.close()
            raise
        self.spaces = group_devices(list(self.devices.values()))

    def _open_devices(self, mended: Mended | None) -> None:
        known = self.control["next_device"] or DEVICES
        for number in files.device_numbers(self.directory):
            if number < known:
                self.devices[number] = Device(self._area, self.directory, number, self.read_only, mended)
            elif not self.read_only:
                disk.current.remove(files.device_path(self.directory, number))  # its tablespace was not finished

    def _check_spaces(self) -> None:
        """A tablespace is named by its first device, and has pages of one size: kernels rely on that."""
        for device in self.devices.values():
            first = self.devices.get(device.space_id)
            is_own = device.number == device.space_id or device.number > FIRST_USER_DEVICE
            if first is None or first.space_id != first.number or first.page_size != device.page_size or not is_own:
                place = f"tablespace {device.space_id}, with pages of {device.page_size} bytes"
                raise Corruption(f"{device.path}: it cannot be of {place}", page_id_of(device.number, 0))
        if self.devices[UNDO_DEVICE].page_size != UNDO_PAGE_SIZE:
            message = f"{self.devices[UNDO_DEVICE].path}: undo pages must have {UNDO_PAGE_SIZE} bytes"
            raise Corruption(message, page_id_of(UNDO_DEVICE, 0))

    # ---- tablespaces

    def space(self, name: str) -> Tablespace:
        for space in self.spaces.values():
            if space.name == name:
                return space
        known = ", ".join(space.name for space in self.spaces.values())
        raise NoSuchTablespace(f"there is no tablespace {name}; there are {known}")

    def space_of(self, page_id: int) -> Tablespace:
        """The tablespace that a page lies in."""
        device = self.devices.get(device_of(page_id))
        if device is None:
            raise Corruption(f"page {page_name(page_id)} does not exist, though another page refers to it", page_id)
        return self.spaces[device.space_id]

    def create_tablespace(self, name: str, page_size: int, devices: int, device_pages_max: int) -> Tablespace:
        self.require_writable()
        if page_size not in PAGE_SIZES:
            raise SchemaError(
                f"tablespace {name}: page size {page_size} is not one of {', '.join(map(str, PAGE_SIZES))}"
            )
        if not 1 <= len(name.encode()) <= 31:
            raise SchemaError(f"{name!r} is not a tablespace name: it must have 1 to 31 bytes")
        if any(space.name == name for space in self.spaces.values()):
            raise SchemaError(f"there is a tablespace {name} already")
        first = self.control["next_device"]
        if devices < 1 or first + devices > DEVICES:
            raise SchemaError(f"tablespace {name}: {devices} devices; a database has at most {DEVICES}")
        for number in files.device_numbers(self.directory):
            if number >= first:  # left by an earlier attempt that ran out of disk space
                disk.current.remove(files.device_path(self.directory, number))
        for number in range(first, first + devices):
            create_device(self.directory, number, first, name, page_size, device_pages_max)
        files.sync_directory(self.directory)
        self.write_control(next_device=first + devices)
        for number in range(first, first + devices):
            self.adopt_device(number)
            # Recovery of an older copy of the database finds the device in the log.
            self.call(log_pages, first, 0, self.devices[number].address(0), page_size, 1, 0, 0)
        return self.spaces[first]

    def remove_tablespace(self, space: Tablespace) -> None:
        """Close the devices of a tablespace and remove their files.  The guard is held."""
        for device in reversed(space.devices):
            del self.devices[device.number]
            device.close()
            files.note_dropped(self.directory, device.number)
            disk.current.remove(files.device_path(self.directory, device.number))
            files.sync_directory(self.directory)
        self.spaces = group_devices(list(self.devices.values()))

    def adopt_device(self, number: int) -> None:
        """Open a device that was made just now."""
        self.devices[number] = Device(self._area, self.directory, number)
        self.spaces = group_devices(list(self.devices.values()))

    def read_ahead(self, page_ids: np.ndarray) -> np.ndarray:
        """Fetch pages that a scan is about to read, runs of neighbours at once.  Returns those to be scanned.

        A page that cannot exist is left to the kernel that touches it, which reports it.
        """
        breaks = np.flatnonzero(np.diff(page_ids.astype(np.int64)) != 1) + 1
        for run in np.split(page_ids, breaks):
            if len(run):
                first = int(run[0])
                device = self.devices.get(device_of(first))
                if device is not None:
                    device.read_ahead(offset_of(first), len(run))
        return page_ids

    # ---- calling kernels

    def call(self, kernel: Callable[..., int], space_id: int, *arguments: int) -> int:
        """Run a kernel that may need pages of a tablespace."""
        return self._call(kernel, space_id, False, *arguments)

    def call_guarded(self, kernel: Callable[..., int], space_id: int, *arguments: int) -> int:
        """``call`` on an open store, with the guard held for it."""
        with self.guard:
            self.require_open()
            return self._call(kernel, space_id, False, *arguments)

    def call_essential(self, kernel: Callable[..., int], space_id: int, *arguments: int) -> int:
        """``call`` of a kernel that ends a transaction: the last of the log's space is reserved for those."""
        return self._call(kernel, space_id, True, *arguments)

    def _call(self, kernel: Callable[..., int], space_id: int, essential: bool, *arguments: int) -> int:
        pages = PAGES_MIN
        while (result := kernel(self.area, *arguments)) in (NEED_SPACE, LOG_FULL):
            if result == LOG_FULL:
                self.make_log_room(essential)
            else:
                pages = self.grow_for(space_id, pages)
        if result == DAMAGED:
            self.raise_damage()
        return result

    def call_surely(self, kernel: Callable[..., int], space_id: int, *arguments: int) -> int:
        """``call_essential`` of a kernel that fails only if undo and pages contradict each other."""
        result = self.call_essential(kernel, space_id, *arguments)
        if result < 0:
            raise Corruption(
                f"{self.directory}: an undo record refers to something that does not exist; see gmdb verify"
            )
        return result

    def grow_for(self, space_id: int, pages: int) -> int:
        """Make room for a kernel that needs pages, for rows or for their undo: it does not say which, nor how many.

        Returns how many pages to request if that was not enough.
        """
        for space in {space_id, UNDO_DEVICE}:
            self.spaces[space].grow(pages)
        return min(2 * pages, PAGES_MAX)

    def damaged_page(self) -> int:
        """The page for which a kernel returned DAMAGED last."""
        return self.state[_DAMAGED_PAGE]

    def raise_damage(self) -> None:
        """Raise Corruption for the page for which a kernel returned DAMAGED."""
        raise self.damage_of(self.damaged_page())

    def damage_of(self, page_id: int) -> Corruption:
        """The error for a page that a kernel refused."""
        name = page_name(page_id)
        device = self.devices.get(device_of(page_id))
        if device is None or offset_of(page_id) >= device.page_count:
            return Corruption(f"page {name} does not exist, though another page refers to it", page_id)
        findings = check(bytes(device.memory(offset_of(page_id))), page_id)
        if not findings:
            return Corruption(f"page {name} is whole, but what it holds is not what the catalog says of it", page_id)
        offset, message = findings[0]
        more = f" (and {len(findings) - 1} more findings)" if len(findings) > 1 else ""
        return Corruption(f"page {name}, offset {offset}: {message}{more}; see gmstat page", page_id, offset)

    def loads_run(self) -> bool:
        """Whether a bulk load may have taken places for pages that it has yet to write."""
        return self.state[_LOAD_COUNT] > 0

    def under_guard(self, busy: AbstractContextManager[Any], work: Callable[..., T], *arguments: Any) -> T:
        """Run something short, a kernel call as a rule, while a session is ``busy`` with it and the guard is held.

        An exception of a signal handler may strike here (process/signals.py), at any line but the one that releases:
        the guard is released whether it was taken by then or not.
        """
        is_begun = False
        with busy:
            try:
                if not self._acquire(False):
                    self._wait_for_guard()
                if self.state[IS_WORKING]:
                    raise InterfaceError("a signal handler cannot use a database while an operation on it is under way")
                is_begun = True
                self.state[IS_WORKING] = 1
                return work(*arguments)
            finally:
                if is_begun:
                    self.state[IS_WORKING] = 0
                try:  # noqa: SIM105  # calling anything else here would let a signal come before the release
                    self._release()
                except RuntimeError:
                    pass  # it was not taken

    def gate(self, busy: Any) -> tuple[Any, ...]:
        """What a kernel that is a whole operation of a session gets as its gate (kernel/runtime/python_api.py)."""
        return ((False,), busy.acquire, busy.release, self._acquire, self._release)

    def _wait_for_guard(self) -> None:
        """Take the guard once it is free.  A thread in line for it would make every release a system call."""
        for _ in range(ATTEMPTS):
            if self._acquire(False):
                return
            time.sleep(0)  # lets the thread that has it run on
        self._acquire()

    def give_way(self) -> None:
        """Release the GIL now and then, after short calls while scans run: else they wait milliseconds for it."""
        self._turns += 1
        if self._turns % TURNS == 0:
            time.sleep(1e-6)

    def require_writable(self) -> None:
        self.require_open()
        if self.read_only:
            raise ReadOnly(f"{self.directory} is open for reading only")
        self.require_healthy()

    def require_healthy(self) -> None:
        if self.failure is not None:
            raise ReadOnly(
                f"{self.directory} takes no more changes: {self.failure}; what was committed before is safe: "
                "close it, mend the disk, and open it again"
            ) from self.failure

    def size(self) -> int:
        """Bytes of all pages: nothing that is kept on them is longer."""
        return sum(device.page_count * device.page_size for device in self.devices.values())

    def require_open(self) -> None:
        if not self.devices:
            raise DatabaseClosed(f"{self.directory} is closed")

    # ---- writing

    def dump(self, directory: Path) -> None:
        """Write all pages as they are in memory to another directory, to be looked at.  The guard is held."""
        self.require_open()
        try:
            directory.mkdir(parents=True)
        except OSError as error:
            raise StorageError(f"{directory}: {error.strerror}") from error
        for device in self.devices.values():
            device.dump(directory, self.control["ckpt_id"])
        for number in files.dropped_numbers(self.directory):
            files.note_dropped(directory, number)
        fields = {**self.control_fields(), "purpose": Purpose.DUMP, "clean": 1}
        files.write_control(directory, files.write_control(directory, fields))  # both copies

    def _carried(self) -> dict[str, Any]:
        return _carried(self.control)

    def control_fields(self) -> dict[str, Any]:
        """The control record as it can be written for a copy of the database."""
        return {**self._carried(), "database_id": list(bytes.fromhex(self.control["database_id"]))}

    def write_control(self, **changes: Any) -> None:
        """Change some fields of the control file, and make that last.

        Both copies are written, one after the other: if one is damaged later, the other says the same, and not that
        the database was closed, or has no device that it has.
        """
        with self._control_lock:
            fields = {**self.control_fields(), **changes}
            for _ in range(2):
                fields = files.write_control(self.directory, fields)
                self.control.update({name: int(fields[name]) for name in self._carried()})

    def close(self) -> None:
        """Close files and release memory, without writing anything."""
        for device in self.devices.values():
            device.close()
        self.devices = {}
        self.state[IS_CLOSED] = 1
        self._lock.release()


# ---- A segment: the pages of one table, found through its map.
#
# Not here: rows (tables/access/heap.py).


class Segment:
    def __init__(self, store: PageStore, space: Tablespace, entry_page: int) -> None:
        self.store = store
        self.space = space
        self.entry_page = entry_page

    @classmethod
    def create(
        cls,
        store: PageStore,
        space: Tablespace,
        obj_id: int,
        name: str,
        kind: SegmentType,
        pct_free: int,
        call_address: int = 0,
    ) -> Segment:
        """Make a segment; with a session's call it is part of its transaction, which keeps the undo record."""
        label = bytearray(name.encode()[: NAME_SIZE - 1].ljust(NAME_SIZE, b"\0"))
        arguments = (call_address, space.space_id, obj_id, int(kind), pct_free, address_of(label))
        return cls(store, space, store.call(create_segment, space.space_id, *arguments))

    @property
    def head(self) -> Any:
        """The segment head, in the entry page as it is in memory."""
        device = self.store.devices.get(device_of(self.entry_page))
        if device is None or offset_of(self.entry_page) >= device.page_count:
            raise Corruption(f"the entry page of a segment, {self.entry_page}, does not exist", self.entry_page)
        self.store.call(check_page, self.space.space_id, self.entry_page)
        return SEGMENT_HEAD.at(device.memory(offset_of(self.entry_page)), SEGMENT_HEAD_AT)

    def page_ids(self) -> memoryview:
        """The data pages, in map order."""
        with self.store.guard:
            ids = zeros(max(self._read_map(0, 0), 1), "I")
            return ids[: self._read_map(address_of(ids), len(ids))]

    def _read_map(self, address: int, capacity: int) -> int:
        return self.store.call(read_map, self.space.space_id, self.entry_page, address, capacity)
