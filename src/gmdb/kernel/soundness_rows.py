"""Where the values of a row end, by its size bits and lengths: for checks of bytes that may be nonsense."""

from __future__ import annotations

from gmdb.format.row import BITS_AT, COL_COUNT_AT, MAX_COLUMNS, ROW_HEAD, SIZE_AT
from gmdb.kernel.compiler import routine
from gmdb.kernel.memory import load_u16, load_u32

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
