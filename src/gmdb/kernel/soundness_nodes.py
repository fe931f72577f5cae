"""Whether the offsets of an index's page can be followed: see soundness.py.

What is in its entries is the index's, which the page alone does not tell: see ``keys.has_shape``.
"""

from __future__ import annotations

from gmdb.format.btree import BTREE_NODE, ENTRIES_AT, KEY_BYTES_MAX, NODE_AT
from gmdb.format.hash import LEVEL_BITS, HashPageType
from gmdb.format.page import PAGE_HEAD
from gmdb.format.row import BITS_AT, COL_COUNT_AT, COLUMNS_PER_WORD, SIZE_AT
from gmdb.kernel.compiler import routine
from gmdb.kernel.keys import VALUES_AT
from gmdb.kernel.memory import load_u16, load_u32, records
from gmdb.kernel.verify_slots import directory_is_right, overlap, slot_value

_page_head = records(PAGE_HEAD)
_node_of = records(BTREE_NODE)
_DIRECTORY, _BUCKET = int(HashPageType.DIRECTORY), int(HashPageType.BUCKET)
ENTRY_MAX = VALUES_AT + KEY_BYTES_MAX + 8  # a row id or an address may follow the key
LEVELS_MAX = 16
_VARIABLE = 3


@routine
def values_reach(entry, end):
    """Whether an entry's size, number of columns and lengths agree, and it ends by ``end``."""
    size, count = load_u16(entry + SIZE_AT), load_u16(entry + COL_COUNT_AT)
    at, entry_end, bits = entry + VALUES_AT, entry + size, load_u32(entry + BITS_AT)
    if size < VALUES_AT or entry_end > end or not 1 <= count <= COLUMNS_PER_WORD:
        return False
    for n in range(count):
        code = bits >> 2 * n & 3
        length = 4 * code
        if code == _VARIABLE:
            if at + 2 > entry_end:
                return False
            length = 2 + load_u16(at)
        at += length
        if at > entry_end:
            return False
    return at == entry_end


@routine
def has_no_more_bits(entry):
    """Whether an entry has bits for its own columns only."""
    return load_u32(entry + BITS_AT) >> 2 * load_u16(entry + COL_COUNT_AT) == 0


@routine
def entry_is_sound(entry, end):
    """Whether an entry can be followed, and is no longer than those that kernels have room for."""
    return load_u16(entry + SIZE_AT) <= ENTRY_MAX and values_reach(entry, end) and has_no_more_bits(entry)


@routine
def _entries_are_sound(page, page_size):
    head, slot_count = _page_head(page), _node_of(page + NODE_AT).slot_count
    if not directory_is_right(head, page_size, ENTRIES_AT, slot_count):
        return False
    end, in_order, last = page + head.free_begin, True, ENTRIES_AT
    for slot in range(slot_count):
        offset = slot_value(page, page_size, slot)
        if offset < ENTRIES_AT or page + offset + VALUES_AT > end or not entry_is_sound(page + offset, end):
            return False
        in_order = in_order and offset >= last
        last = offset + load_u16(page + offset + SIZE_AT)
    return in_order or not overlap(page, page_size, slot_count, SIZE_AT, VALUES_AT)


@routine
def node_is_sound(page, page_size):
    """Of a B-tree; a branch that leads nowhere is one of an index that is being built."""
    return _node_of(page + NODE_AT).level < LEVELS_MAX and _entries_are_sound(page, page_size)


@routine
def hash_is_sound(page, page_size):
    head, node = _page_head(page), _node_of(page + NODE_AT)
    kind, depth = head.hash_page_type, node.level
    if depth > LEVEL_BITS:
        return False
    if kind == _DIRECTORY:
        return node.slot_count == 1 << depth and head.free_begin == ENTRIES_AT + (4 << depth)
    return kind == _BUCKET and _entries_are_sound(page, page_size)
