"""Maps against pages: each data page is in one map entry and names it, and segment heads count right."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gmdb.format.address import NO_PAGE, PAGES_PER_DEVICE, device_of, offset_of, page_name
from gmdb.format.heap import HEAP_NODE, NODE_AT, reserve_size, usable_size
from gmdb.format.page import PAGE_HEAD, PageType, SegmentType
from gmdb.format.segment import (
    EMPTY_LIST,
    ENTRY_MAP_AT,
    FREE_LISTS,
    FREE_MAP_LIST,
    FURTHER_MAP_AT,
    LIST_HEAD,
    LOADING,
    MAP_ENTRY,
    MAP_HEAD,
    NO_LIST,
    ROOM_STEPS,
    SEGMENT_HEAD,
    SEGMENT_HEAD_AT,
    map_entry_at,
    map_head_at,
)
from gmdb.format.undo import UNDO_ENTRY
from gmdb.kernel.checks.row_checks import BROKEN, SUSPECT
from gmdb.process.late_dataclasses import dataclass, field
from gmdb.verify.survey import MISSING, Survey

# ---- Who each page belongs to: exactly one of a segment, a device, and its list of free pages.


class Owners:
    def __init__(self, pages_in_use: dict[int, int]) -> None:
        self._names = [""]  # by number; 0 is no owner
        self._owners = {device: np.zeros(count, np.int32) for device, count in pages_in_use.items()}

    def claim(self, page_id: int, who: str) -> str:
        """Note that a page in use belongs to ``who``; returns who has claimed it before, or nothing."""
        owners = self._owners[device_of(page_id)]
        before = int(owners[offset_of(page_id)])
        if not before:
            owners[offset_of(page_id)] = self._number(who)
        return self._names[before]

    def claim_all(self, page_ids: np.ndarray, who: str) -> list[tuple[int, str]]:
        """Claim many pages; returns (position, owner) of those claimed before.  Pages not in use are skipped."""
        number, taken = self._number(who), []
        for device, owners in self._owners.items():
            here = np.flatnonzero(page_ids >> 22 == device)
            offsets = page_ids[here] & (PAGES_PER_DEVICE - 1)
            here, offsets = here[offsets < len(owners)], offsets[offsets < len(owners)]
            first = np.zeros(len(offsets), bool)
            first[np.unique(offsets, return_index=True)[1]] = True
            for i in np.flatnonzero((owners[offsets] != 0) | ~first):
                taken.append((int(here[i]), self._names[owners[offsets[i]]] if first[i] else who))
            free = offsets[(owners[offsets] == 0) & first]
            owners[free] = number
        return taken

    def unowned(self, device: int) -> np.ndarray:
        """Offsets of the pages in use that were not claimed."""
        return np.flatnonzero(self._owners[device] == 0)

    def _number(self, who: str) -> int:
        if self._names[-1] != who:
            self._names.append(who)
        return len(self._names) - 1


# ---- Maps against pages.

_LISTS_AT = SEGMENT_HEAD_AT + SEGMENT_HEAD.offset("free_lists[0].first.map_page")
_HEAD_FIELDS = (
    "obj_id", "type", "create_no", "space_id", "page_count", "first_data_page", "last_page", "last_map_page",
    "last_map_page_full", "pct_free", "child_seg",
)  # fmt: skip


@dataclass
class CheckedSegment:
    """A segment and its map, as far as that can be read."""

    entry_page: int
    obj_id: int
    seg_type: int
    head: dict[str, int]
    lists: np.ndarray  # its list heads, by list id
    page_size: int
    whole: bool = True  # whether all of its map could be followed
    map_pages: list[int] = field(default_factory=list)
    map_counts: list[int] = field(default_factory=list)
    entries: np.ndarray = field(default_factory=lambda: np.empty(0, MAP_ENTRY.dtype))
    listed: tuple[PageType, ...] = (PageType.DATA,)  # what its map lists

    @property
    def name(self) -> str:
        return f"segment {page_name(self.entry_page)}"

    def place(self, position: int) -> tuple[int, int]:
        """Map page and number of the entry at ``position`` among all entries."""
        for map_page, count in zip(self.map_pages, self.map_counts, strict=True):
            if position < count:
                return map_page, position
            position -= count
        raise IndexError(position)

    def entry_at(self, position: int) -> tuple[int, int]:
        """Map page and byte offset of the entry at ``position``."""
        map_page, number = self.place(position)
        start = ENTRY_MAP_AT if map_page == self.entry_page else FURTHER_MAP_AT
        return map_page, start + MAP_HEAD.size + number * MAP_ENTRY.size

    def loading_pages(self) -> list[int]:
        """Pages that a bulk load has yet to write."""
        ids: list[int] = self.entries["page_id"][self.entries["list_id"] == LOADING].tolist()
        return ids

    def map_page_of_entries(self) -> np.ndarray:
        """For each entry, the map page that it is on."""
        return np.repeat(np.array(self.map_pages, np.int64), self.map_counts)

    def numbers_of_entries(self) -> np.ndarray:
        """For each entry, its number on that page."""
        return np.concatenate([np.arange(count) for count in self.map_counts] or [np.empty(0, np.int64)])


def check_segments(survey: Survey, owners: Owners) -> list[CheckedSegment]:
    """Check every segment, and claim its pages, map pages before data pages."""
    entries = survey.pages_where(
        lambda facts: (facts["page_type"] == PageType.SEGMENT_ENTRY) & (facts["verdict"] <= SUSPECT)
    )
    for entry in entries:
        owners.claim(entry, f"segment {page_name(entry)}")
    segments = [_read_map(survey, entry, owners) for entry in entries]
    _check_children(survey, segments)
    for segment in segments:
        _check_head(survey, segment)
        _check_entries(survey, segment, owners)
        if segment.whole:
            _check_counts(survey, segment)
    return segments


# ---- the chain of map pages


def _read_map(survey: Survey, entry: int, owners: Owners) -> CheckedSegment:
    page = survey.files.page(entry)
    fact = survey.fact(entry)
    owner = int(fact["obj_id"]), int(fact["seg_type"])
    record = np.frombuffer(page, SEGMENT_HEAD.dtype, 1, SEGMENT_HEAD_AT)[0]
    head = {name: int(record[name]) for name in _HEAD_FIELDS}
    segment = CheckedSegment(
        entry, *owner, head, np.frombuffer(page, LIST_HEAD.dtype, FREE_MAP_LIST + 1, _LISTS_AT), len(page)
    )
    parts, at, prior = [], entry, NO_PAGE
    while True:
        head_at = map_head_at(page)
        head = MAP_HEAD.at(page, head_at)
        if head.prior != prior:
            message = f"the map page before this one is {page_name(prior)}, but prior says {page_name(head.prior)}"
            survey.findings.on_page(at, head_at + MAP_HEAD.offset("prior"), message)
        segment.map_pages.append(at)
        segment.map_counts.append(head.map_count)
        parts.append(np.frombuffer(page, MAP_ENTRY.dtype, head.map_count, map_entry_at(page, 0)))
        if head.next == NO_PAGE:
            break
        wrong = _wrong_map_page(survey, segment, head.next, owners)
        if wrong:
            segment.whole = False
            message = f"the map goes on at page {page_name(head.next)}, {wrong}"
            survey.findings.on_page(at, head_at + MAP_HEAD.offset("next"), message)
            break
        at, prior = head.next, at
        page = survey.files.page(at)
    segment.entries = np.concatenate(parts)
    return segment


def _wrong_map_page(survey: Survey, segment: CheckedSegment, page_id: int, owners: Owners) -> str:
    """Why a page cannot be the segment's next map page; empty if it can, and then it is claimed."""
    fact = survey.fact(page_id)
    if fact["verdict"] == MISSING:
        return "which is not in use"
    if fact["verdict"] > SUSPECT:
        return "which is damaged"
    if fact["page_type"] != PageType.MAP:
        return "which is not a map page"
    if fact["obj_id"] != segment.obj_id:
        return f"which is of object {fact['obj_id']} instead of {segment.obj_id}"
    other = owners.claim(page_id, segment.name)
    return f"which belongs to {other} already" if other else ""


