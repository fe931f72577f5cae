"""Heap pages into Arrow columns, beside writers.

Blocks of rows are gathered from pages, then decoded column by column.  A scan takes no latch: it notes
the versions of the pages that a block reads, and reads the block again if one has changed by the end.
"""

from __future__ import annotations

from gmdb.format.columns import Kind
from gmdb.format.heap import NODE_AT
from gmdb.format.layout import Structure
from gmdb.format.page import TAIL_SIZE
from gmdb.format.row import BITS_AT, COL_COUNT_AT, NO_LOCK, SIZE_AT, UNLOCKED
from gmdb.format.slotted import SLOT_FREED
from gmdb.kernel.heap import (
    FLAG_DELETE,
    FLAG_ENTRY,
    FLAG_LINK,
    flags_of,
    heap_node,
    link_target,
    linked_row,
    row_in_slot,
)
from gmdb.kernel.page.allocation import page_in_use
from gmdb.kernel.page.area import damaged, holds_rows, page_head, page_size_of, touch, version_address
from gmdb.kernel.places import place_of
from gmdb.kernel.read.visibility import ROW_BUFFER, load_is_seen, resolve
from gmdb.kernel.row import BLOCK_ROWS, COLUMN_SIZE, arrow_column, clear_bit, copy_short, set_bit
from gmdb.kernel.runtime.compiler import long_kernel, routine
from gmdb.kernel.runtime.compiler import numpy as np
from gmdb.kernel.runtime.memory import (
    address_of_array,
    fence,
    load_i32,
    load_i64,
    load_u16,
    load_u32,
    move_bytes,
    records,
    store_16,
    store_32,
    store_64,
)
from gmdb.kernel.runtime.status import BUSY, DAMAGED, DONE, INVISIBLE, NO_ROOM, NOT_FOUND

# ---- Rows of a block into one Arrow column after the other.
#
# ``rows`` holds where each row starts, ``cursors`` where its next value does, ``limits`` how far a length may lead:
# the rows may lie on pages that change meanwhile, so that they are nonsense until the caller notices.

_WORD, _LONG, _BIT, _DECIMAL_WORD, _DECIMAL_LONG, _DECIMAL_WIDE, _TEXT, _BYTES, _SHORT, _WIDE = (
    int(kind) for kind in Kind
)
_SHORT_LIMIT = 1 << 15


@routine
def start_cursors(rows, cursors, count, column_count, gap):
    """Point each cursor at its row's first value; returns whether a row has fewer columns than the table."""
    short = False
    for k in range(count):
        columns = load_u16(rows[k] + COL_COUNT_AT)
        short |= columns < column_count
        cursors[k] = rows[k] + BITS_AT + 4 * max((columns + 15) >> 4, 1) + gap
    return short


@routine
def _size_code(row, number, short):
    if short and number >= load_u16(row + COL_COUNT_AT):
        return 0
    return load_u32(row + BITS_AT + 4 * (number >> 4)) >> 2 * (number & 15) & 3


@routine
def _null(column, at):
    column.nulls += 1
    clear_bit(column.validity, at)


@routine
def _skip(rows, cursors, limits, count, number, short):
    for k in range(count):
        code = _size_code(rows[k], number, short)
        if code == 3:
            cursors[k] += 2 + load_u16(cursors[k])
            if cursors[k] > limits[k]:
                return k
        else:
            cursors[k] += 4 * code
    return count


# Each decoder returns how many rows it did: fewer than it should if a row's size code is not its column's.


@routine
def _decode_words(column, rows, cursors, count, number, short, done):
    values = column.values + 4 * done
    for k in range(count):
        code = _size_code(rows[k], number, short)
        if code == 1:
            store_32(values + 4 * k, load_u32(cursors[k]))
            cursors[k] += 4
        elif code == 0:
            store_32(values + 4 * k, 0)
            _null(column, done + k)
        else:
            return k
    return count


@routine
def _decode_longs(column, rows, cursors, count, number, short, done):
    values = column.values + 8 * done
    for k in range(count):
        code = _size_code(rows[k], number, short)
        if code == 2:
            store_64(values + 8 * k, load_i64(cursors[k]))
            cursors[k] += 8
        elif code == 0:
            store_64(values + 8 * k, 0)
            _null(column, done + k)
        else:
            return k
    return count


@routine
def _decode_bits(column, rows, cursors, count, number, short, done):
    for k in range(count):
        code = _size_code(rows[k], number, short)
        if code == 1:
            if load_u32(cursors[k]):
                set_bit(column.values, done + k)
            cursors[k] += 4
        elif code == 0:
            _null(column, done + k)
        else:
            return k
    return count


