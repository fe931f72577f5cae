"""Rows by their keys, through an index: one key, or a range of them, on one snapshot.

Not here: choosing an index (the caller names one), or full scans (heap.py, tables/arrow/).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from gmdb.errors import DataError, SnapshotTooOld
from gmdb.format.address import RowId
from gmdb.format.btree import KEY_BYTES_MAX, POINTER_SIZE
from gmdb.format.codec import Unfinished
from gmdb.kernel.read.lookup import FOUND, find_rows, find_values, read_rows
from gmdb.kernel.row import ENTRY_BUFFER, POINTER_AT
from gmdb.kernel.runtime.call import LATEST
from gmdb.process.signals import Flattened
from gmdb.storage.memory import address_of
from gmdb.storage.store import Segment
from gmdb.tables.access.fixed_rows import Split
from gmdb.tables.access.index_entries import (
    BACKWARDS_FIELD,
    DONE_FIELD,
    HIGH_BOUND_FIELD,
    HIGH_COLUMNS_FIELD,
    HIGH_FIELD,
    INDEX_KINDS,
    LOW_BOUND_FIELD,
    LOW_COLUMNS_FIELD,
    LOW_FIELD,
    STARTED_FIELD,
    Walk,
)
from gmdb.tables.access.indexes import IndexDefinition, KeyCodec, KeyRange, no_such_index
from gmdb.tables.access.lobs import Finish, finished, in_pieces
from gmdb.tables.access.shapes import key_shape, row_shape
from gmdb.tables.access.tracked_rows import SpanMaker, note_range_read
from gmdb.transaction.interrupts import operation

if TYPE_CHECKING:
    from gmdb.tables.access.definition import View
    from gmdb.tables.access.heap import Heap
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
        self.session = heap.session
        self._follow(index)

    def _follow(self, index: IndexDefinition) -> None:
        """Use the table's definition of now; its heap follows changes of it."""
        heap = self._heap
        self.index = index
        self.idle_walks: list[Walk] = []
        self._definition = heap.definition
        segment = Segment(heap.segment.store, heap.segment.space, index.entry_page)
        self.tree = INDEX_KINDS[index.using](segment, [heap.stored[n] for n in index.positions])
        self._encoders = KeyCodec(self.tree.columns, gap=POINTER_SIZE).encoders()
        self._spans = SpanMaker(index, heap.stored)
        if index.using != "btree":
            whole = len(self.tree.columns)
            self._encoders = {count: encode for count, encode in self._encoders.items() if count == whole}
        self._try_read = self._make_read()
        self.find = self._make_find()

    def _make_find(self) -> Callable[[Sequence[Any]], list[Found]]:
        """``find``, a fast path with all that it needs bound to it."""
        heap = self._heap
        finder = self.finder(range(len(heap.columns)), True)
        if finder is None:
            return self._find_encoded

        def find(key: Sequence[Any]) -> list[Found]:
            """The rows whose first key columns are these."""
            found = finder(key)
            if found.__class__ is int:
                return self._find_encoded(key)
            pairs = zip(found[::2], found[1::2], strict=True)
            return [(_new(RowId, (place >> 16, place & 0xFFFF)), values) for place, values in pairs]

        return find

    def finder(
        self, outputs: Sequence[int], gives_places: bool, nulls: bool = True
    ) -> Callable[[Sequence[Any]], Any] | None:
        """A function from a whole key to the rows of the newest commit that have it, as ``find_values`` lists them.

        What it returns otherwise is a status: nothing was done.  Without ``nulls``, it refuses keys that have any.
        None if kernels do not know the types of the index's columns, or of those that are given out.
        """
        if self.index.included:
            return None  # kernels take keys of all columns
        heap, walk = self._heap, Walk(self.tree, room=ROOM)
        rows, keys = row_shape(heap.columns, outputs), key_shape(self.tree.columns, ENTRY_MAX, nulls)
        if rows is None or keys is None:
            return None
        walk.use_one_key()
        session, area, target, gate = heap.session, heap.segment.store.area, heap.target, heap.gate
        walk_address, key_address, row_address, places = walk.address, keys.address, rows.address, int(gives_places)

        def find(key: Sequence[Any], _memory: object = (heap.view, walk, rows, keys)) -> Any:
            session.has_read = True
            return find_values(area, target, gate, walk_address, key_address, key, row_address, places)

        return find

    def _find_encoded(self, key: Sequence[Any]) -> list[Found]:
        """``find`` of a key that Python puts together."""
        heap = self._heap
        data = heap.segment.store.under_guard(heap.session.busy, self._try_read, self._entry_of(key), len(key))
        return self._found(data, key) if data is not None else self._find_slowly(key)

    def _found(self, data: bytes, key: Sequence[Any]) -> list[Found]:
        """The rows of a key that a kernel gave out; large objects are read by a snapshot that is held meanwhile."""
        found = _decoded(data, self._heap.plain_decode)
        if self._heap.lobs is not None and any(values.__class__ is Unfinished for _, values in found):
            return list(self.range(key, key))
        return found

    def _entry_of(self, key: Sequence[Any]) -> bytes:
        encode = self._encoders.get(len(key))
        return encode(key) if encode is not None else self._refuse(key)

    def _make_read(self) -> Callable[[bytes, int], bytes | None]:
        """A function that reads a key's rows by the newest commit under the guard; None if that does not apply."""
        heap, walk = self._heap, Walk(self.tree, room=ROOM)
        session, store, definition = heap.session, heap.segment.store, self._definition
        number, area, call, target = heap.number, store.area, session.call, heap.target
        walk_address, (walk_bytes, fields), output = walk.address, walk.use_one_key(), walk.output

        def try_read(entry: bytes, columns: int, _memory: object = heap.view) -> bytes | None:
            """``_memory`` keeps alive what the kernel reads, if the heap gets another definition meanwhile."""
            size = len(entry)
            if session.tables_seen.get(number) is not definition or not call[LATEST] or not store.devices:
                return None
            if size > ENTRY_MAX:
                return b""  # no entry is that long
            session.has_read = True
            heap.note_seen()
            walk_bytes[:size] = entry
            fields[LOW_COLUMNS_FIELD] = fields[HIGH_COLUMNS_FIELD] = columns
            used = find_rows(area, target, walk_address)
            return output[:used].tobytes() if used >= 0 and fields[DONE_FIELD] else None

        return try_read

    @operation
    def _find_slowly(self, key: Sequence[Any]) -> list[Found]:
        """``find`` that may look up the definition, read by an older snapshot, or return more rows than one call."""
        data = None
        with self._heap.segment.store.guard:
            self.session.require_open()
            self._heap.look()
            self.require_index()
            data = self._try_read(self._entry_of(key), len(key))
        if data is None:
            return list(self.range(key, key))
        self.session.finish_read()
        return self._found(data, key)

    def change_at_once(self, key: Sequence[Any], patch_of: Callable[[tuple[Any, ...]], bytes] | None) -> int:
        """Change the row of a key by the patch that ``patch_of`` makes of its values, under one hold of the guard.

        Without ``patch_of`` the row is deleted.  Returns the number of rows; less than 0 if it would have to wait: then
        nothing was done.
        """
        store = self._heap.segment.store
        count = store.under_guard(self.session.busy, self._try_change, self._entry_of(key), len(key), patch_of)
        if store.scans:
            store.give_way()
        return count

    def _try_change(self, entry: bytes, columns: int, patch_of: Callable[[tuple[Any, ...]], bytes] | None) -> int:
        heap = self._heap
        data = self._try_read(entry, columns) if self.session.plain else None
        if data is None:
            return -1
        if not data:
            return 0
        rows = _decoded(data, heap.plain_decode)
        if len(rows) > 1 or (patch_of is not None and rows[0][1].__class__ is Unfinished):
            return -1
        row_id, values = rows[0]
        patch = b"" if patch_of is None else patch_of(values)
        return 1 if heap.try_change_at_once(row_id, patch) >= 0 else -1

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
        Walk(self.tree, keys, ROOM)  # refuses values that are not of the keys' types
        return Flattened.of(self.pieces(keys))

    def walk_by(self, keys: KeyRange, snapshot: Snapshot, form: memoryview) -> Iterator[Found]:
        """``walk``, by a snapshot that the caller holds."""
        self.index.require(keys)
        self.require_index()
        self.require_seen(snapshot.scn)
        note_range_read(self._heap, self._spans, keys)
        return chain.from_iterable(self._read(Walk(self.tree, keys, ROOM), snapshot, form))

    @operation
    def pieces(self, keys: KeyRange) -> Iterator[Iterable[Found]]:
        """``walk``, some rows at a time."""
        heap = self._heap
        with heap.session.cursor() as (snapshot, form):
            heap.see(snapshot.scn)
            self.require_index()
            self.require_seen(snapshot.scn)
            note_range_read(heap, self._spans, keys)
            yield from self._read(Walk(self.tree, keys, ROOM), snapshot, form)

    def _read(self, walk: Walk, snapshot: Snapshot, form: memoryview) -> Iterator[Iterable[Found]]:
        heap = self._heap
        view, decode, finish = heap.view, heap.plain_decode, heap.finisher(snapshot)
        limit = FIRST_ROWS
        while not walk.done:
            data = self._some(walk, snapshot, form, view, limit)
            yield from in_pieces(_decoded(data, decode), finish)
            limit = MORE_ROWS

    @property
    def encoders(self) -> Mapping[int, Callable[[Sequence[Any]], bytes]]:
        """A function that encodes a key of so many columns as an entry."""
        return self._encoders

    def probe(
        self,
        scn: int,
        form: memoryview,
        check: Callable[[], None],
        decode: Decode,
        row_ids: bool = False,
        split: Split | None = None,
        finish: Finish | None = None,
    ) -> Probe:
        """A probe by a snapshot that the caller holds meanwhile; ``check`` raises if it was given up."""
        self.require_index()
        self.require_seen(scn)
        heap, address = self._heap, address_of(form)
        session, store, target = heap.session, heap.segment.store, heap.view.target
        guard, call = store.guard, store.call

        def read(walk: int, limit: int) -> int:
            if session.interrupted:
                session.check_interrupted()
            with guard:
                store.require_open()
                check()
                return call(read_rows, 0, target, address, walk, limit)

        probe = Probe(self, read, decode, row_ids, split, finish)
        probe.memory = form, heap.view
        if heap.tracked is not None:
            probe.note = partial(note_range_read, heap, self._spans)
        return probe

    def note_read(self, keys: KeyRange) -> None:
        """Keys are about to be looked up by somebody else, in a transaction that may be tracked."""
        note_range_read(self._heap, self._spans, keys)

    def newest_probe(self, decode: Decode, row_ids: bool = False, split: Split | None = None) -> Probe:
        """A probe by the session's own snapshot, under the guard; raises Unread."""
        heap = self._heap
        area, target, snapshot, kernel = heap.segment.store.area, heap.target, heap.session.call_address, read_rows

        def read(walk: int, limit: int) -> int:
            used = kernel(area, target, snapshot, walk, limit)
            if used < 0:
                raise Unread
            return used

        probe = Probe(self, read, decode, row_ids, split, None if heap.lobs is None else _refuse_unfinished)
        probe.memory = heap, heap.view
        probe.find_rows = partial(find_rows, area, target)
        return probe

    @property
    def definition(self) -> object:
        """The table's definition when it was read last."""
        return self._definition

    def require_index(self) -> None:
        """Refuse to read an index that was dropped, whose pages may be reused by now."""
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

    def _some(self, walk: Walk, snapshot: Snapshot, form: memoryview, view: View, limit: int) -> bytes:
        """The next rows, as a kernel gives them out.

        The snapshot cannot be given up while the guard is held; after that the index may be gone, too.
        """
        store = self._heap.segment.store
        self._heap.session.check_interrupted()
        with store.guard:
            store.require_open()
            snapshot.check()
            used = store.call(read_rows, 0, view.target, address_of(form), walk.address, limit)
            data: bytes = walk.output[:used].tobytes()
        return data


