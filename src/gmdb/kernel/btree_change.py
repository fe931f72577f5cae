"""B-trees: planting them, adding entries with splits, taking them out with merges.

Invariants
 1. What a kernel here changes is one group of redo: a crash leaves no split half done.  A page that is logged as a
    whole is counted as changed once: replay finds no number missing.
"""

from __future__ import annotations

from gmdb.format.address import NO_PAGE
from gmdb.format.row import BITS_AT, COL_COUNT_AT, SIZE_AT, UNLOCKED
from gmdb.kernel.area import change, damaged, page_size_of, set_sorted, state_of
from gmdb.kernel.btree import find_entry, seek, touch_node
from gmdb.kernel.btree_page import (
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
from gmdb.kernel.compiler import routine
from gmdb.kernel.index_head import entry_page_of, path_at, root_of, set_root, write_head
from gmdb.kernel.keys import ENTRY_BUFFER, POINTER_AT, VALUES_AT, compare_keys, index_head, key_columns
from gmdb.kernel.memory import load_i64, load_u32, move_bytes, store_16, store_32, store_64
from gmdb.kernel.redo import log_page
from gmdb.kernel.segment import add_page, release_page
from gmdb.kernel.soundness_nodes import LEVELS_MAX
from gmdb.kernel.status import DONE

_OPEN_SIZE = VALUES_AT
_EIGHT = 2


@routine
def new_node(area, index, level):
    """A page without entries for a level; the caller has made sure that there is one to take."""
    page_id = add_page(area, entry_page_of(index))
    if page_id < 0:
        return page_id
    page = touch_node(area, index, page_id)
    if page < 0:
        return page  # the segment's head says that it is of something else
    init_node(area, page, level)
    return page_id


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
    """Move the upper part of a page, with ``entry`` put in as number ``slot``, to a new one; answers its id."""
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
def add_entry(area, index, entry):
    """Put a leaf entry into the tree; whoever calls made sure of ``pages_for_entry``."""
    place = seek(area, index, entry, key_columns(index), 0)
    if place < 0:
        return place
    page_id, slot = place >> 16, place & 0xFFFF
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
        parent = touch_node(area, index, place >> 16)
        if parent < 0:
            return parent
        set_child(area, parent, entry_in(parent, page_size, place & 0xFFFF), new_id)
        page_id, slot, item = place >> 16, place & 0xFFFF, separator
    return damaged(area, page_id)


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
    """Put the child behind ``slot`` and the one in it onto one page, if they fit; answers 1 if so, else 0."""
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
        parent = touch_node(area, index, place >> 16)
        if parent < 0:
            return parent
        slot, count = place & 0xFFFF, node_at(parent).slot_count
        if count > 1:
            merged = _merge(area, index, parent, page_size, slot if slot + 1 < count else slot - 1)
            if merged < 1:
                return merged
        page_id = place >> 16
    return _lower_root(area, index)


@routine
def take_entry(area, index, entry):
    """Take the leaf entry with this key and row id out of the tree; NOT_FOUND if it is not there."""
    place = find_entry(area, index, entry)
    if place < 0:
        return place
    page_id = place >> 16
    remove_entry(area, touch_node(area, index, page_id), page_size_of(area, page_id), place & 0xFFFF)
    return _rebalance(area, index, page_id)
