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
    import numpy as np

    from gmdb.access.heap import Heap
    from gmdb.transaction.snapshots import Snapshot

ROOM = 1 << 18  # bytes of rows that a call gives out
FIRST_ROWS, MORE_ROWS = 16, 1024  # rows a call: few at first, for a caller may want no more
ENTRY_MAX = POINTER_AT + POINTER_SIZE + KEY_BYTES_MAX
Found = tuple[RowId, tuple[Any, ...]]
Decode = Callable[[bytes], tuple[Any, ...]]
_FOUND_SIZE = FOUND.itemsize
_new = tuple.__new__  # a RowId without the detour that a NamedTuple takes
_unpack_found = struct.Struct("<IIq").unpack_from


class KeyedRows:
    """A heap's rows by one of its indexes."""

    def __init__(self, heap: Heap, index: IndexDefinition) -> None:
        self._heap = heap
        self._follow(index)

    def _follow(self, index: IndexDefinition) -> None:
        """Go by the table as it is now; its heap is told whenever that has changed."""
        heap = self._heap
        self.index = index
        self._definition = heap.definition
        segment = Segment(heap.segment.store, heap.segment.space, index.entry_page)
        self.tree = INDEX_KINDS[index.using](segment, [heap.columns[n] for n in index.positions])
        self.find = self._make_find()

    def _make_find(self) -> Callable[[Sequence[Any]], list[Found]]:
        """``find``, with all that it needs bound to it: it is what a program calls most."""
        heap, walk = self._heap, Walk(self.tree, room=ROOM)
        session, store, guard = heap.session, heap.segment.store, heap.guard
        number, share, area, call, target = heap.number, heap.share, store.area, session.call, heap.target
        definition = self._definition
        encoders = KeyCodec(self.tree.columns, gap=POINTER_SIZE).encoders()
        if self.index.using != "btree":
            encoders = {count: encode for count, encode in encoders.items() if count == len(self.tree.columns)}
        walk_address, (walk_bytes, fields), output = walk.address, walk.use_one_key(), walk.output
        if heap.lobs is not None:  # which are read by a snapshot that is held meanwhile
            return lambda key: list(self.range(key, key)) if len(key) else self._refuse(key)
        decode = heap.plain_decode

        def find(key: Sequence[Any]) -> list[Found]:
            """The rows whose first key columns are these."""
            if session.tables_held.get(number) is not definition:
                share()
            if heap.definition is not definition:
                self.require_index()
                return self.find(key)
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
            return list(_decoded(data, decode))

        return find

    def change_at_once(self, key: Sequence[Any], patch_of: Callable[[tuple[Any, ...]], bytes]) -> int:
        """Change the row of a key by the patch that ``patch_of`` makes of its values, and let nobody come between.

        Answers the number of rows; less than 0 if something has to be waited for: then nothing was done.
        """
        heap = self._heap
        session, store = heap.session, heap.segment.store
        if not session.plain or session.tables_held.get(heap.number) is not heap.definition:
            return -1
        if not heap.guard.acquire(False):
            store.enter()
        try:
            found = self.find(key)
            if not found:
                return 0
            if len(found) > 1 or not heap.update_at_once(found[0][0], patch_of(found[0][1])):
                return -1
        finally:
            heap.guard.release()
        if store.scans:
            store.give_way()
        return 1

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
        return self._rows(keys, Walk(self.tree, keys, ROOM))

    def walk_by(self, keys: KeyRange, snapshot: Snapshot, form: np.ndarray) -> Iterator[Found]:
        """``walk``, by a snapshot that somebody holds."""
        self.index.require(keys)
        self.require_index()
        self.require_seen(snapshot.scn)
        return self._read(Walk(self.tree, keys, ROOM), snapshot, form)

    def _rows(self, keys: KeyRange, walk: Walk) -> Iterator[Found]:
        heap, tree = self._heap, self.tree
        heap.share()
        self.require_index()
        if self.tree is not tree:
            walk = Walk(self.tree, keys, ROOM)
        with heap.session.cursor() as (snapshot, form):
            self.require_seen(snapshot.scn)
            yield from self._read(walk, snapshot, form)
        heap.session.finish_read()

    def _read(self, walk: Walk, snapshot: Snapshot, form: np.ndarray) -> Iterator[Found]:
        limit = FIRST_ROWS
        while not walk.done:
            yield from self._some(walk, snapshot, form, limit)
            limit = MORE_ROWS

    def require_index(self) -> None:
        """Refuse to read an index that was dropped, whose pages may be anybody's by now."""
        if self._heap.definition is not self._definition:
            same = [index for index in self._heap.indexes if index.name == self.index.name and not index.building]
            if not same:
                raise no_such_index(self._heap.name, self.index.name, self._heap.indexes)
            self._follow(same[0])

    def require_seen(self, scn: int) -> None:
        """Refuse a snapshot that is older than the index, which has no entries for the versions of before."""
        since = self.index.since
        if scn < (since if since >= 0 else ~since):
            raise SnapshotTooOld(f"index {self.index.name} is newer than this transaction's snapshot; start over")

    def _some(self, walk: Walk, snapshot: Snapshot, form: np.ndarray, limit: int) -> Iterator[Found]:
        """The next rows.  Nobody gives the snapshot up while the guard is held: then the index may be gone, too."""
        store = self._heap.segment.store
        self._heap.session.check_interrupted()
        with store.guard:
            store.require_open()
            snapshot.check()
            used = store.call(read_rows, 0, self._heap.target, form.ctypes.data, walk.address, limit)
            data = walk.output[:used].tobytes()
        return _decoded(data, self._heap.decoder(snapshot))


def _decoded(data: bytes, decode: Decode) -> Iterator[Found]:
    """Rows that a kernel gave out, one at a time: they may be large."""
    at, end = 0, len(data)
    while at < end:
        page_id, slot, size = _unpack_found(data, at)
        start = at + _FOUND_SIZE
        at = start + size
        yield _new(RowId, (page_id, slot)), decode(data[start:at])
