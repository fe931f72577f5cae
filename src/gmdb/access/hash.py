"""A hash index: entries of key and row id, found by a hash of the whole key.

Not here: how entries are written, added and taken (btree.py: both kinds do it alike).
"""

from __future__ import annotations

from gmdb.access.btree import BTree
from gmdb.format.btree import IndexKind
from gmdb.format.page import SegmentType


class HashIndex(BTree):
    """The entries of one hash index, in its segment.

    ``walk`` goes through all entries, or with ``low`` and ``high`` the same whole key through those that have it.
    """

    kind, segment_type = IndexKind.HASH, SegmentType.HASH


INDEX_KINDS: dict[str, type[BTree]] = {"btree": BTree, "hash": HashIndex}
