"""The entries of a B-tree page."""

from __future__ import annotations

from collections.abc import Iterator

from gmdb.format.address import page_name
from gmdb.format.btree import BTREE_NODE, NODE_AT, POINTER_SIZE, entry_extents
from gmdb.format.page import TAIL_SIZE
from gmdb.format.row import header_size
from gmdb.inspect.canvas import Block, Line, byte_lines, section_line
from gmdb.inspect.draw_rows import row_head_lines
from gmdb.inspect.page_view import PageView
from gmdb.inspect.report import btree_entry
from gmdb.inspect.row_view import view_row


def btree_blocks(view: PageView, full: bool) -> list[Block]:
    end = len(view.page) - TAIL_SIZE
    extents = entry_extents(view.page)
    return [
        Block(at, stop, list(_entry_lines(view.page, at, min(stop, end), slot, full))) for at, stop, slot in extents
    ]


def _entry_lines(page: bytes, offset: int, end: int, slot: int, full: bool) -> Iterator[Line]:
    is_leaf = BTREE_NODE.at(page, NODE_AT).level == 0
    yield from row_head_lines(view_row(page, slot, offset, None), f"entry {slot}", full)
    entry = btree_entry(page, offset, end, slot, is_leaf)
    at = offset + header_size(entry["col_count"])
    if at + POINTER_SIZE > end:
        yield section_line(None, "", "(cut short)")
        return
    if is_leaf:
        yield section_line(at, "", "row_id", entry["row_id"])
    else:
        yield section_line(at, "", "child page", str(entry["child_page"]), page_name(entry["child_page"]))
    key = page[at + POINTER_SIZE : end]
    yield from byte_lines(key, at + POINTER_SIZE, {0: "key columns"} if key else None, full)
