"""Undo records: how rows were before a transaction changed them.

A transaction writes its records to a page of its own; when it has ended, the next one goes on there.  A record is
live until its transaction is rolled back or no snapshot needs it; a page without live records is given back.

A record's body, by operation
 - HEAP_INSERT: how many slots from the row's on (u16); with slot 65535, how many pages from the row's on (u32) and
   the map entry of the first of them (page u32, number u32).
 - HEAP_UPDATE_INC: a patch with the values before.  HEAP_UPDATE: the whole row before.
 - HEAP_DELETE, HEAP_LOCK: the row's lock word before.
 - CREATE_SEGMENT, SET_DROP: none; the row id's page is the segment's entry page.
 - LOB_INSERT, LOB_DELETE: none; the row id's page is the large object's first page.
 - OWNER: whose records follow.
The image's lock word is the row's before: 0xFFFFFFFF for none.  If it is the record's own lock, the transaction
had inserted or changed the row before; the record then ends in where the change before it is (an undo row id,
no page if that was the insert) and the statement that made this one.
"""

from __future__ import annotations

from gmdb.format.address import DEVICES, NO_PAGE, NO_PLACE, NO_SLOT, OFFSET_BITS, UNDO_DEVICE
from gmdb.format.page import PAGE_HEAD, PAGE_SIZES, TAIL_SIZE, PageType, SegmentType
from gmdb.format.row import NO_LOCK
from gmdb.format.segment import SEGMENT_HEAD, SEGMENT_HEAD_AT
from gmdb.format.undo import NODE_AT, OWNER_AT, RECORDS_AT, UNDO_HEAD, UNDO_OWNER, UNDO_RECORD, UndoOperation
from gmdb.kernel.locks import clear_entry, enter_commit, reserve_entry, transaction_at
from gmdb.kernel.page.allocation import pages_available
from gmdb.kernel.page.area import (
    change,
    damaged,
    device_of_page,
    page_head,
    page_size_of,
    segment_head,
    state_of,
    touch,
    touch_type,
)
from gmdb.kernel.page.redo import close_group, log_bytes, log_change, log_commit, log_counts, require_log_room
from gmdb.kernel.page.segment import add_page, make_segment, release_page, touch_entry
from gmdb.kernel.places import page_of, place_of, slot_of
from gmdb.kernel.runtime.call import call_at
from gmdb.kernel.runtime.compiler import kernel, routine
from gmdb.kernel.runtime.memory import (
    load_u8,
    load_u16,
    load_u32,
    move_bytes,
    records,
    store_8,
    store_16,
    store_32,
    store_64,
)
from gmdb.kernel.runtime.status import DONE, LOG_FULL, NEED_SPACE, NOT_FOUND, UNDO_FULL

undo_head = records(UNDO_HEAD)
owner_at = records(UNDO_OWNER)
RECORD_SIZE = UNDO_RECORD.size
OWNER_BODY = 16
LINK_SIZE = 8
SHADOW = 0xFFFF_FFFF  # the lock word of a row that had none
OP_INSERT, OP_UPDATE, OP_UPDATE_INC, OP_DELETE = (
    int(UndoOperation.HEAP_INSERT),
    int(UndoOperation.HEAP_UPDATE),
    int(UndoOperation.HEAP_UPDATE_INC),
    int(UndoOperation.HEAP_DELETE),
)
OP_LOCK, OP_OWNER, OP_NONE = int(UndoOperation.HEAP_LOCK), int(UndoOperation.OWNER), int(UndoOperation.NONE)
OP_CREATE, OP_DROP = int(UndoOperation.CREATE_SEGMENT), int(UndoOperation.SET_DROP)
OP_LOB_INSERT, OP_LOB_DELETE = int(UndoOperation.LOB_INSERT), int(UndoOperation.LOB_DELETE)
POOL_MAX = 4096
_POOL_ROOM = 1024  # a page with less room than this is not kept for the next transaction
_WRITING, _POOLED = 1, 2
_DATA, _UNDO = int(PageType.DATA), int(SegmentType.UNDO)
_ROW_PAGE_AT = UNDO_RECORD.offset("row_id.page_id")
_ROW_SLOT_AT = UNDO_RECORD.offset("row_id.slot_id")
_LOCK_AT, _OBJECT_AT = UNDO_RECORD.offset("lock_id"), UNDO_RECORD.offset("obj_id")
_ENTRY_AT, _SIZE_AT = UNDO_RECORD.offset("seg_entry"), UNDO_RECORD.offset("size")
_OPERATION_AT = UNDO_RECORD.offset("op_type")
_FLAG_AT = PAGE_HEAD.offset("flag")
_OWNER_SIZE = UNDO_OWNER.size
assert PAGE_HEAD.size == NODE_AT


