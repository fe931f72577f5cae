"""Heap pages into Arrow columns.

Blocks of rows are gathered from pages, then decoded column by column: ``rows`` holds where each row of the block
starts, ``cursors`` where its next value does.
"""

from __future__ import annotations

import numpy as np

from gmdb.format.columns import Kind
from gmdb.format.heap import NODE_AT
from gmdb.format.row import BITS_AT, COL_COUNT_AT, RowFlag
from gmdb.kernel.area import address_of, damaged, page_head, page_size_of
from gmdb.kernel.columns import (
    BLOCK_ROWS,
    COLUMN_SIZE,
    arrow_column,
    clear_bit,
    copy_short,
    set_bit,
)
from gmdb.kernel.compiler import kernel, routine
from gmdb.kernel.heap import flags_of, heap_node, linked_row, row_in_slot, touch_heap
from gmdb.kernel.memory import load_i32, load_i64, load_u16, load_u32, store_32, store_64
from gmdb.kernel.status import NO_ROOM

_DELETE, _ENTRY, _LINK = int(RowFlag.DELETE), int(RowFlag.ENTRY), int(RowFlag.LINK)
_WORD, _LONG, _BIT, _DECIMAL_WORD, _DECIMAL_LONG, _DECIMAL_WIDE, _TEXT, _BYTES = (int(kind) for kind in Kind)


@kernel
def measure_pages(area, ids, count, sizes):
    """Check ``count`` pages and add up their slots and row bytes: upper bounds for what a scan gives.

    Writes the two sums (int64) to ``sizes``; answers a status.
    """
    slots, row_bytes = 0, 0
    for i in range(count):
        page = touch_heap(area, load_u32(ids + 4 * i))
        if page < 0:
            return page
        slots += heap_node(page + NODE_AT).slot_count
        row_bytes += page_head(page).free_begin
    store_64(sizes, slots)
    store_64(sizes + 8, row_bytes)
    return 0


@routine
def _gather(area, page_id, first_slot, rows, count):
    """Add the rows of a page from a slot on until the block is full; answers (rows, next slot or -1, status)."""
    page = touch_heap(area, page_id)
    if page < 0:
        return count, -1, page
    page_size = page_size_of(area, page_id)
    slot_count = heap_node(page + NODE_AT).slot_count
    for slot in range(first_slot, slot_count):
        if count == BLOCK_ROWS:
            return count, slot, 0
        row = row_in_slot(page, page_size, slot)
        if row < 0:
            continue
        flags = flags_of(row)
        if flags:
            if flags & (_DELETE | _LINK):
                continue
            if flags & _ENTRY:
                row = linked_row(area, row)
                if row < 0:
                    return count, -1, row
        rows[count] = row
        count += 1
    return count, -1, 0


@routine
def _start_cursors(rows, cursors, count, column_count):
    """Point each cursor at its row's first value; answers whether a row has fewer columns than the table."""
    short = False
    for k in range(count):
        columns = load_u16(rows[k] + COL_COUNT_AT)
        short |= columns < column_count
        cursors[k] = rows[k] + BITS_AT + 4 * max((columns + 15) >> 4, 1)
    return short


@routine
def _size_code(row, number, short):
    if short and number >= load_u16(row + COL_COUNT_AT):
        return 0
    return load_u32(row + BITS_AT + 4 * (number >> 4)) >> 2 * (number & 15) & 3


@routine
def _null(column, at):
    column.nulls += 1
    clear_bit(column.validity, at)


@routine
def _skip(rows, cursors, count, number, short):
    for k in range(count):
        code = _size_code(rows[k], number, short)
        if code == 3:
            cursors[k] += 2 + load_u16(cursors[k])
        else:
            cursors[k] += 4 * code
    return count


# Each decoder answers how many rows it did: fewer than it should if a row's size code is not its column's.


@routine
def _decode_words(column, rows, cursors, count, number, short, done):
    values = column.values + 4 * done
    for k in range(count):
        code = _size_code(rows[k], number, short)
        if code == 1:
            store_32(values + 4 * k, load_u32(cursors[k]))
            cursors[k] += 4
        elif code == 0:
            store_32(values + 4 * k, 0)
            _null(column, done + k)
        else:
            return k
    return count


@routine
def _decode_longs(column, rows, cursors, count, number, short, done):
    values = column.values + 8 * done
    for k in range(count):
        code = _size_code(rows[k], number, short)
        if code == 2:
            store_64(values + 8 * k, load_i64(cursors[k]))
            cursors[k] += 8
        elif code == 0:
            store_64(values + 8 * k, 0)
            _null(column, done + k)
        else:
            return k
    return count