# ---- the head


def _check_head(survey: Survey, segment: CheckedSegment) -> None:
    entry, head, fact = segment.entry_page, segment.head, survey.fact(segment.entry_page)
    space = survey.files.devices[device_of(entry)].space_id
    wanted = {"obj_id": segment.obj_id, "type": segment.seg_type, "create_no": fact["create_no"], "space_id": space}
    for name, value in wanted.items():
        if head[name] != value:
            message = f"the segment head's {name} is {head[name]}, but its page is of {value}"
            survey.findings.on_page(entry, SEGMENT_HEAD_AT + SEGMENT_HEAD.offset(name), message)
    for map_page in segment.map_pages[1:]:
        stored = int(survey.fact(map_page)["seg_type"])
        if stored != segment.seg_type:
            message = f"seg_type {stored} in a map page of {segment.name}, which has {segment.seg_type}"
            survey.findings.on_page(map_page, PAGE_HEAD.offset("seg_type"), message)


def _check_counts(survey: Survey, segment: CheckedSegment) -> None:
    ids = segment.entries["page_id"]
    listed = ids[ids != NO_PAGE]
    capacity = MAP_HEAD.at(
        survey.files.page(segment.map_pages[-1]), ENTRY_MAP_AT if len(segment.map_pages) == 1 else FURTHER_MAP_AT
    ).map_capacity
    right = {
        "page_count": len(listed),
        "first_data_page": int(listed[0]) if len(listed) else NO_PAGE,
        "last_map_page": segment.map_pages[-1],
        "last_map_page_full": int(segment.map_counts[-1] == capacity),
    }
    for name, value in right.items():
        if segment.head[name] != value:
            _head_finding(survey, segment, name, value)
    last = segment.head["last_page"]
    if last != NO_PAGE and last not in listed:
        at = SEGMENT_HEAD_AT + SEGMENT_HEAD.offset("last_page")
        survey.findings.on_page(segment.entry_page, at, f"last_page {page_name(last)} is not a page of the segment")


