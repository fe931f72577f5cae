"""The global area: all that a kernel needs to get from a page id to the page's bytes.

One address leads to it.  Devices are mapped in chunks; a device's state names the table of its chunks'
addresses and, per page, whether it is dirty, whether it was verified, and its version.

Invariants
 1. A page below ``page_count`` lies in mapped memory: the file's, or zeros where the device was made shorter.  How
    many pages the file has, its device head says.
 2. A page that is marked verified had the right CRC and a sound structure when it was first touched, and kernels
    have kept it sound since; so they follow its offsets without checking them again.  One that is marked SORTED is a
    page of an index whose entries are such as the index has, in its order; one that is RELEASED belongs to no segment.
 3. A kernel that changes a page marks it dirty, counts the change and logs the bytes, in the same call.
 4. Pages are changed under the store's guard only.  Scans do not: they read a data page's version before and
    after, and start over if it was odd or has changed.
"""

from __future__ import annotations

from gmdb.format.address import DEVICES, NO_PAGE, OFFSET_BITS, PAGES_PER_DEVICE
from gmdb.format.layout import Structure
from gmdb.format.page import PAGE_HEAD, PageType, SegmentType
from gmdb.format.segment import SEGMENT_HEAD, SEGMENT_HEAD_AT
from gmdb.kernel.page.soundness import structure_is_sound
from gmdb.kernel.runtime.compiler import routine
from gmdb.kernel.runtime.crc32c import crc_is_right
from gmdb.kernel.runtime.memory import fence, load_i64, load_u8, load_u32, records, store_8, store_32
from gmdb.kernel.runtime.status import DAMAGED, NOT_FOUND

DEVICE_STATE = Structure(
    [
        ("chunks", "<i8"),  # address of the chunks' addresses
        ("dirty", "<i8"),  # address of a byte per page: 1 = changed since it was last written
        ("verified", "<i8"),  # address of a byte per page: 1 = checked since it was mapped; or SORTED, RELEASED
        ("versions", "<i8"),  # address of a u32 per page: odd while a kernel changes the page
        ("page_count", "<i8"),  # pages that can be read; 0 = no such device
        ("page_size", "<i8"),
        ("page_shift", "<i8"),  # log2 of page_size
        ("chunk_shift", "<i8"),  # log2 of pages in a chunk
        ("next_device", "<i8"),  # next device of the same tablespace; 0 = none
        ("reserved", "<i8"),
    ]
)

STATE = Structure(
    [
        ("damaged_page", "<i8"),  # the page that a kernel returned DAMAGED for
        ("scn", "<i8"),  # the newest commit; a snapshot taken now sees all up to it
        ("oldest", "<i8"),  # no snapshot is older: what was committed by then, everyone sees
        ("locks", "<i8"),  # address of the lock area
        ("lock_high", "<i8"),  # entries of it that were ever used
        ("lock_free", "<i8"),  # first entry of the list of free ones; NO_LOCK = none
        ("lock_limit", "<i8"),  # entries that may be used
        ("locks_used", "<i8"),
        ("transactions", "<i8"),  # address of the transaction table
        ("loads", "<i8"),  # address of the bulk loads that some snapshot may not see
        ("load_count", "<i8"),
        ("undo_entry", "<i8"),  # entry page of the undo segment
        ("undo_pool", "<i8"),  # address of the undo pages (u32s) that the next transactions go on with
        ("undo_pool_count", "<i8"),
        ("undo_limit", "<i8"),  # undo pages that may be used
        ("table_pages", "<i8"),  # address of the pages (u32s) of the table of committed transactions
        ("table_page_count", "<i8"),
        ("scratch", "<i8"),  # address of memory for three rows, for the holder of the guard
        ("index_scratch", "<i8"),  # address of memory for entries and a way through a tree, for the same
        ("next_scn", "<i8"),  # what the next commit gets; ``scn`` follows once it is durable
        ("log_buffer", "<i8"),  # address of the redo that is not written yet; 0 = changes are not logged
        ("log_end", "<i8"),  # bytes of it in use
        ("log_group", "<i8"),  # where in it the group of the running kernel begins
        ("log_limit", "<i8"),  # a kernel that finds more bytes in use than this returns LOG_FULL
        ("log_start", "<i8"),  # LSN of the buffer's first byte
        ("log_durable", "<i8"),  # up to this LSN the log is on disk
        ("dirty_first", "<i8"),  # the chain of changed pages, through their heads; NO_PAGE = none
        ("dirty_last", "<i8"),
        ("dirty_bytes", "<i8"),  # bytes of changed pages
        ("is_closed", "<i8"),  # 1: there are no pages any more
        ("is_working", "<i8"),  # 1: the holder of the guard is in the midst of something
        ("has_queues", "<i8"),  # 1: sessions wait for rows or tables
    ]
)
IS_CLOSED, IS_WORKING, HAS_QUEUES = map(STATE.names.index, ("is_closed", "is_working", "has_queues"))

AREA = Structure([("state", STATE), ("devices", DEVICE_STATE, DEVICES)])

