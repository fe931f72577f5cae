"""Who each page belongs to: a segment, a device or its list of free pages; one of them, and only one."""

from __future__ import annotations

import numpy as np

from gmdb.format.address import PAGES_PER_DEVICE, device_of, offset_of


class Owners:
    def __init__(self, pages_in_use: dict[int, int]) -> None:
        self._names = ["nobody"]
        self._owners = {device: np.zeros(count, np.int32) for device, count in pages_in_use.items()}

    def claim(self, page_id: int, who: str) -> str:
        """Say that a page in use belongs to ``who``; answers who had it before, if somebody did."""
        owners = self._owners[device_of(page_id)]
        before = int(owners[offset_of(page_id)])
        if not before:
            owners[offset_of(page_id)] = self._number(who)
        return self._names[before] if before else ""

    def claim_all(self, page_ids: np.ndarray, who: str) -> list[tuple[int, str]]:
        """Claim many pages; answers (position, owner) of those that had one.  Pages not in use are passed over."""
        number, taken = self._number(who), []
        for device, owners in self._owners.items():
            here = np.flatnonzero(page_ids >> 22 == device)
            offsets = page_ids[here] & (PAGES_PER_DEVICE - 1)
            here, offsets = here[offsets < len(owners)], offsets[offsets < len(owners)]
            first = np.zeros(len(offsets), bool)
            first[np.unique(offsets, return_index=True)[1]] = True
            for i in np.flatnonzero((owners[offsets] != 0) | ~first):
                taken.append((int(here[i]), self._names[owners[offsets[i]]] if first[i] else who))
            free = offsets[(owners[offsets] == 0) & first]
            owners[free] = number
        return taken

    def unowned(self, device: int) -> np.ndarray:
        """Offsets of the pages in use that nobody has claimed."""
        return np.flatnonzero(self._owners[device] == 0)

    def _number(self, who: str) -> int:
        if self._names[-1] != who:
            self._names.append(who)
        return len(self._names) - 1
