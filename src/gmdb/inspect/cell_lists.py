"""A database as a map: all pages in a row, device behind device, cut into cells of some pages each.

What a cell is like is told by a few of its pages, evenly spread, so that a map of any size costs the same; cells of
few pages are told by all of them.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from gmdb.errors import Error, InterfaceError
from gmdb.format.address import OFFSET_BITS, device_of, offset_of, page_name
from gmdb.format.page import PageType, SegmentType
from gmdb.inspect.files import DatabaseFiles
from gmdb.inspect.listing import BIGINT, BOOLEAN, DOUBLE, INT, TEXT, ListColumn, Listing, whole_number
from gmdb.inspect.measure import START, count_rows, divide
from gmdb.inspect.objects import names_of
from gmdb.inspect.page_lists import name_in

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
