"""Walking an index: a B-tree both ways from one key to another, a hash index through one key or all of them.

A walk keeps the last entry that it gave out and looks for its place again with every call, so that it goes on
rightly whatever was split, merged or removed meanwhile.
"""

from __future__ import annotations

import numpy as np

from gmdb.kernel.area import damaged
from gmdb.kernel.btree import at_or_after, before, seek
from gmdb.kernel.btree_page import entry_size
from gmdb.kernel.compiler import routine
from gmdb.kernel.hash import first_with_key, next_behind, next_with_key
from gmdb.kernel.index import entry_at
from gmdb.kernel.index_head import is_hash
from gmdb.kernel.keys import POINTER_AT, compare_keys, key_columns, place_of_word
from gmdb.kernel.memory import load_i64, move_bytes, records
from gmdb.kernel.status import NOT_FOUND

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
        ("output", "<i8"),  # address of room for what is given out
        ("room", "<i8"),  # its bytes
    ]
)
walk_at = records(WALK)


@routine
def first_entry(area, walk, index):
    """Where a walk begins or goes on: page id << 16 | slot of the next entry to give out; NOT_FOUND if it is over."""
    if is_hash(index):
        if walk.started:
            return next_behind(area, index, walk.low, walk.position)
        return first_with_key(area, index, walk.low)
    if walk.started:
        key, columns, bound = walk.position, key_columns(index), 0
    elif walk.backwards:
        key, columns, bound = walk.high, walk.high_columns, walk.high_bound
    else:
        key, columns, bound = walk.low, walk.low_columns, walk.low_bound
    if key == 0:  # no columns count, so all keys are equal: before or behind all of them
        key, columns, bound = walk.position, 0, 1 if walk.backwards else -1
    place = seek(area, index, key, columns, bound)
    if place < 0:
        return place
    if walk.backwards:
        place = before(area, index, place >> 16, place & 0xFFFF)
    else:
        place = at_or_after(area, index, place >> 16, place & 0xFFFF)
    if place >= 0 and walk.started:
        order = _order_to_position(walk, index, entry_at(area, place))
        if order == 0:
            return next_entry(area, walk, index, place)
        if order > 0 if walk.backwards else order < 0:
            return damaged(area, place >> 16)  # a branch led to the wrong leaf: the walk would not come to an end
    return _if_within(area, walk, index, place)


@routine
def next_entry(area, walk, index, place):
    """Where a walk goes on behind the entry at a place; NOT_FOUND if that was its last."""
    if is_hash(index):
        return next_with_key(area, index, walk.low, place)
    page_id, slot = place >> 16, place & 0xFFFF
    place = before(area, index, page_id, slot) if walk.backwards else at_or_after(area, index, page_id, slot + 1)
    return _if_within(area, walk, index, place)


@routine
def keep_position(walk, entry):
    """The walk gave an entry out."""
    move_bytes(walk.position, entry, entry_size(entry))
    walk.started = 1


@routine
def end_call(walk, place, used):
    """What a call for some more of a walk answers: the bytes it used, or a status."""
    if place == NOT_FOUND:
        walk.done = 1
    return place if place < 0 and place != NOT_FOUND else used


@routine
def _order_to_position(walk, index, entry):
    """Where an entry of a B-tree stands to the last one given out: before it (-1), at it (0), behind it (1)."""
    order = compare_keys(index, entry, walk.position, key_columns(index))
    if order:
        return order
    here, last = place_of_word(load_i64(entry + POINTER_AT)), place_of_word(load_i64(walk.position + POINTER_AT))
    return 1 if here > last else -1 if here < last else 0


@routine
def _if_within(area, walk, index, place):
    return NOT_FOUND if place >= 0 and _is_past_end(walk, index, entry_at(area, place)) else place


@routine
def _is_past_end(walk, index, entry):
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
