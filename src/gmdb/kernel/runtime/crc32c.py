"""CRC32C of pages: by the CPU's instruction in four streams where it has one, by a table elsewhere.
As plain Python, NumPy does it (format/checksum.py).

The streams are independent, so that the CPU works on all of them at once; their values are then combined by
shifting each past the bytes of the next.  Shifting a CRC past n zero bytes is linear, so it is four look-ups.
"""

from __future__ import annotations

import ctypes
from typing import Any

from gmdb.format.checksum import CRC_TABLE, crc32c
from gmdb.format.page import PAGE_SIZES, TAIL_SIZE
from gmdb.kernel.runtime.compiler import AHEAD, HAS_CRC32C, PLAIN, WAY, routine
from gmdb.kernel.runtime.compiler import numpy as np
from gmdb.kernel.runtime.memory import crc_of_word, load_i64, load_u8, load_u32, store_32

STREAMS = 4
_TABLE: Any = None if WAY == AHEAD else np.array(CRC_TABLE, np.int64)


def _stream_words(page_size: int) -> int:
    return (page_size - TAIL_SIZE) // 8 // STREAMS


def _shift_tables() -> np.ndarray:
    """For each page size: what each of a CRC's four bytes becomes, shifted past one stream."""
    by_byte = [CRC_TABLE[1 << bit & 0xFF] ^ 1 << bit >> 8 for bit in range(32)]
    tables = [_table_of(_times(by_byte, 8 * _stream_words(page_size))) for page_size in PAGE_SIZES]
    return np.array(tables, np.int64).reshape(len(PAGE_SIZES), 4, 256)


# A shift is linear: it is known by what becomes of each of 32 bits, and 2n shifts are n shifts of n shifts.


def _shifted(shift: list[int], crc: int) -> int:
    found = 0
    while crc:
        found ^= shift[(crc & -crc).bit_length() - 1]
        crc &= crc - 1
    return found


def _times(shift: list[int], count: int) -> list[int]:
    found = [1 << bit for bit in range(32)]
    while count:
        if count & 1:
            found = [_shifted(shift, crc) for crc in found]
        shift = [_shifted(shift, crc) for crc in shift]
        count >>= 1
    return found


def _table_of(shift: list[int]) -> list[int]:
    """What becomes of each value of each byte."""
    return [_shifted(shift, value << 8 * byte) for byte in range(4) for value in range(256)]


_SHIFT: Any = None if WAY == AHEAD else _shift_tables() if HAS_CRC32C else np.zeros((1, 1, 1), np.int64)


@routine
def _shift(tables, crc):
    return (
        tables[0, crc & 0xFF] ^ tables[1, crc >> 8 & 0xFF] ^ tables[2, crc >> 16 & 0xFF] ^ tables[3, crc >> 24 & 0xFF]
    )


@routine
def _crc_by_instruction(page, page_size):
    words = (page_size - TAIL_SIZE) >> 3
    stream = words >> 2
    tables = _SHIFT[0 if page_size == 8192 else 1 if page_size == 16384 else 2]
    a, b, c, d = 0xFFFF_FFFF, 0, 0, 0
    for i in range(stream):
        at = page + 8 * i
        a = crc_of_word(a, load_i64(at))
        b = crc_of_word(b, load_i64(at + 8 * stream))
        c = crc_of_word(c, load_i64(at + 16 * stream))
        d = crc_of_word(d, load_i64(at + 24 * stream))
    crc = _shift(tables, _shift(tables, _shift(tables, a) ^ b) ^ c) ^ d
    for i in range(4 * stream, words):
        crc = crc_of_word(crc, load_i64(page + 8 * i))
    return crc ^ 0xFFFF_FFFF


@routine
def _crc_by_table(page, page_size):
    crc = 0xFFFF_FFFF
    for at in range(page, page + page_size - TAIL_SIZE):
        crc = _TABLE[(crc ^ load_u8(at)) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFF_FFFF


@routine
def _more_by_instruction(start, words, crc):
    crc ^= 0xFFFF_FFFF
    for i in range(words):
        crc = crc_of_word(crc, load_i64(start + 8 * i))
    return crc ^ 0xFFFF_FFFF


@routine
def _more_by_table(start, words, crc):
    crc ^= 0xFFFF_FFFF
    for at in range(start, start + 8 * words):
        crc = _TABLE[(crc ^ load_u8(at)) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFF_FFFF


def _plain_crc(page: int, page_size: int) -> int:
    return crc32c(ctypes.string_at(int(page), int(page_size) - TAIL_SIZE))


def _plain_more(start: int, words: int, crc: int) -> int:
    return crc32c(ctypes.string_at(int(start), 8 * int(words)), int(crc))


# The second is about words behind those whose CRC is given.
if WAY == PLAIN:
    page_crc, crc_of_more_words = _plain_crc, _plain_more
elif HAS_CRC32C:
    page_crc, crc_of_more_words = _crc_by_instruction, _more_by_instruction
else:
    page_crc, crc_of_more_words = _crc_by_table, _more_by_table


@routine
def crc_of_words(start, words):
    return crc_of_more_words(start, words, 0)


@routine
def crc_is_right(page, page_size):
    return load_u32(page + page_size - TAIL_SIZE) == page_crc(page, page_size)


@routine
def seal_page(page, page_size):
    """Store the page's CRC in its tail."""
    store_32(page + page_size - TAIL_SIZE, page_crc(page, page_size))
    store_32(page + page_size - TAIL_SIZE + 4, 0)
