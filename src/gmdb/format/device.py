"""Page 0 of a device: how many pages it has, which are used, and which tablespace it belongs to.

Invariants
 1. Pages 0 … hwm − 1 are in use or on the free-page list; pages from hwm on hold nothing.
 2. The free-page list starts at ``first_free_page`` and runs through the free pages' own heads.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gmdb.format.address import device_of, offset_of
from gmdb.format.layout import Finding, Region, layout
from gmdb.format.page import HEAD_SIZE, PAGE_HEAD, PAGE_SIZES

DEVICE_HEAD = layout(
    "device head",
    76,
    page_count=("<u4", "pages that the file has room for"),
    hwm=("<u4", "high-water mark: how many pages are or were in use"),
    free_page_count=("<u4", "pages on the free-page list"),
    first_free_page=("<u4", "first page of the free-page list; none = 0xFFFFFFFF"),
    pages_max=("<u4", "pages that the device may grow to; 0 = as many as an address allows"),
    reserved=("56u1", "0"),
)

SPACE_HEAD = layout(
    "space head",
    72,
    seg_num=("<u4", "segments in the tablespace (kept on its first device)"),
    free_pages=("<u4", "pages on the free-page lists of the tablespace (kept on its first device)"),
    space_id=("<u4", "the tablespace; its number is that of its first device"),
    page_size=("<u4", "bytes of a page of the tablespace"),
    name=("S32", "the tablespace's name"),
    reserved=("24u1", "0"),
)

FREE_NODE = layout("free page node", 4, next=("<u4", "next page of the free-page list; none = 0xFFFFFFFF"))

DEVICE_HEAD_AT = HEAD_SIZE
SPACE_HEAD_AT = DEVICE_HEAD_AT + DEVICE_HEAD.size
DEVICE_PAGE_END = SPACE_HEAD_AT + SPACE_HEAD.size
FREE_NODE_AT = HEAD_SIZE


def regions(page: Any) -> Iterator[Region]:
    yield from DEVICE_HEAD.regions(page, DEVICE_HEAD_AT, "device.")
    yield from SPACE_HEAD.regions(page, SPACE_HEAD_AT, "space.")


def check(page: Any) -> Iterator[Finding]:
    device, space = DEVICE_HEAD.at(page, DEVICE_HEAD_AT), SPACE_HEAD.at(page, SPACE_HEAD_AT)
    page_id = PAGE_HEAD.at(page).page_id
    if offset_of(page_id) != 0:
        yield Finding(PAGE_HEAD.offset("page_id"), f"a device head on page {offset_of(page_id)} instead of 0")
    if device.hwm > device.page_count:
        at = DEVICE_HEAD_AT + DEVICE_HEAD.offset("hwm")
        yield Finding(at, f"hwm {device.hwm} is past the device's {device.page_count} pages")
    if device.free_page_count >= max(device.hwm, 1):
        at = DEVICE_HEAD_AT + DEVICE_HEAD.offset("free_page_count")
        yield Finding(at, f"{device.free_page_count} free pages below hwm {device.hwm}")
    if space.page_size not in PAGE_SIZES:
        at = SPACE_HEAD_AT + SPACE_HEAD.offset("page_size")
        yield Finding(at, f"page size {space.page_size} is none of {PAGE_SIZES}")
    if space.space_id > device_of(page_id):
        at = SPACE_HEAD_AT + SPACE_HEAD.offset("space_id")
        yield Finding(at, f"space {space.space_id} starts on a later device than {device_of(page_id)}")


def free_page_regions(page: Any) -> Iterator[Region]:
    yield from FREE_NODE.regions(page, FREE_NODE_AT, "node.")
