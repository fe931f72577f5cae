"""Listings of pages: each with its head, how full it is, its rows and what is wrong with it; and how full all are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

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
from gmdb.tables.files.database_files import HEADS_AT_ONCE, DatabaseFiles
from gmdb.tables.files.page_view import findings_of

# ---- Which pages of a device, or of all, somebody wants to look at: ``4:7``, or ``4:7..4:20`` with both ends.


class PageSelection(NamedTuple):
    first: int = 0
    last: int = NO_PAGE - 1

    @classmethod
    def parse(cls, text: str) -> PageSelection:
        first, dots, last = text.partition("..")
        found = cls(parse_page_id(first), parse_page_id(last if dots else first))
        if found.last < found.first:
            raise InterfaceError(f"{text!r} is no range of pages: it ends before it begins")
        return found

    def of(self, page_ids: Iterable[int]) -> Iterator[int]:
        """Those of some pages that are in the range."""
        return (page_id for page_id in page_ids if self.first <= page_id <= self.last)


ALL_PAGES = PageSelection()


# ---- How full pages are: out of the starts of many pages at once.

_NODES: dict[int, tuple[Layout, int]] = {  # of each kind of segment, its pages' node head and where entries begin
    SegmentType.SYSTEM: (heap.HEAP_NODE, heap.ROWS_AT),
    SegmentType.HEAP: (heap.HEAP_NODE, heap.ROWS_AT),
    SegmentType.UNDO: (undo.UNDO_HEAD, undo.RECORDS_AT),
    SegmentType.BTREE: (btree.BTREE_NODE, btree.ENTRIES_AT),
    SegmentType.HASH: (btree.BTREE_NODE, btree.ENTRIES_AT),
    SegmentType.LOB: (lob.LOB_NODE, lob.DATA_AT),
}
START = HEAD_SIZE + max(node.size for node, _ in _NODES.values())  # bytes of a page that tell how full it is
NONE = -1  # of a number: the page has no such thing
ROWS = ("live_rows", "dead_rows", "left_rows", "came_rows", "locked_rows")
_ROW_SEGMENTS = (SegmentType.SYSTEM, SegmentType.HEAP)


@dataclass(frozen=True)
class Division:
    """Pages by their starts: heads, and numbers of each, NONE where a page has no such thing."""

    heads: np.ndarray
    room: np.ndarray  # bytes for entries and their slots
    free: np.ndarray
    slots: np.ndarray

    @property
    def has_rows(self) -> np.ndarray:
        """Which of them are pages of rows."""
        return (self.free >= 0) & np.isin(self.heads["seg_type"], _ROW_SEGMENTS)


def divide(starts: np.ndarray, sizes: np.ndarray) -> Division:
    """``starts``: the first START bytes of each page; ``sizes``: the pages' sizes."""
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
    """Of a page of rows: live, deleted, gone elsewhere, come from elsewhere, locked; then bytes that are not dead."""
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
    kept = int(np.maximum(sizes, MIN_OCCUPIED)[~dead].sum())
    counts = (at_home & ~dead, at_home & dead, at_home & left, came, at_home & (locks != NO_LOCK))
    return (*(int(one.sum()) for one in counts), kept)


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
    ListColumn("live_rows", INT, "of a heap page: rows at home here that nobody has deleted, wherever they are"),
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
    ListColumn("from_percent", INT, "pages that are at least so full"),
    ListColumn("to_percent", INT, "and less than so full; 100 is among the last"),
    ListColumn("pages", BIGINT, "how many they are"),
    ListColumn("free_bytes", BIGINT, "bytes that are free on them"),
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
    """The pages of a segment in the order of its map, map pages first; without one, all that were ever used."""
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
    """The data pages of a segment, as far as its map can be followed; ``wrong`` hears where that ends."""
    found: list[int] = []
    try:
        for _, entries in files.maps(entry):
            ids = entries["page_id"]
            found += ids[ids != NO_PAGE].tolist()
    except Error as error:
        wrong(page_name(entry), error)
    return found


def pages(files: DatabaseFiles, segment: str | None = None, pages: PageSelection = ALL_PAGES) -> Listing:
    """Pages, each with what is wrong with it."""
    made = Listing("pages", PAGES)
    known = {stored.obj_id: stored for stored in segment_objects(files)}
    entry = None if segment is None else find_segment(files, segment).entry_page
    try:
        for page_id in page_ids(files, entry, pages):
            _add_page(made, files, page_id, known)
    except Error as error:
        made.wrong(segment or str(files.path), error)
    return made


