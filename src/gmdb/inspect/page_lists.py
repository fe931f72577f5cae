"""Listings of pages: heads, how full they are, their rows and problems; their bytes by name; a map of all pages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from gmdb.errors import Error, InterfaceError
from gmdb.format import anatomy, btree, heap, lob, undo
from gmdb.format.address import (
    NO_PAGE,
    OFFSET_BITS,
    PAGES_PER_DEVICE,
    device_of,
    offset_of,
    page_id_of,
    page_name,
    parse_page_id,
)
from gmdb.format.checksum import page_crc
from gmdb.format.layout import Layout
from gmdb.format.page import HEAD_SIZE, PAGE_HEAD, TAIL_SIZE, PageType, SegmentType, stored_crc
from gmdb.format.row import MIN_OCCUPIED, NO_LOCK, ROW_HEAD, SIZE_AT, RowFlag
from gmdb.format.slotted import SLOT_FREED, slot_room
from gmdb.inspect.listing import BIGINT, BOOLEAN, BYTES, DOUBLE, INT, TEXT, ListColumn, Listing, whole_number
from gmdb.inspect.objects import SegmentObject, find_segment, names_of, segment_objects
from gmdb.process.late_dataclasses import dataclass
from gmdb.process.late_imports import numpy as np
from gmdb.tables.files.database_files import HEADS_AT_ONCE, DatabaseFiles
from gmdb.tables.files.page_view import findings_of

# ---- Which pages to list.


class PageSelection(NamedTuple):
    """A range of pages, both ends included; written ``4:7``, or ``4:7..4:20``."""

    first: int = 0
    last: int = NO_PAGE - 1

    @classmethod
    def parse(cls, text: str) -> PageSelection:
        first, dots, last = text.partition("..")
        selection = cls(parse_page_id(first), parse_page_id(last if dots else first))
        if selection.last < selection.first:
            raise InterfaceError(f"{text!r} is not a range of pages: it ends before it begins")
        return selection

    def of(self, page_ids: Iterable[int]) -> Iterator[int]:
        """The pages out of ``page_ids`` that are in the range."""
        return (page_id for page_id in page_ids if self.first <= page_id <= self.last)


ALL_PAGES = PageSelection()


# ---- How full pages are, from the starts of many pages at once.

_NODES: dict[int, tuple[Layout, int]] = {  # by type of segment: the node head of its pages, and where entries begin
    SegmentType.SYSTEM: (heap.HEAP_NODE, heap.ROWS_AT),
    SegmentType.HEAP: (heap.HEAP_NODE, heap.ROWS_AT),
    SegmentType.UNDO: (undo.UNDO_HEAD, undo.RECORDS_AT),
    SegmentType.BTREE: (btree.BTREE_NODE, btree.ENTRIES_AT),
    SegmentType.HASH: (btree.BTREE_NODE, btree.ENTRIES_AT),
    SegmentType.LOB: (lob.LOB_NODE, lob.DATA_AT),
}
START = HEAD_SIZE + max(node.size for node, _ in _NODES.values())  # bytes of a page that show how full it is
NONE = -1  # in place of a number that the page does not have
ROWS = ("live_rows", "dead_rows", "left_rows", "came_rows", "locked_rows")
_ROW_SEGMENTS = (SegmentType.SYSTEM, SegmentType.HEAP)


@dataclass(frozen=True)
class Division:
    """How pages are divided: heads, room, free bytes, slots; NONE where a page does not have such a number."""

    heads: np.ndarray
    room: np.ndarray  # bytes for entries and their slots
    free: np.ndarray
    slots: np.ndarray

    @property
    def has_rows(self) -> np.ndarray:
        """Which of them are pages of rows."""
        return (self.free >= 0) & np.isin(self.heads["seg_type"], _ROW_SEGMENTS)


def divide(starts: np.ndarray, sizes: np.ndarray) -> Division:
    """How pages are divided.  ``starts``: the first START bytes of each; ``sizes``: their sizes."""
    heads = np.ascontiguousarray(starts[:, :HEAD_SIZE]).view(PAGE_HEAD.dtype)[:, 0]
    begins, slots = np.full(len(starts), NONE, np.int64), np.full(len(starts), NONE, np.int64)
    is_data = heads["page_type"] == PageType.DATA
    for seg_type, (node, begin) in _NODES.items():
        chosen = is_data & (heads["seg_type"] == seg_type)
        begins[chosen] = begin
        if "slot_count" in (node.dtype.names or ()):
            at = HEAD_SIZE + node.offset("slot_count")
            slots[chosen] = np.ascontiguousarray(starts[chosen, at : at + 2]).view("<u2")[:, 0]
    free_begin, free_end = heads["free_begin"].astype(np.int64), heads["free_end"].astype(np.int64)
    is_divided = (begins >= 0) & (begins <= free_begin) & (free_begin <= free_end) & (free_end <= sizes - TAIL_SIZE)
    room = np.where(is_divided, sizes - TAIL_SIZE - begins, NONE)
    return Division(heads, room, np.where(is_divided, free_end - free_begin, NONE), slots)


def count_rows(page: bytes) -> tuple[int, ...]:
    """Counts of a page's rows, in the order of ROWS, then the bytes of those that are not deleted."""
    count = min(heap.HEAP_NODE.at(page, heap.NODE_AT).slot_count, slot_room(page, heap.ROWS_AT))
    end = len(page) - TAIL_SIZE
    places = np.frombuffer(page, "<u2", count, end - 2 * count).astype(np.int64)
    in_use = (places & SLOT_FREED == 0) & (places >= heap.ROWS_AT) & (places <= end - ROW_HEAD.size)
    places = places[in_use]
    raw = np.frombuffer(page, np.uint8).astype(np.int64)
    flags = raw[places + 3]
    locks = raw[places] | raw[places + 1] << 8 | raw[places + 2] << 16
    sizes = raw[places + SIZE_AT] | raw[places + SIZE_AT + 1] << 8
    dead, came = flags & RowFlag.DELETE != 0, flags & RowFlag.LINK != 0
    at_home, left = ~came, flags & RowFlag.ENTRY != 0
    live_bytes = int(np.maximum(sizes, MIN_OCCUPIED)[~dead].sum())
    counts = (at_home & ~dead, at_home & dead, at_home & left, came, at_home & (locks != NO_LOCK))
    return (*(int(one.sum()) for one in counts), live_bytes)


