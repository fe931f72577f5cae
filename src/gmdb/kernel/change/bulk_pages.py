"""Arrow columns into heap pages, in a buffer.

Blocks of rows are measured column by column, placed on pages one after the other, then written column by column.
A block that has a value too long, or a row too large, is refused before any of it is placed.
"""

from __future__ import annotations

from gmdb.format.address import NO_SLOT
from gmdb.format.columns import Kind
from gmdb.format.heap import HEAP_NODE, NODE_AT, ROWS_AT, UNDO_IMAGE_MAX
from gmdb.format.layout import Structure
from gmdb.format.page import PAGE_HEAD, TAIL_SIZE, PageType
from gmdb.format.row import BITS_AT, COL_COUNT_AT, SIZE_AT, UNLOCKED
from gmdb.format.slotted import SLOT_FREED
from gmdb.kernel.heap import heap_node, occupied
from gmdb.kernel.page.area import page_head
from gmdb.kernel.page.soundness import heap_is_sound
from gmdb.kernel.row import BLOCK_ROWS, COLUMN_SIZE, arrow_column, copy_short, get_bit
from gmdb.kernel.runtime.compiler import kernel, long_kernel, routine
from gmdb.kernel.runtime.compiler import numpy as np
from gmdb.kernel.runtime.crc32c import crc_of_more_words
from gmdb.kernel.runtime.memory import (
    fill_bytes,
    load_i64,
    load_u16,
    load_u32,
    move_bytes,
    records,
    store_8,
    store_16,
    store_32,
    store_64,
)
from gmdb.kernel.runtime.status import DONE, ROW_TOO_LARGE, TOO_LONG

_WORD, _LONG, _BIT, _DECIMAL_WORD, _DECIMAL_LONG, _DECIMAL_WIDE, _TEXT, _BYTES, _SHORT, _WIDE = (
    int(kind) for kind in Kind
)
_SHORT_SIGN = 1 << 15
TEMPLATE_SIZE = PAGE_HEAD.size + HEAP_NODE.size

FORMATTING = Structure(
    [
        ("pages", "<i8"),  # address of the buffer's pages; those before ``page`` are full
        ("page", "<i8"),  # the page that rows go to now
        ("page_count", "<i8"),
        ("lock_word", "<i8"),  # of every row
        ("template", "<i8"),  # address of the head and node head of a new page
        ("page_size", "<i8"),
        ("reserve", "<i8"),  # bytes that inserts leave free on a page
        ("column_count", "<i8"),
        ("columns", "<i8"),  # address of the columns
        ("error_row", "<i8"),
        ("error_column", "<i8"),
        ("error_size", "<i8"),
    ]
)
formatting_at = records(FORMATTING)


@routine
def _start_page(page, template, page_size):
    fill_bytes(page, 0, page_size)
    move_bytes(page, template, TEMPLATE_SIZE)


@routine
def _is_null(column, at):
    return column.validity != 0 and not get_bit(column.validity, at)


@routine
def _stored_length(column, at):
    """Bytes of a variable value as the row keeps them, without its length; padded, with its NUL."""
    offsets = column.offsets + 4 * at
    length = load_u32(offsets + 4) - load_u32(offsets)
    if length > column.length_max:
        return -1
    if column.padding >= 0:
        length = column.length_max
    return length + 1 if column.kind == _TEXT else length


@routine
def _measure_column(column, first, count, sizes):
    """Add the column's bytes to the rows' sizes; returns DONE, or the number of the row that is refused + 1."""
    kind = column.kind
    if kind == _TEXT or kind == _BYTES:
        for k in range(count):
            at = column.first + first + k
            if not _is_null(column, at):
                length = _stored_length(column, at)
                if length < 0:
                    return k + 1
                sizes[k] += 2 + length
        return DONE
    width = 8 if kind == _LONG or kind == _DECIMAL_LONG else 18 if kind == _DECIMAL_WIDE or kind == _WIDE else 4
    for k in range(count):
        if not _is_null(column, column.first + first + k):
            sizes[k] += width
    return DONE


@routine
def _measure(state, first, count, sizes):
    head_size = BITS_AT + 4 * max((state.column_count + 15) >> 4, 1)
    for k in range(count):
        sizes[k] = head_size
    for number in range(state.column_count):
        refused = _measure_column(arrow_column(state.columns + number * COLUMN_SIZE), first, count, sizes)
        if refused:
            state.error_row = first + refused - 1
            state.error_column = number
            return TOO_LONG
    row_max = min(state.page_size - ROWS_AT - TAIL_SIZE - 2, UNDO_IMAGE_MAX)
    for k in range(count):
        if sizes[k] > row_max:
            state.error_row = first + k
            state.error_size = sizes[k]
            return ROW_TOO_LARGE
    return DONE


