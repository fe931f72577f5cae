"""The structure of indexes, B-trees and hash indexes: runs the kernels that check one, and explains their problems."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from gmdb.errors import Corruption, DataError
from gmdb.format.address import NO_PAGE, RowId, device_of, offset_of, page_name, page_of, place_of, slot_of
from gmdb.format.btree import BTREE_NODE, ENTRIES_AT, INDEX_AT, INDEX_HEAD, NODE_AT, POINTER_SIZE, IndexKind, key_values
from gmdb.format.columns import Column
from gmdb.format.hash import HASH_NODE, slot_pages
from gmdb.format.layout import Structure
from gmdb.format.page import PageType, SegmentType, slot_offset
from gmdb.format.row import BITS_AT, ROW_HEAD
from gmdb.kernel.checks import hash_checks, index_checks
from gmdb.kernel.checks.index_checks import NO_WORD, PROBLEM, SPECIAL
from gmdb.kernel.checks.row_checks import SUSPECT
from gmdb.kernel.indexes.hash_page import ALL_BITS, PLACE_BITS
from gmdb.process.late_dataclasses import dataclass
from gmdb.tables.access.indexes import IndexDefinition
from gmdb.tables.catalog.schema import TableDefinition
from gmdb.verify.page_reader import MappedPages
from gmdb.verify.pieces import EntriesFound, HashWalk, LeafRange, leaf_ranges
from gmdb.verify.segments import CheckedSegment
from gmdb.verify.survey import MISSING, Survey

# ---- An index that is being verified, and its entries.

SHOWN_CHARACTERS = 80
KINDS_BY_NAME = {kind.name.lower(): kind for kind in IndexKind}  # as the catalog calls them


@dataclass(frozen=True)
class Index:
    definition: IndexDefinition
    table: TableDefinition
    columns: tuple[Column, ...]
    segment: CheckedSegment
    head: np.ndarray  # the bytes of the index head as it should be

    @property
    def name(self) -> str:
        return f"index {self.definition.name}"

    @property
    def kind(self) -> IndexKind:
        return KINDS_BY_NAME[self.definition.using]

    def key_at(self, page: bytes, offset: int) -> str:
        """An entry's key as text."""
        try:
            return in_words(key_values(self.columns, page, offset))
        except (Corruption, DataError):
            return "that is not a value of its columns"


@dataclass(frozen=True)
class IndexEntries:
    """The entries that lead to rows: their words, and where they are (their places, and SPECIAL)."""

    words: np.ndarray
    spots: np.ndarray
    whole: bool  # whether all of the index could be read, so that a missing entry is not there


def row_of(page: bytes, offset: int) -> RowId:
    """The row that the entry of a leaf leads to."""
    at = offset + ROW_HEAD.size
    return RowId.from_word(int.from_bytes(page[at : at + POINTER_SIZE], "little"))


def in_words(key: tuple[Any, ...]) -> str:
    text = f"({', '.join(map(repr, key))})"
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}…)"


# ---- Running a compiled walk through an index and reporting its problems: what all kinds of index have in common.

PROBLEMS_MAX = 100  # of one index that are reported one by one
KEY_AT = ROW_HEAD.size + POINTER_SIZE  # of an entry

Problem = Callable[[int, int, int], None]  # reports one


