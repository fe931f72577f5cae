"""A B-tree index: entries of key and row id, in order.

Not here: which transactions see what an entry leads to.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gmdb.access.indexes import order_of
from gmdb.errors import DataError, SchemaError, UniqueViolation, ValueTooLong
from gmdb.format.address import RowId
from gmdb.format.btree import INDEX_HEAD, KEY_BYTES_MAX, KEY_COLUMNS_MAX
from gmdb.format.columns import Column
from gmdb.format.row import ROW_HEAD, decode_row, encode_row
from gmdb.kernel.btree_calls import WALK, add_to_tree, find_in_tree, plant_tree, take_from_tree, walk_tree
from gmdb.kernel.index_build import enter_page
from gmdb.kernel.keys import ENTRY_BUFFER, POINTER_AT, VALUES_AT
from gmdb.kernel.status import DUPLICATE, KEY_TOO_LONG, NOT_FOUND
from gmdb.storage.segment import Segment

if TYPE_CHECKING:
    from gmdb.access.heap import Heap

WALK_BUFFER = 1 << 16
ROWS_AT_ONCE = 64
_LOW, _LOW_COLUMNS, _HIGH, _HIGH_COLUMNS, _STARTED, _DONE = (
    list(WALK.names or ()).index(name) for name in ("low", "low_columns", "high", "high_columns", "started", "done")
)


class BTree:
    """The entries of one index, in its segment."""

    def __init__(self, segment: Segment, columns: Sequence[Column]) -> None:
        if not 1 <= len(columns) <= KEY_COLUMNS_MAX:
            raise SchemaError(f"an index has 1 to {KEY_COLUMNS_MAX} columns, not {len(columns)}")
        self.segment = segment
        self.columns = tuple(columns)
        self._store = segment.store
        self._entry = np.zeros(ENTRY_BUFFER, np.uint8)

    @classmethod
    def create(cls, segment: Segment, columns: Sequence[Column], positions: Sequence[int], unique: bool) -> BTree:
        """Make the root of an index whose segment has no pages yet."""
        tree = cls(segment, columns)
        head = INDEX_HEAD.pack(
            unique=int(unique),
            column_count=len(columns),
            orders=[*map(order_of, columns), *[0] * (16 - len(columns))],
            positions=list(np.array([*positions, *[0] * (16 - len(positions))], "<u2").tobytes()),
        )
        raw = np.frombuffer(head, np.uint8)
        tree._call(plant_tree, raw.ctypes.data)
        return tree

    def _call(self, kernel: Any, *arguments: int) -> int:
        with self._store.guard:
            return self._store.call(kernel, self.segment.space.space_id, self.segment.entry_page, *arguments)

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
        self._entry[: len(raw)] = np.frombuffer(raw, np.uint8)
        return self._entry.ctypes.data

    def add(self, key: Sequence[Any], row_id: RowId) -> None:
        self._call(add_to_tree, self._put(key, row_id))

    def take(self, key: Sequence[Any], row_id: RowId) -> bool:
        """Take an entry out; whether it was there."""
        return self._call(take_from_tree, self._put(key, row_id)) != NOT_FOUND

    def __contains__(self, item: tuple[Sequence[Any], RowId]) -> bool:
        return self._call(find_in_tree, self._put(*item)) != NOT_FOUND

    def walk(
        self,
        low: Sequence[Any] = (),
        high: Sequence[Any] = (),
        *,
        low_open: bool = False,
        high_open: bool = False,
        backwards: bool = False,
    ) -> Iterator[tuple[tuple[Any, ...], RowId]]:
        """The entries from ``low`` to ``high``, each the first columns of a key; without them, from end to end."""
        walk = Walk(self, low, high, low_open, high_open, backwards)
        output = np.zeros(WALK_BUFFER, np.uint8)
        while not walk.done:
            with self._store.guard:
                used = self._store.call(walk_tree, 0, walk.address, output.ctypes.data, WALK_BUFFER)
            at, data = 0, output[:used].tobytes()
            while at < used:
                size = int.from_bytes(data[at + 4 : at + 6], "little")
                yield self.decode(data[at : at + size])
                at += size


class Walk:
    """The memory of a walk through an index."""

    def __init__(
        self,
        tree: BTree,
        low: Sequence[Any],
        high: Sequence[Any],
        low_open: bool,
        high_open: bool,
        backwards: bool,
    ) -> None:
        self._memory = np.zeros(3 * ENTRY_BUFFER, np.uint8)
        self._walk = np.zeros(1, WALK)
        self.address: int = self._walk.ctypes.data
        self._fields = self._walk.view(np.int64).data
        self._bytes, self._memory_address = self._memory.data, self._memory.ctypes.data
        walk = self._walk[0]
        walk["index"], walk["backwards"] = tree.segment.entry_page, int(backwards)
        walk["position"] = self._memory.ctypes.data + 2 * ENTRY_BUFFER
        for n, (name, key) in enumerate((("low", low), ("high", high))):
            if key:
                raw = tree.encode(key)
                self._memory[n * ENTRY_BUFFER : n * ENTRY_BUFFER + len(raw)] = np.frombuffer(raw, np.uint8)
                walk[name] = self._memory.ctypes.data + n * ENTRY_BUFFER
                walk[f"{name}_columns"] = len(key)
        walk["low_bound"] = 1 if low_open else -1
        walk["high_bound"] = -1 if high_open else 1

    def begin_at(self, key: bytes, columns: int) -> None:
        """Start over, for the entries whose first columns are those of ``key``, which has a row's shape."""
        self._bytes[:POINTER_AT] = key[:POINTER_AT]
        self._bytes[VALUES_AT : VALUES_AT + len(key) - POINTER_AT] = key[POINTER_AT:]
        fields = self._fields
        fields[_LOW] = fields[_HIGH] = self._memory_address
        fields[_LOW_COLUMNS] = fields[_HIGH_COLUMNS] = columns
        fields[_STARTED] = fields[_DONE] = 0

    @property
    def done(self) -> bool:
        return bool(self._fields[_DONE])


def fill_index(tree: BTree, heap: Heap, name: str) -> None:
    """Enter all rows of a table into an index that has none; nobody changes the table meanwhile."""
    store, arguments = tree.segment.store, (tree.segment.entry_page, heap.obj_id)
    for page_id in heap.segment.page_ids().tolist():
        slot = 0
        while slot < heap.segment.space.page_size:
            with store.guard:
                slot = store.call(enter_page, tree.segment.space.space_id, *arguments, page_id, slot, ROWS_AT_ONCE)
            if slot == DUPLICATE:
                names = ", ".join(column.name for column in tree.columns)
                raise UniqueViolation(f"index {name}: two rows of table {heap.name} have the same key ({names})")
            if slot == KEY_TOO_LONG:
                raise ValueTooLong(f"index {name}: a row of table {heap.name} has a key of over {KEY_BYTES_MAX} bytes")
