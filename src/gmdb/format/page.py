"""The page head and tail that every page has, whatever lies between them.

A page's tail holds the CRC32C of all bytes before it.  The first eight bytes of the head (latch and mutex)
are zero on disk: latches live in memory that is never written.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from gmdb.format.layout import layout

PAGE_SIZES = (8192, 16384, 32768)

LATCH = layout(
    "latch",
    4,
    spinlock=("u1", "0 on disk"),
    latch_mode=("u1", "0 on disk"),
    latch_cnt=("<u2", "0 on disk"),
)

HASH_TAB_HEAD = layout(
    "hash table head",
    4,
    used_flag=("u1", "1: this page belongs to a hash index"),
    unused=("u1", "0"),
    page_count=("<u2", "of a hash directory: pages that it leads to; else 0"),
)

PAGE_HEAD = layout(
    "page head",
    80,
    latch=(LATCH, "the reference's latch"),
    mutex=("<u4", "0 on disk"),
    chg_num=("<u4", "changes made to this page since it was formatted; redo counts by it"),
    page_id=("<u4", "where this page belongs: device << 22 | offset"),
    obj_id=("<u4", "the table, index or undo log that owns the page"),
    page_create_no=("<u4", "how often this place was formatted"),
    seg_type=("<u2", "kind of segment: see SegmentType"),
    page_type=("<u2", "kind of page: see PageType"),
    map_page_id=("<u4", "the map page that lists this page"),
    map_offset=("<u2", "which entry of that map page"),
    unused=("2u1", "0"),
    free_begin=("<u2", "end of the entries, start of the free bytes"),
    free_end=("<u2", "end of the free bytes, start of the slot directory"),
    del_count=("<u2", "slots of this page whose row is deleted"),
    data_begin=("<u2", "where the node head starts"),
    ckpt_id=("<u4", "the checkpoint that wrote the page"),
    mirror_page=("<u4", "unused; 0xFFFFFFFF"),
    next_ckpt_page=("<u4", "next page of the dirty chain in memory; none = 0xFFFFFFFF on disk"),
    dirty_flag=("u1", "0 on disk"),
    valid_flag=("u1", "0"),
    flag=("u1", "of an undo page: 1 a transaction writes here, 2 the next one will; else 0"),
    fl_flag=("u1", "free list that the page is on, counted from 1; 0 = none"),
    hash_tab_head=(HASH_TAB_HEAD, "the reference's hash table head"),
    hash_page_type=("u1", "1 directory page, 2 bucket page of a hash index"),
    reserve=("15u1", "of a heap page: number of its bulk load, 8 bytes, 0 = none; of an undo page: see undo owner"),
)

PAGE_TAIL = layout(
    "page tail",
    8,
    crc=("<u4", "CRC32C of every byte before the tail"),
    reserved=("<u4", "0"),
)

HEAD_SIZE, TAIL_SIZE = PAGE_HEAD.size, PAGE_TAIL.size


class PageType(IntEnum):
    """What lies behind the page head."""

    NONE = 0
    DEVICE_HEAD = 1
    SEGMENT_ENTRY = 2
    DATA = 3
    MAP = 4
    FREE = 5
    TRANSACTIONS = 6


class SegmentType(IntEnum):
    """What the pages of a segment hold."""

    NONE = 0
    SYSTEM = 1
    UNDO = 2
    HEAP = 3
    BTREE = 4
    HASH = 5
    LOB = 6


def slot_offset(page_size: int, slot: int) -> int:
    """Where the directory keeps slot number ``slot``."""
    return page_size - TAIL_SIZE - 2 * (slot + 1)


def stored_crc(page: Any) -> int:
    return int.from_bytes(bytes(memoryview(page)[-TAIL_SIZE:][:4]), "little")
