"""Append record batches to a heap, as one statement.

The first rows fill up the table's last page, under an insert lock; all others go to new pages, which carry the
transaction's number instead of locks.

Invariants
 1. A page is in the file before a scan can be led to it, and before its image is logged.
 2. Memory is bounded by the batch and a buffer of some pages, not by the table.
 3. The guard is not held while rows are formatted or written, nor while the source is asked for more.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa

from gmdb.access.heap import Heap, row_too_large
from gmdb.access.runs import KeyTooLong, sorted_runs
from gmdb.arrow.lobs import cells_of
from gmdb.arrow.schema import batches_of, fit_batch
from gmdb.errors import SpaceFull, ValueTooLong
from gmdb.format.address import NO_PAGE, OFFSET_BITS, UNDO_DEVICE, RowId, device_of, offset_of
from gmdb.format.columns import Kind
from gmdb.format.heap import HEAP_NODE, ROWS_AT, reserve_size
from gmdb.format.lob import CELL_MAX
from gmdb.format.page import HEAD_SIZE, PAGE_HEAD, TAIL_SIZE, PageType
from gmdb.format.row import NO_LOCK, UNLOCKED
from gmdb.kernel.append import FORMATTING, format_rows, start_pages
from gmdb.kernel.bulk import PLACE, enter_run, log_pages, publish_pages, reserve_pages, stamp_pages, top_up_page
from gmdb.kernel.checkpoint import seal_run
from gmdb.kernel.columns import ARROW_COLUMN
from gmdb.kernel.status import LOCKS_FULL, LOG_FULL, NEED_SPACE, TOO_LONG, UNDO_FULL
from gmdb.transaction.call import INSERT_LOCK

BUFFER_SIZE = 1 << 20
ENTER_SIZE = 32 << 20  # bytes of pages whose rows are entered into indexes together, sorted by their keys


def append(heap: Heap, data: Any) -> int:
    """Append all rows of ``data``, or none; answers how many."""
    heap.segment.store.require_writable()
    batches = batches_of(data)
    heap.share()
    with heap.session.statement():
        load = _Load(heap)
        load.add_all(batches)
        return load.finish()


class _Load:
    def __init__(self, heap: Heap) -> None:
        self._heap, self._session = heap, heap.session
        self._segment, self._store = heap.segment, heap.segment.store
        self._hub = heap.session.hub
        self._page_size = heap.segment.space.page_size
        self._page_count = BUFFER_SIZE // self._page_size
        self._buffer = np.zeros(BUFFER_SIZE, np.uint8)
        self._columns = np.zeros(len(heap.columns), ARROW_COLUMN)
        self._state = np.zeros(1, FORMATTING)
        self._rows = 0
        self._started = False  # whether the buffer has a page
        self._last_page = NO_PAGE
        self._to_enter: list[int] = []  # pages whose rows the indexes do not have yet
        with self._hub.guard:
            slot = self._session.begin_if_needed()
            self._number = self._hub.memory.enter_load(slot, self._session.statement_number)
        self._template = np.frombuffer(self._new_page_head(), np.uint8)
        self._describe()

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
            reserve=list(self._number.to_bytes(8, "little") + bytes(7)),
        )
        return bytearray(head + HEAP_NODE.pack(next=NO_PAGE, free_slot=0xFFFF))

    def _describe(self) -> None:
        for entry, column in zip(self._columns, self._heap.columns, strict=True):
            entry["kind"] = column.type.kind
            entry["length_max"] = CELL_MAX if column.type.is_lob else column.type.length
            entry["padding"] = column.type.padding[0] if column.type.padding else -1
        state = self._state[0]
        state["template"] = self._template.ctypes.data
        state["page_size"] = self._page_size
        state["reserve"] = reserve_size(self._page_size, self._segment.head.pct_free)
        state["column_count"] = len(self._columns)
        state["columns"] = self._columns.ctypes.data

    def _start_buffer(self) -> None:
        state = self._state[0]
        state["pages"] = self._buffer.ctypes.data
        state["page"] = 0
        state["page_count"] = self._page_count
        state["lock_word"] = UNLOCKED
        start_pages(self._state.ctypes.data)
        self._started = True

    # ---- rows

    def add_all(self, batches: Iterable[pa.RecordBatch]) -> None:
        for batch in batches:
            self._session.check_interrupted()
            arrays = fit_batch(self._heap.name, self._heap.columns, batch, self._rows)
            if self._heap.lobs is not None:
                for n in self._heap.lobs.positions:
                    arrays[n] = cells_of(self._heap.lobs, self._heap.columns[n], arrays[n])
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
        if not self._started:
            done = self._top_up(count)
            if done < count:
                self._start_buffer()
        while done < count:
            placed = format_rows(self._state.ctypes.data, done, count - done)
            if placed < 0:
                self._refuse(placed)
            done += placed
            if done < count:
                self._write_round()
                self._start_buffer()
        self._rows += count

    def _top_up(self, count: int) -> int:
        """Put rows on the page where the table, or this transaction's own append before, ended."""
        own = self._session.last_page_loaded(self._segment.entry_page)
        page_id = own if own is not None else self._segment.head.last_page
        if page_id == NO_PAGE or count == 0:
            return 0
        call = self._session.call_address
        arguments = (call, self._state.ctypes.data, self._heap.obj_id, self._segment.entry_page, page_id, count)
        space_id = self._segment.space.space_id
        first = self._slot_count(page_id)
        placed = self._session.change(top_up_page, space_id, None, arguments)
        if placed < 0:
            self._session.keep_result()
            self._refuse(placed)
        if self._heap.indexes:
            self._enter([page_id], first, self._session.call[INSERT_LOCK])
        return placed

    def _slot_count(self, page_id: int) -> int:
        page = self._store.devices[device_of(page_id)].memory(offset_of(page_id))
        return int(HEAP_NODE.at(page, HEAD_SIZE).slot_count)

    def _enter(self, pages: list[int], first_slot: int, lock_id: int) -> None:
        """Enter the rows that were put on some pages, from a slot of the first on, into the table's indexes."""
        store, obj_id, space_id = self._store, self._heap.obj_id, self._segment.space.space_id
        form = np.array([0, self._session.slot, self._session.statement_number], np.int64)
        for number, index in enumerate(self._heap.indexes):
            try:
                for run in sorted_runs(store, obj_id, index.entry_page, np.array(pages), first_slot, form):
                    arguments = (self._heap.target, number, run.fields.ctypes.data, lock_id)
                    done = 1
                    while done:
                        done = self._session.change(enter_run, space_id, None, arguments)
                        if done < 0:
                            self._heap.refuse_if_failed(done, RowId(pages[0], 0))
            except KeyTooLong:
                self._heap.refuse_key(number)

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

    def _write_round(self) -> None:
        """Give the buffer's pages places, write them to the file, and let scans know of them."""
        self._session.check_interrupted()
        count = int(self._state["page"][0]) + 1
        places = np.zeros(count, PLACE)
        self._reserve(places)
        stamp_pages(self._buffer.ctypes.data, self._page_size, places.ctypes.data, count)
        seal_run(self._buffer.ctypes.data, count, self._page_size, self._store.control["ckpt_id"] + 1)
        self._store.keep_images(places["page_id"])
        breaks = np.flatnonzero(np.diff(places["page_id"].astype(np.int64)) != 1) + 1
        for run in np.split(np.arange(count), breaks):
            start, end = int(run[0]), int(run[-1]) + 1
            page_id = int(places["page_id"][start])
            data = self._buffer[start * self._page_size : end * self._page_size]
            self._store.devices[page_id >> OFFSET_BITS].write_new(offset_of(page_id), data)
        self._log(count)
        with self._hub.guard:
            space_id = self._segment.space.space_id
            self._store.call(publish_pages, space_id, self._segment.entry_page, places.ctypes.data, count)
        self._last_page = int(places["page_id"][-1])
        self._started = False
        self._to_enter += places["page_id"].tolist()
        if len(self._to_enter) * self._page_size >= ENTER_SIZE:
            self._enter_pages()

    def _enter_pages(self) -> None:
        """Enter the rows of the pages that were written since the last time into the table's indexes."""
        pages, self._to_enter = self._to_enter, []
        if pages and self._heap.indexes:
            self._enter(pages, 0, NO_LOCK)

    def _log(self, count: int) -> None:
        """Log the pages' images.  They are in the file by now, so that a checkpoint that ends later has synced them."""
        done = 0
        while done < count:
            pages = self._buffer.ctypes.data + done * self._page_size
            with self._hub.guard:
                done += self._store.call(log_pages, 0, self._number, pages, self._page_size, count - done)

    def _reserve(self, places: np.ndarray) -> None:
        """Places for the buffer's pages: on the first device that has room for them all, or a part on each."""
        done = 0
        while done < len(places):
            done += self._reserve_some(places[done:])

    def _reserve_some(self, places: np.ndarray) -> int:
        devices = self._segment.space.devices
        count = len(places)
        while True:
            for device in devices:
                if self._try_reserve(device.number, places[:count]):
                    return count
            if count == 1:
                raise SpaceFull(f"tablespace {self._segment.space.name} is full: add a device to it")
            count //= 2

    def _try_reserve(self, device: int, places: np.ndarray) -> bool:
        target = (self._number, self._heap.obj_id, self._segment.entry_page, device)
        arguments = (*target, places.ctypes.data, len(places))
        while True:
            with self._hub.guard:
                result = reserve_pages(self._store.area, self._session.call_address, *arguments)
                if result >= 0:
                    self._session.log_newest(result)
                    return True
                if result == NEED_SPACE:
                    try:
                        self._store.devices[device].grow(len(places) + len(places) // 100 + 2)
                        self._store.spaces[UNDO_DEVICE].grow(2)
                    except SpaceFull:
                        return False
            if result in (LOCKS_FULL, UNDO_FULL):
                self._hub.make_room(result)
            elif result == LOG_FULL:
                self._store.throttle()
                self._store.make_log_room(False)
            elif result != NEED_SPACE:
                self._store.raise_damage()

    def finish(self) -> int:
        """Write the last pages; answers the number of rows."""
        if self._started:
            self._write_round()
        self._enter_pages()
        if self._last_page != NO_PAGE:
            self._session.note_load(self._segment.entry_page, self._last_page, self._segment.space.space_id)
        return self._rows
