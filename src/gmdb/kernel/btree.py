"""B-trees: finding entries by their keys, and stepping from one to the next.

Entries are ordered by key and row id.  A branch entry's key is the highest of its child; a branch's last entry has
none, for its parent bounds it.  A branch entry has the row id as one more column if the index is not unique, or if
entries with that key lie on both sides of it.

Invariants
 1. Leaves are level 0, and each level is linked both ways in key order.
 2. Every child of a page is one level below it.
"""

from __future__ import annotations

from gmdb.format.address import NO_PAGE
from gmdb.format.btree import INDEX_HEAD, Order
from gmdb.format.page import PageType, SegmentType
from gmdb.format.row import BITS_AT, COL_COUNT_AT
from gmdb.kernel.area import damaged, device_of_page, is_sorted, page_head, page_size_of, set_sorted, touch_type
from gmdb.kernel.btree_page import child_of, entry_in, entry_size, node_at
from gmdb.kernel.compiler import routine
from gmdb.kernel.index_head import entry_page_of, object_of, path_at, root_of
from gmdb.kernel.keys import POINTER_AT, VALUES_AT, compare_keys, has_shape, key_columns, place_of_word
from gmdb.kernel.memory import load_i32, load_i64, load_u8, load_u16, load_u32, store_64
from gmdb.kernel.soundness_nodes import LEVELS_MAX
from gmdb.kernel.status import NOT_FOUND

_DATA, _BTREE = int(PageType.DATA), int(SegmentType.BTREE)
_WORD, _LONG = int(Order.WORD), int(Order.LONG)
_ORDERS_AT = INDEX_HEAD.offset("orders")
_FAR, _NEAR = 16, 4  # entries: how many are worth a guess, and how far off that may be


@routine
def _has_row_id(index, entry):
    """Whether a branch entry has the row id as its last column."""
    return load_u16(entry + COL_COUNT_AT) > key_columns(index)


@routine
def _compare(index, entry, is_leaf, key, columns, bound):
    """Where an entry stands to a search: before it (-1), at it (0), behind it (1).

    ``key`` is an entry, of which ``columns`` columns count.  ``bound``: -1 looks for the place before all entries
    with that key, 1 for the place behind them, 0 for the very row id.
    """
    result = compare_keys(index, entry, key, columns)
    if result:
        return result
    if bound:
        return -bound
    if not is_leaf and not _has_row_id(index, entry):
        return 1  # all row ids with that key come before it
    at = entry + POINTER_AT if is_leaf else entry + entry_size(entry) - 8
    mine, sought = place_of_word(load_i64(at)), place_of_word(load_i64(key + POINTER_AT))
    return 1 if mine > sought else -1 if mine < sought else 0


@routine
def touch_node(area, index, page_id):
    """A page of the tree; the first time that it is used, it is checked that its entries are the index's, in order."""
    page = touch_type(area, page_id, _DATA, _BTREE)
    if page > 0 and not is_sorted(area, page_id):
        if not _is_of_index(area, index, page, page_id):
            return damaged(area, page_id)
        set_sorted(area, page_id, True)
    return page


@routine
def _is_of_index(area, index, page, page_id):
    """Whether a sound page has entries of the index; in a leaf, each behind the one before."""
    page_size, node = page_size_of(area, page_id), node_at(page)
    if page_head(page).obj_id != object_of(index) or page_size != page_size_of(area, entry_page_of(index)):
        return False
    last = 0
    for slot in range(node.slot_count):
        entry = entry_in(page, page_size, slot)
        if node.level and slot == node.slot_count - 1:
            return load_u32(entry + BITS_AT) == 0  # it has no key
        if not has_shape(index, entry):
            return False
        if node.level == 0 and last and _compare(index, last, True, entry, key_columns(index), 0) >= 0:
            return False
        last = entry
    return True


@routine
def _number_of(entry, order):
    """The first key column of an entry, which is a number and not NULL."""
    return load_i32(entry + VALUES_AT) if order == _WORD else load_i64(entry + VALUES_AT)


@routine
def _is_number(entry):
    return load_u32(entry + BITS_AT) & 3 != 0


@routine
def _guess(page, page_size, low, high, order, number):
    """Where among the entries from ``low`` to before ``high`` a number should be, if they are spread evenly."""
    first, last = entry_in(page, page_size, low), entry_in(page, page_size, high - 1)
    if not _is_number(first) or not _is_number(last):
        return (low + high) >> 1
    bottom, top = _number_of(first, order), _number_of(last, order)
    if number <= bottom:
        return low
    if number >= top:
        return high - 1
    share = (float(number) - float(bottom)) / (float(top) - float(bottom))
    return min(low + int(share * (high - 1 - low)), high - 1)


