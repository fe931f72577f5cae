"""Hash indexes: finding entries by their addresses, and stepping through those with one key.

Invariants
 1. Entries of a bucket are ordered by address and row id, and so are buckets, from slot to slot.
 2. A directory with a directory beneath it has all the depth that it may have.
"""

from __future__ import annotations

from gmdb.format.address import NO_PAGE
from gmdb.format.hash import LEVEL_BITS
from gmdb.kernel.area import damaged, device_of_page, page_size_of
from gmdb.kernel.btree_page import (
    capacity_of,
    entry_in,
    entry_size,
    node_at,
)
from gmdb.kernel.compiler import routine
from gmdb.kernel.hash_keys import (
    PLACE_BITS,
    address_in,
    comes_before,
    first_address,
    give_address,
    hash_in_address,
    hash_key,
    place_in,
)
from gmdb.kernel.hash_page import (
    ALL_BITS,
    LEVELS,
    child_in,
    depth_max,
    is_directory,
    slot_of,
    start_of,
    touch_hash,
    touch_of_index,
)
from gmdb.kernel.index_head import entry_page_of, path_at, root_of
from gmdb.kernel.keys import compare_keys, key_columns
from gmdb.kernel.memory import add, load_i64, store_64, wrap
from gmdb.kernel.status import DONE, HASHES_CLASH, NOT_FOUND

_END_ADDRESS, _END_PLACE, LEVEL_AT = LEVELS, LEVELS + 1, LEVELS + 2  # in the path, behind the directories


@routine
def _keep_end(area, level, depth, address, place):
    """Note where the addresses begin that follow those with the same bits down to a depth; 0 and 0: nowhere."""
    bits = start_of(level) + depth
    store_64(path_at(area, LEVEL_AT), level)
    end, end_place = 0, 0
    if 0 < bits <= 64:
        end = wrap((address >> 64 - bits) + 1 << 64 - bits)
    elif bits > 64:
        end, end_place = address, (place >> ALL_BITS - bits) + 1 << ALL_BITS - bits
        if end_place >> PLACE_BITS:
            end, end_place = add(address, 1), 0
    store_64(path_at(area, _END_ADDRESS), end)
    store_64(path_at(area, _END_PLACE), end_place)


@routine
def descend(area, index, address, place):
    """The bucket that an entry belongs to, NO_PAGE if there is none yet; the path has the way there and the end."""
    page_id = root_of(index)
    for level in range(LEVELS):
        page = touch_of_index(area, index, page_id)
        if page < 0:
            return page
        depth = node_at(page).level
        if not is_directory(page) or depth > depth_max(level):
            return damaged(area, page_id)
        store_64(path_at(area, level), page_id)
        child_id = child_in(page, slot_of(level, depth, address, place))
        if child_id == NO_PAGE:
            _keep_end(area, level, depth, address, place)
            return NO_PAGE
        child = touch_of_index(area, index, child_id)
        if child < 0:
            return child
        if not is_directory(child):
            if node_at(child).level > depth:
                return damaged(area, child_id)
            _keep_end(area, level, node_at(child).level, address, place)
            return child_id
        if depth < depth_max(level):
            return damaged(area, page_id)
        page_id = child_id
    return damaged(area, page_id)


@routine
def lower_bound(page, page_size, address, place):
    """The first slot of a bucket whose entry is not before the address and row id."""
    low, high = 0, node_at(page).slot_count
    while low < high:  # ends: they come closer with every look
        middle = (low + high) >> 1
        entry = entry_in(page, page_size, middle)
        if comes_before(address_in(entry), place_in(entry), address, place):
            low = middle + 1
        else:
            high = middle
    return low