def _head_finding(survey: Survey, segment: CheckedSegment, name: str, value: int) -> None:
    stored = segment.head[name]
    message = f"{name} {stored}, but the map says {value}"
    if name in ("first_data_page", "last_map_page"):
        message = f"{name} {page_name(stored)}, but the map says {page_name(value)}"
    survey.findings.on_page(segment.entry_page, SEGMENT_HEAD_AT + SEGMENT_HEAD.offset(name), message)


def _check_children(survey: Survey, segments: list[CheckedSegment]) -> None:
    """The undo segment alone has a child, whose pages are the table of committed transactions."""
    by_entry = {segment.entry_page: segment for segment in segments}
    for segment in segments:
        child = segment.head["child_seg"]
        if segment.entry_page == UNDO_ENTRY and child in by_entry and by_entry[child].seg_type == segment.seg_type:
            by_entry[child].listed = (PageType.TRANSACTIONS,)
        elif child != NO_PAGE and (survey.can_follow(child) or segment.entry_page != UNDO_ENTRY):
            at = SEGMENT_HEAD_AT + SEGMENT_HEAD.offset("child_seg")
            message = f"child_seg {page_name(child)} leads to no segment that belongs to this one"
            survey.findings.on_page(segment.entry_page, at, message)
    if UNDO_ENTRY not in by_entry:  # then its child is not known
        for segment in segments:
            segment.listed = (PageType.DATA, PageType.TRANSACTIONS)


# ---- the entries


def _check_entries(survey: Survey, segment: CheckedSegment, owners: Owners) -> None:
    """Each entry leads to a data page that belongs to this segment alone and names the entry."""
    ids = segment.entries["page_id"].astype(np.int64)
    used = np.flatnonzero(ids != NO_PAGE)
    facts = survey.gather(ids[used])
    twice = owners.claim_all(ids[used], segment.name)
    for position, page_id, other in ((used[i], int(ids[used[i]]), who) for i, who in twice):
        _entry_finding(survey, segment, position, f"lists page {page_name(page_id)}, which belongs to {other} already")
    for position, page_id, message in _wrong_targets(survey, segment, used, ids[used], facts):
        _entry_finding(survey, segment, position, f"lists page {page_name(page_id)}, {message}")
    known = np.isin(np.arange(len(used)), [i for i, _ in twice], invert=True)
    known &= (facts["verdict"] <= SUSPECT) & np.isin(facts["page_type"], segment.listed)
    _check_naming_back(survey, segment, used[known], ids[used[known]], facts.take(np.flatnonzero(known)))
    if survey.files.is_settled:
        for position in np.flatnonzero(segment.entries["list_id"] == LOADING).tolist():
            _entry_finding(survey, segment, position, "is marked as being loaded, but the database was closed")


