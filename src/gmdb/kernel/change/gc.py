"""Garbage collection: versions that no snapshot needs, locks of transactions that everyone sees, deleted rows.

Invariants
 1. What is purged belongs to a transaction that committed before every snapshot in use.
 2. A reader of a row whose lock is freed meanwhile sees the page's version change.
"""

from __future__ import annotations

from gmdb.format.address import NO_PAGE, NO_SLOT
from gmdb.format.heap import NODE_AT
from gmdb.format.row import NO_LOCK
from gmdb.kernel.change.index_upkeep import is_of_entry, purge_entry
from gmdb.kernel.change.rollback import DROP_STEP, release_u_lock
from gmdb.kernel.heap import (
    FLAG_DELETE,
    FLAG_ENTRY,
    compact,
    flags_of,
    heap_node,
    home_of,
    lock_of,
    release_if_empty,
    remove_row,
    row_in_slot,
    set_lock,
    touch_heap,
)
from gmdb.kernel.lob import release_lob
from gmdb.kernel.locks import free_lock, lock_above, lock_at
from gmdb.kernel.page.area import begin_change, change, end_change, page_head, page_size_of, touch
from gmdb.kernel.page.redo import close_group, log_bytes, require_log_room
from gmdb.kernel.page.segment import drop_some
from gmdb.kernel.places import page_of, slot_of
from gmdb.kernel.runtime.compiler import kernel, routine
from gmdb.kernel.runtime.memory import load_i64, load_u16, store_32, store_64
from gmdb.kernel.runtime.status import DONE, LOG_FULL
from gmdb.kernel.undo import (
    OP_CREATE,
    OP_DROP,
    OP_INSERT,
    OP_LOB_DELETE,
    OP_LOB_INSERT,
    OP_LOCK,
    RECORD_SIZE,
    SHADOW,
    chain_max,
    discard_record,
    find_record,
    is_first,
    is_further,
    prior_record,
    record_lock,
    record_object,
    record_operation,
    record_row_page,
    record_row_slot,
    touch_undo,
)

LINKS_MAX = 16  # rows with their data on another page that one call removes


@routine
def _forget_beneath(area, lock_id):
    """The lock's row had no lock before: in the lock, and in its first undo image."""
    lock = lock_at(area, lock_id)
    lock.previous = NO_LOCK
    at_page, at_slot = lock.undo_page, lock.undo_slot
    for _ in range(chain_max(area)):
        if at_page == NO_PAGE:
            return
        record = find_record(area, at_page, at_slot)
        if record < 0:
            return
        if not is_further(record):
            page = touch_undo(area, at_page)
            change(area, page)
            store_32(record + RECORD_SIZE, SHADOW)
            log_bytes(area, page, record + RECORD_SIZE - page, 4)
            return
        prior = prior_record(record)
        at_page, at_slot = page_of(prior), slot_of(prior)


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
        set_lock(area, page, row, NO_LOCK)
    else:
        top = lock_above(area, top, lock_id)
        if top != NO_LOCK:
            _forget_beneath(area, top)
    end_change(area, page_id)


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


@routine
def _purge(area, record):
    """Nobody needs what was before the change that the record is about.  Returns 1 if there is more to do."""
    operation = record_operation(record)
    if operation == OP_INSERT:
        _purge_insert(area, record, record_lock(record))
    elif operation == OP_LOCK:
        release_u_lock(area, record)
    elif is_of_entry(operation):
        purge_entry(area, record)
    elif operation == OP_DROP:
        return drop_some(area, record_object(record), record_row_page(record), DROP_STEP)
    elif operation == OP_LOB_DELETE:
        return release_lob(area, record)
    elif operation == OP_LOB_INSERT:
        return DONE
    elif operation != OP_CREATE and is_first(record):
        lock_id = record_lock(record)
        _take_lock_off(area, record_object(record), record_row_page(record), record_row_slot(record), lock_id)
        free_lock(area, lock_id)
    return DONE


