"""A B-tree out of sorted runs, from the leaves up: the second half of building one.

On every level one page is open, the last.  When an entry does not fit there, the page is closed: it is logged, and its
separator goes to the open page of the level above.  A leaf that was made elsewhere (index_leaves.py) becomes the open
leaf as it is.  Until ``finish_tree`` has closed the last pages and set the root,
nobody finds the tree; if it does not come to that, its segment is dropped as a whole.
"""

from __future__ import annotations

import numpy as np

from gmdb.format.page import PAGE_SIZES
from gmdb.kernel.area import change, damaged, mark_dirty, page_size_of, touch
from gmdb.kernel.btree_change import new_node, open_last, write_open, write_separator
from gmdb.kernel.btree_page import (
    append_entry,
    capacity_of,
    copy_page_entries,
    entry_in,
    entry_size,
    node_at,
    room_in,
)
from gmdb.kernel.compiler import kernel, routine
from gmdb.kernel.index import open_index
from gmdb.kernel.index_head import entry_page_of, set_root, space_of
from gmdb.kernel.index_sort import RUN, comes_before, run_at
from gmdb.kernel.keys import ENTRY_BUFFER, VALUES_AT, compare_keys, has_null, index_head, key_columns
from gmdb.kernel.memory import load_i64, records, store_64
from gmdb.kernel.pages import pages_available
from gmdb.kernel.redo import close_group, log_page, require_log_room
from gmdb.kernel.soundness_nodes import LEVELS_MAX
from gmdb.kernel.status import DONE, DUPLICATE, LOG_FULL, NEED_SPACE

FILL = np.dtype(
    [
        ("runs", "<i8"),  # address of the runs
        ("run_count", "<i8"),
        ("pages", "<i8"),  # address of the open pages' ids, by level (i64s); -1: none yet
        ("scratch", "<i8"),  # address of FILL_SCRATCH bytes: for an entry, and a separator a level
        ("previous", "<i8"),  # address of the last entry that was put in
        ("count", "<i8"),  # entries that were put in
        ("closed", "<i8"),  # pages that the last call has closed
    ]
)
fill_at = records(FILL)
FILL_SCRATCH = ENTRY_BUFFER * (1 + LEVELS_MAX)
_RUN_SIZE = RUN.itemsize
_OPEN_ROOM = VALUES_AT + 2  # for the entry that ends a branch
_KEPT_FREE = 16  # one part of so many of a page stays free, for what is added later
_PAGE_SIZE, _PAGES = PAGE_SIZES[0], 64  # what a group takes
_ENTRIES = _PAGES * _PAGE_SIZE // VALUES_AT  # that there can be on as many pages
_ALL_LEVELS = LEVELS_MAX + 4  # pages that one entry may need


@routine
def _open_page(fill, level):
    return load_i64(fill.pages + 8 * level)


@routine
def _first_run(index, fill):
    """The run whose next entry comes first; -1 if all are used up."""
    best, best_entry = -1, 0
    for n in range(fill.run_count):
        run = run_at(fill.runs + n * _RUN_SIZE)
        if run.next < run.count:
            entry = run.entries + load_i64(run.offsets + 8 * run.next)
            if best < 0 or comes_before(index, entry, best_entry):
                best, best_entry = n, entry
    return best


@routine
def fits(page, page_size, level, size):
    """Whether an entry goes onto an open page; an empty one takes any."""
    kept = capacity_of(page_size) // _KEPT_FREE + (_OPEN_ROOM if level else 0)
    return node_at(page).slot_count == 0 or room_in(page) - kept >= size + 2


@routine
def _close(area, index, fill, level, page_id, following):
    """Close a level's open page and open another; its separator is in the level's scratch."""
    page, page_size = touch(area, page_id), page_size_of(area, page_id)
    new_id = new_node(area, index, level)
    if new_id < 0:
        return new_id
    last = entry_in(page, page_size, node_at(page).slot_count - 1)
    write_separator(index, fill.scratch + ENTRY_BUFFER * (1 + level), last, following, level == 0, page_id)
    if level:
        open_last(page, page_size)
    node_at(page).next = new_id
    node_at(touch(area, new_id)).prev = page_id
    change(area, page)
    log_page(area, page)
    store_64(fill.pages + 8 * level, new_id)
    fill.closed += 1
    return new_id