@routine
def _decode_bits(column, rows, cursors, count, number, short, done):
    for k in range(count):
        code = _size_code(rows[k], number, short)
        if code == 1:
            if load_u32(cursors[k]):
                set_bit(column.values, done + k)
            cursors[k] += 4
        elif code == 0:
            _null(column, done + k)
        else:
            return k
    return count


@routine
def _decode_decimals(column, rows, cursors, count, number, short, done):
    """Any decimal into Arrow's 16 bytes."""
    for k in range(count):
        code = _size_code(rows[k], number, short)
        at = cursors[k]
        low, high = 0, 0
        if code == 0:
            _null(column, done + k)
        elif code == 1 and column.kind == _DECIMAL_WORD:
            low = load_i32(at)
            high = low >> 63
            cursors[k] = at + 4
        elif code == 2 and column.kind == _DECIMAL_LONG:
            low = load_i64(at)
            high = low >> 63
            cursors[k] = at + 8
        elif code == 3 and column.kind == _DECIMAL_WIDE and load_u16(at) == 16:
            low, high = load_i64(at + 2), load_i64(at + 10)
            cursors[k] = at + 18
        else:
            return k
        store_64(column.values + 16 * (done + k), low)
        store_64(column.values + 16 * (done + k) + 8, high)
    return count


@routine
def _decode_variable(column, rows, cursors, count, number, short, done):
    """Texts, without the NUL that ends them, and bytes."""
    ending = 1 if column.kind == _TEXT else 0
    offsets, values = column.offsets + 4 * (done + 1), column.values
    used = column.used
    for k in range(count):
        code = _size_code(rows[k], number, short)
        if code == 3:
            at = cursors[k]
            stored = load_u16(at)
            length = stored - ending
            if length < 0:
                return k
            if used + length > column.capacity:
                return NO_ROOM
            copy_short(values + used, at + 2, length)
            used += length
            cursors[k] = at + 2 + stored
        elif code == 0:
            _null(column, done + k)
        else:
            return k
        store_32(offsets + 4 * k, used)
    column.used = used
    return count


@routine
def _decode_column(column, rows, cursors, count, number, short, done):
    kind = column.kind
    if not column.wanted:
        return _skip(rows, cursors, count, number, short)
    if kind == _WORD:
        return _decode_words(column, rows, cursors, count, number, short, done)
    if kind == _LONG:
        return _decode_longs(column, rows, cursors, count, number, short, done)
    if kind == _BIT:
        return _decode_bits(column, rows, cursors, count, number, short, done)
    if kind == _TEXT or kind == _BYTES:
        return _decode_variable(column, rows, cursors, count, number, short, done)
    return _decode_decimals(column, rows, cursors, count, number, short, done)


@routine
def _blame(area, ids, first, last, row):
    """Answer DAMAGED for the page that a row lies on; for a migrated row, for the block's first page."""
    blamed = load_u32(ids + 4 * first)
    for i in range(first, last):
        page_id = load_u32(ids + 4 * i)
        page = address_of(area, page_id)
        if page <= row < page + page_size_of(area, page_id):
            blamed = page_id
    return damaged(area, blamed)


@kernel
def scan_pages(area, ids, count, columns, column_count):
    """Decode the rows of ``count`` pages into the columns' buffers; answers how many rows there were.

    ``columns`` describes the table's columns up to the last that is wanted.  The buffers have room for a value
    in each slot that ``measure_pages`` counted; validity bits are all set, bit columns all clear.  NO_ROOM if
    the bytes of a variable column need more than its capacity, as migrated rows, which lie elsewhere, can do.
    """
    rows, cursors = np.empty(BLOCK_ROWS, np.int64), np.empty(BLOCK_ROWS, np.int64)
    done, next_page, next_slot = 0, 0, 0
    while next_page < count:
        gathered, first_page = 0, next_page
        while next_page < count and gathered < BLOCK_ROWS:
            page_id = load_u32(ids + 4 * next_page)
            gathered, next_slot, status = _gather(area, page_id, next_slot, rows, gathered)
            if status < 0:
                return status
            if next_slot < 0:
                next_page += 1
                next_slot = 0
        short = _start_cursors(rows, cursors, gathered, column_count)
        for number in range(column_count):
            column = arrow_column(columns + number * COLUMN_SIZE)
            decoded = _decode_column(column, rows, cursors, gathered, number, short, done)
            if decoded == NO_ROOM:
                return NO_ROOM
            if decoded < gathered:
                return _blame(area, ids, first_page, min(next_page + 1, count), rows[decoded])
        done += gathered
    return done
