"""Places of rows, index entries and undo records, as kernels have them: format/address.py says what a place is."""

from __future__ import annotations

from gmdb.format import address
from gmdb.kernel.runtime.compiler import routine

place_of, page_of, slot_of = routine(address.place_of), routine(address.page_of), routine(address.slot_of)


@routine
def word_of_place(place):
    """A row's place as a row id, the 8 bytes with which an entry points to it."""
    return page_of(place) | slot_of(place) << 32 | -1 << 48


@routine
def place_of_word(word):
    """The place that a row id's 8 bytes name."""
    return place_of(word & 0xFFFF_FFFF, word >> 32 & 0xFFFF)