# ---- Listings of pages.

PAGES = (
    ListColumn("page_id", BIGINT, "the page's number: device × 2²² + offset", True),
    ListColumn("name", TEXT, "as people write it: `4:7`"),
    ListColumn("device", INT, "the device's number", True),
    ListColumn("offset", INT, "which page of the device", True),
    ListColumn("page_size", INT, "its bytes", True),
    ListColumn("obj_id", BIGINT, "the object that owns it", True),
    ListColumn("object", TEXT, "that object's name; NULL if it is none that was committed"),
    ListColumn("object_kind", TEXT, "`table`, `lobs`, `btree index`, `hash index`, `undo` or `transactions`", True),
    ListColumn("table", TEXT, "the table that the object is, or belongs to", True),
    ListColumn("page_type", TEXT, "such as `data`, `map` or `free`; `loading`: a bulk load was writing it"),
    ListColumn("seg_type", TEXT, "such as `heap`, `btree` or `undo`"),
    ListColumn("chg_num", BIGINT, "changes since it was formatted"),
    ListColumn("ckpt_id", BIGINT, "the checkpoint, or the pin, that wrote it"),
    ListColumn("page_create_no", BIGINT, "how often its place was formatted", True),
    ListColumn("free_bytes", INT, "of a data page: bytes between its entries and its slots"),
    ListColumn("fill", DOUBLE, "of a data page: share of the room for entries and slots that is in use"),
    ListColumn("free_list", INT, "the free list that it is on, 14 for empty pages; NULL: none"),
    ListColumn("slots", INT, "slots of its directory, freed ones included"),
    ListColumn("live_rows", INT, "of a heap page: rows at home here that are not deleted, wherever their values are"),
    ListColumn("dead_rows", INT, "deleted rows, committed or not, that are not yet removed"),
    ListColumn("left_rows", INT, "those of the live and dead ones that have moved to another page"),
    ListColumn("came_rows", INT, "rows at home on another page that have moved here"),
    ListColumn("locked_rows", INT, "rows at home here that have a lock, of a transaction that may have ended"),
    ListColumn("dead_bytes", INT, "bytes of deleted rows, and of gaps between rows", True),
    ListColumn("load", BIGINT, "the bulk load that wrote it; NULL: none", True),
    ListColumn("crc_ok", BOOLEAN, "whether its CRC is right"),
    ListColumn("problem", TEXT, "what is wrong with it; NULL: nothing"),
)
FILL = (
    ListColumn("from_percent", INT, "the pages of the line are at least this full, in per cent"),
    ListColumn("to_percent", INT, "and less full than this; full pages are in the last line"),
    ListColumn("pages", BIGINT, "how many there are"),
    ListColumn("free_bytes", BIGINT, "free bytes on them"),
)
REGIONS = (
    ListColumn("offset", INT, "where in the page the bytes begin"),
    ListColumn("length", INT, "how many they are"),
    ListColumn("name", TEXT, "what they are, as in docs/file_format.md"),
    ListColumn("value", TEXT, "their value"),
    ListColumn("meaning", TEXT, "what that means"),
    ListColumn("problem", TEXT, "what is wrong here; NULL: nothing", True),
)
IMAGE = (
    ListColumn("page_id", BIGINT, "the page's number", True),
    ListColumn("page", TEXT, "as people write it"),
    ListColumn("bytes", BYTES, "all its bytes"),
)
_STEP = 10


