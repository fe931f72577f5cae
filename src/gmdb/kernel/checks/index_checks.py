"""Whether the pages of an index hang together, and its entries with the rows: fast, without words."""

from __future__ import annotations

from gmdb.format.address import NO_PAGE, OFFSET_BITS, PAGES_PER_DEVICE
from gmdb.format.btree import Order
from gmdb.format.heap import NODE_AT
from gmdb.format.layout import Structure
from gmdb.format.page import PageType, SegmentType
from gmdb.format.row import BITS_AT, COL_COUNT_AT, NO_LOCK, UNLOCKED
from gmdb.format.slotted import SLOT_FREED
from gmdb.kernel.checks.page_checks import heap_node, page_head
from gmdb.kernel.checks.row_checks import ENTRY_TARGET_AT, FLAG_DELETE, FLAG_ENTRY, FLAG_LINK, SUSPECT
from gmdb.kernel.entries import make_entry
from gmdb.kernel.indexes.index_head import is_hash
from gmdb.kernel.indexes.index_node import child_of, entry_in, entry_size, node_at
from gmdb.kernel.page.soundness import slot_value, values_reach
from gmdb.kernel.places import page_of, place_of, place_of_word, slot_of
from gmdb.kernel.row import (
    POINTER_AT,
    VALUES_AT,
    compare_keys,
    has_null,
    index_head,
    key_columns,
    order_at,
    order_of_double,
    unique_columns,
)
from gmdb.kernel.runtime.compiler import kernel, long_kernel, routine
from gmdb.kernel.runtime.memory import load_i64, load_u8, load_u16, load_u32, multiply, records, store_8, store_64
from gmdb.kernel.runtime.status import ABSENT

# ---- Entries of indexes and rows of tables as words, so that both sides can be compared by sorting numbers.
#
# A word is a hash of a key and of the place of its row.  Keys that compare as equal have the same hash.  Pages are
# read where the device files are mapped; which of them can be followed is known from ``kernel/checks/page_checks.py``.

MAPPED_DEVICE = Structure(
    [
        ("base", "<i8"),  # where its first page lies
        ("page_size", "<i8"),
        ("count", "<i8"),  # pages in use
        ("verdicts", "<i8"),  # a byte for each: its verdict
        ("seen", "<i8"),  # a byte for each: 1 once a tree has led to it
    ]
)
"""A device file in memory; there is one for each number that a device can have."""

SPECIAL = 1 << 62  # in a place: the row has a lock, the entry has one or is marked as deleted
NO_WORD = -1  # a key that no entry can have

device_at = records(MAPPED_DEVICE)
_DEVICE_SIZE = MAPPED_DEVICE.itemsize
_WORD, _LONG, _DOUBLE, _WIDE, _BYTES, _REAL, _INTERVAL = (int(order) for order in Order)
_DATA, _HEAP = int(PageType.DATA), int(SegmentType.HEAP)
_POSITIVE = (1 << 63) - 1
_FIRST_FACTOR, _SECOND_FACTOR = 0x3F58_476D_1CE4_E5B9, 0x14D0_49BB_1331_11EB
_EIGHT = 2


# ---- pages


@routine
def page_at(view, page_id):
    """Where a page lies that is in use and can be followed; 0 if it is not."""
    device = device_at(view + (page_id >> OFFSET_BITS) * _DEVICE_SIZE)
    offset = page_id & (PAGES_PER_DEVICE - 1)
    if offset >= device.count or load_u8(device.verdicts + offset) > SUSPECT:
        return 0
    return device.base + offset * device.page_size


@routine
def mapped_page_size(view, page_id):
    return device_at(view + (page_id >> OFFSET_BITS) * _DEVICE_SIZE).page_size


# ---- words


@routine
def _mix(word):
    """Spread the bits of a number from 0 to 2⁶³ - 1."""
    word ^= word >> 30
    word = multiply(word, _FIRST_FACTOR) & _POSITIVE
    word ^= word >> 27
    word = multiply(word, _SECOND_FACTOR) & _POSITIVE
    return word ^ word >> 31


@routine
def _mix_long(word, value):
    return _mix(_mix(word ^ (value & 0xFFFF_FFFF)) ^ (value >> 32 & 0xFFFF_FFFF))


@routine
def _mix_bytes(word, at, length):
    word = _mix(word ^ length)
    i = 0
    while i + 4 <= length:
        word = _mix(word ^ load_u32(at + i))
        i += 4
    while i < length:
        word = _mix(word ^ load_u8(at + i))
        i += 1
    return word


