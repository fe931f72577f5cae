"""Listings of pages: each with its head, how full it is, its rows and what is wrong with it; and how full all are."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from gmdb.errors import Error
from gmdb.format import anatomy
from gmdb.format.address import (
    NO_PAGE,
    PAGES_PER_DEVICE,
    device_of,
    offset_of,
    page_id_of,
    page_name,
    parse_page_id,
)
from gmdb.format.checksum import page_crc
from gmdb.format.page import PAGE_HEAD, PageType, SegmentType, stored_crc
from gmdb.inspect.files import HEADS_AT_ONCE, DatabaseFiles
from gmdb.inspect.listing import BIGINT, BOOLEAN, BYTES, DOUBLE, INT, TEXT, ListColumn, Listing
from gmdb.inspect.measure import ROWS, START, Division, count_rows, divide
from gmdb.inspect.objects import SegmentObject, find_segment, segment_objects
from gmdb.inspect.page_range import ALL_PAGES, PageRange
from gmdb.inspect.page_view import findings_of

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


def page_ids(files: DatabaseFiles, entry: int | None, pages: PageRange) -> Iterator[int]:
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


def pages(files: DatabaseFiles, segment: str | None = None, pages: PageRange = ALL_PAGES) -> Listing:
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


def fill(files: DatabaseFiles, segment: str | None = None, pages: PageRange = ALL_PAGES) -> Listing:
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


def _ids_to_fill(made: Listing, files: DatabaseFiles, segment: str | None, pages: PageRange) -> list[int]:
    if segment is None:
        return list(page_ids(files, None, pages))
    return list(pages.of(data_pages(files, find_segment(files, segment).entry_page, made.wrong)))
