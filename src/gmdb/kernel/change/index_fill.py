"""A B-tree out of sorted runs, from the leaves up: the second half of building one.

On every level one page is open, the last.  When an entry does not fit there, the page is closed: it is logged, and its
separator goes to the open page of the level above.  A leaf that was made elsewhere becomes the open
leaf as it is.  Until ``finish_tree`` has closed the last pages and set the root,
nobody finds the tree; if it does not come to that, its segment is dropped as a whole.
"""

from __future__ import annotations

from gmdb.format.address import NO_PAGE
from gmdb.format.btree import ENTRIES_AT, KEY_BYTES_MAX
from gmdb.format.layout import Structure
from gmdb.format.page import HEAD_SIZE, PAGE_SIZES, TAIL_SIZE, PageType, SegmentType
from gmdb.format.row import COL_COUNT_AT, SIZE_AT, UNLOCKED
from gmdb.kernel.change.index_sort import RUN, comes_before, run_at
from gmdb.kernel.indexes.any_index import open_index
from gmdb.kernel.indexes.btree import new_node, open_last, write_open, write_separator
from gmdb.kernel.indexes.index_head import entry_page_of, set_root, space_of
from gmdb.kernel.indexes.index_node import (
    append_entry,
    capacity_of,
    copy_page_entries,
    entry_in,
    entry_size,
    node_at,
    room_in,
    slot_at,
)
from gmdb.kernel.page.allocation import pages_available
from gmdb.kernel.page.area import change, damaged, mark_dirty, page_head, page_size_of, touch
from gmdb.kernel.page.redo import close_group, log_page, require_log_room
from gmdb.kernel.page.soundness import LEVELS_MAX, entry_is_sound
from gmdb.kernel.row import ENTRY_BUFFER, VALUES_AT, compare_keys, has_null, index_head, key_columns
from gmdb.kernel.runtime.compiler import kernel, long_kernel, routine
from gmdb.kernel.runtime.memory import fill_bytes, load_i64, load_u16, load_u32, move_bytes, records, store_64
from gmdb.kernel.runtime.status import DONE, DUPLICATE, LOG_FULL, NEED_SPACE

FILL = Structure(
    [
        ("runs", "<i8"),  # address of the runs
        ("run_count", "<i8"),
        ("pages", "<i8"),  # address of the open pages' ids, by level (i64s); -1: none yet
        ("scratch", "<i8"),  # address of FILL_SCRATCH bytes: for an entry, and a separator a level
        ("previous", "<i8"),  # address of the last entry that was put in
        ("count", "<i8"),  # entries that were put in
        ("closed", "<i8"),  # pages that the last call has closed
    ]
)
fill_at = records(FILL)
FILL_SCRATCH = ENTRY_BUFFER * (1 + LEVELS_MAX)
_RUN_SIZE = RUN.itemsize
_OPEN_ROOM = VALUES_AT + 2  # for the entry that ends a branch
_KEPT_FREE = 16  # one part of so many of a page stays free, for what is added later
_PAGE_SIZE, _PAGES = PAGE_SIZES[0], 64  # what a group takes
_ENTRIES = _PAGES * _PAGE_SIZE // VALUES_AT  # that there can be on as many pages
_ALL_LEVELS = LEVELS_MAX + 4  # pages that one entry may need


@routine
def _open_page(fill, level):
    return load_i64(fill.pages + 8 * level)


@routine
def _first_run(index, fill):
    """The run whose next entry comes first; -1 if all are used up."""
    best, best_entry = -1, 0
    for n in range(fill.run_count):
        run = run_at(fill.runs + n * _RUN_SIZE)
        if run.next < run.count:
            entry = run.entries + load_i64(run.offsets + 8 * run.next)
            if best < 0 or comes_before(index, entry, best_entry):
                best, best_entry = n, entry
    return best


@routine
def fits(page, page_size, level, size):
    """Whether an entry goes onto an open page; an empty one takes any."""
    kept = capacity_of(page_size) // _KEPT_FREE + (_OPEN_ROOM if level else 0)
    return node_at(page).slot_count == 0 or room_in(page) - kept >= size + 2