Read = Callable[[int, int], int]  # the next rows of a walk at an address, a number at most; gives the bytes used


class Unread(Exception):
    """A read by the newest commit returned nothing usable: read by a snapshot."""


def _refuse_unfinished(_: tuple[Any, ...]) -> NoReturn:
    """Large objects are read by a snapshot that is held meanwhile."""
    raise Unread


class Shape(NamedTuple):
    """The shape that all ranges of keys of a probe share."""

    low_columns: int = 0
    high_columns: int = 0
    low_open: bool = False
    high_open: bool = False
    backwards: bool = False

    def keys(self, low: Sequence[Any], high: Sequence[Any]) -> KeyRange:
        """A range of this shape."""
        low, high = low[: self.low_columns], high[: self.high_columns]
        return KeyRange(low, high, self.low_open, self.high_open, self.backwards)


class Probe:
    """Rows by one key after another, or by ranges of keys, with the memory of one walk.

    For one reader, which uses only one of its functions, and is done with a key's rows before it looks up the next.
    """

    def __init__(
        self,
        keyed: KeyedRows,
        read: Read,
        decode: Decode,
        row_ids: bool = False,
        split: Split | None = None,
        finish: Finish | None = None,
    ) -> None:
        """``row_ids``: rows come with their row ids, as pairs.  ``split``: makes some of many rows sooner.

        ``finish``: puts large objects into rows that are decoded as Unfinished.
        """
        self.memory: object = None  # that ``read`` leads kernels to
        self.find_rows: Callable[[int], int] | None = None  # all rows of a walk from its beginning, or a status
        self.note: Callable[[KeyRange], None] | None = None  # what is to be told of keys before they are looked up
        self._idle = keyed.idle_walks
        self._walk = self._idle.pop() if self._idle else Walk(keyed.tree, room=ROOM)
        self._low, self._fields = self._walk.use_one_key()
        self._high = self._low[ENTRY_BUFFER:]
        self._encoders = keyed.encoders
        self._count = len(keyed.index.key)
        self._read, self._row_ids, self._split, self._finish = read, row_ids, split, finish
        self._decode, self._decode_some = finished(decode, finish), decode

    def close(self) -> None:
        """The probe is done: another one may have its memory."""
        self._idle.append(self._walk)

    def _use(self, shape: Shape) -> None:
        fields, walk = self._fields, self._walk
        fields[LOW_FIELD] = walk.key_address if shape.low_columns else 0
        fields[HIGH_FIELD] = walk.key_address + ENTRY_BUFFER if shape.high_columns else 0
        fields[LOW_COLUMNS_FIELD], fields[HIGH_COLUMNS_FIELD] = shape.low_columns, shape.high_columns
        fields[LOW_BOUND_FIELD], fields[HIGH_BOUND_FIELD] = 1 if shape.low_open else -1, -1 if shape.high_open else 1
        fields[BACKWARDS_FIELD] = shape.backwards

    def _use_one_key(self, columns: int) -> None:
        self._use(Shape(columns, columns))
        self._fields[HIGH_FIELD] = self._fields[LOW_FIELD]

    def one(self) -> Callable[[Sequence[Any]], Any]:
        """A function that finds the row of a whole key of a unique index; None if there is none."""
        self._use_one_key(self._count)
        encode, low, output, decode = self._encoders[self._count], self._low, self._walk.output, self._decode
        begin, row_ids, single, note = self._make_begin(), self._row_ids, self._single, self.note

        def find(key: Sequence[Any]) -> Any:
            if note is not None:
                note(KeyRange(key, key))
            entry = encode(key)
            size = len(entry)
            if size > ENTRY_MAX:
                return None
            low[:size] = entry
            used = begin()
            if row_ids or used <= 0:
                return single(used)
            return decode(output[_FOUND_SIZE:used].tobytes())

        return find

    def first(self, shape: Shape) -> Callable[..., Any]:
        """A function that finds the first row from one key to another; None if there is none."""
        put, read, fields, address = self._make_ends(shape), self._read, self._fields, self._walk.address
        single, note = self._single, self.note

        def first(low: Sequence[Any], high: Sequence[Any]) -> Any:
            if note is not None:
                note(shape.keys(low, high))
            if not put(low, high):
                return next(iter(self._cut(shape, low, high, 1)), None)
            fields[STARTED_FIELD] = fields[DONE_FIELD] = 0
            return single(read(address, 1))

        return first

    def _make_begin(self) -> Callable[[], int]:
        """A function that begins the walk, and reads its first rows, of which there is one."""
        address, fields, read = self._walk.address, self._fields, self._read
        if self.find_rows is not None:
            return partial(self.find_rows, address)

        def begin() -> int:
            fields[STARTED_FIELD] = fields[DONE_FIELD] = 0
            return read(address, 1)

        return begin

    def _single(self, used: int) -> Any:
        """The only row of a walk that has begun; ``used``: bytes of what was read of it, or a status."""
        if used < 0:
            raise Unread
        while not used and not self._fields[DONE_FIELD]:
            used = self._read(self._walk.address, 1)
        if not used:
            return None
        data = self._walk.output[:used].tobytes()
        return _decoded(data, self._decode)[0] if self._row_ids else self._decode(data[_FOUND_SIZE:])

    def some(self, columns: int) -> Callable[..., Iterable[Any]]:
        """A function that finds the rows of a key's first columns, in the order of the others."""
        self._use_one_key(columns)
        encode, low, rows, note = self._encoders[columns], self._low, self._make_rows(), self.note

        def find(key: Sequence[Any], first: int = FIRST_ROWS) -> Iterable[Any]:
            if note is not None:
                note(KeyRange(key, key))
            entry = encode(key)
            size = len(entry)
            if size > ENTRY_MAX:
                return ()
            low[:size] = entry
            return rows(first)

        return find

    def between(self, shape: Shape) -> Callable[..., Iterable[Any]]:
        """A function that finds the rows from one key to another, in order."""
        put, rows, note = self._make_ends(shape), self._make_rows(), self.note

        def find(low: Sequence[Any], high: Sequence[Any], first: int = FIRST_ROWS) -> Iterable[Any]:
            if note is not None:
                note(shape.keys(low, high))
            return rows(first) if put(low, high) else self._cut(shape, low, high, first)

        return find

    def _make_ends(self, shape: Shape) -> Callable[[Sequence[Any], Sequence[Any]], bool]:
        """A function that puts keys where the walk goes from and to; False: one is longer than any entry."""
        self._use(shape)
        encode_low, encode_high = self._encoders.get(shape.low_columns), self._encoders.get(shape.high_columns)
        low_memory, high_memory = self._low, self._high

        def put(low: Sequence[Any], high: Sequence[Any]) -> bool:
            if encode_low is not None:
                entry = encode_low(low)
                if len(entry) > ENTRY_MAX:
                    return False
                low_memory[: len(entry)] = entry
            if encode_high is not None:
                entry = encode_high(high)
                if len(entry) > ENTRY_MAX:
                    return False
                high_memory[: len(entry)] = entry
            return True

        return put

    def _cut(self, shape: Shape, low: Sequence[Any], high: Sequence[Any], first: int) -> Iterable[Any]:
        """``between`` where a key is longer than any entry: its first columns are the end, and belong to the range."""
        low, low_open = self._fitting(low, shape.low_open)
        high, high_open = self._fitting(high, shape.high_open)
        try:
            cut = Shape(len(low), len(high), low_open, high_open, shape.backwards)
            return list(self.between(cut)(low, high, first))
        finally:
            self._use(shape)

    def _fitting(self, key: Sequence[Any], is_open: bool) -> tuple[Sequence[Any], bool]:
        if not key or len(self._encoders[len(key)](key)) <= ENTRY_MAX:
            return key, is_open
        return self._fitting(key[:-1], False)

    def of_ranges(self) -> Callable[..., Iterator[Any]]:
        """A function that finds the rows of several ranges of keys."""

        def find(ranges: Iterable[KeyRange], first: int = FIRST_ROWS) -> Iterator[Any]:
            for keys in ranges:
                shape = Shape(len(keys.low), len(keys.high), keys.low_open, keys.high_open, keys.backwards)
                yield from self.between(shape)(keys.low, keys.high, first)

        return find

    def _make_rows(self) -> Callable[[int], Iterable[Any]]:
        """A function that begins the walk, and gives its rows: those of the first step as a list, if it has no more."""
        walk, fields, read, decode = self._walk, self._fields, self._read, self._decode_some
        address, output, at_once = walk.address, walk.output, self._split
        slowly: Callable[[bytes, Decode], Iterable[Any]] = _decoded if self._row_ids else _values
        if self._finish is not None:
            slowly = partial(_finished, slowly, self._row_ids, self._finish)

        def split(used: int) -> Iterable[Any]:
            data = output[:used].tobytes()
            rows = None if at_once is None else at_once(data)
            return slowly(data, decode) if rows is None else rows

        def rows(first: int) -> Iterable[Any]:
            fields[STARTED_FIELD] = fields[DONE_FIELD] = 0
            used = read(address, first)
            return split(used) if fields[DONE_FIELD] else chain(split(used), more(first))

        def more(limit: int) -> Iterator[Any]:
            while not fields[DONE_FIELD]:
                limit = min(8 * limit, MORE_ROWS)
                yield from split(read(address, limit))

        return rows