def _add_page(made: Listing, files: DatabaseFiles, page_id: int, known: dict[int, SegmentObject]) -> None:
    name = page_name(page_id)
    place = {"page_id": page_id, "name": name, "device": device_of(page_id), "offset": offset_of(page_id)}
    try:
        page = files.page(page_id)
    except Error as error:
        made.wrong(name, error)
        made.add(**place, problem=str(error))
        return
    size = len(page)
    starts = np.frombuffer(page, np.uint8, START).reshape(1, START)
    found = divide(starts, np.array([size]))
    head = PAGE_HEAD.at(page)
    owner = known.get(head.obj_id)
    problems = findings_of(files, page_id, page)
    if problems:
        made.wrong(name, problems[0].message)
    free, room, slots = (int(one[0]) for one in (found.free, found.room, found.slots))
    made.add(
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
        **_rows(page, found),
        crc_ok=page_crc(page) == stored_crc(page),
        problem=problems[0].message if problems else None,
    )


def _rows(page: bytes, found: Division) -> dict[str, int | None]:
    if not found.has_rows[0]:
        return {}
    *counts, kept = count_rows(page)
    head = PAGE_HEAD.at(page)
    load = int.from_bytes(bytes.fromhex(PAGE_HEAD.values(page)["reserve"])[:8], "little")
    dead = int(head.free_begin) - (len(page) - int(found.room[0]) - 8) - kept
    rest = {"dead_bytes": dead, "load": load if 0 < load < 1 << 63 else None}
    return {**dict(zip(ROWS, counts, strict=True)), **rest}


def regions(files: DatabaseFiles, page: str) -> Listing:
    """Every byte of a page, named."""
    page_id = parse_page_id(page)
    raw = files.page(page_id)
    made = Listing("regions", REGIONS)
    findings = findings_of(files, page_id, raw)
    made.problems = [(f"{page_name(page_id)}, offset {one.offset}", one.message) for one in findings]
    for region in anatomy.regions(raw):
        wrong = [one.message for one in findings if region.offset <= one.offset < region.end]
        made.add(
            offset=region.offset,
            length=region.length,
            name=region.name,
            value=None if region.value is None else str(region.value),
            meaning=region.meaning,
            problem="; ".join(wrong) or None,
        )
    return made


def image(files: DatabaseFiles, page: str) -> Listing:
    """A page's bytes."""
    page_id = parse_page_id(page)
    return Listing("image", IMAGE, [(page_id, page_name(page_id), files.page(page_id))])


def name_in(kinds: type[PageType] | type[SegmentType], value: int) -> str:
    return kinds(value).name.lower() if value in list(kinds) else f"type {value}"


def fill(files: DatabaseFiles, segment: str | None = None, pages: PageSelection = ALL_PAGES) -> Listing:
    """How many data pages are how full, by steps of ten per cent.  Reads heads alone, and trusts them."""
    made = Listing("fill", FILL)
    counts, free = np.zeros(100 // _STEP, np.int64), np.zeros(100 // _STEP, np.int64)
    room = unknown = 0
    ids = np.array(_ids_to_fill(made, files, segment, pages), np.int64)
    for first in range(0, len(ids), HEADS_AT_ONCE):
        some = ids[first : first + HEADS_AT_ONCE]
        found = divide(files.starts(some, START), files.page_sizes(some))
        known = found.free >= 0
        unknown += int((~known).sum())
        percent = 100 - 100 * found.free[known] // np.maximum(found.room[known], 1)
        buckets = np.clip(percent, 0, 99) // _STEP
        counts += np.bincount(buckets, minlength=len(counts))
        np.add.at(free, buckets, found.free[known])
        room += int(found.room[known].sum())
    for number, (many, rest) in enumerate(zip(counts.tolist(), free.tolist(), strict=True)):
        made.add(from_percent=number * _STEP, to_percent=(number + 1) * _STEP, pages=many, free_bytes=rest)
    share = f"{100 - 100 * int(free.sum()) / room:.1f} % full" if room else "no data pages"
    made.notes.append(f"{int(counts.sum()):,} data pages, {share}, {int(free.sum()):,} bytes free")
    if unknown and segment is not None:
        made.wrong(segment, f"{unknown} of its pages have no head of a data page that makes sense")
    return made


def _ids_to_fill(made: Listing, files: DatabaseFiles, segment: str | None, pages: PageSelection) -> list[int]:
    if segment is None:
        return list(page_ids(files, None, pages))
    return list(pages.of(data_pages(files, find_segment(files, segment).entry_page, made.wrong)))


# ---- A database as a map: all pages in a row, device behind device, cut into cells of some pages each.
#
# What a cell is like is told by a few of its pages, evenly spread, so that a map of any size costs the same; cells of
# few pages are told by all of them.

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
    ListColumn("problem", TEXT, "of those read as a whole: what is wrong with one; NULL: nothing was found"),
    ListColumn("is_whole", BOOLEAN, "whether pages were read as a whole, or their heads alone", True),
)
_READ_MAX = 1 << 13  # pages that are looked at for one map, by their heads
_WHOLE_MAX = 1 << 11  # or as a whole, which takes a millisecond each
_CELLS_MAX = 1 << 14
_PAGES_MAX = 1 << 42  # more than all devices have; so many times as many cells are still a number of 8 bytes


