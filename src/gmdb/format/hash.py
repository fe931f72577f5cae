"""Hash index pages.  ``hash_page_type`` in the page head tells a directory page from a bucket page."""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import Any

from gmdb.format import slotted
from gmdb.format.layout import Finding, Region, layout
from gmdb.format.page import HEAD_SIZE, PAGE_HEAD, TAIL_SIZE


class HashPageType(IntEnum):
    NONE = 0
    DIRECTORY = 1
    BUCKET = 2


HASH_DIRECTORY = layout(
    "hash directory head",
    24,
    next=("<u4", "next directory page; none = 0xFFFFFFFF"),
    depth=("<u2", "how many bits of a hash choose a bucket"),
    bucket_count=("<u2", "bucket page ids (u32) that follow on this page"),
    reserved=("16u1", "0"),
)

HASH_BUCKET = layout(
    "hash bucket head",
    24,
    next=("<u4", "overflow page of the same bucket; none = 0xFFFFFFFF"),
    depth=("<u2", "how many bits of a hash all entries share"),
    slot_count=("<u2", "entries"),
    reserved=("16u1", "0"),
)

NODE_AT = HEAD_SIZE
ENTRIES_AT = NODE_AT + HASH_BUCKET.size


def _bucket_ids(page: Any) -> int:
    room = (len(memoryview(page)) - TAIL_SIZE - ENTRIES_AT) // 4
    return min(HASH_DIRECTORY.at(page, NODE_AT).bucket_count, room)


def regions(page: Any) -> Iterator[Region]:
    if PAGE_HEAD.at(page).hash_page_type == HashPageType.DIRECTORY:
        yield from HASH_DIRECTORY.regions(page, NODE_AT, "node.")
        for i in range(_bucket_ids(page)):
            at = ENTRIES_AT + 4 * i
            value = int.from_bytes(bytes(memoryview(page)[at : at + 4]), "little")
            yield Region(at, 4, f"buckets[{i}]", value, "bucket page")
    else:
        yield from HASH_BUCKET.regions(page, NODE_AT, "node.")
        count = min(HASH_BUCKET.at(page, NODE_AT).slot_count, slotted.slot_room(page, ENTRIES_AT))
        yield from slotted.regions(page, count)


def check(page: Any) -> Iterator[Finding]:
    kind = PAGE_HEAD.at(page).hash_page_type
    if kind == HashPageType.BUCKET:
        yield from slotted.check(page, ENTRIES_AT, HASH_BUCKET.at(page, NODE_AT).slot_count)
    elif kind != HashPageType.DIRECTORY:
        yield Finding(PAGE_HEAD.offset("hash_page_type"), f"hash_page_type {kind} is neither directory nor bucket")
    elif _bucket_ids(page) != HASH_DIRECTORY.at(page, NODE_AT).bucket_count:
        yield Finding(NODE_AT + HASH_DIRECTORY.offset("bucket_count"), "more buckets than the page can list")
