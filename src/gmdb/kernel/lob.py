"""Large objects on pages: writing them piece by piece, reading from any byte on, giving their pages back.

Invariants
 1. A value's first page and its undo record come into being in one group; whatever is added later hangs on that page.
    So rollback, also after a crash in the middle, finds all of it.
 2. After each call the value is whole: its length is what its pages hold.
 3. A value that a row has is not changed any more, until it is given back.  So reading needs no guard: a read by a
    snapshot that was given up meanwhile may get nonsense, but from within pages only, and fails afterwards.
"""

from __future__ import annotations

from gmdb.format.address import NO_SLOT
from gmdb.format.lob import DATA_AT, ID_SIZE, LEVEL_MAX, LOB_LOCATOR, LOB_NODE, NODE_AT, LobPlace
from gmdb.format.page import TAIL_SIZE, PageType, SegmentType
from gmdb.format.row import COL_COUNT_AT, NO_LOCK
from gmdb.kernel.locks import transaction_at
from gmdb.kernel.page.allocation import pages_available
from gmdb.kernel.page.area import change, damaged, page_head, page_size_of, touch, touch_type
from gmdb.kernel.page.redo import close_group, is_group_long, log_bytes, log_counts, log_page, require_log_room
from gmdb.kernel.page.segment import add_page, release_page, space_of_segment, touch_entry
from gmdb.kernel.row import column_code, header_bytes, is_apart, is_text_locator, patched_number, stored_bytes
from gmdb.kernel.runtime.call import call_at
from gmdb.kernel.runtime.compiler import kernel, long_kernel, routine
from gmdb.kernel.runtime.memory import load_i64, load_u8, load_u16, load_u32, move_bytes, records, store_32, store_64
from gmdb.kernel.runtime.status import DONE, LOG_FULL, NEED_SPACE, NOT_FOUND
from gmdb.kernel.undo import (
    OP_LOB_DELETE,
    OP_LOB_INSERT,
    RECORD_SIZE,
    log_newest,
    record_entry,
    record_object,
    record_row_page,
    reserve_undo,
    write_record,
)

lob_node = records(LOB_NODE)
PAGES_A_STEP = 8  # that adding a page of a value may take: of each level, and of the segment's map
FREED_AT_ONCE = 128  # pages that a call gives back
_DATA, _LOB = int(PageType.DATA), int(SegmentType.LOB)
_NODE_SIZE = LOB_NODE.size
_LOCATOR_SIZE, _FIRST_PAGE_AT = LOB_LOCATOR.size, LOB_LOCATOR.offset("first_page")
_ON_PAGES = int(LobPlace.ON_PAGES)


@routine
def _room(area, page_id):
    """Bytes that a page takes."""
    return page_size_of(area, page_id) - DATA_AT - TAIL_SIZE


@routine
def _count(page):
    """Bytes that a page has."""
    return page_head(page).free_begin - DATA_AT


@routine
def _touch_lob(area, page_id):
    return touch_type(area, page_id, _DATA, _LOB)


@routine
def _log_node(area, page):
    change(area, page)
    log_bytes(area, page, NODE_AT, _NODE_SIZE)


# ---- writing


@routine
def _add(area, entry_id, first_page, number, level):
    """Add a page to a value (its first if ``first_page`` is 0); returns its id.  There is space for it."""
    page = add_page(area, entry_id, _LOB)
    if page < 0:
        return page
    page_id = page_head(page).page_id
    node = lob_node(page + NODE_AT)
    node.first_page = first_page if first_page else page_id
    node.number = number
    node.level = level
    page_head(page).free_begin = DATA_AT
    _log_node(area, page)
    log_counts(area, page)
    return page_id


@routine
def _put(area, page, source, size):
    """Append bytes to a page that has room for them."""
    head = page_head(page)
    at = head.free_begin
    move_bytes(page + at, source, size)
    head.free_begin = at + size
    change(area, page)
    log_bytes(area, page, at, size)
    log_counts(area, page)


@routine
def _put_id(area, page, page_id):
    head = page_head(page)
    at = head.free_begin
    store_32(page + at, page_id)
    head.free_begin = at + ID_SIZE
    change(area, page)
    log_bytes(area, page, at, ID_SIZE)
    log_counts(area, page)


