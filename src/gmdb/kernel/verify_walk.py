"""What walks through the pages of an index have in common, of whatever kind: notes of problems, pages seen, entries.

A walk's ``check`` is a record whose type has the fields of ``WALK``, and more of its own.
"""

from __future__ import annotations

import numpy as np

from gmdb.format.address import OFFSET_BITS, PAGES_PER_DEVICE
from gmdb.format.page import PageType
from gmdb.format.row import UNLOCKED
from gmdb.kernel.btree_page import entry_in
from gmdb.kernel.compiler import routine
from gmdb.kernel.keys import POINTER_AT, place_of_word
from gmdb.kernel.memory import load_i64, load_u32, records, store_64
from gmdb.kernel.verify import page_head
from gmdb.kernel.verify_index import MAPPED_DEVICE, SPECIAL, device_at, mapped_page_size, page_at, word_of

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
PROBLEM = np.dtype([("kind", "<i8"), ("page", "<i8"), ("slot", "<i8"), ("other", "<i8")])
"""``other`` depends on the kind: a page, a number, or the place of the entry that it is wrong with."""

PAGES_AT_ONCE = 1024  # that a call goes through
problem_at = records(PROBLEM)
_PROBLEM_SIZE, _DEVICE_SIZE = PROBLEM.itemsize, MAPPED_DEVICE.itemsize
_DATA = int(PageType.DATA)


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
    page_id = place >> 16
    return entry_in(page_at(devices, page_id), mapped_page_size(devices, page_id), place & 0xFFFF)


@routine
def keep_word(check, entry, page_id, slot):
    """Add an entry that leads to a row, and whose columns are the index's, to those that were found."""
    place, spot = place_of_word(load_i64(entry + POINTER_AT)), page_id << 16 | slot
    done = check.entry_count
    store_64(check.words + 8 * done, word_of(check.index, entry, place))
    store_64(check.spots + 8 * done, spot if load_u32(entry) == UNLOCKED else spot | SPECIAL)
    check.entry_count = done + 1