@routine
def _forget(area, record):
    """After a crash, without a lock area: the rows of a committed change have no lock."""
    operation = record_operation(record)
    if operation == OP_DROP:
        return drop_some(area, record_object(record), record_row_page(record), DROP_STEP)
    if operation == OP_LOB_DELETE:
        return release_lob(area, record)
    if is_of_entry(operation):
        purge_entry(area, record)
        return DONE
    first = record_row_slot(record)
    if operation == OP_CREATE or first == NO_SLOT:
        return DONE
    count = load_u16(record + RECORD_SIZE) if operation == OP_INSERT else 1
    for slot in range(first, first + count):
        row = home_of(area, record_object(record), record_row_page(record), slot)
        if row > 0 and lock_of(row) != NO_LOCK:
            set_lock(area, touch_heap(area, record_row_page(record)), row, NO_LOCK)
    return DONE


@kernel
def purge_records(area, places, count, pages, locked):
    """Purge undo records, given by their places (i64s), of transactions that everyone sees; returns how many.

    Fewer than ``count``: call again for the others.  For each, ``pages`` (i64s) gets obj_id << 32 | page id if the
    page has deleted rows now, else 0.  After a crash there is no lock area: ``locked`` is 0.
    """
    for i in range(count):
        if require_log_room(area) < 0:
            return i if i else LOG_FULL
        place = load_i64(places + 8 * i)
        record = find_record(area, page_of(place), slot_of(place))
        if record < 0:
            return record
        page_id, obj_id = record_row_page(record), record_object(record)
        status = _purge(area, record) if locked else _forget(area, record)
        if status == DONE:
            page = touch(area, page_id)
            untidy = page > 0 and page_head(page).obj_id == obj_id and page_head(page).del_count
            store_64(pages + 8 * i, obj_id << 32 | page_id if untidy else 0)
            status = discard_record(area, page_of(place), record)
        close_group(area, 0, DONE)
        if status:
            return status if status < 0 else i
    return count


@routine
def _is_of_index(area, place):
    record = find_record(area, page_of(place), slot_of(place))
    return record > 0 and is_of_entry(record_operation(record))


@kernel
def put_index_records_first(area, places, count, buffer):
    """Order a transaction's undo records (i64s) for their purge: those of entries, then those of rows.

    A row's lock must not be another's while an entry has it.
    """
    first, others = 0, 0
    for i in range(count):
        place = load_i64(places + 8 * i)
        if _is_of_index(area, place):
            store_64(places + 8 * first, place)
            first += 1
        else:
            store_64(buffer + 8 * others, place)
            others += 1
    for i in range(others):
        store_64(places + 8 * (first + i), load_i64(buffer + 8 * i))
    return first


@kernel
def changed_page(area, place):
    """The page that an undo record is about."""
    record = find_record(area, page_of(place), slot_of(place))
    return record if record < 0 else record_row_page(record)


@kernel
def is_row_lock(area, place):
    """Whether an undo record is about a row that was locked, not changed: 1 or 0."""
    record = find_record(area, page_of(place), slot_of(place))
    return 1 if record > 0 and record_operation(record) == OP_LOCK else 0


@kernel
def tidy_page(area, obj_id, entry_id, page_id):
    """Remove the page's rows that are gone for everyone and slide the others together.

    Returns how many rows were removed: call again until it is none, for one call logs only so much.  A page without
    rows goes back to the tablespace, but for the segment's last.
    """
    page = touch_heap(area, page_id)
    if page < 0 or page_head(page).obj_id != obj_id:
        return 0
    if require_log_room(area) < 0:
        return LOG_FULL
    page_size = page_size_of(area, page_id)
    if page_head(page).del_count == 0:
        return 0
    removed, links = 0, 0
    begin_change(area, page_id)
    for slot in range(heap_node(page + NODE_AT).slot_count):
        row = row_in_slot(page, page_size, slot)
        if row > 0 and flags_of(row) & FLAG_DELETE and lock_of(row) == NO_LOCK:
            links += 1 if flags_of(row) & FLAG_ENTRY else 0
            if links > LINKS_MAX:
                break
            if remove_row(area, entry_id, page_id, page, slot) < 0:
                break
            removed += 1
    status = compact(area, entry_id, page_id, page) if removed else DONE
    end_change(area, page_id)
    if status == DONE and removed:
        status = release_if_empty(area, entry_id, page_id, page)
    return close_group(area, 0, status if status < 0 else removed)
