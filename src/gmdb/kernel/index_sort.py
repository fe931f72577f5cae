"""Entries for an index, taken from a table's pages and sorted: the first half of building one.

Like a scan, extraction goes by a snapshot and takes no latch.  A run of entries is sorted by numbers that are the
beginnings of keys (``sort_prefix``); only where those are equal are keys compared.
"""

from __future__ import annotations

import numpy as np

from gmdb.kernel.area import damaged
from gmdb.kernel.btree_page import entry_size
from gmdb.kernel.columns import BLOCK_ROWS, copy_short
from gmdb.kernel.compiler import long_kernel, routine
from gmdb.kernel.index import open_index
from gmdb.kernel.keys import (
    ENTRY_BUFFER,
    POINTER_AT,
    compare_keys,
    key_columns,
    make_entry_within,
    place_of_word,
    row_id_word,
    sort_prefix,
)
from gmdb.kernel.memory import address_of_array, load_i64, load_u32, move_bytes, records, store_64
from gmdb.kernel.scan import ARENA_SIZE, RETRIES, WATCHED_MAX, gather_block, is_unchanged, scan_at
from gmdb.kernel.status import BUSY, DAMAGED, DONE, KEY_TOO_LONG, NO_ROOM
from gmdb.kernel.visibility import ROW_BUFFER

RUN = np.dtype(
    [
        ("entries", "<i8"),  # address of the entries, in any order
        ("room", "<i8"),  # bytes that they may take
        ("used", "<i8"),  # bytes that they take
        ("offsets", "<i8"),  # address of where each entry begins (i64s), in the order of the run
        ("prefixes", "<i8"),  # address of their sort prefixes (u64s), in the same order
        ("capacity", "<i8"),  # how many entries there may be
        ("count", "<i8"),  # how many there are
        ("next", "<i8"),  # the first that was not used yet
    ]
)
run_at = records(RUN)
_DIGIT_BITS = 11
_DIGITS = 1 << _DIGIT_BITS
_DIGIT_MASK = _DIGITS - 1


# ---- taking entries from pages


@routine
def _add_entries(index, run, rows, limits, places, count):
    """Add the entries of a block's rows to a run; answers DONE, or why not all of them are there."""
    used = run.used
    for k in range(count):
        if used + ENTRY_BUFFER > run.room or run.count + k == run.capacity:
            return NO_ROOM
        row_id = row_id_word(places[k] >> 16, places[k] & 0xFFFF)
        size = make_entry_within(index, rows[k], limits[k], run.entries + used, row_id)
        if size < 0:
            return size
        store_64(run.offsets + 8 * (run.count + k), used)
        store_64(run.prefixes + 8 * (run.count + k), sort_prefix(index, run.entries + used))
        used += size
    run.used = used
    run.count += count
    return DONE


@routine
def _extract_block(area, scan, index, run, rows, limits, places, watch, arenas):
    """Add a block of rows to a run, reading it again as often as its pages change meanwhile; answers a status."""
    first_page, first_slot, used, done = scan.next_page, scan.next_slot, run.used, run.count
    for _ in range(1 if scan.trusted else RETRIES):
        watch[0] = 1
        arenas[0] = arenas[2]
        count = gather_block(area, scan, rows, limits, places, watch, arenas)
        status = _add_entries(index, run, rows, limits, places, count) if count >= 0 else count
        unchanged = is_unchanged(area, watch)
        if status == DONE and unchanged:
            return DONE
        run.used, run.count = used, done
        scan.next_page, scan.next_slot = first_page, first_slot
        if unchanged and status != NO_ROOM:
            known = status == DAMAGED or status == KEY_TOO_LONG
            return status if known else damaged(area, load_u32(scan.ids + 4 * first_page))
        if unchanged:
            return NO_ROOM
    return BUSY


@long_kernel
def extract_entries(area, scan_address, entry_id, run_address):
    """Add an entry for each row that a scan sees to a run, from where the scan stands.

    DONE at the end of its pages; NO_ROOM if the run is full; BUSY if pages change too fast to be read without the
    guard: with it, that is trusted, it reads one block.
    """
    scan, run = scan_at(scan_address), run_at(run_address)
    index = open_index(area, entry_id)
    if index < 0:
        return index
    rows, limits, places = (
        np.empty(BLOCK_ROWS, np.int64),
        np.empty(BLOCK_ROWS, np.int64),
        np.empty(BLOCK_ROWS, np.int64),
    )
    watch = np.empty(WATCHED_MAX + 8, np.int64)
    memory = np.empty(ARENA_SIZE + 2 * ROW_BUFFER, np.uint8)
    arena = address_of_array(memory)
    arenas = np.array([arena, arena + ARENA_SIZE, arena])
    status = DONE
    while status == DONE and scan.next_page < scan.page_count:
        status = _extract_block(area, scan, index, run, rows, limits, places, watch, arenas)
        if scan.trusted:
            break
    memory[0] = 0  # an array lives until its last use: not shorter than the addresses into it
    return status


