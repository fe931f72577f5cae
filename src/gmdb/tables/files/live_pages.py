"""The pages of a database that this process has open, as the inspector reads them: memory where that is newer.

A page that was used is shown as a checkpoint would write it, with its CRC; another one as the file has it,
damage included.
"""

from __future__ import annotations

from gmdb.format.address import NO_PAGE, device_of, offset_of, page_id_of
from gmdb.format.checksum import page_crc
from gmdb.format.page import HEAD_SIZE, PAGE_HEAD, PAGE_TAIL, TAIL_SIZE
from gmdb.process.late_imports import numpy as np
from gmdb.storage.store import PageStore
from gmdb.tables.files.database_files import DatabaseFiles


class LivePages(DatabaseFiles):
    def __init__(self, store: PageStore) -> None:
        super().__init__(store.directory)
        self._store = store
        for number, device in self.devices.items():
            if device.has_head:
                device.read_head(self.page(page_id_of(number, 0)))

    def page(self, page_id: int) -> bytes:
        used = self._used(page_id)
        if used is None:
            return super().page(page_id)
        page = bytearray(used)
        page[:8] = bytes(8)  # latch and mutex, which are memory's alone
        head = PAGE_HEAD.at(page)
        head.dirty_flag, head.next_ckpt_page = 0, NO_PAGE
        page[-TAIL_SIZE:] = PAGE_TAIL.pack(crc=page_crc(page))
        return bytes(page)

    def head(self, page_id: int) -> bytes:
        used = self._used(page_id)
        return super().head(page_id) if used is None else used[:HEAD_SIZE]

    def starts(self, page_ids: np.ndarray, size: int) -> np.ndarray:
        starts = super().starts(page_ids, size)
        for number, page_id in enumerate(page_ids.tolist()):
            used = self._used(page_id)
            if used is not None:
                starts[number] = np.frombuffer(used, np.uint8, size)
        return starts

    def _used(self, page_id: int) -> bytes | None:
        """A page's bytes in memory, if it was used."""
        device = self._store.devices.get(device_of(page_id))
        with self._store.guard:
            if device is None or offset_of(page_id) >= device.page_count:
                return None
            return bytes(device.memory(offset_of(page_id))) if device.is_verified(offset_of(page_id)) else None
