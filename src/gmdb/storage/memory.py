"""Memory that kernels and Python share beside pages: views of it for Python, and its address for kernels.

It stays where it is for as long as a view of it lives; whoever tells kernels an address keeps one.  NumPy takes a view
as an array, without a copy: ``np.asarray(view)``, or ``np.frombuffer(view, LOCK)`` for structures.
"""

from __future__ import annotations

import ctypes
import mmap
from array import array
from collections.abc import Iterable
from typing import Any


def zeros(count: int, kind: str = "B") -> memoryview:
    """So many zeros; ``kind`` as the ``struct`` module has it: ``B``, bytes; ``I``, of 4; ``q``, 8 with a sign."""
    return memoryview(bytearray(count * array(kind).itemsize)).cast(kind)  # type: ignore[call-overload]


def untouched(count: int, kind: str = "B") -> memoryview:
    """Zeros that take memory only where they are written to, and give it back when they are freed.

    malloc does neither for some megabytes once as many have been freed: it clears the next ones itself, and keeps its
    memory.
    """
    size = count * array(kind).itemsize
    mapped = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return memoryview(mapped).cast(kind)  # type: ignore[call-overload]


def numbers(values: Iterable[int], kind: str = "q") -> memoryview:
    """These numbers."""
    return memoryview(array(kind, values))


def address_of(memory: Any) -> int:
    """Where some memory lies that can be written to: a view, a bytearray, an array of NumPy's.  The caller keeps it.

    0 if there is none.
    """
    return ctypes.addressof(ctypes.c_char.from_buffer(memory)) if len(memory) else 0
