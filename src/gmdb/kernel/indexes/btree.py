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
from gmdb.format.row import BITS_AT, COL_COUNT_AT, SIZE_AT, UNLOCKED
from gmdb.kernel.indexes.index_head import entry_page_of, object_of, path_at, root_of, set_root, write_head
from gmdb.kernel.indexes.index_node import (
    append_entries,
    capacity_of,
    child_of,
    cut_entries,
    entry_in,
    entry_size,
    has_room,
    init_node,
    insert_entry,
    node_at,
    put_entry,
    remove_entry,
    set_child,
    set_siblings,
    used_bytes,
)
from gmdb.kernel.page.area import (
    change,
    damaged,
    device_of_page,
    is_sorted,
    page_head,
    page_size_of,
    set_sorted,
    state_of,
    touch_type,
)
from gmdb.kernel.page.redo import log_page
from gmdb.kernel.page.segment import add_page, release_page
from gmdb.kernel.page.soundness import LEVELS_MAX
from gmdb.kernel.places import page_of, place_of, place_of_word, slot_of
from gmdb.kernel.row import (
    ENTRY_BUFFER,
    POINTER_AT,
    VALUES_AT,
    compare_keys,
    has_shape,
    index_head,
    key_columns,
)
from gmdb.kernel.runtime.compiler import routine
from gmdb.kernel.runtime.memory import (
    load_i32,
    load_i64,
    load_u8,
    load_u16,
    load_u32,
    move_bytes,
    store_16,
    store_32,
    store_64,
)
from gmdb.kernel.runtime.status import DONE, NOT_FOUND

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
    """The leaf where a search ends; the way there, a place a level, stays in the index's scratch."""
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
        store_64(path_at(area, level), place_of(page_id, slot))
        page_id = child_of(entry_in(page, page_size, slot))
    return damaged(area, page_id)


@routine
def find_entry(area, index, entry):
    """Where a leaf entry with this key and row id is, as a place; NOT_FOUND if it is nowhere."""
    place = seek(area, index, entry, key_columns(index), 0)
    if place < 0:
        return place
    page_id, slot = page_of(place), slot_of(place)
    page, page_size = touch_node(area, index, page_id), page_size_of(area, page_id)
    if slot == node_at(page).slot_count:
        return NOT_FOUND
    found = entry_in(page, page_size, slot)
    if _compare(index, found, True, entry, key_columns(index), 0):
        return NOT_FOUND
    return place


@routine
def seek(area, index, key, columns, bound):
    """The place where a search ends in its leaf, which may be the one behind its last entry.

    It stays in the index's scratch, with the way there.
    """
    page_id = descend(area, index, key, columns, bound)
    if page_id < 0:
        return page_id
    page, page_size = touch_node(area, index, page_id), page_size_of(area, page_id)
    place = place_of(page_id, lower_bound(index, page, page_size, key, columns, bound))
    store_64(path_at(area, 0), place)
    return place


@routine
def _is_behind(area, index, page_id, page, other_id, other):
    """Whether all entries of a leaf come behind those of another; if so, a walk that goes on there comes to an end."""
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
            return place_of(page_id, slot)
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
        return place_of(page_id, slot - 1)
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
            return place_of(page_id, node_at(page).slot_count - 1)
    return damaged(area, page_id)


# ---- B-trees: planting them, adding entries with splits, taking them out with merges.
#
# Invariants
#  1. What a kernel here changes is one group of redo: a crash leaves no split half done.  A page that is logged as a
#     whole is counted as changed once: replay finds no number missing.

_OPEN_SIZE = VALUES_AT
_EIGHT = 2


@routine
def new_node(area, index, level):
    """A page without entries for a level; the caller has made sure that there is one to take."""
    page = add_page(area, entry_page_of(index), _BTREE)
    if page > 0:
        page = touch_node(area, index, page_head(page).page_id)
    if page < 0:
        return page
    init_node(area, page, level)
    return page_head(page).page_id


@routine
def plant(area, index, head):
    """Give an index without pages its head and its root, a leaf."""
    page_id = new_node(area, index, 0)
    if page_id < 0:
        return page_id
    return write_head(area, index, head, page_id)


# ---- adding


@routine
def pages_for_entry(area, index):
    """How many pages an insert takes if it splits every level; a status if the root cannot be read."""
    page = touch_node(area, index, root_of(index))
    return page if page < 0 else node_at(page).level + 4


@routine
def _split_point(page, page_size, slot, size):
    """How many entries go left, counting the new one at ``slot``: about half, or all before it if they only grow."""
    count = node_at(page).slot_count
    last = count if node_at(page).level == 0 else count - 1
    if slot == last and node_at(page).next == NO_PAGE:
        return max(slot, 1)
    half, left = (used_bytes(page, page_size) + size + 2) >> 1, 0
    for n in range(count):
        here = size if n == slot else entry_size(entry_in(page, page_size, n if n < slot else n - 1))
        if n and left + here + 2 > half:
            return n
        left += here + 2
    return count


