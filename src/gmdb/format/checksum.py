"""CRC32C without compiled code: what the inspector uses, and the twin that the compiled kernel is tested against.

A CRC is linear: every bit that is set adds a word of its own to it, by XOR, whatever the other bits are.  So that of
a page is the XOR of the words of its bits, which NumPy finds in some microseconds.  Importing NumPy takes longer than
going through some pages byte by byte, so it waits for more of them.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from gmdb.format.page import PAGE_SIZES, TAIL_SIZE
from gmdb.process.late_imports import numpy as np

POLYNOMIAL = 0x82F63B78  # Castagnoli's, bit-reversed
_SHORT = 64  # bytes that are done one by one as quickly
_PATIENCE = 1 << 18  # bytes that are done one by one before NumPy is imported for the others
_left = _PATIENCE


def _table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (POLYNOMIAL if byte & 1 else 0)
        table.append(byte)
    return tuple(table)


CRC_TABLE = _table()


def crc32c(data: Any, crc: int = 0) -> int:
    """The CRC of some bytes, behind others whose CRC is given."""
    global _left
    data = bytes(data)
    crc ^= 0xFFFF_FFFF
    if len(data) >= _SHORT:
        _left -= len(data)
    while len(data) >= _SHORT and _left < 0:
        piece, data = data[: max(PAGE_SIZES)], data[max(PAGE_SIZES) :]
        crc = _by_bits(piece, crc)
    for byte in data:
        crc = CRC_TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFF_FFFF


def page_crc(page: Any) -> int:
    return crc32c(memoryview(page)[:-TAIL_SIZE])


def _by_bits(data: bytes, crc: int) -> int:
    flipped = np.frombuffer(data, np.uint8).copy()
    flipped[:4] ^= np.frombuffer(crc.to_bytes(4, "little"), np.uint8)  # the same as to begin with that CRC
    words = np.unpackbits(flipped, bitorder="little").astype(np.uint32)
    words *= _words_of_bits()[-len(words) :]
    return int(np.bitwise_xor.reduce(words))


@cache
def _words_of_bits() -> np.ndarray:
    """What each bit of the last bytes of a text adds to its CRC, for as many bytes as a page may have."""
    table = np.array(CRC_TABLE, np.uint32)
    parts = np.arange(256, dtype=np.uint32) << np.uint32(8) * np.arange(4, dtype=np.uint32)[:, None]
    later = table[parts & 0xFF] ^ parts >> 8  # what becomes of each byte of a CRC when another zero follows
    words = table[1 << np.arange(8)]
    while len(words) < 8 * max(PAGE_SIZES):
        words = np.concatenate([_through(later, words), words])
        later = _through(later, later)
    return words


def _through(later: np.ndarray, words: np.ndarray) -> np.ndarray:
    return later[0][words & 0xFF] ^ later[1][words >> 8 & 0xFF] ^ later[2][words >> 16 & 0xFF] ^ later[3][words >> 24]