@routine
def _place(state, count, sizes, rows):
    """Give each row a slot and a place; returns how many found one before the buffer was full."""
    page = state.pages + state.page * state.page_size
    head, node = page_head(page), heap_node(page + NODE_AT)
    free_begin, free_end, slot_count = head.free_begin, head.free_end, node.slot_count
    head_words = max((state.column_count + 15) >> 4, 1)
    placed = 0
    while placed < count:
        need = occupied(sizes[placed])
        if slot_count and free_end - free_begin - need - 2 < state.reserve:
            head.free_begin, head.free_end, node.slot_count = free_begin, free_end, slot_count
            if state.page + 1 == state.page_count:
                return placed
            state.page += 1
            page = state.pages + state.page * state.page_size
            _start_page(page, state.template, state.page_size)
            head, node = page_head(page), heap_node(page + NODE_AT)
            free_begin, free_end, slot_count = head.free_begin, head.free_end, 0
        row = page + free_begin
        rows[placed] = row
        store_32(row, state.lock_word)
        store_16(row + SIZE_AT, sizes[placed])
        store_16(row + COL_COUNT_AT, state.column_count)
        for word in range(head_words):
            store_32(row + BITS_AT + 4 * word, 0)
        free_end -= 2
        store_16(page + free_end, free_begin)
        free_begin += need
        slot_count += 1
        placed += 1
    head.free_begin, head.free_end, node.slot_count = free_begin, free_end, slot_count
    return placed


@routine
def _write_variable(column, at, to):
    """A variable value behind its length; returns its bytes in the row."""
    stored = _stored_length(column, at)
    start = load_u32(column.offsets + 4 * at)
    length = load_u32(column.offsets + 4 * at + 4) - start
    store_16(to, stored)
    copy_short(to + 2, column.values + start, length)
    if column.padding >= 0:
        fill_bytes(to + 2 + length, column.padding, column.length_max - length)
    if column.kind == _TEXT:
        store_8(to + 1 + stored, 0)
    return 2 + stored


@routine
def _write_column(column, number, first, rows, cursors, count):
    kind = column.kind
    code = 3
    if kind == _WORD or kind == _SHORT or kind == _BIT or kind == _DECIMAL_WORD:
        code = 1
    elif kind == _LONG or kind == _DECIMAL_LONG:
        code = 2
    bits_at, bits = BITS_AT + 4 * (number >> 4), code << 2 * (number & 15)
    for k in range(count):
        at = column.first + first + k
        if _is_null(column, at):
            continue
        store_32(rows[k] + bits_at, load_u32(rows[k] + bits_at) | bits)
        to = cursors[k]
        if kind == _WORD:
            store_32(to, load_u32(column.values + 4 * at))
            cursors[k] = to + 4
        elif kind == _LONG:
            store_64(to, load_i64(column.values + 8 * at))
            cursors[k] = to + 8
        elif kind == _SHORT:
            store_32(to, (load_u16(column.values + 2 * at) ^ _SHORT_SIGN) - _SHORT_SIGN)
            cursors[k] = to + 4
        elif kind == _BIT:
            store_32(to, get_bit(column.values, at))
            cursors[k] = to + 4
        elif kind == _DECIMAL_WORD:
            store_32(to, load_u32(column.values + 16 * at))
            cursors[k] = to + 4
        elif kind == _DECIMAL_LONG:
            store_64(to, load_i64(column.values + 16 * at))
            cursors[k] = to + 8
        elif kind == _DECIMAL_WIDE or kind == _WIDE:
            store_16(to, 16)
            store_64(to + 2, load_i64(column.values + 16 * at))
            store_64(to + 10, load_i64(column.values + 16 * at + 8))
            cursors[k] = to + 18
        else:
            cursors[k] = to + _write_variable(column, at, to)


@routine
def fill_pages(state, first, count):
    """Append rows ``first`` … ``first + count`` of the columns to the pages.

    Returns how many rows found room, or a status with the row and column that it is about.
    """
    sizes, rows, cursors = (
        np.empty(BLOCK_ROWS, np.int64),
        np.empty(BLOCK_ROWS, np.int64),
        np.empty(BLOCK_ROWS, np.int64),
    )
    head_size = BITS_AT + 4 * max((state.column_count + 15) >> 4, 1)
    done = 0
    while done < count:  # ends: a block of which not all rows are placed is the last
        block = min(count - done, BLOCK_ROWS)
        status = _measure(state, first + done, block, sizes)
        if status < 0:
            return status
        placed = _place(state, block, sizes, rows)
        for k in range(placed):
            cursors[k] = rows[k] + head_size
        for number in range(state.column_count):
            column = arrow_column(state.columns + number * COLUMN_SIZE)
            _write_column(column, number, first + done, rows, cursors, placed)
        done += placed
        if placed < block:
            return done
    return done


@long_kernel
def format_rows(formatting, first, count):
    """``fill_pages`` for a buffer that only the caller knows."""
    return fill_pages(formatting_at(formatting), first, count)


@kernel
def start_pages(formatting):
    """Make the buffer's first page a new one."""
    state = formatting_at(formatting)
    _start_page(state.pages, state.template, state.page_size)
    return DONE


# ---- Pages of a staging file on their way into a table: their CRC, and heads of the load that takes them in.
#
# Nothing of a staged page is trusted but its rows, and these only once they are known to be sound: all else in its head
# comes from the load's own template.

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
    """Give staged pages the head of a load's new page; returns how many rows they have, or -n if page n is unsound.

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
