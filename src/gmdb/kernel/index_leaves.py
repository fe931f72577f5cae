"""Leaves of a B-tree out of entries that several tasks have sorted, made outside of the database.

A task cuts its run at bounds that all tasks share.  The pieces between two bounds, one of each run, are merged onto
leaf pages, which have entries but no place yet.  Whoever takes them into the tree (index_fill.py) checks them first:
they come from files.
"""

from __future__ import annotations

import numpy as np

from gmdb.format.address import NO_PAGE
from gmdb.format.btree import ENTRIES_AT, KEY_BYTES_MAX
from gmdb.format.page import HEAD_SIZE, TAIL_SIZE, PageType, SegmentType
from gmdb.format.row import COL_COUNT_AT, SIZE_AT, UNLOCKED
from gmdb.kernel.area import page_head
from gmdb.kernel.btree_page import append_entry, entry_in, entry_size, node_at, slot_at
from gmdb.kernel.compiler import long_kernel, routine
from gmdb.kernel.index import open_index
from gmdb.kernel.index_fill import fits
from gmdb.kernel.index_sort import comes_before, run_at
from gmdb.kernel.keys import VALUES_AT, compare_keys, has_null, index_head, key_columns
from gmdb.kernel.memory import fill_bytes, load_i64, load_u16, load_u32, move_bytes, records, store_64
from gmdb.kernel.soundness_nodes import entry_is_sound
from gmdb.kernel.status import DONE, DUPLICATE

PIECE = np.dtype([("next", "<i8"), ("end", "<i8")])  # addresses: of the first entry not used yet, behind the last
piece_at = records(PIECE)
_PIECE_SIZE = PIECE.itemsize
MERGE = np.dtype(
    [
        ("pieces", "<i8"),  # address of the pieces
        ("heap", "<i8"),  # address of their numbers (i64s), as a heap: the first has the entry that comes next
        ("count", "<i8"),  # how many pieces are not used up
        ("previous", "<i8"),  # address of the last entry that was put on a page; 0: none yet
        ("entries", "<i8"),  # how many were
    ]
)
merge_at = records(MERGE)
_DATA, _BTREE = int(PageType.DATA), int(SegmentType.BTREE)


# ---- cutting


@long_kernel
def cut_run(area, entry_id, run_address, bounds, count, cuts):
    """For each of ``count`` bounds (i64s, addresses of entries) write how many entries of a run come before it."""
    run, index = run_at(run_address), open_index(area, entry_id)
    if index < 0:
        return index
    for n in range(count):
        low, high = 0, run.count
        while low < high:  # ends: they come closer with every look
            middle = (low + high) >> 1
            entry = run.entries + load_i64(run.offsets + 8 * middle)
            if comes_before(index, entry, load_i64(bounds + 8 * n)):
                low = middle + 1
            else:
                high = middle
        store_64(cuts + 8 * n, low)
    return DONE


# ---- merging


@routine
def _piece(merge, place):
    return piece_at(merge.pieces + load_i64(merge.heap + 8 * place) * _PIECE_SIZE)


@routine
def _sink(index, merge, place):
    """Let a piece change places with those below it in the heap that come before it."""
    number = load_i64(merge.heap + 8 * place)
    entry = piece_at(merge.pieces + number * _PIECE_SIZE).next
    while 2 * place + 1 < merge.count:  # ends: the place goes down, level by level
        below = 2 * place + 1
        if below + 1 < merge.count and comes_before(index, _piece(merge, below + 1).next, _piece(merge, below).next):
            below += 1
        if comes_before(index, entry, _piece(merge, below).next):
            break
        store_64(merge.heap + 8 * place, load_i64(merge.heap + 8 * below))
        place = below
    store_64(merge.heap + 8 * place, number)


