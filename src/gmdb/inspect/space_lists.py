"""Listings of where things are: tablespaces, devices, segments, maps, free lists."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from gmdb.errors import Error
from gmdb.format.address import DEVICES as DEVICES_MAX
from gmdb.format.address import FIRST_USER_DEVICE, NO_PAGE, SYSTEM_DEVICE, UNDO_DEVICE, page_name
from gmdb.format.page import PAGE_HEAD, SegmentType
from gmdb.format.segment import EMPTY_LIST, FREE_LISTS, FREE_MAP_LIST, LOADING, NO_LIST, SEGMENT_HEAD, SEGMENT_HEAD_AT
from gmdb.inspect.listing import BIGINT, INT, TEXT, ListColumn, Listing
from gmdb.inspect.objects import find_segment, segment_objects
from gmdb.inspect.page_lists import ALL_PAGES, PageSelection
from gmdb.process.late_dataclasses import dataclass, field
from gmdb.storage.directory import device_path, dropped_numbers
from gmdb.tables.files.database_files import DatabaseFiles

# ---- Segments: what each one is, how many pages it has, and on which free lists they are.


@dataclass(frozen=True)
class SegmentSummary:
    """A segment as its entry page describes it, and what its map lists."""

    entry_page: int
    head: dict[str, Any]
    data_pages: int
    map_pages: int
    lists: Counter[int]
    problems: list[str] = field(default_factory=list)
    pages: list[int] = field(default_factory=list)  # data pages, without those that a bulk load has not written yet

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


def read_segment(files: DatabaseFiles, entry: int) -> SegmentSummary:
    """The segment at ``entry``; if it is damaged, as far as its map can be followed."""
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
    return SegmentSummary(entry, head, data_pages, map_pages, lists, problems, pages)


def read_segments(files: DatabaseFiles) -> list[SegmentSummary]:
    """Every segment of the database, in order of address."""
    return [read_segment(files, entry) for device in files.devices for entry in files.segment_entries(device)]


# ---- Listings of where things are.

SPACES = (
    ListColumn("space", INT, "the tablespace's number, which is that of its first device"),
    ListColumn("name", TEXT, "its name"),
    ListColumn("page_size", INT, "bytes of a page"),
    ListColumn("devices", TEXT, "the numbers of its devices"),
    ListColumn("pages", BIGINT, "pages that the devices have room for"),
    ListColumn("hwm", BIGINT, "pages that were ever used"),
    ListColumn("free", BIGINT, "used ones that are free again"),
    ListColumn("segments", INT, "segments that start in it"),
    ListColumn("problem", TEXT, "what is wrong with it; NULL: nothing", True),
)
DEVICES = (
    ListColumn("device", INT, "the device's number"),
    ListColumn("file", TEXT, "its file"),
    ListColumn("space", INT, "its tablespace"),
    ListColumn("page_size", INT, "bytes of a page"),
    ListColumn("file_size", BIGINT, "bytes of the file"),
    ListColumn("pages", BIGINT, "pages that it has room for"),
    ListColumn("hwm", BIGINT, "pages that were ever used"),
    ListColumn("free", BIGINT, "used ones that are free again"),
    ListColumn("problem", TEXT, "what is wrong with it; NULL: nothing", True),
)
SEGMENTS = (
    ListColumn("entry", TEXT, "the segment's first page, as people write it"),
    ListColumn("entry_page", BIGINT, "its number", True),
    ListColumn("type", TEXT, "the kind of segment: `heap`, `btree`, `undo`…"),
    ListColumn("object", TEXT, "what it holds, by the name that it has in the catalog"),
    ListColumn("head_name", TEXT, "the name that it had when it was made, in its own head", True),
    ListColumn("kind", TEXT, "`table`, `lobs`, `btree index`, `hash index`; of others, the type", True),
    ListColumn("table", TEXT, "the table that it is, or belongs to", True),
    ListColumn("obj_id", BIGINT, "the object's number"),
    ListColumn("space", INT, "the tablespace"),
    ListColumn("page_count", BIGINT, "data pages, as the segment head counts them", True),
    ListColumn("data_pages", BIGINT, "data pages that its map lists"),
    ListColumn("map_pages", INT, "map pages, the entry page included"),
    ListColumn("pct_free", INT, "per cent of a page that inserts leave for updates"),
    ListColumn("first", TEXT, "its first data page"),
    ListColumn("last", TEXT, "the data page that was added last"),
    ListColumn("free_lists", TEXT, "pages on each free list, as LIST:PAGES"),
    ListColumn("problem", TEXT, "what is wrong with it; NULL: nothing", True),
)
MAPS = (
    ListColumn("map_page", TEXT, "the map page"),
    ListColumn("entry", INT, "the entry's number on it"),
    ListColumn("page", TEXT, "the data page that it lists; NULL: none"),
    ListColumn("page_id", BIGINT, "that page's number", True),
    ListColumn("list", TEXT, "the free list that the page is on: 0 to 13, `empty`, `unused`, `loading`; NULL: none"),
    ListColumn("prior", TEXT, "the page before it in that list"),
    ListColumn("next", TEXT, "the page behind it in that list"),
    ListColumn("says", TEXT, "the map page and entry by which the data page's own head knows it", True),
    ListColumn("problem", TEXT, "where map and page disagree; NULL: nowhere"),
)
FREE = (
    ListColumn("list", TEXT, "the list: 0 to 13 by the room that its pages have, `empty`, `unused`"),
    ListColumn("place", INT, "which of the list it is, counted from 0"),
    ListColumn("page", TEXT, "the page; NULL: an entry that lists none"),
    ListColumn("page_id", BIGINT, "its number", True),
    ListColumn("map_page", TEXT, "the map page that lists it"),
    ListColumn("entry", INT, "the entry's number on it"),
    ListColumn("free_bytes", INT, "bytes between the page's entries and its slots"),
)
_LIST_NAMES = {EMPTY_LIST: "empty", FREE_MAP_LIST: "unused", LOADING: "loading", NO_LIST: None}


def spaces(files: DatabaseFiles) -> Listing:
    """Tablespaces, and how full they are."""
    listing = Listing("spaces", SPACES)
    for space in files.spaces():
        problems = space.problems()
        listing.problems += [(f"space {space.space_id}", problem) for problem in problems]
        listing.add(
            space=space.space_id,
            name=space.name,
            page_size=space.page_size,
            devices=", ".join(str(device.number) for device in space.devices),
            pages=space.page_count,
            hwm=space.hwm,
            free=space.free_pages,
            segments=space.seg_num,
            problem="; ".join(problems) or None,
        )
    return listing


def devices(files: DatabaseFiles) -> Listing:
    """Devices: the files that tablespaces consist of."""
    listing = Listing("devices", DEVICES)
    for device in files.devices.values():
        problems = device.problems()
        listing.problems += [(f"device {device.number}", problem) for problem in problems]
        listing.add(
            device=device.number,
            file=device.path.name,
            space=device.space_id,
            page_size=device.page_size,
            file_size=device.file_size,
            pages=device.page_count,
            hwm=device.hwm,
            free=device.free_page_count,
            problem="; ".join(problems) or None,
        )
    for number in _lost_devices(files):
        problem = f"{device_path(files.path, number).name} is missing"
        listing.wrong(f"device {number}", problem)
        listing.add(device=number, file=device_path(files.path, number).name, problem=problem)
    return listing


def _lost_devices(files: DatabaseFiles) -> list[int]:
    """Devices that the control file counts, were not dropped, and have no file."""
    numbers = range(FIRST_USER_DEVICE, min(files.control["next_device"], DEVICES_MAX))
    there = {*files.devices, *dropped_numbers(files.path)}
    return [number for number in (SYSTEM_DEVICE, UNDO_DEVICE, *numbers) if number not in there]


def segments(files: DatabaseFiles) -> Listing:
    """Segments: the pages of each table, index, or set of large objects."""
    listing = Listing("segments", SEGMENTS)
    for stored in segment_objects(files):
        segment = read_segment(files, stored.entry_page)
        head = segment.head
        listing.problems += [(page_name(stored.entry_page), problem) for problem in segment.problems]
        counts = ((list_name(n), pages) for n, pages in sorted(segment.lists.items()) if n != NO_LIST)
        listing.add(
            entry=page_name(stored.entry_page),
            entry_page=stored.entry_page,
            type=segment.type_name,
            object=stored.name,
            head_name=head["obj_name"],
            kind=stored.kind,
            table=stored.table.name if stored.table is not None else None,
            obj_id=head["obj_id"],
            space=_signed(head["space_id"]),
            page_count=head["page_count"],
            data_pages=segment.data_pages,
            map_pages=segment.map_pages,
            pct_free=head["pct_free"],
            first=_named(head["first_data_page"]),
            last=_named(head["last_page"]),
            free_lists=" ".join(f"{name}:{pages}" for name, pages in counts) or None,
            problem="; ".join(segment.problems) or None,
        )
    return listing


def maps(files: DatabaseFiles, segment: str, pages: PageSelection = ALL_PAGES) -> Listing:
    """The entries of a segment's map, each compared with the head of its page."""
    listing = Listing("maps", MAPS)
    stored = find_segment(files, segment)
    try:
        for map_page, entries in files.maps(stored.entry_page):
            for number, entry in enumerate(entries):
                page_id = int(entry["page_id"])
                if page_id != NO_PAGE and not pages.first <= page_id <= pages.last:
                    continue
                says, problem = _says(files, page_id, map_page, number, int(entry["list_id"]))
                if problem:
                    listing.wrong(f"map page {page_name(map_page)}, entry {number}", problem)
                listing.add(
                    map_page=page_name(map_page),
                    entry=number,
                    page=_named(page_id),
                    page_id=None if page_id == NO_PAGE else page_id,
                    list=list_name(int(entry["list_id"])),
                    prior=_named(int(entry["prior"]["page_id"])),
                    next=_named(int(entry["next"]["page_id"])),
                    says=says,
                    problem=problem,
                )
    except Error as error:
        listing.wrong(segment, error)
    return listing


