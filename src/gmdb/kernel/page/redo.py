"""Logging what kernels write to pages.

A kernel changes bytes of a page, counts the change (``area.change``) and logs the bytes; ``close_group`` at its end
seals all that it logged.  Kernels run under the store's guard, so groups do not mix.

Invariants
 1. A kernel begins only if the buffer has room for the largest group.
 2. Whatever a kernel changed is in its group, also if it returns a status.
"""

from __future__ import annotations

from gmdb.format.address import DEVICES, NO_PAGE, OFFSET_BITS, PAGES_PER_DEVICE
from gmdb.format.layout import Structure
from gmdb.format.page import HEAD_SIZE, PAGE_HEAD, TAIL_SIZE
from gmdb.format.redo import REDO_CHANGE, REDO_COMMIT, REDO_GROUP, REDO_ITEM, REDO_TAKEN_BACK, RedoItem
from gmdb.kernel.page.area import (
    address_of,
    damaged,
    device_of_page,
    is_followable,
    mark_dirty,
    page_head,
    page_size_of,
    pages_at_most,
    state_of,
    touch,
)
from gmdb.kernel.places import page_of, slot_of
from gmdb.kernel.runtime.compiler import long_kernel, routine
from gmdb.kernel.runtime.crc32c import crc_of_words
from gmdb.kernel.runtime.memory import fill_bytes, load_i64, load_u16, load_u32, move_bytes, records, store_64
from gmdb.kernel.runtime.status import DAMAGED, DONE, LOG_FULL, NEED_SPACE, NOT_FOUND

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
    """Append an item's head; returns where its bytes go."""
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
        to = _new_item(state, page_of(place), 0, 0, CHANGE, CHANGE_SIZE + row_size + before_size)
        head = change_head(to)
        head.version = version
        head.undo_page = page_of(undo)
        head.undo_slot = slot_of(undo)
        head.slot = slot_of(place)
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
        head.undo_page = page_of(undo)
        head.undo_slot = slot_of(undo)
        head.reserved = 0
        head.first_page = first_page
        head.page_count = page_count


@routine
def close_group(area, transaction, result):
    """Seal what the kernel logged, if anything; returns ``result``."""
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


# ---- Replaying redo: groups out of a buffer, onto pages.
#
# Formats and images apply whatever is on the page: all that came after them is in the log, too.  Bytes apply to a page
# that has seen every change before theirs; a page that is newer keeps what it has.  So replaying twice, or from
# further back than needed, ends in the same pages.
#
# Invariants
#  1. A group is applied as a whole, or not at all.
#  2. A page that misses a change before one that is to be applied is damaged.

REPLAY = Structure(
    [
        ("buffer", "<i8"),  # address of some bytes of the log
        ("length", "<i8"),
        ("at", "<i8"),  # in and out: how far the buffer is done
        ("lsn", "<i8"),  # in and out: LSN at ``at``
        ("stop_time", "<i8"),  # replay nothing from the first commit after this time on; 0 = replay all
        ("page_id", "<i8"),  # out: the page that NEED_SPACE is about
        ("groups", "<i8"),  # counts, in and out
        ("items", "<i8"),
        ("commits", "<i8"),
        ("transaction", "<i8"),  # the highest number seen
        ("scn", "<i8"),  # the highest SCN seen
        ("time", "<i8"),  # of the newest commit
    ]
)
replay_at = records(REPLAY)
END, MORE, STOPPED = 1, 2, 3  # no group here; part of one; the time is reached
LENGTH_MAX = 2 * GROUP_MAX
_ITEM_SIZE = REDO_ITEM.size

_PAGE_ID_AT = PAGE_HEAD.offset("page_id")
_FREE_BEGIN_AT, _FREE_END_AT = PAGE_HEAD.offset("free_begin"), PAGE_HEAD.offset("free_end")


