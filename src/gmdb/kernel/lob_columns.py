"""Cells of large objects into Arrow columns of their values."""

from __future__ import annotations

from gmdb.format.lob import LOB_LOCATOR, LobPlace
from gmdb.kernel.compiler import kernel, long_kernel, routine
from gmdb.kernel.lob import read_value
from gmdb.kernel.memory import load_i64, load_u8, load_u32, move_bytes, store_64
from gmdb.kernel.status import DONE, NOT_FOUND

_LOCATOR_SIZE, _LENGTH_AT = LOB_LOCATOR.size, LOB_LOCATOR.offset("length")
_FIRST_PAGE_AT = LOB_LOCATOR.offset("first_page")
_ON_PAGES = int(LobPlace.ON_PAGES)


@routine
def _is_locator(cell, size):
    return size == _LOCATOR_SIZE and load_u8(cell) == _ON_PAGES


@kernel
def measure_cells(values, offsets, count, sizes):
    """Add to ``sizes`` (i64s) how many bytes the value of each cell has; cells lie one behind the other (u32s)."""
    for n in range(count):
        start, end = load_u32(offsets + 4 * n), load_u32(offsets + 4 * n + 4)
        length = 0
        if end > start:
            is_elsewhere = _is_locator(values + start, end - start)
            length = load_i64(values + start + _LENGTH_AT) if is_elsewhere else end - start - 1
        store_64(sizes + 8 * n, load_i64(sizes + 8 * n) + length)
    return DONE


@long_kernel
def fill_values(area, obj_id, values, offsets, count, target, target_offsets):
    """Copy the values of some cells one behind the other; ``target_offsets`` (i64s) says where each goes, and all end.

    NOT_FOUND if a value is not there as its cell says.
    """
    for n in range(count):
        start, end = load_u32(offsets + 4 * n), load_u32(offsets + 4 * n + 4)
        to = load_i64(target_offsets + 8 * n)
        size = load_i64(target_offsets + 8 * n + 8) - to
        if _is_locator(values + start, end - start):
            done = read_value(area, obj_id, load_u32(values + start + _FIRST_PAGE_AT), 0, target + to, size)
            if done < size:
                return done if done < 0 else NOT_FOUND  # a page that was not read yet is DAMAGED: it will be
        elif end > start:
            move_bytes(target + to, values + start + 1, size)
    return DONE
