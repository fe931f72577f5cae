"""Changes of rows, read from the bytes of the log and decoded into columns.

Not here: what happens to them when transactions commit or take something back (storage/log/committed_changes.py).
"""

from __future__ import annotations

from gmdb.format.address import NO_PLACE
from gmdb.format.heap import NODE_AT, ROWS_AT
from gmdb.format.layout import Structure
from gmdb.format.redo import REDO_COMMIT, REDO_GROUP, REDO_TAKEN_BACK, ChangeOperation
from gmdb.format.row import COL_COUNT_AT, MAX_COLUMNS, SIZE_AT
from gmdb.kernel.heap import heap_node
from gmdb.kernel.page.redo import (
    CHANGE,
    CHANGE_SIZE,
    COMMIT,
    END,
    IMAGE,
    ITEM_SIZE,
    MORE,
    TAKEN_BACK,
    change_head,
    group_head,
    group_is_whole,
    item_head,
    taken_back_head,
)
from gmdb.kernel.page.soundness import image_end
from gmdb.kernel.places import place_of
from gmdb.kernel.read.scan import decode_block
from gmdb.kernel.row import BLOCK_ROWS, merge_patch, patched_number
from gmdb.kernel.runtime.compiler import long_kernel, routine
from gmdb.kernel.runtime.compiler import numpy as np
from gmdb.kernel.runtime.memory import load_i64, load_u8, load_u16, move_bytes, records, store_8, store_64
from gmdb.kernel.runtime.status import DAMAGED, DONE

LOG_CHANGE = Structure(
    [
        ("group", "<i8"),  # LSN of its group
        ("transaction", "<i8"),
        ("at", "<i8"),  # LSN of the row
        ("undo", "<i8"),  # place of its undo record; of something taken back, the record that was
        ("place", "<i8"),  # the row's; of something taken back, the first page of a bulk load
        ("version", "<i4"),  # of its table's definition
        ("operation", "<i4"),  # see ChangeOperation; 0: something was taken back
        ("size", "<i4"),  # of the row; of something taken back, how many pages of a bulk load
        ("before_size", "<i4"),  # bytes behind the row that say what it was; negative: of a patch
    ]
)
LOG_COMMIT = Structure([("transaction", "<i8"), ("scn", "<i8"), ("time", "<i8"), ("lsn", "<i8"), ("began", "<i8")])
LOG_SCAN = Structure(
    [
        ("buffer", "<i8"),  # address of some bytes of the log
        ("length", "<i8"),
        ("lsn", "<i8"),  # in and out: where it stands; the buffer begins where it stood at first
        ("changes", "<i8"),  # addresses of what is found
        ("change_room", "<i8"),
        ("change_count", "<i8"),  # out
        ("commits", "<i8"),
        ("commit_room", "<i8"),
        ("commit_count", "<i8"),  # out
    ]
)
DECODING = Structure(
    [
        ("done", "<i8"),  # rows decoded so far
        ("columns", "<i8"),  # address of the table's columns up to the last that is wanted
        ("column_count", "<i8"),
    ]
)
scan_at = records(LOG_SCAN)
decoding_at = records(DECODING)
change_at = records(LOG_CHANGE)
commit_at = records(LOG_COMMIT)
FULL = 3  # there is no room for what the next group may have
SIZE_BITS = MAX_COLUMNS // 4  # bytes that the size bits of a row take at most
ROW_MIN = 12  # bytes that a row on a page takes at least, its slot included
_CHANGE_ROW, _COMMIT_ROW, _GROUP_SIZE = LOG_CHANGE.itemsize, LOG_COMMIT.itemsize, REDO_GROUP.size
_LOAD, _INSERT, _UPDATE = int(ChangeOperation.LOAD), int(ChangeOperation.INSERT), int(ChangeOperation.UPDATE)
_LAST_OF_ROW = int(ChangeOperation.DELETE)
_LAST_OPERATION, _COMMIT_SIZE, _TAKEN_BACK_SIZE = int(max(ChangeOperation)), REDO_COMMIT.size, REDO_TAKEN_BACK.size


