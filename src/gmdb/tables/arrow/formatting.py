"""Rows of record batches onto heap pages in a buffer.  It needs no open database: tasks of bulk loads do it, too.

Not here: where the pages go (append.py), files of pages that are to be taken in later (staging.py).
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import NoReturn

from gmdb.errors import ValueTooLong
from gmdb.format.address import NO_PAGE, NO_SLOT
from gmdb.format.columns import Column, Kind
from gmdb.format.heap import HEAP_NODE, ROWS_AT, reserve_size, row_too_large
from gmdb.format.page import HEAD_SIZE, PAGE_HEAD, TAIL_SIZE, PageType, SegmentType
from gmdb.format.row import UNLOCKED
from gmdb.kernel.change.bulk_pages import FORMATTING, format_rows, start_pages
from gmdb.kernel.row import ARROW_COLUMN
from gmdb.kernel.runtime.status import TOO_LONG
from gmdb.process.late_imports import numpy as np
from gmdb.process.late_imports import pyarrow as pa


def new_page(page_size: int, obj_id: int = 0, load_number: int = 0) -> np.ndarray:
    """The head and node head of an empty page of a load; a place it gets later."""
    head = PAGE_HEAD.pack(
        obj_id=obj_id,
        page_create_no=1,
        chg_num=1,
        seg_type=SegmentType.HEAP,
        page_type=PageType.DATA,
        mirror_page=NO_PAGE,
        next_ckpt_page=NO_PAGE,
        data_begin=HEAD_SIZE,
        free_begin=ROWS_AT,
        free_end=page_size - TAIL_SIZE,
        reserve=list(load_number.to_bytes(8, "little") + bytes(7)),
    )
    return np.frombuffer(bytearray(head + HEAP_NODE.pack(next=NO_PAGE, free_slot=NO_SLOT)), np.uint8)


class PageFormatter:
    """Puts rows onto pages, a buffer of pages at a time."""

    def __init__(
        self, table: str, columns: Sequence[Column], page_size: int, pct_free: int, template: np.ndarray
    ) -> None:
        """``template``: what a new page begins with."""
        self.page_size = page_size
        self.row_count = 0  # of the batches before this one
        self.is_started = False  # whether the buffer has a page
        self._table, self._columns = table, columns
        self._template = template
        self._arrays: list[pa.Array] = []
        self._fields = np.zeros(len(columns), ARROW_COLUMN)
        self._state = np.zeros(1, FORMATTING)
        for entry, column in zip(self._fields, columns, strict=True):
            entry["kind"] = column.type.kind
            entry["length_max"] = column.type.in_row_max
            entry["padding"] = column.type.padding[0] if column.type.padding else -1
        state = self._state[0]
        state["template"] = template.ctypes.data
        state["page_size"] = page_size
        state["reserve"] = reserve_size(page_size, pct_free)
        state["column_count"] = len(columns)
        state["columns"] = self._fields.ctypes.data

    @property
    def address(self) -> int:
        """Where kernels find what is to be put on pages, and which."""
        return self._state.ctypes.data

    def start(self, buffer: np.ndarray) -> None:
        """Rows go to pages in this buffer from now on."""
        state = self._state[0]
        state["pages"] = buffer.ctypes.data
        state["page"] = 0
        state["page_count"] = len(buffer) // self.page_size
        state["lock_word"] = UNLOCKED
        start_pages(self.address)
        self.is_started = True

    def end(self) -> int:
        """End the buffer's last page; returns how many pages have rows."""
        count = int(self._state["page"][0]) + 1 if self.is_started else 0
        self.is_started = False
        return count

    def point_at(self, arrays: Sequence[pa.Array]) -> None:
        """Take rows out of these columns, one each of the table's, in the types that it stores."""
        self._arrays = list(arrays)  # kernels know only where they are: they must not go meanwhile
        for entry, array in zip(self._fields, arrays, strict=True):
            buffers = [buffer.address if buffer is not None else 0 for buffer in array.buffers()]
            entry["first"] = array.offset
            entry["validity"] = buffers[0] if array.null_count else 0
            variable = entry["kind"] in (Kind.TEXT, Kind.BYTES)
            entry["offsets"] = buffers[1] if variable else 0
            entry["values"] = buffers[2] if variable else buffers[1]

    def add(self, first: int, count: int) -> int:
        """Put rows from number ``first`` of the columns on onto pages; returns how many found room."""
        placed = format_rows(self.address, first, count)
        if placed < 0:
            self.refuse(placed)
        return placed

    def refuse(self, status: int) -> NoReturn:
        """A row cannot be put on a page: say which, and why."""
        state = self._state[0]
        row = self.row_count + int(state["error_row"])
        if status == TOO_LONG:
            column = self._columns[int(state["error_column"])]
            entry = self._fields[int(state["error_column"])]
            at = int(entry["offsets"]) + 4 * (int(entry["first"]) + int(state["error_row"]))
            start, end = (ctypes.c_int32 * 2).from_address(at)
            where = f"table {self._table}, column {column.name}, row {row}"
            raise ValueTooLong(f"{where}: a value of {end - start} bytes is too long for {column.type}")
        raise row_too_large(self._table, int(state["error_size"]), self.page_size, f", row {row}")
