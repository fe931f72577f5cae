"""Running a walk through an index, compiled, and telling what it found: what all kinds of index have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np

from gmdb.format.address import device_of, offset_of, page_name
from gmdb.format.btree import BTREE_NODE, INDEX_AT, INDEX_HEAD, NODE_AT, POINTER_SIZE
from gmdb.format.page import PageType, SegmentType, slot_offset
from gmdb.format.row import ROW_HEAD
from gmdb.kernel.verify_rows import SUSPECT
from gmdb.kernel.verify_walk import PROBLEM
from gmdb.verify.keyed import Index, IndexEntries, row_of
from gmdb.verify.mapping import MappedPages
from gmdb.verify.survey import MISSING, Survey

PROBLEMS_MAX = 100  # of one index that are put into words
KEY_AT = ROW_HEAD.size + POINTER_SIZE  # of an entry

Problem = Callable[[int, int, int], None]  # tells of one, in words


class IndexWalk:
    """One index.  A kind of index says which kernel goes through it, and has words for each kind of problem."""

    segment_type: ClassVar[SegmentType]
    check_type: ClassVar[np.dtype]
    item_type: ClassVar[np.dtype]

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
        """How many entries they have, those of branches included."""
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
            self.tell_at_entry_page(f"{result['problem_count'] - PROBLEMS_MAX} more entries or pages are wrong")
        unreached = 0
        if result["whole"] and self._index.segment.whole:
            unreached = self._tell_unreached()
        found = int(result["entry_count"])
        return IndexEntries(self._words[:found], self._spots[:found], bool(result["whole"]) and not unreached)

    def listed(self) -> np.ndarray:
        """Pages of the index that its segment's map lists, as far as they can be followed."""
        ids = self._index.segment.entries["page_id"].astype(np.int64)
        return ids[self._is_page(self._survey.gather(ids))]

    def _tell_unreached(self) -> int:
        """Pages that the segment's map lists, but the index does not lead to; answers how many."""
        listed = self.listed().tolist()
        unreached = [page_id for page_id in listed if not self._mapped.seen[device_of(page_id)][offset_of(page_id)]]
        for page_id in unreached:
            said = f"{self._index.name}: no page of the index leads to this page"
            self._survey.findings.on_page(page_id, NODE_AT, said)
        return len(unreached)

    # ---- places

    def tell_at_entry_page(self, said: str) -> None:
        at = INDEX_AT + INDEX_HEAD.offset("root")
        self._survey.findings.on_page(self._index.definition.entry_page, at, f"{self._index.name}: {said}")

    def entry_offset(self, page_id: int, slot: int) -> int:
        page = self._survey.files.page(page_id)
        at = slot_offset(len(page), slot)
        return int.from_bytes(page[at : at + 2], "little")

    def on_entry(self, page_id: int, slot: int, said: str, behind: int = 0) -> None:
        offset = self.entry_offset(page_id, slot) + behind
        self._survey.findings.on_page(page_id, offset, f"{self._index.name}: slot {slot}: {said}")

    def on_node(self, page_id: int, field: str, said: str) -> None:
        self._survey.findings.on_page(page_id, NODE_AT + BTREE_NODE.offset(field), f"{self._index.name}: {said}")

    def why_lost(self, page_id: int) -> str:
        """Why the walk could not go on to a page; nothing if that was found before."""
        verdict = self._survey.fact(page_id)["verdict"]
        if verdict == MISSING:
            return "which is not in use"
        return "" if verdict > SUSPECT else "which is no page of this index"

    # ---- entries

    def key_and_row(self, place: int) -> str:
        """Of an entry that leads to a row."""
        page, offset = self._survey.files.page(place >> 16), self.entry_offset(place >> 16, place & 0xFFFF)
        return f"{self._index.key_at(page, offset)} of row {row_of(page, offset)}"

    def tell_misfit(self, page_id: int, slot: int, tail: str, behind: int) -> None:
        columns = ", ".join(f"{column.name} {column.type}" for column in self._index.columns)
        said = f"the columns of the entry's key are not those of the index: {columns}{tail}"
        self.on_entry(page_id, slot, said, behind)

    def tell_same(self, page_id: int, slot: int, _: int) -> None:
        said = f"the entry of key {self.key_and_row(page_id << 16 | slot)} and its row is there twice"
        self.on_entry(page_id, slot, said)

    def tell_duplicate(self, page_id: int, slot: int, other: int) -> None:
        where = f"slot {other & 0xFFFF} of page {page_name(other >> 16)}"
        said = f"the index is unique, but key {self.key_and_row(page_id << 16 | slot)} is also in {where}"
        self.on_entry(page_id, slot, said, KEY_AT)