@routine
def find_entry(area, index, entry):
    """Where the entry with this key and row id is, page id << 16 | slot; NOT_FOUND if it is nowhere."""
    give_address(index, entry)
    address, place = address_in(entry), place_in(entry)
    page_id = descend(area, index, address, place)
    if page_id < 0 or page_id == NO_PAGE:
        return page_id if page_id < 0 else NOT_FOUND
    page, page_size = touch_hash(area, page_id), page_size_of(area, page_id)
    for slot in range(lower_bound(page, page_size, address, place), node_at(page).slot_count):
        found = entry_in(page, page_size, slot)
        if address_in(found) != address or place_in(found) != place:
            return NOT_FOUND
        if compare_keys(index, found, entry, key_columns(index)) == 0:
            return page_id << 16 | slot
    return NOT_FOUND


@routine
def require_room(area, index, entry):
    """DONE if splits can make room for an entry; HASHES_CLASH if too many others have its address and row id."""
    give_address(index, entry)
    address, place, taken = address_in(entry), place_in(entry), entry_size(entry) + 2
    page_id = descend(area, index, address, place)
    if page_id == NO_PAGE:
        return DONE
    if page_id < 0:
        return page_id
    page, page_size = touch_hash(area, page_id), page_size_of(area, page_id)
    for slot in range(lower_bound(page, page_size, address, place), node_at(page).slot_count):
        found = entry_in(page, page_size, slot)
        if address_in(found) != address or place_in(found) != place:
            break
        taken += entry_size(found) + 2
    return DONE if taken <= capacity_of(page_size) else HASHES_CLASH


@routine
def _at_or_after(area, index, key, page_id, slot):
    """The place of the first entry with a key (0: any) from a slot on of the bucket that was just descended to."""
    key_hash = hash_key(index, key) if key else 0
    for _ in range(device_of_page(area, entry_page_of(index)).page_count << LEVEL_BITS):
        if page_id != NO_PAGE:
            page, page_size = touch_hash(area, page_id), page_size_of(area, page_id)
            while slot < node_at(page).slot_count:
                found = entry_in(page, page_size, slot)
                if key and hash_in_address(address_in(found)) != key_hash:
                    return NOT_FOUND
                if not key or compare_keys(index, found, key, key_columns(index)) == 0:
                    return page_id << 16 | slot
                slot += 1
        address, place = load_i64(path_at(area, _END_ADDRESS)), load_i64(path_at(area, _END_PLACE))
        if (address == 0 and place == 0) or (key and hash_in_address(address) != key_hash):
            return NOT_FOUND
        page_id, slot = descend(area, index, address, place), 0
        if page_id < 0:
            return page_id
    return damaged(area, root_of(index))  # there are not as many slots: directories lead round in a circle


@routine
def first_with_key(area, index, key):
    """Where the first entry with an entry's key is, or the first of all if ``key`` is 0; NOT_FOUND if there is none."""
    address = first_address(hash_key(index, key)) if key else 0
    page_id = descend(area, index, address, 0)
    if page_id < 0:
        return page_id
    slot = 0
    if page_id != NO_PAGE:
        slot = lower_bound(touch_hash(area, page_id), page_size_of(area, page_id), address, 0)
    return _at_or_after(area, index, key, page_id, slot)


@routine
def next_with_key(area, index, key, place):
    """``first_with_key``, behind the entry at a place."""
    page_id, slot = place >> 16, place & 0xFFFF
    entry = entry_in(touch_hash(area, page_id), page_size_of(area, page_id), slot)
    bucket = descend(area, index, address_in(entry), place_in(entry))
    if bucket >= 0 and bucket != page_id:
        return damaged(area, page_id)  # the entry belongs to another bucket
    return bucket if bucket < 0 else _at_or_after(area, index, key, page_id, slot + 1)


@routine
def next_behind(area, index, key, position):
    """``first_with_key``, behind the place where an entry was that may be gone by now."""
    address, place = address_in(position), place_in(position)
    page_id = descend(area, index, address, place)
    if page_id < 0:
        return page_id
    slot = 0
    if page_id != NO_PAGE:
        slot = lower_bound(touch_hash(area, page_id), page_size_of(area, page_id), address, place + 1)
    return _at_or_after(area, index, key, page_id, slot)
