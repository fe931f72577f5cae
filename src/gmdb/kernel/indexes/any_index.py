"""An index of any kind: opening it, finding, adding and taking entries, stepping through those with one key.

Code that keeps indexes in step with rows, reads by them or fills them uses only this module.
"""

from __future__ import annotations

from gmdb.format.btree import INDEX_AT, IndexKind
from gmdb.format.layout import Structure
from gmdb.format.page import PageType, SegmentType
from gmdb.kernel.indexes import btree, hash
from gmdb.kernel.indexes.btree import at_or_after, before, seek
from gmdb.kernel.indexes.hash import first_with_key as first_in_hash
from gmdb.kernel.indexes.hash import next_behind
from gmdb.kernel.indexes.hash import next_with_key as next_in_hash
from gmdb.kernel.indexes.index_head import is_hash, space_of
from gmdb.kernel.indexes.index_node import entry_in, entry_size
from gmdb.kernel.page.allocation import pages_available
from gmdb.kernel.page.area import damaged, page_head, page_size_of, touch, touch_type
from gmdb.kernel.places import page_of, place_of_word, slot_of
from gmdb.kernel.row import POINTER_AT, compare_keys, index_head, key_columns
from gmdb.kernel.runtime.compiler import routine
from gmdb.kernel.runtime.memory import load_i64, move_bytes, records
from gmdb.kernel.runtime.status import DONE, NEED_SPACE, NOT_FOUND

_ENTRY_PAGE, _BTREE, _HASH = int(PageType.SEGMENT_ENTRY), int(SegmentType.BTREE), int(SegmentType.HASH)
_HASH_KIND = int(IndexKind.HASH)


@routine
def open_index(area, entry_id):
    """Where the head of the index lies whose segment begins at a page; a status if there is none."""
    page = touch_type(area, entry_id, _ENTRY_PAGE, 0)
    if page < 0:
        return page
    seg_type = page_head(page).seg_type
    return page + INDEX_AT if seg_type == _BTREE or seg_type == _HASH else damaged(area, entry_id)


@routine
def plant(area, index, head):
    """Give an index without pages its head and its first page."""
    if index_head(head).kind == _HASH_KIND:
        return hash.plant(area, index, head)
    return btree.plant(area, index, head)


@routine
def pages_for_entry(area, index):
    """How many pages adding an entry may take; a status if the index cannot be read."""
    return hash.PAGES_FOR_ENTRY if is_hash(index) else btree.pages_for_entry(area, index)


@routine
def require_pages(area, index):
    """NEED_SPACE if the tablespace has too few pages for one more entry."""
    need = pages_for_entry(area, index)
    if need < 0:
        return need
    return NEED_SPACE if pages_available(area, space_of(index)) < need else DONE


@routine
def find_entry(area, index, entry):
    """Where the entry with this key and row id is, as a place; NOT_FOUND if it is nowhere."""
    return hash.find_entry(area, index, entry) if is_hash(index) else btree.find_entry(area, index, entry)


@routine
def add_entry(area, index, entry):
    """Put an entry into the index, which does not have it; there are the pages that this may take."""
    return hash.add_entry(area, index, entry) if is_hash(index) else btree.add_entry(area, index, entry)


@routine
def take_entry(area, index, entry):
    """Take the entry with this key and row id out of the index; NOT_FOUND if it is not there."""
    return hash.take_entry(area, index, entry) if is_hash(index) else btree.take_entry(area, index, entry)


@routine
def entry_at(area, place):
    """The address of the entry at a place that a function here has returned."""
    page_id = page_of(place)
    return entry_in(touch(area, page_id), page_size_of(area, page_id), slot_of(place))


@routine
def _if_same_key(area, index, entry, place):
    if place >= 0 and compare_keys(index, entry_at(area, place), entry, key_columns(index)):
        return NOT_FOUND
    return place


@routine
def first_with_key(area, index, entry):
    """Where the first of the entries with this entry's key is; NOT_FOUND if there is none."""
    if is_hash(index):
        return hash.first_with_key(area, index, entry)
    place = btree.seek(area, index, entry, key_columns(index), -1)
    if place >= 0:
        place = btree.at_or_after(area, index, page_of(place), slot_of(place))
    return _if_same_key(area, index, entry, place)


