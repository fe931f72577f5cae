"""Whether a page of an index is right as far as the page alone tells: fast, without words.

The twin of ``check`` in ``format.btree`` and ``format.hash``, and of ``verify.nodes``.
"""

from __future__ import annotations

import numpy as np

from gmdb.format.address import NO_PAGE
from gmdb.format.btree import BTREE_NODE, ENTRIES_AT, NODE_AT
from gmdb.format.hash import LEVEL_BITS
from gmdb.format.page import PAGE_HEAD
from gmdb.format.row import SIZE_AT, UNLOCKED
from gmdb.kernel.compiler import routine
from gmdb.kernel.hash_page import BUCKET, DIRECTORY, pages_of
from gmdb.kernel.keys import POINTER_AT, VALUES_AT
from gmdb.kernel.memory import load_u8, load_u16, load_u32, records
from gmdb.kernel.soundness_nodes import LEVELS_MAX, has_no_more_bits, values_reach
from gmdb.kernel.verify_rows import BROKEN, FLAG_DELETE, GOOD, SUSPECT
from gmdb.kernel.verify_slots import directory_is_right, overlap, slot_value

_page_head = records(PAGE_HEAD)
_node_of = records(BTREE_NODE)
_USED_AT = PAGE_HEAD.offset("hash_tab_head.used_flag")


@routine
def page_node(page):
    return _node_of(page + NODE_AT)


@routine
def _entry_is_right(entry, is_leaf):
    """Of an entry that can be followed: what nobody would stumble over, but is wrong."""
    word = load_u32(entry)
    if not has_no_more_bits(entry):
        return False
    if is_leaf:
        return load_u16(entry + POINTER_AT + 6) == 0xFFFF and word >> 24 & ~FLAG_DELETE == 0
    return load_u32(entry + POINTER_AT + 4) == 0 and word == UNLOCKED


@routine
def node_verdict(page, page_size):
    level = page_node(page).level
    return BROKEN if level >= LEVELS_MAX else _entries_verdict(page, page_size, level == 0)


@routine
def _entries_verdict(page, page_size, is_leaf):
    head, slot_count = _page_head(page), page_node(page).slot_count
    if not directory_is_right(head, page_size, ENTRIES_AT, slot_count):
        return BROKEN
    free_begin, in_order, end, worst = head.free_begin, True, ENTRIES_AT, GOOD
    for slot in range(slot_count):
        offset = slot_value(page, page_size, slot)
        if offset < ENTRIES_AT or offset + VALUES_AT > free_begin:
            return BROKEN
        entry = page + offset
        if not values_reach(entry, page + free_begin):
            return BROKEN
        if not _entry_is_right(entry, is_leaf):
            worst = SUSPECT
        in_order = in_order and offset >= end
        end = offset + load_u16(entry + SIZE_AT)
    if not in_order and overlap(page, page_size, slot_count, SIZE_AT, VALUES_AT):
        return BROKEN
    return worst


# ---- hash indexes


@routine
def entries_on(page):
    """How many entries a page of a hash index says that it has."""
    return page_node(page).slot_count if _page_head(page).hash_page_type == BUCKET else 0


@routine
def _pages_named(page, slot_count):
    """How many different pages the slots of a directory name."""
    ids = np.empty(slot_count, np.int64)
    for slot in range(slot_count):
        ids[slot] = load_u32(page + ENTRIES_AT + 4 * slot)
    ids.sort()
    count, before = 0, NO_PAGE
    for slot in range(slot_count):
        if ids[slot] != before and ids[slot] != NO_PAGE:
            count += 1
        before = ids[slot]
    return count


@routine
def hash_verdict(page, page_size):
    head, node = _page_head(page), page_node(page)
    kind, depth, named = head.hash_page_type, node.level, 0
    if depth > LEVEL_BITS or (kind != DIRECTORY and kind != BUCKET):
        return BROKEN
    verdict = GOOD
    if kind == BUCKET:
        verdict = _entries_verdict(page, page_size, True)
    elif node.slot_count != 1 << depth or head.free_begin != ENTRIES_AT + (4 << depth):
        return BROKEN
    else:
        named = _pages_named(page, node.slot_count)
    is_right = load_u8(page + _USED_AT) == 1 and pages_of(page) == named
    return verdict if is_right and node.next == NO_PAGE and node.prev == NO_PAGE else max(verdict, SUSPECT)
