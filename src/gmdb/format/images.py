"""Image files: pages as they were when a snapshot was pinned, kept for those who read by it.

A file is batches, one behind the other: a head, id, checkpoint and size of each page, and the pages.  Pages are
sealed as in their places; the checkpoint tells which of several images of a page is the newest.
"""

from __future__ import annotations

from typing import Any

from gmdb.format.checksum import crc32c
from gmdb.format.layout import layout
from gmdb.process.late_imports import numpy as np

MAGIC = b"GMDBIMGS"

IMAGE_BATCH = layout(
    "image batch head",
    32,
    magic=("S8", "GMDBIMGS"),
    page_count=("<u4", "pages of the batch; an image entry for each follows this head, then the pages"),
    entries_crc=("<u4", "CRC32C of the entries"),
    size=("<u8", "bytes of the batch, this head included"),
    reserved=("4u1", "0"),
    crc=("<u4", "CRC32C of all bytes before it"),
)

IMAGE_ENTRY = layout(
    "image entry",
    12,
    page_id=("<u4", "which page"),
    ckpt_id=("<u4", "the checkpoint that it is of"),
    size=("<u4", "its bytes"),
)


def pack_batch_head(ids: np.ndarray, ckpt_ids: np.ndarray, sizes: np.ndarray) -> bytes:
    """Head and entries of a batch."""
    entries = np.ascontiguousarray(np.column_stack((ids, ckpt_ids, sizes)), "<u4").tobytes()
    size = IMAGE_BATCH.size + len(entries) + int(sizes.sum())
    raw = IMAGE_BATCH.pack(magic=MAGIC, page_count=len(ids), entries_crc=crc32c(entries), size=size)[:-4]
    return raw + crc32c(raw).to_bytes(4, "little") + entries


def read_batch_head(raw: bytes) -> dict[str, Any] | None:
    """A batch's head; None if it is not whole."""
    if len(raw) < IMAGE_BATCH.size or not raw.startswith(MAGIC):
        return None
    raw = raw[: IMAGE_BATCH.size]
    return IMAGE_BATCH.values(raw) if crc32c(raw[:-4]) == int.from_bytes(raw[-4:], "little") else None


def read_entries(raw: bytes, head: dict[str, Any]) -> np.ndarray | None:
    """A row of page id, checkpoint and size for each page of a batch; None if they are not whole."""
    size = IMAGE_ENTRY.size * head["page_count"]
    if len(raw) < size or crc32c(raw[:size]) != head["entries_crc"]:
        return None
    return np.frombuffer(raw[:size], "<u4").reshape(-1, 3)
