"""Letting go of the free pages at the end of a device, and of what keeps pages there from being free.

The list of free pages has no order and leads one way only.  First the pages that are to go are gathered at its end,
some links a call; the list holds the same pages all the while.  Then, when nobody needs redo of them any more, it is
cut in front of them, and the high-water mark comes down, in one group.

Invariants
 1. After each call every page below the high-water mark is in use or on the list.
 2. What is cut off is all that lies from the new high-water mark on, and none of it has changed since it was measured.
"""

from __future__ import annotations

from gmdb.format.address import NO_PAGE, OFFSET_BITS, PAGES_PER_DEVICE
from gmdb.format.device import DEVICE_HEAD_AT, FREE_NODE_AT, SPACE_HEAD_AT
from gmdb.format.heap import NODE_AT
from gmdb.format.layout import Structure
from gmdb.format.page import PageType, SegmentType
from gmdb.format.segment import SEGMENT_HEAD_AT
from gmdb.kernel.heap import LOAD_NUMBER_AT, heap_node, touch_heap
from gmdb.kernel.locks import load_is_open
from gmdb.kernel.page.allocation import count_free_pages, device_head, give_page_back, log_device, space_head
from gmdb.kernel.page.area import (
    address_of,
    change,
    damaged,
    device_of_page,
    page_head,
    segment_head,
    touch,
    touch_type,
)
from gmdb.kernel.page.redo import close_group, log_bytes, require_log_room
from gmdb.kernel.page.segment import (
    entry_address,
    log_map_head,
    log_segment,
    map_at,
    map_entry,
    map_head,
    release_page,
    touch_map,
    unlink_entry,
)
from gmdb.kernel.runtime.compiler import kernel, long_kernel, routine
from gmdb.kernel.runtime.memory import load_i64, load_u8, load_u32, records, store_8, store_32
from gmdb.kernel.runtime.status import DAMAGED, DONE, LOG_FULL

MORE = 1
MOVES_MAX = 8192  # links that a call changes, a few dozen bytes of redo each
_FREE, _ENTRY_PAGE = int(PageType.FREE), int(PageType.SEGMENT_ENTRY)
_HEAP = int(SegmentType.HEAP)
_OFFSET_MASK = PAGES_PER_DEVICE - 1

TAIL = Structure(
    [
        ("count", "<i8"),  # free pages from the target on, if they are the end of the list; -1 = they are not
        ("changes", "<i8"),  # sums over these pages, which tell whether one of them has changed
        ("formats", "<i8"),
        ("dirty", "<i8"),  # how many of them a checkpoint has yet to write
        ("last_kept", "<i8"),  # the page of the list before them; NO_PAGE = none
    ]
)
tail_at = records(TAIL)


@long_kernel
def survey_free(area, device, marks, count):
    """Mark, a byte a page, the first ``count`` pages of a device that are on its list of free pages; returns how many.

    Without the guard: a hint, which brings the pages into memory before somebody holds the guard over them.
    """
    page_id = device_head(address_of(area, device << OFFSET_BITS) + DEVICE_HEAD_AT).first_free_page
    found = 0
    for _ in range(count):
        if page_id >> OFFSET_BITS != device or page_id & _OFFSET_MASK >= count:
            break
        mark = marks + (page_id & _OFFSET_MASK)
        page = touch(area, page_id)
        if page < 0 or page_head(page).page_type != _FREE or load_u8(mark):
            break
        store_8(mark, 1)
        found += 1
        page_id = load_u32(page + FREE_NODE_AT)
    return found


@routine
def _link(area, page, following):
    """Have the list go on at ``following`` behind a page; returns how many links that changed."""
    if load_u32(page + FREE_NODE_AT) == following:
        return 0
    store_32(page + FREE_NODE_AT, following)
    change(area, page)
    log_bytes(area, page, FREE_NODE_AT, 4)
    return 1


@routine
def _free_pages(area, device, head):
    """How many pages are on a device's list of free pages, by its head, which cannot say more than there are."""
    return min(head.free_page_count, device_of_page(area, device << OFFSET_BITS).page_count)


@long_kernel
def gather_free(area, device, target):
    """Move pages from ``target`` on to the end of the device's list of free pages, behind all others.

    Returns MORE if only some were moved, DONE if they are there.
    """
    if require_log_room(area) < 0:
        return LOG_FULL
    home = address_of(area, device << OFFSET_BITS)
    head = device_head(home + DEVICE_HEAD_AT)
    first, kept, gone, first_gone = head.first_free_page, 0, 0, NO_PAGE
    page_id, moves, status = first, 0, DONE
    for _ in range(_free_pages(area, device, head)):
        page = touch_type(area, page_id, _FREE, 0)
        if page < 0 or moves >= MOVES_MAX:
            status = page if page < 0 else MORE
            break
        following = load_u32(page + FREE_NODE_AT)
        if page_id & _OFFSET_MASK < target:
            if kept:
                moves += _link(area, kept, page_id)
            else:
                first = page_id
            kept = page
        else:
            if gone:
                moves += _link(area, gone, page_id)
            else:
                first_gone = page_id
            gone = page
        page_id = following
    if gone:
        _link(area, gone, page_id)
        if kept:
            _link(area, kept, first_gone)
    if head.first_free_page != first:
        head.first_free_page = first
        log_device(area, home)
    return close_group(area, 0, status)