@routine
def group_is_whole(at, room, lsn):
    """The bytes of the group at ``at``, which should begin at ``lsn``; 0: there is none; MORE: it is not all here."""
    if room < _GROUP_SIZE:
        return MORE
    head = group_head(at)
    length = head.length
    if head.lsn != lsn or length < _GROUP_SIZE or length > LENGTH_MAX or length & 7:
        return 0
    if length > room:
        return MORE
    return length if crc_of_words(at + _CRC_FROM, (length - _CRC_FROM) >> 3) == head.crc else 0


@routine
def _exists(area, page_id):
    if page_id >> OFFSET_BITS >= DEVICES:
        return False
    return page_id & (PAGES_PER_DEVICE - 1) < device_of_page(area, page_id).page_count


@routine
def _write_whole(area, page_id, item, data):
    """Apply a format or an image; the page keeps its place in the chain of changed ones."""
    page = address_of(area, page_id)
    page_size = device_of_page(area, page_id).page_size
    if item.length < HEAD_SIZE or load_u32(data + _PAGE_ID_AT) != page_id:
        return damaged(area, page_id)
    mark_dirty(area, page_id)
    head = page_head(page)
    following = head.next_ckpt_page
    if item.offset == FORMAT:
        fill_bytes(page + HEAD_SIZE, 0, page_size - HEAD_SIZE)
        move_bytes(page, data, HEAD_SIZE)
    else:
        free_begin, free_end = load_u16(data + _FREE_BEGIN_AT), load_u16(data + _FREE_END_AT)
        behind = item.length - free_begin
        if not HEAD_SIZE <= free_begin <= min(item.length, free_end) or free_end + behind != page_size - TAIL_SIZE:
            return damaged(area, page_id)
        move_bytes(page, data, free_begin)
        fill_bytes(page + free_begin, 0, free_end - free_begin)
        move_bytes(page + free_end, data + free_begin, behind)
    head.next_ckpt_page = following
    head.dirty_flag = 1
    return DONE


@routine
def _signed(difference):
    """The difference of two counters modulo 2³², as the nearer way round."""
    return ((difference + 0x8000_0000) & 0xFFFF_FFFF) - 0x8000_0000


@routine
def _write_bytes(area, page_id, item, data):
    page = touch(area, page_id)
    if page < 0:
        return page
    head = page_head(page)
    newer_format = _signed(item.page_create_no - head.page_create_no)
    newer = _signed(item.chg_num - head.chg_num)
    if newer_format < 0 or (newer_format == 0 and newer < 0):
        return DONE
    if newer_format > 0 or newer > 1 or item.offset + item.length > device_of_page(area, page_id).page_size:
        return damaged(area, page_id)
    mark_dirty(area, page_id)
    following = head.next_ckpt_page
    move_bytes(page + item.offset, data, item.length)
    head.page_id = page_id
    head.next_ckpt_page = following
    head.dirty_flag = 1
    head.chg_num = item.chg_num
    return DONE


@long_kernel
def check_replayed(area):
    """DONE if the pages that replaying has changed can be followed: with what it wrote, their CRCs tell nothing."""
    page_id = state_of(area).dirty_first
    for _ in range(pages_at_most(area)):
        if page_id == NO_PAGE:
            return DONE
        page = address_of(area, page_id)
        if not is_followable(area, page, page_id):
            return damaged(area, page_id)
        page_id = page_head(page).next_ckpt_page
    return damaged(area, state_of(area).dirty_first)


@routine
def _apply_item(area, replay, item, data):
    if item.offset == COMMIT:
        if item.length < _COMMIT_SIZE:
            return DAMAGED
        replay.scn = max(replay.scn, load_i64(data))
        replay.time = load_i64(data + 8)
        replay.commits += 1
        return DONE
    if item.offset == CHANGE or item.offset == TAKEN_BACK:
        return DONE  # for readers of the log; the bytes of pages are in items beside
    page_id = item.page_id
    if not _exists(area, page_id):
        replay.page_id = page_id
        return NEED_SPACE
    if item.offset == FORMAT or item.offset == IMAGE:
        return _write_whole(area, page_id, item, data)
    return _write_bytes(area, page_id, item, data)


