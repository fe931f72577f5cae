"""What the checks of all pages with a slot directory have in common."""

from __future__ import annotations

import numpy as np

from gmdb.format.page import TAIL_SIZE
from gmdb.format.slotted import SLOT_FREED
from gmdb.kernel.compiler import routine
from gmdb.kernel.memory import load_u16


@routine
def slot_value(page, page_size, slot):
    return load_u16(page + page_size - TAIL_SIZE - 2 * (slot + 1))


@routine
def overlap(page, page_size, slot_count, size_at, occupied_min):
    """Whether two entries share a byte; for pages on which they do not lie in slot order."""
    order = np.empty(slot_count, np.int64)
    count = 0
    for slot in range(slot_count):
        offset = slot_value(page, page_size, slot)
        if not offset & SLOT_FREED:
            order[count] = offset << 16 | max(load_u16(page + offset + size_at), occupied_min)
            count += 1
    order[:count].sort()
    end = 0
    for i in range(count):
        if order[i] >> 16 < end:
            return True
        end = (order[i] >> 16) + (order[i] & 0xFFFF)
    return False


@routine
def directory_is_right(head, page_size, entries_at, slot_count):
    directory = page_size - TAIL_SIZE - 2 * slot_count
    return head.free_end == directory and entries_at <= head.free_begin <= directory
