"""The work of verifying, in pieces that can be done anywhere: on threads of this process, or on other machines.

``verifier.checks`` plans pieces in rounds, and compares their results with each other.  Pieces and their results can be
pickled; everything else that a piece needs is in its ``Workplace``.

Invariants
 1. A piece's result depends on the files and on the piece alone, not on where it is done.
 2. Results are taken in the order of the pieces, so the order of findings does not depend on where the work was done.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from gmdb.format.address import NO_PAGE, place_of
from gmdb.format.row import MIN_OCCUPIED
from gmdb.kernel.checks import hash_checks, index_checks
from gmdb.kernel.checks.index_checks import NO_WORD, PROBLEM, SPECIAL, words_of_rows
from gmdb.kernel.checks.page_checks import NOTE
from gmdb.kernel.row import ENTRY_BUFFER
from gmdb.process.late_dataclasses import dataclass
from gmdb.tables.catalog.schema import TableDefinition
from gmdb.verify.page_contents import Rules
from gmdb.verify.page_reader import MappedPages, VerifiedFiles

RUN_SIZE = 1 << 20  # bytes that are read at once
INLINE_PIECES = 8  # up to this many pieces, threads cost more than they save
Progress = Callable[[int], AbstractContextManager[Callable[[int], None]]]
Verdicts = Mapping[int, np.ndarray]  # by device: a byte for each page in use


class Piece(Protocol):
    @property
    def page_count(self) -> int:
        """How many pages it checks, for showing progress."""

    def check(self, work: Workplace) -> Any:
        """Do the work; returns the result."""


@dataclass(frozen=True)
class Round:
    """Pieces that can be done at the same time.  ``verdicts``: those of earlier rounds on each page."""

    pieces: Sequence[Piece]
    tables: Mapping[int, TableDefinition]
    verdicts: Verdicts | None = None


class _Memory(threading.local):
    """Memory that a thread reuses for each of its pieces."""

    def __init__(self) -> None:
        self.pages = np.zeros(RUN_SIZE, np.uint8)
        self.notes = np.empty(2 * RUN_SIZE // MIN_OCCUPIED, NOTE)


class Workplace:
    """What the pieces of a round need, wherever they are done."""

    def __init__(
        self, files: VerifiedFiles, tables: Mapping[int, TableDefinition], verdicts: Verdicts | None = None
    ) -> None:
        self.files, self.tables, self._verdicts = files, tables, verdicts
        self.rules = Rules(tables)
        self.memory = _Memory()
        self._lock = threading.Lock()

    @property
    def mapped(self) -> MappedPages:
        """All pages, mapped; available once they all have a verdict."""
        with self._lock:
            return self._mapped

    @cached_property
    def _mapped(self) -> MappedPages:
        assert self._verdicts is not None
        return MappedPages(self.files, self._verdicts)


def run_on_threads(files: VerifiedFiles, work: Round, progress: Progress | None) -> list[Any]:
    """Do the pieces of a round in this process, on all cores; compiled checks run without the GIL."""
    if progress is None:
        return list(_results(files, work))
    done = []
    total = sum(piece.page_count for piece in work.pieces)
    with progress(total) as step, closing(_results(files, work)) as results:
        for piece, result in zip(work.pieces, results, strict=True):
            done.append(result)
            step(piece.page_count)
    return done


def _results(files: VerifiedFiles, work: Round) -> Generator[Any, None, None]:
    place, pieces = Workplace(files, work.tables, work.verdicts), work.pieces
    threads = min(len(os.sched_getaffinity(0)), len(pieces)) if len(pieces) > INLINE_PIECES else 1
    if threads == 1:
        yield from (piece.check(place) for piece in pieces)
        return
    with ThreadPoolExecutor(threads, "gmdb-verify") as pool:
        yield from pool.map(lambda piece: piece.check(place), pieces)


# ---- Indexes in pieces: leaves of a B-tree, all of a hash index, rows of a table; each says only whether it is right.
#
# Entries and rows are compared without collecting them in one place.  Each piece makes a ``Digest`` of its words; the
# sums of all entries' and of all rows' digests are equal if the words are.  An index that is not right in all its
# pieces is checked again as a whole, for messages (index_structure.py, index_contents.py).

PAGES_AT_ONCE = 4096  # whose rows are in memory as words
NOWHERE = -1


@dataclass(frozen=True)
class Digest:
    """Of words in any order: their number, their sum, and the sum of their squares, both modulo 2⁶⁴."""

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
    """``right``: nothing is wrong in this piece.  ``reached``: pages of the index that the walk came to."""

    right: bool
    digest: Digest
    reached: np.ndarray


@dataclass(frozen=True)
class LeafRange:
    """Consecutive leaves of a B-tree, as its branches lead to them."""

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
        walk = np.zeros(1, index_checks.TREE_CHECK)
        fields = {
            "devices": work.mapped.address, "index": head.ctypes.data, "obj_id": self.obj_id,
            "queue": queue.ctypes.data, "queued": len(queue), "problems": problems.ctypes.data, "problem_room": 1,
            "words": words.ctypes.data, "spots": spots.ctypes.data, "whole": 1,
            "before": self.before, "last": self.last, "open_end": int(not self.is_end),
        }  # fmt: skip
        for name, value in fields.items():
            walk[name] = value
        while index_checks.check_leaves(walk.ctypes.data):
            pass
        return _result_of(walk[0], words, spots, queue)


@dataclass(frozen=True)
class HashWalk:
    """All of a hash index."""

    head: bytes
    obj_id: int
    page_count: int
    entry_count: int

    def check(self, work: Workplace) -> EntriesFound:
        head, queue = np.frombuffer(self.head, np.uint8), np.zeros(self.page_count + 1, hash_checks.QUEUED)
        words, spots, keys = (np.empty(self.entry_count + 1, np.int64) for _ in range(3))
        problems = np.zeros(1, PROBLEM)
        walk = np.zeros(1, hash_checks.HASH_CHECK)
        fields = {
            "devices": work.mapped.address, "index": head.ctypes.data, "obj_id": self.obj_id,
            "queue": queue.ctypes.data, "problems": problems.ctypes.data, "problem_room": 1,
            "words": words.ctypes.data, "spots": spots.ctypes.data, "keys": keys.ctypes.data,
        }  # fmt: skip
        for name, value in fields.items():
            walk[name] = value
        while hash_checks.check_hash(walk.ctypes.data):
            pass
        result = _result_of(walk[0], words, spots, queue[: walk[0]["queued"]])
        known = np.sort(keys[: result.digest.count])
        known = known[known != NO_WORD]  # words of keys that no other row may have
        return EntriesFound(result.right and not (known[1:] == known[:-1]).any(), result.digest, result.reached)


def _result_of(walk: np.void, words: np.ndarray, spots: np.ndarray, queue: np.ndarray) -> EntriesFound:
    count = int(walk["entry_count"])
    is_right = bool(walk["whole"]) and not walk["problem_count"] and not (spots[:count] & SPECIAL).any()
    return EntriesFound(is_right, Digest.of(words[:count]), queue["page"].copy())


@dataclass(frozen=True)
class RowWords:
    """The rows on some pages of a table, as the entries that its indexes should have."""

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
    """All leaves of a B-tree, in ranges; ``slot_counts``: how many entries each leaf has."""
    filled = np.where(slot_counts > 0, np.arange(len(leaves)), NOWHERE)
    newest = np.maximum.accumulate(filled)  # for each leaf: the last one up to it that has entries
    ranges = []
    for first in range(0, len(leaves), leaves_a_piece):
        end = min(first + leaves_a_piece, len(leaves))
        before, last = NO_PAGE, NOWHERE
        if first:
            before, filled_one = int(leaves["page"][first - 1]), int(newest[first - 1])
            if filled_one != NOWHERE:
                last = place_of(int(leaves["page"][filled_one]), int(slot_counts[filled_one]) - 1)
        entries = int(slot_counts[first:end].sum(dtype=np.int64))
        part = leaves[first:end].copy()
        ranges.append(LeafRange(head.tobytes(), obj_id, part, entries, before, last, end == len(leaves)))
    return ranges
