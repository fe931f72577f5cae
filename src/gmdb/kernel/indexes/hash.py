"""Hash indexes: finding entries by their addresses, and stepping through those with one key.

Invariants
 1. Entries of a bucket are ordered by address and row id, and so are buckets, from slot to slot.
 2. A directory with a directory beneath it has all the depth that it may have.
"""

from __future__ import annotations

from gmdb.format.address import NO_PAGE
from gmdb.format.hash import LEVEL_BITS
from gmdb.kernel.indexes.hash_page import (
    ALL_BITS,
    BUCKET,
    DIRECTORY,
    LEVELS,
    PLACE_BITS,
    address_in,
    bit_at,
    block_is_free,
    buddy_of,
    child_in,
    comes_before,
    common_bits,
    count_pages,
    deepen,
    depth_max,
    directory_slot,
    first_address,
    give_address,
    hash_in_address,
    hash_key,
    is_directory,
    log_depth,
    new_hash_page,
    pages_of,
    place_in,
    set_block,
    set_depth,
    set_slots,
    start_of,
    touch_hash,
    touch_of_index,
)
from gmdb.kernel.indexes.index_head import entry_page_of, path_at, root_of, write_head
from gmdb.kernel.indexes.index_node import (
    append_entries,
    capacity_of,
    cut_entries,
    entry_in,
    entry_size,
    has_room,
    insert_entry,
    node_at,
    remove_entry,
    used_bytes,
)
from gmdb.kernel.page.area import change, damaged, device_of_page, page_size_of, set_sorted
from gmdb.kernel.page.redo import log_page
from gmdb.kernel.page.segment import release_page
from gmdb.kernel.places import page_of, place_of, slot_of
from gmdb.kernel.row import compare_keys, key_columns
from gmdb.kernel.runtime.compiler import routine
from gmdb.kernel.runtime.memory import add, load_i64, store_64, wrap
from gmdb.kernel.runtime.status import DONE, HASHES_CLASH, NOT_FOUND

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
        child_id = child_in(page, directory_slot(level, depth, address, place))
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
    """Where the entry with this key and row id is, as a place; NOT_FOUND if it is nowhere."""
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
            return place_of(page_id, slot)
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
                    return place_of(page_id, slot)
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
    page_id, slot = page_of(place), slot_of(place)
    entry = entry_in(touch_hash(area, page_id), page_size_of(area, page_id), slot)
    bucket = descend(area, index, address_in(entry), place_in(entry))
    if bucket >= 0 and bucket != page_id:
        return damaged(area, page_id)  # the entry belongs to another bucket
    return bucket if bucket < 0 else _at_or_after(area, index, key, page_id, slot + 1)


@routine
def next_behind(area, index, key, position):
    """``first_with_key``, behind the place of an entry that may have been removed since."""
    address, place = address_in(position), place_in(position)
    page_id = descend(area, index, address, place)
    if page_id < 0:
        return page_id
    slot = 0
    if page_id != NO_PAGE:
        slot = lower_bound(touch_hash(area, page_id), page_size_of(area, page_id), address, place + 1)
    return _at_or_after(area, index, key, page_id, slot)


# ---- Hash indexes: planting them, adding entries with splits, taking them out with merges.
#
# Invariants
#  1. No bucket is empty; but for the root, no directory leads to nothing, or to one bucket only.
#  2. What a kernel here changes is one group of redo: a crash leaves no split half done.

# Entries of one size need one split, whatever their addresses; of mixed sizes, hardly ever more than a few.
PAGES_FOR_ENTRY = 16 + LEVELS + 4  # splits, a directory at every level, map pages


@routine
def plant(area, index, head):
    """Give an index without pages its head and its root, a directory of nothing."""
    page_id = new_hash_page(area, index, DIRECTORY, 0)
    if page_id < 0:
        return page_id
    page = touch_hash(area, page_id)
    change(area, page)
    log_page(area, page)
    return write_head(area, index, head, page_id)


# ---- adding


@routine
def _new_bucket(area, index, level, address, place):
    """A bucket for the slot of an entry, and for all free ones around it that it may have."""
    directory = touch_hash(area, load_i64(path_at(area, level)))
    depth = node_at(directory).level
    slot = directory_slot(level, depth, address, place)
    while depth > 0 and block_is_free(directory, buddy_of(directory, slot, depth), depth):
        depth -= 1
    page_id = new_hash_page(area, index, BUCKET, depth)
    if page_id < 0:
        return page_id
    change(area, directory)
    set_block(directory, slot, depth, page_id)
    count_pages(directory, 1)
    log_page(area, directory)
    return page_id