@routine
def _new_change(scan, group, place, version, operation):
    change = change_at(scan.changes + scan.change_count * _CHANGE_ROW)
    scan.change_count += 1
    change.group = group.lsn
    change.transaction = group.transaction
    change.place = place
    change.version = version
    change.operation = operation
    change.before_size = 0
    return change


@routine
def _rows_are_sound(row, row_size, before_size, is_patch):
    """Whether the bytes of a row, and those behind it that say what it was, can be followed."""
    if before_size < 0:
        return False
    if row_size and image_end(row, row + row_size, False) != row + row_size:
        return False
    before, end = row + row_size, row + row_size + before_size
    return before_size == 0 or image_end(before, end, is_patch != 0) > 0


@routine
def _find_change(scan, group, item, data, lsn):
    head = change_head(data)
    before_size = item.length - CHANGE_SIZE - head.row_size
    if not _rows_are_sound(data + CHANGE_SIZE, head.row_size, before_size, head.before_is_patch):
        return False
    change = _new_change(scan, group, place_of(item.page_id, head.slot), head.version, head.operation)
    change.undo = place_of(head.undo_page, head.undo_slot)
    change.at = lsn + CHANGE_SIZE
    change.size = head.row_size
    change.before_size = -before_size if head.before_is_patch else before_size
    return 0 < head.operation <= _LAST_OPERATION and (head.row_size > 0 or head.operation > _LAST_OF_ROW)


@routine
def _find_loaded(scan, group, item, data, image, image_size, image_lsn):
    """Every row of a page whose image is there is one that a bulk load has inserted."""
    version, slot_count = change_head(data).version, heap_node(image + NODE_AT).slot_count
    end = image_size - 2 * slot_count
    if end < ROWS_AT or scan.change_count + slot_count > scan.change_room:
        return False
    for slot in range(slot_count):
        offset = load_u16(image + image_size - 2 * (slot + 1))
        if offset < ROWS_AT or image_end(image + offset, image + end, False) == 0:
            return False
        change = _new_change(scan, group, place_of(item.page_id, slot), version, _INSERT)
        change.undo = NO_PLACE
        change.at = image_lsn + offset
        change.size = load_u16(image + offset + SIZE_AT)
    return True


@routine
def _find_taken_back(scan, group, data):
    head = taken_back_head(data)
    change = _new_change(scan, group, head.first_page, 0, 0)
    change.undo = place_of(head.undo_page, head.undo_slot)
    change.at = group.lsn
    change.size = head.page_count


@routine
def _find_commit(scan, group, data):
    commit = commit_at(scan.commits + scan.commit_count * _COMMIT_ROW)
    scan.commit_count += 1
    commit.transaction = group.transaction
    commit.scn = load_i64(data)
    commit.time = load_i64(data + 8)
    commit.began = load_i64(data + 16)
    commit.lsn = group.lsn


@routine
def _least(offset):
    """Bytes that an item has at least, by what it is."""
    if offset == CHANGE:
        return CHANGE_SIZE
    if offset == IMAGE:
        return ROWS_AT
    return _COMMIT_SIZE if offset == COMMIT else _TAKEN_BACK_SIZE if offset == TAKEN_BACK else 0


@routine
def _find_in_group(scan, at, length):
    """Whether all items of a group are such as kernels log: what another has written might lead anywhere."""
    group = group_head(at)
    done, image, image_size = _GROUP_SIZE, 0, 0
    while done + ITEM_SIZE <= length:  # ends: an item has a head at least
        item = item_head(at + done)
        data, lsn, is_right = at + done + ITEM_SIZE, group.lsn + done + ITEM_SIZE, True
        if item.length == 0 and item.page_id == 0 and item.offset == 0:
            return True  # the zeros at its end
        if done + ITEM_SIZE + item.length > length or item.length < _least(item.offset):
            return False
        if item.offset == IMAGE:
            image, image_size = data, item.length
        elif item.offset == CHANGE and change_head(data).operation == _LOAD:
            is_right = image == 0 or _find_loaded(scan, group, item, data, image, image_size, group.lsn + (image - at))
        elif item.offset == CHANGE:
            is_right = _find_change(scan, group, item, data, lsn)
        elif item.offset == TAKEN_BACK:
            _find_taken_back(scan, group, data)
        elif item.offset == COMMIT:
            is_right = scan.commit_count < scan.commit_room
            if is_right:
                _find_commit(scan, group, data)
        if not is_right or scan.change_count >= scan.change_room:
            return False
        done += ITEM_SIZE + item.length
    return True


