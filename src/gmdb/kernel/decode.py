"""Rows of a block into one Arrow column after the other.

``rows`` holds where each row starts, ``cursors`` where its next value does, ``limits`` how far a length may lead:
the rows may lie on pages that change meanwhile, and be nonsense until the caller has found that out.
"""

from __future__ import annotations

from gmdb.format.columns import Kind
from gmdb.format.row import BITS_AT, COL_COUNT_AT, SIZE_AT
from gmdb.kernel.columns import COLUMN_SIZE, arrow_column, clear_bit, copy_short, set_bit
from gmdb.kernel.compiler import routine
from gmdb.kernel.memory import load_i32, load_i64, load_u16, load_u32, move_bytes, store_32, store_64
from gmdb.kernel.status import DONE, NO_ROOM, NOT_FOUND
from gmdb.kernel.visibility import ROW_BUFFER

_WORD, _LONG, _BIT, _DECIMAL_WORD, _DECIMAL_LONG, _DECIMAL_WIDE, _TEXT, _BYTES = (int(kind) for kind in Kind)


@routine
def start_cursors(rows, cursors, count, column_count, gap):
    """Point each cursor at its row's first value; answers whether a row has fewer columns than the table."""
    short = False
    for k in range(count):
        columns = load_u16(rows[k] + COL_COUNT_AT)
        short |= columns < column_count
        cursors[k] = rows[k] + BITS_AT + 4 * max((columns + 15) >> 4, 1) + gap
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
def _skip(rows, cursors, limits, count, number, short):
    for k in range(count):
        code = _size_code(rows[k], number, short)
        if code == 3:
            cursors[k] += 2 + load_u16(cursors[k])
            if cursors[k] > limits[k]:
                return k
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
def _decode_variable(column, rows, cursors, limits, count, number, short, done):
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
            if length < 0 or at + stored > limits[k]:
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
def decode_column(column, rows, cursors, limits, count, number, short, done):
    kind = column.kind
    if not column.wanted:
        return _skip(rows, cursors, limits, count, number, short)
    if kind == _WORD:
        return _decode_words(column, rows, cursors, count, number, short, done)
    if kind == _LONG:
        return _decode_longs(column, rows, cursors, count, number, short, done)
    if kind == _BIT:
        return _decode_bits(column, rows, cursors, count, number, short, done)
    if kind == _TEXT or kind == _BYTES:
        return _decode_variable(column, rows, cursors, limits, count, number, short, done)
    return _decode_decimals(column, rows, cursors, count, number, short, done)


@routine
def keep_version(arena, version):
    """Make room behind a version that was built in the arena; answers where the next one is built."""
    if version == arena + ROW_BUFFER:
        move_bytes(arena, version, load_u16(version + SIZE_AT))
    return arena + load_u16(arena + SIZE_AT)


@routine
def decode_block(scan, rows, cursors, limits, count, gap):
    """Decode the rows of a block behind those that are done; answers DONE, NO_ROOM, or NOT_FOUND for nonsense.

    ``scan`` has their columns and how many rows are done.  ``gap``: bytes between a row's header and its values.
    """
    short = start_cursors(rows, cursors, count, scan.column_count, gap)
    for number in range(scan.column_count):
        column = arrow_column(scan.columns + number * COLUMN_SIZE)
        decoded = decode_column(column, rows, cursors, limits, count, number, short, scan.done)
        if decoded == NO_ROOM:
            return NO_ROOM
        if decoded < count:
            return NOT_FOUND
    return DONE


@routine
def save_columns(scan, saved):
    """Remember how far the columns were filled before the block."""
    for number in range(scan.column_count):
        column = arrow_column(scan.columns + number * COLUMN_SIZE)
        saved[2 * number], saved[2 * number + 1] = column.used, column.nulls


@routine
def restore_columns(scan, saved, count):
    """Take a block back that was read while its pages changed."""
    for number in range(scan.column_count):
        column = arrow_column(scan.columns + number * COLUMN_SIZE)
        if not column.wanted:
            continue
        for k in range(scan.done, scan.done + count):
            set_bit(column.validity, k)
            if column.kind == _BIT:
                clear_bit(column.values, k)
        column.used, column.nulls = saved[2 * number], saved[2 * number + 1]
