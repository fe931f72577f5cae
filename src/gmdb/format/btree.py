"""B-tree pages: a node head, entries in order of arrival, a slot directory in key order.

An entry has the row header's shape, then 8 bytes (a row id in a leaf; a child page and 4 spare bytes in a
branch), then its key columns by the row's 2-bit rule.  A branch's last entry, a null key, is an open upper bound.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import Any

from gmdb.errors import Corruption
from gmdb.format import slotted
from gmdb.format.columns import Column
from gmdb.format.layout import Finding, Region, layout
from gmdb.format.page import HEAD_SIZE, PAGE_HEAD, TAIL_SIZE
from gmdb.format.row import COL_COUNT_AT, ROW_HEAD, SIZE_AT, decode_row, header_size
from gmdb.format.segment import PROGRAM_SIZE_AT, SEGMENT_HEAD, SEGMENT_HEAD_AT

BTREE_NODE = layout(
    "B-tree node head",
    28,
    next=("<u4", "right sibling; none = 0xFFFFFFFF"),
    prev=("<u4", "left sibling; none = 0xFFFFFFFF"),
    level=("<u2", "0 in a leaf, one more in each level above"),
    slot_count=("<u2", "entries"),
    reserved=("16u1", "0"),
)

BTREE_CHILD = layout(
    "B-tree child",
    8,
    page_id=("<u4", "the page below"),
    spare=("<u4", "0"),
)

INDEX_HEAD = layout(
    "index head",
    64,
    root=("<u4", "the root page"),
    unique=("u1", "1: no two rows may have the same key, unless it has a NULL; 2: whatever it has"),
    column_count=("u1", "key columns"),
    kind=("<u2", "what its pages are: see IndexKind"),
    orders=("16u1", "of each key column, how its values are compared: see Order; + 64: NULLs first, + 128: descending"),
    positions=("32u1", "of each key column, its number in the table (u16s)"),
    unique_columns=("u1", "the first key columns, by which a unique index knows rows; 0: all"),
    reserved2=("3u1", "0"),
    program_at=("<u2", "where its key program lies, counted from this head; see key program"),
    program_size=("<u2", "bytes of its key program; 0: it has an entry of every row"),
)


class IndexKind(IntEnum):
    """How an index finds its entries."""

    BTREE = 0
    HASH = 1


class Order(IntEnum):
    """How the stored values of a key column are compared."""

    WORD = 0  # 4 bytes, a signed number
    LONG = 1  # 8 bytes, a signed number
    DOUBLE = 2  # 8 bytes, a floating-point number; NaN is the largest
    WIDE = 3  # length and 16 bytes, a signed number
    BYTES = 4  # length and bytes, by their values
    REAL = 5  # 4 bytes, a floating-point number, as DOUBLE
    INTERVAL = 6  # length and 16 bytes, months of 30 days, days and nanoseconds


NULLS_COUNT = 2  # an index head's ``unique``: NULLs are equal to each other there
ORDER_MASK, NULLS_FIRST, DESCENDING = 0x3F, 0x40, 0x80  # of an index head's ``orders``
INDEX_AT = SEGMENT_HEAD_AT + SEGMENT_HEAD.offset("reserve2")  # on the entry page of the index's segment
assert INDEX_AT + INDEX_HEAD.offset("program_size") == PROGRAM_SIZE_AT
KEY_COLUMNS_MAX = 15  # a branch entry has one more, the row id, and all size bits in one word
KEY_BYTES_MAX = 2000
NODE_AT = HEAD_SIZE
ENTRIES_AT = NODE_AT + BTREE_NODE.size
POINTER_SIZE = BTREE_CHILD.size


def entry_extents(page: Any) -> list[tuple[int, int, int]]:
    """(offset, end, slot) of every entry that lies in the page."""
    node = BTREE_NODE.at(page, NODE_AT)
    end = len(memoryview(page)) - TAIL_SIZE
    count = min(node.slot_count, slotted.slot_room(page, ENTRIES_AT))
    extents = []
    for slot, offset in enumerate(slotted.slots(page, count)):
        if ENTRIES_AT <= offset <= end - ROW_HEAD.size:
            extents.append((offset, offset + ROW_HEAD.at(page, offset).size, slot))
    return extents


def key_values(columns: Sequence[Column], page: Any, offset: int) -> tuple[Any, ...]:
    """The values of an entry's key columns.  Raises Corruption or DataError if they cannot be these columns'."""
    entry = bytes(memoryview(page)[offset : offset + ROW_HEAD.at(page, offset).size])
    if len(entry) < ROW_HEAD.size + POINTER_SIZE:
        raise Corruption(f"an entry of {len(entry)} bytes has no room for where it leads", offset=offset)
    size = (len(entry) - POINTER_SIZE).to_bytes(2, "little")
    row = entry[:SIZE_AT] + size + entry[COL_COUNT_AT : ROW_HEAD.size] + entry[ROW_HEAD.size + POINTER_SIZE :]
    return decode_row(columns, row)


def regions(page: Any) -> Iterator[Region]:
    yield from BTREE_NODE.regions(page, NODE_AT, "node.")
    yield from entry_regions(page, "row id, or child page", "key columns")


def entry_regions(page: Any, pointer: str, key: str) -> Iterator[Region]:
    """The entries of a page and their directory; ``pointer`` and ``key`` say what lies in an entry."""
    for offset, end, slot in slotted.bounded(page, entry_extents(page)):
        yield from ROW_HEAD.regions(page, offset, f"entries[{slot}].")
        at = offset + header_size(ROW_HEAD.at(page, offset).col_count)
        if at + POINTER_SIZE <= min(end, len(memoryview(page))):
            raw = bytes(memoryview(page)[at : at + POINTER_SIZE])
            yield Region(at, POINTER_SIZE, f"entries[{slot}].pointer", raw.hex(), pointer)
            if end > at + POINTER_SIZE:
                raw = bytes(memoryview(page)[at + POINTER_SIZE : end])
                yield Region(at + POINTER_SIZE, len(raw), f"entries[{slot}].key", raw.hex(), key)
    count = min(BTREE_NODE.at(page, NODE_AT).slot_count, slotted.slot_room(page, ENTRIES_AT))
    yield from slotted.regions(page, count)


def check(page: Any) -> Iterator[Finding]:
    node = BTREE_NODE.at(page, NODE_AT)
    yield from slotted.check(page, ENTRIES_AT, node.slot_count)
    extents, free_begin = entry_extents(page), PAGE_HEAD.at(page).free_begin
    for offset, end, slot in extents:
        if end > free_begin:
            yield Finding(offset, f"slot {slot}: the entry reaches past the entries' end")
    yield from slotted.check_overlap(extents)