@long_kernel
def begin_merge(area, entry_id, merge_address):
    """Bring the numbers of pieces, none of them empty, into order."""
    merge, index = merge_at(merge_address), open_index(area, entry_id)
    if index < 0:
        return index
    for place in range(merge.count // 2 - 1, -1, -1):
        _sink(index, merge, place)
    return DONE


@routine
def _start_leaf(page, page_size):
    fill_bytes(page, 0, page_size)
    head, node = page_head(page), node_at(page)
    head.page_type = _DATA
    head.seg_type = _BTREE
    head.data_begin = HEAD_SIZE
    head.free_begin = ENTRIES_AT
    head.free_end = page_size - TAIL_SIZE
    node.next = NO_PAGE
    node.prev = NO_PAGE


@routine
def _is_duplicate(index, previous, entry):
    """Whether a unique index cannot have both entries, which are neighbours."""
    same = compare_keys(index, previous, entry, key_columns(index)) == 0
    return same and not has_null(index, entry)


@long_kernel
def merge_leaves(area, entry_id, merge_address, pages, page_size, count):
    """Put the next entries onto up to ``count`` leaves; answers how many it were, 0 once all entries are on one.

    DUPLICATE if the next entry's key is the last one's, and must not be.
    """
    merge, index = merge_at(merge_address), open_index(area, entry_id)
    if index < 0:
        return index
    if merge.count == 0:
        return 0
    unique, done, page = index_head(index).unique, 0, pages
    _start_leaf(page, page_size)
    while merge.count:  # ends: an entry takes some of the leaves, of which there are ``count``
        piece = _piece(merge, 0)
        entry = piece.next
        if unique and merge.previous and _is_duplicate(index, merge.previous, entry):
            return DUPLICATE
        if not fits(page, page_size, 0, entry_size(entry)):
            done += 1
            if done == count:
                return done
            page += page_size
            _start_leaf(page, page_size)
        append_entry(page, page_size, entry)
        merge.previous = entry
        merge.entries += 1
        piece.next += entry_size(entry)
        if piece.next >= piece.end:
            merge.count -= 1
            store_64(merge.heap, load_i64(merge.heap + 8 * merge.count))
        if merge.count:
            _sink(index, merge, 0)
    return done + 1


# ---- checking


@routine
def _entry_is_sound(index, entry, end):
    """Whether bytes before ``end`` are an entry of a leaf that nobody has locked."""
    if entry + VALUES_AT > end or load_u32(entry) != UNLOCKED:
        return False
    is_of_index = load_u16(entry + COL_COUNT_AT) == key_columns(index)
    return is_of_index and load_u16(entry + SIZE_AT) <= VALUES_AT + KEY_BYTES_MAX and entry_is_sound(entry, end)


@routine
def _may_follow(index, previous, entry, unique):
    return comes_before(index, previous, entry) and not (unique and _is_duplicate(index, previous, entry))


@routine
def _leaf_is_sound(index, page, page_size, previous):
    """Whether a page is a leaf whose entries are in order, behind ``previous``, and, if they must be, unique."""
    head, node = page_head(page), node_at(page)
    count, unique = node.slot_count, index_head(index).unique
    if head.page_type != _DATA or head.seg_type != _BTREE or node.level != 0 or count == 0:
        return False
    if head.free_end != page_size - TAIL_SIZE - 2 * count or not ENTRIES_AT <= head.free_begin <= head.free_end:
        return False
    for slot in range(count):
        offset = load_u16(slot_at(page, page_size, slot))
        entry = page + offset
        if offset < ENTRIES_AT or not _entry_is_sound(index, entry, page + head.free_begin):
            return False
        if entry_size(previous) and not _may_follow(index, previous, entry, unique):
            return False
        previous = entry
    return True


@long_kernel
def check_leaves(area, entry_id, pages, page_size, count, previous):
    """Check leaves that are to be taken into a tree; answers DONE, or -n if leaf n, counted from 1, is unsound.

    ``previous`` has room for an entry: the last one of the leaves before, if it has a size, and then of these.
    """
    index = open_index(area, entry_id)
    if index < 0:
        return -1
    last = previous
    for i in range(count):
        page = pages + i * page_size
        if not _leaf_is_sound(index, page, page_size, last):
            return -(i + 1)
        last = entry_in(page, page_size, node_at(page).slot_count - 1)
    if last != previous:
        move_bytes(previous, last, entry_size(last))
    return DONE
