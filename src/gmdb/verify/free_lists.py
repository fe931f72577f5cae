"""Free lists: links that lead both ways, pages that know their list, and the room that a list promises."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gmdb.format.address import NO_PAGE, page_name
from gmdb.format.heap import HEAP_NODE, NODE_AT, reserve_size, usable_size
from gmdb.format.page import PAGE_HEAD, PageType, SegmentType
from gmdb.format.segment import (
    EMPTY_LIST,
    FREE_LISTS,
    FREE_MAP_LIST,
    LOADING,
    MAP_ENTRY,
    NO_LIST,
    ROOM_STEPS,
    SEGMENT_HEAD,
    SEGMENT_HEAD_AT,
)
from gmdb.kernel.verify_rows import SUSPECT
from gmdb.verify.segments import Segment
from gmdb.verify.survey import Survey

NOWHERE = -1  # a link to no entry
ASTRAY = -2  # a link to an entry that does not exist


def check_free_lists(survey: Survey, segments: list[Segment]) -> None:
    for segment in segments:
        _check_pages(survey, segment)
        if segment.whole:
            _Lists(survey, segment).check()


def list_name(list_id: int) -> str:
    """As the segment head calls the list."""
    if list_id < FREE_LISTS:
        return f"free_lists[{list_id}]"
    return {EMPTY_LIST: "empty_list", FREE_MAP_LIST: "free_map_list"}[list_id]


# ---- the pages


def _check_pages(survey: Survey, segment: Segment) -> None:
    ids, lists = segment.entries["page_id"].astype(np.int64), segment.entries["list_id"].astype(np.int64)
    listed = np.flatnonzero(ids != NO_PAGE)
    facts, ids, lists = survey.gather(ids[listed]), ids[listed], lists[listed]
    known = (facts["verdict"] <= SUSPECT) & (facts["page_type"] == PageType.DATA)
    flags = np.where((lists == NO_LIST) | (lists == LOADING), 0, lists + 1)
    for i in np.flatnonzero(known & (facts["fl_flag"] != flags)):
        said = f"fl_flag {facts['fl_flag'][i]}, but its map entry says list {lists[i]}, which is fl_flag {flags[i]}"
        survey.findings.on_page(ids[i], PAGE_HEAD.offset("fl_flag"), said)
    rows = known & (facts["seg_type"] == segment.seg_type)
    if segment.seg_type not in (SegmentType.HEAP, SegmentType.SYSTEM):
        return
    for i in np.flatnonzero(rows & (lists == EMPTY_LIST) & (facts["slot_count"] > 0)):
        at = NODE_AT + HEAP_NODE.offset("slot_count")
        survey.findings.on_page(ids[i], at, f"{facts['slot_count'][i]} slots on a page that is on the empty list")
    free = facts["free_end"].astype(np.int64) - facts["free_begin"]
    room = free - reserve_size(segment.page_size, segment.head["pct_free"])
    promised = (lists + 1) * usable_size(segment.page_size)
    for i in np.flatnonzero(rows & (lists < EMPTY_LIST) & (room * ROOM_STEPS < promised)):
        said = f"inserts may use {room[i]} bytes of this page, but list {lists[i]} promises {promised[i] // ROOM_STEPS}"
        survey.findings.on_page(ids[i], PAGE_HEAD.offset("free_begin"), said)


# ---- the links


class _Lists:
    """The lists of one segment.  Entries go by their position among all of the segment's entries."""

    def __init__(self, survey: Survey, segment: Segment) -> None:
        self._survey, self._segment = survey, segment
        self._lists = segment.entries["list_id"].astype(np.int64)
        self._listed = (self._lists != NO_LIST) & (self._lists != LOADING)
        pages, counts = np.array(segment.map_pages, np.int64), np.array(segment.map_counts, np.int64)
        order = np.argsort(pages)
        self._pages, self._counts = pages[order], counts[order]
        self._bases = (np.cumsum(counts) - counts)[order]
        self._prior, self._next = self._positions("prior"), self._positions("next")

    def _positions(self, name: str) -> np.ndarray:
        """Where the entries' links lead to."""
        links = self._segment.entries[name]
        return self._resolve(links["map_page"].astype(np.int64), links["offset"].astype(np.int64))

    def _resolve(self, map_pages: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        at = np.minimum(np.searchsorted(self._pages, map_pages), len(self._pages) - 1)
        there = (self._pages[at] == map_pages) & (numbers < self._counts[at])
        found = np.where(there, self._bases[at] + numbers, ASTRAY)
        return np.where(map_pages == NO_PAGE, NOWHERE, found)

    def check(self) -> None:
        for position in np.flatnonzero(~self._listed & ((self._prior != NOWHERE) | (self._next != NOWHERE))).tolist():
            self._finding(position, "prior", "is on no list, but is linked into one")
        sound = True
        for name, links, back in (("prior", self._prior, self._next), ("next", self._next, self._prior)):
            for position, said in self._wrong_links(name, links, back):
                sound = False
                self._finding(position, name, said)
        if self._check_heads() and sound:
            self._check_reached()

    def _wrong_links(self, name: str, links: np.ndarray, back: np.ndarray) -> Iterator[tuple[int, str]]:
        """Entries whose link does not lead to an entry of the same list that leads back."""
        for position in np.flatnonzero(self._listed & (links == ASTRAY)).tolist():
            yield position, f"is on list {self._lists[position]}; its {name} leads to no entry of the segment"
        linked = np.flatnonzero(self._listed & (links >= 0))
        targets = links[linked]
        astray = (self._lists[targets] != self._lists[linked]) | (back[targets] != linked)
        for position, target in zip(linked[astray].tolist(), targets[astray].tolist(), strict=True):
            where = self._name(target)
            yield position, f"is on list {self._lists[position]}; its {name}, {where}, does not lead back to it"
        pages = self._segment.entries[name]["page_id"][linked]
        for position in linked[~astray & (pages != self._segment.entries["page_id"][targets])].tolist():
            page = page_name(int(self._segment.entries[name]["page_id"][position]))
            yield position, f"is on list {self._lists[position]}; its {name} names page {page}, which is not there"

    def _check_heads(self) -> bool:
        """Each list's first and last entry are the only ones without a neighbour on that side."""
        right = True
        for side, links in (("first", self._prior), ("last", self._next)):
            heads = self._segment.lists[side]
            named = self._resolve(heads["map_page"].astype(np.int64), heads["offset"].astype(np.int64)).tolist()
            ends: dict[int, list[int]] = {}
            for position in np.flatnonzero(self._listed & (links == NOWHERE)).tolist():
                ends.setdefault(int(self._lists[position]), []).append(position)
            for list_id, found in enumerate(named):
                if ends.get(list_id, []) != ([] if found == NOWHERE else [found]):
                    right = False
                    self._head_finding(f"{list_name(list_id)}.{side}", found, ends.get(list_id, []))
        return right

    def _head_finding(self, field: str, found: int, ends: list[int]) -> None:
        at = SEGMENT_HEAD_AT + SEGMENT_HEAD.offset(f"{field}.map_page")
        named = " and ".join(self._name(position) for position in ends[:3]) or "none"
        said = f"{field} is {self._name(found)}, but by the links of the list's entries it is {named}"
        self._survey.findings.on_page(self._segment.entry_page, at, said)

    def _check_reached(self) -> None:
        """Entries that are linked in a circle are on no list that begins at a head."""
        reached = bytearray(len(self._lists))
        following, listed = self._next.tolist(), self._listed
        for start in np.flatnonzero((self._prior == NOWHERE) & listed).tolist():
            at = start
            while at >= 0 and not reached[at]:
                reached[at] = 1
                at = following[at]
        for position in np.flatnonzero((np.frombuffer(reached, np.uint8) == 0) & listed).tolist():
            self._finding(position, "next", f"is on list {self._lists[position]}, but the list does not lead to it")

    def _name(self, position: int) -> str:
        if position < 0:
            return "none" if position == NOWHERE else "an entry that does not exist"
        map_page, number = self._segment.place(int(position))
        return f"entry {number} of map page {page_name(map_page)}"

    def _finding(self, position: int, field: str, said: str) -> None:
        map_page, offset = self._segment.entry_at(int(position))
        number = self._segment.place(int(position))[1]
        at = offset + MAP_ENTRY.offset(f"{field}.map_page")
        self._survey.findings.on_page(map_page, at, f"entry {number} {said}")
