"""Append record batches to a heap.

Invariants
 1. Until ``finish`` nothing in the database refers to what was appended: rows for the last page go to a copy of
    it, new pages to the file above the high-water mark.  Whatever fails before leaves no trace.
 2. Memory is bounded by the batch and a buffer of some pages, not by the table.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa

from gmdb.access.heap import Heap, row_too_large
from gmdb.arrow.schema import batches_of, fit_batch
from gmdb.errors import SpaceFull, ValueTooLong
from gmdb.format.address import NO_PAGE, OFFSET_BITS, device_of, offset_of, page_id_of
from gmdb.format.columns import Kind
from gmdb.format.heap import HEAP_NODE, ROWS_AT, reserve_size
from gmdb.format.page import HEAD_SIZE, PAGE_HEAD, TAIL_SIZE, PageType
from gmdb.format.segment import MAP_HEAD, map_capacity, map_head_at
from gmdb.kernel.append import FORMATTING, PLACE, format_rows, start_pages
from gmdb.kernel.bulk import PLAN, adopt_pages, plan_pages, replace_page
from gmdb.kernel.checkpoint import seal_run
from gmdb.kernel.columns import ARROW_COLUMN
from gmdb.kernel.scan import measure_pages
from gmdb.kernel.status import TOO_LONG
from gmdb.storage.device import Device

BUFFER_SIZE = 1 << 20


def append(heap: Heap, data: Any) -> int:
    """Append all rows of ``data``, or none; answers how many."""
    store = heap.segment.store
    with store.guard:
        store.require_writable()
        store.loading = True
        try:
            load = _Load(heap)
            load.add_all(batches_of(data))
            return load.finish()
        finally:
            store.loading = False


class _Load:
    def __init__(self, heap: Heap) -> None:
        self._heap = heap
        self._segment, self._store = heap.segment, heap.segment.store
        self._page_size = heap.segment.space.page_size
        self._page_count = BUFFER_SIZE // self._page_size
        self._buffer = np.zeros(BUFFER_SIZE, np.uint8)
        self._places = np.zeros(self._page_count, PLACE)
        self._columns = np.zeros(len(heap.columns), ARROW_COLUMN)
        self._state = np.zeros(1, FORMATTING)
        self._plan = np.zeros(1, PLAN)
        self._rows = 0
        self._adopted: list[np.ndarray] = []
        self._topped_up: bytes | None = None
        self._last_page: int = heap.segment.head.last_page
        self._template = np.frombuffer(self._new_page_head(), np.uint8)
        self._describe()
        self._start_plan()
        self._start_buffer()

    # ---- getting ready

    def _new_page_head(self) -> bytearray:
        head = PAGE_HEAD.pack(
            obj_id=self._heap.obj_id,
            page_create_no=1,
            chg_num=1,
            seg_type=self._segment.head.type,
            page_type=PageType.DATA,
            mirror_page=NO_PAGE,
            next_ckpt_page=NO_PAGE,
            data_begin=HEAD_SIZE,
            free_begin=ROWS_AT,
            free_end=self._page_size - TAIL_SIZE,
        )
        return bytearray(head + HEAP_NODE.pack(next=NO_PAGE, free_slot=0xFFFF))

    def _describe(self) -> None:
        for entry, column in zip(self._columns, self._heap.columns, strict=True):
            entry["kind"] = column.type.kind
            entry["length_max"] = column.type.length
            entry["padding"] = column.type.padding[0] if column.type.padding else -1
        state = self._state[0]
        state["pages"] = self._buffer.ctypes.data
        state["page_count"] = self._page_count
        state["places"] = self._places.ctypes.data
        state["template"] = self._template.ctypes.data
        state["page_size"] = self._page_size
        state["reserve"] = reserve_size(self._page_size, self._segment.head.pct_free)
        state["column_count"] = len(self._columns)
        state["columns"] = self._columns.ctypes.data

    def _start_plan(self) -> None:
        """Go on where the segment's map ends."""
        map_page = self._segment.head.last_map_page
        page = self._store.devices[device_of(map_page)].memory(offset_of(map_page))
        head = MAP_HEAD.at(page, map_head_at(page))
        self._device = self._segment.space.devices[0]
        plan = self._plan[0]
        plan["next_page"] = page_id_of(self._device.number, self._device.head.hwm)
        plan["map_page"] = map_page
        plan["map_count"], plan["map_capacity"] = head.map_count, head.map_capacity
        plan["further_capacity"] = map_capacity(self._page_size, is_entry_page=False)

    def _start_buffer(self) -> None:
        """The first page of the buffer: a copy of the segment's last page, or a new one."""
        if self._last_page == NO_PAGE:
            self._plan_round()
            return
        ids, sizes = np.array([self._last_page], np.uint32), np.zeros(2, np.int64)
        self._store.call(measure_pages, 0, ids.ctypes.data, 1, sizes.ctypes.data)  # checks the page
        memory = self._store.devices[device_of(self._last_page)].memory(offset_of(self._last_page))
        self._buffer[: self._page_size] = np.frombuffer(memory, np.uint8)
        self._topping_up = True
        self._plan_pages(1)

    _topping_up = False

    # ---- rows

    def add_all(self, batches: Iterable[pa.RecordBatch]) -> None:
        for batch in batches:
            arrays = fit_batch(self._heap.name, self._heap.columns, batch, self._rows)
            self._point_at(arrays)
            self._add(len(batch))

    def _point_at(self, arrays: Sequence[pa.Array]) -> None:
        for entry, array in zip(self._columns, arrays, strict=True):
            buffers = [buffer.address if buffer is not None else 0 for buffer in array.buffers()]
            entry["first"] = array.offset
            entry["validity"] = buffers[0] if array.null_count else 0
            variable = entry["kind"] in (Kind.TEXT, Kind.BYTES)
            entry["offsets"] = buffers[1] if variable else 0
            entry["values"] = buffers[2] if variable else buffers[1]

    def _add(self, count: int) -> None:
        done = 0
        while done < count:
            placed = format_rows(self._state.ctypes.data, done, count - done)
            if placed < 0:
                self._refuse(placed)
            done += placed
            if done < count:
                self._write_round()
                self._plan_round()
        self._rows += count

    def _refuse(self, status: int) -> NoReturn:
        state = self._state[0]
        row = self._rows + int(state["error_row"])
        if status == TOO_LONG:
            column = self._heap.columns[int(state["error_column"])]
            entry = self._columns[int(state["error_column"])]
            at = int(entry["offsets"]) + 4 * (int(entry["first"]) + int(state["error_row"]))
            start, end = (ctypes.c_int32 * 2).from_address(at)
            where = f"table {self._heap.name}, column {column.name}, row {row}"
            raise ValueTooLong(f"{where}: a value of {end - start} bytes is too long for {column.type}")
        raise row_too_large(self._heap.name, int(state["error_size"]), self._page_size, f", row {row}")

    # ---- pages

    def _plan_round(self) -> None:
        self._plan_pages(0)
        start_pages(self._state.ctypes.data)

    def _plan_pages(self, kept: int) -> None:
        """Choose places for the buffer's pages, but for the first ``kept``; for fewer where a device runs full."""
        count = self._room_for(self._page_count - kept)
        plan_pages(self._plan.ctypes.data, self._places[kept:].ctypes.data, count)
        self._state["page"] = 0
        self._state["page_count"] = kept + count

    def _room_for(self, wanted: int) -> int:
        """How many of the wanted pages the device can take; grow it, or go on to the tablespace's next."""
        devices = self._segment.space.devices
        count = wanted
        while True:
            need = count + count // int(self._plan["further_capacity"][0]) + 1  # map pages come from the same device
            missing = offset_of(int(self._plan["next_page"][0])) + need - self._device.page_count
            if missing <= 0:
                return count
            try:
                self._device.grow(missing)
            except SpaceFull:
                if count > 1:
                    count //= 2
                    continue
                following = devices.index(self._device) + 1
                if following == len(devices):
                    raise
                self._device = devices[following]
                self._plan["next_page"] = page_id_of(self._device.number, self._device.head.hwm)
                count = wanted

    def _write_round(self) -> None:
        """Write the pages of the buffer that have rows; the copy of the last page is kept for ``finish``."""
        count = int(self._state["page"][0]) + 1
        first = 0
        if self._topping_up:
            self._topped_up = self._buffer[: self._page_size].tobytes()
            self._topping_up = False
            first = 1
        if first == count:
            return
        places = self._places[first:count].copy()
        self._adopted.append(places)
        pages = self._buffer[first * self._page_size : count * self._page_size]
        seal_run(pages.ctypes.data, len(places), self._page_size, self._store.control["ckpt_id"] + 1)
        breaks = np.flatnonzero(np.diff(places["page_id"].astype(np.int64)) != 1) + 1
        for run in np.split(np.arange(len(places)), breaks):
            start, end = int(run[0]), int(run[-1]) + 1
            page_id = int(places["page_id"][start])
            device: Device = self._store.devices[page_id >> OFFSET_BITS]
            device.write_new(offset_of(page_id), pages[start * self._page_size : end * self._page_size])

    def finish(self) -> int:
        """Enter everything into the segment."""
        if self._rows == 0:
            return 0
        self._write_round()
        entry, space_id = self._segment.entry_page, self._segment.space.space_id
        if self._topped_up is not None:
            image = np.frombuffer(self._topped_up, np.uint8)
            self._store.call(replace_page, space_id, entry, self._last_page, image.ctypes.data)
        if self._adopted:
            places = np.concatenate(self._adopted)
            self._store.call(adopt_pages, space_id, entry, places.ctypes.data, len(places))
        return self._rows