def _says(files: DatabaseFiles, page_id: int, map_page: int, number: int, list_id: int) -> tuple[Any, Any]:
    """The map entry that a page's head names, and what is wrong with it."""
    if page_id == NO_PAGE or list_id == LOADING:
        return None, None
    try:
        raw = files.head(page_id)
    except Error as error:
        return None, str(error)
    if len(raw) < PAGE_HEAD.size:
        return None, f"the file ends before page {page_name(page_id)}"
    head = PAGE_HEAD.at(raw)
    says = f"{page_name(head.map_page_id)}[{head.map_offset}]"
    agrees = (head.map_page_id, head.map_offset, head.page_id) == (map_page, number, page_id)
    return says, None if agrees else f"page {page_name(page_id)} says that its entry is {says}"


def freelists(files: DatabaseFiles, segment: str, pages: PageSelection = ALL_PAGES) -> Listing:
    """The free lists of a segment, followed link by link as inserts do."""
    listing = Listing("freelists", FREE)
    entry_page = find_segment(files, segment).entry_page
    head = SEGMENT_HEAD.values(files.page(entry_page), SEGMENT_HEAD_AT)
    lists = {}
    try:
        lists = dict(files.maps(entry_page))
    except Error as error:
        listing.wrong(segment, error)
        return listing
    for number in range(FREE_MAP_LIST + 1):
        for place, (map_page, entry) in enumerate(_chain(listing, lists, head, number)):
            page_id = int(lists[map_page][entry]["page_id"])
            if page_id != NO_PAGE and not pages.first <= page_id <= pages.last:
                continue
            listing.add(
                list=list_name(number),
                place=place,
                page=_named(page_id),
                page_id=None if page_id == NO_PAGE else page_id,
                map_page=page_name(map_page),
                entry=entry,
                free_bytes=_free_bytes(files, page_id),
            )
    return listing


