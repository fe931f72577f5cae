"""What Python asks of an index itself: plant it, add and take entries, look entries up, copy the entries of a walk."""

from __future__ import annotations

from gmdb.kernel.change.index_sort import run_at
from gmdb.kernel.indexes.any_index import (
    add_entry,
    end_call,
    entry_at,
    find_entry,
    first_entry,
    first_with_key,
    keep_position,
    next_entry,
    open_index,
    plant,
    require_pages,
    take_entry,
    walk_at,
)
from gmdb.kernel.indexes.index_node import entry_size
from gmdb.kernel.page.area import state_of
from gmdb.kernel.page.redo import close_group, require_log_room
from gmdb.kernel.row import has_null, index_head
from gmdb.kernel.runtime.compiler import kernel, routine
from gmdb.kernel.runtime.memory import load_i64, move_bytes
from gmdb.kernel.runtime.status import DONE, DUPLICATE, LOG_FULL

_AT_ONCE = 256  # entries that a call adds


@kernel
def plant_index(area, entry_id, head):
    """Give a new index its head (64 bytes) and its root."""
    if require_log_room(area) < 0:
        return LOG_FULL
    index = open_index(area, entry_id)
    return close_group(area, 0, plant(area, index, head)) if index > 0 else index


@kernel
def add_to_index(area, entry_id, entry):
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
def take_from_index(area, entry_id, entry):
    if require_log_room(area) < 0:
        return LOG_FULL
    index = open_index(area, entry_id)
    return close_group(area, 0, take_entry(area, index, entry)) if index > 0 else index


@kernel
def find_in_index(area, entry_id, entry):
    index = open_index(area, entry_id)
    return find_entry(area, index, entry) if index > 0 else index


@kernel
def walk_index(area, walk_address):
    """Copy the next entries of a walk to its output, one behind the other; returns how many bytes they take."""
    walk = walk_at(walk_address)
    index = open_index(area, walk.index)
    if index < 0:
        return index
    used, place = 0, first_entry(area, walk, index)
    while place >= 0:  # ends: an entry takes some of the room
        entry = entry_at(area, place)
        size = entry_size(entry)
        if used + size > walk.room:
            break
        move_bytes(walk.output + used, entry, size)
        used += size
        keep_position(walk, entry)
        place = next_entry(area, walk, index, place)
    return end_call(walk, place, used)


@routine
def _add_checked(area, index, entry):
    """Add an entry, unless another row has its key and the index is unique."""
    if index_head(index).unique and not has_null(index, entry) and first_with_key(area, index, entry) >= 0:
        return DUPLICATE
    status = require_pages(area, index)
    return add_entry(area, index, entry) if status == DONE else status


@kernel
def add_some(area, entry_id, run_address):
    """Add the next entries of a run to an index; returns how many, 0 once all are in."""
    run, index = run_at(run_address), open_index(area, entry_id)
    if index < 0:
        return index
    done = 0
    while run.next < run.count and done < _AT_ONCE:
        entry, source = state_of(area).index_scratch, run.entries + load_i64(run.offsets + 8 * run.next)
        move_bytes(entry, source, entry_size(source))  # for an index may write behind it
        status = LOG_FULL if require_log_room(area) < 0 else _add_checked(area, index, entry)
        close_group(area, 0, DONE)
        if status < 0:
            return done if done else status
        run.next += 1
        done += 1
    return done
