"""Pieces of sorted runs, merged onto leaf pages of a B-tree that have no place yet: without an open database."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from gmdb.errors import UniqueViolation
from gmdb.format.btree import key_values
from gmdb.format.columns import Column
from gmdb.format.row import SIZE_AT
from gmdb.kernel.index_leaves import MERGE, PIECE, begin_merge, merge_leaves
from gmdb.kernel.status import DUPLICATE
from gmdb.storage.frozen import FrozenStore


class LeafMerge:
    """Merges pieces, each in order, of one index whose head is among a store's pages."""

    def __init__(self, store: FrozenStore, entry_page: int, pieces: Sequence[np.ndarray]) -> None:
        self._store, self._entry_page = store, entry_page
        self._memory = [piece for piece in pieces if len(piece)]
        self._pieces = np.zeros(len(self._memory), PIECE)
        self._pieces["next"] = [piece.ctypes.data for piece in self._memory]
        self._pieces["end"] = [piece.ctypes.data + len(piece) for piece in self._memory]
        self._heap = np.arange(len(self._memory), dtype=np.int64)
        self._merge = np.zeros(1, MERGE)
        self._merge["pieces"], self._merge["heap"] = self._pieces.ctypes.data, self._heap.ctypes.data
        self._merge["count"] = len(self._memory)
        store.call(begin_merge, 0, entry_page, self._merge.ctypes.data)

    @property
    def entries(self) -> int:
        """How many entries are on pages."""
        return int(self._merge["entries"][0])

    def fill(self, buffer: np.ndarray, page_size: int, where: str, columns: Sequence[Column]) -> int:
        """Put the next entries onto pages in a buffer; answers how many pages that are, 0 at the end.

        ``where`` and ``columns`` are for the error if an index that is unique gets a key twice.
        """
        place = (self._merge.ctypes.data, buffer.ctypes.data, page_size, len(buffer) // page_size)
        count = self._store.call(merge_leaves, 0, self._entry_page, *place)
        if count == DUPLICATE:
            key = ", ".join(str(value)[:100] for value in self._last_key(columns))
            names = ", ".join(column.name for column in columns)
            raise UniqueViolation(f"{where}: two rows have the same key ({names}): {key}")
        return count

    def _last_key(self, columns: Sequence[Column]) -> tuple[Any, ...]:
        at = int(self._merge["previous"][0])
        size = int.from_bytes(ctypes.string_at(at + SIZE_AT, 2), "little")
        return key_values(columns, ctypes.string_at(at, size), 0)
