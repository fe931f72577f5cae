"""B-trees: what ``kernel/verify_tree.py`` finds wrong with one, in words; and pages that no tree leads to."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gmdb.format.address import NO_PAGE, device_of, offset_of, page_name
from gmdb.format.btree import BTREE_NODE, INDEX_AT, INDEX_HEAD, NODE_AT, POINTER_SIZE
from gmdb.format.page import PageType, SegmentType, slot_offset
from gmdb.format.row import BITS_AT, ROW_HEAD
from gmdb.kernel import verify_tree as kernel
from gmdb.kernel.verify_rows import SUSPECT
from gmdb.kernel.verify_tree import PROBLEM, QUEUED, TREE_CHECK, check_tree
from gmdb.verify.keyed import Index, IndexEntries, row_of
from gmdb.verify.mapping import MappedPages
from gmdb.verify.survey import MISSING, Survey

PROBLEMS_MAX = 100  # of one index that are put into words
_LINKS = {kernel.PREV: ("prev", "before"), kernel.NEXT: ("next", "behind")}


def check_btree(survey: Survey, mapped: MappedPages, index: Index) -> IndexEntries:
    own = [_is_node(facts, index.definition.obj_id) for facts in survey.facts.values()]
    pages = sum(int(mask.sum()) for mask in own)
    slots = sum(int(f["slot_count"][m].sum(dtype=np.int64)) for f, m in zip(survey.facts.values(), own, strict=True))
    queue, problems = np.zeros(pages + 1, QUEUED), np.zeros(PROBLEMS_MAX, PROBLEM)
    words, spots = np.empty(slots + 1, np.int64), np.empty(slots + 1, np.int64)
    check = np.zeros(1, TREE_CHECK)
    check[0] = (
        mapped.address, index.head.ctypes.data, index.definition.obj_id, queue.ctypes.data, problems.ctypes.data,
        PROBLEMS_MAX, words.ctypes.data, spots.ctypes.data, 0, 0, 0, 0, 0, 0,
    )  # fmt: skip
    check_tree(check.ctypes.data)
    result = check[0]
    tree = _Tree(survey, index)
    for problem in problems[: result["problem_count"]]:
        tree.tell(*(int(value) for value in problem))
    if result["problem_count"] > PROBLEMS_MAX:
        tree.tell_at_entry_page(f"{result['problem_count'] - PROBLEMS_MAX} more entries or pages are wrong")
    unreached = 0
    if result["whole"] and index.segment.whole:
        unreached = tree.tell_unreached(mapped)
    found = int(result["entry_count"])
    return IndexEntries(words[:found], spots[:found], bool(result["whole"]) and not unreached)


def _is_node(facts: np.ndarray, obj_id: int) -> np.ndarray:
    kind = (facts["page_type"] == PageType.DATA) & (facts["seg_type"] == SegmentType.BTREE)
    mask: np.ndarray = kind & (facts["obj_id"] == obj_id) & (facts["verdict"] <= SUSPECT)
    return mask


class _Tree:
    """Words for what is wrong with one tree."""

    def __init__(self, survey: Survey, index: Index) -> None:
        self._survey, self._index = survey, index
        self._words: dict[int, Callable[[int, int, int], None]] = {
            kernel.CHILD: self._child,
            kernel.TWICE: self._twice,
            kernel.LEVEL: self._level,
            kernel.PREV: lambda page, _, other: self._link(kernel.PREV, page, other),
            kernel.NEXT: lambda page, _, other: self._link(kernel.NEXT, page, other),
            kernel.EMPTY: self._empty,
            kernel.MISFIT: self._misfit,
            kernel.OPEN: self._open,
            kernel.ORDER: self._order,
            kernel.SAME: self._same,
            kernel.LOW: self._low,
            kernel.HIGH: self._high,
            kernel.DUPLICATE: self._duplicate,
        }

    def tell(self, kind: int, page_id: int, slot: int, other: int) -> None:
        self._words[kind](page_id, slot, other)

    def tell_at_entry_page(self, said: str) -> None:
        at = INDEX_AT + INDEX_HEAD.offset("root")
        self._survey.findings.on_page(self._index.definition.entry_page, at, f"{self._index.name}: {said}")

    def tell_unreached(self, mapped: MappedPages) -> int:
        """Pages that the segment's map lists, but the tree does not lead to; answers how many."""
        ids = self._index.segment.entries["page_id"].astype(np.int64)
        listed = ids[_is_node(self._survey.gather(ids), self._index.definition.obj_id)].tolist()
        unreached = [page_id for page_id in listed if not mapped.seen[device_of(page_id)][offset_of(page_id)]]
        for page_id in unreached:
            said = f"{self._index.name}: no page of its tree leads to this page"
            self._survey.findings.on_page(page_id, NODE_AT, said)
        return len(unreached)

    # ---- places

    def _entry_offset(self, page_id: int, slot: int) -> int:
        page = self._survey.files.page(page_id)
        at = slot_offset(len(page), slot)
        return int.from_bytes(page[at : at + 2], "little")

    def _on_entry(self, page_id: int, slot: int, said: str, behind: int = 0) -> None:
        offset = self._entry_offset(page_id, slot) + behind
        self._survey.findings.on_page(page_id, offset, f"{self._index.name}: slot {slot}: {said}")

    def _on_node(self, page_id: int, field: str, said: str) -> None:
        self._survey.findings.on_page(page_id, NODE_AT + BTREE_NODE.offset(field), f"{self._index.name}: {said}")

    def _key(self, place: int) -> str:
        page_id, slot = place >> 16, place & 0xFFFF
        page, offset = self._survey.files.page(page_id), self._entry_offset(page_id, slot)
        key = self._index.key_at(page, offset)
        return key if self._is_branch(page_id) else f"{key} of row {row_of(page, offset)}"

    # ---- the tree

    def _child(self, parent: int, slot: int, child: int) -> None:
        fact = self._survey.fact(child)
        if fact["verdict"] > SUSPECT and fact["verdict"] != MISSING:
            return  # which was found already
        why = "which is not in use"
        if fact["verdict"] != MISSING:
            why = "which is no page of this index"
        self._from_parent(parent, slot, f"leads to page {page_name(child)}, {why}")

    def _twice(self, parent: int, slot: int, child: int) -> None:
        self._from_parent(parent, slot, f"leads to page {page_name(child)}, to which another entry leads already")

    def _from_parent(self, parent: int, slot: int, said: str) -> None:
        if parent == NO_PAGE:
            self.tell_at_entry_page(f"the root {said}")
        else:
            self._on_entry(parent, slot, f"the entry {said}", ROW_HEAD.size)

    def _level(self, page_id: int, _: int, level: int) -> None:
        found = BTREE_NODE.at(self._survey.files.page(page_id), NODE_AT).level
        self._on_node(page_id, "level", f"level {found}, but the page above it makes it {level}")

    def _link(self, kind: int, page_id: int, other: int) -> None:
        name, where = _LINKS[kind]
        found = BTREE_NODE.values(self._survey.files.page(page_id), NODE_AT)[name]
        said = f"{name} is page {page_name(found)}, but the page {where} it is {page_name(other)}"
        self._on_node(page_id, name, said)

    def _empty(self, page_id: int, _: int, __: int) -> None:
        self._on_node(page_id, "slot_count", "a branch without entries leads nowhere")

    # ---- entries

    def _misfit(self, page_id: int, slot: int, _: int) -> None:
        columns = ", ".join(f"{column.name} {column.type}" for column in self._index.columns)
        level = BTREE_NODE.at(self._survey.files.page(page_id), NODE_AT).level
        tail = "" if not level else " and the row id" if not self._index.definition.unique else ", maybe the row id"
        said = f"the columns of the entry's key are not those of the index: {columns}{tail}"
        self._on_entry(page_id, slot, said, BITS_AT)

    def _open(self, page_id: int, slot: int, _: int) -> None:
        self._on_entry(page_id, slot, "the last entry of a branch has no key, but this one has")

    def _order(self, page_id: int, slot: int, before: int) -> None:
        keys = f"{self._key(page_id << 16 | slot)} comes after {self._key(before)}"
        self._on_entry(page_id, slot, f"entries are not in order: {keys}", ROW_HEAD.size + POINTER_SIZE)

    def _same(self, page_id: int, slot: int, _: int) -> None:
        said = f"the entry of key {self._key(page_id << 16 | slot)} and its row is there twice"
        self._on_entry(page_id, slot, said)

    def _low(self, page_id: int, slot: int, bound: int) -> None:
        self._out_of_bounds(page_id, slot, bound, "is not above")

    def _high(self, page_id: int, slot: int, bound: int) -> None:
        self._out_of_bounds(page_id, slot, bound, "is not below" if self._is_branch(page_id) else "is above")

    def _is_branch(self, page_id: int) -> bool:
        return int(BTREE_NODE.at(self._survey.files.page(page_id), NODE_AT).level) > 0

    def _out_of_bounds(self, page_id: int, slot: int, bound: int, relation: str) -> None:
        where = f"slot {bound & 0xFFFF} of page {page_name(bound >> 16)}"
        keys = f"key {self._key(page_id << 16 | slot)} {relation} that of {where}, {self._key(bound)}"
        said = f"{keys}, which bounds the page"
        self._on_entry(page_id, slot, said, ROW_HEAD.size + POINTER_SIZE)

    def _duplicate(self, page_id: int, slot: int, before: int) -> None:
        where = f"slot {before & 0xFFFF} of page {page_name(before >> 16)}"
        said = f"the index is unique, but key {self._key(page_id << 16 | slot)} is also in {where}"
        self._on_entry(page_id, slot, said, ROW_HEAD.size + POINTER_SIZE)