@long_kernel
def scan_log(scan_address):
    """Find the changes and commits of the buffer's groups; returns END, MORE, FULL or DAMAGED.

    MORE: the buffer ends within a group.  END: no group is there.  FULL: take what was found, and call it again.
    """
    scan = scan_at(scan_address)
    start = scan.lsn
    for _ in range(scan.length // _GROUP_SIZE + 1):
        at = scan.buffer + scan.lsn - start
        length = group_is_whole(at, scan.length - (scan.lsn - start), scan.lsn)
        if length == MORE or length == 0:
            return MORE if length == MORE else END
        if scan.change_count + length // ROW_MIN >= scan.change_room or scan.commit_count == scan.commit_room:
            return FULL
        if not _find_in_group(scan, at, length):
            return DAMAGED
        scan.lsn += length
    return MORE


@long_kernel
def copy_rows(buffer, lsn, length, changes, first, count, target, offsets):
    """Copy rows that lie whole in a buffer, which begins at ``lsn``, from change ``first`` on, to their places.

    ``offsets`` (i64s) says where each goes; what was before goes with it.  Returns how many there were.
    """
    for i in range(first, first + count):
        change = change_at(changes + i * _CHANGE_ROW)
        size = change.size + abs(change.before_size)
        if change.at < lsn or change.at + size > lsn + length:
            return i - first
        move_bytes(target + load_i64(offsets + 8 * i), buffer + change.at - lsn, size)
    return count


@long_kernel
def rows_before(changes, count, rows, offsets, target, places):
    """Rows as they were before they were changed, to ``target``; of others, as they are.

    ``places`` (i64s) gets where each was put.  A row has its bytes, those of what was before, and SIZE_BITS as room.
    """
    done = 0
    for i in range(count):
        change = change_at(changes + i * _CHANGE_ROW)
        row = rows + load_i64(offsets + 8 * i)
        store_64(places + 8 * i, done)
        if change.before_size < 0:
            size = merge_patch(target + done, row, row + change.size)
            if size < 0:
                return size
            done += size
            continue
        source = row + change.size if change.before_size else row
        size = load_u16(source + SIZE_AT)
        move_bytes(target + done, source, size)
        done += size
    return DONE


@routine
def _patches_any(patch, columns):
    """Whether a patch has one of the columns that ``columns`` (a byte each) marks."""
    for index in range(load_u16(patch + COL_COUNT_AT)):
        number = patched_number(patch, index)
        if number < MAX_COLUMNS and load_u8(columns + number):
            return True
    return False


@long_kernel
def find_updates(changes, count, rows, offsets, columns, flags):
    """Mark (a byte each) the updates that assign to one of the columns that ``columns`` (a byte each) marks."""
    for i in range(count):
        change = change_at(changes + i * _CHANGE_ROW)
        if change.operation == _UPDATE:
            before = rows + load_i64(offsets + 8 * i) + change.size
            store_8(flags + i, change.before_size > 0 or (change.before_size < 0 and _patches_any(before, columns)))
    return DONE


@long_kernel
def decode_rows(decoding_address, rows, offsets, count):
    """Decode rows into columns; ``offsets`` (i64s) says where behind ``rows`` they are.  Returns DONE or a status."""
    decoding = decoding_at(decoding_address)
    addresses, cursors, limits = (
        np.empty(BLOCK_ROWS, np.int64),
        np.empty(BLOCK_ROWS, np.int64),
        np.empty(BLOCK_ROWS, np.int64),
    )
    while decoding.done < count:  # ends: a block has a row at least
        some = min(count - decoding.done, BLOCK_ROWS)
        for k in range(some):
            addresses[k] = rows + load_i64(offsets + 8 * (decoding.done + k))
            limits[k] = addresses[k] + load_u16(addresses[k] + SIZE_AT)
        status = decode_block(decoding, addresses, cursors, limits, some, 0)
        if status < 0:
            return status
        decoding.done += some
    return DONE