@routine
def _close(area, index, fill, level, page_id, following):
    """Close a level's open page and open another; its separator is in the level's scratch."""
    page, page_size = touch(area, page_id), page_size_of(area, page_id)
    new_id = new_node(area, index, level)
    if new_id < 0:
        return new_id
    last = entry_in(page, page_size, node_at(page).slot_count - 1)
    write_separator(index, fill.scratch + ENTRY_BUFFER * (1 + level), last, following, level == 0, page_id)
    if level:
        open_last(page, page_size)
    node_at(page).next = new_id
    node_at(touch(area, new_id)).prev = page_id
    change(area, page)
    log_page(area, page)
    store_64(fill.pages + 8 * level, new_id)
    fill.closed += 1
    return new_id


@routine
def _put(area, index, fill, item, first_level):
    """Put an entry behind all others of a level: onto its open page, with separators going up where pages are full."""
    for level in range(first_level, LEVELS_MAX):
        page_id = _open_page(fill, level)
        if page_id < 0:
            page_id = new_node(area, index, level)
            if page_id < 0:
                return page_id
            store_64(fill.pages + 8 * level, page_id)
        page, page_size = touch(area, page_id), page_size_of(area, page_id)
        if fits(page, page_size, level, entry_size(item)):
            append_entry(page, page_size, item)
            return DONE
        if level == 0 and pages_available(area, space_of(index)) < _ALL_LEVELS:
            return NEED_SPACE
        new_id = _close(area, index, fill, level, page_id, item)
        if new_id < 0:
            return new_id
        append_entry(touch(area, new_id), page_size, item)
        item = fill.scratch + ENTRY_BUFFER * (1 + level)
    return damaged(area, entry_page_of(index))  # no table has as many rows


@routine
def _put_leaf(area, index, fill, leaf):
    """Let a page of entries, all behind those that are in, be the open leaf."""
    page_id = _open_page(fill, 0)
    page, page_size = touch(area, page_id), page_size_of(area, page_id)
    if node_at(page).slot_count == 0:
        copy_page_entries(page, page_size, leaf)
        return DONE
    if pages_available(area, space_of(index)) < _ALL_LEVELS:
        return NEED_SPACE
    new_id = _close(area, index, fill, 0, page_id, entry_in(leaf, page_size, 0))
    if new_id < 0:
        return new_id
    copy_page_entries(touch(area, new_id), page_size, leaf)
    return _put(area, index, fill, fill.scratch + ENTRY_BUFFER, 1)


@routine
def _hold_pages(area, fill):
    """Between calls nothing of the open pages is logged, so they must not look as if the file had them."""
    for level in range(LEVELS_MAX):
        if _open_page(fill, level) >= 0:
            mark_dirty(area, _open_page(fill, level))


@kernel
def fill_tree(area, entry_id, fill_address):
    """Put some of the runs' next entries into the tree; returns how many, 0 once all are in."""
    if require_log_room(area) < 0:
        return LOG_FULL
    fill, index = fill_at(fill_address), open_index(area, entry_id)
    if index < 0:
        return index
    done, status, unique = 0, DONE, index_head(index).unique
    pages_max = _PAGES * _PAGE_SIZE // page_size_of(area, entry_id)
    fill.closed = 0
    _hold_pages(area, fill)
    for _ in range(_ENTRIES):
        n = _first_run(index, fill) if fill.closed < pages_max else -1
        if n < 0:
            break
        run = run_at(fill.runs + n * _RUN_SIZE)
        entry = run.entries + load_i64(run.offsets + 8 * run.next)
        if unique and fill.count and compare_keys(index, fill.previous, entry, key_columns(index)) == 0:
            status = DUPLICATE if not has_null(index, entry) else DONE
        if status == DONE:
            status = _put(area, index, fill, entry, 0)
        if status < 0:
            break
        fill.previous = entry
        run.next += 1
        fill.count += 1
        done += 1
    return close_group(area, 0, done if done else status)


