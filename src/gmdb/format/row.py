"""A row's bytes: header, size bits, values.

``lock_id u32`` holds the lock's index (low three bytes) and the row's flags (high byte).
Size bits: two per column, low first, in whole 32-bit words; they say how many bytes each value has.
B-tree entries and undo images begin with the same header.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum, IntFlag
from typing import Any

from gmdb.errors import Corruption, DataError
from gmdb.format.columns import Column
from gmdb.format.layout import Finding, Region, layout

ROW_HEAD = layout(
    "row header",
    12,
    lock_id=("<u4", "lock's index in the low 3 bytes (none = 0xFFFFFF), flags in the high byte"),
    size=("<u2", "bytes of the row: header, size bits, values"),
    col_count=("<u2", "columns that the row has; later columns of its table are NULL"),
    bit_array=("<u4", "2 bits a column, low first: 0 null, 1 four bytes, 2 eight bytes, 3 a u16 length and bytes"),
)

SIZE_AT = ROW_HEAD.offset("size")
COL_COUNT_AT = ROW_HEAD.offset("col_count")
BITS_AT = ROW_HEAD.offset("bit_array")
COLUMNS_PER_WORD = 16
MAX_COLUMNS = 1024
MIN_OCCUPIED = 20  # an ENTRY row (12 + 8) fits into the place of any row
NO_LOCK = 0xFF_FFFF
UNLOCKED = NO_LOCK


class RowFlag(IntFlag):
    """The high byte of a row's lock word."""

    DELETE = 0x01
    ENTRY = 0x02
    LINK = 0x04
    COMPACTING = 0x08


class SizeCode(IntEnum):
    """What two size bits say."""

    NULL = 0
    FOUR = 1
    EIGHT = 2
    VARIABLE = 3


def header_size(column_count: int) -> int:
    """12 bytes for up to 16 columns, 4 more for each further 16."""
    words = max((column_count + COLUMNS_PER_WORD - 1) // COLUMNS_PER_WORD, 1)
    return BITS_AT + 4 * words


def encode_cells(cells: Sequence[bytes | None], codes: Sequence[int], lock_word: int = UNLOCKED) -> bytes:
    """A row out of stored values; variable ones come without their length."""
    bits, parts = 0, []
    for number, (cell, code) in enumerate(zip(cells, codes, strict=True)):
        if cell is not None:
            bits |= code << 2 * number
            parts.append(len(cell).to_bytes(2, "little") + cell if code == SizeCode.VARIABLE else cell)
    head = header_size(len(cells))
    values = b"".join(parts)
    size = head + len(values)
    if size > 0xFFFF:
        raise DataError(f"the row has {size} bytes; no page is that large")
    start = lock_word.to_bytes(4, "little") + size.to_bytes(2, "little") + len(cells).to_bytes(2, "little")
    return start + bits.to_bytes(head - BITS_AT, "little") + values


def encode_row(columns: Sequence[Column], values: Sequence[Any], lock_word: int = UNLOCKED) -> bytes:
    """A row's bytes.  Raises a DataError that names the column if a value does not fit it."""
    if len(values) != len(columns):
        raise DataError(f"{len(values)} values for {len(columns)} columns")
    cells = [column.encode(value) for column, value in zip(columns, values, strict=True)]
    return encode_cells(cells, [column.type.size_code for column in columns], lock_word)


def walk_cells(page: Any, offset: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Each column of the row at ``offset``: its size code, where its bytes start, how many they are.

    Raises Corruption if a value would reach past ``end``, or if no table has so many columns.
    """
    view = memoryview(page)
    column_count = int.from_bytes(view[offset + COL_COUNT_AT : offset + COL_COUNT_AT + 2], "little")
    at = offset + header_size(column_count)
    if column_count > MAX_COLUMNS:
        raise Corruption(f"{column_count} columns; a row has {MAX_COLUMNS} at most", offset=offset)
    if at > end:
        raise Corruption(f"size bits of {column_count} columns reach past the row's end", offset=offset)
    bits = int.from_bytes(view[offset + BITS_AT : at], "little")
    for number in range(column_count):
        code = bits >> 2 * number & 3
        length = (0, 4, 8, 0)[code]
        if code == SizeCode.VARIABLE:
            if at + 2 > end:
                raise Corruption(f"column {number}: its length lies past the row's end", offset=at)
            length = int.from_bytes(view[at : at + 2], "little")
            at += 2
        if at + length > end:
            raise Corruption(f"column {number}: {length} bytes reach past the row's end", offset=at)
        yield code, at, length
        at += length


def decode_row(columns: Sequence[Column], page: Any, offset: int = 0) -> tuple[Any, ...]:
    """The values of the row at ``offset``; columns that the row is too old to have are None."""
    head = ROW_HEAD.at(page, offset)
    view = memoryview(page)
    values: list[Any] = []
    cells = walk_cells(page, offset, min(offset + head.size, len(view)))
    for column, (code, at, length) in zip(columns, cells, strict=False):
        values.append(None if code == SizeCode.NULL else column.type.decode(bytes(view[at : at + length])))
    return tuple(values) + (None,) * (len(columns) - len(values))


def regions(page: Any, offset: int, prefix: str) -> Iterator[Region]:
    """The fields of one row; as far as they make sense, on a damaged page."""
    view = memoryview(page)
    yield from ROW_HEAD.regions(page, offset, prefix)
    head = ROW_HEAD.at(page, offset)
    end = min(offset + head.size, len(view))
    values_at = offset + header_size(head.col_count)
    if values_at > offset + ROW_HEAD.size and values_at <= end:
        extra = bytes(view[offset + ROW_HEAD.size : values_at])
        yield Region(offset + ROW_HEAD.size, len(extra), prefix + "bit_array[1:]", extra.hex(), "further size bits")
    try:
        for number, (code, at, length) in enumerate(walk_cells(page, offset, end)):
            name = f"{prefix}column[{number}]"
            if code == SizeCode.VARIABLE:
                yield Region(at - 2, 2, name + ".length", length, "bytes of the value")
            if length:
                yield Region(at, length, name, bytes(view[at : at + length]).hex(), "the value's bytes")
    except Corruption:
        return


def check(page: Any, offset: int, end: int, name: str) -> Iterator[Finding]:
    """What is wrong with the row at ``offset`` of a page whose rows end at ``end``."""
    if offset + ROW_HEAD.size > end:
        yield Finding(offset, f"{name}: its header reaches past the rows' end, {end}")
        return
    head = ROW_HEAD.at(page, offset)
    row_end = offset + head.size
    if head.size < header_size(head.col_count) or row_end > end:
        yield Finding(offset + SIZE_AT, f"{name}: size {head.size} with {head.col_count} columns, rows end at {end}")
        return
    try:
        at = offset + header_size(head.col_count)
        for _, start, length in walk_cells(page, offset, row_end):
            at = start + length
    except Corruption as error:
        yield Finding(error.offset or offset, f"{name}: {error}")
        return
    if at != row_end:
        yield Finding(offset + SIZE_AT, f"{name}: size {head.size}, but its values end after {at - offset} bytes")
