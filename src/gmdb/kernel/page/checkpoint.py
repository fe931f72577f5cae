"""Getting changed pages ready to be written: copying them off the chain, sealing the copies.

Invariants
 1. A copy is taken under the guard, between kernel calls: it holds whole groups only.
"""

from __future__ import annotations

from gmdb.format.address import NO_PAGE, PAGES_PER_DEVICE
from gmdb.kernel.page.area import address_of, device_of_page, page_head, pages_at_most, state_of, version_address
from gmdb.kernel.runtime.compiler import kernel, long_kernel
from gmdb.kernel.runtime.crc32c import crc_is_right, seal_page
from gmdb.kernel.runtime.memory import load_i64, load_u8, load_u32, move_bytes, store_8, store_32, store_64
from gmdb.kernel.runtime.status import DONE

_OFFSET_MASK = PAGES_PER_DEVICE - 1


@kernel
def detach_chain(area):
    """Take the chain of changed pages off; returns its first page.  Pages that change from now on form a new one."""
    state = state_of(area)
    first = state.dirty_first
    state.dirty_first = NO_PAGE
    state.dirty_last = NO_PAGE
    return first


@kernel
def copy_chain(area, page_id, buffer, room, pages, count):
    """Copy pages of a detached chain, from ``page_id`` on, to a buffer.

    ``pages`` (u32 pairs) gets id and version of each.  Returns copied << 32 | next page of the chain.  A page that
    changes after this joins the new chain.
    """
    copied = 0
    while page_id != NO_PAGE and copied < count:
        device, page = device_of_page(area, page_id), address_of(area, page_id)
        if device.page_size > room:
            break
        move_bytes(buffer, page, device.page_size)
        store_32(pages + 8 * copied, page_id)
        store_32(pages + 8 * copied + 4, load_u32(version_address(area, page_id)))
        store_8(device.dirty + (page_id & _OFFSET_MASK), 0)
        state_of(area).dirty_bytes -= device.page_size
        buffer += device.page_size
        room -= device.page_size
        copied += 1
        page_id = page_head(page).next_ckpt_page
    return copied << 32 | page_id


@kernel
def copy_changed(area, buffer, room, ids):
    """Copy every changed page to a buffer, and its id (u32) to ``ids``; they stay changed.

    Returns how many, or -1 if they need more than ``room``.  No checkpoint is running, which would have some of them.
    """
    copied, page_id = 0, state_of(area).dirty_first
    if state_of(area).dirty_bytes > room:
        return -1
    for _ in range(pages_at_most(area)):
        if page_id == NO_PAGE:
            break
        page, page_size = address_of(area, page_id), device_of_page(area, page_id).page_size
        room -= page_size
        if room < 0:
            return -1
        move_bytes(buffer, page, page_size)
        store_32(ids + 4 * copied, page_id)
        buffer += page_size
        copied += 1
        page_id = page_head(page).next_ckpt_page
    return copied


@kernel
def is_unchanged(area, page_id, version):
    """Whether a page is as it was when it was copied: 1 or 0."""
    device = device_of_page(area, page_id)
    same = load_u32(version_address(area, page_id)) == version
    return 1 if same and not load_u8(device.dirty + (page_id & _OFFSET_MASK)) else 0


@long_kernel
def page_is_whole(page, page_id, page_size):
    """Whether some bytes are the page, with its CRC right: 1 or 0."""
    return 1 if page_head(page).page_id == page_id and crc_is_right(page, page_size) else 0


@long_kernel
def seal_run(pages, count, page_size, ckpt_id):
    """Stamp neighbouring pages with the checkpoint and their CRC; what only memory needs becomes zero or none."""
    for i in range(count):
        page = pages + i * page_size
        head = page_head(page)
        store_64(page, 0)  # latch and mutex
        head.ckpt_id = ckpt_id
        head.dirty_flag = 0
        head.next_ckpt_page = NO_PAGE
        seal_page(page, page_size)
    return DONE


@long_kernel
def seal_copies(pages, sizes, count, ckpt_id):
    """Seal copies that lie one behind the other; ``sizes`` (i64s) has the bytes of each."""
    for i in range(count):
        page_size = load_i64(sizes + 8 * i)
        seal_run(pages, 1, page_size, ckpt_id)
        pages += page_size
    return DONE
