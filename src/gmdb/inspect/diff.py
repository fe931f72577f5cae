"""What differs: between two pages, or between all pages of two databases, or of one at two places of its log.

A difference is listed at three levels: fields whose values differ, by the names of their regions; rows that only one
side has, or that differ; and bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from gmdb.errors import Error, InterfaceError
from gmdb.format import anatomy, heap
from gmdb.format.address import RowId, page_id_of, page_name, parse_page_id
from gmdb.format.page import HEAD_SIZE, PAGE_HEAD, TAIL_SIZE
from gmdb.inspect.listing import BIGINT, INT, TEXT, ListColumn, Listing
from gmdb.inspect.row_lists import views_of
from gmdb.process.late_imports import numpy as np
from gmdb.tables.catalog.schema import TableDefinition
from gmdb.tables.files.database_files import DatabaseFiles
from gmdb.tables.files.page_view import RowView, known_tables, plain

DIFF = (
    ListColumn("page", TEXT, "the page; of two pages, the first one"),
    ListColumn("page_id", BIGINT, "its number", True),
    ListColumn("what", TEXT, "`field`, `row`, `bytes`; `page`: only one side has it, or can be read"),
    ListColumn("name", TEXT, "the field, as in docs/file_format.md; of a row, its row id"),
    ListColumn("offset", INT, "where on the page"),
    ListColumn("length", INT, "of bytes: how many differ in a row"),
    ListColumn("first", TEXT, "what the first side has; NULL: nothing"),
    ListColumn("second", TEXT, "what the second side has"),
)
_SHOWN = 64  # characters of a value that are listed
_OF_ROWS = ("rows[", "slots[")
_IGNORED = {PAGE_HEAD.offset("ckpt_id"), PAGE_HEAD.offset("mirror_page")}  # which checkpoint wrote the page


def diff_pages(files: DatabaseFiles, first: str, second: str) -> Listing:
    """Two pages of one database."""
    listing = Listing("diff", DIFF)
    one, other = parse_page_id(first), parse_page_id(second)
    pages = files.page(one), files.page(other)
    if len(pages[0]) != len(pages[1]):
        raise InterfaceError(f"pages {first} and {second} differ in size: {len(pages[0])} and {len(pages[1])} bytes")
    _compare(listing, one, *pages, known_tables(files).get(PAGE_HEAD.at(pages[0]).obj_id))
    return listing


def diff_images(files: DatabaseFiles, page_id: int, one: bytes, other: bytes) -> Listing:
    """One page in two states."""
    listing = Listing("diff", DIFF)
    tables = known_tables(files)
    _compare(listing, page_id, one, other, _table_of(one, other, tables))
    return listing


def diff_databases(one: DatabaseFiles, other: DatabaseFiles, with_bytes: bool = False) -> Listing:
    """All pages of two databases, or of one in two states; ``with_bytes``: also list the bytes that differ."""
    listing = Listing("diff", DIFF)
    tables = known_tables(one) | known_tables(other)
    for page_id in _all_pages(one, other):
        sides = _read(one, page_id), _read(other, page_id)
        if sides[0] == sides[1]:
            continue
        if isinstance(sides[0], str) or isinstance(sides[1], str) or len(sides[0]) != len(sides[1]):
            texts = [side if isinstance(side, str) else f"{len(side)} bytes" for side in sides]
            listing.add(page=page_name(page_id), page_id=page_id, what="page", first=texts[0], second=texts[1])
            continue
        before = len(listing.rows)
        _compare(listing, page_id, sides[0], sides[1], _table_of(sides[0], sides[1], tables))
        if not with_bytes:
            listing.rows[before:] = [row for row in listing.rows[before:] if row[2] != "bytes"]
    return listing


def _table_of(one: bytes, other: bytes, tables: dict[int, TableDefinition]) -> TableDefinition | None:
    """The table that the pages belong to, by the newer one's head if that names a known one."""
    return tables.get(PAGE_HEAD.at(other).obj_id) or tables.get(PAGE_HEAD.at(one).obj_id)


