"""A device's file, read page by page, whatever state it is in.

A device head that makes no sense does not prevent reading the pages behind it: the page size then
falls back to what such a device usually has, and the page count to what the file holds.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from gmdb.errors import Corruption, StorageError
from gmdb.format.address import UNDO_DEVICE, page_id_of, page_name
from gmdb.format.device import DEVICE_HEAD, DEVICE_HEAD_AT, DEVICE_PAGE_END, SPACE_HEAD, SPACE_HEAD_AT
from gmdb.format.page import HEAD_SIZE, PAGE_HEAD, PAGE_SIZES, PageType
from gmdb.process.late_dataclasses import dataclass
from gmdb.process.late_imports import numpy as np
from gmdb.storage.disk import open_plain

USUAL_PAGE_SIZE = PAGE_SIZES[0]
USUAL_UNDO_PAGE_SIZE = PAGE_SIZES[-1]


class DeviceFile:
    """One device of a database: its head, and its pages."""

    def __init__(self, path: Path, number: int) -> None:
        self.path, self.number = path, number
        try:
            self._file = open_plain(path)
        except OSError as error:
            raise StorageError(f"{path}: {error.strerror}") from error
        self.read_head(self._read(DEVICE_PAGE_END, 0).ljust(DEVICE_PAGE_END, b"\0"))

    def read_head(self, start: bytes) -> None:
        """What the device's head says of it, or one that counts instead of that in the file."""
        device, space = DEVICE_HEAD.at(start, DEVICE_HEAD_AT), SPACE_HEAD.at(start, SPACE_HEAD_AT)
        usual = USUAL_UNDO_PAGE_SIZE if self.number == UNDO_DEVICE else USUAL_PAGE_SIZE
        self.page_size: int = space.page_size if space.page_size in PAGE_SIZES else usual
        self.has_head: bool = (
            PAGE_HEAD.at(start).page_type == PageType.DEVICE_HEAD
            and space.page_size in PAGE_SIZES
            and device.hwm <= device.page_count
        )
        self.page_count: int = device.page_count if self.has_head else self.file_pages
        self.hwm: int = device.hwm if self.has_head else self.file_pages
        self.free_page_count: int = device.free_page_count if self.has_head else 0
        self.space_id: int = space.space_id if self.has_head else self.number
        self.space_name: str = space.name.decode("utf-8", "replace") if self.has_head else ""
        self.seg_num: int = space.seg_num if self.has_head else 0
        self.space_free_pages: int = space.free_pages if self.has_head else 0

    @property
    def file_size(self) -> int:
        return os.fstat(self._file).st_size

    @property
    def file_pages(self) -> int:
        """Whole pages that the file has now."""
        return self.file_size // self.page_size

    def page(self, offset: int) -> bytes:
        """Page number ``offset`` as it is in the file.  Raises if the file has not all of it."""
        page = self._read(self.page_size, offset * self.page_size)
        if len(page) == self.page_size:
            return page
        name = page_name(page_id_of(self.number, offset))
        if page:
            message = f"page {name} is cut short: {self.path} has {len(page)} of its {self.page_size} bytes"
            raise Corruption(message, page_id_of(self.number, offset))
        if offset < self.page_count:
            message = f"page {name} is missing: {self.path} ends after {self.file_pages} of {self.page_count} pages"
            raise Corruption(message, page_id_of(self.number, offset))
        raise StorageError(f"there is no page {name}: {self.path} has {self.file_pages} pages, counted from 0")

    def head(self, offset: int) -> bytes:
        """Only the page head of page number ``offset``, to look through many pages."""
        return self._read(HEAD_SIZE, offset * self.page_size)

    def starts(self, offsets: Iterable[int], size: int, into: np.ndarray) -> None:
        """The first ``size`` bytes of some pages, a row of ``into`` each; what the file has not stays as it is."""
        try:
            for number, offset in enumerate(offsets):
                os.preadv(self._file, [into[number, :size].data], offset * self.page_size)
        except OSError as error:
            raise StorageError(f"{self.path}: {error.strerror}") from error

    def _read(self, size: int, at: int) -> bytes:
        try:
            return os.pread(self._file, size, at)
        except OSError as error:
            raise StorageError(f"{self.path}, at byte {at}: {error.strerror}") from error

    def problems(self) -> list[str]:
        """What is wrong with the device as a whole."""
        problems = []
        if not self.has_head:
            problems.append(f"the device head is damaged; taken for pages of {self.page_size} bytes")
        if self.file_pages < self.page_count:
            problems.append(f"the file ends after {self.file_pages} of {self.page_count} pages")
        if self.file_size % self.page_size:
            problems.append(f"the file ends in {self.file_size % self.page_size} bytes that are not a whole page")
        return problems

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


# ---- Tablespaces: the devices that share a page size and a name.


@dataclass(frozen=True)
class Space:
    """A tablespace; it has the number of its first device, whose head also keeps its counts."""

    space_id: int
    devices: tuple[DeviceFile, ...]

    @property
    def name(self) -> str:
        return self.devices[0].space_name or "?"

    @property
    def page_size(self) -> int:
        return self.devices[0].page_size

    @property
    def page_count(self) -> int:
        return sum(device.page_count for device in self.devices)

    @property
    def hwm(self) -> int:
        return sum(device.hwm for device in self.devices)

    @property
    def free_pages(self) -> int:
        return sum(device.free_page_count for device in self.devices)

    @property
    def seg_num(self) -> int:
        return self.devices[0].seg_num

    def problems(self) -> list[str]:
        problems = [f"device {device.number}: {problem}" for device in self.devices for problem in device.problems()]
        if self.devices[0].number != self.space_id:
            problems.insert(0, f"its first device, {self.space_id}, is missing")
        elif self.devices[0].has_head and self.devices[0].space_free_pages != self.free_pages:
            counted = f"the space head counts {self.devices[0].space_free_pages} free pages"
            problems.append(f"{counted}, its devices {self.free_pages}")
        return problems

    def document(self) -> dict[str, Any]:
        """The tablespace in plain values, for JSON."""
        return {
            "space_id": self.space_id,
            "name": self.name,
            "page_size": self.page_size,
            "page_count": self.page_count,
            "hwm": self.hwm,
            "free_pages": self.free_pages,
            "seg_num": self.seg_num,
            "devices": [_device_document(device) for device in self.devices],
            "problems": self.problems(),
        }


def _device_document(device: DeviceFile) -> dict[str, Any]:
    return {
        "dev_id": device.number,
        "file": device.path.name,
        "file_size": device.file_size,
        "page_count": device.page_count,
        "hwm": device.hwm,
        "free_page_count": device.free_page_count,
    }


def group_by_space(devices: Iterable[DeviceFile]) -> list[Space]:
    groups: dict[int, list[DeviceFile]] = {}
    for device in devices:
        groups.setdefault(device.space_id, []).append(device)
    return [Space(space_id, tuple(group)) for space_id, group in sorted(groups.items())]
