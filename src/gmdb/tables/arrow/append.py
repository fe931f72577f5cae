"""Append record batches to a heap, as one statement.

The first rows fill up the table's last page, under an insert lock; all others go to new pages, which carry the
transaction's number instead of locks.

Invariants
 1. Memory is bounded by the batch and a buffer of some pages, not by the table.
 2. The guard is not held while rows are formatted, nor while the source is asked for more.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gmdb.errors import SpaceFull, UniqueViolation
from gmdb.format.address import NO_PAGE, OFFSET_BITS, UNDO_DEVICE, device_of, offset_of
from gmdb.format.heap import HEAP_NODE, row_size_max
from gmdb.format.page import HEAD_SIZE
from gmdb.format.row import NO_LOCK
from gmdb.kernel.change.bulk import PLACE, enter_run, log_pages, publish_pages, reserve_pages, stamp_pages, top_up_page
from gmdb.kernel.page.checkpoint import seal_run
from gmdb.kernel.runtime.call import INSERT_LOCK
from gmdb.kernel.runtime.status import LOCKS_FULL, LOG_FULL, NEED_SPACE, UNDO_FULL
from gmdb.process.late_imports import numpy as np
from gmdb.process.late_imports import pyarrow as pa
from gmdb.process.signals import let_through
from gmdb.storage.memory import numbers
from gmdb.tables.access.heap import Heap
from gmdb.tables.access.indexes import name_key
from gmdb.tables.access.lob_changes import indexed
from gmdb.tables.access.sorted_runs import KeyTooLong, Run, sorted_runs
from gmdb.tables.arrow.array_columns import as_cells
from gmdb.tables.arrow.arrow_types import batches_of, fit_batch
from gmdb.tables.arrow.formatting import PageFormatter, new_page
from gmdb.tables.arrow.generated_arrays import completed, with_unused
from gmdb.tables.arrow.lob_columns import stored_arrays
from gmdb.tables.arrow.referring_keys import note_pages, note_rows

# ---- Pages that are full of rows into a table: places, the file, the log, the indexes.
#
# The pages lie in a buffer and carry the load's number instead of locks; they become everyone's when it commits.
#
# Invariants
#  1. A page is in the file before a scan can be led to it, and before its image is logged.
#  2. The guard is not held while pages are written.

BUFFER_SIZE = 1 << 20
ENTER_SIZE = 32 << 20  # bytes of pages whose rows are entered into indexes together, sorted by their keys


class PagePlacer:
    """Takes pages of one load into a table, within a statement of its session."""

    def __init__(self, heap: Heap) -> None:
        self._heap, self._session = heap, heap.session
        self._segment, self._store = heap.segment, heap.segment.store
        self._hub = heap.session.hub
        self._last_page = NO_PAGE
        self.notes_keys = False  # whoever watches the heap is told of the rows on these pages, too
        self._to_enter: list[int] = []  # pages whose rows the indexes do not have yet
        with self._hub.guard:
            slot = self._session.begin_if_needed()
            self._number = self._hub.memory.enter_load(slot, self._session.statement_number)
            if self._session.notes_changes:
                self._session.track().write_all(heap.number)
        self.page_size = heap.segment.space.page_size
        self.template = new_page(self.page_size, heap.obj_id, self._number)

    def place(self, buffer: np.ndarray, count: int) -> None:
        """Give the buffer's first pages places, write them to the file, and let scans know of them."""
        self._session.check_interrupted()
        places = np.zeros(count, PLACE)
        self._reserve(places)
        stamp_pages(buffer.ctypes.data, self.page_size, places.ctypes.data, count)
        seal_run(buffer.ctypes.data, count, self.page_size, self._store.control["ckpt_id"] + 1)
        self._store.keep_images(places["page_id"])
        breaks = np.flatnonzero(np.diff(places["page_id"].astype(np.int64)) != 1) + 1
        for run in np.split(np.arange(count), breaks):
            start, end = int(run[0]), int(run[-1]) + 1
            page_id = int(places["page_id"][start])
            data = buffer[start * self.page_size : end * self.page_size]
            self._store.devices[page_id >> OFFSET_BITS].write_new(offset_of(page_id), data)
        self._log(buffer, count)
        space_id = self._segment.space.space_id
        self._store.call_guarded(publish_pages, space_id, self._segment.entry_page, places.ctypes.data, count)
        self._last_page = int(places["page_id"][-1])
        self._to_enter += places["page_id"].tolist()
        if len(self._to_enter) * self.page_size >= ENTER_SIZE:
            self._enter_pages()

    def end_run(self) -> None:
        """The last page that was placed may have room: inserts go on there once the transaction has committed."""
        if self._last_page != NO_PAGE:
            self._session.note_load(self._segment.entry_page, self._last_page, self._segment.space.space_id)
            self._last_page = NO_PAGE

    def finish(self) -> None:
        """All pages were placed."""
        self._enter_pages()
        self.end_run()

    # ---- indexes

    def _enter_pages(self) -> None:
        """Enter the rows of the pages that were placed since the last time into the table's indexes."""
        pages, self._to_enter = self._to_enter, []
        if pages:
            self.enter(pages, 0, NO_LOCK)
        if pages and self.notes_keys:
            form = numbers((0, self._session.slot, self._session.statement_number))
            note_pages(self._heap, pages, form)

    def enter(self, pages: list[int], first_slot: int, lock_id: int) -> None:
        """Enter the rows that were put on some pages, from a slot of the first on, into the table's indexes."""
        store, obj_id = self._store, self._heap.obj_id
        form = numbers((0, self._session.slot, self._session.statement_number))
        for number, index in enumerate(self._heap.indexes):
            try:
                check = self._session.check_interrupted
                for run in sorted_runs(store, obj_id, index.entry_page, np.array(pages), first_slot, form, check):
                    self._enter_run(number, run, lock_id, form)
            except KeyTooLong:
                self._heap.refuse_key(number)

    def _enter_run(self, number: int, run: Run, lock_id: int, form: memoryview) -> None:
        arguments = (self._heap.target, number, run.fields.ctypes.data, lock_id)
        done = 1
        while done:
            done = self._session.change(enter_run, self._segment.space.space_id, None, arguments)
            if done >= 0:
                continue
            row_id = run.next_row_id()
            try:
                self._heap.refuse_if_failed(done, row_id)
            except UniqueViolation as violation:
                row = self._heap.encoded_row(row_id, form)
                if row is not None:
                    name_key(violation, self._heap.indexes[number], self._heap.plain_decode(row))
                raise

    # ---- places

    def _log(self, buffer: np.ndarray, count: int) -> None:
        """Log the pages' images.  They are in the file by now, so that a checkpoint that ends later has synced them."""
        done = 0
        while done < count:
            pages = buffer.ctypes.data + done * self.page_size
            with self._hub.guard:
                arguments = (self._hub.memory.number(self._session.slot), pages, self.page_size, count - done)
                done += self._store.call(log_pages, 0, *arguments, self._session.call_address, self._heap.feed)

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
                self._session.reserve_records()
                result = reserve_pages(self._store.area, self._session.call_address, *arguments)
                if result >= 0:
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