@routine
def _decode_shorts(column, rows, cursors, count, number, short, done):
    for k in range(count):
        code = _size_code(rows[k], number, short)
        if code == 1:
            value = load_i32(cursors[k])
            if value < -_SHORT_LIMIT or value >= _SHORT_LIMIT:
                return k
            store_16(column.values + 2 * (done + k), value)
            cursors[k] += 4
        elif code == 0:
            store_16(column.values + 2 * (done + k), 0)
            _null(column, done + k)
        else:
            return k
    return count


@routine
def _decode_decimals(column, rows, cursors, count, number, short, done):
    """Any decimal, and what else has 16 bytes, into Arrow's 16."""
    for k in range(count):
        code = _size_code(rows[k], number, short)
        at = cursors[k]
        low, high = 0, 0
        if code == 0:
            _null(column, done + k)
        elif code == 1 and column.kind == _DECIMAL_WORD:
            low = load_i32(at)
            high = low >> 63
            cursors[k] = at + 4
        elif code == 2 and column.kind == _DECIMAL_LONG:
            low = load_i64(at)
            high = low >> 63
            cursors[k] = at + 8
        elif code == 3 and (column.kind == _DECIMAL_WIDE or column.kind == _WIDE) and load_u16(at) == 16:
            low, high = load_i64(at + 2), load_i64(at + 10)
            cursors[k] = at + 18
        else:
            return k
        store_64(column.values + 16 * (done + k), low)
        store_64(column.values + 16 * (done + k) + 8, high)
    return count


@routine
def _decode_variable(column, rows, cursors, limits, count, number, short, done):
    """Texts, without the NUL that ends them, and bytes."""
    ending = 1 if column.kind == _TEXT else 0
    offsets, values = column.offsets + 4 * (done + 1), column.values
    used = column.used
    for k in range(count):
        code = _size_code(rows[k], number, short)
        if code == 3:
            at = cursors[k]
            stored = load_u16(at)
            length = stored - ending
            if length < 0 or at + stored > limits[k]:
                return k
            if used + length > column.capacity:
                return NO_ROOM
            copy_short(values + used, at + 2, length)
            used += length
            cursors[k] = at + 2 + stored
        elif code == 0:
            _null(column, done + k)
        else:
            return k
        store_32(offsets + 4 * k, used)
    column.used = used
    return count


@routine
def decode_column(column, rows, cursors, limits, count, number, short, done):
    kind = column.kind
    if not column.wanted:
        return _skip(rows, cursors, limits, count, number, short)
    if kind == _WORD:
        return _decode_words(column, rows, cursors, count, number, short, done)
    if kind == _LONG:
        return _decode_longs(column, rows, cursors, count, number, short, done)
    if kind == _SHORT:
        return _decode_shorts(column, rows, cursors, count, number, short, done)
    if kind == _BIT:
        return _decode_bits(column, rows, cursors, count, number, short, done)
    if kind == _TEXT or kind == _BYTES:
        return _decode_variable(column, rows, cursors, limits, count, number, short, done)
    return _decode_decimals(column, rows, cursors, count, number, short, done)


@routine
def keep_version(arena, version):
    """Make room behind a version that was built in the arena; returns where the next one is built."""
    if version == arena + ROW_BUFFER:
        move_bytes(arena, version, load_u16(version + SIZE_AT))
    return arena + load_u16(arena + SIZE_AT)


@routine
def decode_block(scan, rows, cursors, limits, count, gap):
    """Decode the rows of a block behind those that are done; returns DONE, NO_ROOM, or NOT_FOUND for nonsense.

    ``scan`` has their columns and how many rows are done.  ``gap``: bytes between a row's header and its values.
    """
    short = start_cursors(rows, cursors, count, scan.column_count, gap)
    for number in range(scan.column_count):
        column = arrow_column(scan.columns + number * COLUMN_SIZE)
        decoded = decode_column(column, rows, cursors, limits, count, number, short, scan.done)
        if decoded == NO_ROOM:
            return NO_ROOM
        if decoded < count:
            return NOT_FOUND
    return DONE


@routine
def save_columns(scan, saved):
    """Remember how far the columns were filled before the block."""
    for number in range(scan.column_count):
        column = arrow_column(scan.columns + number * COLUMN_SIZE)
        saved[2 * number], saved[2 * number + 1] = column.used, column.nulls


@routine
def restore_columns(scan, saved, count):
    """Discard a block that was read while its pages changed."""
    for number in range(scan.column_count):
        column = arrow_column(scan.columns + number * COLUMN_SIZE)
        if not column.wanted:
            continue
        for k in range(scan.done, scan.done + count):
            set_bit(column.validity, k)
            if column.kind == _BIT:
                clear_bit(column.values, k)
        column.used, column.nulls = saved[2 * number], saved[2 * number + 1]


