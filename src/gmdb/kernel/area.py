"""The global area: all that a kernel needs to get from a page id to the page's bytes.

One address leads to it.  Devices are mapped in chunks; a device's state names the table of its chunks'
addresses and a byte per page, in which bits say what is known about the page.

Invariants
 1. A page below ``page_count`` lies in mapped memory that the file backs.
 2. A page with the VERIFIED bit had the right CRC and a sound structure when it was first touched, and kernels
    have kept it sound since; so they follow its offsets without checking them again.
 3. Whoever changes a page sets its DIRTY bit, in the same kernel call.
"""

from __future__ import annotations

import numpy as np

from gmdb.format.address import DEVICES, OFFSET_BITS, PAGES_PER_DEVICE
from gmdb.format.page import PAGE_HEAD, PageType, SegmentType
from gmdb.kernel.compiler import routine
from gmdb.kernel.crc32c import crc_is_right
from gmdb.kernel.memory import load_i64, load_u8, records, store_8
from gmdb.kernel.soundness import heap_is_sound, map_is_sound
from gmdb.kernel.status import DAMAGED, NOT_FOUND

DIRTY, VERIFIED = 1, 2

DEVICE_STATE = np.dtype(
    [
        ("chunks", "<i8"),  # address of the chunks' addresses
        ("pages", "<i8"),  # address of a byte per page: DIRTY, VERIFIED
        ("page_count", "<i8"),  # pages that the file has; 0 = no such device
        ("page_size", "<i8"),
        ("page_shift", "<i8"),  # log2 of page_size
        ("chunk_shift", "<i8"),  # log2 of pages in a chunk
        ("next_device", "<i8"),  # next device of the same tablespace; 0 = none
        ("reserved", "<i8"),
    ]
)

AREA = np.dtype(
    [
        ("damaged_page", "<i8"),  # the page that a kernel answered DAMAGED for
        ("reserved", "<i8", 7),
        ("devices", DEVICE_STATE, DEVICES),
    ]
)

area_at = records(np.dtype({"names": ["damaged_page"], "formats": ["<i8"], "itemsize": 64}))
device_state = records(DEVICE_STATE)
page_head = records(PAGE_HEAD)

DEVICES_AT = int(AREA.fields["devices"][1])  # type: ignore[index]
DEVICE_SIZE = DEVICE_STATE.itemsize
_OFFSET_MASK = PAGES_PER_DEVICE - 1
_DATA, _MAP, _ENTRY = int(PageType.DATA), int(PageType.MAP), int(PageType.SEGMENT_ENTRY)
_HEAP, _SYSTEM = int(SegmentType.HEAP), int(SegmentType.SYSTEM)


@routine
def device_of_page(area, page_id):
    """The state of the device that a page is on."""
    return device_state(area + DEVICES_AT + (page_id >> OFFSET_BITS) * DEVICE_SIZE)


@routine
def address_of(area, page_id):
    """Where the page lies in memory.  The page must exist."""
    device = device_of_page(area, page_id)
    offset = page_id & _OFFSET_MASK
    chunk = load_i64(device.chunks + 8 * (offset >> device.chunk_shift))
    return chunk + ((offset & ((1 << device.chunk_shift) - 1)) << device.page_shift)


@routine
def damaged(area, page_id):
    """Answer DAMAGED, and leave word of which page it is."""
    area_at(area).damaged_page = page_id
    return DAMAGED


@routine
def _is_sound(page, page_id, page_size):
    """Whether the page is what was written, and its offsets can be followed."""
    head = page_head(page)
    if head.page_id != page_id or not crc_is_right(page, page_size):
        return False
    if head.page_type == _DATA and (head.seg_type == _HEAP or head.seg_type == _SYSTEM):
        return heap_is_sound(page, page_size)
    if head.page_type == _MAP or head.page_type == _ENTRY:
        return map_is_sound(page, page_size)
    return True


@routine
def touch(area, page_id):
    """The address of a page, checked if this is the first touch; NOT_FOUND or DAMAGED otherwise."""
    device = device_of_page(area, page_id)
    offset = page_id & _OFFSET_MASK
    if page_id < 0 or page_id >> OFFSET_BITS >= DEVICES or offset >= device.page_count:
        return NOT_FOUND
    page = address_of(area, page_id)
    if not load_u8(device.pages + offset) & VERIFIED:
        if not _is_sound(page, page_id, device.page_size):
            return damaged(area, page_id)
        store_8(device.pages + offset, load_u8(device.pages + offset) | VERIFIED)
    return page


@routine
def touch_type(area, page_id, page_type, seg_type):
    """A page that must be of the given types: anything else there is damage."""
    page = touch(area, page_id)
    if page == NOT_FOUND:
        return damaged(area, page_id)
    if page > 0:
        head = page_head(page)
        if head.page_type != page_type or (seg_type and head.seg_type != seg_type):
            return damaged(area, page_id)
    return page


@routine
def mark_dirty(area, page_id):
    """The page was, or is about to be, changed by this kernel."""
    device = device_of_page(area, page_id)
    at = device.pages + (page_id & _OFFSET_MASK)
    store_8(at, load_u8(at) | DIRTY | VERIFIED)


@routine
def change(area, page_id, page):
    """Mark a page as changed and count the change."""
    mark_dirty(area, page_id)
    head = page_head(page)
    head.chg_num = (head.chg_num + 1) & 0xFFFF_FFFF


@routine
def page_size_of(area, page_id):
    return device_of_page(area, page_id).page_size
