"""Whether a page's offsets can be followed: asked once, when a page is first touched.

The twin of ``format.heap.check``, ``format.segment.check`` and ``format.lob.check``, but for one answer only, and fast.
A page can be unsound with a right CRC only if something other than gmdb wrote it; it must still crash nothing.
"""

from __future__ import annotations

from gmdb.format.address import NO_SLOT
from gmdb.format.heap import HEAP_NODE, NODE_AT, ROWS_AT
from gmdb.format.lob import DATA_AT, LEVEL_MAX, LOB_NODE
from gmdb.format.page import PAGE_HEAD, TAIL_SIZE, PageType
from gmdb.format.row import BITS_AT, COL_COUNT_AT, MAX_COLUMNS, MIN_OCCUPIED, SIZE_AT
from gmdb.format.segment import ENTRY_MAP_AT, FURTHER_MAP_AT, MAP_ENTRY, MAP_HEAD
from gmdb.format.slotted import LAST_FREED, SLOT_FREED
from gmdb.kernel.compiler import routine
from gmdb.kernel.memory import load_u16, load_u32, records

page_head = records(PAGE_HEAD)
heap_node = records(HEAP_NODE)
map_head = records(MAP_HEAD)
lob_node = records(LOB_NODE)
_SEGMENT_ENTRY = int(PageType.SEGMENT_ENTRY)
_ENTRY_SIZE, _MAP_HEAD_SIZE = MAP_ENTRY.size, MAP_HEAD.size
_LOW_BITS = 0x5555_5555


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
def heap_is_sound(page, page_size):
    head, node = page_head(page), heap_node(page + NODE_AT)
    slot_count = node.slot_count
    directory = page_size - TAIL_SIZE - 2 * slot_count
    if head.free_end != directory or head.free_begin < ROWS_AT or head.free_begin > directory:
        return False
    if node.free_slot != NO_SLOT and node.free_slot >= slot_count:
        return False
    end = page + head.free_begin
    for slot in range(slot_count):
        offset = load_u16(page + page_size - TAIL_SIZE - 2 * (slot + 1))
        if offset & SLOT_FREED:
            following = offset & LAST_FREED
            if following != LAST_FREED and following >= slot_count:
                return False
            continue
        row = page + offset
        if offset < ROWS_AT or row + MIN_OCCUPIED > end:
            return False
        row_end = row + load_u16(row + SIZE_AT)
        if row_end > end or values_end(row, row_end) != row_end:
            return False
    return True


@routine
def map_is_sound(page, page_size):
    at = ENTRY_MAP_AT if page_head(page).page_type == _SEGMENT_ENTRY else FURTHER_MAP_AT
    head = map_head(page + at)
    capacity = (page_size - TAIL_SIZE - at - _MAP_HEAD_SIZE) // _ENTRY_SIZE
    return head.map_capacity == capacity and head.map_count <= capacity


@routine
def lob_is_sound(page, page_size):
    free_begin, end = page_head(page).free_begin, page_size - TAIL_SIZE
    level = lob_node(page + NODE_AT).level
    if level > LEVEL_MAX or page_head(page).data_begin != NODE_AT or page_head(page).free_end != end:
        return False
    return DATA_AT <= free_begin <= end and (level == 0 or (free_begin - DATA_AT) & 3 == 0)
