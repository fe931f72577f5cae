"""Large objects: values that are on pages of a lob segment, where they are too long for their row.

A row's cell of a BLOB or CLOB begins with a byte that says where the value is: behind it, or where a locator leads to.
A cell of TEXT, BYTEA or a long VARCHAR or VARBINARY is the value itself, or a locator that begins with what no text
begins with; bytes that look like one are on pages, too.

On pages a value is a tree.  Its first page, by which it is known, is the root: if that is all, it has the bytes; else
it lists the pages of the level below, in order.  All pages of level 0 but the last are full, so that the page of any
byte is found by division.

Invariants
 1. The first page stays the first page, however the value grows: a level more goes in beneath it.
 2. Each page names its value's first page, its level, and which page of that level it is.
Not here: who needs a value (kernel/lob.py, transaction/).
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import Any, NamedTuple

from gmdb.errors import DataError, ValueTooLong
from gmdb.format.address import page_name
from gmdb.format.layout import Finding, Region, layout
from gmdb.format.page import HEAD_SIZE, PAGE_HEAD, TAIL_SIZE
from gmdb.process.late_imports import numpy as np

LOB_MAX = 1 << 32  # bytes of a value
INLINE_MAX = 1000  # bytes of a value that a row keeps itself
INLINE_TOTAL = 4000  # so many at most in all of a row's large objects together
TEXT_IN_ROW_MAX = 4000  # bytes of a TEXT or BYTEA that a row keeps itself
LEVEL_MAX = 2


class LobPlace(IntEnum):
    """Where a value is: the first byte of its cell in the row."""

    HERE = 0
    ON_PAGES = 1


LOB_LOCATOR = layout(
    "lob locator",
    16,
    place=("u1", "1: the value is on pages"),
    reserved=("3u1", "0"),
    first_page=("<u4", "the value's first page"),
    length=("<u8", "bytes of the value"),
)

# Of a TEXT or BYTEA: its first bytes are in no UTF-8, and its last ones make it unlike any other value.
TEXT_LOCATOR = layout(
    "text locator",
    24,
    place=("u1", "255: the value is on pages"),
    mark=("3u1", "193, 254, 192"),
    first_page=("<u4", "the value's first page"),
    length=("<u8", "bytes of the value"),
    more_mark=("<u8", "0x9D1F6E35C8A20B47"),
)
TEXT_MARK = (0xFF, 0xC1, 0xFE, 0xC0)
TEXT_MORE_MARK = 0x9D1F6E35C8A20B47

LOB_NODE = layout(
    "lob node head",
    24,
    first_page=("<u4", "the value's first page; this one, if it is that"),
    number=("<u4", "which of the value's pages of its level it is, counted from 0"),
    length=("<u8", "of the first page: bytes of the value; else 0"),
    level=("u1", "0: the page has bytes of the value; above: ids of pages of the level below, 4 bytes each"),
    reserved=("7u1", "0"),
)

NODE_AT = HEAD_SIZE
DATA_AT = NODE_AT + LOB_NODE.size
ID_SIZE = 4
CELL_MAX = 1 + INLINE_MAX
_TEXT_MARK, _TEXT_MORE_MARK = bytes(TEXT_MARK), TEXT_MORE_MARK.to_bytes(8, "little")


class LobSegment(NamedTuple):
    """The segment of a table's large objects."""

    obj_id: int
    entry_page: int


class Locator(NamedTuple):
    """Where a value on pages is."""

    first_page: int
    length: int


def capacity(page_size: int) -> int:
    """Bytes of a value that a page takes."""
    return page_size - DATA_AT - TAIL_SIZE


def fan_out(page_size: int) -> int:
    """Pages that a page lists."""
    return capacity(page_size) // ID_SIZE


