"""Rows by their keys: walking an index and taking, of each row it leads to, the version that a snapshot sees."""

from __future__ import annotations

from gmdb.format.btree import POINTER_SIZE
from gmdb.format.layout import Structure
from gmdb.format.page import TAIL_SIZE
from gmdb.format.row import COL_COUNT_AT, SIZE_AT, UNLOCKED
from gmdb.kernel.gate import begin_work, end_work, may_read, note_read
from gmdb.kernel.heap import FLAGS_AT, data_of, home_of
from gmdb.kernel.indexes.any_index import (
    end_call,
    entry_at,
    first_entry,
    keep_position,
    next_entry,
    open_index,
    walk_at,
)
from gmdb.kernel.indexes.index_head import OTHER_AT
from gmdb.kernel.page.allocation import page_in_use
from gmdb.kernel.page.area import address_of, page_size_of, state_of
from gmdb.kernel.places import page_of, place_of_word, slot_of
from gmdb.kernel.read.scan import decode_block, keep_version, restore_columns, save_columns
from gmdb.kernel.read.visibility import ROW_BUFFER, load_is_seen, resolve, snapshot_at
from gmdb.kernel.row import BLOCK_ROWS, POINTER_AT, compare_keys, key_columns, make_entry
from gmdb.kernel.runtime.call import call_at, target_at
from gmdb.kernel.runtime.compiler import kernel, long_kernel, routine
from gmdb.kernel.runtime.compiler import numpy as np
from gmdb.kernel.runtime.memory import (
    address_of_array,
    load_i64,
    load_u8,
    load_u16,
    load_u32,
    move_bytes,
    records,
    store_8,
    store_32,
    store_64,
)
from gmdb.kernel.runtime.objects import add_to_list, clear_error, drop, new_int, new_list
from gmdb.kernel.runtime.python_api import Gate, Object
from gmdb.kernel.runtime.status import DONE, INVISIBLE, NOT_FOUND, NOT_NOW, NOT_PLAIN
from gmdb.kernel.values import read_row, write_row

FOUND = Structure([("page_id", "<u4"), ("slot", "<u4"), ("size", "<i8")])  # before each row that is returned
FOUND_MAX = 256  # rows that ``find_rows`` returns
ENTRIES_AT_ONCE = 1 << 14  # that a call looks at, since the snapshot may see few of their rows
_FOUND_SIZE = FOUND.itemsize


@routine
def visible_version(area, snapshot, obj_id, place, buffer):
    """The version of a row that the snapshot sees, built in the buffer if need be; INVISIBLE if there is none."""
    page_id, slot = page_of(place), slot_of(place)
    home = home_of(area, obj_id, page_id, slot)
    if home < 0:
        return INVISIBLE if home == NOT_FOUND else home
    version = data_of(area, home)
    if version < 0:
        return version
    seen = load_is_seen(area, snapshot, address_of(area, page_id))
    version = resolve(area, snapshot, load_u32(home), version, seen, buffer, page_id, slot)
    return INVISIBLE if version == NOT_FOUND else version


@routine
def visible_row(area, snapshot, obj_id, index, entry, buffer):
    """The version of an entry's row that the snapshot sees, if it has the entry's key; else INVISIBLE."""
    version = visible_version(area, snapshot, obj_id, place_of_word(load_i64(entry + POINTER_AT)), buffer)
    if version < 0:
        return version
    other = state_of(area).index_scratch + OTHER_AT
    if make_entry(index, version, other, 0) < 0 or compare_keys(index, other, entry, key_columns(index)):
        return INVISIBLE
    return version