@routine
def word_of(index, entry, place):
    """The word of an entry that can be followed, for the row at a place."""
    bits, at, word = load_u32(entry + BITS_AT), entry + VALUES_AT, place
    for n in range(key_columns(index)):
        code = bits >> 2 * n & 3
        word = _mix(word ^ code + 1)
        if code == 3:
            word = _mix_bytes(word, at + 2, load_u16(at))
            at += 2 + load_u16(at)
        elif code == _EIGHT:
            value = load_i64(at)
            is_double = order_at(index, n) == _DOUBLE
            word = _mix_long(word, order_of_double(value) if is_double else value)
            at += 8
        elif code:
            word = _mix(word ^ load_u32(at))
            at += 4
    return word


@routine
def fits(index, entry, count):
    """Whether an entry that can be followed has ``count`` columns, of which the first can be the index's."""
    if load_u16(entry + COL_COUNT_AT) != count:
        return False
    bits, at = load_u32(entry + BITS_AT), entry + VALUES_AT
    for n in range(key_columns(index)):
        code, order = bits >> 2 * n & 3, order_at(index, n)
        if code == 0:
            continue
        wanted = 1 if order == _WORD or order == _REAL else _EIGHT if order == _LONG or order == _DOUBLE else 3
        if code != wanted or ((order == _WIDE or order == _INTERVAL) and load_u16(at) != 16):
            return False
        at += 2 + load_u16(at) if code == 3 else 4 * code
    return True


@routine
def leads_to_row(index, entry):
    """Whether an entry that can be followed can be one that the index has for a row."""
    columns = key_columns(index)
    if not is_hash(index):
        return fits(index, entry, columns)
    return fits(index, entry, columns + 1) and load_u32(entry + BITS_AT) >> 2 * columns & 3 == _EIGHT


@kernel
def word_of_bytes(index, entry, size):
    """The word of an entry in ``size`` bytes, of which nothing is known; NO_WORD if the index has none like it."""
    if size < VALUES_AT or not values_reach(entry, entry + size) or not leads_to_row(index, entry):
        return NO_WORD
    return word_of(index, entry, place_of_word(load_i64(entry + POINTER_AT)))


# ---- rows


@routine
def _data_of(view, obj_id, row):
    """The row with the values: itself, or where it has moved to; 0 if that leads nowhere."""
    if not load_u32(row) >> 24 & FLAG_ENTRY:
        return row
    page_id, slot = load_u32(row + ENTRY_TARGET_AT), load_u16(row + ENTRY_TARGET_AT + 4)
    page = page_at(view, page_id)
    if page == 0:
        return 0
    head = page_head(page)
    if head.page_type != _DATA or head.seg_type != _HEAP or head.obj_id != obj_id:
        return 0
    if slot >= heap_node(page + NODE_AT).slot_count:
        return 0
    offset = slot_value(page, mapped_page_size(view, page_id), slot)
    if offset & SLOT_FREED or not load_u32(page + offset) >> 24 & FLAG_LINK:
        return 0
    return page + offset


@long_kernel
def words_of_rows(view, index, obj_id, pages, page_count, words, places, buffer):
    """Write a word and a place for each row on heap pages that is not deleted and has an entry; returns how many.

    ``pages`` are the ids (i64s) of pages that can be followed; ``buffer`` is room for an entry.
    """
    done = 0
    for i in range(page_count):
        page_id = load_i64(pages + 8 * i)
        page, page_size = page_at(view, page_id), mapped_page_size(view, page_id)
        for slot in range(heap_node(page + NODE_AT).slot_count):
            offset = slot_value(page, page_size, slot)
            if offset & SLOT_FREED:
                continue
            row = page + offset
            if load_u32(row) >> 24 & (FLAG_DELETE | FLAG_LINK):
                continue
            data, place = _data_of(view, obj_id, row), place_of(page_id, slot)
            if data == 0:
                continue
            size = make_entry(index, data, buffer, 0)
            if size == ABSENT:
                continue
            store_64(words + 8 * done, word_of(index, buffer, place) if size > 0 else NO_WORD)
            store_64(places + 8 * done, place if load_u32(row) & NO_LOCK == NO_LOCK else place | SPECIAL)
            done += 1
    return done