def _chain(listing: Listing, maps: dict[int, Any], head: dict[str, Any], number: int) -> Iterator[tuple[int, int]]:
    """The entries of a list, as (map page, number), from the first on, as far as links lead."""
    name = {EMPTY_LIST: "empty_list", FREE_MAP_LIST: "free_map_list"}.get(number, f"free_lists[{number}]")
    at = head[f"{name}.first.map_page"], head[f"{name}.first.offset"]
    seen: set[tuple[int, int]] = set()
    while at[0] != NO_PAGE:
        where = f"list {list_name(number)}"
        if at[0] not in maps or at[1] >= len(maps[at[0]]):
            listing.wrong(where, f"it leads to entry {at[1]} of page {page_name(at[0])}, which the map does not have")
            return
        entry = maps[at[0]][at[1]]
        if at in seen or entry["list_id"] != number:
            again = "twice" if at in seen else f"though that is on list {list_name(int(entry['list_id']))}"
            listing.wrong(where, f"it leads to entry {at[1]} of map page {page_name(at[0])} {again}")
            return
        seen.add(at)
        yield at
        at = int(entry["next"]["map_page"]), int(entry["next"]["offset"])


def _free_bytes(files: DatabaseFiles, page_id: int) -> int | None:
    try:
        raw = files.head(page_id) if page_id != NO_PAGE else b""
    except Error:
        return None
    if len(raw) < PAGE_HEAD.size:
        return None
    head = PAGE_HEAD.at(raw)
    return int(head.free_end - head.free_begin)


def list_name(number: int) -> str | None:
    return _LIST_NAMES.get(number, str(number))


def _named(page_id: int) -> str | None:
    return None if page_id == NO_PAGE else page_name(page_id)


def _signed(number: int) -> int:
    """An unsigned number of 4 bytes as an INT; a damaged one may be too large, and becomes negative."""
    return number if number < 1 << 31 else number - (1 << 32)