@kernel
def attach_leaves(area, entry_id, fill_address, leaves, count):
    """Put some of ``count`` leaves that lie one behind the other, and were checked, into the tree; returns how many."""
    if require_log_room(area) < 0:
        return LOG_FULL
    fill, index = fill_at(fill_address), open_index(area, entry_id)
    if index < 0:
        return index
    done, status, page_size = 0, DONE, page_size_of(area, entry_id)
    pages_max = _PAGES * _PAGE_SIZE // page_size
    fill.closed = 0
    _hold_pages(area, fill)
    while done < count and fill.closed < pages_max:
        leaf = leaves + done * page_size
        status = _put_leaf(area, index, fill, leaf)
        if status < 0:
            break
        fill.count += node_at(leaf).slot_count
        done += 1
    return close_group(area, 0, done if done else status)


@kernel
def finish_tree(area, entry_id, fill_address):
    """All entries are in: close the open pages, and set the root."""
    if require_log_room(area) < 0:
        return LOG_FULL
    fill, index = fill_at(fill_address), open_index(area, entry_id)
    if index < 0:
        return index
    for level in range(LEVELS_MAX):
        page_id = _open_page(fill, level)
        page, page_size = touch(area, page_id), page_size_of(area, page_id)
        change(area, page)
        log_page(area, page)
        if level + 1 == LEVELS_MAX or _open_page(fill, level + 1) < 0:
            set_root(area, index, page_id)
            break
        write_open(fill.scratch, page_id)
        append_entry(touch(area, _open_page(fill, level + 1)), page_size, fill.scratch)
    return close_group(area, 0, DONE)


# ---- Leaves of a B-tree out of entries that several tasks have sorted, made outside of the database.
#
# A task cuts its run at bounds that all tasks share.  The pieces between two bounds, one of each run, are merged onto
# leaf pages, which have entries but no place yet.  They are checked before they are taken into the tree:
# they come from files.

PIECE = Structure([("next", "<i8"), ("end", "<i8")])  # addresses: of the first entry not used yet, behind the last
piece_at = records(PIECE)
_PIECE_SIZE = PIECE.itemsize
MERGE = Structure(
    [
        ("pieces", "<i8"),  # address of the pieces
        ("heap", "<i8"),  # address of their numbers (i64s), as a heap: the first has the entry that comes next
        ("count", "<i8"),  # how many pieces are not used up
        ("previous", "<i8"),  # address of the last entry that was put on a page; 0: none yet
        ("entries", "<i8"),  # how many were
    ]
)
merge_at = records(MERGE)
_DATA, _BTREE = int(PageType.DATA), int(SegmentType.BTREE)


# ---- cutting


@long_kernel
def cut_run(area, entry_id, run_address, bounds, count, cuts):
    """For each of ``count`` bounds (i64s, addresses of entries) write how many entries of a run come before it."""
    run, index = run_at(run_address), open_index(area, entry_id)
    if index < 0:
        return index
    for n in range(count):
        low, high = 0, run.count
        while low < high:  # ends: they come closer with every look
            middle = (low + high) >> 1
            entry = run.entries + load_i64(run.offsets + 8 * middle)
            if comes_before(index, entry, load_i64(bounds + 8 * n)):
                low = middle + 1
            else:
                high = middle
        store_64(cuts + 8 * n, low)
    return DONE


# ---- merging


@routine
def _piece(merge, place):
    return piece_at(merge.pieces + load_i64(merge.heap + 8 * place) * _PIECE_SIZE)


@routine
def _sink(index, merge, place):
    """Let a piece change places with those below it in the heap that come before it."""
    number = load_i64(merge.heap + 8 * place)
    entry = piece_at(merge.pieces + number * _PIECE_SIZE).next
    while 2 * place + 1 < merge.count:  # ends: the place goes down, level by level
        below = 2 * place + 1
        if below + 1 < merge.count and comes_before(index, _piece(merge, below + 1).next, _piece(merge, below).next):
            below += 1
        if comes_before(index, entry, _piece(merge, below).next):
            break
        store_64(merge.heap + 8 * place, load_i64(merge.heap + 8 * below))
        place = below
    store_64(merge.heap + 8 * place, number)


