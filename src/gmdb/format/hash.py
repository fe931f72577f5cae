"""Hash index pages.  ``hash_page_type`` in the page head tells a directory page from a bucket page.

An entry's address has 64 bits: a hash of its key, then one of its row id.  From the top, each level of directories
chooses by up to 10 of them; a directory's slots name the buckets or directories beneath it.  A bucket has entries like
a B-tree's leaf, with the address as one more column, in order of address and row id.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import Any

from gmdb.format import btree
from gmdb.format.address import NO_PAGE
from gmdb.format.btree import BTREE_NODE, ENTRIES_AT, NODE_AT
from gmdb.format.layout import Finding, Region, layout
from gmdb.format.page import PAGE_HEAD, TAIL_SIZE


class HashPageType(IntEnum):
    NONE = 0
    DIRECTORY = 1
    BUCKET = 2


HASH_NODE = layout(
    "hash node head",
    28,
    next=("<u4", "none = 0xFFFFFFFF"),
    prev=("<u4", "none = 0xFFFFFFFF"),
    depth=("<u2", "of a directory: by how many bits it chooses; of a bucket: how many of those its entries share"),
    slot_count=("<u2", "of a directory: page ids (u32) that follow, none = 0xFFFFFFFF; of a bucket: entries"),
    reserved=("16u1", "0"),
)
LEVEL_BITS = 10  # by which one directory chooses at most

assert [(f.offset, f.size) for f in HASH_NODE.fields] == [(f.offset, f.size) for f in BTREE_NODE.fields]


def is_directory(page: Any) -> bool:
    return bool(PAGE_HEAD.at(page).hash_page_type == HashPageType.DIRECTORY)


def slot_pages(page: Any) -> list[int]:
    """The page ids in a directory's slots, as far as the page has them."""
    room = (len(memoryview(page)) - TAIL_SIZE - ENTRIES_AT) // 4
    count = min(HASH_NODE.at(page, NODE_AT).slot_count, room)
    raw = bytes(memoryview(page)[ENTRIES_AT : ENTRIES_AT + 4 * count])
    return [int.from_bytes(raw[at : at + 4], "little") for at in range(0, len(raw), 4)]


def regions(page: Any) -> Iterator[Region]:
    yield from HASH_NODE.regions(page, NODE_AT, "node.")
    if is_directory(page):
        for number, page_id in enumerate(slot_pages(page)):
            yield Region(ENTRIES_AT + 4 * number, 4, f"slots[{number}]", page_id, "bucket or directory; none = 2³²−1")
    else:
        yield from btree.entry_regions(page, "row id", "key columns, then the address")


def check(page: Any) -> Iterator[Finding]:
    kind = PAGE_HEAD.at(page).hash_page_type
    if kind == HashPageType.BUCKET:
        yield from btree.check(page)
    elif kind != HashPageType.DIRECTORY:
        yield Finding(PAGE_HEAD.offset("hash_page_type"), f"hash_page_type {kind} is neither directory nor bucket")
    else:
        yield from _check_directory(page)


def _check_directory(page: Any) -> Iterator[Finding]:
    node, pages = HASH_NODE.at(page, NODE_AT), slot_pages(page)
    if node.depth > LEVEL_BITS or node.slot_count != 1 << min(node.depth, LEVEL_BITS):
        at = NODE_AT + HASH_NODE.offset("slot_count")
        yield Finding(at, f"a directory of depth {node.depth} with {node.slot_count} slots")
    elif PAGE_HEAD.at(page).free_begin != ENTRIES_AT + 4 * len(pages):
        yield Finding(PAGE_HEAD.offset("free_begin"), f"free_begin should be {ENTRIES_AT + 4 * len(pages)}")
    known, count = len({*pages} - {NO_PAGE}), PAGE_HEAD.at(page).hash_tab_head.page_count
    if known != count:
        yield Finding(PAGE_HEAD.offset("hash_tab_head.page_count"), f"page_count {count}, but the slots name {known}")