def cells(files: DatabaseFiles, first: int = 0, pages_each: int = 1, count: int = 1024, whole: bool = False) -> Listing:
    """``count`` cells of ``pages_each`` pages from the ``first`` on; ``whole``: look at rows and checksums too."""
    first, pages_each, count, depth = (whole_number(one) for one in (first, pages_each, count, whole))
    is_place = 0 <= first < _PAGES_MAX and 0 < pages_each < _PAGES_MAX
    if not is_place or not 0 < count <= _CELLS_MAX or depth not in (0, 1):
        said = f"a map has 1 to {_CELLS_MAX:,} cells of 1 page or more each, from page 0 on or later"
        raise InterfaceError(f"{said}, and looks into them (1) or does not (0)")
    made = Listing("cells", CELLS)
    strip = Strip(files)
    count = min(count, max(-(-(strip.total - first) // pages_each), 0))
    if count == 0:
        return made
    each = min(max((_WHOLE_MAX if depth else _READ_MAX) // count, 1), pages_each)
    steps = np.arange(each) * pages_each // each
    begins = first + np.arange(count, dtype=np.int64) * pages_each
    places = (begins[:, None] + steps[None, :]).ravel()
    owners = np.repeat(np.arange(count), each)
    there = places < strip.total
    places, owners = places[there], owners[there]
    ids = strip.page_ids(places)
    found = divide(files.starts(ids, START), files.page_sizes(ids))
    objects, firsts = np.unique(found.heads["obj_id"], return_index=True)
    known = names_of(files, dict(zip(objects.tolist(), ids[firsts].tolist(), strict=True)))
    bounds = np.searchsorted(owners, np.arange(count + 1))
    kinds = found.heads["page_type"].astype(np.int64) << 16 | found.heads["seg_type"].astype(np.int64)
    shares = np.where(found.free >= 0, 1 - found.free / np.maximum(found.room, 1), np.nan)
    for number in range(count):
        part = slice(int(bounds[number]), int(bounds[number + 1]))
        obj_id, kind = _most(found.heads["obj_id"][part]), _most(kinds[part])
        filled = shares[part][~np.isnan(shares[part])]
        begin = int(begins[number])
        made.add(
            first=begin,
            page=page_name(int(ids[part.start])),
            pages=min(pages_each, strip.total - begin),
            read=part.stop - part.start,
            obj_id=obj_id,
            object=known.get(obj_id),
            kind=_kind(kind),
            fill=round(float(filled.mean()), 4) if len(filled) else None,
            ckpt_id=int(found.heads["ckpt_id"][part].max()),
            is_whole=bool(depth),
            **(_looked_into(files, ids[part].tolist(), found.has_rows[part].tolist()) if depth else {}),
        )
    return made


class Strip:
    """All pages that devices use, in a row."""

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
        """Where in the row a page is; None: it is not in use."""
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


def _looked_into(files: DatabaseFiles, page_ids: list[int], has_rows: list[bool]) -> dict[str, int | str | None]:
    """Rows of pages, and whether their checksums and places are right; that finds what a disk does to them."""
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
