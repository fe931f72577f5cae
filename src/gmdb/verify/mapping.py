"""The pages of all devices in memory, for checks that go from page to page."""

from __future__ import annotations

import numpy as np

from gmdb.format.address import DEVICES
from gmdb.kernel.verify_index import MAPPED_DEVICE
from gmdb.verify.survey import Survey


class MappedPages:
    """It must live as long as its address is used."""

    def __init__(self, survey: Survey) -> None:
        self._view = np.zeros(DEVICES, MAPPED_DEVICE)
        self._memory = []
        self.seen: dict[int, np.ndarray] = {}  # by device: which pages a tree has led to
        for device, facts in survey.facts.items():
            pages = survey.files.mapped(device)
            seen = self.seen[device] = np.zeros(len(facts), np.uint8)
            self._memory.append(pages)
            size = survey.files.devices[device].page_size
            addresses = (memory.ctypes.data for memory in (facts, seen))
            self._view[device] = (pages.ctypes.data, size, len(facts), *addresses)
        self.address: int = self._view.ctypes.data