# ---- sorting a run


@routine
def _sort_by_prefix(prefixes, offsets, count):
    """Sort by the prefixes, digit by digit from the lowest; digits that all have in common cost nothing.

    The highest digit takes in the sign, which is set in the larger half of unsigned numbers: so they come last.
    """
    memory = np.empty(2 * count, np.int64)
    other_prefixes = address_of_array(memory)
    other_offsets = other_prefixes + 8 * count
    counts = np.zeros(_DIGITS, np.int64)
    varying, first = 0, load_i64(prefixes)
    for i in range(count):
        varying |= load_i64(prefixes + 8 * i) ^ first
    shift, swapped = 0, False
    while shift < 64:
        if varying >> shift & _DIGIT_MASK:
            counts[:] = 0
            for i in range(count):
                counts[load_i64(prefixes + 8 * i) >> shift & _DIGIT_MASK] += 1
            total = 0
            for digit in range(_DIGITS):
                counts[digit], total = total, total + counts[digit]
            for i in range(count):
                prefix = load_i64(prefixes + 8 * i)
                digit = prefix >> shift & _DIGIT_MASK
                at = counts[digit]
                counts[digit] = at + 1
                store_64(other_prefixes + 8 * at, prefix)
                store_64(other_offsets + 8 * at, load_i64(offsets + 8 * i))
            prefixes, other_prefixes = other_prefixes, prefixes
            offsets, other_offsets = other_offsets, offsets
            swapped = not swapped
        shift += _DIGIT_BITS
    if swapped:
        move_bytes(other_prefixes, prefixes, 8 * count)
        move_bytes(other_offsets, offsets, 8 * count)
    memory[0] = 0  # an array lives until its last use: not shorter than the addresses into it


@routine
def comes_before(index, a, b):
    """Whether an entry comes before another: by key, then by row id."""
    result = compare_keys(index, a, b, key_columns(index))
    if result:
        return result < 0
    return place_of_word(load_i64(a + POINTER_AT)) < place_of_word(load_i64(b + POINTER_AT))


@routine
def _sort_by_key(index, entries, offsets, count):
    """Sort entries by their keys, by merging longer and longer runs."""
    source, target = np.empty(count, np.int64), np.empty(count, np.int64)
    move_bytes(address_of_array(source), offsets, 8 * count)
    width = 1
    while width < count:
        for start in range(0, count, 2 * width):
            left, middle, end = start, min(start + width, count), min(start + 2 * width, count)
            right = middle
            for at in range(start, end):
                take_right = left == middle
                if not take_right and right < end:
                    take_right = comes_before(index, entries + source[right], entries + source[left])
                if take_right:
                    target[at] = source[right]
                    right += 1
                else:
                    target[at] = source[left]
                    left += 1
        source, target = target, source
        width *= 2
    for i in range(count):
        store_64(offsets + 8 * i, source[i])


@routine
def _is_sorted(index, entries, offsets, count):
    for at in range(offsets + 8, offsets + 8 * count, 8):
        if comes_before(index, entries + load_i64(at), entries + load_i64(at - 8)):
            return False
    return True


@long_kernel
def arrange_run(run_address, target):
    """Copy a run's entries to another place, in their order: whoever goes through them then goes straight on."""
    run, at = run_at(run_address), 0
    for i in range(run.count):
        entry = run.entries + load_i64(run.offsets + 8 * i)
        size = entry_size(entry)
        copy_short(target + at, entry, size)
        store_64(run.offsets + 8 * i, at)
        at += size
    run.entries = target
    return DONE


@long_kernel
def sort_run(area, entry_id, run_address):
    """Put a run in order."""
    run, index = run_at(run_address), open_index(area, entry_id)
    if index < 0:
        return index
    count = run.count
    if count == 0:
        return DONE
    prefixes, offsets = run.prefixes, run.offsets
    _sort_by_prefix(prefixes, offsets, count)
    first = 0
    while first < count:
        last, prefix = first + 1, load_i64(prefixes + 8 * first)
        while last < count and load_i64(prefixes + 8 * last) == prefix:
            last += 1
        alike = offsets + 8 * first
        if last - first > 1 and not _is_sorted(index, run.entries, alike, last - first):
            _sort_by_key(index, run.entries, alike, last - first)
        first = last
    return DONE