@routine
def _put(area, index, fill, item, first_level):
    """Put an entry behind all others of a level: onto its open page, with separators going up where pages are full."""
    for level in range(first_level, LEVELS_MAX):
        page_id = _open_page(fill, level)
        if page_id < 0:
            page_id = new_node(area, index, level)
            if page_id < 0:
                return page_id
            store_64(fill.pages + 8 * level, page_id)
        page, page_size = touch(area, page_id), page_size_of(area, page_id)
        if fits(page, page_size, level, entry_size(item)):
            append_entry(page, page_size, item)
            return DONE
        if level == 0 and pages_available(area, space_of(index)) < _ALL_LEVELS:
            return NEED_SPACE
        new_id = _close(area, index, fill, level, page_id, item)
        if new_id < 0:
            return new_id
        append_entry(touch(area, new_id), page_size, item)
        item = fill.scratch + ENTRY_BUFFER * (1 + level)
    return damaged(area, entry_page_of(index))  # no table has as many rows


@routine
def _put_leaf(area, index, fill, leaf):
    """Let a page of entries, all behind those that are in, be the open leaf."""
    page_id = _open_page(fill, 0)
    page, page_size = touch(area, page_id), page_size_of(area, page_id)
    if node_at(page).slot_count == 0:
        copy_page_entries(page, page_size, leaf)
        return DONE
    if pages_available(area, space_of(index)) < _ALL_LEVELS:
        return NEED_SPACE
    new_id = _close(area, index, fill, 0, page_id, entry_in(leaf, page_size, 0))
    if new_id < 0:
        return new_id
    copy_page_entries(touch(area, new_id), page_size, leaf)
    return _put(area, index, fill, fill.scratch + ENTRY_BUFFER, 1)


@routine
def _hold_pages(area, fill):
    """Between calls nothing of the open pages is logged, so they must not look as if the file had them."""
    for level in range(LEVELS_MAX):
        if _open_page(fill, level) >= 0:
            mark_dirty(area, _open_page(fill, level))


@kernel
def fill_tree(area, entry_id, fill_address):
    """Put some of the runs' next entries into the tree; answers how many, 0 once all are in."""
    if require_log_room(area) < 0:
        return LOG_FULL
    fill, index = fill_at(fill_address), open_index(area, entry_id)
    if index < 0:
        return index
    done, status, unique = 0, DONE, index_head(index).unique
    pages_max = _PAGES * _PAGE_SIZE // page_size_of(area, entry_id)
    fill.closed = 0
    _hold_pages(area, fill)
    for _ in range(_ENTRIES):
        n = _first_run(index, fill) if fill.closed < pages_max else -1
        if n < 0:
            break
        run = run_at(fill.runs + n * _RUN_SIZE)
        entry = run.entries + load_i64(run.offsets + 8 * run.next)
        if unique and fill.count and compare_keys(index, fill.previous, entry, key_columns(index)) == 0:
            status = DUPLICATE if not has_null(index, entry) else DONE
        if status == DONE:
            status = _put(area, index, fill, entry, 0)
        if status < 0:
            break
        fill.previous = entry
        run.next += 1
        fill.count += 1
        done += 1
    return close_group(area, 0, done if done else status)


@kernel
def attach_leaves(area, entry_id, fill_address, leaves, count):
    """Put some of ``count`` leaves that lie one behind the other, and were checked, into the tree; answers how many."""
    if require_log_room(area) < 0:
        return LOG_FULL
    fill, index = fill_at(fill_address), open_index(area, entry_id)
    if index < 0:
        return index
    done, status, page_size = 0, DONE, page_size_of(area, entry_id)
    pages_max = _PAGES * _PAGE_SIZE // page_size
    fill.closed = 0
    _hold_pages(area, fill)
    while done < count and fill.closed < pages_max:
        leaf = leaves + done * page_size
        status = _put_leaf(area, index, fill, leaf)
        if status < 0:
            break
        fill.count += node_at(leaf).slot_count
        done += 1
    return close_group(area, 0, done if done else status)


@kernel
def finish_tree(area, entry_id, fill_address):
    """All entries are in: close the open pages, and set the root."""
    if require_log_room(area) < 0:
        return LOG_FULL
    fill, index = fill_at(fill_address), open_index(area, entry_id)
    if index < 0:
        return index
    for level in range(LEVELS_MAX):
        page_id = _open_page(fill, level)
        page, page_size = touch(area, page_id), page_size_of(area, page_id)
        change(area, page)
        log_page(area, page)
        if level + 1 == LEVELS_MAX or _open_page(fill, level + 1) < 0:
            set_root(area, index, page_id)
            break
        write_open(fill.scratch, page_id)
        append_entry(touch(area, _open_page(fill, level + 1)), page_size, fill.scratch)
    return close_group(area, 0, DONE)