# ---- Heap pages into Arrow columns, beside writers.

WATCHED_MAX = 1024  # pages that a block may read
ARENA_SIZE = 1 << 20  # for versions that a block builds from undo
RETRIES = 8
_LOOKS = 1 << 16  # at a page that somebody changes, before the guard is asked for

SCAN = Structure(
    [
        ("scn", "<i8"),  # the snapshot: the fields of visibility.SNAPSHOT come first
        ("transaction", "<i8"),
        ("statement", "<i8"),
        ("obj_id", "<i8"),
        ("ids", "<i8"),  # address of the page ids (u32)
        ("page_count", "<i8"),
        ("next_page", "<i8"),  # where the scan stands
        ("next_slot", "<i8"),
        ("done", "<i8"),  # rows decoded so far
        ("trusted", "<i8"),  # 1: the caller holds the guard
        ("columns", "<i8"),  # address of the table's columns up to the last that is wanted
        ("column_count", "<i8"),
        ("row_capacity", "<i8"),  # rows that the buffers have room for
        ("row_ids", "<i8"),  # address for the rows' places (i64s); 0: not wanted
    ]
)
scan_at = records(SCAN)


@long_kernel
def measure_pages(area, ids, count, sizes):
    """Check ``count`` pages and add up their slots and row bytes: upper bounds for what a scan gives.

    Writes the two sums (int64) to ``sizes``; returns a status.
    """
    slots, row_bytes = 0, 0
    for i in range(count):
        page = touch(area, load_u32(ids + 4 * i))
        if page < 0:
            return page
        if holds_rows(page_head(page)):  # a page that was empty may have gone to somebody else
            slots += heap_node(page + NODE_AT).slot_count
            row_bytes += page_head(page).free_begin
    store_64(sizes, slots)
    store_64(sizes + 8, row_bytes)
    return 0


@routine
def _watch(area, page_id, watch):
    """Note the version of a page that the block reads, after waiting a while for a change of it to end."""
    at = version_address(area, page_id)
    version = load_u32(at)
    for _ in range(_LOOKS):
        if not version & 1:
            break
        fence()
        version = load_u32(at)
    fence()
    watch[watch[0]] = page_id << 32 | version
    watch[0] += 1


@routine
def is_unchanged(area, watch):
    """Whether no page that the block read has changed or was being changed."""
    fence()
    for i in range(1, watch[0]):
        if watch[i] & 1 or load_u32(version_address(area, watch[i] >> 32)) != watch[i] & 0xFFFF_FFFF:
            return False
    return True


@routine
def _version_of(area, scan, home, page_id, slot, page_seen, arena, watch):
    """Where the row's version that the scan sees lies: on a page or in the arena; or a status."""
    word = load_u32(home)
    version = home
    if word >> 24 & FLAG_ENTRY:
        target = link_target(home)
        if not page_in_use(area, target):
            return NOT_FOUND
        _watch(area, target, watch)
        version = linked_row(area, home)
        if version < 0:
            return version
    if word & NO_LOCK == NO_LOCK and page_seen and not word >> 24 & FLAG_DELETE:
        return version
    return resolve(area, scan, word, version, page_seen, arena, page_id, slot)


@routine
def _gather_plain(page, page_size, slot, slot_count, rows, limits, places, place, count, room):
    """Collect rows without lock or flag, as most are, up to the first other; returns (slot, rows)."""
    directory, limit = page + page_size - TAIL_SIZE - 2, page + page_size
    while slot < slot_count and count < room:
        offset = load_u16(directory - 2 * slot)
        if not offset & SLOT_FREED:
            if load_u32(page + offset) != UNLOCKED:
                break
            rows[count] = page + offset
            limits[count] = limit
            places[count] = place + slot
            count += 1
        slot += 1
    return slot, count


