"""Batches: changes of many rows, as one kernel call takes them."""

from __future__ import annotations

import struct
from collections.abc import Iterable

from gmdb.format.address import RowId, place_of
from gmdb.kernel.change.dml import BATCH_HEAD

Change = tuple[RowId, bytes]  # a row, and the patch that it gets; without one it is deleted
_head = struct.Struct("<qq")
assert _head.size == BATCH_HEAD


def batch_of(changes: Iterable[Change]) -> tuple[bytes, int]:
    """Changes as ``kernel.dml.change_rows`` takes them, and their number."""
    parts: list[bytes] = []
    head, add = _head.pack, parts.append
    for (page_id, slot), patch in changes:
        add(head(place_of(page_id, slot), len(patch)))
        add(patch)
    return b"".join(parts), len(parts) // 2
