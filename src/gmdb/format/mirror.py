"""The mirror file: pages that a checkpoint is about to write to their places, written here first.

A page that a crash tears in its place is whole here.  The file holds one round of the checkpoint at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import starmap
from struct import Struct
from typing import Any

from gmdb.format.checksum import crc32c
from gmdb.format.layout import layout

MAGIC = b"GMDBMIRR"
PAGES_AT = 1 << 16
ROUND_SIZE = 8 << 20
MIRROR_SIZE = PAGES_AT + ROUND_SIZE

MIRROR_HEAD = layout(
    "mirror head",
    64,
    magic=("S8", "GMDBMIRR"),
    database_id=("16u1", "the database that it belongs to"),
    ckpt_id=("<u4", "the checkpoint that was writing"),
    page_count=("<u4", "how many pages follow, from offset 65536 on; their ids and sizes (u4 each) follow this head"),
    reserved=("24u1", "0"),
    ids_crc=("<u4", "CRC32C of the ids and sizes"),
    crc=("<u4", "CRC32C of all bytes before it"),
)


_PAGE = Struct("<II")  # of the ids and sizes


def pack_mirror_head(database_id: bytes, ckpt_id: int, ids: Sequence[tuple[int, int]]) -> bytes:
    """The head of a round; ``ids``: id and size of each page."""
    raw_ids = b"".join(starmap(_PAGE.pack, ids))
    fields = {"magic": MAGIC, "database_id": list(database_id), "ckpt_id": ckpt_id, "page_count": len(ids)}
    raw = MIRROR_HEAD.pack(ids_crc=crc32c(raw_ids), **fields)[:-4]
    return raw + crc32c(raw).to_bytes(4, "little") + raw_ids


def read_mirror_head(data: bytes) -> tuple[dict[str, Any], list[tuple[int, int]]] | None:
    """The head, and id and size of each page; None if it is not whole."""
    raw = data[: MIRROR_HEAD.size]
    if len(raw) < MIRROR_HEAD.size or not raw.startswith(MAGIC):
        return None
    if crc32c(raw[:-4]) != int.from_bytes(raw[-4:], "little"):
        return None
    head = MIRROR_HEAD.values(raw)
    raw_ids = data[MIRROR_HEAD.size : MIRROR_HEAD.size + 8 * head["page_count"]]
    if len(raw_ids) != 8 * head["page_count"] or crc32c(raw_ids) != head["ids_crc"]:
        return None
    return head, list(_PAGE.iter_unpack(raw_ids))
