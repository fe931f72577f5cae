"""An index of any kind: opening it, finding, adding and taking entries, stepping through those with one key.

Whoever keeps indexes in step with rows, reads by them or fills them uses only this.
"""

from __future__ import annotations

from gmdb.format.btree import INDEX_AT, IndexKind
from gmdb.format.page import PageType, SegmentType
from gmdb.kernel import btree, btree_change, hash, hash_change
from gmdb.kernel.area import damaged, page_head, page_size_of, touch, touch_type
from gmdb.kernel.btree_page import entry_in
from gmdb.kernel.compiler import routine
from gmdb.kernel.index_head import is_hash, space_of
from gmdb.kernel.keys import compare_keys, index_head, key_columns
from gmdb.kernel.pages import pages_available
from gmdb.kernel.status import DONE, NEED_SPACE, NOT_FOUND

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
        return hash_change.plant(area, index, head)
    return btree_change.plant(area, index, head)


@routine
def pages_for_entry(area, index):
    """How many pages adding an entry may take; a status if the index cannot be read."""
    return hash_change.PAGES_FOR_ENTRY if is_hash(index) else btree_change.pages_for_entry(area, index)


@routine
def require_pages(area, index):
    """NEED_SPACE if the tablespace has too few pages for one more entry."""
    need = pages_for_entry(area, index)
    if need < 0:
        return need
    return NEED_SPACE if pages_available(area, space_of(index)) < need else DONE


@routine
def find_entry(area, index, entry):
    """Where the entry with this key and row id is, page id << 16 | slot; NOT_FOUND if it is nowhere."""
    return hash.find_entry(area, index, entry) if is_hash(index) else btree.find_entry(area, index, entry)


@routine
def add_entry(area, index, entry):
    """Put an entry into the index, which does not have it; there are the pages that this may take."""
    return hash_change.add_entry(area, index, entry) if is_hash(index) else btree_change.add_entry(area, index, entry)


@routine
def take_entry(area, index, entry):
    """Take the entry with this key and row id out of the index; NOT_FOUND if it is not there."""
    return hash_change.take_entry(area, index, entry) if is_hash(index) else btree_change.take_entry(area, index, entry)


@routine
def entry_at(area, place):
    """The address of the entry at a place that was answered here."""
    page_id = place >> 16
    return entry_in(touch(area, page_id), page_size_of(area, page_id), place & 0xFFFF)


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
        place = btree.at_or_after(area, index, place >> 16, place & 0xFFFF)
    return _if_same_key(area, index, entry, place)


@routine
def next_with_key(area, index, entry, place):
    """Where the next of the entries with this entry's key is, behind one at a place; NOT_FOUND after the last."""
    if is_hash(index):
        return hash.next_with_key(area, index, entry, place)
    return _if_same_key(area, index, entry, btree.at_or_after(area, index, place >> 16, (place & 0xFFFF) + 1))