def _entry_finding(survey: Survey, segment: CheckedSegment, position: int, message: str) -> None:
    map_page, offset = segment.entry_at(int(position))
    survey.findings.on_page(map_page, offset, f"entry {segment.place(int(position))[1]} {message}")


def _wrong_targets(
    survey: Survey, segment: CheckedSegment, positions: np.ndarray, ids: np.ndarray, facts: np.ndarray
) -> Iterator[tuple[int, int, str]]:
    """(position, page, why) for entries that lead to pages that cannot be data pages of the segment."""
    spaces = {number: device.space_id for number, device in survey.files.devices.items()}
    doubtful = {number for number in spaces if survey.is_doubtful(number)}
    own = spaces.get(device_of(segment.entry_page))
    for i in np.flatnonzero(facts["verdict"] == MISSING):
        if device_of(int(ids[i])) not in doubtful:
            yield positions[i], int(ids[i]), "which is not in use"
    sound = facts["verdict"] <= SUSPECT
    for i in np.flatnonzero(sound & ~np.isin(facts["page_type"], segment.listed)):
        yield positions[i], int(ids[i]), f"which is not a data page: its page_type is {facts['page_type'][i]}"
    elsewhere = [number for number, space in spaces.items() if space != own and number not in doubtful]
    for i in np.flatnonzero(sound & np.isin(ids >> 22, elsewhere)):
        yield positions[i], int(ids[i]), f"which lies in another tablespace than {own}"


def _check_naming_back(
    survey: Survey, segment: CheckedSegment, positions: np.ndarray, ids: np.ndarray, facts: np.ndarray
) -> None:
    maps, numbers = segment.map_page_of_entries()[positions], segment.numbers_of_entries()[positions]
    for i in np.flatnonzero((facts["map_page_id"] != maps) | (facts["map_offset"] != numbers)):
        named = f"entry {facts['map_offset'][i]} of map page {page_name(int(facts['map_page_id'][i]))}"
        message = f"the page names {named}, but entry {numbers[i]} of map page {page_name(int(maps[i]))} lists it"
        survey.findings.on_page(ids[i], PAGE_HEAD.offset("map_page_id"), message)
    for name, value in (("obj_id", segment.obj_id), ("seg_type", segment.seg_type)):
        for i in np.flatnonzero(facts[name] != value):
            message = f"{name} {facts[name][i]} in a page of {segment.name}, which has {value}"
            survey.findings.on_page(ids[i], PAGE_HEAD.offset(name), message)


def doubtful_objects(survey: Survey, segments: list[CheckedSegment]) -> set[int]:
    """Objects whose map could not be read in full, so that a page missing from it proves nothing."""
    objects = {segment.obj_id for segment in segments if not segment.whole}
    for facts in survey.facts.values():
        maps = np.isin(facts["page_type"], (PageType.SEGMENT_ENTRY, PageType.MAP))
        objects.update(facts["obj_id"][maps & (facts["verdict"] == BROKEN)].tolist())
    for table in survey.tables.values():
        if not survey.can_follow(table.entry_page):
            objects.add(table.obj_id)
    return objects


# ---- Free lists: links in both directions, pages that name their list, and the room that a list promises.

NOWHERE = -1  # a link to no entry
ASTRAY = -2  # a link to an entry that does not exist


def check_free_lists(survey: Survey, segments: list[CheckedSegment]) -> None:
    for segment in segments:
        _check_pages(survey, segment)
        if segment.whole:
            _Lists(survey, segment).check()


def list_name(list_id: int) -> str:
    """The list's field in the segment head."""
    if list_id < FREE_LISTS:
        return f"free_lists[{list_id}]"
    return {EMPTY_LIST: "empty_list", FREE_MAP_LIST: "free_map_list"}[list_id]


# ---- the pages


