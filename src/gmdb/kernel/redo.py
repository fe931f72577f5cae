"""Logging what kernels write to pages.

A kernel changes bytes of a page, counts the change (``area.change``) and logs the bytes; ``close_group`` at its end
seals all that it logged.  Kernels run under the store's guard, so groups do not mix.

Invariants
 1. A kernel begins only if the buffer has room for the largest group.
 2. Whatever a kernel changed is in its group, also if it answers a status.
"""

from __future__ import annotations

from gmdb.format.address import NO_PAGE
from gmdb.format.page import HEAD_SIZE, PAGE_HEAD, TAIL_SIZE
from gmdb.format.redo import (
    REDO_CHANGE,
    REDO_COMMIT,
    REDO_GROUP,
    REDO_ITEM,
    REDO_TAKEN_BACK,
    RedoItem,
)
from gmdb.kernel.area import page_head, page_size_of, state_of
from gmdb.kernel.compiler import routine
from gmdb.kernel.crc32c import crc_of_words
from gmdb.kernel.memory import fill_bytes, move_bytes, records, store_64
from gmdb.kernel.status import DONE, LOG_FULL

GROUP_MAX = 1 << 20  # no kernel call logs more
_GROUP_ENOUGH = 1 << 16
group_head = records(REDO_GROUP)
item_head = records(REDO_ITEM)
_GROUP_SIZE, ITEM_SIZE, _COMMIT_SIZE = REDO_GROUP.size, REDO_ITEM.size, REDO_COMMIT.size
_CRC_FROM = REDO_GROUP.offset("lsn")
_COUNTS_AT, _COUNTS_SIZE = PAGE_HEAD.offset("free_begin"), 6
_LIST_AT = PAGE_HEAD.offset("fl_flag")
FORMAT, IMAGE, COMMIT = int(RedoItem.FORMAT), int(RedoItem.IMAGE), int(RedoItem.COMMIT)
CHANGE, TAKEN_BACK = int(RedoItem.CHANGE), int(RedoItem.TAKEN_BACK)
change_head = records(REDO_CHANGE)
taken_back_head = records(REDO_TAKEN_BACK)
CHANGE_SIZE, _TAKEN_BACK_SIZE = REDO_CHANGE.size, REDO_TAKEN_BACK.size


@routine
def require_log_room(area):
    """DONE if the buffer takes another group, else LOG_FULL: for the first line of kernels that change pages."""
    state = state_of(area)
    return LOG_FULL if state.log_buffer and state.log_end > state.log_limit else DONE


@routine
def is_group_long(area):
    """Whether a kernel that does one thing after the other had better end its group and go on with the next call."""
    state = state_of(area)
    return state.log_end - state.log_group > _GROUP_ENOUGH


@routine
def _new_item(state, page_id, create_no, chg_num, offset, length):
    """Append an item's head; answers where its bytes go."""
    if state.log_end == state.log_group:
        state.log_end += _GROUP_SIZE
    at = state.log_buffer + state.log_end
    item = item_head(at)
    item.page_id = page_id
    item.page_create_no = create_no
    item.chg_num = chg_num
    item.offset = offset
    item.length = length
    state.log_end += ITEM_SIZE + length
    return at + ITEM_SIZE


@routine
def log_bytes(area, page, at, length):
    """Log some of the page's bytes as they are now."""
    state = state_of(area)
    if state.log_buffer:
        head = page_head(page)
        to = _new_item(state, head.page_id, head.page_create_no, head.chg_num, at, length)
        move_bytes(to, page + at, length)


@routine
def log_counts(area, page):
    """Log free_begin, free_end and del_count of the page's head."""
    log_bytes(area, page, _COUNTS_AT, _COUNTS_SIZE)


@routine
def log_list(area, page):
    """Log which free list the page's head names."""
    log_bytes(area, page, _LIST_AT, 1)


@routine
def log_format(area, page):
    """Log that the page was made a new one."""
    state = state_of(area)
    if state.log_buffer:
        head = page_head(page)
        to = _new_item(state, head.page_id, head.page_create_no, head.chg_num, FORMAT, HEAD_SIZE)
        move_bytes(to, page, HEAD_SIZE)


@routine
def log_image(area, page, page_size):
    """Log the whole page, but for the free bytes in its middle."""
    state = state_of(area)
    if state.log_buffer:
        head = page_head(page)
        behind = page_size - TAIL_SIZE - head.free_end
        length = head.free_begin + behind
        to = _new_item(state, head.page_id, head.page_create_no, head.chg_num, IMAGE, length)
        move_bytes(to, page, head.free_begin)
        move_bytes(to + head.free_begin, page + head.free_end, behind)


@routine
def log_page(area, page):
    """Log a page of the database as a whole: much of it has moved.  What lies free in it becomes zero."""
    head = page_head(page)
    fill_bytes(page + head.free_begin, 0, head.free_end - head.free_begin)
    log_image(area, page, page_size_of(area, head.page_id))


@routine
def log_commit(area, scn, time, began):
    state = state_of(area)
    if state.log_buffer:
        to = _new_item(state, NO_PAGE, 0, 0, COMMIT, _COMMIT_SIZE)
        store_64(to, scn)
        store_64(to + 8, time)
        store_64(to + 16, began)


@routine
def log_change(area, call, version, operation, place, undo, row, row_size, before, before_size, is_patch):
    """Log what a row of a table with a change feed is now, and what it was; ``undo``: where its undo record is."""
    state = state_of(area)
    if state.log_buffer:
        if call.feed_from == 0:
            call.feed_from = state.log_start + state.log_group
        to = _new_item(state, place >> 16, 0, 0, CHANGE, CHANGE_SIZE + row_size + before_size)
        head = change_head(to)
        head.version = version
        head.undo_page = undo >> 16
        head.undo_slot = undo & 0xFFFF
        head.slot = place & 0xFFFF
        head.operation = operation
        head.before_is_patch = is_patch
        head.row_size = row_size
        move_bytes(to + CHANGE_SIZE, row, row_size)
        move_bytes(to + CHANGE_SIZE + row_size, before, before_size)


@routine
def log_taken_back(area, undo, first_page, page_count):
    """Log that a transaction has taken back what an undo record is about, before it commits or not at all."""
    state = state_of(area)
    if state.log_buffer:
        head = taken_back_head(_new_item(state, NO_PAGE, 0, 0, TAKEN_BACK, _TAKEN_BACK_SIZE))
        head.undo_page = undo >> 16
        head.undo_slot = undo & 0xFFFF
        head.reserved = 0
        head.first_page = first_page
        head.page_count = page_count


@routine
def close_group(area, transaction, result):
    """Seal what the kernel logged, if anything; answers ``result``."""
    state = state_of(area)
    if state.log_end == state.log_group:
        return result
    at = state.log_buffer + state.log_group
    length = state.log_end - state.log_group
    padding = -length & 7
    fill_bytes(at + length, 0, padding)
    length += padding
    head = group_head(at)
    head.length = length
    head.lsn = state.log_start + state.log_group
    head.durable = state.log_durable
    head.transaction = transaction
    head.crc = crc_of_words(at + _CRC_FROM, (length - _CRC_FROM) >> 3)
    state.log_group += length
    state.log_end = state.log_group
    return result
