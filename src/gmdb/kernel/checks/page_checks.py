"""Whether a page is right as far as the page alone tells: fast, without words."""

from __future__ import annotations

from gmdb.format.address import NO_PAGE, NO_SLOT, OFFSET_BITS, PAGES_PER_DEVICE
from gmdb.format.btree import BTREE_NODE, ENTRIES_AT
from gmdb.format.btree import NODE_AT as INDEX_NODE_AT
from gmdb.format.device import DEVICE_HEAD, DEVICE_HEAD_AT, FREE_NODE_AT, SPACE_HEAD, SPACE_HEAD_AT
from gmdb.format.hash import LEVEL_BITS
from gmdb.format.heap import HEAP_NODE, NODE_AT, ROWS_AT
from gmdb.format.layout import Structure
from gmdb.format.lob import LOB_MAX, LOB_NODE
from gmdb.format.lob import NODE_AT as LOB_NODE_AT
from gmdb.format.page import PAGE_HEAD, TAIL_SIZE, PageType, SegmentType
from gmdb.format.row import MIN_OCCUPIED, NO_LOCK, SIZE_AT, UNLOCKED
from gmdb.format.segment import ENTRY_MAP_AT, FREE_MAP_LIST, FURTHER_MAP_AT, LOADING, MAP_ENTRY, MAP_HEAD, NO_LIST
from gmdb.format.slotted import LAST_FREED, SLOT_FREED
from gmdb.format.undo import RECORDS_AT, UNDO_HEAD, UNDO_RECORD
from gmdb.kernel.checks.row_checks import (
    ASK,
    BROKEN,
    ENTRY_TARGET_AT,
    FLAG_DELETE,
    FLAG_ENTRY,
    FLAG_LINK,
    GOOD,
    SUSPECT,
    UNWRITTEN,
    flags_verdict,
    row_verdict,
    table_of,
)
from gmdb.kernel.indexes.hash_page import BUCKET, DIRECTORY, pages_of
from gmdb.kernel.page.soundness import (
    LEVELS_MAX,
    directory_is_right,
    has_no_more_bits,
    lob_is_sound,
    overlap,
    slot_value,
    values_reach,
)
from gmdb.kernel.places import place_of
from gmdb.kernel.row import POINTER_AT, VALUES_AT
from gmdb.kernel.runtime.compiler import kernel, long_kernel, routine
from gmdb.kernel.runtime.compiler import numpy as np
from gmdb.kernel.runtime.crc32c import crc_is_right
from gmdb.kernel.runtime.memory import load_i64, load_u8, load_u16, load_u32, records

# ---- Whether a page of an index is right as far as the page alone tells: fast, without words.
#
# The twin of ``check`` in ``format.btree`` and ``format.hash``, and of ``verify.nodes``.

_page_head = records(PAGE_HEAD)
_node_of = records(BTREE_NODE)
_USED_AT = PAGE_HEAD.offset("hash_tab_head.used_flag")


@routine
def page_node(page):
    return _node_of(page + INDEX_NODE_AT)


@routine
def _entry_is_right(entry, is_leaf):
    """Whether an entry that can be followed is also right in what nothing follows."""
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


# ---- Whether pages read from a file are right in every byte that can be checked page by page: fast, without words.
#
# The twin of ``format.anatomy.check`` and ``verify.rows.row_findings``, which put into words what is wrong with the
# pages that this finds fault with.
#
# Invariants
#  1. Nothing outside of the given pages is read, whatever their bytes are.
#  2. A page that is not BROKEN has the right CRC and place, and its slots, rows and lengths can be followed.