class IndexWalk:
    """One index.  A subclass for each kind of index has its kernels, and a message for each kind of problem."""

    segment_type: ClassVar[SegmentType]
    check_type: ClassVar[Structure]
    item_type: ClassVar[Structure]

    def __init__(self, survey: Survey, mapped: MappedPages, index: Index) -> None:
        self._survey, self._mapped, self._index = survey, mapped, index
        own = [self._is_page(facts) for facts in survey.facts.values()]
        pages = sum(int(mask.sum()) for mask in own)
        counts = (f["slot_count"][mask] for f, mask in zip(survey.facts.values(), own, strict=True))
        room = sum(int(count.sum(dtype=np.int64)) for count in counts) + 1
        self._queue, self._problems = np.zeros(pages + 1, self.item_type), np.zeros(PROBLEMS_MAX, PROBLEM)
        self._words, self._spots, self._keys = (np.empty(room, np.int64) for _ in range(3))
        self._check = np.zeros(1, self.check_type)
        fields = {
            "devices": mapped.address, "index": index.head.ctypes.data, "obj_id": index.definition.obj_id,
            "queue": self._queue.ctypes.data, "problems": self._problems.ctypes.data, "problem_room": PROBLEMS_MAX,
            "words": self._words.ctypes.data, "spots": self._spots.ctypes.data,
        }  # fmt: skip
        for name, value in fields.items():
            self._check[name] = value

    def _is_page(self, facts: np.ndarray) -> np.ndarray:
        kind = (facts["page_type"] == PageType.DATA) & (facts["seg_type"] == self.segment_type)
        mask: np.ndarray = kind & (facts["obj_id"] == self._index.definition.obj_id) & (facts["verdict"] <= SUSPECT)
        return mask

    @property
    def own_pages(self) -> int:
        """How many pages of the index can be followed."""
        return len(self._queue) - 1

    @property
    def entry_room(self) -> int:
        """How many entries these pages have, those of branches included."""
        return len(self._words) - 1

    def walk(self, *kernels: Callable[[int], int]) -> np.void:
        for kernel in kernels:
            while kernel(self._check.ctypes.data):
                pass
        return self._check[0]

    def run(self, kernels: Sequence[Callable[[int], int]], words: dict[int, Problem]) -> IndexEntries:
        self.walk(*kernels)
        result = self._check[0]
        for problem in self._problems[: result["problem_count"]]:
            kind, *where = (int(value) for value in problem)
            words[kind](*where)
        if result["problem_count"] > PROBLEMS_MAX:
            self.report_at_entry_page(f"{result['problem_count'] - PROBLEMS_MAX} more entries or pages are wrong")
        unreached = 0
        if result["whole"] and self._index.segment.whole:
            unreached = self._report_unreached()
        count = int(result["entry_count"])
        return IndexEntries(self._words[:count], self._spots[:count], bool(result["whole"]) and not unreached)

    def listed(self) -> np.ndarray:
        """Pages of the index that its segment's map lists and that can be followed."""
        ids = self._index.segment.entries["page_id"].astype(np.int64)
        return ids[self._is_page(self._survey.gather(ids))]

    def _report_unreached(self) -> int:
        """Report pages that the segment's map lists but the index does not lead to; returns how many."""
        listed = self.listed().tolist()
        unreached = [page_id for page_id in listed if not self._mapped.seen[device_of(page_id)][offset_of(page_id)]]
        for page_id in unreached:
            message = f"{self._index.name}: no page of the index leads to this page"
            self._survey.findings.on_page(page_id, NODE_AT, message)
        return len(unreached)

    # ---- places

    def report_at_entry_page(self, message: str) -> None:
        at = INDEX_AT + INDEX_HEAD.offset("root")
        self._survey.findings.on_page(self._index.definition.entry_page, at, f"{self._index.name}: {message}")

    def entry_offset(self, page_id: int, slot: int) -> int:
        page = self._survey.files.page(page_id)
        at = slot_offset(len(page), slot)
        return int.from_bytes(page[at : at + 2], "little")

    def on_entry(self, page_id: int, slot: int, message: str, behind: int = 0) -> None:
        offset = self.entry_offset(page_id, slot) + behind
        self._survey.findings.on_page(page_id, offset, f"{self._index.name}: slot {slot}: {message}")

    def on_node(self, page_id: int, field: str, message: str) -> None:
        self._survey.findings.on_page(page_id, NODE_AT + BTREE_NODE.offset(field), f"{self._index.name}: {message}")

    def why_lost(self, page_id: int) -> str:
        """Why the walk could not go on to a page; empty if the page was reported before."""
        verdict = self._survey.fact(page_id)["verdict"]
        if verdict == MISSING:
            return "which is not in use"
        return "" if verdict > SUSPECT else "which is not a page of this index"

    # ---- entries

    def key_and_row(self, place: int) -> str:
        """The key and the row of an entry that leads to a row, as text."""
        page, offset = self._survey.files.page(page_of(place)), self.entry_offset(page_of(place), slot_of(place))
        return f"{self._index.key_at(page, offset)} of row {row_of(page, offset)}"

    def report_misfit(self, page_id: int, slot: int, tail: str, behind: int) -> None:
        columns = ", ".join(f"{column.name} {column.type}" for column in self._index.columns)
        message = f"the columns of the entry's key are not those of the index: {columns}{tail}"
        self.on_entry(page_id, slot, message, behind)

    def report_same(self, page_id: int, slot: int, _: int) -> None:
        message = f"the entry of key {self.key_and_row(place_of(page_id, slot))} and its row is there twice"
        self.on_entry(page_id, slot, message)

    def report_duplicate(self, page_id: int, slot: int, other: int) -> None:
        where = f"slot {slot_of(other)} of page {page_name(page_of(other))}"
        message = f"the index is unique, but key {self.key_and_row(place_of(page_id, slot))} is also in {where}"
        self.on_entry(page_id, slot, message, KEY_AT)


