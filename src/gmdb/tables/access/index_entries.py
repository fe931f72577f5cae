"""Indexes: entries of key and row id, found by their keys; in order in a B-tree, by a hash of the key in a hash index.

Not here: which transactions see the row of an entry.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from gmdb.errors import DataError, SchemaError
from gmdb.format.address import RowId, device_of, offset_of
from gmdb.format.btree import INDEX_AT, INDEX_HEAD, KEY_BYTES_MAX, KEY_COLUMNS_MAX, IndexKind
from gmdb.format.columns import Column
from gmdb.format.page import SegmentType
from gmdb.format.row import ROW_HEAD, decode_row, encode_row
from gmdb.kernel.change.index_calls import add_to_index, find_in_index, plant_index, take_from_index, walk_index
from gmdb.kernel.indexes.any_index import WALK
from gmdb.kernel.row import ENTRY_BUFFER, POINTER_AT, VALUES_AT
from gmdb.kernel.runtime.status import NOT_FOUND
from gmdb.storage.memory import address_of, numbers, zeros
from gmdb.storage.store import Segment
from gmdb.tables.access.indexes import EVERYTHING, KeyRange, order_of

WALK_BUFFER = 1 << 16
LOW_FIELD, LOW_COLUMNS_FIELD, LOW_BOUND_FIELD = (WALK.names.index(name) for name in ("low", "low_columns", "low_bound"))
HIGH_FIELD, HIGH_COLUMNS_FIELD, HIGH_BOUND_FIELD = (
    WALK.names.index(name) for name in ("high", "high_columns", "high_bound")
)
BACKWARDS_FIELD, STARTED_FIELD, DONE_FIELD = (WALK.names.index(name) for name in ("backwards", "started", "done"))


class Index:
    """The entries of one index, in its segment."""

    kind: IndexKind
    segment_type: SegmentType

    def __init__(self, segment: Segment, columns: Sequence[Column]) -> None:
        if not 1 <= len(columns) <= KEY_COLUMNS_MAX:
            raise SchemaError(f"an index has 1 to {KEY_COLUMNS_MAX} columns, not {len(columns)}")
        self.segment = segment
        self.columns = tuple(columns)
        self._store = segment.store
        self._entry = zeros(ENTRY_BUFFER)

    @classmethod
    def create(cls, segment: Segment, columns: Sequence[Column], positions: Sequence[int], unique: bool) -> Index:
        """Make the root of an index whose segment has no pages yet."""
        tree = cls(segment, columns)
        head = INDEX_HEAD.pack(
            unique=int(unique),
            column_count=len(columns),
            kind=int(cls.kind),
            orders=[*map(order_of, columns), *[0] * (16 - len(columns))],
            positions=numbers([*positions, *[0] * (16 - len(positions))], "H").tobytes(),
        )
        tree._entry[: len(head)] = head
        tree._call(plant_index, address_of(tree._entry))
        return tree

    @property
    def root(self) -> int:
        return int(self._head().root)

    @property
    def unique(self) -> bool:
        return bool(self._head().unique)

    def _head(self) -> Any:
        entry_page = self.segment.entry_page
        page = self._store.devices[device_of(entry_page)].memory(offset_of(entry_page))
        return INDEX_HEAD.at(page, INDEX_AT)

    def _call(self, kernel: Any, *arguments: int) -> int:
        return self._store.call_guarded(kernel, self.segment.space.space_id, self.segment.entry_page, *arguments)

    # ---- entries

    def encode(self, key: Sequence[Any], row_id: RowId | None = None) -> bytes:
        """An entry's bytes; a key of fewer columns serves to search by them."""
        columns = self.columns[: len(key)]
        row = encode_row([Column(c.name, c.type, True) for c in columns], list(key))
        if len(row) - ROW_HEAD.size > KEY_BYTES_MAX:
            raise DataError(f"an index key has at most {KEY_BYTES_MAX} bytes, not {len(row) - ROW_HEAD.size}")
        word = 0 if row_id is None else row_id.word
        size = (len(row) + 8).to_bytes(2, "little")
        return row[:4] + size + row[6:POINTER_AT] + word.to_bytes(8, "little") + row[POINTER_AT:]

    def decode(self, entry: bytes) -> tuple[tuple[Any, ...], RowId]:
        row = entry[:4] + (len(entry) - 8).to_bytes(2, "little") + entry[6:POINTER_AT] + entry[VALUES_AT:]
        word = int.from_bytes(entry[POINTER_AT:VALUES_AT], "little")
        return tuple(decode_row(self.columns, row)), RowId.from_word(word)

    def _put(self, key: Sequence[Any], row_id: RowId) -> int:
        raw = self.encode(key, row_id)
        self._entry[: len(raw)] = raw
        return address_of(self._entry)

    def add(self, key: Sequence[Any], row_id: RowId) -> None:
        self._call(add_to_index, self._put(key, row_id))

    def take(self, key: Sequence[Any], row_id: RowId) -> bool:
        """Take an entry out; whether it was there."""
        return self._call(take_from_index, self._put(key, row_id)) != NOT_FOUND

    def __contains__(self, item: tuple[Sequence[Any], RowId]) -> bool:
        return self._call(find_in_index, self._put(*item)) != NOT_FOUND

    def walk(self, keys: KeyRange = EVERYTHING) -> Iterator[tuple[tuple[Any, ...], RowId]]:
        """The entries of a range, key and row id."""
        walk = Walk(self, keys)
        while not walk.done:
            used = self._store.call_guarded(walk_index, 0, walk.address)
            at, data = 0, walk.output[:used].tobytes()
            while at < used:
                size = int.from_bytes(data[at + 4 : at + 6], "little")
                yield self.decode(data[at : at + size])
                at += size


