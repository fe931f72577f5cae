"""Whether a page's offsets can be followed: asked once, when a page is first touched.

The twin of ``check`` in the modules of ``format``, but it is fast, and says only yes or no.  A page can be unsound with
a right CRC only if something other than gmdb wrote it; it must still crash nothing.  So all that kernels follow without
a check of their own is checked here: slots, sizes, lengths and counts; that no two rows share a byte, for compaction
would write past the end of the page; that the chain of freed slots ends.

Not here: what one page says of another.  A kernel that follows such a link checks where it leads.
"""

from __future__ import annotations

from gmdb.format.address import NO_SLOT
from gmdb.format.btree import BTREE_NODE, ENTRIES_AT, INDEX_AT, INDEX_HEAD, KEY_BYTES_MAX, KEY_COLUMNS_MAX
from gmdb.format.btree import NODE_AT as INDEX_NODE_AT
from gmdb.format.device import DEVICE_HEAD, DEVICE_HEAD_AT, SPACE_HEAD, SPACE_HEAD_AT
from gmdb.format.hash import LEVEL_BITS, HashPageType
from gmdb.format.heap import HEAP_NODE, NODE_AT, ROWS_AT, UNDO_IMAGE_MAX
from gmdb.format.lob import DATA_AT, LEVEL_MAX, LOB_NODE
from gmdb.format.page import PAGE_HEAD, TAIL_SIZE, PageType, SegmentType
from gmdb.format.row import (
    BITS_AT,
    COL_COUNT_AT,
    COLUMNS_PER_WORD,
    MAX_COLUMNS,
    MIN_OCCUPIED,
    NO_LOCK,
    ROW_HEAD,
    SIZE_AT,
)
from gmdb.format.segment import ENTRY_MAP_AT, FREE_MAP_LIST, FURTHER_MAP_AT, LOADING, MAP_ENTRY, MAP_HEAD, NO_LIST
from gmdb.format.slotted import LAST_FREED, SLOT_FREED
from gmdb.format.undo import NODE_AT as UNDO_NODE_AT
from gmdb.format.undo import OWNER_SIZE, RECORDS_AT, UNDO_HEAD, UNDO_RECORD, UndoOperation
from gmdb.kernel.row import VALUES_AT
from gmdb.kernel.runtime.compiler import numpy as np
from gmdb.kernel.runtime.compiler import routine
from gmdb.kernel.runtime.memory import load_u8, load_u16, load_u32, records

# ---- What the checks of all pages with a slot directory have in common.


@routine
def slot_value(page, page_size, slot):
    return load_u16(page + page_size - TAIL_SIZE - 2 * (slot + 1))


@routine
def overlap(page, page_size, slot_count, size_at, occupied_min):
    """Whether two entries share a byte; for pages on which they do not lie in slot order."""
    order = np.empty(slot_count, np.int64)
    count = 0
    for slot in range(slot_count):
        offset = slot_value(page, page_size, slot)
        if not offset & SLOT_FREED:
            order[count] = offset << 16 | max(load_u16(page + offset + size_at), occupied_min)
            count += 1
    order[:count].sort()
    end = 0
    for i in range(count):
        if order[i] >> 16 < end:
            return True
        end = (order[i] >> 16) + (order[i] & 0xFFFF)
    return False


@routine
def directory_is_right(head, page_size, entries_at, slot_count):
    directory = page_size - TAIL_SIZE - 2 * slot_count
    return head.free_end == directory and entries_at <= head.free_begin <= directory


# ---- Where the values of a row end, by its size bits and lengths: for checks of bytes that may be nonsense.

_LOW_BITS = 0x5555_5555
_ROW_HEAD_SIZE = ROW_HEAD.size


@routine
def bit_count(word):
    """How many bits of a 32-bit word are set."""
    word = word - (word >> 1 & 0x5555_5555)
    word = (word & 0x3333_3333) + (word >> 2 & 0x3333_3333)
    word = (word + (word >> 4)) & 0x0F0F_0F0F
    return (word * 0x0101_0101 & 0xFFFF_FFFF) >> 24


@routine
def values_end(row, end):
    """Where the values of the row end, if its size bits and lengths say so before ``end``; 0 if they do not."""
    column_count = load_u16(row + COL_COUNT_AT)
    words = max((column_count + 15) >> 4, 1)
    at = row + BITS_AT + 4 * words
    if column_count > MAX_COLUMNS or at > end:
        return 0
    for word in range(words):
        bits = load_u32(row + BITS_AT + 4 * word)
        low, high = bits & _LOW_BITS, bits >> 1 & _LOW_BITS
        if not low & high:
            at += 4 * bit_count(low) + 8 * bit_count(high)
            continue
        while bits:
            code = bits & 3
            bits >>= 2
            if code == 3:
                if at + 2 > end:
                    return 0
                at += 2 + load_u16(at)
            else:
                at += 4 * code
    return at if at <= end else 0


