"""Listings of rows as they lie on pages: deleted ones, moved ones and those that cannot be read included."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gmdb.catalog.schema import TableDefinition
from gmdb.errors import Error, InterfaceError
from gmdb.format import anatomy, heap
from gmdb.format.address import RowId, page_name
from gmdb.format.columns import Column, ColumnType
from gmdb.format.lob import Locator
from gmdb.format.row import NO_LOCK
from gmdb.inspect.files import DatabaseFiles
from gmdb.inspect.listing import BIGINT, BYTES, INT, TEXT, ListColumn, Listing
from gmdb.inspect.objects import find_segment
from gmdb.inspect.page_lists import data_pages
from gmdb.inspect.page_range import ALL_PAGES, PageRange
from gmdb.inspect.page_view import findings_of
from gmdb.inspect.row_view import RowView, view_row

ROW_PLACE = (
    ListColumn("_rowid", TEXT, "the place, as SQL's rowid"),
    ListColumn("_page_id", BIGINT, "the page's number", True),
    ListColumn("_slot", INT, "the slot on it", True),
    ListColumn("_offset", INT, "where on the page the row begins", True),
    ListColumn("_size", INT, "bytes of the row"),
    ListColumn("_lock_id", BIGINT, "its lock; NULL: none"),
    ListColumn(
        "_flags", TEXT, "`DELETE`: it is deleted; `ENTRY`: its values are elsewhere; `LINK`: it came from there"
    ),
    ListColumn("_moved_to", TEXT, "of `ENTRY` rows: where the values are"),
    ListColumn("_problem", TEXT, "why it has no values; NULL: nothing is wrong"),
)
_BYTES_COLUMN = ListColumn("_bytes", BYTES, "the values' bytes, where the row's table is not known")


def rows(files: DatabaseFiles, segment: str, pages: PageRange = ALL_PAGES) -> Listing:
    """The rows of a table, a line for each place that one is in; behind that, the values of the table's columns."""
    stored = find_segment(files, segment)
    if stored.kind not in ("table", "heap", "system"):
        raise InterfaceError(f"{stored.name} is no table, but {stored.kind}; its pages have no rows")
    table = stored.table
    made = Listing("rows", row_columns(table))
    for page_id in pages.of(data_pages(files, stored.entry_page, made.wrong)):
        try:
            page = files.page(page_id)
            for finding in findings_of(files, page_id, page)[:1]:
                made.wrong(page_name(page_id), finding.message)
            add_rows(made, page_id, page, table)
        except Error as error:
            made.wrong(page_name(page_id), error)
    return made


def row_columns(table: TableDefinition | None) -> tuple[ListColumn, ...]:
    if table is None:
        return (*ROW_PLACE, _BYTES_COLUMN)
    return (*ROW_PLACE, *(ListColumn(c.name, listed_type(c), f"column {c.name}") for c in table.columns))


def listed_type(column: Column) -> ColumnType:
    """Large objects on pages are listed by where they are."""
    return TEXT if column.type.is_lob else column.type


def add_rows(made: Listing, page_id: int, page: bytes, table: TableDefinition | None) -> None:
    """The rows of one page, as far as its bytes make sense."""
    if anatomy.structure_of(page) is not heap:
        return
    for view in views_of(page, table):
        place = RowId(page_id, view.slot)
        made.rows.append((*place_values(place, view), *values_of(view, table)))
        if view.problem:
            made.wrong(f"row {place}", view.problem)


def views_of(page: bytes, table: TableDefinition | None) -> Iterator[RowView]:
    columns = table.columns if table is not None else None
    return (view_row(page, slot, offset, columns) for offset, _, slot in heap.row_extents(page))


def place_values(place: RowId, view: RowView) -> tuple[Any, ...]:
    lock = None if view.lock_id == NO_LOCK else view.lock_id
    flags = " ".join(view.flag_names) or None
    moved = None if view.target is None else str(view.target)
    return (str(place), place.page_id, view.slot, view.offset, view.size, lock, flags, moved, view.problem or None)


def values_of(view: RowView, table: TableDefinition | None) -> tuple[Any, ...]:
    """The row's values by the table's columns; NULLs where it has none."""
    if table is None:
        return (view.raw,)
    if view.cells is None:
        return (None,) * len(table.columns)
    return tuple(listed_value(c, cell.value) for c, cell in zip(table.columns, view.cells, strict=True))


def listed_value(column: Column, value: Any) -> Any:
    """A value as a listing has it."""
    if isinstance(value, Locator):
        return f"{value.length} bytes on pages, from {page_name(value.first_page)} on"
    return value.hex() if column.type.is_lob and isinstance(value, bytes) else value
