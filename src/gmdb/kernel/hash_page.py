"""Pages of a hash index: buckets, which are nodes of entries, and directories, which are lists of pages.

A directory of level *n* chooses among its slots by the bits that follow those of the levels above it.  Its ``depth``
says by how many, so that it has 1 << depth slots.  A slot names a page, or none if no entry has those bits.  A bucket's
``depth`` says how many bits of its directory's all of its entries have in common; it is in all slots with those bits.

Both depths are the node's ``level``.
"""

from __future__ import annotations

from gmdb.format.address import NO_PAGE
from gmdb.format.btree import ENTRIES_AT, NODE_AT
from gmdb.format.hash import HASH_NODE, LEVEL_BITS, HashPageType
from gmdb.format.page import PAGE_HEAD, PageType, SegmentType
from gmdb.format.row import COL_COUNT_AT
from gmdb.kernel.area import damaged, is_sorted, page_head, page_size_of, set_sorted, touch_type
from gmdb.kernel.btree_page import entry_in, init_node, node_at
from gmdb.kernel.compiler import routine
from gmdb.kernel.hash_keys import PLACE_BITS, address_in, comes_before, place_in
from gmdb.kernel.index_head import entry_page_of, object_of
from gmdb.kernel.keys import has_shape, key_columns
from gmdb.kernel.memory import load_u8, load_u16, load_u32, store_8, store_16, store_32
from gmdb.kernel.redo import log_bytes
from gmdb.kernel.segment import add_page

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
    page_id = add_page(area, entry_page_of(index))
    if page_id < 0:
        return page_id
    page = touch_hash(area, page_id)
    if page < 0:
        return page  # the segment's head says that it is of something else
    store_8(page + _USED_AT, 1)
    store_8(page + _TYPE_AT, kind)
    log_bytes(area, page, _USED_AT, _TYPE_AT + 1 - _USED_AT)
    init_node(area, page, depth)
    if kind == DIRECTORY:
        set_depth(page, depth)
        set_slots(page, 0, 1 << depth, NO_PAGE)
    return page_id


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
def slot_of(level, depth, address, place):
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
    """Have some slots name a page; whoever calls logs the directory."""
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
    """Give a directory another number of slots, from the first on; whoever calls fills and logs it."""
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