@routine
def image_end(image, end, is_patch):
    """Where a row, or a patch with the numbers of its columns, ends; 0 if that is not by ``end``."""
    if image + _ROW_HEAD_SIZE > end:
        return 0
    size, count = load_u16(image + SIZE_AT), load_u16(image + COL_COUNT_AT)
    at = image + size
    if at > end or values_end(image, at) != at:
        return 0
    if not is_patch:
        return at
    if at + 2 * count > end:
        return 0
    for n in range(count):
        if load_u16(at + 2 * n) >= MAX_COLUMNS:
            return 0
    return at + 2 * count


# ---- Whether the offsets of an index's page can be followed.
#
# What is in its entries is the index's, which the page alone does not tell: see ``row.has_shape``.

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
    head, slot_count = _page_head(page), _node_of(page + INDEX_NODE_AT).slot_count
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
    return _node_of(page + INDEX_NODE_AT).level < LEVELS_MAX and _entries_are_sound(page, page_size)


@routine
def hash_is_sound(page, page_size):
    head, node = _page_head(page), _node_of(page + INDEX_NODE_AT)
    kind, depth = head.hash_page_type, node.level
    if depth > LEVEL_BITS:
        return False
    if kind == _DIRECTORY:
        return node.slot_count == 1 << depth and head.free_begin == ENTRIES_AT + (4 << depth)
    return kind == _BUCKET and _entries_are_sound(page, page_size)


# ---- Whether the records of an undo page can be followed.

_undo_head = records(UNDO_HEAD)
_RECORD_SIZE = UNDO_RECORD.size
_SIZE_AT, _OPERATION_AT = UNDO_RECORD.offset("size"), UNDO_RECORD.offset("op_type")
_LOCK_AT, _SLOT_AT = UNDO_RECORD.offset("lock_id"), UNDO_RECORD.offset("row_id.slot_id")
_INSERT, _UPDATE, _UPDATE_INC, _DELETE, _LOCK, _OWNER, _NONE = (
    int(operation)
    for operation in (
        UndoOperation.HEAP_INSERT,
        UndoOperation.HEAP_UPDATE,
        UndoOperation.HEAP_UPDATE_INC,
        UndoOperation.HEAP_DELETE,
        UndoOperation.HEAP_LOCK,
        UndoOperation.OWNER,
        UndoOperation.NONE,
    )
)
_FIRST_OF_ENTRY, _LAST_OF_ENTRY = int(UndoOperation.BTREE_INSERT), int(UndoOperation.HASH_DELETE_SHADOW)
_LAST_OPERATION = int(UndoOperation.OWNER)
_SLOTS_BODY, _PAGES_BODY, _WORD, _LINK = 4, 12, 4, 8


@routine
def _body_is_sound(record, end):
    operation, body = load_u8(record + _OPERATION_AT), record + _RECORD_SIZE
    if operation == _NONE:
        return True
    if operation > _LAST_OPERATION:
        return False
    if operation == _INSERT:
        return body + (_PAGES_BODY if load_u16(record + _SLOT_AT) == NO_SLOT else _SLOTS_BODY) <= end
    if _FIRST_OF_ENTRY <= operation <= _LAST_OF_ENTRY:
        return entry_is_sound(body, end) and body + load_u16(body + SIZE_AT) == end
    if operation == _OWNER:
        return record + OWNER_SIZE <= end
    if operation != _UPDATE and operation != _UPDATE_INC and operation != _DELETE and operation != _LOCK:
        return True  # of a segment or a large object: no body
    if body + _WORD > end:
        return False
    if load_u32(body) == load_u32(record + _LOCK_AT):  # it ends in where the change before is
        end -= _LINK
    if operation == _DELETE or operation == _LOCK:
        return body + _WORD <= end
    return image_end(body, end, operation == _UPDATE_INC) > 0


@routine
def undo_is_sound(page, page_size):
    head, slot_count = _page_head(page), _undo_head(page + UNDO_NODE_AT).slot_count
    if not directory_is_right(head, page_size, RECORDS_AT, slot_count):
        return False
    end, in_order, last = page + head.free_begin, True, RECORDS_AT
    for slot in range(slot_count):
        offset = slot_value(page, page_size, slot)
        record = page + offset
        if offset < RECORDS_AT or record + _RECORD_SIZE > end:
            return False
        size = load_u16(record + _SIZE_AT)
        if load_u32(record + _LOCK_AT) > NO_LOCK:
            return False
        if size < _RECORD_SIZE or record + size > end or not _body_is_sound(record, record + size):
            return False
        in_order = in_order and offset >= last
        last = offset + size
    return in_order or not overlap(page, page_size, slot_count, _SIZE_AT, 0)


# ---- Whether a page's offsets can be followed.

