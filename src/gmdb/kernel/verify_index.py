"""Entries of indexes and rows of tables as words, so that both sides can be compared by sorting numbers.

A word is a hash of a key and of the place of its row.  Keys that compare as equal have the same hash.  Pages are
read where the device files are mapped; which of them can be followed is known from ``kernel/verify.py``.
"""

from __future__ import annotations

import numpy as np

from gmdb.format.address import OFFSET_BITS, PAGES_PER_DEVICE
from gmdb.format.btree import INDEX_HEAD, Order
from gmdb.format.heap import NODE_AT
from gmdb.format.page import PageType, SegmentType
from gmdb.format.row import BITS_AT, COL_COUNT_AT, NO_LOCK
from gmdb.format.slotted import SLOT_FREED
from gmdb.kernel.compiler import kernel, long_kernel, routine
from gmdb.kernel.index_head import is_hash
from gmdb.kernel.keys import POINTER_AT, VALUES_AT, key_columns, make_entry, order_of_double, place_of_word
from gmdb.kernel.memory import load_i64, load_u8, load_u16, load_u32, multiply, records, store_64
from gmdb.kernel.soundness_nodes import values_reach
from gmdb.kernel.verify import heap_node, page_head
from gmdb.kernel.verify_rows import ENTRY_TARGET_AT, FLAG_DELETE, FLAG_ENTRY, FLAG_LINK, SUSPECT
from gmdb.kernel.verify_slots import slot_value

MAPPED_DEVICE = np.dtype(
    [
        ("base", "<i8"),  # where its first page lies
        ("page_size", "<i8"),
        ("count", "<i8"),  # pages in use
        ("verdicts", "<i8"),  # a byte for each: how it was found to be
        ("seen", "<i8"),  # a byte for each: 1 once a tree has led to it
    ]
)
"""A device file in memory; there is one for each number that a device can have."""

SPECIAL = 1 << 62  # in a place: the row has a lock, the entry has one or is marked as deleted
NO_WORD = -1  # a key that no entry can have

device_at = records(MAPPED_DEVICE)
_DEVICE_SIZE = MAPPED_DEVICE.itemsize
_ORDERS_AT = INDEX_HEAD.offset("orders")
_WORD, _LONG, _DOUBLE, _WIDE, _BYTES = (int(order) for order in Order)
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
            is_double = load_u8(index + _ORDERS_AT + n) == _DOUBLE
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
        code, order = bits >> 2 * n & 3, load_u8(index + _ORDERS_AT + n)
        if code == 0:
            continue
        wanted = 1 if order == _WORD else _EIGHT if order == _LONG or order == _DOUBLE else 3
        if code != wanted or (order == _WIDE and load_u16(at) != 16):
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
    """Write a word and a place for each row on heap pages that is not deleted; answers how many.

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
            data, place = _data_of(view, obj_id, row), page_id << 16 | slot
            if data == 0:
                continue
            fits_entry = make_entry(index, data, buffer, 0) > 0
            store_64(words + 8 * done, word_of(index, buffer, place) if fits_entry else NO_WORD)
            store_64(places + 8 * done, place if load_u32(row) & NO_LOCK == NO_LOCK else place | SPECIAL)
            done += 1
    return done
