"""Pages of a hash index: buckets, which are nodes of entries, and directories, which are lists of pages.

A directory of level *n* chooses among its slots by the bits that follow those of the levels above it.  Its ``depth``
says by how many, so that it has 1 << depth slots.  A slot names a page, or none if no entry has those bits.  A bucket's
``depth`` says how many bits of its directory's all of its entries have in common; it is in all slots with those bits.

Both depths are the node's ``level``.
"""

from __future__ import annotations

from gmdb.format.address import NO_PAGE
from gmdb.format.btree import ENTRIES_AT, NODE_AT, Order
from gmdb.format.hash import HASH_NODE, LEVEL_BITS, HashPageType
from gmdb.format.page import PAGE_HEAD, PageType, SegmentType
from gmdb.format.row import BITS_AT, COL_COUNT_AT, SIZE_AT
from gmdb.kernel.indexes.index_head import entry_page_of, object_of
from gmdb.kernel.indexes.index_node import entry_in, entry_size, init_node, node_at
from gmdb.kernel.page.area import damaged, is_sorted, page_head, page_size_of, set_sorted, touch_type
from gmdb.kernel.page.redo import log_bytes
from gmdb.kernel.page.segment import add_page
from gmdb.kernel.places import place_of_word
from gmdb.kernel.row import (
    POINTER_AT,
    VALUES_AT,
    days_of_interval,
    has_shape,
    key_columns,
    order_at,
    order_of_double,
    order_of_real,
    rest_of_interval,
    stored_bytes,
)
from gmdb.kernel.runtime.compiler import routine
from gmdb.kernel.runtime.memory import (
    load_i32,
    load_i64,
    load_u8,
    load_u16,
    load_u32,
    multiply,
    store_8,
    store_16,
    store_32,
    store_64,
    wrap,
)

# ---- Addresses of hash index entries: a hash of the key in the upper 40 bits, one of the row id in the lower 24.
#
# So all entries of one key lie in one run of addresses, and however many they are, they differ.  An address is an
# unsigned number of 64 bits, kept in a signed one.  Keys that ``compare_keys`` calls equal have the same hash.
#
# An entry of a hash index has the shape of a B-tree's leaf entry and one more column, its address.

ROW_BITS = 24
PLACE_BITS = 48
_WORD, _LONG, _DOUBLE, _WIDE, _BYTES, _REAL, _INTERVAL = (int(order) for order in Order)
_KEY_MASK, _ROW_MASK = (1 << 40) - 1, (1 << ROW_BITS) - 1
_FIRST, _SECOND = 0x2545_F491_4F6C_DD1D, -0x4B47_D0C5_C0D3_2F4B  # odd, their bits in no order
_NULL = 0x6E75_6C6C
ROW_FACTOR = 0x9E37_79B9_7F4B  # odd, so that row ids that lie together are spread evenly
_LOWEST = -(1 << 63)
_EIGHT = 2


@routine
def _mix(state, word):
    """A state of 64 bits that depends on every bit of the state before and of a word."""
    state = multiply(state ^ word, _FIRST)
    state ^= state >> 29 & 0x7_FFFF_FFFF
    state = multiply(state, _SECOND)
    return state ^ (state >> 32 & 0xFFFF_FFFF)


@routine
def _mix_bytes(state, value):
    length = load_u16(value)
    state, at = _mix(state, length), value + 2
    end = at + length
    while at + 8 <= end:
        state = _mix(state, load_i64(at))
        at += 8
    tail = 0
    while at < end:
        tail = tail << 8 | load_u8(at)
        at += 1
    return _mix(state, tail)


@routine
def _mix_value(state, order, value):
    if order == _WORD:
        return _mix(state, load_i32(value))
    if order == _LONG:
        return _mix(state, load_i64(value))
    if order == _DOUBLE:
        return _mix(state, order_of_double(load_i64(value)))
    if order == _WIDE:
        return _mix(_mix(state, load_i64(value + 2)), load_i64(value + 10))
    if order == _REAL:
        return _mix(state, order_of_real(load_i32(value)))
    if order == _INTERVAL:
        return _mix(_mix(state, days_of_interval(value)), rest_of_interval(value))
    return _mix_bytes(state, value)


