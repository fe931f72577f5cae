"""The entries of a B-tree page or a hash bucket, and the slots of a hash directory."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from gmdb.format.address import NO_PAGE, page_name
from gmdb.format.btree import ENTRIES_AT, POINTER_SIZE, entry_extents
from gmdb.format.hash import HASH_NODE, slot_pages
from gmdb.format.page import PAGE_HEAD, TAIL_SIZE
from gmdb.format.row import header_size
from gmdb.format.slotted import bounded
from gmdb.inspect.canvas import Block, Line, byte_lines, section_line
from gmdb.inspect.draw_rows import row_head_lines
from gmdb.inspect.page_view import PageView
from gmdb.inspect.report import index_entry, leads_to_rows
from gmdb.inspect.row_view import view_row


def index_blocks(view: PageView, full: bool) -> list[Block]:
    end = len(view.page) - TAIL_SIZE
    extents = bounded(view.page, entry_extents(view.page))
    return [
        Block(at, stop, list(_entry_lines(view.page, at, min(stop, end), slot, full))) for at, stop, slot in extents
    ]


def _entry_lines(page: bytes, offset: int, end: int, slot: int, full: bool) -> Iterator[Line]:
    yield from row_head_lines(view_row(page, slot, offset, None), f"entry {slot}", full)
    entry = index_entry(page, offset, end, slot)
    at = offset + header_size(entry["col_count"])
    if at + POINTER_SIZE > end:
        yield section_line(None, "", "(cut short)")
        return
    if leads_to_rows(page):
        yield section_line(at, "", "row_id", entry["row_id"])
    else:
        yield section_line(at, "", "child page", str(entry["child_page"]), page_name(entry["child_page"]))
    key = bytes.fromhex(entry["key"])
    yield from byte_lines(key, at + POINTER_SIZE, {0: "key columns"} if key else None, full)
    if "address" in entry:
        yield section_line(
            at + POINTER_SIZE + len(key), "", "address", entry["address"], "hash of the key | of the row id"
        )


def directory_lines(page: bytes) -> Iterator[Line]:
    """A hash directory's slots: one line for slots that lead to the same page."""
    number, depth = 0, HASH_NODE.at(page, PAGE_HEAD.size).depth
    for page_id, same in groupby(slot_pages(page)):
        count = len(list(same))
        name = f"slot {number}" if count == 1 else f"slots {number} … {number + count - 1}"
        target = ("", "nothing") if page_id == NO_PAGE else (str(page_id), page_name(page_id))
        bits = f"bits {number:0{depth}b} …" if depth else "all"
        yield section_line(ENTRIES_AT + 4 * number, "slots" if number == 0 else "", name, *target, bits)
        number += count
