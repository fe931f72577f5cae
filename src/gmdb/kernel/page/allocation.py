"""Taking pages from a tablespace and giving them back.

A tablespace is a chain of devices, named by its first.  Each device head keeps the high-water mark and the list
of free pages; the first device's space head counts for all of them.
"""

from __future__ import annotations

from gmdb.format.address import DEVICES, NO_PAGE, OFFSET_BITS, PAGES_PER_DEVICE
from gmdb.format.device import DEVICE_HEAD, DEVICE_HEAD_AT, FREE_NODE_AT, SPACE_HEAD, SPACE_HEAD_AT
from gmdb.format.page import HEAD_SIZE, PageType, SegmentType
from gmdb.kernel.page.area import (
    RELEASED,
    address_of,
    begin_change,
    change,
    damaged,
    device_of_page,
    end_change,
    is_sound,
    page_head,
    touch_type,
)
from gmdb.kernel.page.redo import close_group, log_bytes, log_format
from gmdb.kernel.runtime.compiler import kernel, routine
from gmdb.kernel.runtime.memory import fill_bytes, load_u8, load_u32, records, store_8, store_32
from gmdb.kernel.runtime.status import NEED_SPACE

device_head = records(DEVICE_HEAD)
space_head = records(SPACE_HEAD)
_FREE, _HEAP = int(PageType.FREE), int(SegmentType.HEAP)
_OFFSET_MASK = PAGES_PER_DEVICE - 1
_COUNTS_SIZE = DEVICE_HEAD.offset("pages_max")
_SPACE_COUNTS_SIZE = SPACE_HEAD.offset("space_id")


@routine
def log_device(area, page):
    """Count and log a change of the device head's counts."""
    change(area, page)
    log_bytes(area, page, DEVICE_HEAD_AT, _COUNTS_SIZE)


@routine
def count_free_pages(area, space_id, difference):
    """Change the tablespace's count of free pages."""
    page = address_of(area, space_id << OFFSET_BITS)
    space_head(page + SPACE_HEAD_AT).free_pages += difference
    change(area, page)
    log_bytes(area, page, SPACE_HEAD_AT, _SPACE_COUNTS_SIZE)


@routine
def format_page(area, page_id, obj_id, seg_type, page_type, data_begin):
    """Make the page a new one: everything zero but its head.  Returns its address."""
    page = address_of(area, page_id)
    size = device_of_page(area, page_id).page_size
    begin_change(area, page_id)
    head = page_head(page)
    create_no, following = head.page_create_no + 1, head.next_ckpt_page
    fill_bytes(page, 0, size)
    head.page_id = page_id
    head.obj_id = obj_id
    head.page_create_no = create_no & 0xFFFF_FFFF
    head.seg_type = seg_type
    head.page_type = page_type
    head.map_page_id = NO_PAGE
    head.data_begin = data_begin
    head.free_begin = data_begin
    head.free_end = size - 8
    head.mirror_page = NO_PAGE
    head.next_ckpt_page = following  # the page is in the chain of changed ones, and stays there
    head.dirty_flag = 1
    head.chg_num = 1
    log_format(area, page)
    end_change(area, page_id)
    return page


@routine
def page_in_use(area, page_id):
    """Whether the page lies below its device's high-water mark."""
    if page_id < 0 or page_id >> OFFSET_BITS >= DEVICES:
        return False
    home = page_id >> OFFSET_BITS << OFFSET_BITS
    if device_of_page(area, page_id).page_count == 0:
        return False
    return page_id - home < device_head(address_of(area, home) + DEVICE_HEAD_AT).hwm


@routine
def pages_available(area, space_id):
    """Pages that can be taken before a device must grow."""
    total = 0
    device = space_id
    for _ in range(DEVICES):
        head = device_head(address_of(area, device << OFFSET_BITS) + DEVICE_HEAD_AT)
        total += head.page_count - head.hwm + head.free_page_count
        device = device_of_page(area, device << OFFSET_BITS).next_device
        if device == 0:
            break
    return total


@routine
def is_untouched(area, page_id):
    """``is_unused``, without reading a page that was not touched since it was released."""
    seen = load_u8(device_of_page(area, page_id).verified + (page_id & _OFFSET_MASK))
    return seen == 0 or is_unused(area, page_id)


@routine
def is_unused(area, page_id):
    """Whether a page above the high-water mark may be taken: with a wrong mark, pages in use would be taken.

    What is left of a load that a crash has ended, or was given back, is unused.
    """
    device, head = device_of_page(area, page_id), page_head(address_of(area, page_id))
    seen = load_u8(device.verified + (page_id & _OFFSET_MASK))
    if seen == RELEASED or head.page_type == 0 or head.page_type == _FREE:
        store_8(device.verified + (page_id & _OFFSET_MASK), 0)
        return True
    return seen == 0 and (head.seg_type == _HEAP or not is_sound(area, address_of(area, page_id), page_id))


@routine
def take_page(area, space_id):
    """A page for the taker to format: a freed one, or the next above the high-water mark."""
    device = space_id
    for _ in range(DEVICES):
        home = device << OFFSET_BITS
        page = address_of(area, home)
        head = device_head(page + DEVICE_HEAD_AT)
        if head.first_free_page != NO_PAGE:
            page_id = head.first_free_page
            freed = touch_type(area, page_id, _FREE, 0)
            if freed < 0 or page_id >> OFFSET_BITS != device:
                return damaged(area, page_id)
            head.first_free_page = load_u32(freed + FREE_NODE_AT)
            head.free_page_count -= 1
            log_device(area, page)
            count_free_pages(area, space_id, -1)
            return page_id
        if head.hwm < head.page_count:
            page_id = home | head.hwm
            if not is_unused(area, page_id):
                return damaged(area, home)
            head.hwm += 1
            log_device(area, page)
            return page_id
        device = device_of_page(area, home).next_device
        if device == 0:
            break
    return NEED_SPACE


@routine
def give_page_back(area, space_id, page_id):
    """Put a page on its device's free-page list, unless it lies outside of the pages in use."""
    home = page_id >> OFFSET_BITS << OFFSET_BITS
    if page_id == home or not page_in_use(area, page_id):
        return
    device_page = address_of(area, home)
    head = device_head(device_page + DEVICE_HEAD_AT)
    page = format_page(area, page_id, 0, 0, _FREE, HEAD_SIZE)
    store_32(page + FREE_NODE_AT, head.first_free_page)
    log_bytes(area, page, FREE_NODE_AT, 4)
    head.first_free_page = page_id
    head.free_page_count += 1
    log_device(area, device_page)
    count_free_pages(area, space_id, 1)


@routine
def count_segment(area, space_id, difference):
    """Change the tablespace's count of segments."""
    page = address_of(area, space_id << OFFSET_BITS)
    space_head(page + SPACE_HEAD_AT).seg_num += difference
    change(area, page)
    log_bytes(area, page, SPACE_HEAD_AT, _SPACE_COUNTS_SIZE)


@kernel
def set_page_count(area, device, page_count):
    """The device's file has room for so many pages."""
    page = address_of(area, device << OFFSET_BITS)
    device_head(page + DEVICE_HEAD_AT).page_count = page_count
    log_device(area, page)
    return close_group(area, 0, page_count)
