"""The locks of transactions that had not committed at a pin's instant, as bytes: for those who read by it.

A lock id that is not among them means none: whoever held it had committed.  Which of the transactions it was does not
matter to a reader, so all of them share one place in the table of transactions, where they never commit.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from gmdb.errors import Corruption
from gmdb.kernel.locks import LOAD, LOCK, LOCKS_MAX
from gmdb.storage.disk import read_plain

IN_FLIGHT = 1  # the place of all of them
_COUNTS = np.dtype("<i8")


def pack_locks(ids: np.ndarray, locks: np.ndarray, loads: np.ndarray) -> bytes:
    """Locks under their ids, and bulk loads; nothing if there are none."""
    if not len(ids) and not len(loads):
        return b""
    locks, loads = locks.copy(), loads.copy()
    locks["transaction"] = loads["transaction"] = IN_FLIGHT
    counts = np.array([len(ids), len(loads)], _COUNTS)
    return counts.tobytes() + ids.astype("<u4").tobytes() + locks.tobytes() + loads.tobytes()


def read_locks(path: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A lock area with the locks in their places, their ids, and the bulk loads.

    What is not touched of the area takes no memory.
    """
    try:
        raw = read_plain(path)
    except (FileNotFoundError, NotADirectoryError):
        return np.zeros(LOCKS_MAX, LOCK), np.zeros(0, np.uint32), np.zeros(0, LOAD)
    counts = np.frombuffer(raw[:16], _COUNTS).tolist() if len(raw) >= 16 else [-1, -1]
    if min(counts) < 0 or len(raw) != 16 + counts[0] * (4 + LOCK.itemsize) + counts[1] * LOAD.itemsize:
        raise Corruption(f"{path} is damaged; load again")
    ids = np.frombuffer(raw, "<u4", counts[0], 16)
    locks = np.frombuffer(raw, LOCK, counts[0], 16 + 4 * counts[0])
    loads = np.frombuffer(raw, LOAD, counts[1], 16 + counts[0] * (4 + LOCK.itemsize)).copy()
    leads_astray = (ids >= LOCKS_MAX) | (locks["previous"] >= LOCKS_MAX) | (locks["transaction"] != IN_FLIGHT)
    if leads_astray.any() or (loads["transaction"] != IN_FLIGHT).any():
        raise Corruption(f"{path} is damaged; load again")
    area = np.zeros(LOCKS_MAX, LOCK)
    area[ids] = locks
    return area, ids, loads