# ---- What walks through the pages of an index have in common, of whatever kind: notes of problems, pages seen,
# entries.
#
# A walk's ``check`` is a record whose type has the fields of ``WALK``, and more of its own.

WALK = [
    ("devices", "<i8"),  # MAPPED_DEVICEs
    ("index", "<i8"),  # the index's head, as it should be
    ("obj_id", "<i8"),
    ("queue", "<i8"),  # room for one item of the walk for each page of the object
    ("problems", "<i8"),
    ("problem_room", "<i8"),
    ("words", "<i8"),  # room for the words of all entries, and their places
    ("spots", "<i8"),
    ("queued", "<i8"),  # out: pages that were reached
    ("problem_count", "<i8"),  # out: also those that there was no room for
    ("entry_count", "<i8"),  # out: entries that lead to rows
    ("whole", "<i8"),  # out: 0 if some part could not be reached
    ("begun", "<i8"),  # within: 1 after the first call
]
PROBLEM = Structure([("kind", "<i8"), ("page", "<i8"), ("slot", "<i8"), ("other", "<i8")])
"""``other`` depends on the kind: a page, a number, or the place of the entry that it is wrong with."""

PAGES_AT_ONCE = 1024  # that a call goes through
problem_at = records(PROBLEM)
_PROBLEM_SIZE = PROBLEM.itemsize


@routine
def note(check, kind, page_id, slot, other):
    if check.problem_count < check.problem_room:
        problem = problem_at(check.problems + check.problem_count * _PROBLEM_SIZE)
        problem.kind = kind
        problem.page = page_id
        problem.slot = slot
        problem.other = other
    check.problem_count += 1


@routine
def seen_at(check, page_id):
    """Where a byte says whether the walk has come to a page before."""
    device = device_at(check.devices + (page_id >> OFFSET_BITS) * _DEVICE_SIZE)
    return device.seen + (page_id & (PAGES_PER_DEVICE - 1))


@routine
def is_page_of(check, page_id, seg_type):
    """Whether a page can be followed and is one of the index."""
    page = page_at(check.devices, page_id)
    if page == 0:
        return False
    head = page_head(page)
    return head.page_type == _DATA and head.seg_type == seg_type and head.obj_id == check.obj_id


@routine
def entry_at(devices, place):
    """The entry at a place; 0 for none."""
    if place < 0:
        return 0
    page_id = page_of(place)
    return entry_in(page_at(devices, page_id), mapped_page_size(devices, page_id), slot_of(place))


@routine
def keep_word(check, entry, page_id, slot):
    """Add an entry that leads to a row, and whose columns are the index's, to those that were found."""
    place, spot = place_of_word(load_i64(entry + POINTER_AT)), place_of(page_id, slot)
    done = check.entry_count
    store_64(check.words + 8 * done, word_of(check.index, entry, place))
    store_64(check.spots + 8 * done, spot if load_u32(entry) == UNLOCKED else spot | SPECIAL)
    check.entry_count = done + 1


# ---- Whether the pages of a B-tree hang together: levels, links, order, bounds; fast, and where it is wrong.
#
# The tree is walked level by level from the root, as its branches list their children; sibling links, levels and keys
# are held against that.  What is wrong is noted as a kind and a place; ``verify.btrees`` has the words.
# Branches come first.  The leaves that they lead to can then be gone through all at once, or some here and some there:
# a caller that takes a part of the queue says which page and which entry come before it.
#
# Invariants
#  1. Only pages are read that can be followed; keys are compared only if their columns are the index's.
#  2. Every page is gone through once, so the walk ends whatever the pages say.

TREE_CHECK = Structure(
    [
        *WALK,
        ("done", "<i8"),  # how many of the queue were gone through
        ("level", "<i8"),  # of the branch that was gone through last
        ("before", "<i8"),  # the page before the next one, on its level
        ("last", "<i8"),  # where the last entry of the leaf before is; -1: not known
        ("open_end", "<i8"),  # 1: what comes behind the last page of the level is not known
        ("gap", "<i8"),  # within: 1 after a child that could not be followed
    ]
)
QUEUED = Structure(
    [
        ("page", "<i8"),
        ("level", "<i8"),
        ("low", "<i8"),  # the places of the separators around it; -1: none
        ("high", "<i8"),
        ("after_gap", "<i8"),  # 1: what comes before it on its level is not known
    ]
)
CHILD, TWICE, LEVEL, PREV, NEXT, EMPTY, MISFIT, OPEN, ORDER, SAME, LOW, HIGH, DUPLICATE = range(13)
"""What can be wrong; ``other`` is a page for links, a level, or the place of the entry that it is wrong with."""