PAGE_FACTS = Structure(
    [
        ("verdict", "u1"),
        ("fl_flag", "u1"),
        ("marked", "u1"),  # 1: it has rows to be noted
        ("page_type", "<u2"),
        ("seg_type", "<u2"),
        ("map_offset", "<u2"),
        ("map_page_id", "<u4"),
        ("obj_id", "<u4"),
        ("ckpt_id", "<u4"),
        ("create_no", "<u4"),
        ("free_begin", "<u2"),
        ("free_end", "<u2"),
        ("slot_count", "<u2"),
        ("rows", "<u2"),  # rows that are not deleted, migrated ones counted once
        ("next", "<u4"),  # of a free page: the next one; of a lob page: its value's first page
        ("load", "<i8"),  # number of the transaction that filled it in bulk; of a lob page: its level and number
    ]
)
"""What later checks need to know of a page."""

ENTRY, LINK, LOCKED = 1, 2, 3
NOTE = Structure(
    [
        ("place", "<i8"),  # of the row
        ("kind", "<i8"),  # ENTRY, LINK or LOCKED
        ("value", "<i8"),  # of an ENTRY, where it leads to, as a place; of a lock, its id
    ]
)
"""A row that must agree with something on another page."""

facts_at = records(PAGE_FACTS)
note_at = records(NOTE)
page_head = records(PAGE_HEAD)
heap_node = records(HEAP_NODE)
undo_head = records(UNDO_HEAD)
device_head = records(DEVICE_HEAD)
space_head = records(SPACE_HEAD)
map_head = records(MAP_HEAD)
map_entry = records(MAP_ENTRY)
lob_node = records(LOB_NODE)
LEVEL_SHIFT = 32  # in the facts of a lob page: its level is above, its number below

_FACTS_SIZE, _NOTE_SIZE = PAGE_FACTS.itemsize, NOTE.itemsize
_RESERVE_AT = PAGE_HEAD.offset("reserve")
_DEVICE_PAGE, _ENTRY_PAGE, _DATA, _MAP_PAGE, _FREE = (
    int(kind) for kind in (PageType.DEVICE_HEAD, PageType.SEGMENT_ENTRY, PageType.DATA, PageType.MAP, PageType.FREE)
)
_HEAP, _SYSTEM, _UNDO, _BTREE, _HASH = (
    int(kind) for kind in (SegmentType.HEAP, SegmentType.SYSTEM, SegmentType.UNDO, SegmentType.BTREE, SegmentType.HASH)
)
_LOB = int(SegmentType.LOB)
_MAP_HEAD_SIZE, _MAP_ENTRY_SIZE = MAP_HEAD.size, MAP_ENTRY.size
_UNDO_SIZE_AT, _UNDO_HEAD_SIZE = UNDO_RECORD.offset("size"), UNDO_RECORD.size


@routine
def _freed_are_chained(page, page_size, slot_count, first, freed):
    """Whether the chain of freed slots has exactly ``freed`` of them."""
    at = first
    for _ in range(freed):
        if at >= slot_count:
            return False
        value = slot_value(page, page_size, at)
        if not value & SLOT_FREED:
            return False
        following = value & LAST_FREED
        at = NO_SLOT if following == LAST_FREED else following
    return at == NO_SLOT


# ---- pages


