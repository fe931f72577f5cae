"""Segments: what each one is, how many pages it has, and on which free lists they are."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from gmdb.errors import Error
from gmdb.format.address import NO_PAGE, page_name
from gmdb.format.page import SegmentType
from gmdb.format.segment import EMPTY_LIST, FREE_LISTS, FREE_MAP_LIST, LOADING, NO_LIST, SEGMENT_HEAD, SEGMENT_HEAD_AT
from gmdb.inspect.files import DatabaseFiles


@dataclass(frozen=True)
class Segment:
    """A segment as its entry page describes it, and as its map was found to be."""

    entry_page: int
    head: dict[str, Any]
    data_pages: int
    map_pages: int
    lists: Counter[int]
    problems: list[str] = field(default_factory=list)
    pages: list[int] = field(default_factory=list)  # those of the data pages that no bulk load had yet to write

    @property
    def type_name(self) -> str:
        kind = self.head["type"]
        return SegmentType(kind).name.lower() if kind in list(SegmentType) else f"type {kind}"

    def document(self) -> dict[str, Any]:
        """The segment in plain values, for JSON."""
        head = self.head
        return {
            "entry_page": self.entry_page,
            "entry": page_name(self.entry_page),
            "type": head["type"],
            "type_name": self.type_name,
            "obj_id": head["obj_id"],
            "obj_name": head["obj_name"],
            "space_id": head["space_id"],
            "page_count": head["page_count"],
            "data_pages": self.data_pages,
            "map_pages": self.map_pages,
            "pct_free": head["pct_free"],
            "free_lists": [self.lists[n] for n in range(FREE_LISTS)],
            "empty_list": self.lists[EMPTY_LIST],
            "free_map_list": self.lists[FREE_MAP_LIST],
            "no_list": self.lists[NO_LIST],
            "first_data_page": head["first_data_page"],
            "last_page": head["last_page"],
            "problems": self.problems,
        }


def read_segment(files: DatabaseFiles, entry: int) -> Segment:
    """The segment at ``entry``; of a damaged one, as much as its map leads to."""
    head = SEGMENT_HEAD.values(files.page(entry), SEGMENT_HEAD_AT)
    lists: Counter[int] = Counter()
    data_pages = map_pages = 0
    problems: list[str] = []
    pages: list[int] = []
    try:
        for _, entries in files.maps(entry):
            map_pages += 1
            is_used = entries["page_id"] != NO_PAGE
            data_pages += int(is_used.sum())
            pages += entries["page_id"][is_used & (entries["list_id"] != LOADING)].tolist()
            lists.update(entries["list_id"].tolist())
    except Error as error:
        problems.append(str(error))
    if not problems and data_pages != head["page_count"]:
        problems.append(f"the segment head counts {head['page_count']} data pages, its map lists {data_pages}")
    return Segment(entry, head, data_pages, map_pages, lists, problems, pages)


def read_segments(files: DatabaseFiles) -> list[Segment]:
    """Every segment of the database, in order of address."""
    return [read_segment(files, entry) for device in files.devices for entry in files.segment_entries(device)]