class BTreeIndex(Index):
    """Entries in the order of their keys."""

    kind, segment_type = IndexKind.BTREE, SegmentType.BTREE


class HashIndex(Index):
    """Entries by a hash of the whole key: a walk goes over those of one key, or over all in no order."""

    kind, segment_type = IndexKind.HASH, SegmentType.HASH


INDEX_KINDS: dict[str, type[Index]] = {"btree": BTreeIndex, "hash": HashIndex}


class Walk:
    """The memory of a walk through an index."""

    def __init__(
        self,
        tree: Index,
        keys: KeyRange = EVERYTHING,
        room: int = WALK_BUFFER,
    ) -> None:
        """``room``: bytes of what a call gives out."""
        self._memory = zeros(3 * ENTRY_BUFFER + room)
        self._fields = zeros(len(WALK.names), "q")
        self.address = address_of(self._fields)
        at = self.key_address = address_of(self._memory)
        walk = WALK.at(self._fields)
        walk.index, walk.backwards = tree.segment.entry_page, keys.backwards
        walk.position, walk.output, walk.room = at + 2 * ENTRY_BUFFER, at + 3 * ENTRY_BUFFER, room
        self.output = self._memory[3 * ENTRY_BUFFER :]
        for n, key in enumerate((keys.low, keys.high)):
            if key:
                raw = tree.encode(key)
                self._memory[n * ENTRY_BUFFER : n * ENTRY_BUFFER + len(raw)] = raw
                self._fields[(LOW_FIELD, HIGH_FIELD)[n]] = at + n * ENTRY_BUFFER
                self._fields[(LOW_COLUMNS_FIELD, HIGH_COLUMNS_FIELD)[n]] = len(key)
        walk.low_bound = 1 if keys.low_open else -1
        walk.high_bound = -1 if keys.high_open else 1

    def use_one_key(self) -> tuple[memoryview, memoryview]:
        """Walk over the entries of one key; returns memory for the key, in an entry's shape, and the walk's fields."""
        self._fields[LOW_FIELD] = self._fields[HIGH_FIELD] = self.key_address
        return self._memory, self._fields

    @property
    def done(self) -> bool:
        return bool(self._fields[DONE_FIELD])