@routine
def _put_directories(area, index, level, page_id, entry, bits):
    """Put directories between a bucket and its own until one chooses by a bit; returns that one's level."""
    page, address, place = touch_hash(area, page_id), address_in(entry), place_in(entry)
    while level + 1 < LEVELS and bits >= start_of(level + 1):
        directory = touch_hash(area, load_i64(path_at(area, level)))
        new_id = new_hash_page(area, index, DIRECTORY, 0)
        if new_id < 0:
            return new_id
        new = touch_hash(area, new_id)
        change(area, directory)
        deepen(directory, depth_max(level))
        slot = directory_slot(level, depth_max(level), address, place)
        set_block(directory, slot, node_at(page).level, NO_PAGE)
        set_slots(directory, slot, 1, new_id)
        log_page(area, directory)
        change(area, new)
        set_slots(new, 0, 1, page_id)
        count_pages(new, 1)
        log_page(area, new)
        node_at(page).level = 0
        level += 1
        store_64(path_at(area, level), new_id)
    return level


@routine
def _split(area, index, level, page_id, entry, bits):
    """Split a bucket at the first bit at which its entries and a new one differ; returns where the new one belongs."""
    page, page_size = touch_hash(area, page_id), page_size_of(area, page_id)
    address, place = address_in(entry), place_in(entry)
    directory = touch_hash(area, load_i64(path_at(area, level)))
    depth = bits + 1 - start_of(level)
    new_id = new_hash_page(area, index, BUCKET, depth)
    if new_id < 0:
        return new_id
    new, count, point = touch_hash(area, new_id), node_at(page).slot_count, 0
    while point < count:
        other = entry_in(page, page_size, point)
        if bit_at(address_in(other), place_in(other), bits):
            break
        point += 1
    change(area, page)
    change(area, new)
    append_entries(new, page_size, page, point, count - point)
    cut_entries(page, page_size, point)
    change(area, directory)
    deepen(directory, depth)
    slot = directory_slot(level, node_at(directory).level, address, place)
    set_block(directory, slot, node_at(page).level, NO_PAGE)
    node_at(page).level = depth
    goes_right = bit_at(address, place, bits)
    other_slot = buddy_of(directory, slot, depth)
    set_block(directory, other_slot if goes_right else slot, depth, page_id)
    set_block(directory, slot if goes_right else other_slot, depth, new_id)
    count_pages(directory, 1)
    log_page(area, directory)
    log_page(area, page if goes_right else new)
    return new_id if goes_right else page_id


@routine
def _bucket_with_room(area, index, page_id, entry):
    """Split a bucket, and the half that an entry belongs to, until it has room for the entry."""
    level, page_size, is_split = load_i64(path_at(area, LEVEL_AT)), page_size_of(area, page_id), False
    address, place = address_in(entry), place_in(entry)
    for _ in range(ALL_BITS):
        page = touch_hash(area, page_id)
        if has_room(page, page_size, entry_size(entry)):
            if is_split:
                log_page(area, page)
            return page_id
        first, last = entry_in(page, page_size, 0), entry_in(page, page_size, node_at(page).slot_count - 1)
        bits = min(
            common_bits(address, place, address_in(first), place_in(first)),
            common_bits(address, place, address_in(last), place_in(last)),
        )
        if bits == ALL_BITS or bits < start_of(level) + node_at(page).level:
            return damaged(area, page_id)  # ``require_room`` was not asked; or its entries belong elsewhere
        level = _put_directories(area, index, level, page_id, entry, bits)
        if level < 0:
            return level
        page_id, is_split = _split(area, index, level, page_id, entry, bits), True
        if page_id < 0:
            return page_id
    return damaged(area, page_id)


@routine
def add_entry(area, index, entry):
    """Put an entry into the index; the caller has made sure of PAGES_FOR_ENTRY."""
    give_address(index, entry)
    address, place = address_in(entry), place_in(entry)
    page_id = descend(area, index, address, place)
    if page_id == NO_PAGE:
        page_id = _new_bucket(area, index, load_i64(path_at(area, LEVEL_AT)), address, place)
    elif page_id >= 0:
        page_id = _bucket_with_room(area, index, page_id, entry)
    if page_id < 0:
        return page_id
    page, page_size = touch_hash(area, page_id), page_size_of(area, page_id)
    insert_entry(area, page, page_size, lower_bound(page, page_size, address, place), entry)
    return DONE


# ---- taking out


@routine
def _merge(area, index, directory, slot, page_id, other_id):
    """Put two buckets that differ in the last of their bits onto one page, which the caller logs; returns which."""
    depth, page_size = node_at(touch_hash(area, page_id)).level, page_size_of(area, page_id)
    is_right = slot >> node_at(directory).level - depth & 1
    left_id, right_id = (other_id, page_id) if is_right else (page_id, other_id)
    left, right = touch_hash(area, left_id), touch_hash(area, right_id)
    cut_entries(left, page_size, node_at(left).slot_count)
    append_entries(left, page_size, right, 0, node_at(right).slot_count)
    set_sorted(area, left_id, False)
    count_pages(directory, -1)
    status = release_page(area, entry_page_of(index), right_id)
    return status if status < 0 else left_id


