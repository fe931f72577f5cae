"""Indexes in pieces: leaves of a B-tree, all of a hash index, rows of a table; each says only whether it is right.

Entries and rows are compared without bringing them to one place.  Each piece makes a ``Digest`` of the words that it
found; those of all entries and those of all rows, added up, are the same if the words are.  What is not right in all
its pieces is gone through again as a whole, for the words that say why (btrees.py, hashes.py, index_rows.py).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gmdb.format.address import NO_PAGE
from gmdb.kernel import verify_hash, verify_tree
from gmdb.kernel.keys import ENTRY_BUFFER
from gmdb.kernel.verify_index import NO_WORD, SPECIAL, words_of_rows
from gmdb.kernel.verify_walk import PROBLEM
from gmdb.verify.pieces import Workplace

PAGES_AT_ONCE = 4096  # whose rows are in memory as words
NOWHERE = -1


@dataclass(frozen=True)
class Digest:
    """Of words in any order: how many they are, their sum, and that of their squares, both modulo 2⁶⁴."""

    count: int = 0
    total: int = 0
    squares: int = 0

    @classmethod
    def of(cls, words: np.ndarray) -> Digest:
        numbers = words.view(np.uint64)
        return cls(len(numbers), int(numbers.sum(dtype=np.uint64)), int((numbers * numbers).sum(dtype=np.uint64)))

    def __add__(self, other: Digest) -> Digest:
        wrapped = (1 << 64) - 1
        return Digest(
            self.count + other.count, self.total + other.total & wrapped, self.squares + other.squares & wrapped
        )


NOTHING = Digest()


@dataclass(frozen=True)
class EntriesFound:
    """``right``: nothing is wrong in this piece.  ``reached``: pages of the index that were come to."""

    right: bool
    digest: Digest
    reached: np.ndarray


@dataclass(frozen=True)
class LeafRange:
    """Some leaves of a B-tree, one behind the other, as its branches lead to them."""

    head: bytes
    obj_id: int
    leaves: np.ndarray  # of verify_tree.QUEUED
    entry_count: int  # on these leaves
    before: int  # the leaf before the first, and the last entry that comes before it; NO_PAGE and NOWHERE: none
    last: int
    is_end: bool

    @property
    def page_count(self) -> int:
        return len(self.leaves)

    def check(self, work: Workplace) -> EntriesFound:
        head, queue = np.frombuffer(self.head, np.uint8), self.leaves.copy()
        words, spots = (np.empty(self.entry_count + 1, np.int64) for _ in range(2))
        problems = np.zeros(1, PROBLEM)
        walk = np.zeros(1, verify_tree.TREE_CHECK)
        fields = {
            "devices": work.mapped.address, "index": head.ctypes.data, "obj_id": self.obj_id,
            "queue": queue.ctypes.data, "queued": len(queue), "problems": problems.ctypes.data, "problem_room": 1,
            "words": words.ctypes.data, "spots": spots.ctypes.data, "whole": 1,
            "before": self.before, "last": self.last, "open_end": int(not self.is_end),
        }  # fmt: skip
        for name, value in fields.items():
            walk[name] = value
        while verify_tree.check_leaves(walk.ctypes.data):
            pass
        return _found(walk[0], words, spots, queue)


@dataclass(frozen=True)
class HashWalk:
    """All of a hash index."""

    head: bytes
    obj_id: int
    page_count: int
    entry_count: int

    def check(self, work: Workplace) -> EntriesFound:
        head, queue = np.frombuffer(self.head, np.uint8), np.zeros(self.page_count + 1, verify_hash.QUEUED)
        words, spots, keys = (np.empty(self.entry_count + 1, np.int64) for _ in range(3))
        problems = np.zeros(1, PROBLEM)
        walk = np.zeros(1, verify_hash.HASH_CHECK)
        fields = {
            "devices": work.mapped.address, "index": head.ctypes.data, "obj_id": self.obj_id,
            "queue": queue.ctypes.data, "problems": problems.ctypes.data, "problem_room": 1,
            "words": words.ctypes.data, "spots": spots.ctypes.data, "keys": keys.ctypes.data,
        }  # fmt: skip
        for name, value in fields.items():
            walk[name] = value
        while verify_hash.check_hash(walk.ctypes.data):
            pass
        found = _found(walk[0], words, spots, queue[: walk[0]["queued"]])
        known = np.sort(keys[: found.digest.count])
        known = known[known != NO_WORD]  # words of keys that no other row may have
        return EntriesFound(found.right and not (known[1:] == known[:-1]).any(), found.digest, found.reached)


def _found(walk: np.void, words: np.ndarray, spots: np.ndarray, queue: np.ndarray) -> EntriesFound:
    count = int(walk["entry_count"])
    is_right = bool(walk["whole"]) and not walk["problem_count"] and not (spots[:count] & SPECIAL).any()
    return EntriesFound(is_right, Digest.of(words[:count]), queue["page"].copy())


@dataclass(frozen=True)
class RowWords:
    """The rows on some pages of a table, as its indexes should know them."""

    heads: tuple[bytes, ...]  # of the indexes
    obj_id: int  # of the table
    pages: np.ndarray
    row_counts: np.ndarray

    @property
    def page_count(self) -> int:
        return len(self.pages)

    def check(self, work: Workplace) -> list[Digest]:
        """A digest for each index."""
        digests = [NOTHING] * len(self.heads)
        for at in range(0, len(self.pages), PAGES_AT_ONCE):
            pages = np.ascontiguousarray(self.pages[at : at + PAGES_AT_ONCE])
            room = int(self.row_counts[at : at + PAGES_AT_ONCE].sum(dtype=np.int64)) + 1
            words, places, buffer = np.empty(room, np.int64), np.empty(room, np.int64), np.empty(ENTRY_BUFFER, np.uint8)
            addresses = [memory.ctypes.data for memory in (words, places, buffer)]
            for number, bytes_of_head in enumerate(self.heads):
                head = np.frombuffer(bytes_of_head, np.uint8)
                count = words_of_rows(
                    work.mapped.address, head.ctypes.data, self.obj_id, pages.ctypes.data, len(pages), *addresses
                )
                digests[number] += Digest.of(words[:count])
        return digests


def leaf_ranges(
    head: np.ndarray, obj_id: int, leaves: np.ndarray, slot_counts: np.ndarray, leaves_a_piece: int
) -> list[LeafRange]:
    """All leaves of a B-tree; ``slot_counts``: how many entries each has."""
    filled = np.where(slot_counts > 0, np.arange(len(leaves)), NOWHERE)
    newest = np.maximum.accumulate(filled)  # for each leaf: the last one up to it that has entries
    ranges = []
    for first in range(0, len(leaves), leaves_a_piece):
        end = min(first + leaves_a_piece, len(leaves))
        before, last = NO_PAGE, NOWHERE
        if first:
            before, filled_one = int(leaves["page"][first - 1]), int(newest[first - 1])
            if filled_one != NOWHERE:
                last = int(leaves["page"][filled_one]) << 16 | int(slot_counts[filled_one]) - 1
        entries = int(slot_counts[first:end].sum(dtype=np.int64))
        part = leaves[first:end].copy()
        ranges.append(LeafRange(head.tobytes(), obj_id, part, entries, before, last, end == len(leaves)))
    return ranges