@routine
def write_open(entry, child):
    """The last entry of a branch: no key, for everything that comes behind the others."""
    store_32(entry, UNLOCKED)
    store_16(entry + SIZE_AT, _OPEN_SIZE)
    store_16(entry + COL_COUNT_AT, 1)
    store_32(entry + BITS_AT, 0)
    store_64(entry + POINTER_AT, child)


@routine
def write_separator(index, buffer, last, following, is_leaf, child):
    """The branch entry for a page whose last entry is ``last``; ``following`` is the first of the next page."""
    size = entry_size(last)
    move_bytes(buffer, last, size)
    store_32(buffer, UNLOCKED)
    if is_leaf and (not index_head(index).unique or compare_keys(index, last, following, key_columns(index)) == 0):
        columns = key_columns(index)
        store_64(buffer + size, load_i64(last + POINTER_AT))
        store_16(buffer + SIZE_AT, size + 8)
        store_16(buffer + COL_COUNT_AT, columns + 1)
        store_32(buffer + BITS_AT, load_u32(last + BITS_AT) | _EIGHT << 2 * columns)
    store_64(buffer + POINTER_AT, child)


@routine
def open_last(page, page_size):
    """Take the key off a branch's last entry: what is behind it went to another page."""
    slot = node_at(page).slot_count - 1
    entry = entry_in(page, page_size, slot)
    write_open(entry, child_of(entry))


@routine
def _split(area, index, page_id, page, slot, entry, separator):
    """Move the upper part of a page, with ``entry`` put in as number ``slot``, to a new one; returns its id."""
    page_size = page_size_of(area, page_id)
    node = node_at(page)
    is_leaf = node.level == 0
    point = _split_point(page, page_size, slot, entry_size(entry))
    new_id = new_node(area, index, node.level)
    if new_id < 0:
        return new_id
    new = touch_node(area, index, new_id)
    count = node.slot_count
    change(area, page)
    change(area, new)
    if slot < point:  # the new entry stays left
        append_entries(new, page_size, page, point - 1, count - point + 1)
        cut_entries(page, page_size, point - 1)
        put_entry(page, page_size, slot, entry)
    else:
        append_entries(new, page_size, page, point, count - point)
        cut_entries(page, page_size, point)
        put_entry(new, page_size, slot - point, entry)
    following = node.next
    node.next = new_id
    node_at(new).prev, node_at(new).next = page_id, following
    last = entry_in(page, page_size, node.slot_count - 1)
    write_separator(index, separator, last, entry_in(new, page_size, 0), is_leaf, page_id)
    if not is_leaf:
        open_last(page, page_size)
    log_page(area, page)
    log_page(area, new)
    if following != NO_PAGE:
        other = touch_node(area, index, following)
        if other < 0:
            return other
        set_siblings(area, other, new_id, node_at(other).next)
    return new_id


@routine
def _grow(area, index, level, left, right, separator):
    """A new root above two pages."""
    root = new_node(area, index, level)
    if root < 0:
        return root
    page, page_size = touch_node(area, index, root), page_size_of(area, root)
    upper = state_of(area).index_scratch + 3 * ENTRY_BUFFER
    write_open(upper, right)
    insert_entry(area, page, page_size, 0, upper)
    insert_entry(area, page, page_size, 0, separator)
    set_root(area, index, root)
    return DONE


@routine
def _add_at(area, index, entry, place):
    """Put a leaf entry in at a place to which the path in the index's scratch leads."""
    page_id, slot = page_of(place), slot_of(place)
    page_size = page_size_of(area, page_id)
    item = entry
    for level in range(LEVELS_MAX):
        page = touch_node(area, index, page_id)
        if page < 0:
            return page
        if slot > node_at(page).slot_count:
            return damaged(area, page_id)
        if has_room(page, page_size, entry_size(item)):
            insert_entry(area, page, page_size, slot, item)
            return DONE
        separator = state_of(area).index_scratch + ENTRY_BUFFER * (1 + (level & 1))
        new_id = _split(area, index, page_id, page, slot, item, separator)
        if new_id < 0:
            return new_id
        if page_id == root_of(index):
            return _grow(area, index, level + 1, page_id, new_id, separator)
        if level + 1 == LEVELS_MAX:
            break
        place = load_i64(path_at(area, level + 1))
        parent = touch_node(area, index, page_of(place))
        if parent < 0:
            return parent
        set_child(area, parent, entry_in(parent, page_size, slot_of(place)), new_id)
        page_id, slot, item = page_of(place), slot_of(place), separator
    return damaged(area, page_id)