@routine
def _read(area, target, snapshot_address, walk, limit):
    buffer, room = walk.output, walk.room
    snapshot, index = snapshot_at(snapshot_address), open_index(area, walk.index)
    if index < 0:
        return index
    count, used, place = 0, 0, first_entry(area, walk, index)
    for _ in range(ENTRIES_AT_ONCE):
        if place < 0 or count == limit:
            break
        entry = entry_at(area, place)
        version = visible_row(area, snapshot, target.obj_id, index, entry, state_of(area).scratch)
        if version < 0 and version != INVISIBLE:
            return version
        if version > 0:
            size = load_u16(version + SIZE_AT)
            if used + _FOUND_SIZE + size > room:
                break
            row_id = place_of_word(load_i64(entry + POINTER_AT))
            store_32(buffer + used, page_of(row_id))
            store_32(buffer + used + 4, slot_of(row_id))
            store_64(buffer + used + 8, size)
            move_bytes(buffer + used + _FOUND_SIZE, version, size)
            store_8(buffer + used + _FOUND_SIZE + FLAGS_AT, 0)
            used += _FOUND_SIZE + size
            count += 1
        keep_position(walk, entry)
        place = next_entry(area, walk, index, place)
    return end_call(walk, place, used)


@kernel
def read_rows(area, target_address, snapshot_address, walk_address, limit):
    """Copy the next visible rows of a walk to its output, each behind its place and size; returns the bytes used.

    Stops after ``limit`` rows, before one that does not fit, or after many entries: it may return none though there
    are more (``walk.done``).
    """
    return _read(area, target_at(target_address), snapshot_address, walk_at(walk_address), limit)


@kernel
def find_rows(area, target_address, walk_address):
    """``read_rows`` from the walk's beginning, by the session's own snapshot."""
    target, walk = target_at(target_address), walk_at(walk_address)
    walk.started = walk.done = 0
    call = call_at(target.call)
    if call.latest:
        call.scn = state_of(area).scn
    return _read(area, target, target.call, walk, FOUND_MAX)


@kernel
def find_values(area, target_address, gate: Gate, walk_address, key_shape, key: Object, shape, gives_places) -> Object:
    """The values of the rows of a key by the newest commit, and the session's own changes: a list, or a status.

    With ``gives_places`` a row's place stands before its values.
    """
    target, walk = target_at(target_address), walk_at(walk_address)
    if not may_read(area, target, gate):
        return NOT_NOW
    size = write_row(key_shape, key, walk.low)
    if size < 0:
        return size
    walk.started = walk.done = 0
    walk.low_columns = walk.high_columns = load_u16(walk.low + COL_COUNT_AT)
    call = call_at(target.call)
    call.scn = state_of(area).scn
    used = _read(area, target, target.call, walk, FOUND_MAX)
    if used < 0 or not walk.done:
        return used if used < 0 else NOT_NOW
    note_read(area, call)
    begin_work(area, gate)
    rows = _list_found(walk.output, used, shape, gives_places)
    end_work(area, gate)
    return rows


@routine
def _list_found(found, used, shape, gives_places):
    """The rows that were copied, as a new list; NOT_PLAIN if that cannot be made."""
    rows, at = new_list(0), found
    for _ in range(FOUND_MAX):
        if rows == 0 or at >= found + used:
            break
        done = True
        if gives_places:
            done = _add_new(rows, new_int(load_u32(at) << 16 | load_u32(at + 4)))
        if not done or not _add_new(rows, read_row(shape, at + _FOUND_SIZE)):
            drop(rows)
            return NOT_PLAIN
        at += _FOUND_SIZE + load_i64(at + 8)
    if rows == 0:
        clear_error()
        return NOT_PLAIN
    return rows


@routine
def _add_new(rows, thing):
    """Add an object that was made for the list; False if it or the room for it could not be made."""
    if thing <= 0:
        clear_error()
        return False
    is_added = add_to_list(rows, thing) == 0
    drop(thing)
    if not is_added:
        clear_error()
    return is_added


# ---- Rows into Arrow columns in the order of an index, or by a list of row ids.
#
# The caller holds the guard, so nothing changes meanwhile: unlike in a scan of pages, no block is read again.

ARENA_SIZE = 1 << 19  # for versions that a block builds from undo
BLOCKS_AT_ONCE = 8  # rows for which the guard is held at a time

