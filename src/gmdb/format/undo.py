"""Undo pages: records of how rows and index entries were before a transaction changed them.

A page's records belong to runs: the records of one transaction, one behind the other.  The page head's reserve bytes
name the owner of the first run; each later run begins with an OWNER record, which counts as dead from the start.
A transaction that goes on on another page begins a further run there.  So the pages alone tell which transactions
were at work and what each of them did in which order; transactions.py tells which of them committed.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import Any, NamedTuple

from gmdb.format import slotted
from gmdb.format.address import ROW_ID, UNDO_DEVICE, page_id_of
from gmdb.format.layout import Finding, Region, layout
from gmdb.format.page import HEAD_SIZE, PAGE_HEAD, TAIL_SIZE

UNDO_HEAD = layout(
    "undo head",
    4,
    slot_count=("<u2", "records on the page"),
    reserved=("<u2", "0"),
)

UNDO_RECORD = layout(
    "undo record head",
    24,
    row_id=(ROW_ID, "the row that was changed"),
    lock_id=("<u4", "the writer's lock"),
    obj_id=("<u4", "the table or index"),
    seg_entry=("<u4", "its entry page"),
    size=("<u2", "bytes of the record, this head included"),
    op_type=("u1", "what was done: see UndoOperation"),
    reserved=("u1", "255"),
)


UNDO_OWNER = layout(
    "undo owner",
    15,
    number=("<u8", "the transaction's number; 0 = none"),
    run=("<u4", "which of its runs this is, counted from 0"),
    reserved=("3u1", "0"),
)


class UndoOperation(IntEnum):
    """What an undo record takes back."""

    HEAP_INSERT = 0x00
    HEAP_UPDATE = 0x01
    HEAP_UPDATE_INC = 0x02
    HEAP_DELETE = 0x03
    BTREE_INSERT = 0x04
    BTREE_DELETE = 0x05
    HASH_INSERT = 0x06
    HASH_DELETE = 0x07
    BTREE_INSERT_SHADOW = 0x08
    BTREE_DELETE_SHADOW = 0x09
    HASH_INSERT_SHADOW = 0x0A
    HASH_DELETE_SHADOW = 0x0B
    CREATE_SEGMENT = 0x0C
    SET_DROP = 0x0D
    LOB_INSERT = 0x0E
    LOB_DELETE = 0x0F
    HEAP_LOCK = 0x10
    OWNER = 0x11
    NONE = 0xFF


UNDO_ID, TRANSACTIONS_ID = 3, 4  # objects: the undo log, the table of committed transactions
UNDO_ENTRY = page_id_of(UNDO_DEVICE, 1)  # of the undo segment; its child is the table of committed transactions
NODE_AT = HEAD_SIZE
OWNER_AT = PAGE_HEAD.offset("reserve")
RECORDS_AT = NODE_AT + UNDO_HEAD.size
OWNER_SIZE = UNDO_RECORD.size + UNDO_OWNER.size + 1  # of an OWNER record, filled up to 8 bytes


def record_extents(page: Any) -> list[tuple[int, int, int]]:
    """(offset, end, slot) of every record whose head lies in the page."""
    end = len(memoryview(page)) - TAIL_SIZE
    count = min(UNDO_HEAD.at(page, NODE_AT).slot_count, slotted.slot_room(page, RECORDS_AT))
    extents = []
    for slot, offset in enumerate(slotted.slots(page, count)):
        if RECORDS_AT <= offset <= end - UNDO_RECORD.size:
            extents.append((offset, offset + UNDO_RECORD.at(page, offset).size, slot))
    return extents


class Owner(NamedTuple):
    """Whose records these are; ``named_at`` is where on the page that is said."""

    number: int
    run: int
    named_at: int


def record_owners(page: Any, extents: list[tuple[int, int, int]]) -> list[Owner]:
    """The owner of each of a page's records; an OWNER record's is the one that it names."""
    first = UNDO_OWNER.at(page, OWNER_AT)
    owner = Owner(first.number, first.run, OWNER_AT)
    owners = []
    for offset, _, _ in extents:
        is_named = UNDO_RECORD.at(page, offset).op_type == UndoOperation.OWNER
        if is_named and offset + OWNER_SIZE <= len(memoryview(page)):
            named = UNDO_OWNER.at(page, offset + UNDO_RECORD.size)
            owner = Owner(named.number, named.run, offset)
        owners.append(owner)
    return owners


def regions(page: Any) -> Iterator[Region]:
    yield from UNDO_HEAD.regions(page, NODE_AT, "node.")
    for offset, end, slot in slotted.bounded(page, record_extents(page)):
        yield from UNDO_RECORD.regions(page, offset, f"records[{slot}].")
        body = bytes(memoryview(page)[offset + UNDO_RECORD.size : end])
        if body:
            at = offset + UNDO_RECORD.size
            yield Region(at, len(body), f"records[{slot}].image", body.hex(), "what was there before")
    count = min(UNDO_HEAD.at(page, NODE_AT).slot_count, slotted.slot_room(page, RECORDS_AT))
    yield from slotted.regions(page, count)


def check(page: Any) -> Iterator[Finding]:
    yield from slotted.check(page, RECORDS_AT, UNDO_HEAD.at(page, NODE_AT).slot_count)
    extents, free_begin = record_extents(page), PAGE_HEAD.at(page).free_begin
    for offset, end, slot in extents:
        if end > free_begin or end < offset + UNDO_RECORD.size:
            yield Finding(offset, f"slot {slot}: a record of {end - offset} bytes does not fit")
    yield from slotted.check_overlap(extents)
