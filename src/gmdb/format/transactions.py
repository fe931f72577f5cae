"""The transaction table: which transactions have committed and are not yet cleaned up after.

Its pages belong to the child segment of the undo segment.  Slot n of the table in memory is entry n here, over all
pages in map order.  A transaction whose undo records are found, but not its number here, did not commit.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

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
    words = np.frombuffer(page, "<u8", 2 * count, HEAD_SIZE).reshape(count, 2)
    for n in np.flatnonzero(words[:, 0]).tolist():
        yield HEAD_SIZE + n * TRANSACTION_ENTRY.size, int(words[n, 0]), int(words[n, 1])


def regions(page: Any) -> Iterator[Region]:
    for at, _, _ in committed(page):
        n = (at - PAGE_HEAD.size) // TRANSACTION_ENTRY.size
        yield from TRANSACTION_ENTRY.regions(page, at, f"entries[{n}].")


def check(page: Any) -> Iterator[Finding]:
    for at, number, scn in committed(page):
        if scn == 0:
            yield Finding(at, f"transaction {number} has an entry, but no SCN")
