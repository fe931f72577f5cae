"""CRC32C in plain Python: what the inspector uses, and the twin that the compiled kernel is tested against."""

from __future__ import annotations

from typing import Any

from gmdb.format.page import TAIL_SIZE

POLYNOMIAL = 0x82F63B78  # Castagnoli's, bit-reversed


def _table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (POLYNOMIAL if byte & 1 else 0)
        table.append(byte)
    return tuple(table)


CRC_TABLE = _table()


def crc32c(data: Any) -> int:
    table, crc = CRC_TABLE, 0xFFFF_FFFF
    for byte in bytes(data):
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFF_FFFF


def page_crc(page: Any) -> int:
    return crc32c(memoryview(page)[:-TAIL_SIZE])