def page_ids(files: DatabaseFiles, entry: int | None, pages: PageSelection) -> Iterator[int]:
    """The pages of a segment, map pages first, then data pages in the order of the map; without one, all used pages."""
    if entry is None:
        for number, device in files.devices.items():
            first, last = page_id_of(number, 0), page_id_of(number, min(device.hwm, PAGES_PER_DEVICE)) - 1
            yield from range(max(first, pages.first), min(last, pages.last) + 1)
        return
    listed: list[int] = []
    for map_page, entries in files.maps(entry):
        yield from pages.of([map_page])
        ids = entries["page_id"]
        listed += ids[ids != NO_PAGE].tolist()
    yield from pages.of(listed)


def data_pages(files: DatabaseFiles, entry: int, wrong: Callable[[str, Error], None]) -> list[int]:
    """The data pages of a segment, as far as its map can be followed; ``wrong`` is called where that ends."""
    ids_listed: list[int] = []
    try:
        for _, entries in files.maps(entry):
            ids = entries["page_id"]
            ids_listed += ids[ids != NO_PAGE].tolist()
    except Error as error:
        wrong(page_name(entry), error)
    return ids_listed


def pages(files: DatabaseFiles, segment: str | None = None, pages: PageSelection = ALL_PAGES) -> Listing:
    """Pages, each with its problem."""
    listing = Listing("pages", PAGES)
    known = {stored.obj_id: stored for stored in segment_objects(files)}
    entry = None if segment is None else find_segment(files, segment).entry_page
    try:
        for page_id in page_ids(files, entry, pages):
            _add_page(listing, files, page_id, known)
    except Error as error:
        listing.wrong(segment or str(files.path), error)
    return listing