# ---- B-trees: the problems that ``kernel/checks/index_checks.py`` finds.

_LINKS = {index_checks.PREV: ("prev", "before"), index_checks.NEXT: ("next", "behind")}


class Tree(IndexWalk):
    """One B-tree, and messages for its problems."""

    segment_type, check_type, item_type = SegmentType.BTREE, index_checks.TREE_CHECK, index_checks.QUEUED

    def check(self) -> IndexEntries:
        words = {
            index_checks.CHILD: self._child,
            index_checks.TWICE: self._twice,
            index_checks.LEVEL: self._level,
            index_checks.PREV: lambda page, _, other: self._link(index_checks.PREV, page, other),
            index_checks.NEXT: lambda page, _, other: self._link(index_checks.NEXT, page, other),
            index_checks.EMPTY: self._empty,
            index_checks.MISFIT: self._misfit,
            index_checks.OPEN: self._open,
            index_checks.ORDER: self._order,
            index_checks.SAME: self.report_same,
            index_checks.LOW: self._low,
            index_checks.HIGH: self._high,
            index_checks.DUPLICATE: self.report_duplicate,
        }
        return self.run((index_checks.check_branches, index_checks.check_leaves), words)

    def pieces(self, pages_a_piece: int) -> list[LeafRange]:
        """Its leaves; none if something is wrong with the branches, so that it must be checked as a whole."""
        result = self.walk(index_checks.check_branches)
        if result["problem_count"] or not result["whole"]:
            return []
        leaves = self._queue[result["done"] : result["queued"]]
        counts = self._survey.gather(leaves["page"])["slot_count"].astype(np.int64)
        return leaf_ranges(self._index.head, self._index.definition.obj_id, leaves, counts, pages_a_piece)

    def is_reached(self, _: Sequence[EntriesFound]) -> bool:
        """Whether the branches have led to all its pages."""
        reached = self._queue["page"][: self._check[0]["queued"]]
        return bool(np.isin(self.listed(), reached).all())

    def _key(self, place: int) -> str:
        page_id, slot = page_of(place), slot_of(place)
        if not self._level_of(page_id):
            return self.key_and_row(place)
        return self._index.key_at(self._survey.files.page(page_id), self.entry_offset(page_id, slot))

    def _level_of(self, page_id: int) -> int:
        return int(BTREE_NODE.at(self._survey.files.page(page_id), NODE_AT).level)

    # ---- the tree

    def _child(self, parent: int, slot: int, child: int) -> None:
        why = self.why_lost(child)
        if why:
            self._from_parent(parent, slot, f"leads to page {page_name(child)}, {why}")

    def _twice(self, parent: int, slot: int, child: int) -> None:
        self._from_parent(parent, slot, f"leads to page {page_name(child)}, to which another entry leads already")

    def _from_parent(self, parent: int, slot: int, message: str) -> None:
        if parent == NO_PAGE:
            self.report_at_entry_page(f"the root {message}")
        else:
            self.on_entry(parent, slot, f"the entry {message}", ROW_HEAD.size)

    def _level(self, page_id: int, _: int, level: int) -> None:
        self.on_node(page_id, "level", f"level {self._level_of(page_id)}, but the page above it makes it {level}")

    def _link(self, kind: int, page_id: int, other: int) -> None:
        name, where = _LINKS[kind]
        stored = BTREE_NODE.values(self._survey.files.page(page_id), NODE_AT)[name]
        message = f"{name} is page {page_name(stored)}, but the page {where} it is {page_name(other)}"
        self.on_node(page_id, name, message)

    def _empty(self, page_id: int, _: int, __: int) -> None:
        self.on_node(page_id, "slot_count", "a branch without entries leads nowhere")

    # ---- entries

    def _misfit(self, page_id: int, slot: int, _: int) -> None:
        tail = " and the row id" if not self._index.definition.unique else ", maybe the row id"
        self.report_misfit(page_id, slot, tail if self._level_of(page_id) else "", BITS_AT)

    def _open(self, page_id: int, slot: int, _: int) -> None:
        self.on_entry(page_id, slot, "the last entry of a branch has no key, but this one has")

    def _order(self, page_id: int, slot: int, before: int) -> None:
        keys = f"{self._key(place_of(page_id, slot))} comes after {self._key(before)}"
        self.on_entry(page_id, slot, f"entries are not in order: {keys}", KEY_AT)

    def _low(self, page_id: int, slot: int, bound: int) -> None:
        self._out_of_bounds(page_id, slot, bound, "is not above")

    def _high(self, page_id: int, slot: int, bound: int) -> None:
        self._out_of_bounds(page_id, slot, bound, "is not below" if self._level_of(page_id) else "is above")

    def _out_of_bounds(self, page_id: int, slot: int, bound: int, relation: str) -> None:
        where = f"slot {slot_of(bound)} of page {page_name(page_of(bound))}"
        keys = f"key {self._key(place_of(page_id, slot))} {relation} that of {where}, {self._key(bound)}"
        self.on_entry(page_id, slot, f"{keys}, which bounds the page", KEY_AT)


