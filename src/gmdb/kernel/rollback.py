"""Taking back what a transaction did, one undo record at a time, newest first."""

from __future__ import annotations

from gmdb.format.address import NO_PAGE, NO_SLOT
from gmdb.format.row import NO_LOCK, SIZE_AT
from gmdb.kernel.area import begin_change, end_change, page_size_of, state_of
from gmdb.kernel.compiler import kernel, routine
from gmdb.kernel.heap import data_of, replace_row, touch_heap
from gmdb.kernel.heap_page import lock_of, row_in_slot, set_deleted, set_lock
from gmdb.kernel.locks import U_LOCK, free_lock, lock_at
from gmdb.kernel.memory import load_u16, load_u32, move_bytes
from gmdb.kernel.patch import merge_patch
from gmdb.kernel.segment import release_unwritten
from gmdb.kernel.status import DONE
from gmdb.kernel.undo import (
    OP_DELETE,
    OP_INSERT,
    OP_UPDATE,
    RECORD_SIZE,
    SHADOW,
    find_record,
    image_word,
    is_further,
    kill_record,
    prior_record,
    record_entry,
    record_lock,
    record_operation,
    record_row_page,
    record_row_slot,
    record_statement,
)


@routine
def _take_back_insert(area, record, page_id, page):
    """The rows become deleted rows without a lock, which nobody sees; GC removes them."""
    first, count = record_row_slot(record), load_u16(record + RECORD_SIZE)
    for slot in range(first, first + count):
        row = row_in_slot(page, page_size_of(area, page_id), slot)
        if row > 0:
            set_deleted(page, row, True)
            set_lock(row, NO_LOCK)
    lock = lock_at(area, record_lock(record))
    lock.rows -= count
    if lock.rows == 0:
        free_lock(area, record_lock(record))


@routine
def _put_data_back(area, record, page_id, page, slot, home):
    """Give the row the data that the record kept."""
    data = data_of(area, home)
    if data < 0:
        return data
    row, size = state_of(area).scratch, 0
    if record_operation(record) == OP_UPDATE:
        size = load_u16(record + RECORD_SIZE + SIZE_AT)
        move_bytes(row, record + RECORD_SIZE, size)
    else:
        size = merge_patch(row, data, record + RECORD_SIZE)
    return replace_row(area, record_entry(record), page_id, page, slot, row, size)


@routine
def _put_lock_back(area, record, home):
    """Give the row the lock that it had before the change."""
    lock_id = record_lock(record)
    lock = lock_at(area, lock_id)
    if is_further(record) and prior_record(record) >> 16 != NO_PAGE:
        prior = prior_record(record)
        lock.undo_page = prior >> 16
        lock.undo_slot = prior & 0xFFFF
        before = find_record(area, lock.undo_page, lock.undo_slot)
        lock.last_statement = record_statement(before) if is_further(before) else lock.statement
        return
    lock.undo_page = NO_PAGE
    if lock.u_locked:
        lock.action = U_LOCK
        return
    beneath = lock.previous
    if not is_further(record):
        beneath = NO_LOCK if image_word(record) == SHADOW else image_word(record) & NO_LOCK
        if beneath != NO_LOCK:
            lock_at(area, beneath).above = NO_LOCK
    set_lock(home, beneath)
    free_lock(area, lock_id)


@routine
def _take_back_pages(area, record):
    """Whole pages of a bulk load go back to the tablespace."""
    first = record_row_page(record)
    for page_id in range(first, first + load_u32(record + RECORD_SIZE)):
        status = release_unwritten(area, record_entry(record), page_id)
        if status < 0:
            return status
    return DONE


@kernel
def take_back(area, undo_page, undo_slot):
    """Undo what one record is about, and the record with it.  NEED_SPACE: nothing was done yet."""
    record = find_record(area, undo_page, undo_slot)
    if record < 0:
        return record
    page_id, slot = record_row_page(record), record_row_slot(record)
    if record_operation(record) == OP_INSERT and slot == NO_SLOT:
        status = _take_back_pages(area, record)
        return kill_record(area, undo_page, record) if status == DONE else status
    page = touch_heap(area, page_id)
    if page < 0:
        return page
    begin_change(area, page_id)
    status = DONE
    if record_operation(record) == OP_INSERT:
        _take_back_insert(area, record, page_id, page)
    else:
        home = row_in_slot(page, page_size_of(area, page_id), slot)
        if record_operation(record) == OP_DELETE:
            set_deleted(page, home, False)
        else:
            status = _put_data_back(area, record, page_id, page, slot, home)
            home = row_in_slot(page, page_size_of(area, page_id), slot)
        if status == DONE:
            _put_lock_back(area, record, home)
    end_change(area, page_id, page)
    return kill_record(area, undo_page, record) if status == DONE else status


@kernel
def release_u_lock(area, lock_id, transaction):
    """A transaction that held a row without changing it has ended: the row gets the lock of before."""
    lock = lock_at(area, lock_id)
    page_id, slot = lock.row_page, lock.row_slot
    if lock.action != U_LOCK or lock.transaction != transaction:
        return DONE  # it became the lock of a change, which was purged; the id may be somebody else's by now
    page = touch_heap(area, page_id)  # negative if its table was dropped
    row = row_in_slot(page, page_size_of(area, page_id), slot) if page > 0 else page
    if row > 0 and lock_of(row) == lock_id:
        begin_change(area, page_id)
        set_lock(row, lock.previous)
        end_change(area, page_id, page)
    if lock.previous != NO_LOCK and lock_at(area, lock.previous).above == lock_id:
        lock_at(area, lock.previous).above = NO_LOCK
    free_lock(area, lock_id)
    return DONE