@routine
def hash_key(index, entry):
    """The 40 bits that all entries with the entry's key have in common."""
    bits, at, state = load_u32(entry + BITS_AT), entry + VALUES_AT, 0
    for n in range(key_columns(index)):
        code = bits >> 2 * n & 3
        if code == 0:
            state = _mix(state, _NULL)
        else:
            state = _mix_value(state, order_at(index, n), at)
            at += stored_bytes(at, code)
    return state >> ROW_BITS & _KEY_MASK


@routine
def first_address(key_hash):
    """The lowest address that entries with a key may have."""
    return wrap(key_hash << ROW_BITS)


@routine
def hash_in_address(address):
    return address >> ROW_BITS & _KEY_MASK


@routine
def place_in(entry):
    """The place of the entry's row."""
    return place_of_word(load_i64(entry + POINTER_AT))


@routine
def address_in(entry):
    return load_i64(entry + entry_size(entry) - 8)


@routine
def address_for(index, entry):
    """The address that an entry with this key and row id has."""
    row_hash = multiply(place_in(entry), ROW_FACTOR) >> PLACE_BITS - ROW_BITS & _ROW_MASK
    return first_address(hash_key(index, entry)) | row_hash


@routine
def give_address(index, entry):
    """Put the address behind the key, if it is not there yet; the entry's buffer has room."""
    columns, size = key_columns(index), entry_size(entry)
    if load_u16(entry + COL_COUNT_AT) > columns:
        return
    store_64(entry + size, address_for(index, entry))
    store_16(entry + SIZE_AT, size + 8)
    store_16(entry + COL_COUNT_AT, columns + 1)
    store_32(entry + BITS_AT, load_u32(entry + BITS_AT) | _EIGHT << 2 * columns)


@routine
def comes_before(address, place, other_address, other_place):
    """The order of entries: by address, then by row id."""
    if address != other_address:
        return address ^ _LOWEST < other_address ^ _LOWEST
    return place < other_place


@routine
def common_bits(address, place, other_address, other_place):
    """How many bits two entries have in common from the top: 64 of the address, then 48 of the row id."""
    differing, bits, last = address ^ other_address, 0, 63
    if differing == 0:
        differing, bits, last = place ^ other_place, 64, PLACE_BITS - 1
    while last >= 0 and not differing >> last & 1:
        bits += 1
        last -= 1
    return bits


@routine
def bit_at(address, place, number):
    """One of the 112 bits, counted from the top."""
    return address >> 63 - number & 1 if number < 64 else place >> 63 + PLACE_BITS - number & 1


# ---- Pages of a hash index.

DIRECTORY, BUCKET = int(HashPageType.DIRECTORY), int(HashPageType.BUCKET)
LEVELS = 12  # 64 bits of the address, then 48 of the row id
_ADDRESS_LEVELS = 7
ALL_BITS = 64 + PLACE_BITS
_USED_AT = PAGE_HEAD.offset("hash_tab_head.used_flag")
_PAGES_AT = PAGE_HEAD.offset("hash_tab_head.page_count")
_TYPE_AT = PAGE_HEAD.offset("hash_page_type")
_DEPTH_AT = NODE_AT + HASH_NODE.offset("depth")
_DATA, _HASH = int(PageType.DATA), int(SegmentType.HASH)


@routine
def touch_hash(area, page_id):
    return touch_type(area, page_id, _DATA, _HASH)


@routine
def touch_of_index(area, index, page_id):
    """A page of the index; the first time that it is used, it is checked that it is the index's, and in order."""
    page = touch_hash(area, page_id)
    if page > 0 and not is_sorted(area, page_id):
        if not _is_of_index(area, index, page, page_id):
            return damaged(area, page_id)
        set_sorted(area, page_id, True)
    return page