@routine
def _is_after(at, length, stop_time):
    """Whether the group is a commit after the given time."""
    done = _GROUP_SIZE
    while done + _ITEM_SIZE <= length:  # ends: an item has a head at least
        item = item_head(at + done)
        if item.offset == COMMIT:
            return load_i64(at + done + _ITEM_SIZE + 8) > stop_time
        done += _ITEM_SIZE + item.length
    return False


@long_kernel
def replay_groups(area, replay_address):
    """Apply groups until the buffer has no whole one: returns END, MORE, STOPPED or a status."""
    replay = replay_at(replay_address)
    for _ in range(replay.length // _GROUP_SIZE + 1):
        at = replay.buffer + replay.at
        length = group_is_whole(at, replay.length - replay.at, replay.lsn)
        if length == MORE or length == 0:
            return MORE if length == MORE else END
        if replay.stop_time and _is_after(at, length, replay.stop_time):
            return STOPPED
        done = _GROUP_SIZE
        while done + _ITEM_SIZE <= length:  # ends: an item has a head at least
            item = item_head(at + done)
            if item.length == 0 and item.page_id == 0 and item.offset == 0:
                break  # the zeros at its end
            if done + _ITEM_SIZE + item.length > length:
                return DAMAGED
            status = _apply_item(area, replay, item, at + done + _ITEM_SIZE)
            if status < 0:
                return damaged(area, item.page_id) if status == NOT_FOUND else status
            replay.items += 1
            done += _ITEM_SIZE + item.length
        replay.groups += 1
        replay.transaction = max(replay.transaction, group_head(at).transaction)
        replay.at += length
        replay.lsn += length
    return MORE


@long_kernel
def find_group_after(buffer, length, lsn, broken):
    """Whether a whole group lies behind the LSN at which the log seems to end that says: by then, that was on disk.

    ``lsn`` is the buffer's; ``broken`` is where no group was found.  A log that a crash cut short has none.
    """
    for at in range(max(broken - lsn, 0), length - _GROUP_SIZE, 8):
        head = group_head(buffer + at)
        if head.lsn == lsn + at and head.durable > broken and group_is_whole(buffer + at, length - at, lsn + at) > MORE:
            return 1
    return 0


@long_kernel
def first_group(buffer, length, lsn):
    """Where in the buffer, which begins at ``lsn``, the first whole group is; -1 if none begins in it."""
    for at in range(-lsn & 7, min(length - _GROUP_SIZE + 1, LENGTH_MAX), 8):
        if group_head(buffer + at).lsn == lsn + at and group_is_whole(buffer + at, length - at, lsn + at) > MORE:
            return at
    return -1


@long_kernel
def find_items(buffer, length, lsn, places, room):
    """Where the items of the buffer's groups are: of each, the offsets of its group and of itself (i64s) to ``places``.

    Returns how many they are, at most ``room``; behind them is where it ended, and END or MORE.
    """
    at, found, reason = 0, 0, END
    for _ in range(length // _GROUP_SIZE + 1):
        size = group_is_whole(buffer + at, length - at, lsn + at)
        if size <= MORE:
            reason = MORE if size == MORE else END
            break
        if found + size // _ITEM_SIZE > room:
            reason = MORE
            break
        done = _GROUP_SIZE
        while done + _ITEM_SIZE <= size:  # ends: an item has a head at least
            item = item_head(buffer + at + done)
            if item.length == 0 and item.page_id == 0 and item.offset == 0:
                break  # the zeros at its end
            if done + _ITEM_SIZE + item.length > size:
                break
            store_64(places + 16 * found, at)
            store_64(places + 16 * found + 8, at + done)
            found += 1
            done += _ITEM_SIZE + item.length
        at += size
    store_64(places + 16 * found, at)
    store_64(places + 16 * found + 8, reason)
    return found