def _all_pages(one: DatabaseFiles, other: DatabaseFiles) -> Iterator[int]:
    """The pages that either side uses, in order of address."""
    for number in sorted({*one.devices, *other.devices}):
        sides = [files.devices[number] for files in (one, other) if number in files.devices]
        yield from range(page_id_of(number, 0), page_id_of(number, max(side.hwm for side in sides)))


def _read(files: DatabaseFiles, page_id: int) -> bytes | str:
    """A page, or why it cannot be read."""
    try:
        return files.page(page_id)
    except Error as error:
        return str(error)


def _compare(listing: Listing, page_id: int, one: bytes, other: bytes, table: TableDefinition | None) -> None:
    place = {"page": page_name(page_id), "page_id": page_id}
    for name, offset, first, second in _fields(one, other):
        listing.add(**place, what="field", name=name, offset=offset, first=first, second=second)
    for slot, offset, first, second in _rows(one, other, table):
        name = str(RowId(page_id, slot))
        listing.add(**place, what="row", name=name, offset=offset, first=first, second=second)
    for begin, end in _runs(one, other):
        shown = [side[begin:end].hex()[:_SHOWN] for side in (one, other)]
        listing.add(**place, what="bytes", offset=begin, length=end - begin, first=shown[0], second=shown[1])


def _fields(one: bytes, other: bytes) -> Iterator[tuple[str, int, Any, Any]]:
    """Fields that differ, without those of rows and slots, which rows are compared for."""
    sides = [{r.name: r for r in anatomy.regions(page) if _is_field(r.name)} for page in (one, other)]
    for name in dict.fromkeys([*sides[0], *sides[1]]):
        first, second = sides[0].get(name), sides[1].get(name)
        if first is not None and second is not None:
            if first.value != second.value and first.offset not in _IGNORED:
                yield name, second.offset, _text(first.value), _text(second.value)
        elif second is not None:
            yield name, second.offset, None, _text(second.value)
        elif first is not None:
            yield name, first.offset, _text(first.value), None


def _is_field(name: str) -> bool:
    return name not in ("free", "unused") and not name.startswith(_OF_ROWS) and not name.startswith("tail.")


def _text(value: Any) -> str:
    text = str(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def _rows(one: bytes, other: bytes, table: TableDefinition | None) -> Iterator[tuple[int, int, str | None, str | None]]:
    sides = [_views(page, table) for page in (one, other)]
    for slot in sorted({*sides[0], *sides[1]}):
        first, second = sides[0].get(slot), sides[1].get(slot)
        texts = [None if view is None else _row_text(view) for view in (first, second)]
        if texts[0] != texts[1]:
            offset = second.offset if second is not None else first.offset if first is not None else 0
            yield slot, offset, texts[0], texts[1]


def _views(page: bytes, table: TableDefinition | None) -> dict[int, RowView]:
    return {view.slot: view for view in views_of(page, table)} if anatomy.structure_of(page) is heap else {}


def _row_text(view: RowView) -> str:
    """A row as text: flags and lock, then its values."""
    before = [*view.flag_names, f"lock {view.lock_id}"] if view.lock_id != 0xFF_FFFF else view.flag_names
    if view.target is not None:
        return " ".join([*before, f"moved to {view.target}"])
    values = [plain(cell.value) for cell in view.cells] if view.cells is not None else view.raw.hex()
    return " ".join([*before, str(values)])


def _runs(one: bytes, other: bytes) -> Iterator[tuple[int, int]]:
    """(begin, end) of bytes that differ, tails left out; runs that are close together count as one."""
    differs = np.flatnonzero(np.frombuffer(one, np.uint8) != np.frombuffer(other, np.uint8))
    places = [int(at) for at in differs if at < len(one) - TAIL_SIZE and not _is_ignored(int(at))]
    if not places:
        return
    begin = places[0]
    for at, following in pairwise([*places, places[-1] + 1000]):
        if following - at > 4:
            yield begin, at + 1
            begin = following


def _is_ignored(at: int) -> bool:
    return at < HEAD_SIZE and at & ~3 in _IGNORED
