"""Writing many pages to their places in one file, in one call.

A checkpoint writes thousands of pages, each to another place.  A system call each from Python would mean asking for
the interpreter's lock each time, and waiting for it behind other threads; so the loop is compiled, and runs
without it.  It is the one kernel that does I/O.
"""

from __future__ import annotations

from gmdb.kernel.runtime.compiler import long_kernel
from gmdb.kernel.runtime.memory import load_i64, pwrite


@long_kernel
def write_pieces(file, addresses, offsets, count, size):
    """Write ``count`` pieces of ``size`` bytes, from addresses to offsets (i64s); returns how many were written."""
    for i in range(count):
        if pwrite(file, load_i64(addresses + 8 * i), size, load_i64(offsets + 8 * i)) != size:
            return i
    return count
