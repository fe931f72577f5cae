"""Whether the pages of a hash index hang together: depths, slots, addresses, order; fast, and where it is wrong.

Directories are walked level by level from the root.  What is wrong is noted as a kind and a place; ``verify.hashes``
has the words.  Whether a key is there twice is told by words of the keys alone, sorted by the caller: entries with
one key need not be neighbours.

Invariants
 1. Only pages are read that can be followed; keys and addresses only of entries whose columns are the index's.
 2. Every page is gone through once, so the walk ends whatever the pages say.
"""

from __future__ import annotations

from gmdb.format.address import NO_PAGE
from gmdb.format.layout import Structure
from gmdb.format.page import SegmentType
from gmdb.kernel.checks.index_checks import (
    NO_WORD,
    PAGES_AT_ONCE,
    WALK,
    entry_at,
    is_page_of,
    keep_word,
    leads_to_row,
    mapped_page_size,
    note,
    page_at,
    seen_at,
    word_of,
)
from gmdb.kernel.checks.row_checks import FLAG_DELETE
from gmdb.kernel.indexes.hash_page import (
    ALL_BITS,
    LEVELS,
    address_for,
    address_in,
    child_in,
    comes_before,
    common_bits,
    depth_max,
    is_directory,
    place_in,
    start_of,
)
from gmdb.kernel.indexes.index_node import entry_in, node_at
from gmdb.kernel.places import place_of
from gmdb.kernel.row import compare_keys, has_null, index_head, key_columns
from gmdb.kernel.runtime.compiler import kernel, long_kernel, routine
from gmdb.kernel.runtime.memory import load_u8, load_u32, records, store_8, store_64, wrap

HASH_CHECK = Structure(
    [
        *WALK,
        ("keys", "<i8"),  # room for a word of each entry's key
        ("done", "<i8"),  # how many of the queue were gone through
    ]
)
QUEUED = Structure(
    [
        ("page", "<i8"),
        ("level", "<i8"),  # of a directory; the root's is 0
        ("bits", "<i8"),  # that all entries beneath it have in common, and which these are
        ("address", "<i8"),
        ("place", "<i8"),
    ]
)
CHILD, ROOT, TWICE, DEPTH, DEEP, SHALLOW, BLOCK, LONELY, EMPTY, MISFIT, ADDRESS, STRAY, ORDER, SAME = range(14)
"""What can be wrong; ``other`` is a page, a depth, a number in the queue, or the place of another entry."""

check_at = records(HASH_CHECK)
queued_at = records(QUEUED)
_QUEUED_SIZE = QUEUED.itemsize
_HASH = int(SegmentType.HASH)


# ---- buckets


@routine
def _is_there_before(index, page, page_size, slot):
    """Whether an entry before that in a slot has the same address, row id and key."""
    entry = entry_in(page, page_size, slot)
    while slot > 0:
        slot -= 1
        other = entry_in(page, page_size, slot)
        if not leads_to_row(index, other):
            return False
        if address_in(other) != address_in(entry) or place_in(other) != place_in(entry):
            return False
        if compare_keys(index, other, entry, key_columns(index)) == 0:
            return True
    return False


@routine
def _key_word(index, entry):
    """The word of a key that no other row may have; NO_WORD if others may."""
    if not index_head(index).unique or has_null(index, entry) or load_u32(entry) >> 24 & FLAG_DELETE:
        return NO_WORD
    return word_of(index, entry, 0)


@routine
def _check_bucket(check, number, item, page, page_size):
    index, count, before, strays = check.index, node_at(page).slot_count, 0, 0
    if count == 0:
        note(check, EMPTY, item.page, 0, 0)
    for slot in range(count):
        entry = entry_in(page, page_size, slot)
        if not leads_to_row(index, entry):
            note(check, MISFIT, item.page, slot, 0)
            before = 0
            continue
        store_64(check.keys + 8 * check.entry_count, _key_word(index, entry))
        keep_word(check, entry, item.page, slot)
        address, place = address_in(entry), place_in(entry)
        if address != address_for(index, entry):
            note(check, ADDRESS, item.page, slot, 0)
            before = 0
            continue
        if common_bits(address, place, item.address, item.place) < item.bits:
            strays += 1
            if strays == 1:  # mostly all are, if the bucket is in the wrong place
                note(check, STRAY, item.page, slot, number)
        if before and comes_before(address, place, address_in(before), place_in(before)):
            note(check, ORDER, item.page, slot, place_of(item.page, slot - 1))
        elif before and _is_there_before(index, page, page_size, slot):
            note(check, SAME, item.page, slot, 0)
        before = entry