def _add_page(listing: Listing, files: DatabaseFiles, page_id: int, known: dict[int, SegmentObject]) -> None:
    name = page_name(page_id)
    place = {"page_id": page_id, "name": name, "device": device_of(page_id), "offset": offset_of(page_id)}
    try:
        page = files.page(page_id)
    except Error as error:
        listing.wrong(name, error)
        listing.add(**place, problem=str(error))
        return
    size = len(page)
    starts = np.frombuffer(page, np.uint8, START).reshape(1, START)
    division = divide(starts, np.array([size]))
    head = PAGE_HEAD.at(page)
    owner = known.get(head.obj_id)
    problems = findings_of(files, page_id, page)
    if problems:
        listing.wrong(name, problems[0].message)
    free, room, slots = (int(one[0]) for one in (division.free, division.room, division.slots))
    listing.add(
        **place,
        page_size=size,
        obj_id=head.obj_id,
        object=owner.name if owner else None,
        object_kind=owner.kind if owner else None,
        table=owner.table.name if owner and owner.table is not None else None,
        page_type=name_in(PageType, head.page_type),
        seg_type=name_in(SegmentType, head.seg_type),
        chg_num=head.chg_num,
        ckpt_id=head.ckpt_id,
        page_create_no=head.page_create_no,
        free_bytes=free if free >= 0 else None,
        fill=round(1 - free / room, 4) if free >= 0 and room > 0 else None,
        free_list=head.fl_flag - 1 if head.fl_flag else None,
        slots=slots if slots >= 0 else None,
        **_rows(page, division),
        crc_ok=page_crc(page) == stored_crc(page),
        problem=problems[0].message if problems else None,
    )


def _rows(page: bytes, division: Division) -> dict[str, int | None]:
    if not division.has_rows[0]:
        return {}
    *counts, live_bytes = count_rows(page)
    head = PAGE_HEAD.at(page)
    load = int.from_bytes(bytes.fromhex(PAGE_HEAD.values(page)["reserve"])[:8], "little")
    dead = int(head.free_begin) - (len(page) - int(division.room[0]) - 8) - live_bytes
    rest = {"dead_bytes": dead, "load": load if 0 < load < 1 << 63 else None}
    return {**dict(zip(ROWS, counts, strict=True)), **rest}


def regions(files: DatabaseFiles, page: str) -> Listing:
    """Every byte of a page, named."""
    page_id = parse_page_id(page)
    raw = files.page(page_id)
    listing = Listing("regions", REGIONS)
    findings = findings_of(files, page_id, raw)
    listing.problems = [(f"{page_name(page_id)}, offset {one.offset}", one.message) for one in findings]
    for region in anatomy.regions(raw):
        wrong = [one.message for one in findings if region.offset <= one.offset < region.end]
        listing.add(
            offset=region.offset,
            length=region.length,
            name=region.name,
            value=None if region.value is None else str(region.value),
            meaning=region.meaning,
            problem="; ".join(wrong) or None,
        )
    return listing


def image(files: DatabaseFiles, page: str) -> Listing:
    """A page's bytes."""
    page_id = parse_page_id(page)
    return Listing("image", IMAGE, [(page_id, page_name(page_id), files.page(page_id))])


def name_in(kinds: type[PageType] | type[SegmentType], value: int) -> str:
    return kinds(value).name.lower() if value in list(kinds) else f"type {value}"


