"""How transactions end, and what definitions leave in undo."""

from __future__ import annotations

from gmdb.format.address import NO_PAGE, NO_SLOT
from gmdb.format.row import NO_LOCK
from gmdb.format.segment import SEGMENT_HEAD, SEGMENT_HEAD_AT
from gmdb.kernel.area import change, segment_head, state_of
from gmdb.kernel.call import call_at
from gmdb.kernel.compiler import kernel, routine
from gmdb.kernel.free_lists import touch_entry
from gmdb.kernel.locks import transaction_at
from gmdb.kernel.pages import pages_available
from gmdb.kernel.redo import close_group, log_bytes, log_change, log_commit, require_log_room
from gmdb.kernel.segment import make_segment
from gmdb.kernel.status import DONE, LOG_FULL, NEED_SPACE
from gmdb.kernel.transactions import clear_entry, enter_commit
from gmdb.kernel.undo import (
    OP_CREATE,
    OP_DROP,
    RECORD_SIZE,
    hand_on,
    log_newest,
    newest_place,
    reserve_undo,
    write_record,
)

_CHILD_AT = SEGMENT_HEAD.offset("child_seg")


@kernel
def commit_transaction(area, call_address, time):
    """Give the transaction its SCN and log its commit; answers the LSN that must be on disk for it to count.

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
        status = hand_on(area, call.undo_page)
    log_commit(area, call.commit, time, call.feed_from)
    close_group(area, transaction_at(area, call.transaction).number, DONE)
    return status if status < 0 else state.log_start + state.log_end


@kernel
def end_rollback(area, call_address):
    """The transaction has taken back all that it did: others may write where it wrote."""
    if require_log_room(area) < 0:
        return LOG_FULL
    call = call_at(call_address)
    status = hand_on(area, call.undo_page) if call.undo_page >= 0 else DONE
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
    """A segment without pages, called by the 64 bytes at ``name``; answers its entry page.

    With a call it belongs to that transaction: it goes if that is rolled back.
    """
    if require_log_room(area) < 0:
        return LOG_FULL
    return close_group(area, 0, _create(area, call_address, space_id, obj_id, seg_type, pct_free, name))


@kernel
def log_table_change(area, call_address, feed, operation):
    """Log what became of a table with a change feed, as part of what the transaction's newest undo record is about."""
    if require_log_room(area) < 0:
        return LOG_FULL
    call = call_at(call_address)
    log_change(area, call, feed, operation, NO_PAGE << 16 | NO_SLOT, newest_place(area, call), 0, 0, 0, 0, 0)
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