CURSOR = Structure(
    [
        ("scn", "<i8"),  # the snapshot: the fields of visibility.SNAPSHOT come first
        ("transaction", "<i8"),
        ("statement", "<i8"),
        ("obj_id", "<i8"),
        ("columns", "<i8"),  # address of the columns, the table's or the index's, up to the last that is wanted
        ("column_count", "<i8"),
        ("row_capacity", "<i8"),  # rows that the buffers have room for
        ("done", "<i8"),  # rows decoded so far
        ("covered", "<i8"),  # 1: the columns are the index's, and its entries have all that is wanted
        ("row_ids", "<i8"),  # address for the rows' places (i64s); 0: not wanted
        ("places", "<i8"),  # address of the places of rows that are wanted (i64s)
        ("place_count", "<i8"),
        ("next_place", "<i8"),
    ]
)
cursor_at = records(CURSOR)


@routine
def _is_settled(area, entry):
    """Whether every snapshot sees the entry's row with the entry's key, by the entry alone.

    An entry has a lock until everyone sees what was done to it.  Rows of bulk loads have none.
    """
    return load_u32(entry) == UNLOCKED and state_of(area).load_count == 0


@routine
def _keep(rows, limits, arenas, count, version):
    """Put a version into the block; one that was built in the arena stays there."""
    rows[count], limits[count] = version, version + ROW_BUFFER
    if arenas[0] <= version < arenas[1]:
        rows[count] = arenas[0]
        arenas[0] = keep_version(arenas[0], version)


@routine
def _has_room(cursor, arenas, count):
    return count < min(BLOCK_ROWS, cursor.row_capacity - cursor.done) and arenas[0] + 2 * ROW_BUFFER <= arenas[1]


@routine
def _note_place(cursor, count, place):
    if cursor.row_ids:
        store_64(cursor.row_ids + 8 * (cursor.done + count), place)


@routine
def _collect_entries(area, walk, index, entries, room):
    """The addresses of the next entries of a walk, at most ``room``; returns their number, and whether that is all."""
    count, place = 0, first_entry(area, walk, index)
    while place >= 0 and count < room:
        entries[count] = entry_at(area, place)
        count += 1
        place = next_entry(area, walk, index, place)
    if place < 0 and place != NOT_FOUND:
        return place, False
    return count, place == NOT_FOUND


@routine
def _approach(area, places, count):
    """Look at rows that will be read in a moment, one after the other without waiting for any.

    They lie anywhere in memory.  Looks that do not depend on each other are under way together, which those of
    reading a row, where each leads to the next, cannot be.
    """
    seen = 0
    for k in range(count):
        page_id, slot = page_of(places[k]), slot_of(places[k])
        if not page_in_use(area, page_id) or slot >= page_size_of(area, page_id) >> 2:
            continue
        page, page_size = address_of(area, page_id), page_size_of(area, page_id)
        offset = load_u16(page + page_size - TAIL_SIZE - 2 * (slot + 1))
        if offset < page_size:
            seen += load_u8(page + offset)
    return seen


@routine
def _gather_walk(area, cursor, walk, index, rows, limits, arenas, entries, places, last):
    """Collect the next rows of a walk; returns how many.  ``last``: the last entry looked at, and whether all are."""
    last[0], last[1] = 0, 0
    room = min(BLOCK_ROWS, cursor.row_capacity - cursor.done)
    found, is_all = _collect_entries(area, walk, index, entries, room)
    if found < 0:
        return found
    for k in range(found):
        places[k] = place_of_word(load_i64(entries[k] + POINTER_AT))
    if not cursor.covered:
        last[1] = _approach(area, places, found)
    count = 0
    for k in range(found):
        if not _has_room(cursor, arenas, count):
            is_all = False
            break
        entry = last[0] = entries[k]
        version = entry
        if not cursor.covered or not _is_settled(area, entry):
            version = visible_row(area, cursor, cursor.obj_id, index, entry, arenas[0])
        if version < 0 and version != INVISIBLE:
            return version
        if version > 0:
            _note_place(cursor, count, places[k])
            _keep(rows, limits, arenas, count, entry if cursor.covered else version)
            count += 1
    last[1] = 1 if is_all else 0
    return count