# ---- directories


@routine
def _queue(check, item, depth, slot, page_id, own):
    """Line up a page that a slot of a directory leads to; ``own``: by how many of its bits, -1 if nobody can say."""
    new = queued_at(check.queue + check.queued * _QUEUED_SIZE)
    new.page = page_id
    new.level = item.level + 1
    new.bits = start_of(item.level) + own if own >= 0 else 0
    new.address = item.address
    new.place = item.place
    if depth > 0:
        last = start_of(item.level) + depth
        if last <= 64:
            new.address = wrap(item.address | slot << 64 - last)
        else:
            new.place = item.place | slot << ALL_BITS - last
    check.queued += 1


@routine
def _lost(check, kind, page_id, slot, other):
    """Note a page that the walk cannot go on to."""
    note(check, kind, page_id, slot, other)
    check.whole = 0
    return 0


@routine
def _check_child(check, item, depth, slot, count, page_id):
    """A page that ``count`` slots lead to, from ``slot`` on; returns whether it is a bucket."""
    if not is_page_of(check, page_id, _HASH):
        return _lost(check, CHILD, item.page, slot, page_id)
    if load_u8(seen_at(check, page_id)):
        return _lost(check, TWICE, item.page, slot, page_id)
    store_8(seen_at(check, page_id), 1)
    page = page_at(check.devices, page_id)
    if is_directory(page):
        if depth < depth_max(item.level) or count != 1 or item.level + 1 == LEVELS:
            return _lost(check, SHALLOW, item.page, slot, page_id)
        _queue(check, item, depth, slot, page_id, depth)
        return 0
    own = node_at(page).level
    if own > depth:
        note(check, DEEP, page_id, 0, depth)
        own = -1
    elif count != 1 << depth - own or slot & count - 1:
        note(check, BLOCK, item.page, slot, page_id)
        own = -1
    _queue(check, item, depth, slot, page_id, own)
    return 1


@routine
def _check_directory(check, item, page):
    depth, slot, children, buckets = node_at(page).level, 0, 0, 0
    if depth > depth_max(item.level):
        _lost(check, DEPTH, item.page, 0, depth_max(item.level))
        return
    while slot < 1 << depth:  # ends: the first slot of a block is one of it
        page_id, first = child_in(page, slot), slot
        while slot < 1 << depth and child_in(page, slot) == page_id:
            slot += 1
        if page_id != NO_PAGE:
            children += 1
            buckets += _check_child(check, item, depth, first, slot - first, page_id)
    if item.level > 0 and (children == 0 or (children == 1 and buckets == 1)):
        note(check, LONELY, item.page, 0, children)


@routine
def _queue_root(check):
    page_id = index_head(check.index).root
    if not is_page_of(check, page_id, _HASH):
        _lost(check, CHILD, NO_PAGE, 0, page_id)
    elif not is_directory(page_at(check.devices, page_id)):
        _lost(check, ROOT, page_id, 0, 0)
    else:
        store_8(seen_at(check, page_id), 1)
        root = queued_at(check.queue)
        root.page = page_id
        root.level, root.bits, root.address, root.place = 0, 0, 0, 0
        check.queued = 1


@long_kernel
def check_hash(check_address):
    """Walk an index; the problems, and the words of its entries and keys, lie in the check's memory afterwards.

    Returns 1 if it is to be called again to go on.
    """
    check = check_at(check_address)
    if not check.begun:
        check.begun, check.whole = 1, 1
        _queue_root(check)
    for _ in range(PAGES_AT_ONCE):
        if check.done == check.queued:
            return 0
        item = queued_at(check.queue + check.done * _QUEUED_SIZE)
        page, page_size = page_at(check.devices, item.page), mapped_page_size(check.devices, item.page)
        if is_directory(page):
            _check_directory(check, item, page)
        else:
            _check_bucket(check, check.done, item, page, page_size)
        check.done += 1
    return 1


@kernel
def same_key(devices, index, spot, other):
    """Whether the entries at two places have one key."""
    a, b = entry_at(devices, spot), entry_at(devices, other)
    return 1 if compare_keys(index, a, b, key_columns(index)) == 0 else 0
