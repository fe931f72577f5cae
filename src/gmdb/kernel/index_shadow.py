"""Catching up: what transactions did to a table while an index on it was being built.

They could not change the index itself, for it was not all there; their undo records, the SHADOW operations, say what
they would have done.  Whoever builds the index applies them, transaction by transaction in the order of commits.
"""

from __future__ import annotations

from gmdb.format.row import UNLOCKED
from gmdb.kernel.compiler import kernel, routine
from gmdb.kernel.index import (
    add_entry,
    find_entry,
    first_with_key,
    next_with_key,
    open_index,
    require_pages,
    take_entry,
)
from gmdb.kernel.index_head import object_of
from gmdb.kernel.indexing import adds_entry, is_shadow, recorded_entry
from gmdb.kernel.keys import has_null
from gmdb.kernel.memory import load_i64, store_32
from gmdb.kernel.redo import close_group, require_log_room
from gmdb.kernel.status import DONE, DUPLICATE, LOG_FULL, NOT_FOUND
from gmdb.kernel.undo import find_record, record_entry, record_object, record_operation


@routine
def _shadow(area, index, entry_id, place):
    """The undo record at a place, if it is a shadow operation on the index; else NOT_FOUND."""
    record = find_record(area, place >> 16, place & 0xFFFF)
    if record < 0 or not is_shadow(record_operation(record)):
        return NOT_FOUND
    return record if record_entry(record) == entry_id and record_object(record) == object_of(index) else NOT_FOUND


@routine
def _apply(area, index, record):
    entry = recorded_entry(area, record)
    store_32(entry, UNLOCKED)
    if not adds_entry(record_operation(record)):
        status = take_entry(area, index, entry)
        return DONE if status == NOT_FOUND else status
    status = require_pages(area, index)
    if status == DONE and find_entry(area, index, entry) == NOT_FOUND:
        status = add_entry(area, index, entry)
    return status


@kernel
def apply_shadows(area, entry_id, places, count):
    """Do to an index what the shadow operations among some undo records (i64s, page id << 16 | slot) say.

    Answers how many records were looked at, fewer than ``count`` if it is to be called again for the others.
    """
    index = open_index(area, entry_id)
    if index < 0:
        return index
    for i in range(count):
        record = _shadow(area, index, entry_id, load_i64(places + 8 * i))
        if record < 0:
            continue
        status = LOG_FULL if require_log_room(area) < 0 else _apply(area, index, record)
        close_group(area, 0, DONE)
        if status < 0:
            return i if i else status
    return count


@kernel
def check_shadows(area, entry_id, places, count):
    """DUPLICATE if a key that was added has two rows now."""
    index = open_index(area, entry_id)
    if index < 0:
        return index
    for i in range(count):
        record = _shadow(area, index, entry_id, load_i64(places + 8 * i))
        if record < 0 or not adds_entry(record_operation(record)):
            continue
        entry = recorded_entry(area, record)
        if has_null(index, entry):
            continue
        place = first_with_key(area, index, entry)
        if place >= 0 and next_with_key(area, index, entry, place) >= 0:
            return DUPLICATE
    return DONE
