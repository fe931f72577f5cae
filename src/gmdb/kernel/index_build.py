"""Filling an index from the pages of its table, which nobody else changes meanwhile."""

from __future__ import annotations

from gmdb.format.address import NO_PAGE
from gmdb.format.heap import NODE_AT
from gmdb.kernel.area import page_head, page_size_of, state_of, touch
from gmdb.kernel.btree import add_entry, descend, lower_bound, open_index, require_pages, touch_node
from gmdb.kernel.btree_page import entry_in, node_at
from gmdb.kernel.compiler import kernel, routine
from gmdb.kernel.heap import data_of
from gmdb.kernel.heap_page import FLAG_DELETE, FLAG_LINK, flags_of, heap_node, row_in_slot
from gmdb.kernel.keys import compare_keys, has_null, index_head, key_columns, make_entry, row_id_word
from gmdb.kernel.redo import close_group, is_group_long, require_log_room
from gmdb.kernel.status import DONE, DUPLICATE, LOG_FULL


@routine
def _is_taken(area, index, entry):
    """Whether the index has an entry with this key."""
    columns = key_columns(index)
    page_id = descend(area, index, entry, columns, -1)
    if page_id < 0:
        return False
    page, page_size = touch_node(area, page_id), page_size_of(area, page_id)
    slot = lower_bound(index, page, page_size, entry, columns, -1)
    while slot >= node_at(page).slot_count:
        page_id, slot = node_at(page).next, 0
        if page_id == NO_PAGE:
            return False
        page = touch_node(area, page_id)
        if page < 0:
            return False
    return compare_keys(index, entry_in(page, page_size, slot), entry, columns) == 0


@routine
def _enter(area, index, row, page_id, slot):
    entry = state_of(area).index_scratch
    size = make_entry(index, row, entry, row_id_word(page_id, slot))
    if size < 0:
        return size
    if index_head(index).unique and not has_null(index, entry) and _is_taken(area, index, entry):
        return DUPLICATE
    return add_entry(area, index, entry)


@kernel
def enter_page(area, entry_id, obj_id, page_id, slot, count):
    """Enter up to ``count`` rows of a heap page, from ``slot`` on; answers the slot to go on with, or a status.

    What is answered is no smaller than the page's number of slots once all are in; a status only if nothing was done.
    """
    if require_log_room(area) < 0:
        return LOG_FULL
    index, page = open_index(area, entry_id), touch(area, page_id)
    if index < 0 or page < 0:
        return min(index, page)
    page_size, first = page_size_of(area, page_id), slot
    if page_head(page).obj_id != obj_id:
        return page_size
    while count > 0 and slot < heap_node(page + NODE_AT).slot_count and not is_group_long(area):
        row = row_in_slot(page, page_size, slot)
        if row > 0 and not flags_of(row) & (FLAG_DELETE | FLAG_LINK):
            status = require_pages(area, index)
            data = data_of(area, row)
            if status == DONE:
                status = _enter(area, index, data, page_id, slot) if data > 0 else data
            if status < 0:
                return close_group(area, 0, slot if slot > first else status)
            count -= 1
        slot += 1
    return close_group(area, 0, page_size if slot >= heap_node(page + NODE_AT).slot_count else slot)
