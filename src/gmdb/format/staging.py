"""Staging files: what a task of a bulk load, or of building an index, has made ready for the database's owner.

A file holds whole pages, without places yet, or a stream of Arrow batches; behind that, a seal.  It is written
from front to end, so that a file without its seal was not finished.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from gmdb.format.checksum import crc32c
from gmdb.format.layout import layout

MAGIC = b"GMDBLOAD"

STAGED_SEAL = layout(
    "seal of a staging file",
    64,
    magic=("S8", "GMDBLOAD"),
    kind=("<u4", "what lies before the seal: see StagedKind"),
    page_size=("<u4", "bytes of a page; 0 if there are none"),
    page_count=("<u8", "how many pages"),
    row_count=("<u8", "how many rows, or entries of an index"),
    length=("<u8", "bytes before the seal"),
    definition=("16u1", "digest of what they were made for: columns and checks, or the index"),
    content_crc=("<u4", "CRC32C of the bytes before the seal"),
    crc=("<u4", "CRC32C of all bytes of the seal before it"),
)


class StagedKind(IntEnum):
    """What a staging file holds."""

    PAGES = 1
    ARROW = 2
    LEAVES = 3


def pack_seal(**fields: Any) -> bytes:
    raw = STAGED_SEAL.pack(magic=MAGIC, **fields)[:-4]
    return raw + crc32c(raw).to_bytes(4, "little")


def read_seal(raw: bytes) -> dict[str, Any] | None:
    """The seal's fields; None if the bytes are not a whole seal."""
    if len(raw) != STAGED_SEAL.size or not raw.startswith(MAGIC):
        return None
    if crc32c(raw[:-4]) != int.from_bytes(raw[-4:], "little"):
        return None
    fields = STAGED_SEAL.values(raw)
    return fields if fields["kind"] in list(StagedKind) else None
