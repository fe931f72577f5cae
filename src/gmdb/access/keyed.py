"""Rows by their keys, through an index: one key, or a range of them, on one snapshot.

Not here: choosing an index (the caller names one), or full scans (heap.py, arrow/).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gmdb.access.btree import BTree, Walk
from gmdb.access.indexes import IndexDefinition, KeyCodec, no_such_index
from gmdb.errors import SnapshotTooOld
from gmdb.format.address import RowId
from gmdb.format.btree import KEY_BYTES_MAX
from gmdb.kernel.index_read import FOUND, read_rows
from gmdb.kernel.keys import POINTER_AT
from gmdb.storage.segment import Segment
from gmdb.transaction.call import LATEST, SCN

if TYPE_CHECKING:
    from gmdb.access.heap import Heap
    from gmdb.transaction.snapshots import Snapshot

BUFFER_SIZE = 1 << 18
FIRST_ROWS, MORE_ROWS = 16, 1024  # rows a call: few at first, for a caller may want no more
AT_ONCE = 256  # rows of one key that a single call gives out
Found = tuple[RowId, tuple[Any, ...]]


class KeyedRows:
    """A heap's rows by one of its indexes."""

    def __init__(self, heap: Heap, index: IndexDefinition) -> None:
        self.index = index
        self._heap = heap
        segment = Segment(heap.segment.store, heap.segment.space, index.entry_page)
        self.tree = BTree(segment, [heap.columns[n] for n in index.positions])
        self._output = np.zeros(BUFFER_SIZE, np.uint8)
        self._output_address, self._output_bytes = self._output.ctypes.data, self._output.data
        self._walk = Walk(self.tree, (), (), False, False, False)
        self._indexes = heap.indexes  # among which it was found; the heap's are others once one comes or goes
        self._keys = KeyCodec(self.tree.columns)

    def find(self, key: Sequence[Any]) -> list[Found]:
        """The rows whose first key columns are these."""
        heap, walk = self._heap, self._walk
        session, store = heap.session, heap.segment.store
        if heap.obj_id not in session.tables_held:
            heap.share()
        if heap.indexes is not self._indexes:
            self._require_index()
        row = self._keys.encode(key)
        if len(row) - POINTER_AT > KEY_BYTES_MAX:
            return []  # no entry is that long
        walk.begin_at(row, len(key))
        store.enter()
        try:
            store.require_open()
            session.prepare()
            self._require_seen(session.call[SCN] if not session.call[LATEST] else self.index.since)
            used = read_rows(store.area, heap.target, 0, walk.address, self._output_address, BUFFER_SIZE, AT_ONCE)
            data = bytes(self._output_bytes[:used]) if used > 0 else b""
        finally:
            heap.guard.release()
        if used < 0:
            store.raise_damage()
        found = self._decoded(data)
        if not walk.done:
            return list(self.range(key, key))  # more than a call gives out: all of them on one snapshot
        if session.autocommit:
            session.finish_read()
        return found

    def decode_key(self, row: bytes, count: int) -> tuple[Any, ...]:
        """The first ``count`` columns of a key, from bytes in a row's shape."""
        return self._keys.decode(row, count)

    def range(
        self,
        low: Sequence[Any] = (),
        high: Sequence[Any] = (),
        *,
        low_open: bool = False,
        high_open: bool = False,
        backwards: bool = False,
    ) -> Iterator[Found]:
        """The rows from key ``low`` to key ``high``, in order; without them, from end to end."""
        heap = self._heap
        heap.share()
        self._require_index()
        walk = Walk(self.tree, low, high, low_open, high_open, backwards)
        with heap.session.cursor() as (snapshot, _):
            self._require_seen(snapshot.scn)
            limit = FIRST_ROWS
            while not walk.done:
                found = self._some(walk, snapshot, limit)
                yield from found
                limit = MORE_ROWS
        heap.session.finish_read()

    def _require_index(self) -> None:
        """Refuse to read an index that was dropped, whose pages may be anybody's by now."""
        if self.index not in self._heap.indexes:
            raise no_such_index(self._heap.name, self.index.name, self._heap.indexes)
        self._indexes = self._heap.indexes

    def _require_seen(self, scn: int) -> None:
        """Refuse a snapshot that is older than the index, which has no entries for the versions of before."""
        if scn < self.index.since:
            raise SnapshotTooOld(f"index {self.index.name} is newer than this transaction's snapshot; start over")

    def _some(self, walk: Walk, snapshot: Snapshot, limit: int) -> list[Found]:
        """The next rows.  Nobody gives the snapshot up while the guard is held: then the index may be gone, too."""
        store, form = self._heap.segment.store, snapshot.form.ctypes.data
        with store.guard:
            store.require_open()
            snapshot.check()
            target, output = self._heap.target, self._output
            used = store.call(read_rows, 0, target, form, walk.address, output.ctypes.data, BUFFER_SIZE, limit)
            data = output[:used].tobytes()
        return self._decoded(data)

    def _decoded(self, data: bytes) -> list[Found]:
        found, at = [], 0
        decode = self._heap.decode
        while at < len(data):
            place = int.from_bytes(data[at : at + 8], "little")
            start = at + FOUND.itemsize
            at = start + int.from_bytes(data[at + 8 : at + 16], "little")
            found.append((RowId(place >> 16, place & 0xFFFF), decode(data[start:at])))
        return found
