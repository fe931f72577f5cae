"""Rows by their keys, through an index: one key, or a range of them, on one snapshot.

Not here: choosing an index (the caller names one), or full scans (heap.py, arrow/).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from gmdb.access.index_entries import DONE_FIELD, HIGH_COLUMNS_FIELD, INDEX_KINDS, LOW_COLUMNS_FIELD, Walk
from gmdb.access.indexes import IndexDefinition, KeyCodec, KeyRange, no_such_index
from gmdb.errors import DataError, SnapshotTooOld
from gmdb.format.address import RowId
from gmdb.format.btree import KEY_BYTES_MAX, POINTER_SIZE
from gmdb.kernel.index_read import FOUND, find_rows, read_rows
from gmdb.kernel.keys import POINTER_AT
from gmdb.storage.segment import Segment
from gmdb.transaction.call import LATEST, SCN

if TYPE_CHECKING:
    from gmdb.access.heap import Heap
    from gmdb.transaction.snapshots import Snapshot

ROOM = 1 << 18  # bytes of rows that a call gives out
FIRST_ROWS, MORE_ROWS = 16, 1024  # rows a call: few at first, for a caller may want no more
ENTRY_MAX = POINTER_AT + POINTER_SIZE + KEY_BYTES_MAX
Found = tuple[RowId, tuple[Any, ...]]
_FOUND_SIZE = FOUND.itemsize
_new = tuple.__new__  # a RowId without the detour that a NamedTuple takes
_unpack_found = struct.Struct("<IIq").unpack_from


class KeyedRows:
    """A heap's rows by one of its indexes."""

    def __init__(self, heap: Heap, index: IndexDefinition) -> None:
        self.index = index
        self._heap = heap
        segment = Segment(heap.segment.store, heap.segment.space, index.entry_page)
        self.tree = INDEX_KINDS[index.using](segment, [heap.columns[n] for n in index.positions])
        self._indexes = heap.indexes  # among which it was found; the heap's are others once one comes or goes
        self.find = self._make_find()

    def _make_find(self) -> Callable[[Sequence[Any]], list[Found]]:
        """``find``, with all that it needs bound to it: it is what a program calls most."""
        heap, walk = self._heap, Walk(self.tree, room=ROOM)
        session, store, guard = heap.session, heap.segment.store, heap.guard
        obj_id, share, area, call, target = heap.obj_id, heap.share, store.area, session.call, heap.target
        encoders = KeyCodec(self.tree.columns, gap=POINTER_SIZE).encoders()
        if self.index.using != "btree":
            encoders = {count: encode for count, encode in encoders.items() if count == len(self.tree.columns)}
        walk_address, (walk_bytes, fields), output = walk.address, walk.use_one_key(), walk.output
        decode, decoded = heap.decode, self._decoded

        def find(key: Sequence[Any]) -> list[Found]:
            """The rows whose first key columns are these."""
            if obj_id not in session.tables_held:
                share()
            if heap.indexes is not self._indexes:
                self.require_index()
            columns = len(key)
            entry = encoders[columns](key) if columns in encoders else self._refuse(key)
            size = len(entry)
            if size > ENTRY_MAX:
                return []  # no entry is that long
            if not guard.acquire(False):
                store.enter()
            try:
                if session.closed or not store.devices:
                    session.require_open()
                if not call[LATEST]:
                    session.prepare()
                    self.require_seen(call[SCN])
                walk_bytes[:size] = entry
                fields[LOW_COLUMNS_FIELD] = fields[HIGH_COLUMNS_FIELD] = columns
                used = find_rows(area, target, walk_address)
                data = output[:used].tobytes() if used > 0 else b""
                done = fields[DONE_FIELD]
            finally:
                guard.release()
            if used < 0:
                store.raise_damage()
            if not done:
                return list(self.range(key, key))  # more than a call gives out: all of them on one snapshot
            if session.autocommit:
                session.finish_read()
            if used == 0:
                return []
            page_id, slot, size = _unpack_found(data)
            if used == size + _FOUND_SIZE:
                return [(_new(RowId, (page_id, slot)), decode(data[_FOUND_SIZE:]))]
            return decoded(data)

        return find

    def _refuse(self, key: Sequence[Any]) -> NoReturn:
        self.index.require_columns(len(key))
        count = len(self.index.positions)
        raise DataError(f"index {self.index.name} has {count} columns: a key has 1 to {count} values, not {len(key)}")

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
        return self.walk(KeyRange(low, high, low_open, high_open, backwards))

    def walk(self, keys: KeyRange) -> Iterator[Found]:
        """``range``, of keys that were put together elsewhere."""
        self.index.require(keys)
        return self._rows(Walk(self.tree, keys, ROOM))

    def _rows(self, walk: Walk) -> Iterator[Found]:
        heap = self._heap
        heap.share()
        self.require_index()
        with heap.session.cursor() as (snapshot, _):
            self.require_seen(snapshot.scn)
            limit = FIRST_ROWS
            while not walk.done:
                found = self._some(walk, snapshot, limit)
                yield from found
                limit = MORE_ROWS
        heap.session.finish_read()

    def require_index(self) -> None:
        """Refuse to read an index that was dropped, whose pages may be anybody's by now."""
        if self.index not in self._heap.indexes:
            raise no_such_index(self._heap.name, self.index.name, self._heap.indexes)
        self._indexes = self._heap.indexes

    def require_seen(self, scn: int) -> None:
        """Refuse a snapshot that is older than the index, which has no entries for the versions of before."""
        if scn < self.index.since:
            raise SnapshotTooOld(f"index {self.index.name} is newer than this transaction's snapshot; start over")

    def _some(self, walk: Walk, snapshot: Snapshot, limit: int) -> list[Found]:
        """The next rows.  Nobody gives the snapshot up while the guard is held: then the index may be gone, too."""
        store, form = self._heap.segment.store, snapshot.form.ctypes.data
        with store.guard:
            store.require_open()
            snapshot.check()
            used = store.call(read_rows, 0, self._heap.target, form, walk.address, limit)
            data = walk.output[:used].tobytes()
        return self._decoded(data)

    def _decoded(self, data: bytes) -> list[Found]:
        found, at, end, decode = [], 0, len(data), self._heap.decode
        while at < end:
            page_id, slot, size = _unpack_found(data, at)
            start = at + _FOUND_SIZE
            at = start + size
            found.append((_new(RowId, (page_id, slot)), decode(data[start:at])))
        return found
