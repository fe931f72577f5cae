"""Patches: some columns of a row, and putting them in.

A patch has a row's shape (header, size bits, values), for the columns that it is about; then their numbers, as
u16s in ascending order.  An update is a patch; so is the undo image of one, which says what it changed.
"""

from __future__ import annotations

from gmdb.format.row import BITS_AT, COL_COUNT_AT, SIZE_AT
from gmdb.kernel.columns import copy_short
from gmdb.kernel.compiler import routine
from gmdb.kernel.memory import load_u8, load_u16, load_u32, store_16, store_32
from gmdb.kernel.status import ROW_TOO_LARGE

_SIZE_MAX = 0xFFFF


@routine
def header_bytes(column_count):
    return BITS_AT + 4 * max((column_count + 15) >> 4, 1)


@routine
def column_code(row, number):
    """The size code of a column; a column that the row is too old to have is null."""
    if number >= load_u16(row + COL_COUNT_AT):
        return 0
    return load_u32(row + BITS_AT + 4 * (number >> 4)) >> 2 * (number & 15) & 3


@routine
def stored_bytes(value, code):
    """How many bytes a value takes in the row, its length included."""
    return 2 + load_u16(value) if code == 3 else 4 * code


@routine
def _set_code(row, number, code):
    at = row + BITS_AT + 4 * (number >> 4)
    store_32(at, load_u32(at) | code << 2 * (number & 15))


@routine
def patch_bytes(patch):
    """All of a patch: the row-shaped part, the numbers, and what fills it up to four bytes."""
    return (load_u16(patch + SIZE_AT) + 2 * load_u16(patch + COL_COUNT_AT) + 3) & ~3


@routine
def patched_number(patch, index):
    return load_u16(patch + load_u16(patch + SIZE_AT) + 2 * index)


@routine
def merge_patch(target, row, patch):
    """Write the row with the patch's columns put in; answers its size."""
    patched = load_u16(patch + COL_COUNT_AT)
    count = load_u16(row + COL_COUNT_AT)
    if patched:
        count = max(count, patched_number(patch, patched - 1) + 1)
    head = header_bytes(count)
    for at in range(BITS_AT, head, 4):
        store_32(target + at, 0)
    from_row = row + header_bytes(load_u16(row + COL_COUNT_AT))
    from_patch = patch + header_bytes(patched)
    to, index = target + head, 0
    for number in range(count):
        code = column_code(row, number)
        source, length = from_row, stored_bytes(from_row, code)
        from_row += length
        if index < patched and patched_number(patch, index) == number:
            code = column_code(patch, index)
            source, length = from_patch, stored_bytes(from_patch, code)
            from_patch += length
            index += 1
        if to + length - target > _SIZE_MAX or from_row - row > 2 * _SIZE_MAX:
            return ROW_TOO_LARGE
        copy_short(to, source, length)
        _set_code(target, number, code)
        to += length
    store_32(target, load_u32(row))
    store_16(target + SIZE_AT, to - target)
    store_16(target + COL_COUNT_AT, count)
    return to - target


@routine
def _same_bytes(one, other, length):
    for i in range(length):
        if load_u8(one + i) != load_u8(other + i):
            return False
    return True


@routine
def _walk_changes(row, patch, target, numbers):
    """Visit the columns that the patch changes; answers how many they are, and the bytes they have in ``row``.

    With a target, their values go there (size bits to the header before it), their numbers to ``numbers``.
    """
    from_row = row + header_bytes(load_u16(row + COL_COUNT_AT))
    from_patch = patch + header_bytes(load_u16(patch + COL_COUNT_AT))
    number, found, size = 0, 0, 0
    for index in range(load_u16(patch + COL_COUNT_AT)):
        wanted = patched_number(patch, index)
        while number < wanted:
            from_row += stored_bytes(from_row, column_code(row, number))
            number += 1
        code, new_code = column_code(row, number), column_code(patch, index)
        length, new_length = stored_bytes(from_row, code), stored_bytes(from_patch, new_code)
        if code != new_code or length != new_length or not _same_bytes(from_row, from_patch, length):
            if target:
                head = target + header_bytes(load_u16(target + COL_COUNT_AT))
                copy_short(head + size, from_row, length)
                _set_code(target, found, code)
                store_16(numbers + 2 * found, number)
            found += 1
            size += length
        from_patch += new_length
    return found, size


@routine
def extract_image(target, row, patch):
    """Write, as a patch, the values that ``row`` has now in the columns that ``patch`` changes; answers its bytes."""
    changed, value_bytes = _walk_changes(row, patch, 0, 0)
    head = header_bytes(changed)
    for at in range(BITS_AT, head, 4):
        store_32(target + at, 0)
    end = target + head + value_bytes
    store_16(target + SIZE_AT, head + value_bytes)
    store_16(target + COL_COUNT_AT, changed)
    store_16(end + 2 * changed, 0)  # what fills the patch up to four bytes
    _walk_changes(row, patch, target, end)
    return patch_bytes(target)
