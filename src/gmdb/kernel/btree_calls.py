"""What Python asks of a B-tree: plant it, add and take entries, look entries up, walk a range both ways.

A walk keeps the last entry that it gave out and looks for its place again with every call, so that it goes on
rightly whatever was split, merged or removed meanwhile.
"""

from __future__ import annotations

import numpy as np

from gmdb.format.address import NO_PAGE
from gmdb.kernel.area import page_size_of
from gmdb.kernel.btree import (
    add_entry,
    descend,
    find_entry,
    lower_bound,
    open_index,
    plant,
    require_pages,
    take_entry,
    touch_node,
)
from gmdb.kernel.btree_page import entry_in, entry_size, node_at
from gmdb.kernel.compiler import kernel, routine
from gmdb.kernel.keys import POINTER_AT, compare_keys, key_columns
from gmdb.kernel.memory import load_i64, move_bytes, records
from gmdb.kernel.redo import close_group, require_log_room
from gmdb.kernel.status import DONE, LOG_FULL

WALK = np.dtype(
    [
        ("index", "<i8"),  # entry page of the index
        ("low", "<i8"),  # address of an entry; 0 = from the first one on
        ("low_columns", "<i8"),  # how many of its columns count
        ("low_bound", "<i8"),  # -1 begins with entries that have that key, 1 behind them
        ("high", "<i8"),
        ("high_columns", "<i8"),
        ("high_bound", "<i8"),  # 1 ends with entries that have that key, -1 before them
        ("backwards", "<i8"),
        ("position", "<i8"),  # address of room for an entry: the last one given out
        ("started", "<i8"),
        ("done", "<i8"),  # out: 1 = there is no more
        ("count", "<i8"),  # out: entries that the last call gave out
        ("output", "<i8"),  # address of room for what is given out
        ("room", "<i8"),  # its bytes
    ]
)
walk_at = records(WALK)


@kernel
def plant_tree(area, entry_id, head):
    """Give a new index its head (64 bytes) and its root."""
    if require_log_room(area) < 0:
        return LOG_FULL
    index = open_index(area, entry_id)
    return close_group(area, 0, plant(area, index, head)) if index > 0 else index


@kernel
def add_to_tree(area, entry_id, entry):
    if require_log_room(area) < 0:
        return LOG_FULL
    index = open_index(area, entry_id)
    if index < 0:
        return index
    status = require_pages(area, index)
    if status == DONE:
        status = add_entry(area, index, entry)
    return close_group(area, 0, status)


@kernel
def take_from_tree(area, entry_id, entry):
    if require_log_room(area) < 0:
        return LOG_FULL
    index = open_index(area, entry_id)
    return close_group(area, 0, take_entry(area, index, entry)) if index > 0 else index


@kernel
def find_in_tree(area, entry_id, entry):
    index = open_index(area, entry_id)
    return find_entry(area, index, entry) if index > 0 else index


@routine
def begin_walk(area, walk, index):
    """Where a walk begins or goes on: page id << 16 | slot of the first entry not before that place."""
    if walk.started:
        key, columns, bound = walk.position, key_columns(index), 0
    elif walk.backwards:
        key, columns, bound = walk.high, walk.high_columns, walk.high_bound
    else:
        key, columns, bound = walk.low, walk.low_columns, walk.low_bound
    if key == 0:  # no columns count, so all keys are equal: before or behind all of them
        key, columns, bound = walk.position, 0, 1 if walk.backwards else -1
    page_id = descend(area, index, key, columns, bound)
    if page_id < 0:
        return page_id
    page, page_size = touch_node(area, page_id), page_size_of(area, page_id)
    slot = lower_bound(index, page, page_size, key, columns, bound)
    if walk.started and not walk.backwards and slot < node_at(page).slot_count:
        found = entry_in(page, page_size, slot)
        same = compare_keys(index, found, walk.position, key_columns(index)) == 0
        if same and _same_row(found, walk.position):
            slot += 1
    return page_id << 16 | slot


@routine
def _same_row(a, b):
    return load_i64(a + POINTER_AT) == load_i64(b + POINTER_AT)


@routine
def is_past_end(walk, index, entry):
    """Whether an entry lies behind the end of the walk."""
    if walk.backwards:
        if walk.low == 0:
            return False
        order = compare_keys(index, entry, walk.low, walk.low_columns)
        return order < 0 or (order == 0 and walk.low_bound > 0)
    if walk.high == 0:
        return False
    order = compare_keys(index, entry, walk.high, walk.high_columns)
    return order > 0 or (order == 0 and walk.high_bound < 0)


@routine
def next_leaf(area, walk, page):
    """The leaf where a walk goes on after this one; NO_PAGE if it is the last."""
    return node_at(page).prev if walk.backwards else node_at(page).next


@kernel
def walk_tree(area, walk_address):
    """Copy the next entries of a walk to its output, one behind the other; answers how many bytes they take."""
    walk = walk_at(walk_address)
    buffer, room = walk.output, walk.room
    index = open_index(area, walk.index)
    walk.count = 0
    if index < 0:
        return index
    place = begin_walk(area, walk, index)
    if place < 0:
        return place
    page_id, slot, used = place >> 16, place & 0xFFFF, 0
    page, page_size = touch_node(area, page_id), page_size_of(area, page_id)
    while True:
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
        size = entry_size(entry)
        if is_past_end(walk, index, entry):
            walk.done = 1
            return used
        if used + size > room:
            return used
        move_bytes(buffer + used, entry, size)
        move_bytes(walk.position, entry, size)
        walk.started = 1
        walk.count += 1
        used += size
        if not walk.backwards:
            slot += 1
