"""A disk whose power can be cut while the engine runs: what was not synced is gone then, or half of it.

It keeps what was there before each write until the file is synced.  At the cut, every sector of every write that was
not synced is put back or left, by chance, and the process is killed with its hands still in the air.
Names of files, and lengths, last at once here; what a cut does to those is shown in tests/crash/power_cut.py.
"""

from __future__ import annotations

import os
import signal
import threading
from collections import defaultdict
from random import Random

from gmdb.storage.disk import Disk, DiskFile
from tests.crash.faults import FaultyDisk

SECTOR = 512


class PowerDisk(Disk):
    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._before: dict[int, list[tuple[int, bytes]]] = defaultdict(list)  # by inode: what writes have replaced
        self._files: dict[int, int] = {}  # a descriptor of ours for each: the engine may have closed its own

    def raw_write(self, file: DiskFile, data: memoryview, offset: int) -> int:
        with self._lock:
            inode = os.fstat(file.number).st_ino
            if inode not in self._files:
                self._files[inode] = os.dup(file.number)
            self._before[inode].append((offset, os.pread(file.number, len(data), offset)))
            return super().raw_write(file, data, offset)

    def raw_sync(self, file: DiskFile, everything: bool) -> None:
        with self._lock:
            inode = os.fstat(file.number).st_ino
            written = len(self._before.get(inode, ()))
        super().raw_sync(file, everything)
        with self._lock:
            del self._before[inode][:written]  # not what was written while it was synced
            if not self._before[inode] and inode in self._files:
                os.close(self._files.pop(inode))

    def raw_truncate(self, file: DiskFile, length: int) -> None:
        with self._lock:
            super().raw_truncate(file, length)
            inode = os.fstat(file.number).st_ino
            kept = [(offset, old[: max(length - offset, 0)]) for offset, old in self._before[inode]]
            self._before[inode] = [(offset, old) for offset, old in kept if offset < length]

    def cut_power(self, seed: int) -> None:
        """Lose what was not synced, or some of it, and die."""
        dice = Random(seed)
        self._lock.acquire()
        for inode, number in self._files.items():
            share = dice.choice([0.0, 0.5, 1.0])  # of the sectors that are lost
            for offset, old in reversed(self._before[inode]):
                for start in range(0, len(old), SECTOR):
                    if dice.random() < share:
                        os.pwrite(number, old[start : start + SECTOR], offset + start)
        os.kill(os.getpid(), signal.SIGKILL)


class TownDisk(FaultyDisk, PowerDisk):
    """One that fails when it is told to, and whose power can be cut."""