check_at = records(TREE_CHECK)
queued_at = records(QUEUED)
_QUEUED_SIZE = QUEUED.itemsize
_BTREE = int(SegmentType.BTREE)
_BEHIND_ALL = 1 << 62


# ---- keys


@routine
def _bound_of(index, entry, is_leaf):
    """What decides between equal keys: the row's place; a separator without one comes behind all."""
    if is_leaf:
        return place_of_word(load_i64(entry + POINTER_AT))
    if load_u16(entry + COL_COUNT_AT) == key_columns(index):
        return _BEHIND_ALL
    return place_of_word(load_i64(entry + entry_size(entry) - 8))


@routine
def _compare(index, a, a_is_leaf, b, b_is_leaf):
    result = compare_keys(index, a, b, key_columns(index))
    if result:
        return result
    a_bound, b_bound = _bound_of(index, a, a_is_leaf), _bound_of(index, b, b_is_leaf)
    return 1 if a_bound > b_bound else -1 if a_bound < b_bound else 0


@routine
def _fits_node(index, entry, is_leaf):
    columns = key_columns(index)
    if is_leaf:
        return fits(index, entry, columns)
    if load_u32(entry + BITS_AT) >> 2 * columns & 3 == _EIGHT:
        return fits(index, entry, columns + 1)
    return index_head(index).unique != 0 and fits(index, entry, columns)


# ---- one page


@routine
def _is_duplicate(index, before, entry):
    """Whether two entries of a unique index, one behind the other, have one key, and neither is marked."""
    if not index_head(index).unique or (load_u32(before) | load_u32(entry)) >> 24 & FLAG_DELETE:
        return False
    return not has_null(index, entry) and compare_keys(index, before, entry, unique_columns(index)) == 0


@routine
def _check_order(check, item, page, page_size, count, is_leaf):
    """Each entry behind the one before it; returns whether the columns of all are the index's."""
    index, page_id, all_fit, before = check.index, item.page, True, 0
    for slot in range(count):
        entry = entry_in(page, page_size, slot)
        if not _fits_node(index, entry, is_leaf):
            note(check, MISFIT, page_id, slot, 0)
            all_fit, before = False, 0
            continue
        if before:
            result = _compare(index, before, is_leaf, entry, is_leaf)
            if result >= 0:
                note(check, SAME if result == 0 else ORDER, page_id, slot, place_of(page_id, slot - 1))
            elif is_leaf and _is_duplicate(index, before, entry):
                note(check, DUPLICATE, page_id, slot, place_of(page_id, slot - 1))
        before = entry
    return all_fit


@routine
def _check_bounds(check, item, page, page_size, count, is_leaf):
    """The first entry is above the separator before the page, the last one not above that behind it."""
    index = check.index
    if count == 0:
        return
    low, high = entry_at(check.devices, item.low), entry_at(check.devices, item.high)
    if low and _compare(index, entry_in(page, page_size, 0), is_leaf, low, False) <= 0:
        note(check, LOW, item.page, 0, item.low)
    if high:
        result = _compare(index, entry_in(page, page_size, count - 1), is_leaf, high, False)
        if result > 0 or (result == 0 and not is_leaf):
            note(check, HIGH, item.page, count - 1, item.high)


@routine
def _check_leaf(check, item, page, page_size):
    index, count = check.index, node_at(page).slot_count
    all_fit = _check_order(check, item, page, page_size, count, True)
    if all_fit:
        _check_bounds(check, item, page, page_size, count, True)
    if count and all_fit:
        first, last = entry_in(page, page_size, 0), entry_at(check.devices, check.last)
        if last and not item.after_gap and _is_duplicate(index, last, first):
            note(check, DUPLICATE, item.page, 0, check.last)
        check.last = place_of(item.page, count - 1)
    elif count:
        check.last = -1
    for slot in range(count):
        entry = entry_in(page, page_size, slot)
        if fits(index, entry, key_columns(index)):
            keep_word(check, entry, item.page, slot)


@routine
def _is_open(entry):
    return entry_size(entry) == VALUES_AT and load_u32(entry + BITS_AT) == 0