@routine
def lower_bound(index, page, page_size, key, columns, bound):
    """The first slot whose entry is not before the search; in a branch, the last one at the latest.

    Where keys begin with a number, it goes by that: the first look is where the number should be, the second a few
    entries further, for every look at another part of a page costs a trip to memory.
    """
    node = node_at(page)
    is_leaf = node.level == 0
    low, high = 0, node.slot_count if is_leaf else node.slot_count - 1
    order = load_u8(index + _ORDERS_AT)
    by_number = (order == _WORD or order == _LONG) and columns > 0 and _is_number(key)
    number = _number_of(key, order) if by_number else 0
    middle, reach = (low + high) >> 1, 0
    if by_number and high - low > _FAR:
        middle, reach = _guess(page, page_size, low, high, order, number), _NEAR
    while low < high:  # ends: they come closer with every look
        entry = entry_in(page, page_size, middle)
        result = 0
        if by_number:
            mine = _number_of(entry, order)
            result = 1 if not _is_number(entry) or mine > number else -1 if mine < number else 0
        if result == 0:
            result = _compare(index, entry, is_leaf, key, columns, bound)
        if result < 0:
            low = middle + 1
        else:
            high = middle
        if reach and high - low > 2 * reach:
            middle = low + reach if result < 0 else high - reach
            reach <<= 2
        else:
            middle, reach = (low + high) >> 1, 0
    return low


@routine
def descend(area, index, key, columns, bound):
    """The leaf where a search ends; the way there, page id << 16 | slot a level, stays in the index's scratch."""
    page_id = root_of(index)
    level = LEVELS_MAX
    for _ in range(LEVELS_MAX):
        page = touch_node(area, index, page_id)
        if page < 0:
            return page
        node = node_at(page)
        if node.level >= level or (node.level and not node.slot_count):
            return damaged(area, page_id)
        level = node.level
        if level == 0:
            return page_id
        page_size = page_size_of(area, page_id)
        slot = lower_bound(index, page, page_size, key, columns, bound)
        store_64(path_at(area, level), page_id << 16 | slot)
        page_id = child_of(entry_in(page, page_size, slot))
    return damaged(area, page_id)


@routine
def find_entry(area, index, entry):
    """Where a leaf entry with this key and row id is, page id << 16 | slot; NOT_FOUND if it is nowhere."""
    place = seek(area, index, entry, key_columns(index), 0)
    if place < 0:
        return place
    page_id, slot = place >> 16, place & 0xFFFF
    page, page_size = touch_node(area, index, page_id), page_size_of(area, page_id)
    if slot == node_at(page).slot_count:
        return NOT_FOUND
    found = entry_in(page, page_size, slot)
    if _compare(index, found, True, entry, key_columns(index), 0):
        return NOT_FOUND
    return place


@routine
def seek(area, index, key, columns, bound):
    """Where a search ends in its leaf: page id << 16 | slot, which may be the one behind its last entry."""
    page_id = descend(area, index, key, columns, bound)
    if page_id < 0:
        return page_id
    page, page_size = touch_node(area, index, page_id), page_size_of(area, page_id)
    return page_id << 16 | lower_bound(index, page, page_size, key, columns, bound)


@routine
def _is_behind(area, index, page_id, page, other_id, other):
    """Whether all entries of a leaf come behind those of another; if so, whoever goes on there comes to an end."""
    count = node_at(other).slot_count
    if count == 0 or node_at(page).slot_count == 0:
        return True
    last = entry_in(other, page_size_of(area, other_id), count - 1)
    first = entry_in(page, page_size_of(area, page_id), 0)
    return _compare(index, last, True, first, key_columns(index), 0) < 0


@routine
def _pages_at_most(area, page_id):
    """How many pages may follow one another: leaves without entries that lead round in a circle would be more."""
    return device_of_page(area, page_id).page_count


@routine
def at_or_after(area, index, page_id, slot):
    """The place of the first entry from a slot on, in this leaf or those behind it; NOT_FOUND if there is none."""
    page = touch_node(area, index, page_id)
    for _ in range(_pages_at_most(area, page_id)):
        if page < 0:
            return page
        if slot < node_at(page).slot_count:
            return page_id << 16 | slot
        following = node_at(page).next
        if following == NO_PAGE:
            return NOT_FOUND
        other = touch_node(area, index, following)
        if other > 0 and (node_at(other).level or not _is_behind(area, index, following, other, page_id, page)):
            return damaged(area, following)
        page_id, page, slot = following, other, 0
    return damaged(area, page_id)


@routine
def before(area, index, page_id, slot):
    """The place of the last entry before a slot, in this leaf or those before it; NOT_FOUND if there is none."""
    if slot:
        return page_id << 16 | slot - 1
    page = touch_node(area, index, page_id)
    for _ in range(_pages_at_most(area, page_id)):
        if page < 0:
            return page
        prior = node_at(page).prev
        if prior == NO_PAGE:
            return NOT_FOUND
        other = touch_node(area, index, prior)
        if other > 0 and (node_at(other).level or not _is_behind(area, index, page_id, page, prior, other)):
            return damaged(area, prior)
        page_id, page = prior, other
        if page > 0 and node_at(page).slot_count:
            return page_id << 16 | node_at(page).slot_count - 1
    return damaged(area, page_id)
