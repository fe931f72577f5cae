"""Whether the pages of a B-tree hang together: levels, links, order, bounds; fast, and where it is wrong.

The tree is walked level by level from the root, as its branches list their children; sibling links, levels and keys
are held against that.  What is wrong is noted as a kind and a place; ``verify.btrees`` has the words.
Branches come first.  The leaves that they lead to can then be gone through all at once, or some here and some there:
whoever takes a part of the queue says which page and which entry come before it.

Invariants
 1. Only pages are read that can be followed; keys are compared only if their columns are the index's.
 2. Every page is gone through once, so the walk ends whatever the pages say.
"""

from __future__ import annotations

import numpy as np

from gmdb.format.address import NO_PAGE
from gmdb.format.page import SegmentType
from gmdb.format.row import BITS_AT, COL_COUNT_AT
from gmdb.kernel.btree_page import child_of, entry_in, entry_size, node_at
from gmdb.kernel.compiler import long_kernel, routine
from gmdb.kernel.keys import POINTER_AT, VALUES_AT, compare_keys, has_null, index_head, key_columns, place_of_word
from gmdb.kernel.memory import load_i64, load_u8, load_u16, load_u32, records, store_8
from gmdb.kernel.verify_index import fits, mapped_page_size, page_at
from gmdb.kernel.verify_rows import FLAG_DELETE
from gmdb.kernel.verify_walk import PAGES_AT_ONCE, WALK, entry_at, is_page_of, keep_word, note, seen_at

TREE_CHECK = np.dtype(
    [
        *WALK,
        ("done", "<i8"),  # how many of the queue were gone through
        ("level", "<i8"),  # of the branch that was gone through last
        ("before", "<i8"),  # the page before the next one, on its level
        ("last", "<i8"),  # where the last entry of the leaf before is; -1: not known
        ("open_end", "<i8"),  # 1: what comes behind the last page of the level is not known
        ("gap", "<i8"),  # within: 1 after a child that could not be followed
    ]
)
QUEUED = np.dtype(
    [
        ("page", "<i8"),
        ("level", "<i8"),
        ("low", "<i8"),  # the separators around it, page id << 16 | slot; -1: none
        ("high", "<i8"),
        ("after_gap", "<i8"),  # 1: what comes before it on its level is not known
    ]
)
CHILD, TWICE, LEVEL, PREV, NEXT, EMPTY, MISFIT, OPEN, ORDER, SAME, LOW, HIGH, DUPLICATE = range(13)
"""What can be wrong; ``other`` is a page for links, a level, or the place of the entry that it is wrong with."""

check_at = records(TREE_CHECK)
queued_at = records(QUEUED)
_QUEUED_SIZE = QUEUED.itemsize
_BTREE = int(SegmentType.BTREE)
_BEHIND_ALL = 1 << 62
_EIGHT = 2


# ---- keys


@routine
def _bound_of(index, entry, is_leaf):
    """What decides between equal keys: the row's place; a separator without one comes behind all."""
    if is_leaf:
        return place_of_word(load_i64(entry + POINTER_AT))
    if load_u16(entry + COL_COUNT_AT) == key_columns(index):
        return _BEHIND_ALL
    return place_of_word(load_i64(entry + entry_size(entry) - 8))


@routine
def _compare(index, a, a_is_leaf, b, b_is_leaf):
    result = compare_keys(index, a, b, key_columns(index))
    if result:
        return result
    a_bound, b_bound = _bound_of(index, a, a_is_leaf), _bound_of(index, b, b_is_leaf)
    return 1 if a_bound > b_bound else -1 if a_bound < b_bound else 0


@routine
def _fits_node(index, entry, is_leaf):
    columns = key_columns(index)
    if is_leaf:
        return fits(index, entry, columns)
    if load_u32(entry + BITS_AT) >> 2 * columns & 3 == _EIGHT:
        return fits(index, entry, columns + 1)
    return index_head(index).unique != 0 and fits(index, entry, columns)


# ---- one page


@routine
def _is_duplicate(index, before, entry):
    """Whether two entries of a unique index, one behind the other, have one key, and neither is marked."""
    if not index_head(index).unique or (load_u32(before) | load_u32(entry)) >> 24 & FLAG_DELETE:
        return False
    return not has_null(index, entry) and compare_keys(index, before, entry, key_columns(index)) == 0


@routine
def _check_order(check, item, page, page_size, count, is_leaf):
    """Each entry behind the one before it; answers whether the columns of all are the index's."""
    index, page_id, all_fit, before = check.index, item.page, True, 0
    for slot in range(count):
        entry = entry_in(page, page_size, slot)
        if not _fits_node(index, entry, is_leaf):
            note(check, MISFIT, page_id, slot, 0)
            all_fit, before = False, 0
            continue
        if before:
            result = _compare(index, before, is_leaf, entry, is_leaf)
            if result >= 0:
                note(check, SAME if result == 0 else ORDER, page_id, slot, page_id << 16 | slot - 1)
            elif is_leaf and _is_duplicate(index, before, entry):
                note(check, DUPLICATE, page_id, slot, page_id << 16 | slot - 1)
        before = entry
    return all_fit


@routine
def _check_bounds(check, item, page, page_size, count, is_leaf):
    """The first entry is above the separator before the page, the last one not above that behind it."""
    index = check.index
    if count == 0:
        return
    low, high = entry_at(check.devices, item.low), entry_at(check.devices, item.high)
    if low and _compare(index, entry_in(page, page_size, 0), is_leaf, low, False) <= 0:
        note(check, LOW, item.page, 0, item.low)
    if high:
        result = _compare(index, entry_in(page, page_size, count - 1), is_leaf, high, False)
        if result > 0 or (result == 0 and not is_leaf):
            note(check, HIGH, item.page, count - 1, item.high)


