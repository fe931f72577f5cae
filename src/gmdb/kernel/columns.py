"""What kernels know of an Arrow column: where its buffers are, and how its values go into and out of rows.

Rows are moved column by column in blocks: the choice of what to do with a column is made once a block, and the
block's rows, a few kilobytes, stay in the CPU's nearest cache while their columns are done one after the other.
"""

from __future__ import annotations

import numpy as np

from gmdb.kernel.compiler import routine
from gmdb.kernel.memory import load_i64, load_u8, load_u32, move_bytes, records, store_8, store_32, store_64

BLOCK_ROWS = 512

ARROW_COLUMN = np.dtype(
    [
        ("kind", "<i8"),  # format.columns.Kind
        ("wanted", "<i8"),  # 0: the column is only passed over
        ("values", "<i8"),  # address of fixed-width values, or of the bytes of variable ones
        ("validity", "<i8"),  # address of the validity bits; 0 = no value is null
        ("offsets", "<i8"),  # address of the 32-bit offsets of variable values
        ("first", "<i8"),  # number of the first value: what an Arrow slice starts at
        ("used", "<i8"),  # bytes of variable values written so far
        ("capacity", "<i8"),  # bytes of variable values that there is room for
        ("nulls", "<i8"),  # nulls so far
        ("length_max", "<i8"),  # bytes that a variable value may have
        ("padding", "<i8"),  # byte that fills shorter values up to length_max; -1 = none
    ]
)
arrow_column = records(ARROW_COLUMN)
COLUMN_SIZE = ARROW_COLUMN.itemsize


@routine
def get_bit(bits, number):
    return load_u8(bits + (number >> 3)) >> (number & 7) & 1


@routine
def clear_bit(bits, number):
    at = bits + (number >> 3)
    store_8(at, load_u8(at) & ~(1 << (number & 7)))


@routine
def set_bit(bits, number):
    at = bits + (number >> 3)
    store_8(at, load_u8(at) | 1 << (number & 7))


@routine
def copy_short(target, source, length):
    """Copy some bytes, most often few: eight at a time, the last eight over the ones before."""
    if length > 64:
        move_bytes(target, source, length)
    elif length >= 8:
        at = 0
        while at < length - 8:
            store_64(target + at, load_i64(source + at))
            at += 8
        store_64(target + length - 8, load_i64(source + length - 8))
    elif length >= 4:
        last = load_u32(source + length - 4)
        store_32(target, load_u32(source))
        store_32(target + length - 4, last)
    elif length > 0:
        middle, last = load_u8(source + (length >> 1)), load_u8(source + length - 1)
        store_8(target, load_u8(source))
        store_8(target + (length >> 1), middle)
        store_8(target + length - 1, last)
