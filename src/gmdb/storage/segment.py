"""A segment: the pages of one table, found through its map.

Not here: rows (access/heap.py).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gmdb.errors import Corruption
from gmdb.format.address import device_of, offset_of
from gmdb.format.page import SegmentType
from gmdb.format.segment import SEGMENT_HEAD, SEGMENT_HEAD_AT
from gmdb.kernel.ending import create_segment
from gmdb.kernel.recovery import check_page
from gmdb.kernel.segment import NAME_SIZE, read_map
from gmdb.storage.store import PageStore
from gmdb.storage.tablespace import Tablespace


class Segment:
    def __init__(self, store: PageStore, space: Tablespace, entry_page: int) -> None:
        self.store = store
        self.space = space
        self.entry_page = entry_page

    @classmethod
    def create(
        cls,
        store: PageStore,
        space: Tablespace,
        obj_id: int,
        name: str,
        kind: SegmentType,
        pct_free: int,
        call_address: int = 0,
    ) -> Segment:
        """Make a segment; with a session's call it is part of its transaction, which keeps the undo record."""
        label = np.frombuffer(name.encode()[: NAME_SIZE - 1].ljust(NAME_SIZE, b"\0"), np.uint8)
        arguments = (call_address, space.space_id, obj_id, int(kind), pct_free, label.ctypes.data)
        return cls(store, space, store.call(create_segment, space.space_id, *arguments))

    @property
    def head(self) -> Any:
        """The segment head, in the entry page as it is in memory."""
        device = self.store.devices.get(device_of(self.entry_page))
        if device is None or offset_of(self.entry_page) >= device.page_count:
            raise Corruption(f"the entry page of a segment, {self.entry_page}, does not exist", self.entry_page)
        self.store.call(check_page, self.space.space_id, self.entry_page)
        return SEGMENT_HEAD.at(device.memory(offset_of(self.entry_page)), SEGMENT_HEAD_AT)

    def page_ids(self) -> np.ndarray:
        """The data pages, in map order."""
        with self.store.guard:
            ids = np.empty(max(self._read_map(0, 0), 1), np.uint32)
            return ids[: self._read_map(ids.ctypes.data, len(ids))]

    def _read_map(self, address: int, capacity: int) -> int:
        return self.store.call(read_map, self.space.space_id, self.entry_page, address, capacity)