@routine
def _check_leaf(check, item, page, page_size):
    index, count = check.index, node_at(page).slot_count
    all_fit = _check_order(check, item, page, page_size, count, True)
    if all_fit:
        _check_bounds(check, item, page, page_size, count, True)
    if count and all_fit:
        first, last = entry_in(page, page_size, 0), entry_at(check.devices, check.last)
        if last and not item.after_gap and _is_duplicate(index, last, first):
            note(check, DUPLICATE, item.page, 0, check.last)
        check.last = item.page << 16 | count - 1
    elif count:
        check.last = -1
    for slot in range(count):
        entry = entry_in(page, page_size, slot)
        if fits(index, entry, key_columns(index)):
            keep_word(check, entry, item.page, slot)


@routine
def _is_open(entry):
    return entry_size(entry) == VALUES_AT and load_u32(entry + BITS_AT) == 0


@routine
def _check_branch(check, item, page, page_size):
    count = node_at(page).slot_count
    if count == 0:
        note(check, EMPTY, item.page, 0, 0)
        check.whole = 0
        check.gap = 1
        return
    if not _is_open(entry_in(page, page_size, count - 1)):
        note(check, OPEN, item.page, count - 1, 0)
    if _check_order(check, item, page, page_size, count - 1, False):
        _check_bounds(check, item, page, page_size, count - 1, False)
    low, low_is_known = item.low, True
    check.gap = max(check.gap, item.after_gap)
    for slot in range(count):
        entry = entry_in(page, page_size, slot)
        is_last = slot == count - 1
        is_known = is_last or _fits_node(check.index, entry, False)
        high = item.high if is_last else item.page << 16 | slot if is_known else -1
        _queue(check, item.page, slot, child_of(entry), item.level - 1, low if low_is_known else -1, high)
        low, low_is_known = high, is_known


# ---- the tree


@routine
def _queue(check, parent, slot, page_id, level, low, high):
    """Line a page up behind those that were found before, if it can be the one that a branch leads to."""
    wrong = -1
    if not is_page_of(check, page_id, _BTREE):
        wrong = CHILD
    elif load_u8(seen_at(check, page_id)):
        wrong = TWICE
    elif level >= 0 and node_at(page_at(check.devices, page_id)).level != level:
        wrong = LEVEL
        store_8(seen_at(check, page_id), 1)
    if wrong >= 0:
        if wrong == LEVEL:
            note(check, LEVEL, page_id, 0, level)
        else:
            note(check, wrong, parent, slot, page_id)
        check.whole = 0
        check.gap = 1
        return
    store_8(seen_at(check, page_id), 1)
    item = queued_at(check.queue + check.queued * _QUEUED_SIZE)
    item.page = page_id
    item.level = node_at(page_at(check.devices, page_id)).level
    item.low = low
    item.high = high
    item.after_gap = check.gap
    check.gap = 0
    check.queued += 1


@routine
def _check_links(check, item, page, before):
    """A page against the one before it on its level; NO_PAGE if it is the first."""
    if item.after_gap:
        return
    if node_at(page).prev != before:
        note(check, PREV, item.page, 0, before)
    if before != NO_PAGE and node_at(page_at(check.devices, before)).next != item.page:
        note(check, NEXT, before, 0, item.page)


@routine
def _end_level(check):
    """Behind the last page of a level nothing comes, unless a page there could not be followed."""
    last = check.before
    if last != NO_PAGE and not check.open_end and node_at(page_at(check.devices, last)).next != NO_PAGE:
        note(check, NEXT, last, 0, NO_PAGE)


@routine
def _begin_level(check):
    _end_level(check)
    check.before = NO_PAGE
    check.open_end = max(check.gap, check.open_end)
    check.gap = 0


@routine
def _begin_walk(check):
    check.begun, check.whole, check.done, check.level = 1, 1, 0, -1
    check.before, check.last, check.open_end = NO_PAGE, -1, 0
    _queue(check, NO_PAGE, 0, index_head(check.index).root, -1, -1, -1)
    check.gap = 0


@long_kernel
def check_branches(check_address):
    """Walk an index from its root down to its leaves, which then are what is left in the queue.

    Returns 1 if it is to be called again to go on.
    """
    check = check_at(check_address)
    if not check.begun:
        _begin_walk(check)
    for _ in range(PAGES_AT_ONCE):
        item = queued_at(check.queue + check.done * _QUEUED_SIZE)
        if check.done == check.queued or item.level == 0:
            _begin_level(check)
            return 0
        if item.level != check.level:
            _begin_level(check)
            check.level = item.level
        page, page_size = page_at(check.devices, item.page), mapped_page_size(check.devices, item.page)
        _check_links(check, item, page, check.before)
        _check_branch(check, item, page, page_size)
        check.before = item.page
        check.done += 1
    return 1


@long_kernel
def check_leaves(check_address):
    """Go through the leaves in the queue; the words of their entries lie in the check's memory afterwards.

    Returns 1 if it is to be called again to go on.
    """
    check = check_at(check_address)
    for _ in range(PAGES_AT_ONCE):
        if check.done == check.queued:
            _end_level(check)
            return 0
        item = queued_at(check.queue + check.done * _QUEUED_SIZE)
        page, page_size = page_at(check.devices, item.page), mapped_page_size(check.devices, item.page)
        _check_links(check, item, page, check.before)
        _check_leaf(check, item, page, page_size)
        check.before = item.page
        check.done += 1
    return 1
