"""The pages of all devices in memory, for checks that go from page to page."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from gmdb.format.address import DEVICES
from gmdb.kernel.verify_index import MAPPED_DEVICE
from gmdb.verify.reader import VerifiedFiles


class MappedPages:
    """It must live as long as its address is used.  ``verdicts``: by device, a byte for each page in use."""

    def __init__(self, files: VerifiedFiles, verdicts: Mapping[int, np.ndarray]) -> None:
        self._view = np.zeros(DEVICES, MAPPED_DEVICE)
        self._memory = []
        self.seen: dict[int, np.ndarray] = {}  # by device: which pages a tree has led to
        for device, found in verdicts.items():
            pages, known = files.mapped(device), np.ascontiguousarray(found)
            seen = self.seen[device] = np.zeros(len(known), np.uint8)
            self._memory.append((pages, known))
            size = files.devices[device].page_size
            addresses = (memory.ctypes.data for memory in (known, seen))
            self._view[device] = (pages.ctypes.data, size, len(known), *addresses)
        self.address: int = self._view.ctypes.data

    def forget_walks(self) -> None:
        """Let a walk through an index begin again."""
        for seen in self.seen.values():
            seen.fill(0)