@routine
def _is_of_index(area, index, page, page_id):
    page_size, last = page_size_of(area, page_id), 0
    if page_head(page).obj_id != object_of(index) or page_size != page_size_of(area, entry_page_of(index)):
        return False
    if is_directory(page):
        return True
    for slot in range(node_at(page).slot_count):
        entry = entry_in(page, page_size, slot)
        if not has_shape(index, entry) or load_u16(entry + COL_COUNT_AT) == key_columns(index):
            return False  # its last column is its address
        if last and comes_before(address_in(entry), place_in(entry), address_in(last), place_in(last)):
            return False
        last = entry
    return True


@routine
def is_directory(page):
    return load_u8(page + _TYPE_AT) == DIRECTORY


@routine
def new_hash_page(area, index, kind, depth):
    """A page for the index; a directory has slots that name no page.  The caller knows that there is one to take."""
    page = add_page(area, entry_page_of(index), _HASH)
    if page < 0:
        return page
    store_8(page + _USED_AT, 1)
    store_8(page + _TYPE_AT, kind)
    log_bytes(area, page, _USED_AT, _TYPE_AT + 1 - _USED_AT)
    init_node(area, page, depth)
    if kind == DIRECTORY:
        set_depth(page, depth)
        set_slots(page, 0, 1 << depth, NO_PAGE)
    return page_head(page).page_id


@routine
def log_depth(area, page):
    log_bytes(area, page, _DEPTH_AT, 2)


@routine
def pages_of(directory):
    """How many pages a directory leads to."""
    return load_u16(directory + _PAGES_AT)


@routine
def count_pages(directory, difference):
    store_16(directory + _PAGES_AT, pages_of(directory) + difference)


@routine
def start_of(level):
    """How many bits the levels above one have consumed; no level goes across the end of the address."""
    if level <= _ADDRESS_LEVELS:
        return min(LEVEL_BITS * level, 64)
    return min(64 + LEVEL_BITS * (level - _ADDRESS_LEVELS), ALL_BITS)


@routine
def depth_max(level):
    return start_of(level + 1) - start_of(level)


@routine
def directory_slot(level, depth, address, place):
    """The slot of a directory that an entry belongs to."""
    if depth == 0:
        return 0
    last = start_of(level) + depth
    bits = address >> 64 - last if level < _ADDRESS_LEVELS else place >> ALL_BITS - last
    return bits & ((1 << depth) - 1)


@routine
def child_in(directory, slot):
    return load_u32(directory + ENTRIES_AT + 4 * slot)


@routine
def set_slots(directory, first, count, page_id):
    """Have some slots name a page; the caller logs the directory."""
    for slot in range(first, first + count):
        store_32(directory + ENTRIES_AT + 4 * slot, page_id)


@routine
def set_block(directory, slot, depth, page_id):
    """Have all slots that share the first ``depth`` bits with one name a page."""
    rest = node_at(directory).level - depth
    set_slots(directory, slot >> rest << rest, 1 << rest, page_id)


@routine
def block_is_free(directory, slot, depth):
    """Whether no slot that shares the first ``depth`` bits with one names a page."""
    rest = node_at(directory).level - depth
    for other in range(slot >> rest << rest, (slot >> rest) + 1 << rest):
        if child_in(directory, other) != NO_PAGE:
            return False
    return True


@routine
def buddy_of(directory, slot, depth):
    """A slot on the other side of the last of ``depth`` bits."""
    return slot ^ 1 << node_at(directory).level - depth


@routine
def set_depth(directory, depth):
    """Give a directory another number of slots, from the first on; the caller fills and logs it."""
    node = node_at(directory)
    node.level = depth
    node.slot_count = 1 << depth
    page_head(directory).free_begin = ENTRIES_AT + (4 << depth)


@routine
def deepen(directory, depth):
    """Double a directory until it has that depth; every slot becomes several."""
    before = node_at(directory).level
    if depth <= before:
        return
    set_depth(directory, depth)
    for slot in range((1 << before) - 1, -1, -1):
        set_block(directory, slot << depth - before, before, child_in(directory, slot))