@routine
def _check_branch(check, item, page, page_size):
    count = node_at(page).slot_count
    if count == 0:
        note(check, EMPTY, item.page, 0, 0)
        check.whole = 0
        check.gap = 1
        return
    if not _is_open(entry_in(page, page_size, count - 1)):
        note(check, OPEN, item.page, count - 1, 0)
    if _check_order(check, item, page, page_size, count - 1, False):
        _check_bounds(check, item, page, page_size, count - 1, False)
    low, low_is_known = item.low, True
    check.gap = max(check.gap, item.after_gap)
    for slot in range(count):
        entry = entry_in(page, page_size, slot)
        is_last = slot == count - 1
        is_known = is_last or _fits_node(check.index, entry, False)
        high = item.high if is_last else place_of(item.page, slot) if is_known else -1
        _queue(check, item.page, slot, child_of(entry), item.level - 1, low if low_is_known else -1, high)
        low, low_is_known = high, is_known


# ---- the tree


@routine
def _queue(check, parent, slot, page_id, level, low, high):
    """Line a page up behind those that were found before, if it can be the one that a branch leads to."""
    wrong = -1
    if not is_page_of(check, page_id, _BTREE):
        wrong = CHILD
    elif load_u8(seen_at(check, page_id)):
        wrong = TWICE
    elif level >= 0 and node_at(page_at(check.devices, page_id)).level != level:
        wrong = LEVEL
        store_8(seen_at(check, page_id), 1)
    if wrong >= 0:
        if wrong == LEVEL:
            note(check, LEVEL, page_id, 0, level)
        else:
            note(check, wrong, parent, slot, page_id)
        check.whole = 0
        check.gap = 1
        return
    store_8(seen_at(check, page_id), 1)
    item = queued_at(check.queue + check.queued * _QUEUED_SIZE)
    item.page = page_id
    item.level = node_at(page_at(check.devices, page_id)).level
    item.low = low
    item.high = high
    item.after_gap = check.gap
    check.gap = 0
    check.queued += 1


@routine
def _check_links(check, item, page, before):
    """A page against the one before it on its level; NO_PAGE if it is the first."""
    if item.after_gap:
        return
    if node_at(page).prev != before:
        note(check, PREV, item.page, 0, before)
    if before != NO_PAGE and node_at(page_at(check.devices, before)).next != item.page:
        note(check, NEXT, before, 0, item.page)


@routine
def _end_level(check):
    """Behind the last page of a level nothing comes, unless a page there could not be followed."""
    last = check.before
    if last != NO_PAGE and not check.open_end and node_at(page_at(check.devices, last)).next != NO_PAGE:
        note(check, NEXT, last, 0, NO_PAGE)


@routine
def _begin_level(check):
    _end_level(check)
    check.before = NO_PAGE
    check.open_end = max(check.gap, check.open_end)
    check.gap = 0


@routine
def _begin_walk(check):
    check.begun, check.whole, check.done, check.level = 1, 1, 0, -1
    check.before, check.last, check.open_end = NO_PAGE, -1, 0
    _queue(check, NO_PAGE, 0, index_head(check.index).root, -1, -1, -1)
    check.gap = 0


@long_kernel
def check_branches(check_address):
    """Walk an index from its root down to its leaves, which then are what is left in the queue.

    Returns 1 if it is to be called again to go on.
    """
    check = check_at(check_address)
    if not check.begun:
        _begin_walk(check)
    for _ in range(PAGES_AT_ONCE):
        item = queued_at(check.queue + check.done * _QUEUED_SIZE)
        if check.done == check.queued or item.level == 0:
            _begin_level(check)
            return 0
        if item.level != check.level:
            _begin_level(check)
            check.level = item.level
        page, page_size = page_at(check.devices, item.page), mapped_page_size(check.devices, item.page)
        _check_links(check, item, page, check.before)
        _check_branch(check, item, page, page_size)
        check.before = item.page
        check.done += 1
    return 1


@long_kernel
def check_leaves(check_address):
    """Go through the leaves in the queue; the words of their entries lie in the check's memory afterwards.

    Returns 1 if it is to be called again to go on.
    """
    check = check_at(check_address)
    for _ in range(PAGES_AT_ONCE):
        if check.done == check.queued:
            _end_level(check)
            return 0
        item = queued_at(check.queue + check.done * _QUEUED_SIZE)
        page, page_size = page_at(check.devices, item.page), mapped_page_size(check.devices, item.page)
        _check_links(check, item, page, check.before)
        _check_leaf(check, item, page, page_size)
        check.before = item.page
        check.done += 1
    return 1
