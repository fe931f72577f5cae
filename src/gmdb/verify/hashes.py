"""Hash indexes: what ``kernel/verify_hash.py`` finds wrong with one, in words; and keys that are there twice."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gmdb.format.address import NO_PAGE, page_name
from gmdb.format.btree import ENTRIES_AT, NODE_AT
from gmdb.format.hash import HASH_NODE, slot_pages
from gmdb.format.page import SegmentType
from gmdb.format.row import BITS_AT, ROW_HEAD
from gmdb.kernel import verify_hash as kernel
from gmdb.kernel.hash_keys import PLACE_BITS
from gmdb.kernel.hash_page import ALL_BITS
from gmdb.kernel.verify_index import NO_WORD, SPECIAL
from gmdb.verify.index_pieces import EntriesFound, HashWalk
from gmdb.verify.index_walk import PROBLEMS_MAX, IndexWalk
from gmdb.verify.keyed import IndexEntries

_ADDRESS_SIZE = 8


class Hash(IndexWalk):
    """One hash index, and words for what is wrong with it."""

    segment_type, check_type, item_type = SegmentType.HASH, kernel.HASH_CHECK, kernel.QUEUED

    def check(self) -> IndexEntries:
        self._check["keys"] = self._keys.ctypes.data
        words = {
            kernel.CHILD: self._child,
            kernel.ROOT: self._root,
            kernel.TWICE: self._twice,
            kernel.DEPTH: self._depth,
            kernel.DEEP: self._deep,
            kernel.SHALLOW: self._shallow,
            kernel.BLOCK: self._block,
            kernel.LONELY: self._lonely,
            kernel.EMPTY: self._empty,
            kernel.MISFIT: lambda page, slot, _: self.tell_misfit(page, slot, " and the address", BITS_AT),
            kernel.ADDRESS: self._address,
            kernel.STRAY: self._stray,
            kernel.ORDER: self._order,
            kernel.SAME: self.tell_same,
        }
        entries = self.run((kernel.check_hash,), words)
        self._tell_duplicates(entries.spots)
        return entries

    def pieces(self, _: int) -> list[HashWalk]:
        """All of it: its buckets are in no order that parts of it could go by to find a key that is there twice."""
        definition = self._index.definition
        return [HashWalk(self._index.head.tobytes(), definition.obj_id, self.own_pages, self.entry_room)]

    def is_reached(self, found: Sequence[EntriesFound]) -> bool:
        """Whether the walk has come to all its pages."""
        return bool(np.isin(self.listed(), np.concatenate([one.reached for one in found])).all())

    def _tell_duplicates(self, spots: np.ndarray) -> None:
        """Entries of a unique index with one key; equal words only say where to look."""
        if not self._index.definition.unique:
            return
        order = np.argsort(self._keys[: len(spots)], kind="stable")
        keys = self._keys[order]
        found = np.flatnonzero((keys[1:] == keys[:-1]) & (keys[1:] != NO_WORD))
        told = 0
        for n in found.tolist():
            other, spot = (int(spots[order[i]]) & ~SPECIAL for i in (n, n + 1))
            if kernel.same_key(self._mapped.address, self._index.head.ctypes.data, spot, other):
                told += 1
                if told <= PROBLEMS_MAX:
                    self.tell_duplicate(spot >> 16, spot & 0xFFFF, other)
        if told > PROBLEMS_MAX:
            self.tell_at_entry_page(f"{told - PROBLEMS_MAX} more keys are there twice")

    # ---- directories

    def _depth_of(self, page_id: int) -> int:
        return int(HASH_NODE.at(self._survey.files.page(page_id), NODE_AT).depth)

    def _on_slot(self, directory: int, slot: int, said: str) -> None:
        text = f"{self._index.name}: slot {slot} of the directory {said}"
        self._survey.findings.on_page(directory, ENTRIES_AT + 4 * slot, text)

    def _child(self, directory: int, slot: int, child: int) -> None:
        why = self.why_lost(child)
        if why and directory == NO_PAGE:
            self.tell_at_entry_page(f"the root leads to page {page_name(child)}, {why}")
        elif why:
            self._on_slot(directory, slot, f"leads to page {page_name(child)}, {why}")

    def _root(self, page_id: int, _: int, __: int) -> None:
        self.tell_at_entry_page(f"the root leads to page {page_name(page_id)}, which is no directory")

    def _twice(self, directory: int, slot: int, child: int) -> None:
        said = f"leads to page {page_name(child)}, to which other slots lead already"
        self._on_slot(directory, slot, said)

    def _depth(self, page_id: int, _: int, most: int) -> None:
        said = f"depth {self._depth_of(page_id)}, but a directory of its level chooses by {most} bits at most"
        self.on_node(page_id, "level", said)

    def _deep(self, page_id: int, _: int, most: int) -> None:
        said = f"depth {self._depth_of(page_id)}, but the bucket's directory chooses by {most} bits only"
        self.on_node(page_id, "level", said)

    def _slots_with(self, directory: int, slot: int, child: int) -> tuple[str, int]:
        """Words for the run of slots that lead to a page, and how many they are."""
        slots, last = slot_pages(self._survey.files.page(directory)), slot
        while last + 1 < len(slots) and slots[last + 1] == child:
            last += 1
        return (f"slot {slot}" if last == slot else f"slots {slot} to {last}"), last - slot + 1

    def _shallow(self, directory: int, slot: int, child: int) -> None:
        where, _ = self._slots_with(directory, slot, child)
        said = f"leads to a directory, page {page_name(child)}, from {where} at depth {self._depth_of(directory)}"
        self._on_slot(directory, slot, f"{said}; that takes all bits of the level, one slot, and a level beneath it")

    def _block(self, directory: int, slot: int, child: int) -> None:
        where, count = self._slots_with(directory, slot, child)
        right = 1 << self._depth_of(directory) - self._depth_of(child)
        said = f"leads to page {page_name(child)}, which is in {where}, {count} in all"
        wanted = f"{right}, beginning at a multiple of that"
        self._on_slot(directory, slot, f"{said}, but a bucket of depth {self._depth_of(child)} is in {wanted}")

    def _lonely(self, page_id: int, _: int, children: int) -> None:
        what = "one bucket only" if children else "no page"
        self.on_node(page_id, "slot_count", f"the directory leads to {what}, and should have given way")

    # ---- buckets

    def _empty(self, page_id: int, _: int, __: int) -> None:
        self.on_node(page_id, "slot_count", "a bucket without entries")

    def _address_of(self, page_id: int, slot: int) -> tuple[int, int]:
        """The address of an entry, and where it lies in it."""
        page, offset = self._survey.files.page(page_id), self.entry_offset(page_id, slot)
        at = int(ROW_HEAD.at(page, offset).size) - _ADDRESS_SIZE
        return int.from_bytes(page[offset + at : offset + at + _ADDRESS_SIZE], "little"), at

    def _on_address(self, page_id: int, slot: int, said: str) -> None:
        address, at = self._address_of(page_id, slot)
        self.on_entry(page_id, slot, f"address {address:#018x} {said}", at)

    def _address(self, page_id: int, slot: int, _: int) -> None:
        self._on_address(page_id, slot, f"is not that of key {self.key_and_row(page_id << 16 | slot)}")

    def _stray(self, page_id: int, slot: int, number: int) -> None:
        item = self._queue[number]
        bits = int(item["bits"])
        prefix = ((int(item["address"]) & (1 << 64) - 1) << PLACE_BITS | int(item["place"])) >> ALL_BITS - bits
        said = f"does not belong into the bucket, whose entries begin with bits {prefix:0{bits}b}"
        self._on_address(page_id, slot, said)

    def _order(self, page_id: int, slot: int, before: int) -> None:
        address, _ = self._address_of(page_id, before & 0xFFFF)
        self._on_address(page_id, slot, f"comes after {address:#018x}, or the row ids do: entries are not in order")