state_of = records(STATE)
device_state = records(DEVICE_STATE)
page_head = records(PAGE_HEAD)

DEVICES_AT = AREA.offset("devices")
DEVICE_SIZE = DEVICE_STATE.itemsize
_OFFSET_MASK = PAGES_PER_DEVICE - 1
SORTED, RELEASED = 2, 3
segment_head = records(SEGMENT_HEAD)
_DATA, _ENTRY = int(PageType.DATA), int(PageType.SEGMENT_ENTRY)
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
    """Return DAMAGED, and note which page it is."""
    state_of(area).damaged_page = page_id
    return DAMAGED


@routine
def holds_rows(head):
    """Whether a page is one of a table's rows, by its head."""
    return head.page_type == _DATA and (head.seg_type == _HEAP or head.seg_type == _SYSTEM)


@routine
def is_sound(area, page, page_id):
    """Whether the page is what was written, and its offsets can be followed."""
    page_size = device_of_page(area, page_id).page_size
    if page_head(page).page_id != page_id or not crc_is_right(page, page_size):
        return False
    return is_followable(area, page, page_id)


@routine
def is_followable(area, page, page_id):
    """Whether the page's offsets can be followed; its CRC may be that of before a change."""
    head, page_size = page_head(page), device_of_page(area, page_id).page_size
    if head.page_id != page_id or not structure_is_sound(page, page_size):
        return False
    if head.page_type != _ENTRY:
        return True
    space_id = segment_head(page + SEGMENT_HEAD_AT).space_id
    if space_id >= DEVICES:
        return False
    space = device_state(area + DEVICES_AT + space_id * DEVICE_SIZE)
    return space.page_count > 0 and space.page_size == page_size  # what the segment takes fits its other pages


@routine
def touch(area, page_id):
    """The address of a page, checked if this is the first touch; NOT_FOUND or DAMAGED otherwise."""
    device = device_of_page(area, page_id)
    offset = page_id & _OFFSET_MASK
    if page_id < 0 or page_id >> OFFSET_BITS >= DEVICES or offset >= device.page_count:
        return NOT_FOUND
    page = address_of(area, page_id)
    if not load_u8(device.verified + offset):
        # Somebody may change the page while it is checked here; they checked it first, and marked it.
        if not is_sound(area, page, page_id) and not load_u8(device.verified + offset):
            return damaged(area, page_id)
        store_8(device.verified + offset, 1)
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
def is_sorted(area, page_id):
    """Whether a page that was touched is known to be in its index's order."""
    return load_u8(device_of_page(area, page_id).verified + (page_id & _OFFSET_MASK)) == SORTED


@routine
def set_sorted(area, page_id, is_so):
    """Note that a page of an index is in order; or that it must be looked at again."""
    store_8(device_of_page(area, page_id).verified + (page_id & _OFFSET_MASK), SORTED if is_so else 1)


@routine
def _enter_dirty_chain(area, device, page_id):
    """Put a page that was as it is in the file at the end of the chain of changed ones."""
    state = state_of(area)
    head = page_head(address_of(area, page_id))
    head.dirty_flag = 1
    head.next_ckpt_page = NO_PAGE
    if state.dirty_last == NO_PAGE:
        state.dirty_first = page_id
    else:
        page_head(address_of(area, state.dirty_last)).next_ckpt_page = page_id
    state.dirty_last = page_id
    state.dirty_bytes += device.page_size


@routine
def mark_dirty(area, page_id):
    """The page was, or is about to be, changed by this kernel."""
    device = device_of_page(area, page_id)
    offset = page_id & _OFFSET_MASK
    if not load_u8(device.verified + offset):
        store_8(device.verified + offset, 1)
    if not load_u8(device.dirty + offset):
        store_8(device.dirty + offset, 1)
        _enter_dirty_chain(area, device, page_id)


@routine
def version_address(area, page_id):
    return device_of_page(area, page_id).versions + 4 * (page_id & _OFFSET_MASK)


@routine
def begin_change(area, page_id):
    """From here to ``end_change`` readers without the guard reject the page."""
    mark_dirty(area, page_id)
    at = version_address(area, page_id)
    store_32(at, load_u32(at) | 1)
    fence()


@routine
def end_change(area, page_id):
    """The page is whole again."""
    fence()
    at = version_address(area, page_id)
    store_32(at, (load_u32(at) | 1) + 1)


@routine
def change(area, page):
    """Mark a page as changed and count the change; its bytes are logged under that number, at least one of them."""
    head = page_head(page)
    mark_dirty(area, head.page_id)
    head.chg_num = (head.chg_num + 1) & 0xFFFF_FFFF


@routine
def pages_at_most(area):
    """Pages that there are, one at least: a chain of pages with more links goes round in a circle."""
    total = 1
    for device in range(DEVICES):
        total += device_state(area + DEVICES_AT + device * DEVICE_SIZE).page_count
    return total


@routine
def page_size_of(area, page_id):
    return device_of_page(area, page_id).page_size