def fill(files: DatabaseFiles, segment: str | None = None, pages: PageSelection = ALL_PAGES) -> Listing:
    """A histogram of how full data pages are, in steps of ten per cent.  Only heads are read, and trusted."""
    listing = Listing("fill", FILL)
    counts, free = np.zeros(100 // _STEP, np.int64), np.zeros(100 // _STEP, np.int64)
    room = unknown = 0
    ids = np.array(_ids_to_fill(listing, files, segment, pages), np.int64)
    for first in range(0, len(ids), HEADS_AT_ONCE):
        some = ids[first : first + HEADS_AT_ONCE]
        division = divide(files.starts(some, START), files.page_sizes(some))
        known = division.free >= 0
        unknown += int((~known).sum())
        percent = 100 - 100 * division.free[known] // np.maximum(division.room[known], 1)
        buckets = np.clip(percent, 0, 99) // _STEP
        counts += np.bincount(buckets, minlength=len(counts))
        np.add.at(free, buckets, division.free[known])
        room += int(division.room[known].sum())
    for number, (many, rest) in enumerate(zip(counts.tolist(), free.tolist(), strict=True)):
        listing.add(from_percent=number * _STEP, to_percent=(number + 1) * _STEP, pages=many, free_bytes=rest)
    share = f"{100 - 100 * int(free.sum()) / room:.1f} % full" if room else "no data pages"
    listing.notes.append(f"{int(counts.sum()):,} data pages, {share}, {int(free.sum()):,} bytes free")
    if unknown and segment is not None:
        listing.wrong(segment, f"{unknown} of its pages do not have a valid head of a data page")
    return listing


def _ids_to_fill(listing: Listing, files: DatabaseFiles, segment: str | None, pages: PageSelection) -> list[int]:
    if segment is None:
        return list(page_ids(files, None, pages))
    return list(pages.of(data_pages(files, find_segment(files, segment).entry_page, listing.wrong)))


# ---- A database as a map: all pages in a row, device behind device, cut into cells of some pages each.
#
# A cell is described by a sample of its pages, evenly spread, so that a map of any size costs the same; small cells are
# read in full.

CELLS = (
    ListColumn("first", BIGINT, "which page of the map the cell begins with"),
    ListColumn("page", TEXT, "that page, as people write it: `4:7`"),
    ListColumn("pages", BIGINT, "pages of the cell"),
    ListColumn("read", INT, "those of them that were looked at"),
    ListColumn("obj_id", BIGINT, "the object that most of them belong to"),
    ListColumn("object", TEXT, "that object's name; NULL: none that was committed"),
    ListColumn("kind", TEXT, "what most of them are, such as `heap`, `map`, `free`; `empty`: never written"),
    ListColumn("fill", DOUBLE, "how full those are that have entries, on average"),
    ListColumn("ckpt_id", BIGINT, "the newest checkpoint that wrote one of them"),
    ListColumn("rows", BIGINT, "of those read as a whole: their rows"),
    ListColumn("dead_rows", BIGINT, "of those read as a whole: deleted rows that are not yet removed"),
    ListColumn("problem", TEXT, "of those read as a whole: what is wrong with one; NULL: nothing"),
    ListColumn("is_whole", BOOLEAN, "whether pages were read as a whole, or their heads alone", True),
)
_READ_MAX = 1 << 13  # pages whose heads are read for one map
_WHOLE_MAX = 1 << 11  # pages that are read as a whole, at a millisecond each
_CELLS_MAX = 1 << 14
_PAGES_MAX = 1 << 42  # more than all devices have; so many times as many cells are still a number of 8 bytes


def cells(files: DatabaseFiles, first: int = 0, pages_each: int = 1, count: int = 1024, whole: bool = False) -> Listing:
    """``count`` cells of ``pages_each`` pages, from page ``first`` of the map on; ``whole``: read rows and CRCs too."""
    first, pages_each, count, depth = (whole_number(one) for one in (first, pages_each, count, whole))
    is_place = 0 <= first < _PAGES_MAX and 0 < pages_each < _PAGES_MAX
    if not is_place or not 0 < count <= _CELLS_MAX or depth not in (0, 1):
        limits = f"a map has 1 to {_CELLS_MAX:,} cells of at least 1 page each, from page 0 or later on"
        raise InterfaceError(f"{limits}; whole is 1 or 0")
    listing = Listing("cells", CELLS)
    strip = Strip(files)
    count = min(count, max(-(-(strip.total - first) // pages_each), 0))
    if count == 0:
        return listing
    each = min(max((_WHOLE_MAX if depth else _READ_MAX) // count, 1), pages_each)
    steps = np.arange(each) * pages_each // each
    begins = first + np.arange(count, dtype=np.int64) * pages_each
    places = (begins[:, None] + steps[None, :]).ravel()
    owners = np.repeat(np.arange(count), each)
    there = places < strip.total
    places, owners = places[there], owners[there]
    ids = strip.page_ids(places)
    division = divide(files.starts(ids, START), files.page_sizes(ids))
    objects, firsts = np.unique(division.heads["obj_id"], return_index=True)
    known = names_of(files, dict(zip(objects.tolist(), ids[firsts].tolist(), strict=True)))
    bounds = np.searchsorted(owners, np.arange(count + 1))
    kinds = division.heads["page_type"].astype(np.int64) << 16 | division.heads["seg_type"].astype(np.int64)
    shares = np.where(division.free >= 0, 1 - division.free / np.maximum(division.room, 1), np.nan)
    for number in range(count):
        part = slice(int(bounds[number]), int(bounds[number + 1]))
        obj_id, kind = _most(division.heads["obj_id"][part]), _most(kinds[part])
        filled = shares[part][~np.isnan(shares[part])]
        begin = int(begins[number])
        listing.add(
            first=begin,
            page=page_name(int(ids[part.start])),
            pages=min(pages_each, strip.total - begin),
            read=part.stop - part.start,
            obj_id=obj_id,
            object=known.get(obj_id),
            kind=_kind(kind),
            fill=round(float(filled.mean()), 4) if len(filled) else None,
            ckpt_id=int(division.heads["ckpt_id"][part].max()),
            is_whole=bool(depth),
            **(_contents(files, ids[part].tolist(), division.has_rows[part].tolist()) if depth else {}),
        )
    return listing


class Strip:
    """The used pages of all devices, one device behind the other."""

    def __init__(self, files: DatabaseFiles) -> None:
        self.numbers = np.array(sorted(files.devices), np.int64)
        used = [max(files.devices[number].hwm, 0) for number in self.numbers.tolist()]
        self.ends = np.cumsum(np.array(used, np.int64))
        self.total = int(self.ends[-1]) if used else 0

    def page_ids(self, places: np.ndarray) -> np.ndarray:
        which = np.searchsorted(self.ends, places, side="right")
        before = np.where(which > 0, self.ends[np.maximum(which - 1, 0)], 0)
        return (self.numbers[which] << OFFSET_BITS) + (places - before)

    def place_of(self, page_id: int) -> int | None:
        """The position of a page; None if it is not in use."""
        which = int(np.searchsorted(self.numbers, device_of(page_id)))
        if which == len(self.numbers) or self.numbers[which] != device_of(page_id):
            return None
        before = int(self.ends[which - 1]) if which else 0
        place = before + offset_of(page_id)
        return place if place < self.ends[which] else None


def _most(values: np.ndarray) -> int:
    return Counter(values.tolist()).most_common(1)[0][0]


def _kind(kind: int) -> str:
    page_type, seg_type = kind >> 16, kind & 0xFFFF
    if page_type == PageType.DATA:
        return name_in(SegmentType, seg_type)
    return "empty" if page_type == PageType.NONE else name_in(PageType, page_type)


def _contents(files: DatabaseFiles, page_ids: list[int], has_rows: list[bool]) -> dict[str, int | str | None]:
    """Counts of the rows on pages, and the first page whose CRC or place is wrong."""
    rows = dead = 0
    problem = None
    for page_id, with_rows in zip(page_ids, has_rows, strict=True):
        try:
            page = files.sound_page(page_id)
        except Error as error:
            problem = problem or str(error)
            continue
        if with_rows:
            live, deleted, *_ = count_rows(page)
            rows, dead = rows + live + deleted, dead + deleted
    return {"rows": rows, "dead_rows": dead, "problem": problem}