@routine
def record_lock(record):
    return load_u32(record + _LOCK_AT)


@routine
def record_object(record):
    return load_u32(record + _OBJECT_AT)


@routine
def record_entry(record):
    return load_u32(record + _ENTRY_AT)


@routine
def record_row_page(record):
    return load_u32(record + _ROW_PAGE_AT)


@routine
def record_row_slot(record):
    return load_u16(record + _ROW_SLOT_AT)


@routine
def record_size(record):
    return load_u16(record + _SIZE_AT)


@routine
def record_operation(record):
    return load_u8(record + _OPERATION_AT)


@routine
def image_word(record):
    """The lock word that the row had before, for all operations but inserts."""
    return load_u32(record + RECORD_SIZE)


@routine
def is_further(record):
    """Whether the transaction had changed the row before this record."""
    return record_operation(record) != OP_INSERT and image_word(record) == record_lock(record)


@routine
def prior_record(record):
    """Where the transaction's change before this one is, as a place."""
    at = record + record_size(record) - LINK_SIZE
    return place_of(load_u32(at), load_u16(at + 4))


@routine
def is_first(record):
    """Whether it is the transaction's first change of the row, but for inserting it."""
    return not is_further(record) or page_of(prior_record(record)) == NO_PAGE


@routine
def record_statement(record):
    """The low 16 bits of the statement of a further change."""
    return load_u16(record + record_size(record) - 2)


@routine
def touch_undo(area, page_id):
    return touch_type(area, page_id, _DATA, _UNDO)


