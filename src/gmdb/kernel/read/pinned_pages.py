"""Pages that were read into memory as a pin has them: checking them before anything follows their offsets.

A kernel that comes to a page which was not read returns DAMAGED for it; the caller reads it and calls again.
"""

from __future__ import annotations

from gmdb.format.address import NO_PAGE, PAGES_PER_DEVICE
from gmdb.format.heap import NODE_AT
from gmdb.format.row import NO_LOCK, SIZE_AT
from gmdb.kernel.heap import FLAG_DELETE, FLAG_ENTRY, FLAG_LINK, heap_node, occupied, row_in_slot
from gmdb.kernel.locks import lock_at
from gmdb.kernel.page.area import (
    address_of,
    damaged,
    device_of_page,
    holds_rows,
    is_sound,
    page_head,
    page_size_of,
    touch,
)
from gmdb.kernel.places import page_of, slot_of
from gmdb.kernel.runtime.compiler import long_kernel
from gmdb.kernel.runtime.memory import load_u8, load_u16, load_u32, store_8, store_32, store_64
from gmdb.kernel.runtime.status import DAMAGED, DONE
from gmdb.kernel.undo import chain_max, find_record, is_further, prior_record

_OFFSET_MASK = PAGES_PER_DEVICE - 1
ROW_COUNTS = 7  # what ``count_rows`` says of a page


@long_kernel
def check_loaded(area, ids, count, ckpt_id, refused):
    """Mark those of ``count`` pages that are whole, and not newer than a checkpoint, as verified.

    Writes the ids of the others (u32s) to ``refused``; returns how many they are.
    """
    bad = 0
    for i in range(count):
        page_id = load_u32(ids + 4 * i)
        device, offset = device_of_page(area, page_id), page_id & _OFFSET_MASK
        if load_u8(device.verified + offset):
            continue
        page = address_of(area, page_id)
        if is_sound(area, page, page_id) and page_head(page).ckpt_id <= ckpt_id:
            store_8(device.verified + offset, 1)
        else:
            store_32(refused + 4 * bad, page_id)
            bad += 1
    return bad


@long_kernel
def touch_chains(area, lock_ids, first, count):
    """Go to every undo record of some locks (u32s), from number ``first`` on.

    Returns ``count`` when all are there; less, the number of a lock whose record lies on a page that was not read.
    """
    for n in range(first, count):
        lock = lock_at(area, load_u32(lock_ids + 4 * n))
        page_id, slot = lock.undo_page, lock.undo_slot
        for _ in range(chain_max(area)):
            if page_id == NO_PAGE:
                break
            record = find_record(area, page_id, slot)
            if record == DAMAGED:
                return n
            if record < 0 or not is_further(record):
                break
            prior = prior_record(record)
            page_id, slot = page_of(prior), slot_of(prior)
    return count


@long_kernel
def count_rows(area, ids, count, counts):
    """For each of some heap pages write ROW_COUNTS numbers (i64s) to ``counts``.

    Slots; rows that are nobody's deletion, at home; deleted ones; those that have left; those that have come; locked;
    bytes of those that are not deleted, wherever they are at home.
    """
    for i in range(count):
        page_id = load_u32(ids + 4 * i)
        page = touch(area, page_id)
        if page < 0:
            return page
        if not holds_rows(page_head(page)):
            return damaged(area, page_id)
        page_size, slots = page_size_of(area, page_id), heap_node(page + NODE_AT).slot_count
        live, dead, entries, links, locked, live_bytes = 0, 0, 0, 0, 0, 0
        for slot in range(slots):
            row = row_in_slot(page, page_size, slot)
            if row < 0:
                continue
            word = load_u32(row)
            flags = word >> 24
            live_bytes += 0 if flags & FLAG_DELETE else occupied(load_u16(row + SIZE_AT))
            if flags & FLAG_LINK:
                links += 1
                continue
            dead += 1 if flags & FLAG_DELETE else 0
            live += 0 if flags & FLAG_DELETE else 1
            entries += 1 if flags & FLAG_ENTRY else 0
            locked += 1 if word & NO_LOCK != NO_LOCK else 0
        at = counts + 8 * ROW_COUNTS * i
        store_64(at, slots)
        store_64(at + 8, live)
        store_64(at + 16, dead)
        store_64(at + 24, entries)
        store_64(at + 32, links)
        store_64(at + 40, locked)
        store_64(at + 48, live_bytes)
    return DONE
