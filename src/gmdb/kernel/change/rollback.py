"""Taking back what a transaction did, one undo record at a time, newest first."""

from __future__ import annotations

from gmdb.format.address import NO_PAGE, NO_SLOT
from gmdb.format.row import NO_LOCK, SIZE_AT
from gmdb.kernel.change.index_upkeep import is_of_entry, take_back_entry
from gmdb.kernel.heap import data_of, lock_of, replace_row, row_in_slot, set_deleted, set_lock, touch_heap
from gmdb.kernel.lob import release_lob
from gmdb.kernel.locks import U_LOCK, free_lock, lock_at
from gmdb.kernel.page.area import begin_change, damaged, end_change, page_head, page_size_of, state_of
from gmdb.kernel.page.redo import close_group, log_taken_back, require_log_room
from gmdb.kernel.page.segment import drop_some, release_listed
from gmdb.kernel.places import page_of, slot_of
from gmdb.kernel.row import merge_patch
from gmdb.kernel.runtime.compiler import kernel, routine
from gmdb.kernel.runtime.memory import load_u16, load_u32, move_bytes
from gmdb.kernel.runtime.status import DONE, LOG_FULL, NOT_FOUND, ROW_TOO_LARGE
from gmdb.kernel.undo import (
    OP_CREATE,
    OP_DELETE,
    OP_DROP,
    OP_INSERT,
    OP_LOB_DELETE,
    OP_LOB_INSERT,
    OP_LOCK,
    OP_UPDATE,
    RECORD_SIZE,
    SHADOW,
    discard_record,
    find_record,
    image_word,
    is_further,
    prior_record,
    record_entry,
    record_lock,
    record_object,
    record_operation,
    record_row_page,
    record_row_slot,
    record_statement,
)

DROP_STEP = 256  # pages that a segment gives back in one call
MAP_ENTRIES_MAX = 1024  # of one map page, which a run of pages does not go beyond


@routine
def _take_back_insert(area, record, page_id, page, locked):
    """The rows become deleted rows without a lock, which nobody sees; GC removes them."""
    first, count = record_row_slot(record), load_u16(record + RECORD_SIZE)
    for slot in range(first, first + count):
        row = row_in_slot(page, page_size_of(area, page_id), slot)
        if row > 0:
            set_deleted(area, page, row, True)
            set_lock(area, page, row, NO_LOCK)
    if locked:
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
    if size < 0:
        return size
    return replace_row(area, record_entry(record), page_id, page, slot, row, size)


@routine
def _put_lock_back(area, record, page, home):
    """Give the row the lock that it had before the change."""
    lock_id = record_lock(record)
    lock = lock_at(area, lock_id)
    if is_further(record) and page_of(prior_record(record)) != NO_PAGE:
        prior = prior_record(record)
        lock.undo_page = page_of(prior)
        lock.undo_slot = slot_of(prior)
        before = find_record(area, lock.undo_page, lock.undo_slot)
        lock.last_statement = record_statement(before) if before > 0 and is_further(before) else lock.statement
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
    set_lock(area, page, home, beneath)
    free_lock(area, lock_id)


@routine
def _take_back_pages(area, record):
    """Whole pages of a bulk load go back to the tablespace."""
    first, body = record_row_page(record), record + RECORD_SIZE
    map_id, number = load_u32(body + 4), load_u32(body + 8)
    for i in range(min(load_u32(body), MAP_ENTRIES_MAX)):
        status = release_listed(area, record_entry(record), map_id, number + i, first + i)
        if status < 0:
            return status
    return DONE


@routine
def release_u_lock(area, record):
    """A row that was held without being changed gets the lock of before."""
    lock_id = record_lock(record)
    lock = lock_at(area, lock_id)
    if lock.action != U_LOCK:
        return  # it became the lock of a change, whose record takes care of it
    page_id, slot = lock.row_page, lock.row_slot
    page = touch_heap(area, page_id)  # negative if its table was dropped
    row = row_in_slot(page, page_size_of(area, page_id), slot) if page > 0 else page
    if row > 0 and lock_of(row) == lock_id:
        begin_change(area, page_id)
        set_lock(area, page, row, lock.previous)
        end_change(area, page_id)
    if lock.previous != NO_LOCK and lock_at(area, lock.previous).above == lock_id:
        lock_at(area, lock.previous).above = NO_LOCK
    free_lock(area, lock_id)


@routine
def _take_back_row(area, record, page_id, page, locked):
    """Put a row's data, flag and lock back; without lock area, the row ends without a lock."""
    slot, status = record_row_slot(record), DONE
    home = row_in_slot(page, page_size_of(area, page_id), slot)
    if home < 0:
        return damaged(area, page_id)
    if record_operation(record) == OP_DELETE:
        set_deleted(area, page, home, False)
    elif record_operation(record) != OP_LOCK:
        status = _put_data_back(area, record, page_id, page, slot, home)
        home = row_in_slot(page, page_size_of(area, page_id), slot)
        if status == NOT_FOUND or status == ROW_TOO_LARGE or home < 0:
            return damaged(area, page_id)  # the record is about another row
    if status == DONE and locked:
        _put_lock_back(area, record, page, home)
    elif status == DONE:
        set_lock(area, page, home, NO_LOCK)
    return status


@routine
def _take_back(area, record, locked):
    operation = record_operation(record)
    if operation == OP_INSERT and record_row_slot(record) == NO_SLOT:
        return _take_back_pages(area, record)
    if operation == OP_CREATE:
        return drop_some(area, record_object(record), record_row_page(record), DROP_STEP)
    if operation == OP_LOB_INSERT:
        return release_lob(area, record)
    if operation == OP_DROP or operation == OP_LOB_DELETE:
        return DONE
    if operation == OP_LOCK and locked:
        release_u_lock(area, record)
        return DONE
    if is_of_entry(operation):
        return take_back_entry(area, record, locked)
    page_id = record_row_page(record)
    page = touch_heap(area, page_id)
    if page < 0:
        return page
    if page_head(page).obj_id != record_object(record):
        return damaged(area, page_id)
    begin_change(area, page_id)
    status = DONE
    if operation == OP_INSERT:
        _take_back_insert(area, record, page_id, page, locked)
    else:
        status = _take_back_row(area, record, page_id, page, locked)
    end_change(area, page_id)
    return status


@routine
def _log_taken_back(area, place, record):
    """Tell readers of the log, who may have seen the change."""
    operation = record_operation(record)
    if operation == OP_INSERT and record_row_slot(record) == NO_SLOT:
        log_taken_back(area, place, record_row_page(record), load_u32(record + RECORD_SIZE))
    elif operation != OP_LOCK and not is_of_entry(operation):
        log_taken_back(area, place, NO_PAGE, 0)


@kernel
def take_back(area, place, locked, number):
    """Undo what one record of transaction ``number`` is about, and the record with it.

    Returns 1 if it must be called again to go on.  NEED_SPACE: nothing was done yet.  After a crash there is no lock
    area (``locked`` is 0), nor anybody else who could hold a row.
    """
    if require_log_room(area) < 0:
        return LOG_FULL
    record = find_record(area, page_of(place), slot_of(place))
    if record < 0:
        return record
    status = _take_back(area, record, locked)
    if status == DONE:
        _log_taken_back(area, place, record)
        status = discard_record(area, page_of(place), record)
    return close_group(area, number, status)
