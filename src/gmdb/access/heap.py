"""A heap: the rows of one table, by row id.

The row id that ``insert`` gives out leads to the row for as long as it lives, however often it grows and moves.
Not here: many rows at once (arrow/).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import numpy as np

from gmdb.errors import NoSuchRow, RowTooLarge
from gmdb.format.address import RowId
from gmdb.format.columns import Column
from gmdb.format.heap import row_size_max
from gmdb.format.page import PAGE_SIZES
from gmdb.format.row import decode_row, encode_row
from gmdb.kernel.heap import compact_page, delete_row, fetch_row, insert_row, list_rows, update_row
from gmdb.kernel.status import ROW_TOO_LARGE
from gmdb.storage.segment import Segment

_BUFFER_SIZE = 1 << 16  # a row's size is a u16


def row_too_large(table: str, size: int, page_size: int, where: str = "") -> RowTooLarge:
    """The error for a row that no page of its tablespace takes, naming what would."""
    larger = [str(n) for n in PAGE_SIZES if n > page_size and size <= row_size_max(n)]
    advice = f"put the table into a tablespace of {' or '.join(larger)}-byte pages, or " if larger else ""
    return RowTooLarge(
        f"table {table}{where}: the row has {size} bytes, a page of {page_size} takes {row_size_max(page_size)}; "
        f"{advice}keep large values as LOBs"
    )


class Heap:
    """Each call holds the store's guard, so threads may share a heap; a row is changed whole or not at all."""

    def __init__(self, name: str, obj_id: int, segment: Segment, columns: Sequence[Column]) -> None:
        self.name = name
        self.obj_id = obj_id
        self.segment = segment
        self.columns = tuple(columns)
        self._buffer = np.zeros(_BUFFER_SIZE, np.uint8)
        self._bytes = self._buffer.data
        self._address = self._buffer.ctypes.data

    def insert(self, values: Sequence[Any]) -> RowId:
        """Add a row, values in column order; answers the row id that it keeps for life."""
        with self._changing():
            size = self._encode(values)
            place = self._call(insert_row, self.segment.entry_page, self._address, size)
        if place < 0:
            self._refuse(place, size=size)
        return RowId(place >> 16, place & 0xFFFF)

    def fetch(self, row_id: RowId) -> tuple[Any, ...]:
        """The row's values; NoSuchRow if it is deleted or never was."""
        with self.segment.store.guard:
            self.segment.store.require_open()
            size = self._call(fetch_row, self.obj_id, row_id.page_id, row_id.slot_id, self._address)
            row = bytes(self._bytes[: max(size, 0)])
        if size < 0:
            self._refuse(size, row_id)
        return decode_row(self.columns, row)

    def update(self, row_id: RowId, values: Sequence[Any]) -> None:
        """Give the row new values; it moves within its page or to another if it must."""
        with self._changing():
            size = self._encode(values)
            status = self._call(
                update_row, self.obj_id, self.segment.entry_page, row_id.page_id, row_id.slot_id, self._address, size
            )
        if status < 0:
            self._refuse(status, row_id, size)

    def delete(self, row_id: RowId) -> None:
        """Flag the row as deleted."""
        with self._changing():
            status = self._call(delete_row, self.obj_id, row_id.page_id, row_id.slot_id)
        if status < 0:
            self._refuse(status, row_id)

    def compact(self, page_id: int) -> None:
        """Remove the page's deleted rows for good and slide the others together."""
        with self._changing():
            self._call(compact_page, self.segment.entry_page, page_id)

    def rows(self) -> Iterator[tuple[RowId, tuple[Any, ...]]]:
        """Every row with its row id, in page order."""
        slots = np.empty(PAGE_SIZES[-1] // 2, np.uint16)
        for page_id in self.segment.page_ids().tolist():
            with self.segment.store.guard:
                count = self._call(list_rows, page_id, slots.ctypes.data)
                found = [RowId(page_id, slot) for slot in slots[:count].tolist()]
                values = [self.fetch(row_id) for row_id in found]
            yield from zip(found, values, strict=True)

    @contextmanager
    def _changing(self) -> Iterator[None]:
        with self.segment.store.guard:
            self.segment.store.require_writable()
            yield

    def _encode(self, values: Sequence[Any]) -> int:
        row = encode_row(self.columns, values)
        self._bytes[: len(row)] = row
        return len(row)

    def _call(self, kernel: Any, *arguments: int) -> int:
        return self.segment.store.call(kernel, self.segment.space.space_id, *arguments)

    def _refuse(self, status: int, row_id: RowId | None = None, size: int = 0) -> NoReturn:
        if status == ROW_TOO_LARGE:
            raise row_too_large(self.name, size, self.segment.space.page_size)
        raise NoSuchRow(f"table {self.name} has no row {row_id}: it was deleted, or the row id is wrong")