@routine
def _gather_page(area, scan, page_id, page, rows, limits, places, watch, arenas, count):
    """Add the rows of a page from where the scan stands until the block is full; returns how many it has."""
    head, page_size = page_head(page), page_size_of(area, page_id)
    slot_count = min(heap_node(page + NODE_AT).slot_count, (page_size - TAIL_SIZE - NODE_AT) >> 1)
    if head.obj_id != scan.obj_id or not holds_rows(head):
        slot_count = 0  # it was empty, and has gone to somebody else since
    page_seen = load_is_seen(area, scan, page)
    room, place = min(BLOCK_ROWS, scan.row_capacity - scan.done), place_of(page_id, 0)
    slot = scan.next_slot
    for _ in range(max(slot_count - slot, 0) + 1):
        if page_seen:
            slot, count = _gather_plain(
                page, page_size, slot, slot_count, rows, limits, places, place_of(page_id, 0), count, room
            )
        if slot >= slot_count:
            scan.next_page += 1
            scan.next_slot = 0
            return count
        if count == BLOCK_ROWS or watch[0] >= WATCHED_MAX or arenas[0] + 2 * ROW_BUFFER > arenas[1]:
            scan.next_slot = slot
            return count
        home = row_in_slot(page, page_size, slot)
        slot += 1
        if home < 0 or flags_of(home) & FLAG_LINK:
            continue
        version = _version_of(area, scan, home, page_id, slot - 1, page_seen, arenas[0], watch)
        if version == INVISIBLE:
            continue
        if version == DAMAGED:
            return DAMAGED
        if version < 0 or count == room:
            return min(version, NOT_FOUND)
        rows[count], limits[count], places[count] = version, version + ROW_BUFFER, place | (slot - 1)
        if arenas[0] <= version < arenas[1]:
            rows[count] = arenas[0]
            arenas[0] = keep_version(arenas[0], version)
        count += 1
    return damaged(area, page_id)  # more rounds than slots: there is no such page


@routine
def gather_block(area, scan, rows, limits, places, watch, arenas):
    """Collect the rows of a block, and where they are at home, from where the scan stands; returns how many, or a
    status."""
    count = 0
    for _ in range(WATCHED_MAX):
        if scan.next_page >= scan.page_count or count == BLOCK_ROWS or watch[0] >= WATCHED_MAX:
            break
        page_id = load_u32(scan.ids + 4 * scan.next_page)
        page = touch(area, page_id)
        if page < 0:
            return page
        _watch(area, page_id, watch)
        before = scan.next_page
        count = _gather_page(area, scan, page_id, page, rows, limits, places, watch, arenas, count)
        if count < 0 or scan.next_page == before:
            return count
    return count


@routine
def _scan_block(area, scan, rows, cursors, limits, places, watch, saved, arenas):
    """One block of rows, read again as often as its pages change meanwhile; returns its rows or a status."""
    first_page, first_slot = scan.next_page, scan.next_slot
    save_columns(scan, saved)
    for _ in range(1 if scan.trusted else RETRIES):
        watch[0] = 1
        arenas[0] = arenas[2]
        count = gather_block(area, scan, rows, limits, places, watch, arenas)
        status = decode_block(scan, rows, cursors, limits, count, 0) if count >= 0 else count
        unchanged = scan.trusted or is_unchanged(area, watch)
        if status == DONE and unchanged:
            if scan.row_ids:
                for k in range(count):
                    store_64(scan.row_ids + 8 * (scan.done + k), places[k])
            return count
        restore_columns(scan, saved, max(count, 0))
        scan.next_page, scan.next_slot = first_page, first_slot
        if unchanged and status == NO_ROOM:
            return NO_ROOM
        if unchanged:
            return status if status == DAMAGED else damaged(area, load_u32(scan.ids + 4 * first_page))
    return BUSY


@long_kernel
def scan_pages(area, scan_address):
    """Decode the rows that the snapshot sees into the columns' buffers, from where the scan stands.

    Returns DONE at the end of its pages, BUSY if pages change too fast to be read without the guard.  With
    ``trusted``, the guard held, it reads one block.  NO_ROOM if the bytes of a variable column need more than its
    capacity, as migrated rows, which lie elsewhere, can do.
    """
    scan = scan_at(scan_address)
    rows, cursors = np.empty(BLOCK_ROWS, np.int64), np.empty(BLOCK_ROWS, np.int64)
    limits, places = np.empty(BLOCK_ROWS, np.int64), np.empty(BLOCK_ROWS, np.int64)
    watch = np.empty(WATCHED_MAX + 8, np.int64)
    saved = np.empty(2 * scan.column_count + 2, np.int64)
    memory = np.empty(ARENA_SIZE + 2 * ROW_BUFFER, np.uint8)
    arena = address_of_array(memory)
    arenas = np.array([arena, arena + ARENA_SIZE, arena])  # where the next version is built, the end, the start
    count = 0
    while scan.next_page < scan.page_count:  # ends: a block takes a slot or a page at least
        count = _scan_block(area, scan, rows, cursors, limits, places, watch, saved, arenas)
        if count < 0:
            break
        scan.done += count
        if scan.trusted:
            break
    memory[0] = 0  # an array lives until its last use: not shorter than the addresses into it
    return min(count, DONE)