@routine
def _heap_verdict(page, page_size, schema, fact):
    head, node = page_head(page), heap_node(page + NODE_AT)
    slot_count = node.slot_count
    fact.slot_count = slot_count
    if head.data_begin != NODE_AT or not directory_is_right(head, page_size, ROWS_AT, slot_count):
        return BROKEN
    table = table_of(schema, head.obj_id)
    free_begin, in_order, end = head.free_begin, True, ROWS_AT
    worst, deleted, freed, rows, marked = GOOD, 0, 0, 0, 0
    for slot in range(slot_count):
        offset = slot_value(page, page_size, slot)
        if offset & SLOT_FREED:
            freed += 1
            continue
        if offset < ROWS_AT or offset + MIN_OCCUPIED > free_begin:
            return BROKEN
        row = page + offset
        word = load_u32(row)
        flags = word >> 24
        worst = max(worst, row_verdict(row, page + free_begin, 0 if flags & FLAG_ENTRY else table))
        if worst != BROKEN and flags:
            worst = max(worst, flags_verdict(row, flags))
        if worst == BROKEN:
            return BROKEN
        in_order = in_order and offset >= end
        end = offset + max(load_u16(row + SIZE_AT), MIN_OCCUPIED)
        deleted += flags & FLAG_DELETE
        if not flags & (FLAG_DELETE | FLAG_LINK):
            rows += 1
        if flags & (FLAG_ENTRY | FLAG_LINK) or word & NO_LOCK != NO_LOCK:
            marked = 1
    if not in_order and overlap(page, page_size, slot_count, SIZE_AT, MIN_OCCUPIED):
        return BROKEN
    if not _freed_are_chained(page, page_size, slot_count, node.free_slot, freed):
        return BROKEN
    fact.rows = rows
    fact.marked = marked
    return max(worst, SUSPECT) if deleted != head.del_count else worst


@routine
def _undo_verdict(page, page_size, fact):
    head = page_head(page)
    slot_count = undo_head(page + NODE_AT).slot_count
    fact.slot_count = slot_count
    if not directory_is_right(head, page_size, RECORDS_AT, slot_count):
        return BROKEN
    in_order, end = True, RECORDS_AT
    for slot in range(slot_count):
        offset = slot_value(page, page_size, slot)
        if offset & SLOT_FREED:
            continue
        if offset < RECORDS_AT or offset + _UNDO_HEAD_SIZE > head.free_begin:
            return BROKEN
        size = load_u16(page + offset + _UNDO_SIZE_AT)
        if size < _UNDO_HEAD_SIZE or offset + size > head.free_begin:
            return BROKEN
        in_order = in_order and offset >= end
        end = offset + size
    return BROKEN if not in_order and overlap(page, page_size, slot_count, _UNDO_SIZE_AT, 0) else GOOD


@routine
def _lob_verdict(page, page_size, fact):
    node = lob_node(page + LOB_NODE_AT)
    fact.next = node.first_page
    fact.load = node.level << LEVEL_SHIFT | node.number
    if not lob_is_sound(page, page_size):
        return BROKEN
    is_first = node.first_page == page_head(page).page_id
    return SUSPECT if node.length > LOB_MAX or (node.length and not is_first) else GOOD


@routine
def _map_verdict(page, page_size):
    page_fields = page_head(page)
    at = ENTRY_MAP_AT if page_fields.page_type == _ENTRY_PAGE else FURTHER_MAP_AT
    head = map_head(page + at)
    capacity = (page_size - TAIL_SIZE - at - _MAP_HEAD_SIZE) // _MAP_ENTRY_SIZE
    if page_fields.data_begin != at or head.map_capacity != capacity or head.map_count > capacity:
        return BROKEN
    for number in range(head.map_count):
        entry = map_entry(page + at + _MAP_HEAD_SIZE + number * _MAP_ENTRY_SIZE)
        list_id = entry.list_id
        if list_id > FREE_MAP_LIST and list_id != LOADING and list_id != NO_LIST:
            return SUSPECT
        if (entry.page_id == NO_PAGE) != (list_id == FREE_MAP_LIST):
            return SUSPECT
    return GOOD


@routine
def _device_verdict(page, page_size):
    page_id = page_head(page).page_id
    device, space = device_head(page + DEVICE_HEAD_AT), space_head(page + SPACE_HEAD_AT)
    if page_id & (PAGES_PER_DEVICE - 1) or space.page_size != page_size or space.space_id > page_id >> OFFSET_BITS:
        return BROKEN
    if device.hwm > device.page_count or device.free_page_count >= max(device.hwm, 1):
        return BROKEN
    return GOOD


@routine
def _is_zero(page, page_size):
    for at in range(page, page + page_size, 8):
        if load_i64(at) != 0:
            return False
    return True


