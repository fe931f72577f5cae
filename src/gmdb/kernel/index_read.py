"""Rows by their keys: walking an index and taking, of each row it leads to, the version that a snapshot sees."""

from __future__ import annotations

import numpy as np

from gmdb.format.row import SIZE_AT
from gmdb.kernel.area import address_of, state_of
from gmdb.kernel.call import call_at, target_at
from gmdb.kernel.compiler import kernel, routine
from gmdb.kernel.heap import data_of, home_of
from gmdb.kernel.heap_page import FLAGS_AT
from gmdb.kernel.index import entry_at, open_index
from gmdb.kernel.index_head import OTHER_AT
from gmdb.kernel.index_walk import end_call, first_entry, keep_position, next_entry, walk_at
from gmdb.kernel.keys import POINTER_AT, compare_keys, key_columns, make_entry, place_of_word
from gmdb.kernel.memory import load_i64, load_u16, load_u32, move_bytes, store_8, store_32, store_64
from gmdb.kernel.status import INVISIBLE, NOT_FOUND
from gmdb.kernel.visibility import load_is_seen, resolve, snapshot_at

FOUND = np.dtype([("page_id", "<u4"), ("slot", "<u4"), ("size", "<i8")])  # before each row that is given out
FOUND_MAX = 256  # rows that ``find_rows`` gives out
ENTRIES_AT_ONCE = 1 << 14  # that a call looks at: of most, the snapshot may see no row
_FOUND_SIZE = FOUND.itemsize


@routine
def visible_version(area, snapshot, obj_id, place, buffer):
    """The version of a row that the snapshot sees, built in the buffer if need be; INVISIBLE if there is none."""
    page_id, slot = place >> 16, place & 0xFFFF
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
            store_32(buffer + used, row_id >> 16)
            store_32(buffer + used + 4, row_id & 0xFFFF)
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
    """Copy the next visible rows of a walk to its output, each behind its place and size; answers the bytes used.

    Stops after ``limit`` rows, before one that does not fit, or after many entries: it may give out none though there
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