@routine
def next_with_key(area, index, entry, place):
    """Where the next of the entries with this entry's key is, behind one at a place; NOT_FOUND after the last."""
    if is_hash(index):
        return hash.next_with_key(area, index, entry, place)
    return _if_same_key(area, index, entry, btree.at_or_after(area, index, page_of(place), slot_of(place) + 1))


# ---- Walking an index: a B-tree both ways from one key to another, a hash index through one key or all of them.
#
# A walk keeps the last entry that it gave out and looks for its place again with every call, so that it goes on
# rightly whatever was split, merged or removed meanwhile.

WALK = Structure(
    [
        ("index", "<i8"),  # entry page of the index
        ("low", "<i8"),  # address of an entry; 0 = from the first one on
        ("low_columns", "<i8"),  # how many of its columns count
        ("low_bound", "<i8"),  # -1 begins with entries that have that key, 1 behind them
        ("high", "<i8"),
        ("high_columns", "<i8"),
        ("high_bound", "<i8"),  # 1 ends with entries that have that key, -1 before them
        ("backwards", "<i8"),
        ("position", "<i8"),  # address of room for an entry: the last one given out
        ("started", "<i8"),
        ("done", "<i8"),  # out: 1 = there is no more
        ("output", "<i8"),  # address of room for what is given out
        ("room", "<i8"),  # its bytes
    ]
)
walk_at = records(WALK)


@routine
def first_entry(area, walk, index):
    """Where a walk begins or goes on: the place of the next entry to return; NOT_FOUND at its end."""
    if is_hash(index):
        if walk.started:
            return next_behind(area, index, walk.low, walk.position)
        return first_in_hash(area, index, walk.low)
    if walk.started:
        key, columns, bound = walk.position, key_columns(index), 0
    elif walk.backwards:
        key, columns, bound = walk.high, walk.high_columns, walk.high_bound
    else:
        key, columns, bound = walk.low, walk.low_columns, walk.low_bound
    if key == 0:  # no columns count, so all keys are equal: before or behind all of them
        key, columns, bound = walk.position, 0, 1 if walk.backwards else -1
    place = seek(area, index, key, columns, bound)
    if place < 0:
        return place
    if walk.backwards:
        place = before(area, index, page_of(place), slot_of(place))
    else:
        place = at_or_after(area, index, page_of(place), slot_of(place))
    if place >= 0 and walk.started:
        order = _order_to_position(walk, index, entry_at(area, place))
        if order == 0:
            return next_entry(area, walk, index, place)
        if order > 0 if walk.backwards else order < 0:
            return damaged(area, page_of(place))  # a branch led to the wrong leaf: the walk would not come to an end
    return _if_within(area, walk, index, place)


@routine
def next_entry(area, walk, index, place):
    """Where a walk goes on behind the entry at a place; NOT_FOUND if that was its last."""
    if is_hash(index):
        return next_in_hash(area, index, walk.low, place)
    page_id, slot = page_of(place), slot_of(place)
    place = before(area, index, page_id, slot) if walk.backwards else at_or_after(area, index, page_id, slot + 1)
    return _if_within(area, walk, index, place)


@routine
def keep_position(walk, entry):
    """The walk gave an entry out."""
    move_bytes(walk.position, entry, entry_size(entry))
    walk.started = 1


@routine
def end_call(walk, place, used):
    """The result of a call for some more of a walk: the bytes it used, or a status."""
    if place == NOT_FOUND:
        walk.done = 1
    return place if place < 0 and place != NOT_FOUND else used


@routine
def _order_to_position(walk, index, entry):
    """Where an entry of a B-tree stands to the last one given out: before it (-1), at it (0), behind it (1)."""
    order = compare_keys(index, entry, walk.position, key_columns(index))
    if order:
        return order
    here, last = place_of_word(load_i64(entry + POINTER_AT)), place_of_word(load_i64(walk.position + POINTER_AT))
    return 1 if here > last else -1 if here < last else 0


@routine
def _if_within(area, walk, index, place):
    return NOT_FOUND if place >= 0 and _is_past_end(walk, index, entry_at(area, place)) else place


@routine
def _is_past_end(walk, index, entry):
    """Whether an entry lies behind the end of the walk."""
    if walk.backwards:
        if walk.low == 0:
            return False
        order = compare_keys(index, entry, walk.low, walk.low_columns)
        return order < 0 or (order == 0 and walk.low_bound > 0)
    if walk.high == 0:
        return False
    order = compare_keys(index, entry, walk.high, walk.high_columns)
    return order > 0 or (order == 0 and walk.high_bound < 0)
