"""B-trees: what ``kernel/verify_tree.py`` finds wrong with one, in words."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gmdb.format.address import NO_PAGE, page_name
from gmdb.format.btree import BTREE_NODE, NODE_AT
from gmdb.format.page import SegmentType
from gmdb.format.row import BITS_AT, ROW_HEAD
from gmdb.kernel import verify_tree as kernel
from gmdb.verify.index_pieces import EntriesFound, LeafRange, leaf_ranges
from gmdb.verify.index_walk import KEY_AT, IndexWalk
from gmdb.verify.keyed import IndexEntries

_LINKS = {kernel.PREV: ("prev", "before"), kernel.NEXT: ("next", "behind")}


class Tree(IndexWalk):
    """One tree, and words for what is wrong with it."""

    segment_type, check_type, item_type = SegmentType.BTREE, kernel.TREE_CHECK, kernel.QUEUED

    def check(self) -> IndexEntries:
        words = {
            kernel.CHILD: self._child,
            kernel.TWICE: self._twice,
            kernel.LEVEL: self._level,
            kernel.PREV: lambda page, _, other: self._link(kernel.PREV, page, other),
            kernel.NEXT: lambda page, _, other: self._link(kernel.NEXT, page, other),
            kernel.EMPTY: self._empty,
            kernel.MISFIT: self._misfit,
            kernel.OPEN: self._open,
            kernel.ORDER: self._order,
            kernel.SAME: self.tell_same,
            kernel.LOW: self._low,
            kernel.HIGH: self._high,
            kernel.DUPLICATE: self.tell_duplicate,
        }
        return self.run((kernel.check_branches, kernel.check_leaves), words)

    def pieces(self, pages_a_piece: int) -> list[LeafRange]:
        """Its leaves; none if something is wrong with the branches, so that it must be gone through as a whole."""
        result = self.walk(kernel.check_branches)
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
        page_id, slot = place >> 16, place & 0xFFFF
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

    def _from_parent(self, parent: int, slot: int, said: str) -> None:
        if parent == NO_PAGE:
            self.tell_at_entry_page(f"the root {said}")
        else:
            self.on_entry(parent, slot, f"the entry {said}", ROW_HEAD.size)

    def _level(self, page_id: int, _: int, level: int) -> None:
        self.on_node(page_id, "level", f"level {self._level_of(page_id)}, but the page above it makes it {level}")

    def _link(self, kind: int, page_id: int, other: int) -> None:
        name, where = _LINKS[kind]
        found = BTREE_NODE.values(self._survey.files.page(page_id), NODE_AT)[name]
        said = f"{name} is page {page_name(found)}, but the page {where} it is {page_name(other)}"
        self.on_node(page_id, name, said)

    def _empty(self, page_id: int, _: int, __: int) -> None:
        self.on_node(page_id, "slot_count", "a branch without entries leads nowhere")

    # ---- entries

    def _misfit(self, page_id: int, slot: int, _: int) -> None:
        tail = " and the row id" if not self._index.definition.unique else ", maybe the row id"
        self.tell_misfit(page_id, slot, tail if self._level_of(page_id) else "", BITS_AT)

    def _open(self, page_id: int, slot: int, _: int) -> None:
        self.on_entry(page_id, slot, "the last entry of a branch has no key, but this one has")

    def _order(self, page_id: int, slot: int, before: int) -> None:
        keys = f"{self._key(page_id << 16 | slot)} comes after {self._key(before)}"
        self.on_entry(page_id, slot, f"entries are not in order: {keys}", KEY_AT)

    def _low(self, page_id: int, slot: int, bound: int) -> None:
        self._out_of_bounds(page_id, slot, bound, "is not above")

    def _high(self, page_id: int, slot: int, bound: int) -> None:
        self._out_of_bounds(page_id, slot, bound, "is not below" if self._level_of(page_id) else "is above")

    def _out_of_bounds(self, page_id: int, slot: int, bound: int, relation: str) -> None:
        where = f"slot {bound & 0xFFFF} of page {page_name(bound >> 16)}"
        keys = f"key {self._key(page_id << 16 | slot)} {relation} that of {where}, {self._key(bound)}"
        self.on_entry(page_id, slot, f"{keys}, which bounds the page", KEY_AT)