@routine
def _raise(area, entry_id, first_page):
    """Add a level below the first page: its content moves to a new page, which the first page then lists."""
    root = _touch_lob(area, first_page)
    node = lob_node(root + NODE_AT)
    below = _add(area, entry_id, first_page, 0, node.level)
    if below < 0:
        return below
    page = _touch_lob(area, below)
    size = _count(root)
    move_bytes(page + DATA_AT, root + DATA_AT, size)
    page_head(page).free_begin = DATA_AT + size
    change(area, page)
    log_page(area, page)
    node.level += 1
    page_head(root).free_begin = DATA_AT
    change(area, root)
    log_page(area, root)
    _put_id(area, root, below)
    return DONE


@routine
def _last_child(area, page):
    """The last page that a page lists."""
    return _touch_lob(area, load_u32(page + page_head(page).free_begin - ID_SIZE))


@routine
def _add_leaf(area, entry_id, first_page, number):
    """The page of level 0 of that number, which comes next; returns its address or a status."""
    fan = _room(area, first_page) // ID_SIZE
    root = _touch_lob(area, first_page)
    level, reach = lob_node(root + NODE_AT).level, 1
    for _ in range(level):
        reach *= fan
    if number >= reach:
        if level == LEVEL_MAX:
            return damaged(area, first_page)
        status = _raise(area, entry_id, first_page)
        if status < 0:
            return status
        level += 1
    parent = root
    if level == LEVEL_MAX:
        if number % fan == 0:
            middle = _add(area, entry_id, first_page, number // fan, 1)
            if middle < 0:
                return middle
            _put_id(area, root, middle)
        parent = _last_child(area, root)
        if parent < 0:
            return parent
    leaf = _add(area, entry_id, first_page, number, 0)
    if leaf < 0:
        return leaf
    _put_id(area, parent, leaf)
    return _touch_lob(area, leaf)


@routine
def _last_leaf(area, first_page):
    """The last page of level 0."""
    page = _touch_lob(area, first_page)
    for _ in range(LEVEL_MAX):
        if page < 0 or lob_node(page + NODE_AT).level == 0:
            return page
        page = _last_child(area, page)
    return page


@routine
def _append(area, entry_id, first_page, source, size):
    """Append as many of the bytes as a group takes; returns how many, or why not one."""
    root = _touch_lob(area, first_page)
    leaf = _last_leaf(area, first_page) if root > 0 else root
    if leaf < 0:
        return leaf
    node, room, space_id = lob_node(root + NODE_AT), _room(area, first_page), space_of_segment(area, entry_id)
    done = 0
    while done < size and not is_group_long(area):  # ends: a piece has a byte at least
        if _count(leaf) == room:
            if pages_available(area, space_id) < PAGES_A_STEP:
                if done == 0:
                    return NEED_SPACE
                break
            leaf = _add_leaf(area, entry_id, first_page, (node.length + done) // room)
            if leaf < 0:
                return leaf
        piece = min(size - done, room - _count(leaf))
        if piece <= 0:
            return damaged(area, first_page)
        _put(area, leaf, source + done, piece)
        done += piece
    node.length += done
    _log_node(area, root)
    return done


@kernel
def create_lob(area, call_address, obj_id, entry_id):
    """Begin a value; returns its first page."""
    if require_log_room(area) < 0:
        return LOG_FULL
    call = call_at(call_address)
    call.undo, call.blocked = -1, -1
    entry_page = touch_entry(area, entry_id)
    if entry_page < 0:
        return entry_page
    if pages_available(area, space_of_segment(area, entry_id)) < PAGES_A_STEP:
        return NEED_SPACE
    status = reserve_undo(area, call, RECORD_SIZE)
    if status == DONE:
        status = _add(area, entry_id, 0, 0, 0)
    if status > 0:
        record = write_record(area, call, status, NO_SLOT, NO_LOCK, obj_id, entry_id, OP_LOB_INSERT, 0)
        log_newest(area, call, record)
    return close_group(area, transaction_at(area, call.transaction).number, status)


@kernel
def append_lob(area, call_address, entry_id, first_page, source, size):
    """Append bytes to a value that the call's transaction has begun; returns how many, one at least."""
    if require_log_room(area) < 0:
        return LOG_FULL
    call = call_at(call_address)
    call.undo, call.blocked = -1, -1
    done = _append(area, entry_id, first_page, source, size)
    return close_group(area, transaction_at(area, call.transaction).number, done)


# ---- reading


@routine
def _find(area, obj_id, page_id, first_page, level, number):
    """A page of a value if it is what it should be; NOT_FOUND if it is another."""
    page = touch(area, page_id)
    if page < 0:
        return page
    head, node = page_head(page), lob_node(page + NODE_AT)
    if head.page_type != _DATA or head.seg_type != _LOB or head.obj_id != obj_id:
        return NOT_FOUND
    right = node.first_page == first_page and node.number == number and (level < 0 or node.level == level)
    return page if right and node.level <= LEVEL_MAX else NOT_FOUND


@routine
def _child(area, obj_id, page, first_page, level, number, fan):
    """The page of a level and number beneath a page of the level above."""
    at = page + DATA_AT + number % fan * ID_SIZE
    return _find(area, obj_id, load_u32(at), first_page, level, number)


@routine
def _leaf(area, obj_id, first_page, number):
    """The page of level 0 of that number."""
    fan = _room(area, first_page) // ID_SIZE
    page = _find(area, obj_id, first_page, first_page, -1, 0)
    if page < 0:
        return page
    level = lob_node(page + NODE_AT).level
    if level == LEVEL_MAX:
        page = _child(area, obj_id, page, first_page, 1, number // fan, fan)
        level = 1
    if level == 1 and page > 0:
        page = _child(area, obj_id, page, first_page, 0, number, fan)
    return page


@routine
def read_value(area, obj_id, first_page, at, target, size):
    """``read_lob``, for kernels."""
    page = touch(area, first_page)
    if page < 0:
        return page
    room, done = _room(area, first_page), 0
    while done < size:  # ends: a piece has a byte at least
        page = _leaf(area, obj_id, first_page, (at + done) // room)
        if page < 0:
            return page
        skip = (at + done) % room
        piece = min(size - done, min(_count(page), room) - skip)
        if piece <= 0:
            return done
        move_bytes(target + done, page + DATA_AT + skip, piece)
        done += piece
    return done


@long_kernel
def read_lob(area, obj_id, first_page, at, target, size):
    """Copy ``size`` bytes of a value, from byte ``at`` on; returns how many there were, or a status."""
    return read_value(area, obj_id, first_page, at, target, size)


# ---- giving back


@routine
def _shorten(area, page, limit, entry_id):
    """Give back up to ``limit`` of the last pages that a page lists; returns how many, or a status."""
    head, done = page_head(page), 0
    while done < limit and head.free_begin > DATA_AT:
        listed = load_u32(page + head.free_begin - ID_SIZE)
        if listed == lob_node(page + NODE_AT).first_page:
            return damaged(area, listed)  # the value's pages go round in a circle
        status = release_page(area, entry_id, listed)
        if status < 0:
            return status
        head.free_begin -= ID_SIZE
        done += 1
    change(area, page)
    log_counts(area, page)
    return done


@routine
def _leaves(area, root, fan):
    """How many pages of level 0 a value has."""
    listed = _count(root) // ID_SIZE
    if lob_node(root + NODE_AT).level < LEVEL_MAX or listed == 0:
        return listed
    last = _last_child(area, root)
    return (listed - 1) * fan + (_count(last) // ID_SIZE if last > 0 else 0)


@routine
def _release_some(area, entry_id, first_page, root):
    """Give the last pages of a value back; 1 if it has others than the first left, 0 if not."""
    node, limit = lob_node(root + NODE_AT), FREED_AT_ONCE
    if node.level == 0:
        return 0
    for _ in range(FREED_AT_ONCE):
        if limit <= 0 or _count(root) <= 0:
            break
        page = root
        if node.level == LEVEL_MAX:
            page = _last_child(area, root)
            if page < 0:
                return page
            if page == root:
                return damaged(area, first_page)
        done = _shorten(area, page, limit, entry_id)
        if done < 0:
            return done
        limit -= done
        if page != root and _count(page) == 0:
            done = _shorten(area, root, 1, entry_id)
            if done < 0:
                return done
            limit -= 1
    room = _room(area, first_page)
    node.length = min(node.length, _leaves(area, root, room // ID_SIZE) * room)
    _log_node(area, root)
    return 1 if _count(root) > 0 else 0


@routine
def release_lob(area, record):
    """Give the pages of the value that an undo record is about back, some at a time; 1 if there are more."""
    first_page, entry_id, obj_id = record_row_page(record), record_entry(record), record_object(record)
    root = _find(area, obj_id, first_page, first_page, -1, 0)
    if root < 0:
        return DONE if root == NOT_FOUND else root  # its table was dropped
    more = _release_some(area, entry_id, first_page, root)
    return release_page(area, entry_id, first_page) if more == 0 else more


# ---- values of rows that are changed or deleted


@routine
def _leads_to_pages(target, n, value, code):
    """Whether the value of the n-th of the columns that may have large objects is on pages."""
    if load_i64(target.lobs + 8 * (target.lob_count + n)):
        return is_apart(value, code)
    return code == 3 and load_u16(value) == _LOCATOR_SIZE and load_u8(value + 2) == _ON_PAGES


@routine
def collect_lobs(target, call, row, patch):
    """Note the first pages of the values on pages that a row has, in the columns of a patch, or in all if that is 0.

    Returns how many.  They are kept until ``note_lobs``.
    """
    found, number, index = 0, 0, 0
    at = row + header_bytes(load_u16(row + COL_COUNT_AT))
    for n in range(target.lob_count):
        wanted = load_i64(target.lobs + 8 * n)
        if wanted >= load_u16(row + COL_COUNT_AT):
            break
        while number < wanted:
            at += stored_bytes(at, column_code(row, number))
            number += 1
        if patch:
            while index < load_u16(patch + COL_COUNT_AT) and patched_number(patch, index) < wanted:
                index += 1
            if index == load_u16(patch + COL_COUNT_AT) or patched_number(patch, index) != wanted:
                continue
        if _leads_to_pages(target, n, at, column_code(row, number)):
            store_64(call.lob_roots + 8 * found, load_u32(at + 2 + _FIRST_PAGE_AT))
            found += 1
    return found


@routine
def note_lobs(area, call, target, count):
    """Write undo records of values that a row no longer has; GC frees their pages.  There is space for the records."""
    for n in range(count):
        first_page = load_i64(call.lob_roots + 8 * n)
        status = reserve_undo(area, call, RECORD_SIZE)
        if status < 0:
            return status
        record = write_record(
            area, call, first_page, NO_SLOT, NO_LOCK, target.lob_id, target.lob_entry, OP_LOB_DELETE, 0
        )
        log_newest(area, call, record)
    return DONE


# ---- Cells of large objects into Arrow columns of their values.

_LOCATOR_LENGTH_AT = LOB_LOCATOR.offset("length")


@routine
def _is_locator(cell, size, lead):
    if lead == 0:
        return is_text_locator(cell, size)
    return size == _LOCATOR_SIZE and load_u8(cell) == _ON_PAGES


@kernel
def measure_cells(values, offsets, count, lead, sizes):
    """Add to ``sizes`` (i64s) how many bytes the value of each cell has; cells lie one behind the other (u32s).

    ``lead``: how many bytes there are before a value that is here: 1 in cells of a BLOB or CLOB, 0 in those of others.
    Returns how many of the values are elsewhere.
    """
    elsewhere = 0
    for n in range(count):
        start, end = load_u32(offsets + 4 * n), load_u32(offsets + 4 * n + 4)
        length = 0
        if end > start:
            is_elsewhere = _is_locator(values + start, end - start, lead)
            length = load_i64(values + start + _LOCATOR_LENGTH_AT) if is_elsewhere else end - start - lead
            elsewhere += is_elsewhere
        store_64(sizes + 8 * n, load_i64(sizes + 8 * n) + length)
    return elsewhere


@long_kernel
def fill_values(area, obj_id, values, offsets, count, lead, target, target_offsets):
    """Copy the values of some cells one behind the other; ``target_offsets`` (i64s) says where each goes, and all end.

    NOT_FOUND if a value is not there as its cell says.
    """
    for n in range(count):
        start, end = load_u32(offsets + 4 * n), load_u32(offsets + 4 * n + 4)
        to = load_i64(target_offsets + 8 * n)
        size = load_i64(target_offsets + 8 * n + 8) - to
        if _is_locator(values + start, end - start, lead):
            done = read_value(area, obj_id, load_u32(values + start + _FIRST_PAGE_AT), 0, target + to, size)
            if done < size:
                return done if done < 0 else NOT_FOUND  # DAMAGED: the caller has yet to read the page
        elif end > start:
            move_bytes(target + to, values + start + lead, size)
    return DONE