# ---- Hash indexes: the problems that ``kernel/checks/hash_checks.py`` finds, and duplicate keys.

_ADDRESS_SIZE = 8


class Hash(IndexWalk):
    """One hash index, and messages for its problems."""

    segment_type, check_type, item_type = SegmentType.HASH, hash_checks.HASH_CHECK, hash_checks.QUEUED

    def check(self) -> IndexEntries:
        self._check["keys"] = self._keys.ctypes.data
        words = {
            hash_checks.CHILD: self._child,
            hash_checks.ROOT: self._root,
            hash_checks.TWICE: self._twice,
            hash_checks.DEPTH: self._depth,
            hash_checks.DEEP: self._deep,
            hash_checks.SHALLOW: self._shallow,
            hash_checks.BLOCK: self._block,
            hash_checks.LONELY: self._lonely,
            hash_checks.EMPTY: self._empty,
            hash_checks.MISFIT: lambda page, slot, _: self.report_misfit(page, slot, " and the address", BITS_AT),
            hash_checks.ADDRESS: self._address,
            hash_checks.STRAY: self._stray,
            hash_checks.ORDER: self._order,
            hash_checks.SAME: self.report_same,
        }
        entries = self.run((hash_checks.check_hash,), words)
        self._report_duplicates(entries.spots)
        return entries

    def pieces(self, _: int) -> list[HashWalk]:
        """All of it in one piece: buckets are not in an order by which parts of it could find duplicate keys."""
        definition = self._index.definition
        return [HashWalk(self._index.head.tobytes(), definition.obj_id, self.own_pages, self.entry_room)]

    def is_reached(self, results: Sequence[EntriesFound]) -> bool:
        """Whether the walk has come to all its pages."""
        return bool(np.isin(self.listed(), np.concatenate([one.reached for one in results])).all())

    def _report_duplicates(self, spots: np.ndarray) -> None:
        """Report entries of a unique index with the same key; equal words only say where to look."""
        if not self._index.definition.unique:
            return
        order = np.argsort(self._keys[: len(spots)], kind="stable")
        keys = self._keys[order]
        candidates = np.flatnonzero((keys[1:] == keys[:-1]) & (keys[1:] != NO_WORD))
        count = 0
        for n in candidates.tolist():
            other, spot = (int(spots[order[i]]) & ~SPECIAL for i in (n, n + 1))
            if hash_checks.same_key(self._mapped.address, self._index.head.ctypes.data, spot, other):
                count += 1
                if count <= PROBLEMS_MAX:
                    self.report_duplicate(page_of(spot), slot_of(spot), other)
        if count > PROBLEMS_MAX:
            self.report_at_entry_page(f"{count - PROBLEMS_MAX} more keys are there twice")

    # ---- directories

    def _depth_of(self, page_id: int) -> int:
        return int(HASH_NODE.at(self._survey.files.page(page_id), NODE_AT).depth)

    def _on_slot(self, directory: int, slot: int, message: str) -> None:
        text = f"{self._index.name}: slot {slot} of the directory {message}"
        self._survey.findings.on_page(directory, ENTRIES_AT + 4 * slot, text)

    def _child(self, directory: int, slot: int, child: int) -> None:
        why = self.why_lost(child)
        if why and directory == NO_PAGE:
            self.report_at_entry_page(f"the root leads to page {page_name(child)}, {why}")
        elif why:
            self._on_slot(directory, slot, f"leads to page {page_name(child)}, {why}")

    def _root(self, page_id: int, _: int, __: int) -> None:
        self.report_at_entry_page(f"the root leads to page {page_name(page_id)}, which is not a directory")

    def _twice(self, directory: int, slot: int, child: int) -> None:
        message = f"leads to page {page_name(child)}, to which other slots lead already"
        self._on_slot(directory, slot, message)

    def _depth(self, page_id: int, _: int, most: int) -> None:
        message = f"depth {self._depth_of(page_id)}, but a directory of its level chooses by {most} bits at most"
        self.on_node(page_id, "level", message)

    def _deep(self, page_id: int, _: int, most: int) -> None:
        message = f"depth {self._depth_of(page_id)}, but the bucket's directory chooses by {most} bits only"
        self.on_node(page_id, "level", message)

    def _slots_with(self, directory: int, slot: int, child: int) -> tuple[str, int]:
        """The run of slots that lead to a page, as text, and how many they are."""
        slots, last = slot_pages(self._survey.files.page(directory)), slot
        while last + 1 < len(slots) and slots[last + 1] == child:
            last += 1
        return (f"slot {slot}" if last == slot else f"slots {slot} to {last}"), last - slot + 1

    def _shallow(self, directory: int, slot: int, child: int) -> None:
        where, _ = self._slots_with(directory, slot, child)
        message = f"leads to a directory, page {page_name(child)}, from {where} at depth {self._depth_of(directory)}"
        self._on_slot(directory, slot, f"{message}; that takes all bits of the level, one slot, and a level beneath it")

    def _block(self, directory: int, slot: int, child: int) -> None:
        where, count = self._slots_with(directory, slot, child)
        right = 1 << self._depth_of(directory) - self._depth_of(child)
        message = f"leads to page {page_name(child)}, which is in {where}, {count} in all"
        wanted = f"{right}, beginning at a multiple of that"
        self._on_slot(directory, slot, f"{message}, but a bucket of depth {self._depth_of(child)} is in {wanted}")

    def _lonely(self, page_id: int, _: int, children: int) -> None:
        what = "one bucket only" if children else "no page"
        self.on_node(page_id, "slot_count", f"the directory leads to {what}, and should have been removed")

    # ---- buckets

    def _empty(self, page_id: int, _: int, __: int) -> None:
        self.on_node(page_id, "slot_count", "a bucket without entries")

    def _address_of(self, page_id: int, slot: int) -> tuple[int, int]:
        """The address of an entry, and its offset in the entry."""
        page, offset = self._survey.files.page(page_id), self.entry_offset(page_id, slot)
        at = int(ROW_HEAD.at(page, offset).size) - _ADDRESS_SIZE
        return int.from_bytes(page[offset + at : offset + at + _ADDRESS_SIZE], "little"), at

    def _on_address(self, page_id: int, slot: int, message: str) -> None:
        address, at = self._address_of(page_id, slot)
        self.on_entry(page_id, slot, f"address {address:#018x} {message}", at)

    def _address(self, page_id: int, slot: int, _: int) -> None:
        self._on_address(page_id, slot, f"is not that of key {self.key_and_row(place_of(page_id, slot))}")

    def _stray(self, page_id: int, slot: int, number: int) -> None:
        item = self._queue[number]
        bits = int(item["bits"])
        prefix = ((int(item["address"]) & (1 << 64) - 1) << PLACE_BITS | int(item["place"])) >> ALL_BITS - bits
        message = f"does not belong in the bucket, whose entries begin with bits {prefix:0{bits}b}"
        self._on_address(page_id, slot, message)

    def _order(self, page_id: int, slot: int, before: int) -> None:
        address, _ = self._address_of(page_id, slot_of(before))
        self._on_address(page_id, slot, f"comes after {address:#018x}, or the row ids do: entries are not in order")
