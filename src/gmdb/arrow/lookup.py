"""Rows that an index or a list of row ids leads to, as record batches.

Not here: full scans (scan.py), which go by pages and need no guard.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import numpy as np

from gmdb.access.index_entries import Walk
from gmdb.arrow.buffers import ColumnBuffers, plan_columns
from gmdb.arrow.lobs import LobReading
from gmdb.arrow.scan import Reading
from gmdb.format.columns import Column
from gmdb.format.lob import LobSegment
from gmdb.kernel.cursor import CURSOR, read_index, read_places
from gmdb.kernel.status import NO_ROOM
from gmdb.late import pyarrow as pa
from gmdb.storage.frozen import FrozenStore
from gmdb.storage.store import PageStore

BATCH_ROWS = (64, 4096, 65536)  # of the first batch, the second, and all others: whoever wants few gets them soon
VALUE_BYTES = 64  # of a variable value, as long as nothing else is known
Batch: TypeAlias = "tuple[pa.RecordBatch, np.ndarray]"


class Lookup:
    """Some columns of the rows that are found, as batches; with each, where its rows are (page id << 16 | slot)."""

    def __init__(
        self,
        store: PageStore | FrozenStore,
        obj_id: int,
        columns: Sequence[Column],
        wanted: Sequence[int],
        covered: bool = False,
        lobs: LobSegment | None = None,
    ) -> None:
        """``columns`` are the table's, or, if ``covered``, the index's; ``wanted`` numbers them."""
        self._store = store
        self._obj_id = obj_id
        self._columns = columns[: max(wanted) + 1] if wanted else []
        self._wanted = list(wanted)
        self._covered = covered
        self._lobs = LobReading(store, lobs, [columns[n] for n in wanted])
        self.schema = self._lobs.schema

    def by_walk(self, walk: Walk, reading: Reading) -> Iterator[Batch]:
        """The rows of a walk through an index."""

        def read(cursor: np.ndarray) -> int:
            return self._store.call(read_index, 0, cursor.ctypes.data, walk.address)

        return self._batches(np.empty(0, np.int64), reading, read, lambda _: walk.done)

    def by_places(self, places: np.ndarray, reading: Reading) -> Iterator[Batch]:
        """The rows at some places, but for those that the snapshot does not see."""

        def read(cursor: np.ndarray) -> int:
            return self._store.call(read_places, 0, cursor.ctypes.data)

        return self._batches(places, reading, read, lambda cursor: cursor["next_place"][0] == len(places))

    def _batches(
        self,
        places: np.ndarray,
        reading: Reading,
        read: Callable[[np.ndarray], int],
        is_over: Callable[[np.ndarray], bool],
    ) -> Iterator[Batch]:
        cursor = np.zeros(1, CURSOR)
        cursor["obj_id"], cursor["covered"] = self._obj_id, int(self._covered)
        cursor["places"], cursor["place_count"] = places.ctypes.data, len(places)
        number, value_bytes = 0, VALUE_BYTES
        while not is_over(cursor):
            rows = BATCH_ROWS[min(number, len(BATCH_ROWS) - 1)]
            made, has_room = self._batch(cursor, rows, value_bytes, reading, read, is_over)
            if len(made[1]):
                number += 1
                for part, start, end in self._lobs.values(made[0], reading.check):
                    yield part, made[1][start:end]
            if not has_room:
                value_bytes *= 4

    def _batch(
        self,
        cursor: np.ndarray,
        rows: int,
        value_bytes: int,
        reading: Reading,
        read: Callable[[np.ndarray], int],
        is_over: Callable[[np.ndarray], bool],
    ) -> tuple[Batch, bool]:
        """The next batch, and whether its buffers were large enough for all its rows."""
        plan, places = plan_columns(self._columns), np.empty(rows, np.int64)
        buffers = [ColumnBuffers(plan[n], self._columns[n], rows, rows * value_bytes) for n in self._wanted]
        cursor["columns"], cursor["column_count"] = plan.ctypes.data, len(plan)
        cursor["row_capacity"], cursor["done"], cursor["row_ids"] = rows, 0, places.ctypes.data
        status = 0
        while status != NO_ROOM and cursor["done"][0] < rows and not is_over(cursor):
            with self._store.guard:
                self._store.require_open()
                reading.check()  # once nobody holds the snapshot, the index may be gone, too
                cursor["scn"], cursor["transaction"], cursor["statement"] = reading.form
                status = read(cursor)
        done = int(cursor["done"][0])
        arrays = [buffer.array(done) for buffer in buffers]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self._lobs.stored_schema) if arrays else _of_no_columns(done)
        return (batch, places[:done]), status != NO_ROOM


def _of_no_columns(rows: int) -> pa.RecordBatch:
    """Rows of which nothing is wanted but that they are there."""
    return pa.RecordBatch.from_struct_array(pa.array([{}] * rows, pa.struct([])))
