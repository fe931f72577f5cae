"""Whether a page's offsets can be followed: asked once, when a page is first touched.

The twin of ``check`` in the modules of ``format``, but for one answer only, and fast.  A page can be unsound with a
right CRC only if something other than gmdb wrote it; it must still crash nothing.  So all that kernels follow without
looking is looked at here: slots, sizes, lengths and counts; that no two rows share a byte, for whoever slides them
together would write over the end of the page; that the chain of freed slots ends.

Not here: what one page says of another.  Whoever goes there checks that it is what it should be.
"""

from __future__ import annotations

from gmdb.format.address import NO_SLOT
from gmdb.format.btree import INDEX_AT, INDEX_HEAD, KEY_COLUMNS_MAX
from gmdb.format.device import DEVICE_HEAD, DEVICE_HEAD_AT, SPACE_HEAD, SPACE_HEAD_AT
from gmdb.format.heap import HEAP_NODE, NODE_AT, ROWS_AT, UNDO_IMAGE_MAX
from gmdb.format.lob import DATA_AT, LEVEL_MAX, LOB_NODE
from gmdb.format.page import PAGE_HEAD, TAIL_SIZE, PageType, SegmentType
from gmdb.format.row import MIN_OCCUPIED, SIZE_AT
from gmdb.format.segment import (
    ENTRY_MAP_AT,
    FREE_MAP_LIST,
    FURTHER_MAP_AT,
    LOADING,
    MAP_ENTRY,
    MAP_HEAD,
    NO_LIST,
)
from gmdb.format.slotted import LAST_FREED, SLOT_FREED
from gmdb.kernel.compiler import routine
from gmdb.kernel.memory import load_u16, records
from gmdb.kernel.soundness_nodes import hash_is_sound, node_is_sound
from gmdb.kernel.soundness_rows import values_end
from gmdb.kernel.soundness_undo import undo_is_sound
from gmdb.kernel.verify_slots import directory_is_right, overlap, slot_value

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
    """Of page 0; how many pages there really are, whoever opened the device knows."""
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