def _check_pages(survey: Survey, segment: CheckedSegment) -> None:
    ids, lists = segment.entries["page_id"].astype(np.int64), segment.entries["list_id"].astype(np.int64)
    listed = np.flatnonzero(ids != NO_PAGE)
    facts, ids, lists = survey.gather(ids[listed]), ids[listed], lists[listed]
    known = (facts["verdict"] <= SUSPECT) & (facts["page_type"] == PageType.DATA)
    flags = np.where((lists == NO_LIST) | (lists == LOADING), 0, lists + 1)
    for i in np.flatnonzero(known & (facts["fl_flag"] != flags)):
        message = f"fl_flag {facts['fl_flag'][i]}, but its map entry says list {lists[i]}, which is fl_flag {flags[i]}"
        survey.findings.on_page(ids[i], PAGE_HEAD.offset("fl_flag"), message)
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
        needed = promised[i] // ROOM_STEPS
        message = f"inserts may use {room[i]} bytes of this page, but list {lists[i]} promises {needed}"
        survey.findings.on_page(ids[i], PAGE_HEAD.offset("free_begin"), message)


# ---- the links


class _Lists:
    """The lists of one segment.  Entries are identified by their position among all of the segment's entries."""

    def __init__(self, survey: Survey, segment: CheckedSegment) -> None:
        self._survey, self._segment = survey, segment
        self._lists = segment.entries["list_id"].astype(np.int64)
        self._listed = (self._lists != NO_LIST) & (self._lists != LOADING)
        pages, counts = np.array(segment.map_pages, np.int64), np.array(segment.map_counts, np.int64)
        order = np.argsort(pages)
        self._pages, self._counts = pages[order], counts[order]
        self._bases = (np.cumsum(counts) - counts)[order]
        self._prior, self._next = self._positions("prior"), self._positions("next")

    def _positions(self, name: str) -> np.ndarray:
        """The positions that the entries' links lead to."""
        links = self._segment.entries[name]
        return self._resolve(links["map_page"].astype(np.int64), links["offset"].astype(np.int64))

    def _resolve(self, map_pages: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        at = np.minimum(np.searchsorted(self._pages, map_pages), len(self._pages) - 1)
        there = (self._pages[at] == map_pages) & (numbers < self._counts[at])
        positions = np.where(there, self._bases[at] + numbers, ASTRAY)
        return np.where(map_pages == NO_PAGE, NOWHERE, positions)

    def check(self) -> None:
        for position in np.flatnonzero(~self._listed & ((self._prior != NOWHERE) | (self._next != NOWHERE))).tolist():
            self._finding(position, "prior", "is on no list, but is linked into one")
        sound = True
        for name, links, back in (("prior", self._prior, self._next), ("next", self._next, self._prior)):
            for position, message in self._wrong_links(name, links, back):
                sound = False
                self._finding(position, name, message)
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
        """Each list's first and last entry are its only ones without a neighbour on that side."""
        right = True
        for side, links in (("first", self._prior), ("last", self._next)):
            heads = self._segment.lists[side]
            named = self._resolve(heads["map_page"].astype(np.int64), heads["offset"].astype(np.int64)).tolist()
            ends: dict[int, list[int]] = {}
            for position in np.flatnonzero(self._listed & (links == NOWHERE)).tolist():
                ends.setdefault(int(self._lists[position]), []).append(position)
            for list_id, position in enumerate(named):
                if ends.get(list_id, []) != ([] if position == NOWHERE else [position]):
                    right = False
                    self._head_finding(f"{list_name(list_id)}.{side}", position, ends.get(list_id, []))
        return right

    def _head_finding(self, field: str, position: int, ends: list[int]) -> None:
        at = SEGMENT_HEAD_AT + SEGMENT_HEAD.offset(f"{field}.map_page")
        named = " and ".join(self._name(position) for position in ends[:3]) or "none"
        message = f"{field} is {self._name(position)}, but by the links of the list's entries it is {named}"
        self._survey.findings.on_page(self._segment.entry_page, at, message)

    def _check_reached(self) -> None:
        """Every entry is reached from a list's head; those linked in a cycle are not."""
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

    def _finding(self, position: int, field: str, message: str) -> None:
        map_page, offset = self._segment.entry_at(int(position))
        number = self._segment.place(int(position))[1]
        at = offset + MAP_ENTRY.offset(f"{field}.map_page")
        self._survey.findings.on_page(map_page, at, f"entry {number} {message}")