@routine
def chain_max(area):
    """Records that there is room for on all undo pages: a chain with more goes round in a circle."""
    device, pages = UNDO_DEVICE << OFFSET_BITS, 0
    for _ in range(DEVICES):
        pages += device_of_page(area, device).page_count
        device = device_of_page(area, device).next_device << OFFSET_BITS
        if device == 0:
            break
    return pages * (PAGE_SIZES[-1] // RECORD_SIZE)


@routine
def find_record(area, page_id, slot):
    """The address of an undo record; a negative status if there is none there."""
    page = touch_undo(area, page_id)
    if page < 0:
        return page
    if slot >= undo_head(page + NODE_AT).slot_count:
        return NOT_FOUND
    return page + load_u16(page + page_size_of(area, page_id) - TAIL_SIZE - 2 * (slot + 1))


@routine
def _room(page):
    return page_head(page).free_end - page_head(page).free_begin


@routine
def _new_page(area):
    """One more page of the undo segment; returns its id or a status."""
    state = state_of(area)
    entry_page = touch_entry(area, state.undo_entry)
    if entry_page < 0:
        return entry_page
    if segment_head(entry_page + SEGMENT_HEAD_AT).page_count >= state.undo_limit:
        return UNDO_FULL
    page = add_page(area, state.undo_entry, _UNDO)
    if page < 0:
        return page
    page_head(page).free_begin = RECORDS_AT
    log_counts(area, page)
    return page_head(page).page_id


@routine
def _pooled_page(area, size):
    """A page that a transaction before left, with room for ``size`` bytes; NO_PAGE if there is none."""
    state = state_of(area)
    while state.undo_pool_count > 0:
        state.undo_pool_count -= 1
        page_id = load_u32(state.undo_pool + 4 * state.undo_pool_count)
        page = touch_undo(area, page_id)
        if page < 0:
            return page
        if _room(page) >= size:
            return page_id
        _leave(area, page_id, page)
    return NO_PAGE


@routine
def _set_flag(area, page, flag):
    change(area, page)
    page_head(page).flag = flag
    log_bytes(area, page, _FLAG_AT, 1)


@routine
def _begin_run(area, call, page_id, page):
    """Make the page the transaction's own from here on: in its head if it is empty, else by a record."""
    at = page + OWNER_AT
    _set_flag(area, page, _WRITING)
    first = undo_head(page + NODE_AT).slot_count == 0
    record = page
    if not first:
        record = _append_record(area, page, NO_PAGE, NO_SLOT, NO_LOCK, 0, 0, OP_OWNER, OWNER_BODY)
        page_head(page).del_count += 1
        at = record + RECORD_SIZE
        store_8(at + _OWNER_SIZE, 0)
    owner = owner_at(at)
    owner.number = transaction_at(area, call.transaction).number
    owner.run = call.undo_runs
    if first:
        log_bytes(area, page, OWNER_AT, _OWNER_SIZE)
    else:
        log_record(area, page, record)
    call.undo_page = page_id
    call.undo_runs += 1


@routine
def reserve_undo(area, call, size):
    """Make sure that the transaction's page takes a record of ``size`` bytes; DONE or a status, with nothing lost."""
    if call.undo_page >= 0:
        page = touch_undo(area, call.undo_page)
        if page < 0:
            return page
        if _room(page) >= size + 2:
            return DONE
    else:
        status = reserve_entry(area, call.transaction)
        if status < 0:
            return status
    need = size + 2 + RECORD_SIZE + OWNER_BODY + 2
    page_id = _pooled_page(area, need)
    if page_id == NO_PAGE:
        page_id = _new_page(area)
    if page_id < 0:
        return page_id
    if _room(touch_undo(area, page_id)) < size + 2 or page_id == call.undo_page:
        return damaged(area, page_id)  # no page has room for a record of such a row: the row is damaged
    full = call.undo_page
    _begin_run(area, call, page_id, touch_undo(area, page_id))
    return _leave(area, full, touch_undo(area, full)) if full >= 0 else DONE


@routine
def _append_record(area, page, row_page, row_slot, lock_id, obj_id, entry_id, operation, body_size):
    head, node = page_head(page), undo_head(page + NODE_AT)
    change(area, page)
    record = page + head.free_begin
    store_32(record + _ROW_PAGE_AT, row_page)
    store_16(record + _ROW_SLOT_AT, row_slot)
    store_16(record + _ROW_SLOT_AT + 2, 0xFFFF)
    store_32(record + _LOCK_AT, lock_id)
    store_32(record + _OBJECT_AT, obj_id)
    store_32(record + _ENTRY_AT, entry_id)
    store_16(record + _SIZE_AT, RECORD_SIZE + body_size)
    store_8(record + _OPERATION_AT, operation)
    store_8(record + _OPERATION_AT + 1, 0xFF)
    head.free_end -= 2
    store_16(page + head.free_end, head.free_begin)
    head.free_begin += RECORD_SIZE + body_size
    node.slot_count += 1
    return record


@routine
def newest_place(area, call):
    """Where the record that the transaction wrote last is, as a place."""
    page = touch_undo(area, call.undo_page)
    return place_of(call.undo_page, undo_head(page + NODE_AT).slot_count - 1)


@routine
def write_record(area, call, row_page, row_slot, lock_id, obj_id, entry_id, operation, body_size):
    """Append a record to the transaction's page, which has room, and to its list.  Returns the record's address.

    The caller writes the body, then logs the record.
    """
    page = touch_undo(area, call.undo_page)
    record = _append_record(area, page, row_page, row_slot, lock_id, obj_id, entry_id, operation, body_size)
    call.undo = place_of(call.undo_page, undo_head(page + NODE_AT).slot_count - 1)
    store_64(call.records + 8 * call.record_count, call.undo)
    call.record_count += 1
    return record


@routine
def log_record(area, page, record):
    """Log the newest record of an undo page, its body written."""
    log_bytes(area, page, record - page, record_size(record))
    log_bytes(area, page, page_head(page).free_end, 2)
    log_counts(area, page)
    log_bytes(area, page, NODE_AT, 2)


@routine
def log_newest(area, call, record):
    """Log the record that the transaction has just written, body and all."""
    log_record(area, touch_undo(area, call.undo_page), record)


@routine
def log_again(area, call, record):
    """Count and log a change of the first word of a record's body."""
    page = touch_undo(area, call.undo_page)
    change(area, page)
    log_bytes(area, page, record + RECORD_SIZE - page, 4)


@routine
def write_link(record, prior, statement):
    """End a further record in where the change before it is."""
    at = record + record_size(record) - LINK_SIZE
    store_32(at, page_of(prior))
    store_16(at + 4, slot_of(prior))
    store_16(at + 6, statement & 0xFFFF)


@routine
def copy_body(record, body, size):
    move_bytes(record + RECORD_SIZE, body, size)


@routine
def is_dead(page):
    """Whether the page has no live record."""
    return page_head(page).del_count == undo_head(page + NODE_AT).slot_count


@routine
def _empty(area, page_id, page):
    """Empty a page without live records, so that it has no owner."""
    head = page_head(page)
    change(area, page)
    head.del_count = 0
    undo_head(page + NODE_AT).slot_count = 0
    head.free_begin = RECORDS_AT
    head.free_end = page_size_of(area, page_id) - TAIL_SIZE
    owner = owner_at(page + OWNER_AT)
    owner.number, owner.run = 0, 0
    log_bytes(area, page, OWNER_AT, _OWNER_SIZE)
    log_bytes(area, page, NODE_AT, 2)
    log_counts(area, page)


@routine
def _leave(area, page_id, page):
    """No transaction goes on writing to the page: release it if it is dead."""
    if is_dead(page):
        return release_page(area, state_of(area).undo_entry, page_id)
    _set_flag(area, page, 0)
    return DONE


@routine
def pool_page(area, page_id):
    """The transaction that wrote to the page has ended: keep it for the next one, if it has room enough."""
    page = touch_undo(area, page_id)
    if page < 0:
        return page
    state = state_of(area)
    if is_dead(page):
        _empty(area, page_id, page)
    if _room(page) < _POOL_ROOM or state.undo_pool_count == POOL_MAX:
        return _leave(area, page_id, page)
    _set_flag(area, page, _POOLED)
    store_32(state.undo_pool + 4 * state.undo_pool_count, page_id)
    state.undo_pool_count += 1
    return DONE


@routine
def discard_record(area, page_id, record):
    """Mark a record as dead; release its page if that was its last live record and no transaction writes there."""
    page = touch_undo(area, page_id)
    if page < 0:
        return page
    change(area, page)
    store_8(record + _OPERATION_AT, OP_NONE)
    page_head(page).del_count += 1
    log_bytes(area, page, record + _OPERATION_AT - page, 1)
    log_counts(area, page)
    if not is_dead(page) or page_head(page).flag == _WRITING:
        return DONE
    if page_head(page).flag == _POOLED:
        _empty(area, page_id, page)
        return DONE
    return release_page(area, state_of(area).undo_entry, page_id)


# ---- Ends of transactions, and undo of definitions.

_CHILD_AT = SEGMENT_HEAD.offset("child_seg")


@kernel
def commit_transaction(area, call_address, time):
    """Give the transaction its SCN and log its commit; returns the LSN that must be on disk for it to count.

    The SCN is in the call.  Nobody else sees the commit yet.
    """
    if require_log_room(area) < 0:
        return LOG_FULL
    call, state = call_at(call_address), state_of(area)
    call.commit = 0
    if call.undo_page < 0:
        return DONE  # it changed nothing
    call.commit = state.next_scn
    state.next_scn += 1
    status = enter_commit(area, call.transaction, call.commit)
    if status == DONE:
        status = pool_page(area, call.undo_page)
    log_commit(area, call.commit, time, call.feed_from)
    close_group(area, transaction_at(area, call.transaction).number, DONE)
    return status if status < 0 else state.log_start + state.log_end


@kernel
def end_rollback(area, call_address):
    """The transaction has taken back all that it did: its undo page can go to the next one."""
    if require_log_room(area) < 0:
        return LOG_FULL
    call = call_at(call_address)
    status = pool_page(area, call.undo_page) if call.undo_page >= 0 else DONE
    return close_group(area, 0, status)


@kernel
def forget_transaction(area, slot):
    """None of the committed transaction's records is left."""
    if require_log_room(area) < 0:
        return LOG_FULL
    return close_group(area, 0, clear_entry(area, slot))


@routine
def _note_segment(area, call, obj_id, entry_id, operation):
    record = write_record(area, call, entry_id, NO_SLOT, NO_LOCK, obj_id, entry_id, operation, 0)
    log_newest(area, call, record)


@routine
def _create(area, call_address, space_id, obj_id, seg_type, pct_free, name):
    if call_address == 0:
        return make_segment(area, space_id, obj_id, seg_type, pct_free, name)
    call = call_at(call_address)
    if pages_available(area, space_id) < 1:
        return NEED_SPACE
    status = reserve_undo(area, call, RECORD_SIZE)
    if status < 0:
        return status
    entry_id = make_segment(area, space_id, obj_id, seg_type, pct_free, name)
    if entry_id >= 0:
        _note_segment(area, call, obj_id, entry_id, OP_CREATE)
    return entry_id


@kernel
def create_segment(area, call_address, space_id, obj_id, seg_type, pct_free, name):
    """A segment without pages, with the name in the 64 bytes at ``name``; returns its entry page.

    With a call it belongs to that transaction: it goes if that is rolled back.
    """
    if require_log_room(area) < 0:
        return LOG_FULL
    return close_group(area, 0, _create(area, call_address, space_id, obj_id, seg_type, pct_free, name))


@kernel
def log_table_change(area, call_address, feed, operation):
    """Log a change of the definition of a table with a change feed, under the transaction's newest undo record."""
    if require_log_room(area) < 0:
        return LOG_FULL
    call = call_at(call_address)
    log_change(area, call, feed, operation, NO_PLACE, newest_place(area, call), 0, 0, 0, 0, 0)
    return close_group(area, transaction_at(area, call.transaction).number, DONE)


@kernel
def set_child(area, entry_id, child):
    """Name the segment that belongs to another one."""
    if require_log_room(area) < 0:
        return LOG_FULL
    page = touch_entry(area, entry_id)
    if page < 0:
        return page
    change(area, page)
    segment_head(page + SEGMENT_HEAD_AT).child_seg = child
    log_bytes(area, page, SEGMENT_HEAD_AT + _CHILD_AT, 4)
    return close_group(area, 0, DONE)


@kernel
def mark_dropped(area, call_address, obj_id, entry_id):
    """Note that a segment goes once the transaction has committed and nobody needs it any more."""
    if require_log_room(area) < 0:
        return LOG_FULL
    call = call_at(call_address)
    status = reserve_undo(area, call, RECORD_SIZE)
    if status == DONE:
        _note_segment(area, call, obj_id, entry_id, OP_DROP)
    return close_group(area, transaction_at(area, call.transaction).number, status)


# ---- Single pages, for recovery.


@kernel
def check_page(area, page_id):
    """DONE if the page exists and is sound, so that Python may follow its offsets."""
    return min(touch(area, page_id), DONE)


@kernel
def release_dead_page(area, page_id):
    """Give an undo page back that has no live record, whatever its flag says of who writes there."""
    if require_log_room(area) < 0:
        return LOG_FULL
    page = touch_undo(area, page_id)
    if page < 0:
        return page
    return close_group(area, 0, release_page(area, state_of(area).undo_entry, page_id) if is_dead(page) else DONE)