@long_kernel
def begin_merge(area, entry_id, merge_address):
    """Bring the numbers of pieces, none of them empty, into order."""
    merge, index = merge_at(merge_address), open_index(area, entry_id)
    if index < 0:
        return index
    for place in range(merge.count // 2 - 1, -1, -1):
        _sink(index, merge, place)
    return DONE


@routine
def _start_leaf(page, page_size):
    fill_bytes(page, 0, page_size)
    head, node = page_head(page), node_at(page)
    head.page_type = _DATA
    head.seg_type = _BTREE
    head.data_begin = HEAD_SIZE
    head.free_begin = ENTRIES_AT
    head.free_end = page_size - TAIL_SIZE
    node.next = NO_PAGE
    node.prev = NO_PAGE


@routine
def _is_duplicate(index, previous, entry):
    """Whether a unique index cannot have both entries, which are neighbours."""
    same = compare_keys(index, previous, entry, key_columns(index)) == 0
    return same and not has_null(index, entry)


@long_kernel
def merge_leaves(area, entry_id, merge_address, pages, page_size, count):
    """Put the next entries onto up to ``count`` leaves; returns how many it were, 0 once all entries are on one.

    DUPLICATE if the next entry's key is the last one's, and must not be.
    """
    merge, index = merge_at(merge_address), open_index(area, entry_id)
    if index < 0:
        return index
    if merge.count == 0:
        return 0
    unique, done, page = index_head(index).unique, 0, pages
    _start_leaf(page, page_size)
    while merge.count:  # ends: an entry takes some of the leaves, of which there are ``count``
        piece = _piece(merge, 0)
        entry = piece.next
        if unique and merge.previous and _is_duplicate(index, merge.previous, entry):
            return DUPLICATE
        if not fits(page, page_size, 0, entry_size(entry)):
            done += 1
            if done == count:
                return done
            page += page_size
            _start_leaf(page, page_size)
        append_entry(page, page_size, entry)
        merge.previous = entry
        merge.entries += 1
        piece.next += entry_size(entry)
        if piece.next >= piece.end:
            merge.count -= 1
            store_64(merge.heap, load_i64(merge.heap + 8 * merge.count))
        if merge.count:
            _sink(index, merge, 0)
    return done + 1


# ---- checking


@routine
def _entry_is_sound(index, entry, end):
    """Whether bytes before ``end`` are an entry of a leaf that nobody has locked."""
    if entry + VALUES_AT > end or load_u32(entry) != UNLOCKED:
        return False
    is_of_index = load_u16(entry + COL_COUNT_AT) == key_columns(index)
    return is_of_index and load_u16(entry + SIZE_AT) <= VALUES_AT + KEY_BYTES_MAX and entry_is_sound(entry, end)


@routine
def _may_follow(index, previous, entry, unique):
    return comes_before(index, previous, entry) and not (unique and _is_duplicate(index, previous, entry))


@routine
def _leaf_is_sound(index, page, page_size, previous):
    """Whether a page is a leaf whose entries are in order, behind ``previous``, and, if they must be, unique."""
    head, node = page_head(page), node_at(page)
    count, unique = node.slot_count, index_head(index).unique
    if head.page_type != _DATA or head.seg_type != _BTREE or node.level != 0 or count == 0:
        return False
    if head.free_end != page_size - TAIL_SIZE - 2 * count or not ENTRIES_AT <= head.free_begin <= head.free_end:
        return False
    for slot in range(count):
        offset = load_u16(slot_at(page, page_size, slot))
        entry = page + offset
        if offset < ENTRIES_AT or not _entry_is_sound(index, entry, page + head.free_begin):
            return False
        if entry_size(previous) and not _may_follow(index, previous, entry, unique):
            return False
        previous = entry
    return True


@long_kernel
def check_leaves(area, entry_id, pages, page_size, count, previous):
    """Check leaves that are to be taken into a tree; returns DONE, or -n if leaf n, counted from 1, is unsound.

    ``previous`` has room for an entry: the last one of the leaves before, if it has a size, and then of these.
    """
    index = open_index(area, entry_id)
    if index < 0:
        return -1
    last = previous
    for i in range(count):
        page = pages + i * page_size
        if not _leaf_is_sound(index, page, page_size, last):
            return -(i + 1)
        last = entry_in(page, page_size, node_at(page).slot_count - 1)
    if last != previous:
        move_bytes(previous, last, entry_size(last))
    return DONE