# ---- Append record batches to a heap, as one statement.


def append(heap: Heap, data: Any) -> int:
    """Append all rows of ``data``, or none; returns how many."""
    heap.segment.store.require_writable()
    batches = batches_of(data)
    heap.share()
    with heap.session.statement():
        load = _Load(heap)
        load.add_all(batches)
        return load.finish()


class _Load:
    def __init__(self, heap: Heap) -> None:
        self._heap, self._session, self._segment = heap, heap.session, heap.segment
        self._placer = PagePlacer(heap)
        pct_free, template = heap.segment.head.pct_free, self._placer.template
        self._formatter = PageFormatter(heap.name, heap.stored, self._placer.page_size, pct_free, template)
        self._buffer = np.zeros(BUFFER_SIZE, np.uint8)

    def add_all(self, batches: Iterable[pa.RecordBatch]) -> None:
        for batch in let_through(batches):
            self._session.check_interrupted()
            if self._heap.generated is not None:
                definition = self._heap.definition
                batch = completed(self._heap.generated, definition, batch, self._formatter.row_count)
                batch = with_unused(definition, batch)
            arrays = fit_batch(self._heap.name, self._heap.stored, batch, self._formatter.row_count)
            if self._heap.watch is not None:
                note_rows(self._heap.watch, arrays)
            arrays = as_cells(self._heap.stored, arrays)
            if self._heap.lobs is not None:
                row_max = row_size_max(self._formatter.page_size)
                arrays = stored_arrays(self._heap.lobs, self._heap.stored, arrays, row_max, indexed(self._heap))
            self._formatter.point_at(arrays)
            self._add(len(batch))

    def _add(self, count: int) -> None:
        formatter, done = self._formatter, 0
        if not formatter.is_started:
            done = self._top_up(count)
            if done < count:
                formatter.start(self._buffer)
        while done < count:
            done += formatter.add(done, count - done)
            if done < count:
                self._placer.place(self._buffer, formatter.end())
                formatter.start(self._buffer)
        formatter.row_count += count

    def _top_up(self, count: int) -> int:
        """Put rows on the page where the table, or this transaction's own append before, ended."""
        own = self._session.last_page_loaded(self._segment.entry_page)
        page_id = own if own is not None else self._segment.head.last_page
        if page_id == NO_PAGE or count == 0:
            return 0
        heap = self._heap
        call = (self._session.call_address, self._formatter.address)
        arguments = (*call, heap.obj_id, self._segment.entry_page, page_id, count, heap.feed)
        space_id = self._segment.space.space_id
        first = self._slot_count(page_id)
        placed = self._session.change(top_up_page, space_id, None, arguments)
        if placed < 0:
            self._formatter.refuse(placed)
        if self._heap.indexes:
            self._placer.enter([page_id], first, self._session.call[INSERT_LOCK])
        return placed

    def _slot_count(self, page_id: int) -> int:
        page = self._segment.store.devices[device_of(page_id)].memory(offset_of(page_id))
        return int(HEAP_NODE.at(page, HEAD_SIZE).slot_count)

    def finish(self) -> int:
        """Place the last pages; returns the number of rows."""
        count = self._formatter.end()
        if count:
            self._placer.place(self._buffer, count)
        self._placer.finish()
        return self._formatter.row_count
