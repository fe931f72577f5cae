"""Garbage: versions that no snapshot needs, locks of transactions that everyone sees, rows that are gone.

Invariants
 1. What is purged belongs to a transaction that committed before every snapshot in use.
 2. Whoever might be reading a row while the lock beneath it goes away sees the page's version change.
"""

from __future__ import annotations

from gmdb.format.address import NO_PAGE, NO_SLOT
from gmdb.format.heap import NODE_AT
from gmdb.format.row import NO_LOCK
from gmdb.kernel.area import begin_change, end_change, page_head, page_size_of, touch, touch_type
from gmdb.kernel.compiler import kernel, routine
from gmdb.kernel.heap import compact, home_of, release_if_empty, remove_row, touch_heap
from gmdb.kernel.heap_page import FLAG_DELETE, flags_of, heap_node, lock_of, row_in_slot, set_lock
from gmdb.kernel.locks import free_lock, lock_at
from gmdb.kernel.memory import load_i64, load_u16, store_32, store_64
from gmdb.kernel.status import DONE
from gmdb.kernel.undo import (
    OP_INSERT,
    RECORD_SIZE,
    SHADOW,
    find_record,
    is_first,
    is_further,
    kill_record,
    prior_record,
    record_lock,
    record_object,
    record_operation,
    record_row_page,
    record_row_slot,
)


@routine
def _forget_beneath(area, lock_id):
    """The lock's row had no lock before: in the lock, and in its first undo image."""
    lock = lock_at(area, lock_id)
    lock.previous = NO_LOCK
    at_page, at_slot = lock.undo_page, lock.undo_slot
    while at_page != NO_PAGE:
        record = find_record(area, at_page, at_slot)
        if record < 0:
            return
        if not is_further(record):
            store_32(record + RECORD_SIZE, SHADOW)
            return
        prior = prior_record(record)
        at_page, at_slot = prior >> 16, prior & 0xFFFF


@routine
def _take_lock_off(area, obj_id, page_id, slot, lock_id):
    """Nobody needs the lock to see the row: take it off the row, or from beneath the lock on top of it."""
    row = home_of(area, obj_id, page_id, slot)
    if row < 0:
        return  # its table was dropped
    page = touch_heap(area, page_id)
    begin_change(area, page_id)
    top = lock_of(row)
    if top == lock_id:
        set_lock(row, NO_LOCK)
    else:
        while top != NO_LOCK and lock_at(area, top).previous != lock_id:
            top = lock_at(area, top).previous
        if top != NO_LOCK:
            _forget_beneath(area, top)
    end_change(area, page_id, page)


@routine
def _purge_insert(area, record, lock_id):
    first, count = record_row_slot(record), load_u16(record + RECORD_SIZE)
    if first == NO_SLOT:
        return  # whole pages: their rows have no lock
    for slot in range(first, first + count):
        _take_lock_off(area, record_object(record), record_row_page(record), slot, lock_id)
    lock = lock_at(area, lock_id)
    lock.rows -= count
    if lock.rows == 0:
        free_lock(area, lock_id)


@kernel
def purge_records(area, places, count, pages):
    """Purge undo records (u64s, page id << 16 | slot) of transactions that everyone sees; answers a status.

    For each, ``pages`` (u64s) gets obj_id << 32 | page id if the page has deleted rows now, else 0.
    """
    for i in range(count):
        place = load_i64(places + 8 * i)
        record = find_record(area, place >> 16, place & 0xFFFF)
        if record < 0:
            return record
        lock_id, page_id = record_lock(record), record_row_page(record)
        if record_operation(record) == OP_INSERT:
            _purge_insert(area, record, lock_id)
        elif is_first(record):
            _take_lock_off(area, record_object(record), page_id, record_row_slot(record), lock_id)
            free_lock(area, lock_id)
        page = touch(area, page_id)
        untidy = page > 0 and page_head(page).obj_id == record_object(record) and page_head(page).del_count
        store_64(pages + 8 * i, record_object(record) << 32 | page_id if untidy else 0)
        status = kill_record(area, place >> 16, record)
        if status < 0:
            return status
    return DONE


@kernel
def changed_page(area, place):
    """The page that an undo record is about."""
    record = find_record(area, place >> 16, place & 0xFFFF)
    return record if record < 0 else record_row_page(record)


@kernel
def tidy_page(area, obj_id, entry_id, page_id):
    """Remove the page's rows that are gone for everyone and slide the others together.

    Answers how many rows were removed; a page without rows goes back to the tablespace, but for the segment's last.
    """
    page = touch_type(area, page_id, 3, 0)
    if page < 0 or page_head(page).obj_id != obj_id:
        return 0
    page_size = page_size_of(area, page_id)
    if page_head(page).del_count == 0:
        return 0
    removed = 0
    begin_change(area, page_id)
    for slot in range(heap_node(page + NODE_AT).slot_count):
        row = row_in_slot(page, page_size, slot)
        if row > 0 and flags_of(row) & FLAG_DELETE and lock_of(row) == NO_LOCK:
            if remove_row(area, entry_id, page_id, page, slot) < 0:
                break
            removed += 1
    status = compact(area, entry_id, page_id, page) if removed else DONE
    end_change(area, page_id, page)
    if status == DONE and removed:
        status = release_if_empty(area, entry_id, page_id, page)
    return status if status < 0 else removed
