"""What makes thousands of short tests quick, and changes nothing of what they show."""

from __future__ import annotations

import ctypes
import os
import shutil
from pathlib import Path

from gmdb.storage import disk
from gmdb.storage.disk import Disk, DiskFile
from tests import java_classes

MEMORY = Path("/dev/shm")
MEMORY_MIN = 4 << 30  # bytes that must be free there for the directories of all tests
_M_MMAP_THRESHOLD = -3


class MemoryDisk(Disk):
    """For files that lie in memory: a file's length is set without filling all of it with zeros."""

    def raw_allocate(self, file: DiskFile, length: int) -> None:
        if self.raw_size(file) < length:
            self.raw_truncate(file, length)


def ask_the_system_for_zeros() -> None:
    """Opening a database asks for large arrays of zeros.

    Once one of them was freed, the C library takes the next from its heap and fills it, unless it is told to go on
    asking the system, which has zeros for nothing.
    """
    ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, 1 << 20)


def in_memory() -> Path | None:
    """A file system in memory, if there is one with room: a sync costs nothing there.

    Nothing is lost by that: whether what was synced outlives power is shown by journals (tests.crash), not by disks.
    """
    if not os.access(MEMORY, os.W_OK) or min(shutil.disk_usage(MEMORY).free, _available_memory()) < MEMORY_MIN:
        return None
    return MEMORY


def _available_memory() -> int:
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))


def hurry() -> None:
    """For this process and those that it starts."""
    ask_the_system_for_zeros()
    os.environ.setdefault("JDK_JAVA_OPTIONS", java_classes.options())
    place = in_memory()
    if place is not None:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(place))  # where pytest makes the directories of tests
        disk.current = MemoryDisk()