@routine
def _gather_places(area, cursor, rows, limits, places, arenas):
    """Collect the next rows of a list of row ids; those that the snapshot does not see are left out."""
    count, ahead = 0, min(BLOCK_ROWS, cursor.place_count - cursor.next_place)
    for k in range(ahead):
        places[k] = load_i64(cursor.places + 8 * (cursor.next_place + k))
    places[BLOCK_ROWS] = _approach(area, places, ahead)
    while cursor.next_place < cursor.place_count and _has_room(cursor, arenas, count):
        place = load_i64(cursor.places + 8 * cursor.next_place)
        version = visible_version(area, cursor, cursor.obj_id, place, arenas[0])
        if version < 0 and version != INVISIBLE:
            return version
        if version > 0:
            _note_place(cursor, count, place)
            _keep(rows, limits, arenas, count, version)
            count += 1
        cursor.next_place += 1
    return count


@routine
def _decode(cursor, rows, cursors, limits, saved, count):
    """Decode a block; one that does not fit leaves no trace."""
    save_columns(cursor, saved)
    status = decode_block(cursor, rows, cursors, limits, count, POINTER_SIZE if cursor.covered else 0)
    if status == DONE:
        cursor.done += count
    else:
        restore_columns(cursor, saved, count)
    return status


@routine
def _blocks():
    """Memory for a block: rows, cursors, limits."""
    return np.empty(BLOCK_ROWS, np.int64), np.empty(BLOCK_ROWS, np.int64), np.empty(BLOCK_ROWS, np.int64)


@long_kernel
def read_index(area, cursor_address, walk_address):
    """Decode the next rows of a walk into the columns' buffers, some blocks of them; ``walk.done`` tells the end.

    NO_ROOM if the next rows do not fit into the buffers any more.
    """
    cursor, walk = cursor_at(cursor_address), walk_at(walk_address)
    index = open_index(area, walk.index)
    if index < 0:
        return index
    rows, cursors, limits = _blocks()
    entries, places = np.empty(BLOCK_ROWS, np.int64), np.empty(BLOCK_ROWS + 1, np.int64)
    saved, last = np.empty(2 * cursor.column_count + 2, np.int64), np.zeros(2, np.int64)
    memory = np.empty(ARENA_SIZE + 2 * ROW_BUFFER, np.uint8)
    arena, status = address_of_array(memory), DONE
    arenas = np.array([arena, arena + ARENA_SIZE])
    for _ in range(BLOCKS_AT_ONCE):
        arenas[0] = arena
        count = _gather_walk(area, cursor, walk, index, rows, limits, arenas, entries, places, last)
        status = _decode(cursor, rows, cursors, limits, saved, count) if count >= 0 else count
        if status < 0:
            break
        if last[0]:
            keep_position(walk, last[0])
        walk.done = last[1]
        if walk.done or cursor.done == cursor.row_capacity:
            break
    memory[0] = 0  # an array lives until its last use: not shorter than the addresses into it
    return status


@long_kernel
def read_places(area, cursor_address):
    """Decode the next rows of a list of row ids into the columns' buffers, some blocks of them.

    NO_ROOM if the next rows do not fit into the buffers any more.
    """
    cursor = cursor_at(cursor_address)
    rows, cursors, limits = _blocks()
    places = np.empty(BLOCK_ROWS + 1, np.int64)  # the last for what is only looked at
    saved = np.empty(2 * cursor.column_count + 2, np.int64)
    memory = np.empty(ARENA_SIZE + 2 * ROW_BUFFER, np.uint8)
    arena, status = address_of_array(memory), DONE
    arenas = np.array([arena, arena + ARENA_SIZE])
    for _ in range(BLOCKS_AT_ONCE):
        arenas[0], first = arena, cursor.next_place
        count = _gather_places(area, cursor, rows, limits, places, arenas)
        status = _decode(cursor, rows, cursors, limits, saved, count) if count >= 0 else count
        if status < 0:
            cursor.next_place = first
            break
        if cursor.next_place == cursor.place_count or cursor.done == cursor.row_capacity:
            break
    memory[0] = 0  # an array lives until its last use: not shorter than the addresses into it
    return status
