"""Entries for an index, taken from a table's pages and sorted: the first half of building one.

Like a scan, extraction goes by a snapshot and takes no latch.  A run of entries is sorted by numbers that are the
beginnings of keys (``sort_prefix``); only where those are equal are keys compared.
"""

from __future__ import annotations

from gmdb.format.layout import Structure
from gmdb.kernel.indexes.any_index import open_index
from gmdb.kernel.indexes.index_node import entry_size
from gmdb.kernel.page.area import damaged
from gmdb.kernel.places import place_of_word, word_of_place
from gmdb.kernel.read.scan import ARENA_SIZE, RETRIES, WATCHED_MAX, gather_block, is_unchanged, scan_at
from gmdb.kernel.read.visibility import ROW_BUFFER
from gmdb.kernel.row import (
    BLOCK_ROWS,
    ENTRY_BUFFER,
    POINTER_AT,
    compare_keys,
    copy_short,
    key_columns,
    make_entry_within,
    sort_prefix,
)
from gmdb.kernel.runtime.compiler import long_kernel, routine
from gmdb.kernel.runtime.compiler import numpy as np
from gmdb.kernel.runtime.memory import address_of_array, load_i64, load_u32, move_bytes, records, store_64
from gmdb.kernel.runtime.status import BUSY, DAMAGED, DONE, KEY_TOO_LONG, NO_ROOM