def _encoded(data: bytes) -> Iterator[tuple[RowId, bytes]]:
    """Rows that a kernel gave out."""
    at, end = 0, len(data)
    while at < end:
        page_id, slot, size = _unpack_found(data, at)
        start = at + _FOUND_SIZE
        at = start + size
        yield _new(RowId, (page_id, slot)), data[start:at]


def _values(data: bytes, decode: Decode) -> list[tuple[Any, ...]]:
    """``_decoded``, without row ids."""
    rows, at, end = [], 0, len(data)
    while at < end:
        _, _, size = _unpack_found(data, at)
        start = at + _FOUND_SIZE
        at = start + size
        rows.append(decode(data[start:at]))
    return rows


def _finished(make: Callable[[bytes, Decode], Any], row_ids: bool, finish: Finish, data: bytes, decode: Decode) -> Any:
    """Rows, as ``make`` does them; but where some are Unfinished one at a time, for they may be large."""
    rows = make(data, decode)
    if row_ids:
        if any(values.__class__ is Unfinished for _, values in rows):
            return ((row_id, finish(v) if v.__class__ is Unfinished else v) for row_id, v in rows)
    elif any(values.__class__ is Unfinished for values in rows):
        return (finish(values) if values.__class__ is Unfinished else values for values in rows)
    return rows


def _decoded(data: bytes, decode: Decode) -> list[Found]:
    if not data:
        return []
    page_id, slot, size = _unpack_found(data)
    if len(data) == size + _FOUND_SIZE:  # most often it is one
        return [(_new(RowId, (page_id, slot)), decode(data[_FOUND_SIZE:]))]
    rows, at, end = [], 0, len(data)
    while at < end:
        page_id, slot, size = _unpack_found(data, at)
        start = at + _FOUND_SIZE
        at = start + size
        rows.append((_new(RowId, (page_id, slot)), decode(data[start:at])))
    return rows
