"""Entries on one page of an index: appended in order of arrival, found through a directory in key order.

Only holders of the guard read index pages, so nothing here brackets a page's version.
"""

from __future__ import annotations

from gmdb.format.address import NO_PAGE
from gmdb.format.btree import BTREE_NODE, ENTRIES_AT, NODE_AT
from gmdb.format.page import TAIL_SIZE
from gmdb.format.row import SIZE_AT
from gmdb.kernel.page.area import change, page_head
from gmdb.kernel.page.redo import log_bytes, log_counts, log_page
from gmdb.kernel.row import POINTER_AT
from gmdb.kernel.runtime.compiler import numpy as np
from gmdb.kernel.runtime.compiler import routine
from gmdb.kernel.runtime.memory import load_u16, load_u32, move_bytes, records, store_16, store_32

node_of = records(BTREE_NODE)
_NODE_SIZE = BTREE_NODE.size
_COUNT_AT = NODE_AT + BTREE_NODE.offset("slot_count")


@routine
def node_at(page):
    return node_of(page + NODE_AT)


@routine
def init_node(area, page, level):
    """Turn a freshly formatted page into a node without entries."""
    node = node_at(page)
    node.next = NO_PAGE
    node.prev = NO_PAGE
    node.level = level
    page_head(page).free_begin = ENTRIES_AT
    log_bytes(area, page, NODE_AT, _NODE_SIZE)
    log_counts(area, page)


@routine
def set_siblings(area, page, prior, following):
    change(area, page)
    node_at(page).prev = prior
    node_at(page).next = following
    log_bytes(area, page, NODE_AT, 8)


@routine
def slot_at(page, page_size, slot):
    return page + page_size - TAIL_SIZE - 2 * (slot + 1)


@routine
def entry_in(page, page_size, slot):
    """The address of the entry in a slot."""
    return page + load_u16(slot_at(page, page_size, slot))


@routine
def entry_size(entry):
    return load_u16(entry + SIZE_AT)


@routine
def child_of(entry):
    """The page that a branch's entry leads to."""
    return load_u32(entry + POINTER_AT)


@routine
def set_child(area, page, entry, child):
    change(area, page)
    store_32(entry + POINTER_AT, child)
    log_bytes(area, page, entry + POINTER_AT - page, 4)


@routine
def set_word(area, page, entry, word):
    """Change the lock word of an entry."""
    change(area, page)
    store_32(entry, word)
    log_bytes(area, page, entry - page, 4)


@routine
def room_in(page):
    """Bytes between the entries and the directory."""
    return page_head(page).free_end - page_head(page).free_begin


@routine
def used_bytes(page, page_size):
    """Bytes of all entries and their slots."""
    count = node_at(page).slot_count
    total = 2 * count
    for slot in range(count):
        total += entry_size(entry_in(page, page_size, slot))
    return total


@routine
def capacity_of(page_size):
    """Bytes that entries and slots may take."""
    return page_size - ENTRIES_AT - TAIL_SIZE


@routine
def has_room(page, page_size, size):
    """Whether an entry of so many bytes fits, if need be after compaction."""
    return room_in(page) >= size + 2 or used_bytes(page, page_size) + size + 2 <= capacity_of(page_size)


@routine
def _open_slot(page, page_size, slot, offset):
    """Make room in the directory for one more slot, at ``slot``."""
    head, node = page_head(page), node_at(page)
    count = node.slot_count
    move_bytes(page + head.free_end - 2, page + head.free_end, 2 * (count - slot))
    head.free_end -= 2
    node.slot_count = count + 1
    store_16(slot_at(page, page_size, slot), offset)


@routine
def put_entry(page, page_size, slot, entry):
    """``insert_entry`` for a caller that logs the page as a whole, under one number for all that it changes there."""
    size = entry_size(entry)
    if room_in(page) < size + 2:
        compact_node(page, page_size)
    at = page_head(page).free_begin
    move_bytes(page + at, entry, size)
    page_head(page).free_begin = at + size
    _open_slot(page, page_size, slot, at)


@routine
def insert_entry(area, page, page_size, slot, entry):
    """Put an entry on a page that has room for it, as number ``slot`` of the directory."""
    head = page_head(page)
    size = entry_size(entry)
    compacted = room_in(page) < size + 2
    change(area, page)
    put_entry(page, page_size, slot, entry)
    if compacted:
        log_page(area, page)
        return
    log_bytes(area, page, head.free_begin - size, size)
    log_bytes(area, page, head.free_end, 2 * (node_at(page).slot_count - slot))
    log_counts(area, page)
    log_bytes(area, page, _COUNT_AT, 2)


@routine
def remove_entry(area, page, page_size, slot):
    """Take an entry out of the directory; its bytes wait for compaction."""
    head, node = page_head(page), node_at(page)
    change(area, page)
    count = node.slot_count
    entry = entry_in(page, page_size, slot)
    if entry + entry_size(entry) == page + head.free_begin:
        head.free_begin -= entry_size(entry)
    move_bytes(page + head.free_end + 2, page + head.free_end, 2 * (count - 1 - slot))
    head.free_end += 2
    node.slot_count = count - 1
    log_bytes(area, page, head.free_end, 2 * (count - 1 - slot))
    log_counts(area, page)
    log_bytes(area, page, _COUNT_AT, 2)


@routine
def compact_node(page, page_size):
    """Slide the entries together, in the order in which they lie.  The caller logs the page."""
    count = node_at(page).slot_count
    order = np.empty(count, np.int64)
    for slot in range(count):
        order[slot] = load_u16(slot_at(page, page_size, slot)) << 16 | slot
    order.sort()
    to = ENTRIES_AT
    for i in range(count):
        offset, slot = order[i] >> 16, order[i] & 0xFFFF
        size = entry_size(page + offset)
        move_bytes(page + to, page + offset, size)
        store_16(slot_at(page, page_size, slot), to)
        to += size
    page_head(page).free_begin = to


@routine
def append_entry(page, page_size, entry):
    """Put an entry behind all others on a page that has room; the caller logs the page."""
    size = entry_size(entry)
    at = page_head(page).free_begin
    move_bytes(page + at, entry, size)
    page_head(page).free_begin = at + size
    _open_slot(page, page_size, node_at(page).slot_count, at)


@routine
def append_entries(page, page_size, source, first, count):
    """Copy entries of another page behind those of this one, which has room; the caller logs the page."""
    for slot in range(first, first + count):
        append_entry(page, page_size, entry_in(source, page_size, slot))


@routine
def cut_entries(page, page_size, keep):
    """Keep only the first ``keep`` entries; the caller logs the page."""
    node_at(page).slot_count = keep
    page_head(page).free_end = page_size - TAIL_SIZE - 2 * keep
    compact_node(page, page_size)


@routine
def copy_page_entries(page, page_size, source):
    """Copy all entries of a page that lies elsewhere to a node without entries; the caller logs the page."""
    move_bytes(page + ENTRIES_AT, source + ENTRIES_AT, page_size - ENTRIES_AT - TAIL_SIZE)
    page_head(page).free_begin = page_head(source).free_begin
    page_head(page).free_end = page_head(source).free_end
    node_at(page).slot_count = node_at(source).slot_count
