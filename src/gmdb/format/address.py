"""Addresses: page ids and row ids.

A page id is a device and an offset in it, ``dev_id << 22 | offset``: 1,024 devices of 4 Mi pages.
A row id is a page id and a slot; it is what indexes and users keep, so it survives updates and migration.
A *place* is a page id and a slot in one number, ``page_id << 16 | slot``: how Python and kernels pass each other where
a row, an index entry or an undo record is.  Places are not on disk.
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

from gmdb.errors import InterfaceError
from gmdb.format.layout import layout
from gmdb.process.late_imports import numpy as np

Numbers = TypeVar("Numbers", int, "np.ndarray")

OFFSET_BITS = 22
PAGES_PER_DEVICE = 1 << OFFSET_BITS
DEVICES = 1024
NO_PAGE = 0xFFFF_FFFF
NO_SLOT = 0xFFFF

SYSTEM_DEVICE, UNDO_DEVICE, TEMP_DEVICE, LOB_DEVICE, FIRST_USER_DEVICE = range(5)
MAIN_SPACE, MAIN_PAGE_SIZE = "main", 8192  # the tablespace of the first user device

ROW_ID = layout(
    "row id",
    8,
    page_id=("<u4", "the page of the row's slot; none = 0xFFFFFFFF"),
    slot_id=("<u2", "the slot in that page's directory; none = 0xFFFF"),
    sid_reserve=("<u2", "65535"),
)


def place_of(page_id: Numbers, slot: Numbers) -> Numbers:
    return page_id << 16 | slot


def page_of(place: Numbers) -> Numbers:
    return place >> 16


def slot_of(place: Numbers) -> Numbers:
    return place & 0xFFFF


NO_PLACE = place_of(NO_PAGE, NO_SLOT)


class RowId(NamedTuple):
    """The page and slot by which a row is found for as long as it lives, wherever its bytes lie."""

    page_id: int
    slot_id: int

    @property
    def word(self) -> int:
        """The row id's 8 bytes as one little-endian number."""
        return self.page_id | self.slot_id << 32 | 0xFFFF << 48

    @classmethod
    def from_word(cls, word: int) -> RowId:
        return cls(word & 0xFFFF_FFFF, word >> 32 & 0xFFFF)

    @property
    def place(self) -> int:
        return place_of(self.page_id, self.slot_id)

    @classmethod
    def from_place(cls, place: int) -> RowId:
        return cls(place >> 16, place & 0xFFFF)

    def __str__(self) -> str:
        return f"{page_name(self.page_id)}:{self.slot_id}"

    def __repr__(self) -> str:
        return f"<RowId {self}>"


def page_id_of(device: int, offset: int) -> int:
    return device << OFFSET_BITS | offset


def device_of(page_id: Numbers) -> Numbers:
    return page_id >> OFFSET_BITS


def offset_of(page_id: Numbers) -> Numbers:
    return page_id & (PAGES_PER_DEVICE - 1)


def page_name(page_id: int) -> str:
    """As people write it: ``4:7``; ``none`` for no page."""
    return "none" if page_id == NO_PAGE else f"{device_of(page_id)}:{offset_of(page_id)}"


def parse_page_id(text: str) -> int:
    """A page id from ``4:7`` or ``16777223``."""
    device, colon, offset = text.partition(":")
    try:
        if not colon:
            page_id = int(text, 0)
            if 0 <= page_id < NO_PAGE:
                return page_id
        elif 0 <= int(device) < DEVICES and 0 <= int(offset) < PAGES_PER_DEVICE:
            return page_id_of(int(device), int(offset))
    except ValueError:
        pass
    raise InterfaceError(f"{text!r} is not a page id: write DEVICE:PAGE, such as 4:7, or the number, such as 16777223")
