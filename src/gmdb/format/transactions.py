"""The transaction table: which transactions have committed and are not yet cleaned up after.

Its pages belong to the child segment of the undo segment.  Slot n of the table in memory is entry n here, over all
pages in map order.  A transaction whose undo records are found, but not its number here, did not commit.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import iter_unpack
from typing import Any

from gmdb.format.layout import Finding, Region, layout
from gmdb.format.page import HEAD_SIZE, PAGE_HEAD, TAIL_SIZE

TRANSACTION_ENTRY = layout(
    "transaction entry",
    16,
    number=("<u8", "the transaction's number; 0 = the entry is free"),
    scn=("<u8", "when it committed"),
)


def entries_per_page(page_size: int) -> int:
    return (page_size - HEAD_SIZE - TAIL_SIZE) // TRANSACTION_ENTRY.size


def committed(page: Any) -> Iterator[tuple[int, int, int]]:
    """(offset, number, SCN) of every entry in use."""
    count = entries_per_page(len(memoryview(page)))
    at = HEAD_SIZE
    for number, scn in iter_unpack("<QQ", memoryview(page)[HEAD_SIZE : HEAD_SIZE + count * TRANSACTION_ENTRY.size]):
        if number:
            yield at, number, scn
        at += TRANSACTION_ENTRY.size


def regions(page: Any) -> Iterator[Region]:
    for at, _, _ in committed(page):
        n = (at - PAGE_HEAD.size) // TRANSACTION_ENTRY.size
        yield from TRANSACTION_ENTRY.regions(page, at, f"entries[{n}].")


def check(page: Any) -> Iterator[Finding]:
    for at, number, scn in committed(page):
        if scn == 0:
            yield Finding(at, f"transaction {number} has an entry, but no SCN")
