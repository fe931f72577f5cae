"""Rows by their keys: walking an index and taking, of each row it leads to, the version that a snapshot sees."""

from __future__ import annotations

import numpy as np

from gmdb.format.address import NO_PAGE
from gmdb.format.row import SIZE_AT
from gmdb.kernel.area import address_of, page_size_of, state_of
from gmdb.kernel.btree import OTHER_AT, open_index, touch_node
from gmdb.kernel.btree_calls import begin_walk, is_past_end, next_leaf, walk_at
from gmdb.kernel.btree_page import entry_in, entry_size, node_at
from gmdb.kernel.compiler import kernel, routine
from gmdb.kernel.dml import call_at, target_at
from gmdb.kernel.heap import data_of, home_of
from gmdb.kernel.heap_page import FLAGS_AT
from gmdb.kernel.keys import POINTER_AT, compare_keys, key_columns, make_entry, place_of_word
from gmdb.kernel.memory import load_i64, load_u16, load_u32, move_bytes, store_8, store_32, store_64
from gmdb.kernel.status import INVISIBLE, NOT_FOUND
from gmdb.kernel.visibility import load_is_seen, resolve, snapshot_at

FOUND = np.dtype([("page_id", "<u4"), ("slot", "<u4"), ("size", "<i8")])  # before each row that is given out
FOUND_MAX = 256  # rows that ``find_rows`` gives out
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
    walk.count = 0
    if index < 0:
        return index
    place = begin_walk(area, walk, index)
    if place < 0:
        return place
    page_id, slot, used = place >> 16, place & 0xFFFF, 0
    page, page_size = touch_node(area, page_id), page_size_of(area, page_id)
    while walk.count < limit:
        if (walk.backwards and slot == 0) or (not walk.backwards and slot >= node_at(page).slot_count):
            page_id = next_leaf(area, walk, page)
            if page_id == NO_PAGE:
                walk.done = 1
                return used
            page = touch_node(area, page_id)
            if page < 0:
                return page
            slot = node_at(page).slot_count if walk.backwards else 0
            continue
        if walk.backwards:
            slot -= 1
        entry = entry_in(page, page_size, slot)
        if is_past_end(walk, index, entry):
            walk.done = 1
            return used
        version = visible_row(area, snapshot, target.obj_id, index, entry, state_of(area).scratch)
        if version < 0 and version != INVISIBLE:
            return version
        if version > 0:
            size = load_u16(version + SIZE_AT)
            if used + _FOUND_SIZE + size > room:
                return used
            row_id = place_of_word(load_i64(entry + POINTER_AT))
            store_32(buffer + used, row_id >> 16)
            store_32(buffer + used + 4, row_id & 0xFFFF)
            store_64(buffer + used + 8, size)
            move_bytes(buffer + used + _FOUND_SIZE, version, size)
            store_8(buffer + used + _FOUND_SIZE + FLAGS_AT, 0)
            used += _FOUND_SIZE + size
            walk.count += 1
        move_bytes(walk.position, entry, entry_size(entry))
        walk.started = 1
        if not walk.backwards:
            slot += 1
    return used


@kernel
def read_rows(area, target_address, snapshot_address, walk_address, limit):
    """Copy the next visible rows of a walk to its output, each behind its place and size; answers the bytes used.

    Stops after ``limit`` rows, or before one that does not fit.
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