def page_counts(length: int, page_size: int) -> list[int]:
    """How many pages of each level a value has, from level 0 on."""
    counts = [max(-(-length // capacity(page_size)), 1)]
    while counts[-1] > 1:
        counts.append(-(-counts[-1] // fan_out(page_size)))
    return counts


# ---- cells of rows


def encode_cell(value: bytes | Locator) -> bytes:
    if isinstance(value, Locator):
        return LOB_LOCATOR.pack(place=LobPlace.ON_PAGES, first_page=value.first_page, length=value.length)
    if len(value) > INLINE_MAX:
        raise ValueTooLong(f"a row takes {INLINE_MAX} bytes of a large object, not {len(value)}")
    return b"\0" + value


def decode_cell(cell: bytes) -> bytes | Locator:
    if len(cell) == LOB_LOCATOR.size and cell[0] == LobPlace.ON_PAGES:
        return Locator(int.from_bytes(cell[4:8], "little"), int.from_bytes(cell[8:16], "little"))
    if not cell or cell[0] != LobPlace.HERE:
        raise DataError(f"{cell[:40].hex()} is not a cell of a large object")
    return cell[1:]


def encode_text_locator(value: Locator) -> bytes:
    """The cell of a TEXT or BYTEA that is on pages."""
    return TEXT_LOCATOR.pack(
        place=TEXT_MARK[0],
        mark=list(TEXT_MARK[1:]),
        first_page=value.first_page,
        length=value.length,
        more_mark=TEXT_MORE_MARK,
    )


def is_text_locator(cell: bytes) -> bool:
    """Whether the cell of a TEXT, without its NUL, or of a BYTEA says where the value is."""
    return len(cell) == TEXT_LOCATOR.size and cell[:4] == _TEXT_MARK and cell[16:] == _TEXT_MORE_MARK


def text_locator(cell: bytes) -> Locator:
    return Locator(int.from_bytes(cell[4:8], "little"), int.from_bytes(cell[8:16], "little"))


# ---- pages


def _end(page: Any) -> int:
    """Where what the page holds ends, as far as that can be so."""
    return max(DATA_AT, min(PAGE_HEAD.at(page).free_begin, len(memoryview(page)) - TAIL_SIZE))


def listed_pages(page: Any) -> np.ndarray:
    """The pages of the level below that a page lists."""
    return np.frombuffer(bytes(memoryview(page)[DATA_AT : _end(page)]), "<u4", (_end(page) - DATA_AT) // ID_SIZE)


def regions(page: Any) -> Iterator[Region]:
    yield from LOB_NODE.regions(page, NODE_AT, "node.")
    if LOB_NODE.at(page, NODE_AT).level:
        for n, page_id in enumerate(listed_pages(page).tolist()):
            yield Region(DATA_AT + n * ID_SIZE, ID_SIZE, f"pages[{n}]", page_id, f"page {page_name(page_id)}")
    elif _end(page) > DATA_AT:
        data = bytes(memoryview(page)[DATA_AT : _end(page)])
        yield Region(DATA_AT, len(data), "value", data.hex(), "bytes of the value")


def check(page: Any) -> Iterator[Finding]:
    head, node, size = PAGE_HEAD.at(page), LOB_NODE.at(page, NODE_AT), len(memoryview(page))
    if head.data_begin != NODE_AT:
        yield Finding(PAGE_HEAD.offset("data_begin"), f"data_begin should be {NODE_AT}")
    if head.free_end != size - TAIL_SIZE:
        yield Finding(PAGE_HEAD.offset("free_end"), f"free_end should be {size - TAIL_SIZE}")
    if not DATA_AT <= head.free_begin <= size - TAIL_SIZE:
        yield Finding(PAGE_HEAD.offset("free_begin"), f"free_begin {head.free_begin} lies outside of the page's room")
    elif node.level and (head.free_begin - DATA_AT) % ID_SIZE:
        yield Finding(PAGE_HEAD.offset("free_begin"), f"free_begin {head.free_begin} is within a page id")
    if node.level > LEVEL_MAX:
        yield Finding(NODE_AT + LOB_NODE.offset("level"), f"level {node.level}; there are {LEVEL_MAX + 1}")
    if node.length > LOB_MAX or (node.length and node.first_page != head.page_id):
        yield Finding(NODE_AT + LOB_NODE.offset("length"), f"length {node.length} cannot be this page's")