RUN = Structure(
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
RUN_ROOM_MIN = (BLOCK_ROWS + 1) * ENTRY_BUFFER  # for the entries of any block: rows that have moved lie on other pages
PROGRESS = Structure(
    [
        ("first", "<i8"),  # entries before it are in order
        ("last", "<i8"),  # the end of the group of entries with the prefix of the first
        ("width", "<i8"),  # entries of a section of the group, each of them in order; 0: the group is not known yet
        ("start", "<i8"),  # where the two sections begin that are being merged
        ("at", "<i8"),  # up to where they are merged
        ("left", "<i8"),  # the next entries of either
        ("right", "<i8"),
    ]
)
progress_at = records(PROGRESS)
DIGIT_BITS = 11
_DIGITS = 1 << DIGIT_BITS
_DIGIT_MASK = _DIGITS - 1
_BLOCKS_AT_ONCE = 256
_ENTRIES_AT_ONCE = 1 << 18


# ---- taking entries from pages


@routine
def _add_entries(index, run, rows, limits, places, count):
    """Add the entries of a block's rows to a run; returns DONE, or why not all of them are there."""
    used = run.used
    for k in range(count):
        if used + ENTRY_BUFFER > run.room or run.count + k == run.capacity:
            return NO_ROOM
        row_id = word_of_place(places[k])
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
    """Add a block of rows to a run, reading it again as often as its pages change meanwhile; returns a status."""
    first_page, first_slot, used, done = scan.next_page, scan.next_slot, run.used, run.count
    for _ in range(1 if scan.trusted else RETRIES):
        watch[0] = 1
        arenas[0] = arenas[2]
        count = gather_block(area, scan, rows, limits, places, watch, arenas)
        status = _add_entries(index, run, rows, limits, places, count) if count >= 0 else count
        unchanged = scan.trusted or is_unchanged(area, watch)
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

    DONE at the end of its pages, or after some blocks, so that the caller can do other work between; NO_ROOM if the
    run is full, which an empty one is not; BUSY if pages change too fast to be read without the guard.  With
    ``trusted``, the guard held, it reads one block.
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
    for _ in range(1 if scan.trusted else _BLOCKS_AT_ONCE):
        if status < 0 or scan.next_page >= scan.page_count:
            break
        status = _extract_block(area, scan, index, run, rows, limits, places, watch, arenas)
    memory[0] = 0  # an array lives until its last use: not shorter than the addresses into it
    return status


# ---- sorting a run


@long_kernel
def sort_by_digit(run_address, shift, prefixes, offsets):
    """Put a run in the order of one digit of its prefixes; the caller begins with the lowest.

    The highest digit takes in the sign, which is set in the larger half of unsigned numbers: so they come last.
    Returns 1 if the new order is at ``prefixes`` and ``offsets``, 0 if the run has one digit only and stays as it is.
    """
    run = run_at(run_address)
    counts = np.zeros(_DIGITS, np.int64)
    for i in range(run.count):
        counts[load_i64(run.prefixes + 8 * i) >> shift & _DIGIT_MASK] += 1
    total = 0
    for digit in range(_DIGITS):
        if counts[digit] == run.count:
            return 0
        counts[digit], total = total, total + counts[digit]
    for i in range(run.count):
        prefix = load_i64(run.prefixes + 8 * i)
        digit = prefix >> shift & _DIGIT_MASK
        at = counts[digit]
        counts[digit] = at + 1
        store_64(prefixes + 8 * at, prefix)
        store_64(offsets + 8 * at, load_i64(run.offsets + 8 * i))
    return 1


@routine
def comes_before(index, a, b):
    """Whether an entry comes before another: by key, then by row id."""
    result = compare_keys(index, a, b, key_columns(index))
    if result:
        return result < 0
    return place_of_word(load_i64(a + POINTER_AT)) < place_of_word(load_i64(b + POINTER_AT))


@routine
def _is_sorted(index, entries, offsets, count):
    for at in range(offsets + 8, offsets + 8 * count, 8):
        if comes_before(index, entries + load_i64(at), entries + load_i64(at - 8)):
            return False
    return True


@routine
def _begin_pair(progress, start):
    """Go on with the two sections of the group that begin at ``start``."""
    progress.start = progress.at = progress.left = start
    progress.right = min(start + progress.width, progress.last)


@routine
def _merge_some(index, run, progress, other, steps):
    """Merge the rest of two sections of a group into ``other``, up to so many entries; returns how many it were."""
    middle = min(progress.start + progress.width, progress.last)
    end = min(middle + progress.width, progress.last)
    left, right = progress.left, progress.right
    stop = min(end, progress.at + steps)
    merged = stop - progress.at
    for at in range(progress.at, stop):
        take_right = left == middle
        if not take_right and right < end:
            first, second = load_i64(run.offsets + 8 * left), load_i64(run.offsets + 8 * right)
            take_right = comes_before(index, run.entries + second, run.entries + first)
        if take_right:
            store_64(other + 8 * at, load_i64(run.offsets + 8 * right))
            right += 1
        else:
            store_64(other + 8 * at, load_i64(run.offsets + 8 * left))
            left += 1
    progress.left, progress.right, progress.at = left, right, stop
    if stop < end:
        return merged
    if end < progress.last:
        _begin_pair(progress, end)
        return merged
    move_bytes(run.offsets + 8 * progress.first, other + 8 * progress.first, 8 * (progress.last - progress.first))
    progress.width *= 2
    _begin_pair(progress, progress.first)
    return merged


@long_kernel
def sort_alike(area, entry_id, run_address, progress_address, other):
    """Put entries in order that have the same prefix, in a run that is sorted by prefixes.

    Longer and longer sections of such a group are merged.  ``other`` has room for an offset of each entry.  Returns 1
    while there is more to be done.
    """
    run, progress, index = run_at(run_address), progress_at(progress_address), open_index(area, entry_id)
    if index < 0:
        return index
    steps = _ENTRIES_AT_ONCE
    while steps > 0 and progress.first < run.count:  # ends: every round takes a step at least
        first = progress.first
        if progress.width == 0:
            last, prefix = first + 1, load_i64(run.prefixes + 8 * first)
            while last < run.count and load_i64(run.prefixes + 8 * last) == prefix:
                last += 1
            steps -= last - first
            if last - first == 1 or _is_sorted(index, run.entries, run.offsets + 8 * first, last - first):
                progress.first = last
                continue
            progress.last, progress.width = last, 1
            _begin_pair(progress, first)
        steps -= _merge_some(index, run, progress, other, max(steps, 1))
        if progress.width >= progress.last - first:
            progress.first, progress.width = progress.last, 0
    return 1 if progress.first < run.count else 0


@long_kernel
def arrange_run(run_address, first, count, target, at):
    """Copy some of a run's entries behind ``at`` bytes at another place, in their order: a pass through them then
    goes straight on.  Returns how many bytes are there then."""
    run = run_at(run_address)
    for i in range(first, first + count):
        entry = run.entries + load_i64(run.offsets + 8 * i)
        size = entry_size(entry)
        copy_short(target + at, entry, size)
        store_64(run.offsets + 8 * i, at)
        at += size
    return at
