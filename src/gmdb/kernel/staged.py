"""Pages of a staging file on their way into a table: their CRC, and heads of the load that takes them in.

Nothing of a staged page is trusted but its rows, and these only once they are known to be sound: all else in its head
comes from the load's own template.
"""

from __future__ import annotations

from gmdb.format.address import NO_SLOT
from gmdb.format.heap import NODE_AT
from gmdb.format.page import TAIL_SIZE, PageType
from gmdb.format.row import COL_COUNT_AT, UNLOCKED
from gmdb.format.slotted import SLOT_FREED
from gmdb.kernel.append import TEMPLATE_SIZE
from gmdb.kernel.area import page_head
from gmdb.kernel.compiler import long_kernel, routine
from gmdb.kernel.crc32c import crc_of_more_words
from gmdb.kernel.heap_page import heap_node
from gmdb.kernel.memory import load_u16, load_u32, move_bytes
from gmdb.kernel.soundness import heap_is_sound

_DATA_PAGE = int(PageType.DATA)


@long_kernel
def crc_of_more(start, size, crc):
    """The CRC32C of bytes, a multiple of 8, behind others whose CRC is given; 0 if there are none before."""
    return crc_of_more_words(start, size >> 3, crc)


@routine
def _rows_are_new(page, page_size, column_count):
    """Whether every slot has a row of that many columns, which nobody has locked, moved or deleted."""
    slot_count = heap_node(page + NODE_AT).slot_count
    if slot_count == 0 or heap_node(page + NODE_AT).free_slot != NO_SLOT:
        return False
    for slot in range(slot_count):
        offset = load_u16(page + page_size - TAIL_SIZE - 2 * (slot + 1))
        if offset & SLOT_FREED or load_u32(page + offset) != UNLOCKED:
            return False
        if load_u16(page + offset + COL_COUNT_AT) != column_count:
            return False
    return True


@long_kernel
def adopt_pages(pages, page_size, count, template, column_count):
    """Give staged pages the head of a load's new page; answers how many rows they have, or -n if page n is unsound.

    Pages are counted from 1.
    """
    rows = 0
    for i in range(count):
        page = pages + i * page_size
        if page_head(page).page_type != _DATA_PAGE or not heap_is_sound(page, page_size):
            return -(i + 1)
        if not _rows_are_new(page, page_size, column_count):
            return -(i + 1)
        free_begin, free_end = page_head(page).free_begin, page_head(page).free_end
        slot_count = heap_node(page + NODE_AT).slot_count
        move_bytes(page, template, TEMPLATE_SIZE)
        page_head(page).free_begin, page_head(page).free_end = free_begin, free_end
        heap_node(page + NODE_AT).slot_count = slot_count
        rows += slot_count
    return rows