@routine
def add_entry(area, index, entry):
    """Put a leaf entry into the tree; the caller has made sure of ``pages_for_entry``."""
    place = seek(area, index, entry, key_columns(index), 0)
    return place if place < 0 else _add_at(area, index, entry, place)


@routine
def add_sought(area, index, entry):
    """``add_entry`` where the last search, which was for the entry's key, has found no entry with it.

    Between two entries of a leaf there is no other place for it, whatever its row id; at the edge of a leaf there may
    be, for a branch may still have the key, with the row id of an entry that is gone.
    """
    place = load_i64(path_at(area, 0))
    page, slot = touch_node(area, index, page_of(place)), slot_of(place)
    if page < 0:
        return page
    if slot == 0 or (slot == node_at(page).slot_count and node_at(page).next != NO_PAGE):
        return add_entry(area, index, entry)
    return _add_at(area, index, entry, place)


# ---- taking out


@routine
def _lower_root(area, index):
    """A root with a single child gives way to it."""
    for _ in range(LEVELS_MAX):
        root = root_of(index)
        page = touch_node(area, index, root)
        if page < 0:
            return page
        if node_at(page).level == 0 or node_at(page).slot_count > 1:
            return DONE
        if not node_at(page).slot_count:
            return damaged(area, root)
        set_root(area, index, child_of(entry_in(page, page_size_of(area, root), 0)))
        status = release_page(area, entry_page_of(index), root)
        if status < 0:
            return status
    return damaged(area, root_of(index))


@routine
def _merge(area, index, parent, page_size, slot):
    """Put the child behind ``slot`` and the one in it onto one page, if they fit; returns 1 if so, else 0."""
    lower, upper = entry_in(parent, page_size, slot), entry_in(parent, page_size, slot + 1)
    left_id, right_id = child_of(lower), child_of(upper)
    left, right = touch_node(area, index, left_id), touch_node(area, index, right_id)
    if left < 0 or right < 0:
        return min(left, right)
    if left == right or node_at(left).level != node_at(right).level:
        return damaged(area, right_id)
    is_leaf = node_at(left).level == 0
    if not is_leaf and not node_at(left).slot_count:
        return damaged(area, left_id)
    regained = 0 if is_leaf else entry_size(lower) - _OPEN_SIZE
    if used_bytes(left, page_size) + regained + used_bytes(right, page_size) > capacity_of(page_size):
        return 0
    change(area, left)
    if not is_leaf:  # its last entry has its key again
        last = node_at(left).slot_count - 1
        buffer = state_of(area).index_scratch + ENTRY_BUFFER
        move_bytes(buffer, lower, entry_size(lower))
        store_64(buffer + POINTER_AT, child_of(entry_in(left, page_size, last)))
        cut_entries(left, page_size, last)
        put_entry(left, page_size, last, buffer)
    cut_entries(left, page_size, node_at(left).slot_count)
    append_entries(left, page_size, right, 0, node_at(right).slot_count)
    following = node_at(right).next
    node_at(left).next = following
    log_page(area, left)
    set_sorted(area, left_id, False)
    if following != NO_PAGE:
        other = touch_node(area, index, following)
        if other < 0:
            return other
        set_siblings(area, other, left_id, node_at(other).next)
    set_child(area, parent, upper, left_id)
    remove_entry(area, parent, page_size, slot)
    status = release_page(area, entry_page_of(index), right_id)
    return status if status < 0 else 1


@routine
def _rebalance(area, index, page_id):
    """Merge pages that have become nearly empty with a neighbour, from a leaf on upwards, along the path to it."""
    page_size = page_size_of(area, page_id)
    for level in range(1, LEVELS_MAX):
        if page_id == root_of(index):
            break
        page = touch_node(area, index, page_id)
        if page < 0:
            return page
        if 3 * used_bytes(page, page_size) >= capacity_of(page_size):
            return DONE
        place = load_i64(path_at(area, level))
        parent = touch_node(area, index, page_of(place))
        if parent < 0:
            return parent
        slot, count = slot_of(place), node_at(parent).slot_count
        if count > 1:
            merged = _merge(area, index, parent, page_size, slot if slot + 1 < count else slot - 1)
            if merged < 1:
                return merged
        page_id = page_of(place)
    return _lower_root(area, index)


@routine
def take_entry(area, index, entry):
    """Take the leaf entry with this key and row id out of the tree; NOT_FOUND if it is not there."""
    place = find_entry(area, index, entry)
    if place < 0:
        return place
    page_id = page_of(place)
    remove_entry(area, touch_node(area, index, page_id), page_size_of(area, page_id), slot_of(place))
    return _rebalance(area, index, page_id)