@long_kernel
def measure_tail(area, device, target, tail_address):
    """Look at the free pages from ``target`` on, which should be the end of the list; returns a status."""
    head = device_head(address_of(area, device << OFFSET_BITS) + DEVICE_HEAD_AT)
    tail, state = tail_at(tail_address), device_of_page(area, device << OFFSET_BITS)
    tail.count, tail.changes, tail.formats, tail.dirty, tail.last_kept = 0, 0, 0, 0, NO_PAGE
    page_id = head.first_free_page
    for _ in range(_free_pages(area, device, head)):
        page = touch_type(area, page_id, _FREE, 0)
        if page < 0:
            return page
        if page_id & _OFFSET_MASK >= target:
            tail.count += 1
            tail.changes += page_head(page).chg_num
            tail.formats += page_head(page).page_create_no
            tail.dirty += load_u8(state.dirty + (page_id & _OFFSET_MASK))
        elif tail.count:
            tail.count = -1
            return DONE
        else:
            tail.last_kept = page_id
        page_id = load_u32(page + FREE_NODE_AT)
    return DONE if page_id == NO_PAGE else damaged(area, device << OFFSET_BITS)


@long_kernel
def cut_tail(area, device, target, page_count, tail_address):
    """Take the measured pages off the list: the device uses ``target`` pages, and has ``page_count``."""
    if require_log_room(area) < 0:
        return LOG_FULL
    home = address_of(area, device << OFFSET_BITS)
    head, tail = device_head(home + DEVICE_HEAD_AT), tail_at(tail_address)
    if tail.count:
        if tail.last_kept == NO_PAGE:
            head.first_free_page = NO_PAGE
        else:
            kept = touch_type(area, tail.last_kept, _FREE, 0)
            if kept < 0:
                return DAMAGED
            _link(area, kept, NO_PAGE)
        count_free_pages(area, space_head(home + SPACE_HEAD_AT).space_id, -tail.count)
    head.free_page_count -= tail.count
    head.hwm = target
    head.page_count = page_count
    log_device(area, home)
    return close_group(area, 0, DONE)


@routine
def _release_last_page(area, entry_id, page_id):
    """Give back the page at which inserts would go on, if it is empty; returns 1 if it was."""
    page = touch_heap(area, page_id)
    if page < 0:
        return page
    if heap_node(page + NODE_AT).slot_count or load_is_open(area, load_i64(page + LOAD_NUMBER_AT)):
        return 0
    status = release_page(area, entry_id, page_id)
    return status if status < 0 else 1


@routine
def _release_last_map(area, entry_id, entry_page):
    """Give back the segment's last map page, if it lists no page and is not the first; returns 1 if it was."""
    segment = segment_head(entry_page + SEGMENT_HEAD_AT)
    map_id = segment.last_map_page
    map_page = touch_map(area, entry_id, map_id)
    if map_page < 0 or map_id == entry_id:
        return min(map_page, 0)
    head = map_head(map_page + map_at(map_page))
    for number in range(head.map_count):
        if map_entry(entry_address(map_page, number)).page_id != NO_PAGE:
            return 0
    prior_id = head.prior
    prior = touch_map(area, entry_id, prior_id)
    if prior < 0:
        return prior
    for number in range(head.map_count):
        status = unlink_entry(area, entry_id, map_id, number)
        if status < 0:
            return status
    before = map_head(prior + map_at(prior))
    before.next = NO_PAGE
    log_map_head(area, prior)
    segment.last_map_page = prior_id
    segment.last_map_page_full = 1 if before.map_count == before.map_capacity else 0
    log_segment(area, entry_page)
    give_page_back(area, segment.space_id, map_id)
    return 1


@kernel
def trim_segment(area, obj_id, entry_id):
    """Give back a page that holds nothing, at the end of a table or of its large objects.

    Returns 1 if there was one: call again.
    """
    if require_log_room(area) < 0:
        return LOG_FULL
    entry_page = touch_type(area, entry_id, _ENTRY_PAGE, 0)
    if entry_page < 0 or page_head(entry_page).obj_id != obj_id:
        return min(entry_page, 0)
    last = segment_head(entry_page + SEGMENT_HEAD_AT).last_page
    has_rows = page_head(entry_page).seg_type == _HEAP
    released = _release_last_page(area, entry_id, last) if has_rows and last != NO_PAGE else 0
    if released == 0:
        released = _release_last_map(area, entry_id, entry_page)
    return close_group(area, 0, released)