@routine
def _widen(area, index, directory, slot, page_id):
    """Merge a nearly empty bucket with its buddy, as often as they fit on one page; returns the bucket that is left."""
    page_size, is_wider, page = page_size_of(area, page_id), False, touch_hash(area, page_id)
    for _ in range(LEVEL_BITS + 1):
        depth, used = node_at(page).level, used_bytes(page, page_size)
        if depth == 0 or 3 * used >= capacity_of(page_size):
            break
        buddy = buddy_of(directory, slot, depth)
        other_id = child_in(directory, buddy)
        if other_id == NO_PAGE:
            if not block_is_free(directory, buddy, depth):
                break
        else:
            other = touch_of_index(area, index, other_id)
            if other < 0:
                return other
            if other == page or page_size_of(area, other_id) != page_size:
                return damaged(area, other_id)
            if is_directory(other) or node_at(other).level != depth:
                break
            if used + used_bytes(other, page_size) > capacity_of(page_size):
                break
            page_id = _merge(area, index, directory, slot, page_id, other_id)
            if page_id < 0:
                return page_id
            page = touch_hash(area, page_id)
        node_at(page).level = depth - 1
        set_block(directory, slot, depth - 1, page_id)
        is_wider = True
    if is_wider:
        change(area, directory)
        log_page(area, directory)
        change(area, page)
        log_page(area, page)
    return page_id


@routine
def _shrink(area, index, directory, slot, page_id):
    """After an entry was taken out of a bucket: give up the bucket if it is empty, or widen it; NO_PAGE if it went."""
    page, page_size = touch_hash(area, page_id), page_size_of(area, page_id)
    if node_at(page).slot_count:
        if 3 * used_bytes(page, page_size) >= capacity_of(page_size):
            return page_id
        return _widen(area, index, directory, slot, page_id)
    change(area, directory)
    set_block(directory, slot, node_at(page).level, NO_PAGE)
    count_pages(directory, -1)
    log_page(area, directory)
    status = release_page(area, entry_page_of(index), page_id)
    return status if status < 0 else NO_PAGE


@routine
def _only_bucket(area, index, directory):
    """The bucket that a directory leads to, NO_PAGE if it leads to nothing; -1 if there is more to it."""
    if pages_of(directory) > 1:
        return -1
    child_id = NO_PAGE
    for slot in range(node_at(directory).slot_count):
        child_id = min(child_id, child_in(directory, slot))
    if child_id != NO_PAGE:
        child = touch_of_index(area, index, child_id)
        if child < 0 or is_directory(child):
            return -1
    return child_id


@routine
def _set_bucket_depth(area, page_id, depth):
    if page_id == NO_PAGE:
        return
    page = touch_hash(area, page_id)
    if node_at(page).level != depth:
        change(area, page)
        node_at(page).level = depth
        log_depth(area, page)


@routine
def _rebalance(area, index, level, page_id, address, place):
    """Give up pages that have become nearly empty, from a bucket on upwards, along the path to it."""
    for _ in range(LEVELS):
        directory_id = load_i64(path_at(area, level))
        directory = touch_hash(area, directory_id)
        slot = directory_slot(level, node_at(directory).level, address, place)
        if page_id != NO_PAGE:
            page_id = _shrink(area, index, directory, slot, page_id)
            if page_id < 0:
                return page_id
        page_id = _only_bucket(area, index, directory)
        if page_id < 0:
            return DONE
        if level == 0:
            if node_at(directory).level:
                change(area, directory)
                set_depth(directory, 0)
                set_slots(directory, 0, 1, page_id)
                log_page(area, directory)
            _set_bucket_depth(area, page_id, 0)
            return DONE
        level -= 1
        parent = touch_hash(area, load_i64(path_at(area, level)))
        change(area, parent)
        set_slots(parent, directory_slot(level, node_at(parent).level, address, place), 1, page_id)
        if page_id == NO_PAGE:
            count_pages(parent, -1)
        log_page(area, parent)
        _set_bucket_depth(area, page_id, node_at(parent).level)
        status = release_page(area, entry_page_of(index), directory_id)
        if status < 0:
            return status
    return damaged(area, root_of(index))


@routine
def take_entry(area, index, entry):
    """Take the entry with this key and row id out of the index; NOT_FOUND if it is not there."""
    found = find_entry(area, index, entry)
    if found < 0:
        return found
    page_id, level = page_of(found), load_i64(path_at(area, LEVEL_AT))
    remove_entry(area, touch_hash(area, page_id), page_size_of(area, page_id), slot_of(found))
    return _rebalance(area, index, level, page_id, address_in(entry), place_in(entry))