@routine
def _body_verdict(page, page_size, schema, fact):
    head = page_head(page)
    page_type, seg_type = head.page_type, head.seg_type
    if page_type == _DATA and (seg_type == _HEAP or seg_type == _SYSTEM):
        return _heap_verdict(page, page_size, schema, fact)
    if page_type == _DATA and seg_type == _UNDO:
        return _undo_verdict(page, page_size, fact)
    if page_type == _DATA and seg_type == _BTREE:
        fact.slot_count = page_node(page).slot_count
        return node_verdict(page, page_size)
    if page_type == _DATA and seg_type == _HASH:
        fact.slot_count = entries_on(page)
        return hash_verdict(page, page_size)
    if page_type == _DATA and seg_type == _LOB:
        return _lob_verdict(page, page_size, fact)
    if page_type == _ENTRY_PAGE or page_type == _MAP_PAGE:
        return _map_verdict(page, page_size)
    if page_type == _FREE:
        fact.next = load_u32(page + FREE_NODE_AT)
        return GOOD
    if page_type == _DEVICE_PAGE:
        return _device_verdict(page, page_size)
    return ASK


@routine
def _page_verdict(page, page_size, page_id, schema, fact):
    head = page_head(page)
    fact.fl_flag = head.fl_flag
    fact.page_type = head.page_type
    fact.seg_type = head.seg_type
    fact.map_offset = head.map_offset
    fact.map_page_id = head.map_page_id
    fact.obj_id = head.obj_id
    fact.ckpt_id = head.ckpt_id
    fact.create_no = head.page_create_no
    fact.free_begin = head.free_begin
    fact.free_end = head.free_end
    fact.load = load_i64(page + _RESERVE_AT)
    if head.page_type == 0 and _is_zero(page, page_size):
        return UNWRITTEN
    if head.page_id != page_id or not crc_is_right(page, page_size):
        return BROKEN
    verdict = _body_verdict(page, page_size, schema, fact)
    return max(verdict, SUSPECT) if load_i64(page) != 0 else verdict


@routine
def _note(notes, count, place, kind, value):
    note = note_at(notes + count * _NOTE_SIZE)
    note.place = place
    note.kind = kind
    note.value = value
    return count + 1


@routine
def _note_rows(page, page_size, page_id, notes, count):
    """Note the rows of a page, which is not BROKEN, that lead elsewhere or are led to."""
    for slot in range(heap_node(page + NODE_AT).slot_count):
        offset = slot_value(page, page_size, slot)
        if offset & SLOT_FREED:
            continue
        row, place = page + offset, place_of(page_id, slot)
        word = load_u32(row)
        if word >> 24 & FLAG_ENTRY:
            target = place_of(load_u32(row + ENTRY_TARGET_AT), load_u16(row + ENTRY_TARGET_AT + 4))
            count = _note(notes, count, place, ENTRY, target)
        elif word >> 24 & FLAG_LINK:
            count = _note(notes, count, place, LINK, 0)
        if word & NO_LOCK != NO_LOCK:
            count = _note(notes, count, place, LOCKED, word & NO_LOCK)
    return count


@long_kernel
def check_pages(pages, count, page_size, first_id, schema, facts, notes):
    """Write the facts of neighbouring pages, and notes of some of their rows; returns how many notes.

    There must be room for two notes for each MIN_OCCUPIED bytes of the pages.
    """
    noted = 0
    for i in range(count):
        page, fact = pages + i * page_size, facts_at(facts + i * _FACTS_SIZE)
        verdict = _page_verdict(page, page_size, first_id + i, schema, fact)
        fact.verdict = verdict
        if fact.marked and verdict <= SUSPECT:
            noted = _note_rows(page, page_size, first_id + i, notes, noted)
    return noted


@kernel
def has_right_crc(page, page_size):
    return 1 if crc_is_right(page, page_size) else 0
