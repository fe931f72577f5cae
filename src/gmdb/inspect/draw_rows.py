"""The rows of a heap page, each with its header, its bytes and its values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gmdb.format.page import TAIL_SIZE
from gmdb.format.row import BITS_AT, COL_COUNT_AT, NO_LOCK, SIZE_AT
from gmdb.inspect.canvas import BYTES_PER_LINE, Block, Line, byte_lines, section_line
from gmdb.inspect.page_view import PageView
from gmdb.inspect.row_view import NO_LOCK_BEFORE, RowView

FLAGS_AT = 3
COLUMNS_NAMED = 8
TEXT_SHOWN = 60
_CODE_NAMES = ("null", "4 bytes", "8 bytes", "variable")


def row_blocks(view: PageView, full: bool) -> list[Block]:
    end = len(view.page) - TAIL_SIZE
    return [
        Block(row.offset, row.values_at + len(row.raw), list(row_lines(row, f"row {row.slot}", end, full)))
        for row in view.rows
    ]


def row_lines(row: RowView, section: str, page_end: int, full: bool) -> Iterator[Line]:
    yield from row_head_lines(row, section, full)
    raw = row.raw[: max(page_end - row.values_at, 0)]
    yield from byte_lines(raw, row.values_at, _values_beside(row), full)


def row_head_lines(row: RowView, section: str, full: bool) -> Iterator[Line]:
    at = row.offset
    yield section_line(at, section, "lock_id", str(row.lock_id), "none" if row.lock_id == NO_LOCK else "")
    if row.lock_word == NO_LOCK_BEFORE:
        yield section_line(at + FLAGS_AT, "", "flags", "255", "no lock before")
    else:
        yield section_line(at + FLAGS_AT, "", "flags", str(int(row.flags)), ", ".join(row.flag_names) or "none")
    yield section_line(at + SIZE_AT, "", "size", str(row.size))
    yield section_line(at + COL_COUNT_AT, "", "col_count", str(row.col_count))
    yield section_line(at + BITS_AT, "", "bit_array", str(row.bit_array), _bits_in_words(row))
    if row.further_bits:
        yield from byte_lines(row.further_bits, at + BITS_AT + 4, {0: "further size bits"}, full)


def _bits_in_words(row: RowView) -> str:
    codes = [row.bit_array >> 2 * n & 3 for n in range(min(row.col_count, COLUMNS_NAMED))]
    words = ", ".join(_CODE_NAMES[code] for code in codes)
    return words + (", …" if row.col_count > COLUMNS_NAMED else "")


def _values_beside(row: RowView) -> dict[int, str]:
    """Each value, beside the line of hexadecimal that it starts on."""
    if row.target is not None:
        return {0: f"moved to {row.target}"}
    if row.problem:
        return {0: f"unreadable: {row.problem}"}
    last = max((len(row.raw) - 1) // BYTES_PER_LINE, 0)
    beside: dict[int, str] = {}
    for cell in row.cells or ():
        line = min((cell.offset - row.values_at) // BYTES_PER_LINE, last)
        text = f"{cell.name} = {value_text(cell.value)}"
        beside[line] = f"{beside[line]}, {text}" if line in beside else text
    return beside


def value_text(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bytes):
        text = f"x'{value.hex()}'"
    else:
        text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= TEXT_SHOWN else f"{text[:TEXT_SHOWN]}…"