page_head = records(PAGE_HEAD)
heap_node = records(HEAP_NODE)
map_head = records(MAP_HEAD)
lob_node = records(LOB_NODE)
map_entry = records(MAP_ENTRY)
device_head = records(DEVICE_HEAD)
space_head = records(SPACE_HEAD)
index_head = records(INDEX_HEAD)
_SEGMENT_ENTRY, _MAP, _DATA = int(PageType.SEGMENT_ENTRY), int(PageType.MAP), int(PageType.DATA)
_DEVICE, _FREE, _TRANSACTIONS = int(PageType.DEVICE_HEAD), int(PageType.FREE), int(PageType.TRANSACTIONS)
_HEAP, _SYSTEM, _LOB = int(SegmentType.HEAP), int(SegmentType.SYSTEM), int(SegmentType.LOB)
_UNDO, _BTREE, _HASH = int(SegmentType.UNDO), int(SegmentType.BTREE), int(SegmentType.HASH)
_ENTRY_SIZE, _MAP_HEAD_SIZE = MAP_ENTRY.size, MAP_HEAD.size


@routine
def _freed_slots_end(page, page_size, slot_count, first):
    """Whether the chain of freed slots leads through freed slots only, and to an end."""
    at = first
    for _ in range(slot_count + 1):
        if at == NO_SLOT:
            return True
        if at >= slot_count:
            return False
        value = slot_value(page, page_size, at)
        if not value & SLOT_FREED:
            return False
        following = value & LAST_FREED
        at = NO_SLOT if following == LAST_FREED else following
    return False


@routine
def heap_is_sound(page, page_size):
    head, node = page_head(page), heap_node(page + NODE_AT)
    slot_count = node.slot_count
    if not directory_is_right(head, page_size, ROWS_AT, slot_count):
        return False
    end, in_order, last = page + head.free_begin, True, ROWS_AT
    for slot in range(slot_count):
        offset = slot_value(page, page_size, slot)
        if offset & SLOT_FREED:
            continue
        row = page + offset
        if offset < ROWS_AT or row + MIN_OCCUPIED > end:
            return False
        size = load_u16(row + SIZE_AT)
        if row + size > end or size > UNDO_IMAGE_MAX or values_end(row, row + size) != row + size:
            return False
        in_order = in_order and offset >= last
        last = offset + max(size, MIN_OCCUPIED)
    if not in_order and overlap(page, page_size, slot_count, SIZE_AT, MIN_OCCUPIED):
        return False
    return node.free_slot == NO_SLOT or _freed_slots_end(page, page_size, slot_count, node.free_slot)


@routine
def map_is_sound(page, page_size):
    is_entry = page_head(page).page_type == _SEGMENT_ENTRY
    at = ENTRY_MAP_AT if is_entry else FURTHER_MAP_AT
    head = map_head(page + at)
    capacity = (page_size - TAIL_SIZE - at - _MAP_HEAD_SIZE) // _ENTRY_SIZE
    if head.map_capacity != capacity or head.map_count > capacity:
        return False
    for number in range(head.map_count):
        list_id = map_entry(page + at + _MAP_HEAD_SIZE + number * _ENTRY_SIZE).list_id
        if list_id > FREE_MAP_LIST and list_id != LOADING and list_id != NO_LIST:
            return False
    seg_type = page_head(page).seg_type
    is_index = is_entry and (seg_type == _BTREE or seg_type == _HASH)
    return not is_index or index_head(page + INDEX_AT).column_count <= KEY_COLUMNS_MAX


@routine
def device_is_sound(page, page_size):
    """Of page 0; how many pages the file has was checked when the device was opened."""
    device, space = device_head(page + DEVICE_HEAD_AT), space_head(page + SPACE_HEAD_AT)
    return 0 < device.hwm <= device.page_count and space.page_size == page_size


@routine
def lob_is_sound(page, page_size):
    free_begin, end = page_head(page).free_begin, page_size - TAIL_SIZE
    level = lob_node(page + NODE_AT).level
    if level > LEVEL_MAX or page_head(page).data_begin != NODE_AT or page_head(page).free_end != end:
        return False
    return DATA_AT <= free_begin <= end and (level == 0 or (free_begin - DATA_AT) & 3 == 0)


@routine
def structure_is_sound(page, page_size):
    """Whether a page's offsets can be followed, whatever its CRC says."""
    head = page_head(page)
    page_type, seg_type = head.page_type, head.seg_type
    if head.free_begin > head.free_end or head.free_end > page_size - TAIL_SIZE:
        return False
    if page_type == _DATA:
        if seg_type == _HEAP or seg_type == _SYSTEM:
            return heap_is_sound(page, page_size)
        if seg_type == _BTREE:
            return node_is_sound(page, page_size)
        if seg_type == _HASH:
            return hash_is_sound(page, page_size)
        if seg_type == _UNDO:
            return undo_is_sound(page, page_size)
        return seg_type == _LOB and lob_is_sound(page, page_size)
    if page_type == _MAP or page_type == _SEGMENT_ENTRY:
        return map_is_sound(page, page_size)
    if page_type == _DEVICE:
        return device_is_sound(page, page_size)
    return page_type == _FREE or page_type == _TRANSACTIONS
